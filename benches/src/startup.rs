//! Time until the first answer, and memory when idle.

use crate::peer::Peer;
use crate::{Figure, Setting};
use anyhow::Result;
use std::time::Duration;

pub async fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let mut ours_ready = Vec::new();
    for _ in 0..5 {
        ours_ready.push(Peer::trainyard(&setting.trainyard, &[])?.ready.as_secs_f64() * 1e3);
    }
    ours_ready.sort_by(f64::total_cmp);
    let ours = Peer::trainyard(&setting.trainyard, &[])?;
    let theirs = setting.kubernetes.then(|| Peer::kubernetes(&["--trainer"])).transpose()?;
    // idle: what is left when start-up work is over
    tokio::time::sleep(Duration::from_secs(5)).await;
    Ok(vec![
        Figure {
            name: "ready (median of 5)",
            unit: "ms",
            ours: ours_ready[2],
            peer: theirs.as_ref().map(|p| p.ready.as_secs_f64() * 1e3),
            against: "etcd + Kubernetes + JobSet + Trainer",
            more_is_better: false,
        },
        Figure {
            name: "idle memory",
            unit: "MB resident",
            ours: ours.memory_mb(),
            peer: theirs.as_ref().map(Peer::memory_mb),
            against: "etcd + Kubernetes + JobSet + Trainer",
            more_is_better: false,
        },
    ])
}
