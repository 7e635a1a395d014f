//! The objects of a MPIJob other than pods, and what is repaired in them.

use super::Settings;
use super::pods::launcher_template;
use crate::mpi;
use api::mpi::names::{
    LABEL_APP, LABEL_JOB_NAME, LABEL_OPERATOR_NAME, OPERATOR_NAME, PRIVATE_KEY, PUBLIC_KEY, config, launcher,
    ssh_secret,
};
use api::mpi::{API_VERSION, KIND, MpiJob};
use api::object::{Key, Target};
use reconcile::{Op, PatchBody, Write};
use serde_json::{Map, Value, json};

/// The controller owner reference that every child carries.
pub(super) fn owner_reference(name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": name,
        "uid": uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// A child without what is its own.
pub(super) fn child(key: &Key, uid: &str, api_version: &str, kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": key.namespace,
            "ownerReferences": [owner_reference(&key.name, uid)],
        },
    })
}

/// The same with the label of all children but pods.
pub(super) fn labelled(key: &Key, uid: &str, api_version: &str, kind: &str, name: &str) -> Value {
    let mut object = child(key, uid, api_version, kind, name);
    object["metadata"]["labels"] = json!({LABEL_APP: key.name});
    object
}

/// The headless Service under which all pods have their names.
pub(super) fn service(job: &MpiJob, key: &Key, uid: &str) -> Value {
    let mut service = labelled(key, uid, "v1", "Service", &key.name);
    service["spec"] = json!({"clusterIP": "None", "selector": selector(key)});
    if job.spec.launcher_is_worker() {
        // the launcher reaches itself before it is ready
        service["spec"]["publishNotReadyAddresses"] = json!(true);
    }
    service
}

/// The labels of a job's pods.
pub(super) fn selector(key: &Key) -> Value {
    json!({LABEL_OPERATOR_NAME: OPERATOR_NAME, LABEL_JOB_NAME: key.name})
}

/// The Service with its selector and its flag as they have to be; `None` where they are.
pub(super) fn repaired_service(held: &Value, job: &MpiJob, key: &Key) -> Option<Value> {
    let publishes = held["spec"]["publishNotReadyAddresses"].as_bool().unwrap_or(false);
    let should = job.spec.launcher_is_worker();
    if held["spec"]["selector"] == selector(key) && publishes == should {
        return None;
    }
    let mut service = held.clone();
    service["spec"]["selector"] = selector(key);
    service["spec"]["publishNotReadyAddresses"] = json!(should);
    Some(service)
}

/// The ConfigMap with the hosts.
pub(super) fn config_map(key: &Key, uid: &str, data: Value) -> Value {
    let mut map = labelled(key, uid, "v1", "ConfigMap", &config(&key.name));
    map["data"] = data;
    map
}

/// The Secret with keys, to be filled in.
pub(super) fn secret(key: &Key, uid: &str) -> Value {
    let mut secret = labelled(key, uid, "v1", "Secret", &ssh_secret(&key.name));
    mpi::hold_keys(&mut secret);
    secret
}

/// The Secret with new keys, to be filled in, where it has others than it has to have; `None` where all are there.
pub(super) fn renewed_secret(held: &Value) -> Option<Value> {
    let data = held.get("data").and_then(Value::as_object);
    let names: Vec<&String> = data.into_iter().flat_map(Map::keys).collect();
    if names.len() == 2 && names.iter().all(|name| [PRIVATE_KEY, PUBLIC_KEY].contains(&name.as_str())) {
        return None;
    }
    let mut secret = held.clone();
    mpi::hold_keys(&mut secret);
    secret["data"] = json!({});
    Some(secret)
}

/// The Job of the launcher.
pub(super) fn launcher_job(job: &MpiJob, key: &Key, uid: &str, settings: &Settings) -> Value {
    let mut object = labelled(key, uid, "batch/v1", "Job", &launcher(&key.name));
    let policy = job.spec.run_policy.clone().unwrap_or_default();
    let mut spec = json!({
        "template": launcher_template(job, key, uid, settings),
        // one launcher at a time: a second would start while the first is still ending
        "podReplacementPolicy": "Failed",
    });
    let numbers = [
        ("ttlSecondsAfterFinished", policy.ttl_seconds_after_finished.map(i64::from)),
        ("activeDeadlineSeconds", policy.active_deadline_seconds),
        ("backoffLimit", policy.backoff_limit.map(i64::from)),
    ];
    for (member, number) in numbers {
        if let Some(number) = number {
            spec[member] = json!(number);
        }
    }
    if job.spec.is_suspended() {
        spec["suspend"] = json!(true);
    }
    object["spec"] = spec;
    object
}

/// Suspends the launcher's Job.
pub(super) fn suspend(launcher: &Value) -> Write {
    patch(launcher, None, json!({"spec": {"suspend": true}}))
}

/// Resumes the launcher's Job with the scheduling directives of the MPIJob as it is now (Kueue may have changed them):
/// labels and annotations are added to, node selector, tolerations and gates replaced. A Job that keeps its start time has
/// to lose it first, or its API would take no such change.
pub(super) fn resume(held: &Value, job: &MpiJob, key: &Key, uid: &str, settings: &Settings) -> Vec<Write> {
    let mut writes = Vec::new();
    if held["status"].get("startTime").is_some_and(|time| !time.is_null()) {
        writes.push(patch(held, Some("status"), json!({"status": {"startTime": null}})));
    }
    let wanted = launcher_template(job, key, uid, settings);
    let mut metadata = Map::new();
    for member in ["labels", "annotations"] {
        if let Some(said) = wanted["metadata"].get(member) {
            metadata.insert(member.to_owned(), said.clone());
        }
    }
    let mut spec = Map::new();
    for member in ["tolerations", "schedulingGates"] {
        spec.insert(member.to_owned(), wanted["spec"].get(member).cloned().unwrap_or(Value::Null));
    }
    let mut selector = wanted["spec"].get("nodeSelector").cloned().unwrap_or(Value::Null);
    if let (Some(wanted), Some(held)) =
        (selector.as_object_mut(), held.pointer("/spec/template/spec/nodeSelector").and_then(Value::as_object))
    {
        // a merge patch takes away what it names
        held.keys().for_each(|key| _ = wanted.entry(key.clone()).or_insert(Value::Null));
    }
    spec.insert("nodeSelector".to_owned(), selector);
    let template = json!({"metadata": metadata, "spec": spec});
    writes.push(patch(held, None, json!({"spec": {"suspend": false, "template": template}})));
    writes
}

fn patch(object: &Value, subresource: Option<&'static str>, body: Value) -> Write {
    Op::Patch { target: Target::of(object), subresource, body: PatchBody::Merge(body) }.into()
}
