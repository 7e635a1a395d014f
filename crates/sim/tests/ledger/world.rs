//! A real API server in memory with the real controllers of launches, clusters and machines, the provider, and all other actors.

use crate::cloud::{Bug, Called, Cloud, NAME, Stands, object_of};
use crate::life::{Life, Points, Side};
use api::object::{self, Gvk};
use api::sky::{API_VERSION, LaunchSpec, keys, launch_gvk, machine_gvk};
use apiserver::auth::Authenticator;
use apiserver::registry::Core;
use apiserver::{Body, Local, Options, Server};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use infra::{MachineController, Provider};
use jiff::Timestamp;
use launcher::{Eyes, Launcher};
use managed::cluster::ClusterController;
use managed::jobs::Submission;
use resource::User;
use resource::admission::Objects;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt};

/// How long a run may take to settle: longer than any delay, two sweeps and the longest pause between two tries.
const REST: Duration = Duration::from_secs(900);
/// How long it must stay settled, if nothing should be left: two sweeps.
const STAYS: Duration = Duration::from_secs(130);

/// The server's random numbers are a count, so that runs are equal.
struct Counted(AtomicU64);

impl resource::ClockAndDice for Counted {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn uid(&self) -> String {
        format!("00000000-0000-4000-8000-{:012x}", self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn suffix(&self) -> String {
        format!("{:05}", self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn below(&self, _: u32) -> u32 {
        0
    }
}

/// Passes a control plane's requests to the API server. It may be killed right before or right after each write.
#[derive(Clone)]
struct Wire {
    server: Local,
    life: Arc<Life>,
    cloud: Arc<Cloud>,
}

impl Service<Request<kube::client::Body>> for Wire {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<kube::client::Body>) -> Self::Future {
        let Self { server, life, cloud } = self.clone();
        let asks_for_jobs = request.uri().path() == JOBSETS
            && request.uri().query().is_some_and(|query| query.contains("labelSelector"));
        if cloud.bug == Some(Bug::JobUnseen) && asks_for_jobs {
            *request.uri_mut() = format!("{JOBSETS}?labelSelector=nobody").parse().expect("a path");
        }
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            // no code reads the events
            if request.method() == Method::GET || path.ends_with("/events") {
                life.lives().await;
                return server.oneshot(request).await;
            }
            let point = life.reach(format!("{} {path}", request.method())).await;
            match (request.method(), cloud.bug) {
                (&Method::POST, Some(Bug::MachineBeforeObject)) if path.ends_with("/machines") => cloud.early(),
                (&Method::DELETE, Some(Bug::ObjectBeforeMachine)) if path.contains("/machines/") => {
                    let held = json!({"metadata": {"finalizers": null}});
                    let _ = ask(&server, Method::PATCH, &path, MERGE, &held).await; // it has gone already
                }
                _ => {}
            }
            let answer = server.oneshot(request).await;
            life.pass(point, Side::After).await;
            answer
        })
    }
}

/// The kinds, read once for all runs. The schema of JobSets is left out: it decides nothing here, and would be most of the work.
fn definitions() -> &'static [Value] {
    static DEFINITIONS: OnceLock<Vec<Value>> = OnceLock::new();
    DEFINITIONS.get_or_init(|| {
        let jobsets = "jobsets.jobset.x-k8s.io";
        let wanted =
            [jobsets, "clusters.sky.trainyard.dev", "launches.sky.trainyard.dev", "machines.sky.trainyard.dev"];
        let manifests = operator::embedded::install::manifests();
        let mut all: Vec<Value> = manifests.filter(|one| wanted.contains(&object::meta(one, "name"))).collect();
        for jobset in all.iter_mut().filter(|one| object::meta(one, "name") == jobsets) {
            let schema = &mut jobset["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            *schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        }
        all
    })
}

/// The state that the cluster must reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Up,
    /// Up, and the launch has exactly one job.
    Launched,
    Stopped,
    Gone,
}

/// The complete world.
pub struct Scene {
    server: Local,
    core: Arc<Core>,
    pub cloud: Arc<Cloud>,
    pub points: Points,
    lives: Arc<AtomicU64>,
    tasks: JoinSet<()>,
    jobs: u32,
    /// The home directory of the control planes' user.
    home: Arc<tempfile::TempDir>,
}

fn of_kind(core: &Core, gvk: &Gvk, plural: &str) -> Vec<Arc<Value>> {
    Objects::list(core, &gvk.group, plural, "")
}

/// Tokens and recorded ids.
fn lines(core: &Core) -> Vec<(String, String)> {
    let machines = of_kind(core, &machine_gvk(), "machines");
    let line = |one: &Arc<Value>| (object::uid(one).to_owned(), object::text(&one["status"], "id").to_owned());
    machines.iter().map(line).collect()
}

async fn ask(server: &Local, method: Method, path: &str, kind: &str, body: &Value) -> Result<Value, String> {
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(&method).uri(path).header("content-type", kind).body(Full::from(bytes));
    let response = server.clone().oneshot(request.expect("a request")).await.expect("infallible");
    let is_well = response.status().is_success();
    let bytes = response.into_body().collect().await.expect("in memory").to_bytes();
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if is_well { Ok(answer) } else { Err(format!("{method} {path}: {}", object::text(&answer, "message"))) }
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const CLUSTERS: &str = "/apis/sky.trainyard.dev/v1alpha1/namespaces/default/clusters";
const CLUSTER: &str = "/apis/sky.trainyard.dev/v1alpha1/namespaces/default/clusters/dev";
const LAUNCHES: &str = "/apis/sky.trainyard.dev/v1alpha1/namespaces/default/launches";
const JOBSETS: &str = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets";

impl Scene {
    pub async fn new(seed: u64, bug: Option<Bug>, points: Points) -> Self {
        let options = Options {
            world: Arc::new(Counted(AtomicU64::new(1))),
            authenticator: Authenticator::new([7; 32]),
            ..Options::new(kinds::built_in())
        };
        let server = Server::new(options).expect("memory can be opened");
        let local = server.service(User::admin());
        for definition in definitions() {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            ask(&local, Method::POST, path, JSON, definition).await.expect("a definition");
        }
        server.sync_definitions();
        let core = server.core.clone();
        let mut tasks = JoinSet::new();
        let (around, at) = (local.clone(), core.clone());
        tasks.spawn(async move {
            loop {
                let is_busy = everybody(&around, &at).await;
                sleep(Duration::from_millis(if is_busy { 500 } else { 3000 })).await;
            }
        });
        let cloud = Arc::new(Cloud::new(seed, bug));
        let home = Arc::new(tempfile::tempdir().expect("a folder"));
        let mut scene = Self { server: local, core, cloud, points, lives: Arc::default(), tasks, jobs: 0, home };
        scene.start();
        scene
    }

    /// Runs control planes, one after the other.
    fn start(&mut self) {
        let (server, core, cloud) = (self.server.clone(), self.core.clone(), self.cloud.clone());
        let (points, lives, home) = (self.points.clone(), self.lives.clone(), self.home.clone());
        self.tasks.spawn(async move {
            loop {
                let number = u32::try_from(lives.fetch_add(1, Ordering::Relaxed)).unwrap_or(u32::MAX);
                let (seen, watched) = (core.clone(), cloud.clone());
                let life = Life::new(number, points.clone(), Box::new(move || watched.look(&lines(&seen))));
                let life = Arc::new(life);
                let wire = Wire { server: server.clone(), life: life.clone(), cloud: cloud.clone() };
                let client = kube::Client::new(wire, "default");
                let mut driver = driver::Driver::new(client.clone());
                driver.add(ClusterController);
                let objects = core.clone();
                let stands: Arc<Stands> = Arc::new(move |token| lines(&objects).iter().any(|(held, _)| held == token));
                let provider = Called { cloud: cloud.clone(), life: life.clone(), stands };
                let at = |name: &str| home.path().join(name);
                let settings = launcher::Settings { home: at(""), kubeconfig: at("kubeconfig"), files: at("files") };
                // no launch sends files
                let by_socket: launcher::BySocket =
                    Arc::new(|| async { Err(std::io::Error::other("there are no files to send")) }.boxed());
                let launcher = Launcher::new(client.clone(), by_socket, Eyes::new(client.clone(), settings));
                let controller = MachineController::new(
                    client,
                    [Arc::new(provider) as Arc<dyn Provider>],
                    &infra::Attention::default(),
                );
                let mut parts = JoinSet::new();
                parts.spawn(driver.run(CancellationToken::new()));
                parts.spawn(controller.run(CancellationToken::new()));
                parts.spawn(launcher.run(CancellationToken::new()));
                life.death.notified().await;
                parts.shutdown().await;
                sleep(Duration::from_secs(1)).await;
            }
        });
    }

    async fn must(&self, method: Method, path: &str, kind: &str, body: Value) {
        ask(&self.server, method, path, kind, &body).await.expect("a wish that can be had");
    }

    pub async fn launch(&mut self, nodes: u32) {
        let candidates: Vec<Value> = (0..60).map(|at| json!({"provider": NAME, "region": format!("r{at}")})).collect();
        let spec = json!({"nodes": nodes, "candidates": candidates});
        let cluster = json!({"apiVersion": API_VERSION, "kind": "Cluster", "metadata": {"name": "dev"}, "spec": spec});
        self.must(Method::POST, CLUSTERS, JSON, cluster).await;
        self.exec().await;
    }

    /// Writes the objects of `sky launch`.
    pub async fn sky_launch(&self) {
        self.cloud.has_room();
        let task = json!({"name": "train", "num_nodes": 2, "run": "true", "resources": {"infra": "local"}});
        let spec = LaunchSpec { cluster: "dev".into(), task, retry_until_up: true, ..LaunchSpec::default() };
        let launch = json!({
            "apiVersion": API_VERSION, "kind": "Launch", "spec": spec,
            "metadata": {"name": "dev-1", "labels": {keys::CLUSTER: "dev"}, "finalizers": [keys::LEDGER]},
        });
        self.must(Method::POST, LAUNCHES, JSON, launch).await;
    }

    /// Deletes the objects that `sky down` deletes: the launches first, so that none of them makes the cluster again.
    pub async fn sky_down(&self) {
        self.must(Method::DELETE, &format!("{LAUNCHES}/dev-1"), JSON, Value::Null).await;
        while !of_kind(&self.core, &launch_gvk(), "launches").is_empty() {
            sleep(Duration::from_millis(100)).await;
        }
        self.down().await;
    }

    /// A job of one machine.
    pub async fn exec(&mut self) {
        let Some(cluster) = self.cluster() else { return };
        self.jobs += 1;
        let job = Submission::on(&cluster, self.jobs, 1);
        self.must(Method::POST, JOBSETS, JSON, job.jobset()).await;
    }

    pub async fn set(&self, spec: Value) {
        self.must(Method::PATCH, CLUSTER, MERGE, json!({"spec": spec})).await;
    }

    pub async fn down(&self) {
        if self.cluster().is_some() {
            self.must(Method::DELETE, CLUSTER, JSON, Value::Null).await;
        }
    }

    fn cluster(&self) -> Option<Arc<Value>> {
        of_kind(&self.core, &api::sky::cluster_gvk(), "clusters").into_iter().next()
    }

    /// The fault of the present state, if it should be the final one.
    fn judge(&self, wish: Wish) -> Result<(), String> {
        let Some(there) = self.cloud.machines() else { return Err("a machine will still come".into()) };
        let lines = lines(&self.core);
        for machine in &there {
            if there.iter().filter(|other| other.token == machine.token).count() > 1 {
                return Err(format!("two machines of token {}", machine.token));
            }
            match lines.iter().find(|(held, _)| held == object_of(&machine.token)) {
                None => return Err(format!("machine {} has no object", machine.id)),
                Some((_, id)) if *id != machine.id => return Err(format!("machine {} is noted as {id:?}", machine.id)),
                Some(_) => {}
            }
        }
        let cluster = self.cluster();
        let wanted = match wish {
            Wish::Up | Wish::Launched => ("UP", managed::provider::State::Running),
            Wish::Stopped => ("STOPPED", managed::provider::State::Stopped),
            Wish::Gone => {
                let nodes = of_kind(&self.core, &Gvk::new("", "v1", "Node"), "nodes").len();
                let left = (there.len(), lines.len(), nodes, usize::from(cluster.is_some()));
                let says = || format!("machines, objects, nodes and clusters after down: {left:?}");
                return if left == (0, 0, 0, 0) { Ok(()) } else { Err(says()) };
            }
        };
        let Some(cluster) = cluster else { return Err("the cluster has gone by itself".into()) };
        let nodes = cluster["spec"]["nodes"].as_u64().unwrap_or_default() as usize;
        let well = there.iter().filter(|machine| machine.state == wanted.1).count();
        if cluster["status"]["phase"] != wanted.0 || (well, there.len()) != (nodes, nodes) {
            let there = there.len();
            return Err(format!("{well} of {there} machines are {}, wanted: {nodes}; {}", wanted.0, cluster["status"]));
        }
        let waits = |jobset: &Arc<Value>| {
            jobset["spec"]["suspend"] == true && object::annotation(jobset, keys::ENDED).is_none()
        };
        match of_kind(&self.core, &api::jobset::gvk(), "jobsets").iter().find(|jobset| waits(jobset)) {
            Some(jobset) if wish != Wish::Stopped => {
                Err(format!("{} never got its turn", object::meta(jobset, "name")))
            }
            _ if wish == Wish::Launched => self.judge_launch(),
            _ => Ok(()),
        }
    }

    /// Whether a launch has exactly one job.
    fn judge_launch(&self) -> Result<(), String> {
        let launches = of_kind(&self.core, &launch_gvk(), "launches");
        let [launch] = &*launches else { return Err(format!("{} launches", launches.len())) };
        let jobs = of_kind(&self.core, &api::jobset::gvk(), "jobsets");
        let its = jobs.iter().filter(|job| object::label(job, keys::LAUNCH) == Some(object::uid(launch))).count();
        match launch["status"]["phase"].as_str() {
            Some("Succeeded") if its == 1 => Ok(()),
            _ => Err(format!("{its} jobs of the launch: {}", launch["status"])),
        }
    }

    /// Waits until the wished state is reached.
    pub async fn settle(&self, wish: Wish) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let says = self.judge(wish);
            if let Some(why) = self.cloud.broken() {
                return Err(why);
            }
            if says.is_ok() {
                return says;
            }
            if begun.elapsed() > REST {
                return says;
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Ends the cluster, and checks that nothing comes back.
    pub async fn end(&self) -> Result<(), String> {
        self.down().await;
        self.settle(Wish::Gone).await?;
        sleep(STAYS).await;
        self.settle(Wish::Gone).await
    }
}

/// Acts for the rest of the world: nodes register, jobs end, deleted objects go. Returns whether any objects are left.
async fn everybody(server: &Local, core: &Core) -> bool {
    let machines = of_kind(core, &machine_gvk(), "machines");
    for machine in &machines {
        let name = object::meta(machine, "name");
        let is_noted = !object::text(&machine["status"], "id").is_empty() && !object::is_terminating(machine);
        let nodes = of_kind(core, &Gvk::new("", "v1", "Node"), "nodes");
        if is_noted && !nodes.iter().any(|node| object::meta(node, "name") == name) {
            let labels =
                json!({keys::TOKEN: object::uid(machine), keys::CLUSTER: "dev", keys::CLUSTER_NAMESPACE: "default"});
            let status = json!({
                "allocatable": {"cpu": "4"},
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            });
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status});
            ask(server, Method::POST, "/api/v1/nodes", JSON, &node).await.expect("a node");
        }
    }
    let cluster = of_kind(core, &api::sky::cluster_gvk(), "clusters");
    let jobsets = of_kind(core, &api::jobset::gvk(), "jobsets");
    for jobset in &jobsets {
        let path = format!("{JOBSETS}/{}", object::meta(jobset, "name"));
        let owner = &jobset["metadata"]["ownerReferences"][0]["uid"];
        let done = if !cluster.iter().any(|cluster| *owner == object::uid(cluster)) {
            // the work of the garbage collector
            ask(server, Method::DELETE, &path, JSON, &Value::Null).await
        } else if object::is_terminating(jobset) {
            ask(server, Method::PATCH, &path, MERGE, &json!({"metadata": {"finalizers": null}})).await
        } else if jobset["spec"]["suspend"] == false && jobset["status"].get("conditions").is_none() {
            let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let ended = json!({"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "", "lastTransitionTime": now});
            ask(server, Method::PATCH, &format!("{path}/status"), MERGE, &json!({"status": {"conditions": [ended]}}))
                .await
        } else {
            continue;
        };
        done.expect("what everybody does");
    }
    !machines.is_empty() || !jobsets.is_empty()
}
