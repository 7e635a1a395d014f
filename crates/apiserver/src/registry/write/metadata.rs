//! What an object's metadata says of its name, namespace and version, held against the request and the object that is there.

use super::*;
use serde_json::Map;
use store::Revision;

const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

/// Times in objects have whole seconds.
pub(crate) fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The object's metadata, made if absent.
pub(crate) fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let map = object.as_object_mut().expect("invariant: just made an object");
    let meta = map.entry("metadata").or_insert_with(|| json!({}));
    if !meta.is_object() {
        *meta = json!({});
    }
    meta.as_object_mut().expect("invariant: just made an object")
}

/// The body's namespace is the request's, or left out.
pub(crate) fn enforce_namespace(object: &mut Value, target: &Target) -> Result<(), Status> {
    let given = api::object::meta(object, "namespace").to_owned();
    if given == target.namespace {
        return Ok(());
    }
    if !given.is_empty() && !target.namespace.is_empty() {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if target.namespace.is_empty() {
        meta_mut(object).remove("namespace");
    } else {
        meta_mut(object).insert("namespace".to_owned(), target.namespace.clone().into());
    }
    Ok(())
}

/// The revision that a body names, 0 where it names none: an update with 0 replaces whatever there is.
///
/// # Errors
/// 500, in Go's words: upstream answers so to what is no number.
pub(super) fn named_revision(object: &Value) -> Result<Revision, Status> {
    let version = api::object::resource_version(object);
    if version.is_empty() {
        Ok(0)
    } else {
        merge::gotext::uint(version).map_err(|why| Status::new(500, "", why.to_string()))
    }
}

/// Refuses an update of another version than there is.
///
/// # Errors
/// 409, and those of [`named_revision`].
pub(crate) fn same_revision(target: &Target, new: &Value, entry: &Entry) -> Result<(), Status> {
    let resource = &target.served.resource;
    match named_revision(new)? {
        0 => Ok(()),
        revision if revision == entry.revision => Ok(()),
        _ => Err(Status::conflict(&resource.group, &resource.plural, &target.name, MODIFIED)),
    }
}

/// The object's name is the one in the path.
pub(in crate::registry) fn same_name(target: &Target, object: &Value) -> Result<(), Status> {
    match api::object::meta(object, "name") {
        name if name == target.name => Ok(()),
        "" => Err(Status::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        ))),
        name => Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        ))),
    }
}

/// The refusal of an update of an object that is another one than the client saw.
pub(crate) fn other_uid(target: &Target, wanted: &str, there: &str, dry_run: bool) -> Status {
    let resource = &target.served.resource;
    let key = registry_key(target, dry_run);
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
         UID in precondition: {wanted}, UID in object meta: {there}"
    );
    Status::conflict(&resource.group, &resource.plural, &target.name, &why)
}

/// The version that an update names is the object's; only some kinds may be updated without one.
pub(in crate::registry) fn expect_version(target: &Target, new: &Value, entry: &Entry) -> Result<(), Status> {
    let resource = &target.served.resource;
    if named_revision(new)? == 0 && (target.served.custom.is_some() || !resource.facts.unconditional_update) {
        let path = Path::new("metadata.resourceVersion");
        let error = api::field::Error::invalid(&path, json!(0), "must be specified for an update");
        return Err(Status::invalid(&resource.group, &resource.plural, &target.name, &vec![error]));
    }
    same_revision(target, new, entry)
}

/// A custom resource of another kind is invalid, not undecodable. It is still looked at where its types and bounds do not matter.
pub(super) fn kind_fits(target: &Target, object: &Value) -> Result<(), Status> {
    let resource = &target.served.resource;
    let kind = api::object::text(object, "kind");
    if kind == resource.kind {
        return Ok(());
    }
    let mut errors = vec![api::field::Error::invalid(&Path::new("kind"), kind, format!("must be {}", resource.kind))];
    if target.served.custom.is_some() {
        errors.extend(target.served.schema().invariants(object));
    }
    Err(Status::invalid(&resource.group, kind, api::object::meta(object, "name"), &errors))
}

/// Where upstream keeps the object in etcd: its messages show it.
pub(in crate::registry) fn registry_key(target: &Target, dry_run: bool) -> String {
    let resource = &target.served.resource;
    let place = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("", "services") => "services/specs".to_owned(),
        ("", "nodes") => "minions".to_owned(),
        ("", "replicationcontrollers") => "controllers".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
        (group, plural) if resource.custom || group == "apiextensions.k8s.io" => format!("{group}/{plural}"),
        (_, plural) => plural.to_owned(),
    };
    // a trial never reaches the layer that knows the prefix
    let root = if dry_run { "" } else { "/registry" };
    let parts = [place.as_str(), &target.namespace, &target.name];
    parts.into_iter().filter(|part| !part.is_empty()).fold(root.to_owned(), |key, part| format!("{key}/{part}"))
}
