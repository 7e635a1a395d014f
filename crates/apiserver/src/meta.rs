//! Validation of object metadata, alike for all kinds (`k8s.io/apimachinery/pkg/api/validation`).

use api::field::{Error, ErrorList, Path};
use api::names::{label_faults, label_value_faults, qualified_name_faults};
use resource::Resource;
use serde_json::Value;
use std::collections::BTreeSet;

const ANNOTATIONS_MAX: usize = 256 << 10;
const MANAGER_BYTES_MAX: usize = 128;
const SUBRESOURCE_BYTES_MAX: usize = 256;

fn members<'a>(meta: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    meta.get(field).and_then(Value::as_object).into_iter().flatten()
}

/// Whether the names of a kind's finalizers must be qualified. Those of custom resources are only warned of.
fn is_qualified(resource: &Resource) -> bool {
    !resource.custom && resource.facts.qualified_finalizers
}

/// Faults of a new object's metadata; `path` is `metadata`.
pub fn validate(object: &Value, resource: &Resource, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let meta = object.get("metadata").unwrap_or(&Value::Null);
    let text = |field: &str| meta.get(field).and_then(Value::as_str).unwrap_or_default();
    let (name, generate) = (text("name"), text("generateName"));
    generated(generate, resource, path, &mut errors);
    if name.is_empty() {
        errors.push(Error::required(&path.child("name"), "name or generateName is required"));
    } else {
        for fault in (resource.facts.name_faults)(name, false) {
            errors.push(Error::invalid(&path.child("name"), name, fault));
        }
    }
    let namespace = text("namespace");
    if resource.namespaced {
        if namespace.is_empty() {
            errors.push(Error::required(&path.child("namespace"), ""));
        } else {
            for fault in label_faults(namespace, false) {
                errors.push(Error::invalid(&path.child("namespace"), namespace, fault));
            }
        }
    } else if !namespace.is_empty() {
        errors.push(Error::forbidden(&path.child("namespace"), "not allowed on this type"));
    }
    if meta.get("generation").and_then(Value::as_i64).is_some_and(|g| g < 0) {
        errors.push(Error::invalid(
            &path.child("generation"),
            meta["generation"].clone(),
            "must be greater than or equal to 0",
        ));
    }
    whole(meta, is_qualified(resource), path, &mut errors);
    errors
}

fn whole(meta: &Value, qualified: bool, path: &Path, errors: &mut ErrorList) {
    common(meta, path, errors);
    finalizers(meta, &path.child("finalizers"), errors);
    if qualified {
        unqualified(meta, &path.child("finalizers"), errors);
    }
}

fn common(meta: &Value, path: &Path, errors: &mut ErrorList) {
    let labels = path.child("labels");
    for (key, value) in members(meta, "labels") {
        for fault in qualified_name_faults(key) {
            errors.push(Error::invalid(&labels, key.as_str(), fault));
        }
        let value = value.as_str().unwrap_or_default();
        for fault in label_value_faults(value) {
            errors.push(Error::invalid(&labels, value, fault));
        }
    }
    let annotations = path.child("annotations");
    let mut size = 0;
    for (key, value) in members(meta, "annotations") {
        for fault in qualified_name_faults(&key.to_lowercase()) {
            errors.push(Error::invalid(&annotations, key.as_str(), fault));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_MAX {
        errors.push(Error::too_long(&annotations, ANNOTATIONS_MAX));
    }
    owners(meta, &path.child("ownerReferences"), errors);
    managers(meta, &path.child("managedFields"), errors);
}

fn owners(meta: &Value, path: &Path, errors: &mut ErrorList) {
    let owners = meta.get("ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let mut controller: Option<String> = None;
    for owner in owners {
        let at = path;
        let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
        let version = text("apiVersion");
        // more than a group and a version is neither
        let unversioned = version.ends_with('/') || version.is_empty() || version.matches('/').count() > 1;
        if unversioned {
            errors.push(Error::invalid(&at.child("apiVersion"), version, "version must not be empty"));
        }
        for field in ["kind", "name", "uid"] {
            if text(field).is_empty() {
                errors.push(Error::invalid(&at.child(field), "", "must not be empty"));
            }
        }
        if version == "v1" && text("kind") == "Event" {
            errors.push(Error::invalid(path, owner.clone(), "/v1, Kind=Event is disallowed from being an owner"));
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            let this = format!("{}/{}", text("kind"), text("name"));
            match &controller {
                Some(first) => errors.push(Error::invalid(
                    path,
                    owner.clone(),
                    format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    ),
                )),
                None => controller = Some(this),
            }
        }
    }
}

fn finalizer_names(meta: &Value) -> Vec<&str> {
    let names = meta.get("finalizers").and_then(Value::as_array).into_iter().flatten();
    names.map(|name| name.as_str().unwrap_or_default()).collect()
}

/// Finalizers that have neither a domain nor are Kubernetes' own.
fn unqualified(meta: &Value, path: &Path, errors: &mut ErrorList) {
    for (i, name) in finalizer_names(meta).into_iter().enumerate() {
        if !name.contains('/') && !matches!(name, "orphan" | "foregroundDeletion" | "kubernetes") {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(Error::invalid(&path.index(i), name, why));
        }
    }
}

fn finalizers(meta: &Value, path: &Path, errors: &mut ErrorList) {
    let seen = finalizer_names(meta);
    for name in &seen {
        for fault in qualified_name_faults(name) {
            errors.push(Error::invalid(path, *name, fault));
        }
    }
    if seen.contains(&"orphan") && seen.contains(&"foregroundDeletion") {
        errors.push(Error::invalid(
            path,
            serde_json::json!(seen),
            "finalizer orphan and foregroundDeletion cannot be both set",
        ));
    }
}

fn managers(meta: &Value, path: &Path, errors: &mut ErrorList) {
    for (i, entry) in meta.get("managedFields").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let at = path.index(i);
        let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
        if !matches!(text("operation"), "Apply" | "Update") {
            errors.push(Error::invalid(&at.child("operation"), text("operation"), "must be `Apply` or `Update`"));
        }
        if !matches!(text("fieldsType"), "" | "FieldsV1") {
            errors.push(Error::invalid(&at.child("fieldsType"), text("fieldsType"), "must be `FieldsV1`"));
        }
        let manager = text("manager");
        if manager.len() > MANAGER_BYTES_MAX {
            errors.push(Error::too_long(&at.child("manager"), MANAGER_BYTES_MAX));
        }
        if let Some((position, strange)) = manager.chars().enumerate().find(|(_, c)| c.is_control()) {
            let why = format!("invalid character U+{:04X} (at position {position})", u32::from(strange));
            errors.push(Error::invalid(&at.child("manager"), manager, why));
        }
        if text("subresource").len() > SUBRESOURCE_BYTES_MAX {
            errors.push(Error::too_long(&at.child("subresource"), SUBRESOURCE_BYTES_MAX));
        }
    }
}

fn generated(prefix: &str, resource: &Resource, path: &Path, errors: &mut ErrorList) {
    if !prefix.is_empty() {
        for fault in (resource.facts.name_faults)(prefix, true) {
            errors.push(Error::invalid(&path.child("generateName"), prefix, fault));
        }
    }
}

/// Faults of changed metadata; `new` has the server-owned fields filled in from `old` where it left them out. What the kind's
/// own validation checks again is reported again. `main`: the object itself is updated, and not a part of it.
pub fn validate_update(new: &Value, old: &Value, resource: &Resource, main: bool, path: &Path) -> ErrorList {
    let (rechecks, qualified) = (resource.facts.rechecks, is_qualified(resource));
    let none = Value::Null;
    let (new, old) = (new.get("metadata").unwrap_or(&none), old.get("metadata").unwrap_or(&none));
    let mut errors = ErrorList::new();
    whole(new, false, path, &mut errors);
    changed(new, old, path, &mut errors);
    if rechecks.update {
        changed(new, old, path, &mut errors);
        if qualified {
            unqualified(new, &path.child("finalizers"), &mut errors);
        }
    }
    if rechecks.whole && (main || rechecks.of_parts) {
        generated(api::object::text(new, "generateName"), resource, path, &mut errors);
        whole(new, qualified, path, &mut errors);
    }
    errors
}

fn changed(new_meta: &Value, old_meta: &Value, path: &Path, errors: &mut ErrorList) {
    let none = Value::Null;
    let deleting = old_meta.get("deletionTimestamp").is_some_and(|t| !t.is_null());
    if deleting {
        let list = |meta: &Value| -> Vec<String> {
            let items = meta.get("finalizers").and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let had: BTreeSet<String> = list(old_meta).into_iter().collect();
        let added: Vec<String> = list(new_meta).into_iter().filter(|f| !had.contains(f)).collect();
        if !added.is_empty() {
            let list = added.iter().map(|f| format!("{f:?}")).collect::<Vec<_>>().join(", ");
            errors.push(Error::forbidden(
                &path.child("finalizers"),
                format!("no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"),
            ));
        }
    }
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (a, b) = (new_meta.get(field).unwrap_or(&none), old_meta.get(field).unwrap_or(&none));
        if a != b {
            errors.push(Error::invalid(&path.child(field), a.clone(), "field is immutable"));
        }
    }
    let generation = |meta: &Value| meta.get("generation").and_then(Value::as_i64).unwrap_or(0);
    if generation(new_meta) < generation(old_meta) {
        errors.push(Error::invalid(&path.child("generation"), generation(new_meta), "must not be decremented"));
    }
    common(new_meta, path, errors);
}
