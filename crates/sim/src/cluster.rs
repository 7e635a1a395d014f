//! The world: a real API server over its memory store, a clock, [`nodes`] and a [`user`]; and how calls arrive at it, faults
//! included.

mod mpi;
mod nodes;
mod user;

use crate::dice::{Dice, Shared};
use crate::view::Moment;
use api::object::{self, Gvk, Key, Target};
use apiserver::auth::Authenticator;
use apiserver::registry::Core;
use apiserver::{Local, Options, Server};
use clock::Line;
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use nodes::Nodes;
use operator::controllers::admission::Webhook;
use operator::embedded::admission::Plugin;
use operator::embedded::install;
use reconcile::execution::{Answer, Call, Refusal, Verb};
use reconcile::queue::REST_MAX;
use resource::ClockAndDice;
use resource::User;
use resource::admission::Objects;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tower::ServiceExt;

/// The namespace of everything a run makes.
const NAMESPACE: &str = "default";

/// Of so many clusters with MPIJobs one keeps all its nodes.
pub const CALM: u64 = 8;

/// When runs begin.
const START_MILLIS: i64 = 1_800_000_000_000;

/// The clock and chance of a run, as the server sees them.
struct Surroundings {
    /// The machine's uptime, which passes steadily; by it timers go and pods end.
    millis: AtomicI64,
    /// The machine's clock and ours, which goes on when the machine's is set.
    clock: Mutex<MachineClock>,
    dice: Shared,
    /// What no decision depends on (ports, names of volumes): it leaves the other dice where they are.
    other: Shared,
}

/// A machine's clock that is set now and then, and the line by which a server's time goes.
struct MachineClock {
    line: Line,
    /// The machine's clock less its uptime, in milliseconds.
    ahead: i64,
    /// When it is set, and by how much: dice of its own, so that seeds are what they were without it.
    dice: Dice,
    /// A mistake: the server's time is the machine's.
    is_followed: bool,
}

const NANOS: i64 = 1_000_000;
/// How far a clock is set, in milliseconds: up to this, in either direction.
const SET_MAX: u64 = 12 * 3_600_000;

impl MachineClock {
    fn at(&self, millis: i64) -> i64 {
        if self.is_followed { millis + self.ahead } else { self.line.at(millis * NANOS) / NANOS }
    }

    fn set(&mut self, millis: i64) -> i64 {
        let by = self.dice.below(2 * SET_MAX).cast_signed() - SET_MAX.cast_signed();
        self.ahead += by;
        self.line = self.line.set(millis * NANOS, (millis + self.ahead) * NANOS);
        by
    }
}

impl Surroundings {
    fn clock(&self) -> std::sync::MutexGuard<'_, MachineClock> {
        self.clock.lock().expect("invariant: one thread")
    }
}

impl ClockAndDice for Surroundings {
    fn now(&self) -> Timestamp {
        let millis = self.clock().at(self.millis.load(Ordering::Relaxed));
        Timestamp::from_millisecond(millis).expect("invariant: runs last days at most")
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

    fn below(&self, bound: u32) -> u32 {
        u32::try_from(self.other.next() % u64::from(bound.max(1))).unwrap_or_default()
    }
}

pub struct Cluster {
    server: Local,
    core: Arc<Core>,
    kinds: Vec<(Gvk, &'static str)>,
    pub workload: Workload,
    around: Arc<Surroundings>,
    /// For each kind, its moments so far; a moment is added when something has changed.
    pub moments: RefCell<BTreeMap<Gvk, Vec<Moment>>>,
    pub trace: RefCell<Vec<String>>,
    /// Promises that decisions broke: what they ask for, whatever becomes of it.
    pub broken_promises: RefCell<Vec<String>>,
    writes: Cell<usize>,
    /// How many things the user has made: names are not used twice.
    made: Cell<usize>,
    nodes: RefCell<Nodes>,
    /// Whether no node ever dies: then no loss excuses a gang that holds what another needs.
    is_calm: bool,
    /// Workers of MPIJobs that have run once: the job's uid and the pod's name.
    ran: RefCell<BTreeSet<(String, String)>>,
    /// How many launchers of MPIJobs have started.
    starts: Cell<usize>,
    /// How long objects rest.
    rests: RefCell<Dice>,
    /// The store's revision at the last moment.
    remembered: Cell<u64>,
    /// Whether controllers are killed.
    pub kills: Cell<bool>,
    /// Whether the last call was carried out, whatever its answer said.
    pub applied: Cell<bool>,
}

/// What a run is about. Chance decides the same for a seed as long as nothing is added to its world: so MPIJobs have one of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    TrainJobs,
    MpiJobs,
}

impl Workload {
    /// The kind of the user's jobs.
    pub fn kind(self) -> &'static str {
        match self {
            Self::TrainJobs => "TrainJob",
            Self::MpiJobs => api::mpi::KIND,
        }
    }
}

/// The kinds that runs are about, with their plurals.
fn kinds(workload: Workload) -> Vec<(Gvk, &'static str)> {
    let mut kinds = kinds_of_trainjobs();
    if workload == Workload::MpiJobs {
        kinds.push((api::mpi::gvk(), api::mpi::PLURAL));
    }
    kinds
}

fn kinds_of_trainjobs() -> Vec<(Gvk, &'static str)> {
    let trainer = |kind| Gvk::new("trainer.kubeflow.org", "v1alpha1", kind);
    let core = |kind| Gvk::new("", "v1", kind);
    vec![
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
        (core("PersistentVolumeClaim"), "persistentvolumeclaims"),
        (core("ResourceQuota"), "resourcequotas"),
        (Gvk::new("coordination.k8s.io", "v1", "Lease"), "leases"),
        (Gvk::new("policy", "v1", "PodDisruptionBudget"), "poddisruptionbudgets"),
        (Gvk::new("rbac.authorization.k8s.io", "v1", "ClusterRole"), "clusterroles"),
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
            MPIJOBS,
            "torch-distributed",
        ];
        install::manifests().filter(|manifest| wanted.contains(&object::meta(manifest, "name"))).collect()
    })
}

impl Cluster {
    pub fn new(seed: u64, dice: &mut Dice, workload: Workload) -> Self {
        let around = Arc::new(Surroundings {
            millis: AtomicI64::new(START_MILLIS),
            clock: Mutex::new(MachineClock {
                line: Line::new(START_MILLIS * NANOS, START_MILLIS * NANOS),
                ahead: 0,
                dice: dice.clone(),
                is_followed: false,
            }),
            dice: Shared(Mutex::new(Dice::new(dice.next()))),
            other: Shared(Mutex::new(Dice::new(0))),
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
            ..Options::new(kinds::built_in())
        };
        let server = Server::new(options).expect("invariant: memory can always be opened");
        let cluster = Self {
            server: server.service(User::admin()),
            core: server.core.clone(),
            kinds: kinds(workload),
            workload,
            around,
            moments: RefCell::default(),
            trace: RefCell::default(),
            broken_promises: RefCell::default(),
            writes: Cell::new(0),
            made: Cell::new(0),
            nodes: RefCell::default(),
            is_calm: workload == Workload::MpiJobs && seed.is_multiple_of(CALM),
            ran: RefCell::default(),
            starts: Cell::new(0),
            rests: RefCell::new(dice.clone()),
            remembered: Cell::new(0),
            kills: Cell::new(dice.chance(50)),
            applied: Cell::new(false),
        };
        let is_wanted = |manifest: &&Value| workload == Workload::MpiJobs || object::meta(manifest, "name") != MPIJOBS;
        for manifest in manifests().iter().filter(is_wanted) {
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
        for (name, policy) in [("urgent", "PreemptLowerPriority"), ("patient", "Never")] {
            let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
                "value": 1000, "preemptionPolicy": policy});
            cluster.must("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", &class);
        }
        for _ in 0..1 + dice.below(3) {
            cluster.add_node(dice);
        }
        cluster.must(
            "POST",
            &format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"),
            &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}),
        );
        match workload {
            Workload::TrainJobs => {
                if dice.chance(30) {
                    cluster.make_search(dice);
                }
                cluster.make_job(dice);
            }
            Workload::MpiJobs => cluster.make_mpijob(dice),
        }
        cluster
    }

    fn must(&self, method: &str, path: &str, body: &Value) {
        if let Err(refused) = self.send(method, path, JSON, body) {
            panic!("{method} {path}: {}", refused.message);
        }
    }

    /// Somebody's request, which may be refused; counted where it changed something.
    fn act(&self, method: &str, path: &str, content_type: &str, body: &Value) {
        let before = self.core.store.revision();
        let _ = self.send(method, path, content_type, body);
        self.count(before);
    }

    /// A write that changed nothing is none.
    fn count(&self, before: u64) {
        if self.core.store.revision() != before {
            self.writes.set(self.writes.get() + 1);
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

    pub fn starts(&self) -> usize {
        self.starts.get()
    }

    /// How long an object rests after a look, where its controller rests: as long as the look took, which is anything.
    pub fn rest(&self) -> Duration {
        let millis = u64::try_from(REST_MAX.as_millis()).unwrap_or(u64::MAX - 1);
        Duration::from_millis(self.rests.borrow_mut().below(millis + 1))
    }

    pub fn note(&self, line: String) {
        self.trace.borrow_mut().push(line);
    }

    /// A decision has broken a promise.
    pub fn broken(&self, promise: String) {
        self.broken_promises.borrow_mut().push(promise);
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
        Err(Refusal { code, reason: text("reason"), message: text("message"), ..Refusal::default() })
    }

    fn path(gvk: &Gvk, key: &Key) -> String {
        let plural = kinds(Workload::MpiJobs)
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
        let revision = self.core.store.revision();
        if self.remembered.replace(revision) == revision {
            return;
        }
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
                moments.push(Moment { revision, objects: Arc::new(objects) });
            }
        }
    }

    /// A controller's call. With dice it may be refused, never arrive, or be done while its answer is lost.
    pub fn call(&self, who: &str, target: &Target, call: &Call, dice: Option<&mut Dice>) -> Answer {
        let reached = &call.target;
        let (own, other) = (&target.key.namespace, &reached.key.namespace);
        if !own.is_empty() && !other.is_empty() && other != own {
            self.broken(format!("a write left its namespace: {target} writes {reached}"));
        }
        let is_look = call.verb == Verb::Get;
        if !is_look {
            let name = if reached.key.name.is_empty() { object::meta(&call.body, "name") } else { "" };
            self.note(format!("{who} on {target}: {} {reached}{name}{}", call.method(), call.tail()));
        }
        let refusal = |code: u16, reason: &str, message: &str| {
            self.note(format!("  {message}"));
            let (reason, message) = (reason.to_owned(), message.to_owned());
            Answer::Refused(Refusal { code, reason, message, ..Refusal::default() })
        };
        let fault = dice.map_or(100, |dice| dice.below(100));
        self.applied.set(false);
        match fault {
            0..4 if !is_look => return refusal(409, "Conflict", "made up: a conflict"),
            4..7 => return refusal(0, "", "made up: the server is not reachable"),
            _ => {}
        }
        let before = self.core.store.revision();
        let path = format!("{}{}", Self::path(&reached.gvk, &reached.key), call.tail());
        let answer = self.send(call.method(), &path, call.content_type(), &call.body);
        self.count(before);
        self.applied.set(answer.is_ok());
        match answer {
            _ if (7..10).contains(&fault) => refusal(0, "", "made up: the answer is lost"),
            Ok(object) => Answer::Accepted(Arc::new(object)),
            Err(refused) => {
                self.note(format!("  refused: {}", refused.message));
                Answer::Refused(refused)
            }
        }
    }

    /// The uptime, in milliseconds.
    fn millis(&self) -> i64 {
        self.around.millis.load(Ordering::Relaxed)
    }

    /// A moment, a minute, or (a clock jump) hours.
    pub fn pass_time(&self, dice: &mut Dice) {
        let secs = match dice.below(10) {
            0 => 7200,
            1..4 => 60,
            _ => 2,
        };
        self.around.millis.fetch_add(secs * 1000, Ordering::Relaxed);
        self.heartbeat();
        self.set_clock_now_and_then();
    }

    pub fn set_clock_now_and_then(&self) {
        let is_set = self.around.clock().dice.chance(10);
        if is_set {
            self.set_clock();
        }
    }

    /// Somebody sets the machine's clock by hours, or its time service does.
    pub fn set_clock(&self) {
        let millis = self.millis();
        let by = self.around.clock().set(millis);
        self.note(format!("the machine's clock is set by {} s", by / 1000));
    }

    /// From now on the server's time is the machine's: a mistake.
    pub fn follow_machine_clock(&self) {
        self.around.clock().is_followed = true;
    }

    /// How long the run has lasted, by its own clock.
    pub fn elapsed(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.millis() - START_MILLIS).expect("invariant: time only passes"))
    }

    /// Lets time pass until something is due: a controller's timer, the end of a pod (where pods take their time), at the latest
    /// `latest`. Returns false where nothing is.
    pub fn wait(&self, timer: Option<Duration>, pods: bool, latest: Option<Duration>) -> bool {
        // up to the next millisecond, the clock's step
        let millis = |at: Duration| {
            START_MILLIS + i64::try_from(at.as_millis()).expect("invariant: runs last years at most") + 1
        };
        let end = self.next_end().filter(|_| pods);
        let Some(at) = timer.into_iter().chain(latest).map(millis).chain(end).min() else { return false };
        self.around.millis.fetch_max(at, Ordering::Relaxed);
        self.heartbeat();
        true
    }

    /// Whether a node came, went, died or returned since `seen`, which is brought up to date.
    pub fn nodes_changed(&self, seen: &mut u64) -> bool {
        let now = self.nodes.borrow().changes;
        std::mem::replace(seen, now) != now
    }
}

/// Whether a TrainJob is a search's.
fn is_trial(job: &Value) -> bool {
    object::controller_of(job).is_some_and(|owner| object::text(owner, "kind") == "OptimizationJob")
}

/// The label by which a JobSet's pods are known.
pub const JOBSET_NAME: &str = "jobset.sigs.k8s.io/jobset-name";
/// The CustomResourceDefinition of MPIJobs.
const MPIJOBS: &str = "mpijobs.kubeflow.org";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
