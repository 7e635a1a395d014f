//! Validation of a pod's volumes.

use super::environment::{field_selector, resource_selector};
use crate::kit::{at, int, items, text};
use api::field::{Error, ErrorList, Path};
use api::names;
use api::quantity::Quantity;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Sources in upstream's order, and the name under which an error calls them.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

const FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Validates volumes and returns the good names with their volumes, which mounts may name.
pub fn validate(volumes: &[Value], path: &Path, errors: &mut ErrorList) -> BTreeMap<String, Value> {
    let mut known = BTreeMap::new();
    for (i, volume) in volumes.iter().enumerate() {
        let path = path.index(i);
        let name = text(volume, "name");
        let before = errors.len();
        source(volume, &path, errors);
        if name.is_empty() {
            errors.push(Error::required(&path.child("name"), ""));
        } else {
            for fault in names::label_faults(name, false) {
                errors.push(Error::invalid(&path.child("name"), name, fault));
            }
        }
        if known.contains_key(name) {
            errors.push(Error::duplicate(&path.child("name"), name));
        }
        if errors.len() == before {
            known.insert(name.to_owned(), volume.clone());
        }
    }
    known
}

fn required(object: &Value, fields: &[&str], path: &Path, errors: &mut ErrorList) {
    for field in fields {
        if text(object, field).is_empty() {
            errors.push(Error::required(&path.child(field), ""));
        }
    }
}

fn source(volume: &Value, path: &Path, errors: &mut ErrorList) {
    let empty = Map::new();
    let members = volume.as_object().unwrap_or(&empty);
    let mut found = false;
    for kind in SOURCES {
        let Some(value) = members.get(kind).filter(|v| !v.is_null()) else { continue };
        let shown = match kind {
            "cephfs" => "cephFS",
            "downwardAPI" if found => "downwarAPI",
            other => other,
        };
        let path = path.child(shown);
        if found {
            errors.push(Error::forbidden(&path, "may not specify more than 1 volume type"));
            continue;
        }
        found = true;
        one(kind, value, &path, errors);
    }
    if !found {
        errors.push(Error::required(path, "must specify a volume type"));
    }
}

fn one(kind: &str, value: &Value, path: &Path, errors: &mut ErrorList) {
    match kind {
        "emptyDir" if Quantity::from_json(at(value, "sizeLimit")).is_ok_and(Quantity::is_negative) => {
            let detail = "SizeLimit field must be a valid resource quantity";
            errors.push(Error::forbidden(&path.child("sizeLimit"), detail));
        }
        "hostPath" => {
            let host = text(value, "path");
            if host.is_empty() {
                errors.push(Error::required(&path.child("path"), ""));
            } else {
                no_backsteps(host, &path.child("path"), errors);
            }
            let supported =
                ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
            let kind = text(value, "type");
            if !supported.contains(&kind) {
                errors.push(Error::not_supported(&path.child("type"), kind, &supported));
            }
        }
        "secret" => {
            required(value, &["secretName"], path, errors);
            mode(value, "defaultMode", path, errors);
            keys(value, path, errors);
        }
        "configMap" => {
            required(value, &["name"], path, errors);
            mode(value, "defaultMode", path, errors);
            keys(value, path, errors);
        }
        "persistentVolumeClaim" => required(value, &["claimName"], path, errors),
        "nfs" => {
            required(value, &["server", "path"], path, errors);
            let exported = text(value, "path");
            if !exported.is_empty() && !exported.starts_with('/') {
                errors.push(Error::invalid(&path.child("path"), exported, "must be an absolute path"));
            }
        }
        "downwardAPI" => {
            mode(value, "defaultMode", path, errors);
            for item in items(value, "items") {
                downward_file(item, path, errors);
            }
        }
        "projected" => projected(value, path, errors),
        "ephemeral" => {
            let template = at(value, "volumeClaimTemplate");
            let at_template = path.child("volumeClaimTemplate");
            if template.is_null() {
                errors.push(Error::required(&at_template, ""));
            } else {
                errors.extend(crate::storage::claim_spec(at(template, "spec"), &at_template.child("spec")));
            }
        }
        "csi" => required(value, &["driver"], path, errors),
        "image" => {
            required(value, &["reference"], path, errors);
            let policy = text(value, "pullPolicy");
            if !["Always", "IfNotPresent", "Never"].contains(&policy) {
                let supported = ["Always", "IfNotPresent", "Never"];
                errors.push(Error::not_supported(&path.child("pullPolicy"), policy, &supported));
            }
        }
        "gitRepo" => required(value, &["repository"], path, errors),
        "iscsi" => required(value, &["targetPortal", "iqn"], path, errors),
        "glusterfs" => required(value, &["endpoints", "path"], path, errors),
        "rbd" => required(value, &["image"], path, errors),
        "cinder" | "awsElasticBlockStore" | "portworxVolume" => required(value, &["volumeID"], path, errors),
        "gcePersistentDisk" => required(value, &["pdName"], path, errors),
        "azureFile" => required(value, &["secretName", "shareName"], path, errors),
        "azureDisk" => required(value, &["diskName", "diskURI"], path, errors),
        "flexVolume" => required(value, &["driver"], path, errors),
        // Networks of others, which nothing here can mount: their details are not checked.
        _ => {}
    }
}

fn mode(object: &Value, field: &str, path: &Path, errors: &mut ErrorList) {
    if let Some(mode) = int(object, field)
        && !(0..=0o777).contains(&mode)
    {
        errors.push(Error::invalid(&path.child(field), mode, MODE));
    }
}

/// A path without `..` in it.
pub(super) fn no_backsteps(value: &str, path: &Path, errors: &mut ErrorList) {
    if value.split('/').any(|part| part == "..") {
        errors.push(Error::invalid(path, value, "must not contain '..'"));
    }
}

/// A relative path inside a volume.
fn local_path(value: &str, path: &Path, errors: &mut ErrorList) {
    if value.starts_with('/') {
        errors.push(Error::invalid(path, value, "must be a relative path"));
    }
    no_backsteps(value, path, errors);
    if value.starts_with("..") && !value.starts_with("../") {
        errors.push(Error::invalid(path, value, "must not start with '..'"));
    }
}

fn keys(value: &Value, path: &Path, errors: &mut ErrorList) {
    for (i, item) in items(value, "items").iter().enumerate() {
        let path = path.child("items").index(i);
        required(item, &["key", "path"], &path, errors);
        local_path(text(item, "path"), &path.child("path"), errors);
        mode(item, "mode", &path, errors);
    }
}

fn downward_file(item: &Value, path: &Path, errors: &mut ErrorList) {
    required(item, &["path"], path, errors);
    local_path(text(item, "path"), &path.child("path"), errors);
    let (field, resource) = (at(item, "fieldRef"), at(item, "resourceFieldRef"));
    if !field.is_null() {
        field_selector(field, &FIELDS, &path.child("fieldRef"), errors);
        if !resource.is_null() {
            let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
            errors.push(Error::invalid(path, "resource", detail));
        }
    } else if !resource.is_null() {
        resource_selector(resource, true, &path.child("resourceFieldRef"), errors);
    } else {
        errors.push(Error::required(path, "one of fieldRef and resourceFieldRef is required"));
    }
    mode(item, "mode", path, errors);
}

fn projected(value: &Value, path: &Path, errors: &mut ErrorList) {
    mode(value, "defaultMode", path, errors);
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for (i, source) in items(value, "sources").iter().enumerate() {
        let at_source = path.child("sources").index(i);
        let mut found = 0;
        let mut claim = |target: &str, shown: &str, errors: &mut ErrorList| {
            if !target.is_empty() {
                if taken.contains(target) {
                    errors.push(Error::invalid(path, shown, "conflicting duplicate paths"));
                }
                taken.insert(target.to_owned());
            }
        };
        for kind in ["secret", "configMap"] {
            let projection = at(source, kind);
            if projection.is_null() {
                continue;
            }
            found += 1;
            let at_kind = at_source.child(kind);
            required(projection, &["name"], &at_kind, errors);
            keys(projection, &at_kind, errors);
            for item in items(projection, "items") {
                claim(text(item, "path"), text(projection, "name"), errors);
            }
        }
        let downward = at(source, "downwardAPI");
        if !downward.is_null() {
            found += 1;
            for item in items(downward, "items") {
                downward_file(item, &at_source.child("downwardAPI"), errors);
                claim(text(item, "path"), text(item, "path"), errors);
            }
        }
        let token = at(source, "serviceAccountToken");
        if !token.is_null() {
            found += 1;
            let at_token = at_source.child("serviceAccountToken");
            let seconds = int(token, "expirationSeconds").unwrap_or_default();
            if seconds < 600 {
                let detail = "may not specify a duration less than 10 minutes";
                errors.push(Error::invalid(&at_token.child("expirationSeconds"), seconds, detail));
            } else if seconds > 1 << 32 {
                let detail = "may not specify a duration larger than 2^32 seconds";
                errors.push(Error::invalid(&at_token.child("expirationSeconds"), seconds, detail));
            }
            let target = text(token, "path");
            if target.is_empty() {
                errors.push(Error::required(&path.child("path"), ""));
            } else {
                local_path(target, &path.child("path"), errors);
            }
            claim(target, target, errors);
        }
        for kind in ["clusterTrustBundle", "podCertificate"] {
            if !at(source, kind).is_null() {
                found += 1;
            }
        }
        if found > 1 {
            errors.push(Error::forbidden(&at_source, "may not specify more than 1 volume type per source"));
        }
    }
}
