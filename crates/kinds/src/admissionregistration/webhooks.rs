//! The kinds `ValidatingWebhookConfiguration` and `MutatingWebhookConfiguration`.

use super::{conditions, default, match_defaults, optional, reserved_name, rule};
use crate::kit::{age, at, child, child_if, int, items, items_mut, text};
use crate::podspec::label_selector;
use api::field::{Error, ErrorList, Path};
use api::names;
use jiff::Timestamp;
use merge::cel::Url;
use resource::{Context, Facts, Strategy};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The kinds `ValidatingWebhookConfiguration` and `MutatingWebhookConfiguration`.
pub struct Webhooks {
    pub mutating: bool,
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
            // upstream takes one for the other
            for (field, named) in [("namespace", "name"), ("name", "namespace")] {
                if text(service, field).is_empty() {
                    errors.push(Error::required(&path.child(named), ""));
                }
            }
            let port = int(service, "port").unwrap_or(443);
            if !(1..=65535).contains(&port) {
                let why = "port is not valid: must be between 1 and 65535, inclusive";
                errors.push(Error::invalid(&path.child("port"), port, why));
            }
            service_path_faults(text(service, "path"), &path.child("path"), errors);
        }
    }
}

/// Faults of a path that are shown: each shows the whole path, which may have as many faults as it has bytes.
const PARTS_SHOWN: usize = 100;

/// What is wrong with the path at which a service answers: each of its parts is like a domain.
fn service_path_faults(whole: &str, path: &Path, errors: &mut ErrorList) {
    if whole.is_empty() || whole == "/" {
        return;
    }
    if whole == "//" {
        errors.push(Error::invalid(path, whole, "segment[0] may not be empty"));
        return;
    }
    if !whole.starts_with('/') {
        errors.push(Error::invalid(path, whole, "must start with a '/'"));
    }
    // whatever the first byte is, it counts as the slash
    let rest = String::from_utf8_lossy(&whole.as_bytes()[1..]);
    let rest = rest.strip_suffix('/').unwrap_or(&rest);
    let known = errors.len();
    for (i, segment) in rest.split('/').enumerate() {
        if errors.len().saturating_sub(known) > PARTS_SHOWN {
            return;
        }
        if segment.is_empty() {
            errors.push(Error::invalid(path, whole, format!("segment[{i}] may not be empty")));
            continue;
        }
        for fault in names::subdomain_faults(segment, false) {
            errors.push(Error::invalid(path, whole, format!("segment[{i}]: {fault}")));
        }
    }
}

fn url_faults(url: &str, path: &Path, errors: &mut ErrorList) {
    let form = "desired format: https://host[/path]";
    let url = match Url::reference(url) {
        Ok(url) => url,
        Err(why) => {
            errors.push(Error::required(path, format!("url must be a valid URL: parse {url:?}: {why}; {form}")));
            return;
        }
    };
    if url.scheme != "https" {
        errors.push(Error::invalid(path, url.scheme, format!("'https' is the only allowed URL scheme; {form}")));
    }
    if url.host.is_empty() {
        errors.push(Error::invalid(path, "", format!("host must be specified; {form}")));
    }
    let some = |text| Some(text).filter(|text: &String| !text.is_empty());
    let (fragment, query) = (some(url.fragment), some(url.query));
    for (part, what) in
        [(url.user, "user information is"), (fragment, "fragments are"), (query, "query parameters are")]
    {
        if let Some(part) = part {
            errors.push(Error::invalid(path, part, format!("{what} not permitted in the URL")));
        }
    }
}

impl Webhooks {
    /// `old`: what is replaced; conditions that stay as they were are not looked at.
    fn faults(&self, configuration: &Value, old: Option<&Value>) -> ErrorList {
        let of_each = |of| items(of, "webhooks").iter().map(|hook| at(hook, "matchConditions"));
        let checks_conditions = old.is_none_or(|old| !of_each(old).eq(of_each(configuration)));
        let mut errors = ErrorList::new();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for (i, hook) in items(configuration, "webhooks").iter().enumerate() {
            let path = Path::new("webhooks").index(i);
            self.hook(hook, checks_conditions, &path, &mut errors);
            let name = text(hook, "name");
            if !name.is_empty() && !seen.insert(name) {
                errors.push(Error::duplicate(&path.child("name"), name));
            }
        }
        errors
    }

    fn hook(&self, hook: &Value, checks_conditions: bool, path: &Path, errors: &mut ErrorList) {
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
        if checks_conditions {
            conditions(hook, path, false, errors);
        }
        let versions = items(hook, "admissionReviewVersions");
        let at_versions = path.child("admissionReviewVersions");
        if versions.is_empty() {
            errors.push(Error::required(&at_versions, "must specify one of v1, v1beta1"));
        }
        let mut seen = BTreeSet::new();
        for (i, version) in versions.iter().filter_map(Value::as_str).enumerate() {
            if !seen.insert(version) {
                errors.push(Error::invalid(&at_versions.index(i), version, "duplicate version"));
                continue;
            }
            for fault in api::names::dns1035_faults(version, false) {
                errors.push(Error::invalid(&at_versions.index(i), version, fault));
            }
        }
        if !versions.is_empty() && !versions.iter().any(|v| v == "v1" || v == "v1beta1") {
            let detail = "must include at least one of v1, v1beta1";
            errors.push(Error::invalid(&at_versions, versions.to_vec(), detail));
        }
    }
}

impl Strategy for Webhooks {
    fn facts(&self) -> Facts {
        Facts {
            qualified_finalizers: false,
            unconditional_update: false,
            counts_empty: Some("webhooks"),
            ..Facts::default()
        }
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
        self.faults(new, None)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        self.faults(new, Some(old))
    }

    fn generation_changed(&self, new: &Value, old: &Value) -> bool {
        at(new, "webhooks") != at(old, "webhooks")
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings = reserved_name(new);
        if old.is_none() {
            let kinds = if self.mutating { "MutatingWebhookConfigurations" } else { "ValidatingWebhookConfigurations" };
            let what = "calls no webhooks: every request passes, whatever failurePolicy says; ValidatingAdmissionPolicies work";
            warnings.push(crate::kit::stored_only(kinds, what));
        }
        warnings
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![json!(text(object, "metadata.name")), json!(items(object, "webhooks").len()), age(object, now)]
    }
}
