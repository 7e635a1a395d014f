//! What tests of plugins share: a runtime and a TrainJob in, the finished picture or the children out.

use super::{BuildError, Findings, Plugin, Settings, Validation, View};
use crate::build;
use crate::info::Info;
use crate::job::Job;
use crate::runtime::{Runtime, RuntimeKind};
use api::object::Target;
use reconcile::Op;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One replicated job with a container `node`; `step` is its ancestor label, empty for none.
pub fn replicated(name: &str, step: &str) -> Value {
    let mut job = json!({"name": name, "template": {"spec": {"template": {"spec": {
        "containers": [{"name": "node", "image": "example.com/train:1"}]}}}}});
    if !step.is_empty() {
        job["template"]["metadata"] = json!({"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": step}});
    }
    job
}

/// A runtime of these members of `spec` and these replicated jobs.
pub fn runtime(mut spec: Value, jobs: &[Value]) -> Runtime {
    spec["template"]["spec"]["replicatedJobs"] = json!(jobs);
    Runtime::parse(RuntimeKind::TrainingRuntime, &json!({"metadata": {"name": "rt"}, "spec": spec})).unwrap()
}

/// The TrainJob `ns/train` with these members of `spec`.
pub fn job(mut spec: Value) -> Job {
    spec["runtimeRef"] = json!({"name": "rt"});
    Job::parse(&json!({"metadata": {"name": "train", "namespace": "ns", "uid": "u-1"}, "spec": spec}))
}

/// The picture after all plugins.
pub fn enforced(job: &Job, runtime: &Runtime) -> Info {
    build::enforced(job, runtime, &Settings::default()).unwrap()
}

/// The children where these objects are there already.
pub fn children(job: &Job, runtime: &Runtime, settings: &Settings, live: &[Value]) -> Result<Vec<Op>, BuildError> {
    let view = |target: &Target| live.iter().find(|o| Target::of(o) == *target).cloned().map(Arc::new);
    build::children(job, runtime, settings, View(&view))
}

/// The object of the first child of a kind.
pub fn child<'a>(ops: &'a [Op], kind: &str) -> Option<&'a Value> {
    ops.iter()
        .map(|op| match op {
            Op::Apply { object, .. } | Op::Create { object } | Op::CreateGenerated { object, .. } => object,
            other => panic!("no child: {other:?}"),
        })
        .find(|object| object["kind"] == kind)
}

/// What one plugin finds fault with, as texts.
pub fn faults(plugin: &dyn Plugin, job: &Job, runtime: &Runtime, live: &[Value]) -> Vec<String> {
    let view = |target: &Target| live.iter().find(|o| Target::of(o) == *target).cloned().map(Arc::new);
    let info = build::new_info(job, runtime).unwrap();
    let containers = BTreeMap::new();
    let mut findings = Findings::default();
    let cx = Validation {
        info: &info,
        old: None,
        new: job,
        spec: &Value::Null,
        runtime_containers: &containers,
        view: View(&view),
    };
    plugin.validate(&cx, &mut findings);
    assert!(findings.warnings.is_empty());
    findings.errors.iter().map(ToString::to_string).collect()
}

/// `name=value` of each variable; those with a source show its field path.
pub fn env(list: &[Value]) -> Vec<String> {
    list.iter()
        .map(|e| {
            let value = e.get("value").or_else(|| e.pointer("/valueFrom/fieldRef/fieldPath")).unwrap();
            format!("{}={}", e["name"].as_str().unwrap(), value.as_str().unwrap())
        })
        .collect()
}
