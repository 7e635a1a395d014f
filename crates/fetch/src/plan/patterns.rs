//! Patterns as Python's `fnmatch.fnmatchcase` reads them: on whole paths, `*` crosses slashes, case counts.

use std::collections::BTreeSet;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Char(char),
    Any,
    Star,
    Class { negated: bool, ranges: Vec<(char, char)> },
}

/// One pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    tokens: Vec<Token>,
}

impl Pattern {
    pub fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let mut tokens = Vec::new();
        let mut at = 0;
        while let Some(&c) = chars.get(at) {
            at += 1;
            match c {
                '*' if tokens.last() == Some(&Token::Star) => {}
                '*' => tokens.push(Token::Star),
                '?' => tokens.push(Token::Any),
                '[' => match class_end(&chars, at) {
                    Some(end) => {
                        tokens.push(class(&chars[at..end]));
                        at = end + 1;
                    }
                    None => tokens.push(Token::Char('[')),
                },
                c => tokens.push(Token::Char(c)),
            }
        }
        Self { text: text.to_owned(), tokens }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn matches(&self, path: &str) -> bool {
        let path: Vec<char> = path.chars().collect();
        let (mut token, mut at) = (0, 0);
        // where to go on when what follows the last star does not fit
        let mut star: Option<(usize, usize)> = None;
        loop {
            match self.tokens.get(token) {
                Some(Token::Star) => {
                    star = Some((token + 1, at));
                    token += 1;
                    continue;
                }
                Some(one) if path.get(at).is_some_and(|c| one.takes(*c)) => {
                    token += 1;
                    at += 1;
                    continue;
                }
                None if at == path.len() => return true,
                _ => {}
            }
            match star {
                Some((after, from)) if from < path.len() => {
                    star = Some((after, from + 1));
                    (token, at) = (after, from + 1);
                }
                _ => return false,
            }
        }
    }
}

impl Token {
    fn takes(&self, c: char) -> bool {
        match self {
            Token::Char(own) => *own == c,
            Token::Any => true,
            Token::Star => false,
            Token::Class { negated, ranges } => ranges.iter().any(|(a, b)| (*a..=*b).contains(&c)) != *negated,
        }
    }
}

/// The index of the bracket that closes a class; one that comes first is a member.
fn class_end(chars: &[char], start: usize) -> Option<usize> {
    let mut at = start;
    if chars.get(at) == Some(&'!') {
        at += 1;
    }
    if chars.get(at) == Some(&']') {
        at += 1;
    }
    chars.iter().skip(at).position(|c| *c == ']').map(|found| at + found)
}

/// What stands between brackets. A range whose end comes before its start takes nothing, and its neighbours stay.
fn class(stuff: &[char]) -> Token {
    let negated = stuff.first() == Some(&'!');
    let body = if negated { &stuff[1..] } else { stuff };
    // at each hyphen that has a character on both sides, and is not such a character itself, a range
    let mut chunks: Vec<Vec<char>> = Vec::new();
    let (mut from, mut look) = (0, 1);
    while let Some(hyphen) = body.iter().skip(look).position(|c| *c == '-').map(|found| look + found) {
        chunks.push(body[from..hyphen].to_vec());
        from = hyphen + 1;
        look = hyphen + 3;
    }
    let rest = body.get(from..).unwrap_or_default().to_vec();
    match chunks.last_mut() {
        Some(last) if rest.is_empty() => last.push('-'),
        _ => chunks.push(rest),
    }
    for k in (1..chunks.len()).rev() {
        let (last, first) = (chunks[k - 1].last().copied(), chunks[k].first().copied());
        if last > first {
            let tail = chunks.remove(k);
            let chunk = &mut chunks[k - 1];
            chunk.pop();
            chunk.extend(tail.into_iter().skip(1));
        }
    }
    let mut ranges = Vec::new();
    for (k, chunk) in chunks.iter().enumerate() {
        let ends_range = k > 0;
        let starts_range = k + 1 < chunks.len();
        for (i, c) in chunk.iter().enumerate() {
            if !(ends_range && i == 0 || starts_range && i + 1 == chunk.len()) {
                ranges.push((*c, *c));
            }
        }
        if let (true, Some(a), Some(b)) = (starts_range, chunk.last(), chunks.get(k + 1).and_then(|c| c.first())) {
            ranges.push((*a, *b));
        }
    }
    Token::Class { negated, ranges }
}

/// Which names are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// `None`: all.
    allow: Option<Vec<Pattern>>,
    ignore: Vec<Pattern>,
}

impl Filter {
    /// `folders`: a pattern that ends in a slash means all below it, as the hub's client has it.
    pub fn new(allow: Option<&[String]>, ignore: &[String], folders: bool) -> Self {
        let pattern = |text: &String| match text.ends_with('/') && folders {
            true => Pattern::new(&format!("{text}*")),
            false => Pattern::new(text),
        };
        Self {
            allow: allow.map(|list| list.iter().map(pattern).collect()),
            ignore: ignore.iter().map(pattern).collect(),
        }
    }

    pub fn wants(&self, path: &str) -> bool {
        let allowed = self.allow.as_ref().is_none_or(|list| list.iter().any(|pattern| pattern.matches(path)));
        allowed && !self.ignore.iter().any(|pattern| pattern.matches(path))
    }

    /// Which patterns match some of `all`, for [`Tally::idle`].
    pub fn tally<'a>(&self, all: impl Iterator<Item = &'a str>) -> Tally {
        let mut open: Vec<&Pattern> = self.allow.iter().flatten().chain(&self.ignore).collect();
        let mut tally = Tally::default();
        for path in all {
            // most patterns match soon, and are not looked at again
            if open.is_empty() {
                break;
            }
            open.retain(|pattern| {
                let matches = pattern.matches(path);
                if matches {
                    tally.matched.insert(pattern.text.clone());
                }
                !matches
            });
            tally.names = true;
        }
        tally
    }

    /// When nothing of `all` is wanted: the patterns that did it, for a warning.
    pub fn why_nothing<'a>(&self, all: impl Iterator<Item = &'a str>) -> String {
        let mut guilty = BTreeSet::new();
        let mut unlisted = false;
        for path in all {
            match self.ignore.iter().find(|pattern| pattern.matches(path)) {
                Some(pattern) => _ = guilty.insert(pattern.text()),
                None => unlisted = true,
            }
        }
        let list = |patterns: Vec<&str>| patterns.join(", ");
        match (guilty.is_empty(), unlisted) {
            (false, false) => format!("IGNORE_PATTERNS {} takes every name", list(guilty.into_iter().collect())),
            _ => {
                let allow = self.allow.iter().flatten().map(Pattern::text).collect();
                format!("no name that is left matches {}", list(allow))
            }
        }
    }
}

/// Which patterns have matched a name so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    matched: BTreeSet<String>,
    /// There was a name.
    names: bool,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.matched.extend(other.matched);
        self.names |= other.names;
    }

    /// Those of a variable's patterns that have matched nothing, though there were names. A slash at the end may mean a folder.
    pub fn idle<'a>(&self, given: &'a [String]) -> Vec<&'a str> {
        let matched = |text: &String| self.matched.contains(text) || self.matched.contains(&format!("{text}*"));
        given.iter().filter(|text| self.names && !matched(text)).map(String::as_str).collect()
    }
}

/// A list in a variable: at commas, trimmed, without empty ones.
pub fn split(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|pattern| !pattern.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pattern, path, and what Python 3.11 says.
    #[rustfmt::skip]
    const PYTHON: &[(&str, &str, bool)] = &[
        ("*.png", "images/a.png", true), ("*.png", "images/B.PNG", false), ("config.json", "a/config.json", false),
        ("a*b*c", "axxbyyc", true), ("a*b*c", "axxbyy", false), ("", "", true), ("*", "", true), ("?", "", false),
        ("?", "ü", true), ("*\n", "a\n", true), ("[", "[", true), ("[a", "[a", true), ("[]", "[]", true),
        ("[]]", "]", true), ("[!]]", "]", false), ("[!]]", "a", true), ("[!a]", "a", false), ("[^a]", "a", true),
        ("[^a]", "^", true), ("[a-c]", "b", true), ("[c-a]", "b", false), ("[c-a]x", "cx", false), ("[a-]", "-", true),
        ("[-a]", "-", true), ("[--0]", ".", true), ("[a-c-e]", "-", true), ("[a-c-e]", "d", false), ("[b-ac]", "c", true),
        ("[!b-a]", "x", true), ("[b-a]", "b", false), ("odd names/*[[]1]*", "odd names/ü [1] 100%.txt", true),
        ("[\\]", "\\", true), ("data/train-0000[0]*", "data/train-00001-of-00002", false), ("[!]", "[!]", true),
        ("**/x", "a/b/x", true), ("a?c", "a/c", true), ("[a-z-9]", "9", true), ("[z-a-c]", "b", false), ("[z-a-c]", "-", true),
    ];

    #[test]
    fn patterns_match_as_pythons_do() {
        for (pattern, path, expected) in PYTHON {
            assert_eq!(Pattern::new(pattern).matches(path), *expected, "{pattern:?} {path:?}");
        }
    }

    #[test]
    fn a_slash_at_the_end_means_a_folder_at_the_hub_alone() {
        let list = split(" meta/ , ,*.tmp,");
        assert_eq!(list, ["meta/", "*.tmp"]);
        assert!(!Filter::new(None, &list, true).wants("meta/deep/x"));
        assert!(Filter::new(None, &list, false).wants("meta/deep/x"));
        let only = Filter::new(Some(&split("*.json")), &split("a/*"), true);
        assert!(only.wants("b/x.json") && !only.wants("a/x.json") && !only.wants("b/x.bin"));
    }

    #[test]
    fn patterns_that_match_nothing_are_known() {
        let (allow, ignore) = (split("*.json,*.safetensor,data/"), split("*.bin,[x"));
        let filter = Filter::new(Some(&allow), &ignore, true);
        let mut tally = filter.tally(["a.json", "x.bin"].into_iter());
        assert_eq!((tally.idle(&allow), tally.idle(&ignore)), (vec!["*.safetensor", "data/"], vec!["[x"]));
        tally.add(filter.tally(["data/x", "[x"].into_iter()));
        assert_eq!((tally.idle(&allow), tally.idle(&ignore)), (vec!["*.safetensor"], vec![]));
        assert!(filter.tally(std::iter::empty()).idle(&allow).is_empty(), "of nothing, nothing is said");
        // without folders a slash at the end is a slash
        let plain = Filter::new(None, &split("data/"), false);
        assert_eq!(plain.tally(["data/x"].into_iter()).idle(&split("data/")), ["data/"]);
    }

    #[test]
    fn what_left_nothing_is_named() {
        let filter = Filter::new(None, &split("*.a,*.b,*.c"), false);
        assert_eq!(filter.why_nothing(["x.a", "y.b"].into_iter()), "IGNORE_PATTERNS *.a, *.b takes every name");
        let filter = Filter::new(Some(&split("*.json,*.txt")), &[], true);
        assert_eq!(filter.why_nothing(["x.a"].into_iter()), "no name that is left matches *.json, *.txt");
    }
}
