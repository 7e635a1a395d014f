//! Which pods start together or not at all.
//!
//! A PodGroup (scheduler-plugins' by label, Volcano's by annotation) says how many of its pods it needs. Without one, all pods
//! of a JobSet's attempt are a gang, as far as they may start: replicated jobs that wait for others come later, and are a
//! gang of their own then. Once a member has a node, those that are made anew follow one by one. As long as others of a gang run,
//! what a member that failed had is kept for its replacement, which goes before everybody else.

use crate::job::indexes::Indexes;
use api::jobset::{JobSet, StartupOrder, keys};
use api::object::{self, Gvk, Key};
use jiff::Timestamp;
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Label of a pod that belongs to a scheduler-plugins PodGroup.
const POD_GROUP_LABEL: &str = "scheduling.x-k8s.io/pod-group";
/// Annotation of a pod that belongs to a Volcano PodGroup.
const POD_GROUP_ANNOTATION: &str = "scheduling.k8s.io/group-name";

/// Annotation of a pod of an indexed Job.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Kinds of PodGroups.
pub(super) fn pod_groups() -> [Gvk; 2] {
    [Gvk::new("scheduling.x-k8s.io", "v1alpha1", "PodGroup"), Gvk::new("scheduling.volcano.sh", "v1beta1", "PodGroup")]
}

/// What pods belong to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// A PodGroup.
    Declared(Key),
    /// A JobSet and its restart attempt.
    JobSet(Key, i64),
    Alone(Key),
}

/// Pods that are placed together.
#[derive(Debug)]
pub(super) struct Unit {
    /// The gang's name; empty for a pod on its own.
    pub name: String,
    /// Those that wait for a node, in the order of their ranks.
    pub pods: Vec<Arc<Value>>,
    /// How many of them have to be placed at once; the others follow one by one.
    pub needed: usize,
    /// How many pods are not there yet, or may not be placed yet.
    pub missing: usize,
    /// It replaces a member of a gang that runs.
    pub replaces: bool,
}

/// What a failed member of a running gang had, and its replacement is to have.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    /// The one that failed.
    pub pod: Arc<Value>,
}

impl Seat {
    /// How well it suits a pod: it has to be of its Job, at best of its index.
    pub(super) fn suits(&self, pod: &Value) -> Option<bool> {
        (job(&self.pod).is_some() && job(&self.pod) == job(pod)).then(|| index(&self.pod) == index(pod))
    }
}

/// The objects that say who belongs together.
pub(super) struct Facts<'a> {
    pub jobsets: &'a BTreeMap<Key, Arc<Value>>,
    /// Jobs of JobSets.
    pub jobs: &'a [Arc<Value>],
    /// `spec.minMember` of PodGroups.
    pub pod_groups: &'a BTreeMap<Key, i64>,
}

fn namespaced(pod: &Value, name: &str) -> Key {
    Key::new(object::meta(pod, "namespace"), name)
}

/// The Job that a pod, or itself, is of, and the attempt.
fn job(object: &Value) -> Option<(&str, &str, i64)> {
    Some((object::meta(object, "namespace"), object::label(object, keys::JOB_KEY)?, attempt(object)?))
}

fn index(pod: &Value) -> Option<i64> {
    object::annotation(pod, INDEX)?.parse().ok()
}

fn attempt(object: &Value) -> Option<i64> {
    object::label(object, keys::RESTART_ATTEMPT)?.parse().ok()
}

impl Facts<'_> {
    fn group(&self, pod: &Value) -> Group {
        let name = object::label(pod, POD_GROUP_LABEL).or_else(|| object::annotation(pod, POD_GROUP_ANNOTATION));
        if let Some(key) = name.map(|name| namespaced(pod, name)).filter(|key| self.pod_groups.contains_key(key)) {
            return Group::Declared(key);
        }
        // a leader under exclusive placement has to have a node before there can be followers
        let led = object::annotation(pod, keys::EXCLUSIVE_TOPOLOGY).is_some()
            && object::annotation(pod, keys::NODE_SELECTOR_STRATEGY).is_none();
        match (object::label(pod, keys::JOBSET_NAME), attempt(pod)) {
            (Some(name), Some(attempt)) if !led => Group::JobSet(namespaced(pod, name), attempt),
            _ => Group::Alone(Key::of(pod)),
        }
    }

    /// How many pods each replicated job that may start by now has in an attempt; `None` where the JobSet is unknown.
    fn expected(&self, key: &Key, number: i64) -> Option<BTreeMap<String, usize>> {
        let jobset: JobSet = serde_json::from_value((**self.jobsets.get(key)?).clone()).ok()?;
        let of_attempt = |job: &&Arc<Value>| {
            namespaced(job, object::label(job, keys::JOBSET_NAME).unwrap_or_default()) == *key
                && attempt(job) == Some(number)
        };
        let jobs: BTreeMap<&str, &Arc<Value>> =
            self.jobs.iter().filter(of_attempt).map(|job| (object::meta(job, "name"), job)).collect();
        let in_order =
            jobset.spec.startup_policy.as_ref().map(|p| p.startup_policy_order) == Some(StartupOrder::InOrder);
        let mut expected = BTreeMap::new();
        for (position, replicated) in jobset.spec.replicated_jobs.iter().enumerate() {
            let names: Vec<String> =
                (0..replicated.replicas).map(|index| jobset.job_name(&replicated.name, i64::from(index))).collect();
            let runs = |name: &String| jobs.get(name.as_str()).is_some_and(|job| job["spec"]["suspend"] != true);
            let waits =
                replicated.depends_on.as_ref().is_some_and(|list| !list.is_empty()) || (in_order && position > 0);
            if waits && !names.iter().any(runs) {
                continue;
            }
            let pods = |name: &String| pods_of(jobs.get(name.as_str()).map_or(&replicated.template, |job| job));
            let count: i64 = names.iter().map(pods).sum();
            expected.insert(replicated.name.clone(), usize::try_from(count).unwrap_or_default());
        }
        Some(expected)
    }

    /// Sorts the pods that wait into units, most important first: those that replace members of running gangs, then by
    /// priority, then by age. `bound` are the pods that have
    /// a node, whatever became of them. Pods of an attempt that is over are left out: they are about to be deleted.
    pub(super) fn units(&self, waiting: &[Arc<Value>], bound: &[Arc<Value>]) -> Vec<Unit> {
        let mut groups: BTreeMap<Group, Vec<Arc<Value>>> = BTreeMap::new();
        for pod in waiting {
            groups.entry(self.group(pod)).or_default().push(pod.clone());
        }
        let mut started: BTreeMap<Group, BTreeSet<&str>> = BTreeMap::new();
        for pod in bound {
            started.entry(self.group(pod)).or_default().insert(replicated_job(pod));
        }
        let running = self.running(bound);
        let mut units = Vec::new();
        for (group, mut pods) in groups {
            let alone = |pod| alone(pod, running.contains(&group));
            pods.sort_by_key(|pod| (rank(pod), object::meta(pod, "name").to_owned()));
            let started = started.get(&group);
            match &group {
                Group::Alone(_) => units.extend(pods.into_iter().map(alone)),
                Group::Declared(_) if started.is_some() => units.extend(pods.into_iter().map(alone)),
                Group::Declared(key) => {
                    let wanted = self.pod_groups.get(key).copied().unwrap_or_default();
                    let mut wanted = usize::try_from(wanted).unwrap_or_default();
                    if let Some(startable) = self.startable(&pods) {
                        wanted = wanted.min(startable);
                    }
                    units.push(gang(key, pods, wanted));
                }
                Group::JobSet(key, number) if self.restarts(key) > *number => {}
                Group::JobSet(key, number) => {
                    let follows =
                        |pod: &Arc<Value>| started.is_some_and(|started| started.contains(replicated_job(pod)));
                    let (following, first): (Vec<_>, Vec<_>) = pods.into_iter().partition(follows);
                    units.extend(following.into_iter().map(alone));
                    if first.is_empty() {
                        continue;
                    }
                    let expected = self.expected(key, *number).map_or(first.len(), |expected| {
                        let fresh = |name: &str| started.is_none_or(|started| !started.contains(name));
                        expected.iter().filter(|(name, _)| fresh(name)).map(|(_, count)| count).sum()
                    });
                    let wanted = expected.max(first.len());
                    units.push(gang(key, first, wanted));
                }
            }
        }
        units.sort_by_key(|unit| {
            let priority = unit.pods.iter().map(|pod| pod["spec"]["priority"].as_i64().unwrap_or_default()).max();
            (!unit.replaces, Reverse(priority), unit.created(), unit.name.clone())
        });
        units
    }

    /// The gangs that run: those with a member that has a node and has not ended.
    fn running(&self, bound: &[Arc<Value>]) -> BTreeSet<Group> {
        bound.iter().filter(|pod| !super::has_ended(pod)).map(|pod| self.group(pod)).collect()
    }

    /// The seats that running gangs keep: of each Job that goes on, as many of those that failed as it has pods too few.
    pub(super) fn seats(&self, bound: &[Arc<Value>]) -> Vec<Seat> {
        let running = self.running(bound);
        let mut pods: BTreeMap<_, Vec<&Arc<Value>>> = BTreeMap::new();
        for pod in bound.iter().filter(|pod| running.contains(&self.group(pod))) {
            if let Some(job) = job(pod) {
                pods.entry(job).or_default().push(pod);
            }
        }
        let mut seats = Vec::new();
        for object in self.jobs {
            let Some(key) = job(object) else { continue };
            let Some(pods) = pods.get(&key) else { continue };
            let jobset = namespaced(object, object::label(object, keys::JOBSET_NAME).unwrap_or_default());
            let is_over = object["spec"]["suspend"] == true
                || object::is_terminating(object)
                || self.restarts(&jobset) > key.2
                || self.jobsets.get(&jobset).is_none_or(|jobset| object::is_terminating(jobset));
            if is_over {
                continue;
            }
            let (ended, live): (Vec<&Arc<Value>>, Vec<_>) = pods.iter().partition(|pod| super::has_ended(pod));
            let wanted = usize::try_from(pods_of(object)).unwrap_or_default();
            let held: BTreeSet<i64> = live.iter().filter_map(|pod| index(pod)).collect();
            let lost = Indexes::parse(object::text(&object["status"], "failedIndexes"), u32::MAX);
            let is_lost = |index: i64| u32::try_from(index).is_ok_and(|index| lost.has(index));
            let mut failed: Vec<&Arc<Value>> = ended
                .into_iter()
                .filter(|pod| pod["status"]["phase"] == "Failed")
                .filter(|pod| index(pod).is_none_or(|index| !held.contains(&index) && !is_lost(index)))
                .collect();
            // the newest of each index; of those without, the newest
            failed.sort_by_key(|pod| Reverse(object::meta(pod, "creationTimestamp").to_owned()));
            let mut seen = BTreeSet::new();
            failed.retain(|pod| index(pod).is_none_or(|index| seen.insert(index)));
            let missing = wanted.saturating_sub(live.len());
            seats.extend(failed.into_iter().take(missing).map(|pod| Seat { pod: pod.clone() }));
        }
        seats
    }

    fn restarts(&self, jobset: &Key) -> i64 {
        let restarts = self.jobsets.get(jobset).and_then(|jobset| jobset["status"]["restarts"].as_i64());
        restarts.unwrap_or_default()
    }

    /// How many pods of the JobSet that these belong to may start by now; `None` where they belong to none.
    fn startable(&self, pods: &[Arc<Value>]) -> Option<usize> {
        let first = pods.first()?;
        let key = namespaced(first, object::label(first, keys::JOBSET_NAME)?);
        Some(self.expected(&key, attempt(first)?)?.values().sum())
    }
}

fn alone(pod: Arc<Value>, replaces: bool) -> Unit {
    Unit { name: String::new(), pods: vec![pod], needed: 1, missing: 0, replaces }
}

fn gang(key: &Key, pods: Vec<Arc<Value>>, wanted: usize) -> Unit {
    let (needed, missing) = (wanted.min(pods.len()), wanted.saturating_sub(pods.len()));
    Unit { name: key.name.clone(), needed, missing, pods, replaces: false }
}

impl Unit {
    /// When its oldest pod was made.
    pub(super) fn created(&self) -> Option<Timestamp> {
        self.pods.iter().filter_map(|pod| object::meta(pod, "creationTimestamp").parse().ok()).min()
    }

    /// Whether it needs more than one pod.
    pub(super) fn is_gang(&self) -> bool {
        self.needed + self.missing > 1
    }
}

fn replicated_job(pod: &Value) -> &str {
    object::label(pod, keys::REPLICATED_JOB_NAME).unwrap_or_default()
}

/// Job first, then index in the Job.
fn rank(pod: &Value) -> (i64, i64) {
    let number = |text: Option<&str>| text.and_then(|text| text.parse().ok()).unwrap_or_default();
    let index = object::annotation(pod, INDEX);
    (number(object::label(pod, keys::JOB_GLOBAL_INDEX)), number(index))
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
