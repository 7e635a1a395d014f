//! What the scheduler keeps of an object: the members that it reads, and no others. Of a pod that is about a tenth.
//!
//! [`taking`] says which members of a text are worth reading for that, and [`slim`] cuts what was read: some of it depends on values.

use super::gang;
use api::jobset;
use api::object::Gvk;
use api::take::{self, Take};
use serde_json::{Map, Value};
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

/// Those members of an object that are there.
fn members(object: &Value, names: &[&str]) -> Map<String, Value> {
    names.iter().filter_map(|name| Some(((*name).to_owned(), object.get(*name)?.clone()))).collect()
}

/// A member of which only a part is read.
fn put(to: &mut Map<String, Value>, name: &str, part: Map<String, Value>) {
    if !part.is_empty() {
        to.insert(name.to_owned(), part.into());
    }
}

/// The elements of a list, each cut to these members.
fn elements(object: &Value, list: &str, names: &[&str]) -> Option<Value> {
    let elements = object.get(list)?.as_array()?;
    Some(elements.iter().map(|element| Value::Object(members(element, names))).collect())
}

/// An object of a kind, slim.
pub(super) fn slim(gvk: &Gvk, object: &Arc<Value>) -> Arc<Value> {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => Arc::new(pod(object)),
        ("batch", "Job") => Arc::new(job(object)),
        (jobset::GROUP, _) => Arc::new(jobset(object)),
        _ => object.clone(),
    }
}

/// Which members of a kind's objects [`slim`] keeps, and perhaps more.
pub(super) fn taking(gvk: &Gvk) -> fn(&str) -> Take {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => take_pod,
        ("batch", "Job") => take_job,
        (jobset::GROUP, _) => take_jobset,
        _ => take::lean,
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

fn metadata(object: &Value, annotations: &[&str]) -> Map<String, Value> {
    let meta = &object["metadata"];
    let mut slim = members(meta, &METADATA);
    put(&mut slim, "annotations", members(&meta["annotations"], annotations));
    slim
}

fn pod(pod: &Value) -> Value {
    let mut slim = members(pod, &KIND);
    put(&mut slim, "metadata", metadata(pod, &gang::ANNOTATIONS));
    let whole = &pod["spec"];
    let mut spec = members(whole, &POD_SPEC);
    for list in ["containers", "initContainers"] {
        spec.extend(elements(whole, list, &CONTAINER).map(|containers| (list.to_owned(), containers)));
    }
    let volumes = whole["volumes"].as_array().into_iter().flatten();
    let claims: Vec<Value> =
        volumes.map(|volume| members(volume, &VOLUME)).filter(|claim| !claim.is_empty()).map(Value::Object).collect();
    if !claims.is_empty() {
        spec.insert("volumes".to_owned(), claims.into());
    }
    put(&mut slim, "spec", spec);
    let mut status = members(&pod["status"], &["phase"]);
    let told = |condition: &&Value| matches!(condition["type"].as_str(), Some("PodScheduled" | "DisruptionTarget"));
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten().filter(told);
    let conditions: Vec<Value> = conditions.cloned().collect();
    if !conditions.is_empty() {
        status.insert("conditions".to_owned(), conditions.into());
    }
    put(&mut slim, "status", status);
    slim.into()
}

/// A Job's spec without the template of its pods.
fn job_spec(spec: &Value) -> Map<String, Value> {
    members(spec, &JOB_SPEC)
}

fn job(job: &Value) -> Value {
    let mut slim = Map::new();
    put(&mut slim, "metadata", metadata(job, &[]));
    put(&mut slim, "spec", job_spec(&job["spec"]));
    put(&mut slim, "status", members(&job["status"], &JOB_STATUS));
    slim.into()
}

fn jobset(jobset: &Value) -> Value {
    let mut slim = members(jobset, &KIND);
    put(&mut slim, "metadata", metadata(jobset, &[]));
    put(&mut slim, "spec", jobset_spec(&jobset["spec"]));
    put(&mut slim, "status", members(&jobset["status"], &JOBSET_STATUS));
    slim.into()
}

/// A JobSet's spec without the templates of its pods, which are most of it.
fn jobset_spec(spec: &Value) -> Map<String, Value> {
    let cut = |(name, value): (&String, &Value)| {
        let value = match (name.as_str(), value) {
            ("replicatedJobs", Value::Array(list)) => list.iter().map(replicated_job).collect(),
            _ => value.clone(),
        };
        (name.clone(), value)
    };
    spec.as_object().into_iter().flatten().map(cut).collect()
}

fn replicated_job(replicated: &Value) -> Value {
    let Value::Object(members) = replicated else { return replicated.clone() };
    let cut = |(name, value): (&String, &Value)| {
        let value = match name.as_str() {
            "template" => Map::from_iter([("spec".to_owned(), job_spec(&value["spec"]).into())]).into(),
            _ => value.clone(),
        };
        (name.clone(), value)
    };
    Value::Object(members.iter().map(cut).collect())
}

#[cfg(test)]
mod tests {
    use super::super::gang::Plan;
    use super::super::line::Shape;
    use super::*;
    use serde_json::json;

    /// An object as it is read from its text.
    fn read(gvk: &Gvk, whole: &Value) -> Arc<Value> {
        slim(gvk, &Arc::new(api::part::taken(whole.to_string().as_bytes(), taking(gvk))))
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
