//! What a task brings along: the working directory and local files, as they are to be in the home directories of a cluster's machines.
//!
//! A folder is listed once; each machine gets what it lacks: files whose size, time of change or permissions differ. A machine keeps a list of
//! what was sent to it: what has been deleted here since is deleted there, too, if it is still as it was sent. What a job wrote stays.
//! `here` is for machines whose folders are on this computer, `there` for all others. `sent` is the machine's list, `ignore` says what stays behind.

pub(super) mod here;
mod ignore;
mod sent;
pub(super) mod there;

use ignore::Ignored;
use sent::Listed;
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

    /// The entries that a machine lacks, given what it has.
    fn lacking(&self, has: &Listed) -> Vec<(&Path, &Entry)> {
        let lacks = |(path, entry): &(&PathBuf, &Entry)| has.get(*path) != Some(*entry);
        self.entries.iter().filter(lacks).map(|(path, entry)| (path.as_path(), entry)).collect()
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
