//! What a task brings along: the working directory and local files, as they are to be in the home directories of a cluster's machines.
//!
//! A folder is listed once; each machine gets what it lacks: files whose size, time of change or permissions differ. A machine keeps a list of
//! what was sent to it: what has been deleted here since is deleted there, too, if it is still as it was sent. What a job wrote stays.
//! `here` is for machines whose folders are on this computer, `there` for all others. `ignore` says what stays behind.

pub(super) mod here;
mod ignore;
pub(super) mod there;

use ignore::Ignored;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What was left out, and why: said on stderr.
pub(super) type Skipped = Vec<String>;

/// A file or a folder of this computer, as it was when it was listed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tree {
    /// The folder in which the entries are.
    root: PathBuf,
    /// The file's name, where it is one file.
    file: Option<OsString>,
    /// By their paths below the folder: a folder stands before what is in it.
    entries: BTreeMap<PathBuf, Entry>,
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Folder,
    File {
        length: u64,
        /// When it was changed: seconds and nanoseconds.
        changed: (i64, i64),
        /// Bits of permissions.
        mode: u32,
    },
    Link(PathBuf),
}

fn named(error: io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn entry(meta: &Metadata) -> Entry {
    Entry::File { length: meta.len(), changed: (meta.mtime(), meta.mtime_nsec()), mode: meta.mode() & 0o7777 }
}

impl Tree {
    /// Lists a file, or what is in a folder and not ignored. A link that is named itself is followed; others stay links.
    ///
    /// # Errors
    /// With the path of what cannot be read.
    pub fn list(from: &Path, skipped: &mut Skipped) -> io::Result<Self> {
        let meta = fs::metadata(from).map_err(|error| named(error, from))?;
        if !meta.is_dir() {
            if !meta.is_file() {
                return Err(io::Error::other(format!("{} is neither a file nor a folder", from.display())));
            }
            let name = from.file_name().unwrap_or_default().to_owned();
            let root = from.parent().unwrap_or(from).to_owned();
            return Ok(Self { root, entries: [(PathBuf::from(&name), entry(&meta))].into(), file: Some(name) });
        }
        let mut ignored = Ignored::of(from);
        let mut entries = BTreeMap::new();
        let mut folders: Vec<PathBuf> = vec![PathBuf::new()];
        while let Some(below) = folders.pop() {
            let here = from.join(&below);
            let list = match fs::read_dir(&here) {
                // gone meanwhile
                Err(error) if error.kind() == io::ErrorKind::NotFound && !below.as_os_str().is_empty() => continue,
                list => list.map_err(|error| named(error, &here))?,
            };
            ignored.enter(&here, &below);
            for found in list {
                let below = below.join(found.map_err(|error| named(error, &here))?.file_name());
                let source = from.join(&below);
                let meta = match source.symlink_metadata() {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    meta => meta.map_err(|error| named(error, &source))?,
                };
                let kind = meta.file_type();
                if ignored.has(&below, kind.is_dir()) {
                    continue;
                }
                let what = if kind.is_dir() {
                    folders.push(below.clone());
                    Entry::Folder
                } else if kind.is_symlink() {
                    Entry::Link(fs::read_link(&source).map_err(|error| named(error, &source))?)
                } else if kind.is_file() {
                    entry(&meta)
                } else {
                    skipped.push(format!("{} is {}: left out", source.display(), special(kind)));
                    continue;
                };
                entries.insert(below, what);
            }
        }
        Ok(Self { root: from.to_owned(), file: None, entries })
    }

    /// What was listed.
    pub fn shown(&self) -> String {
        self.file.as_ref().map_or_else(|| self.root.clone(), |name| self.root.join(name)).display().to_string()
    }

    /// The list that a machine keeps of this tree at its place there: paths below that place, an empty one for the place itself.
    fn record(&self) -> Vec<u8> {
        let whole = (Path::new(""), &Entry::Folder);
        let below = |(path, entry): (&'_ PathBuf, &'_ Entry)| match &self.file {
            Some(_) => record(Path::new(""), entry),
            None => record(path, entry),
        };
        let first = self.file.is_none().then(|| record(whole.0, whole.1));
        first.into_iter().chain(self.entries.iter().map(below)).flatten().collect()
    }

    /// What goes before the tree is sent, deepest first: what was sent before, is there as it was sent (`has`), and was deleted here or is no
    /// longer a folder, or no longer something else.
    fn leftovers<'a>(&self, sent: &'a Listed, has: impl Fn(&Path) -> Option<Entry>) -> Vec<(&'a Path, &'a Entry)> {
        let is_folder = |entry: &Entry| matches!(entry, Entry::Folder);
        let is_left = |(path, was): &(&PathBuf, &Entry)| {
            let now = match (path.as_os_str().is_empty(), &self.file) {
                (true, None) => Some(&Entry::Folder),
                (true, Some(name)) => self.entries.get(Path::new(name)),
                (false, None) => self.entries.get(*path),
                (false, Some(_)) => None,
            };
            let goes = match now {
                Some(now) => is_folder(now) != is_folder(was),
                // what is ignored by now was not deleted
                None => self.file.is_some() || self.root.join(path).symlink_metadata().is_err(),
            };
            goes && has(path).as_ref() == Some(was)
        };
        sent.iter().rev().filter(is_left).map(|(path, was)| (path.as_path(), was)).collect()
    }

    /// The entries that a machine lacks, given what it has.
    fn lacking(&self, has: &BTreeMap<PathBuf, Entry>) -> Vec<(&Path, &Entry)> {
        let lacks = |(path, entry): &(&PathBuf, &Entry)| has.get(*path) != Some(*entry);
        self.entries.iter().filter(lacks).map(|(path, entry)| (path.as_path(), entry)).collect()
    }
}

/// What is at a place, by the paths below it.
type Listed = BTreeMap<PathBuf, Entry>;

/// The file of a machine in which it keeps the list of what was sent to a place, below its home.
fn record_of(to: &str) -> String {
    format!(".sky/sent/{}", api::stable::digits([to.trim_end_matches('/')]))
}

/// As `find` prints it there: type, length, time of change and permissions, path, what a link points to, each with a NUL behind it.
fn record(path: &Path, entry: &Entry) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let (facts, points) = match entry {
        Entry::Folder => ("d 0 0.000000000 755".to_owned(), None),
        Entry::Link(points) => ("l 0 0.000000000 777".to_owned(), Some(points)),
        Entry::File { length, changed: (seconds, nanoseconds), mode } => {
            (format!("f {length} {seconds}.{nanoseconds:09} {mode:o}"), None)
        }
    };
    let points = points.map_or(&[][..], |points| points.as_os_str().as_bytes());
    [facts.as_bytes(), path.as_os_str().as_bytes(), points].map(|part| [part, &[0]].concat()).concat()
}

/// Takes apart what `record` and `find` put together.
fn recorded(text: &[u8]) -> Listed {
    use std::os::unix::ffi::OsStrExt;
    let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    let fields: Vec<&[u8]> = text.split(|byte| *byte == 0).collect();
    let of = |three: &[&[u8]]| match three {
        [facts, at, points] => Some((path(at), read(&String::from_utf8_lossy(facts), points)?)),
        _ => None,
    };
    fields.chunks_exact(3).filter_map(of).collect()
}

/// Reads `f 12 1700000000.1234567890 644`.
fn read(facts: &str, points: &[u8]) -> Option<Entry> {
    use std::os::unix::ffi::OsStrExt;
    let mut facts = facts.split(' ');
    match facts.next()? {
        "d" => Some(Entry::Folder),
        "l" => Some(Entry::Link(PathBuf::from(std::ffi::OsStr::from_bytes(points)))),
        "f" => {
            let length = facts.next()?.parse().ok()?;
            let (seconds, fraction) = facts.next()?.split_once('.')?;
            let nanoseconds: i64 = fraction.get(..9)?.parse().ok()?;
            let mode = u32::from_str_radix(facts.next()?, 8).ok()?;
            Some(Entry::File { length, changed: (seconds.parse().ok()?, nanoseconds), mode })
        }
        _ => None,
    }
}

fn special(kind: fs::FileType) -> &'static str {
    match () {
        () if kind.is_socket() => "a socket",
        () if kind.is_fifo() => "a pipe",
        () => "a device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(tree: &Tree) -> Vec<String> {
        tree.entries.keys().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn folders_are_listed_without_what_cannot_be_sent() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/x"), "x").unwrap();
        fs::write(at("a/y.log"), "y").unwrap();
        fs::write(at(".gitignore"), "*.log\n").unwrap();
        fs::write(at("a/b/.gitignore"), "/z\n").unwrap();
        fs::write(at("a/b/z"), "z").unwrap();
        fs::write(at("a/z"), "z").unwrap();
        std::os::unix::fs::symlink("loop", at("loop")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let mut skipped = Skipped::new();
        let tree = Tree::list(folder.path(), &mut skipped).unwrap();
        assert_eq!(paths(&tree), [".gitignore", "a", "a/b", "a/b/.gitignore", "a/b/x", "a/z", "loop"]);
        assert!(matches!(skipped.as_slice(), [one] if one.ends_with("socket is a socket: left out")), "{skipped:?}");
        assert!(Tree::list(&at("loop"), &mut skipped).is_err());
        assert!(Tree::list(&at("nothing"), &mut skipped).unwrap_err().to_string().contains("nothing"));
        assert!(Tree::list(&at("socket"), &mut skipped).is_err());

        let one = Tree::list(&at("a/z"), &mut skipped).unwrap();
        assert_eq!((paths(&one), one.file.clone()), (vec!["z".to_owned()], Some("z".into())));
    }

    #[test]
    fn what_was_deleted_here_goes_there_unless_a_job_changed_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("model")).unwrap();
        for name in ["model/x", "data", "kept", "changed", "log"] {
            fs::write(at(name), name).unwrap();
        }
        let list = || Tree::list(folder.path(), &mut Skipped::new()).unwrap();
        let sent = recorded(&list().record());
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
        assert_eq!(recorded(&one.record()).into_keys().collect::<Vec<_>>(), [PathBuf::new()]);
    }

    #[test]
    fn a_machine_lacks_what_differs() {
        let file = |length, seconds| Entry::File { length, changed: (seconds, 5), mode: 0o644 };
        let list = |entries: &[(&str, Entry)]| {
            entries.iter().map(|(path, entry)| (PathBuf::from(path), entry.clone())).collect()
        };
        let entries =
            list(&[("a", Entry::Folder), ("a/x", file(1, 1)), ("a/y", file(1, 2)), ("l", Entry::Link("x".into()))]);
        let tree = Tree { root: PathBuf::new(), file: None, entries };
        let has = list(&[("a", Entry::Folder), ("a/x", file(1, 1)), ("a/y", file(1, 1)), ("more", file(1, 1))]);
        let lacking: Vec<&Path> = tree.lacking(&has).into_iter().map(|(path, _)| path).collect();
        assert_eq!(lacking, [Path::new("a/y"), Path::new("l")]);
    }
}
