//! Builds the children of a TrainJob from its runtime: [`new_info`], then the plugins, point by point.
//! Source: upstream's `pkg/runtime/core`.

use crate::info::{Container, Info, Main, PodSet, Scheduler};
use crate::job::{Job, list};
use crate::kept::{self, Kept};
use crate::names::{Ancestor, LABEL_ANCESTOR, NODE};
use crate::plugins::{Build, BuildError, PLUGINS, Settings, View};
use crate::resources;
use crate::runtime::{Framework, Runtime};
use api::object;
use reconcile::Op;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The picture of a runtime under a TrainJob's patches and resources, before any plugin.
pub fn new_info(job: &Job, runtime: &Runtime) -> Result<Info, BuildError> {
    let (labels, annotations) = jobset_metadata(job, runtime);
    let mut template = patched(job, runtime)?;
    crate::typed::normalize(&mut template).map_err(|error| BuildError::new(error.to_string()))?;
    let mut pod_sets = Vec::new();
    for replicated in list_mut(&mut template, "replicatedJobs") {
        if let Some(resources) = job.trainer.as_ref().and_then(|t| t.resources_per_node.as_ref())
            && takes_resources(runtime, replicated)
        {
            merge_resources(replicated, resources);
        }
        pod_sets.push(pod_set(runtime, replicated));
    }
    Ok(Info {
        labels,
        annotations,
        framework: runtime.framework.clone(),
        has_ml_policy: runtime.has_ml_policy,
        num_nodes: runtime.num_nodes,
        pod_group: runtime.pod_group.clone(),
        scheduler: Scheduler::default(),
        main: job.trainer.as_ref().map_or_else(Main::default, |t| Main {
            image: t.image.clone(),
            command: t.command.clone(),
            args: t.args.clone(),
        }),
        template,
        pod_sets,
    })
}

/// The finished picture: every policy enforced, counts final.
pub fn enforced(job: &Job, runtime: &Runtime, settings: &Settings) -> Result<Info, BuildError> {
    Ok(enforced_with(job, runtime, settings)?.0)
}

/// The same, with what of the runtime stayed in place of something of ours.
pub fn enforced_with(job: &Job, runtime: &Runtime, settings: &Settings) -> Result<(Info, Vec<Kept>), BuildError> {
    let mut info = new_info(job, runtime)?;
    let before = kept::before(&info);
    for plugin in PLUGINS {
        plugin.enforce_ml_policy(&mut info, job)?;
    }
    for plugin in PLUGINS {
        plugin.enforce_pod_group_policy(&mut info, job)?;
    }
    for plugin in PLUGINS {
        plugin.enforce_pod_spec(&mut info, job, settings)?;
    }
    for plugin in PLUGINS {
        plugin.pre_build(&mut info, job)?;
    }
    let kept = kept::restore(before, &mut info);
    Ok((info, kept))
}

/// All children but the snapshot, in the order in which they are to be written.
pub fn children(job: &Job, runtime: &Runtime, settings: &Settings, view: View<'_>) -> Result<Vec<Op>, BuildError> {
    let info = enforced(job, runtime, settings)?;
    let cx = Build { info: &info, job, settings, view };
    let mut children = Vec::new();
    for plugin in PLUGINS {
        children.extend(plugin.build(&cx)?);
    }
    Ok(children)
}

/// Labels and annotations of the JobSet: the runtime's template, then every patch in order.
fn jobset_metadata(job: &Job, runtime: &Runtime) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let mut maps = (BTreeMap::new(), BTreeMap::new());
    let patches = job.patches.iter().filter_map(|p| p.template.as_ref()?.get("metadata"));
    for metadata in std::iter::once(&runtime.metadata).chain(patches) {
        for (map, member) in [(&mut maps.0, "labels"), (&mut maps.1, "annotations")] {
            for (key, value) in metadata.get(member).and_then(Value::as_object).into_iter().flatten() {
                map.insert(key.clone(), value.as_str().unwrap_or_default().to_owned());
            }
        }
    }
    maps
}

/// The runtime's JobSet spec with every patch merged over it, replicated jobs in the runtime's order.
fn patched(job: &Job, runtime: &Runtime) -> Result<Value, BuildError> {
    let mut template = runtime.template.clone();
    let patches: Vec<&Value> = job.patches.iter().filter_map(|p| p.template.as_ref()?.get("spec")).collect();
    if patches.is_empty() {
        return Ok(template);
    }
    let order: Vec<String> =
        list(&template, "replicatedJobs").iter().map(|j| object::text(j, "name").to_owned()).collect();
    for patch in patches {
        let mut patch = patch.clone();
        crate::typed::omit_empty(&mut patch);
        template = merge::strategic::apply(&template, &patch, crate::schema::jobset_spec())
            .map_err(|error| BuildError::new(error.to_string()))?;
    }
    if let Some(jobs) = template.get_mut("replicatedJobs").and_then(Value::as_array_mut) {
        jobs.sort_by_key(|job| order.iter().position(|name| name == object::text(job, "name")).unwrap_or(0));
    }
    Ok(template)
}

fn ancestor(replicated: &Value) -> Option<Ancestor> {
    Ancestor::parse(replicated.pointer("/template/metadata/labels")?.get(LABEL_ANCESTOR)?.as_str()?)
}

fn pod_set(runtime: &Runtime, replicated: &Value) -> PodSet {
    let name = object::text(replicated, "name").to_owned();
    let ancestor = ancestor(replicated);
    let count = match ancestor {
        Some(Ancestor::Trainer) if runtime.has_ml_policy => runtime.num_nodes.unwrap_or(1),
        _ => number(replicated.pointer("/template/spec/parallelism")).unwrap_or(1),
    };
    let empty = json!({});
    let pod = replicated.pointer("/template/spec/template/spec").unwrap_or(&empty);
    PodSet {
        name,
        ancestor,
        count: count.max(1),
        replicas: number(replicated.get("replicas")).unwrap_or(1),
        init_containers: list(pod, "initContainers").iter().map(container).collect(),
        containers: list(pod, "containers").iter().map(container).collect(),
        volumes: list(pod, "volumes").to_vec(),
        requests: resources::pod_requests(pod),
        scheduler: Scheduler::default(),
    }
}

fn number(value: Option<&Value>) -> Option<i32> {
    value.and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok())
}

fn container(value: &Value) -> Container {
    Container {
        name: object::text(value, "name").to_owned(),
        image: value.get("image").and_then(Value::as_str).map(str::to_owned),
        command: crate::job::strings(value, "command").unwrap_or_default(),
        env: list(value, "env").to_vec(),
        ports: list(value, "ports").to_vec(),
        volume_mounts: list(value, "volumeMounts").to_vec(),
    }
}

/// Whether `resourcesPerNode` goes into this replicated job.
// Q-13 (kept): nothing without an ML policy; Kueue computes quota from the same rule.
fn takes_resources(runtime: &Runtime, replicated: &Value) -> bool {
    let launcher_as_node = matches!(&runtime.framework, Framework::Mpi(mpi) if mpi.run_launcher_as_node());
    runtime.has_ml_policy
        && (ancestor(replicated) == Some(Ancestor::Trainer)
            || (launcher_as_node && object::text(replicated, "name") == NODE))
}

/// Lays `resourcesPerNode` over the resources of the container `node`, key by key.
// Q-14 (fixed): resource claims of either side are kept; upstream drops them.
fn merge_resources(replicated: &mut Value, ours: &Value) {
    let containers = replicated.pointer_mut("/template/spec/template/spec/containers").and_then(Value::as_array_mut);
    let Some(node) = containers.into_iter().flatten().find(|c| object::text(c, "name") == NODE) else { return };
    let Some(node) = node.as_object_mut() else { return };
    let merged = node.entry("resources").or_insert_with(|| json!({}));
    for member in ["limits", "requests"] {
        for (name, quantity) in ours.get(member).and_then(Value::as_object).into_iter().flatten() {
            let mut quantity = quantity.clone();
            resources::canonical(&mut quantity);
            entry(merged, member).insert(name.clone(), quantity);
        }
    }
    for claim in list(ours, "claims") {
        let claims = merged.as_object_mut().expect("resources are an object");
        if let Value::Array(list) = claims.entry("claims").or_insert_with(|| json!([])) {
            match list.iter().position(|c| c.get("name") == claim.get("name")) {
                Some(at) => list[at] = claim.clone(),
                None => list.push(claim.clone()),
            }
        }
    }
}

/// A member that is an object, made where it is none.
pub(crate) fn entry<'a>(value: &'a mut Value, member: &str) -> &'a mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    let slot = value.as_object_mut().expect("made an object above").entry(member).or_insert_with(|| json!({}));
    if !slot.is_object() {
        *slot = json!({});
    }
    slot.as_object_mut().expect("made an object above")
}

/// Sets a member that is not there; what is written stays.
pub(crate) fn fill(object: Option<&mut Map<String, Value>>, member: &str, value: Value) {
    if let Some(object) = object {
        object.entry(member).or_insert(value);
    }
}

/// A member that is a list; an empty one where absent.
pub(crate) fn list_mut<'a>(value: &'a mut Value, member: &str) -> &'a mut [Value] {
    value.get_mut(member).and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default()
}
