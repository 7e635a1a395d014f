//! Controllers that are measured, one after the other, and what they take.

use crate::peer::cpu_seconds;
use anyhow::{Context, Result};
use api::metrics::REQUESTS;
use http::Request;
use kube::Client;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// How a controller is started.
pub struct Contender {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub environment: Vec<(&'static str, PathBuf)>,
}

/// A controller at work; ended when dropped.
pub struct Running(Child);

impl Running {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Contender {
    /// Starts it; what it says goes to `contender.log` in the folder.
    pub fn begin(&self, folder: &Path, one_core: bool) -> Result<Running> {
        let mut command = match one_core {
            true => Command::new("taskset"),
            false => Command::new(&self.program),
        };
        if one_core {
            command.args(["-c", "0"]).arg(&self.program);
        }
        let log = File::options().create(true).append(true).open(folder.join("contender.log"))?;
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let program = self.program.display();
        Ok(Running(command.spawn().with_context(|| format!("starting {program}"))?))
    }
}

/// All requests that the API server has answered.
pub async fn requests(client: &Client) -> Result<f64> {
    let text = client.request_text(Request::get("/metrics").body(Vec::new())?).await?;
    let series = format!("{}{{", REQUESTS.name);
    let lines = text.lines().filter(|line| line.starts_with(&series));
    Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

/// How many requests were sent from here besides.
#[derive(Default)]
pub struct Counter(std::sync::atomic::AtomicUsize);

impl Counter {
    pub fn add(&self, n: usize) {
        self.0.fetch_add(n, std::sync::atomic::Ordering::Relaxed);
    }

    pub fn count(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// The time that something took, and the processor time of the controller meanwhile, in seconds.
pub struct Phase {
    pub seconds: f64,
    pub cpu: f64,
    /// Of the API server and etcd.
    pub server_cpu: f64,
}

pub struct Clock {
    pid: u32,
    servers: Vec<u32>,
    start: Instant,
    cpu: f64,
    server_cpu: f64,
}

impl Clock {
    pub fn start(pid: u32, servers: Vec<u32>) -> Self {
        let server_cpu = servers.iter().copied().map(cpu_seconds).sum();
        Self { pid, servers, start: Instant::now(), cpu: cpu_seconds(pid), server_cpu }
    }

    pub fn stop(&self) -> Phase {
        Phase {
            seconds: self.start.elapsed().as_secs_f64(),
            cpu: cpu_seconds(self.pid) - self.cpu,
            server_cpu: self.servers.iter().copied().map(cpu_seconds).sum::<f64>() - self.server_cpu,
        }
    }
}

pub fn processors() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64)
}
