//! What TrainJobs cost that wait for a node, with all of their children: memory, processor time, and what it takes to look at them.

use crate::peer::{Peer, cpu_seconds, idle, resting_mb, until};
use crate::{Figure, Setting, load};
use anyhow::{Context, Result, bail};
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};

const JOBS: usize = 3000;
const CLIENTS: usize = 16;
const PATH: &str = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs";
const PODS: &str = "/api/v1/pods";
/// Pods of each job.
const NODES: usize = 2;

pub async fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let jobs = JOBS / setting.shrink;
    let peer = Peer::trainyard(&setting.trainyard, &["--no-node"])?;
    let pid = *peer.pids.first().context("it has a process")?;
    let client = peer.client().await?;
    until(Duration::from_secs(120), || load::create(&client, PATH, trainjob("warm-up"))).await?;
    settle(&client, pid, 1).await?;
    let (memory, processor) = (resting_mb(pid).await?, cpu_seconds(pid));
    load::create_all(&client, PATH, CLIENTS, jobs, trainjob).await?;
    settle(&client, pid, jobs + 1).await?;
    let each = |amount: f64| amount / jobs as f64;
    let (memory, processor) = (resting_mb(pid).await? - memory, cpu_seconds(pid) - processor);
    let lists = [PODS.to_owned(), format!("{PODS}?labelSelector=jobset.sigs.k8s.io/jobset-name%3Do1")];
    let mut took = Vec::new();
    for list in &lists {
        let list = || async { client.request_text(Request::get(list).body(Vec::new())?).await.map_err(Into::into) };
        took.push(fastest(list).await?);
    }
    let mut shown = Vec::new();
    for words in [&["get"][..], &["describe", "o1"]] {
        shown.push(fastest(|| async { shows(setting, &peer, words) }).await?);
    }
    let figure = |name, unit, ours| Figure { name, unit, ours, peer: None, against: "-", more_is_better: false };
    Ok(vec![
        figure("memory of a waiting TrainJob", "KB, 2 pods", each(memory * 1024.0)),
        figure("processor for it", "ms", each(processor * 1e3)),
        figure("list of all pods", "ms", took[0]),
        figure("list by a label", "ms", took[1]),
        figure("trainyard get", "ms", shown[0]),
        figure("trainyard describe of one", "ms", shown[1]),
    ])
}

fn trainjob(name: &str) -> Value {
    json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": NODES, "command": ["true"]}}})
}

/// Waits until all pods are there, and nothing is left to do.
async fn settle(client: &Client, pid: u32, jobs: usize) -> Result<()> {
    /// Seconds of processor time in a second of which a process counts as idle.
    const IDLE: f64 = 0.05;
    until(Duration::from_secs(600), || async move {
        let list: Value = client.request(Request::get(format!("{PODS}?limit=1")).body(Vec::new())?).await?;
        let rest = list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0) as usize;
        let found = list["items"].as_array().map_or(0, Vec::len) + rest;
        if found < jobs * NODES {
            bail!("{found} pods of {jobs} jobs");
        }
        idle(pid, Duration::from_secs(1), IDLE).await
    })
    .await
}

/// Milliseconds until it is done, the fastest of five.
async fn fastest<T, F: Future<Output = Result<T>>>(work: impl Fn() -> F) -> Result<f64> {
    let mut fastest = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        work().await?;
        fastest = fastest.min(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(fastest)
}

/// Runs a command of ours to its end.
fn shows(setting: &Setting, peer: &Peer, words: &[&str]) -> Result<()> {
    let output = Command::new(&setting.trainyard).args(words).arg("--kubeconfig").arg(&peer.kubeconfig).output()?;
    if !output.status.success() {
        bail!("trainyard {words:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
