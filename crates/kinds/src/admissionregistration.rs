//! Kinds of admissionregistration.k8s.io: policies and their bindings, whose rules the server carries out itself, and
//! configurations of webhooks, which it stores, as their installers expect, and does not call.
//!
//! Source: `pkg/apis/admissionregistration/{v1,validation}` of Kubernetes 1.36.

use super::kit::{age, at, child, child_if, default, int, items, items_mut, keep, text};
use super::podspec::label_selector;
use api::field::{Error, ErrorList, Path};
use api::names;
use jiff::Timestamp;
use merge::cel::{PolicyScope, check_policy, is_identifier};
use resource::{Context, Strategy};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The kind `ValidatingAdmissionPolicy`.
pub struct Policies;

/// The kind `ValidatingAdmissionPolicyBinding`.
pub struct PolicyBindings;

/// The kinds `ValidatingWebhookConfiguration` and `MutatingWebhookConfiguration`.
pub struct Webhooks {
    pub mutating: bool,
}

/// Audit annotations of a policy, at most.
const ANNOTATIONS_MAX: usize = 20;

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
    let resources = items(rule, "resources");
    let at_resources = path.child("resources");
    if resources.is_empty() {
        errors.push(Error::required(&at_resources, ""));
    }
    for (i, name) in items(rule, "resourceNames").iter().filter_map(Value::as_str).enumerate() {
        for fault in names::path_segment_faults(name, false) {
            errors.push(Error::invalid(&path.child("resourceNames").index(i), name, fault));
        }
    }
    let plain = resources.iter().filter(|r| r.as_str().is_some_and(|r| !r.contains('/'))).count();
    if resources.iter().any(|r| r == "*/*") && resources.len() > 1 {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(Error::invalid(&at_resources, resources.to_vec(), detail));
    }
    if resources.iter().any(|r| r == "*") && plain > 1 {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(Error::invalid(&at_resources, resources.to_vec(), detail));
    }
    optional(at(rule, "scope"), &["*", "Cluster", "Namespaced"], &path.child("scope"), errors);
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
        Ok(yields) if yields == "null" => "null_type".to_owned(),
        Ok(yields) => yields,
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

/// A kind that parameters have.
fn param_kind(kind: &Value, path: &Path, errors: &mut ErrorList) {
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

/// What a policy adds to the audit log.
fn annotations(policy: &Value, scope: PolicyScope<'_>, path: &Path, errors: &mut ErrorList) {
    let path = path.child("auditAnnotations");
    let own = text(policy, "metadata.name");
    let annotations = items(policy, "spec.auditAnnotations");
    if annotations.len() > ANNOTATIONS_MAX {
        let why = format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations");
        errors.push(Error::invalid(&path, annotations.to_vec(), why));
    }
    for (i, annotation) in annotations.iter().enumerate() {
        let path = path.index(i);
        let (key, source) = (text(annotation, "key"), text(annotation, "valueExpression"));
        let full = format!("{own}/{key}");
        for fault in names::qualified_name_faults(&full) {
            errors.push(Error::invalid(&path.child("key"), full.as_str(), fault));
        }
        let at_value = path.child("valueExpression");
        if source.trim().is_empty() {
            errors.push(Error::required(&at_value, "valueExpression is not specified"));
        } else if let Some(why) = expression(source, scope, &["string", "null_type"]) {
            errors.push(Error::invalid(&at_value, source, why));
        }
        if annotations[..i].iter().any(|other| text(other, "key") == key) {
            errors.push(Error::duplicate(&path.child("key"), key));
        }
    }
}

fn conditions(object: &Value, path: &Path, params: bool, errors: &mut ErrorList) {
    let scope = PolicyScope { params, authorizer: true, variables: None };
    for (i, condition) in items(object, "matchConditions").iter().enumerate() {
        let path = path.child("matchConditions").index(i);
        let (name, source) = (text(condition, "name"), text(condition, "expression"));
        if source.trim().is_empty() {
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
        }
    }
}

impl Policies {
    fn faults(policy: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        let spec = at(policy, "spec");
        optional(at(spec, "failurePolicy"), &["Fail", "Ignore"], &path.child("failurePolicy"), &mut errors);
        param_kind(at(spec, "paramKind"), &path.child("paramKind"), &mut errors);
        let constraints = at(spec, "matchConstraints");
        let at_constraints = path.child("matchConstraints");
        if constraints.is_null() {
            errors.push(Error::required(&at_constraints, ""));
        } else {
            match_resources(constraints, &at_constraints, &mut errors);
            if items(constraints, "resourceRules").is_empty() {
                errors.push(Error::required(&at_constraints.child("resourceRules"), ""));
            }
        }
        let params = at(spec, "paramKind").is_object();
        conditions(spec, &path, params, &mut errors);
        let variables = items(spec, "variables");
        // a variable is of the type that its expression yields
        let mut typed: Vec<(&str, String)> = Vec::with_capacity(variables.len());
        for (i, variable) in variables.iter().enumerate() {
            let path = path.child("variables").index(i);
            let (name, source) = (text(variable, "name"), text(variable, "expression"));
            if name.is_empty() {
                errors.push(Error::required(&path.child("name"), "name is not specified"));
            } else if !is_identifier(name) {
                errors.push(Error::invalid(&path.child("name"), name, "must be a valid CEL identifier"));
            }
            let declared: Vec<(&str, &str)> = typed.iter().map(|(name, ty)| (*name, ty.as_str())).collect();
            let scope = PolicyScope { params, authorizer: true, variables: Some(&declared) };
            let mut yields = "dyn".to_owned();
            if source.trim().is_empty() {
                errors.push(Error::required(&path.child("expression"), "expression is not specified"));
            } else {
                match check_policy(source, scope) {
                    Ok(ty) => yields = ty,
                    Err(why) => {
                        let why = format!("compilation failed: {why}");
                        errors.push(Error::invalid(&path.child("expression"), source, why));
                    }
                }
            }
            typed.push((name, yields));
        }
        let declared: Vec<(&str, &str)> = typed.iter().map(|(name, ty)| (*name, ty.as_str())).collect();
        let scope = PolicyScope { params, authorizer: true, variables: Some(&declared) };
        let (validations, annotations) = (items(spec, "validations"), items(spec, "auditAnnotations"));
        if validations.is_empty() && annotations.is_empty() {
            let detail = "validations or auditAnnotations must contain at least one item";
            errors.push(Error::required(&path.child("validations"), detail));
            errors.push(Error::required(&path.child("auditAnnotations"), detail));
        }
        for (i, validation) in validations.iter().enumerate() {
            let path = path.child("validations").index(i);
            let source = text(validation, "expression");
            if source.trim().is_empty() {
                errors.push(Error::required(&path.child("expression"), "expression is not specified"));
            } else if let Some(why) = expression(source, scope, &["bool"]) {
                errors.push(Error::invalid(&path.child("expression"), source, why));
            }
            let shown = text(validation, "messageExpression");
            if !shown.is_empty() && shown.trim().is_empty() {
                let detail = "must be non-empty if specified";
                errors.push(Error::invalid(&path.child("messageExpression"), shown, detail));
            } else if !shown.is_empty()
                && let Some(why) = expression(shown, PolicyScope { authorizer: false, ..scope }, &["string"])
            {
                errors.push(Error::invalid(&path.child("messageExpression"), shown, why));
            }
            let message = text(validation, "message");
            if !message.is_empty() && message.trim().is_empty() {
                let detail = "must be non-empty if specified";
                errors.push(Error::invalid(&path.child("message"), message, detail));
            } else if message.trim().contains(['\n', '\r']) {
                errors.push(Error::invalid(&path.child("message"), message, "must not contain line breaks"));
            }
            let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
            optional(at(validation, "reason"), &reasons, &path.child("reason"), &mut errors);
        }
        self::annotations(policy, scope, &path, &mut errors);
        errors
    }
}

impl Strategy for Policies {
    fn qualified_finalizers(&self) -> bool {
        false
    }

    fn unconditional_update(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        let spec = child(object, "spec");
        default(spec, "failurePolicy", "Fail");
        if let Some(constraints) = child_if(spec, "matchConstraints") {
            match_defaults(constraints, &["resourceRules", "excludeResourceRules"]);
        }
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        new["status"] = json!({});
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        keep(new, old, "status");
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        Self::faults(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        Self::faults(new)
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let parameter = match text(object, "spec.paramKind.kind") {
            "" => "<unset>".to_owned(),
            kind => format!("{}/{kind}", text(object, "spec.paramKind.apiVersion")),
        };
        vec![
            json!(text(object, "metadata.name")),
            json!(items(object, "spec.validations").len()),
            json!(parameter),
            age(object, now),
        ]
    }
}

impl PolicyBindings {
    fn faults(binding: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        let spec = at(binding, "spec");
        let name = text(spec, "policyName");
        if name.is_empty() {
            errors.push(Error::required(&path.child("policyName"), ""));
        } else {
            for fault in names::subdomain_faults(name, false) {
                errors.push(Error::invalid(&path.child("policyName"), name, fault));
            }
        }
        let reference = at(spec, "paramRef");
        if !reference.is_null() {
            let path = path.child("paramRef");
            let (name, selector) = (text(reference, "name"), at(reference, "selector"));
            for fault in names::path_segment_faults(name, false) {
                errors.push(Error::invalid(&path.child("name"), name, fault));
            }
            errors.extend(label_selector(selector, &path.child("selector")));
            match (name.is_empty(), selector.is_null()) {
                (true, true) => errors.push(Error::required(&path, "one of name or selector must be specified")),
                (false, false) => {
                    for field in ["name", "selector"] {
                        let detail = "name and selector are mutually exclusive";
                        errors.push(Error::forbidden(&path.child(field), detail));
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
        match_resources(at(spec, "matchResources"), &path.child("matchResources"), &mut errors);
        let actions = items(spec, "validationActions");
        let at_actions = path.child("validationActions");
        if actions.is_empty() {
            errors.push(Error::required(&at_actions, "at least one validation action is required"));
        }
        for (i, action) in actions.iter().enumerate() {
            optional(action, &["Audit", "Deny", "Warn"], &at_actions.index(i), &mut errors);
            if actions[..i].contains(action) {
                errors.push(Error::duplicate(&at_actions.index(i), action.clone()));
            }
        }
        let has = |name: &str| actions.iter().any(|a| a == name);
        if has("Deny") && has("Warn") {
            let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the \
                          API response and headers serves no purpose)";
            errors.push(Error::invalid(&at_actions, actions.to_vec(), detail));
        }
        errors
    }
}

impl Strategy for PolicyBindings {
    fn qualified_finalizers(&self) -> bool {
        false
    }

    fn unconditional_update(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        if let Some(resources) = child_if(child(object, "spec"), "matchResources") {
            match_defaults(resources, &["resourceRules", "excludeResourceRules"]);
        }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        Self::faults(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        Self::faults(new)
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let reference = at(object, "spec.paramRef");
        let parameter = match (text(reference, "namespace"), text(reference, "name")) {
            _ if reference.is_null() => "<unset>".to_owned(),
            (_, "") => String::new(),
            ("", name) => format!("*/{name}"),
            (namespace, name) => format!("{namespace}/{name}"),
        };
        vec![
            json!(text(object, "metadata.name")),
            json!(text(object, "spec.policyName")),
            json!(parameter),
            age(object, now),
        ]
    }
}

/// What is wrong with where a webhook is (`k8s.io/apiserver/pkg/util/webhook`).
pub fn client_faults(client: &Value, path: &Path, errors: &mut ErrorList) {
    match (at(client, "url").as_str(), at(client, "service")) {
        (None, Value::Null) | (Some(_), Value::Object(_)) => {
            errors.push(Error::required(path, "exactly one of url or service is required"));
        }
        (Some(url), _) => url_faults(url, &path.child("url"), errors),
        (None, service) => {
            let path = path.child("service");
            for field in ["name", "namespace"] {
                if text(service, field).is_empty() {
                    errors.push(Error::required(&path.child(field), format!("service {field} is required")));
                }
            }
            let port = int(service, "port").unwrap_or(443);
            if !(1..=65535).contains(&port) {
                let why = "port is not valid: must be between 1 and 65535, inclusive";
                errors.push(Error::invalid(&path.child("port"), port, why));
            }
        }
    }
}

fn url_faults(url: &str, path: &Path, errors: &mut ErrorList) {
    let Some((scheme, rest)) = url.split_once("://") else {
        let detail = "must be a valid URL: desired format: https://host[/path]";
        errors.push(Error::invalid(path, url, detail));
        return;
    };
    let form = "desired format: https://host[/path]";
    if scheme != "https" {
        errors.push(Error::invalid(path, scheme, format!("'https' is the only allowed URL scheme; {form}")));
    }
    if rest.split('/').next().unwrap_or_default().is_empty() {
        errors.push(Error::invalid(path, "", format!("host must be specified; {form}")));
    }
    for (mark, what) in [('#', "fragments"), ('?', "query parameters")] {
        if let Some((_, part)) = url.split_once(mark) {
            let detail = format!("{what} are not permitted in the URL");
            errors.push(Error::invalid(path, part, detail));
        }
    }
}

impl Webhooks {
    fn faults(&self, configuration: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for (i, hook) in items(configuration, "webhooks").iter().enumerate() {
            let path = Path::new("webhooks").index(i);
            self.hook(hook, &path, &mut errors);
            let name = text(hook, "name");
            if seen.contains(&name) {
                errors.push(Error::duplicate(&path.child("name"), name));
            }
            seen.insert(name);
        }
        errors
    }

    fn hook(&self, hook: &Value, path: &Path, errors: &mut ErrorList) {
        let at_name = path.child("name");
        let name = text(hook, "name");
        let faults = names::subdomain_faults(name, false);
        if name.is_empty() {
            errors.push(Error::required(&at_name, ""));
        } else if !faults.is_empty() {
            errors.push(Error::invalid(&at_name, name, faults.join(",")));
        } else if name.split('.').count() < 3 {
            let detail = "should be a domain with at least three segments separated by dots";
            errors.push(Error::invalid(&at_name, name, detail));
        }
        for (i, item) in items(hook, "rules").iter().enumerate() {
            rule(item, &path.child("rules").index(i), errors);
        }
        optional(at(hook, "failurePolicy"), &["Fail", "Ignore"], &path.child("failurePolicy"), errors);
        optional(at(hook, "matchPolicy"), &["Equivalent", "Exact"], &path.child("matchPolicy"), errors);
        let effects = at(hook, "sideEffects");
        if effects.is_null() {
            errors.push(Error::required(&path.child("sideEffects"), "must specify one of None, NoneOnDryRun"));
        }
        optional(effects, &["None", "NoneOnDryRun"], &path.child("sideEffects"), errors);
        if let Some(seconds) = int(hook, "timeoutSeconds")
            && !(1..=30).contains(&seconds)
        {
            let detail = "the timeout value must be between 1 and 30 seconds";
            errors.push(Error::invalid(&path.child("timeoutSeconds"), seconds, detail));
        }
        for selector in ["namespaceSelector", "objectSelector"] {
            errors.extend(label_selector(at(hook, selector), &path.child(selector)));
        }
        if self.mutating {
            let at_policy = path.child("reinvocationPolicy");
            optional(at(hook, "reinvocationPolicy"), &["IfNeeded", "Never"], &at_policy, errors);
        }
        let at_client = path.child("clientConfig");
        client_faults(at(hook, "clientConfig"), &at_client, errors);
        let versions = items(hook, "admissionReviewVersions");
        let at_versions = path.child("admissionReviewVersions");
        if versions.is_empty() {
            errors.push(Error::required(&at_versions, "must specify one of v1, v1beta1"));
        } else if !versions.iter().any(|v| v == "v1" || v == "v1beta1") {
            let detail = "must include at least one of v1, v1beta1";
            errors.push(Error::invalid(&at_versions, versions.to_vec(), detail));
        }
        for (i, version) in versions.iter().filter_map(Value::as_str).enumerate() {
            for fault in api::names::dns1035_faults(version, false) {
                errors.push(Error::invalid(&at_versions.index(i), version, fault));
            }
        }
        conditions(hook, path, false, errors);
    }
}

impl Strategy for Webhooks {
    fn qualified_finalizers(&self) -> bool {
        false
    }

    fn unconditional_update(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        for hook in items_mut(object, "webhooks") {
            default(hook, "failurePolicy", "Fail");
            default(hook, "timeoutSeconds", 10);
            if self.mutating {
                default(hook, "reinvocationPolicy", "Never");
            }
            match_defaults(hook, &["rules"]);
            if let Some(service) = child_if(child(hook, "clientConfig"), "service") {
                default(service, "port", 443);
            }
        }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        self.faults(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        self.faults(new)
    }

    fn generation_changed(&self, new: &Value, old: &Value) -> Option<bool> {
        Some(at(new, "webhooks") != at(old, "webhooks"))
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![json!(text(object, "metadata.name")), json!(items(object, "webhooks").len()), age(object, now)]
    }
}
