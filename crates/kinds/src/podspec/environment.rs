//! Validation of a container's variables and of what they refer to.

use crate::kit::{at, text};
use api::field::{Error, ErrorList, Path};
use api::names;
use api::quantity::Quantity;
use serde_json::Value;

pub(super) fn env(variable: &Value, path: &Path, errors: &mut ErrorList) {
    let name = text(variable, "name");
    if name.is_empty() {
        errors.push(Error::required(&path.child("name"), ""));
    } else {
        for fault in names::env_name_faults(name) {
            errors.push(Error::invalid(&path.child("name"), name, fault));
        }
    }
    let from = at(variable, "valueFrom");
    if from.is_null() {
        return;
    }
    let path = path.child("valueFrom");
    let mut sources = 0;
    let mut source = |member: &str| {
        let value = at(from, member);
        (!value.is_null()).then(|| {
            sources += 1;
            (value, path.child(member))
        })
    };
    if let Some((field, path)) = source("fieldRef") {
        field_selector(field, &ENV_FIELDS, &path, errors);
    }
    if let Some((field, path)) = source("resourceFieldRef") {
        resource_selector(field, false, &path, errors);
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        if let Some((key, path)) = source(kind) {
            let name = text(key, "name");
            for fault in names::subdomain_faults(name, false) {
                errors.push(Error::invalid(&path.child("name"), name, fault));
            }
            config_key(text(key, "key"), &path, errors);
        }
    }
    if let Some((key, path)) = source("fileKeyRef") {
        let given = |field| (text(key, field), path.child(field));
        match given("key") {
            ("", at) => errors.push(Error::required(&at, "")),
            (name, at) => {
                errors.extend(names::env_name_faults(name).into_iter().map(|fault| Error::invalid(&at, name, fault)))
            }
        }
        match given("volumeName") {
            ("", at) => errors.push(Error::required(&at, "")),
            (name, at) => errors
                .extend(names::label_faults(name, false).into_iter().map(|fault| Error::invalid(&at, name, fault))),
        }
        match given("path") {
            ("", at) => errors.push(Error::required(&at, "")),
            (file, at) => super::volumes::no_backsteps(file, &at, errors),
        }
    }
    if sources == 0 {
        let detail =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.push(Error::invalid(&path, "", detail));
    } else if !text(variable, "value").is_empty() {
        errors.push(Error::invalid(&path, "", "may not be specified when `value` is not empty"));
    } else if sources > 1 {
        errors.push(Error::invalid(&path, "", "may not have more than one field specified at a time"));
    }
}

fn config_key(key: &str, path: &Path, errors: &mut ErrorList) {
    if key.is_empty() {
        errors.push(Error::required(&path.child("key"), ""));
    } else {
        for fault in names::config_key_faults(key) {
            errors.push(Error::invalid(&path.child("key"), key, fault));
        }
    }
}

/// Fields of a pod that a variable may show.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Fields that the downward API knows at all.
const KNOWN_FIELDS: [&str; 15] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
    "spec.host",
];

/// A reference to a field of the pod; `supported` are those that may be named here.
pub(super) fn field_selector(selector: &Value, supported: &[&str], path: &Path, errors: &mut ErrorList) {
    let version = text(selector, "apiVersion");
    let field = text(selector, "fieldPath");
    if version.is_empty() {
        errors.push(Error::required(&path.child("apiVersion"), ""));
        return;
    }
    if field.is_empty() {
        errors.push(Error::required(&path.child("fieldPath"), ""));
        return;
    }
    let wrong =
        |why: String| Error::invalid(&path.child("fieldPath"), field, format!("error converting fieldPath: {why}"));
    if version != "v1" {
        errors.push(wrong(format!("unsupported pod version: {version}")));
        return;
    }
    let subscript = field.strip_suffix("']").and_then(|head| head.split_once("['"));
    if let Some((name, key)) = subscript {
        match name {
            "metadata.annotations" => qualified(&key.to_lowercase(), path, errors),
            "metadata.labels" => qualified(key, path, errors),
            _ => errors.push(wrong(format!("field label does not support subscript: {field}"))),
        }
        return;
    }
    if !KNOWN_FIELDS.contains(&field) {
        errors.push(wrong(format!("field label not supported: {field}")));
    } else if !supported.contains(&field) {
        errors.push(Error::not_supported(&path.child("fieldPath"), field, supported));
    }
}

fn qualified(name: &str, path: &Path, errors: &mut ErrorList) {
    errors.extend(names::qualified_name_faults(name).into_iter().map(|fault| Error::invalid(path, name, fault)));
}

const RESOURCE_FIELDS: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// A reference to what a container may use. In volumes it must say which container.
pub(super) fn resource_selector(selector: &Value, volume: bool, path: &Path, errors: &mut ErrorList) {
    let resource = text(selector, "resource");
    if volume && text(selector, "containerName").is_empty() {
        errors.push(Error::required(&path.child("containerName"), ""));
    } else if resource.is_empty() {
        errors.push(Error::required(&path.child("resource"), ""));
    } else if !RESOURCE_FIELDS.contains(&resource)
        && !resource.starts_with("limits.hugepages-")
        && !resource.starts_with("requests.hugepages-")
    {
        errors.push(Error::not_supported(&path.child("resource"), resource, &RESOURCE_FIELDS));
    }
    let Ok(divisor) = Quantity::from_json(at(selector, "divisor")) else { return };
    if divisor.is_zero() {
        return;
    }
    let shown = divisor.to_string();
    let path = path.child("divisor");
    let kind = resource.split_once('.').map_or("", |(_, kind)| kind);
    let sizes = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let what = match kind {
        "cpu" => {
            if !["1m", "1"].contains(&shown.as_str()) {
                let detail = "only divisor's values 1m and 1 are supported with the cpu resource";
                errors.push(Error::invalid(&path, "cpu", detail));
            }
            return;
        }
        "memory" => "memory",
        "ephemeral-storage" => "local ephemeral storage",
        _ if kind.starts_with("hugepages-") => "hugepages",
        _ => return,
    };
    if !sizes.contains(&shown.as_str()) {
        let detail = format!("only divisor's values {} are supported with the {what} resource", sizes.join(", "));
        errors.push(Error::invalid(&path, kind, detail));
    }
}

pub(super) fn env_from(source: &Value, path: &Path, errors: &mut ErrorList) {
    let prefix = text(source, "prefix");
    if !prefix.is_empty() {
        for fault in names::env_name_faults(prefix) {
            errors.push(Error::invalid(&path.child("prefix"), prefix, fault));
        }
    }
    let mut sources = 0;
    for kind in ["configMapRef", "secretRef"] {
        let reference = at(source, kind);
        if reference.is_null() {
            continue;
        }
        sources += 1;
        let path = path.child(kind).child("name");
        let name = text(reference, "name");
        if name.is_empty() {
            errors.push(Error::required(&path, ""));
        } else {
            for fault in names::subdomain_faults(name, false) {
                errors.push(Error::invalid(&path, name, fault));
            }
        }
    }
    // Upstream reports these two at the list.
    let list = Path::new(path.as_str().rsplit_once('[').map_or(path.as_str(), |(list, _)| list));
    match sources {
        0 => errors.push(Error::invalid(&list, "", "must specify one of: `configMapRef` or `secretRef`")),
        1 => {}
        _ => errors.push(Error::invalid(&list, "", "may not have more than one field specified at a time")),
    }
}
