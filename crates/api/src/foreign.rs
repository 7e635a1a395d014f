//! Text that others wrote, made fit for a terminal.
//!
//! A job's name, an event, an annotation, a line of a log or a server's error may hold control sequences, which set a terminal's title,
//! write to its clipboard or hide text. Raw logs are printed as they are; all other foreign text goes through [`visible`].

use std::borrow::Cow;
use std::fmt::Write;

/// The same text with control characters written out (`\x1b`, `\u{202e}`); line feeds and tabs stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match u32::from(c) {
            _ if !is_control(c) => out.push(c),
            code @ 0..=0xff => _ = write!(out, "\\x{code:02x}"),
            code => _ = write!(out, "\\u{{{code:x}}}"),
        }
    }
    Cow::Owned(out)
}

/// The same on one line: line feeds and tabs are written out, too.
pub fn visible_line(text: &str) -> Cow<'_, str> {
    match visible(text) {
        Cow::Borrowed(text) if !text.contains(['\n', '\t']) => Cow::Borrowed(text),
        text => Cow::Owned(text.replace('\n', "\\n").replace('\t', "\\t")),
    }
}

/// JSON text in which control characters that JSON allows in strings (C1, those of writing directions) are escaped.
pub fn visible_json(json: &str) -> Cow<'_, str> {
    if !json.chars().any(is_control) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 8);
    for c in json.chars() {
        if is_control(c) {
            let mut units = [0; 2];
            c.encode_utf16(&mut units).iter().for_each(|unit| _ = write!(out, "\\u{unit:04x}"));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Whether a terminal may take a character for a command, or show others in another order because of it.
fn is_control(c: char) -> bool {
    let is_text = matches!(c, '\n' | '\t');
    let changes_direction = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    (c.is_control() && !is_text) || changes_direction || ('\u{e0000}'..='\u{e007f}').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        let cases = [
            ("plain\n\ttext é 日本", "plain\n\ttext é 日本"),
            ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
            ("a\rb\x08c\x7f", "a\\x0db\\x08c\\x7f"),
            ("\u{9b}31m", "\\x9b31m"),
            ("abc\u{202e}txt.exe", "abc\\u{202e}txt.exe"),
        ];
        for (text, shown) in cases {
            assert_eq!(visible(text), shown);
        }
        for code in (0..0x20_u32).chain(0x7f..0xa0) {
            let text = char::from_u32(code).unwrap().to_string();
            let is_kept = matches!(text.as_str(), "\n" | "\t");
            assert_eq!(visible(&text).chars().any(char::is_control), is_kept, "{code}");
            assert!(!visible_line(&text).chars().any(char::is_control), "{code}");
        }
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({"a": "\u{9b}31m \u{202e} \u{e0041} \x1b é"});
        let text = value.to_string();
        let shown = visible_json(&text);
        assert!(!shown.chars().any(is_control), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
