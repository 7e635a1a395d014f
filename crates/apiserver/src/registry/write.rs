//! Creates and updates objects; the order of steps is upstream's (`k8s.io/apiserver/pkg/registry/rest`).

use super::read::not_found;
use super::{Answer, Attempt, Core, Object, Pending, Served, Target};
use crate::authorize;
use crate::decode::Place;
use crate::meta;
use crate::query::WriteOptions;
use api::field::{ErrorList, Path};
use jiff::Timestamp;
use merge::apply::{self, Writer};
use merge::bounds::Exceeded;
use resource::Beside;
use resource::User;
use resource::admission::Operation;
use resource::status::Status;
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

/// Generated names that may be taken before a create gives up, as upstream.
const GENERATED_MAX: usize = 8;
/// Refuses an object that nobody could read again. Called with what a request brings, before defaults and managed fields
/// multiply it, and with everything that is about to be stored.
pub(super) fn bounded(object: &Value) -> Result<(), Status> {
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

/// Metadata that no client gives to a new object.
const NEVER_GIVEN: [&str; 3] = ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"];

/// The empty maps and lists of an object, by path.
fn empty_parts(object: &Value) -> Vec<(String, Value)> {
    fn walk(value: &Value, place: &Place<'_>, out: &mut Vec<(String, Value)>) {
        match value {
            Value::Object(members) if members.is_empty() => out.push((place.path(), value.clone())),
            Value::Array(items) if items.is_empty() => out.push((place.path(), value.clone())),
            Value::Object(members) => members.iter().for_each(|(name, v)| walk(v, &Place::Field(place, name), out)),
            Value::Array(items) => items.iter().enumerate().for_each(|(i, v)| walk(v, &Place::Item(place, i), out)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut out = Vec::new();
    walk(object, &Place::Root, &mut out);
    out
}

const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

/// The version that an update names is the object's; only some kinds may be updated without one.
pub(super) fn expect_version(target: &Target, new: &Value, entry: &Entry) -> Result<(), Status> {
    let resource = &target.served.resource;
    if named_revision(new)? == 0 && (target.served.custom.is_some() || !resource.strategy.unconditional_update()) {
        let path = Path::new("metadata.resourceVersion");
        let error = api::field::Error::invalid(&path, json!(0), "must be specified for an update");
        return Err(Status::invalid(&resource.group, &resource.plural, &target.name, &vec![error]));
    }
    same_revision(target, new, entry)
}

impl Core {
    /// The refusal of an object. `empty`: what it had that was empty, which a message shows as such and not as absent.
    fn invalid(&self, target: &Target, name: &str, mut errors: ErrorList, empty: &[(String, Value)]) -> Status {
        let resource = &target.served.resource;
        for error in errors.iter_mut().filter(|error| error.value == Some(Value::Null)) {
            if let Some((_, value)) = empty.iter().find(|(path, _)| path == error.field.as_str()) {
                error.value = Some(value.clone());
            }
        }
        // Errors name the kind by which objects are kept.
        let group = resource.strategy.storage().map_or(resource.group.as_str(), |(group, _)| group);
        Status::invalid(group, &resource.kind, name, &errors)
    }

    /// Creates `body`, which has been decoded and pruned. `tracked`: its managed fields are already right.
    ///
    /// # Errors
    /// Whatever upstream answers.
    pub fn create(&self, call: &Call<'_>, body: &Value, tracked: bool) -> Result<Attempt, Status> {
        let Call { target, options, user, warnings } = *call;
        let served = &target.served;
        let resource = &served.resource;
        let strategy = &*resource.strategy;
        bounded(body)?;
        let mut new = body.clone();
        kind_fits(target, &new)?;
        enforce_namespace(&mut new, target)?;
        if let Some(custom) = served.custom.as_ref()
            && custom.terminating
        {
            let why = "create not allowed while custom resource definition is terminating";
            let name = api::object::meta(&new, "name");
            return Err(Status::forbidden(&resource.group, &resource.plural, name, why));
        }
        if resource.namespaced {
            self.check_namespace(target, api::object::meta(&new, "name"))?;
        }
        fill_in(served, &mut new, tracked);
        for field in NEVER_GIVEN {
            meta_mut(&mut new).remove(field);
        }
        strategy.default(&mut new);
        let empty = empty_parts(&new);
        served.normalize(&mut new);

        let writer = self.writer(target, options);
        let ignored = strategy.ignored("");
        let writer = Writer {
            ignored: &ignored,
            manager: &options.manager,
            api_version: &writer.0,
            kind: &resource.kind,
            subresource: "",
        };
        let now = self.world.now();
        if !tracked {
            meta_mut(&mut new).remove("managedFields");
            apply::track_update(None, &mut new, &writer, served.schema(), now);
        }
        {
            // What the server fills in is there for plugins to see.
            let uid = self.world.uid();
            let meta = meta_mut(&mut new);
            meta.insert("uid".to_owned(), uid.into());
            meta.insert("creationTimestamp".to_owned(), time(now).into());
        }
        self.with_context(user, &target.namespace, options.dry_run, |cx| strategy.admit_create(cx, &mut new))?;
        let ran = self.mutate(target, Operation::Create, &mut new, None, user, options.dry_run)?;
        if ran {
            served.prune(&mut new);
            served.schema().default_again(&mut new);
        }
        let generate = api::object::meta(&new, "generateName").to_owned();
        if api::object::meta(&new, "name").is_empty() && !generate.is_empty() {
            let base: String = generate.chars().take(58).collect();
            let namespace = api::object::meta(&new, "namespace");
            let is_free = |name: &String| self.store.get(&served.bucket, &Key::new(namespace, name)).is_none();
            let mut names = (0..GENERATED_MAX).map(|_| format!("{base}{}", self.world.suffix()));
            let name = names.find(is_free).unwrap_or_else(|| base.clone() + &self.world.suffix());
            meta_mut(&mut new).insert("name".to_owned(), name.into());
        }
        self.with_context(user, &target.namespace, options.dry_run, |cx| strategy.prepare_create(cx, &mut new));
        if strategy.generation_changed(&new, &new).is_some() {
            meta_mut(&mut new).insert("generation".to_owned(), 1.into());
        }
        served.normalize(&mut new);
        let name = api::object::meta(&new, "name").to_owned();
        let mut errors =
            meta::validate(&new, resource.namespaced, served.custom.is_none(), strategy, &Path::new("metadata"));
        errors.extend(
            self.with_context(user, &target.namespace, options.dry_run, |cx| strategy.validate_create(cx, &new)),
        );
        if served.custom.is_some() {
            errors.extend(served.schema().validate(&new, None, &Path::root()));
        }
        if !errors.is_empty() {
            return Err(self.invalid(target, &name, errors, &empty));
        }
        self.with_context(user, &target.namespace, options.dry_run, |cx| strategy.admit_valid(cx, &new))?;
        let hold = self.admit_quotas(target, &new, None, options.dry_run)?;
        let mut more = strategy.warnings(&new, None);
        self.validate(target, Operation::Create, Some(&new), None, user, options.dry_run, &mut more)?;
        let warnings = [warnings, &more].concat();
        // upstream's storage refuses it, which a trial does not reach
        if !options.dry_run && !api::object::resource_version(&new).is_empty() {
            return Err(Status::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        if !options.dry_run {
            meta_mut(&mut new).remove("resourceVersion");
        }
        let key = Key::new(api::object::meta(&new, "namespace"), &name);
        if let Some(entry) = self.store.get(&served.bucket, &key) {
            let mut status = Status::already_exists(&resource.group, &resource.plural, &name);
            if api::object::is_terminating(&entry.value()) {
                status.message = format!("object is being deleted: {}", status.message);
            }
            return Err(status);
        }
        bounded(&new)?;
        if options.dry_run {
            return Ok(Attempt::Done(Answer { code: 201, object: Object::Made(Arc::new(new)), warnings }));
        }
        served.to_storage(&mut new);
        let op = Op::Put { bucket: served.bucket.clone(), key, value: new, expect: Expect::Absent };
        Ok(Attempt::Write(Box::new(Pending {
            txn: Txn { ops: vec![op], hold },
            code: 201,
            warnings,
            reply: None,
            target: target.clone(),
        })))
    }

    /// PUT and PATCH that would make an object need the right to make it, too.
    ///
    /// # Errors
    /// 403, in upstream's words.
    pub(super) fn may_create(&self, call: &Call<'_>) -> Result<(), Status> {
        let Target { served, namespace, name, .. } = call.target;
        let resource = &served.resource;
        authorize::may(self, call.user, "create", &resource.group, &resource.plural, namespace, name, "")
    }

    fn writer(&self, target: &Target, _options: &WriteOptions) -> (String,) {
        (target.served.api_version(),)
    }

    /// A namespace must exist and not be on its way out to take new objects.
    fn check_namespace(&self, target: &Target, name: &str) -> Result<(), Status> {
        let resource = &target.served.resource;
        let found = self.store.get(&super::catalog::bucket("", "namespaces"), &Key::new("", &target.namespace));
        let Some(entry) = found else {
            // Reviews are asked in namespaces that need not exist.
            if !resource.verbs.contains(&"get") {
                return Ok(());
            }
            return Err(Status::not_found("", "namespaces", &target.namespace));
        };
        if !api::object::is_terminating(&entry.value()) {
            return Ok(());
        }
        let namespace = &target.namespace;
        let mut status = Status::forbidden(
            &resource.group,
            &resource.plural,
            name,
            &format!("unable to create new content in namespace {namespace} because it is being terminated"),
        );
        if let Some(details) = &mut status.details {
            details["causes"] = json!([{
                "reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"),
                "field": "metadata.namespace",
            }]);
        }
        Err(status)
    }

    /// Replaces an object by `body`, which has been decoded and pruned.
    ///
    /// # Errors
    /// Whatever upstream answers.
    pub fn update(&self, call: &Call<'_>, body: &Value) -> Result<Attempt, Status> {
        let target = call.target;
        let resource = &target.served.resource;
        let mut new = body.clone();
        kind_fits(target, &new)?;
        enforce_namespace(&mut new, target)?;
        match api::object::meta(&new, "name") {
            "" => {
                return Err(Status::bad_request(format!(
                    "the name of the object ({} based on URL) was undeterminable: name must be provided",
                    target.name
                )));
            }
            name if name != target.name => {
                return Err(Status::bad_request(format!(
                    "the name of the object ({name}) does not match the name on the URL ({})",
                    target.name
                )));
            }
            _ => {}
        }
        let entry = self.entry(target);
        // upstream's order: whose object it is, how it reads, whether it is there
        let uid = api::object::uid(&new);
        let old = entry.as_ref().map(|entry| entry.value());
        let there = old.as_ref().map_or("", |old| api::object::uid(old));
        let made = entry.is_some() || resource.strategy.create_on_update();
        if made && !uid.is_empty() && uid != there {
            let key = registry_key(target, call.options.dry_run);
            return Err(Status::conflict(
                &resource.group,
                &resource.plural,
                &target.name,
                &format!(
                    "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
                     Precondition failed: UID in precondition: {uid}, UID in object meta: {there}"
                ),
            ));
        }
        let Some(entry) = entry else {
            if resource.strategy.create_on_update() && target.subresource.is_empty() {
                named_revision(&new)?;
                self.may_create(call)?;
                meta_mut(&mut new).remove("resourceVersion");
                return self.create(call, &new, false);
            }
            return Err(not_found(target));
        };
        expect_version(target, &new, &entry)?;
        self.replace(call, new, &entry, false)
    }

    /// The second half of every update: `new` takes the place of `entry`. `tracked`: its managed fields are right.
    pub(crate) fn replace(
        &self,
        call: &Call<'_>,
        mut new: Value,
        entry: &Arc<Entry>,
        tracked: bool,
    ) -> Result<Attempt, Status> {
        let Call { target, options, user, warnings } = *call;
        let served = &target.served;
        let resource = &served.resource;
        let strategy = &*resource.strategy;
        let old = served.present_value(entry);
        let now = self.world.now();

        bounded(&new)?;
        fill_in(served, &mut new, tracked);
        strategy.default(&mut new);
        carry_meta(&mut new, &old);
        let empty = empty_parts(&new);
        served.normalize(&mut new);
        let api_version = served.api_version();
        let ignored = strategy.ignored(&target.subresource);
        let writer = Writer {
            manager: &options.manager,
            api_version: &api_version,
            kind: &resource.kind,
            subresource: &target.subresource,
            ignored: &ignored,
        };
        if !tracked {
            apply::track_update(Some(&old), &mut new, &writer, served.schema(), now);
            if target.subresource == "scale" {
                untimed(&mut new, "scale");
            }
        }
        let ran = self.mutate(target, Operation::Update, &mut new, Some(&old), user, options.dry_run)?;
        if ran {
            served.prune(&mut new);
            served.schema().default_again(&mut new);
        }
        let main = target.subresource.is_empty();
        self.with_context(user, &target.namespace, options.dry_run, |cx| {
            if main {
                strategy.prepare_update(cx, &mut new, &old);
            } else {
                strategy.prepare_subresource(cx, &target.subresource, &mut new, &old);
            }
        });
        served.normalize(&mut new);
        let generation = old["metadata"].get("generation").and_then(Value::as_i64);
        match (generation, strategy.generation_changed(&new, &old)) {
            (Some(generation), Some(changed)) if target.subresource != "status" => {
                meta_mut(&mut new).insert("generation".to_owned(), (generation + i64::from(changed)).into());
            }
            (Some(generation), _) => {
                meta_mut(&mut new).insert("generation".to_owned(), generation.into());
            }
            (None, _) => {
                meta_mut(&mut new).remove("generation");
            }
        }
        if main {
            self.with_context(user, &target.namespace, options.dry_run, |cx| strategy.admit_update(cx, &new, &old))?;
        }
        let path = Path::new("metadata");
        // Faults of rules in parts that this update leaves as they were.
        let mut let_be = Vec::new();
        // Upstream's generic update and the kind's own both look at metadata, twice each: so many causes there are.
        let builtin = served.custom.is_none();
        let mut errors = meta::validate_update(&new, &old, builtin, &path);
        errors.extend(errors.clone());
        let again = meta::validate_unchanging(&new, builtin, &path);
        for _ in 0..if builtin { 2 } else { 1 } {
            errors.extend(again.clone());
        }
        errors.extend(self.with_context(user, &target.namespace, options.dry_run, |cx| {
            if main {
                strategy.validate_update(cx, &new, &old)
            } else {
                strategy.validate_subresource(cx, &target.subresource, &new, &old)
            }
        }));
        if served.custom.is_some() {
            let found = match target.subresource.as_str() {
                "status" => served.schema().check_status(&new, &old),
                _ => served.schema().check(&new, Some(&old), &Path::root()),
            };
            errors.extend(found.errors);
            let_be = found.warnings;
        }
        if !errors.is_empty() {
            return Err(self.invalid(target, &target.name, errors, &empty));
        }
        let mut more = let_be;
        more.extend(strategy.warnings(&new, Some(&old)));
        let hold = if strategy.may_grow(&target.subresource) {
            self.admit_quotas(target, &new, Some((&old, entry.revision)), options.dry_run)?
        } else {
            None
        };
        self.validate(target, Operation::Update, Some(&new), Some(&old), user, options.dry_run, &mut more)?;
        let warnings = [warnings, &more].concat();

        let version = api::object::resource_version(&old).to_owned();
        meta_mut(&mut new).insert("resourceVersion".to_owned(), version.into());
        let vanishes = self.vanishes(target, &new);
        if !vanishes && apply::same_but_times(&new, &old) {
            return Ok(Attempt::Done(Answer { code: 200, object: served.present(entry), warnings }));
        }
        bounded(&new)?;
        if options.dry_run {
            return Ok(Attempt::Done(Answer { code: 200, object: Object::Made(Arc::new(new)), warnings }));
        }
        served.to_storage(&mut new);
        let (bucket, key) = (served.bucket.clone(), entry.key.clone());
        let op = if vanishes {
            Op::Delete { bucket, key, expect: entry.revision, last: Some(new) }
        } else {
            Op::Put { bucket, key, value: new, expect: Expect::Revision(entry.revision) }
        };
        Ok(Attempt::Write(Box::new(Pending {
            txn: Txn { ops: vec![op], hold },
            code: 200,
            warnings,
            reply: None,
            target: target.clone(),
        })))
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

    /// Writes objects that change along with what was asked for, each at the version it was read at.
    pub(crate) fn write_beside(&self, target: &Target, objects: Vec<Beside>) -> Result<Attempt, Status> {
        let mut ops = Vec::new();
        for Beside { group, plural, object } in objects {
            let bucket = super::catalog::bucket(group, plural);
            let key = Key::new(api::object::meta(&object, "namespace"), api::object::meta(&object, "name"));
            let Some(entry) = self.store.get(&bucket, &key) else {
                return Err(Status::not_found(group, plural, &key.name));
            };
            // An object that has changed meanwhile makes the transaction fail, and the request is thought over again.
            let expect = match api::object::resource_version(&object).parse() {
                Ok(revision) => Expect::Revision(revision),
                Err(_) => Expect::Revision(entry.revision),
            };
            ops.push(Op::Put { bucket: bucket.into(), key, value: object, expect });
        }
        Ok(Attempt::Write(Box::new(Pending {
            txn: Txn { ops, hold: None },
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

/// A custom resource of another kind is invalid, not undecodable.
fn kind_fits(target: &Target, object: &Value) -> Result<(), Status> {
    let resource = &target.served.resource;
    let kind = api::object::text(object, "kind");
    if kind == resource.kind {
        return Ok(());
    }
    let error = api::field::Error::invalid(&Path::new("kind"), kind, format!("must be {}", resource.kind));
    Err(Status::invalid(&resource.group, kind, api::object::meta(object, "name"), &vec![error]))
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

/// Where upstream keeps the object in etcd: its messages show it.
fn registry_key(target: &Target, dry_run: bool) -> String {
    let resource = &target.served.resource;
    let place = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("", "services") => "services/specs".to_owned(),
        ("", "nodes") => "minions".to_owned(),
        ("", "replicationcontrollers") => "controllers".to_owned(),
        (group, plural) if resource.custom || group == "apiextensions.k8s.io" => format!("{group}/{plural}"),
        (_, plural) => plural.to_owned(),
    };
    // a trial never reaches the layer that knows the prefix
    let root = if dry_run { "" } else { "/registry" };
    let parts = [place.as_str(), &target.namespace, &target.name];
    parts.into_iter().filter(|part| !part.is_empty()).fold(root.to_owned(), |key, part| format!("{key}/{part}"))
}

/// Upstream's scale handler keeps no time with the fields that it manages.
fn untimed(object: &mut Value, subresource: &str) {
    let entries = object["metadata"].get_mut("managedFields").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten().filter(|e| e["subresource"] == subresource) {
        if let Some(entry) = entry.as_object_mut() {
            entry.remove("time");
        }
    }
}

/// What an updater may leave out and may not take away.
fn carry_meta(new: &mut Value, old: &Value) {
    let old = &old["metadata"];
    let deleting = old.get("deletionTimestamp").is_some_and(|t| !t.is_null());
    let meta = meta_mut(new);
    for field in ["uid", "creationTimestamp", "deletionGracePeriodSeconds", "name", "namespace"] {
        let absent = match meta.get(field) {
            None | Some(Value::Null) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(_) => false,
        };
        if absent {
            meta.remove(field);
            if let Some(value) = old.get(field) {
                meta.insert(field.to_owned(), value.clone());
            }
        }
    }
    if deleting {
        meta.insert("deletionTimestamp".to_owned(), old["deletionTimestamp"].clone());
    } else if meta.get("deletionTimestamp").is_some_and(Value::is_null) {
        meta.remove("deletionTimestamp");
    }
    meta.remove("selfLink");
}

/// Defaults. A request's body loses its nulls where null is not allowed; what an apply merged keeps them, for validation to
/// find.
fn fill_in(served: &Served, new: &mut Value, applied: bool) {
    if applied { served.schema().default_again(new) } else { served.schema().default(new) }
}
