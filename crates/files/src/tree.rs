//! What is to be at a place on the machines: a folder or one file, as a client listed it.

use crate::ignored::Ignored;
use crate::sent::{Listed, fields, record};
use crate::store::Digest;
use crate::{Store, named};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What was left out, and why: a line each.
pub type Skipped = Vec<String>;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
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

impl Entry {
    /// Bytes of a file; 0 for what is none.
    pub(crate) fn length(&self) -> u64 {
        if let Self::File { length, .. } = self { *length } else { 0 }
    }

    /// Of a file, by its metadata.
    pub(crate) fn of_file(meta: &Metadata) -> Self {
        Self::File { length: meta.len(), changed: (meta.mtime(), meta.mtime_nsec()), mode: meta.mode() & 0o7777 }
    }
}

/// A folder or one file, without the bytes of its files: those are named by the digests of their parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The file's name, if this is one file.
    pub(crate) file: Option<OsString>,
    /// By their paths below the folder: a folder stands before what is in it.
    pub(crate) entries: BTreeMap<PathBuf, Entry>,
    /// The parts of each file.
    pub(crate) parts: BTreeMap<PathBuf, Vec<Digest>>,
    /// What stays behind at the client, though it is there: what is left of it on a machine was not deleted.
    pub(crate) ignored: BTreeSet<PathBuf>,
}

/// A folder or a file of this computer, as it was when it was listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The folder in which the entries are.
    pub(crate) root: PathBuf,
    pub(crate) tree: Tree,
}

impl Source {
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
            let entries = [(PathBuf::from(&name), Entry::of_file(&meta))].into();
            return Ok(Self { root, tree: Tree { entries, file: Some(name), ..Tree::default() } });
        }
        let mut ignored = Ignored::of(from);
        let mut tree = Tree::default();
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
                    tree.ignored.insert(below);
                    continue;
                }
                let what = if kind.is_dir() {
                    folders.push(below.clone());
                    Entry::Folder
                } else if kind.is_symlink() {
                    Entry::Link(fs::read_link(&source).map_err(|error| named(error, &source))?)
                } else if kind.is_file() {
                    Entry::of_file(&meta)
                } else {
                    skipped.push(format!("{} is {}: left out", source.display(), special(kind)));
                    tree.ignored.insert(below);
                    continue;
                };
                tree.entries.insert(below, what);
            }
        }
        Ok(Self { root: from.to_owned(), tree })
    }

    /// What was listed.
    pub fn shown(&self) -> String {
        let file = self.tree.file.as_ref();
        file.map_or_else(|| self.root.clone(), |name| self.root.join(name)).display().to_string()
    }
}

fn special(kind: fs::FileType) -> &'static str {
    match () {
        () if kind.is_socket() => "a socket",
        () if kind.is_fifo() => "a pipe",
        () => "a device",
    }
}

/// The most bytes that the list of a tree may have: about a million files.
pub const LIST_MAX: u64 = 256 << 20;

impl Tree {
    /// The list as bytes: records as [`sent`](crate::sent) has them, where the digests of a file's parts stand behind its path. A record
    /// `n` holds the name of the one file, a record `i` what stays behind.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(name) = &self.file {
            record(&mut bytes, b"n", Path::new(name), b"");
        }
        self.ignored.iter().for_each(|path| record(&mut bytes, b"i", path, b""));
        for (path, entry) in &self.entries {
            let (facts, points) = crate::sent::facts(entry);
            match self.parts.get(path) {
                None => record(&mut bytes, facts.as_bytes(), path, points.as_os_str().as_bytes()),
                Some(parts) => {
                    let digests: String = parts.iter().map(Digest::to_string).collect();
                    record(&mut bytes, facts.as_bytes(), path, digests.as_bytes());
                }
            }
        }
        bytes
    }

    /// Reads such bytes.
    ///
    /// # Errors
    /// They are something else, or name a path that leads out of the tree.
    pub fn read(bytes: &[u8]) -> io::Result<Self> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "this is no list of files");
        let mut tree = Self::default();
        for (facts, path, last) in fields(bytes).ok_or_else(wrong)? {
            match facts {
                b"n" => {
                    let name = OsStr::from_bytes(path);
                    if Path::new(name).file_name() != Some(name) {
                        return Err(wrong());
                    }
                    tree.file = Some(name.to_owned());
                }
                b"i" => {
                    tree.ignored.insert(PathBuf::from(OsStr::from_bytes(path)));
                }
                _ => {
                    let (path, entry) = crate::sent::entry(facts, path, last).ok_or_else(wrong)?;
                    if matches!(entry, Entry::File { .. }) {
                        let digests = last.chunks(64).map(|one| std::str::from_utf8(one).ok()?.parse().ok());
                        tree.parts.insert(path.clone(), digests.collect::<Option<_>>().ok_or_else(wrong)?);
                    }
                    tree.entries.insert(path, entry);
                }
            }
        }
        let is_one = tree.file.as_ref().is_none_or(|name| tree.entries.keys().eq([Path::new(name)]));
        // an entry in what is no folder of the tree could lead through a link
        let has_folder = |path: &PathBuf| {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            parent.is_none_or(|parent| tree.entries.get(parent) == Some(&Entry::Folder))
        };
        if !is_one || !tree.entries.keys().all(has_folder) {
            return Err(wrong());
        }
        Ok(tree)
    }

    /// Reads the tree whose list is kept in these parts.
    ///
    /// # Errors
    /// A part is not there, or they are no list.
    pub fn kept(store: &Store, list: &[Digest]) -> io::Result<Self> {
        let mut bytes = Vec::new();
        for digest in list {
            bytes.extend(store.read(*digest)?);
            if bytes.len() as u64 > LIST_MAX {
                return Err(io::Error::other(format!("a list of files is larger than {} MiB", LIST_MAX >> 20)));
            }
        }
        Self::read(&bytes)
    }

    /// All parts of its files.
    pub fn all_parts(&self) -> impl Iterator<Item = Digest> + '_ {
        self.parts.values().flatten().copied()
    }

    /// The bytes of all its files.
    pub fn bytes(&self) -> u64 {
        self.entries.values().map(Entry::length).sum()
    }

    /// The bytes of a file, read from where they are kept.
    pub(crate) fn file<'a>(&self, store: &'a Store, path: &Path) -> KeptFile<'a> {
        let parts = self.parts.get(path).cloned().unwrap_or_default();
        KeptFile { store, parts: parts.into_iter(), now: io::Cursor::default() }
    }

    /// The entries that a machine lacks, given what it has.
    pub(crate) fn lacking(&self, has: &Listed) -> Vec<(&Path, &Entry)> {
        let lacks = |(path, entry): &(&PathBuf, &Entry)| has.get(*path) != Some(*entry);
        self.entries.iter().filter(lacks).map(|(path, entry)| (path.as_path(), entry)).collect()
    }

    /// What is at its place once it is sent.
    pub(crate) fn below(&self) -> Listed {
        let place = PathBuf::new();
        match &self.file {
            Some(_) => self.entries.values().map(|entry| (place.clone(), entry.clone())).collect(),
            None => std::iter::once((place, Entry::Folder)).chain(self.entries.clone()).collect(),
        }
    }

    /// What has to go before the tree is sent, deepest first: what was sent before, is there as it was sent (`has`), and was deleted by the
    /// client, or has become a folder or is none any more.
    pub(crate) fn leftovers<'a>(
        &self,
        sent: &'a Listed,
        has: impl Fn(&Path) -> Option<Entry>,
    ) -> Vec<(&'a Path, &'a Entry)> {
        let below = self.below();
        let is_left = |(path, was): &(&PathBuf, &Entry)| {
            let goes = match below.get(*path) {
                Some(now) => (*now == Entry::Folder) != (**was == Entry::Folder),
                // a file that is ignored now was not deleted
                None => self.file.is_some() || !path.ancestors().any(|above| self.ignored.contains(above)),
            };
            goes && has(path).as_ref() == Some(was)
        };
        sent.iter().rev().filter(is_left).map(|(path, was)| (path.as_path(), was)).collect()
    }
}

/// A file that is read part by part.
pub(crate) struct KeptFile<'a> {
    store: &'a Store,
    parts: std::vec::IntoIter<Digest>,
    now: io::Cursor<Vec<u8>>,
}

impl Read for KeptFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.now.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            match self.parts.next() {
                None => return Ok(0),
                Some(digest) => self.now = io::Cursor::new(self.store.read(digest)?),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(source: &Source) -> Vec<String> {
        source.tree.entries.keys().map(|path| path.display().to_string()).collect()
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
        let source = Source::list(folder.path(), &mut skipped).unwrap();
        assert_eq!(paths(&source), [".gitignore", "a", "a/b", "a/b/.gitignore", "a/b/x", "a/z", "loop"]);
        let ignored = ["a/b/z", "a/y.log", "socket"].map(PathBuf::from);
        assert_eq!(source.tree.ignored, ignored.into());
        assert!(matches!(skipped.as_slice(), [one] if one.ends_with("socket is a socket: left out")), "{skipped:?}");
        assert!(Source::list(&at("loop"), &mut skipped).is_err());
        assert!(Source::list(&at("nothing"), &mut skipped).unwrap_err().to_string().contains("nothing"));
        assert!(Source::list(&at("socket"), &mut skipped).is_err());

        let one = Source::list(&at("a/z"), &mut skipped).unwrap();
        assert_eq!((paths(&one), one.tree.file.clone()), (vec!["z".to_owned()], Some("z".into())));
    }

    fn file(length: u64, seconds: i64) -> Entry {
        Entry::File { length, changed: (seconds, 5), mode: 0o644 }
    }

    fn list(entries: &[(&str, Entry)]) -> Listed {
        entries.iter().map(|(path, entry)| (PathBuf::from(path), entry.clone())).collect()
    }

    #[test]
    fn a_machine_lacks_what_differs() {
        let entries =
            list(&[("a", Entry::Folder), ("a/x", file(1, 1)), ("a/y", file(1, 2)), ("l", Entry::Link("x".into()))]);
        let tree = Tree { entries, ..Tree::default() };
        let has = list(&[("a", Entry::Folder), ("a/x", file(1, 1)), ("a/y", file(1, 1)), ("more", file(1, 1))]);
        let lacking: Vec<&Path> = tree.lacking(&has).into_iter().map(|(path, _)| path).collect();
        assert_eq!(lacking, [Path::new("a/y"), Path::new("l")]);
    }

    #[test]
    fn a_list_is_read_as_it_was_written_and_never_leads_out_of_its_tree() {
        let (one, two) = (Digest::of(b"one"), Digest::of(b"two"));
        let mut tree = Tree {
            entries: list(&[
                ("a", Entry::Folder),
                ("a/x y\n", file(7, 1)),
                ("empty", file(0, 1)),
                ("l", Entry::Link("../x".into())),
            ]),
            parts: [("a/x y\n".into(), vec![one, two]), ("empty".into(), vec![])].into(),
            ignored: ["log".into()].into(),
            file: None,
        };
        assert_eq!(Tree::read(&tree.to_bytes()).unwrap(), tree);
        assert_eq!(tree.bytes(), 7);
        tree.entries.insert("l/through".into(), file(1, 1));
        tree.parts.insert("l/through".into(), vec![one]);
        assert!(Tree::read(&tree.to_bytes()).is_err());
        for path in ["../x", "/x", "nowhere/x"] {
            let tree = Tree { entries: list(&[(path, Entry::Folder)]), ..Tree::default() };
            assert!(Tree::read(&tree.to_bytes()).is_err(), "{path}");
        }
        for name in ["..", "a/b", ""] {
            let tree = Tree { entries: list(&[("z", file(1, 1))]), file: Some(name.into()), ..Tree::default() };
            assert!(Tree::read(&tree.to_bytes()).is_err(), "{name}");
        }
        assert!(Tree::read(b"no list").is_err());
    }
}
