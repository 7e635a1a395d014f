//! What a YAML 1.1 document holds, and how SkyPilot's messages and files write it.
//!
//! SkyPilot is written in Python, so its messages quote values as Python prints them (`True`, `'a'`, `[1, 2.5]`) and its files
//! hold Python's text of a number (`4.0`). [`Value::quoted`] and [`Value::text`] are those two forms.

use std::fmt::Write as _;

/// A value of a document.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`, `~`, or nothing.
    Null,
    /// `true`, `yes`, `on` and their opposites.
    Bool(bool),
    /// A whole number of at most 38 digits.
    Int(i128),
    /// A number with a point.
    Float(f64),
    /// A text.
    Str(String),
    /// A date or a time.
    Time {
        /// As it is written to a file: `2024-01-02 03:04:05+00:00`.
        text: String,
        /// As a message quotes it: `datetime.date(2024, 1, 2)`.
        quoted: String,
    },
    /// A sequence.
    List(Vec<Value>),
    /// A mapping.
    Map(Map),
}

/// A mapping in the order of its file. Keys are unique; a key may be any value that is no collection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Map(Vec<(Value, Value)>);

impl Map {
    /// An empty mapping.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a key that is a text.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(k, _)| k.as_str() == Some(key)).map(|(_, value)| value)
    }

    /// The value of a key, if it is there and not null.
    pub fn given(&self, key: &str) -> Option<&Value> {
        self.get(key).filter(|value| !value.is_null())
    }

    /// Whether a key that is a text is there.
    pub fn contains(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Puts a value under a key: in the key's old place if it had one, else at the end.
    pub fn insert(&mut self, key: impl Into<Value>, value: impl Into<Value>) {
        let (key, value) = (key.into(), value.into());
        match self.0.iter_mut().find(|(k, _)| *k == key) {
            Some(old) => old.1 = value,
            None => self.0.push((key, value)),
        }
    }

    /// Puts a value under a key if there is one.
    pub fn insert_some(&mut self, key: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.insert(key, value);
        }
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.0.iter().position(|(k, _)| k.as_str() == Some(key))?;
        Some(self.0.remove(at).1)
    }

    /// Takes a key out; nothing if its value is null.
    pub fn take(&mut self, key: &str) -> Option<Value> {
        self.remove(key).filter(|value| !value.is_null())
    }

    /// Key and value, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Value, &Value)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &Value> {
        self.0.iter().map(|(key, _)| key)
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Everything of another mapping put into this one.
    pub fn extend(&mut self, other: Map) {
        for (key, value) in other.0 {
            self.insert(key, value);
        }
    }
}

impl IntoIterator for Map {
    type Item = (Value, Value);
    type IntoIter = std::vec::IntoIter<(Value, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<K: Into<Value>, V: Into<Value>> FromIterator<(K, V)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut map = Self::new();
        pairs.into_iter().for_each(|(key, value)| map.insert(key, value));
        map
    }
}

impl Value {
    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The mapping, if it is one.
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The sequence, if it is one.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }

    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, if it is one.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "Python compares them as numbers, too")]
            Self::Int(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// Whether it is null.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Whether Python takes it for true: not null, not zero, not empty.
    pub fn is_truthy(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(value) => *value,
            Self::Int(value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::Str(text) => !text.is_empty(),
            Self::Time { .. } => true,
            Self::List(list) => !list.is_empty(),
            Self::Map(map) => !map.is_empty(),
        }
    }

    /// The name of its type in Python, as messages have it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::Time { quoted, .. } if quoted.starts_with("datetime.datetime") => "datetime",
            Self::Time { .. } => "date",
            Self::List(_) => "list",
            Self::Map(_) => "dict",
        }
    }

    /// As Python's `str` writes it: a text without quotes.
    pub fn text(&self) -> String {
        match self {
            Self::Str(text) => text.clone(),
            Self::Time { text, .. } => text.clone(),
            other => other.quoted(),
        }
    }

    /// As Python's `repr` writes it.
    pub fn quoted(&self) -> String {
        match self {
            Self::Null => "None".into(),
            Self::Bool(true) => "True".into(),
            Self::Bool(false) => "False".into(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => float(*value),
            Self::Str(text) => quote(text),
            Self::Time { quoted, .. } => quoted.clone(),
            Self::List(list) => format!("[{}]", list.iter().map(Self::quoted).collect::<Vec<_>>().join(", ")),
            Self::Map(map) => {
                let pairs = map.iter().map(|(key, value)| format!("{}: {}", key.quoted(), value.quoted()));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Reads JSON, which is YAML; `None` for what is none.
    pub fn from_json(json: &serde_json::Value) -> Option<Self> {
        crate::yaml::documents(&json.to_string()).ok()?.into_iter().next()?.value
    }

    /// As JSON, the way Python's `json.dumps` has it: keys become texts. A number that JSON cannot hold becomes its text.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::Bool(*value),
            Self::Int(value) => i64::try_from(*value).map_or_else(|_| Json::String(value.to_string()), Json::from),
            Self::Float(value) => {
                serde_json::Number::from_f64(*value).map_or_else(|| Json::String(float(*value)), Json::Number)
            }
            Self::Str(text) | Self::Time { text, .. } => Json::String(text.clone()),
            Self::List(list) => Json::Array(list.iter().map(Self::to_json).collect()),
            Self::Map(map) => Json::Object(map.iter().map(|(key, value)| (key.json_key(), value.to_json())).collect()),
        }
    }

    /// As a key in JSON, where keys are texts.
    pub(crate) fn json_key(&self) -> String {
        match self {
            Self::Null => "null".into(),
            Self::Bool(value) => value.to_string(),
            other => other.text(),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Str(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Str(text)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i128> for Value {
    fn from(value: i128) -> Self {
        Self::Int(value)
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Self {
        Self::Map(map)
    }
}

impl From<Vec<Value>> for Value {
    fn from(list: Vec<Value>) -> Self {
        Self::List(list)
    }
}

impl From<&[String]> for Value {
    fn from(list: &[String]) -> Self {
        Self::List(list.iter().map(|text| Self::Str(text.clone())).collect())
    }
}

/// A text in Python's quotes: single ones, or double ones where it has single ones and no double ones.
pub fn quote(text: &str) -> String {
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(mark);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == mark => {
                out.push('\\');
                out.push(c);
            }
            c if u32::from(c) < 0x20 || u32::from(c) == 0x7f => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c if (0x80..0xa1).contains(&u32::from(c)) || c == '\u{ad}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push(mark);
    out
}

/// Python's `repr` of a list of texts: `['a', 'b']`.
pub fn quote_all<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    format!("[{}]", texts.into_iter().map(|text| quote(text.as_ref())).collect::<Vec<_>>().join(", "))
}

/// A float as Python writes it: the shortest digits that mean it; an exponent below 1e-4 and from 1e16.
pub fn float(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.into();
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if value != 0.0 && !(-4..16).contains(&exponent) => {
            format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
        }
        _ => {
            let plain = value.to_string();
            if plain.contains('.') { plain } else { format!("{plain}.0") }
        }
    }
}

/// A text as Python's `float` reads it: spaces around, underscores between digits, `inf` and `nan` in any case.
pub fn parse_float(text: &str) -> Option<f64> {
    let text = plain_digits(text.trim())?;
    let unsigned = text.trim_start_matches(['+', '-']);
    if unsigned.is_empty() || text.len() - unsigned.len() > 1 {
        return None;
    }
    let word = unsigned.to_ascii_lowercase();
    if !matches!(word.as_str(), "inf" | "infinity" | "nan")
        && unsigned.chars().any(|c| c.is_ascii_alphabetic() && !matches!(c, 'e' | 'E'))
    {
        return None;
    }
    text.parse().ok()
}

/// A text as Python's `int` reads it.
pub fn parse_int(text: &str) -> Option<i128> {
    let text = plain_digits(text.trim())?;
    let digits = text.strip_prefix(['+', '-']).unwrap_or(&text);
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

/// The text without underscores, each of which must stand between digits.
fn plain_digits(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let between = |at: usize| {
        let digit = |index: Option<usize>| index.and_then(|i| bytes.get(i)).is_some_and(u8::is_ascii_digit);
        digit(at.checked_sub(1)) && digit(Some(at + 1))
    };
    bytes.iter().enumerate().all(|(at, b)| *b != b'_' || between(at)).then(|| text.replace('_', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        for (value, text) in [
            (0.5, "0.5"),
            (4.0, "4.0"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (-0.0, "-0.0"),
            (1.5e300, "1.5e+300"),
        ] {
            assert_eq!(float(value), text);
        }
    }

    #[test]
    fn texts_are_quoted_as_python_quotes_them() {
        for (text, quoted) in [
            ("a", "'a'"),
            ("it's", "\"it's\""),
            ("'\"", "'\\'\"'"),
            ("a\n\\", "'a\\n\\\\'"),
            ("\u{1}", "'\\x01'"),
            ("é", "'é'"),
        ] {
            assert_eq!(quote(text), quoted);
        }
    }

    #[test]
    fn numbers_are_read_as_python_reads_them() {
        for (text, value) in [
            ("1_000", Some(1000.0)),
            ("1__0", None),
            ("_1", None),
            (" 4 ", Some(4.0)),
            ("0x10", None),
            ("", None),
            ("+-4", None),
            ("1e3", Some(1000.0)),
            ("4x", None),
            (".5", Some(0.5)),
        ] {
            assert_eq!(parse_float(text), value, "{text:?}");
        }
        assert_eq!((parse_int("-2"), parse_int("2.0"), parse_int("")), (Some(-2), None, None));
    }
}
