//! Objects are replaced: by updates, patches and applies.

use super::*;

impl<'a> Write<'a> {
    /// The stages of an update.
    pub(super) const UPDATE: [Stage<'a>; 9] = [
        ("Default", Self::default_updated),
        ("FieldManager.Update", Self::update_managed_fields),
        ("Admit", Self::admit),
        ("PrepareForUpdate", Self::prepare_for_update),
        ("BeginUpdate", Self::begin_update),
        ("ValidateUpdate", Self::validate_update),
        ("Canonicalize", Self::canonicalize),
        ("WarningsOnUpdate", Self::warnings_on_update),
        ("ValidatingAdmission", Self::validate_admission),
    ];

    /// The object that is replaced: null in a create, which has no stage of these.
    fn old(&self) -> &'a Value {
        static NONE: Value = Value::Null;
        self.old.map_or(&NONE, |old| old.value)
    }

    /// `runtime.ObjectDefaulter.Default`: fills in what the client left out, and metadata that an updater may leave out and not
    /// change. From here on the object is as Go would write it; `empty` and `given` remember the empty parts that this drops.
    fn default_updated(&mut self) -> Result<(), Status> {
        let (served, strategy, old) = (self.served(), self.strategy(), self.old());
        // what only the scale's path makes gets no defaults
        if !self.is_scale() {
            fill_in(served, &mut self.new, self.tracked);
        }
        strategy.default(&mut self.new);
        carry_meta(&mut self.new, old);
        self.empty = empty_parts(&self.new);
        let managers = self.new["metadata"].get("managedFields");
        let no_managers = managers.filter(|list| served.custom.is_none() && **list == json!([])).cloned();
        // seldom: few lists that are owned as a whole hold objects, and fewer have something empty in them
        let is_counted = self.facts().counts_empty.is_some()
            || (!self.empty.is_empty() && apply::holds_empty(served.schema(), &self.new));
        self.given = (served.custom.is_none() && is_counted).then(|| self.new.clone());
        served.normalize(&mut self.new);
        if let Some(list) = no_managers {
            // an empty list says something, that all is forgotten; of a custom resource upstream does not see it
            meta_mut(&mut self.new).insert("managedFields".to_owned(), list);
        }
        Ok(())
    }

    /// `managedfields.FieldManager.Update`: sets `metadata.managedFields`, and touches nothing else. What admission changes later
    /// has no manager.
    fn update_managed_fields(&mut self) -> Result<(), Status> {
        let (call, served, old, now) = (self.call, self.served(), self.old(), self.now);
        if self.is_scale() {
            call.as_writer(|writer| self.update_managers_of_scale(writer));
            return Ok(());
        }
        if self.tracked == Tracked::Yes {
            return Ok(());
        }
        let given = self.given.as_ref();
        let seen = given.and_then(|given| apply::with_empty(served.schema(), given, &self.new));
        call.as_writer(|writer| match seen {
            Some(mut seen) => {
                apply::track_update(Some(old), &mut seen, writer, served.schemas(), now);
                let managers = seen["metadata"].get_mut("managedFields").map(Value::take);
                let meta = meta_mut(&mut self.new);
                meta.remove("managedFields");
                meta.extend(managers.map(|managers| ("managedFields".to_owned(), managers)));
            }
            None => apply::track_update(Some(old), &mut self.new, writer, served.schemas(), now),
        });
        Ok(())
    }

    fn update_managers_of_scale(&mut self, writer: &Writer<'_>) {
        let (served, old) = (self.served(), self.old());
        let paths = served.scale().unwrap_or_default();
        let path = api::object::text(&paths, "specReplicasPath");
        let number = |object: &Value| resource::jsonpath::simple(object, path).and_then(Value::as_i64);
        let catalog = self.core.catalog();
        let changed = number(&self.new).filter(|to| number(old) != Some(*to));
        let applied = self.tracked == Tracked::Yes;
        apply::track_scale(old, &mut self.new, writer, path, changed, applied, |version| {
            catalog.scales(served, version)
        });
    }

    /// `RESTUpdateStrategy.PrepareForUpdate`: the kind takes back what this request may not change, and raises the generation. The
    /// last stage before the store in which the object's content changes.
    fn prepare_for_update(&mut self) -> Result<(), Status> {
        let (core, call, strategy, old) = (self.core, self.call, self.strategy(), self.old());
        let main = self.is_main();
        call.context(core, |cx| match main {
            true => strategy.prepare_update(cx, &mut self.new, old),
            false => strategy.prepare_subresource(cx, &call.target.subresource, &mut self.new, old),
        });
        self.served().normalize(&mut self.new);
        let generation = old["metadata"].get("generation").and_then(Value::as_i64);
        let may_rise = self.facts().has_generation && call.target.subresource != "status";
        let rises = || strategy.generation_changed(&self.new, old) || self.pruned == Pruned::Yes || self.counts_given();
        let next = generation.map(|generation| generation + i64::from(may_rise && rises()));
        let meta = meta_mut(&mut self.new);
        match next {
            Some(generation) => meta.insert("generation".to_owned(), generation.into()),
            None => meta.remove("generation"),
        };
        Ok(())
    }

    /// Whether an empty part was given that counts as a change.
    fn counts_given(&self) -> bool {
        let schema = self.served().schema();
        let sees =
            |part| self.given.as_ref().is_some_and(|given| apply::is_given_empty(schema, given, &self.new, part));
        self.facts().counts_empty.is_some_and(sees)
    }

    /// `Store.BeginUpdate`: the kind may refuse to change this object at all, as for a role with more rights than the user has. It changes
    /// nothing.
    fn begin_update(&mut self) -> Result<(), Status> {
        let (core, call, strategy, old) = (self.core, self.call, self.strategy(), self.old());
        if !self.is_main() {
            return Ok(());
        }
        call.context(core, |cx| strategy.admit_update(cx, &self.new, old))
    }

    /// `RESTUpdateStrategy.ValidateUpdate` and `ValidateObjectMetaUpdate`: refuse the object for all that is wrong with it, or with
    /// its change. They change nothing. Faults of a custom resource that were there before are warned of.
    fn validate_update(&mut self) -> Result<(), Status> {
        let (core, call, served, strategy) = (self.core, self.call, self.served(), self.strategy());
        let (new, old, main) = (&self.new, self.old(), self.is_main());
        let custom = served.custom.is_some();
        let mut errors = meta::validate_update(new, old, &served.resource, main, &Path::new("metadata"));
        let sub = call.target.subresource.as_str();
        errors.extend(call.context(core, |cx| match main {
            true => strategy.validate_update(cx, new, old),
            false => strategy.validate_subresource(cx, sub, new, old),
        }));
        if custom {
            let found = match sub {
                "status" => served.schema().check_status(new, old),
                _ => served.schema().check(new, Some(old), &Path::root()),
            };
            errors.extend(found.errors);
            // faults of rules in parts that this update leaves as they were
            self.warnings = found.warnings;
        }
        if main && !custom {
            errors.extend(self.refused_empty());
        }
        if errors.is_empty() { Ok(()) } else { Err(self.invalid(errors)) }
    }

    /// `RESTUpdateStrategy.Canonicalize`: brings numbers of custom resources into the form in which they are stored. An object whose
    /// scale was changed gets its defaults only now: upstream fills them in when it reads what it stored.
    fn canonicalize(&mut self) -> Result<(), Status> {
        if self.served().custom.is_some() {
            merge::schema::written(&mut self.new);
        }
        if self.is_scale() {
            self.served().schema().default_again(&mut self.new);
        }
        Ok(())
    }

    /// `RESTUpdateStrategy.WarningsOnUpdate`: adds to the warnings, and touches nothing else. The answer to a change of a scale warns
    /// of the object whose scale it is.
    fn warnings_on_update(&mut self) -> Result<(), Status> {
        if self.is_main() || self.is_scale() {
            self.warnings.extend(self.strategy().warnings(&self.new, Some(self.old())));
        }
        Ok(())
    }

    /// `Storage.GuaranteedUpdate`: stores the object, or drops it where nothing holds a deleted one back any more. An object that
    /// stays as it was is not written. From here on only the form changes in which the object is stored.
    fn replace(mut self, entry: &Arc<Entry>) -> Result<Attempt, Status> {
        let (served, old) = (self.served(), self.old());
        let version = api::object::resource_version(old).to_owned();
        meta_mut(&mut self.new).insert("resourceVersion".to_owned(), version.into());
        let vanishes = self.core.vanishes(self.call.target, &self.new);
        if !vanishes && apply::same_but_times(&self.new, old) && kept_so(served, &self.new, entry) {
            let warnings = self.all_warnings();
            return Ok(Attempt::Done(Answer { code: 200, object: served.present(entry), warnings }));
        }
        bounded(&self.new)?;
        if self.call.options.dry_run {
            served.through_storage(&mut self.new);
            let warnings = self.all_warnings();
            return Ok(Attempt::Done(Answer { code: 200, object: Object::Made(Arc::new(self.new)), warnings }));
        }
        // clients expect the object that they asked for; watchers hear of the one that was stored
        let reply = vanishes.then(|| self.new.clone());
        served.to_storage(&mut self.new);
        let (bucket, key, expect) = (served.bucket.clone(), entry.key.clone(), entry.revision);
        let op = if vanishes {
            Op::Delete { bucket, key, expect }
        } else {
            Op::Put { bucket, key, value: std::mem::take(&mut self.new), expect: Expect::Revision(expect) }
        };
        Ok(self.pending(op, 200, reply))
    }
}

impl Core {
    /// Replaces an object by `body`, which has been decoded and pruned.
    ///
    /// # Errors
    /// Whatever upstream answers.
    pub fn update(&self, call: &Call<'_>, body: Value) -> Result<Attempt, Status> {
        let target = call.target;
        let mut new = body;
        enforce_namespace(&mut new, target)?;
        same_name(target, &new)?;
        let entry = self.entry(target);
        // upstream's order: whose object it is, how it reads, whether it is there
        let uid = api::object::uid(&new);
        let old = entry.as_ref().map(|entry| entry.value());
        let there = old.as_ref().map_or("", |old| api::object::uid(old));
        let made = entry.is_some() || target.served.resource.facts.create_on_update;
        if made && !uid.is_empty() && uid != there {
            return Err(other_uid(target, uid, there, call.options.dry_run));
        }
        let Some(entry) = entry else { return self.create_by_update(call, new) };
        self.in_namespace(target)?;
        expect_version(target, &new, &entry)?;
        kind_fits(target, &new)?;
        self.replace(call, new, &entry, Tracked::No, Pruned::No)
    }

    /// An update of an object that is not there creates it, where the kind allows that.
    fn create_by_update(&self, call: &Call<'_>, mut new: Value) -> Result<Attempt, Status> {
        let target = call.target;
        let resource = &target.served.resource;
        keyed(target)?;
        if !resource.facts.create_on_update || !target.subresource.is_empty() {
            return Err(not_found(target));
        }
        if resource.namespaced {
            self.check_namespace(target, &target.name)?;
        }
        named_revision(&new)?;
        self.may_create(call)?;
        // a trial, which stores nothing, leaves the one that was sent
        if !call.options.dry_run {
            meta_mut(&mut new).remove("resourceVersion");
        }
        self.create(call, new, Tracked::No)
    }

    /// The second half of every update: `new` takes the place of `entry`.
    pub(crate) fn replace(
        &self,
        call: &Call<'_>,
        new: Value,
        entry: &Arc<Entry>,
        tracked: Tracked,
        pruned: Pruned,
    ) -> Result<Attempt, Status> {
        let old = call.target.served.present_value(entry);
        let old = Old { entry, value: &old };
        let mut write = Write { tracked, pruned, ..Write::new(self, *call, Some(old), new)? };
        write.run(&Write::UPDATE)?;
        write.replace(entry)
    }
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
