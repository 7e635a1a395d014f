//! Splitting a command into words as a shell does.

/// A quote that is not closed, or a backslash at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unclosed(&'static str);

/// Splits a command into words: quotes and backslashes as in sh, without expansion (like Python's `shlex.split`).
pub(crate) fn words(command: &str) -> Result<Vec<String>, Unclosed> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = command.chars();
    while let Some(c) = characters.next() {
        match c {
            ' ' | '\t' | '\r' | '\n' => words.extend(word.take()),
            '\\' => match characters.next() {
                Some(next) => word.get_or_insert_default().push(next),
                None => return Err(Unclosed("a backslash at its end has nothing to quote")),
            },
            '\'' | '"' => quoted(c, &mut characters, word.get_or_insert_default())?,
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// The text up to the closing quote. A backslash quotes only in double quotes, and there only quotes and backslashes.
fn quoted(quote: char, characters: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), Unclosed> {
    const OPEN: Unclosed = Unclosed("a quote is not closed");
    loop {
        match characters.next().ok_or(OPEN)? {
            c if c == quote => return Ok(()),
            '\\' if quote == '"' => match characters.next().ok_or(OPEN)? {
                c @ ('"' | '\\') => word.push(c),
                c => word.extend(['\\', c]),
            },
            c => word.push(c),
        }
    }
}

/// A word that only a shell would interpret: without a shell the program gets it. A quoted one is intended.
pub fn for_a_shell(command: &str) -> Option<&'static str> {
    const WORDS: [&str; 9] = ["&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"];
    let split = words(command).unwrap_or_default();
    WORDS
        .into_iter()
        .find(|word| split.iter().any(|held| held == word) && command.split_whitespace().any(|held| held == *word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_as_a_shell_does() {
        for (command, expected) in [
            ("python train.py --lr 1", &["python", "train.py", "--lr", "1"][..]),
            ("  a\tb\n c  ", &["a", "b", "c"]),
            (r#"sh -c 'cd "$HOME" && run'"#, &["sh", "-c", r#"cd "$HOME" && run"#]),
            (r#"a"b c"'d e'f"#, &["ab cd ef"]),
            (r#""a\"b\\c\d""#, &[r#"a"b\c\d"#]),
            (r"'a\'b", &[r"a\b"]),
            (r"a\ b \# #c", &["a b", "#", "#c"]),
            ("'' \"\"", &["", ""]),
            ("", &[]),
        ] {
            assert_eq!(words(command), Ok(expected.iter().map(|word| (*word).to_owned()).collect()), "{command}");
        }
        for command in ["'a", "\"a", "a 'b\" c", "a\\", "\"a\\"] {
            assert!(words(command).is_err(), "{command}");
        }
    }

    #[test]
    fn words_for_a_shell_are_found_where_none_reads_them() {
        for (command, word) in [
            ("cd /w && python train.py", Some("&&")),
            ("train > log", Some(">")),
            ("sh -c 'cd /w && python train.py'", None),
            ("train '|'", None),
            ("train a&b --x=1;2", None),
            ("train 'open", None),
        ] {
            assert_eq!(for_a_shell(command), word, "{command}");
        }
    }
}
