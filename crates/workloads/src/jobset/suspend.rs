//! Suspending and resuming one Job. Spec A.12.

use super::children::Child;
use api::jobset::{ReplicatedJob, keys};
use api::object::Target;
use reconcile::{Op, PatchBody, Write};
use serde_json::{Map, Value, json};

/// Suspends a Job that runs.
pub(crate) fn suspend(child: &Child) -> Option<Write> {
    (!child.is_suspended()).then(|| patch(child, None, json!({"spec": {"suspend": true}})))
}

fn patch(child: &Child, subresource: Option<&'static str>, body: Value) -> Write {
    Op::Patch { target: Target::of(&child.job), subresource, body: PatchBody::Merge(body) }.into()
}

/// Resumes a Job, with what was changed in the JobSet's pod template meanwhile: labels, annotations, node selector,
/// tolerations and scheduling gates are added and replaced, never removed. A Job that keeps its start time has to lose it
/// first, or its API would take no such change.
pub(crate) fn resume(child: &Child, replicated: &ReplicatedJob) -> Vec<Write> {
    let mut writes = Vec::new();
    if child.job["status"].get("startTime").is_some_and(|time| !time.is_null()) {
        writes.push(patch(child, Some("status"), json!({"status": {"startTime": null}})));
    }
    let (held, wanted) = (&child.job["spec"]["template"], &replicated.template["spec"]["template"]);
    let mut meta = Map::new();
    for member in ["labels", "annotations"] {
        let mut added = added(&held["metadata"][member], &wanted["metadata"][member]);
        added.retain(|key, _| !is_ours(key));
        if !added.is_empty() {
            meta.insert(member.to_owned(), added.into());
        }
    }
    let mut spec = Map::new();
    let selector = added(&held["spec"]["nodeSelector"], &wanted["spec"]["nodeSelector"]);
    if !selector.is_empty() {
        spec.insert("nodeSelector".to_owned(), selector.into());
    }
    for member in ["tolerations", "schedulingGates"] {
        let mut list = held["spec"][member].as_array().cloned().unwrap_or_default();
        let before = list.len();
        for item in wanted["spec"][member].as_array().into_iter().flatten() {
            if !list.contains(item) {
                list.push(item.clone());
            }
        }
        if list.len() > before {
            spec.insert(member.to_owned(), list.into());
        }
    }
    let mut template = Map::new();
    for (member, changes) in [("metadata", meta), ("spec", spec)] {
        if !changes.is_empty() {
            template.insert(member.to_owned(), changes.into());
        }
    }
    let mut body = json!({"spec": {"suspend": false}});
    if !template.is_empty() {
        body["spec"]["template"] = template.into();
    }
    writes.push(patch(child, None, body));
    writes
}

/// The entries of a map that another one lacks or has otherwise.
fn added(held: &Value, wanted: &Value) -> Map<String, Value> {
    let wanted = wanted.as_object().into_iter().flatten();
    wanted
        .filter(|(key, value)| held.get(key) != Some(value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Labels and annotations that this controller sets: a template cannot forge them, neither at creation nor here.
fn is_ours(key: &str) -> bool {
    key.starts_with("jobset.sigs.k8s.io/") || [keys::EXCLUSIVE_TOPOLOGY, keys::NODE_SELECTOR_STRATEGY].contains(&key)
}
