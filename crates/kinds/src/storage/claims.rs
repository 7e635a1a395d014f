//! PersistentVolumeClaims: their spec, which pods and StatefulSets have templates of, and what may change of it.

use super::{attributes_class, claim_status, mode_faults, short_modes, size_faults};
use crate::kit::{age, at, child, default, items, keep, map, same, text, unset};
use api::field::{Error, ErrorList, Path};
use api::names;
use api::quantity::Quantity;
use jiff::Timestamp;
use resource::status::Status;
use resource::{Context, Facts, Strategy};
use serde_json::{Value, json};

/// Faults of a claim's spec.
pub fn claim_spec(spec: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let modes = items(spec, "accessModes");
    if modes.is_empty() {
        errors.push(Error::required(&path.child("accessModes"), "at least 1 access mode is required"));
    }
    errors.extend(crate::podspec::label_selector(at(spec, "selector"), &path.child("selector")));
    mode_faults(modes, &path.child("accessModes"), &mut errors);
    let at_storage = path.child("resources").key("storage");
    match Quantity::from_json(at(spec, "resources.requests.storage")) {
        Err(_) => errors.push(Error::required(&at_storage, "")),
        Ok(amount) => size_faults(&amount, &at_storage, &mut errors),
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
    source_faults(at(spec, "dataSource"), &path.child("dataSource"), &mut errors);
    let (source, reference) = (at(spec, "dataSource"), at(spec, "dataSourceRef"));
    source_faults(reference, &path.child("dataSourceRef"), &mut errors);
    let part = |object: &Value, field: &str| text(object, field).to_owned();
    let parts = |object: &Value| ["apiGroup", "kind", "name"].map(|field| part(object, field));
    if !source.is_null() && !reference.is_null() && parts(source) != parts(reference) {
        errors.push(Error::invalid(path, spec.clone(), "must match dataSourceRef").shown_as("<value>"));
    }
    attributes_class(spec, path, &mut errors);
    errors
}

/// What a new claim's data come from is written in both places, and what only the newer one may name is gone from the older.
fn one_source(spec: &mut Value) {
    if !text(spec, "dataSourceRef.namespace").is_empty() {
        // what may cross namespaces is not enabled upstream
        map(spec).remove("dataSourceRef");
    }
    let source = at(spec, "dataSource");
    let known = matches!(
        (text(source, "apiGroup"), text(source, "kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    );
    if !source.is_null() && !known && at(spec, "dataSourceRef").is_null() {
        map(spec).remove("dataSource");
    }
    let (source, reference) = (at(spec, "dataSource").clone(), at(spec, "dataSourceRef").clone());
    if reference.is_null() && !source.is_null() {
        spec["dataSourceRef"] = source;
    } else if source.is_null() && !reference.is_null() && text(&reference, "namespace").is_empty() {
        spec["dataSource"] = reference;
    }
}

/// What a claim's data come from.
fn source_faults(source: &Value, path: &Path, errors: &mut ErrorList) {
    if source.is_null() {
        return;
    }
    for field in ["name", "kind"] {
        if text(source, field).is_empty() {
            errors.push(Error::required(&path.child(field), ""));
        }
    }
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(Error::invalid(path, kind, why));
    }
    if !group.is_empty() {
        let faults = names::subdomain_faults(group, false);
        errors.extend(faults.into_iter().map(|fault| Error::invalid(&path.child("apiGroup"), group, fault)));
    }
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
    fn facts(&self) -> Facts {
        Facts { grows_by: Some(""), has_generation: false, delete_returns_object: true, ..Facts::default() }
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings = crate::pod::warnings_of_claim(at(new, "spec"), "spec");
        if old.is_none() {
            let what =
                "binds none: a pod that uses one gets a folder of its machine, whatever size and class it asks for";
            warnings.push(crate::kit::stored_only("PersistentVolumeClaims", what));
        }
        warnings
    }

    fn admit_valid(&self, cx: &Context<'_>, new: &Value, part: Option<(&str, &Value)>) -> Result<(), Status> {
        match part {
            None => crate::limits::check(cx, "persistentvolumeclaims", new),
            Some(_) => Ok(()),
        }
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
        one_source(child(new, "spec"));
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        claim_spec(at(new, "spec"), &Path::new("spec"))
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        keep(new, old, "status");
        if unset(at(old, "spec.dataSource")) && unset(at(old, "spec.dataSourceRef")) {
            one_source(child(new, "spec"));
        }
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
        if bound {
            keep(&mut munged, before, "resources");
            keep(&mut munged, before, "volumeAttributesClassName");
        }
        if !same(&munged, before) {
            let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                          bound claims\n";
            errors.push(Error::forbidden(&path, detail));
        }
        let size = |amount: &Value| Quantity::from_json(amount).unwrap_or_default();
        let (wanted, had) = (at(new, "spec.resources.requests.storage"), at(before, "resources.requests.storage"));
        if size(wanted) < size(had) && size(wanted) <= size(at(old, "status.capacity.storage")) {
            let at_size = path.child("resources").child("requests").child("storage");
            errors.push(Error::forbidden(&at_size, "field can not be less than status.capacity"));
        }
        let mode = at(new, "spec.volumeMode");
        if mode != at(before, "volumeMode") {
            errors.push(Error::invalid(&Path::new("volumeMode"), mode.clone(), "field is immutable"));
        }
        errors
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
    }

    fn validate_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &Value, _old: &Value) -> ErrorList {
        claim_status::faults(at(new, "status"))
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
