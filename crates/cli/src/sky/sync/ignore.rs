//! What stays behind: `.skyignore` at the top of a folder; where there is none, each `.gitignore` in and below it, and `.git/info/exclude`.

use std::fs;
use std::path::{Path, PathBuf};

/// A line of such a file.
struct Pattern {
    matches: regex::Regex,
    of_folders: bool,
    /// Whether it takes back what earlier lines say.
    negated: bool,
}

/// Patterns, with the folders below which they hold.
pub(super) struct Ignored {
    patterns: Vec<(PathBuf, Pattern)>,
    by_git: bool,
}

impl Ignored {
    /// Patterns that hold in a whole folder. `enter` adds those of the folders in it.
    pub fn of(folder: &Path) -> Self {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let own = read(".skyignore");
        let by_git = own.is_none();
        let text = own.or_else(|| read(".git/info/exclude")).unwrap_or_default();
        let patterns = text.lines().filter_map(pattern).map(|pattern| (PathBuf::new(), pattern)).collect();
        Self { patterns, by_git }
    }

    /// Reads what a folder itself says; `below` is its path from the top.
    pub fn enter(&mut self, folder: &Path, below: &Path) {
        if !self.by_git {
            return;
        }
        let text = fs::read_to_string(folder.join(".gitignore")).unwrap_or_default();
        self.patterns.extend(text.lines().filter_map(pattern).map(|pattern| (below.to_owned(), pattern)));
    }

    /// Whether a path from the top stays behind: the last pattern that matches says.
    pub fn has(&self, path: &Path, is_folder: bool) -> bool {
        let mut ignored = false;
        for (below, pattern) in &self.patterns {
            let Ok(path) = path.strip_prefix(below) else { continue };
            if (is_folder || !pattern.of_folders) && pattern.matches.is_match(&path.to_string_lossy()) {
                ignored = !pattern.negated;
            }
        }
        ignored
    }
}

/// Reads a line (gitignore(5)).
fn pattern(line: &str) -> Option<Pattern> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    // a space at the end counts where a backslash is before it
    let trimmed = line.trim_end_matches(' ');
    let line = if trimmed.ends_with('\\') { line.get(..=trimmed.len()).unwrap_or(line) } else { trimmed };
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (line, negated) = line.strip_prefix('!').map_or((line, false), |rest| (rest, true));
    let (line, of_folders) = line.strip_suffix('/').map_or((line, false), |rest| (rest, true));
    let mut text = if line.contains('/') { "^".to_owned() } else { "(^|/)".to_owned() };
    let mut chars = line.trim_start_matches('/').chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '*' if chars.peek() == Some(&'*') => {
                chars.next();
                text.push_str(if chars.next_if_eq(&'/').is_some() { "(.*/)?" } else { ".*" });
            }
            '*' => text.push_str("[^/]*"),
            '?' => text.push_str("[^/]"),
            '\\' => text.push_str(&regex::escape(&chars.next()?.to_string())),
            '[' => text.push_str(&class(&mut chars)?),
            c => text.push_str(&regex::escape(&c.to_string())),
        }
    }
    text.push('$');
    Some(Pattern { matches: regex::Regex::new(&text).ok()?, of_folders, negated })
}

/// The rest of `[a-z]` or `[!a-z]`; nothing where it has no end.
fn class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<String> {
    let mut text = "[".to_owned();
    if chars.next_if(|c| matches!(c, '!' | '^')).is_some() {
        text.push_str("^/");
    }
    let mut is_first = true;
    loop {
        match chars.next()? {
            ']' if !is_first => break,
            '-' => text.push('-'),
            c => text.push_str(&format!("\\x{{{:x}}}", u32::from(c))),
        }
        is_first = false;
    }
    text.push(']');
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_gits() {
        let of = |lines: &str| Ignored {
            patterns: lines.lines().filter_map(pattern).map(|pattern| (PathBuf::new(), pattern)).collect(),
            by_git: true,
        };
        let ignored = of("# no\n*.pyc\nbuild/\n/top\na/**/z\n!keep.pyc\n\\#hash\nv[0-9].[!a]\nend\\ \nspace  \n");
        for (path, is_folder, is) in [
            ("x.pyc", false, true),
            ("a/x.pyc", false, true),
            ("keep.pyc", false, false),
            ("build", true, true),
            ("build", false, false),
            ("top", false, true),
            ("a/top", false, false),
            ("a/b/c/z", false, true),
            ("a/z", false, true),
            ("train.py", false, false),
            ("#hash", false, true),
            ("v1.b", false, true),
            ("v1.a", false, false),
            ("vx.b", false, false),
            ("end ", false, true),
            ("space", false, true),
        ] {
            assert_eq!(ignored.has(Path::new(path), is_folder), is, "{path}");
        }
    }

    #[test]
    fn a_skyignore_counts_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".gitignore"), "*.log\n").unwrap();
        let has = |name: &str| {
            let mut ignored = Ignored::of(folder.path());
            ignored.enter(folder.path(), Path::new(""));
            ignored.has(Path::new(name), false)
        };
        assert!(has("a.log") && !has("a.tmp"));
        fs::write(folder.path().join(".skyignore"), "*.tmp\n").unwrap();
        assert!(!has("a.log") && has("a.tmp"));
    }
}
