//! What of a MPIJob cannot be run. The API lets it in (upstream has no webhook); an event tells of it.

use api::field::{Error, ErrorList, Path};
use api::mpi::names::{MANAGED_BY_MPI_OPERATOR, MANAGED_BY_MULTIKUEUE, worker};
use api::mpi::{CleanPodPolicy, MpiJob, ReplicaSpec, ReplicaType, RestartPolicy, RunPolicy};
use api::names::dns1035_faults;
use serde_json::Value;

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// All faults, in upstream's order.
pub(super) fn faults(job: &MpiJob, name: &str) -> ErrorList {
    let mut errors = name_faults(job, name);
    let spec = Path::new("spec");
    let replicas = spec.child("mpiReplicaSpecs");
    let key = |role: ReplicaType| replicas.key(role.as_str());
    match job.spec.role(ReplicaType::Launcher) {
        None => errors.push(Error::required(&key(ReplicaType::Launcher), "must have Launcher replica spec")),
        Some(launcher) => {
            let path = key(ReplicaType::Launcher);
            role_faults(launcher, &path, &mut errors);
            if let Some(count) = launcher.replicas.filter(|count| *count != 1) {
                errors.push(Error::invalid(&path.child("replicas"), count, "must be 1"));
            }
        }
    }
    if let Some(workers) = job.spec.role(ReplicaType::Worker) {
        let path = key(ReplicaType::Worker);
        role_faults(workers, &path, &mut errors);
        let count = workers.replicas.unwrap_or(0);
        if count <= 0 {
            errors.push(Error::invalid(&path.child("replicas"), count, "must be greater than or equal to 1"));
        }
    }
    not_negative(&spec.child("slotsPerWorker"), Some(job.spec.slots().into()), &mut errors);
    let policy = job.spec.run_policy.clone().unwrap_or_default();
    policy_faults(&policy, &spec.child("runPolicy"), &mut errors);
    errors
}

/// The name of the last worker is a host's, too.
fn name_faults(job: &MpiJob, name: &str) -> ErrorList {
    let last = worker(name, job.spec.workers().max(1) - 1);
    let faults = dns1035_faults(&last, false);
    if faults.is_empty() {
        return ErrorList::new();
    }
    let why = faults.join(", ");
    let detail = format!("will not able to create pod and service with invalid DNS label {last:?}: {why}");
    vec![Error::invalid(&Path::new("metadata").child("name"), name, detail)]
}

fn role_faults(role: &ReplicaSpec, path: &Path, errors: &mut ErrorList) {
    if let Some(policy) = role.restart_policy.as_deref().filter(|policy| !policy.is_empty())
        && policy.parse::<RestartPolicy>().is_err()
    {
        let supported: Vec<&str> = RestartPolicy::ALL.iter().map(|policy| policy.as_str()).collect();
        errors.push(Error::not_supported(&path.child("restartPolicy"), policy, &supported));
    }
    let containers = role.template.pointer("/spec/containers").and_then(Value::as_array);
    if containers.is_none_or(Vec::is_empty) {
        let path = path.child("template").child("spec").child("containers");
        errors.push(Error::required(&path, "must define at least one container"));
    }
}

fn policy_faults(policy: &RunPolicy, path: &Path, errors: &mut ErrorList) {
    if let Some(clean) = policy.clean_pod_policy.as_deref().filter(|clean| clean.parse::<CleanPodPolicy>().is_err()) {
        let mut supported: Vec<&str> = CleanPodPolicy::ALL.iter().map(|policy| policy.as_str()).collect();
        supported.sort_unstable();
        errors.push(Error::not_supported(&path.child("cleanPodPolicy"), clean, &supported));
    }
    let number = |value: Option<i32>| value.map(i64::from);
    not_negative(&path.child("ttlSecondsAfterFinished"), number(policy.ttl_seconds_after_finished), errors);
    not_negative(&path.child("activeDeadlineSeconds"), policy.active_deadline_seconds, errors);
    not_negative(&path.child("backoffLimit"), number(policy.backoff_limit), errors);
    let known = [MANAGED_BY_MULTIKUEUE, MANAGED_BY_MPI_OPERATOR];
    if let Some(manager) = policy.managed_by.as_deref().filter(|manager| !known.contains(manager)) {
        errors.push(Error::not_supported(&path.child("managedBy"), manager, &known));
    }
}

fn not_negative(path: &Path, value: Option<i64>, errors: &mut ErrorList) {
    if let Some(value) = value.filter(|value| *value < 0) {
        errors.push(Error::invalid(path, value, NOT_NEGATIVE));
    }
}
