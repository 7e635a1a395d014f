//! MPIJobs under `trainyard operator` and under mpi-operator 0.8.2, one after the other on the same API server, and under
//! `trainyard up`.
//!
//! Launchers are made when their workers are ready, and the kubelet is played here: it says of each pod that comes that it is
//! ready. Only etcd, the API server and the controller run. Neither controller's client is throttled, nor is mpi-operator's queue,
//! which by default takes 10 keys a second.

use crate::contender::{Clock, Contender, Counter, requests};
use crate::peer::{Peer, peak_mb, until};
use crate::{Figure, Setting, load};
use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, pin_mut};
use http::{Method, Request};
use kube::Client;
use kube::core::WatchEvent;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const CLIENTS: usize = 32;
const JOBS: usize = 200;
const WORKERS: usize = 8;
/// Of the one job whose ConfigMap is written as they come up.
const MANY_WORKERS: usize = 1000;
const LIMIT: Duration = Duration::from_secs(900);
const MPIJOBS: &str = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs";
const JOBS_PATH: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "/api/v1/namespaces/default/pods";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/mpi-operator/leases/mpi-operator";
/// All that is made of a MPIJob, which nobody collects here.
const CHILDREN: [&str; 5] =
    [JOBS_PATH, PODS, "/api/v1/namespaces/default/services", "/api/v1/namespaces/default/configmaps", SECRETS];
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const SHIPPED: &str = include_str!("../../manifests/base/manager/configuration.yaml");

/// What one controller did.
struct Run {
    /// MPIJobs a second until all launchers were there.
    launched: f64,
    requests_per_job: f64,
    cpu_ms_per_job: f64,
    peak_mb: f64,
    /// Writes of the ConfigMap of one large job.
    config_writes: f64,
}

pub async fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let (jobs, workers) = (JOBS / setting.shrink, MANY_WORKERS / setting.shrink);
    let embedded = {
        let peer = Peer::trainyard(&setting.trainyard, &["--no-node"])?;
        let pid = *peer.pids.first().context("up has a process")?;
        Bench { client: peer.client().await?, servers: Vec::new() }.run("trainyard up", pid, jobs, workers).await?
    };
    let (mut ours, mut theirs) = (None, None);
    if setting.kubernetes {
        let cluster = Cluster::start().await?;
        theirs = Some(cluster.run(&cluster.upstream()?, jobs, workers).await?);
        ours = Some(cluster.run(&cluster.trainyard(&setting.trainyard)?, jobs, workers).await?);
    } else {
        eprintln!("mpi-operator is left out: it needs a real API server, which Go builds");
    }
    let figure = |name, unit, of: fn(&Run) -> f64, run: &Run, more_is_better| Figure {
        name,
        unit,
        ours: of(run),
        peer: theirs.as_ref().map(of),
        against: "mpi-operator 0.8.2",
        more_is_better,
    };
    let mut figures = Vec::new();
    if let Some(ours) = &ours {
        figures.extend([
            figure("mpijobs: to launchers", "jobs/s", |run| run.launched, ours, true),
            figure("mpijobs: API requests per job", "requests", |run| run.requests_per_job, ours, false),
            figure("mpijobs: CPU per job", "ms", |run| run.cpu_ms_per_job, ours, false),
            figure("mpijobs: peak memory", "MB", |run| run.peak_mb, ours, false),
            figure("mpijobs: ConfigMap writes, one large job", "writes", |run| run.config_writes, ours, false),
        ]);
    }
    figures.extend([
        figure("mpijobs: to launchers, embedded", "jobs/s", |run| run.launched, &embedded, true),
        figure("mpijobs: ConfigMap writes, embedded", "writes", |run| run.config_writes, &embedded, false),
    ]);
    Ok(figures)
}

/// The real control plane, of which etcd and the API server are left running.
struct Cluster {
    peer: Peer,
    bench: Bench,
}

impl Cluster {
    async fn start() -> Result<Self> {
        let peer = Peer::kubernetes(&["--mpi"])?;
        let client = peer.client().await?;
        for name in ["mpi-operator", "kube-controller-manager"] {
            let pid = peer.pid(name)?;
            Command::new("kill").args(["-KILL", &pid.to_string()]).status()?;
        }
        // where an operator keeps its certificate, and what pods are refused without
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow-system"}});
        load::create(&client, "/api/v1/namespaces", namespace).await?;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        load::create(&client, "/api/v1/namespaces/default/serviceaccounts", account).await?;
        let servers = vec![peer.pid("kube-apiserver")?, peer.pid("etcd")?];
        Ok(Self { bench: Bench { client, servers }, peer })
    }

    /// mpi-operator, as the harness started it.
    fn upstream(&self) -> Result<Contender> {
        let file = self.peer.folder().join("mpi-operator.command.json");
        let kept: Value = serde_json::from_slice(&std::fs::read(file)?)?;
        let words = kept["arguments"].as_array().context("it has arguments")?;
        Ok(Contender {
            program: kept["program"].as_str().context("it has a program")?.into(),
            arguments: words.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            environment: vec![("KUBECONFIG", self.peer.kubeconfig.clone())],
        })
    }

    fn trainyard(&self, binary: &Path) -> Result<Contender> {
        let shipped: Value = serde_saphyr::from_str(SHIPPED)?;
        let text = shipped["data"]["controller_manager_config.yaml"].as_str().context("a configuration is shipped")?;
        let mut configuration: Value = serde_saphyr::from_str(text)?;
        configuration["clientConnection"] = json!({"qps": 10_000, "burst": 20_000});
        let file = self.peer.folder().join("operator.json");
        std::fs::write(&file, configuration.to_string())?;
        let port = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let words = [
            "operator",
            "--controllers=mpijob",
            "--health-listen=0",
            "--metrics-listen=0",
            &format!("--webhook-url=https://127.0.0.1:{port}"),
            &format!("--kubeconfig={}", self.peer.kubeconfig.display()),
            &format!("--config={}", file.display()),
        ];
        Ok(Contender {
            program: std::fs::canonicalize(binary)?,
            arguments: words.map(str::to_owned).to_vec(),
            environment: Vec::new(),
        })
    }

    async fn run(&self, contender: &Contender, jobs: usize, workers: usize) -> Result<Run> {
        // that of one that was killed lasts for 15 s
        let _ = self.bench.send(Method::DELETE, LEASE, None).await;
        let name = contender.program.file_name().unwrap_or_default().display().to_string();
        let running = contender.begin(self.peer.folder(), false)?;
        let done = self.bench.run(&name, running.pid(), jobs, workers).await;
        drop(running);
        let run = done.inspect_err(|_| {
            let log = std::fs::read_to_string(self.peer.folder().join("contender.log")).unwrap_or_default();
            eprintln!("its log ends: {}", log.lines().rev().take(5).collect::<Vec<_>>().join("\n"));
        })?;
        self.bench.clear().await?;
        Ok(run)
    }
}

/// An API server under load.
struct Bench {
    client: Client,
    /// Processes of the API server, where it has some of its own.
    servers: Vec<u32>,
}

impl Bench {
    async fn run(&self, name: &str, pid: u32, jobs: usize, workers: usize) -> Result<Run> {
        eprintln!("{name}: {jobs} MPIJobs of {WORKERS} workers, and one of {workers}");
        let asked = Counter::default();
        let small = async {
            until(LIMIT, || load::create(&self.client, MPIJOBS, mpijob("warm-up", WORKERS))).await?;
            until(LIMIT, || self.count_is(JOBS_PATH, 1, &asked)).await?;
            let warm = asked.count();
            let before = requests(&self.client).await.unwrap_or_default();
            let clock = Clock::start(pid, self.servers.clone());
            load::create_all(&self.client, MPIJOBS, CLIENTS, jobs, |name| mpijob(name, WORKERS)).await?;
            until(LIMIT, || self.count_is(JOBS_PATH, jobs + 1, &asked)).await?;
            let took = clock.stop();
            // from here came the readings, and for each MPIJob its creation and its pods' readiness
            let own = (asked.count() - warm) as f64 + 1.0 + (jobs * (1 + WORKERS)) as f64;
            anyhow::Ok((took, requests(&self.client).await.unwrap_or_default() - before - own))
        };
        let (took, requests) = self.with_kubelet(small).await?;
        let peak = peak_mb(pid);
        let config_writes = self.with_kubelet(self.config_writes(workers)).await?;
        let count = jobs as f64;
        Ok(Run {
            launched: count / took.seconds,
            requests_per_job: requests / count,
            cpu_ms_per_job: took.cpu * 1000.0 / count,
            peak_mb: peak,
            config_writes,
        })
    }

    /// Does something while every pod that comes is said to be ready.
    async fn with_kubelet<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let version = self.version(PODS).await?;
        let path = format!("{PODS}?watch=true&resourceVersion={version}");
        let kubelet = async {
            let events = self.client.request_events::<Value>(Request::get(path).body(Vec::new())?).await?;
            let new = events.filter_map(async |event| match event {
                Ok(WatchEvent::Added(pod)) => pod["metadata"]["name"].as_str().map(|name| Ok(name.to_owned())),
                Ok(_) => None,
                Err(error) => Some(Err(anyhow::Error::from(error))),
            });
            new.try_for_each_concurrent(CLIENTS, |name| self.ready(name)).await
        };
        tokio::select! {
            done = work => done,
            ended = kubelet => bail!("the played kubelet has ended: {ended:?}"),
        }
    }

    async fn ready(&self, name: String) -> Result<()> {
        let condition = |kind| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
        let status = json!({"status": {"phase": "Running", "conditions": conditions}});
        self.send(Method::PATCH, &format!("{PODS}/{name}/status"), Some(&status)).await.map(|_| ())
    }

    /// How often the ConfigMap of a job of so many workers is written until it names them all.
    async fn config_writes(&self, workers: usize) -> Result<f64> {
        let path = "/api/v1/namespaces/default/configmaps";
        let version = self.version(path).await?;
        let path = format!("{path}?watch=true&resourceVersion={version}&fieldSelector=metadata.name%3Dlarge-config");
        let events = self.client.request_events::<Value>(Request::get(path).body(Vec::new())?).await?;
        pin_mut!(events);
        load::create(&self.client, MPIJOBS, mpijob("large", workers)).await?;
        let all = async {
            let mut writes = 0.0;
            loop {
                let (WatchEvent::Added(config) | WatchEvent::Modified(config)) =
                    events.next().await.context("the watch has ended")??
                else {
                    continue;
                };
                writes += 1.0;
                let hosts = config["data"]["discover_hosts.sh"].as_str().unwrap_or_default();
                if hosts.matches("echo").count() == workers {
                    return anyhow::Ok(writes);
                }
            }
        };
        tokio::time::timeout(LIMIT, all).await.context("the ConfigMap never names all workers")?
    }

    async fn version(&self, path: &str) -> Result<String> {
        let list = self.send(Method::GET, &format!("{path}?limit=1"), None).await?;
        Ok(list["metadata"]["resourceVersion"].as_str().context("lists have versions")?.to_owned())
    }

    async fn count_is(&self, path: &str, count: usize, asked: &Counter) -> Result<()> {
        asked.add(1);
        let list = self.send(Method::GET, &format!("{path}?limit=1"), None).await?;
        let rest = list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0) as usize;
        let found = list["items"].as_array().map_or(0, Vec::len) + rest;
        if found < count {
            bail!("{path}: {found} of {count}");
        }
        Ok(())
    }

    /// Removes what was made, so that the next finds nothing to read.
    async fn clear(&self) -> Result<()> {
        for path in [MPIJOBS].into_iter().chain(CHILDREN) {
            self.send(Method::DELETE, &format!("{path}?propagationPolicy=Background"), None).await?;
            until(LIMIT, async || {
                let list = self.send(Method::GET, &format!("{path}?limit=1"), None).await?;
                if list["items"].as_array().is_none_or(|items| !items.is_empty()) {
                    bail!("{path} is not empty");
                }
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let request =
            Request::builder().method(method).uri(path).header("content-type", "application/merge-patch+json");
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        self.client.request(request.body(body)?).await.with_context(|| path.to_owned())
    }
}

fn mpijob(name: &str, workers: usize) -> Value {
    let role = |replicas: usize| json!({"replicas": replicas, "template": {"spec": {"containers": [{"name": "main", "image": "none"}]}}});
    json!({"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": name}, "spec": {
        "launcherCreationPolicy": "WaitForWorkersReady", "mpiReplicaSpecs": {"Launcher": role(1), "Worker": role(workers)}}})
}
