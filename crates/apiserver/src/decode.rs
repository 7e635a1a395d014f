//! Request bodies: JSON and YAML to values, with Go's strictness and words.

mod content;
mod json;
mod patch;
#[cfg(test)]
mod tests;
mod yaml;

use crate::protobuf::ProtobufError;
use crate::query::FieldValidation;
use crate::registry::Served;
pub use content::Content;
pub(crate) use json::Place;
pub use json::json;
use json::{in_place, whole_numbers};
use merge::apply::Versions as _;
use merge::order::Ordered;
pub use patch::{delete_options, patch, prune};
use resource::status::Status;
use serde_json::Value;
use std::collections::BTreeSet;
pub use yaml::yaml;

/// The type of a Scale in the table of built-in types.
pub const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// A body's encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
}

/// Why a body is neither JSON nor YAML, in the words of Go's parsers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

/// Why an object is refused that is not exactly one of its kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("strict decoding error: {}", .0.join(", "))]
pub struct StrictError(Vec<String>);

/// Why a body does not say what it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go {wanted}")]
pub(crate) struct UntypedError {
    found: &'static str,
    wanted: String,
}

/// Parses a body of either format.
///
/// # Errors
/// As the two parsers.
fn parse(body: &Content, format: Format) -> Result<(Value, Vec<String>), ParseError> {
    match format {
        Format::Json => body.json(),
        Format::Yaml => body.yaml(),
    }
}

/// The start of a body, as error messages quote it: what looks like an object as text, all else in hexadecimal digits.
fn excerpt(bytes: &[u8]) -> String {
    const MAX: usize = 30;
    let more = if bytes.len() > MAX { " ..." } else { "" };
    let start = &bytes[..bytes.len().min(MAX)];
    match bytes.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => start.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + more,
    }
}

/// An object in protobuf.
///
/// # Errors
/// 400 in upstream's words.
pub fn protobuf(served: &Served, bytes: &[u8]) -> Result<Value, Status> {
    crate::protobuf::decode(bytes).map_err(|error| match error {
        ProtobufError::NoPrefix => unrecognized(&served.resource.kind, &error.to_string(), bytes),
        _ => Status::bad_request(error.to_string()),
    })
}

/// Refuses a body that does not say what it is.
pub(crate) fn unrecognized(kind: &str, why: &str, bytes: &[u8]) -> Status {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({})",
        excerpt(bytes)
    ))
}

/// The body of a create or update: an object of the served kind, pruned; with warnings for the client.
///
/// # Errors
/// 400 in upstream's words.
pub fn object(
    served: &Served,
    body: &Content,
    format: Format,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), Status> {
    let kind = &served.resource.kind;
    let (mut value, repeated) = recognized(kind, body, format)?;
    if value.is_null() && served.custom.is_none() {
        value = serde_json::json!({});
    }
    expect_kind(&Expected::of(served), &mut value, body)
        .map_err(|refused| of_another_version(served, &mut value.clone(), refused, validation))?;
    // on its way to JSON, YAML loses the fractions of whole numbers
    if served.custom.is_some() && format == Format::Yaml {
        whole_numbers(&mut value);
    }
    let given = api::object::text(&value, "kind").to_owned();
    let cannot = |wanted: &str, why: String| {
        let version = &served.resource.version;
        Status::bad_request(format!("{given} in version \"{version}\" cannot be handled as a {wanted}: {why}"))
    };
    if let Err(why) = served.decode(&mut value) {
        // which of several faults is reported depends on the order of the text, which is looked at only then
        let read_again = |name: &str| {
            let (mut value, _) = recognized(kind, body, format).ok()?;
            expect_kind(&Expected::of(served), &mut value, body).ok()?;
            let order = merge::builtin::Order::of(body.text())?;
            merge::builtin::decode_in(name, &mut value, Some(&order)).err()
        };
        let told = served.resource.type_name.filter(|_| format == Format::Json).and_then(read_again);
        return Err(cannot(kind, told.map_or_else(|| why.to_string(), |why| why.to_string())));
    }
    let dropped = served.prune(&mut value);
    let mut texts: Vec<String> = match format {
        // a built-in kind is read field by field, and each fault is reported where it stands; a custom one is read, then pruned
        Format::Json if served.custom.is_none() && !(repeated.is_empty() && dropped.is_empty()) => {
            in_place(body.text(), &repeated, &dropped)
        }
        Format::Json => {
            let twice = repeated.iter().map(|path| format!("duplicate field \"{path}\""));
            twice.chain(dropped.iter().map(|path| format!("unknown field \"{path}\""))).collect()
        }
        Format::Yaml => {
            let bare = |text: &String| text.trim_start_matches("yaml: unmarshal errors:\n  ").to_owned();
            let bare: Vec<String> = repeated.iter().map(bare).collect();
            let twice = match validation {
                _ if bare.is_empty() => bare,
                FieldValidation::Warn => bare,
                FieldValidation::Strict | FieldValidation::Ignore => {
                    vec![format!("yaml: unmarshal errors:\n  {}", bare.join("\n  "))]
                }
            };
            twice.into_iter().chain(dropped.iter().map(|path| format!("unknown field \"{path}\""))).collect()
        }
    };
    if format == Format::Json {
        let mut told = BTreeSet::new();
        texts.retain(|text| told.insert(text.clone()));
    }
    // one that was read is named by what it is
    let wanted = if served.custom.is_some() { given.as_str() } else { kind };
    let mut warnings = judge(validation, texts).map_err(|why| cannot(wanted, why.to_string()))?;
    warnings.extend(repeated_owners(&mut value, ""));
    Ok((value, warnings))
}

/// A custom resource is read as what it says it is, by the schema of that version, before it is refused for not being of the
/// path's version.
fn of_another_version(served: &Served, value: &mut Value, refused: Status, validation: FieldValidation) -> Status {
    let text = |field: &str| api::object::text(value, field).to_owned();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    if kind.is_empty() {
        return refused;
    }
    let Some(schema) = served.schema_in(&api_version) else { return refused };
    let unknown = schema.prune(value).iter().map(|path| format!("unknown field \"{path}\"")).collect();
    match judge(validation, unknown) {
        Ok(warnings) => refused.with_warnings(&warnings),
        Err(why) => {
            let (version, wanted) = (api_version.rsplit('/').next().unwrap_or_default(), &served.resource.kind);
            Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {wanted}: {why}"))
        }
    }
}

/// Parses a body that is to be an object of `kind`.
fn recognized(kind: &str, body: &Content, format: Format) -> Result<(Value, Vec<String>), Status> {
    parse(body, format).map_err(|why| {
        let prefix = if format == Format::Json { "couldn't get version/kind; json parse error: " } else { "" };
        unrecognized(kind, &format!("{prefix}{why}"), body.text())
    })
}

/// The body of an update of a scale.
///
/// # Errors
/// 400 in upstream's words.
pub fn scale(body: &Content, format: Format) -> Result<Value, Status> {
    let (value, _) = recognized("Scale", body, format)?;
    scale_of(value, body)
}

/// As [`scale`], of a body that was read: `value` is what it says.
///
/// # Errors
/// 400 in upstream's words.
pub fn scale_of(mut value: Value, body: &Content) -> Result<Value, Status> {
    if value.is_null() {
        value = serde_json::json!({});
    }
    let expected =
        Expected { group: "autoscaling", api_version: "autoscaling/v1".into(), kind: "Scale", custom: false };
    expect_kind(&expected, &mut value, body)?;
    merge::builtin::decode(SCALE, &mut value)
        .map_err(|why| Status::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: {why}")))?;
    Ok(value)
}

/// Takes from a scale what a Scale does not know, and says what that was.
///
/// # Errors
/// Upstream's words, under `Strict`.
pub fn unknown_of_scale(scale: &mut Value, validation: FieldValidation) -> Result<Vec<String>, StrictError> {
    let dropped = merge::builtin::schema(SCALE).prune(scale);
    judge(validation, dropped.iter().map(|path| format!("unknown field \"{path}\"")).collect())
}

/// Keeps one of the owner references that are the same, and says that it does. `when`: what upstream says of the moment at which
/// it looks.
fn repeated_owners(value: &mut Value, when: &str) -> Option<String> {
    let owners = value.pointer_mut("/metadata/ownerReferences")?.as_array_mut()?;
    let mut seen = BTreeSet::new();
    let firsts: Vec<bool> = owners.iter().map(|owner| seen.insert(Ordered(owner))).collect();
    if firsts.iter().all(|first| *first) {
        return None;
    }
    let mut told = BTreeSet::new();
    let mut repeated = Vec::new();
    let mut kept = Vec::with_capacity(owners.len());
    for (owner, first) in std::mem::take(owners).into_iter().zip(firsts) {
        let uid = api::object::text(&owner, "uid");
        if first {
            kept.push(owner);
        } else if told.insert(uid.to_owned()) {
            repeated.push(uid.to_owned());
        }
    }
    *owners = kept;
    Some(format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may \
             reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        repeated.join(", ")
    ))
}

/// Takes from a body for a subresource what its type does not know, and says what that was.
///
/// # Errors
/// 400 in upstream's words, under `Strict`.
pub fn subresource(
    served: &Served,
    name: &str,
    body: &mut Value,
    sent: &Content,
    validation: FieldValidation,
) -> Result<Vec<String>, Status> {
    let Some(sub) = served.subresource(name) else { return Ok(Vec::new()) };
    let (Some(type_name), true) = (merge::builtin::type_name(&sub.group, &sub.kind), body.is_object()) else {
        return Ok(Vec::new());
    };
    let (kind, version) = (&sub.kind, sub.version.as_str());
    let refused = |why: String| {
        Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    };
    let given = api::object::text(body, "kind");
    // other versions of the type are read as this one
    if !given.is_empty() && given != *kind {
        let api_version = if sub.group.is_empty() { version.to_owned() } else { format!("{}/{version}", sub.group) };
        let expected = Expected { group: &sub.group, api_version, kind, custom: false };
        expect_kind(&expected, body, sent)?;
    }
    merge::builtin::decode(type_name, &mut body.clone()).map_err(|why| refused(why.to_string()))?;
    let dropped = merge::builtin::schema(type_name).prune(body);
    let unknown = dropped.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    judge(validation, unknown).map_err(|why| refused(why.to_string()))
}

/// Faults as warnings, or as one error under `Strict`.
pub fn judge(validation: FieldValidation, texts: Vec<String>) -> Result<Vec<String>, StrictError> {
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict if !texts.is_empty() => Err(StrictError(texts)),
        FieldValidation::Warn | FieldValidation::Strict => Ok(texts),
    }
}

/// Reads version and kind as upstream does before it knows what the body is.
fn says_what_it_is(value: &Value) -> Result<(), UntypedError> {
    let Some(map) = value.as_object() else {
        let wanted = "value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
        return Err(UntypedError { found: go_type(value), wanted: wanted.to_owned() });
    };
    for field in ["apiVersion", "kind"] {
        if let Some(other) = map.get(field)
            && !other.is_string()
            && !other.is_null()
        {
            return Err(UntypedError {
                found: go_type(other),
                wanted: format!("struct field .{field} of type string"),
            });
        }
    }
    Ok(())
}

/// What a body is to be an object of.
struct Expected<'a> {
    group: &'a str,
    api_version: String,
    kind: &'a str,
    custom: bool,
}

impl<'a> Expected<'a> {
    fn of(served: &'a Served) -> Self {
        let resource = &served.resource;
        let custom = served.custom.is_some();
        Self { group: &resource.group, api_version: served.api_version(), kind: &resource.kind, custom }
    }
}

/// The body's kind is the endpoint's, or left out for a built-in.
fn expect_kind(expected: &Expected<'_>, value: &mut Value, body: &Content) -> Result<(), Status> {
    let Expected { group, api_version: version, kind, custom } = expected;
    if *custom && value.is_null() {
        let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(body.text()));
        return Err(unrecognized(kind, &why, body.text()));
    }
    if let Err(why) = says_what_it_is(value) {
        return Err(unrecognized(kind, &why.to_string(), body.text()));
    }
    let Some(map) = value.as_object_mut() else { return Ok(()) };
    let text = |field: &str| map.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (given_kind, mut given_version) = (text("kind"), text("apiVersion"));
    if !custom && given_version.is_empty() {
        given_version.clone_from(version);
    }
    if *custom && given_kind.is_empty() {
        let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(body.text()));
        return Err(unrecognized(kind, &why, body.text()));
    }
    if *custom && given_version == *version {
        // Whether the kind is right is a matter of validation.
        return Ok(());
    }
    if (!given_kind.is_empty() && given_kind != *kind) || given_version != *version {
        let short = given_version.rsplit('/').next().unwrap_or_default();
        if !custom && OF_EVERY_GROUP.contains(&given_kind.as_str()) {
            return Err(Status::bad_request(format!(
                "{given_kind} in version \"{short}\" cannot be handled as a {kind}: converting (v1.{given_kind}) to ({}.{kind}): unknown conversion",
                go_package(group)
            )));
        }
        if !custom && !merge::builtin::is_registered(group, &given_version, &given_kind) {
            return Err(Status::bad_request(format!(
                "{given_kind} in version \"{}\" cannot be handled as a {kind}: {}",
                short,
                not_registered(&given_kind, &given_version)
            )));
        }
        if !given_kind.is_empty() && given_kind == *kind || *custom {
            return Err(Status::bad_request(format!(
                "the API version in the data ({given_version}) does not match the expected API version ({version})"
            )));
        }
        let order = merge::builtin::Order::of(body.text());
        let read = Value::Object(map.clone());
        let why = of_another_kind(read, &given_version, &given_kind, order.as_ref(), (group, kind));
        return Err(Status::bad_request(format!(
            "{given_kind} in version \"{short}\" cannot be handled as a {kind}: {why}"
        )));
    }
    map.insert("apiVersion".to_owned(), version.clone().into());
    map.insert("kind".to_owned(), (*kind).into());
    Ok(())
}

/// Kinds of answers, which upstream's registry knows in every group and version.
const OF_EVERY_GROUP: [&str; 5] = ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"];

/// The complaint of upstream's registry of types.
pub(crate) fn not_registered(kind: &str, version: &str) -> String {
    format!("no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\"")
}

/// Why an object that says that it is of another kind, which is registered, cannot be one of `wanted` (group and kind): it is read as what
/// it says it is, then turned into what it is to be, and upstream shows the Go types between which it finds no way.
pub(crate) fn of_another_kind(
    mut object: Value,
    api_version: &str,
    kind: &str,
    order: Option<&merge::builtin::Order>,
    wanted: (&str, &str),
) -> String {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let read = merge::builtin::type_name(group, kind).map(|name| merge::builtin::decode_in(name, &mut object, order));
    match read {
        Some(Err(why)) => why.to_string(),
        Some(Ok(())) | None => {
            format!("converting ({version}.{kind}) to ({}.{}): unknown conversion", go_package(wanted.0), wanted.1)
        }
    }
}

/// The Go package of a group's internal types.
fn go_package(group: &str) -> &str {
    match group {
        "" | "events.k8s.io" => "core",
        group => group.split('.').next().unwrap_or_default(),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
