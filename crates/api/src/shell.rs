//! Quoting of words in commands that we propose.

use std::borrow::Cow;

/// The word, quoted for a shell if it has to be: paths may have blanks, and names that others chose may have commands in them.
pub fn quoted(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        Cow::Borrowed(word)
    } else {
        Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        let cases = [
            ("/a/b-c.py", "/a/b-c.py"),
            ("my file", "'my file'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("$HOME", "'$HOME'"),
        ];
        for (word, typed) in cases {
            assert_eq!(quoted(word), typed);
        }
    }
}
