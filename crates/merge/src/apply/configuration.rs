//! Applies: a configuration is merged into the live object, and its manager owns what is in it.

use super::managed::{self, Entry, Identity, Managed, Operation};
use super::update::{give_up, reconcile, record};
use super::versions::VersionError;
use super::{
    ApplyError, Conflict, NEVER_MANAGED, Schemas, Writer, about, empty_object, kind_text, managed_fields, typed,
    without_managed_fields,
};
use crate::fields::FieldSet;
use crate::schema::Schema;
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The manager that is recorded for the fields an object had before its first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Most bytes of all annotations together; the last-applied annotation is left out beyond that.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// The object that results from applying `applied` onto `live`, with `metadata.managedFields`.
///
/// `live` is `None` where the apply creates. The result has neither been defaulted nor validated yet. Where the apply
/// changes nothing, the result equals `live` but possibly for its managed fields; their times move only with the object.
///
/// # Errors
/// See [`ApplyError`]; with `force`, conflicting fields are taken over instead.
pub fn apply<'a>(
    live: Option<&Value>,
    applied: &Value,
    writer: &Writer<'_>,
    force: bool,
    schemas: impl Into<Schemas<'a>>,
    now: Timestamp,
) -> Result<Value, ApplyError> {
    let schemas = schemas.into();
    let schema = schemas.own();
    check_kind(applied, writer.api_version, writer.kind)?;
    if !applied["metadata"]["managedFields"].is_null() {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let faults = typed::faults(schema, applied, false);
    if !faults.is_empty() {
        return Err(ApplyError::Untypable(format!(
            "failed to create typed patch object ({}): {}",
            about(applied),
            typed::fault_text(&faults)
        )));
    }
    let empty = empty_object(writer);
    let stored = live.map_or_else(|| empty.clone(), without_managed_fields);
    let unfit = typed::faults(schema, &stored, true);
    let mut managed = Managed::decode(live.map(managed_fields).unwrap_or_default())
        .map_err(|why| ApplyError::Untypable(format!("failed to decode managed fields: {why}")))?;
    if !unfit.is_empty() {
        let (about, why) = (about(&stored), typed::fault_text(&unfit));
        return Err(ApplyError::Untypable(match managed.entries.is_empty() {
            true => format!(
                "failed to create manager for existing fields: failed to convert new object ({about}) to smd typed: {why}"
            ),
            false => format!("failed to create typed live object ({about}): {why}"),
        }));
    }
    if managed.entries.is_empty() {
        // What was there before the first apply belongs to the managers from before.
        let before = Writer { manager: BEFORE_FIRST_APPLY, ..*writer };
        record(&mut managed, &empty, &stored, &before, schemas, now)
            .map_err(|why| ApplyError::Untypable(format!("failed to create manager for existing fields: {why}")))?;
    }
    let call = Call { live: &stored, applied, writer, schemas, now };
    match call.run(managed.clone(), force) {
        Err(ApplyError::Conflicts(conflicts)) if writer.manager == "kubectl" => {
            // What client-side apply had set, kubectl may take over.
            let allowed = call.set_by_client_side_apply().unwrap_or_default();
            let left: Vec<Conflict> = conflicts.into_iter().filter(|c| !allowed.has(&c.path)).collect();
            if left.is_empty() { call.run(managed, true) } else { Err(ApplyError::Conflicts(left)) }
        }
        result => result,
    }
    .map(|(mut object, managed)| {
        if writer.manager == "kubectl" {
            renew_last_applied(&mut object, applied);
        }
        managed.store(&mut object);
        object
    })
}

/// Why it is not known what an apply takes away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum PruneError {
    #[error("failed to convert merged object to last applied version: {0}")]
    Merged(VersionError),
    #[error("failed add back owned items: failed to convert {what} object at version {version}: {why}")]
    Owned { what: &'static str, version: String, why: VersionError },
}

/// Why a part of an object is not merged into it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    #[error("failed to convert {what} object to typed object: {faults}")]
    Unfit { what: &'static str, faults: String },
    #[error("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {places}")]
    Atomic { places: String },
}

/// `patch`, a part of an object, merged into `live`: what a policy sets, which nobody comes to manage by that
/// (`k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch`).
///
/// # Errors
/// `patch` does not fit the schema or would replace lists, maps or objects as a whole; `live` does not fit the schema.
pub fn merge_configuration(live: &Value, patch: &Value, schema: &Schema) -> Result<Value, ConfigurationError> {
    let fits = |what: &'static str, value: &Value, duplicates: bool| match typed::faults(schema, value, duplicates) {
        faults if faults.is_empty() => Ok(()),
        faults => Err(ConfigurationError::Unfit { what, faults: typed::fault_text(&faults) }),
    };
    fits("patch", patch, false)?;
    let mut atomic = Vec::new();
    typed::atomics(schema, patch, "", &mut atomic);
    if !atomic.is_empty() {
        return Err(ConfigurationError::Atomic { places: atomic.join(", ") });
    }
    fits("original", live, true)?;
    Ok(typed::merge(schema, live, patch))
}

/// What is applied must be of this kind and version.
///
/// # Errors
/// `ApplyError::BadRequest`.
pub fn check_kind(applied: &Value, api_version: &str, kind: &str) -> Result<(), ApplyError> {
    let text = |name: &str| api::object::text(applied, name);
    if text("apiVersion") == api_version && text("kind") == kind {
        return Ok(());
    }
    Err(ApplyError::BadRequest(format!("invalid object type: {}", kind_text(applied))))
}

struct Call<'a> {
    live: &'a Value,
    applied: &'a Value,
    writer: &'a Writer<'a>,
    schemas: Schemas<'a>,
    now: Timestamp,
}

impl Call<'_> {
    fn run(&self, mut managed: Managed, force: bool) -> Result<(Value, Managed), ApplyError> {
        let Self { live, applied, writer, schemas, now } = *self;
        let schema = schemas.own();
        reconcile(&mut managed, live, writer, schemas).map_err(|why| ApplyError::Untypable(why.to_string()))?;
        let merged = typed::merge(schema, live, applied);
        let set = writer.ignored.filter(typed::field_set(schema, applied));
        let identity = Identity::of(writer, Operation::Apply);
        let last = managed.entries.get(&identity).cloned();
        let entry = Entry {
            fields: set.into(),
            api_version: writer.api_version.to_owned(),
            time: last.as_ref().and_then(|l| l.time.clone()),
        };
        managed.entries.insert(identity.clone(), entry);
        let result = match &last {
            Some(last) if !last.fields.is_empty() => {
                let pruned = self.prune(merged, &managed, last);
                pruned.map_err(|why| ApplyError::Untypable(format!("failed to prune fields: {why}")))?
            }
            Some(_) | None => merged,
        };
        let changed = !typed::equal(live, &result);
        if changed {
            give_up(&mut managed, live, &result, &identity, writer, schemas, force)?;
        }
        if let Some(entry) = managed.entries.get_mut(&identity) {
            entry.fields = entry.fields.difference(&NEVER_MANAGED).into();
            if changed {
                entry.time = Some(managed::time_text(now));
            }
        }
        managed.entries.retain(|_, entry| !entry.fields.is_empty());
        Ok((result, managed))
    }

    /// Takes away what this manager applied last time, does not apply now, and nobody else manages.
    ///
    /// # Errors
    /// The object does not fit the schema of a version in which fields of it are managed.
    fn prune(&self, merged: Value, managed: &Managed, last: &Entry) -> Result<Value, PruneError> {
        let current = self.writer.api_version;
        let schema = self.schemas.fitting(&last.api_version, current, &merged).map_err(PruneError::Merged)?;
        // This manager gave nothing up: nothing goes.
        let now = managed.entries.get(&Identity::of(self.writer, Operation::Apply));
        if now.is_some_and(|now| last.fields.difference(&now.fields).is_empty()) {
            return Ok(merged);
        }
        let mut owned: BTreeMap<&str, FieldSet> = BTreeMap::new();
        for entry in managed.entries.values() {
            let set = owned.entry(&entry.api_version).or_default();
            *set = std::mem::take(set).union(FieldSet::clone(&entry.fields));
        }
        let all = owned.values().fold(FieldSet::default(), |all, set| all.union(set.clone()));
        // Somebody else manages all that this manager gave up: nothing goes.
        if last.fields.difference(&all).is_empty() {
            return Ok(merged);
        }
        let gone = typed::with_named_parents(&schema, &last.fields);
        let mut pruned = typed::remove(&schema, &merged, &gone);
        // Back comes what anyone, this manager included, still claims; first what is claimed in the version of then …
        let first = owned.remove_entry(last.api_version.as_str());
        for (version, set) in first.into_iter().chain(owned) {
            let convert = |object: &Value, what| {
                let schema = self.schemas.fitting(version, current, object);
                schema.map_err(|why| PruneError::Owned { what, version: version.to_owned(), why })
            };
            let schema = convert(&merged, "merged")?;
            convert(&pruned, "pruned")?;
            let there = typed::with_named_parents(&schema, &typed::field_set(&schema, &merged));
            let left = typed::with_named_parents(&schema, &typed::field_set(&schema, &pruned));
            let claimed = left.union(typed::with_named_parents(&schema, &set));
            pruned = typed::remove(&schema, &merged, &there.difference(&claimed));
        }
        // … and what this manager never applied.
        let there = typed::with_named_parents(&schema, &typed::field_set(&schema, &merged));
        let left = typed::with_named_parents(&schema, &typed::field_set(&schema, &pruned));
        Ok(typed::remove(&schema, &merged, &there.difference(&left).intersection(&gone)))
    }

    /// The fields whose live value is what the last client-side apply set.
    fn set_by_client_side_apply(&self) -> Option<FieldSet> {
        let text = api::object::annotation(self.live, LAST_APPLIED)?;
        let last: Value = serde_json::from_str(text).ok()?;
        if api::object::text(&last, "apiVersion") != self.writer.api_version
            || !typed::faults(self.schemas.own(), &last, false).is_empty()
        {
            return None;
        }
        let changes = typed::compare(self.schemas.own(), &last, self.live);
        let set = typed::field_set(self.schemas.own(), &last);
        Some(set.difference(&changes.modified).difference(&changes.added).difference(&changes.removed))
    }
}

/// Keeps the annotation of client-side apply in step, where an object has it.
fn renew_last_applied(object: &mut Value, applied: &Value) {
    if api::object::annotation(object, LAST_APPLIED).is_none_or(str::is_empty) {
        return;
    }
    let mut config = applied.clone();
    if let Some(Value::Object(annotations)) = config.pointer_mut("/metadata/annotations") {
        annotations.remove(LAST_APPLIED);
    }
    if config.pointer("/metadata/annotations").and_then(Value::as_object).is_some_and(Map::is_empty)
        && let Some(Value::Object(meta)) = config.get_mut("metadata")
    {
        meta.remove("annotations");
    }
    let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") else { return };
    annotations.insert(LAST_APPLIED.to_owned(), format!("{config}\n").into());
    let bytes: usize = annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > ANNOTATIONS_BYTES_MAX {
        annotations.remove(LAST_APPLIED);
    }
}
