//! Smaller kinds of core/v1: namespaces, config maps, secrets, nodes, pod templates, endpoints; and leases.

use super::kit::{age, at, child, int, is_true, items, keep, map, members, text, unset};
use super::podspec;
use api::field::{Error, ErrorList, Path};
use api::names;
use base64::Engine;
use jiff::Timestamp;
use merge::apply::Ignored;
use resource::status::Status;
use resource::{Context, Strategy};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The finalizer that namespaces are born with: their content goes before they do.
const NAMESPACE_FINALIZER: &str = "kubernetes";
/// Namespaces without which a cluster is none.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];
/// The label under which selectors find a namespace by name.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";
/// Most bytes that a config map or secret may hold.
const MAX_DATA: usize = 1024 * 1024;

fn immutable(new: &Value, old: &Value, field: &str, path: &Path, errors: &mut ErrorList) {
    let value = at(new, field);
    if !super::kit::same(value, at(old, field)) {
        errors.push(Error::invalid(path, value.clone(), "field is immutable"));
    }
}

/// The kind `Namespace`.
pub struct Namespaces;

impl Strategy for Namespaces {
    fn default(&self, object: &mut Value) {
        let name = text(object, "metadata.name").to_owned();
        if !name.is_empty() {
            let labels = map(child(child(object, "metadata"), "labels"));
            labels.insert(NAMESPACE_LABEL.to_owned(), name.into());
        }
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        self.default(new);
        new["status"] = json!({"phase": "Active"});
        let mut finalizers = items(new, "spec.finalizers").to_vec();
        if !finalizers.iter().any(|f| f == NAMESPACE_FINALIZER) {
            finalizers.push(NAMESPACE_FINALIZER.into());
        }
        child(new, "spec")["finalizers"] = finalizers.into();
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        let before = at(old, "spec").clone();
        keep(child(new, "spec"), &before, "finalizers");
        keep(new, old, "status");
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, subresource: &str, new: &mut Value, old: &Value) {
        if subresource == "finalize" {
            keep(new, old, "status");
        } else {
            keep(new, old, "spec");
        }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        finalizer_faults(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        finalizer_faults(new)
    }

    fn validate_subresource(&self, _cx: &Context<'_>, subresource: &str, new: &Value, _old: &Value) -> ErrorList {
        let mut errors = finalizer_faults(new);
        let phase = text(new, "status.phase");
        let path = Path::new("status").child("phase");
        if subresource == "status" {
            if api::object::is_terminating(new) {
                if phase != "Terminating" {
                    let detail = "may only be 'Terminating' if `deletionTimestamp` is not empty";
                    errors.push(Error::invalid(&path, phase, detail));
                }
            } else if phase != "Active" {
                let detail = "may only be 'Active' if `deletionTimestamp` is empty";
                errors.push(Error::invalid(&path, phase, detail));
            }
        }
        errors
    }

    fn begin_delete(&self, _cx: &Context<'_>, object: &Value) -> Result<Option<Value>, Status> {
        let name = text(object, "metadata.name");
        if IMMORTAL.contains(&name) {
            return Err(Status::forbidden("", "namespaces", name, "this namespace may not be deleted"));
        }
        let mut going = object.clone();
        child(&mut going, "status")["phase"] = "Terminating".into();
        Ok(Some(going))
    }

    fn may_vanish(&self, object: &Value) -> bool {
        items(object, "spec.finalizers").is_empty()
    }

    fn generation_changed(&self, _new: &Value, _old: &Value) -> Option<bool> {
        None
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        vec![
            ("status.phase", text(object, "status.phase").to_owned()),
            ("name", text(object, "metadata.name").to_owned()),
        ]
    }

    fn name_faults(&self, name: &str, prefix: bool) -> Vec<String> {
        names::label_faults(name, prefix)
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![json!(text(object, "metadata.name")), json!(text(object, "status.phase")), age(object, now)]
    }

    fn ignored(&self, subresource: &str) -> Ignored {
        match subresource {
            "status" => Ignored::paths(&["spec"]),
            _ => Ignored::paths(&["status"]),
        }
    }
}

fn finalizer_faults(namespace: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    for finalizer in items(namespace, "spec.finalizers") {
        let name = finalizer.as_str().unwrap_or_default();
        let path = Path::new("spec").child("finalizers");
        let faults = names::qualified_name_faults(name);
        if faults.is_empty() && !name.contains('/') && name != NAMESPACE_FINALIZER {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(Error::invalid(&path, name, detail));
        }
        errors.extend(faults.into_iter().map(|fault| Error::invalid(&path, name, fault)));
    }
    errors
}

fn decoded_len(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    text.len() / 4 * 3 - text.bytes().rev().take_while(|b| *b == b'=').count().min(2)
}

fn key_faults(object: &Value, field: &str, errors: &mut ErrorList) {
    for (key, _) in members(object, field) {
        for fault in names::config_key_faults(key) {
            errors.push(Error::invalid(&Path::new(field).key(key), key.as_str(), fault));
        }
    }
}

fn frozen(new: &Value, old: &Value, fields: &[&str], errors: &mut ErrorList) {
    if !is_true(old, "immutable") {
        return;
    }
    let detail = "field is immutable when `immutable` is set";
    if !is_true(new, "immutable") {
        errors.push(Error::forbidden(&Path::new("immutable"), detail));
    }
    for field in fields {
        if !super::kit::same(at(new, field), at(old, field)) {
            errors.push(Error::forbidden(&Path::new(field), detail));
        }
    }
}

/// The kind `ConfigMap`.
pub struct ConfigMaps;

impl ConfigMaps {
    fn faults(object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        key_faults(object, "data", &mut errors);
        for (key, _) in members(object, "data") {
            if at(object, "binaryData").get(key).is_some() {
                let detail = "duplicate of key present in binaryData";
                errors.push(Error::invalid(&Path::new("data").key(key), key.as_str(), detail));
            }
        }
        key_faults(object, "binaryData", &mut errors);
        let texts: usize = members(object, "data").map(|(_, v)| v.as_str().unwrap_or_default().len()).sum();
        let total = texts + members(object, "binaryData").map(|(_, v)| decoded_len(v)).sum::<usize>();
        if total > MAX_DATA {
            // Upstream's path for the whole object.
            errors.push(Error::too_long(&Path::new("[]"), MAX_DATA));
        }
        errors
    }
}

impl Strategy for ConfigMaps {
    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        Self::faults(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        frozen(new, old, &["data", "binaryData"], &mut errors);
        errors.extend(Self::faults(new));
        errors
    }

    fn generation_changed(&self, _new: &Value, _old: &Value) -> Option<bool> {
        None
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let count = members(object, "data").count() + members(object, "binaryData").count();
        vec![json!(text(object, "metadata.name")), json!(count), age(object, now)]
    }
}

/// The kind `Secret`.
pub struct Secrets;

impl Secrets {
    fn faults(object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        key_faults(object, "data", &mut errors);
        let total: usize = members(object, "data").map(|(_, v)| decoded_len(v)).sum();
        if total > MAX_DATA {
            errors.push(Error::too_long(&Path::new("data"), MAX_DATA));
        }
        let data = Path::new("data");
        let there = |key: &str| at(object, "data").get(key).is_some();
        let mut required = |keys: &[&str]| {
            for key in keys {
                if !there(key) {
                    errors.push(Error::required(&data.key(key), ""));
                }
            }
        };
        match text(object, "type") {
            "kubernetes.io/service-account-token" => {
                let name = api::object::annotation(object, "kubernetes.io/service-account.name");
                if name.unwrap_or_default().is_empty() {
                    let path = Path::new("metadata").child("annotations").key("kubernetes.io/service-account.name");
                    errors.push(Error::required(&path, ""));
                }
            }
            "kubernetes.io/dockercfg" => {
                required(&[".dockercfg"]);
                json_value(object, ".dockercfg", &mut errors);
            }
            "kubernetes.io/dockerconfigjson" => {
                required(&[".dockerconfigjson"]);
                json_value(object, ".dockerconfigjson", &mut errors);
            }
            "kubernetes.io/basic-auth" if !there("username") && !there("password") => {
                required(&["username", "password"]);
            }
            "kubernetes.io/ssh-auth" => {
                let empty = at(object, "data").get("ssh-privatekey").is_none_or(unset);
                if empty {
                    errors.push(Error::required(&data.key("ssh-privatekey"), ""));
                }
            }
            "kubernetes.io/tls" => required(&["tls.crt", "tls.key"]),
            _ => {}
        }
        errors
    }
}

fn json_value(object: &Value, key: &str, errors: &mut ErrorList) {
    let Some(encoded) = at(object, "data").get(key).and_then(Value::as_str) else { return };
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes) {
        errors.push(Error::invalid(&Path::new("data").key(key), "<secret contents redacted>", error.to_string()));
    }
}

impl Strategy for Secrets {
    fn default(&self, object: &mut Value) {
        super::kit::default(object, "type", "Opaque");
        let plain = map(object).remove("stringData");
        if let Some(Value::Object(plain)) = plain {
            let data = map(child(object, "data"));
            for (key, value) in plain {
                let encoded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
                data.insert(key, encoded.into());
            }
        }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        Self::faults(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        immutable(new, old, "type", &Path::new("type"), &mut errors);
        frozen(new, old, &["data"], &mut errors);
        errors.extend(Self::faults(new));
        errors
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        // A type that is left out stays.
        if text(new, "type").is_empty() {
            keep(new, old, "type");
        }
    }

    fn generation_changed(&self, _new: &Value, _old: &Value) -> Option<bool> {
        None
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        vec![("type", text(object, "type").to_owned())]
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let count = members(object, "data").count();
        vec![json!(text(object, "metadata.name")), json!(text(object, "type")), json!(count), age(object, now)]
    }
}

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
        let mut status = match super::kit::condition(object, "Ready") {
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

/// The kind `PodTemplate`.
pub struct PodTemplates;

impl Strategy for PodTemplates {
    fn default(&self, object: &mut Value) {
        podspec::defaults(child(child(object, "template"), "spec"));
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        super::job::pod_template(at(new, "template"), &Path::new("template"), &mut errors);
        errors
    }

    fn validate_update(&self, cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        self.validate_create(cx, new)
    }

    fn generation_changed(&self, new: &Value, old: &Value) -> Option<bool> {
        Some(at(new, "template") != at(old, "template"))
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        match old {
            Some(old) if at(old, "template") == at(new, "template") => Vec::new(),
            Some(_) | None => super::pod::warnings_of_template(at(new, "template"), "template."),
        }
    }

    fn delete_returns_object(&self) -> bool {
        true
    }

    fn row(&self, object: &Value, _now: Timestamp) -> Vec<Value> {
        let (containers, images) = super::job::containers(at(object, "template.spec"));
        vec![
            json!(text(object, "metadata.name")),
            json!(containers),
            json!(images),
            json!(super::kit::labels(at(object, "template.metadata.labels"))),
        ]
    }
}

/// The kind `Endpoints`.
pub struct Endpoints;

impl Strategy for Endpoints {
    fn deprecation(&self) -> Option<&'static str> {
        Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
    }

    fn create_on_update(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        for subset in super::kit::items_mut(object, "subsets") {
            for port in super::kit::items_mut(subset, "ports") {
                super::kit::default(port, "protocol", "TCP");
            }
        }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        super::network::endpoints(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        super::network::endpoints(new)
    }

    fn generation_changed(&self, _new: &Value, _old: &Value) -> Option<bool> {
        None
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let mut all = Vec::new();
        for subset in items(object, "subsets") {
            for address in items(subset, "addresses") {
                let ip = text(address, "ip");
                if items(subset, "ports").is_empty() {
                    all.push(ip.to_owned());
                }
                for port in items(subset, "ports") {
                    all.push(format!("{ip}:{}", int(port, "port").unwrap_or_default()));
                }
            }
        }
        let more = all.len().saturating_sub(3);
        let mut shown = all.into_iter().take(3).collect::<Vec<_>>().join(",");
        if more > 0 {
            shown += &format!(" + {more} more...");
        }
        if shown.is_empty() {
            "<none>".clone_into(&mut shown);
        }
        vec![json!(text(object, "metadata.name")), json!(shown), age(object, now)]
    }
}

/// The kind `Lease` of coordination.k8s.io.
pub struct Leases;

impl Leases {
    fn faults(object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        if let Some(seconds) = int(object, "spec.leaseDurationSeconds")
            && seconds <= 0
        {
            errors.push(Error::invalid(&path.child("leaseDurationSeconds"), seconds, "must be greater than 0"));
        }
        if let Some(count) = int(object, "spec.leaseTransitions")
            && count < 0
        {
            let detail = "must be greater than or equal to 0";
            errors.push(Error::invalid(&path.child("leaseTransitions"), count, detail));
        }
        errors
    }
}

impl Strategy for Leases {
    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        Self::faults(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        Self::faults(new)
    }

    fn generation_changed(&self, _new: &Value, _old: &Value) -> Option<bool> {
        None
    }

    fn create_on_update(&self) -> bool {
        true
    }

    fn unconditional_update(&self) -> bool {
        false
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![json!(text(object, "metadata.name")), json!(text(object, "spec.holderIdentity")), age(object, now)]
    }
}
