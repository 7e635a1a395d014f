//! `trainyard operator` against upstream's controller, one after the other on the same API server.
//!
//! Only etcd, the API server and the controller run: JobSet's controller and Kubernetes' own are stopped, so that nothing else
//! works on what is made. Neither controller's client is throttled. What is counted of requests is what the API server
//! answered, less what was sent from here.

use crate::contender::{Clock, Contender, Counter, Phase, processors, requests};
use crate::peer::{Peer, certificate, cpu_seconds, peak_mb, until};
use crate::{Figure, Setting, load};
use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt, TryStreamExt, pin_mut};
use http::{Method, Request};
use kube::Client;
use kube::core::WatchEvent;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const CLIENTS: usize = 32;
const JOBS: usize = 2000;
const LIMIT: Duration = Duration::from_secs(900);
const TRAINJOBS: &str = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs";
const JOBSETS: &str = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets";
const SNAPSHOTS: &str = "/api/v1/namespaces/default/configmaps";
const RUNTIMES: &str = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1";
const TORCH: &str = include_str!("../../manifests/runtimes/torch-distributed.yaml");
/// Admission reviews a second, and for how long.
const REVIEWS_PER_SECOND: u32 = 200;
const REVIEW_SECONDS: u32 = 10;

/// What one controller did.
struct Run {
    /// TrainJobs a second until all JobSets were there.
    created: f64,
    /// TrainJobs a second until all were complete, from the first JobSet that was.
    completed: f64,
    /// Of all processors, in percent: what the API server and etcd took until all JobSets were there.
    server_share: f64,
    /// Their processor time, in milliseconds.
    server_ms_per_job: f64,
    requests_per_job: f64,
    cpu_ms_per_job: f64,
    peak_mb: f64,
    /// Milliseconds.
    admission_p99: f64,
}

pub async fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    if !setting.kubernetes {
        eprintln!("the operator is left out: it needs a real API server, which Go builds");
        return Ok(Vec::new());
    }
    let jobs = JOBS / setting.shrink;
    let cluster = Cluster::start().await?;
    let theirs = cluster.run(&cluster.upstream()?, jobs).await?;
    let ours = cluster.run(&cluster.trainyard(&setting.trainyard)?, jobs).await?;
    let floor = cluster.floor(jobs).await?;
    let figure = |name, unit, of: fn(&Run) -> f64, more_is_better| Figure {
        name,
        unit,
        ours: of(&ours),
        peer: Some(of(&theirs)),
        against: "upstream's Trainer",
        more_is_better,
    };
    Ok(vec![
        figure("operator: TrainJobs to JobSets", "jobs/s", |run| run.created, true),
        Figure {
            name: "operator: the same beside the floor",
            unit: "jobs/s",
            ours: ours.created,
            peer: Some(floor.0),
            against: "the same writes with no controller",
            more_is_better: true,
        },
        figure("operator: of all processors, API server and etcd", "%", |run| run.server_share, true),
        Figure {
            name: "operator: API server and etcd, CPU per job",
            unit: "ms",
            ours: ours.server_ms_per_job,
            peer: Some(floor.1),
            against: "the same writes with no controller",
            more_is_better: false,
        },
        figure("operator: TrainJobs completed", "jobs/s", |run| run.completed, true),
        figure("operator: API requests per job", "requests", |run| run.requests_per_job, false),
        figure("operator: CPU per job", "ms", |run| run.cpu_ms_per_job, false),
        figure("operator: peak memory", "MB", |run| run.peak_mb, false),
        figure("operator: admission p99, one core", "ms", |run| run.admission_p99, false),
    ])
}

struct Cluster {
    peer: Peer,
    client: Client,
}

impl Cluster {
    /// The real control plane, of which etcd and the API server are left running.
    async fn start() -> Result<Self> {
        let peer = Peer::kubernetes(&["--trainer"])?;
        let client = peer.client().await?;
        for name in ["trainer", "jobset", "kube-controller-manager"] {
            let pid = peer.pid(name)?;
            Command::new("kill").args(["-KILL", &pid.to_string()]).status()?;
        }
        let cluster = Self { peer, client };
        // where an operator keeps its certificate
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow-system"}});
        load::create(&cluster.client, "/api/v1/namespaces", namespace).await?;
        for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
            let list = cluster.get(&format!("{HOOKS}/{kind}")).await?;
            for name in
                list["items"].as_array().into_iter().flatten().filter_map(|item| item["metadata"]["name"].as_str())
            {
                if name.contains("jobset") {
                    cluster.send(Method::DELETE, &format!("{HOOKS}/{kind}/{name}"), None).await?;
                }
            }
        }
        Ok(cluster)
    }

    fn folder(&self) -> &Path {
        self.peer.folder()
    }

    /// The configuration that the harness wrote for upstream's controller, without its throttle.
    fn configuration(&self, more: Value) -> Result<PathBuf> {
        let path = self.folder().join("trainer/configuration.json");
        let mut configuration: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        let fields = configuration.as_object_mut().context("the configuration is a mapping")?;
        fields.insert("clientConnection".to_owned(), json!({"qps": 10_000, "burst": 20_000}));
        fields.extend(more.as_object().cloned().unwrap_or_default());
        let path = self.folder().join("unthrottled.json");
        std::fs::write(&path, configuration.to_string())?;
        Ok(path)
    }

    fn upstream(&self) -> Result<Contender> {
        let configuration = self.configuration(json!({}))?;
        Ok(Contender {
            program: crate::peer::programs()?.join("trainer"),
            arguments: vec!["--config".to_owned(), configuration.display().to_string()],
            environment: vec![("KUBECONFIG", self.peer.kubeconfig.clone()), ("TMPDIR", self.folder().join("trainer"))],
        })
    }

    fn trainyard(&self, binary: &Path) -> Result<Contender> {
        let configuration = self.configuration(json!({"certManagement": {"enable": true}}))?;
        let read: Value = serde_json::from_slice(&std::fs::read(&configuration)?)?;
        let port = read["webhook"]["port"].as_u64().context("the webhooks have a port")?;
        let mut arguments = vec!["operator".to_owned(), "--kubeconfig".to_owned()];
        arguments.push(self.peer.kubeconfig.display().to_string());
        arguments.extend(["--config".to_owned(), configuration.display().to_string()]);
        arguments.extend(["--webhook-url".to_owned(), format!("https://127.0.0.1:{port}")]);
        Ok(Contender { program: std::fs::canonicalize(binary)?, arguments, environment: Vec::new() })
    }

    async fn run(&self, contender: &Contender, jobs: usize) -> Result<Run> {
        let name = contender.program.file_name().unwrap_or_default().display();
        eprintln!("{name}: {jobs} TrainJobs, and their completion");
        let running = contender.begin(self.folder(), false)?;
        let pid = running.pid();
        let (created, completed, requests) = match self.load(pid, jobs).await {
            Ok(done) => done,
            Err(error) => {
                let log = std::fs::read_to_string(self.folder().join("contender.log")).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(5).collect();
                return Err(error.context(format!("the controller's log ends, backwards:\n{}", last.join("\n"))));
            }
        };
        let (cpu, peak_mb) = (created.cpu + completed.cpu, peak_mb(pid));
        drop(running);
        eprintln!("{name}: admission");
        let admission_p99 = self.admission(contender).await?;
        self.clear().await?;
        let count = jobs as f64;
        Ok(Run {
            created: count / created.seconds,
            completed: count / completed.seconds,
            server_share: 100.0 * created.server_cpu / created.seconds / processors(),
            server_ms_per_job: created.server_cpu * 1000.0 / count,
            requests_per_job: requests / count,
            cpu_ms_per_job: cpu * 1000.0 / count,
            peak_mb,
            admission_p99,
        })
    }

    /// TrainJobs come, then their JobSets complete.
    async fn load(&self, pid: u32, jobs: usize) -> Result<(Phase, Phase, f64)> {
        let runtime: Value = serde_saphyr::from_str(TORCH)?;
        until(LIMIT, || load::create(&self.client, RUNTIMES, runtime.clone())).await?;
        until(LIMIT, || load::create(&self.client, TRAINJOBS, trainjob("warm-up"))).await?;
        let asked = Counter::default();
        until(LIMIT, || self.count_is(JOBSETS, 1, &asked)).await?;

        let (asked, before) = (Counter::default(), requests(&self.client).await?);
        let clock = self.clock(pid)?;
        load::create_all(&self.client, TRAINJOBS, CLIENTS, jobs, trainjob).await?;
        until(LIMIT, || self.count_is(JOBSETS, jobs + 1, &asked)).await?;
        let created = clock.stop();
        // with what comes after: status and snapshots may be behind the JobSets
        until(LIMIT, || self.count_is(SNAPSHOTS, jobs + 1, &asked)).await?;

        let version = self.get(&format!("{TRAINJOBS}?limit=1")).await?["metadata"]["resourceVersion"].clone();
        let version = version.as_str().context("lists have versions")?.to_owned();
        let clock = self.clock(pid)?;
        let (all, patched) =
            tokio::join!(tokio::time::timeout(LIMIT, self.see_complete(&version, jobs)), self.complete_all(jobs),);
        patched?;
        all.context("the TrainJobs do not get complete")??;
        let completed = clock.stop();
        // from here came a list and a watch, the reading of the metrics, and for each TrainJob its creation and a completion
        let own = asked.count() as f64 + 3.0 + 2.0 * jobs as f64;
        Ok((created, completed, requests(&self.client).await? - before - own))
    }

    fn clock(&self, pid: u32) -> Result<Clock> {
        Ok(Clock::start(pid, vec![self.peer.pid("kube-apiserver")?, self.peer.pid("etcd")?]))
    }

    /// What the controllers do at least, done from here: the same objects, and no webhooks. TrainJobs a second, and
    /// milliseconds of the API server's and etcd's processor for each.
    async fn floor(&self, jobs: usize) -> Result<(f64, f64)> {
        for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
            self.send(Method::DELETE, &format!("{HOOKS}/{kind}"), None).await?;
        }
        eprintln!("no controller: {jobs} TrainJobs");
        let runtime: Value = serde_saphyr::from_str(TORCH)?;
        let template = runtime["spec"]["template"]["spec"].clone();
        let snapshot = runtime.to_string();
        let clock = self.clock(std::process::id())?;
        let numbers = futures::stream::iter(0..jobs);
        let work = numbers.map(async |n| {
            let name = format!("floor-{n}");
            load::create(&self.client, TRAINJOBS, trainjob(&name)).await?;
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"runtime": snapshot}});
            load::create(&self.client, SNAPSHOTS, map).await?;
            let jobset = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}, "spec": template});
            self.apply(&format!("{JOBSETS}/{name}?fieldManager=floor&force=true"), &jobset).await?;
            let status = json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name},
                "status": {"jobsStatus": [{"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}]}});
            self.apply(&format!("{TRAINJOBS}/{name}/status?fieldManager=floor&force=true"), &status).await
        });
        work.buffer_unordered(CLIENTS).try_collect::<()>().await?;
        let took = clock.stop();
        self.clear().await?;
        Ok((jobs as f64 / took.seconds, took.server_cpu * 1000.0 / jobs as f64))
    }

    /// The 99th percentile of admission reviews that come in at a steady pace, in milliseconds; the controller has one core.
    async fn admission(&self, contender: &Contender) -> Result<f64> {
        let running = contender.begin(self.folder(), true)?;
        let pid = running.pid();
        until(LIMIT, || self.dry_run()).await?;
        // it has all these TrainJobs to look at once, which is another thing to measure
        until(LIMIT, async || {
            let before = cpu_seconds(pid);
            tokio::time::sleep(Duration::from_secs(1)).await;
            if cpu_seconds(pid) - before > 0.05 {
                bail!("the controller is still busy with what it found");
            }
            Ok(())
        })
        .await?;
        let hooks =
            self.get(&format!("{HOOKS}/validatingwebhookconfigurations/validator.trainer.kubeflow.org")).await?;
        let hooks = hooks["webhooks"].as_array().context("there are webhooks")?;
        let hook = hooks.iter().find(|hook| hook["name"] == "validator.trainjob.trainer.kubeflow.org");
        let connection = &hook.context("TrainJobs have a webhook")?["clientConfig"];
        let url = connection["url"].as_str().context("it is registered by URL")?;
        let url: http::Uri = url.parse()?;
        let server = format!("https://{}", url.authority().context("it has a host")?);
        let mut config = kube::Config::new(server.parse()?);
        let bundle = STANDARD.decode(connection["caBundle"].as_str().context("it has an authority")?)?;
        config.root_cert = Some(vec![certificate(&bundle)?]);
        let client = Client::try_from(config)?;
        let path = url.path().to_owned();

        let mut object = trainjob("reviewed");
        object["metadata"]["namespace"] = json!("default");
        object["spec"]["runtimeRef"] =
            json!({"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "torch-distributed"});
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": "CREATE", "namespace": "default", "name": "reviewed", "object": object, "oldObject": null,
            "kind": {"group": "trainer.kubeflow.org", "version": "v1alpha1", "kind": "TrainJob"},
            "resource": {"group": "trainer.kubeflow.org", "version": "v1alpha1", "resource": "trainjobs"},
        }}).to_string().into_bytes();
        let mut ticks = tokio::time::interval(Duration::from_secs(1).div_f64(f64::from(REVIEWS_PER_SECOND)));
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..REVIEWS_PER_SECOND * REVIEW_SECONDS {
            let due = ticks.tick().await;
            let (client, request) = (client.clone(), Request::post(&path).header("content-type", "application/json"));
            let request = request.body(review.clone())?;
            asked.spawn(async move {
                let answer: Value = client.request(request).await?;
                match answer["response"]["allowed"] == true {
                    true => Ok(due.elapsed()),
                    false => bail!("refused: {answer}"),
                }
            });
        }
        let mut took = Vec::new();
        while let Some(done) = asked.join_next().await {
            took.push(done??);
        }
        took.sort();
        Ok(took[took.len() * 99 / 100].as_secs_f64() * 1000.0)
    }

    /// A TrainJob that is admitted and not kept: the webhooks answer.
    async fn dry_run(&self) -> Result<()> {
        let path = format!("{TRAINJOBS}?dryRun=All");
        load::create(&self.client, &path, trainjob("not-kept")).await
    }

    async fn count_is(&self, path: &str, count: usize, asked: &Counter) -> Result<()> {
        asked.add(1);
        let list = self.get(&format!("{path}?limit=1")).await?;
        let rest = list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0) as usize;
        let found = list["items"].as_array().map_or(0, Vec::len) + rest;
        if found < count {
            bail!("{path}: {found} of {count}");
        }
        Ok(())
    }

    /// Ends when so many TrainJobs are complete.
    async fn see_complete(&self, version: &str, jobs: usize) -> Result<()> {
        let path = format!("{TRAINJOBS}?watch=true&resourceVersion={version}");
        let events = self.client.request_events::<Value>(Request::get(path).body(Vec::new())?).await?;
        pin_mut!(events);
        let mut complete = std::collections::BTreeSet::new();
        while complete.len() < jobs {
            let event = events.next().await.context("the watch has ended")??;
            if let WatchEvent::Modified(job) = event {
                let conditions = job["status"]["conditions"].as_array();
                if conditions.into_iter().flatten().any(|c| c["type"] == "Complete" && c["status"] == "True") {
                    complete.insert(job["metadata"]["name"].to_string());
                }
            }
        }
        Ok(())
    }

    /// What JobSet's controller says of JobSets that are through.
    async fn complete_all(&self, jobs: usize) -> Result<()> {
        let condition = json!({"type": "Completed", "status": "True", "reason": "AllJobsCompleted",
            "message": "jobset completed successfully", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"status": {"terminalState": "Completed", "conditions": [condition]}});
        let numbers = futures::stream::iter(0..jobs);
        let status = &status;
        let work = numbers.map(async |n| {
            let path = format!("{JOBSETS}/o{n}/status");
            self.send(Method::PATCH, &path, Some(("application/merge-patch+json", status))).await.map(|_| ())
        });
        work.buffer_unordered(CLIENTS).try_collect().await
    }

    /// Removes what was made, so that the next finds nothing to read.
    async fn clear(&self) -> Result<()> {
        for path in [TRAINJOBS, JOBSETS, SNAPSHOTS] {
            self.send(Method::DELETE, path, None).await?;
            until(LIMIT, async || {
                let list = self.get(&format!("{path}?limit=1")).await?;
                if list["items"].as_array().is_none_or(|items| !items.is_empty()) {
                    bail!("{path} is not empty");
                }
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    async fn get(&self, path: &str) -> Result<Value> {
        self.send(Method::GET, path, None).await
    }

    async fn apply(&self, path: &str, body: &Value) -> Result<()> {
        self.send(Method::PATCH, path, Some(("application/apply-patch+yaml", body))).await.map(|_| ())
    }

    async fn send(&self, method: Method, path: &str, body: Option<(&str, &Value)>) -> Result<Value> {
        let mut request = Request::builder().method(method).uri(path);
        if let Some((kind, _)) = body {
            request = request.header("content-type", kind);
        }
        let body = body.map(|(_, body)| body.to_string().into_bytes()).unwrap_or_default();
        self.client.request(request.body(body)?).await.with_context(|| path.to_owned())
    }
}

fn trainjob(name: &str) -> Value {
    json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 1, "command": ["true"]}}})
}
