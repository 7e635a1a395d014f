//! Decides what a launch creates. From a task and the places found for it, it makes a Cluster and the JobSets of the task's job.
//!
//! The caller (a command, a reconciler, a server) observes the world and creates the objects. [`places`] lists where the machines may be,
//! [`cluster`] makes the Cluster, [`fit`] checks whether an existing cluster will do, and [`job`] makes the objects of the job. [`step`]
//! decides the next step of a launch, from its first moment to its last.

mod at_hand;
pub mod fit;
pub mod job;
mod pod;
pub mod step;
pub mod unmet;

pub use at_hand::{AtHand, Contexts, MAKES, find};
pub use pod::pod;

use self::fit::{Size, size_asked};
use crate::jobs::{NAME, RESOURCES};
use crate::names::{object_name, place};
use api::sky::{
    API_VERSION, Accelerators, Candidate, ClusterHook, HookEvent, Launch, LaunchManaged, LaunchSpec, PodOptions, keys,
    managed_job_gvk,
};
use jiff::Timestamp;
use placement::{Catalogue, Cloud};
use serde_json::{Value, json};
use sky::console::Planned;
use sky::file::File;
use sky::mounts::Mounts;
use sky::resources::Resources;
use sky::schema::Reader;
use sky::secrets::Secrets;
use sky::task::{Given, Task};
use sky::value::{Map, Value as Field};

/// The most places that are tried, because a Cluster holds no more.
const CANDIDATES_MAX: usize = 1000;

/// Why a task cannot be launched: the class of SkyPilot's exception, and the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{class}: {message}")]
pub struct Refused {
    pub class: String,
    pub message: String,
}

impl Refused {
    pub fn new(class: &str, message: impl Into<String>) -> Self {
        Self { class: class.to_owned(), message: message.into() }
    }
}

/// Who launches, and with which command.
#[derive(Clone, Copy, Debug)]
pub struct By<'a> {
    /// The user's name.
    pub user: &'a str,
    /// The command, without values of secrets and variables.
    pub command: &'a str,
}

/// Where the machines of a task may be.
#[derive(Clone, Debug)]
pub struct Places {
    /// In the order in which they are tried; never empty.
    pub candidates: Vec<Candidate>,
    /// A line for each request that has no effect at the first place.
    pub without_effect: Vec<String>,
}

/// The number of an amount such as `4`, `4+`, `16GB`; 0 without one.
pub fn amount(text: &Option<String>) -> f64 {
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    let text = text.as_deref().unwrap_or_default();
    let end = text.find(|c| !digits(c)).unwrap_or(text.len());
    text.get(..end).and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// The requested accelerators; one of them if the request has no count.
pub fn gpus(resources: &Resources) -> Option<Accelerators> {
    let (name, count) = resources.accelerators.as_ref()?;
    Some(Accelerators { name: name.clone(), count: count.as_number().unwrap_or(1.0) })
}

/// Where the machines may be, most preferred first. `kubernetes`: of `~/.sky/config.yaml`.
///
/// # Errors
/// No machines are made at the place yet, or no place has all that is requested.
pub fn places(task: &Task, planned: &Planned, kubernetes: Option<&Map>) -> Result<Places, Refused> {
    let of = |found: &placement::search::Candidate| {
        let asked = task.resources.list.get(found.request).cloned().unwrap_or_default();
        let Size { cpus, memory } = size_asked(&asked);
        let on_kubernetes = found.cloud == Cloud::Kubernetes;
        // a pod has exactly what it requests
        let (cpus, memory) = match on_kubernetes {
            true => (found.cpus.unwrap_or(cpus), found.memory.unwrap_or(memory)),
            false => (cpus, memory),
        };
        Candidate {
            provider: found.cloud.name().to_owned(),
            region: found.region.strip_prefix("ssh-").unwrap_or(&found.region).to_owned(),
            zone: found.zone.clone().unwrap_or_default(),
            instance_type: Some(found.instance_type.clone()).filter(|name| name != "-").unwrap_or_default(),
            // what was asked for: a machine may have more
            cpus,
            memory,
            accelerators: found.accelerator.clone().map(|(name, count)| Accelerators { name, count }),
            spot: found.use_spot,
            hourly_price: found.hourly,
            pod: if on_kubernetes { pod(&asked, kubernetes, &found.region) } else { PodOptions::default() },
        }
    };
    let mut refused = None;
    let mut without_effect = Vec::new();
    let mut all: Vec<Candidate> = Vec::new();
    for found in &planned.candidates {
        match task.resources.list.get(found.request).map(|one| unmet::check(found.cloud.name(), one)) {
            Some(Err(why)) => {
                refused.get_or_insert(why);
                continue;
            }
            Some(Ok(lines)) if all.is_empty() => without_effect = lines,
            Some(Ok(_)) | None => {}
        }
        all.push(of(found));
    }
    all.dedup();
    all.truncate(CANDIDATES_MAX);
    if all.is_empty() {
        if let Some(why) = refused {
            return Err(why);
        }
        let names: Vec<&str> = planned.passed_over.iter().map(|cloud| cloud.display()).collect();
        return Err(Refused::new(
            "sky.exceptions.NotSupportedError",
            format!(
                "No machines are made on {} yet, and nothing else meets what the task asks for: `sky explain` says what would help, and `sky check` where machines are made.",
                names.join(", ")
            ),
        ));
    }
    Ok(Places { candidates: all, without_effect })
}

/// Puts the places of an attempt of a managed job into the order in which it tries them. Where it is for one place only, and that one is
/// still there, the others go.
fn in_order(candidates: &mut Vec<Candidate>, managed: &LaunchManaged) {
    let is_it = |one: &Candidate| place(&[&one.provider, &one.region, &one.zone]) == managed.only_place;
    if candidates.iter().any(is_it) {
        candidates.retain(is_it);
    }
    // the order of the others stays
    candidates.sort_by_key(|one| match place(&[&one.provider, &one.region]) {
        place if place == managed.first_place => 0,
        place if place == managed.last_place => 2,
        _ => 1,
    });
}

/// The Cluster that is asked for.
pub fn cluster(shown: &str, task: &Task, candidates: Vec<Candidate>, by: &By<'_>) -> Value {
    let nodes = i32::try_from(task.num_nodes).unwrap_or(i32::MAX);
    let resources = candidates.first().map(|first| crate::resources::of(nodes, first)).unwrap_or_default();
    json!({
        "apiVersion": API_VERSION, "kind": "Cluster",
        "metadata": {
            "name": object_name(shown), "finalizers": [keys::LEDGER],
            "annotations": {NAME: shown, RESOURCES: resources},
        },
        "spec": {
            "nodes": nodes, "candidates": candidates,
            "user": by.user, "command": by.command,
        },
    })
}

/// The task of an attempt of a managed job, on spot machines or not, as the job says.
fn as_managed(mut task: Task, launch: &Launch) -> Task {
    if let Some(is_spot) = launch.spec.managed.as_ref().and_then(|managed| managed.is_spot) {
        for one in &mut task.resources.list {
            one.use_spot = Some(is_spot);
        }
    }
    task
}

/// The Cluster that a launch makes at these places, the preferred one first.
pub fn cluster_of(launch: &Launch, task: &Task, mut candidates: Vec<Candidate>, now: Timestamp) -> Value {
    let LaunchSpec { managed, user, command, .. } = &launch.spec;
    if let Some(managed) = managed {
        in_order(&mut candidates, managed);
    }
    let mut cluster = cluster(&launch.spec.cluster, task, candidates, &By { user, command });
    cluster["metadata"]["annotations"][keys::LAUNCH] = launch.metadata.uid.clone().into();
    if let Some(managed) = managed {
        // if somebody deletes the job, the cluster is deleted, too
        cluster["metadata"]["labels"] = json!({keys::MANAGED_JOB: managed.job, keys::TASK: managed.task.to_string()});
        if let Some(budgets) = launch.metadata.annotations.as_ref().and_then(|all| all.get(keys::BUDGETS)) {
            cluster["metadata"]["annotations"][keys::BUDGETS] = budgets.as_str().into();
        }
        cluster["metadata"]["ownerReferences"] = json!([{
            "apiVersion": API_VERSION, "kind": managed_job_gvk().kind, "name": managed.job, "uid": managed.uid,
            "controller": true,
        }]);
    }
    if launch.spec.retry_until_up {
        cluster["spec"]["retryUntilUp"] = true.into();
    }
    let hooks = hooks(task);
    if !hooks.is_empty() {
        cluster["spec"]["hooks"] = json!(hooks);
    }
    if let Some(held) = step::held(launch, now) {
        cluster["spec"]["autostop"] = held;
    }
    cluster
}

/// The variables of a task's jobs, which belong in a Secret; empty if it has none.
pub fn variables(task: &Task) -> serde_json::Map<String, Value> {
    let fields = task.envs.iter().chain(task.secrets.values.iter());
    fields.map(|(name, value)| (name.text(), Value::String(value.text()))).collect()
}

/// The Secret of a launch. It is created before the launch, which names it.
pub fn secret(shown: &str, variables: serde_json::Map<String, Value>) -> Value {
    let name = object_name(shown);
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "generateName": format!("{name}-env-"), "labels": {keys::CLUSTER: name, keys::VARIABLES: "true"},
        },
        "stringData": variables,
    })
}

/// A task without the parts that belong in a Secret or come from files of the client.
pub fn bare(task: &Task, catalogue: &Catalogue) -> Value {
    let (mounts, secrets, envs) = (Mounts { files: Vec::new(), ..task.mounts.clone() }, Secrets::default(), Map::new());
    let bare = Task { workdir: None, envs, secrets, mounts, ..task.clone() };
    Field::Map(bare.write(catalogue)).to_json()
}

/// A Launch of a task. `spec` has all but cluster and task.
pub fn launch(shown: &str, task: &Task, spec: LaunchSpec, catalogue: &Catalogue) -> Value {
    let spec = LaunchSpec { cluster: shown.to_owned(), task: bare(task, catalogue), ..spec };
    let name = object_name(shown);
    json!({
        "apiVersion": API_VERSION, "kind": "Launch",
        "metadata": {
            "generateName": format!("{name}-"), "labels": {keys::CLUSTER: name}, "finalizers": [keys::LEDGER],
        },
        "spec": spec,
    })
}

/// The hooks of a task's cluster.
pub fn hooks(task: &Task) -> Vec<ClusterHook> {
    let all = task.resources.list.first().map(|one| one.hooks.as_slice()).unwrap_or_default();
    let hook = |one: &Map| {
        let json = Field::Map(one.clone()).to_json();
        let events = json["events"].as_array().into_iter().flatten().filter_map(Value::as_str);
        ClusterHook {
            run: json["run"].as_str().unwrap_or_default().to_owned(),
            events: events.filter_map(HookEvent::parse).collect(),
            timeout_seconds: json["timeout"].as_i64().map_or(i32::MAX, |secs| i32::try_from(secs).unwrap_or(i32::MAX)),
        }
    };
    all.iter().map(hook).collect()
}

/// A task that requests and runs nothing.
pub fn empty_task() -> Task {
    let empty = Field::Map(Map::new());
    let read = Task::read(empty, &Given::default(), Reader::Server, &Catalogue::default());
    read.expect("a task may be empty")
}

/// The task of a Launch.
///
/// # Errors
/// It is none.
pub fn task_of(launch: &Launch, catalogue: &Catalogue) -> Result<Task, Refused> {
    let text = launch.spec.task.to_string();
    let read = File::read(&text, &Given::default(), Reader::Server, catalogue);
    let wrong = |message: String| Refused::new("ValueError", message);
    let file = read
        .map_err(|error| wrong(format!("spec.task of launch {} is no task: {}", launch.spec.cluster, error.message)))?;
    match <[Task; 1]>::try_from(file.tasks) {
        Ok([task]) => Ok(as_managed(task, launch)),
        Err(tasks) => {
            Err(wrong(format!("spec.task of launch {} holds {} tasks, not 1", launch.spec.cluster, tasks.len())))
        }
    }
}

/// A digest of what a task sets up (its machines, variables and `setup`): equal for equal configurations.
pub fn configuration(task: &Task, catalogue: &Catalogue) -> String {
    let resources = task.resources.list.iter().map(|one| Field::Map(one.write(catalogue)).quoted());
    let (nodes, envs) = (task.num_nodes.to_string(), Field::Map(task.envs.clone()).quoted());
    let setup = task.setup.clone().unwrap_or_default();
    let all: Vec<String> = [nodes, setup, envs].into_iter().chain(resources).collect();
    api::stable::digits(all.iter().map(String::as_str))
}
