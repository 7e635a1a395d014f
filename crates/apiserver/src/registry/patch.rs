//! Patches: updates whose new object the server computes.

use super::catalog::ReadError;
use super::read::{keyed, not_found};
use super::write::{Call, Pruned, Tracked, enforce_namespace, expect_version, same_name, same_revision};
use super::{Attempt, Core, Served, Target};
use crate::decode::{self, StrictError};
use crate::query::FieldValidation;
use merge::apply::{self, ApplyError};
use merge::{PatchError, json_patch, merge_patch, strategic};
use resource::status::{Cause, Status};
use serde_json::{Value, json};

/// By content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchKind {
    /// From a media type without parameters.
    pub fn of(media_type: &str) -> Option<Self> {
        Some(match media_type {
            "application/json-patch+json" => Self::Json,
            "application/merge-patch+json" => Self::Merge,
            "application/strategic-merge-patch+json" => Self::Strategic,
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => Self::Apply,
            _ => return None,
        })
    }
}

/// A patch of an object that is there, in another way than an apply.
struct Patching<'a> {
    served: &'a Served,
    kind: PatchKind,
    patch: &'a Value,
    old: &'a Value,
}

/// Why what a patch made is no object of the kind.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
enum MadeError {
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It says that it is of another kind.
    #[error("{why}")]
    OtherKind { why: String },
    #[error("Object 'Kind' is missing in '{object}'")]
    NoKind { object: String },
}

impl Patching<'_> {
    /// What the patch makes of the object.
    fn made(&self) -> Result<Value, PatchError> {
        match self.kind {
            PatchKind::Json => json_patch::apply(self.old, self.patch),
            PatchKind::Merge | PatchKind::Apply => Ok(merge_patch::apply(self.old, self.patch)),
            PatchKind::Strategic => strategic::apply(self.old, self.patch, self.served.schema()),
        }
    }

    /// The refusal of what the patch made. A strategic patch is shown itself, of the others what they make of the object.
    fn unfit(&self, why: String) -> Status {
        let shown = match self.kind {
            PatchKind::Strategic => strategic::shown(self.old, self.patch, self.served.schema()),
            PatchKind::Json | PatchKind::Merge | PatchKind::Apply => {
                self.made().map(|made| made.to_string()).unwrap_or_default()
            }
        };
        let error = api::field::Error::invalid(&api::field::Path::new("patch"), shown, why);
        Status::invalid("", "", "", &vec![error])
    }

    /// Reads what the patch made as Go reads the kind.
    ///
    /// # Errors
    /// Why it is none.
    fn decode(&self, new: &mut Value) -> Result<(), MadeError> {
        let Self { served, kind, old, .. } = *self;
        let resource = &served.resource;
        let (custom, strategic) = (served.custom.is_some(), kind == PatchKind::Strategic);
        let changes = |field: &str| new.get(field).is_some_and(|value| Some(value) != old.get(field));
        if !custom && !strategic && (changes("kind") || changes("apiVersion")) {
            let (version, kind) = (api::object::text(new, "apiVersion"), api::object::text(new, "kind"));
            if !merge::builtin::is_registered(&resource.group, version, kind) {
                return Err(MadeError::OtherKind { why: decode::not_registered(kind, version) });
            }
            let wanted = (resource.group.as_str(), resource.kind.as_str());
            let why = decode::of_another_kind(new.clone(), version, kind, None, wanted);
            return Err(MadeError::OtherKind { why });
        }
        if custom && new.get("kind").is_none_or(|kind| kind.is_null() || kind == "") {
            return Err(MadeError::NoKind { object: new.to_string() });
        }
        match resource.type_name {
            Some(name) if strategic => merge::builtin::convert(name, new).map_err(ReadError::from)?,
            _ => served.decode(new)?,
        }
        if !custom && strategic {
            // what a strategic patch makes is of the object's own type, whatever it says of it
            for field in ["apiVersion", "kind"] {
                new[field] = old[field].clone();
            }
        }
        Ok(())
    }
}

impl Core {
    /// Patches an object; an apply may also create it.
    ///
    /// # Errors
    /// Whatever upstream answers.
    pub fn patch(&self, call: &Call<'_>, kind: PatchKind, patch: &Value) -> Result<Attempt, Status> {
        if kind == PatchKind::Apply {
            return self.apply(call, patch);
        }
        let Target { served, name, .. } = call.target;
        let entry = self.entry(call.target).ok_or_else(|| not_found(call.target))?;
        let old = served.present_value(&entry);
        let patching = Patching { served, kind, patch, old: &old };
        let mut new = patching.made().map_err(|error| refused(&error))?;
        patching.decode(&mut new).map_err(|why| patching.unfit(why.to_string()))?;
        let warnings = self.prune_patched(call, &mut new).map_err(|why| patching.unfit(why.to_string()))?;
        // What the patch makes is an object: a refusal from here on takes along what was warned of.
        let write = || {
            self.in_namespace(call.target)?;
            enforce_namespace(&mut new, call.target)?;
            same_name(call.target, &new)?;
            expect_version(call.target, &new, &entry)?;
            same_type(served, name, &new)?;
            self.replace(&Call { warnings: &warnings, ..*call }, new, &entry, Tracked::No, Pruned::No)
        };
        write().map_err(|status| status.with_warnings(&warnings))
    }

    /// Drops unknown fields from what a patch made. What is unknown is a matter of the version that a custom object says it is of.
    fn prune_patched(&self, call: &Call<'_>, new: &mut Value) -> Result<Vec<String>, StrictError> {
        let served = &call.target.served;
        let resource = &served.resource;
        let catalog = served.custom.is_some().then(|| self.catalog());
        let said = catalog.as_ref().and_then(|catalog| {
            let (group, version) = api::object::text(new, "apiVersion").rsplit_once('/')?;
            catalog.get(group, version, &resource.plural).filter(|_| group == resource.group)
        });
        decode::prune(said.unwrap_or(served), new, call.warnings, call.options.validation)
    }

    fn apply(&self, call: &Call<'_>, applied: &Value) -> Result<Attempt, Status> {
        let Target { served, subresource, .. } = call.target;
        let entry = self.entry(call.target);
        if entry.is_none() && !subresource.is_empty() {
            return Err(not_found(call.target));
        }
        let live = entry.as_ref().map(|entry| served.present_value(entry));
        let (force, now) = (call.options.force, self.world.now());
        let merged =
            call.as_writer(|writer| apply::apply(live.as_deref(), applied, writer, force, served.schemas(), now));
        let mut merged = merged.map_err(|error| apply_refused(&error))?;
        if call.options.validation == FieldValidation::Strict && !call.warnings.is_empty() {
            return Err(loose(call.warnings));
        }
        let pruned = read_merged(served, &mut merged, applied)?;
        let write = || {
            if entry.is_none() {
                keyed(call.target)?;
            }
            self.in_namespace(call.target)?;
            enforce_namespace(&mut merged, call.target)?;
            same_name(call.target, &merged)?;
            if let Some(entry) = entry {
                same_revision(call.target, applied, &entry)?;
                return self.replace(call, merged, &entry, Tracked::Yes, pruned);
            }
            // There is nothing that the version could be of.
            if let Some(meta) = merged.get_mut("metadata").and_then(Value::as_object_mut) {
                meta.remove("resourceVersion");
            }
            self.may_create(call)?;
            self.create(call, merged, Tracked::Yes)
        };
        write().map_err(|status| status.with_warnings(call.warnings))
    }
}

/// The refusal of an applied object with fields that are unknown or given twice, where the client asked for one.
fn loose(warnings: &[String]) -> Status {
    let lines = warnings.join("\n  ");
    Status::bad_request(format!(
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {lines}"
    ))
}

/// Reads what an apply made as Go reads the kind.
fn read_merged(served: &Served, merged: &mut Value, applied: &Value) -> Result<Pruned, Status> {
    if let Some(name) = served.resource.type_name {
        merge::builtin::convert(name, merged).map_err(|why| unconverted(merged, applied, &why.to_string()))?;
        return Ok(Pruned::No);
    }
    served.decode(merged).map_err(|why| Status::bad_request(why.to_string()))?;
    // an unknown field is an error, unless a part above it keeps unknown fields: then it is dropped, and yet counts as a change
    let dropped = served.prune(merged);
    let counts = dropped.iter().any(|path| !path.starts_with("metadata.") && !path.starts_with("status."));
    Ok(if counts { Pruned::Yes } else { Pruned::No })
}

/// What an apply made is no object of its kind.
pub(crate) fn unconverted(made: &Value, applied: &Value, why: &str) -> Status {
    let (version, kind) = (api::object::text(made, "apiVersion"), api::object::text(made, "kind"));
    let (group, short) = version.rsplit_once('/').unwrap_or(("", version));
    let kind = format!("{group}/{short}, Kind={kind}");
    let (namespace, name) = (api::object::meta(applied, "namespace"), api::object::meta(made, "name"));
    let message = format!(
        "failed to convert new object ({namespace}/{name}; {kind}) to proper version: unable to convert unstructured \
         object to {kind}: {why}"
    );
    Status::new(500, "", message)
}

/// A custom resource says what it is, and a patch may have changed that.
fn same_type(served: &Served, name: &str, object: &Value) -> Result<(), Status> {
    if served.custom.is_none() {
        return Ok(());
    }
    let mut errors = api::field::ErrorList::new();
    for (field, wanted) in [("kind", served.resource.kind.clone()), ("apiVersion", served.api_version())] {
        let given = api::object::text(object, field);
        if given != wanted {
            errors.push(api::field::Error::invalid(&api::field::Path::new(field), given, format!("must be {wanted}")));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    // the refusal is about what the object says it is
    let group = api::object::text(object, "apiVersion").split_once('/').map_or("", |(group, _)| group);
    Err(Status::invalid(group, api::object::text(object, "kind"), name, &errors))
}

pub(crate) fn refused(error: &PatchError) -> Status {
    match error {
        PatchError::Malformed(message) => Status::bad_request(message.clone()),
        PatchError::Unprocessable(_) | PatchError::TestFailed(_) => {
            let mut status =
                Status::new(422, "Invalid", "the server rejected our request due to an error in our request");
            status.details = Some(json!({}));
            status
        }
        PatchError::TooLarge(message) => Status::new(413, "RequestEntityTooLarge", message.clone()),
        PatchError::Internal(message) => Status::new(500, "", message.clone()),
    }
}

pub(crate) fn apply_refused(error: &ApplyError) -> Status {
    match error {
        ApplyError::Conflicts(conflicts) => {
            let cause = |c: &merge::apply::Conflict| Cause {
                reason: "FieldManagerConflict",
                message: format!("conflict with {}", c.manager),
                field: c.field.clone(),
            };
            let causes = conflicts.iter().map(cause).collect();
            Status { causes, ..Status::new(409, "Conflict", error.to_string()) }
        }
        ApplyError::BadRequest(message) => Status::bad_request(message.clone()),
        ApplyError::Untypable(message) => Status::new(500, "", message.clone()),
    }
}
