//! Claims of volumes, volumes, and classes of storage.

mod claim_status;

use crate::kit::{age, at, child, default, items, keep, map, same, text, unset};
use api::field::{Error, ErrorList, Path};
use api::names;
use api::quantity::Quantity;
use jiff::Timestamp;
use resource::status::Status;
use resource::{Context, Strategy};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

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

/// An amount of storage.
fn size_faults(amount: &Quantity, path: &Path, errors: &mut ErrorList) {
    if amount.is_negative() {
        errors.push(Error::invalid(path, amount.value(), "must be a valid resource quantity"));
    }
    if amount.is_negative() || amount.is_zero() {
        errors.push(Error::invalid(path, amount.to_string(), "must be greater than zero"));
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

fn attributes_class(spec: &Value, path: &Path, errors: &mut ErrorList) {
    if let Some(class) = at(spec, "volumeAttributesClassName").as_str()
        && !class.is_empty()
    {
        let faults = names::subdomain_faults(class, false);
        let path = path.child("volumeAttributesClassName");
        errors.extend(faults.into_iter().map(|fault| Error::invalid(&path, class, fault)));
    }
}

/// Access modes: they are known, and one that admits a single pod stands alone.
fn mode_faults(modes: &[Value], path: &Path, errors: &mut ErrorList) {
    for mode in modes {
        let mode = mode.as_str().unwrap_or_default();
        if !MODES.contains(&mode) {
            errors.push(Error::not_supported(path, mode, &MODES));
        }
    }
    let (alone, others) = modes.iter().partition::<Vec<_>, _>(|mode| *mode == "ReadWriteOncePod");
    if !alone.is_empty() && others.iter().any(|mode| mode.as_str().is_some_and(|mode| MODES.contains(&mode))) {
        errors.push(Error::forbidden(path, "may not use ReadWriteOncePod with other access modes"));
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
    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        crate::pod::warnings_of_claim(at(new, "spec"), "spec")
    }

    fn admit_valid(&self, cx: &Context<'_>, new: &Value) -> Result<(), Status> {
        crate::limits::check(cx, "persistentvolumeclaims", new)
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
                size_faults(&amount, &at_capacity.key(name), &mut errors);
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
            json!(crate::kit::is_true(object, "allowVolumeExpansion")),
            age(object, now),
        ]
    }
}
