//! Words of `sky` as the user types them: hints name `trainyard sky` unless the program was called as `sky`, and records of a command
//! hold no values of variables.

use crate::complete::is_sky;
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// `sky` before the name of one of its commands, in a hint.
static HINT: LazyLock<Regex> = LazyLock::new(|| {
    let all = ::sky::commands::commands();
    let names: BTreeSet<&str> = all.iter().filter_map(|command| command.path.split(' ').nth(1)).collect();
    let names = names.into_iter().map(regex::escape).collect::<Vec<_>>().join("|");
    Regex::new(&format!(r"(^|[\s`('])(?:trainyard )?sky ((?:explain|{names})\b|-h|\[OPTIONS\])"))
        .expect("invariant: the expression is valid")
});

/// A text of ours with its commands as they can be typed here.
pub(super) fn as_typed(text: &str) -> String {
    let is_link = std::env::args_os().next().is_some_and(|program| is_sky(&program));
    if is_link { text.to_owned() } else { spelt_out(text) }
}

fn spelt_out(text: &str) -> String {
    HINT.replace_all(text, "${1}trainyard sky ${2}").into_owned()
}

/// A command line for records that people show around: values of `--env` and `--secret` are left out.
pub(super) fn without_values(words: impl IntoIterator<Item = String>) -> String {
    let mut shown: Vec<String> = Vec::new();
    let mut is_value = false;
    for word in words {
        let word = match (is_value, word.split_once('=')) {
            (true, Some((name, _))) => format!("{name}=***"),
            (false, Some((flag @ ("--env" | "--secret"), value))) => {
                format!("{flag}={}=***", value.split('=').next().unwrap_or_default())
            }
            _ => word,
        };
        is_value = !is_value && matches!(word.as_str(), "--env" | "--secret");
        shown.push(word);
    }
    shown.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_can_be_typed() {
        for (text, typed) in [
            ("`sky logs one 1` shows it", "`trainyard sky logs one 1` shows it"),
            ("To stop:\t\tsky stop x", "To stop:\t\ttrainyard sky stop x"),
            ("Usage: sky launch [OPTIONS]", "Usage: trainyard sky launch [OPTIONS]"),
            ("sky.exceptions.X: blue sky above", "sky.exceptions.X: blue sky above"),
            ("trainyard sky down x", "trainyard sky down x"),
            (
                "`sky show-gpus -v` and `sky volume apply`",
                "`trainyard sky show-gpus -v` and `trainyard sky volume apply`",
            ),
        ] {
            assert_eq!(spelt_out(text), typed);
        }
    }

    #[test]
    fn a_record_has_no_values() {
        let words = [
            "sky",
            "launch",
            "--env",
            "A=b=c",
            "--env=D=e",
            "--secret",
            "T=x",
            "--secret",
            "FROM_HERE",
            "K=v",
            "t.yaml",
        ];
        let shown = without_values(words.map(str::to_owned));
        assert_eq!(shown, "sky launch --env A=*** --env=D=*** --secret T=*** --secret FROM_HERE K=v t.yaml");
    }
}
