//! The world: a real API server over its memory store, a node, a user, a clock; and how calls arrive at it, faults
//! included.

use crate::dice::{Dice, Shared};
use crate::view::Moment;
use api::jobset::keys;
use api::object::{self, Gvk, Key, Target};
use api::trainer::annotations;
use apiserver::admission::Objects;
use apiserver::auth::{Authenticator, User};
use apiserver::registry::{Core, World};
use apiserver::{Local, Options, Server};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use operator::admission::Webhook;
use reconcile::execution::{Answer, Call, Refusal, Verb};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tower::ServiceExt;
use trainyard::admission::Plugin;
use trainyard::install;

/// The namespace of everything a run makes.
const NAMESPACE: &str = "default";
const NODE: &str = "node";

/// When runs begin.
const START_MILLIS: i64 = 1_800_000_000_000;

/// The clock and chance of a run, as the server sees them.
struct Surroundings {
    millis: AtomicI64,
    dice: Shared,
}

impl World for Surroundings {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.millis.load(Ordering::Relaxed)).expect("invariant: runs last days at most")
    }

    fn uid(&self) -> String {
        let (a, b) = (self.dice.next(), self.dice.next());
        format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            a >> 32,
            a >> 16 & 0xffff,
            a & 0xfff,
            b >> 52,
            b & 0xffff_ffff_ffff
        )
    }

    fn suffix(&self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let number = self.dice.next();
        (0..5).map(|at| char::from(LETTERS[(number >> (at * 8)) as usize % LETTERS.len()])).collect()
    }
}

pub struct Cluster {
    server: Local,
    core: Arc<Core>,
    kinds: [(Gvk, &'static str); 13],
    around: Arc<Surroundings>,
    /// For each kind, its moments so far; a moment is added when something has changed.
    pub moments: RefCell<BTreeMap<Gvk, Vec<Moment>>>,
    pub trace: RefCell<Vec<String>>,
    /// Namespaces that decisions tried to reach beside that of their object.
    pub strayed: RefCell<Vec<String>>,
    writes: Cell<usize>,
    jobs_made: Cell<usize>,
    /// Whether controllers are killed.
    pub kills: Cell<bool>,
}

/// The kinds that runs are about, with their plurals.
fn kinds() -> [(Gvk, &'static str); 13] {
    let trainer = |kind| Gvk::new("trainer.kubeflow.org", "v1alpha1", kind);
    let core = |kind| Gvk::new("", "v1", kind);
    [
        (trainer("TrainJob"), "trainjobs"),
        (trainer("OptimizationJob"), "optimizationjobs"),
        (trainer("TrainingRuntime"), "trainingruntimes"),
        (trainer("ClusterTrainingRuntime"), "clustertrainingruntimes"),
        (Gvk::new("jobset.x-k8s.io", "v1alpha2", "JobSet"), "jobsets"),
        (Gvk::new("batch", "v1", "Job"), "jobs"),
        (core("Pod"), "pods"),
        (core("Service"), "services"),
        (core("ConfigMap"), "configmaps"),
        (core("Secret"), "secrets"),
        (core("ServiceAccount"), "serviceaccounts"),
        (core("Namespace"), "namespaces"),
        (core("Node"), "nodes"),
    ]
}

/// Parsed once for all seeds.
fn manifests() -> &'static [Value] {
    static MANIFESTS: OnceLock<Vec<Value>> = OnceLock::new();
    MANIFESTS.get_or_init(|| {
        let wanted = [
            "jobsets.jobset.x-k8s.io",
            "trainjobs.trainer.kubeflow.org",
            "optimizationjobs.trainer.kubeflow.org",
            "trainingruntimes.trainer.kubeflow.org",
            "clustertrainingruntimes.trainer.kubeflow.org",
            "torch-distributed",
        ];
        install::manifests().filter(|manifest| wanted.contains(&object::meta(manifest, "name"))).collect()
    })
}

impl Cluster {
    pub fn new(dice: &mut Dice) -> Self {
        let around = Arc::new(Surroundings {
            millis: AtomicI64::new(START_MILLIS),
            dice: Shared(Mutex::new(Dice::new(dice.next()))),
        });
        let plugins = [
            Webhook::TrainJob,
            Webhook::TrainingRuntime,
            Webhook::ClusterTrainingRuntime,
            Webhook::OptimizationJob,
            Webhook::JobSet,
        ];
        let options = Options {
            plugins: plugins.into_iter().map(|webhook| Arc::new(Plugin(webhook)) as _).collect(),
            world: around.clone(),
            authenticator: Authenticator::new([7; 32]),
            ..Options::default()
        };
        let server = Server::new(options).expect("invariant: memory can always be opened");
        let cluster = Self {
            server: server.service(User::admin()),
            core: server.core.clone(),
            kinds: kinds(),
            around,
            moments: RefCell::default(),
            trace: RefCell::default(),
            strayed: RefCell::default(),
            writes: Cell::new(0),
            jobs_made: Cell::new(0),
            kills: Cell::new(dice.chance(50)),
        };
        for manifest in manifests() {
            let kind = object::text(manifest, "kind");
            let path = match kind {
                "CustomResourceDefinition" => "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                _ => "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes",
            };
            if kind != "CustomResourceDefinition" {
                server.sync_definitions();
            }
            cluster.must("POST", path, manifest);
        }
        server.sync_definitions();
        cluster.must("POST", "/api/v1/nodes", &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}));
        let capacity = json!({"cpu": (2 + dice.below(5)).to_string(), "memory": "8Gi", "pods": "20"});
        let status = json!({"status": {"capacity": capacity, "allocatable": capacity, "conditions": [
            {"type": "Ready", "status": "True", "reason": "Up", "message": "", "lastTransitionTime": "2027-01-15T08:00:00Z",
             "lastHeartbeatTime": "2027-01-15T08:00:00Z"}]}});
        cluster
            .send("PATCH", &format!("/api/v1/nodes/{NODE}/status"), MERGE, &status)
            .unwrap_or_else(|r| panic!("{}", r.message));
        cluster.must(
            "POST",
            &format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"),
            &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}),
        );
        if dice.chance(30) {
            cluster.make_search(dice);
        }
        cluster.make_job(dice);
        cluster
    }

    fn must(&self, method: &str, path: &str, body: &Value) {
        if let Err(refused) = self.send(method, path, JSON, body) {
            panic!("{method} {path}: {}", refused.message);
        }
    }

    pub fn now(&self) -> Timestamp {
        self.around.now()
    }

    /// The server's chance: a number that the seed decides.
    pub fn chance(&self) -> u64 {
        self.around.dice.next()
    }

    pub fn writes(&self) -> usize {
        self.writes.get()
    }

    pub fn note(&self, line: String) {
        self.trace.borrow_mut().push(line);
    }

    /// One request; nothing waits in a memory store, so it is answered at once.
    fn send(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Result<Value, Refusal> {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .body(Full::new(bytes.into()))
            .expect("invariant: paths are well-formed");
        let (code, bytes) = futures::executor::block_on(async {
            let response = self.server.clone().oneshot(request).await.expect("invariant: infallible");
            let code = response.status().as_u16();
            let bytes = response.into_body().collect().await.expect("invariant: bodies in memory arrive").to_bytes();
            (code, bytes)
        });
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if code < 300 {
            return Ok(answer);
        }
        let text = |member: &str| object::text(&answer, member).to_owned();
        Err(Refusal { code, reason: text("reason"), message: text("message") })
    }

    fn path(gvk: &Gvk, key: &Key) -> String {
        let plural = kinds()
            .iter()
            .find(|(known, _)| known == gvk)
            .map_or_else(|| format!("{}s", gvk.kind.to_lowercase()), |(_, p)| (*p).to_owned());
        let root =
            if gvk.group.is_empty() { format!("/api/{}", gvk.version) } else { format!("/apis/{}", gvk.api_version()) };
        let place = if key.namespace.is_empty() { String::new() } else { format!("/namespaces/{}", key.namespace) };
        let name = if key.name.is_empty() { String::new() } else { format!("/{}", key.name) };
        format!("{root}{place}/{plural}{name}")
    }

    /// The truth about a kind.
    pub fn all(&self, kind: &str) -> Vec<Arc<Value>> {
        let (gvk, plural) =
            self.kinds.iter().find(|(gvk, _)| gvk.kind == kind).expect("invariant: a kind of the simulation");
        Objects::list(&*self.core, &gvk.group, plural, "")
    }

    /// Adds a moment to each kind that has changed.
    pub fn remember(&self) {
        let mut moments = self.moments.borrow_mut();
        for (gvk, plural) in &self.kinds {
            let now = Objects::list(&*self.core, &gvk.group, plural, "");
            let moments = moments.entry(gvk.clone()).or_default();
            // the store shares what has not changed
            let same = moments.last().is_some_and(|last| {
                last.objects.len() == now.len() && last.objects.values().zip(&now).all(|(a, b)| Arc::ptr_eq(a, b))
            });
            if !same {
                let objects = now.into_iter().map(|object| (Key::of(&object), object)).collect();
                moments.push(Moment { revision: self.core.store.revision(), objects: Arc::new(objects) });
            }
        }
    }

    /// A controller's call. With dice it may be refused, never arrive, or be done while its answer is lost.
    pub fn call(&self, who: &str, target: &Target, call: &Call, dice: Option<&mut Dice>) -> Answer {
        let reached = &call.target;
        let (own, other) = (&target.key.namespace, &reached.key.namespace);
        if !own.is_empty() && !other.is_empty() && other != own {
            self.strayed.borrow_mut().push(format!("{target} writes {reached}"));
        }
        let is_look = call.verb == Verb::Get;
        if !is_look {
            let name = if reached.key.name.is_empty() { object::meta(&call.body, "name") } else { "" };
            self.note(format!("{who} on {target}: {} {reached}{name}{}", call.method(), call.tail()));
        }
        let refusal = |code: u16, reason: &str, message: &str| {
            self.note(format!("  {message}"));
            Answer::Refused(Refusal { code, reason: reason.to_owned(), message: message.to_owned() })
        };
        let fault = dice.map_or(100, |dice| dice.below(100));
        match fault {
            0..4 if !is_look => return refusal(409, "Conflict", "made up: a conflict"),
            4..7 => return refusal(0, "", "made up: the server is not reachable"),
            _ => {}
        }
        let before = self.core.store.revision();
        let path = format!("{}{}", Self::path(&reached.gvk, &reached.key), call.tail());
        let answer = self.send(call.method(), &path, call.content_type(), &call.body);
        // a write that changed nothing is none
        if self.core.store.revision() != before {
            self.writes.set(self.writes.get() + 1);
        }
        match answer {
            _ if (7..10).contains(&fault) => refusal(0, "", "made up: the answer is lost"),
            Ok(object) => Answer::Accepted(object),
            Err(refused) => {
                self.note(format!("  refused: {}", refused.message));
                Answer::Refused(refused)
            }
        }
    }

    // ------------------------------------------------------------------------------------------------ the node

    fn pod_status(&self, pod: &Value, status: &Value) {
        let path = format!("{}/status", Self::path(&Gvk::new("", "v1", "Pod"), &Key::of(pod)));
        self.writes.set(self.writes.get() + 1);
        let _ = self.send("PATCH", &path, MERGE, &json!({"status": status}));
    }

    fn remove_pod(&self, pod: &Value) {
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": object::uid(pod)}});
        self.writes.set(self.writes.get() + 1);
        let _ = self.send("DELETE", &Self::path(&Gvk::new("", "v1", "Pod"), &Key::of(pod)), JSON, &options);
    }

    fn run_pod(&self, pod: &Value, phase: &str, exit_code: i64) {
        let now = self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let state = match phase {
            "Running" => json!({"running": {"startedAt": now}}),
            _ => json!({"terminated": {"exitCode": exit_code, "startedAt": now, "finishedAt": now}}),
        };
        let ready = phase == "Running";
        self.note(format!("node: {} {phase}", object::meta(pod, "name")));
        self.pod_status(pod, &json!({"phase": phase, "startTime": now,
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": now}],
            "containerStatuses": [{"name": "node", "ready": ready, "restartCount": 0, "image": "", "imageID": "", "state": state}]}));
    }

    /// Training code tells its loss, as the status server writes it. Searches alone look at it.
    fn report(&self, pod: &Value, loss: &str) {
        let trial = object::label(pod, JOBSET_NAME).unwrap_or_default();
        let jobs = self.all("TrainJob");
        let Some(job) = jobs.iter().find(|job| object::meta(job, "name") == trial && is_trial(job)) else { return };
        self.note(format!("node: {trial} has a loss of {loss}"));
        self.writes.set(self.writes.get() + 1);
        let now = self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let told = json!({"metrics": [{"name": "loss", "value": loss}], "lastUpdatedTime": now});
        let path = format!("{}/status", Self::job_path(job));
        let _ = self.send("PATCH", &path, MERGE, &json!({"status": {"trainerStatus": told}}));
    }

    /// The node does something to one of its pods: starts it, ends it well or badly, loses it, or reports twice.
    pub fn node_step(&self, dice: &mut Dice) {
        let pods: Vec<Arc<Value>> = self.all("Pod").into_iter().filter(|pod| pod["spec"]["nodeName"] == NODE).collect();
        let Some(pod) = dice.pick(&pods) else { return };
        let phase = object::text(&pod["status"], "phase");
        if object::is_terminating(pod) {
            return self.remove_pod(pod);
        }
        match (phase, dice.below(100)) {
            ("Pending" | "", _) => self.run_pod(pod, "Running", 0),
            ("Running", 0..60) => {
                if dice.chance(80) {
                    self.report(pod, &format!("0.{}", dice.below(10)));
                }
                self.run_pod(pod, "Succeeded", 0);
            }
            ("Running", 60..85) => self.run_pod(pod, "Failed", 1 + dice.below(3) as i64),
            ("Running", 85..92) => {
                self.note(format!("node: {} is lost", object::meta(pod, "name")));
                self.remove_pod(pod);
            }
            ("Running", _) => self.run_pod(pod, "Running", 0),
            _ => {}
        }
    }

    /// The node without whims: pods start, end (with dice, some of them badly), and go when told. Returns whether there was
    /// anything to do.
    pub fn node_settle(&self, mut dice: Option<&mut Dice>) -> bool {
        let mut acted = false;
        for pod in
            self.all("Pod").into_iter().filter(|pod| pod["spec"]["nodeName"] == NODE || object::is_terminating(pod))
        {
            match object::text(&pod["status"], "phase") {
                _ if object::is_terminating(&pod) => {
                    let finalizers = pod["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
                    if finalizers && matches!(object::text(&pod["status"], "phase"), "Succeeded" | "Failed") {
                        continue;
                    }
                    if finalizers {
                        self.run_pod(&pod, "Failed", 137);
                    } else {
                        self.remove_pod(&pod);
                    }
                }
                "Pending" | "" => self.run_pod(&pod, "Running", 0),
                "Running" if !self.waits_for_others(&pod) => {
                    if dice.as_deref_mut().is_some_and(|dice| dice.chance(25)) {
                        self.run_pod(&pod, "Failed", 1);
                    } else {
                        self.report(&pod, "0.5");
                        self.run_pod(&pod, "Succeeded", 0);
                    }
                }
                _ => continue,
            }
            acted = true;
        }
        acted
    }

    /// Whether training cannot get on, since members of the pod's gang are missing: as ranks wait in a barrier.
    fn waits_for_others(&self, pod: &Value) -> bool {
        let is_of_gang = |object: &Arc<Value>| {
            [keys::JOBSET_NAME, keys::RESTART_ATTEMPT]
                .iter()
                .all(|key| object::label(object, key) == object::label(pod, key))
        };
        let pods: Vec<Arc<Value>> = self.all("Pod").into_iter().filter(is_of_gang).collect();
        self.all("Job").iter().filter(|job| is_of_gang(job)).any(|job| {
            let is_there = |pod: &&Arc<Value>| {
                object::controller_of(pod).is_some_and(|owner| object::text(owner, "uid") == object::uid(job))
                    && matches!(object::text(&pod["status"], "phase"), "Running" | "Succeeded")
            };
            let there = i64::try_from(pods.iter().filter(is_there).count()).unwrap_or(i64::MAX);
            there < job["spec"]["parallelism"].as_i64().unwrap_or(1)
        })
    }

    // ------------------------------------------------------------------------------------------------ the user

    fn make_job(&self, dice: &mut Dice) {
        let number = self.jobs_made.get();
        if number >= 3 {
            return;
        }
        self.jobs_made.set(number + 1);
        let name = format!("job{number}");
        let cpu = ["1", "2", "500m"][dice.below(3) as usize];
        let mut runtime = json!({"name": "torch-distributed"});
        if dice.chance(60) {
            let runtime_name = format!("runtime{number}");
            let mut template = json!({"spec": {"replicatedJobs": [{"name": "node", "template": {
                "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                "spec": {"backoffLimit": dice.below(3), "template": {"spec": {"restartPolicy": "Never",
                    "containers": [{"name": "node", "image": "none"}]}}}}}]}});
            if dice.chance(50) {
                template["spec"]["failurePolicy"] = json!({"maxRestarts": dice.below(3)});
            }
            let object = json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime",
                "metadata": {"name": runtime_name, "namespace": NAMESPACE},
                "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": template}});
            self.must(
                "POST",
                &format!("/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainingruntimes"),
                &object,
            );
            runtime = json!({"name": runtime_name, "kind": "TrainingRuntime"});
        }
        let mut annotations = json!({});
        if dice.chance(50) {
            annotations[annotations::RETRIES] = (1 + dice.below(2)).to_string().into();
            annotations[annotations::RETRY_BACKOFF] = ["0s", "3s", "1m"][dice.below(3) as usize].into();
        }
        if dice.chance(30) {
            annotations[annotations::LIFECYCLE] = "true".into();
        }
        if dice.chance(10) {
            annotations[annotations::TTL_SECONDS] = "30".into();
        }
        let job = json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
            "spec": {"runtimeRef": runtime, "suspend": dice.chance(20), "trainer": {"numNodes": 1 + dice.below(3),
                "command": ["true"], "resourcesPerNode": {"requests": {"cpu": cpu}}}}});
        self.note(format!("user: makes {name}"));
        self.must("POST", &format!("/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainjobs"), &job);
    }

    /// A search over a few trials, one or two at once.
    fn make_search(&self, dice: &mut Dice) {
        let choices: Vec<String> = (0..1 + dice.below(3)).map(|n| n.to_string()).collect();
        let algorithm = match dice.chance(50) {
            true => json!({"grid": {}}),
            false => json!({"random": {"seed": dice.below(100)}}),
        };
        let trials = 1 + dice.below(4);
        let search = json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "OptimizationJob",
            "metadata": {"name": "search", "namespace": NAMESPACE},
            "spec": {"objectives": [{"metric": "loss", "direction": "Minimize"}], "searchAlgorithm": algorithm,
                "parameters": [{"name": "x", "searchSpace": {"categorical": {"choices": choices}}}],
                "numTrials": trials, "parallelTrials": 1 + dice.below(trials.min(2)),
                "trainJobTemplate": {"spec": {"runtimeRef": {"name": "torch-distributed"},
                    "trainer": {"numNodes": 1 + dice.below(2), "command": ["true"]}}}}});
        self.note("user: makes a search".to_owned());
        self.must(
            "POST",
            &format!("/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/optimizationjobs"),
            &search,
        );
    }

    fn job_path(job: &Value) -> String {
        Self::path(&Gvk::of(job), &Key::of(job))
    }

    /// The user makes, suspends, resumes or deletes a job.
    pub fn user_step(&self, dice: &mut Dice) {
        let searches = self.all("OptimizationJob");
        if let Some(search) = dice.pick(&searches).filter(|_| dice.chance(5)) {
            self.note("user: deletes the search".to_owned());
            let _ = self.send("DELETE", &Self::job_path(search), JSON, &json!({"propagationPolicy": "Background"}));
            return;
        }
        let jobs = self.all("TrainJob");
        match (dice.below(100), dice.pick(&jobs)) {
            (0..40, _) | (_, None) => self.make_job(dice),
            (40..80, Some(job)) => {
                let suspend = job["spec"]["suspend"] != true;
                self.note(format!(
                    "user: {} {}",
                    if suspend { "suspends" } else { "resumes" },
                    object::meta(job, "name")
                ));
                let _ = self.send("PATCH", &Self::job_path(job), MERGE, &json!({"spec": {"suspend": suspend}}));
            }
            (_, Some(job)) => {
                let policy = ["Background", "Foreground"][dice.below(2) as usize];
                self.note(format!("user: deletes {} ({policy})", object::meta(job, "name")));
                let _ = self.send("DELETE", &Self::job_path(job), JSON, &json!({"propagationPolicy": policy}));
            }
        }
    }

    /// Nobody waits for the user at the end.
    pub fn resume_all(&self) {
        for job in self.all("TrainJob") {
            let _ = self.send("PATCH", &Self::job_path(&job), MERGE, &json!({"spec": {"suspend": false}}));
        }
    }

    // ------------------------------------------------------------------------------------------------ the clock

    /// A moment, a minute, or (a clock jump) hours.
    pub fn pass_time(&self, dice: &mut Dice) {
        let secs = match dice.below(10) {
            0 => 7200,
            1..4 => 60,
            _ => 2,
        };
        self.around.millis.fetch_add(secs * 1000, Ordering::Relaxed);
    }

    /// How long the run has lasted, by its own clock.
    pub fn elapsed(&self) -> Duration {
        let millis = self.around.millis.load(Ordering::Relaxed) - START_MILLIS;
        Duration::from_millis(u64::try_from(millis).expect("invariant: time only passes"))
    }

    /// Lets time pass until then.
    pub fn jump_to(&self, at: Duration) {
        // up to the next millisecond, the clock's step
        let millis = i64::try_from(at.as_millis()).expect("invariant: runs last days at most") + 1;
        self.around.millis.fetch_max(START_MILLIS + millis, Ordering::Relaxed);
    }
}

/// Whether a TrainJob is a search's.
fn is_trial(job: &Value) -> bool {
    object::controller_of(job).is_some_and(|owner| object::text(owner, "kind") == "OptimizationJob")
}

/// The label by which a JobSet's pods are known.
pub const JOBSET_NAME: &str = "jobset.sigs.k8s.io/jobset-name";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
