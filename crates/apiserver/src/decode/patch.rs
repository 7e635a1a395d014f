//! The bodies of patches and deletions, and what is pruned of a patched object.

use super::json::whole_numbers;
use super::{Content, Format, StrictError, go_type, judge, not_registered, parse, repeated_owners, says_what_it_is};
use crate::query::FieldValidation;
use crate::registry::{PatchKind, Served};
use api::field::{Error, Path};
use merge::merge_patch;
use resource::status::Status;
use serde_json::Value;

/// Prunes a patched object and says what was dropped, and what was there twice, after what was `found` in the patch itself.
///
/// # Errors
/// What was dropped, under `Strict`.
pub fn prune(
    served: &Served,
    value: &mut Value,
    found: &[String],
    validation: FieldValidation,
) -> Result<Vec<String>, StrictError> {
    let dropped = served.prune(value);
    let unknown = dropped.iter().map(|path| format!("unknown field \"{path}\""));
    let mut warnings = judge(validation, found.iter().cloned().chain(unknown).collect())?;
    // upstream makes patched objects on its way to storage, and looks once
    warnings.extend(repeated_owners(value, " after mutating admission happens"));
    Ok(warnings)
}

/// The body of a patch.
///
/// # Errors
/// 400 in upstream's words.
pub fn patch(
    served: &Served,
    body: &Content,
    kind: PatchKind,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), Status> {
    if kind == PatchKind::Apply {
        let (mut value, repeated) =
            body.yaml().map_err(|why| Status::bad_request(format!("error decoding YAML: {why}")))?;
        if value.is_null() {
            return Err(Status::bad_request("invalid object type: /, Kind="));
        }
        if !value.is_object() {
            let what = go_type(&value);
            return Err(Status::bad_request(format!(
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {what} into Go \
                 value of type map[string]interface {{}}"
            )));
        }
        if served.custom.is_some() {
            whole_numbers(&mut value);
        }
        // Fields that the schema does not know are an error of the apply itself.
        let repeated = repeated.iter().map(|text| text.trim_start_matches("yaml: unmarshal errors:\n  ").to_owned());
        return Ok((value, if validation == FieldValidation::Ignore { Vec::new() } else { repeated.collect() }));
    }
    let (mut value, repeated) = body.json().map_err(|why| {
        // a strategic patch is read only once for all
        let prefix = if kind == PatchKind::Strategic { "" } else { "error decoding patch: " };
        match (kind, validation) {
            // upstream does not read this one itself: the library that applies it finds the fault
            (PatchKind::Merge, FieldValidation::Ignore) => Status::bad_request("Invalid JSON Patch"),
            (PatchKind::Json, FieldValidation::Ignore) => Status::bad_request(why.to_string()),
            _ => Status::bad_request(format!("{prefix}{why}")),
        }
    })?;
    if kind == PatchKind::Json && value.is_null() {
        // no list has no operations
        value = Value::Array(Vec::new());
    }
    if kind == PatchKind::Json && validation != FieldValidation::Ignore {
        // read twice: first to judge its fields
        let elements = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let go = elements.iter().find(|element| !element.is_object() && !element.is_null());
        let wrong = match (value.is_array() || value.is_null(), go) {
            (false, _) => Some((go_type(&value), "[]handlers.jsonPatchOp")),
            (true, Some(element)) => Some((go_type(element), "handlers.jsonPatchOp")),
            (true, None) => None,
        };
        if let Some((what, go)) = wrong {
            return Err(Status::bad_request(format!(
                "error decoding patch: json: cannot unmarshal {what} into Go value of type {go}"
            )));
        }
    }
    let object_wanted = matches!(kind, PatchKind::Merge | PatchKind::Strategic);
    if kind == PatchKind::Merge && validation == FieldValidation::Ignore && value.is_array() {
        // the list replaces the object, and is none
        return Err(replaced_by(&merge_patch::apply(&Value::Null, &value)));
    }
    if kind == PatchKind::Merge && (value.is_null() || (validation == FieldValidation::Ignore && !value.is_object())) {
        return Err(Status::bad_request("Invalid JSON Patch"));
    }
    if object_wanted && !value.is_object() {
        let prefix = if kind == PatchKind::Strategic { "" } else { "error decoding patch: " };
        return Err(Status::bad_request(format!(
            "{prefix}json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go_type(&value)
        )));
    }
    let found = match kind {
        PatchKind::Json | PatchKind::Apply => Vec::new(),
        PatchKind::Merge | PatchKind::Strategic if validation == FieldValidation::Ignore => Vec::new(),
        PatchKind::Merge | PatchKind::Strategic => {
            repeated.iter().map(|path| format!("duplicate field \"{path}\"")).collect()
        }
    };
    Ok((value, found))
}

/// The refusal of a patch that puts this in the place of the object.
fn replaced_by(made: &Value) -> Status {
    let why = says_what_it_is(made).err().map(|why| why.to_string()).unwrap_or_default();
    let error = Error::invalid(&Path::new("patch"), made.to_string(), why);
    Status::invalid("", "", "", &vec![error])
}

/// The body of a DELETE.
///
/// # Errors
/// 400 in upstream's words.
pub fn delete_options(body: &Content, format: Format) -> Result<Value, Status> {
    let prefix = "couldn't get version/kind; json parse error: ";
    let (value, _) = parse(body, format).map_err(|why| Status::bad_request(format!("{prefix}{why}")))?;
    says_what_it_is(&value).map_err(|why| Status::bad_request(why.to_string()))?;
    let (kind, version) = (api::object::text(&value, "kind"), api::object::text(&value, "apiVersion"));
    if !matches!(kind, "" | "DeleteOptions") {
        let version = if version.is_empty() { "meta.k8s.io/v1" } else { version };
        return Err(Status::bad_request(not_registered(kind, version)));
    }
    Ok(value)
}
