//! Request bodies: JSON and YAML to values, with Go's strictness and words.

use crate::query::FieldValidation;
use crate::registry::{PatchKind, Served};
use merge::order::Ordered;
use resource::status::Status;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;

/// Deepest YAML document: its parser takes 20 KiB of stack for a level in a debug build. JSON may be deeper.
const YAML_DEPTH_MAX: usize = 64;
/// Most values of a YAML document, those that aliases repeat included.
const YAML_NODES_MAX: usize = 1_000_000;
/// Most bytes of text in a YAML document, those that aliases repeat included: as many as a body may have.
const YAML_SCALARS_MAX: usize = 3 << 20;

/// A body's encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
}

/// Parses JSON and returns the paths of fields given more than once (the last one counts, as in Go).
///
/// # Errors
/// What Go's decoder would say.
pub fn json(bytes: &[u8]) -> Result<(Value, Vec<String>), String> {
    let repeated = RefCell::new(Vec::new());
    let mut decoder = serde_json::Deserializer::from_slice(bytes);
    let seed = Seed { place: &Place::Root, repeated: &repeated, seen: None };
    let value = seed.deserialize(&mut decoder).map_err(|error| go_error(&error, bytes))?;
    decoder.end().map_err(|error| go_error(&error, bytes))?;
    Ok((value, repeated.into_inner()))
}

/// serde's complaint in Go's words, where the fault is one that Go names.
fn go_error(error: &serde_json::Error, bytes: &[u8]) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let line_start =
        bytes.split_inclusive(|b| *b == b'\n').take(error.line().saturating_sub(1)).map(<[u8]>::len).sum::<usize>();
    let at = line_start + error.column().saturating_sub(1);
    let message = error.to_string();
    // Go takes the byte for the character.
    match bytes.get(at).copied().map(char::from) {
        Some(c) if message.starts_with("trailing characters") => {
            format!("invalid character '{c}' after top-level value")
        }
        Some(c) if message.starts_with("expected value") => {
            format!("invalid character '{c}' looking for beginning of value")
        }
        Some(c) if message.starts_with("key must be a string") => {
            format!("invalid character '{c}' looking for beginning of object key string")
        }
        Some(c) if message.starts_with("expected `:`") => format!("invalid character '{c}' after object key"),
        Some(c) if message.starts_with("expected `,` or `}`") => {
            format!("invalid character '{c}' after object key:value pair")
        }
        Some(c) if message.starts_with("expected `,` or `]`") => format!("invalid character '{c}' after array element"),
        // Go gives up at 10,000 levels, serde_json at 128.
        Some(_) if message.starts_with("recursion limit exceeded") => {
            let c = char::from(bytes.get(at).copied().unwrap_or(b'{'));
            format!("invalid character '{c}' exceeded max depth")
        }
        Some(c) if message.starts_with("invalid number") => {
            let after = at.checked_sub(1).and_then(|before| bytes.get(before));
            match after {
                Some(b'-') => format!("invalid character '{c}' in numeric literal"),
                Some(b'.') => format!("invalid character '{c}' after decimal point in numeric literal"),
                Some(b'e' | b'E' | b'+') => format!("invalid character '{c}' in exponent of numeric literal"),
                _ => message,
            }
        }
        Some(_) if message.starts_with("expected ident") => {
            let word = bytes[..=at.min(bytes.len() - 1)].iter().rposition(|b| matches!(b, b't' | b'f' | b'n'));
            let literal = match word.map(|i| bytes[i]) {
                Some(b'f') => "false",
                Some(b'n') => "null",
                _ => "true",
            };
            let done = at - word.unwrap_or(at).min(at);
            let expected = literal.chars().nth(done).unwrap_or('e');
            let got = bytes.get(at).copied().map_or(' ', char::from);
            format!("invalid character '{got}' in literal {literal} (expecting '{expected}')")
        }
        _ => message,
    }
}

/// A place in a body or an object, spelt out only where it has to be named, which is almost never.
pub(crate) enum Place<'a> {
    Root,
    Field(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl Place<'_> {
    pub(crate) fn path(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Field(parent, name) => match parent.path() {
                path if path.is_empty() => (*name).to_owned(),
                path => format!("{path}.{name}"),
            },
            Self::Item(parent, index) => format!("{}[{index}]", parent.path()),
        }
    }
}

#[derive(Clone)]
struct Seed<'a> {
    place: &'a Place<'a>,
    repeated: &'a RefCell<Vec<String>>,
    /// The paths of all fields, in their order, where somebody wants to know.
    seen: Option<&'a RefCell<Vec<String>>>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Number::from_f64(v).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        loop {
            let place = Place::Item(self.place, out.len());
            match seq.next_element_seed(Seed { place: &place, ..self.clone() })? {
                Some(value) => out.push(value),
                None => return Ok(Value::Array(out)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let place = Place::Field(self.place, &key);
            if let Some(seen) = self.seen {
                seen.borrow_mut().push(place.path());
            }
            let value = map.next_value_seed(Seed { place: &place, ..self.clone() })?;
            if out.contains_key(&key) {
                self.repeated.borrow_mut().push(place.path());
            }
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

/// Turns fractions that are whole (`2.0`) into integers, as the decoder of custom resources does.
fn whole_numbers(value: &mut Value) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(float) = number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < EXACT) {
                // Within 2^53: exact.
                #[expect(clippy::cast_possible_truncation)]
                let whole = float as i64;
                *number = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// Parses the first document of a YAML text.
///
/// # Errors
/// The parser's words.
pub fn yaml(bytes: &[u8]) -> Result<(Value, Vec<String>), String> {
    if let Some(value) = plain_json(bytes) {
        return Ok((value, Vec::new()));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| format!("yaml: {error}"))?;
    let first = text.split("\n---").next().unwrap_or_default();
    // Aliases may make as much of a text as a body may hold, no more.
    let budget = || {
        serde_saphyr::budget! {
            max_depth: YAML_DEPTH_MAX,
            max_nodes: YAML_NODES_MAX,
            max_events: 3 * YAML_NODES_MAX,
            max_total_scalar_bytes: YAML_SCALARS_MAX,
        }
    };
    let options = serde_saphyr::options! {
        budget: budget(),
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
    };
    let value: Value = serde_saphyr::from_str_with_options(first, options).map_err(|error| format!("yaml: {error}"))?;
    // The parser stops at the first key that is there twice, if it is told to.
    let options = serde_saphyr::options! { budget: budget() };
    let repeated = match serde_saphyr::from_str_with_options::<serde::de::IgnoredAny>(first, options) {
        Ok(_) => Vec::new(),
        Err(error) => repeated_key(&error.to_string()).into_iter().collect(),
    };
    Ok((value, repeated))
}

/// The value of a YAML text that is JSON, as what programs apply is: many times faster to read. `None` where the YAML parser
/// must look, since it might see it otherwise or say something: faults, repeated keys, and numbers with fractions.
fn plain_json(bytes: &[u8]) -> Option<Value> {
    fn has_fractions(value: &Value) -> bool {
        match value {
            Value::Number(number) => number.is_f64(),
            Value::Array(items) => items.iter().any(has_fractions),
            Value::Object(members) => members.values().any(has_fractions),
            Value::Null | Value::Bool(_) | Value::String(_) => false,
        }
    }
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    let (value, repeated) = json(bytes).ok()?;
    (repeated.is_empty() && !has_fractions(&value)).then_some(value)
}

/// Go's complaint about a repeated key, from the parser's (`… line 7 column 3: duplicate mapping key: k, …`).
fn repeated_key(message: &str) -> Option<String> {
    let (before, after) = message.split_once("duplicate mapping key: ")?;
    let line = before.split("line ").nth(1)?.split(' ').next()?;
    let key = after.split([',', '\n']).next()?.trim();
    Some(format!("yaml: unmarshal errors:\n  line {line}: key \"{key}\" already set in map"))
}

/// Parses a body of either format.
///
/// # Errors
/// As the two parsers.
pub fn parse(bytes: &[u8], format: Format) -> Result<(Value, Vec<String>), String> {
    match format {
        Format::Json => json(bytes),
        Format::Yaml => yaml(bytes),
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
    crate::protobuf::decode(bytes).map_err(|why| match why.starts_with("provided data does not appear") {
        true => unrecognized(served, &why, bytes),
        false => Status::bad_request(why),
    })
}

/// Refuses a body that does not say what it is.
fn unrecognized(served: &Served, why: &str, bytes: &[u8]) -> Status {
    let kind = &served.resource.kind;
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
    bytes: &[u8],
    format: Format,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), Status> {
    let kind = &served.resource.kind;
    let (mut value, repeated) = parse(bytes, format).map_err(|why| {
        let prefix = if format == Format::Json { "couldn't get version/kind; json parse error: " } else { "" };
        unrecognized(served, &format!("{prefix}{why}"), bytes)
    })?;
    if value.is_null() && served.custom.is_none() {
        value = serde_json::json!({});
    }
    expect_kind(served, &mut value, bytes)?;
    if served.custom.is_some() {
        whole_numbers(&mut value);
    }
    let cannot = |why: String| {
        let version = &served.resource.version;
        Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    };
    let untouched = (format == Format::Json).then(|| value.clone());
    if let Err(why) = served.decode(&mut value) {
        // which of several faults is told depends on the order of the text, which is looked at only then
        let told = untouched.zip(served.resource.type_name).and_then(|(mut value, name)| {
            let order = merge::builtin::Order::of(bytes)?;
            merge::builtin::decode_in(name, &mut value, Some(&order)).err()
        });
        return Err(cannot(told.unwrap_or(why)));
    }
    let dropped = served.prune(&mut value);
    let texts = match format {
        // a built-in kind is read field by field, and each fault is told where it stands; a custom one is read, then pruned
        Format::Json if served.custom.is_none() && !(repeated.is_empty() && dropped.is_empty()) => {
            in_place(bytes, &repeated, &dropped)
        }
        Format::Json => {
            let twice = repeated.iter().map(|path| format!("duplicate field \"{path}\""));
            twice.chain(dropped.iter().map(|path| format!("unknown field \"{path}\""))).collect()
        }
        Format::Yaml => {
            let bare = |text: &String| text.trim_start_matches("yaml: unmarshal errors:\n  ").to_owned();
            let twice = match validation {
                FieldValidation::Warn => repeated.iter().map(bare).collect(),
                FieldValidation::Strict | FieldValidation::Ignore => repeated,
            };
            twice.into_iter().chain(dropped.iter().map(|path| format!("unknown field \"{path}\""))).collect()
        }
    };
    let mut warnings = judge(validation, texts).map_err(cannot)?;
    warnings.extend(repeated_owners(&mut value));
    Ok((value, warnings))
}

/// What is wrong with the fields of a body, in its order: a field that nobody knows is not looked at twice.
fn in_place(bytes: &[u8], repeated: &[String], dropped: &[String]) -> Vec<String> {
    let repeated_again = RefCell::new(Vec::new());
    let seen = RefCell::new(Vec::new());
    let seed = Seed { place: &Place::Root, repeated: &repeated_again, seen: Some(&seen) };
    // the text has been read before
    let _ = seed.deserialize(&mut serde_json::Deserializer::from_slice(bytes));
    let seen = seen.into_inner();
    // a body may have a hundred thousand fields that nobody knows
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, path) in seen.iter().enumerate() {
        places.entry(path).or_default().push(at);
    }
    let place = |path: &str, nth: usize| places.get(path).and_then(|at| at.get(nth)).copied().unwrap_or(seen.len());
    let unknown: HashSet<&str> = dropped.iter().map(String::as_str).collect();
    let lengths: BTreeSet<usize> = unknown.iter().map(|path| path.len()).collect();
    let under = |path: &str| {
        let is_end = |at: usize| path.get(at..).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
        lengths.range(..=path.len()).any(|&at| is_end(at) && unknown.contains(&path[..at]))
    };
    let twice =
        repeated.iter().filter(|path| !under(path)).map(|path| (place(path, 1), format!("duplicate field \"{path}\"")));
    let unknown = dropped.iter().map(|path| (place(path, 0), format!("unknown field \"{path}\"")));
    let mut all: Vec<(usize, String)> = twice.chain(unknown).collect();
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, text)| text).collect()
}

/// Keeps one of the owner references that are the same, and says that it does.
fn repeated_owners(value: &mut Value) -> Option<String> {
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
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may \
             reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        repeated.join(", ")
    ))
}

/// Faults as warnings, or as one error under `Strict`.
fn judge(validation: FieldValidation, texts: Vec<String>) -> Result<Vec<String>, String> {
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict if !texts.is_empty() => Err(format!("strict decoding error: {}", texts.join(", "))),
        FieldValidation::Warn | FieldValidation::Strict => Ok(texts),
    }
}

/// Prunes a patched object and says what was dropped, and what was there twice, after what was `found` in the patch itself.
///
/// # Errors
/// What was dropped, under `Strict`.
pub fn prune(
    served: &Served,
    value: &mut Value,
    found: &[String],
    validation: FieldValidation,
) -> Result<Vec<String>, String> {
    let dropped = served.prune(value);
    let unknown = dropped.iter().map(|path| format!("unknown field \"{path}\""));
    let mut warnings = judge(validation, found.iter().cloned().chain(unknown).collect())?;
    warnings.extend(repeated_owners(value));
    Ok(warnings)
}

/// Reads version and kind as upstream does before it knows what the body is.
fn says_what_it_is(value: &Value) -> Result<(), String> {
    let prefix = "couldn't get version/kind; json parse error: json: cannot unmarshal";
    let Some(map) = value.as_object() else {
        return Err(format!(
            "{prefix} {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            go_type(value)
        ));
    };
    for field in ["apiVersion", "kind"] {
        if let Some(other) = map.get(field)
            && !other.is_string()
            && !other.is_null()
        {
            return Err(format!("{prefix} {} into Go struct field .{field} of type string", go_type(other)));
        }
    }
    Ok(())
}

/// The body's kind is the endpoint's, or left out for a built-in.
fn expect_kind(served: &Served, value: &mut Value, bytes: &[u8]) -> Result<(), Status> {
    let resource = &served.resource;
    let (kind, version) = (&resource.kind, served.api_version());
    if let Err(why) = says_what_it_is(value) {
        return Err(unrecognized(served, &why, bytes));
    }
    let Some(map) = value.as_object_mut() else { return Ok(()) };
    let text = |field: &str| map.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (given_kind, given_version) = (text("kind"), text("apiVersion"));
    if served.custom.is_some() && given_kind.is_empty() {
        let why = format!("Object 'Kind' is missing in '{}'", Value::Object(map.clone()));
        return Err(unrecognized(served, &why, bytes));
    }
    if served.custom.is_some() && given_version == version {
        // Whether the kind is right is a matter of validation.
        return Ok(());
    }
    if (!given_kind.is_empty() && given_kind != *kind) || (!given_version.is_empty() && given_version != version) {
        let short = given_version.rsplit('/').next().unwrap_or_default();
        if served.custom.is_none()
            && (merge::builtin::lacks(&given_version, &given_kind) || !merge::builtin::knows(&given_version))
        {
            return Err(Status::bad_request(format!(
                "{given_kind} in version \"{}\" cannot be handled as a {kind}: {}",
                short,
                not_registered(&given_kind, &given_version)
            )));
        }
        if !given_kind.is_empty() && given_kind == *kind || served.custom.is_some() {
            return Err(Status::bad_request(format!(
                "the API version in the data ({given_version}) does not match the expected API version ({version})"
            )));
        }
        return Err(Status::bad_request(format!(
            "{given_kind} in version \"{short}\" cannot be handled as a {kind}: converting ({short}.{given_kind}) to ({}.{kind}): unknown conversion",
            go_package(&resource.group)
        )));
    }
    map.insert("apiVersion".to_owned(), version.into());
    map.insert("kind".to_owned(), kind.clone().into());
    Ok(())
}

/// The complaint of upstream's registry of types.
pub(crate) fn not_registered(kind: &str, version: &str) -> String {
    format!("no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\"")
}

/// The Go package of a group's internal types.
fn go_package(group: &str) -> &str {
    if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() }
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

/// The body of a patch.
///
/// # Errors
/// 400 in upstream's words.
pub fn patch(
    served: &Served,
    bytes: &[u8],
    kind: PatchKind,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), Status> {
    if kind == PatchKind::Apply {
        let (mut value, repeated) =
            yaml(bytes).map_err(|why| Status::bad_request(format!("error decoding YAML: {why}")))?;
        let (kind, version) = (&served.resource.kind, served.api_version());
        let text = |field: &str| api::object::text(&value, field).to_owned();
        let (given_version, given_kind) = (text("apiVersion"), text("kind"));
        if !value.is_object() {
            return Err(Status::bad_request("error decoding YAML: the patch is no object"));
        }
        if given_version.is_empty() || given_kind.is_empty() {
            let (group, version) = given_version.split_once('/').unwrap_or(("", &given_version));
            return Err(Status::bad_request(format!("invalid object type: {group}/{version}, Kind={given_kind}")));
        }
        if given_kind != *kind || given_version != version {
            return Err(Status::bad_request(format!(
                "incorrect type of patch: expected {version}, Kind={kind}, got {given_version}, Kind={given_kind}"
            )));
        }
        if served.custom.is_some() {
            whole_numbers(&mut value);
        }
        // Fields that the schema does not know are an error of the apply itself.
        let repeated = repeated.iter().map(|text| text.trim_start_matches("yaml: unmarshal errors:\n  ").to_owned());
        return Ok((value, if validation == FieldValidation::Ignore { Vec::new() } else { repeated.collect() }));
    }
    let (value, repeated) = json(bytes).map_err(|why| {
        // a strategic patch is read only once for all
        let prefix = if kind == PatchKind::Strategic { "" } else { "error decoding patch: " };
        Status::bad_request(format!("{prefix}{why}"))
    })?;
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
    if kind == PatchKind::Merge && validation == FieldValidation::Ignore && !value.is_object() {
        return Err(Status::bad_request("Invalid JSON Patch"));
    }
    if object_wanted && !value.is_object() {
        return Err(Status::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go_type(&value)
        )));
    }
    let mut value = value;
    if served.custom.is_some() {
        whole_numbers(&mut value);
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

/// The body of a DELETE.
///
/// # Errors
/// 400 in upstream's words.
pub fn delete_options(bytes: &[u8], format: Format) -> Result<Value, Status> {
    let prefix = "couldn't get version/kind; json parse error: ";
    let (value, _) = parse(bytes, format).map_err(|why| Status::bad_request(format!("{prefix}{why}")))?;
    says_what_it_is(&value).map_err(Status::bad_request)?;
    let (kind, version) = (api::object::text(&value, "kind"), api::object::text(&value, "apiVersion"));
    if !matches!(kind, "" | "DeleteOptions") {
        let version = if version.is_empty() { "meta.k8s.io/v1" } else { version };
        return Err(Status::bad_request(not_registered(kind, version)));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_fields_are_told_where_they_stand() {
        let texts = |body: &str, dropped: &[&str]| {
            let (_, repeated) = json(body.as_bytes()).unwrap();
            let dropped: Vec<String> = dropped.iter().map(|&path| path.to_owned()).collect();
            in_place(body.as_bytes(), &repeated, &dropped)
        };
        // the second of two is the one too many, and what is below an unknown field is not looked at
        let body = r#"{"z":{"y":1,"y":2},"a":1,"b":[{"c":1,"u":{"d":1,"d":2},"c":2}],"a":2,"zz":{"e":1,"e":1}}"#;
        assert_eq!(
            texts(body, &["b[0].u", "z"]),
            [
                r#"unknown field "z""#,
                r#"unknown field "b[0].u""#,
                r#"duplicate field "b[0].c""#,
                r#"duplicate field "a""#,
                r#"duplicate field "zz.e""#,
            ]
        );
        // whose cost grows with the body, and not with its square
        let many: Vec<String> = (0..100_000).map(|n| format!("f{n}")).collect();
        let body = format!("{{{}}}", many.iter().map(|name| format!("{name:?}:1")).collect::<Vec<_>>().join(","));
        let told = in_place(body.as_bytes(), &[], &many);
        assert_eq!((told.len(), told[99_999].as_str()), (100_000, r#"unknown field "f99999""#));
    }

    #[test]
    fn reads_json_as_go_does() {
        let (value, repeated) = json(br#"{"a":{"b":1,"b":2.0},"c":[{"d":1,"d":1}]}"#).unwrap();
        assert_eq!(value, serde_json::json!({"a": {"b": 2.0}, "c": [{"d": 1}]}));
        assert_eq!(repeated, ["a.b", "c[0].d"]);
        for (text, error) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("this", "invalid character 'h' in literal true (expecting 'r')"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("<", "invalid character '<' looking for beginning of value"),
        ] {
            assert_eq!(json(text.as_bytes()).unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn json_is_read_as_the_yaml_it_is() {
        let text = " {\"a\": {\"b\": [1, -2, true, null, \"x\\n\\u00e9 é: #\"], \"c\": {}}, \"d\": \"2001-01-01\", \"e\": []}\n";
        let quick = plain_json(text.as_bytes()).unwrap();
        assert_eq!(quick, serde_saphyr::from_str::<Value>(text).unwrap());
        // not JSON, or JSON of which YAML has something to say
        for text in ["a: 1", "{a: 1}", r#"{"a":1,"a":2}"#, r#"{"a":[{"b":1.5}]}"#, "{\"a\":1}\n---\n{}", "[1]", ""] {
            assert_eq!(plain_json(text.as_bytes()), None, "{text}");
        }
        let (value, repeated) = yaml(br#"{"a":1,"a":2}"#).unwrap();
        assert_eq!(value, serde_json::json!({"a": 2}));
        assert_eq!(repeated, ["yaml: unmarshal errors:\n  line 1: key \"a\" already set in map"]);
    }

    #[test]
    fn deep_bodies_are_refused_on_a_small_stack() {
        let small = std::thread::Builder::new().stack_size(2 << 20);
        let tried = small.spawn(|| {
            for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
                let nested = |levels: usize| open.repeat(levels) + "1" + &close.repeat(levels);
                assert!(json(nested(127).as_bytes()).is_ok());
                let error = json(nested(10_000).as_bytes()).unwrap_err();
                assert!(error.ends_with("exceeded max depth") && error.starts_with("invalid character '"), "{error}");
                let flow = nested(10_000).replace('"', "").replace(':', ": ");
                assert!(yaml(flow.as_bytes()).is_err());
            }
            let block: String = (0..5_000).map(|i| " ".repeat(i) + "a:\n").collect();
            assert!(yaml(block.as_bytes()).is_err());
            assert!(yaml("- ".repeat(5_000).as_bytes()).is_err());
        });
        tried.unwrap().join().unwrap();
    }

    #[test]
    fn aliases_do_not_multiply() {
        let laughs = (1..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, i| {
            format!("{text}a{i}: &a{i} [*a{0}, *a{0}, *a{0}, *a{0}]\n", i - 1)
        });
        assert!(yaml(laughs.as_bytes()).is_err());
        let echo = format!("a: &a \"{}\"\nl: [{}]\n", "x".repeat(1 << 20), ["*a"; 90].join(", "));
        match yaml(echo.as_bytes()) {
            Ok((value, _)) => assert!(merge::bounds::bytes(&value) <= 8 << 20, "{}", merge::bounds::bytes(&value)),
            Err(error) => assert!(error.starts_with("yaml: "), "{error}"),
        }
        let (value, _) = yaml(b"a: &a {x: 1}\nb: *a\n").unwrap();
        assert_eq!(value, serde_json::json!({"a": {"x": 1}, "b": {"x": 1}}));
    }
}
