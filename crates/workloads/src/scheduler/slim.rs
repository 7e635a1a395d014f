//! What the scheduler keeps of an object: the members that it reads, and no others. Of a pod that is about a tenth.
//!
//! [`taking`] says which members of a text are worth reading for that, and [`slim`] cuts what was read: some of it depends on values.

use super::gang;
use api::jobset;
use api::object::Gvk;
use objects::take::{self, Take};
use serde_json::Value;
use std::sync::Arc;

/// The parts of a pod's containers that say what it asks of a node.
const CONTAINER: [&str; 3] = ["resources", "ports", "restartPolicy"];

const KIND: [&str; 2] = ["apiVersion", "kind"];
const METADATA: [&str; 9] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "ownerReferences",
];
const POD_SPEC: [&str; 12] = [
    "affinity",
    "nodeName",
    "nodeSelector",
    "overhead",
    "preemptionPolicy",
    "priority",
    "resources",
    "restartPolicy",
    "schedulerName",
    "schedulingGates",
    "tolerations",
    "topologySpreadConstraints",
];
const VOLUME: [&str; 1] = ["persistentVolumeClaim"];
const JOB_SPEC: [&str; 3] = ["suspend", "parallelism", "completions"];
const JOB_STATUS: [&str; 4] = ["active", "conditions", "failedIndexes", "succeeded"];
const JOBSET_STATUS: [&str; 1] = ["restarts"];

/// Which members of a kind's objects [`slim`] keeps, and perhaps more.
pub(super) fn taking(gvk: &Gvk) -> fn(&str) -> Take {
    of_kind(gvk).unwrap_or(take::lean)
}

/// The same of kinds that are cut.
fn of_kind(gvk: &Gvk) -> Option<fn(&str) -> Take> {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => Some(take_pod),
        ("batch", "Job") => Some(take_job),
        (jobset::GROUP, _) => Some(take_jobset),
        _ => None,
    }
}

fn named(names: &[&str], member: &str) -> Take {
    if names.contains(&member) { Take::All } else { Take::Nothing }
}

fn take_metadata(member: &str) -> Take {
    match member {
        "annotations" => Take::Some(|name| named(&gang::ANNOTATIONS, name)),
        _ => named(&METADATA, member),
    }
}

fn take_pod(member: &str) -> Take {
    match member {
        "metadata" => Take::Some(take_metadata),
        "spec" => Take::Some(|member| match member {
            "containers" | "initContainers" => Take::Some(|member| named(&CONTAINER, member)),
            "volumes" => Take::Some(|member| named(&VOLUME, member)),
            _ => named(&POD_SPEC, member),
        }),
        "status" => Take::Some(|member| named(&["phase", "conditions"], member)),
        _ => named(&KIND, member),
    }
}

fn take_job(member: &str) -> Take {
    match member {
        "metadata" => Take::Some(take_metadata),
        "spec" => Take::Some(|member| named(&JOB_SPEC, member)),
        "status" => Take::Some(|member| named(&JOB_STATUS, member)),
        _ => Take::Nothing,
    }
}

fn take_jobset(member: &str) -> Take {
    match member {
        "metadata" => Take::Some(take_metadata),
        "spec" => Take::Some(|member| match member {
            "replicatedJobs" => Take::Some(|member| match member {
                "template" => Take::Some(|member| match member {
                    "spec" => Take::Some(|member| named(&JOB_SPEC, member)),
                    _ => Take::Nothing,
                }),
                _ => Take::All,
            }),
            _ => Take::All,
        }),
        "status" => Take::Some(|member| named(&JOBSET_STATUS, member)),
        _ => named(&KIND, member),
    }
}

/// An object of a kind, slim.
pub(super) fn slim(gvk: &Gvk, object: &Arc<Value>) -> Arc<Value> {
    let Some(take) = of_kind(gvk) else { return object.clone() };
    let mut slim = take::copied(object, take);
    without_idle(gvk, &mut slim);
    Arc::new(slim)
}

/// The same of an object that nobody else may have: then nothing is copied.
pub(super) fn slimmed(gvk: &Gvk, mut object: Arc<Value>) -> Arc<Value> {
    match (of_kind(gvk), Arc::get_mut(&mut object)) {
        (Some(take), Some(own)) => {
            take::cut(own, take);
            without_idle(gvk, own);
            object
        }
        _ => slim(gvk, &object),
    }
}

/// Takes away elements of a pod's lists that say nothing to the scheduler: volumes without a claim, conditions of others.
fn without_idle(gvk: &Gvk, object: &mut Value) {
    if gvk.kind != "Pod" {
        return;
    }
    let told = |condition: &Value| matches!(condition["type"].as_str(), Some("PodScheduled" | "DisruptionTarget"));
    keep(object.pointer_mut("/spec"), "volumes", |volume| volume.get(VOLUME[0]).is_some());
    keep(object.pointer_mut("/status"), "conditions", told);
}

/// Keeps those elements of a list; a list without any is no member.
fn keep(object: Option<&mut Value>, list: &str, wanted: impl Fn(&Value) -> bool) {
    let Some(object) = object.and_then(Value::as_object_mut) else { return };
    if let Some(Value::Array(elements)) = object.get_mut(list) {
        elements.retain(wanted);
        if elements.is_empty() {
            object.remove(list);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::gang::Plan;
    use super::super::line::Shape;
    use super::*;
    use serde_json::json;

    /// An object as it is read from its text.
    fn read(gvk: &Gvk, whole: &Value) -> Arc<Value> {
        let read = Arc::new(objects::part::taken(whole.to_string().as_bytes(), taking(gvk)));
        let slim = slimmed(gvk, read.clone());
        assert_eq!(slimmed(gvk, Arc::new((*read).clone())), slim, "shared or not");
        assert_eq!(slimmed(gvk, Arc::new(whole.clone())), slim, "whole or not");
        slim
    }

    #[test]
    fn what_is_read_of_a_slim_object_is_what_is_read_of_the_whole() {
        let whole = Arc::new(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "n", "labels": {"a": "b"}, "managedFields": [{"manager": "x"}],
                "annotations": {"batch.kubernetes.io/job-completion-index": "3", "other": "long"}},
            "spec": {"priority": 5, "nodeSelector": {"x": "y"}, "serviceAccountName": "default",
                "containers": [{"name": "c", "command": ["run"], "resources": {"limits": {"cpu": "2"}},
                    "ports": [{"hostPort": 80, "containerPort": 80}]}],
                "initContainers": [{"image": "i", "restartPolicy": "Always", "resources": {"limits": {"cpu": "1"}}}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "emptyDir": {}}]},
            "status": {"phase": "Pending", "podIP": "127.1.1.1",
                "conditions": [{"type": "Ready"}, {"type": "PodScheduled", "status": "False"}]},
        }));
        let pod_gvk = Gvk::new("", "v1", "Pod");
        let cut = slim(&pod_gvk, &whole);
        assert_eq!(Shape::of(&cut), Shape::of(&whole));
        assert_eq!(gang::rank(&cut), gang::rank(&whole));
        assert_eq!(cut["spec"]["volumes"], json!([{"persistentVolumeClaim": {"claimName": "c"}}]));
        assert_eq!(cut["status"]["conditions"], json!([{"type": "PodScheduled", "status": "False"}]));
        assert_eq!(cut["metadata"]["annotations"], json!({"batch.kubernetes.io/job-completion-index": "3"}));
        assert!(cut["metadata"].get("managedFields").is_none());
        assert_eq!(slim(&pod_gvk, &cut), cut, "once is enough");
        assert_eq!(read(&pod_gvk, &whole), cut);

        let whole = Arc::new(json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s", "namespace": "n"},
            "spec": {"replicatedJobs": [{"name": "r", "replicas": 2, "template": {"spec":
                {"parallelism": 3, "completions": 3, "template": {"spec": {"containers": [{"name": "c"}]}}}}}]},
            "status": {"restarts": 1},
        }));
        let cut = slim(&jobset::gvk(), &whole);
        let plan = Plan::of(&whole);
        assert!(plan.is_some());
        assert_eq!(Plan::of(&cut), plan);
        assert!(!cut.to_string().contains("containers"));
        assert_eq!(read(&jobset::gvk(), &whole), cut);

        let whole = Arc::new(json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "labels": {"a": "b"}, "managedFields": [{}]},
            "spec": {"parallelism": 3, "completions": 3, "suspend": true, "template": {"spec": {"containers": [{"name": "c"}]}}},
            "status": {"active": 1, "conditions": [{"type": "Complete"}], "failedIndexes": "1", "succeeded": 2, "ready": 1},
        }));
        let gvk = Gvk::new("batch", "v1", "Job");
        let cut = slim(&gvk, &whole);
        assert_eq!((&cut["status"]["succeeded"], cut["status"].get("ready")), (&json!(2), None));
        assert_eq!(read(&gvk, &whole), cut);
    }
}
