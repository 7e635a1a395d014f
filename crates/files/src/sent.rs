//! The list of what was sent to a place on a machine: what of it has to go before more is sent.
//!
//! The machine keeps it in a file, where jobs may write, too. So it is read with a bound, and a path that leads out of its place counts for
//! nothing.

use crate::Entry;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The most bytes of a machine's lists that are read: about a million files.
pub(crate) const LISTED_MAX: u64 = 256 << 20;

/// What is at a place, by the paths below it; the empty path is the place itself.
pub(crate) type Listed = BTreeMap<PathBuf, Entry>;

/// The file of the list, below the machine's home.
pub(crate) fn file_of(place: &str) -> String {
    format!(".sky/sent/{}", api::stable::digits([place.trim_end_matches('/')]))
}

/// The first and the last field of an entry's record.
pub(crate) fn facts(entry: &Entry) -> (String, &Path) {
    match entry {
        Entry::Folder => ("d 0 0.000000000 755".to_owned(), Path::new("")),
        Entry::Link(points) => ("l 0 0.000000000 777".to_owned(), points.as_path()),
        Entry::File { length, changed: (seconds, nanoseconds), mode } => {
            (format!("f {length} {seconds}.{nanoseconds:09} {mode:o}"), Path::new(""))
        }
    }
}

/// Adds a record: three fields, a NUL behind each.
pub(crate) fn record(to: &mut Vec<u8>, facts: &[u8], path: &Path, last: &[u8]) {
    for field in [facts, path.as_os_str().as_bytes(), last] {
        to.extend_from_slice(field);
        to.push(0);
    }
}

/// The three fields of a record.
pub(crate) type Fields<'a> = (&'a [u8], &'a [u8], &'a [u8]);

/// The records in these bytes; `None` where they end within one.
pub(crate) fn fields(bytes: &[u8]) -> Option<Vec<Fields<'_>>> {
    let mut all = Vec::new();
    let mut fields = bytes.split(|byte| *byte == 0).peekable();
    loop {
        let first = fields.next()?;
        if fields.peek().is_none() {
            // behind the last NUL is nothing
            return first.is_empty().then_some(all);
        }
        all.push((first, fields.next()?, fields.next()?));
    }
}

/// The list as text: as `find` prints it there with `%y %s %T@ %m\0%P\0%l\0`.
pub(crate) fn text(listed: &Listed) -> Vec<u8> {
    let mut text = Vec::new();
    for (path, entry) in listed {
        let (facts, points) = facts(entry);
        record(&mut text, facts.as_bytes(), path, points.as_os_str().as_bytes());
    }
    text
}

/// Reads such text. What is no entry is left out.
pub(crate) fn listed(text: &[u8]) -> Listed {
    let fields: Vec<&[u8]> = text.split(|byte| *byte == 0).collect();
    let entry = |fields: &[&[u8]]| if let [facts, path, points] = fields { entry(facts, path, points) } else { None };
    fields.chunks_exact(3).filter_map(entry).collect()
}

/// Reads the three fields of an entry: `f 12 1700000000.1234567890 644`, a path, what a link points to. `None` where they are none, and for a
/// path that leads out of its place.
pub(crate) fn entry(facts: &[u8], path: &[u8], points: &[u8]) -> Option<(PathBuf, Entry)> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Skipped, Source, Tree};
    use std::fs;

    #[test]
    fn what_was_deleted_here_goes_there_unless_a_job_changed_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("model")).unwrap();
        for name in ["model/x", "data", "kept", "changed", "log"] {
            fs::write(at(name), name).unwrap();
        }
        let list = || Source::list(folder.path(), &mut Skipped::new()).unwrap().tree;
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
        let one = Source::list(&at("kept"), &mut Skipped::new()).unwrap().tree;
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
