//! The list of what was sent to a place on a machine: what of it has to go before more is sent.
//!
//! The machine keeps it in a file, where jobs may write, too. So it is read with a bound, and a path that leads out of its place counts for
//! nothing.

use super::{Entry, Tree};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The most bytes of a machine's lists that are read: about a million files.
pub(super) const LISTED_MAX: u64 = 256 << 20;

/// What is at a place, by the paths below it; the empty path is the place itself.
pub(super) type Listed = BTreeMap<PathBuf, Entry>;

/// The file of the list, below the machine's home.
pub(super) fn file_of(place: &str) -> String {
    format!(".sky/sent/{}", api::stable::digits([place.trim_end_matches('/')]))
}

/// The list as text: as `find` prints it there with `%y %s %T@ %m\0%P\0%l\0`.
pub(super) fn text(listed: &Listed) -> Vec<u8> {
    let one = |(path, entry): (&PathBuf, &Entry)| {
        let (facts, points) = match entry {
            Entry::Folder => ("d 0 0.000000000 755".to_owned(), Path::new("")),
            Entry::Link(points) => ("l 0 0.000000000 777".to_owned(), points.as_path()),
            Entry::File { length, changed: (seconds, nanoseconds), mode } => {
                (format!("f {length} {seconds}.{nanoseconds:09} {mode:o}"), Path::new(""))
            }
        };
        [facts.as_bytes(), path.as_os_str().as_bytes(), points.as_os_str().as_bytes()]
            .map(|field| [field, &[0]].concat())
            .concat()
    };
    listed.iter().flat_map(one).collect()
}

/// Reads such text. What is no entry is left out.
pub(super) fn listed(text: &[u8]) -> Listed {
    let fields: Vec<&[u8]> = text.split(|byte| *byte == 0).collect();
    let entry = |fields: &[&[u8]]| if let [facts, path, points] = fields { entry(facts, path, points) } else { None };
    fields.chunks_exact(3).filter_map(entry).collect()
}

/// Reads the three fields of an entry: `f 12 1700000000.1234567890 644`, a path, what a link points to. `None` where they are none, and for a
/// path that leads out of its place.
pub(super) fn entry(facts: &[u8], path: &[u8], points: &[u8]) -> Option<(PathBuf, Entry)> {
    let path = PathBuf::from(OsStr::from_bytes(path));
    if path.components().any(|part| !matches!(part, Component::Normal(_))) {
        return None;
    }
    let mut facts = std::str::from_utf8(facts).ok()?.split(' ');
    let entry = match facts.next()? {
        "d" => Entry::Folder,
        "l" => Entry::Link(PathBuf::from(OsStr::from_bytes(points))),
        "f" => {
            let length = facts.next()?.parse().ok()?;
            let (seconds, fraction) = facts.next()?.split_once('.')?;
            let nanoseconds: i64 = fraction.get(..9)?.parse().ok()?;
            let mode = u32::from_str_radix(facts.next()?, 8).ok()?;
            Entry::File { length, changed: (seconds.parse().ok()?, nanoseconds), mode }
        }
        _ => return None,
    };
    Some((path, entry))
}

impl Tree {
    /// What is at its place once it is sent.
    pub(super) fn below(&self) -> Listed {
        let place = PathBuf::new();
        match &self.file {
            Some(_) => self.entries.values().map(|entry| (place.clone(), entry.clone())).collect(),
            None => std::iter::once((place, Entry::Folder)).chain(self.entries.clone()).collect(),
        }
    }

    /// What has to go before the tree is sent, deepest first: what was sent before, is there as it was sent (`has`), and was deleted here, or
    /// has become a folder or is none any more.
    pub(super) fn leftovers<'a>(
        &self,
        sent: &'a Listed,
        has: impl Fn(&Path) -> Option<Entry>,
    ) -> Vec<(&'a Path, &'a Entry)> {
        let below = self.below();
        let is_left = |(path, was): &(&PathBuf, &Entry)| {
            let goes = match below.get(*path) {
                Some(now) => (*now == Entry::Folder) != (**was == Entry::Folder),
                // a file that is ignored now was not deleted
                None => self.file.is_some() || self.root.join(path).symlink_metadata().is_err(),
            };
            goes && has(path).as_ref() == Some(was)
        };
        sent.iter().rev().filter(is_left).map(|(path, was)| (path.as_path(), was)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Skipped;
    use super::*;
    use std::fs;

    #[test]
    fn what_was_deleted_here_goes_there_unless_a_job_changed_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("model")).unwrap();
        for name in ["model/x", "data", "kept", "changed", "log"] {
            fs::write(at(name), name).unwrap();
        }
        let list = || Tree::list(folder.path(), &mut Skipped::new()).unwrap();
        let sent = listed(&text(&list().below()));
        assert_eq!(sent.get(Path::new("")), Some(&Entry::Folder));
        assert_eq!(sent.get(Path::new("data")), list().entries.get(Path::new("data")));
        fs::remove_dir_all(at("model")).unwrap();
        fs::write(at("model"), "a file").unwrap();
        fs::remove_file(at("data")).unwrap();
        fs::create_dir(at("data")).unwrap();
        fs::remove_file(at("changed")).unwrap();
        fs::write(at(".gitignore"), "log\n").unwrap();
        let mut has = sent.clone();
        has.insert("changed".into(), Entry::Link("a job's".into()));
        let gone = |tree: &Tree| -> Vec<String> {
            let left = tree.leftovers(&sent, |path| has.get(path).cloned());
            left.into_iter().map(|(path, _)| path.display().to_string()).collect()
        };
        assert_eq!(gone(&list()), ["model/x", "model", "data"]);
        // the place itself is a file by now
        let one = Tree::list(&at("kept"), &mut Skipped::new()).unwrap();
        assert_eq!(gone(&one), ["model/x", "model", "log", "kept", "data", ""]);
        assert_eq!(listed(&text(&one.below())).into_keys().collect::<Vec<_>>(), [PathBuf::new()]);
    }

    #[test]
    fn paths_that_lead_out_of_their_place_count_for_nothing() {
        for path in ["..", "a/../../b", "/etc/passwd"] {
            assert_eq!(listed(format!("f 1 1.000000000 644\0{path}\0\0").as_bytes()), Listed::new(), "{path}");
        }
        let file = Entry::File { length: 1, changed: (1, 0), mode: 0o644 };
        assert_eq!(listed(b"f 1 1.000000000 644\0a/b\0\0x\0y\0\0"), [("a/b".into(), file)].into());
    }
}
