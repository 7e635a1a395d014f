//! Patterns that others write, for questions of yes or no.

use regex_automata::meta;
use regex_automata::nfa::thompson::WhichCaptures;

/// A compiled pattern. It does not say where its groups match: a search for that takes memory for each group in each state, which is
/// gigabytes for a pattern of 20 KB that has nothing but groups.
#[derive(Clone, Debug)]
pub struct Matcher(meta::Regex);

impl Matcher {
    /// From a pattern that compiles to at most `bytes_max`, and keeps at most `cache` bytes of tables for later searches.
    ///
    /// # Errors
    /// It is no pattern, or a larger one.
    pub fn compile(source: &str, bytes_max: usize, cache: usize) -> Result<Self, regex::Error> {
        let config = meta::Config::new()
            .which_captures(WhichCaptures::Implicit)
            .nfa_size_limit(Some(bytes_max))
            .hybrid_cache_capacity(cache);
        meta::Builder::new().configure(config).build(source).map(Self).map_err(|error| {
            match (error.size_limit(), error.syntax_error()) {
                (Some(limit), _) => regex::Error::CompiledTooBig(limit),
                (None, Some(syntax)) => regex::Error::Syntax(syntax.to_string()),
                (None, None) => regex::Error::Syntax(error.to_string()),
            }
        })
    }

    /// Whether it matches somewhere in the text.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident_mib() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() >> 10
    }

    #[test]
    fn groups_cost_no_memory() {
        let before = resident_mib();
        let pattern = Matcher::compile(&"(a*)*".repeat(4000), 10 << 20, 64 << 10).unwrap();
        assert!(pattern.is_match(&"ab".repeat(1000)));
        let grown = resident_mib() - before;
        assert!(grown < 200, "{grown} MiB");
    }

    #[test]
    fn it_matches_and_fails_as_the_library_does() {
        for source in
            ["^a+$", "(a)(b)?", "", "é|[^x]$", "(?i)abc", "\\d{3}", "(", "\\1", "a{1001}", "\\pL{900}", "[z-a]"]
        {
            let theirs = regex::RegexBuilder::new(source).size_limit(1 << 20).build();
            match (Matcher::compile(source, 1 << 20, 64 << 10), theirs) {
                (Ok(ours), Ok(theirs)) => {
                    for text in ["", "a", "aaa", "ab", "ABC", "éx", "x", "123"] {
                        assert_eq!(ours.is_match(text), theirs.is_match(text), "{source:?} in {text:?}");
                    }
                }
                (ours, theirs) => assert_eq!(ours.err(), theirs.err(), "{source:?}"),
            }
        }
    }
}
