//! Managed jobs: short ones on the warm workers of a pool, beside Slurm with as many processors; and many that wait for one worker, whose
//! queue is shown beside SkyPilot's with 2,000 jobs.

use crate::overhead::median;
use crate::peer::{Peer, resting_mb, until};
use crate::sky::their_queue;
use crate::sweep::{Slurm, beside};
use crate::{Figure, Setting};
use anyhow::{Context, Result, ensure};
use http::Request;
use kube::Client;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const WORKERS: usize = 8;
const SHORT: usize = 1000;
const WAITING: usize = 100_000;
/// Runs of `sky jobs queue`.
const RUNS: usize = 5;
const LIMIT: Duration = Duration::from_secs(1800);
const OBJECTS: &str = "/apis/sky.trainyard.dev/v1alpha1/namespaces/default";

pub async fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let (short, waiting) = (SHORT / setting.shrink, WAITING / setting.shrink);
    let ours = short_jobs(&Yard::start(setting)?, short).await?;
    let slurm = match setting.peers {
        true => beside("Slurm", slurm(short).map(Some)),
        false => None,
    };
    let waits = waiting_jobs(&Yard::start(setting)?, waiting).await?;
    let queue = match setting.peers {
        true => beside("SkyPilot", their_queue(RUNS).map(Some)),
        false => None,
    };
    let alone =
        |name, unit, ours, more_is_better| Figure { name, unit, ours, peer: None, against: "-", more_is_better };
    Ok(vec![
        Figure {
            name: "short jobs in a pool of 8 workers",
            unit: "jobs/s",
            ours,
            peer: slurm,
            against: "Slurm (sbatch), 8 processors",
            more_is_better: true,
        },
        alone("sky jobs launch --num-jobs", "jobs/s, durable", waits.submitted, true),
        alone("memory of a waiting managed job", "KB", waits.memory_kb, false),
        Figure {
            name: "sky jobs queue, all jobs waiting",
            unit: "s",
            ours: waits.queue,
            peer: queue,
            against: "SkyPilot 0.14.1 with 2,000 jobs",
            more_is_better: false,
        },
        alone("sky jobs queue --all", "s", waits.whole_queue, false),
        alone("start of the control plane with them", "s", waits.start, false),
    ])
}

/// A control plane, and a user of it.
pub struct Yard {
    pub peer: Peer,
    binary: PathBuf,
    pub home: TempDir,
}

impl Yard {
    pub fn start(setting: &Setting) -> Result<Self> {
        let binary = std::path::absolute(&setting.trainyard)?;
        let home = tempfile::tempdir()?;
        let peer = Peer::trainyard_with(&binary, &[], |command| {
            command.env("HOME", home.path());
        })?;
        Ok(Self { peer, binary, home })
    }

    /// What a command prints; it must succeed.
    pub fn says(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.binary);
        command.args(words).env("HOME", self.home.path()).env("TRAINYARD_HOME", self.peer.folder());
        let ended = command.current_dir(self.home.path()).stdin(Stdio::null()).output()?;
        ensure!(ended.status.success(), "{command:?}: {}; {}", ended.status, String::from_utf8_lossy(&ended.stderr));
        Ok(String::from_utf8(ended.stdout)?)
    }

    /// A pool, once all its workers are ready.
    async fn pool(&self, client: &Client, workers: usize) -> Result<()> {
        let file = format!("name: warm\npool: {{workers: {workers}}}\nresources: {{infra: local}}\n");
        fs::write(self.home.path().join("pool.yaml"), file)?;
        self.says(&["sky", "jobs", "pool", "apply", "-y", "-p", "warm", "pool.yaml"])?;
        until(LIMIT, async || {
            let pool: Value = get(client, "pools/warm").await?;
            let ready = pool["status"]["replicas"].as_array().into_iter().flatten();
            let ready = ready.filter(|one| one["state"] == "READY").count();
            ensure!(ready == workers, "{ready} of {workers} workers are ready");
            Ok(())
        })
        .await
    }

    fn launch(&self, run: &str, jobs: usize) -> Result<()> {
        let words = ["sky", "jobs", "launch", "-y", "-p", "warm", "--num-jobs", &jobs.to_string(), run];
        self.says(&words).map(drop)
    }
}

/// An object of this group.
pub async fn get(client: &Client, path: &str) -> Result<Value> {
    Ok(client.request(Request::get(format!("{OBJECTS}/{path}")).body(Vec::new())?).await?)
}

/// Waits until these jobs have succeeded, in the order in which they end for the most part.
async fn succeed(client: &Client, ids: std::ops::Range<usize>) -> Result<()> {
    for id in ids {
        let is_good = until(LIMIT, async || {
            let job: Value = get(client, &format!("managedjobs/job-{id}")).await?;
            let state = job["status"]["state"].as_str().unwrap_or_default();
            ensure!(state == "SUCCEEDED" || state.starts_with("FAILED"), "job {id} is {state}");
            Ok(state == "SUCCEEDED")
        });
        ensure!(is_good.await?, "job {id} has failed");
    }
    Ok(())
}

/// Short jobs in a second, from their submission until all have succeeded.
async fn short_jobs(yard: &Yard, jobs: usize) -> Result<f64> {
    let client = yard.peer.client().await?;
    yard.pool(&client, WORKERS).await?;
    yard.launch("true", WORKERS)?;
    succeed(&client, 1..WORKERS + 1).await?;
    let start = Instant::now();
    yard.launch("true", jobs)?;
    succeed(&client, WORKERS + 1..WORKERS + 1 + jobs).await?;
    Ok(jobs as f64 / start.elapsed().as_secs_f64())
}

fn slurm(jobs: usize) -> Result<f64> {
    let slurm = Slurm::start(WORKERS)?;
    slurm.run_true(WORKERS)?;
    slurm.run_true(jobs)
}

struct Waits {
    /// Jobs a second.
    submitted: f64,
    memory_kb: f64,
    /// Seconds.
    queue: f64,
    whole_queue: f64,
    start: f64,
}

/// Many jobs that wait for the only worker of a pool, on which another one runs.
async fn waiting_jobs(yard: &Yard, jobs: usize) -> Result<Waits> {
    let client = yard.peer.client().await?;
    yard.pool(&client, 1).await?;
    yard.launch("sleep 1000000", 1)?;
    until(LIMIT, async || {
        let job = get(&client, "managedjobs/job-1").await?;
        ensure!(job["status"]["state"] == "RUNNING", "the first job is {}", job["status"]["state"]);
        Ok(())
    })
    .await?;
    let pid = *yard.peer.pids.first().context("it has a process")?;
    let before = resting_mb(pid).await?;
    let start = Instant::now();
    yard.launch("true", jobs)?;
    let submitted = jobs as f64 / start.elapsed().as_secs_f64();
    let memory_kb = (resting_mb(pid).await? - before) * 1024.0 / jobs as f64;
    let queue = |words: &[&str], rows: usize| {
        let start = Instant::now();
        let table = yard.says(words)?;
        let took = start.elapsed().as_secs_f64();
        let shown = table.lines().filter(|line| line.contains("PENDING")).count();
        ensure!(shown > rows, "the queue shows {shown} of {rows} jobs");
        Ok(took)
    };
    let runs: Result<Vec<f64>> = (0..RUNS).map(|_| queue(&["sky", "jobs", "queue"], 49)).collect();
    let whole_queue = queue(&["sky", "jobs", "queue", "-a"], jobs)?;
    yard.says(&["down"])?;
    let start = Instant::now();
    yard.says(&["up", "--detach"])?;
    Ok(Waits { submitted, memory_kb, queue: median(runs?), whole_queue, start: start.elapsed().as_secs_f64() })
}
