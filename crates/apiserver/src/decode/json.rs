//! JSON read as Go reads it: its words for faults, and fields that are there twice.

use super::ParseError;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;

/// Parses JSON and returns the paths of fields given more than once, each once (the last one counts, as in Go).
///
/// # Errors
/// What Go's decoder would say.
pub fn json(bytes: &[u8]) -> Result<(Value, Vec<String>), ParseError> {
    let repeated = RefCell::new(Vec::new());
    let mut decoder = serde_json::Deserializer::from_slice(bytes);
    let seed = Seed { place: &Place::Root, repeated: &repeated, seen: None };
    let value = seed.deserialize(&mut decoder).map_err(|error| ParseError(go_error(&error, bytes)))?;
    decoder.end().map_err(|error| ParseError(go_error(&error, bytes)))?;
    Ok((value, repeated.into_inner()))
}

/// A byte, taken for a character, as Go writes it between single quotes.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"\'".to_owned(),
        b'\\' => r"\\".to_owned(),
        b'\n' => r"\n".to_owned(),
        b'\r' => r"\r".to_owned(),
        b'\t' => r"\t".to_owned(),
        byte if byte.is_ascii_control() => format!("\\x{byte:02x}"),
        byte => char::from(byte).to_string(),
    }
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
    match bytes.get(at).copied().map(quoted) {
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
            let c = quoted(bytes.get(at).copied().unwrap_or(b'{'));
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
            let got = quoted(bytes.get(at).copied().unwrap_or(b' '));
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
        let mut told = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let place = Place::Field(self.place, &key);
            if let Some(seen) = self.seen {
                seen.borrow_mut().push(place.path());
            }
            let value = map.next_value_seed(Seed { place: &place, ..self.clone() })?;
            if out.contains_key(&key) && told.insert(key.clone()) {
                self.repeated.borrow_mut().push(place.path());
            }
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

/// Turns fractions that are whole (`2.0`) into integers, as the decoder of custom resources does.
pub(super) fn whole_numbers(value: &mut Value) {
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

/// What is wrong with the fields of a body, in its order: a field that nobody knows is not looked at twice.
pub(super) fn in_place(bytes: &[u8], repeated: &[String], dropped: &[String]) -> Vec<String> {
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
