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

impl Core {
    /// Creates `body`, which has been decoded and pruned. `tracked`: its managed fields are already right.
    ///
    /// # Errors
    /// Whatever upstream answers.
    pub fn create(&self, call: &Call<'_>, body: Value, tracked: bool) -> Result<Attempt, Status> {
        let Call { target, options, user, warnings } = *call;
        let served = &target.served;
        let resource = &served.resource;
        let strategy = &*resource.strategy;
        bounded(&body)?;
        let mut new = body;
        enforce_namespace(&mut new, target)?;
        if let Some(custom) = served.custom.as_ref()
            && custom.terminating
        {
            let why = "create not allowed while custom resource definition is terminating";
            let name = api::object::meta(&new, "name");
            return Err(Status::forbidden(&resource.group, &resource.plural, name, why));
        }
        if resource.namespaced && !target.namespace.is_empty() {
            let prefix = || api::object::meta(&new, "generateName");
            let name = Some(api::object::meta(&new, "name")).filter(|name| !name.is_empty()).unwrap_or_else(prefix);
            self.check_namespace(target, name)?;
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
            // a list that Go always writes has an owner even where it is empty; the object keeps null in its place
            let lists: Vec<&str> = empty.iter().filter(|(_, v)| v.is_array()).map(|(path, _)| path.as_str()).collect();
            let filled: Vec<String> =
                lists.into_iter().filter(|path| fill_null(&mut new, path)).map(str::to_owned).collect();
            match strategy.as_tracked(&new) {
                Some(mut seen) => {
                    apply::track_update(None, &mut seen, &writer, served.schemas(), now);
                    if let Some(managers) = seen["metadata"].get_mut("managedFields") {
                        meta_mut(&mut new).insert("managedFields".to_owned(), managers.take());
                    }
                }
                None => apply::track_update(None, &mut new, &writer, served.schemas(), now),
            }
            for path in filled {
                if let Some(place) = member_mut(&mut new, &path) {
                    *place = Value::Null;
                }
            }
        }
        {
            // What the server fills in is there for plugins to see.
            let uid = self.world.uid();
            let meta = meta_mut(&mut new);
            meta.insert("uid".to_owned(), uid.into());
            meta.insert("creationTimestamp".to_owned(), time(now).into());
        }
        self.with_context(user, target, options.dry_run, |cx| strategy.admit_create(cx, &mut new))?;
        // a namespace with a generated name is in none while policies look at it
        let given = match target.name.as_str() {
            "" => api::object::meta(&new, "name"),
            name => name,
        };
        let asked = Target { name: given.to_owned(), ..target.clone() };
        let create = Operation::Create;
        let manner = options.manner(create);
        let by_policies = self.mutate_by_policies(&asked, create, &mut new, None, user, &manner, None)?;
        let ran = self.mutate(target, create, &mut new, None, user, options.dry_run)? || by_policies.is_some();
        if let Some(invoked) = &by_policies {
            self.with_context(user, target, options.dry_run, |cx| strategy.admit_create(cx, &mut new))?;
            self.mutate_by_policies(&asked, create, &mut new, None, user, &manner, Some(invoked))?;
        }
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
        kind_fits(target, &new)?;
        self.with_context(user, target, options.dry_run, |cx| strategy.prepare_create(cx, &mut new));
        if strategy.generation_changed(&new, &new).is_some() {
            meta_mut(&mut new).insert("generation".to_owned(), 1.into());
        }
        served.normalize(&mut new);
        let name = api::object::meta(&new, "name").to_owned();
        let qualified = served.custom.is_none() && strategy.qualified_finalizers();
        let metadata = || meta::validate(&new, resource.namespaced, qualified, strategy, &Path::new("metadata"));
        let mut errors = if strategy.looks_at_metadata() { metadata() } else { Vec::new() };
        errors.extend(self.with_context(user, target, options.dry_run, |cx| strategy.validate_create(cx, &new)));
        if errors.is_empty() && !strategy.looks_at_metadata() {
            errors = metadata();
        }
        if served.custom.is_some() {
            let found = served.schema().validate_new(&new, &errors);
            errors.extend(found);
        }
        if served.custom.is_none() {
            errors.extend(empty.iter().filter_map(|(path, _)| strategy.refuses_empty(path)));
        }
        let early = strategy.early_warnings(&new);
        if !errors.is_empty() {
            return Err(self.invalid(target, &name, errors, &empty).with_warnings(&early));
        }
        if served.custom.is_some() {
            merge::schema::written(&mut new);
        }
        let mut more = early;
        more.extend(strategy.warnings(&new, None));
        let warned = |status: Status| status.with_warnings(&more);
        let admitted = self.with_context(user, target, options.dry_run, |cx| strategy.admit_valid(cx, &new));
        admitted.map_err(warned)?;
        let hold = self.admit_quotas(target, &new, None, options.dry_run).map_err(warned)?;
        self.validate(&asked, Operation::Create, Some(&new), None, user, &manner, &mut more)?;
        let warnings = [warnings, &more].concat();
        // upstream's storage refuses it, which a trial does not reach
        if !options.dry_run && !api::object::resource_version(&new).is_empty() {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(Status::new(500, "", why).with_warnings(&more));
        }
        if !options.dry_run {
            meta_mut(&mut new).remove("resourceVersion");
        }
        let key = Key::new(api::object::meta(&new, "namespace"), &name);
        if let Some(entry) = self.store.get(&served.bucket, &key) {
            let exists = if generate.is_empty() { Status::already_exists } else { Status::generated_name_exists };
            let mut status = exists(&resource.group, &resource.plural, &name);
            if api::object::is_terminating(&entry.value()) {
                status.message = format!("object is being deleted: {}", status.message);
            }
            return Err(status.with_warnings(&more));
        }
        bounded(&new)?;
        if options.dry_run {
            served.through_storage(&mut new);
            return Ok(Attempt::Done(Answer { code: 201, object: Object::Made(Arc::new(new)), warnings }));
        }
        served.to_storage(&mut new);
        let op = Op::Put { bucket: served.bucket.clone(), key, value: new, expect: Expect::Absent };
        Ok(Attempt::Write(Box::new(Pending {
            txn: Txn { ops: vec![op], hold, ..Txn::default() },
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
    pub(in crate::registry) fn may_create(&self, call: &Call<'_>) -> Result<(), Status> {
        let Target { served, namespace, name, .. } = call.target;
        let resource = &served.resource;
        authorize::may(self, call.user, "create", &resource.group, &resource.plural, namespace, name, "")
    }

    pub(super) fn writer(&self, target: &Target, _options: &WriteOptions) -> (String,) {
        (target.served.api_version(),)
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
