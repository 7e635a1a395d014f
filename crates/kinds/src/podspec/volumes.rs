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
    volume_type(volume, &SOURCES, path, errors);
}

/// Of a volume, or of the spec of one: that it has one of these sources, and what is wrong with it.
pub fn volume_type(volume: &Value, sources: &[&str], path: &Path, errors: &mut ErrorList) {
    let empty = Map::new();
    let members = volume.as_object().unwrap_or(&empty);
    let mut found = false;
    for kind in sources.iter().copied() {
        let Some(value) = members.get(kind).filter(|v| !v.is_null()) else { continue };
        let shown = match kind {
            "cephfs" if found => "cephFS",
            "downwardAPI" if found => "downwarAPI",
            other => other,
        };
        let (place, path) = (path, path.child(shown));
        if found {
            errors.push(Error::forbidden(&path, "may not specify more than 1 volume type"));
            continue;
        }
        found = true;
        let path = if kind == "gcePersistentDisk" { place.child("persistentDisk") } else { path };
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
            if !exported.starts_with('/') {
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
        "csi" => {
            driver(value, path, errors);
            secret(value, "nodePublishSecretRef", path, errors);
            let name = text(value, "nodePublishSecretRef.name");
            let faults = if name.is_empty() { Vec::new() } else { names::subdomain_faults(name, false) };
            errors.extend(faults.into_iter().map(|fault| Error::invalid(&path.child("name"), name, fault)));
        }
        "image" => {
            required(value, &["reference"], path, errors);
            let policy = text(value, "pullPolicy");
            if !["Always", "IfNotPresent", "Never"].contains(&policy) {
                let supported = ["Always", "IfNotPresent", "Never"];
                errors.push(Error::not_supported(&path.child("pullPolicy"), policy, &supported));
            }
        }
        "gitRepo" => {
            required(value, &["repository"], path, errors);
            local_path(text(value, "directory"), &path.child("directory"), errors);
        }
        "local" => {
            required(value, &["path"], path, errors);
            no_backsteps(text(value, "path"), &path.child("path"), errors);
        }
        _ => network(kind, value, path, errors),
    }
}

/// A number of at most `most`; 0 stands for none, and the message names `least`, as upstream's does.
fn between(value: &Value, field: &str, least: i64, most: i64, path: &Path, errors: &mut ErrorList) {
    if let Some(number) = int(value, field)
        && !(0..=most).contains(&number)
    {
        let why = format!("must be between {least} and {most}, inclusive");
        errors.push(Error::invalid(&path.child(field), number, why));
    }
}

fn listed(value: &Value, field: &str, path: &Path, errors: &mut ErrorList) {
    if items(value, field).is_empty() {
        errors.push(Error::required(&path.child(field), ""));
    }
}

/// Where a secret is named, its name is needed.
fn secret(value: &Value, field: &str, path: &Path, errors: &mut ErrorList) {
    if !at(value, field).is_null() {
        required(at(value, field), &["name"], &path.child(field), errors);
    }
}

/// Disks and file systems of others.
fn network(kind: &str, value: &Value, path: &Path, errors: &mut ErrorList) {
    match kind {
        "gcePersistentDisk" => {
            required(value, &["pdName"], path, errors);
            between(value, "partition", 1, 255, path, errors);
        }
        "awsElasticBlockStore" => {
            required(value, &["volumeID"], path, errors);
            between(value, "partition", 1, 255, path, errors);
        }
        "iscsi" => iscsi(value, path, errors),
        "glusterfs" => required(value, &["endpoints", "path"], path, errors),
        "flocker" => {
            let (name, id) = (text(value, "datasetName"), text(value, "datasetUUID"));
            if name.is_empty() && id.is_empty() {
                errors.push(Error::required(path, "one of datasetName and datasetUUID is required"));
            }
            if !name.is_empty() && !id.is_empty() {
                let why = "datasetName and datasetUUID can not be specified simultaneously";
                errors.push(Error::invalid(path, "resource", why));
            }
            if name.contains('/') {
                errors.push(Error::invalid(&path.child("datasetName"), name, "must not contain '/'"));
            }
        }
        "rbd" => {
            listed(value, "monitors", path, errors);
            required(value, &["image"], path, errors);
        }
        "cinder" => {
            required(value, &["volumeID"], path, errors);
            secret(value, "secretRef", path, errors);
        }
        "cephfs" => listed(value, "monitors", path, errors),
        "quobyte" => {
            let registry = text(value, "registry");
            let is_pair = |pair: &str| pair.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':'));
            if registry.is_empty() {
                let why = "must be a host:port pair or multiple pairs separated by commas";
                errors.push(Error::required(&path.child("registry"), why));
            } else if !registry.split(',').all(is_pair) {
                let why = "must be a host:port pair or multiple pairs separated by commas";
                errors.push(Error::invalid(&path.child("registry"), registry, why));
            }
            if text(value, "tenant").len() >= 65 {
                let why = "must be a UUID and may not exceed a length of 64 characters";
                errors.push(Error::required(&path.child("tenant"), why));
            }
            required(value, &["volume"], path, errors);
        }
        "fc" => {
            let (names, ids) = (items(value, "targetWWNs"), items(value, "wwids"));
            let at_names = path.child("targetWWNs");
            if names.is_empty() && ids.is_empty() {
                let why = "must specify either targetWWNs or wwids, but not both";
                errors.push(Error::required(&at_names, why));
            }
            if !names.is_empty() && !ids.is_empty() {
                let why = "targetWWNs and wwids can not be specified simultaneously";
                errors.push(Error::invalid(&at_names, names.to_vec(), why));
            }
            if !names.is_empty() && at(value, "lun").is_null() {
                errors.push(Error::required(&path.child("lun"), "lun is required if targetWWNs is specified"));
            } else if !names.is_empty() {
                between(value, "lun", 0, 255, path, errors);
            }
        }
        "flexVolume" => {
            required(value, &["driver"], path, errors);
            for key in at(value, "options").as_object().into_iter().flatten().map(|(key, _)| key) {
                let namespace = key.split('/').next().filter(|_| key.contains('/')).unwrap_or(key).to_lowercase();
                let dotted = format!(".{namespace}");
                if dotted.ends_with(".kubernetes.io") || dotted.ends_with(".k8s.io") {
                    let why = "kubernetes.io and k8s.io namespaces are reserved";
                    errors.push(Error::invalid(&path.child("options").key(key), key.as_str(), why));
                }
            }
        }
        "azureFile" => {
            required(value, &["secretName", "shareName"], path, errors);
            if at(value, "secretNamespace").as_str() == Some("") {
                errors.push(Error::required(&path.child("secretNamespace"), ""));
            }
        }
        "vsphereVolume" => required(value, &["volumePath"], path, errors),
        "photonPersistentDisk" => required(value, &["pdID"], path, errors),
        "portworxVolume" => required(value, &["volumeID"], path, errors),
        "azureDisk" => azure_disk(value, path, errors),
        "storageos" => {
            for (field, needed) in [("volumeName", true), ("volumeNamespace", false)] {
                let name = text(value, field);
                if !name.is_empty() {
                    let faults = names::label_faults(name, false);
                    errors.extend(faults.into_iter().map(|fault| Error::invalid(&path.child(field), name, fault)));
                } else if needed {
                    errors.push(Error::required(&path.child(field), ""));
                }
            }
            secret(value, "secretRef", path, errors);
        }
        "scaleIO" => required(value, &["gateway", "system", "volumeName"], path, errors),
        _ => {}
    }
}

fn iscsi(value: &Value, path: &Path, errors: &mut ErrorList) {
    required(value, &["targetPortal", "iqn"], path, errors);
    let name = text(value, "iqn");
    let at_name = path.child("iqn");
    let hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    // iqn.yyyy-mm.domain[:more], eui. and 16 hexadecimal digits, naa. and 32 of them
    let is_qualified = |rest: &str| {
        let date = rest.as_bytes();
        date.len() > 8
            && date[..7].iter().enumerate().all(|(i, b)| if i == 4 { *b == b'-' } else { b.is_ascii_digit() })
            && date[7] == b'.'
            && rest[8..].split(':').next().is_some_and(|domain| {
                domain.contains('.') && domain.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
            })
    };
    if !name.is_empty() {
        let good = match name.split_at_checked(4) {
            Some(("iqn.", rest)) => Some(is_qualified(rest)),
            Some(("eui.", rest)) => Some(rest.len() == 16 && hex(rest)),
            Some(("naa.", rest)) => Some(rest.len() == 32 && hex(rest)),
            _ => ["iqn", "eui", "naa"].iter().any(|start| name.starts_with(start)).then_some(false),
        };
        match good {
            Some(true) => {}
            Some(false) => errors.push(Error::invalid(&at_name, name, "must be valid format")),
            None => {
                errors.push(Error::invalid(&at_name, name, "must be valid format starting with iqn, eui, or naa"));
            }
        }
    }
    between(value, "lun", 0, 255, path, errors);
    let asks = ["chapAuthDiscovery", "chapAuthSession"].iter().any(|field| at(value, field) == &Value::Bool(true));
    if asks && at(value, "secretRef").is_null() {
        errors.push(Error::required(&path.child("secretRef"), ""));
    }
}

fn azure_disk(value: &Value, path: &Path, errors: &mut ErrorList) {
    required(value, &["diskName", "diskURI"], path, errors);
    let choices: [(&str, &[&str]); 2] =
        [("cachingMode", &["None", "ReadOnly", "ReadWrite"]), ("kind", &["Dedicated", "Managed", "Shared"])];
    for (field, supported) in choices {
        if let Some(chosen) = at(value, field).as_str()
            && !supported.contains(&chosen)
        {
            errors.push(Error::not_supported(&path.child(field), chosen, supported));
        }
    }
    let (uri, at_uri) = (text(value, "diskURI"), path.child("diskURI"));
    let managed = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    let blob = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    match text(value, "kind") {
        "Managed" if !uri.starts_with("/subscriptions/") => {
            errors.push(Error::not_supported(&at_uri, uri, &[managed]));
        }
        "Managed" | "" => {}
        _ if !uri.starts_with("https://") => errors.push(Error::not_supported(&at_uri, uri, &[blob])),
        _ => {}
    }
}

/// The name of a CSI driver.
pub fn driver(value: &Value, path: &Path, errors: &mut ErrorList) {
    const DRIVER_MAX: usize = 63;
    let (name, path) = (text(value, "driver"), path.child("driver"));
    if name.is_empty() {
        errors.push(Error::required(&path, ""));
    } else if name.len() > DRIVER_MAX {
        errors.push(Error::too_long(&path, DRIVER_MAX));
    }
    if !name.is_empty() {
        let faults = names::subdomain_faults(&name.to_lowercase(), false);
        errors.extend(faults.into_iter().map(|fault| Error::invalid(&path, name, fault)));
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
pub(crate) fn local_path(value: &str, path: &Path, errors: &mut ErrorList) {
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
