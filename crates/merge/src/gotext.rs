//! How Go's `fmt` prints JSON values: error texts of the API server hold such renderings.

use serde_json::Value;
use std::fmt::Write as _;

/// As `%v` prints a decoded JSON value: `map[a:1 b:[x y]]`, `<nil>`.
pub fn plain(value: &Value) -> String {
    let mut out = String::new();
    write_plain(&mut out, value);
    out
}

fn write_plain(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::String(text) => out.push_str(text),
        Value::Bool(_) | Value::Number(_) => {
            // Writing to a string cannot fail.
            let _ = write!(out, "{value}");
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                write_plain(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push_str("map[");
            let mut names: Vec<&String> = members.keys().collect();
            names.sort();
            for (i, name) in names.into_iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                out.push_str(name);
                out.push(':');
                write_plain(out, &members[name]);
            }
            out.push(']');
        }
    }
}

/// As `%#v` prints a decoded JSON value: Go syntax.
pub fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quoted(text),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => {
            let inner: Vec<String> = items.iter().map(syntax).collect();
            format!("[]interface {{}}{{{}}}", inner.join(", "))
        }
        Value::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort();
            let inner: Vec<String> =
                names.into_iter().map(|name| format!("{}:{}", quoted(name), syntax(&members[name]))).collect();
            format!("map[string]interface {{}}{{{}}}", inner.join(", "))
        }
    }
}

/// The Go type of a decoded JSON value, as `%T` prints it.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// As `%q` prints a string.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if c < ' ' || c == '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Why a text is no number, in the words of Go's `strconv`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("strconv.{function}: parsing {}: {why}", quoted(text))]
pub struct NumberError {
    function: &'static str,
    text: String,
    why: &'static str,
}

/// As `strconv.ParseUint` reads a decimal number.
///
/// # Errors
/// Its words: a sign, a space or an empty text is as wrong as a letter, and a number may be too large.
pub fn uint(text: &str) -> Result<u64, NumberError> {
    let why = match text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        true => "value out of range",
        false => "invalid syntax",
    };
    let fails = || NumberError { function: "ParseUint", text: text.to_owned(), why };
    if text.starts_with('+') { Err(fails()) } else { text.parse().map_err(|_| fails()) }
}

/// As `strconv.ParseInt` reads a decimal number.
///
/// # Errors
/// As [`uint`], but for a sign.
pub fn int(text: &str) -> Result<i64, NumberError> {
    text.parse().map_err(|_| {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let why = match digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.is_empty() {
            true => "value out of range",
            false => "invalid syntax",
        };
        NumberError { function: "ParseInt", text: text.to_owned(), why }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn prints_as_go_does() {
        let value = json!({"b": [1, "x", null], "a": true});
        assert_eq!(plain(&value), "map[a:true b:[1 x <nil>]]");
        assert_eq!(syntax(&json!({"a": ["x", 1]})), r#"map[string]interface {}{"a":[]interface {}{"x", 1}}"#);
        assert_eq!(uint("007"), Ok(7));
        for (text, why) in
            [("+5", "syntax"), ("", "syntax"), ("-1", "syntax"), ("1 ", "syntax"), ("18446744073709551616", "range")]
        {
            assert!(uint(text).is_err_and(|error| error.to_string().ends_with(why)), "{text}");
        }
        assert_eq!(uint("\0").unwrap_err().to_string(), r#"strconv.ParseUint: parsing "\x00": invalid syntax"#);
        assert_eq!((int("+5"), int("-5")), (Ok(5), Ok(-5)));
        for (text, why) in [("+", "syntax"), ("", "syntax"), ("x", "syntax"), ("9223372036854775808", "range")] {
            assert!(int(text).is_err_and(|error| error.to_string().ends_with(why)), "{text}");
        }
        assert_eq!(quoted("a\u{7}b\"\n"), r#""a\ab\"\n""#);
    }
}
