//! A pod's directory: everything that is known about a pod on this machine, readable by whichever program comes next.
//!
//! ```text
//! <data>/pods/<uid>/
//!   pod.json        the pod as it was when it was started; once its object is gone, as it was last
//!   launch.json     what the shim runs (written last, by rename: its presence means "ready to run")
//!   journal.jsonl   what happened (appended and synced by the shim)
//!   lock            held (a POSIX record lock) by the living shim
//!   sock            the shim's socket
//!   shim.log        what the shim itself has to complain about
//!   hosts           the pod's /etc/hosts
//!   entered         there once the pod has entered another one by ssh
//!   volumes/<name>/ the pod's volumes
//!   containers/<container>/<attempt>.log[.<n>]  logs, the highest n being the newest rotated one
//!   containers/<container>/termination-log
//!   containers/<container>/work/                the working directory
//! ```

use crate::wire::{Held, Launch, PROTOCOL, Record};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A pod was started by a later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the pod was started by a newer trainyard: its shim speaks protocol {protocol}, this one ({}) speaks {PROTOCOL} and older; the \
     pod is left alone, start the newer one again to see to it",
    env!("CARGO_PKG_VERSION")
)]
pub struct TooNew {
    pub protocol: u32,
}

/// The paths of one pod's directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodDir {
    path: PathBuf,
}

impl PodDir {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The directory of the pod with this uid, under the agent's data directory.
    pub fn of(data: &Path, uid: &str) -> Self {
        Self::new(data.join("pods").join(uid))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The agent's data directory.
    pub fn data(&self) -> Option<&Path> {
        self.path.parent()?.parent()
    }

    /// The pod's uid: the directory's name.
    pub fn uid(&self) -> String {
        self.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
    }

    pub fn pod(&self) -> PathBuf {
        self.path.join("pod.json")
    }

    pub fn launch(&self) -> PathBuf {
        self.path.join("launch.json")
    }

    pub fn journal(&self) -> PathBuf {
        self.path.join("journal.jsonl")
    }

    pub fn lock(&self) -> PathBuf {
        self.path.join("lock")
    }

    pub fn socket(&self) -> PathBuf {
        self.path.join("sock")
    }

    pub fn shim_log(&self) -> PathBuf {
        self.path.join("shim.log")
    }

    pub fn hosts(&self) -> PathBuf {
        self.path.join("hosts")
    }

    /// There once the pod has entered another one by ssh.
    pub fn entered(&self) -> PathBuf {
        self.path.join("entered")
    }

    /// An empty directory on which the shim builds mounts before it moves them into place.
    pub fn stage(&self) -> PathBuf {
        self.path.join("stage")
    }

    pub fn volume(&self, name: &str) -> PathBuf {
        self.path.join("volumes").join(name)
    }

    pub fn containers(&self) -> PathBuf {
        self.path.join("containers")
    }

    pub fn container(&self, name: &str) -> PathBuf {
        self.containers().join(name)
    }

    pub fn work(&self, container: &str) -> PathBuf {
        self.container(container).join("work")
    }

    pub fn termination_log(&self, container: &str) -> PathBuf {
        self.container(container).join("termination-log")
    }

    /// The newest log file of an attempt; rotated ones have `.<n>` appended.
    pub fn log(&self, container: &str, attempt: u32) -> PathBuf {
        self.container(container).join(format!("{attempt}.log"))
    }

    /// Creates the directory, readable by its owner only: secrets lie in it.
    pub fn create(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path)
    }

    /// Removes the directory and all in it; absent is fine.
    pub fn remove(&self) -> io::Result<()> {
        match removal::remove_dir_all(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// The launch description, `None` if the pod was never made ready to run.
    ///
    /// # Errors
    /// It cannot be read, or is of a later version than this program's.
    pub fn read_launch(&self) -> io::Result<Option<Launch>> {
        let Some(bytes) = self.launch_bytes()? else { return Ok(None) };
        if let Ok(held) = serde_json::from_slice::<Held>(&bytes)
            && held.protocol > PROTOCOL
        {
            return Err(io::Error::other(TooNew { protocol: held.protocol }));
        }
        serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other)
    }

    /// What the pod holds of the machine, whatever version started it; `None` if it was never made ready to run.
    pub fn read_held(&self) -> io::Result<Option<Held>> {
        let bytes = self.launch_bytes()?;
        bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose().map_err(io::Error::other)
    }

    fn launch_bytes(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.launch()) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Writes a file of the pod directory durably and all at once.
    pub fn write_whole(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let tmp = path.with_extension("tmp");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&tmp)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(&tmp, path)
    }

    /// Whether a shim is alive, and its pid.
    pub fn shim(&self) -> io::Result<Option<i32>> {
        let file = match File::open(self.lock()) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut lock = whole_file_lock();
        fcntl(file.as_fd(), FcntlArg::F_GETLK(&mut lock))?;
        Ok((lock.l_type != libc::F_UNLCK as libc::c_short).then_some(lock.l_pid))
    }

    /// Takes the shim's lock, for as long as the file is open. `None`: another shim has it.
    pub fn take_lock(&self) -> io::Result<Option<File>> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(self.lock())?;
        match fcntl(file.as_fd(), FcntlArg::F_SETLK(&whole_file_lock())) {
            Ok(_) => Ok(Some(file)),
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// All complete records of the journal, oldest first; a torn last line is left out.
    pub fn read_journal(&self) -> io::Result<Vec<Record>> {
        let mut reader = JournalReader::new(self.clone());
        reader.read()?;
        Ok(reader.records)
    }
}

fn whole_file_lock() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Reads a growing journal.
#[derive(Debug)]
pub struct JournalReader {
    dir: PodDir,
    offset: usize,
    pub records: Vec<Record>,
}

impl JournalReader {
    pub fn new(dir: PodDir) -> Self {
        Self { dir, offset: 0, records: Vec::new() }
    }

    /// Adds what was appended since the last call to `records`; whether that was anything.
    pub fn read(&mut self) -> io::Result<bool> {
        let bytes = match fs::read(self.dir.journal()) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e),
        };
        let new = bytes.get(self.offset..).unwrap_or_default();
        let Some(end) = new.iter().rposition(|&b| b == b'\n') else { return Ok(false) };
        for line in new[..end].split(|&b| b == b'\n') {
            // A line that cannot be read was torn by a crash (or written by a newer version): what follows still counts.
            // One that is there twice was written again after an `fsync` that failed.
            if let Ok(record) = serde_json::from_slice(line)
                && self.records.last() != Some(&record)
            {
                self.records.push(record);
            }
        }
        self.offset += end + 1;
        Ok(true)
    }
}

/// What a journal is written to. A trait, so that a test can fail at each step.
pub trait Sink {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Returns once all that was written is on disk.
    fn sync(&mut self) -> io::Result<()>;
}

impl Sink for File {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Room on the disk that a journal takes at its start, in bytes: the records of a pod's end fit also when the disk is full.
const RESERVE: libc::off_t = 16 << 10;

/// Appends to the journal; every record is on disk before `append` returns.
#[derive(Debug)]
pub struct JournalWriter<S = File> {
    sink: S,
    /// The last line may be incomplete, or not on disk.
    torn: bool,
}

impl JournalWriter {
    /// Opens the journal for appending. A torn last line (crash) is closed, so that the next record stands alone.
    pub fn open(dir: &PodDir) -> io::Result<Self> {
        let path = dir.journal();
        let torn = fs::read(&path).is_ok_and(|bytes| bytes.last().is_some_and(|&b| b != b'\n'));
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        // not every file system can reserve room
        let _ = nix::fcntl::fallocate(&file, nix::fcntl::FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, RESERVE);
        Ok(Self { sink: file, torn })
    }
}

impl<S: Sink> JournalWriter<S> {
    /// Appends a record; after an error (a full disk) the same record may be appended again.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        if self.torn {
            line.insert(0, b'\n');
        }
        line.push(b'\n');
        // until it is on disk: after an `fsync` that failed, what was written may be a hole, which must not run into the next line
        self.torn = true;
        self.sink.put(&line)?;
        self.sink.sync()?;
        self.torn = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
