//! All other writes: what an update changes is its writer's, and nobody else's any more.

use super::managed::{self, Entry, Identity, Managed, Operation};
use super::same::same_but_managers;
use super::versions::VersionError;
use super::{ApplyError, Ignored, NEVER_MANAGED, Schemas, Writer, empty_object, is_stored, managed_fields, typed};
use crate::fields::FieldSet;
use crate::schema::Schema;
use jiff::Timestamp;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Brings sets that were written under an older schema to what the schema of their version says now.
///
/// # Errors
/// `live` does not fit the schema of a version in which fields of it are managed.
pub(super) fn reconcile(
    managed: &mut Managed,
    live: &Value,
    writer: &Writer<'_>,
    schemas: Schemas<'_>,
) -> Result<(), VersionError> {
    // What was written in a version that the kind does not have is nobody's.
    managed.entries.retain(|_, entry| schemas.know(&entry.api_version, writer.api_version));
    for entry in managed.entries.values_mut() {
        let schema = schemas.fitting(&entry.api_version, writer.api_version, live)?;
        let outdated = match entry.fields.json() {
            Some(json) => typed::is_outdated_json(&schema, json),
            None => typed::is_outdated(&schema, &entry.fields),
        };
        if outdated {
            entry.fields = typed::reconcile(&schema, &entry.fields).into();
        }
    }
    Ok(())
}

/// What a write changes, as far as its writer can come to manage it.
pub(super) struct Step {
    /// Fields that are new or have another value.
    touched: FieldSet,
    removed: FieldSet,
}

impl Step {
    /// `ignored`: the fields that the request does not write.
    fn between(live: &Value, new: &Value, ignored: &Ignored, schema: &Schema) -> Self {
        let changes = typed::compare(schema, live, new);
        Self {
            touched: ignored.filter(changes.modified.union(changes.added)),
            removed: ignored.filter(changes.removed),
        }
    }
}

/// Takes from all managers but `writer_id` what the step from `live` to `new` changes or removes.
///
/// # Errors
/// Others manage what would be changed, and `force` is not set; or either object does not fit the schema of a version in
/// which fields of it are managed.
pub(super) fn give_up(
    managed: &mut Managed,
    live: &Value,
    new: &Value,
    writer_id: &Identity,
    writer: &Writer<'_>,
    schemas: Schemas<'_>,
    force: bool,
) -> Result<Step, ApplyError> {
    let own = Step::between(live, new, writer.ignored, schemas.own());
    let mut others: BTreeMap<String, Step> = BTreeMap::new();
    for (_, entry) in managed.entries.iter().filter(|(identity, _)| *identity != writer_id) {
        let version = &entry.api_version;
        if schemas.differ(version, writer.api_version) && !others.contains_key(version) {
            let convert = |object: &Value, which: &str| {
                let schema = schemas.fitting(version, writer.api_version, object);
                schema.map_err(|why| ApplyError::Untypable(format!("failed to convert {which} object: {why}")))
            };
            let schema = convert(live, "old")?;
            convert(new, "new")?;
            // upstream says of the version that is written which fields it does not write, and of no other
            others.insert(version.clone(), Step::between(live, new, &Ignored::Nothing, &schema));
        }
    }
    let mut conflicts = Vec::new();
    for (identity, entry) in &mut managed.entries {
        if identity == writer_id {
            continue;
        }
        let step = others.get(&entry.api_version).unwrap_or(&own);
        if !entry.fields.may_meet(&step.touched) && !entry.fields.may_meet(&step.removed) {
            continue;
        }
        let taken = entry.fields.intersection(&step.touched);
        if !taken.is_empty() && !force {
            taken.visit(&mut |path| conflicts.push(identity.conflict(path)));
        }
        entry.fields = entry.fields.difference(&taken).difference(&step.removed).into();
    }
    if !conflicts.is_empty() {
        return Err(ApplyError::Conflicts(conflicts));
    }
    managed.entries.retain(|identity, entry| identity == writer_id || !entry.fields.is_empty());
    Ok(own)
}

/// Records the step from `live` to `new`, whatever managed fields they have themselves, as an update by `writer`.
///
/// # Errors
/// Either object does not fit the schema of a version in which fields of it are managed.
pub(super) fn record(
    managed: &mut Managed,
    live: &Value,
    new: &Value,
    writer: &Writer<'_>,
    schemas: Schemas<'_>,
    now: Timestamp,
) -> Result<(), ApplyError> {
    reconcile(managed, live, writer, schemas).map_err(|why| ApplyError::Untypable(why.to_string()))?;
    if same_but_managers(live, new) {
        managed.entries.retain(|_, entry| !entry.fields.is_empty());
        return Ok(());
    }
    let identity = Identity::of(writer, Operation::Update);
    // The operation stands apart from earlier ones of the same manager until it is known what it changed.
    let current = Identity::new("", Operation::Update, "", "current-operation");
    let step = give_up(managed, live, new, &current, writer, schemas, true)?;
    let set = step.touched.difference(&NEVER_MANAGED);
    if !set.is_empty() {
        let time = Some(managed::time_text(now));
        let api_version = writer.api_version.to_owned();
        let before = managed.entries.remove(&identity).map(|entry| entry.fields.into_set()).unwrap_or_default();
        managed.entries.insert(identity, Entry { fields: before.union(set).into(), api_version, time });
    }
    managed.cap();
    Ok(())
}

/// Records in `new.metadata.managedFields` what a create (`live` is `None`), update or non-apply patch changed.
///
/// To be called with `new` decoded, pruned and defaulted, before mutating admission and before the kind's strategy
/// touches it: what those set is nobody's. `new.metadata.managedFields` is honoured as a client may mean it: absent or
/// null keeps the live ones, `[]` or `[{}]` resets them, a valid list replaces them. Through a subresource it is ignored.
/// An object that does not fit the schema, or that of a version in which somebody manages fields of it, is left without
/// managed fields.
pub fn track_update<'a>(
    live: Option<&Value>,
    new: &mut Value,
    writer: &Writer<'_>,
    schemas: impl Into<Schemas<'a>>,
    now: Timestamp,
) {
    let schemas = schemas.into();
    let given = match new.get_mut("metadata") {
        Some(Value::Object(meta)) => meta.remove("managedFields"),
        _ => None,
    };
    let stored = live.map(managed_fields).unwrap_or_default();
    let of_live = || Managed::of_stored(stored).unwrap_or_default();
    let mut managed = match &given {
        Some(Value::Array(list)) if writer.subresource.is_empty() => match list.as_slice() {
            [] => Managed::default(),
            [Value::Object(only)] if only.values().all(|v| v.is_null() || v.as_str() == Some("")) => Managed::default(),
            // nearly all clients send what they have read
            _ if list == stored => of_live(),
            _ => match Managed::decode(list) {
                Ok(managed) if !managed.entries.is_empty() => managed,
                Ok(_) | Err(_) => of_live(),
            },
        },
        Some(_) | None => of_live(),
    };
    // What does not fit the schema cannot be told apart into fields; upstream then gives up tracking the object.
    if !typed::faults(schemas.own(), new, true).is_empty() {
        return;
    }
    // An object without managed fields stays without, until it is applied to.
    if !managed.entries.is_empty() || !live.is_some_and(is_stored) {
        let before = match live {
            Some(live) if is_stored(live) => Cow::Borrowed(live),
            Some(_) | None => Cow::Owned(empty_object(writer)),
        };
        if record(&mut managed, &before, new, writer, schemas, now).is_err() {
            return;
        }
    }
    managed.store(new);
}
