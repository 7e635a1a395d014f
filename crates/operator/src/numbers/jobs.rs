//! Metrics of jobs of all kinds.
//!
//! Whenever somebody reads the numbers, only objects that have changed since the last time are read again: ten thousand jobs cost a
//! few milliseconds.

use super::{mpijobs, trainjobs};
use api::jobset::{self, keys};
use api::metrics::{
    CLUSTERS, GPUS_HELD, GPUS_REQUESTED, JOB_END_SECONDS, JOB_GPUS, JOB_INFO, JOB_INFO_LEFT_OUT, JOB_PROGRESS,
    JOB_QUEUE_SECONDS, JOB_RESTARTS, JOB_START_SECONDS, JOBS, Metric, RESTARTS, WATCH_BEHIND,
};
use api::mpi::names::{LABEL_JOB_ROLE, LABEL_REPLICA_INDEX, ROLE_WORKER};
use api::object::{self, Gvk, Key, text};
use api::sky::{self, ManagedState};
use api::trainer::names::LABEL_JOBSET_NAME;
use driver::Witness;
use driver::cache::Cache;
use driver::metrics::Registry;
use jiff::{SignedDuration, Timestamp};
use plan::controller::trainjob_gvk;
use plan::optimization::controller::optimizationjob_gvk;
use reconcile::World;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use view::queue::KUEUE_QUEUE;
use view::row::{gpus_of_jobset, gpus_of_pod, restarts_of_jobset};
use workloads::job::pod_gvk;

/// So many jobs have series of their own.
const INFO_MAX: usize = 10_000;
/// For so long after its end.
const INFO_KEPT: SignedDuration = SignedDuration::from_hours(1);
/// Reasons are words; conditions of foreign controllers may hold anything.
const REASON_MAX: usize = 64;

/// A job's state in a word: the same words for all kinds that train.
#[derive(Clone, Debug, Default, PartialEq)]
struct Standing {
    state: &'static str,
    reason: String,
    ended: bool,
}

/// What the numbers need of an object.
#[derive(Debug, Default)]
struct Facts {
    revision: u64,
    standing: Standing,
    /// A JobSet of another job.
    is_part: bool,
    queue: String,
    gpus: i64,
    restarts: i64,
    progress: Option<i64>,
    /// When it ended.
    end: Option<Timestamp>,
}

type Behind = Box<dyn Fn() -> BTreeMap<Gvk, Duration> + Send + Sync>;

/// A driver that counts: its cache, for as long as it runs.
struct Part {
    cache: Weak<Cache>,
    behind: Behind,
    known: BTreeMap<Gvk, BTreeMap<Key, Facts>>,
}

/// The jobs of all drivers of a process.
#[derive(Default)]
pub struct JobNumbers(Mutex<BTreeMap<&'static str, Part>>);

impl JobNumbers {
    /// Counts whenever somebody reads the registry.
    pub fn new(registry: &Registry) -> Arc<Self> {
        let numbers = Arc::new(Self::default());
        let held = Arc::downgrade(&numbers);
        registry.on_read("job-numbers", move |registry| {
            if let Some(numbers) = held.upgrade() {
                numbers.count(registry, Timestamp::now());
            }
        });
        numbers
    }

    /// Adds a driver's view; it takes the place of an earlier one of that name, and is left out once the driver has ended.
    pub fn add(
        &self,
        name: &'static str,
        cache: &Arc<Cache>,
        behind: impl Fn() -> BTreeMap<Gvk, Duration> + Send + Sync + 'static,
    ) {
        let part = Part { cache: Arc::downgrade(cache), behind: Box::new(behind), known: BTreeMap::new() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, part);
    }

    /// The kind of the job that a JobSet's pod belongs to.
    fn maker_of(&self, pod: &Value) -> &'static str {
        let name = object::label(pod, LABEL_JOBSET_NAME).unwrap_or_default();
        let key = Key::new(object::meta(pod, "namespace"), name);
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let jobset = parts.values().find_map(|part| part.cache.upgrade()?.get(&jobset::gvk(), &key));
        let owner = jobset.as_deref().and_then(object::controller_of).map(|owner| text(owner, "kind"));
        if owner == Some("TrainJob") { "TrainJob" } else { jobset::KIND }
    }

    fn count(&self, registry: &Registry, now: Timestamp) {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for metric in [&JOBS, &GPUS_REQUESTED, &GPUS_HELD, &JOB_INFO, &JOB_GPUS, &JOB_RESTARTS, &JOB_PROGRESS] {
            registry.clear(metric);
        }
        registry.clear(&CLUSTERS);
        registry.clear(&WATCH_BEHIND);
        parts.retain(|_, part| part.cache.strong_count() > 0);
        let mut rows = Vec::new();
        for part in parts.values_mut() {
            let Some(cache) = part.cache.upgrade() else { continue };
            for (gvk, behind) in (part.behind)() {
                registry.set(&WATCH_BEHIND, &[("kind", &gvk.kind)], behind.as_secs_f64());
            }
            clusters(&cache, registry);
            for gvk in kinds() {
                follow(&cache, &gvk, part.known.entry(gvk.clone()).or_default());
            }
        }
        for part in parts.values() {
            let jobsets = part.known.get(&jobset::gvk());
            for (gvk, known) in &part.known {
                for (key, facts) in known.iter().filter(|(_, facts)| !facts.is_part) {
                    // the JobSet of a TrainJob has what its runtime adds
                    let own =
                        (*gvk == trainjob_gvk()).then(|| jobsets?.get(key).filter(|jobset| jobset.is_part)).flatten();
                    let (gpus, restarts) = own.map_or((facts.gpus, facts.restarts), |own| (own.gpus, own.restarts));
                    rows.push(Row { kind: &gvk.kind, key, facts, gpus, restarts });
                }
            }
        }
        write(&rows, registry, now);
    }
}

/// The kinds of jobs.
fn kinds() -> [Gvk; 5] {
    [trainjob_gvk(), api::mpi::gvk(), optimizationjob_gvk(), jobset::gvk(), sky::managed_job_gvk()]
}

/// Reads what has changed of a kind.
fn follow(cache: &Cache, gvk: &Gvk, known: &mut BTreeMap<Key, Facts>) {
    let mut old = std::mem::take(known);
    let mut new = BTreeMap::new();
    // revisions that are not numbers say nothing
    let is_new = |key: &Key, at: u64| at == 0 || old.get(key).is_none_or(|facts| facts.revision != at);
    let mut seen = Vec::new();
    cache.visit_new(gvk, is_new, |key, revision, object| {
        let facts = object.map(|object| Facts { revision, ..Facts::of(gvk, object) });
        seen.push((key, facts));
    });
    for (key, facts) in seen {
        if let Some(facts) = facts.or_else(|| old.remove(&key)) {
            new.insert(key, facts);
        }
    }
    *known = new;
}

fn clusters(cache: &Cache, registry: &Registry) {
    cache.visit(&sky::cluster_gvk(), |cluster| {
        let phase = text(&cluster["status"], "phase");
        let phase = if phase.is_empty() { "Init" } else { phase };
        registry.add(&CLUSTERS, &[("phase", phase)], 1.0);
    });
}

struct Row<'a> {
    kind: &'a str,
    key: &'a Key,
    facts: &'a Facts,
    gpus: i64,
    restarts: i64,
}

fn write(rows: &[Row<'_>], registry: &Registry, now: Timestamp) {
    #[expect(clippy::cast_precision_loss, reason = "numbers of GPUs, restarts and per cent")]
    let float = |number: i64| number as f64;
    let mut counts: BTreeMap<(&str, &str, &str), f64> = BTreeMap::new();
    let mut gpus: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for row in rows {
        let Standing { state, reason, ended } = &row.facts.standing;
        *counts.entry((row.kind, reason, state)).or_default() += 1.0;
        let (requested, held) = gpus.entry(row.kind).or_default();
        if !*ended && *state != "Suspended" {
            *requested = requested.saturating_add(row.gpus);
        }
        if *state == "Running" {
            *held = held.saturating_add(row.gpus);
        }
    }
    for ((kind, reason, state), count) in counts {
        registry.set(&JOBS, &[("kind", kind), ("reason", reason), ("state", state)], count);
    }
    for (kind, (requested, held)) in gpus {
        registry.set(&GPUS_REQUESTED, &[("kind", kind)], float(requested));
        registry.set(&GPUS_HELD, &[("kind", kind)], float(held));
    }
    let unfinished = rows.iter().filter(|row| !row.facts.standing.ended);
    let is_recent = |row: &&Row<'_>| row.facts.end.is_some_and(|end| now.duration_since(end) < INFO_KEPT);
    let recent = rows.iter().filter(|row| row.facts.standing.ended).filter(is_recent);
    let mut left_out = 0;
    for (number, row) in unfinished.chain(recent).enumerate() {
        if number >= INFO_MAX {
            left_out += 1;
            continue;
        }
        let (name, namespace) = (row.key.name.as_str(), row.key.namespace.as_str());
        let Facts { standing, queue, progress, .. } = row.facts;
        let labels = [
            ("kind", row.kind),
            ("name", name),
            ("namespace", namespace),
            ("queue", queue),
            ("reason", &standing.reason),
            ("state", standing.state),
        ];
        registry.set(&JOB_INFO, &labels, 1.0);
        let set = |metric: &Metric, value: f64| registry.set(metric, &labels[..3], value);
        if row.gpus > 0 {
            set(&JOB_GPUS, float(row.gpus));
        }
        // zero, too: alerts compare with what was an hour ago
        set(&JOB_RESTARTS, float(row.restarts));
        if let Some(progress) = progress.filter(|_| standing.state == "Running") {
            set(&JOB_PROGRESS, float(progress) / 100.0);
        }
    }
    registry.set(&JOB_INFO_LEFT_OUT, &[], float(left_out));
}

impl Facts {
    fn of(gvk: &Gvk, object: &Value) -> Self {
        let standing = Standing::of(gvk, object);
        let status = &object["status"];
        let gpus = match gvk.kind.as_str() {
            "TrainJob" => {
                let trainer = &object["spec"]["trainer"];
                let container =
                    serde_json::json!({"spec": {"containers": [{"resources": trainer["resourcesPerNode"]}]}});
                trainer["numNodes"].as_i64().unwrap_or(1).saturating_mul(gpus_of_pod(&container))
            }
            api::mpi::KIND => replicas(object)
                .map(|replica| {
                    replica["replicas"].as_i64().unwrap_or(1).saturating_mul(gpus_of_pod(&replica["template"]))
                })
                .fold(0, i64::saturating_add),
            jobset::KIND => gpus_of_jobset(object),
            _ => 0,
        };
        let restarts = match gvk.kind.as_str() {
            jobset::KIND => restarts_of_jobset(object),
            api::mpi::KIND => launcher_failures(object),
            _ => 0,
        };
        let end = if standing.ended { ended_at(object) } else { None };
        Self {
            revision: 0,
            is_part: gvk.kind == jobset::KIND && object::controller_of(object).is_some(),
            queue: object::label(object, KUEUE_QUEUE).unwrap_or_default().chars().take(REASON_MAX).collect(),
            gpus,
            restarts,
            progress: status["trainerStatus"]["progressPercentage"].as_i64(),
            end,
            standing,
        }
    }
}

fn replicas(job: &Value) -> impl Iterator<Item = &Value> {
    job["spec"]["mpiReplicaSpecs"].as_object().into_iter().flat_map(|specs| specs.values())
}

/// How often the launcher of an MPIJob failed.
fn launcher_failures(job: &Value) -> i64 {
    job["status"]["replicaStatuses"]["Launcher"]["failed"].as_i64().unwrap_or(0)
}

/// When a job ended: the time of the condition that says so, or the time that its status has.
fn ended_at(job: &Value) -> Option<Timestamp> {
    let status = &job["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let ends = |condition: &&Value| {
        condition["status"] == "True"
            && matches!(text(condition, "type"), "Complete" | "Completed" | "Succeeded" | "Failed")
    };
    let condition = conditions.filter(ends).map(|condition| text(condition, "lastTransitionTime"));
    let tasks = status["tasks"].as_array().into_iter().flatten();
    let times = condition.chain([text(status, "completionTime")]).find_map(|time| time.parse().ok());
    // a managed job ends with its last task
    times.or_else(|| tasks.filter_map(|task| text(task, "endedAt").parse().ok()).max())
}

impl Standing {
    fn of(gvk: &Gvk, job: &Value) -> Self {
        let standing = |state, reason: &str| Self {
            state,
            reason: reason.chars().take(REASON_MAX).collect(),
            ended: matches!(state, "Complete" | "Failed"),
        };
        match gvk.kind.as_str() {
            "TrainJob" => match trainjobs::state(job) {
                ("Pending", _) if sum(&job["status"]["jobsStatus"], &["active"]) > 0 => standing("Pending", PODS_WAIT),
                (state, reason) => standing(state, &reason),
            },
            api::mpi::KIND => {
                if mpijobs::has_failed(job) {
                    return standing("Failed", reason(job, "Failed"));
                }
                let states = [("Succeeded", "Complete"), ("Suspended", "Suspended"), ("Running", "Running")];
                match states.into_iter().find(|(kind, _)| mpijobs::holds(job, kind)) {
                    Some((kind, state)) => standing(state, reason(job, kind)),
                    None if mpijobs::holds(job, "Created") => standing("Pending", PODS_WAIT),
                    None => standing("Pending", ""),
                }
            }
            jobset::KIND => {
                let states = [("Failed", "Failed"), ("Completed", "Complete"), ("Suspended", "Suspended")];
                let jobs = &job["status"]["replicatedJobsStatus"];
                match states.into_iter().find(|(kind, _)| mpijobs::holds(job, kind)) {
                    Some((kind, state)) => standing(state, reason(job, kind)),
                    None if sum(jobs, &["ready", "succeeded", "failed"]) > 0 => standing("Running", ""),
                    None if sum(jobs, &["active"]) > 0 => standing("Pending", PODS_WAIT),
                    None => standing("Pending", ""),
                }
            }
            "ManagedJob" => {
                let state = ManagedState::parse(text(&job["status"], "state")).unwrap_or_default();
                Self { state: state.as_str(), reason: String::new(), ended: state.has_ended() }
            }
            _ => {
                let state = view::trials::state(job);
                standing(state, reason(job, state))
            }
        }
    }

    fn runs(&self) -> bool {
        self.ended || self.state == "Running"
    }
}

/// The reason of jobs whose pods exist and have not run yet: they wait for nodes, images or volumes.
const PODS_WAIT: &str = "PodsPending";

/// The reason of a condition; empty without the condition.
fn reason<'a>(job: &'a Value, kind: &str) -> &'a str {
    view::state::condition(job, kind).map_or("", |condition| text(condition, "reason"))
}

fn sum(jobs: &Value, members: &[&str]) -> i64 {
    let jobs = jobs.as_array().into_iter().flatten();
    jobs.flat_map(|job| members.iter().map(|member| job[*member].as_i64().unwrap_or(0))).fold(0, i64::saturating_add)
}

/// Takes the times of jobs that wait, start and end while we watch.
pub(super) fn witness(registry: Arc<Registry>, jobs: Arc<JobNumbers>) -> Witness {
    Arc::new(move |gvk: &Gvk, old: &dyn Fn() -> Option<Arc<Value>>, new: &Value| {
        if *gvk == pod_gvk() {
            return queued(&registry, &jobs, old, new);
        }
        if !kinds().contains(gvk) {
            return;
        }
        // without the state before, it is unknown whether this change began anything
        let Some(old) = old().filter(|old| object::uid(old) == object::uid(new)) else { return };
        let owner = object::controller_of(new).map(|owner| text(owner, "kind"));
        let kind = if *gvk == jobset::gvk() && owner == Some("TrainJob") { "TrainJob" } else { gvk.kind.as_str() };
        let count = |job: &Value| restarts_of_jobset(job).saturating_add(launcher_failures(job));
        let restarts = count(new).saturating_sub(count(&old));
        if restarts > 0 && *gvk != trainjob_gvk() {
            #[expect(clippy::cast_precision_loss, reason = "a few restarts")]
            registry.add(&RESTARTS, &[("kind", kind)], restarts as f64);
        }
        if *gvk == jobset::gvk() && owner.is_some() {
            return;
        }
        let (before, now) = (Standing::of(gvk, &old), Standing::of(gvk, new));
        let Some(seconds) = age(new) else { return };
        let labels = [("kind", kind)];
        if before.state == "Suspended"
            && !now.ended
            && now.state != "Suspended"
            && object::label(new, KUEUE_QUEUE).is_some()
        {
            registry.observe(&JOB_QUEUE_SECONDS, &labels, seconds);
        }
        if now.runs() && !before.runs() {
            registry.observe(&JOB_START_SECONDS, &labels, seconds);
        }
        if now.ended && !before.ended {
            registry.observe(&JOB_END_SECONDS, &[("kind", kind), ("state", now.state)], seconds);
        }
    })
}

/// Seconds since an object was created.
fn age(object: &Value) -> Option<f64> {
    let created = object::meta(object, "creationTimestamp").parse::<Timestamp>().ok()?;
    Some(Timestamp::now().duration_since(created).as_secs_f64().max(0.0))
}

/// The first pod of a job has a node.
fn queued(registry: &Registry, jobs: &JobNumbers, old: &dyn Fn() -> Option<Arc<Value>>, pod: &Value) {
    let is_first = |label: &str| object::label(pod, label) == Some("0");
    let kind = if is_first(keys::JOB_GLOBAL_INDEX) && is_first(keys::COMPLETION_INDEX) {
        jobset::KIND
    } else if object::label(pod, LABEL_JOB_ROLE) == Some(ROLE_WORKER) && is_first(LABEL_REPLICA_INDEX) {
        api::mpi::KIND
    } else {
        return;
    };
    let has_node = |pod: &Value| pod["spec"]["nodeName"].is_string();
    if has_node(pod)
        && old().is_some_and(|old| object::uid(&old) == object::uid(pod) && !has_node(&old))
        && let Some(seconds) = age(pod)
    {
        let kind = if kind == jobset::KIND { jobs.maker_of(pod) } else { kind };
        registry.observe(&JOB_QUEUE_SECONDS, &[("kind", kind)], seconds);
    }
}

#[cfg(test)]
mod tests;
