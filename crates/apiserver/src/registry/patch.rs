//! Patches: updates whose new object the server computes.

use super::read::{keyed, not_found};
use super::write::{Call, enforce_namespace, same_revision};
use super::{Attempt, Core};
use crate::decode;
use crate::query::FieldValidation;
use merge::apply::{self, ApplyError, Writer};
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

impl Core {
    /// Patches an object; an apply may also create it.
    ///
    /// # Errors
    /// Whatever upstream answers.
    pub fn patch(&self, call: &Call<'_>, kind: PatchKind, patch: &Value) -> Result<Attempt, Status> {
        let target = call.target;
        if kind == PatchKind::Apply {
            return self.apply(call, patch);
        }
        let served = &target.served;
        let resource = &served.resource;
        let entry = self.entry(target).ok_or_else(|| not_found(target))?;
        let old = served.present_value(&entry);
        let patched = || match kind {
            PatchKind::Json => json_patch::apply(&old, patch),
            PatchKind::Merge | PatchKind::Apply => Ok(merge_patch::apply(&old, patch)),
            PatchKind::Strategic => strategic::apply(&old, patch, served.schema()),
        };
        let mut new = patched().map_err(|error| refused(&error))?;
        // A strategic patch is shown itself, of the others what they make of the object.
        let shown = || match kind {
            PatchKind::Strategic => strategic::shown(&old, patch, served.schema()),
            PatchKind::Json | PatchKind::Merge | PatchKind::Apply => {
                patched().map(|made| made.to_string()).unwrap_or_default()
            }
        };
        let unfit = |why: String| {
            let error = api::field::Error::invalid(&api::field::Path::new("patch"), shown(), why);
            Status::invalid("", "", "", &vec![error])
        };
        let changes = |field: &str| new.get(field).is_some_and(|value| Some(value) != old.get(field));
        if served.custom.is_none() && kind != PatchKind::Strategic && (changes("kind") || changes("apiVersion")) {
            let (version, kind) = (api::object::text(&new, "apiVersion"), api::object::text(&new, "kind"));
            if !merge::builtin::is_registered(&resource.group, version, kind) {
                return Err(unfit(decode::not_registered(kind, version)));
            }
            let wanted = (resource.group.as_str(), resource.kind.as_str());
            return Err(unfit(decode::of_another_kind(new.clone(), version, kind, None, wanted)));
        }
        if served.custom.is_some() && new.get("kind").is_none_or(|kind| kind.is_null() || kind == "") {
            return Err(unfit(format!("Object 'Kind' is missing in '{new}'")));
        }
        match resource.type_name {
            Some(name) if kind == PatchKind::Strategic => merge::builtin::convert(name, &mut new),
            _ => served.decode(&mut new),
        }
        .map_err(unfit)?;
        if served.custom.is_none() && kind == PatchKind::Strategic {
            // what a strategic patch makes is of the object's own type, whatever it says of it
            for field in ["apiVersion", "kind"] {
                new[field] = old[field].clone();
            }
        }
        // what is unknown is a matter of the version that a custom object says it is of
        let catalog = served.custom.is_some().then(|| self.catalog());
        let said = catalog.as_ref().and_then(|catalog| {
            let (group, version) = api::object::text(&new, "apiVersion").rsplit_once('/')?;
            catalog.get(group, version, &resource.plural).filter(|_| group == resource.group)
        });
        let warnings =
            decode::prune(said.unwrap_or(served), &mut new, call.warnings, call.options.validation).map_err(unfit)?;
        // What the patch makes is an object: a refusal from here on takes along what was warned of.
        let write = || {
            self.in_namespace(target)?;
            enforce_namespace(&mut new, target)?;
            same_name(target, &new)?;
            super::write::expect_version(target, &new, &entry)?;
            same_type(served, &target.name, &new)?;
            self.replace(&Call { warnings: &warnings, ..*call }, new, &entry, false, false)
        };
        write().map_err(|status| status.with_warnings(&warnings))
    }

    fn apply(&self, call: &Call<'_>, applied: &Value) -> Result<Attempt, Status> {
        let target = call.target;
        let served = &target.served;
        let resource = &served.resource;
        let entry = self.entry(target);
        if entry.is_none() && !target.subresource.is_empty() {
            return Err(not_found(target));
        }
        let live = entry.as_ref().map(|entry| served.present_value(entry));
        let api_version = served.api_version();
        let ignored = resource.strategy.ignored(&target.subresource);
        let writer = Writer {
            manager: &call.options.manager,
            api_version: &api_version,
            kind: &resource.kind,
            subresource: &target.subresource,
            ignored: &ignored,
        };
        let merged =
            apply::apply(live.as_deref(), applied, &writer, call.options.force, served.schemas(), self.world.now())
                .map_err(|error| apply_refused(&error))?;
        if call.options.validation == FieldValidation::Strict && !call.warnings.is_empty() {
            let lines = call.warnings.join("\n  ");
            let why = format!(
                "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {lines}"
            );
            return Err(Status::bad_request(why));
        }
        let mut merged = merged;
        let mut pruned = false;
        match resource.type_name {
            Some(name) => {
                merge::builtin::convert(name, &mut merged).map_err(|why| unconverted(&merged, applied, &why))?
            }
            None => {
                served.decode(&mut merged).map_err(Status::bad_request)?;
                // an unknown field is an error, unless a part above it keeps unknown fields: then it is dropped, and yet counts as a change
                let dropped = served.prune(&mut merged);
                pruned = dropped.iter().any(|path| !path.starts_with("metadata.") && !path.starts_with("status."));
            }
        }
        let write = || {
            if entry.is_none() {
                keyed(target)?;
            }
            self.in_namespace(target)?;
            enforce_namespace(&mut merged, target)?;
            same_name(target, &merged)?;
            match entry {
                Some(entry) => {
                    same_revision(target, applied, &entry)?;
                    self.replace(call, merged, &entry, true, pruned)
                }
                None => {
                    // There is nothing that the version could be of.
                    if let Some(meta) = merged.get_mut("metadata").and_then(Value::as_object_mut) {
                        meta.remove("resourceVersion");
                    }
                    self.may_create(call)?;
                    self.create(call, merged, true)
                }
            }
        };
        write().map_err(|status| status.with_warnings(call.warnings))
    }
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
fn same_type(served: &super::Served, name: &str, object: &Value) -> Result<(), Status> {
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

/// The object's name is the one in the path.
fn same_name(target: &super::Target, object: &Value) -> Result<(), Status> {
    match api::object::meta(object, "name") {
        name if name == target.name => Ok(()),
        "" => Err(Status::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        ))),
        name => Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        ))),
    }
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
