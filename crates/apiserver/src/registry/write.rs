//! Creates and updates objects.
//!
//! A [`Write`] goes through stages that are named and ordered as upstream's: those of a create are `Write::CREATE`, those of an
//! update, a patch, an apply and a change of a subresource `Write::UPDATE`. Each stage says what may be touched in it. What comes
//! before differs by verb: each driver ([`Core::create`], [`Core::update`], [`Core::patch`]) finds the object and makes the new one.

mod create;
mod metadata;
mod replace;
mod subresource;
#[cfg(test)]
mod tests;

use super::ledger::Held;
use super::read::{keyed, not_found};
use super::{Answer, Attempt, Core, Object, Pending, Review, Served, Target, catalog};
use crate::authorize::{self, ResourceAsk};
use crate::decode::Place;
use crate::meta;
use crate::query::WriteOptions;
use api::field::{ErrorList, Path};
use jiff::Timestamp;
use merge::apply::{self, Writer};
use merge::bounds::Exceeded;
pub(crate) use metadata::{enforce_namespace, meta_mut, other_uid, same_revision, time};
pub(super) use metadata::{expect_version, registry_key, same_name};
use metadata::{kind_fits, named_revision};
use resource::admission::Operation;
use resource::status::{Cause, Status};
use resource::{Context, Facts, Strategy, User};
use serde_json::{Value, json};
use std::sync::Arc;
use store::{Entry, Expect, Key, Op, Txn};

/// A request to write, as all verbs know it.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub target: &'a Target,
    pub options: &'a WriteOptions,
    pub user: &'a User,
    /// From decoding.
    pub warnings: &'a [String],
}

impl<'a> Call<'a> {
    /// Gives `work` the context that strategies look at.
    fn context<T>(&self, core: &Core, work: impl FnOnce(&Context<'_>) -> T) -> T {
        core.with_context(self.user, self.target, self.options.dry_run, work)
    }

    /// Gives `work` what managed fields say of who writes what.
    pub(super) fn as_writer<T>(&self, work: impl FnOnce(&Writer<'_>) -> T) -> T {
        let Target { served, subresource, .. } = self.target;
        served.as_writer(&self.options.manager, subresource, work)
    }

    fn review(&self, operation: Operation, old: Option<&'a Value>) -> Review<'a> {
        Review { target: self.target, operation, old, user: self.user, manner: self.options.manner(operation) }
    }
}

/// Whether the managed fields of an object are already right, as an apply leaves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracked {
    Yes,
    No,
}

/// Whether fields were dropped from an applied object that count as a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pruned {
    Yes,
    No,
}

/// An object that is replaced.
#[derive(Clone, Copy)]
pub(crate) struct Old<'a> {
    pub entry: &'a Arc<Entry>,
    /// As the version of the request shows it.
    pub value: &'a Value,
}

/// One write on its way to the store.
struct Write<'a> {
    core: &'a Core,
    call: Call<'a>,
    /// What admission is asked about.
    review: Review<'a>,
    /// What is replaced; `None`: the write creates an object.
    old: Option<Old<'a>>,
    new: Value,
    tracked: Tracked,
    pruned: Pruned,
    now: Timestamp,
    /// The empty lists and maps that the object was sent with, by path.
    empty: Vec<(String, Value)>,
    /// The object as it was sent, before its empty parts were dropped: kept only where these count.
    given: Option<Value>,
    /// Those so far. A refusal takes them along.
    warnings: Vec<String>,
    /// What quotas reserve until the write is visible.
    hold: Held,
}

/// A stage: the name of upstream's function, and ours.
type Stage<'a> = (&'static str, fn(&mut Write<'a>) -> Result<(), Status>);

impl<'a> Write<'a> {
    /// # Errors
    /// `new` is too large or too deep.
    fn new(core: &'a Core, call: Call<'a>, old: Option<Old<'a>>, new: Value) -> Result<Self, Status> {
        bounded(&new)?;
        let operation = if old.is_some() { Operation::Update } else { Operation::Create };
        Ok(Self {
            core,
            call,
            review: call.review(operation, old.map(|old| old.value)),
            old,
            new,
            tracked: Tracked::No,
            pruned: Pruned::No,
            now: core.world.now(),
            empty: Vec::new(),
            given: None,
            warnings: Vec::new(),
            hold: None,
        })
    }

    /// Goes through the stages up to the first that refuses.
    fn run(&mut self, stages: &[Stage<'a>]) -> Result<(), Status> {
        let ran = stages.iter().try_for_each(|(_, stage)| stage(self));
        ran.map_err(|status| status.with_warnings(&self.warnings))
    }

    fn served(&self) -> &'a Served {
        &self.call.target.served
    }

    fn facts(&self) -> &'a Facts {
        &self.served().resource.facts
    }

    fn strategy(&self) -> &'a dyn Strategy {
        &*self.served().resource.strategy
    }

    /// Whether the object itself is written, and not by way of a subresource.
    fn is_main(&self) -> bool {
        self.call.target.subresource.is_empty()
    }

    fn is_scale(&self) -> bool {
        self.call.target.subresource == "scale"
    }

    /// `admission.MutationInterface.Admit`: the kind's own admission, policies and plugins may change anything in the object. What
    /// they leave is pruned and gets its defaults again.
    fn admit(&mut self) -> Result<(), Status> {
        let (core, review) = (self.core, self.review);
        self.admit_by_kind()?;
        let by_policies = core.mutate_by_policies(&review, &mut self.new, None)?;
        let ran = core.mutate(&review, &mut self.new)? || by_policies.is_some();
        if let Some(invoked) = &by_policies {
            self.admit_by_kind()?;
            core.mutate_by_policies(&review, &mut self.new, Some(invoked))?;
        }
        if ran {
            self.served().prune(&mut self.new);
            self.served().schema().default_again(&mut self.new);
        }
        Ok(())
    }

    fn admit_by_kind(&mut self) -> Result<(), Status> {
        let (core, call, strategy) = (self.core, self.call, self.strategy());
        match self.old {
            None => call.context(core, |cx| strategy.admit_create(cx, &mut self.new)),
            Some(_) => Ok(()),
        }
    }

    /// `admission.ValidationInterface.Validate`: the kind's own admission, quotas, plugins and policies may refuse the object, which
    /// is valid in itself, or warn of it. They change nothing; quotas reserve what it adds.
    fn validate_admission(&mut self) -> Result<(), Status> {
        let (core, call, strategy) = (self.core, self.call, self.strategy());
        let Target { subresource, .. } = call.target;
        let new = &self.new;
        let part = self.old.map(|old| (subresource.as_str(), old.value));
        if self.old.is_none() || !self.is_main() {
            call.context(core, |cx| strategy.admit_valid(cx, new, part))?;
        }
        if self.old.is_none() || self.facts().grows_by == Some(subresource) {
            let old = self.old.map(|old| (old.value, old.entry.revision));
            self.hold = core.admit_quotas(call.target, new, old, call.options.dry_run)?;
        }
        core.validate(&self.review, Some(&self.new), &mut self.warnings)
    }

    /// The refusal of an object. What it had that was empty is shown as such and not as absent.
    fn invalid(&self, mut errors: ErrorList) -> Status {
        let resource = &self.served().resource;
        for error in errors.iter_mut().filter(|error| error.value == Some(Value::Null)) {
            let field = error.field.as_str();
            let shown = resource.facts.shown_at.iter().find(|(at, _)| *at == field).map_or(field, |(_, shown)| shown);
            if let Some((_, value)) = self.empty.iter().find(|(path, _)| path == shown) {
                error.value = Some(value.clone());
            }
        }
        // Errors name the kind by which objects are kept.
        let group = resource.facts.storage.map_or(resource.group.as_str(), |storage| storage.group);
        Status::invalid(group, &resource.kind, api::object::meta(&self.new, "name"), &errors)
    }

    /// What the kind says of empty lists and maps that it refuses.
    fn refused_empty(&self) -> impl Iterator<Item = api::field::Error> {
        let refuses = self.facts().refuses_empty;
        self.empty.iter().filter_map(move |(path, _)| refuses(path))
    }

    /// All warnings of an answer.
    fn all_warnings(&self) -> Vec<String> {
        [self.call.warnings, &self.warnings].concat()
    }

    /// The transaction, and what to answer.
    fn pending(self, op: Op, code: u16, reply: Option<Value>) -> Attempt {
        let warnings = self.all_warnings();
        let txn = Txn { ops: vec![op], hold: self.hold, ..Txn::default() };
        Attempt::Write(Box::new(Pending { txn, code, warnings, reply, target: self.call.target.clone() }))
    }
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

/// Defaults. A request's body loses its nulls where null is not allowed; what an apply merged keeps them, for validation to
/// find. A custom resource that says that it is of another kind gets none.
fn fill_in(served: &Served, new: &mut Value, tracked: Tracked) {
    if served.is_other_kind(new) {
        return;
    }
    match tracked {
        Tracked::Yes => served.schema().default_again(new),
        Tracked::No => served.schema().default(new),
    }
}

impl Core {
    /// Whether nothing holds a deleted object back any more.
    pub(crate) fn vanishes(&self, target: &Target, object: &Value) -> bool {
        let meta = &object["metadata"];
        let finalizers = meta.get("finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty());
        let grace = meta.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
        api::object::is_terminating(object) && !finalizers && grace == 0 && !held_by_spec(&target.served, object)
    }
}

/// Whether finalizers in its `spec` hold back the deletion of an object.
pub(super) fn held_by_spec(served: &Served, object: &Value) -> bool {
    served.resource.facts.finalizers_in_spec
        && object["spec"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}
