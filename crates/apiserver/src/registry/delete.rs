//! The server's part of deleting an object: preconditions, grace, finalizers. Dependents are the garbage collector's.

use super::read::not_found;
use super::write::{held_by_spec, meta_mut, time};
use super::{Answer, Attempt, Core, Object, Pending, Review, Served, Target};
use crate::query::{self, Manner, Query};
use api::field::{Error, ErrorList, Path};
use jiff::Timestamp;
use resource::admission::Operation;
use resource::status::Status;
use resource::{Deletion, Facts, Strategy, User};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use store::{Entry, Expect, Op, Txn};

/// What becomes of dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Orphan,
    Background,
    Foreground,
}

/// `DeleteOptions`.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    pub grace_secs: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    /// `None`: the kind's default.
    pub propagation: Option<Propagation>,
    pub dry_run: bool,
    /// Whether dependents are said to go in the old way, `orphanDependents: false`.
    pub cascades: bool,
    /// With the rest of its collection: what is asked whether it may be deleted is not told its name.
    pub nameless: bool,
    /// Somebody has been asked already whether it may go.
    pub(crate) admitted: bool,
    /// What the client gave.
    pub(crate) given: Map<String, Value>,
}

/// The type of a body.
const OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

impl DeleteOptions {
    /// From the body, or from the query where there is no body.
    ///
    /// # Errors
    /// 400 for what does not parse, 422 for what is not known or does not go together.
    pub fn parse(body: Option<&Value>, query: &Query) -> Result<Self, Status> {
        let mut errors = ErrorList::new();
        let mut out = Self::default();
        let (orphan, policy);
        match body {
            Some(body) => {
                // a field of another type would count as left out: a trial or a condition would become an unconditional delete
                let mut body = body.clone();
                merge::builtin::decode(OPTIONS, &mut body).map_err(|why| Status::bad_request(why.to_string()))?;
                let text = |value: &Value| value.as_str().map(str::to_owned);
                let precondition = |field| body.get("preconditions").and_then(|value| text(value.get(field)?));
                out.grace_secs = body.get("gracePeriodSeconds").and_then(Value::as_i64);
                orphan = body.get("orphanDependents").and_then(Value::as_bool);
                policy = body.get("propagationPolicy").and_then(text);
                out.uid = precondition("uid");
                out.resource_version = precondition("resourceVersion");
                let all = body.get("dryRun").and_then(Value::as_array).into_iter().flatten();
                out.dry_run = query::dry_run(all.map(|value| value.as_str().unwrap_or_default()), &mut errors);
                if let Value::Object(fields) = body {
                    out.given = fields;
                }
            }
            None => {
                out.grace_secs = query.int("gracePeriodSeconds")?;
                orphan = query.get("orphanDependents").map(|_| query.flag("orphanDependents"));
                policy = query.get("propagationPolicy").filter(|p| !p.is_empty()).map(str::to_owned);
                out.dry_run = query::dry_run(query.all("dryRun"), &mut errors);
                let all: Vec<Value> = query.all("dryRun").map(Value::from).collect();
                let fields = [
                    ("gracePeriodSeconds", out.grace_secs.map(Value::from)),
                    ("orphanDependents", orphan.map(Value::from)),
                    ("propagationPolicy", policy.clone().map(Value::from)),
                    ("dryRun", (!all.is_empty()).then(|| all.into())),
                ];
                out.given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
            }
        }
        out.cascades = orphan == Some(false);
        let path = Path::new("propagationPolicy");
        match (policy.as_deref(), orphan) {
            (Some(text), Some(_)) => errors
                .insert(0, Error::invalid(&path, text, "orphanDependents and deletionPropagation cannot be both set")),
            (Some("Orphan"), None) => out.propagation = Some(Propagation::Orphan),
            (Some("Background"), None) => out.propagation = Some(Propagation::Background),
            (Some("Foreground"), None) => out.propagation = Some(Propagation::Foreground),
            (Some(other), None) => {
                errors.insert(0, Error::not_supported(&path, other, &["Foreground", "Background", "Orphan", "nil"]))
            }
            (None, Some(true)) => out.propagation = Some(Propagation::Orphan),
            (None, Some(false)) => out.propagation = Some(Propagation::Background),
            (None, None) => {}
        }
        if errors.is_empty() { Ok(out) } else { Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", &errors)) }
    }
}

impl DeleteOptions {
    /// The code of an answer about what is there for a while yet.
    fn waiting(&self) -> u16 {
        if self.cascades { 202 } else { 200 }
    }

    /// The warning for a client that deletes objects of this kind.
    pub(crate) fn warnings(&self, served: &Served) -> Vec<String> {
        let is_told = self.propagation.is_none() && served.resource.facts.warns_of_orphans;
        is_told.then(|| ORPHANS.to_owned()).into_iter().collect()
    }
}

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The warning for a client that deletes without saying what becomes of the rest.
const ORPHANS: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove \
                       them or set propagationPolicy=Orphan to suppress this warning";

/// One deletion on its way to the store.
struct Delete<'a> {
    core: &'a Core,
    target: &'a Target,
    options: &'a DeleteOptions,
    user: &'a User,
    entry: Arc<Entry>,
    /// As the version of the request shows it.
    old: Arc<Value>,
    /// Those so far.
    warnings: Vec<String>,
}

/// What a graceful deletion gives an object.
#[derive(Clone, Copy)]
struct Grace {
    now: Timestamp,
    secs: i64,
    /// What an earlier deletion gave.
    left: Option<i64>,
    /// Whether finalizers, or its kind, hold the object back.
    pending: bool,
}

impl Core {
    /// Deletes one object, or starts to.
    ///
    /// # Errors
    /// Whatever upstream answers.
    pub fn delete(&self, target: &Target, options: &DeleteOptions, user: &User) -> Result<Attempt, Status> {
        let warnings = options.warnings(&target.served);
        let entry = self.entry(target).ok_or_else(|| not_found(target).with_warnings(&warnings))?;
        let old = target.served.present_value(&entry);
        let mut delete = Delete { core: self, target, options, user, entry, old, warnings };
        delete.check_preconditions()?;
        if delete.is_under_way() {
            return Ok(delete.unchanged());
        }
        delete.validate_admission()?;
        let now = self.world.now();
        match delete.begin_by_kind(now)? {
            Some(begun) => Ok(delete.marked(begun)),
            None => Ok(delete.before_delete(now)),
        }
    }
}

impl Delete<'_> {
    fn facts(&self) -> &Facts {
        &self.target.served.resource.facts
    }

    fn strategy(&self) -> &dyn Strategy {
        &*self.target.served.resource.strategy
    }

    fn old_number(&self, field: &str) -> Option<i64> {
        self.old["metadata"].get(field).and_then(Value::as_i64)
    }

    /// `storage.Preconditions.Check`: the object is the one that the client means.
    fn check_preconditions(&self) -> Result<(), Status> {
        let refused = match self.facts().deletion {
            Deletion::Usual => self.check_usual_preconditions(),
            Deletion::Own | Deletion::OwnWithDependents => self.check_own_preconditions(),
        };
        refused.map_err(|status| status.with_warnings(&self.warnings))
    }

    fn check_usual_preconditions(&self) -> Result<(), Status> {
        let Target { served, name, .. } = self.target;
        // Upstream's store names the object: the group is the one that it stores the kind under (events: the core group).
        let conflict = |why: String| Status::conflict(served.storage_group(), &served.resource.kind, name, &why);
        let (uid, version) = (api::object::uid(&self.old), api::object::resource_version(&self.old));
        if let Some(wanted) = &self.options.uid
            && wanted != uid
        {
            return Err(conflict(format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            )));
        }
        if let Some(wanted) = &self.options.resource_version
            && wanted != version
        {
            return Err(conflict(format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
            )));
        }
        Ok(())
    }

    /// Upstream's store for kinds that begin their deletion themselves looks itself, in other words.
    fn check_own_preconditions(&self) -> Result<(), Status> {
        let Target { served, name, .. } = self.target;
        let (uid, version) = (api::object::uid(&self.old), api::object::resource_version(&self.old));
        let options = self.options;
        let asked = [("UID", &options.uid, uid), ("ResourceVersion", &options.resource_version, version)];
        for (what, wanted, there) in asked {
            if let Some(wanted) = wanted.as_ref().filter(|wanted| *wanted != there) {
                let why =
                    format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {there}");
                return Err(Status::conflict(served.storage_group(), &served.resource.plural, name, &why));
            }
        }
        Ok(())
    }

    /// Whether the object is being deleted already, so that admission is not asked again.
    fn is_under_way(&self) -> bool {
        self.facts().deletion == Deletion::OwnWithDependents
            && api::object::is_terminating(&self.old)
            && held_by_spec(&self.target.served, &self.old)
    }

    /// `admission.ValidationInterface.Validate`: plugins and policies may refuse the deletion, or warn of it.
    fn validate_admission(&mut self) -> Result<(), Status> {
        if self.options.admitted {
            return Ok(());
        }
        let nameless;
        let target = match self.options.nameless {
            true => {
                nameless = Target { name: String::new(), ..self.target.clone() };
                &nameless
            }
            false => self.target,
        };
        let manner = Manner { dry_run: self.options.dry_run, given: Some(("DeleteOptions", &self.options.given)) };
        let review = Review { target, operation: Operation::Delete, old: Some(&self.old), user: self.user, manner };
        let admitted = self.core.validate(&review, None, &mut self.warnings);
        admitted.map_err(|status| status.with_warnings(&self.warnings))
    }

    /// The object whose deletion its kind begins itself; `None`: its kind does not.
    fn begin_by_kind(&self, now: Timestamp) -> Result<Option<Value>, Status> {
        let (options, strategy) = (self.options, self.strategy());
        let begun = self
            .core
            .with_context(self.user, self.target, options.dry_run, |cx| strategy.begin_delete(cx, &self.old))?;
        let Some(mut new) = begun else { return Ok(None) };
        meta_mut(&mut new).insert("deletionTimestamp".to_owned(), time(now).into());
        if self.facts().deletion == Deletion::OwnWithDependents {
            // the old word means something else here
            let asked = if options.cascades { Some(Propagation::Foreground) } else { options.propagation };
            set_finalizers(&mut new, finalizers_for(&self.old, asked, false));
        }
        Ok(Some(new))
    }

    /// `rest.BeforeDelete`: finalizers say what becomes of dependents, and the object gets its grace, or goes at once.
    fn before_delete(self, now: Timestamp) -> Attempt {
        let (options, facts) = (self.options, self.facts());
        let mut new = (*self.old).clone();
        let finalizers = if facts.has_dependents {
            finalizers_for(&self.old, options.propagation, facts.default_orphans)
        } else {
            finalizers_for(&self.old, Some(Propagation::Background), false)
        };
        let had = self.old["metadata"].get("finalizers").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let changed = finalizers != had;
        let is_held = !finalizers.is_empty();
        set_finalizers(&mut new, finalizers);
        let pending = is_held || held_by_spec(&self.target.served, &new);
        let left = self.old_number("deletionGracePeriodSeconds");
        let grace = Grace { now, secs: self.grace_secs(left), left, pending };
        if api::object::is_terminating(&self.old) { self.again(new, grace, changed) } else { self.first(new, grace) }
    }

    /// The seconds of grace that this deletion gives. `left`: those that an earlier one gave.
    fn grace_secs(&self, left: Option<i64>) -> i64 {
        let (strategy, asked) = (self.strategy(), self.options.grace_secs);
        let terminating = api::object::is_terminating(&self.old);
        match left.filter(|left| terminating && *left > 0) {
            // what its state allows is not asked again, and who does not ask for less gets what is left
            Some(left) if self.facts().graceful => asked.map_or(left, |asked| if asked < 0 { 1 } else { asked }),
            _ => strategy.grace_secs(&self.old, asked).max(0),
        }
    }

    /// The first deletion of an object.
    fn first(self, mut new: Value, grace: Grace) -> Attempt {
        let generation = self.old_number("generation");
        if grace.secs > 0 || grace.pending {
            mark(&mut new, grace.now, grace.secs);
            set_generation(&mut new, generation.filter(|generation| *generation > 0));
            return self.marked(new);
        }
        if self.facts().graceful {
            mark(&mut new, grace.now, 0);
            set_generation(&mut new, generation);
        }
        self.gone(new)
    }

    /// A deletion of an object that goes already: it can only shorten the grace. `changed`: it changed finalizers.
    fn again(self, mut new: Value, grace: Grace, changed: bool) -> Attempt {
        let Grace { now, secs, left, pending } = grace;
        let shorter = left.is_none_or(|left| secs < left) && left != Some(0);
        let mut moved = changed;
        if shorter && (secs > 0 || self.options.grace_secs.is_some() || pending) {
            let due = api::time::later_secs(deletion_start(&self.old).unwrap_or(now), secs);
            if due < now && secs > 0 {
                // over by now, and still for somebody else to end
                mark(&mut new, api::time::earlier_secs(now, 1), 1);
            } else {
                mark(&mut new, api::time::earlier_secs(due.max(now), secs), secs);
            }
            moved = true;
        }
        if secs == 0 && !pending {
            return self.gone(new);
        }
        if left.is_some_and(|left| left > 0) && !shorter && !pending && !moved {
            return self.unchanged();
        }
        if !pending && self.core.vanishes(self.target, &new) {
            return self.gone(new);
        }
        if moved { self.marked(new) } else { self.unchanged() }
    }

    /// The answer about an object that stays as it is for a while yet.
    fn unchanged(self) -> Attempt {
        let object = self.target.served.present(&self.entry);
        Attempt::Done(Answer { code: self.options.waiting(), object, warnings: self.warnings })
    }

    /// Stores an object whose deletion has begun.
    fn marked(self, mut new: Value) -> Attempt {
        let Self { target, options, entry, warnings, .. } = self;
        let code = options.waiting();
        if options.dry_run {
            return Attempt::Done(Answer { code, object: Object::Made(Arc::new(new)), warnings });
        }
        target.served.to_storage(&mut new);
        let (bucket, key, expect) = (target.served.bucket.clone(), entry.key.clone(), entry.revision);
        let op = Op::Put { bucket, key, value: new, expect: Expect::Revision(expect) };
        let target = target.clone();
        Attempt::Write(Box::new(Pending { txn: Txn::one(op), code, warnings, reply: None, target }))
    }

    /// Drops an object, whose last state is `last`.
    fn gone(self, mut last: Value) -> Attempt {
        let Self { target, options, entry, warnings, .. } = self;
        let served = &target.served;
        let facts = &served.resource.facts;
        let reply = (!facts.delete_returns_object).then(|| success(target, &last));
        if options.dry_run {
            let object = Object::Made(Arc::new(reply.unwrap_or(last)));
            return Attempt::Done(Answer { code: 200, object, warnings });
        }
        served.to_storage(&mut last);
        let (bucket, key, expect) = (served.bucket.clone(), entry.key.clone(), entry.revision);
        let mut ops = Vec::new();
        if facts.graceful {
            // upstream writes that the grace is over, and deletes then: watchers hear both
            let (bucket, key, value) = (bucket.clone(), key.clone(), last.clone());
            ops.push(Op::Put { bucket, key, value, expect: Expect::Revision(expect) });
        }
        ops.push(Op::Delete { bucket, key, expect });
        let txn = Txn { ops, ..Txn::default() };
        Attempt::Write(Box::new(Pending { txn, code: 200, warnings, reply, target: target.clone() }))
    }
}

/// The answer to a deletion that is done.
fn success(target: &Target, last: &Value) -> Value {
    let resource = &target.served.resource;
    let mut details = json!({"name": target.name, "kind": resource.plural});
    if !resource.group.is_empty() {
        details["group"] = resource.group.clone().into();
    }
    details["uid"] = api::object::uid(last).into();
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

fn set_finalizers(object: &mut Value, finalizers: Vec<Value>) {
    let meta = meta_mut(object);
    if finalizers.is_empty() {
        meta.remove("finalizers");
    } else {
        meta.insert("finalizers".to_owned(), finalizers.into());
    }
}

/// Raises the generation of an object that had this one.
fn set_generation(object: &mut Value, had: Option<i64>) {
    if let Some(generation) = had {
        meta_mut(object).insert("generation".to_owned(), (generation + 1).into());
    }
}

fn mark(object: &mut Value, now: Timestamp, grace: i64) {
    let meta = meta_mut(object);
    let at = api::time::later_secs(now, grace);
    meta.insert("deletionTimestamp".to_owned(), time(at).into());
    meta.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
}

/// When the deletion was first asked for: the timestamp less the grace.
fn deletion_start(object: &Value) -> Option<Timestamp> {
    let at: Timestamp = api::object::meta(object, "deletionTimestamp").parse().ok()?;
    let grace = object["metadata"].get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    Some(api::time::earlier_secs(at, grace))
}

/// The finalizers that a delete leaves: those of others, plus or minus the garbage collector's.
fn finalizers_for(object: &Value, asked: Option<Propagation>, default_orphans: bool) -> Vec<Value> {
    let list: Vec<Value> = object["metadata"].get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    let has = |name: &str| list.iter().any(|f| f == name);
    // What was said before stands where nothing new is said.
    let (orphan, foreground) = match asked {
        Some(Propagation::Orphan) => (true, false),
        Some(Propagation::Foreground) => (false, true),
        Some(Propagation::Background) => (false, false),
        None if has(ORPHAN) => (true, false),
        None if has(FOREGROUND) => (false, true),
        None => (default_orphans, false),
    };
    let mut out: Vec<Value> =
        list.into_iter().filter(|f| (orphan || f != ORPHAN) && (foreground || f != FOREGROUND)).collect();
    for (name, wanted) in [(ORPHAN, orphan), (FOREGROUND, foreground)] {
        if wanted && !out.iter().any(|f| f == name) {
            out.push(name.into());
        }
    }
    out
}
