//! The PodGroup of a MPIJob, and how its pods name it.

use super::children::child;
use super::{GangScheduler, Settings};
use crate::resources::{self, ResourceList};
use api::mpi::names::ANNOTATION_VOLCANO_QUEUE;
use api::mpi::{MpiJob, ReplicaType, SchedulingPolicy};
use api::object::{Gvk, Key};
use api::podgroup::{coscheduling, volcano};
use api::quantity::Quantity;
use api::trainer::names::{ANNOTATION_VOLCANO_GROUP, LABEL_POD_GROUP};
use serde_json::{Map, Value, json};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Values of PriorityClasses, by name.
pub(super) type Priorities = BTreeMap<String, i64>;

impl GangScheduler {
    /// The kind of its PodGroups.
    pub(super) fn pod_group(&self) -> Gvk {
        match self {
            Self::Volcano => volcano::gvk(),
            Self::Coscheduling(_) => coscheduling::gvk(),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Volcano => "volcano",
            Self::Coscheduling(name) => name,
        }
    }
}

/// Puts on a pod what names its PodGroup, and the scheduler that reads it.
pub(super) fn decorate(metadata: &mut Map<String, Value>, spec: &mut Value, group: &str, settings: &Settings) {
    let Some(scheduler) = &settings.gang else { return };
    spec["schedulerName"] = json!(scheduler.name());
    let (member, key) = match scheduler {
        GangScheduler::Volcano => ("annotations", ANNOTATION_VOLCANO_GROUP),
        GangScheduler::Coscheduling(_) => ("labels", LABEL_POD_GROUP),
    };
    let entries = metadata.entry(member).or_insert_with(|| json!({}));
    entries[key] = json!(group);
}

/// The PodGroup.
pub(super) fn pod_group(
    scheduler: &GangScheduler,
    job: &MpiJob,
    key: &Key,
    object: &Value,
    priorities: &Priorities,
    launcher_comes_later: bool,
) -> Value {
    let gvk = scheduler.pod_group();
    let mut group = child(key, api::object::uid(object), &gvk.api_version(), &gvk.kind, &key.name);
    let policy = job.spec.run_policy.as_ref().and_then(|policy| policy.scheduling_policy.clone()).unwrap_or_default();
    let members = Members::of(job, &policy, launcher_comes_later);
    let mut spec = json!({});
    // both schedulers' types leave a zero out
    if members.needed != 0 {
        spec["minMember"] = json!(members.needed);
    }
    let resources = min_resources(job, &policy, members, priorities);
    match scheduler {
        GangScheduler::Volcano => {
            if let Some(resources) = resources {
                spec["minResources"] = resources::render(&resources);
            }
            let queue = policy.queue.as_deref().filter(|queue| !queue.is_empty());
            if let Some(queue) = queue.or_else(|| api::object::annotation(object, ANNOTATION_VOLCANO_QUEUE)) {
                spec["queue"] = json!(queue);
            }
            if let Some(class) = priority_class(job, &policy) {
                spec["priorityClassName"] = json!(class);
            }
        }
        GangScheduler::Coscheduling(_) => {
            if let Some(resources) = resources.filter(|resources| !resources.is_empty()) {
                spec["minResources"] = resources::render(&resources);
            }
            spec["scheduleTimeoutSeconds"] = json!(policy.schedule_timeout_seconds.unwrap_or(0));
        }
    }
    group["spec"] = spec;
    group
}

/// Whether a PodGroup that is there asks for the same; what it leaves to Volcano's default says the default.
pub(super) fn asks_the_same(held: &Value, wanted: &Value) -> bool {
    let read = |group: &Value| {
        let mut spec = group["spec"].as_object().cloned().unwrap_or_default();
        spec.entry("minMember").or_insert_with(|| json!(0));
        if group["apiVersion"] == json!(volcano::gvk().api_version()) {
            spec.entry("queue").or_insert_with(|| json!("default"));
        }
        if let Some(resources) = spec.get_mut("minResources").and_then(Value::as_object_mut) {
            resources.values_mut().for_each(resources::canonical);
        }
        spec
    };
    read(held) == read(wanted)
}

/// How many pods have to fit at once.
#[derive(Clone, Copy)]
struct Members {
    needed: i32,
    /// The launcher is made when the workers are ready: it cannot be one of those that they wait for.
    workers_alone: bool,
}

impl Members {
    // kubeflow/mpi-operator 608 (fixed): upstream counts the launcher even where it comes later, and nothing ever starts.
    fn of(job: &MpiJob, policy: &SchedulingPolicy, launcher_comes_later: bool) -> Self {
        let workers = job.spec.workers();
        let later = launcher_comes_later && workers > 0;
        match policy.min_available {
            Some(needed) => Self { needed, workers_alone: false },
            None if later => Self { needed: workers, workers_alone: true },
            None => Self { needed: workers.saturating_add(1), workers_alone: false },
        }
    }
}

/// What the pods that have to fit request together.
fn min_resources(
    job: &MpiJob,
    policy: &SchedulingPolicy,
    members: Members,
    priorities: &Priorities,
) -> Option<ResourceList> {
    if let Some(said) = &policy.min_resources {
        let amounts = said.iter().filter_map(|(name, amount)| Some((name.clone(), Quantity::from_json(amount).ok()?)));
        return Some(amounts.collect());
    }
    if members.needed == 0 {
        return None;
    }
    let needed = members.needed;
    let mut roles: Vec<(ReplicaType, i64, i32, &Value)> = Vec::new();
    for role in ReplicaType::ALL.iter().filter(|role| !members.workers_alone || **role == ReplicaType::Worker) {
        let Some(spec) = job.spec.role(*role) else { continue };
        let count = spec.replicas.unwrap_or(i32::from(*role == ReplicaType::Launcher));
        let class = spec.template.pointer("/spec/priorityClassName").and_then(Value::as_str).unwrap_or_default();
        roles.push((*role, priorities.get(class).copied().unwrap_or(0), count, &spec.template));
    }
    let all = roles.iter().fold(0i32, |sum, (_, _, count, _)| sum.saturating_add(*count));
    if let [first, second] = roles.as_mut_slice()
        && all > needed
    {
        // the role that matters less gives way; of equals the workers
        let less = if first.1.cmp(&second.1) == Ordering::Less { first } else { second };
        less.2 = needed.saturating_sub(1);
    }
    let mut sum = ResourceList::new();
    for (_, _, count, template) in roles {
        let containers = template.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
        for container in containers {
            resources::add(&mut sum, &requests(&container["resources"]), count.into());
        }
    }
    Some(sum)
}

/// Requests, and limits where nothing is requested.
fn requests(resources: &Value) -> ResourceList {
    let mut amounts = ResourceList::new();
    for member in ["limits", "requests"] {
        for (name, amount) in resources.get(member).and_then(Value::as_object).into_iter().flatten() {
            if let Ok(amount) = Quantity::from_json(amount) {
                amounts.insert(name.clone(), amount);
            }
        }
    }
    amounts
}

fn priority_class(job: &MpiJob, policy: &SchedulingPolicy) -> Option<String> {
    let of_role = |role| {
        let class = job.spec.role(role)?.template.pointer("/spec/priorityClassName")?.as_str()?;
        Some(class.to_owned()).filter(|class| !class.is_empty())
    };
    let own = policy.priority_class.clone().filter(|class| !class.is_empty());
    own.or_else(|| of_role(ReplicaType::Launcher)).or_else(|| of_role(ReplicaType::Worker))
}
