//! Launchers that start once their workers can be reached (`trainyard.dev/wait-for-workers: reachable`).
//!
//! A launcher that is made with its workers may run `mpirun` before their names resolve and before their SSH servers listen
//! (kubeflow/mpi-operator 386, 481). Where the annotation asks for it, the launcher's pod has an init container that waits for
//! both. It knows of the workers what the launcher's hostfile says. Here is also what events tell of launchers and their workers.

use super::{Settings, asked};
use api::mpi::names::env::OPEN_MPI_5_HOSTFILE;
use api::mpi::names::{
    CONFIG_PATH, CONFIG_VOLUME, ENTERED_PODS, EVENT_REPORTER, HOSTFILE, WAIT_COMMAND, WAIT_CONTAINER,
};
use api::mpi::{self, LauncherCreationPolicy, MpiJob, MpiJobSpec, Reason, ReplicaType};
use api::object::{self, Gvk, Key};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Where SSH servers listen: as root, and without privileges, as images for MPI have it.
const SSH_PORTS: [i64; 2] = [22, 2222];
/// Our program in our image.
const PROGRAM: &str = "/trainyard";
/// API servers keep events for an hour: what ended before that was told before.
const OLD: SignedDuration = SignedDuration::from_hours(1);

/// The init container that waits; `None` where nobody asks for it, or there is nobody to wait for, or no image that could.
pub(super) fn waiter(job: &MpiJob, settings: &Settings) -> Option<Value> {
    let image =
        settings.image.as_ref().filter(|_| asked::waits_until_reachable(job, settings) && job.spec.workers() > 0)?;
    let mut command = vec![PROGRAM.to_owned(), WAIT_COMMAND.to_owned()];
    command.extend(ports(job).iter().map(|port| format!("--port={port}")));
    let mut container = Map::new();
    container.insert("name".to_owned(), json!(WAIT_CONTAINER));
    container.insert("image".to_owned(), json!(image));
    container.insert("command".to_owned(), json!(command));
    // what it runs before needs is no less: so the pod asks for no more, keeps its class, and a quota lets it in
    let main = job.spec.role(ReplicaType::Launcher).and_then(|role| role.template.pointer("/spec/containers/0"));
    if let Some(resources) = main.and_then(|main| main.get("resources")) {
        container.insert("resources".to_owned(), resources.clone());
    }
    container.insert(
        "securityContext".to_owned(),
        json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}}),
    );
    container.insert("terminationMessagePolicy".to_owned(), json!("FallbackToLogsOnError"));
    container.insert("volumeMounts".to_owned(), json!([{"name": CONFIG_VOLUME, "mountPath": CONFIG_PATH}]));
    Some(Value::Object(container))
}

/// Ports on which a worker's SSH server may listen: the usual ones, and those that its first container names.
fn ports(job: &MpiJob) -> BTreeSet<i64> {
    let main = job.spec.role(ReplicaType::Worker).and_then(|role| role.template.pointer("/spec/containers/0"));
    let named = main.and_then(|main| main["ports"].as_array()).into_iter().flatten();
    let named = named.filter(|port| matches!(object::text(port, "protocol"), "" | "TCP"));
    SSH_PORTS.into_iter().chain(named.filter_map(|port| port["containerPort"].as_i64())).collect()
}

/// Whether the launcher is made once the workers are ready, not with them.
pub fn launcher_comes_later(job: &MpiJob, settings: &Settings) -> bool {
    job.spec.launcher_creation() == LauncherCreationPolicy::WaitForWorkersReady || holds_launcher_back(job, settings)
}

/// Whether the launcher has to be held back instead, until all workers are ready: it is to wait, and no image is known that
/// could do so in its pod.
pub(super) fn holds_launcher_back(job: &MpiJob, settings: &Settings) -> bool {
    settings.image.is_none() && asked::waits_until_reachable(job, settings)
}

/// Events that tell of launchers' pods that waited in vain, or that ended well and entered no worker: one for each pod, however often it
/// is looked at.
pub(super) fn told<'a>(
    pods: impl IntoIterator<Item = &'a Value>,
    spec: &MpiJobSpec,
    key: &Key,
    job: &Value,
    now: Timestamp,
) -> Vec<Value> {
    let told = |pod: &Value| {
        let (reason, at, message) = in_vain(pod).or_else(|| alone(pod, spec, key))?;
        tell(pod, reason, at.unwrap_or(now), message, key, job, now)
    };
    pods.into_iter().filter_map(told).collect()
}

/// A reason, when it came to be, and what is said of it.
type Told = (Reason, Option<Timestamp>, String);

/// A launcher that succeeded, and as its node knows it entered no worker (kubeflow/mpi-operator 842).
fn alone(pod: &Value, spec: &MpiJobSpec, key: &Key) -> Option<Told> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let entered = conditions.iter().find(|condition| condition["type"] == ENTERED_PODS)?;
    if entered["status"] != "False" || super::status::phase(pod) != "Succeeded" || spec.workers() < 1 {
        return None;
    }
    let message = format!(
        "MPIJob {key} succeeded, but its launcher started no process in a worker. Open MPI 5 needs \
         {OPEN_MPI_5_HOSTFILE}={CONFIG_PATH}/{HOSTFILE}"
    );
    Some((Reason::WorkersNotUsed, object::text(entered, "lastTransitionTime").parse().ok(), message))
}

fn in_vain(pod: &Value) -> Option<Told> {
    let mut statuses = pod["status"]["initContainerStatuses"].as_array()?.iter();
    let status = statuses.find(|status| object::text(status, "name") == WAIT_CONTAINER)?;
    let ended = ["state", "lastState"].map(|member| &status[member]["terminated"]);
    let ended = ended.into_iter().find(|ended| ended["exitCode"].as_i64().is_some_and(|code| code != 0))?;
    // where it is the end of the log, the last line says it
    let said = object::text(ended, "message").trim().lines().last().unwrap_or_default();
    // one that was told to stop has not waited in vain
    if said.is_empty() || object::is_terminating(pod) {
        return None;
    }
    let at = object::text(ended, "finishedAt").parse().ok();
    Some((Reason::WorkersNotReachable, at, super::status::cut(said.to_owned())))
}

/// The event; `None` where it is too old to be told.
fn tell(
    pod: &Value,
    reason: Reason,
    at: Timestamp,
    message: String,
    key: &Key,
    job: &Value,
    now: Timestamp,
) -> Option<Value> {
    if now.duration_since(at) > OLD {
        return None;
    }
    let gvk: Gvk = mpi::gvk();
    let time = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    Some(json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"namespace": key.namespace, "name": format!("{}.{}", key.name, object::uid(pod))},
        "involvedObject": {"apiVersion": gvk.api_version(), "kind": gvk.kind, "uid": object::uid(job),
            "namespace": key.namespace, "name": key.name},
        "type": "Warning", "reason": reason.as_str(), "message": message,
        "source": {"component": EVENT_REPORTER}, "firstTimestamp": time, "lastTimestamp": time, "count": 1,
    }))
}
