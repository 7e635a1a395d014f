//! TrainJobs: the times of runtime patches, and everything that only shows against the runtime.
//! Source: upstream's `pkg/webhooks/trainjob_webhook.go`.

use super::{Denial, deprecation, forbidden, not_found, verdict};
use crate::annotations;
use crate::build::new_info;
use crate::conditions;
use crate::job::{Job, list};
use crate::plugins::{Findings, PLUGINS, Validation, View};
use crate::runtime::{Runtime, RuntimeKind};
use crate::snapshot;
use crate::warnings;
use api::field::{Error, Path};
use api::object;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Stamps runtime patches with the time of their last change; takes away what only the controller writes into annotations
/// from a TrainJob that is created (`old` is absent).
pub fn default_trainjob(object: &mut Value, old: Option<&Value>, now: Timestamp) -> Result<(), Denial> {
    super::decode_trainjob(object)?;
    if old.is_none() {
        annotations::strip_told(object);
    }
    let now = json!(conditions::time(now));
    let before: BTreeMap<&str, &Value> = old
        .and_then(|old| old.get("spec"))
        .map(|spec| list(spec, "runtimePatches"))
        .unwrap_or_default()
        .iter()
        .map(|patch| (object::text(patch, "manager"), patch))
        .collect();
    let Some(patches) = object.pointer_mut("/spec/runtimePatches").and_then(Value::as_array_mut) else { return Ok(()) };
    for patch in patches.iter_mut().filter(|patch| patch.is_object()) {
        let given = patch.get("time").is_some_and(|time| !time.is_null());
        match before.get(object::text(patch, "manager")) {
            Some(old) if same_content(old, patch) => match old.get("time") {
                Some(time) => patch["time"] = time.clone(),
                None => {
                    patch.as_object_mut().expect("filtered above").remove("time");
                }
            },
            Some(_) => patch["time"] = now.clone(),
            None if !given => patch["time"] = now.clone(),
            None => {}
        }
    }
    Ok(())
}

/// Whether two patches say the same, but for their times: absent and empty collections are equal.
fn same_content(a: &Value, b: &Value) -> bool {
    let content = |patch: &Value| {
        let mut patch = patch.clone();
        if let Some(members) = patch.as_object_mut() {
            members.remove("time");
        }
        prune(&mut patch);
        patch
    };
    content(a) == content(b)
}

/// Removes empty lists and maps of strings, as far as they mean nothing. Empty objects stay: some of them are a choice
/// (`emptyDir: {}`).
fn prune(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, member| {
                let map = matches!(name.as_str(), "labels" | "annotations" | "nodeSelector" | "matchLabels");
                !(member.is_null()
                    || member.as_array().is_some_and(Vec::is_empty)
                    || (map && member.as_object().is_some_and(serde_json::Map::is_empty)))
            });
            members.values_mut().for_each(prune);
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Warnings about a TrainJob that is created (`old` absent) or updated, or why it is refused. `view` finds runtimes, the
/// TrainJob's snapshot and JobSet, and PriorityClasses. Settings without
/// the expected effect are warned of when they are new.
pub fn validate_trainjob(new: &Value, old: Option<&Value>, view: View<'_>) -> Result<Vec<String>, Denial> {
    let job = Job::parse(new);
    let before = old.map(Job::parse);
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let kind = RuntimeKind::of(&job.runtime_ref).map_err(forbidden)?;
    let mut findings = Findings { warnings: annotations::warnings(new), errors: annotations::faults(new, old) };
    let runtime = match runtime(&job, kind, before.is_some(), view) {
        Some(runtime) => runtime.map_err(forbidden)?,
        // Q-12 (fixed): the runtime is gone and was never frozen; what changes nothing that depends on it goes through.
        None if before.as_ref().is_some_and(|before| same_but_suspension(before, &job)) => {
            return verdict(&findings.errors, findings.warnings);
        }
        None => return Err(missing(kind, &job, spec)),
    };
    if runtime.deprecated && kind == RuntimeKind::ClusterTrainingRuntime {
        findings.warnings.push(deprecation("Referenced ClusterTrainingRuntime", &runtime.name));
    }
    // Q-37 (fixed): upstream drops this error and crashes over its consequences.
    let info = new_info(&job, &runtime).map_err(forbidden)?;
    let cx = Validation {
        info: &info,
        old: before.as_ref(),
        new: &job,
        spec,
        runtime_containers: &containers(&runtime),
        view,
    };
    for plugin in PLUGINS {
        plugin.validate(&cx, &mut findings);
    }
    if findings.errors.is_empty() && before.as_ref().is_none_or(|before| !same_but_suspension(before, &job)) {
        findings.warnings.extend(warnings::at_admission(&job, &runtime));
    }
    verdict(&findings.errors, findings.warnings)
}

/// The runtime that a TrainJob is built from: on update the frozen one, else the one that is there now.
// Q-33 and Q-12 (fixed): upstream asks the live runtime on updates too, whatever became of it since.
fn runtime(
    job: &Job,
    kind: RuntimeKind,
    update: bool,
    view: View<'_>,
) -> Option<Result<Arc<Runtime>, serde_json::Error>> {
    if update
        && let Some(frozen) = view.get(&snapshot::target(job))
        && let Ok(frozen) = snapshot::read(job, kind, &frozen, &snapshot::Memory::default())
    {
        return Some(Ok(frozen));
    }
    let live = view.get(&kind.target(&job.namespace, &job.runtime_ref.name))?;
    Some(Runtime::parse(kind, &live).map(Arc::new))
}

fn same_but_suspension(a: &Job, b: &Job) -> bool {
    (&a.runtime_ref, &a.initializer, &a.trainer, &a.patches) == (&b.runtime_ref, &b.initializer, &b.trainer, &b.patches)
}

fn missing(kind: RuntimeKind, job: &Job, spec: &Value) -> Denial {
    // Upstream spells the two paths differently.
    let (member, what) = match kind {
        RuntimeKind::TrainingRuntime => ("runtimeRef", "trainingRuntime"),
        RuntimeKind::ClusterTrainingRuntime => ("RuntimeRef", "clusterTrainingRuntime"),
    };
    let error = not_found(kind, &job.runtime_ref.name);
    let detail = format!("{error}: specified {what} must be created before the TrainJob is created");
    let shown = spec.get("runtimeRef").cloned().unwrap_or(Value::Null);
    forbidden(Error::invalid(&Path::new("spec").child(member), shown, detail))
}

/// The containers and init containers of each replicated job.
fn containers(runtime: &Runtime) -> BTreeMap<String, BTreeSet<String>> {
    let names = |job: &Value| {
        let pod = job.pointer("/template/spec/template/spec").unwrap_or(&Value::Null);
        let all = list(pod, "containers").iter().chain(list(pod, "initContainers"));
        all.map(|container| object::text(container, "name").to_owned()).collect()
    };
    let jobs = list(&runtime.template, "replicatedJobs");
    jobs.iter().map(|job| (object::text(job, "name").to_owned(), names(job))).collect()
}
