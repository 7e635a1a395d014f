//! Objects are replaced: by updates, patches and applies.

use super::*;
use resource::Rechecks;

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

impl Core {
    /// Replaces an object by `body`, which has been decoded and pruned.
    ///
    /// # Errors
    /// Whatever upstream answers.
    pub fn update(&self, call: &Call<'_>, body: Value) -> Result<Attempt, Status> {
        let target = call.target;
        let resource = &target.served.resource;
        let mut new = body;
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
            return Err(other_uid(target, uid, there, call.options.dry_run));
        }
        let Some(entry) = entry else {
            keyed(target)?;
            if resource.strategy.create_on_update() && target.subresource.is_empty() {
                if resource.namespaced {
                    self.check_namespace(target, &target.name)?;
                }
                named_revision(&new)?;
                self.may_create(call)?;
                // a trial, which stores nothing, leaves the one that was sent
                if !call.options.dry_run {
                    meta_mut(&mut new).remove("resourceVersion");
                }
                return self.create(call, new, false);
            }
            return Err(not_found(target));
        };
        self.in_namespace(target)?;
        expect_version(target, &new, &entry)?;
        kind_fits(target, &new)?;
        self.replace(call, new, &entry, false, false)
    }

    /// The second half of every update: `new` takes the place of `entry`. `tracked`: its managed fields are right. `pruned`: fields were
    /// dropped from it that count as a change.
    pub(crate) fn replace(
        &self,
        call: &Call<'_>,
        mut new: Value,
        entry: &Arc<Entry>,
        tracked: bool,
        pruned: bool,
    ) -> Result<Attempt, Status> {
        let Call { target, options, user, warnings } = *call;
        let served = &target.served;
        let resource = &served.resource;
        let strategy = &*resource.strategy;
        let old = served.present_value(entry);
        let now = self.world.now();

        bounded(&new)?;
        // what only the scale's path makes gets no defaults
        if target.subresource != "scale" {
            fill_in(served, &mut new, tracked);
        }
        strategy.default(&mut new);
        carry_meta(&mut new, &old);
        let empty = empty_parts(&new);
        let managers = new["metadata"].get("managedFields");
        let no_managers = managers.filter(|list| served.custom.is_none() && **list == json!([])).cloned();
        let counted = strategy.counts_empty();
        // seldom: few lists that are owned as a whole hold objects, and fewer have something empty in them
        let is_counted = counted.is_some() || (!empty.is_empty() && apply::holds_empty(served.schema(), &new));
        let given = (served.custom.is_none() && is_counted).then(|| new.clone());
        served.normalize(&mut new);
        if let Some(list) = no_managers {
            // an empty list says something, that all is forgotten; of a custom resource upstream does not see it
            meta_mut(&mut new).insert("managedFields".to_owned(), list);
        }
        let api_version = served.api_version();
        let ignored = strategy.ignored(&target.subresource);
        let writer = Writer {
            manager: &options.manager,
            api_version: &api_version,
            kind: &resource.kind,
            subresource: &target.subresource,
            ignored: &ignored,
        };
        if target.subresource == "scale" {
            let paths = served.scale().unwrap_or_default();
            let path = api::object::text(&paths, "specReplicasPath");
            let number = |object: &Value| resource::jsonpath::simple(object, path).and_then(Value::as_i64);
            let catalog = self.catalog();
            let changed = number(&new).filter(|to| number(&old) != Some(*to));
            apply::track_scale(&old, &mut new, &writer, path, changed, tracked, |version| {
                catalog.scales(served, version)
            });
        } else if !tracked {
            match given.as_ref().and_then(|given| apply::with_empty(served.schema(), given, &new)) {
                Some(mut seen) => {
                    apply::track_update(Some(&old), &mut seen, &writer, served.schemas(), now);
                    let managers = seen["metadata"].get_mut("managedFields").map(Value::take);
                    let meta = meta_mut(&mut new);
                    meta.remove("managedFields");
                    meta.extend(managers.map(|managers| ("managedFields".to_owned(), managers)));
                }
                None => apply::track_update(Some(&old), &mut new, &writer, served.schemas(), now),
            }
        }
        let update = Operation::Update;
        let manner = options.manner(update);
        let by_policies = self.mutate_by_policies(target, update, &mut new, Some(&old), user, &manner, None)?;
        let ran = self.mutate(target, update, &mut new, Some(&old), user, options.dry_run)? || by_policies.is_some();
        if let Some(invoked) = &by_policies {
            self.mutate_by_policies(target, update, &mut new, Some(&old), user, &manner, Some(invoked))?;
        }
        if ran {
            served.prune(&mut new);
            served.schema().default_again(&mut new);
        }
        let main = target.subresource.is_empty();
        self.with_context(user, target, options.dry_run, |cx| {
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
                let sees = |part| {
                    given.as_ref().is_some_and(|given| apply::is_given_empty(served.schema(), given, &new, part))
                };
                let changed = changed || pruned || counted.is_some_and(sees);
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
            self.with_context(user, target, options.dry_run, |cx| strategy.admit_update(cx, &new, &old))?;
        }
        let path = Path::new("metadata");
        // Faults of rules in parts that this update leaves as they were.
        let mut let_be = Vec::new();
        let qualified = served.custom.is_none() && strategy.qualified_finalizers();
        let rechecks = resource.rechecks;
        let rechecks = Rechecks { whole: rechecks.whole && (main || rechecks.of_parts), ..rechecks };
        let mut errors = meta::validate_update(&new, &old, qualified, strategy, rechecks, &path);
        errors.extend(self.with_context(user, target, options.dry_run, |cx| {
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
        if main && served.custom.is_none() {
            errors.extend(empty.iter().filter_map(|(path, _)| strategy.refuses_empty(path)));
        }
        if !errors.is_empty() {
            let refused = self.invalid(target, api::object::meta(&new, "name"), errors, &empty);
            return Err(refused.with_warnings(&let_be));
        }
        if !main {
            let sub = &target.subresource;
            self.with_context(user, target, options.dry_run, |cx| strategy.admit_subresource(cx, sub, &new, &old))
                .map_err(|status| status.with_warnings(&let_be))?;
        }
        if served.custom.is_some() {
            merge::schema::written(&mut new);
        }
        // and those of its scale only now: upstream fills them in when it reads what it stored
        if target.subresource == "scale" {
            served.schema().default_again(&mut new);
        }
        let mut more = let_be;
        // the answer to a change of a scale warns of the object whose scale it is
        if main || target.subresource == "scale" {
            more.extend(strategy.warnings(&new, Some(&old)));
        }
        let hold = if strategy.may_grow(&target.subresource) {
            let hold = self.admit_quotas(target, &new, Some((&old, entry.revision)), options.dry_run);
            hold.map_err(|status| status.with_warnings(&more))?
        } else {
            None
        };
        self.validate(target, Operation::Update, Some(&new), Some(&old), user, &manner, &mut more)?;
        let warnings = [warnings, &more].concat();

        let version = api::object::resource_version(&old).to_owned();
        meta_mut(&mut new).insert("resourceVersion".to_owned(), version.into());
        let vanishes = self.vanishes(target, &new);
        if !vanishes && apply::same_but_times(&new, &old) && kept_so(served, &new, entry) {
            return Ok(Attempt::Done(Answer { code: 200, object: served.present(entry), warnings }));
        }
        bounded(&new)?;
        if options.dry_run {
            served.through_storage(&mut new);
            return Ok(Attempt::Done(Answer { code: 200, object: Object::Made(Arc::new(new)), warnings }));
        }
        // clients expect the object that they asked for; watchers hear of the one that was stored
        let reply = vanishes.then(|| new.clone());
        served.to_storage(&mut new);
        let (bucket, key) = (served.bucket.clone(), entry.key.clone());
        let op = if vanishes {
            Op::Delete { bucket, key, expect: entry.revision }
        } else {
            Op::Put { bucket, key, value: new, expect: Expect::Revision(entry.revision) }
        };
        Ok(Attempt::Write(Box::new(Pending {
            txn: Txn { ops: vec![op], hold, ..Txn::default() },
            code: 200,
            warnings,
            reply,
            target: target.clone(),
        })))
    }
}

/// The version that an update names is the object's; only some kinds may be updated without one.
pub(in crate::registry) fn expect_version(target: &Target, new: &Value, entry: &Entry) -> Result<(), Status> {
    let resource = &target.served.resource;
    if named_revision(new)? == 0 && (target.served.custom.is_some() || !resource.strategy.unconditional_update()) {
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

/// Whether an object would be stored as it is: one that was written in another version, or when its schema had more in it, is
/// written anew.
fn kept_so(served: &Served, new: &Value, entry: &Entry) -> bool {
    if served.custom.is_none() {
        return true;
    }
    let mut stored = new.clone();
    served.to_storage(&mut stored);
    apply::same_but_times(&stored, &entry.value())
}

/// Where upstream keeps the object in etcd: its messages show it.
pub(crate) fn registry_key(target: &Target, dry_run: bool) -> String {
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
        // nobody is told that it stays as it is
        if absent || field == "creationTimestamp" {
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
