//! Writes JSON values as YAML: block style, members by name, strings quoted only where they must be.

use serde_json::Value;
use std::fmt::Write;

/// The document, with a line feed at the end.
pub fn render(value: &Value) -> String {
    let mut out = String::new();
    block(&mut out, value, 0, false);
    out
}

/// Writes a value that stands on lines of its own; `inline` is true where the first line's indent is written already
/// (after `- `).
fn block(out: &mut String, value: &Value, indent: usize, inline: bool) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort();
            for (i, name) in names.into_iter().enumerate() {
                if i > 0 || !inline {
                    pad(out, indent);
                }
                write!(out, "{}:", scalar(name)).expect("invariant: writing to a string");
                member(out, &members[name], indent);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (i, item) in items.iter().enumerate() {
                if i > 0 || !inline {
                    pad(out, indent);
                }
                out.push_str("- ");
                block(out, item, indent + 2, true);
            }
        }
        other => {
            out.push_str(&flow(other));
            out.push('\n');
        }
    }
}

/// Writes a member's value behind its colon.
fn member(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            out.push('\n');
            block(out, value, indent + 2, false);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            block(out, value, indent, false);
        }
        other => {
            out.push(' ');
            out.push_str(&flow(other));
            out.push('\n');
        }
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Object(_) => "{}".to_owned(),
        Value::Array(_) => "[]".to_owned(),
        other => other.to_string(),
    }
}

/// A string: plain where YAML 1.1 and 1.2 both read it back as the same string, else quoted as JSON does.
fn scalar(text: &str) -> String {
    const WORDS: [&str; 12] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "~", "=", "<<"];
    let plain = !text.is_empty()
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '.' || c == '$' || c == '(')
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && text.parse::<f64>().is_err()
        && text.chars().all(|c| c == ' ' || c.is_ascii_graphic());
    if plain { text.to_owned() } else { Value::from(text).to_string() }
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_like_a_manifest() {
        let value = json!({
            "kind": "X",
            "a": {"empty": {}, "none": [], "list": [{"b": 1, "a": "yes"}, "two words", [1, 2]]},
            "text": "see: this", "number": "1", "regex": "^[a-z]$", "float": ".5",
        });
        let text = "a:\n  empty: {}\n  list:\n  - a: \"yes\"\n    b: 1\n  - two words\n  - - 1\n    - 2\n  none: []\n\
                    float: \".5\"\nkind: X\nnumber: \"1\"\nregex: \"^[a-z]$\"\ntext: \"see: this\"\n";
        assert_eq!(render(&value), text);
    }
}
