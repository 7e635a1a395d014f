//! YAML, within bounds.

use super::ParseError;
use super::json::json;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

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
pub fn yaml(bytes: &[u8]) -> Result<(Value, Vec<String>), ParseError> {
    if let Some(value) = plain_json(bytes) {
        return Ok((value, Vec::new()));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| ParseError(format!("yaml: {error}")))?;
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
    let read = |text: &str| {
        let options = serde_saphyr::options! {
            budget: budget(),
            alias_limits: aliases(),
            duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
        };
        let mut read = None;
        let outcome = serde_saphyr::with_deserializer_from_str_with_options(text, options, |decoder| {
            read = Some(Tree::deserialize(decoder)?.0);
            Ok(())
        });
        match (read, outcome.map_err(|error| error.to_string())) {
            // Go does not look at what comes after the document, but for the end of a text that has begun
            (Some(value), Err(why)) if !why.contains("unclosed quote") => Ok(value),
            (_, Err(why)) => Err(why),
            (value, Ok(())) => Ok(value.unwrap_or_default()),
        }
    };
    let value = read(first).or_else(|why| {
        // nor does it where that is a bracket, which the parser finds before it has ended what it reads
        let is_flow = first.trim_start().starts_with(['{', '[']);
        let end = place_of(first, &why).filter(|_| is_flow && why.contains("misplaced bracket"));
        end.and_then(|end| read(first.get(..end)?).ok()).ok_or_else(|| ParseError(format!("yaml: {why}")))
    })?;
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

/// A value whose keys may be more than texts: JSON has each as the text of what it means (`yes` is `true`, `0x10` is `16`).
struct Tree(Value);

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(decoder: D) -> Result<Self, D::Error> {
        decoder.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Tree, E> {
        Ok(Tree(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, decoder: D) -> Result<Tree, D::Error> {
        Tree::deserialize(decoder)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Tree, A::Error> {
        let mut out = Vec::new();
        while let Some(Tree(element)) = elements.next_element()? {
            out.push(element);
        }
        Ok(Tree(out.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Tree, A::Error> {
        let mut out = Map::new();
        while let Some(Tree(key)) = members.next_key()? {
            let key = match key {
                Value::String(text) => text,
                Value::Bool(_) | Value::Number(_) => key.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) => {
                    return Err(serde::de::Error::custom(format!("invalid map key: {key}")));
                }
            };
            out.insert(key, members.next_value::<Tree>()?.0);
        }
        Ok(Tree(out.into()))
    }
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
