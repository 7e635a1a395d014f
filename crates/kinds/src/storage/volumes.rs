//! PersistentVolumes: what they may be made of, and what may change of them.

use super::{attributes_class, mode_faults, short_modes, size_faults};
use crate::kit::{age, at, child, default, items, keep, same, text, unset};
use api::field::{Error, ErrorList, Path};
use api::names;
use api::quantity::Quantity;
use jiff::Timestamp;
use resource::{Context, Facts, Strategy};
use serde_json::{Value, json};

/// What a volume may be, in upstream's order.
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

/// What a volume must say of its source beyond what a pod does: whose secrets it names.
fn volume_source(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let Some(kind) = SOURCES.into_iter().find(|kind| !at(spec, kind).is_null()) else { return };
    let (source, path) = (at(spec, kind), path.child(kind));
    let secrets: &[&str] = match kind {
        "cinder" | "storageos" | "iscsi" => &["secretRef"],
        "csi" => &[
            "controllerPublishSecretRef",
            "controllerExpandSecretRef",
            "nodePublishSecretRef",
            "nodeStageSecretRef",
            "nodeExpandSecretRef",
        ],
        _ => &[],
    };
    for field in secrets {
        let (secret, path) = (at(source, field), path.child(field));
        // a name is asked for with the source where pods may have the field too
        let known = matches!((kind, *field), ("cinder" | "storageos", _) | ("csi", "nodePublishSecretRef"));
        if !secret.is_null() {
            for part in if known { &["namespace"][..] } else { &["name", "namespace"] } {
                if text(secret, part).is_empty() {
                    errors.push(Error::required(&path.child(part), ""));
                }
            }
        }
    }
    if kind == "csi" && text(source, "volumeHandle").is_empty() {
        errors.push(Error::required(&path.child("volumeHandle"), ""));
    }
}

/// The kind `PersistentVolume`.
pub struct Volumes;

impl Strategy for Volumes {
    fn facts(&self) -> Facts {
        Facts { has_generation: false, delete_returns_object: true, ..Facts::default() }
    }

    fn default(&self, object: &mut Value) {
        let spec = child(object, "spec");
        default(spec, "persistentVolumeReclaimPolicy", "Retain");
        crate::podspec::source_defaults(spec);
        default(spec, "volumeMode", "Filesystem");
        default(child(object, "status"), "phase", "Pending");
    }

    fn prepare_create(&self, cx: &Context<'_>, new: &mut Value) {
        new["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": crate::kit::written(cx.now)});
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        let spec = at(new, "spec");
        if items(spec, "accessModes").is_empty() {
            errors.push(Error::required(&path.child("accessModes"), ""));
        }
        mode_faults(items(spec, "accessModes"), &path.child("accessModes"), &mut errors);
        let (capacity, at_capacity) = (at(spec, "capacity"), path.child("capacity"));
        if unset(capacity) {
            errors.push(Error::required(&at_capacity, ""));
        }
        let amounts = capacity.as_object().into_iter().flatten();
        if capacity.get("storage").is_none() || amounts.clone().count() > 1 {
            errors.push(Error::not_supported(&at_capacity, capacity.clone(), &["storage"]));
        }
        for (name, amount) in amounts {
            if let Ok(amount) = Quantity::from_json(amount) {
                let at_amount = at_capacity.key(name);
                if amount.is_negative() {
                    errors.push(Error::invalid(&at_amount, amount.value(), "must be a valid resource quantity"));
                }
                size_faults(&amount, &at_amount, &mut errors);
            }
        }
        let policy = text(spec, "persistentVolumeReclaimPolicy");
        let at_policy = path.child("persistentVolumeReclaimPolicy");
        let policies = ["Delete", "Recycle", "Retain"];
        if !policies.contains(&policy) {
            errors.push(Error::not_supported(&at_policy, policy, &policies));
        }
        let affinity = at(spec, "nodeAffinity");
        if !affinity.is_null() {
            let path = path.child("nodeAffinity").child("required");
            match at(affinity, "required") {
                Value::Null => errors.push(Error::required(&path, "must specify required node constraints")),
                required => crate::podspec::node_selector(required, &path, &mut errors),
            }
        }
        crate::podspec::volume_type(spec, &SOURCES, &path, &mut errors);
        if !at(spec, "local").is_null() && affinity.is_null() {
            let why = "Local volume requires node affinity";
            errors.push(Error::required(&path.child("nodeAffinity"), why));
        }
        volume_source(spec, &path, &mut errors);
        let host = text(spec, "hostPath.path");
        if policy == "Recycle" && !host.is_empty() && host.chars().all(|c| c == '/') {
            errors.push(Error::forbidden(&at_policy, "may not be 'recycle' for a hostPath mount of '/'"));
        }
        let class = text(spec, "storageClassName");
        if !class.is_empty() {
            let faults = names::subdomain_faults(class, false);
            errors.extend(faults.into_iter().map(|why| Error::invalid(&path.child("storageClassName"), class, why)));
        }
        if let Some(mode) = at(spec, "volumeMode").as_str()
            && !["Block", "Filesystem"].contains(&mode)
        {
            errors.push(Error::not_supported(&path.child("volumeMode"), mode, &["Block", "Filesystem"]));
        }
        attributes_class(spec, &path, &mut errors);
        if !text(spec, "volumeAttributesClassName").is_empty() && at(spec, "csi").is_null() {
            let why = "has to be specified when using volumeAttributesClassName";
            errors.push(Error::required(&path.child("csi"), why));
        }
        errors
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        let spec = at(new, "spec");
        let mut out = crate::pod::warnings_of_sources(spec, "spec.");
        if text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
            let why = "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the \
                       recommended approach is to use dynamic provisioning.";
            out.push(why.to_owned());
        }
        out
    }

    fn validate_update(&self, cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = self.validate_create(cx, new);
        let source = |object: &Value| {
            SOURCES.iter().map(|kind| at(object, "spec").get(*kind).cloned().unwrap_or_default()).collect::<Vec<_>>()
        };
        if !source(new).iter().zip(&source(old)).all(|(new, old)| same(new, old)) {
            let why = "spec.persistentvolumesource is immutable after creation";
            errors.push(Error::forbidden(&Path::new("spec").child("persistentvolumesource"), why));
        }
        if at(new, "spec.volumeMode") != at(old, "spec.volumeMode") {
            let value = at(new, "spec.volumeMode").clone();
            errors.push(Error::invalid(&Path::new("volumeMode"), value, "field is immutable"));
        }
        errors
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        keep(new, old, "status");
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let phase = if api::object::is_terminating(object) { "Terminating" } else { text(object, "status.phase") };
        let claim = match text(object, "spec.claimRef.name") {
            "" => String::new(),
            name => format!("{}/{name}", text(object, "spec.claimRef.namespace")),
        };
        let or_unset = |field: &str| json!(at(object, field).as_str().unwrap_or("<unset>"));
        vec![
            json!(text(object, "metadata.name")),
            json!(text(object, "spec.capacity.storage")),
            json!(short_modes(items(object, "spec.accessModes"))),
            json!(text(object, "spec.persistentVolumeReclaimPolicy")),
            json!(phase),
            json!(claim),
            json!(text(object, "spec.storageClassName")),
            or_unset("spec.volumeAttributesClassName"),
            json!(text(object, "status.reason")),
            age(object, now),
            or_unset("spec.volumeMode"),
        ]
    }
}
