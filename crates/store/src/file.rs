//! The database's file: opened for this process alone, and replaced where it is damaged.

use crate::health::SetAside;
use crate::{Entry, Revision};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a database page. A row that does not fit a quarter of a page (SQLite's rule for rows inside an index) takes
/// overflow pages of its own: with SQLite's usual 4096 every object beyond 1000 bytes would cost a page more to write.
const PAGE: u32 = 8192;
/// A file of so many bytes is read from both ends.
const LARGE: u64 = 32 << 20;
/// What the file is called that is to replace a damaged one, once it is whole.
const REPLACEMENT: &str = ".replacement";

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{}", explain(.0))]
    Database(#[from] rusqlite::Error),
    #[error(
        "it was written by trainyard {by} in format {format}, and this is trainyard {}, which knows formats up to {known}: \
         use the version that wrote it or a newer one; or restore a backup that this version made, `trainyard restore FILE --force`",
        env!("CARGO_PKG_VERSION")
    )]
    Newer { format: i64, by: String, known: i64 },
    #[error("a file cannot be written or put in its place")]
    File(#[from] std::io::Error),
    #[error("the writer thread cannot be started")]
    Thread(#[source] std::io::Error),
}

fn explain(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "another process has the database open",
        Some(ErrorCode::DiskFull) => "the disk is full; make room, then start again",
        Some(ErrorCode::ReadOnly) => "the database or its disk is read-only; make it writable, then start again",
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            "the file is damaged; `trainyard restore FILE --force` puts a backup in its place"
        }
        _ => "the database cannot be opened",
    }
}

/// Writes a database's log down once more, byte for byte, and waits until it is on disk: after a failed `fsync` the kernel holds
/// for clean what never came there. The database's path is given; no log is as it should be.
pub type Settle = fn(&Path) -> std::io::Result<()>;

/// [`Settle`] for files of the system.
pub(crate) fn settle(database: &Path) -> std::io::Result<()> {
    if is_uri(database) {
        return Ok(());
    }
    match std::fs::OpenOptions::new().read(true).write(true).open(with(database, "-wal")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(mut file) => {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            file.write_all_at(&bytes, 0)?;
            file.sync_all()
        }
    }
}

/// Opens the file for this process alone; makes it where there is none, for its owner alone.
pub(crate) fn connect(path: &Path) -> Result<Connection, OpenError> {
    if !is_uri(path) {
        // SQLite would give it the mode that the process's mask leaves, and its log the same mode
        std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    }
    let db = Connection::open(path)?;
    // Only a new file takes it; others keep theirs.
    db.pragma_update(None, "page_size", PAGE)?;
    // One process owns the file; WAL then needs no shared memory. FULL: a commit is on disk when it returns.
    db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    Ok(db)
}

/// A second connection, to read a large file in half the time. The file's owner must not write meanwhile. `None`: the file is small,
/// or cannot be read so.
pub(crate) fn second(path: &Path, db: &Connection) -> Option<Connection> {
    if is_uri(path) || std::fs::metadata(path).ok()?.len() < LARGE {
        return None;
    }
    // the owner alone reads the log, so nothing may be in it
    let busy: i64 = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).ok()?;
    if busy != 0 || std::fs::metadata(with(path, "-wal")).is_ok_and(|log| log.len() > 0) {
        return None;
    }
    // "immutable": without a lock, which the owner has
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => uri.push(char::from(*byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(uri, flags).ok()
}

/// A file that SQLite finds in some way of its own (`file:...?vfs=...`).
fn is_uri(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().starts_with(b"file:")
}

/// A path with something behind its last name: of what lies beside the file.
pub(crate) fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Puts a new file with these objects in the place of a damaged one, which is kept beside it.
pub(crate) fn replace<'a>(
    path: &Path,
    revision: Revision,
    entries: impl Iterator<Item = (&'a str, &'a Entry)>,
    what: &str,
) -> Result<(), OpenError> {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let kept = with(path, &format!(".damaged-{seconds}"));
    let why = format!("{what}; the damaged file is kept as {}", kept.display());
    let new = with(path, ".new");
    crate::copy::write(&new, revision, entries, &[SetAside::of_all(&why)])?;
    tracing::error!("{why}");
    std::fs::copy(path, &kept)?;
    if with(path, "-wal").exists() {
        std::fs::copy(with(path, "-wal"), with(&kept, "-wal"))?;
    }
    // from here on the new file is the one that counts, whatever happens
    crate::copy::put_in_place(&new, &with(path, REPLACEMENT))?;
    finish_replacement(path)
}

/// Ends what a crash may have interrupted: a damaged file's log must not be applied to the file that replaces it.
pub(crate) fn finish_replacement(path: &Path) -> Result<(), OpenError> {
    let replacement = with(path, REPLACEMENT);
    if is_uri(path) || !replacement.exists() {
        return Ok(());
    }
    match std::fs::remove_file(with(path, "-wal")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    Ok(crate::copy::put_in_place(&replacement, path)?)
}
