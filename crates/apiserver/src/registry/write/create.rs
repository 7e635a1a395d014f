//! Objects are created.

use super::*;

/// Generated names that may be taken before a create gives up, as upstream.
const GENERATED_MAX: usize = 8;

/// Metadata that no client gives to a new object.
const NEVER_GIVEN: [&str; 3] = ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"];

/// The member at a path of names alone.
fn member_mut<'a>(object: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('.').try_fold(object, |value, name| value.get_mut(name))
}

/// Puts an empty list where null stands, and says whether it did.
fn fill_null(object: &mut Value, path: &str) -> bool {
    match member_mut(object, path) {
        Some(place) if place.is_null() => {
            *place = Value::Array(Vec::new());
            true
        }
        _ => false,
    }
}

impl<'a> Write<'a> {
    /// The stages of a create.
    pub(super) const CREATE: [Stage<'a>; 12] = [
        ("EnsureObjectNamespaceMatchesRequestNamespace", Self::ensure_namespace),
        ("NamespaceLifecycle", Self::namespace_lifecycle),
        ("Default", Self::default_created),
        ("FieldManager.Update", Self::update_managed_fields_of_new),
        ("FillObjectMetaSystemFields", Self::fill_system_fields),
        ("Admit", Self::admit),
        ("GenerateName", Self::generate_name),
        ("PrepareForCreate", Self::prepare_for_create),
        ("Validate", Self::validate_created),
        ("WarningsOnCreate", Self::warnings_on_create),
        ("Canonicalize", Self::canonicalize_created),
        ("ValidatingAdmission", Self::validate_admission),
    ];

    /// `rest.EnsureObjectNamespaceMatchesRequestNamespace`: gives the object the namespace of the request, and touches nothing else.
    fn ensure_namespace(&mut self) -> Result<(), Status> {
        enforce_namespace(&mut self.new, self.call.target)
    }

    /// The plugin `NamespaceLifecycle`, and that custom resources are not made while their definition goes: refuses, and touches
    /// nothing.
    fn namespace_lifecycle(&mut self) -> Result<(), Status> {
        let target = self.call.target;
        let resource = &target.served.resource;
        let name = api::object::meta(&self.new, "name");
        if target.served.custom.as_ref().is_some_and(|custom| custom.terminating) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(&resource.group, &resource.plural, name, why));
        }
        if !resource.namespaced || target.namespace.is_empty() {
            return Ok(());
        }
        let name = if name.is_empty() { api::object::meta(&self.new, "generateName") } else { name };
        self.core.check_namespace(target, name)
    }

    /// `runtime.ObjectDefaulter.Default`: fills in what the client left out, and drops metadata that no client gives. From here on
    /// the object is as Go would write it; `empty` remembers the empty parts that this drops.
    fn default_created(&mut self) -> Result<(), Status> {
        let (served, strategy) = (self.served(), self.strategy());
        fill_in(served, &mut self.new, self.tracked);
        for field in NEVER_GIVEN {
            meta_mut(&mut self.new).remove(field);
        }
        strategy.default(&mut self.new);
        self.empty = empty_parts(&self.new);
        served.normalize(&mut self.new);
        Ok(())
    }

    /// `managedfields.FieldManager.Update`: sets `metadata.managedFields`, and touches nothing else. What admission changes later
    /// has no manager.
    fn update_managed_fields_of_new(&mut self) -> Result<(), Status> {
        if self.tracked == Tracked::Yes {
            return Ok(());
        }
        let (call, strategy, schemas) = (self.call, self.strategy(), self.served().schemas());
        // a list that Go always writes has an owner even where it is empty; the object keeps null in its place
        let lists = self.empty.iter().filter(|(_, value)| value.is_array()).map(|(path, _)| path.as_str());
        let filled: Vec<&str> = lists.filter(|path| fill_null(&mut self.new, path)).collect();
        call.as_writer(|writer| match strategy.as_tracked(&self.new) {
            Some(mut seen) => {
                apply::track_update(None, &mut seen, writer, schemas, self.now);
                if let Some(managers) = seen["metadata"].get_mut("managedFields") {
                    meta_mut(&mut self.new).insert("managedFields".to_owned(), managers.take());
                }
            }
            None => apply::track_update(None, &mut self.new, writer, schemas, self.now),
        });
        for path in filled {
            if let Some(place) = member_mut(&mut self.new, path) {
                *place = Value::Null;
            }
        }
        Ok(())
    }

    /// `rest.FillObjectMetaSystemFields`: sets `metadata.uid` and `metadata.creationTimestamp`, for admission to see.
    fn fill_system_fields(&mut self) -> Result<(), Status> {
        let uid = self.core.world.uid();
        let meta = meta_mut(&mut self.new);
        meta.insert("uid".to_owned(), uid.into());
        meta.insert("creationTimestamp".to_owned(), time(self.now).into());
        Ok(())
    }

    /// `names.NameGenerator.GenerateName`: sets `metadata.name` where only `generateName` is given.
    fn generate_name(&mut self) -> Result<(), Status> {
        let (core, new) = (self.core, &self.new);
        let generate = api::object::meta(new, "generateName");
        if generate.is_empty() || !api::object::meta(new, "name").is_empty() {
            return Ok(());
        }
        let base: String = generate.chars().take(58).collect();
        let namespace = api::object::meta(new, "namespace");
        let is_free = |name: &String| core.store.get(&self.served().bucket, &Key::new(namespace, name)).is_none();
        let mut names = (0..GENERATED_MAX).map(|_| format!("{base}{}", core.world.suffix()));
        let name = names.find(is_free).unwrap_or_else(|| base.clone() + &core.world.suffix());
        meta_mut(&mut self.new).insert("name".to_owned(), name.into());
        Ok(())
    }

    /// `RESTCreateStrategy.PrepareForCreate`: the kind resets what a creator may not set and fills in what the server owns. The last
    /// stage before the store in which the object's content changes. Refuses custom resources of another kind.
    fn prepare_for_create(&mut self) -> Result<(), Status> {
        let (core, call, strategy) = (self.core, self.call, self.strategy());
        kind_fits(call.target, &self.new)?;
        call.context(core, |cx| strategy.prepare_create(cx, &mut self.new));
        if self.facts().has_generation {
            meta_mut(&mut self.new).insert("generation".to_owned(), 1.into());
        }
        self.served().normalize(&mut self.new);
        Ok(())
    }

    /// `RESTCreateStrategy.Validate` and `ValidateObjectMeta`: refuse the object for all that is wrong with it. They change nothing.
    fn validate_created(&mut self) -> Result<(), Status> {
        let (core, call, served, strategy) = (self.core, self.call, self.served(), self.strategy());
        let (new, facts) = (&self.new, self.facts());
        let custom = served.custom.is_some();
        let metadata = || meta::validate(new, &served.resource, &Path::new("metadata"));
        let mut errors = if facts.looks_at_metadata { metadata() } else { Vec::new() };
        errors.extend(call.context(core, |cx| strategy.validate_create(cx, new)));
        if errors.is_empty() && !facts.looks_at_metadata {
            errors = metadata();
        }
        if custom {
            let found = served.schema().validate_new(new, &errors);
            errors.extend(found);
        } else {
            errors.extend(self.refused_empty());
        }
        self.warnings = (facts.early_warnings)(new);
        if errors.is_empty() { Ok(()) } else { Err(self.invalid(errors)) }
    }

    /// `RESTCreateStrategy.WarningsOnCreate`: adds to the warnings, and touches nothing else.
    fn warnings_on_create(&mut self) -> Result<(), Status> {
        self.warnings.extend(self.strategy().warnings(&self.new, None));
        Ok(())
    }

    /// `RESTCreateStrategy.Canonicalize`: brings numbers of custom resources into the form in which they are stored.
    fn canonicalize_created(&mut self) -> Result<(), Status> {
        if self.served().custom.is_some() {
            merge::schema::written(&mut self.new);
        }
        Ok(())
    }

    /// `Storage.Create`: refuses what is there already. From here on only the form changes in which the object is stored.
    fn insert(mut self) -> Result<Attempt, Status> {
        let (served, dry_run) = (self.served(), self.call.options.dry_run);
        // upstream's storage refuses it, which a trial does not reach
        if !dry_run && !api::object::resource_version(&self.new).is_empty() {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(Status::new(500, "", why).with_warnings(&self.warnings));
        }
        if !dry_run {
            meta_mut(&mut self.new).remove("resourceVersion");
        }
        let key = Key::new(api::object::meta(&self.new, "namespace"), api::object::meta(&self.new, "name"));
        if let Some(entry) = self.core.store.get(&served.bucket, &key) {
            return Err(self.exists(&key.name, &entry).with_warnings(&self.warnings));
        }
        bounded(&self.new)?;
        if dry_run {
            served.through_storage(&mut self.new);
            let warnings = self.all_warnings();
            return Ok(Attempt::Done(Answer { code: 201, object: Object::Made(Arc::new(self.new)), warnings }));
        }
        served.to_storage(&mut self.new);
        let value = std::mem::take(&mut self.new);
        let op = Op::Put { bucket: served.bucket.clone(), key, value, expect: Expect::Absent };
        Ok(self.pending(op, 201, None))
    }

    /// `rest.CheckGeneratedNameError`: the refusal of an object whose name is taken.
    fn exists(&self, name: &str, entry: &Entry) -> Status {
        let resource = &self.served().resource;
        let is_generated = !api::object::meta(&self.new, "generateName").is_empty();
        let exists = if is_generated { Status::generated_name_exists } else { Status::already_exists };
        let mut status = exists(&resource.group, &resource.plural, name);
        if api::object::is_terminating(&entry.value()) {
            status.message = format!("object is being deleted: {}", status.message);
        }
        status
    }
}

impl Core {
    /// Creates `body`, which has been decoded and pruned.
    ///
    /// # Errors
    /// Whatever upstream answers.
    pub fn create(&self, call: &Call<'_>, body: Value, tracked: Tracked) -> Result<Attempt, Status> {
        // a namespace with a generated name is in none while policies look at it
        let given = match call.target.name.as_str() {
            "" => api::object::meta(&body, "name"),
            name => name,
        };
        let asked = Target { name: given.to_owned(), ..call.target.clone() };
        let mut write = Write { tracked, ..Write::new(self, *call, None, body)? };
        write.review.target = &asked;
        write.run(&Write::CREATE)?;
        write.insert()
    }

    /// PUT and PATCH that would make an object need the right to make it, too.
    ///
    /// # Errors
    /// 403, in upstream's words.
    pub(in crate::registry) fn may_create(&self, call: &Call<'_>) -> Result<(), Status> {
        let Target { served, namespace, name, .. } = call.target;
        let resource = &served.resource;
        let (group, resource) = (&resource.group, &resource.plural);
        let created = ResourceAsk { verb: "create", group, resource, namespace, name, ..ResourceAsk::default() };
        authorize::may(self, call.user, &created)
    }

    /// A namespace must exist for what is in it to be changed: content may be left of one that somebody has finalized too early.
    pub(crate) fn in_namespace(&self, target: &Target) -> Result<(), Status> {
        match !target.served.resource.namespaced || self.namespace_of(target).is_some() {
            true => Ok(()),
            false => Err(no_namespace(&target.namespace)),
        }
    }

    fn namespace_of(&self, target: &Target) -> Option<Arc<Entry>> {
        self.store.get(&catalog::bucket("", "namespaces"), &Key::new("", &target.namespace))
    }

    /// A namespace must exist and not be on its way out to take new objects.
    pub(crate) fn check_namespace(&self, target: &Target, name: &str) -> Result<(), Status> {
        let resource = &target.served.resource;
        let Some(entry) = self.namespace_of(target) else {
            // Reviews are asked in namespaces that need not exist.
            if !resource.verbs.contains(&"get") {
                return Ok(());
            }
            return Err(no_namespace(&target.namespace));
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
        status.causes.push(Cause {
            reason: "NamespaceTerminating",
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        });
        Err(status)
    }
}

/// The refusal of a write in a namespace that is not there: upstream asks for it as a client, which does not ask for every name.
fn no_namespace(name: &str) -> Status {
    let faults = api::names::path_segment_faults(name, false);
    match faults.is_empty() {
        true => Status::not_found("", "namespaces", name),
        false => Status::internal(format!("invalid resource name {name:?}: [{}]", faults.join(" "))),
    }
}
