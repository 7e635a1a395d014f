//! Checks a value against a shape and words the refusal as SkyPilot does.
//!
//! Shapes are JSON Schema (draft 7, json-schema.org/draft-07) and two keywords of SkyPilot's: `case_insensitive_enum`, and
//! `open_in_client`, which lets unknown keys pass where a client reads the file, for the server to judge. A refusal is the first
//! fault in the order of the shape's keywords; of the branches of `anyOf`, the fault that lies deepest in the value is reported.

use std::cmp::Ordering;

use regex::Regex;

use crate::suggest;
use crate::value::{Map, Value, quote};
use crate::yaml::path_step;

/// Who reads a file. A client lets pass what only the server can judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The command line.
    Client,
    /// The API server.
    Server,
}

/// Why a value does not fit its shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong, in SkyPilot's words, without a prefix.
    pub message: String,
    /// Where, as JSONPath: `$.resources.cpus`.
    pub path: String,
}

/// A keyword that a value does not meet.
struct Fault<'a> {
    keyword: &'static str,
    message: String,
    /// From the value that was checked down to the one at fault.
    path: Vec<Value>,
    schema: &'a Map,
    value: &'a Value,
    /// What each branch of `anyOf` or `oneOf` found.
    branches: Vec<Fault<'a>>,
}

/// Checks a mapping; keys of its first level whose value is null count as not there, unless the shape does not know them.
pub fn check(value: &Map, schema: &Value, reader: Reader) -> Result<(), Refusal> {
    check_given(value, schema, reader)?;
    check_nulls(value, schema, reader)
}

/// Checks what a mapping gives a value to.
pub fn check_given(value: &Map, schema: &Value, reader: Reader) -> Result<(), Refusal> {
    let given = value.iter().filter(|(_, value)| !value.is_null());
    check_all(&Value::Map(own(given)), schema, reader)
}

/// Checks the keys without a value: SkyPilot, if it says anything of one that it does not know, does so behind all else.
pub fn check_nulls(value: &Map, schema: &Value, reader: Reader) -> Result<(), Refusal> {
    let nulls = Value::Map(own(value.iter().filter(|(_, value)| value.is_null())));
    let unknown = faults(&nulls, schema, reader)
        .into_iter()
        .find(|fault| fault.path.is_empty() && fault.keyword == "additionalProperties");
    unknown.map_or(Ok(()), |fault| Err(refusal(&fault)))
}

fn own<'a>(pairs: impl Iterator<Item = (&'a Value, &'a Value)>) -> Map {
    pairs.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Checks a value as it is.
pub fn check_all(value: &Value, schema: &Value, reader: Reader) -> Result<(), Refusal> {
    match faults(value, schema, reader).into_iter().next() {
        None => Ok(()),
        Some(fault) => Err(refusal(&fault)),
    }
}

fn refusal(fault: &Fault<'_>) -> Refusal {
    if fault.keyword == "additionalProperties" {
        let path = render(&fault.path);
        if path == "$.envs" {
            return Refusal { message: format!("The `envs` field contains invalid keys:\n{}", fault.message), path };
        }
        let key = unknown(fault).next().map(path_step).unwrap_or_default();
        return Refusal { message: unknown_keys(fault), path: path + &key };
    }
    let (path, told) = told(fault);
    Refusal {
        message: format!("{}. Check problematic field(s): {path}", told.replace("type 'object'", "type 'dict'")),
        path,
    }
}

/// The keys that a shape knows.
fn known<'a>(fault: &Fault<'a>) -> Vec<&'a str> {
    properties(fault.schema).into_iter().filter_map(|(key, _)| key.as_str()).collect()
}

/// The keys that it does not know.
fn unknown<'a>(fault: &Fault<'a>) -> impl Iterator<Item = &'a Value> {
    let known = known(fault);
    let keys = fault.value.as_map().into_iter().flat_map(Map::keys);
    keys.filter(move |key| key.as_str().is_none_or(|key| !known.contains(&key)))
}

/// Each unknown key, with the known one that is most like it.
fn unknown_keys(fault: &Fault<'_>) -> String {
    let known = known(fault);
    let messages = unknown(fault).map(|key| match suggest::nearest(&key.text(), known.iter().copied()) {
        Some(near) => format!("Instead of {}, did you mean {}?", key.quoted(), quote(near)),
        None => format!("Found unsupported field {}.", key.quoted()),
    });
    messages.collect::<Vec<_>>().join(" ")
}

/// Path and message of a fault: those of the branch's fault that lies deepest, unless two are equally relevant.
fn told(fault: &Fault<'_>) -> (String, String) {
    let mut path = fault.path.clone();
    let mut at = fault;
    while !at.branches.is_empty() {
        let mut branches: Vec<&Fault<'_>> = at.branches.iter().collect();
        branches.sort_by(|a, b| by_relevance(a, b));
        match branches.as_slice() {
            [first, second, ..] if by_relevance(first, second) == Ordering::Equal => break,
            [first, ..] => at = first,
            [] => break,
        }
        path.extend(at.path.iter().cloned());
    }
    (render(&path), at.message.clone())
}

/// The deeper fault first; then by path; then `anyOf` before others; then those whose type is right.
fn by_relevance(a: &Fault<'_>, b: &Fault<'_>) -> Ordering {
    let key = |fault: &Fault<'_>| (!matches!(fault.keyword, "anyOf" | "oneOf"), !type_fits(fault.value, fault.schema));
    b.path.len().cmp(&a.path.len()).then_with(|| by_path(&a.path, &b.path)).then_with(|| key(a).cmp(&key(b)))
}

fn by_path(a: &[Value], b: &[Value]) -> Ordering {
    let each = a.iter().zip(b).map(|(a, b)| match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (a, b) => a.text().cmp(&b.text()),
    });
    each.fold(Ordering::Equal, Ordering::then)
}

fn type_fits(value: &Value, schema: &Map) -> bool {
    schema.get("type").is_some_and(|types| is_of_types(value, types))
}

fn is_of_types(value: &Value, types: &Value) -> bool {
    match types {
        Value::List(types) => types.iter().filter_map(Value::as_str).any(|name| is_of(value, name)),
        name => name.as_str().is_some_and(|name| is_of(value, name)),
    }
}

fn is_of(value: &Value, name: &str) -> bool {
    match name {
        "object" => matches!(value, Value::Map(_)),
        "array" => matches!(value, Value::List(_)),
        "string" => matches!(value, Value::Str(_)),
        "boolean" => matches!(value, Value::Bool(_)),
        "null" => value.is_null(),
        "number" => matches!(value, Value::Int(_) | Value::Float(_)),
        "integer" => matches!(value, Value::Int(_)) || matches!(value, Value::Float(number) if number.fract() == 0.0),
        _ => false,
    }
}

fn render(path: &[Value]) -> String {
    path.iter().fold("$".to_owned(), |text, step| text + &path_step(step))
}

fn properties(schema: &Map) -> Vec<(&Value, &Value)> {
    schema.get("properties").and_then(Value::as_map).into_iter().flat_map(Map::iter).collect()
}

/// All faults of a value, in the order of the shape's keywords.
fn faults<'a>(value: &'a Value, schema: &'a Value, reader: Reader) -> Vec<Fault<'a>> {
    let Value::Map(schema) = schema else { return Vec::new() };
    let mut found = Vec::new();
    for (keyword, rule) in schema.iter() {
        let Some(keyword) = keyword.as_str() else { continue };
        let is_ours = |text: &str| schema.get("ours").is_some_and(|ours| ours.text().eq_ignore_ascii_case(text.trim()));
        match keyword {
            "ours" => {}
            "pattern" if value.as_str().is_some_and(is_ours) => {}
            "properties" => found.extend(in_properties(value, rule, reader)),
            "patternProperties" => found.extend(in_pattern_properties(value, rule, reader)),
            "additionalProperties" => found.extend(additional(value, schema, rule, reader)),
            "open_in_client" if reader == Reader::Server => {
                found.extend(additional(value, schema, &Value::Bool(false), reader))
            }
            "items" => {
                for (at, item) in value.as_list().unwrap_or_default().iter().enumerate() {
                    found.extend(below(item, rule, &Value::Int(i128::try_from(at).unwrap_or(i128::MAX)), reader));
                }
            }
            "anyOf" => found.extend(branches(value, schema, rule, "anyOf", reader)),
            "oneOf" => found.extend(branches(value, schema, rule, "oneOf", reader)),
            "not" if faults(value, rule, reader).is_empty() => {
                found.push(fault(
                    "not",
                    format!("{} should not be valid under {}", value.quoted(), rule.quoted()),
                    schema,
                    value,
                ));
            }
            _ => found.extend(
                simple(keyword, rule, value)
                    .into_iter()
                    .map(|(keyword, message)| fault(keyword, message, schema, value)),
            ),
        }
    }
    found
}

fn fault<'a>(keyword: &'static str, message: String, schema: &'a Map, value: &'a Value) -> Fault<'a> {
    Fault { keyword, message, path: Vec::new(), schema, value, branches: Vec::new() }
}

/// Faults of what is in a value, with the step that leads there.
fn below<'a>(value: &'a Value, schema: &'a Value, step: &Value, reader: Reader) -> Vec<Fault<'a>> {
    let mut found = faults(value, schema, reader);
    found.iter_mut().for_each(|fault| fault.path.insert(0, step.clone()));
    found
}

fn in_properties<'a>(value: &'a Value, rule: &'a Value, reader: Reader) -> Vec<Fault<'a>> {
    let (Value::Map(value), Value::Map(rule)) = (value, rule) else { return Vec::new() };
    let known = rule.iter().filter_map(|(key, schema)| Some((key, value.get(key.as_str()?)?, schema)));
    known.flat_map(|(key, value, schema)| below(value, schema, key, reader)).collect()
}

fn in_pattern_properties<'a>(value: &'a Value, rule: &'a Value, reader: Reader) -> Vec<Fault<'a>> {
    let (Value::Map(value), Value::Map(rule)) = (value, rule) else { return Vec::new() };
    let mut found = Vec::new();
    for (pattern, schema) in rule.iter() {
        let pattern = Pattern::new(&pattern.text());
        let fitting = value.iter().filter(|(key, _)| pattern.fits(&key.text()));
        found.extend(fitting.flat_map(|(key, value)| below(value, schema, key, reader)));
    }
    found
}

fn additional<'a>(value: &'a Value, schema: &'a Map, rule: &'a Value, reader: Reader) -> Vec<Fault<'a>> {
    let Value::Map(map) = value else { return Vec::new() };
    let patterns: Vec<&Value> =
        schema.get("patternProperties").and_then(Value::as_map).into_iter().flat_map(Map::keys).collect();
    let fitting: Vec<Pattern> = patterns.iter().map(|pattern| Pattern::new(&pattern.text())).collect();
    let known = properties(schema);
    let unknown = map.iter().filter(|(key, _)| {
        !known.iter().any(|(name, _)| name == key) && !fitting.iter().any(|pattern| pattern.fits(&key.text()))
    });
    match rule {
        Value::Map(_) => unknown.flat_map(|(key, value)| below(value, rule, key, reader)).collect(),
        Value::Bool(false) => {
            let mut keys: Vec<&Value> = unknown.map(|(key, _)| key).collect();
            keys.sort_by_key(|key| key.text());
            let joined = keys.iter().map(|key| key.quoted()).collect::<Vec<_>>().join(", ");
            let message = match keys.as_slice() {
                [] => return Vec::new(),
                [_] if !patterns.is_empty() => {
                    format!("{joined} does not match any of the regexes: {}", quoted_sorted(&patterns))
                }
                _ if !patterns.is_empty() => {
                    format!("{joined} do not match any of the regexes: {}", quoted_sorted(&patterns))
                }
                [_] => format!("Additional properties are not allowed ({joined} was unexpected)"),
                _ => format!("Additional properties are not allowed ({joined} were unexpected)"),
            };
            vec![fault("additionalProperties", message, schema, value)]
        }
        _ => Vec::new(),
    }
}

fn quoted_sorted(values: &[&Value]) -> String {
    let mut texts: Vec<String> = values.iter().map(|value| value.quoted()).collect();
    texts.sort();
    texts.join(", ")
}

fn branches<'a>(
    value: &'a Value,
    schema: &'a Map,
    rule: &'a Value,
    keyword: &'static str,
    reader: Reader,
) -> Vec<Fault<'a>> {
    let tried: Vec<(&Value, Vec<Fault<'a>>)> =
        rule.as_list().unwrap_or_default().iter().map(|branch| (branch, faults(value, branch, reader))).collect();
    let valid: Vec<&Value> = tried.iter().filter(|(_, found)| found.is_empty()).map(|(branch, _)| *branch).collect();
    match valid.as_slice() {
        [] => {
            let message = format!("{} is not valid under any of the given schemas", value.quoted());
            let branches = tried.into_iter().flat_map(|(_, found)| found).collect();
            vec![Fault { branches, ..fault(keyword, message, schema, value) }]
        }
        [first, others @ ..] if keyword == "oneOf" && !others.is_empty() => {
            let all = others
                .iter()
                .chain(std::iter::once(first))
                .map(|branch| branch.quoted())
                .collect::<Vec<_>>()
                .join(", ");
            vec![fault(keyword, format!("{} is valid under each of {all}", value.quoted()), schema, value)]
        }
        _ => Vec::new(),
    }
}

/// A keyword that looks at a value alone: its name and what it says.
fn simple(keyword: &str, rule: &Value, value: &Value) -> Vec<(&'static str, String)> {
    let quoted = || value.quoted();
    let one = |keyword: &'static str, message: Option<String>| {
        message.map(|message| (keyword, message)).into_iter().collect()
    };
    // a number beside its limit, and how it stands to it when it is wrong
    let number = |keyword: &'static str, is_wrong: fn(&f64, &f64) -> bool, stands: &str| {
        let wrong = value.as_number().zip(rule.as_number()).filter(|(number, limit)| is_wrong(number, limit));
        one(keyword, wrong.map(|_| format!("{} is {stands} {}", quoted(), rule.quoted())))
    };
    // a size beside its limit, and what is said of a wrong one
    let size = |keyword: &'static str, size: Option<usize>, wrong: Ordering, said: fn(usize) -> &'static str| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers of a shape")]
        let limit = rule.as_number().map(|limit| limit as usize);
        let beyond = size.zip(limit).filter(|(size, limit)| size.cmp(limit) == wrong);
        one(keyword, beyond.map(|(_, limit)| format!("{} {}", quoted(), said(limit))))
    };
    let chars = || value.as_str().map(|text| text.chars().count());
    let items = || value.as_list().map(<[Value]>::len);
    let keys = || value.as_map().map(Map::len);
    let too_short = |limit| if limit == 1 { "should be non-empty" } else { "is too short" };
    let too_long = |limit| if limit == 0 { "is expected to be empty" } else { "is too long" };
    let too_few_keys = |limit| if limit == 1 { "should be non-empty" } else { "does not have enough properties" };
    let too_many_keys = |limit| if limit == 0 { "is expected to be empty" } else { "has too many properties" };
    match keyword {
        "type" => {
            let names = || match rule {
                Value::List(names) => names.iter().map(Value::quoted).collect::<Vec<_>>().join(", "),
                name => name.quoted(),
            };
            one("type", (!is_of_types(value, rule)).then(|| format!("{} is not of type {}", quoted(), names())))
        }
        "required" => {
            let Value::Map(map) = value else { return Vec::new() };
            let keys = rule.as_list().unwrap_or_default().iter();
            let missing = keys.filter(|key| key.as_str().is_some_and(|key| !map.contains(key)));
            missing.map(|key| ("required", format!("{} is a required property", key.quoted()))).collect()
        }
        "enum" => one("enum", (!rule.as_list().unwrap_or_default().contains(value)).then(|| not_one_of(value, rule))),
        "case_insensitive_enum" => {
            let known = |text: &str| {
                let lower = text.to_lowercase();
                rule.as_list().unwrap_or_default().iter().any(|name| name.text().to_lowercase() == lower)
            };
            one("enum", value.as_str().filter(|text| !known(text)).map(|_| not_one_of(value, rule)))
        }
        "pattern" => {
            let wrong = value.as_str().filter(|text| !Pattern::new(&rule.text()).fits(text));
            one("pattern", wrong.map(|_| format!("{} does not match {}", quoted(), rule.quoted())))
        }
        "minimum" => number("minimum", |number, limit| number < limit, "less than the minimum of"),
        "maximum" => number("maximum", |number, limit| number > limit, "greater than the maximum of"),
        "exclusiveMinimum" => {
            number("exclusiveMinimum", |number, limit| number <= limit, "less than or equal to the minimum of")
        }
        "minLength" => size("minLength", chars(), Ordering::Less, too_short),
        "maxLength" => size("maxLength", chars(), Ordering::Greater, too_long),
        "minItems" => size("minItems", items(), Ordering::Less, too_short),
        "maxItems" => size("maxItems", items(), Ordering::Greater, too_long),
        "minProperties" => size("minProperties", keys(), Ordering::Less, too_few_keys),
        "maxProperties" => size("maxProperties", keys(), Ordering::Greater, too_many_keys),
        "uniqueItems" => {
            let mut texts: Vec<String> = value.as_list().unwrap_or_default().iter().map(Value::quoted).collect();
            texts.sort();
            let is_twice = texts.windows(2).any(|pair| matches!(pair, [a, b] if a == b));
            one("uniqueItems", is_twice.then(|| format!("{} has non-unique elements", quoted())))
        }
        _ => Vec::new(),
    }
}

fn not_one_of(value: &Value, rule: &Value) -> String {
    format!("{} is not one of {}", value.quoted(), rule.quoted())
}

/// A pattern of a shape. As in Python, a `$` at its end also stands before a last line break.
struct Pattern {
    regex: Option<Regex>,
    ends: bool,
}

impl Pattern {
    fn new(pattern: &str) -> Self {
        Self { regex: Regex::new(pattern).ok(), ends: pattern.ends_with('$') }
    }

    /// Whether it is found in a text.
    fn fits(&self, text: &str) -> bool {
        let Some(regex) = &self.regex else { return false };
        regex.is_match(text) || (self.ends && text.strip_suffix('\n').is_some_and(|line| regex.is_match(line)))
    }
}
