//! StorageClasses: who provides volumes, with which parameters, and where.

use crate::kit::{age, at, default, items, same, text};
use api::field::{Error, ErrorList, Path};
use api::names;
use jiff::Timestamp;
use resource::{Context, Facts, Strategy};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What a class tells its provisioner.
fn parameters(class: &Value, errors: &mut ErrorList) {
    const NUMBER_MAX: usize = 512;
    const BYTES_MAX: usize = 256 * 1024;
    let path = Path::new("parameters");
    let Some(parameters) = at(class, "parameters").as_object() else { return };
    if parameters.len() > NUMBER_MAX {
        errors.push(Error::too_long(&path, NUMBER_MAX));
        return;
    }
    if parameters.contains_key("") {
        errors.push(Error::invalid(&path, "", "field can not be empty."));
    }
    let bytes: usize = parameters.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > BYTES_MAX {
        errors.push(Error::too_long(&path, BYTES_MAX));
    }
}

/// Where volumes of a class may be.
fn topologies(class: &Value, errors: &mut ErrorList) {
    let mut terms: Vec<BTreeMap<&str, BTreeSet<&str>>> = Vec::new();
    for (i, term) in items(class, "allowedTopologies").iter().enumerate() {
        let path = Path::new("allowedTopologies").index(i).child("matchLabelExpressions");
        let mut known: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (j, requirement) in items(term, "matchLabelExpressions").iter().enumerate() {
            let (path, key) = (path.index(j), text(requirement, "key"));
            let mut values = BTreeSet::new();
            if items(requirement, "values").is_empty() {
                errors.push(Error::required(&path.child("values"), ""));
            }
            for (k, value) in items(requirement, "values").iter().enumerate() {
                let value = value.as_str().unwrap_or_default();
                if !values.insert(value) {
                    errors.push(Error::duplicate(&path.child("values").index(k), value));
                }
            }
            for fault in names::qualified_name_faults(key) {
                errors.push(Error::invalid(&path.child("key"), key, fault));
            }
            if known.insert(key, values).is_some() {
                errors.push(Error::duplicate(&path.child("key"), key));
            }
        }
        if known.is_empty() || terms.contains(&known) {
            errors.push(Error::duplicate(&path, ""));
        }
        terms.push(known);
    }
}

/// The kind `StorageClass`.
pub struct Classes;

impl Strategy for Classes {
    fn facts(&self) -> Facts {
        Facts { has_generation: false, delete_returns_object: true, ..Facts::default() }
    }

    fn default(&self, object: &mut Value) {
        default(object, "reclaimPolicy", "Delete");
        default(object, "volumeBindingMode", "Immediate");
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let provisioner = text(new, "provisioner");
        if provisioner.is_empty() {
            errors.push(Error::required(&Path::new("provisioner"), ""));
        } else {
            let provisioner = provisioner.to_lowercase();
            let path = Path::new("provisioner");
            for fault in names::qualified_name_faults(&provisioner) {
                errors.push(Error::invalid(&path, provisioner.as_str(), fault));
            }
        }
        parameters(new, &mut errors);
        topologies(new, &mut errors);
        for (field, supported) in
            [("reclaimPolicy", ["Delete", "Retain"]), ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"])]
        {
            let value = text(new, field);
            if !supported.contains(&value) {
                errors.push(Error::not_supported(&Path::new(field), value, &supported));
            }
        }
        errors
    }

    fn validate_update(&self, cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = self.validate_create(cx, new);
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            if !same(at(new, field), at(old, field)) {
                errors.push(Error::invalid(&Path::new(field), at(new, field).clone(), "field is immutable"));
            }
        }
        errors
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let mut name = text(object, "metadata.name").to_owned();
        if api::object::annotation(object, "storageclass.kubernetes.io/is-default-class") == Some("true") {
            name += " (default)";
        }
        vec![
            json!(name),
            json!(text(object, "provisioner")),
            json!(text(object, "reclaimPolicy")),
            json!(text(object, "volumeBindingMode")),
            json!(crate::kit::is_true(object, "allowVolumeExpansion")),
            age(object, now),
        ]
    }
}
