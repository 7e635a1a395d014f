//! Parameters of policies: their kind, and which objects of it a binding takes.

use crate::kit::{at, items, members, text};
use crate::podspec::label_selector;
use api::field::{Error, ErrorList, Path};
use api::names;
use serde_json::Value;
use std::collections::BTreeMap;

/// A kind that parameters have.
pub(super) fn param_kind(kind: &Value, path: &Path, errors: &mut ErrorList) {
    if kind.is_null() {
        return;
    }
    let (written, at_version) = (text(kind, "apiVersion"), path.child("apiVersion"));
    if written.is_empty() {
        errors.push(Error::required(&at_version, ""));
    } else if written.matches('/').count() > 1 {
        errors.push(Error::invalid(&at_version, written, format!("unexpected GroupVersion string: {written}")));
    } else {
        let (group, version) = written.split_once('/').unwrap_or(("", written));
        let faults = if group.is_empty() { Vec::new() } else { names::subdomain_faults(group, false) };
        if !faults.is_empty() {
            errors.push(Error::invalid(&at_version, group, faults.join(",")));
        }
        let faults = names::dns1035_faults(version, false);
        if version.is_empty() {
            errors.push(Error::invalid(&at_version, written, "version must be specified"));
        } else if !faults.is_empty() {
            errors.push(Error::invalid(&at_version, version, faults.join(",")));
        }
    }
    let name = text(kind, "kind");
    let faults = names::dns1035_faults(&name.to_lowercase(), false);
    if name.is_empty() {
        errors.push(Error::required(&path.child("kind"), ""));
    } else if !faults.is_empty() {
        let why = format!("may have mixed case, but should otherwise match: {}", faults.join(","));
        errors.push(Error::invalid(&path.child("kind"), name, why));
    }
}

/// Which objects are parameters.
pub(super) fn param_ref(reference: &Value, path: &Path, errors: &mut ErrorList) {
    if reference.is_null() {
        return;
    }
    let (name, selector) = (text(reference, "name"), at(reference, "selector"));
    for fault in names::path_segment_faults(name, false) {
        errors.push(Error::invalid(&path.child("name"), name, fault));
    }
    errors.extend(label_selector(selector, &path.child("selector")));
    match (name.is_empty(), selector.is_null()) {
        (true, true) => errors.push(Error::required(path, "one of name or selector must be specified")),
        (false, false) => {
            for field in ["name", "selector"] {
                errors.push(Error::forbidden(&path.child(field), "name and selector are mutually exclusive"));
            }
        }
        _ => {}
    }
    let action = text(reference, "parameterNotFoundAction");
    if action.is_empty() {
        errors.push(Error::required(&path.child("parameterNotFoundAction"), ""));
    } else if !["Allow", "Deny"].contains(&action) {
        let at_action = path.child("parameterNotFoundAction");
        errors.push(Error::not_supported(&at_action, action, &["Deny", "Allow"]));
    }
}

/// The kind of a policy's parameters, as tables show it.
pub(super) fn param_kind_cell(policy: &Value) -> String {
    match text(policy, "spec.paramKind.kind") {
        "" => "<unset>".to_owned(),
        kind => format!("{}/{kind}", text(policy, "spec.paramKind.apiVersion")),
    }
}

/// The parameters of a binding, as tables show them.
pub(super) fn param_ref_cell(binding: &Value) -> String {
    let reference = at(binding, "spec.paramRef");
    let selector = at(reference, "selector");
    match (text(reference, "namespace"), text(reference, "name")) {
        _ if reference.is_null() => "<unset>".to_owned(),
        (_, "") => selector_text(selector),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// A label selector as Go prints it.
fn selector_text(selector: &Value) -> String {
    let labels: BTreeMap<&str, &str> = members(selector, "matchLabels")
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
        .collect();
    let labels: String = labels.iter().map(|(key, value)| format!("{key}: {value},")).collect();
    let one = |requirement: &Value| {
        let values: Vec<&str> = items(requirement, "values").iter().filter_map(Value::as_str).collect();
        let (key, operator) = (text(requirement, "key"), text(requirement, "operator"));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},", values.join(" "))
    };
    let requirements: String = items(selector, "matchExpressions").iter().map(one).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{requirements}}},}}"
    )
}
