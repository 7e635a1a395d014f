//! TrainJobs per second until every child that the controllers make for them exists.

use crate::peer::{Peer, until};
use crate::{Figure, Setting, load};
use anyhow::{Result, bail};
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const CLIENTS: usize = 32;
const JOBS: usize = 1000;
/// Snapshot, JobSet, Service, Job and one Pod.
const CHILDREN: usize = 5;
const RUNTIME: &str = "torch-distributed";
const PATH: &str = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs";

pub async fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let jobs = JOBS / setting.shrink;
    let ours = {
        let peer = Peer::trainyard(&setting.trainyard, &["--no-node"])?;
        to_fixpoint(&peer.client().await?, jobs).await?
    };
    let theirs = match setting.kubernetes {
        true => {
            let peer = Peer::kubernetes(&["--trainer"])?;
            // upstream is slower: the same rate shows with fewer jobs, in less time
            Some(to_fixpoint(&peer.client().await?, (jobs / 5).max(20)).await?)
        }
        false => None,
    };
    let figure = |name, unit, scale: f64| Figure {
        name,
        unit,
        ours: ours * scale,
        peer: theirs.map(|rate| rate * scale),
        against: "Trainer + JobSet + Kubernetes",
        more_is_better: true,
    };
    Ok(vec![
        figure("TrainJobs to fixpoint", "jobs/s", 1.0),
        figure("child objects to fixpoint", "objects/s", CHILDREN as f64),
    ])
}

async fn to_fixpoint(client: &Client, jobs: usize) -> Result<f64> {
    until(Duration::from_secs(120), || load::create(client, PATH, trainjob("warm-up"))).await?;
    until(Duration::from_secs(120), || all_there(client, 1)).await?;
    let start = Instant::now();
    load::create_all(client, PATH, CLIENTS, jobs, trainjob).await?;
    until(Duration::from_secs(600), || all_there(client, jobs + 1)).await?;
    Ok(jobs as f64 / start.elapsed().as_secs_f64())
}

fn trainjob(name: &str) -> Value {
    json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": RUNTIME}, "trainer": {"numNodes": 1, "command": ["true"]}}})
}

/// Whether every kind of child is there for so many jobs. Counts come from `remainingItemCount`, so asking costs little.
async fn all_there(client: &Client, jobs: usize) -> Result<()> {
    for path in [
        "/api/v1/namespaces/default/pods",
        "/apis/batch/v1/namespaces/default/jobs",
        "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets",
        "/api/v1/namespaces/default/services?labelSelector=",
    ] {
        let separator = if path.contains('?') { "&" } else { "?" };
        let list: Value = client.request(Request::get(format!("{path}{separator}limit=1")).body(Vec::new())?).await?;
        let rest = list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0) as usize;
        let found = list["items"].as_array().map_or(0, Vec::len) + rest;
        if found < jobs {
            bail!("{path}: {found} of {jobs}");
        }
    }
    Ok(())
}
