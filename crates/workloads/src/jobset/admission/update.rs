//! Validation of a changed JobSet. Spec A.4. What cannot change but is not mentioned here the schema's rules hold fast.

use api::field::{Error, ErrorList, Path};
use api::quantity::Quantity;
use serde_json::{Map, Value};

/// Where in a replicated job the members lie that may change while the JobSet is suspended.
const MUTABLE_WHILE_SUSPENDED: [(&[&str], &str); 5] = [
    (&["template", "spec", "template", "metadata"], "labels"),
    (&["template", "spec", "template", "metadata"], "annotations"),
    (&["template", "spec", "template", "spec"], "nodeSelector"),
    (&["template", "spec", "template", "spec"], "tolerations"),
    (&["template", "spec", "template", "spec"], "schedulingGates"),
];

/// What is wrong with a change.
pub fn validate_update(new: &Value, old: &Value) -> ErrorList {
    let path = Path::new("spec");
    let suspended = |jobset: &Value| jobset["spec"]["suspend"].as_bool().unwrap_or(false);
    let may_change = suspended(new) || suspended(old);
    let jobs = |jobset: &Value| -> Vec<Value> {
        let list = jobset["spec"]["replicatedJobs"].as_array().into_iter().flatten();
        list.map(|replicated| canonical(&if may_change { masked(replicated) } else { replicated.clone() })).collect()
    };
    let mut errors = ErrorList::new();
    if jobs(new) != jobs(old) {
        let value = new["spec"].get("replicatedJobs").cloned().unwrap_or_default();
        errors.push(Error::invalid(&path.child("replicatedJobs"), value, "field is immutable"));
    }
    let manager = |jobset: &Value| jobset["spec"].get("managedBy").cloned().unwrap_or_default();
    if manager(new) != manager(old) {
        errors.push(Error::invalid(&path.child("managedBy"), manager(new), "field is immutable"));
    }
    errors
}

/// A replicated job without what may change.
fn masked(replicated: &Value) -> Value {
    let mut masked = replicated.clone();
    for (path, member) in MUTABLE_WHILE_SUSPENDED {
        let parent = path.iter().try_fold(&mut masked, |value, step| value.get_mut(*step));
        if let Some(parent) = parent.and_then(Value::as_object_mut) {
            parent.remove(member);
        }
    }
    masked
}

/// An object reduced to what it means: what upstream's types cannot tell from absence is left out, quantities are written
/// in one way. Members whose emptiness means something stay.
pub(super) fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut reduced = Map::new();
            for (key, value) in map {
                let value = match key.as_str() {
                    "requests" | "limits" | "overhead" | "capacity" => quantities(value),
                    "sizeLimit" | "divisor" => quantity(value),
                    _ => canonical(value),
                };
                if !is_absent(key, &value) {
                    reduced.insert(key.clone(), value);
                }
            }
            reduced.into()
        }
        Value::Array(list) => list.iter().map(canonical).collect(),
        other => other.clone(),
    }
}

fn quantities(value: &Value) -> Value {
    match value {
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), quantity(value))).collect(),
        other => other.clone(),
    }
}

fn quantity(value: &Value) -> Value {
    Quantity::from_json(value).map_or_else(|_| value.clone(), |quantity| quantity.to_string().into())
}

/// Whether a member means the same as its absence.
fn is_absent(key: &str, value: &Value) -> bool {
    const STRUCTS: [&str; 13] = [
        "annotations",
        "labels",
        "limits",
        "metadata",
        "nodeSelector",
        "overhead",
        "requests",
        "resources",
        "spec",
        "status",
        "template",
        "matchLabels",
        "preference",
    ];
    const FLAGS: [&str; 7] = ["hostIPC", "hostNetwork", "hostPID", "readOnly", "stdin", "stdinOnce", "tty"];
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty() && STRUCTS.contains(&key),
        Value::String(text) => text.is_empty() && key != "storageClassName",
        Value::Bool(flag) => !flag && FLAGS.contains(&key),
        Value::Number(_) => false,
    }
}
