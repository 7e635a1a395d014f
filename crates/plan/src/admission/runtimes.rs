//! Runtimes: the replicated jobs that TrainJobs speak about must be as the builder expects them.
//! Source: upstream's `pkg/webhooks/clustertrainingruntime_webhook.go`.

use super::{Denial, deprecation, verdict};
use crate::annotations;
use crate::job::list;
use crate::names::{
    Ancestor, LABEL_ANCESTOR, LABEL_SUPPORT, LABEL_WEBHOOK_VALIDATION, NODE, SUPPORT_DEPRECATED, VALIDATION_DISABLED,
};
use crate::plugins::flux::TOO_FEW_PROCESSES;
use crate::runtime::RuntimeKind;
use api::field::{Error, ErrorList, Path};
use api::object;
use serde_json::Value;

/// Warnings about a runtime that is created (`old` absent) or updated, or why it is refused.
// Q-35 (fixed): upstream looks at TrainingRuntimes at creation only; what an update left as it was is let through.
pub fn validate_runtime(kind: RuntimeKind, new: &Value, old: Option<&Value>) -> Result<Vec<String>, Denial> {
    if object::label(new, LABEL_WEBHOOK_VALIDATION) == Some(VALIDATION_DISABLED) {
        return Ok(Vec::new());
    }
    let mut warnings = Vec::new();
    if kind == RuntimeKind::ClusterTrainingRuntime
        && old.is_none()
        && object::label(new, LABEL_SUPPORT) == Some(SUPPORT_DEPRECATED)
    {
        warnings.push(deprecation("ClusterTrainingRuntime", object::meta(new, "name")));
    }
    let mut errors = faults(new);
    if let (RuntimeKind::TrainingRuntime, Some(old)) = (kind, old) {
        let before = faults(old);
        errors.retain(|error| !before.contains(error));
    }
    errors.extend(annotations::runtime_faults(new, old));
    verdict(&errors, warnings)
}

fn faults(runtime: &Value) -> ErrorList {
    let mut errors = replicated_jobs(runtime);
    // the schema says so, too, where the cluster has ours
    let processes = runtime.pointer("/spec/mlPolicy/flux/numProcPerNode").and_then(Value::as_i64);
    if let Some(processes) = processes.filter(|processes| *processes < 1) {
        let field = Path::new("spec").child("mlPolicy").child("flux").child("numProcPerNode");
        errors.push(Error::invalid(&field, processes, TOO_FEW_PROCESSES));
    }
    errors
}

fn replicated_jobs(runtime: &Value) -> ErrorList {
    let field = Path::new("spec").child("template").child("spec").child("replicatedJobs");
    let jobs = runtime.pointer("/spec/template/spec").map(|spec| list(spec, "replicatedJobs"));
    let mut errors = ErrorList::new();
    for (index, job) in jobs.into_iter().flatten().enumerate() {
        let label = job.pointer("/template/metadata/labels").and_then(|labels| labels.get(LABEL_ANCESTOR));
        let Some(ancestor) = label.and_then(Value::as_str).and_then(Ancestor::parse) else { continue };
        let field = field.index(index);
        let replicas = job.get("replicas").and_then(Value::as_i64).unwrap_or(1);
        if replicas != 1 {
            errors.push(Error::invalid(&field.child("replicas"), replicas, "always must be 1"));
        }
        let main = match ancestor {
            Ancestor::DatasetInitializer | Ancestor::ModelInitializer => ancestor.as_str(),
            Ancestor::Trainer => NODE,
        };
        let pod = job.pointer("/template/spec/template/spec").unwrap_or(&Value::Null);
        let containers = list(pod, "containers");
        if !containers.iter().any(|container| object::text(container, "name") == main) {
            let mut field = field;
            for member in ["template", "spec", "template", "spec", "containers"] {
                field = field.child(member);
            }
            let detail = format!("must contain the required container for the ancestor: {}", ancestor.as_str());
            errors.push(Error::invalid(&field, containers.to_vec(), detail));
        }
    }
    errors
}
