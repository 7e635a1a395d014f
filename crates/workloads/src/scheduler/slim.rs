//! What the scheduler keeps of an object: the members that it reads, and no others. Of a pod that is about a tenth.

use super::gang;
use api::jobset;
use api::object::Gvk;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The parts of a pod's containers that say what it asks of a node.
const CONTAINER: [&str; 3] = ["resources", "ports", "restartPolicy"];

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

fn metadata(object: &Value, annotations: &[&str]) -> Map<String, Value> {
    let meta = &object["metadata"];
    let mut slim = members(
        meta,
        &[
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "labels",
            "ownerReferences",
        ],
    );
    put(&mut slim, "annotations", members(&meta["annotations"], annotations));
    slim
}

fn pod(pod: &Value) -> Value {
    let mut slim = members(pod, &["apiVersion", "kind"]);
    put(&mut slim, "metadata", metadata(pod, &gang::ANNOTATIONS));
    let whole = &pod["spec"];
    let mut spec = members(
        whole,
        &[
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
        ],
    );
    for list in ["containers", "initContainers"] {
        spec.extend(elements(whole, list, &CONTAINER).map(|containers| (list.to_owned(), containers)));
    }
    let volumes = whole["volumes"].as_array().into_iter().flatten();
    let claims: Vec<Value> = volumes
        .filter(|volume| volume.get("persistentVolumeClaim").is_some())
        .map(|volume| members(volume, &["persistentVolumeClaim"]).into())
        .collect();
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
    members(spec, &["suspend", "parallelism", "completions"])
}

fn job(job: &Value) -> Value {
    let mut slim = Map::new();
    put(&mut slim, "metadata", metadata(job, &[]));
    put(&mut slim, "spec", job_spec(&job["spec"]));
    put(&mut slim, "status", members(&job["status"], &["active", "conditions", "failedIndexes", "succeeded"]));
    slim.into()
}

fn jobset(jobset: &Value) -> Value {
    let mut slim = members(jobset, &["apiVersion", "kind"]);
    put(&mut slim, "metadata", metadata(jobset, &[]));
    put(&mut slim, "spec", jobset_spec(&jobset["spec"]));
    put(&mut slim, "status", members(&jobset["status"], &["restarts"]));
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
    }
}
