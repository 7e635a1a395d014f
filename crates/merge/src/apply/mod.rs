//! Server-side apply: which manager has which field, and what an apply may change
//! (`k8s.io/apimachinery/pkg/util/managedfields`, `sigs.k8s.io/structured-merge-diff`).
//!
//! [`apply`] merges an applied configuration into the live object; [`track_update`] records what any other write changed.
//! Both keep `metadata.managedFields`. A manager's set is kept in the version that it was written in; where versions differ
//! ([`Schemas`]), it is judged by the schema of that version.

mod empty;
mod managed;
mod same;
mod scale;
mod typed;
mod versions;

use crate::builtin;
use crate::fields::{Element, FieldSet};
use crate::schema::Schema;
pub use empty::{holds_empty, is_given_empty, with_empty};
use jiff::Timestamp;
use managed::{Entry, Identity, Managed, Operation, Rank};
use same::same_but_managers;
pub use same::same_but_times;
pub use scale::{scale_managers, track_scale};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;
pub use versions::{Schemas, Versions};

/// Who writes, and through what.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// `fieldManager`, or the user agent up to the first `/`; empty means `unknown`.
    pub manager: &'a str,
    /// Of the request (`v1`, `batch/v1`).
    pub api_version: &'a str,
    pub kind: &'a str,
    /// `status`, `scale`, …; empty for the main resource.
    pub subresource: &'a str,
    /// Fields that this endpoint resets, which nobody can come to manage through it.
    pub ignored: &'a Ignored,
}

/// Fields that an endpoint does not take over from a request (upstream's `GetResetFields`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ignored {
    #[default]
    Nothing,
    /// These paths and all below them (`["status"]`).
    Paths(Vec<Vec<String>>),
    /// Everything but these paths and what is below them.
    AllBut(Vec<Vec<String>>),
}

impl Ignored {
    /// `Paths`, from dotted paths.
    pub fn paths(dotted: &[&str]) -> Self {
        Self::Paths(dotted.iter().map(|path| path.split('.').map(str::to_owned).collect()).collect())
    }

    /// `AllBut`, from dotted paths.
    pub fn all_but(dotted: &[&str]) -> Self {
        Self::AllBut(dotted.iter().map(|path| path.split('.').map(str::to_owned).collect()).collect())
    }

    fn filter(&self, set: FieldSet) -> FieldSet {
        let as_set = |paths: &[Vec<String>]| {
            let mut out = FieldSet::default();
            for path in paths {
                let steps: Vec<Element> = path.iter().cloned().map(Element::Field).collect();
                out.insert(&steps);
            }
            out
        };
        match self {
            Self::Nothing => set,
            Self::Paths(paths) => set.without_subtrees(&as_set(paths)),
            Self::AllBut(paths) => set.only_subtrees(&as_set(paths)),
        }
    }
}

/// A field that somebody else manages and that an apply would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// As messages name the manager: `"kubectl" using v1`.
    pub manager: String,
    /// `.spec.replicas`
    pub field: String,
    path: Vec<Element>,
    rank: Rank,
}

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// 409 `Conflict`; causes have reason `FieldManagerConflict`, message `conflict with {manager}`, and the field.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// 400 `BadRequest`.
    #[error("{0}")]
    BadRequest(String),
    /// 500, without a reason: the applied object does not fit the schema.
    #[error("{0}")]
    Untypable(String),
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", only.manager, only.field);
    }
    let mut fields: BTreeMap<(&Rank, &str), Vec<&str>> = BTreeMap::new();
    for conflict in conflicts {
        fields.entry((&conflict.rank, &conflict.manager)).or_default().push(&conflict.field);
    }
    let mut lines = Vec::new();
    for ((_, manager), fields) in fields {
        lines.push(format!("conflicts with {manager}:"));
        lines.extend(fields.into_iter().map(|field| format!("- {field}")));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// Fields that nobody is recorded as managing: what identifies an object, and what the server sets.
static NEVER_MANAGED: LazyLock<FieldSet> = LazyLock::new(|| {
    let mut out = FieldSet::default();
    let field = |name: &str| Element::Field(name.to_owned());
    for name in ["apiVersion", "kind", "metadata"] {
        out.insert(&[field(name)]);
    }
    let members = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    for name in members {
        out.insert(&[field("metadata"), field(name)]);
    }
    out
});

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The manager that is recorded for the fields an object had before its first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Most bytes of all annotations together; the last-applied annotation is left out beyond that.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// An object of the kind with nothing in it, as Go has it: what is always written of a built-in type is there.
fn empty_object(writer: &Writer<'_>) -> Value {
    let mut out = Map::new();
    out.insert("apiVersion".to_owned(), writer.api_version.into());
    out.insert("kind".to_owned(), writer.kind.into());
    let mut out = Value::Object(out);
    if let Some(name) = builtin_type(writer) {
        builtin::normalize(&name, &mut out);
    }
    out
}

/// The name of the type of a built-in kind in the table.
fn builtin_type(writer: &Writer<'_>) -> Option<String> {
    let (group, version) = writer.api_version.split_once('/').unwrap_or(("core", writer.api_version));
    let package = match group.split_once('.') {
        None => group,
        Some((first, "k8s.io" | "authorization.k8s.io")) => first,
        Some(_) => return None,
    };
    let name = match package {
        "apiextensions" => format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{}", writer.kind),
        package => format!("io.k8s.api.{package}.{version}.{}", writer.kind),
    };
    builtin::facts(&name).is_some().then_some(name)
}

fn managed_fields(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

fn without_managed_fields(object: &Value) -> Value {
    let Value::Object(fields) = object else { return object.clone() };
    let part = |(name, value): (&String, &Value)| match value {
        Value::Object(meta) if name == "metadata" => {
            let kept = meta.iter().filter(|(field, _)| *field != "managedFields");
            (name.clone(), Value::Object(kept.map(|(field, value)| (field.clone(), value.clone())).collect()))
        }
        _ => (name.clone(), value.clone()),
    };
    Value::Object(fields.iter().map(part).collect())
}

fn is_stored(object: &Value) -> bool {
    !api::object::uid(object).is_empty()
}

/// An object as messages name it.
fn about(object: &Value) -> String {
    let meta = |name: &str| api::object::meta(object, name);
    format!("{}/{}; {}", meta("namespace"), meta("name"), kind_text(object))
}

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
    if managed_fields(applied).is_some_and(|list| !list.is_null()) {
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
    let recorded = live.and_then(managed_fields).unwrap_or(&Value::Null);
    let mut managed = Managed::decode(recorded)
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

/// `patch`, a part of an object, merged into `live`: what a policy sets, which nobody comes to manage by that
/// (`k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch`).
///
/// # Errors
/// `patch` does not fit the schema or would replace lists, maps or objects as a whole; `live` does not fit the schema.
pub fn merge_configuration(live: &Value, patch: &Value, schema: &Schema) -> Result<Value, String> {
    let fits = |what: &str, value: &Value, duplicates: bool| match typed::faults(schema, value, duplicates) {
        faults if faults.is_empty() => Ok(()),
        faults => Err(format!("failed to convert {what} object to typed object: {}", typed::fault_text(&faults))),
    };
    fits("patch", patch, false)?;
    let mut atomic = Vec::new();
    typed::atomics(schema, patch, "", &mut atomic);
    if !atomic.is_empty() {
        let places = atomic.join(", ");
        return Err(format!("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {places}"));
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

/// `/v1, Kind=ConfigMap`, as Go prints a group-version-kind.
fn kind_text(object: &Value) -> String {
    let api_version = api::object::text(object, "apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={}", api::object::text(object, "kind"))
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
        reconcile(&mut managed, live, writer, schemas).map_err(ApplyError::Untypable)?;
        let merged = typed::merge(schema, live, applied);
        let set = writer.ignored.filter(typed::field_set(schema, applied));
        let identity = Identity::of(writer, Operation::Apply);
        let last = managed.entries.get(&identity).cloned();
        let entry = Entry {
            fields: set,
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
            entry.fields = entry.fields.difference(&NEVER_MANAGED);
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
    fn prune(&self, merged: Value, managed: &Managed, last: &Entry) -> Result<Value, String> {
        let current = self.writer.api_version;
        let schema = self
            .schemas
            .fitting(&last.api_version, current, &merged)
            .map_err(|why| format!("failed to convert merged object to last applied version: {why}"))?;
        // This manager gave nothing up: nothing goes.
        let now = managed.entries.get(&Identity::of(self.writer, Operation::Apply));
        if now.is_some_and(|now| last.fields.difference(&now.fields).is_empty()) {
            return Ok(merged);
        }
        let mut owned: BTreeMap<&str, FieldSet> = BTreeMap::new();
        for entry in managed.entries.values() {
            let set = owned.entry(&entry.api_version).or_default();
            *set = std::mem::take(set).union(entry.fields.clone());
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
            let convert = |object: &Value, what: &str| {
                let schema = self.schemas.fitting(version, current, object);
                schema.map_err(|why| {
                    format!("failed add back owned items: failed to convert {what} object at version {version}: {why}")
                })
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

/// Brings sets that were written under an older schema to what the schema of their version says now.
///
/// # Errors
/// `live` does not fit the schema of a version in which fields of it are managed.
fn reconcile(managed: &mut Managed, live: &Value, writer: &Writer<'_>, schemas: Schemas<'_>) -> Result<(), String> {
    // What was written in a version that the kind does not have is nobody's.
    managed.entries.retain(|_, entry| schemas.know(&entry.api_version, writer.api_version));
    for entry in managed.entries.values_mut() {
        let schema = schemas.fitting(&entry.api_version, writer.api_version, live)?;
        if typed::is_outdated(&schema, &entry.fields) {
            entry.fields = typed::reconcile(&schema, &entry.fields);
        }
    }
    Ok(())
}

/// What a write changes, as far as its writer can come to manage it.
struct Step {
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
fn give_up(
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
        let taken = entry.fields.intersection(&step.touched);
        if !taken.is_empty() && !force {
            taken.visit(&mut |path| conflicts.push(identity.conflict(path)));
        }
        entry.fields = entry.fields.difference(&taken).difference(&step.removed);
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
fn record(
    managed: &mut Managed,
    live: &Value,
    new: &Value,
    writer: &Writer<'_>,
    schemas: Schemas<'_>,
    now: Timestamp,
) -> Result<(), String> {
    reconcile(managed, live, writer, schemas)?;
    if same_but_managers(live, new) {
        managed.entries.retain(|_, entry| !entry.fields.is_empty());
        return Ok(());
    }
    let identity = Identity::of(writer, Operation::Update);
    // The operation stands apart from earlier ones of the same manager until it is known what it changed.
    let current = Identity::new("", Operation::Update, "", "current-operation");
    let step = give_up(managed, live, new, &current, writer, schemas, true).map_err(|error| error.to_string())?;
    let set = step.touched.difference(&NEVER_MANAGED);
    if !set.is_empty() {
        let time = Some(managed::time_text(now));
        let api_version = writer.api_version.to_owned();
        let before = managed.entries.remove(&identity).map(|entry| entry.fields).unwrap_or_default();
        managed.entries.insert(identity, Entry { fields: before.union(set), api_version, time });
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
    let of_live = || live.and_then(managed_fields).and_then(|list| Managed::decode(list).ok()).unwrap_or_default();
    let mut managed = match &given {
        Some(Value::Array(list)) if writer.subresource.is_empty() => match list.as_slice() {
            [] => Managed::default(),
            [Value::Object(only)] if only.values().all(|v| v.is_null() || v.as_str() == Some("")) => Managed::default(),
            _ => match Managed::decode(&Value::Array(list.clone())) {
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

#[cfg(test)]
mod tests;
