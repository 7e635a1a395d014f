//! Nodes.

use super::*;

/// The kind `Node`.
pub struct Nodes;

impl Strategy for Nodes {
    fn facts(&self) -> Facts {
        Facts { has_generation: false, ..Facts::default() }
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        // a feature that is gone
        super::super::kit::without(new, "spec", &["configSource"]);
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        keep(new, old, "status");
        super::super::kit::without(new, "spec", &["configSource"]);
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        faults(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = faults(new);
        let spec = Path::new("spec");
        let detail = |field: &str| format!("node updates may not change {field} except from \"\" to valid");
        let before = items(old, "spec.podCIDRs");
        if !before.is_empty() && before != items(new, "spec.podCIDRs") {
            errors.push(Error::forbidden(&spec.child("podCIDRs"), detail("podCIDR")));
        }
        let before = text(old, "spec.providerID");
        if !before.is_empty() && before != text(new, "spec.providerID") {
            errors.push(Error::forbidden(&spec.child("providerID"), detail("providerID")));
        }
        if text(old, "spec.externalID") != text(new, "spec.externalID") {
            errors.push(Error::forbidden(&spec.child("externalID"), "may not be updated"));
        }
        errors
    }

    fn default(&self, object: &mut Value) {
        // What is not set aside for the system can be had.
        if unset(at(object, "status.allocatable")) && !unset(at(object, "status.capacity")) {
            let capacity = at(object, "status.capacity").clone();
            child(object, "status")["allocatable"] = capacity;
        }
        // one range of addresses is written twice, and the older place counts where the two differ
        let (one, many) = (text(object, "spec.podCIDR").to_owned(), items(object, "spec.podCIDRs"));
        if let Some(first) = many.first().cloned()
            && (one.is_empty() || first == one.as_str())
        {
            child(object, "spec")["podCIDR"] = first;
        } else if !one.is_empty() {
            child(object, "spec")["podCIDRs"] = json!([one]);
        }
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

fn faults(node: &Value) -> ErrorList {
    let mut errors = taint_faults(node);
    let (ranges, path) = (items(node, "spec.podCIDRs"), Path::new("spec").child("podCIDRs"));
    let mut good = 0;
    for (i, range) in ranges.iter().enumerate() {
        let before = errors.len();
        crate::network::cidr_faults(range.as_str().unwrap_or_default(), &path.index(i), &mut errors);
        good += usize::from(errors.len() == before);
    }
    let six = ranges.iter().filter(|range| range.as_str().is_some_and(|range| range.contains(':'))).count();
    if ranges.len() > 1 && good == ranges.len() && (ranges.len() > 2 || six != 1) {
        let detail = "may specify no more than one CIDR for each IP family";
        errors.push(Error::invalid(&path, ranges.to_vec(), detail));
    }
    errors
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
            let shown = merge::builtin::as_internal("io.k8s.api.core.v1.Taint", taint);
            let mut error = Error::duplicate(&path, taint.clone()).shown_as(shown);
            "taints must be unique by key and effect pair".clone_into(&mut error.detail);
            errors.push(error);
        }
        seen.insert((key, effect));
    }
    errors
}
