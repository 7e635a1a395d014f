//! What a server and the kind `CustomResourceDefinition` share: where definitions are kept, and how their state is written down.

use serde_json::{Value, json};

/// Bucket of the definitions.
pub const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";

/// The finalizer that holds a definition until its objects are gone.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The condition of a type.
pub fn condition<'a>(definition: &'a Value, kind: &str) -> Option<&'a Value> {
    definition["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

/// Sets a condition; where nothing of it changes, its time stays.
pub fn set_condition(
    definition: &mut Value,
    now: &jiff::Timestamp,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
) {
    let old = condition(definition, kind).cloned();
    let time = match &old {
        Some(old) if old["status"] == status => old["lastTransitionTime"].clone(),
        _ => now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into(),
    };
    let new = json!({
        "type": kind, "status": status, "lastTransitionTime": time, "reason": reason, "message": message,
    });
    let same = old.as_ref().is_some_and(|old| ["status", "reason", "message"].iter().all(|f| old[*f] == new[*f]));
    if same {
        return;
    }
    if !definition["status"]["conditions"].is_array() {
        definition["status"]["conditions"] = json!([]);
    }
    if let Some(list) = definition["status"]["conditions"].as_array_mut() {
        match list.iter_mut().find(|c| c["type"] == kind) {
            Some(old) => *old = new,
            None => list.push(new),
        }
    }
}
