//! Nodes.

use super::*;

/// The kind `Node`.
pub struct Nodes;

impl Strategy for Nodes {
    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        keep(new, old, "status");
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        taint_faults(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = taint_faults(new);
        for field in ["podCIDR", "providerID"] {
            let before = text(old, &format!("spec.{field}"));
            if !before.is_empty() && before != text(new, &format!("spec.{field}")) {
                let detail = "node updates may not change podCIDR except from \"\" to valid";
                errors.push(Error::forbidden(&Path::new("spec").child(field), detail));
            }
        }
        errors
    }

    fn default(&self, object: &mut Value) {
        // What is not set aside for the system can be had.
        if unset(at(object, "status.allocatable")) && !unset(at(object, "status.capacity")) {
            let capacity = at(object, "status.capacity").clone();
            child(object, "status")["allocatable"] = capacity;
        }
    }

    fn generation_changed(&self, _new: &Value, _old: &Value) -> Option<bool> {
        None
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        vec![("spec.unschedulable", is_true(object, "spec.unschedulable").to_string())]
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let mut status = match kit::condition(object, "Ready") {
            Some(ready) if text(ready, "status") == "True" => "Ready".to_owned(),
            Some(_) => "NotReady".to_owned(),
            None => "Unknown".to_owned(),
        };
        if is_true(object, "spec.unschedulable") {
            status += ",SchedulingDisabled";
        }
        let mut roles: Vec<String> = members(object, "metadata.labels")
            .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) if !role.is_empty() => Some(role.to_owned()),
                _ if key == "kubernetes.io/role" => value.as_str().filter(|v| !v.is_empty()).map(str::to_owned),
                _ => None,
            })
            .collect();
        roles.sort();
        roles.dedup();
        let roles = if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") };
        let address = |kind: &str| {
            let found = items(object, "status.addresses").iter().find(|a| text(a, "type") == kind);
            json!(found.map_or("<none>", |a| text(a, "address")))
        };
        let info = |field: &str| match text(object, &format!("status.nodeInfo.{field}")) {
            "" => "<unknown>".to_owned(),
            value => value.to_owned(),
        };
        let mut kernel = info("kernelVersion");
        let machine = text(object, "status.nodeInfo.architecture");
        if !machine.is_empty() {
            kernel += &format!(" ({machine})");
        }
        vec![
            json!(text(object, "metadata.name")),
            json!(status),
            json!(roles),
            age(object, now),
            json!(text(object, "status.nodeInfo.kubeletVersion")),
            address("InternalIP"),
            address("ExternalIP"),
            json!(info("osImage")),
            json!(kernel),
            json!(info("containerRuntimeVersion")),
        ]
    }
}

fn taint_faults(node: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (i, taint) in items(node, "spec.taints").iter().enumerate() {
        // upstream's path
        let path = Path::new("metadata").child("taints").index(i);
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        for fault in names::qualified_name_faults(key) {
            errors.push(Error::invalid(&path.child("key"), key, fault));
        }
        let faults = names::label_value_faults(value);
        if !faults.is_empty() {
            errors.push(Error::invalid(&path.child("value"), value, faults.join(";")));
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if effect.is_empty() {
            errors.push(Error::required(&path.child("effect"), ""));
        } else if !effects.contains(&effect) {
            errors.push(Error::not_supported(&path.child("effect"), effect, &effects));
        }
        if seen.contains(&(key, effect)) {
            let mut error = Error::duplicate(&path, taint.clone());
            "taints must be unique by key and effect pair".clone_into(&mut error.detail);
            errors.push(error);
        }
        seen.insert((key, effect));
    }
    errors
}
