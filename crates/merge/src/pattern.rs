//! Patterns of schemas and rules, compiled: what they may take in memory, and what a match may cost.
//!
//! A pattern of a few letters may compile to 10 MiB (`\pL{300}`), and in the worst case a match costs as many steps as the product of
//! its states and the text's length. Definitions hold thousands of patterns; so those in use are kept within a bound, and each says its size.

use api::pattern::Matcher;
use objects::memo::Memo;
use regex_automata::nfa::thompson::{Compiler, Config, WhichCaptures};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most bytes that one pattern may compile to.
const BYTES_MAX: usize = 10 << 20;

/// What a pattern keeps for its next matches, bytes.
const CACHE_BYTES: usize = 64 << 10;

/// Bytes of patterns that are kept compiled. A pattern counts with its automaton thrice: the library keeps it forwards and backwards, and
/// searches with tables of its states.
static COMPILED: Memo<Result<Arc<Pattern>, regex::Error>> = Memo::new(128 << 20);

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    matcher: Matcher,
    states: usize,
    bytes: usize,
}

impl Pattern {
    /// From the memory of those in use, where it is there.
    ///
    /// # Errors
    /// It is no pattern, or a larger one than 10 MiB compiled.
    pub fn compile(source: &str) -> Result<Arc<Self>, regex::Error> {
        if let Some(known) = Self::known(source) {
            return known;
        }
        let made = Matcher::compile(source, BYTES_MAX, CACHE_BYTES);
        let (result, bytes) = match made {
            Err(error) => (Err(error), source.len()),
            Ok(matcher) => {
                let config = Config::new().nfa_size_limit(Some(BYTES_MAX)).which_captures(WhichCaptures::Implicit);
                // what the library compiles this compiles, too
                let (states, bytes) = match Compiler::new().configure(config).build(source) {
                    Ok(automaton) => (automaton.states().len(), automaton.memory_usage()),
                    Err(_) => (BYTES_MAX, BYTES_MAX),
                };
                (Ok(Arc::new(Self { matcher, states, bytes })), bytes.saturating_mul(3).saturating_add(CACHE_BYTES))
            }
        };
        COMPILED.keep_of(source, result.clone(), bytes);
        result
    }

    /// What [`Pattern::compile`] would give, if it need not compile.
    pub fn known(source: &str) -> Option<Result<Arc<Self>, regex::Error>> {
        COMPILED.recall(source)
    }

    pub fn is_match(&self, text: &str) -> bool {
        self.matcher.is_match(text)
    }

    /// Most steps that a match of a text of so many bytes takes.
    pub fn steps(&self, bytes: usize) -> u64 {
        u64::try_from(self.states).unwrap_or(u64::MAX).saturating_mul(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

/// Most bytes that all patterns of a schema compile to together.
const TOGETHER_MAX: usize = 2 * BYTES_MAX;

/// Compiles patterns of a schema, each once, while they are not too large together; whether they are.
pub(crate) fn too_large<'a>(sources: impl Iterator<Item = &'a str>) -> bool {
    larger_than(TOGETHER_MAX, sources)
}

fn larger_than<'a>(most: usize, sources: impl Iterator<Item = &'a str>) -> bool {
    let mut bytes = 0usize;
    sources.collect::<BTreeSet<_>>().into_iter().any(|source| {
        bytes = bytes.saturating_add(match Pattern::compile(source) {
            Ok(pattern) => pattern.bytes,
            Err(regex::Error::CompiledTooBig(_)) => BYTES_MAX,
            Err(_) => source.len(),
        });
        bytes > most
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_say_how_large_they_are() {
        let of = |source: &str| Pattern::compile(source).unwrap();
        assert!(of("^[a-z]+$").states < 20 && of("^[a-z]+$").bytes < 4096);
        assert!(of("[ab]{900}").states > 900 && of("\\pL{5}").bytes > 20_000);
        assert!(Pattern::compile("(").is_err());
        assert!(of("^[a-z]+$").is_match("abc") && !of("^[a-z]+$").is_match("a1"));
        assert!(of("[ab]{900}").steps(10) > 9000);
    }

    #[test]
    fn patterns_of_a_schema_are_bounded_together() {
        let large: Vec<String> = (0..20).map(|i| format!("{i}[ab]{{100}}")).collect();
        let one = Pattern::compile(&large[0]).unwrap().bytes;
        let of = |n: usize| larger_than(5 * one, large.iter().take(n).map(String::as_str));
        assert!(!of(2) && of(20));
        assert!(!larger_than(5 * one, std::iter::repeat_n(large[0].as_str(), 1000)));
    }
}
