//! The target on the disk: its lock, its state, its part files.

use super::sum::Sum;
use crate::plan::error::{Error, Kind};
use crate::plan::names::STATE;
use crate::plan::parts::{Cut, Finished, read_journal};
use crate::plan::restart::{Entry, Found, Line, Record, State, encode};
use crate::plan::verify::{self, Algorithm, Check, Hasher};
use crate::small::{open_own, read_own};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, FallocateFlags, Flock, FlockArg, OFlag, fallocate, open};
use nix::sys::stat::{Mode, SFlag, fstatat, stat};
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A target that is ours alone until this is dropped.
pub struct Folder {
    target: PathBuf,
    state: Mutex<File>,
    _lock: Flock<File>,
}

/// A file in the making.
pub struct PartFile {
    pub file: File,
    pub path: PathBuf,
    journal: Option<File>,
    pub cut: Option<Cut>,
    /// Of one that comes in parts.
    pub sum: Option<Sum>,
}

/// What a failed write means.
pub fn failed(path: &Path, error: &io::Error) -> Error {
    let name = path.display();
    match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
        Errno::ENOSPC | Errno::EDQUOT => Error::new(
            Kind::NoRoom,
            format!(
                "{name}: the disk is full ({error}); make room, then run this again: it continues where it stopped"
            ),
        ),
        Errno::EROFS => {
            Error::new(Kind::Other, format!("{name}: the volume is read-only; mount it so that it can be written"))
        }
        Errno::EACCES | Errno::EPERM => {
            Error::new(Kind::Other, format!("{name}: this user may not write there (uid {})", nix::unistd::geteuid()))
        }
        _ => Error::new(Kind::Other, format!("{name}: {error}")),
    }
}

/// What the state file of a folder told when it was read, nothing where there was none; and how its files were then.
pub struct Seen {
    pub state: State,
    pub target: Target,
    /// Of each file of the state, what was found, if it has been looked at.
    found: Vec<OnceLock<Option<Found>>>,
    /// What tells one content of the state file from another: its inode, length and time.
    mark: Option<(u64, u64, i64)>,
}

/// The longest that a state file and a journal of parts can be: about three million files, about as many parts.
const STATE_MAX: u64 = 1 << 30;
const JOURNAL_MAX: u64 = 64 << 20;

impl Seen {
    /// Reads the state file of a folder.
    ///
    /// # Errors
    /// It is there, and cannot be read.
    pub fn read(target: &Path) -> Result<Self, Error> {
        let path = target.join(STATE).join("state");
        let (state, mark) = match read_own(&path, STATE_MAX) {
            Ok((text, facts)) => (State::read(&text), Some(mark(&facts))),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Default::default(),
            Err(e) => return Err(Error::config(format!("{}: {e}", path.display()))),
        };
        let found = state.files().iter().map(|_| OnceLock::new()).collect();
        Ok(Self { state, target: Target::new(target), found, mark })
    }

    /// Whether the state file is still that which was read.
    pub fn is_current(&self) -> bool {
        let facts = fs::metadata(self.target.path.join(STATE).join("state")).ok();
        facts.as_ref().map(mark) == self.mark
    }

    /// The file that is `at` in the state, as it was when it was first looked at.
    ///
    /// # Errors
    /// As those of `Target::free`.
    pub fn free(&self, at: usize) -> Result<Option<Found>, Error> {
        let Some((known, seen)) = self.state.files().get(at).zip(self.found.get(at)) else { return Ok(None) };
        if let Some(found) = seen.get() {
            return Ok(*found);
        }
        // what is in the way is not kept: it is told to who wants the file
        let found = self.target.free(&known.record.target)?;
        Ok(*seen.get_or_init(|| found))
    }

    /// Looks at all files of the state, the last first: who needs them comes from the other end.
    pub fn look(&self) {
        for at in (0..self.found.len()).rev() {
            let _ = self.free(at);
        }
    }
}

fn mark(facts: &fs::Metadata) -> (u64, u64, i64) {
    (facts.ino(), facts.len(), modified(facts.mtime(), facts.mtime_nsec()))
}

/// The folder that is filled, for looks at its files: from the folder itself on, as the way there takes longer than the look.
pub struct Target {
    pub path: PathBuf,
    folder: Option<OwnedFd>,
}

impl Target {
    pub fn new(path: &Path) -> Self {
        // a name for what is there, if that is a folder: it need not be readable
        let folder = open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty());
        Self { path: path.to_owned(), folder: folder.ok() }
    }

    /// The file of that name, if one is there.
    pub fn found(&self, name: &str) -> Option<Found> {
        self.free(name).ok().flatten()
    }

    /// The same, of a name under which a file is to be.
    ///
    /// # Errors
    /// A folder is there, or a file where a folder of its path should be.
    pub fn free(&self, name: &str) -> Result<Option<Found>, Error> {
        let looked = match &self.folder {
            Some(folder) => fstatat(folder, name, AtFlags::empty()),
            None => stat(&self.path.join(name)),
        };
        let in_the_way = |kind: io::ErrorKind| Err(taken(&self.path.join(name), &kind.into()));
        match looked.map(|facts| (SFlag::from_bits_truncate(facts.st_mode & SFlag::S_IFMT.bits()), facts)) {
            Ok((SFlag::S_IFREG, facts)) => Ok(Some(Found {
                size: u64::try_from(facts.st_size).unwrap_or_default(),
                modified: modified(facts.st_mtime, facts.st_mtime_nsec),
            })),
            Ok((SFlag::S_IFDIR, _)) => in_the_way(io::ErrorKind::IsADirectory),
            Err(Errno::ENOTDIR) => in_the_way(io::ErrorKind::NotADirectory),
            _ => Ok(None),
        }
    }
}

/// Why a file cannot be put in its place.
fn taken(path: &Path, error: &io::Error) -> Error {
    let name = path.display();
    match error.kind() {
        io::ErrorKind::IsADirectory | io::ErrorKind::DirectoryNotEmpty => {
            Error::config(format!("{name}: a folder is where the file should be; move it away, then run this again"))
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => Error::config(format!(
            "{name}: a file is where a folder of its path should be; move it away, then run this again"
        )),
        _ => failed(path, error),
    }
}

fn modified(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// The checksum of a file on the disk.
///
/// # Errors
/// It cannot be read.
pub fn hash(path: &Path, algorithm: Algorithm) -> io::Result<Check> {
    let mut file = File::open(path)?;
    let mut hasher = Hasher::new(algorithm, file.metadata()?.len());
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            n => hasher.update(&buffer[..n]),
        }
    }
}

/// Takes the lock of a target; `None`: another has it.
///
/// # Errors
/// The target cannot be made or written.
pub fn lock(target: &Path, wait: bool) -> Result<Option<Flock<File>>, Error> {
    let state = target.join(STATE);
    let not_made = |e: io::Error| match target.ancestors().find(|path| path.exists() && !path.is_dir()) {
        Some(file) => Error::config(format!(
            "{}: {} is a file, and a folder is to be filled; name another with --into",
            target.display(),
            file.display()
        )),
        None => failed(&state, &e),
    };
    fs::create_dir_all(state.join("part")).map_err(not_made)?;
    let path = state.join("lock");
    let file = open_own(&path, OpenOptions::new().create(true).append(true)).map_err(|e| failed(&path, &e))?;
    let how = if wait { FlockArg::LockExclusive } else { FlockArg::LockExclusiveNonblock };
    match Flock::lock(file, how) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(failed(&path, &errno.into())),
    }
}

impl Folder {
    /// The folder to go on with. The state file is written anew, whole, before anything is added to it.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn open(target: &Path, lock: Flock<File>, state: &State) -> Result<Self, Error> {
        let folder = target.join(STATE);
        let (new, path) = (folder.join("state.new"), folder.join("state"));
        let write = || -> io::Result<File> {
            remove(&new)?;
            let mut file = OpenOptions::new().create_new(true).write(true).open(&new)?;
            file.write_all(&state.write())?;
            file.sync_data()?;
            fs::rename(&new, &path)?;
            Ok(file)
        };
        let file = write().map_err(|e| failed(&path, &e))?;
        Ok(Self { target: target.to_owned(), state: Mutex::new(file), _lock: lock })
    }

    /// # Errors
    /// The disk is full.
    pub fn append(&self, lines: &[Line]) -> Result<(), Error> {
        let text: Vec<u8> = lines.iter().flat_map(encode).collect();
        let mut file = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&text).map_err(|e| failed(&self.target.join(STATE).join("state"), &e))
    }

    /// Brings all that was written to the disk, and says so in the state.
    ///
    /// # Errors
    /// The disk fails.
    pub fn synced(&self, then: &[Line]) -> Result<(), Error> {
        let state = self.target.join(STATE);
        let error = |e: io::Error| failed(&state, &e);
        let root = File::open(&self.target).map_err(error)?;
        nix::unistd::syncfs(&root).map_err(|e| error(e.into()))?;
        self.append(&[&[Line::Synced], then].concat())?;
        self.state.lock().unwrap_or_else(PoisonError::into_inner).sync_data().map_err(error)
    }

    /// Removes what part files are left once nothing needs them.
    pub fn clear_parts(&self) {
        let parts = self.target.join(STATE).join("part");
        for item in fs::read_dir(&parts).into_iter().flatten().flatten() {
            // what stays is found by the next run
            let _ = fs::remove_file(item.path());
        }
    }

    fn part_path(&self, name: &str) -> PathBuf {
        let hash = verify::hex(&Sha256::digest(name.as_bytes())[..16]);
        self.target.join(STATE).join("part").join(hash)
    }

    /// How many bytes of part files are on the disk already.
    pub fn allocated(&self, name: &str) -> u64 {
        fs::metadata(self.part_path(name)).map_or(0, |facts| facts.blocks().saturating_mul(512))
    }

    /// An empty file for content that comes in one go.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn whole(&self, entry: &Entry) -> Result<PartFile, Error> {
        let path = self.part_path(&entry.target);
        let work = || -> io::Result<File> {
            // not what parts are still written to
            for old in [&path.with_extension("journal"), &path] {
                remove(old)?;
            }
            OpenOptions::new().create_new(true).read(true).write(true).open(&path)
        };
        let file = work().map_err(|e| failed(&path, &e))?;
        Ok(PartFile { file, path, journal: None, cut: None, sum: None })
    }

    /// A file for content that comes in parts, and the parts that are there: each was read back, and is what it was.
    /// `anew`: whatever is there belongs to another version, to which late writers may still add.
    ///
    /// # Errors
    /// It cannot be made, or there is no room.
    pub fn parts(&self, entry: &Entry, origin: &str, cut: Cut, anew: bool) -> Result<(PartFile, Vec<u32>), Error> {
        let path = self.part_path(&entry.target);
        let journal_path = path.with_extension("journal");
        let check = entry.check.as_ref().map(|check| check.value.as_str()).unwrap_or_default();
        let version = entry.version.as_deref().unwrap_or_default();
        let identity = serde_json::json!([origin, version, check, cut.size, cut.part]).to_string();
        let work = || -> io::Result<(PartFile, Vec<u32>)> {
            let told = match read_own(&journal_path, JOURNAL_MAX) {
                Ok((journal, _)) if !anew => read_journal(&journal, &identity, cut),
                _ => Vec::new(),
            };
            if told.is_empty() {
                for old in [&journal_path, &path] {
                    remove(old)?;
                }
            }
            let file = open_own(&path, OpenOptions::new().create(true).truncate(false).read(true).write(true))?;
            if file.metadata()?.len() != cut.size {
                reserve(&file, cut.size)?;
            }
            let there: Vec<Finished> =
                told.into_iter().filter(|part| is_there(&file, cut, *part).unwrap_or(false)).collect();
            // written anew, so that a torn record at its end does not shift those that follow
            let mut journal = format!("{identity}\n").into_bytes();
            there.iter().for_each(|part| journal.extend(part.encode()));
            let new = journal_path.with_extension("new");
            remove(&new)?;
            OpenOptions::new().create_new(true).write(true).open(&new)?.write_all(&journal)?;
            fs::rename(new, &journal_path)?;
            let mut journal = OpenOptions::new().write(true).open(&journal_path)?;
            journal.seek(SeekFrom::End(0))?;
            let mut there: Vec<u32> = there.into_iter().map(|part| part.index).collect();
            there.sort_unstable();
            there.dedup();
            let sum = Some(Sum::new(super::piece::algorithm(entry), cut, &there));
            Ok((PartFile { file, path: path.clone(), journal: Some(journal), cut: Some(cut), sum }, there))
        };
        work().map_err(|e| failed(&path, &e))
    }

    /// Records a finished file and puts it in its place.
    ///
    /// # Errors
    /// A folder is there, or a file where a folder is needed.
    pub fn place(&self, part: &PartFile, entry: &Entry, origin: &str, check: Check) -> Result<Record, Error> {
        let path = self.target.join(&entry.target);
        let error = |e: io::Error| taken(&path, &e);
        if path.is_dir() {
            return Err(error(io::ErrorKind::IsADirectory.into()));
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(error)?;
        }
        let facts = part.file.metadata().map_err(error)?;
        let record = Record {
            target: entry.target.clone(),
            origin: origin.to_owned(),
            version: entry.version.clone(),
            size: facts.len(),
            modified: modified(facts.mtime(), facts.mtime_nsec()),
            check,
        };
        // first the record: a file in its place that nothing is known of would be fetched again, a record without its file costs nothing
        self.append(&[Line::File(record.clone())])?;
        fs::rename(&part.path, &path).map_err(error)?;
        if part.journal.is_some() {
            let _ = fs::remove_file(part.path.with_extension("journal")); // without its file it tells nothing
        }
        Ok(record)
    }
}

impl PartFile {
    /// A part's bytes are written: brings them to the disk, then says so. `hasher`: what `sum` wanted counted.
    ///
    /// # Errors
    /// The disk fails or is full.
    pub fn finished(&self, part: Finished, hasher: Option<Hasher>) -> Result<(), Error> {
        let work = || -> io::Result<()> {
            self.file.sync_data()?;
            if let Some(journal) = &self.journal {
                // one write of a few bytes; torn ones are known by their checksum
                (&mut &*journal).write_all(&part.encode())?;
            }
            self.sum.as_ref().map_or(Ok(()), |sum| sum.add(&self.file, part.index, hasher))
        };
        work().map_err(|e| failed(&self.path, &e))
    }
}

/// Removes a file that may not be there.
fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path).or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
}

/// Room for a file, so that a full disk shows at once.
fn reserve(file: &File, size: u64) -> io::Result<()> {
    file.set_len(size)?;
    let length = i64::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?;
    match fallocate(file, FallocateFlags::empty(), 0, length) {
        Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether a part on the disk is what its journal says.
fn is_there(file: &File, cut: Cut, part: Finished) -> io::Result<bool> {
    let range = cut.range(part.index);
    let length = usize::try_from(range.end.saturating_sub(range.start)).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(verify::crc32(&bytes) == part.crc)
}

/// Bytes that may still be written under a path, in the nearest folder that exists.
pub fn room(target: &Path) -> Option<u64> {
    let existing = target.ancestors().find(|path| path.is_dir())?;
    let facts = nix::sys::statvfs::statvfs(existing).ok()?;
    Some(facts.blocks_available().saturating_mul(facts.fragment_size()))
}
