//! Creates and updates objects; the order of steps is upstream's (`k8s.io/apiserver/pkg/registry/rest`).

mod create;
mod replace;

use super::read::{keyed, not_found};
use super::{Answer, Attempt, Core, Object, Pending, Served, Target, catalog};
use crate::authorize;
use crate::decode::Place;
use crate::meta;
use crate::query::WriteOptions;
use api::field::{ErrorList, Path};
use jiff::Timestamp;
use merge::apply::{self, Ignored, Writer};
use merge::bounds::Exceeded;
pub(super) use replace::expect_version;
use replace::kind_fits;
pub(crate) use replace::{other_uid, registry_key};
use resource::Beside;
use resource::User;
use resource::admission::Operation;
use resource::status::{Cause, Status};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use store::{Entry, Expect, Key, Op, Revision, Txn};

/// What both kinds of write know about their request.
pub struct Call<'a> {
    pub target: &'a Target,
    pub options: &'a WriteOptions,
    pub user: &'a User,
    /// From decoding.
    pub warnings: &'a [String],
}

impl Core {
    /// The managed fields of an object that was `sent` to a subresource, and is stored nowhere.
    pub(crate) fn managed_by(&self, target: &Target, options: &WriteOptions, mut sent: Value) -> Value {
        let (version, kind) =
            (api::object::text(&sent, "apiVersion").to_owned(), api::object::text(&sent, "kind").to_owned());
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let Some(name) = merge::builtin::type_name(group, &kind) else { return Value::Null };
        let meta = meta_mut(&mut sent);
        meta.retain(|field, _| matches!(field.as_str(), "annotations" | "labels"));
        let ignored = Ignored::Nothing;
        let writer = Writer {
            manager: &options.manager,
            api_version: &version,
            kind: &kind,
            subresource: &target.subresource,
            ignored: &ignored,
        };
        apply::track_update(None, &mut sent, &writer, &*merge::builtin::schema(name), self.world.now());
        sent["metadata"]["managedFields"].take()
    }
}

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

/// Refuses an object that nobody could read again. Called with what a request brings, before defaults and managed fields
/// multiply it, and with everything that is about to be stored.
pub(crate) fn bounded(object: &Value) -> Result<(), Status> {
    merge::bounds::check(object).map_err(|exceeded| {
        let name = api::object::meta(object, "name");
        match exceeded {
            Exceeded::Depth => {
                Status::bad_request(format!("{} {name:?}: {exceeded}", api::object::text(object, "kind")))
            }
            // Upstream answers 500, as if the fault were its own.
            Exceeded::Bytes => Status::new(413, "RequestEntityTooLarge", exceeded.to_string()),
        }
    })
}

/// The empty maps and lists of an object, by path; without those of managed fields, which have many, and which no message shows.
fn empty_parts(object: &Value) -> Vec<(String, Value)> {
    fn walk(value: &Value, place: &Place<'_>, out: &mut Vec<(String, Value)>) {
        match value {
            Value::Object(members) if members.is_empty() => out.push((place.path(), value.clone())),
            Value::Array(items) if items.is_empty() => out.push((place.path(), value.clone())),
            Value::Object(members) => {
                let is_meta = matches!(place, Place::Field(Place::Root, "metadata"));
                let shown = members.iter().filter(|(name, _)| !(is_meta && *name == "managedFields"));
                shown.for_each(|(name, v)| walk(v, &Place::Field(place, name), out));
            }
            Value::Array(items) => items.iter().enumerate().for_each(|(i, v)| walk(v, &Place::Item(place, i), out)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut out = Vec::new();
    walk(object, &Place::Root, &mut out);
    out
}

const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

impl Core {
    /// The refusal of an object. `empty`: what it had that was empty, which a message shows as such and not as absent.
    fn invalid(&self, target: &Target, name: &str, mut errors: ErrorList, empty: &[(String, Value)]) -> Status {
        let resource = &target.served.resource;
        for error in errors.iter_mut().filter(|error| error.value == Some(Value::Null)) {
            let field = error.field.as_str();
            let shown = resource.strategy.shown_at(field).unwrap_or(field);
            if let Some((_, value)) = empty.iter().find(|(path, _)| path == shown) {
                error.value = Some(value.clone());
            }
        }
        // Errors name the kind by which objects are kept.
        let group = resource.strategy.storage().map_or(resource.group.as_str(), |(group, _)| group);
        Status::invalid(group, &resource.kind, name, &errors)
    }

    /// Stores what a subresource's POST made of its parent.
    pub(crate) fn write_parent(
        &self,
        target: &Target,
        entry: &Arc<Entry>,
        old: &Value,
        mut new: Value,
        reply: Option<Value>,
        dry_run: bool,
    ) -> Result<Attempt, Status> {
        let served = &target.served;
        if new == *old || dry_run {
            let object = reply.map_or_else(|| served.present(entry), |reply| Object::Made(Arc::new(reply)));
            return Ok(Attempt::Done(Answer { code: 201, object, warnings: Vec::new() }));
        }
        served.to_storage(&mut new);
        let op = Op::Put {
            bucket: served.bucket.clone(),
            key: entry.key.clone(),
            value: new,
            expect: Expect::Revision(entry.revision),
        };
        Ok(Attempt::Write(Box::new(Pending {
            txn: Txn::one(op),
            code: 201,
            warnings: Vec::new(),
            reply,
            target: target.clone(),
        })))
    }

    /// Writes objects that change along with what was asked for, each at the version it was read at. What stays as it was is not written.
    pub(crate) fn write_beside(&self, target: &Target, objects: Vec<Beside>) -> Result<Attempt, Status> {
        let mut ops = Vec::new();
        for Beside { group, plural, object } in objects {
            let bucket = catalog::bucket(group, plural);
            let key = Key::new(api::object::meta(&object, "namespace"), api::object::meta(&object, "name"));
            let Some(entry) = self.store.get(&bucket, &key) else {
                return Err(Status::not_found(group, plural, &key.name));
            };
            if *entry.value() == object {
                continue;
            }
            // An object that has changed meanwhile makes the transaction fail, and the request is thought over again.
            let expect = match api::object::resource_version(&object).parse() {
                Ok(revision) => Expect::Revision(revision),
                Err(_) => Expect::Revision(entry.revision),
            };
            ops.push(Op::Put { bucket: bucket.into(), key, value: object, expect });
        }
        if ops.is_empty() {
            return Ok(Attempt::made(201, Value::Null));
        }
        Ok(Attempt::Write(Box::new(Pending {
            txn: Txn { ops, ..Txn::default() },
            code: 201,
            warnings: Vec::new(),
            reply: Some(Value::Null),
            target: target.clone(),
        })))
    }

    /// Whether nothing holds a deleted object back any more.
    pub(crate) fn vanishes(&self, target: &Target, object: &Value) -> bool {
        let meta = &object["metadata"];
        let finalizers = meta.get("finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty());
        let grace = meta.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
        api::object::is_terminating(object)
            && !finalizers
            && grace == 0
            && target.served.resource.strategy.may_vanish(object)
    }
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
pub(crate) fn named_revision(object: &Value) -> Result<Revision, Status> {
    let version = api::object::resource_version(object);
    if version.is_empty() { Ok(0) } else { merge::gotext::uint(version).map_err(|why| Status::new(500, "", why)) }
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

/// Defaults. A request's body loses its nulls where null is not allowed; what an apply merged keeps them, for validation to
/// find. A custom resource that says that it is of another kind gets none.
fn fill_in(served: &Served, new: &mut Value, applied: bool) {
    if served.is_other_kind(new) {
        return;
    }
    if applied { served.schema().default_again(new) } else { served.schema().default(new) }
}
