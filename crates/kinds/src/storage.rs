//! Claims of volumes, volumes, and classes of storage.

use super::kit::{age, at, child, default, items, keep, map, same, text, unset};
use api::field::{Error, ErrorList, Path};
use api::names;
use api::quantity::Quantity;
use jiff::Timestamp;
use resource::status::Status;
use resource::{Context, Strategy};
use serde_json::{Value, json};

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Access modes as tables show them: `RWO,RWX`.
fn short_modes(modes: &[Value]) -> String {
    let known =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let there = known.into_iter().filter(|(mode, _)| modes.iter().any(|m| m == mode));
    there.map(|(_, short)| short).collect::<Vec<_>>().join(",")
}

/// Faults of a claim's spec.
pub fn claim_spec(spec: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let modes = items(spec, "accessModes");
    if modes.is_empty() {
        errors.push(Error::required(&path.child("accessModes"), "at least 1 access mode is required"));
    }
    errors.extend(super::podspec::label_selector(at(spec, "selector"), &path.child("selector")));
    for mode in modes {
        let mode = mode.as_str().unwrap_or_default();
        if !MODES.contains(&mode) {
            errors.push(Error::not_supported(&path.child("accessModes"), mode, &MODES));
        }
    }
    if modes.len() > 1 && modes.iter().any(|m| m == "ReadWriteOncePod") {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.push(Error::forbidden(&path.child("accessModes"), detail));
    }
    let at_storage = path.child("resources").key("storage");
    match Quantity::from_json(at(spec, "resources.requests.storage")) {
        Err(_) => errors.push(Error::required(&at_storage, "")),
        Ok(amount) if amount.is_negative() || amount.is_zero() => {
            errors.push(Error::invalid(&at_storage, amount.to_string(), "must be greater than zero"));
        }
        Ok(_) => {}
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        for fault in names::subdomain_faults(class, false) {
            errors.push(Error::invalid(&path.child("storageClassName"), class, fault));
        }
    }
    if let Some(mode) = at(spec, "volumeMode").as_str()
        && !["Block", "Filesystem"].contains(&mode)
    {
        errors.push(Error::not_supported(&path.child("volumeMode"), mode, &["Block", "Filesystem"]));
    }
    errors
}

/// Puts the finalizer on that keeps an object for as long as it is used.
fn protect(object: &mut Value, finalizer: &str) {
    let finalizers = map(child(object, "metadata")).entry("finalizers").or_insert_with(|| json!([]));
    if finalizers.is_null() {
        *finalizers = json!([]);
    }
    if let Some(list) = finalizers.as_array_mut()
        && !list.iter().any(|f| f == finalizer)
    {
        list.push(finalizer.into());
    }
}

/// The kind `PersistentVolumeClaim`.
pub struct Claims;

const PROTECTION: &str = "kubernetes.io/pvc-protection";

impl Strategy for Claims {
    fn admit_valid(&self, cx: &Context<'_>, new: &Value) -> Result<(), Status> {
        super::limits::check(cx, "persistentvolumeclaims", new)
    }

    fn may_grow(&self, subresource: &str) -> bool {
        subresource.is_empty()
    }

    fn default(&self, object: &mut Value) {
        default(child(object, "spec"), "volumeMode", "Filesystem");
        default(child(object, "status"), "phase", "Pending");
    }

    fn admit_create(&self, cx: &Context<'_>, new: &mut Value) -> Result<(), resource::status::Status> {
        // A claim that names no class gets the default one.
        if at(new, "spec.storageClassName").is_null() {
            let class = (cx.list)("storage.k8s.io", "storageclasses", "").into_iter().find(|class| {
                api::object::annotation(class, "storageclass.kubernetes.io/is-default-class") == Some("true")
            });
            if let Some(class) = class {
                child(new, "spec")["storageClassName"] = text(&class, "metadata.name").into();
            }
        }
        protect(new, PROTECTION);
        Ok(())
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        new["status"] = json!({"phase": "Pending"});
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        claim_spec(at(new, "spec"), &Path::new("spec"))
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        keep(new, old, "status");
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let path = Path::new("spec");
        let mut errors = claim_spec(at(new, "spec"), &path);
        let (mut munged, before) = (at(new, "spec").clone(), at(old, "spec"));
        // The volume's name may be filled in; the size of a bound claim may grow.
        if text(before, "volumeName").is_empty() {
            keep(&mut munged, before, "volumeName");
        }
        let bound = text(old, "status.phase") == "Bound";
        let size = |spec: &Value| Quantity::from_json(at(spec, "resources.requests.storage")).unwrap_or_default();
        if bound {
            if size(at(new, "spec")) < size(before) {
                let at_size = path.child("resources").child("requests").child("storage");
                errors.push(Error::forbidden(&at_size, "field can not be less than previous value"));
            }
            keep(&mut munged, before, "resources");
        }
        keep(&mut munged, before, "volumeAttributesClassName");
        if !same(&munged, before) {
            let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                          bound claims\n";
            errors.push(Error::forbidden(&path, detail));
        }
        errors
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
    }

    fn generation_changed(&self, _new: &Value, _old: &Value) -> Option<bool> {
        None
    }

    fn delete_returns_object(&self) -> bool {
        true
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let phase = if api::object::is_terminating(object) { "Terminating" } else { text(object, "status.phase") };
        let bound = !text(object, "spec.volumeName").is_empty();
        let capacity = if bound { text(object, "status.capacity.storage") } else { "" };
        let modes = if bound { short_modes(items(object, "status.accessModes")) } else { String::new() };
        let or_unset = |field: &str| json!(at(object, field).as_str().unwrap_or("<unset>"));
        vec![
            json!(text(object, "metadata.name")),
            json!(phase),
            json!(text(object, "spec.volumeName")),
            json!(capacity),
            json!(modes),
            json!(text(object, "spec.storageClassName")),
            or_unset("spec.volumeAttributesClassName"),
            age(object, now),
            or_unset("spec.volumeMode"),
        ]
    }
}

/// The kind `PersistentVolume`.
pub struct Volumes;

impl Strategy for Volumes {
    fn default(&self, object: &mut Value) {
        let spec = child(object, "spec");
        default(spec, "persistentVolumeReclaimPolicy", "Retain");
        if let Some(host) = super::kit::child_if(spec, "hostPath") {
            default(host, "type", "");
        }
        default(spec, "volumeMode", "Filesystem");
        default(child(object, "status"), "phase", "Pending");
    }

    fn prepare_create(&self, cx: &Context<'_>, new: &mut Value) {
        new["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": super::kit::written(cx.now)});
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        let spec = at(new, "spec");
        if items(spec, "accessModes").is_empty() {
            errors.push(Error::required(&path.child("accessModes"), ""));
        }
        for mode in items(spec, "accessModes") {
            let mode = mode.as_str().unwrap_or_default();
            if !MODES.contains(&mode) {
                errors.push(Error::not_supported(&path.child("accessModes"), mode, &MODES));
            }
        }
        if unset(at(spec, "capacity")) {
            errors.push(Error::required(&path.child("capacity"), ""));
        }
        errors
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        keep(new, old, "status");
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
    }

    fn generation_changed(&self, _new: &Value, _old: &Value) -> Option<bool> {
        None
    }

    fn delete_returns_object(&self) -> bool {
        true
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

/// The kind `StorageClass`.
pub struct Classes;

impl Strategy for Classes {
    fn default(&self, object: &mut Value) {
        default(object, "reclaimPolicy", "Delete");
        default(object, "volumeBindingMode", "Immediate");
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        if text(new, "provisioner").is_empty() {
            errors.push(Error::required(&Path::new("provisioner"), ""));
        }
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

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            if !same(at(new, field), at(old, field)) {
                errors.push(Error::invalid(&Path::new(field), at(new, field).clone(), "field is immutable"));
            }
        }
        errors
    }

    fn generation_changed(&self, _new: &Value, _old: &Value) -> Option<bool> {
        None
    }

    fn delete_returns_object(&self) -> bool {
        true
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
            json!(super::kit::is_true(object, "allowVolumeExpansion")),
            age(object, now),
        ]
    }
}
