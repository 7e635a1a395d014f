//! Many jobs that report progress to the status server of `trainyard up`, with the real API behind it.
//!
//! The jobs are somebody else's to run (`managedBy`), so that nothing is at work but reports. Each job posts every
//! [`PERIOD`] with a token of its own; at the end each posts a last time, and that one must be in its status.

use crate::peer::{Peer, certificate, until};
use crate::{Figure, Setting, load};
use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const JOBS: usize = 10_000;
const CLIENTS: usize = 64;
/// Between two reports of a job.
const PERIOD: Duration = Duration::from_secs(10);
const ROUNDS: usize = 3;
/// The status server writes what it held back within seconds, more of them with many jobs.
const SETTLE: Duration = Duration::from_secs(180);
const TRAINJOBS: &str = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs";

pub async fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let jobs = JOBS / setting.shrink;
    let peer = Peer::trainyard(&setting.trainyard, &["--no-node", "--status-server=127.0.0.1:0"])?;
    let api = peer.client().await?;
    eprintln!("reports: {jobs} TrainJobs and their tokens");
    until(SETTLE, || load::create(&api, TRAINJOBS, trainjob("warm-up"))).await?;
    load::create_all(&api, TRAINJOBS, CLIENTS, jobs, trainjob).await?;
    let tokens = futures::stream::iter(0..jobs).map(|n| token(&api, n)).buffered(CLIENTS);
    let tokens: Arc<Vec<String>> = Arc::new(tokens.try_collect().await?);
    let server = Arc::new(reporter(&peer)?);

    eprintln!("reports: each reports {ROUNDS} times, every {PERIOD:?}");
    let before = writes(&api).await?;
    let begin = api::time::after(Instant::now(), Duration::from_millis(100));
    let mut asked = tokio::task::JoinSet::new();
    for n in 0..jobs {
        let (server, tokens) = (server.clone(), tokens.clone());
        asked.spawn(async move {
            let mut took = Vec::new();
            for round in 0..ROUNDS {
                // spread over the period, as jobs that began at different times are
                let due = api::time::after(begin, PERIOD.mul_f64(round as f64 + n as f64 / jobs as f64));
                tokio::time::sleep_until(due.into()).await;
                let done = if round + 1 == ROUNDS { 99 } else { 10 * (round + 1) };
                post(&server, n, &tokens[n], done).await?;
                took.push(due.elapsed());
            }
            anyhow::Ok(took)
        });
    }
    let mut took = Vec::new();
    while let Some(done) = asked.join_next().await {
        took.extend(done??);
    }
    let seconds = begin.elapsed().as_secs_f64();
    until(SETTLE, || all_said(&api, jobs)).await?;
    let settled = begin.elapsed().as_secs_f64() - seconds;
    took.sort();
    let figure = |name, unit, ours, more_is_better| Figure {
        name,
        unit,
        ours,
        peer: None,
        against: "upstream's takes one status write for each",
        more_is_better,
    };
    Ok(vec![
        figure("reports: taken", "posts/s", took.len() as f64 / seconds, true),
        figure("reports: answered, p99", "ms", took[took.len() * 99 / 100].as_secs_f64() * 1000.0, false),
        figure("reports: last of all written after", "s", settled, false),
        figure("reports: writes for each report", "writes", (writes(&api).await? - before) / took.len() as f64, false),
    ])
}

/// A client of the status server.
fn reporter(peer: &Peer) -> Result<Client> {
    let url = peer.status_server.as_deref().context("up has a status server")?;
    let mut config = kube::Config::new(url.parse()?);
    let authority = std::fs::read(peer.folder().join("pki/ca.crt")).context("the authority of up")?;
    config.root_cert = Some(vec![certificate(&authority)?]);
    Ok(Client::try_from(config)?)
}

async fn token(api: &Client, n: usize) -> Result<String> {
    let audience = format!("trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/o{n}/status");
    let wanted =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [audience]}});
    let request = Request::post("/api/v1/namespaces/default/serviceaccounts/default/token");
    let request = request.header("content-type", "application/json").body(wanted.to_string().into_bytes())?;
    let made: Value = api.request(request).await?;
    Ok(made["status"]["token"].as_str().context("a token")?.to_owned())
}

async fn post(server: &Client, n: usize, token: &str, percent: usize) -> Result<()> {
    let now = jiff::Timestamp::now().to_string();
    let report = json!({"trainerStatus": {"progressPercentage": percent, "lastUpdatedTime": now}});
    let path = format!("{TRAINJOBS}/o{n}/status");
    let request = Request::post(path).header("authorization", format!("Bearer {token}"));
    let request = request.header("content-type", "application/json").body(report.to_string().into_bytes())?;
    server.request::<Value>(request).await.with_context(|| format!("report {percent} of o{n}"))?;
    Ok(())
}

/// Whether every job's last report is in its status.
async fn all_said(api: &Client, jobs: usize) -> Result<()> {
    let list: Value = api.request(Request::get(TRAINJOBS).body(Vec::new())?).await?;
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let said = items.iter().filter(|job| job["status"]["trainerStatus"]["progressPercentage"] == 99);
    let said: BTreeSet<&str> = said.filter_map(|job| job["metadata"]["name"].as_str()).collect();
    if said.len() < jobs {
        bail!("the last report of {} of {jobs} jobs is not in its status", jobs - said.len());
    }
    Ok(())
}

/// How often the store has been written: its revision.
async fn writes(api: &Client) -> Result<f64> {
    let list: Value = api.request(Request::get(format!("{TRAINJOBS}?limit=1")).body(Vec::new())?).await?;
    let version = list["metadata"]["resourceVersion"].as_str().context("lists have versions")?;
    Ok(version.parse()?)
}

fn trainjob(name: &str) -> Value {
    json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "managedBy": "kueue.x-k8s.io/multikueue"}})
}
