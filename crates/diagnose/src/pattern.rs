//! Patterns of log lines, and templates of sentences.
//!
//! A pattern is text with named gaps: `No module named '{module}'`. Its first literal may stand anywhere in the line; with
//! `^` in front it begins the line. A gap takes as little as it can, the last one what is left. `{_}` is a gap whose text is
//! not kept. Templates have the same gaps, filled in.

use std::collections::BTreeMap;

/// What gaps hold, by name.
pub(crate) type Vars = BTreeMap<&'static str, String>;

/// A piece of a pattern or template.
enum Piece<'a> {
    Text(&'a str),
    Gap(&'a str),
}

fn pieces(pattern: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = pattern;
    while let Some((text, after)) = rest.split_once('{') {
        let Some((gap, after)) = after.split_once('}') else { break };
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        pieces.push(Piece::Gap(gap));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    pieces
}

/// The texts in the gaps of a pattern that fits the line; gaps with nothing in them do not fit.
pub(crate) fn captures(pattern: &'static str, line: &str) -> Option<Vec<(&'static str, String)>> {
    let (anchored, pattern) = match pattern.strip_prefix('^') {
        Some(pattern) => (true, pattern),
        None => (false, pattern),
    };
    let mut found = Vec::new();
    let mut rest = line;
    let mut gap: Option<&'static str> = if anchored { None } else { Some("_") };
    for (at, piece) in pieces(pattern).into_iter().enumerate() {
        match piece {
            Piece::Gap(name) => gap = Some(name),
            Piece::Text(text) => {
                let start = rest.find(text)?;
                match gap.take() {
                    None if start > 0 => return None,
                    Some(name) if name != "_" => {
                        let held = rest[..start].trim();
                        if held.is_empty() {
                            return None;
                        }
                        found.push((name, held.to_owned()));
                    }
                    // between two literals something must stand, before the first one nothing has to
                    Some(_) if at > 0 && start == 0 => return None,
                    _ => {}
                }
                rest = &rest[start + text.len()..];
            }
        }
    }
    if let Some(name) = gap.filter(|name| *name != "_") {
        let held = rest.trim();
        if held.is_empty() {
            return None;
        }
        found.push((name, held.to_owned()));
    }
    Some(found)
}

/// The template with its gaps filled; `None` where a gap has no text.
pub(crate) fn fill(template: &str, vars: &Vars) -> Option<String> {
    let mut text = String::new();
    for piece in pieces(template) {
        match piece {
            Piece::Text(literal) => text += literal,
            Piece::Gap(name) => text += vars.get(name).filter(|held| !held.is_empty())?,
        }
    }
    Some(text)
}

/// A word as a shell reads it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(pattern: &'static str, line: &str) -> Option<Vec<String>> {
        Some(captures(pattern, line)?.into_iter().map(|(name, text)| format!("{name}={text}")).collect())
    }

    #[test]
    fn gaps_hold_what_is_between_literals() {
        let line = "ModuleNotFoundError: No module named 'sklearn.svm'";
        assert_eq!(held("No module named '{module}'", line), Some(vec!["module=sklearn.svm".to_owned()]));
        assert_eq!(
            held("^{exception}: {message}", "ValueError: x: y").unwrap().join(" "),
            "exception=ValueError message=x: y"
        );
        assert_eq!(held("^Error{_}x", "an Error x"), None, "anchored");
        assert_eq!(held("a{_}c", "xxabc"), Some(vec![]));
        assert_eq!(held("a{b}c", "ac"), None, "an empty gap");
        assert_eq!(held("port {port}", "port "), None);
    }

    #[test]
    fn templates_need_all_gaps() {
        let vars = Vars::from([("who", "rank 3".to_owned()), ("empty", String::new())]);
        assert_eq!(fill("{who} failed", &vars).as_deref(), Some("rank 3 failed"));
        assert_eq!(fill("{who} {empty}", &vars), None);
        assert_eq!(fill("{other}", &vars), None);
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("a/b.py"), "a/b.py");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
