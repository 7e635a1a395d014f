//! Validation of what steers a pod to a node: tolerations, affinity, spread; and of label selectors.

use super::validate::{choice, labels};
use crate::kit::{at, int, items, text};
use api::field::{Error, ErrorList, Path};
use api::names;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

fn qualified(key: &str, path: &Path, errors: &mut ErrorList) {
    errors.extend(names::qualified_name_faults(key).into_iter().map(|fault| Error::invalid(path, key, fault)));
}

/// Tolerations of taints.
pub fn tolerations(tolerations: &[Value], path: &Path, errors: &mut ErrorList) {
    for (i, toleration) in tolerations.iter().enumerate() {
        let path = path.index(i);
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
        if !key.is_empty() {
            qualified(key, &path.child("key"), errors);
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(Error::invalid(&path.child("operator"), operator, detail));
        }
        if int(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(Error::invalid(&path.child("effect"), effect, detail));
        }
        match operator {
            "" | "Equal" => {
                let faults = names::label_value_faults(value);
                if !faults.is_empty() {
                    errors.push(Error::invalid(&path.child("operator"), value, faults.join(";")));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    errors.push(Error::invalid(&path.child("operator"), value, detail));
                }
            }
            "Lt" | "Gt" => {
                let supported = ["Equal", "Exists", "Lt", "Gt"];
                errors.push(Error::not_supported(&path.child("operator"), operator, &supported));
            }
            other => errors.push(Error::not_supported(&path.child("operator"), other, &["Equal", "Exists"])),
        }
        if !effect.is_empty() {
            choice(effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"], &path.child("effect"), errors);
        }
    }
}

/// A label selector; null is a good one.
pub fn label_selector(selector: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    if selector.is_null() {
        return errors;
    }
    labels(at(selector, "matchLabels"), &path.child("matchLabels"), &mut errors);
    for (i, expression) in items(selector, "matchExpressions").iter().enumerate() {
        let path = path.child("matchExpressions").index(i);
        let values = items(expression, "values");
        match text(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(Error::required(&path.child("values"), detail));
            }
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    errors.push(Error::forbidden(&path.child("values"), detail));
                }
            }
            other => errors.push(Error::invalid(&path.child("operator"), other, "not a valid selector operator")),
        }
        qualified(text(expression, "key"), &path.child("key"), &mut errors);
        for (j, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            for fault in names::label_value_faults(value) {
                errors.push(Error::invalid(&path.child("values").index(j), value, fault));
            }
        }
    }
    errors
}

fn node_expressions(term: &Value, path: &Path, errors: &mut ErrorList) {
    for (i, requirement) in items(term, "matchExpressions").iter().enumerate() {
        let path = path.child("matchExpressions").index(i);
        let values = items(requirement, "values");
        match text(requirement, "operator") {
            "In" | "NotIn" => {
                if values.is_empty() {
                    let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                    errors.push(Error::required(&path.child("values"), detail));
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    errors.push(Error::forbidden(&path.child("values"), detail));
                }
            }
            "Gt" | "Lt" => {
                if values.len() != 1 {
                    let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                    errors.push(Error::required(&path.child("values"), detail));
                }
            }
            other => errors.push(Error::invalid(&path.child("operator"), other, "not a valid selector operator")),
        }
        qualified(text(requirement, "key"), &path.child("key"), errors);
        for (j, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            for fault in names::label_value_faults(value) {
                errors.push(Error::invalid(&path.child("values").index(j), value, fault));
            }
        }
    }
    for (i, requirement) in items(term, "matchFields").iter().enumerate() {
        let path = path.child("matchFields").index(i);
        let values = items(requirement, "values");
        match text(requirement, "operator") {
            "In" | "NotIn" => {
                if values.len() != 1 {
                    let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                    errors.push(Error::required(&path.child("values"), detail));
                }
            }
            other => errors.push(Error::invalid(&path.child("operator"), other, "not a valid selector operator")),
        }
        let key = text(requirement, "key");
        if key != "metadata.name" {
            errors.push(Error::invalid(&path.child("key"), key, "not a valid field selector key"));
        }
    }
}

fn weight(term: &Value, path: &Path, errors: &mut ErrorList) {
    let weight = int(term, "weight").unwrap_or_default();
    if !(1..=100).contains(&weight) {
        errors.push(Error::invalid(&path.child("weight"), weight, "must be in the range 1-100"));
    }
}

fn pod_term(term: &Value, path: &Path, errors: &mut ErrorList) {
    errors.extend(label_selector(at(term, "labelSelector"), &path.child("labelSelector")));
    errors.extend(label_selector(at(term, "namespaceSelector"), &path.child("namespaceSelector")));
    for namespace in items(term, "namespaces") {
        let name = namespace.as_str().unwrap_or_default();
        for fault in names::label_faults(name, false) {
            errors.push(Error::invalid(&path.child("namespace"), name, fault));
        }
    }
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.push(Error::required(&path.child("topologyKey"), "can not be empty"));
    }
    qualified(key, &path.child("topologyKey"), errors);
    label_keys(term, path, errors);
}

/// Keys of labels by which pods like this one are selected, or others.
fn label_keys(term: &Value, path: &Path, errors: &mut ErrorList) {
    let selector = at(term, "labelSelector");
    for list in ["matchLabelKeys", "mismatchLabelKeys"] {
        let (keys, path) = (items(term, list), path.child(list));
        if !keys.is_empty() && selector.is_null() {
            errors.push(Error::forbidden(&path, "must not be specified when labelSelector is not set"));
            continue;
        }
        for (i, key) in keys.iter().enumerate() {
            qualified(key.as_str().unwrap_or_default(), &path.index(i), errors);
        }
    }
    let keys = items(term, "matchLabelKeys");
    let mut seen: BTreeSet<&str> =
        at(selector, "matchLabels").as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    for key in items(selector, "matchExpressions").iter().map(|expression| text(expression, "key")) {
        // what was made of the keys themselves is there once
        if !seen.insert(key)
            && let Some(i) = keys.iter().rposition(|other| other == key)
        {
            errors.push(Error::invalid(&path.index(i), key, "exists in both matchLabelKeys and labelSelector"));
        }
    }
    for (i, key) in keys.iter().enumerate() {
        if items(term, "mismatchLabelKeys").contains(key) {
            let path = path.child("matchLabelKeys").index(i);
            errors.push(Error::invalid(&path, key.clone(), "exists in both matchLabelKeys and mismatchLabelKeys"));
        }
    }
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// A selector of nodes.
pub fn node_selector(selector: &Value, path: &Path, errors: &mut ErrorList) {
    let path = path.child("nodeSelectorTerms");
    let terms = items(selector, "nodeSelectorTerms");
    if terms.is_empty() {
        errors.push(Error::required(&path, "must have at least one node selector term"));
    }
    for (i, term) in terms.iter().enumerate() {
        node_expressions(term, &path.index(i), errors);
    }
}

/// Node and pod affinity; null is good.
pub fn affinity(affinity: &Value, path: &Path, errors: &mut ErrorList) {
    let node = at(affinity, "nodeAffinity");
    let node_path = path.child("nodeAffinity");
    let required = at(node, REQUIRED);
    if !required.is_null() {
        node_selector(required, &node_path.child(REQUIRED), errors);
    }
    for (i, term) in items(node, PREFERRED).iter().enumerate() {
        let path = node_path.child(PREFERRED).index(i);
        weight(term, &path, errors);
        node_expressions(at(term, "preference"), &path.child("preference"), errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let path = path.child(kind);
        let affinity = at(affinity, kind);
        for (i, term) in items(affinity, REQUIRED).iter().enumerate() {
            pod_term(term, &path.child(REQUIRED).index(i), errors);
        }
        for (i, term) in items(affinity, PREFERRED).iter().enumerate() {
            let path = path.child(PREFERRED).index(i);
            weight(term, &path, errors);
            pod_term(at(term, "podAffinityTerm"), &path.child("podAffinityTerm"), errors);
        }
    }
}

/// Spread over topology domains.
pub fn topology_spread(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let constraints = items(spec, "topologySpreadConstraints");
    let pair = |constraint| (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
    let last: BTreeMap<(&str, &str), usize> = constraints.iter().enumerate().map(|(i, one)| (pair(one), i)).collect();
    for (i, constraint) in constraints.iter().enumerate() {
        let path = path.index(i);
        let skew = int(constraint, "maxSkew").unwrap_or_default();
        if skew <= 0 {
            errors.push(Error::invalid(&path.child("maxSkew"), skew, "must be greater than zero"));
        }
        let key = text(constraint, "topologyKey");
        // any text will do
        if key.is_empty() {
            errors.push(Error::required(&path.child("topologyKey"), "can not be empty"));
        }
        let unsatisfiable = text(constraint, "whenUnsatisfiable");
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&unsatisfiable) {
            errors.push(Error::not_supported(
                &path.child("whenUnsatisfiable"),
                unsatisfiable,
                &["DoNotSchedule", "ScheduleAnyway"],
            ));
        }
        // each is told that comes again
        if last.get(&(key, unsatisfiable)).is_some_and(|last| *last > i) {
            let pair = format!("{{{key}, {unsatisfiable}}}");
            errors.push(Error::duplicate(&path.child("{topologyKey, whenUnsatisfiable}"), pair));
        }
        if let Some(domains) = int(constraint, "minDomains") {
            if domains <= 0 {
                errors.push(Error::invalid(&path.child("minDomains"), domains, "must be greater than zero"));
            }
            if unsatisfiable != "DoNotSchedule" {
                let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {unsatisfiable}");
                errors.push(Error::invalid(&path.child("minDomains"), domains, detail));
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            let value = at(constraint, policy);
            if let Some(value) = value.as_str()
                && !["Honor", "Ignore"].contains(&value)
            {
                errors.push(Error::not_supported(&path.child(policy), value, &["Honor", "Ignore"]));
            }
        }
        label_keys(constraint, &path, errors);
        errors.extend(label_selector(at(constraint, "labelSelector"), &path.child("labelSelector")));
    }
}
