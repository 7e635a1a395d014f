//! The rules of error messages, which `cargo xtask tidy` checks: each code has its page and its place in the catalogue, and no
//! error repeats its source.

use std::collections::BTreeSet;

/// Where the pages of codes are.
const PAGES: &str = "docs/errors/";
/// Where codes are given out.
pub const CATALOGUES: [&str; 2] = ["crates/client/src/codes.rs", "crates/diagnose/src/reason.rs"];
/// A code that is never given out: documentation and tests show it as one that does not exist.
const NEVER: &str = "TY9999";

/// The codes in a text: `TY` and four digits, as a word.
fn codes(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| {
        word.len() == 6 && word.strip_prefix("TY").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// A code that a file mentions must have a page and be in the catalogue; a page must have a code there.
pub fn pages<'a>(texts: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Vec<String> {
    let page_of = |file: &'a str| file.strip_prefix(PAGES)?.strip_suffix(".md").filter(|name| *name != "README");
    let pages: BTreeSet<&str> = texts.clone().filter_map(|(file, _)| page_of(file)).collect();
    let catalogues = texts.clone().filter(|(file, _)| CATALOGUES.contains(file));
    let given: BTreeSet<&str> = catalogues.flat_map(|(_, text)| codes(text)).collect();
    let mut findings = Vec::new();
    for (file, text) in texts {
        for code in codes(text).filter(|code| *code != NEVER).collect::<BTreeSet<_>>() {
            if !pages.contains(code) {
                findings.push(format!("{file}: {code} has no page: {PAGES}{code}.md"));
            } else if !given.contains(code) {
                findings.push(format!("{file}: {code} is in no catalogue ({})", CATALOGUES.join(", ")));
            }
        }
    }
    findings.extend(pages.difference(&given).map(|page| format!("{PAGES}{page}.md: no catalogue has this code")));
    findings
}

/// Error types whose `Display` also prints their `source`: a program that prints the chain would print it twice.
pub fn repeated_sources(file: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("#[error(") {
        rest = &rest[at + "#[error(".len()..];
        let Some((message, after)) = rest.split_once(")]") else { break };
        // up to the next variant, or the end of the type
        let variant = after.split("#[error(").next().unwrap_or_default().split("\n}\n").next().unwrap_or_default();
        let has_source = variant.contains("#[source]") || variant.contains("#[from]");
        let named = message.contains("{source") || message.contains("{source}");
        let unnamed = message.contains("{0}") && !variant.trim_start().contains("source:") && has_source;
        if has_source && (named || unnamed) {
            let line = text.len().saturating_sub(rest.len());
            let number = text[..line].lines().count();
            findings.push(format!("{file}:{number}: an error that repeats its source: leave it out of #[error(…)]"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&'static str, &'static str)]) -> Vec<String> {
        pages(files.iter().copied())
    }

    #[test]
    fn a_code_without_a_page_is_refused() {
        let catalogue = (CATALOGUES[0], "TY0101 NotRunning, TY0102 NotReady");
        let page = ("docs/errors/TY0101.md", "# TY0101");
        assert_eq!(
            found(&[catalogue, page]),
            ["crates/client/src/codes.rs: TY0102 has no page: docs/errors/TY0102.md"]
        );
        assert!(
            found(&[catalogue, page, ("docs/errors/TY0102.md", ""), ("README.md", "TY0101, not TY9999 or TYPE01")])
                .is_empty()
        );
    }

    #[test]
    fn a_page_without_a_code_is_refused() {
        let files =
            [(CATALOGUES[1], "TY1001 Complete"), ("docs/errors/TY1001.md", ""), ("docs/errors/TY1002.md", "# TY1002")];
        let wrong = found(&files);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong.iter().all(|finding| finding.starts_with("docs/errors/TY1002.md: ")), "{wrong:?}");
        assert_eq!(found(&[("docs/cli.md", "see TY0555")]), ["docs/cli.md: TY0555 has no page: docs/errors/TY0555.md"]);
    }

    #[test]
    fn an_error_that_repeats_its_source_is_refused() {
        let good = "enum E {\n    #[error(\"cannot read {path}\")]\n    Io {\n        path: P,\n        #[source]\n        source: E,\n    },\n}\n";
        assert!(repeated_sources("a.rs", good).is_empty());
        assert_eq!(repeated_sources("a.rs", &good.replace("{path}", "{path}: {source}")).len(), 1);
        let tuple = "enum E {\n    #[error(\"{0}\")]\n    Text(String),\n    #[error(\"cannot print: {0}\")]\n    Print(#[source] E),\n}\n";
        assert_eq!(
            repeated_sources("a.rs", tuple),
            ["a.rs:4: an error that repeats its source: leave it out of #[error(…)]"]
        );
    }
}
