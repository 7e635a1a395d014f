//! The server's part of deleting an object: preconditions, grace, finalizers. Dependents are the garbage collector's.

use super::read::not_found;
use super::write::{meta_mut, time};
use super::{Answer, Attempt, Core, Object, Pending, Served, Target};
use crate::query::{self, Manner, Query};
use api::field::{Error, ErrorList, Path};
use jiff::Timestamp;
use resource::admission::Operation;
use resource::status::Status;
use resource::{Deletion, User};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use store::{Expect, Op, Txn};

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
                merge::builtin::decode(OPTIONS, &mut body).map_err(Status::bad_request)?;
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
        let is_told = self.propagation.is_none() && served.resource.strategy.warns_of_orphans();
        is_told.then(|| ORPHANS.to_owned()).into_iter().collect()
    }
}

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The warning for a client that deletes without saying what becomes of the rest.
const ORPHANS: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove \
                       them or set propagationPolicy=Orphan to suppress this warning";

impl Core {
    /// Deletes one object, or starts to.
    ///
    /// # Errors
    /// Whatever upstream answers.
    pub fn delete(&self, target: &Target, options: &DeleteOptions, user: &User) -> Result<Attempt, Status> {
        let served = &target.served;
        let resource = &served.resource;
        let strategy = &*resource.strategy;
        let mut warnings = options.warnings(served);
        let entry = self.entry(target).ok_or_else(|| not_found(target).with_warnings(&warnings))?;
        let old = served.present_value(&entry);
        self.check_preconditions(target, options, &old).map_err(|status| status.with_warnings(&warnings))?;
        if strategy.deletion() == Deletion::OwnWithDependents
            && api::object::is_terminating(&old)
            && !strategy.may_vanish(&old)
        {
            // it goes already, and nobody is asked again
            return Ok(Attempt::Done(Answer { code: options.waiting(), object: served.present(&entry), warnings }));
        }
        let asked = match options.nameless {
            true => &Target { name: String::new(), ..target.clone() },
            false => target,
        };
        let manner = Manner { dry_run: options.dry_run, given: Some(("DeleteOptions", &options.given)) };
        if !options.admitted {
            self.validate(asked, Operation::Delete, None, Some(&old), user, &manner, &mut warnings)?;
        }

        let now = self.world.now();
        let begun = self.with_context(user, target, options.dry_run, |cx| strategy.begin_delete(cx, &old))?;
        if let Some(mut new) = begun {
            let meta = meta_mut(&mut new);
            meta.insert("deletionTimestamp".to_owned(), time(now).into());
            if strategy.deletion() == Deletion::OwnWithDependents {
                // the old word means something else here
                let asked = if options.cascades { Some(Propagation::Foreground) } else { options.propagation };
                let finalizers = finalizers_for(&old, asked, false);
                if finalizers.is_empty() {
                    meta.remove("finalizers");
                } else {
                    meta.insert("finalizers".to_owned(), finalizers.into());
                }
            }
            return Ok(self.marked(target, &entry, new, options, warnings));
        }
        let mut new = (*old).clone();
        let terminating = api::object::is_terminating(&old);
        let left = old["metadata"].get("deletionGracePeriodSeconds").and_then(Value::as_i64);
        let grace = match left.filter(|left| terminating && *left > 0) {
            // what its state allows is not asked again, and who does not ask for less gets what is left
            Some(left) if strategy.graceful() => {
                options.grace_secs.map_or(left, |asked| if asked < 0 { 1 } else { asked })
            }
            _ => strategy.grace_secs(&old, options.grace_secs).max(0),
        };
        let finalizers = if strategy.has_dependents() {
            finalizers_for(&old, options.propagation, strategy.default_orphans())
        } else {
            finalizers_for(&old, Some(Propagation::Background), false)
        };
        let had: Vec<Value> = old["metadata"].get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
        let changed = finalizers != had;
        {
            let meta = meta_mut(&mut new);
            if finalizers.is_empty() {
                meta.remove("finalizers");
            } else {
                meta.insert("finalizers".to_owned(), finalizers.clone().into());
            }
        }
        let pending = !finalizers.is_empty() || !strategy.may_vanish(&new);
        let mut moved = changed;
        if terminating {
            // A second delete can only shorten the grace.
            let shorter = left.is_none_or(|left| grace < left) && left != Some(0);
            if shorter && (grace > 0 || options.grace_secs.is_some() || pending) {
                let due = api::time::later_secs(deletion_start(&old).unwrap_or(now), grace);
                if due < now && grace > 0 {
                    // over by now, and still for somebody else to end
                    mark(&mut new, api::time::earlier_secs(now, 1), 1);
                } else {
                    mark(&mut new, api::time::earlier_secs(due.max(now), grace), grace);
                }
                moved = true;
            }
            if grace == 0 && !pending {
                return Ok(self.gone(target, &entry, new, options, warnings));
            }
            if left.is_some_and(|left| left > 0) && !shorter && !pending && !moved {
                return Ok(Attempt::Done(Answer { code: options.waiting(), object: served.present(&entry), warnings }));
            }
        } else if grace > 0 {
            mark(&mut new, now, grace);
            moved = true;
        } else if pending {
            mark(&mut new, now, 0);
            moved = true;
        }
        if !pending && (grace == 0 || self.vanishes(target, &new)) {
            if strategy.graceful() && !terminating {
                mark(&mut new, now, 0);
                if let Some(generation) = old["metadata"].get("generation").and_then(Value::as_i64) {
                    meta_mut(&mut new).insert("generation".to_owned(), (generation + 1).into());
                }
            }
            return Ok(self.gone(target, &entry, new, options, warnings));
        }
        if !moved {
            return Ok(Attempt::Done(Answer { code: options.waiting(), object: served.present(&entry), warnings }));
        }
        if !terminating
            && let Some(generation) = old["metadata"].get("generation").and_then(Value::as_i64)
            && generation > 0
        {
            meta_mut(&mut new).insert("generation".to_owned(), (generation + 1).into());
        }
        Ok(self.marked(target, &entry, new, options, warnings))
    }

    /// Stores an object whose deletion has begun.
    fn marked(
        &self,
        target: &Target,
        entry: &store::Entry,
        mut new: Value,
        options: &DeleteOptions,
        warnings: Vec<String>,
    ) -> Attempt {
        if options.dry_run {
            return Attempt::Done(Answer { code: options.waiting(), object: Object::Made(Arc::new(new)), warnings });
        }
        target.served.to_storage(&mut new);
        let op = Op::Put {
            bucket: target.served.bucket.clone(),
            key: entry.key.clone(),
            value: new,
            expect: Expect::Revision(entry.revision),
        };
        let target = target.clone();
        Attempt::Write(Box::new(Pending { txn: Txn::one(op), code: options.waiting(), warnings, reply: None, target }))
    }

    fn check_preconditions(&self, target: &Target, options: &DeleteOptions, old: &Value) -> Result<(), Status> {
        let kind = &target.served.resource.kind;
        // Upstream's store names the object: the group is the one that it stores the kind under (events: the core group).
        let group = target.served.storage_group();
        let conflict = |why: String| Status::conflict(group, kind, &target.name, &why);
        let uid = api::object::uid(old);
        let version = api::object::resource_version(old);
        if target.served.resource.strategy.deletion() != Deletion::Usual {
            // upstream's store for these kinds looks itself
            let asked = [("UID", &options.uid, uid), ("ResourceVersion", &options.resource_version, version)];
            for (what, wanted, there) in asked {
                if let Some(wanted) = wanted.as_ref().filter(|wanted| *wanted != there) {
                    let why = format!(
                        "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {there}"
                    );
                    return Err(Status::conflict(group, &target.served.resource.plural, &target.name, &why));
                }
            }
            return Ok(());
        }
        if let Some(wanted) = &options.uid
            && wanted != uid
        {
            return Err(conflict(format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            )));
        }
        if let Some(wanted) = &options.resource_version
            && wanted != version
        {
            return Err(conflict(format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
            )));
        }
        Ok(())
    }

    fn gone(
        &self,
        target: &Target,
        entry: &store::Entry,
        mut last: Value,
        options: &DeleteOptions,
        warnings: Vec<String>,
    ) -> Attempt {
        let served = &target.served;
        let resource = &served.resource;
        let reply = (!resource.strategy.delete_returns_object()).then(|| {
            let mut details = json!({"name": target.name, "kind": resource.plural});
            if !resource.group.is_empty() {
                details["group"] = resource.group.clone().into();
            }
            details["uid"] = api::object::uid(&last).into();
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
        });
        if options.dry_run {
            let object = Object::Made(Arc::new(reply.unwrap_or(last)));
            return Attempt::Done(Answer { code: 200, object, warnings });
        }
        served.to_storage(&mut last);
        let (bucket, key, expect) = (served.bucket.clone(), entry.key.clone(), entry.revision);
        let mut ops = Vec::new();
        if resource.strategy.graceful() {
            // upstream writes that the grace is over, and deletes then: watchers hear both
            let (bucket, key, value) = (bucket.clone(), key.clone(), last.clone());
            ops.push(Op::Put { bucket, key, value, expect: Expect::Revision(expect) });
        }
        ops.push(Op::Delete { bucket, key, expect });
        let txn = Txn { ops, ..Txn::default() };
        Attempt::Write(Box::new(Pending { txn, code: 200, warnings, reply, target: target.clone() }))
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
