//! Which pods start together or not at all.
//!
//! A PodGroup (scheduler-plugins' by label, Volcano's by annotation) says how many of its pods it needs. Without one, all pods
//! of a JobSet's attempt are a gang, as far as they may start: replicated jobs that wait for others come later, and are a
//! gang of their own then. Once a member has a node, those that are made anew follow one by one. As long as others of a gang run,
//! what a member that failed had is kept for its replacement, which goes before everybody else.

use super::owned::{self, Rule};
use super::request::{self, Resources};
use crate::job::indexes::Indexes;
use api::jobset::{JobSet, StartupOrder, keys};
use api::object::{self, Gvk, Key};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Label of a pod that belongs to a scheduler-plugins PodGroup.
const POD_GROUP_LABEL: &str = "scheduling.x-k8s.io/pod-group";
/// Annotation of a pod that belongs to a Volcano PodGroup.
const POD_GROUP_ANNOTATION: &str = "scheduling.k8s.io/group-name";

/// The annotations of a pod that are read.
pub(super) const ANNOTATIONS: [&str; 4] =
    [POD_GROUP_ANNOTATION, keys::COMPLETION_INDEX, keys::EXCLUSIVE_TOPOLOGY, keys::NODE_SELECTOR_STRATEGY];

/// Kinds of PodGroups.
pub(super) fn pod_groups() -> [Gvk; 2] {
    [Gvk::new("scheduling.x-k8s.io", "v1alpha1", "PodGroup"), Gvk::new("scheduling.volcano.sh", "v1beta1", "PodGroup")]
}

/// What pods belong to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    /// A PodGroup.
    Declared(Key),
    /// A JobSet and its restart attempt.
    JobSet(Key, i64),
    /// By the rule of this number, an owner of another kind.
    Owned(usize, Key),
    Alone(Key),
}

impl Group {
    /// The group of a pod; PodGroups that nobody has made count for nothing.
    pub(super) fn of(pod: &Value, pod_groups: &BTreeMap<Key, i64>, rules: &[Rule]) -> Self {
        if let Some(key) = pod_group_of(pod).filter(|key| pod_groups.contains_key(key)) {
            return Self::Declared(key);
        }
        // a leader under exclusive placement has to have a node before there can be followers
        let led = object::annotation(pod, keys::EXCLUSIVE_TOPOLOGY).is_some()
            && object::annotation(pod, keys::NODE_SELECTOR_STRATEGY).is_none();
        match (jobset_of(pod), attempt(pod)) {
            (Some(jobset), Some(attempt)) if !led => Self::JobSet(jobset, attempt),
            _ => owned::group_of(pod, rules).unwrap_or_else(|| Self::Alone(Key::of(pod))),
        }
    }
}

/// The PodGroup that a pod names.
pub(super) fn pod_group_of(pod: &Value) -> Option<Key> {
    let name = object::label(pod, POD_GROUP_LABEL).or_else(|| object::annotation(pod, POD_GROUP_ANNOTATION))?;
    Some(namespaced(pod, name))
}

/// The JobSet that a pod or a Job is of.
pub(super) fn jobset_of(object: &Value) -> Option<Key> {
    Some(namespaced(object, object::label(object, keys::JOBSET_NAME)?))
}

fn namespaced(object: &Value, name: &str) -> Key {
    Key::new(object::meta(object, "namespace"), name)
}

/// The Job, by its key, and the attempt that a pod is of.
fn job(pod: &Value) -> Option<(&str, i64)> {
    Some((object::label(pod, keys::JOB_KEY)?, attempt(pod)?))
}

fn index(pod: &Value) -> Option<i64> {
    object::annotation(pod, keys::COMPLETION_INDEX)?.parse().ok()
}

fn attempt(object: &Value) -> Option<i64> {
    object::label(object, keys::RESTART_ATTEMPT)?.parse().ok()
}

/// The replicated job that a pod is of.
pub(super) fn replicated_job(pod: &Value) -> &str {
    object::label(pod, keys::REPLICATED_JOB_NAME).unwrap_or_default()
}

/// A pod's place in its gang: Job first, then index in the Job.
pub(super) fn rank(pod: &Value) -> (i64, i64) {
    let number = |text: Option<&str>| text.and_then(|text| text.parse().ok()).unwrap_or_default();
    let index = object::annotation(pod, keys::COMPLETION_INDEX);
    (number(object::label(pod, keys::JOB_GLOBAL_INDEX)), number(index))
}

/// What a failed member of a running gang had, and its replacement is to have.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    /// The one that failed.
    pub pod: Arc<Value>,
    pub needs: Resources,
}

impl Seat {
    /// How well it suits a pod: it has to be of its Job, at best of its index.
    pub(super) fn suits(&self, pod: &Value) -> Option<bool> {
        let same_job = job(&self.pod).is_some() && job(&self.pod) == job(pod);
        let same_namespace = object::meta(&self.pod, "namespace") == object::meta(pod, "namespace");
        (same_job && same_namespace).then(|| index(&self.pod) == index(pod))
    }
}

/// What a JobSet says about its gangs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    replicated: Vec<Replicated>,
    pub restarts: i64,
    is_terminating: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Replicated {
    name: String,
    /// It may not start before others have.
    waits: bool,
    /// Names of its Jobs.
    jobs: Vec<String>,
    /// How many pods its template runs at a time.
    pods: i64,
}

impl Plan {
    /// What a JobSet says; `None` where it cannot be read.
    pub(super) fn of(object: &Value) -> Option<Self> {
        let jobset: JobSet = serde_json::from_value(object.clone()).ok()?;
        let order = jobset.spec.startup_policy.as_ref().map(|p| p.startup_policy_order);
        let in_order = order == Some(StartupOrder::InOrder);
        let replicated = jobset.spec.replicated_jobs.iter().enumerate().map(|(position, replicated)| Replicated {
            name: replicated.name.clone(),
            waits: replicated.depends_on.as_ref().is_some_and(|list| !list.is_empty()) || (in_order && position > 0),
            jobs: (0..replicated.replicas).map(|at| jobset.job_name(&replicated.name, i64::from(at))).collect(),
            pods: pods_of(&replicated.template),
        });
        Some(Self {
            replicated: replicated.collect(),
            restarts: object["status"]["restarts"].as_i64().unwrap_or_default(),
            is_terminating: object::is_terminating(object),
        })
    }

    /// How many pods each replicated job that may start by now has in an attempt.
    pub(super) fn expected(&self, jobs: Option<&BTreeMap<String, Job>>, number: i64) -> BTreeMap<&str, usize> {
        let of_attempt = |name: &String| jobs?.get(name).filter(|job| job.attempt == Some(number));
        let started = |replicated: &&Replicated| {
            let runs = |name: &String| of_attempt(name).is_some_and(|job| !job.is_suspended);
            !replicated.waits || replicated.jobs.iter().any(runs)
        };
        let count = |replicated: &Replicated| {
            let pods = |name: &String| of_attempt(name).map_or(replicated.pods, |job| job.pods);
            usize::try_from(replicated.jobs.iter().map(pods).fold(0, i64::saturating_add)).unwrap_or_default()
        };
        self.replicated.iter().filter(started).map(|r| (r.name.as_str(), count(r))).collect()
    }
}

/// What a Job of a JobSet says about its pods.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Job {
    key: Option<String>,
    attempt: Option<i64>,
    is_suspended: bool,
    is_terminating: bool,
    /// How many pods it runs at a time from now on.
    pods: i64,
    /// Indexes that get no pod any more.
    lost: Indexes,
}

impl Job {
    pub(super) fn of(object: &Value) -> Self {
        Self {
            key: object::label(object, keys::JOB_KEY).map(str::to_owned),
            attempt: attempt(object),
            is_suspended: object["spec"]["suspend"] == true,
            is_terminating: object::is_terminating(object),
            pods: pods_of(object),
            lost: Indexes::parse(object::text(&object["status"], "failedIndexes"), u32::MAX),
        }
    }
}

/// The seats that a running gang keeps, of the Jobs of one JobSet: of each that goes on, as many of the pods that failed as it
/// has pods too few. `bound` are the gang's pods that have a node, whatever became of them.
pub(super) fn seats(bound: &[&Arc<Value>], plan: Option<&Plan>, jobs: &BTreeMap<String, Job>) -> Vec<Seat> {
    let mut pods: BTreeMap<_, Vec<&Arc<Value>>> = BTreeMap::new();
    for pod in bound {
        if let Some(job) = job(pod) {
            pods.entry(job).or_default().push(pod);
        }
    }
    let mut seats = Vec::new();
    for object in jobs.values() {
        let (Some(key), Some(attempt)) = (&object.key, object.attempt) else { continue };
        let Some(pods) = pods.get(&(key.as_str(), attempt)) else { continue };
        let has_moved_on = plan.is_none_or(|plan| plan.is_terminating || plan.restarts > attempt);
        if object.is_suspended || object.is_terminating || has_moved_on {
            continue;
        }
        let (ended, live): (Vec<&Arc<Value>>, Vec<_>) = pods.iter().partition(|pod| object::has_ended(pod));
        let held: BTreeSet<i64> = live.iter().filter_map(|pod| index(pod)).collect();
        let is_lost = |index: i64| u32::try_from(index).is_ok_and(|index| object.lost.has(index));
        let mut failed: Vec<&Arc<Value>> = ended
            .into_iter()
            .filter(|pod| pod["status"]["phase"] == "Failed")
            .filter(|pod| index(pod).is_none_or(|index| !held.contains(&index) && !is_lost(index)))
            .collect();
        // the newest of each index; of those without, the newest
        failed.sort_by_key(|pod| Reverse(object::meta(pod, "creationTimestamp").to_owned()));
        let mut seen = BTreeSet::new();
        failed.retain(|pod| index(pod).is_none_or(|index| seen.insert(index)));
        let missing = usize::try_from(object.pods).unwrap_or_default().saturating_sub(live.len());
        seats
            .extend(failed.into_iter().take(missing).map(|pod| Seat { pod: pod.clone(), needs: request::of_pod(pod) }));
    }
    seats
}

/// How many pods a Job, or a Job template, runs at a time from now on.
fn pods_of(job: &Value) -> i64 {
    let status = &job["status"];
    let ended =
        |c: &Value| matches!(object::text(c, "type"), "Complete" | "Failed") && object::text(c, "status") == "True";
    if status["conditions"].as_array().is_some_and(|conditions| conditions.iter().any(ended)) {
        return 0;
    }
    let parallelism = job["spec"]["parallelism"].as_i64().unwrap_or(1);
    let succeeded = status["succeeded"].as_i64().unwrap_or_default();
    match job["spec"]["completions"].as_i64() {
        Some(completions) => parallelism.min(completions - succeeded).max(0),
        // a work queue makes no further pods once one has succeeded
        None if succeeded > 0 => status["active"].as_i64().unwrap_or_default(),
        None => parallelism,
    }
}
