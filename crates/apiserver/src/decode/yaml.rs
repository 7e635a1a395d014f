//! YAML, within bounds.

use super::json::json;
use serde_json::Value;

/// Deepest YAML document: its parser takes 20 KiB of stack for a level in a debug build. JSON may be deeper.
const YAML_DEPTH_MAX: usize = 64;

/// Most values of a YAML document, those that aliases repeat included.
const YAML_NODES_MAX: usize = 1_000_000;

/// Most values that aliases may repeat in a YAML document. Each costs as much as one that is written, so a text of 300 bytes
/// could take seconds.
const YAML_REPEATED_MAX: usize = 20_000;

/// Most values that are kept for aliases, those of anchors inside anchors once for each.
const YAML_RECORDED_MAX: usize = 5 * YAML_REPEATED_MAX;

/// Most bytes of text in a YAML document, those that aliases repeat included: as many as a body may have.
const YAML_SCALARS_MAX: usize = 3 << 20;

/// Most repeated keys that are told.
const REPEATED_MAX: usize = 32;

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
            max_recorded_anchor_events: YAML_RECORDED_MAX,
        }
    };
    let aliases = || serde_saphyr::alias_limits! { max_total_replayed_events: YAML_REPEATED_MAX };
    let options = serde_saphyr::options! {
        budget: budget(),
        alias_limits: aliases(),
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
    };
    let value: Value = serde_saphyr::from_str_with_options(first, options).map_err(|error| format!("yaml: {error}"))?;
    // The parser would stop at the first key that is there twice: that key gets another name, and the rest is read.
    let mut repeated = Vec::new();
    let mut text = first.to_owned();
    for round in 0..REPEATED_MAX {
        let options = serde_saphyr::options! { budget: budget(), alias_limits: aliases() };
        let Err(error) = serde_saphyr::from_str_with_options::<serde::de::IgnoredAny>(&text, options) else { break };
        let error = error.to_string();
        let Some(found) = repeated_key(&error) else { break };
        repeated.push(found);
        let Some(at) = place_of(&text, &error) else { break };
        text.insert_str(at, &format!("{round}again-"));
    }
    Ok((value, repeated))
}

/// The value of a YAML text that is JSON, as what programs apply is: many times faster to read. `None` where the YAML parser
/// must look, since it might see it otherwise or say something: faults, repeated keys, and numbers with fractions.
pub(super) fn plain_json(bytes: &[u8]) -> Option<Value> {
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    let (value, repeated) = json(bytes).ok()?;
    (repeated.is_empty() && !has_fractions(&value)).then_some(value)
}

/// Whether there are numbers in it that the YAML parser may read otherwise.
pub(super) fn has_fractions(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_fractions),
        Value::Object(members) => members.values().any(has_fractions),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// Where a text continues a key that the parser complains about, behind its quote if it has one.
fn place_of(text: &str, message: &str) -> Option<usize> {
    let mut numbers = message.split_once("line ")?.1.split_once(" column ")?;
    numbers.1 = numbers.1.split(|c: char| !c.is_ascii_digit()).next()?;
    let (line, column): (usize, usize) = (numbers.0.parse().ok()?, numbers.1.parse().ok()?);
    let start: usize = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
    let (offset, first) = text.get(start..)?.char_indices().nth(column.checked_sub(1)?)?;
    Some(start + offset + if matches!(first, '"' | '\'') { 1 } else { 0 })
}

/// Go's complaint about a repeated key, from the parser's (`… line 7 column 3: duplicate mapping key: k, …`).
fn repeated_key(message: &str) -> Option<String> {
    let (before, after) = message.split_once("duplicate mapping key: ")?;
    let line = before.split("line ").nth(1)?.split(' ').next()?;
    let key = after.split([',', '\n']).next()?.trim();
    Some(format!("yaml: unmarshal errors:\n  line {line}: key \"{key}\" already set in map"))
}
