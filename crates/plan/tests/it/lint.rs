//! What must hold for every decision, whatever it was about.

use api::object::{self, Target};
use api::trainer::annotations::TOLD;
use reconcile::{Decision, Op, PatchBody, StatusWrite};
use serde_json::Value;
use std::collections::BTreeSet;

/// Breaches of the rules, in words.
pub fn faults(job: &Value, decision: &Decision) -> Vec<String> {
    let mut faults = Vec::new();
    let (namespace, uid) = (object::meta(job, "namespace"), object::uid(job));
    for write in &decision.writes {
        let child = match &write.op {
            Op::Apply { object, manager } => {
                check(&mut faults, *manager == "trainer", || format!("manager {manager}"));
                object
            }
            Op::Create { object } | Op::CreateGenerated { object, .. } => object,
            Op::Delete { target, uid, .. } => {
                check(&mut faults, target.key.namespace == namespace, || format!("deletes {target}"));
                check(&mut faults, uid.is_some(), || format!("deletes {target} without naming its uid"));
                continue;
            }
            Op::Patch { target, subresource: None, body: PatchBody::Merge(body) } => {
                check(&mut faults, *target == Target::of(job), || format!("patches {target}"));
                let members: Vec<&String> = body["metadata"].as_object().into_iter().flat_map(|m| m.keys()).collect();
                check(&mut faults, members == ["annotations", "resourceVersion"], || format!("patches {members:?}"));
                let keys = body["metadata"]["annotations"].as_object().into_iter().flat_map(|m| m.keys());
                for key in keys.filter(|key| !TOLD.contains(&key.as_str())) {
                    faults.push(format!("writes the annotation {key}"));
                }
                continue;
            }
            other => {
                faults.push(format!("unexpected write {other:?}"));
                continue;
            }
        };
        let name = format!("{} {}", object::text(child, "kind"), object::meta(child, "name"));
        check(&mut faults, object::meta(child, "namespace") == namespace, || format!("{name}: other namespace"));
        let owners = child["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        check(
            &mut faults,
            owners.len() == 1
                && owners[0]["uid"] == uid
                && owners[0]["controller"] == true
                && owners[0]["blockOwnerDeletion"] == true
                && owners[0]["kind"] == "TrainJob",
            || format!("{name}: owner"),
        );
        if object::text(child, "kind") == "JobSet" {
            jobset(&mut faults, child);
        }
        walk(&mut faults, child, &name);
    }
    if let Some(StatusWrite::Merge(body) | StatusWrite::Replace(body)) = &decision.status {
        let conditions = body["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let types: BTreeSet<&str> = conditions.iter().map(|c| object::text(c, "type")).collect();
        check(&mut faults, types.len() == conditions.len(), || "duplicate condition".into());
        check(&mut faults, conditions.len() <= 8, || "more conditions than the CRD admits".into());
        let is_true = |kind: &str| conditions.iter().any(|c| c["type"] == kind && c["status"] == "True");
        check(&mut faults, !(is_true("Complete") && is_true("Failed")), || "both Complete and Failed".into());
        for condition in &conditions {
            for member in ["type", "status", "reason", "message", "lastTransitionTime"] {
                check(&mut faults, condition[member].is_string(), || format!("condition without {member}"));
            }
        }
    }
    faults
}

fn check(faults: &mut Vec<String>, fine: bool, fault: impl FnOnce() -> String) {
    if !fine {
        faults.push(fault());
    }
}

fn jobset(faults: &mut Vec<String>, jobset: &Value) {
    check(faults, jobset["spec"]["suspend"].is_boolean(), || "suspend is not said".into());
    for job in jobset["spec"]["replicatedJobs"].as_array().into_iter().flatten() {
        let name = object::text(job, "name");
        let spec = &job["template"]["spec"];
        check(faults, spec["parallelism"].is_i64() && spec["parallelism"] == spec["completions"], || {
            format!("{name}: parallelism {} and completions {}", spec["parallelism"], spec["completions"])
        });
    }
}

/// Keys by which server-side apply tells items of pod templates' lists apart.
const KEYS: [(&str, &[&str]); 7] = [
    ("env", &["name"]),
    ("volumes", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("replicatedJobs", &["name"]),
    ("ports", &["containerPort", "protocol"]),
];

fn walk(faults: &mut Vec<String>, value: &Value, path: &str) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let path = format!("{path}.{name}");
                check(faults, !member.is_null(), || format!("{path} is null"));
                let keys = KEYS.iter().find(|(list, _)| list == name).map(|(_, keys)| *keys);
                if let (Some(keys), Some(items)) = (keys, member.as_array()) {
                    let ids: BTreeSet<String> =
                        items.iter().map(|i| keys.iter().map(|k| format!("{}/", i[*k])).collect()).collect();
                    check(faults, ids.len() == items.len(), || format!("{path} has duplicates"));
                }
                walk(faults, member, &path);
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| walk(faults, item, &format!("{path}[{i}]")))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
