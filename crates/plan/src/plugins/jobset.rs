//! JobSet: writes the picture back into the template, and validates what needs the template.
//! Source: upstream's `pkg/runtime/framework/plugins/jobset`.

use super::{Build, BuildError, Findings, Plugin, Validation, apply};
use crate::build::{entry, list_mut};
use crate::failfast;
use crate::hardening;
use crate::info::{Container, Info};
use crate::job::{Job, list};
use crate::names::env::STORAGE_URI;
use crate::names::{Ancestor, DATASET_INITIALIZER, JOBSET_API_VERSION, MODEL_INITIALIZER, NODE};
use crate::runtime::Framework;
use crate::upsert;
use api::field::{Error, Path};
use api::object::{self, Gvk, Target};
use api::trainer::InitializerStep;
use api::trainer::annotations::ATTEMPT;
use reconcile::Op;
use serde_json::{Value, json};

/// The volume that initializers and trainer share.
const INITIALIZER_VOLUME: &str = "initializer";

/// Always active: every TrainJob becomes a JobSet.
pub struct JobSet;

/// The JobSet of a TrainJob.
pub fn target(job: &Job) -> Target {
    job.sibling(JOBSET_API_VERSION, "JobSet", &job.name)
}

impl Plugin for JobSet {
    fn name(&self) -> &'static str {
        "JobSet"
    }

    fn validate(&self, cx: &Validation<'_>, findings: &mut Findings) {
        initializers(cx, findings);
        patches_may_change(cx, findings);
        patches(cx, findings);
    }

    fn pre_build(&self, info: &mut Info, _job: &Job) -> Result<(), BuildError> {
        let Info { pod_sets, template, .. } = info;
        for (set, replicated) in pod_sets.iter().zip(list_mut(template, "replicatedJobs")) {
            let spec = entry(entry_value(replicated, "template"), "spec");
            spec.insert("parallelism".to_owned(), set.count.into());
            spec.insert("completions".to_owned(), set.count.into());
        }
        Ok(())
    }

    fn build(&self, cx: &Build<'_>) -> Result<Vec<Op>, BuildError> {
        let running =
            cx.view.get(&target(cx.job)).is_some_and(|live| live.pointer("/spec/suspend") != Some(&json!(true)));
        if running && !cx.job.suspend {
            // a running JobSet is never touched.
            return Ok(Vec::new());
        }
        Ok(vec![apply(jobset(cx.info, cx.job))])
    }

    fn reads(&self, job: &Job, _settings: &super::Settings) -> Vec<Target> {
        vec![target(job)]
    }

    fn watches(&self) -> Vec<Gvk> {
        vec![Gvk::from_api_version(JOBSET_API_VERSION, "JobSet")]
    }
}

/// The JobSet as it is applied.
fn jobset(info: &Info, job: &Job) -> Value {
    let mut spec = info.template.clone();
    for (set, replicated) in info.pod_sets.iter().zip(list_mut(&mut spec, "replicatedJobs")) {
        match set.ancestor {
            Some(Ancestor::DatasetInitializer | Ancestor::ModelInitializer | Ancestor::Trainer) => {
                replicated["replicas"] = json!(1);
            }
            None => {}
        }
        let template = entry_value(entry_value(entry_value(replicated, "template"), "spec"), "template");
        for scheduler in [&info.scheduler, &set.scheduler] {
            for (member, additions) in [("labels", &scheduler.pod_labels), ("annotations", &scheduler.pod_annotations)]
            {
                if !additions.is_empty() {
                    let map = entry(entry_value(template, "metadata"), member);
                    map.extend(additions.iter().map(|(key, value)| (key.clone(), json!(value))));
                }
            }
        }
        let pod = entry_value(template, "spec");
        put(pod, "volumes", &set.volumes);
        write_containers(pod, "containers", &set.containers);
        write_containers(pod, "initContainers", &set.init_containers);
        let launcher_as_node = matches!(&info.framework, Framework::Mpi(mpi) if mpi.run_launcher_as_node());
        for container in list_mut(pod, "containers") {
            let name = object::text(container, "name").to_owned();
            let is = |ancestor, main| set.ancestor == Some(ancestor) && name == main;
            if is(Ancestor::DatasetInitializer, DATASET_INITIALIZER) {
                initialize(container, job.initializer.dataset.as_ref());
            } else if is(Ancestor::ModelInitializer, MODEL_INITIALIZER) {
                initialize(container, job.initializer.model.as_ref());
            } else if is(Ancestor::Trainer, NODE) {
                override_main(container, info);
            }
            if is(Ancestor::Trainer, NODE) || (launcher_as_node && set.name == NODE && name == NODE) {
                let variables = job.trainer.as_ref().map(|t| t.env.as_slice()).unwrap_or_default();
                add_env(container, variables);
            }
        }
    }
    if job.options.restricted {
        hardening::restrict(&mut spec);
    }
    if job.options.fail_fast {
        failfast::apply(&mut spec);
    }
    retain_claims(&mut spec);
    omit_empty_structs(&mut spec);
    spec["suspend"] = json!(job.suspend);
    let mut object = job.child(JOBSET_API_VERSION, "JobSet", &job.name);
    let mut annotations = info.annotations.clone();
    if job.options.attempt > 1 {
        annotations.insert(ATTEMPT.to_owned(), job.options.attempt.to_string());
    }
    for (member, map) in [("labels", &info.labels), ("annotations", &annotations)] {
        if !map.is_empty() {
            object["metadata"][member] = json!(map);
        }
    }
    object["spec"] = spec;
    object
}

/// Writes pod-set containers over the template's, by index; those beyond its length are new.
fn write_containers(pod: &mut Value, member: &str, containers: &[Container]) {
    if containers.is_empty() {
        return;
    }
    let slot = pod.as_object_mut().expect("a pod spec is an object").entry(member).or_insert_with(|| json!([]));
    let Some(list) = slot.as_array_mut() else { return };
    for (index, container) in containers.iter().enumerate() {
        if index >= list.len() {
            list.push(json!({"name": container.name}));
        }
        let slot = &mut list[index];
        if let Some(image) = &container.image {
            slot["image"] = json!(image);
        }
        if !container.command.is_empty() {
            slot["command"] = json!(container.command);
        }
        put(slot, "env", &container.env);
        put(slot, "ports", &container.ports);
        put(slot, "volumeMounts", &container.volume_mounts);
    }
}

/// Sets a list, where it holds anything.
fn put(value: &mut Value, member: &str, list: &[Value]) {
    if !list.is_empty() {
        value[member] = Value::from(list.to_vec());
    }
}

/// The TrainJob's section of an initializer: where from, variables, and a Secret whose keys become variables.
fn initialize(container: &mut Value, step: Option<&InitializerStep>) {
    let Some(step) = step else { return };
    let mut variables = Vec::new();
    if let Some(uri) = &step.storage_uri {
        variables.push(json!({"name": STORAGE_URI, "value": uri}));
    }
    variables.extend(step.env.iter().cloned());
    add_env(container, &variables);
    if let Some(secret) = &step.secret_ref {
        let reference = json!({"secretRef": {"name": object::text(secret, "name")}});
        match container.get_mut("envFrom").and_then(Value::as_array_mut) {
            Some(sources) => sources.push(reference),
            None => container["envFrom"] = json!([reference]),
        }
    }
}

fn override_main(container: &mut Value, info: &Info) {
    if let Some(image) = &info.main.image {
        container["image"] = json!(image);
    }
    for (member, words) in [("command", &info.main.command), ("args", &info.main.args)] {
        match words {
            // Typed clients leave an empty list out: it takes the runtime's words away.
            Some(words) if words.is_empty() => _ = container.as_object_mut().and_then(|c| c.remove(member)),
            Some(words) => container[member] = json!(words),
            None => {}
        }
    }
}

fn add_env(container: &mut Value, variables: &[Value]) {
    if variables.is_empty() {
        return;
    }
    let mut env = list(container, "env").to_vec();
    upsert::env_all(&mut env, variables);
    container["env"] = Value::from(env);
}

/// Says the retention policy of claim templates, which JobSet's webhook would fill in at creation only.
// Fixed (golden README, quirk 1): without it the next apply counts as a change of an immutable field, and a TrainJob on a
// runtime with claim templates can never be resumed.
fn retain_claims(spec: &mut Value) {
    for policy in list_mut(spec, "volumeClaimPolicies") {
        let retention = entry(policy, "retentionPolicy");
        retention.entry("whenDeleted").or_insert_with(|| json!("Delete"));
    }
}

/// Leaves out the members that typed clients write even when empty.
// Fixed (golden README, quirk 4): an applied `metadata: {}` turns to null when the last label in it goes, and the JobSet is
// refused from then on; what is not applied is taken away as a whole. JobSet's webhook fills the empty ones in.
fn omit_empty_structs(spec: &mut Value) {
    let omit = |value: &mut Value, member: &str| {
        if let Some(members) = value.as_object_mut()
            && members.get(member).and_then(Value::as_object).is_some_and(serde_json::Map::is_empty)
        {
            members.remove(member);
        }
    };
    for replicated in list_mut(spec, "replicatedJobs") {
        let Some(template) = replicated.get_mut("template") else { continue };
        omit(template, "metadata");
        let Some(pods) = template.pointer_mut("/spec/template") else { continue };
        omit(pods, "metadata");
        let Some(pod) = pods.get_mut("spec") else { continue };
        for containers in ["containers", "initContainers"] {
            list_mut(pod, containers).iter_mut().for_each(|container| omit(container, "resources"));
        }
    }
}

/// A member, made an object where it is absent.
fn entry_value<'a>(value: &'a mut Value, member: &str) -> &'a mut Value {
    entry(value, member);
    &mut value[member]
}

/// Sections of the TrainJob need replicated jobs of their name in the runtime.
fn initializers(cx: &Validation<'_>, findings: &mut Findings) {
    let initializer = &cx.new.initializer;
    let steps = [
        (&initializer.dataset, DATASET_INITIALIZER, "datasetConfig"),
        (&initializer.model, MODEL_INITIALIZER, "modelConfig"),
    ];
    for (step, name, config) in steps {
        let Some(step) = step else { continue };
        let detail = match cx.info.by_name(name) {
            None => format!("must have {name} job when trainJob is configured with input {config}"),
            Some(set) if !set.has_container(name) => {
                format!("must have container with name - {name} in the {name} job")
            }
            Some(set) => {
                let mut mounts = set.containers.iter().filter(|c| c.name == name).flat_map(|c| &c.volume_mounts);
                // Q-21 (fixed): the data cache serves a data set without any volume; upstream refuses its own runtime.
                let cached = step.storage_uri.as_deref().is_some_and(|uri| uri.starts_with("cache://"));
                if cached || mounts.any(|mount| object::text(mount, "name") == INITIALIZER_VOLUME) {
                    continue;
                }
                format!("must have volumeMount with name - {INITIALIZER_VOLUME} in container {name} of the {name} job")
            }
        };
        let shown = cx.spec.get("runtimeRef").cloned().unwrap_or(Value::Null);
        findings.errors.push(Error::invalid(&Path::new("spec").child("runtimeRef"), shown, detail));
    }
}

/// Patches change only around a suspension, and not under running pods.
fn patches_may_change(cx: &Validation<'_>, findings: &mut Findings) {
    let Some(old) = cx.old else { return };
    if old.patches == cx.new.patches {
        return;
    }
    let field = Path::new("spec").child("runtimePatches");
    if !old.suspend && !cx.new.suspend {
        let detail = "RuntimePatches can only be modified when the TrainJob is suspended before or after the update";
        findings.errors.push(Error::forbidden(&field, detail));
        return;
    }
    let live = cx.view.get(&target(cx.new));
    let statuses = live.as_ref().and_then(|l| l.pointer("/status/replicatedJobsStatus")).and_then(Value::as_array);
    for status in statuses.into_iter().flatten() {
        if status.get("active").and_then(Value::as_i64).unwrap_or(0) > 0 {
            let name = object::text(status, "name");
            let detail =
                format!("RuntimePatches cannot be modified when the JobSet's ReplicatedJob {name} is still active");
            findings.errors.push(Error::forbidden(&field, detail));
        }
    }
}

/// Who patches, and what.
fn patches(cx: &Validation<'_>, findings: &mut Findings) {
    let field = Path::new("spec").child("runtimePatches");
    let invalid = |detail: String| {
        let shown = cx.spec.get("runtimePatches").cloned().unwrap_or(Value::Null);
        Error::invalid(&field, shown, detail)
    };
    for patch in &cx.new.patches {
        findings.errors.extend(crate::admission::manager_faults(&patch.manager, &field.child("manager")));
        let jobs = patch.template.as_ref().and_then(|t| t.pointer("/spec/replicatedJobs")).and_then(Value::as_array);
        for job in jobs.into_iter().flatten() {
            let name = object::text(job, "name");
            // Q-38 (fixed): upstream looks at the runtime after the patch has added to it what it lacks.
            let Some(known) = cx.runtime_containers.get(name) else {
                let detail = "must not have replicated job that doesn't exist in the runtime job template";
                findings.errors.push(invalid(detail.to_owned()));
                continue;
            };
            let Some(pod) = job.pointer("/template/spec/template/spec") else { continue };
            for container in list(pod, "initContainers") {
                if !known.contains(object::text(container, "name")) {
                    let detail = format!("must not have initContainer that doesn't exist in the runtime job {name}");
                    findings.errors.push(invalid(detail));
                }
            }
            for container in list(pod, "containers") {
                let container_name = object::text(container, "name");
                if !known.contains(container_name) {
                    let detail = format!("must not have container that doesn't exist in the runtime job {name}");
                    findings.errors.push(invalid(detail));
                } else if [DATASET_INITIALIZER, MODEL_INITIALIZER, NODE].contains(&container_name)
                    && !list(container, "env").is_empty()
                {
                    let detail = "must not have envs for the dataset-initializer, model-initializer, node containers";
                    findings.errors.push(invalid(detail.to_owned()));
                }
            }
        }
    }
}
