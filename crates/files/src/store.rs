//! Parts of files, kept by content: a file per part below a folder, named by the SHA-256 of its bytes.
//!
//! A part is written beside its place and renamed, so a reader finds a whole one or none. It is checked when it is read: after a power
//! failure it may be damaged, which a reader hears of. Parts of one namespace are not found from another.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The SHA-256 of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let found = ring::digest::digest(&ring::digest::SHA256, bytes);
        let mut digest = [0; 32];
        digest.copy_from_slice(found.as_ref());
        Self(digest)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// Some text is no digest: 64 hexadecimal digits.
#[derive(Debug, PartialEq, Eq)]
pub struct NoDigest;

impl FromStr for Digest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let mut digest = [0; 32];
        if text.len() != 64 || !text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(NoDigest);
        }
        for (byte, two) in digest.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let two = std::str::from_utf8(two).map_err(|_| NoDigest)?;
            *byte = u8::from_str_radix(two, 16).map_err(|_| NoDigest)?;
        }
        Ok(Self(digest))
    }
}

/// Parts of one namespace.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
    /// Bytes that were read by this one and its clones.
    read: Arc<AtomicU64>,
}

/// Numbers files that are being written by this process.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// How the names of files end that are being written.
const FRESH: &str = ".new";

impl Store {
    /// That of a namespace below the folder of all of them. The folder need not exist.
    pub fn new(all: &Path, namespace: &str) -> Self {
        Self { folder: all.join(namespace), read: Arc::default() }
    }

    fn path(&self, digest: Digest) -> PathBuf {
        let name = digest.to_string();
        self.folder.join(name.get(..2).unwrap_or_default()).join(name)
    }

    /// Which of these parts are not here. Those that are count as used now, see [`Store::collect`].
    pub fn missing(&self, wanted: &[Digest]) -> Vec<Digest> {
        let now = SystemTime::now();
        let is_missing = |digest: &&Digest| {
            let opened = fs::File::open(self.path(**digest));
            !opened.is_ok_and(|file| file.set_modified(now).is_ok())
        };
        wanted.iter().filter(is_missing).copied().collect()
    }

    /// Keeps a part.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&self, part: &[u8]) -> io::Result<Digest> {
        let digest = Digest::of(part);
        let path = self.path(digest);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let fresh = path.with_extension(format!("{}-{number}{FRESH}", std::process::id()));
        let written = || {
            fs::create_dir_all(path.parent().unwrap_or(&self.folder))?;
            fs::write(&fresh, part)?;
            fs::rename(&fresh, &path)
        };
        written().inspect_err(|_| drop(fs::remove_file(&fresh)))?;
        Ok(digest)
    }

    /// The bytes of a part.
    ///
    /// # Errors
    /// `NotFound` where it is not here, `InvalidData` where its file was damaged.
    pub fn read(&self, digest: Digest) -> io::Result<Vec<u8>> {
        let bytes = fs::read(self.path(digest)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::new(
                io::ErrorKind::NotFound,
                "the control plane does not keep this file any more: run the command again",
            ),
            _ => error,
        })?;
        if Digest::of(&bytes) != digest {
            // the next launch sends it again
            let _ = fs::remove_file(self.path(digest));
            let what = "the file was damaged in the control plane's folder: run the command again";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        self.read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes)
    }

    /// How many bytes of parts were read by this one and its clones.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Removes parts that are not used and have not been for this time, and returns how many bytes those that were removed had.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn collect(&self, used: &BTreeSet<Digest>, unused_for: Duration) -> io::Result<u64> {
        let mut freed = 0_u64;
        for folder in entries(&self.folder)? {
            for file in entries(&folder)? {
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let is_used = name.parse().is_ok_and(|digest: Digest| used.contains(&digest));
                let Ok(meta) = fs::symlink_metadata(&file) else { continue };
                let is_old = meta.modified().ok().and_then(|at| at.elapsed().ok()).is_some_and(|age| age >= unused_for);
                if !is_used && is_old && fs::remove_file(&file).is_ok() {
                    freed = freed.saturating_add(meta.len());
                }
            }
            let _ = fs::remove_dir(&folder); // unless something is in it
        }
        Ok(freed)
    }
}

/// The paths in a folder; none where there is no folder.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        list => list?.map(|entry| Ok(entry?.path())).collect(),
    }
}

/// Parts as they are sent together: before each its length, four bytes with the lowest first.
pub mod together {
    use bytes::{Buf, BufMut, Bytes};

    /// The bytes of parts that are sent together, at most, unless one part alone has more. Within the 3 MiB that a request may have.
    pub const MOST: usize = 2 << 20;

    /// Adds a part.
    pub fn add(body: &mut Vec<u8>, part: &[u8]) {
        body.put_u32_le(u32::try_from(part.len()).unwrap_or(u32::MAX));
        body.extend_from_slice(part);
    }

    /// The parts; `None` where the bytes are no such thing.
    pub fn parts(mut body: Bytes) -> Option<Vec<Bytes>> {
        let mut parts = Vec::new();
        while body.has_remaining() {
            let length = usize::try_from(body.try_get_u32_le().ok()?).ok()?;
            if length > super::super::PART || length > body.len() {
                return None;
            }
            parts.push(body.split_to(length));
        }
        Some(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_are_found_by_content_until_nothing_uses_them() {
        let folder = tempfile::tempdir().unwrap();
        let (store, other) = (Store::new(folder.path(), "a"), Store::new(folder.path(), "b"));
        let digest = store.add(b"abc").unwrap();
        assert_eq!(digest.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!(store.add(b"abc").unwrap(), digest);
        assert_eq!((store.missing(&[digest]), other.missing(&[digest])), (vec![], vec![digest]));
        assert_eq!(store.read(digest).unwrap(), b"abc");
        assert_eq!(other.read(digest).unwrap_err().kind(), io::ErrorKind::NotFound);
        let unused = store.add(b"unused").unwrap();
        assert_eq!(store.collect(&[digest].into(), Duration::from_secs(60)).unwrap(), 0, "it may be used soon");
        assert_eq!(store.collect(&[digest].into(), Duration::ZERO).unwrap(), 6);
        assert_eq!(store.missing(&[digest, unused]), [unused]);
        assert_eq!(other.collect(&BTreeSet::new(), Duration::ZERO).unwrap(), 0, "there is no folder");
    }

    #[test]
    fn a_damaged_part_is_no_part() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path(), "a");
        let digest = store.add(b"abc").unwrap();
        fs::write(store.path(digest), "ab").unwrap();
        assert_eq!(store.read(digest).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(store.missing(&[digest]), [digest]);
    }

    #[test]
    fn what_is_no_digest_is_none() {
        for text in ["", "ab", &"g".repeat(64), &"A".repeat(64), &"é".repeat(32), &format!("../{}", "a".repeat(61))] {
            assert_eq!(text.parse::<Digest>(), Err(NoDigest), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parts_that_are_sent_together_come_apart(all in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..6)) {
            let mut body = Vec::new();
            all.iter().for_each(|part| together::add(&mut body, part));
            let apart: Vec<Vec<u8>> = together::parts(body.clone().into()).unwrap().iter().map(|part| part.to_vec()).collect();
            prop_assert_eq!(&apart, &all);
            if !body.is_empty() {
                body.pop();
                prop_assert!(together::parts(body.into()).is_none_or(|parts| parts.len() < all.len()));
            }
        }

        #[test]
        fn other_bytes_are_refused_or_read(body in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = together::parts(body.into());
        }
    }
}
