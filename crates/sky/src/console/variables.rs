//! Files of variables as python-dotenv reads them: `export`, quotes, comments, `${NAME:-default}`.

/// A variable; one without `=` has no value.
pub type Variable = (String, Option<String>);

/// The variables of a text, in order; of a name that stands twice the last value counts. A line that is none is passed over.
pub fn variables(text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Vec<Variable> {
    let mut found: Vec<Variable> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (variable, after) = next(rest);
        rest = after;
        let Some((name, value)) = variable else { continue };
        let value = value.map(|value| filled(&value, &found, environment));
        match found.iter_mut().find(|(known, _)| *known == name) {
            Some(known) => known.1 = value,
            None => found.push((name, value)),
        }
    }
    found
}

/// What stands first, and what is left.
fn next(text: &str) -> (Option<Variable>, &str) {
    let text = text.trim_start();
    let line_end = text.find(['\n', '\r']).unwrap_or(text.len());
    let (line, after) = text.split_at(line_end);
    let inner = match line.strip_prefix("export") {
        Some(inner) if inner.starts_with([' ', '\t']) => inner.trim_start(),
        _ => line,
    };
    let (name, behind) = match inner.strip_prefix('\'').and_then(|quoted| quoted.split_once('\'')) {
        Some(pair) => pair,
        None => inner.split_at(inner.find(|c: char| c == '=' || c == '#' || c.is_whitespace()).unwrap_or(inner.len())),
    };
    if name.is_empty() {
        return (None, after);
    }
    let behind = behind.trim_start();
    if behind.is_empty() || behind.starts_with('#') {
        return (Some((name.to_owned(), None)), after);
    }
    let Some(value) = behind.strip_prefix('=') else { return (None, after) };
    let value = value.trim_start();
    let Some(quote) = value.chars().next().filter(|first| matches!(first, '\'' | '"')) else {
        let end = value.char_indices().find(|(at, c)| *c == '#' && value[..*at].ends_with([' ', '\t']));
        let end = end.map_or(value.len(), |(at, _)| at);
        return (Some((name.to_owned(), Some(value[..end].trim_end().to_owned()))), after);
    };
    // what is in quotes may have several lines
    let opened = &text[text.len() - after.len() - value.len() + quote.len_utf8()..];
    let mut escaped = false;
    let close = opened.char_indices().find(|(_, c)| {
        let closes = *c == quote && !escaped;
        escaped = *c == '\\' && !escaped;
        closes
    });
    let Some((close, _)) = close else { return (None, after) };
    let behind = &opened[close + quote.len_utf8()..];
    let (left, after) = behind.split_at(behind.find(['\n', '\r']).unwrap_or(behind.len()));
    if !left.trim().is_empty() && !left.trim_start().starts_with('#') {
        return (None, after);
    }
    (Some((name.to_owned(), Some(unescaped(&opened[..close], quote)))), after)
}

/// In single quotes `\\` and `\'` alone mean another sign, in double ones those of Python.
fn unescaped(text: &str, quote: char) -> String {
    let mut out = String::new();
    let mut signs = text.chars().peekable();
    while let Some(sign) = signs.next() {
        let meant = match (sign, signs.peek()) {
            ('\\', Some(next @ ('\\' | '\''))) => Some(*next),
            ('\\', Some(next)) if quote == '"' => match next {
                '"' => Some('"'),
                'a' => Some('\u{7}'),
                'b' => Some('\u{8}'),
                'f' => Some('\u{c}'),
                'n' => Some('\n'),
                'r' => Some('\r'),
                't' => Some('\t'),
                'v' => Some('\u{b}'),
                _ => None,
            },
            _ => None,
        };
        match meant {
            Some(meant) => {
                signs.next();
                out.push(meant);
            }
            None => out.push(sign),
        }
    }
    out
}

/// With the values of variables in the places of `${NAME}` and `${NAME:-default}`: those of the file first, then the environment's.
fn filled(text: &str, found: &[Variable], environment: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${") {
        let Some((name, after)) = behind.split_once('}') else { break };
        let (name, default) = name.split_once(":-").unwrap_or((name, ""));
        out.push_str(before);
        let known = found.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone().unwrap_or_default());
        out.push_str(&known.or_else(|| environment(name)).unwrap_or_else(|| default.to_owned()));
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_python_dotenv_reads_them() {
        let environment = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
        let text = "A=1\nexport B='two words' # said\n# C=no\nD = \"a\\nb\\\"\" \nE\nF=a#b #c\nG=\nH=\"one\ntwo\"\nI=${A}-${HOME}-${X:-y}${Z}\n'J K'=5\nL='it\\'s \\n'\nM=\"a\" b\nA=6\n=7\nN='open\nO=#x\n";
        let wanted = [
            ("A", Some("6")),
            ("B", Some("two words")),
            ("D", Some("a\nb\"")),
            ("E", None),
            ("F", Some("a#b")),
            ("G", Some("")),
            ("H", Some("one\ntwo")),
            ("I", Some("1-/home/me-y")),
            ("J K", Some("5")),
            ("L", Some("it's \\n")),
            ("O", Some("#x")),
        ];
        let wanted: Vec<Variable> =
            wanted.iter().map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned))).collect();
        assert_eq!(variables(text, &environment), wanted);
    }
}
