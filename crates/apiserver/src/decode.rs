//! Request bodies: JSON and YAML to values, with Go's strictness and words.

use crate::query::FieldValidation;
use crate::registry::{PatchKind, Served};
use crate::status::Status;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::RefCell;
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
    let seed = Seed { place: &Place::Root, repeated: &repeated };
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

/// Where in a body the decoder is. Spelt out only where a field is given twice, which is almost never.
enum Place<'a> {
    Root,
    Field(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl Place<'_> {
    fn path(&self) -> String {
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
            match seq.next_element_seed(Seed { place: &place, repeated: self.repeated })? {
                Some(value) => out.push(value),
                None => return Ok(Value::Array(out)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let place = Place::Field(self.place, &key);
            let value = map.next_value_seed(Seed { place: &place, repeated: self.repeated })?;
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

/// The start of a body, as error messages quote it.
fn excerpt(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "<empty>".to_owned();
    }
    String::from_utf8_lossy(&bytes[..bytes.len().min(1024)]).into_owned()
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
        if served.custom.is_some() {
            Status::bad_request(format!("{prefix}{why}"))
        } else {
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): {prefix}{why} ({})",
                excerpt(bytes)
            ))
        }
    })?;
    if value.is_null() && served.custom.is_none() {
        value = serde_json::json!({});
    }
    expect_kind(served, &mut value)?;
    if served.custom.is_some() {
        whole_numbers(&mut value);
    }
    let cannot = |why: String| {
        let version = &served.resource.version;
        Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    };
    served.decode(&mut value).map_err(cannot)?;
    let mut texts: Vec<String> = match format {
        Format::Json => repeated.iter().map(|path| format!("duplicate field \"{path}\"")).collect(),
        Format::Yaml => repeated,
    };
    let dropped = served.schema().prune(&mut value);
    texts.extend(dropped.iter().map(|path| format!("unknown field \"{path}\"")));
    let mut warnings = judge(validation, texts).map_err(cannot)?;
    warnings.extend(repeated_owners(&mut value));
    Ok((value, warnings))
}

/// Keeps one of the owner references that are the same, and says that it does.
fn repeated_owners(value: &mut Value) -> Option<String> {
    let owners = value.pointer_mut("/metadata/ownerReferences")?.as_array_mut()?;
    let (mut kept, mut repeated) = (Vec::new(), Vec::new());
    for owner in std::mem::take(owners) {
        if kept.contains(&owner) {
            let uid = api::object::text(&owner, "uid").to_owned();
            if !repeated.contains(&uid) {
                repeated.push(uid);
            }
        } else {
            kept.push(owner);
        }
    }
    *owners = kept;
    (!repeated.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may \
             reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            repeated.join(", ")
        )
    })
}

/// Faults as warnings, or as one error under `Strict`.
fn judge(validation: FieldValidation, texts: Vec<String>) -> Result<Vec<String>, String> {
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict if !texts.is_empty() => Err(format!("strict decoding error: {}", texts.join(", "))),
        FieldValidation::Warn | FieldValidation::Strict => Ok(texts),
    }
}

/// Prunes a patched object and says what was dropped, and what was there twice.
///
/// # Errors
/// What was dropped, under `Strict`.
pub fn prune(served: &Served, value: &mut Value, validation: FieldValidation) -> Result<Vec<String>, String> {
    let dropped = served.schema().prune(value);
    let mut warnings = judge(validation, dropped.iter().map(|path| format!("unknown field \"{path}\"")).collect())?;
    warnings.extend(repeated_owners(value));
    Ok(warnings)
}

/// The body's kind is the endpoint's, or left out for a built-in.
fn expect_kind(served: &Served, value: &mut Value) -> Result<(), Status> {
    let resource = &served.resource;
    let (kind, version) = (&resource.kind, served.api_version());
    let Some(map) = value.as_object_mut() else {
        return Err(Status::bad_request(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            go_type(value)
        )));
    };
    for field in ["apiVersion", "kind"] {
        if let Some(other) = map.get(field)
            && !other.is_string()
            && !other.is_null()
        {
            let go = if field == "kind" { "kind" } else { "apiVersion" };
            return Err(Status::bad_request(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{go} of type string",
                go_type(other)
            )));
        }
    }
    let text = |field: &str| map.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (given_kind, given_version) = (text("kind"), text("apiVersion"));
    if served.custom.is_some() && given_kind.is_empty() {
        return Err(Status::bad_request(format!("Object 'Kind' is missing in '{}'", Value::Object(map.clone()))));
    }
    if served.custom.is_some() && given_version == version {
        // Whether the kind is right is a matter of validation.
        return Ok(());
    }
    if (!given_kind.is_empty() && given_kind != *kind) || (!given_version.is_empty() && given_version != version) {
        let short = given_version.rsplit('/').next().unwrap_or_default();
        if served.custom.is_none() && merge::builtin::lacks(&given_version, &given_kind) {
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

fn complaints(
    served: &Served,
    validation: FieldValidation,
    what: &str,
    paths: &[String],
) -> Result<Vec<String>, Status> {
    if paths.is_empty() || validation == FieldValidation::Ignore {
        return Ok(Vec::new());
    }
    let texts: Vec<String> = paths.iter().map(|path| format!("{what} \"{path}\"")).collect();
    if validation == FieldValidation::Warn {
        return Ok(texts);
    }
    let (kind, version) = (&served.resource.kind, &served.resource.version);
    Err(Status::bad_request(format!(
        "{kind} in version \"{version}\" cannot be handled as a {kind}: strict decoding error: {}",
        texts.join(", ")
    )))
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
        if repeated.is_empty() && bytes.first() == Some(&b'{') {
            // JSON is YAML; its duplicates are found here.
            let repeated = json(bytes).map(|(_, repeated)| repeated).unwrap_or_default();
            complaints(served, validation, "duplicate field", &repeated)?;
        }
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
    let (value, repeated) = json(bytes).map_err(|why| Status::bad_request(format!("error decoding patch: {why}")))?;
    let object_wanted = matches!(kind, PatchKind::Merge | PatchKind::Strategic);
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
    let warnings = if kind == PatchKind::Json {
        Vec::new()
    } else {
        complaints(served, validation, "duplicate field", &repeated)?
    };
    Ok((value, warnings))
}

/// The body of a DELETE.
///
/// # Errors
/// 400 in upstream's words.
pub fn delete_options(bytes: &[u8], format: Format) -> Result<Value, Status> {
    let prefix = "couldn't get version/kind; json parse error: ";
    let (value, _) = parse(bytes, format).map_err(|why| Status::bad_request(format!("{prefix}{why}")))?;
    if !value.is_object() {
        return Err(Status::bad_request(format!(
            "{prefix}json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            go_type(&value)
        )));
    }
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
