//! What stays behind: `.skyignore` at the top of a folder; where there is none, each `.gitignore` in and below it, and `.git/info/exclude`.

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::path::{Path, PathBuf};

/// The patterns of files, with the folders below which they hold: the outer ones first.
pub(crate) struct Ignored {
    patterns: Vec<(PathBuf, Gitignore)>,
    by_git: bool,
}

/// The patterns of a file. A line that is no pattern is left out; no file has no patterns.
fn patterns(file: &Path) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    let _ = builder.add(file); // what could be read counts
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

impl Ignored {
    /// Patterns that hold in a whole folder. `enter` adds those of the folders in it.
    pub fn of(folder: &Path) -> Self {
        let own = folder.join(".skyignore");
        let by_git = !own.is_file();
        let file = if by_git { folder.join(".git/info/exclude") } else { own };
        Self { patterns: vec![(PathBuf::new(), patterns(&file))], by_git }
    }

    /// Reads what a folder itself says; `below` is its path from the top.
    pub fn enter(&mut self, folder: &Path, below: &Path) {
        if !self.by_git {
            return;
        }
        let read = patterns(&folder.join(".gitignore"));
        if !read.is_empty() {
            self.patterns.push((below.to_owned(), read));
        }
    }

    /// Whether a path from the top stays behind: of the innermost file that has a matching pattern, the last one decides.
    pub fn has(&self, path: &Path, is_folder: bool) -> bool {
        let mut inner = self.patterns.iter().filter_map(|(below, all)| Some((path.strip_prefix(below).ok()?, all)));
        let mut decides = Match::None;
        for (path, patterns) in &mut inner {
            let found = patterns.matched(path, is_folder);
            if !found.is_none() {
                decides = found;
            }
        }
        decides.is_ignore()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn patterns_are_gits() {
        let folder = tempfile::tempdir().unwrap();
        let lines = "# no\n*.pyc\nbuild/\n/top\na/**/z\n!keep.pyc\n\\#hash\nv[0-9].[!a]\nend\\ \nspace  \n[\n";
        fs::write(folder.path().join(".gitignore"), lines).unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::write(folder.path().join("inner/.gitignore"), "!x.pyc\n/y\n").unwrap();
        let mut ignored = Ignored::of(folder.path());
        ignored.enter(folder.path(), Path::new(""));
        ignored.enter(&folder.path().join("inner"), Path::new("inner"));
        for (path, is_folder, is) in [
            ("x.pyc", false, true),
            ("a/x.pyc", false, true),
            ("inner/x.pyc", false, false),
            ("inner/y", false, true),
            ("y", false, false),
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
