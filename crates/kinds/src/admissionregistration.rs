//! Kinds of admissionregistration.k8s.io: policies and their bindings, whose rules the server carries out itself, and
//! configurations of webhooks, which it stores, as their installers expect, and does not call.
//!
//! Source: `pkg/apis/admissionregistration/{v1,validation}` of Kubernetes 1.36.

mod mutating;
mod parameters;
mod rights;
mod validating;
mod webhooks;

use super::kit::{at, child, child_if, items, items_mut, map, text};
use super::podspec::label_selector;
use api::field::{Error, ErrorList, Path};
use api::names;
use merge::cel::{PolicyScope, check_policy, is_identifier};
pub use mutating::{MutatingPolicies, MutatingPolicyBindings};
use parameters::{param_kind, param_ref};
use serde_json::{Value, json};
use std::collections::BTreeSet;
pub use validating::{Policies, PolicyBindings};
pub use webhooks::{Webhooks, client_faults};

const GROUP: &str = "admissionregistration.k8s.io";

/// Faults; where there are none, those that `then` finds.
fn or_else(faults: ErrorList, then: impl FnOnce() -> ErrorList) -> ErrorList {
    if faults.is_empty() { then() } else { faults }
}

/// Sets what is absent or null. These fields are pointers to texts upstream: an empty one is there, and refused.
fn default(object: &mut Value, member: &str, value: impl Into<Value>) {
    if at(object, member).is_null() {
        map(object).insert(member.to_owned(), value.into());
    }
}

fn match_defaults(resources: &mut Value, rules: &[&str]) {
    default(resources, "matchPolicy", "Equivalent");
    for selector in ["namespaceSelector", "objectSelector"] {
        if at(resources, selector).is_null() {
            resources[selector] = json!({});
        }
    }
    for list in rules {
        for rule in items_mut(resources, list) {
            default(rule, "scope", "*");
        }
    }
}

fn optional(value: &Value, supported: &[&str], path: &Path, errors: &mut ErrorList) {
    if let Some(value) = value.as_str()
        && !supported.contains(&value)
    {
        errors.push(Error::not_supported(path, value, supported));
    }
}

/// Faults of a rule that says which requests are meant.
fn rule(rule: &Value, path: &Path, errors: &mut ErrorList) {
    let wild = |field: &str| items(rule, field).len() > 1 && items(rule, field).iter().any(|v| v == "*");
    let mut seen = BTreeSet::new();
    for (i, name) in items(rule, "resourceNames").iter().filter_map(Value::as_str).enumerate() {
        let path = path.child("resourceNames").index(i);
        for fault in names::path_segment_faults(name, false) {
            errors.push(Error::invalid(&path, name, fault));
        }
        if !seen.insert(name) {
            errors.push(Error::duplicate(&path, name));
        }
    }
    for (field, what) in [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let path = path.child(field);
        if items(rule, field).is_empty() {
            errors.push(Error::required(&path, ""));
        }
        if wild(field) {
            let detail = format!("if '*' is present, must not specify other {what}");
            errors.push(Error::invalid(&path, items(rule, field).to_vec(), detail));
        }
    }
    for (i, operation) in items(rule, "operations").iter().enumerate() {
        let supported = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
        optional(operation, &supported, &path.child("operations").index(i), errors);
    }
    for (i, version) in items(rule, "apiVersions").iter().enumerate() {
        if version == "" {
            errors.push(Error::required(&path.child("apiVersions").index(i), ""));
        }
    }
    rule_resources(items(rule, "resources"), &path.child("resources"), errors);
    optional(at(rule, "scope"), &["*", "Cluster", "Namespaced"], &path.child("scope"), errors);
}

/// Faults of the resources that a rule names: `pods`, `pods/log`, with `*` for either part.
fn rule_resources(resources: &[Value], path: &Path, errors: &mut ErrorList) {
    if resources.is_empty() {
        errors.push(Error::required(path, ""));
    }
    // of which resource all subresources were named, and which subresource of all
    let (mut all_of, mut of_all) = (BTreeSet::new(), BTreeSet::new());
    let mut last_is_whole = false;
    for (i, named) in resources.iter().filter_map(Value::as_str).enumerate() {
        let path = path.index(i);
        if named.is_empty() {
            errors.push(Error::required(&path, ""));
            continue;
        }
        let Some((resource, sub)) = named.split_once('/') else {
            last_is_whole = named != "*";
            continue;
        };
        if all_of.contains(resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {named}");
            errors.push(Error::invalid(&path, named, detail));
        }
        if of_all.contains(sub) {
            let detail = format!("if '*/{sub}' is present, must not specify {named}");
            errors.push(Error::invalid(&path, named, detail));
        }
        if sub == "*" {
            all_of.insert(resource);
        }
        if resource == "*" {
            of_all.insert(sub);
        }
    }
    if resources.iter().any(|r| r == "*/*") && resources.len() > 1 {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(Error::invalid(path, resources.to_vec(), detail));
    }
    // upstream remembers this of the last one alone
    if resources.iter().any(|r| r == "*") && last_is_whole {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(Error::invalid(path, resources.to_vec(), detail));
    }
}

fn match_resources(resources: &Value, path: &Path, errors: &mut ErrorList) {
    for selector in ["namespaceSelector", "objectSelector"] {
        errors.extend(label_selector(at(resources, selector), &path.child(selector)));
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for (i, item) in items(resources, list).iter().enumerate() {
            rule(item, &path.child(list).index(i), errors);
        }
    }
    optional(at(resources, "matchPolicy"), &["Equivalent", "Exact"], &path.child("matchPolicy"), errors);
}

/// Why an expression is none that a policy can use; it must yield one of these types.
fn expression(source: &str, scope: PolicyScope<'_>, wanted: &[&str]) -> Option<String> {
    let yields = match check_policy(source, scope) {
        Ok(yields) if yields.ty == "null" => "null_type".to_owned(),
        Ok(yields) => yields.ty,
        Err(why) => return Some(format!("compilation failed: {why}")),
    };
    match wanted {
        [only] if yields != *only => Some(format!("must evaluate to {only} but got {yields}")),
        [_, _, ..] if !wanted.contains(&yields.as_str()) => {
            Some(format!("must evaluate to one of [{}] but got {yields}", wanted.join(" ")))
        }
        _ => None,
    }
}

/// Conditions of a policy or a webhook, at most.
const CONDITIONS_MAX: usize = 64;

fn conditions(object: &Value, path: &Path, params: bool, errors: &mut ErrorList) {
    let scope = PolicyScope { params, authorizer: true, variables: None, patch: false };
    let conditions = items(object, "matchConditions");
    if conditions.len() > CONDITIONS_MAX {
        errors.push(Error::too_many(&path.child("matchConditions"), conditions.len(), CONDITIONS_MAX));
    }
    let mut seen = BTreeSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let path = path.child("matchConditions").index(i);
        let (name, source) = (text(condition, "name"), text(condition, "expression").trim());
        if source.is_empty() {
            errors.push(Error::required(&path.child("expression"), ""));
        } else if let Some(why) = expression(source, scope, &["bool"]) {
            errors.push(Error::invalid(&path.child("expression"), source, why));
        }
        if name.is_empty() {
            errors.push(Error::required(&path.child("name"), ""));
        } else {
            for fault in names::qualified_name_faults(name) {
                errors.push(Error::invalid(&path.child("name"), name, fault));
            }
            if !seen.insert(name) {
                errors.push(Error::duplicate(&path.child("name"), name));
            }
        }
    }
}

/// Names that end like this are kept for policies that come from files.
const RESERVED_SUFFIX: &str = ".static.k8s.io";

/// The warning about a name that will be refused one day.
fn reserved_name(object: &Value) -> Vec<String> {
    if !text(object, "metadata.name").ends_with(RESERVED_SUFFIX) {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: names ending with {RESERVED_SUFFIX:?} are reserved for static manifest-based configurations and \
         cannot be managed via the API"
    )]
}

/// Faults of what all policies have. `old`: the policy that is replaced; conditions that mean the same as before are not looked
/// at. `operations`: those that its rules may name, where they may not name all. Returns the names of its variables, with the
/// names of their types.
fn policy_faults<'a>(
    spec: &'a Value,
    old: Option<&Value>,
    path: &Path,
    operations: Option<&[&str]>,
    errors: &mut ErrorList,
) -> Vec<(&'a str, String)> {
    optional(at(spec, "failurePolicy"), &["Fail", "Ignore"], &path.child("failurePolicy"), errors);
    param_kind(at(spec, "paramKind"), &path.child("paramKind"), errors);
    let constraints = at(spec, "matchConstraints");
    let at_constraints = path.child("matchConstraints");
    if constraints.is_null() {
        errors.push(Error::required(&at_constraints, ""));
    } else {
        match_resources(constraints, &at_constraints, errors);
        if items(constraints, "resourceRules").is_empty() {
            errors.push(Error::required(&at_constraints.child("resourceRules"), ""));
        }
        only_operations(constraints, operations, &at_constraints, errors);
    }
    let params = at(spec, "paramKind").is_object();
    let same = |old: &Value, member| at(at(old, "spec"), member) == at(spec, member);
    if !old.is_some_and(|old| ["paramKind", "matchConditions"].into_iter().all(|member| same(old, member))) {
        conditions(spec, path, params, errors);
    }
    let variables = items(spec, "variables");
    // a variable is of the type that its expression yields
    let mut typed: Vec<(&str, String)> = Vec::with_capacity(variables.len());
    for (i, variable) in variables.iter().enumerate() {
        let path = path.child("variables").index(i);
        let (name, source) = (text(variable, "name"), text(variable, "expression"));
        if name.trim().is_empty() {
            errors.push(Error::required(&path.child("name"), "name is not specified"));
        } else if !is_identifier(name) {
            errors.push(Error::invalid(&path.child("name"), name, "must be a valid CEL identifier"));
        }
        let declared: Vec<(&str, &str)> = typed.iter().map(|(name, ty)| (*name, ty.as_str())).collect();
        let scope = PolicyScope { params, authorizer: true, variables: Some(&declared), patch: false };
        let mut yields = "dyn".to_owned();
        if source.trim().is_empty() {
            errors.push(Error::required(&path.child("expression"), "expression is not specified"));
            // there is nothing that others could use
            continue;
        } else {
            match check_policy(source, scope) {
                Ok(found) => yields = found.ty,
                Err(why) => {
                    let why = format!("compilation failed: {why}");
                    errors.push(Error::invalid(&path.child("expression"), source, why));
                }
            }
        }
        typed.push((name, yields));
    }
    typed
}

/// Faults of the operations that rules name, where they may not name all.
fn only_operations(resources: &Value, operations: Option<&[&str]>, path: &Path, errors: &mut ErrorList) {
    let Some(supported) = operations else { return };
    for operation in items(resources, "resourceRules").iter().flat_map(|rule| items(rule, "operations")) {
        optional(operation, supported, &path.child("resourceRules").child("operations"), errors);
    }
}

/// Faults of what all bindings have. `operations`: those that its rules may name, where they may not name all.
fn binding_faults(spec: &Value, path: &Path, operations: Option<&[&str]>, errors: &mut ErrorList) {
    let name = text(spec, "policyName");
    if name.is_empty() {
        errors.push(Error::required(&path.child("policyName"), ""));
    } else {
        for fault in names::subdomain_faults(name, false) {
            errors.push(Error::invalid(&path.child("policyName"), name, fault));
        }
    }
    param_ref(at(spec, "paramRef"), &path.child("paramRef"), errors);
    let (resources, at_resources) = (at(spec, "matchResources"), path.child("matchResources"));
    match_resources(resources, &at_resources, errors);
    only_operations(resources, operations, &at_resources, errors);
}

/// What a policy that says nothing else is given.
fn policy_defaults(object: &mut Value) {
    let spec = child(object, "spec");
    default(spec, "failurePolicy", "Fail");
    if let Some(constraints) = child_if(spec, "matchConstraints") {
        match_defaults(constraints, &["resourceRules", "excludeResourceRules"]);
    }
}

/// What a binding that says nothing else is given.
fn binding_defaults(object: &mut Value) {
    if let Some(resources) = child_if(child(object, "spec"), "matchResources") {
        match_defaults(resources, &["resourceRules", "excludeResourceRules"]);
    }
}
