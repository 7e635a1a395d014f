//! What the operator's caches hold of each kind, and how.

use api::mpi;
use api::mpi::names::{LABEL_OPERATOR_NAME, OPERATOR_NAME, launcher};
use api::object::{self, Gvk};
use plan::evidence;
use serde_json::Value;

/// What caches need not hold: the contents of other people's ConfigMaps and Secrets, and the managed fields of objects that are
/// not built by us.
pub(super) fn slim(gvk: &Gvk, value: &mut Value) {
    let builder = object::controller_of(value).map(|owner| object::text(owner, "kind").to_owned());
    if builder.as_deref() == Some("TrainJob") {
        return;
    }
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    if builder.as_deref() == Some(mpi::KIND) {
        // which keys there are is of interest, not what they are
        if let Some(data) = value["data"].as_object_mut().filter(|_| gvk.kind == "Secret") {
            data.values_mut().for_each(|key| *key = Value::String(String::new()));
        }
        return;
    }
    // the operator's own Secret has its authority, which pods are told
    let own = value["data"].get("ca.crt").is_some();
    if gvk.group.is_empty() && matches!(gvk.kind.as_str(), "ConfigMap" | "Secret") {
        if let Some(fields) = value.as_object_mut().filter(|_| !(own && gvk.kind == "Secret")) {
            fields.remove("data");
            fields.remove("binaryData");
        } else if let Some(data) = value["data"].as_object_mut() {
            data.retain(|key, _| key == "ca.crt");
        }
    }
}

/// Whether there are so many of a kind that they are held as text; of runtimes there are few, and each decision reads one.
pub(super) fn is_many(gvk: &Gvk) -> bool {
    !matches!(gvk.kind.as_str(), "TrainingRuntime" | "ClusterTrainingRuntime")
}

/// What of a kind is looked at: a cluster has many pods, and only what is left of failed ones is of interest.
pub(super) fn selected(gvk: &Gvk) -> Option<&'static str> {
    (gvk.group.is_empty() && gvk.kind == "Pod").then_some(evidence::SELECTED)
}

/// Whether a pod is a MPIJob's, as it says or as its owner does: labels can be changed by anybody.
fn is_of_mpi(pod: &Value) -> bool {
    let is_owned = object::controller_of(pod).is_some_and(|owner| match object::text(owner, "kind") {
        mpi::KIND => true,
        "Job" => object::text(owner, "name").ends_with(&launcher("")),
        _ => false,
    });
    is_owned || object::label(pod, LABEL_OPERATOR_NAME) == Some(OPERATOR_NAME)
}

/// The same where MPIJobs are worked on. Of other people's pods only the names are of interest: they may be in the way.
pub(super) fn slim_of_mpi(gvk: &Gvk, value: &mut Value) {
    slim(gvk, value);
    let is_pod = gvk.group.is_empty() && gvk.kind == "Pod";
    if is_pod && !is_of_mpi(value) {
        if let Some(pod) = value.as_object_mut() {
            pod.retain(|member, _| ["apiVersion", "kind", "metadata"].contains(&member.as_str()));
        }
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.retain(|member, _| !["annotations", "labels"].contains(&member.as_str()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn caches_hold_what_is_read() {
        let slimmed = |kind: &str, owner: Value, data: Value| {
            let mut value = json!({"apiVersion": "v1", "kind": kind, "data": data,
                "metadata": {"name": "x", "managedFields": [{}], "ownerReferences": owner}});
            slim(&Gvk::new("", "v1", kind), &mut value);
            value
        };
        let owner = json!([{"kind": "TrainJob", "controller": true}]);
        let ours = slimmed("ConfigMap", owner, json!({"runtime": "x"}));
        assert!(ours["data"]["runtime"] == "x" && ours["metadata"]["managedFields"].is_array());
        let theirs = slimmed("Secret", Value::Null, json!({"password": "x"}));
        assert!(theirs.get("data").is_none() && theirs["metadata"].get("managedFields").is_none());
        let launches = json!([{"kind": "MPIJob", "controller": true}]);
        let keys = slimmed("Secret", launches, json!({"ssh-privatekey": "x"}));
        assert_eq!(keys["data"], json!({"ssh-privatekey": ""}));
        let mut pod = json!({"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {}, "status": {}});
        slim_of_mpi(&Gvk::new("", "v1", "Pod"), &mut pod);
        assert_eq!(pod, json!({"metadata": {"name": "x"}}));
        for (kind, owner, is_of_mpi) in [
            ("MPIJob", "train", true),
            ("Job", "train-launcher", true),
            ("Job", "other", false),
            ("ReplicaSet", "a", false),
        ] {
            let owners = json!([{"kind": kind, "name": owner, "controller": true}]);
            let mut pod = json!({"metadata": {"name": "x", "ownerReferences": owners}, "status": {"phase": "Running"}});
            slim_of_mpi(&Gvk::new("", "v1", "Pod"), &mut pod);
            assert_eq!(pod.get("status").is_some(), is_of_mpi, "{kind} {owner}");
        }
        let own = slimmed("Secret", Value::Null, json!({"ca.crt": "x", "ca.key": "y"}));
        assert_eq!(own["data"], json!({"ca.crt": "x"}));
    }
}
