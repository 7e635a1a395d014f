//! The file that the audit log is written to: appended by one thread, private, bounded, rotated.

use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// Lines that may wait for the disk; more are left out, and a line gives their number.
const WAITING_MAX: usize = 8192;
/// How often a disk that does not take lines is spoken of.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// How large the log may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes after which a file is set aside as `FILE.1`.
    pub file_bytes: u64,
    /// Files that were set aside and are kept (`FILE.1` is the newest).
    pub kept: u32,
}

impl Default for Bounds {
    /// 64 MiB each, five in all.
    fn default() -> Self {
        Self { file_bytes: 64 << 20, kept: 4 }
    }
}

/// A log file. Dropping it lets what waits be written by its thread.
pub struct Log {
    sender: SyncSender<Vec<u8>>,
    left_out: Arc<AtomicU64>,
}

impl Log {
    /// Opens a file, or makes it, with mode 0600, and starts the thread that writes it.
    ///
    /// # Errors
    /// It cannot be opened for appending, or is no file.
    pub fn open(path: &Path, bounds: Bounds) -> io::Result<Self> {
        let target = Target::open(path, bounds)?;
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let left_out = Arc::new(AtomicU64::new(0));
        let counted = left_out.clone();
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || write_all(target, &receiver, &counted))?;
        Ok(Self { sender, left_out })
    }

    /// Hands a record to the writer. Never waits: what does not fit is left out, and counted.
    pub(crate) fn record(&self, event: &Value) {
        let mut line = event.to_string().into_bytes();
        line.push(b'\n');
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = self.sender.try_send(line) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write_all(mut target: Target, lines: &Receiver<Vec<u8>>, left_out: &AtomicU64) {
    let mut complained: Option<Instant> = None;
    for line in lines {
        let result = target.append(&line);
        if result.is_err() {
            left_out.fetch_add(1, Ordering::Relaxed);
        }
        if left_out.load(Ordering::Relaxed) > 0 && complained.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) {
            complained = Some(Instant::now());
            let lines = left_out.swap(0, Ordering::Relaxed);
            let why = result.err().map_or_else(|| "they came too fast".to_owned(), |error| error.to_string());
            tracing::error!(path = %target.path.display(), lines, why, "lines of the audit log are left out");
        }
    }
}

/// The file at present.
struct Target {
    path: PathBuf,
    bounds: Bounds,
    file: File,
    bytes: u64,
    /// The last line may be incomplete.
    torn: bool,
}

impl Target {
    fn open(path: &Path, bounds: Bounds) -> io::Result<Self> {
        // a FIFO that nobody reads would hold the opening up for ever
        let waitless = nix::fcntl::OFlag::O_NONBLOCK.bits();
        let file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(waitless).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        let torn = found.len() > 0;
        Ok(Self { path: path.to_owned(), bounds, bytes: found.len(), file, torn })
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.bytes > 0 && self.bytes.saturating_add(line.len() as u64) > self.bounds.file_bytes {
            self.rotate()?;
        }
        // an empty line, at worst, between this one and what a crash or a full disk cut off
        if self.torn {
            self.file.write_all(b"\n")?;
            self.bytes = self.bytes.saturating_add(1);
        }
        self.torn = true;
        self.file.write_all(line)?;
        self.torn = false;
        self.bytes = self.bytes.saturating_add(line.len() as u64);
        Ok(())
    }

    fn aside(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    /// Sets the file aside and begins another one; the oldest goes.
    fn rotate(&mut self) -> io::Result<()> {
        // it is not there where an earlier try set it aside and could not begin another one
        if self.path.try_exists()? {
            for number in (1..self.bounds.kept).rev() {
                match fs::rename(self.aside(number), self.aside(number.saturating_add(1))) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            if self.bounds.kept > 0 {
                fs::rename(&self.path, self.aside(1))?;
            } else {
                fs::remove_file(&self.path)?;
            }
        }
        *self = Self::open(&self.path, self.bounds)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;

    fn lines(path: &Path) -> Vec<Value> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn files_are_private_bounded_and_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut target = Target::open(&path, Bounds { file_bytes: 100, kept: 2 }).unwrap();
        for i in 0..40 {
            target.append(format!("{}\n", json!({"line": i, "text": "0123456789"})).as_bytes()).unwrap();
        }
        let names = ["audit.log", "audit.log.1", "audit.log.2"].map(|name| dir.path().join(name));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), names.len());
        let mut told = Vec::new();
        for name in names.iter().rev() {
            let found = fs::metadata(name).unwrap();
            assert_eq!((found.permissions().mode() & 0o777, found.len() <= 100), (0o600, true));
            told.extend(lines(name));
        }
        assert_eq!(told.last().unwrap()["line"], 39);
        assert!(told.windows(2).all(|pair| pair[1]["line"].as_i64() == pair[0]["line"].as_i64().map(|n| n + 1)));
    }

    #[test]
    fn a_fifo_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(Log::open(&path, Bounds::default()).is_err(), "nobody reads it");
        let _reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert!(Log::open(&path, Bounds::default()).is_err(), "it is no file");
    }

    #[test]
    fn a_rotation_that_fails_loses_no_older_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut target = Target::open(&path, Bounds { file_bytes: 10, kept: 2 }).unwrap();
        for line in [b"{\"a\":1}\n", b"{\"a\":2}\n", b"{\"a\":3}\n"] {
            target.append(line).unwrap();
        }
        // as if the disk had no room for another file after the last was set aside
        fs::remove_file(target.aside(2)).unwrap();
        fs::rename(target.aside(1), target.aside(2)).unwrap();
        fs::rename(&path, target.aside(1)).unwrap();
        target.append(b"{\"a\":4}\n").unwrap();
        let all = [target.aside(2), target.aside(1), path].map(|path| lines(&path)[0]["a"].clone());
        assert_eq!(all, [2, 3, 4].map(Value::from));
    }

    #[test]
    fn what_a_crash_cut_off_spoils_no_other_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        fs::write(&path, "{\"cut").unwrap();
        let mut target = Target::open(&path, Bounds::default()).unwrap();
        target.append(b"{\"a\":1}\n").unwrap();
        target.append(b"{\"a\":2}\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"cut\n{\"a\":1}\n{\"a\":2}\n");
    }

    #[test]
    fn a_disk_without_room_is_no_hindrance() {
        let log = Log::open(Path::new("/dev/full"), Bounds::default());
        assert!(log.is_err(), "it is no file");
        let full = Target {
            path: "/dev/full".into(),
            bounds: Bounds::default(),
            file: OpenOptions::new().append(true).open("/dev/full").unwrap(),
            bytes: 0,
            torn: false,
        };
        let (sender, receiver) = sync_channel(16);
        let left_out = AtomicU64::new(0);
        for _ in 0..3 {
            sender.try_send(b"{}\n".to_vec()).unwrap();
        }
        drop(sender);
        write_all(full, &receiver, &left_out);
        assert_eq!(left_out.into_inner(), 2, "the first was told of");
    }
}
