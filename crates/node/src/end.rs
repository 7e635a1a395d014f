//! Ends all pods of an agent's directory, for a machine that is given back.

use crate::cgroup;
use crate::link::Link;
use crate::orphans;
use crate::poddir::PodDir;
use crate::wire::Request;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io;
use std::path::Path;
use std::time::Duration;

/// What pods get to end by themselves, and how long their shims may then take.
const GRACE_SECS: u64 = 1;
const SHIM_MAX: Duration = Duration::from_secs(5);

/// Ends the pods and all that they started. No agent may run with the directory meanwhile; what it holds is left.
///
/// # Errors
/// The directory cannot be read, or processes live on.
pub async fn all(data: &Path) -> io::Result<()> {
    let pods = match std::fs::read_dir(data.join("pods")) {
        Ok(pods) => pods,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let dirs: Vec<PodDir> = pods.flatten().map(|entry| PodDir::new(entry.path())).collect();
    // Each has the same grace, beside the others.
    let ended = futures::future::join_all(dirs.iter().map(end)).await;
    ended.into_iter().collect::<io::Result<()>>()
}

async fn end(dir: &PodDir) -> io::Result<()> {
    if let Ok(mut link) = Link::connect(dir).await {
        let stopping = async {
            link.send(&Request::Subscribe).await?;
            link.send(&Request::Stop { grace_secs: GRACE_SECS }).await?;
            while link.notified().await {}
            Ok::<(), io::Error>(())
        };
        let _ = tokio::time::timeout(SHIM_MAX, stopping).await; // what does not listen is killed
    }
    if let Some(shim) = dir.shim()? {
        let _ = kill(Pid::from_raw(shim), Signal::SIGKILL);
    }
    let Some(held) = dir.read_held()? else { return Ok(()) };
    let records = dir.read_journal().unwrap_or_default();
    let group = dir.read_launch().ok().flatten().and_then(|launch| launch.cgroup);
    let ended = tokio::task::spawn_blocking(move || {
        let ended = orphans::end(&held, &records);
        if let Some(group) = group
            && let Err(error) = cgroup::remove(&group)
        {
            tracing::warn!(%error, "cannot remove a pod's cgroup");
        }
        ended
    });
    ended.await.map_err(io::Error::other)?.map_err(io::Error::other)
}
