//! Whole database files: makes backups, and replaces a damaged file.

use crate::file::{OpenError, settle};
use crate::health::SetAside;
use crate::layout::{self, LEAP};
use crate::{Entry, Revision};
use rusqlite::Connection;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a database with these objects to `path`, for its owner alone; it is on disk when this returns. What lay there is
/// replaced. Where that fails, nothing is left of it: the disk may be full.
pub(crate) fn write<'a>(
    path: &Path,
    revision: Revision,
    entries: impl Iterator<Item = (&'a str, &'a Entry)>,
    set_aside: &[SetAside],
) -> Result<(), OpenError> {
    let written = write_all(path, revision, entries, set_aside);
    if written.is_err()
        && let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "what was written of a copy cannot be removed; remove it");
    }
    written
}

fn write_all<'a>(
    path: &Path,
    revision: Revision,
    entries: impl Iterator<Item = (&'a str, &'a Entry)>,
    set_aside: &[SetAside],
) -> Result<(), OpenError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    // SQLite would give it the mode that the process's mask leaves
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut db = Connection::open(path)?;
    // Nobody else sees the file before it is whole, and a broken one is thrown away.
    db.pragma_update(None, "journal_mode", "OFF")?;
    db.pragma_update(None, "synchronous", "OFF")?;
    layout::prepare(&mut db)?;
    let tx = db.transaction()?;
    for (bucket, entry) in entries {
        layout::put(&tx, bucket, entry)?;
    }
    for SetAside { why, .. } in set_aside {
        layout::note_damage(&tx, why)?;
    }
    layout::set_revision(&tx, revision)?;
    tx.commit()?;
    drop(db);
    Ok(file.sync_all()?)
}

/// Moves a file over another, durably.
pub(crate) fn put_in_place(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(folder)?.sync_all()
}

/// As [`crate::Store::back_up`], of a database that nobody has open. Returns the revision.
///
/// # Errors
/// The database cannot be opened, or the file not written.
pub fn back_up_closed(path: &Path, to: &Path) -> Result<Revision, OpenError> {
    let loaded = crate::log::Log::open(path, settle)?.loaded;
    write(to, loaded.revision, loaded.entries.iter().map(|(bucket, entry)| (bucket.as_ref(), entry)), &[])?;
    Ok(loaded.revision)
}

/// The damaged rows of a database that nobody has open: it is opened and checked as at a start.
///
/// # Errors
/// The database cannot be opened.
pub fn damaged_closed(path: &Path) -> Result<Vec<SetAside>, OpenError> {
    Ok(crate::log::Log::open(path, settle)?.set_aside)
}

/// As [`crate::Store::drop_damaged`], of a database that nobody has open.
///
/// # Errors
/// The database cannot be opened or written.
pub fn drop_damaged_closed(path: &Path, rows: &[SetAside]) -> Result<(), OpenError> {
    crate::log::Log::open(path, settle)?.log.drop_damaged(rows)
}

/// Checks a backup's database and makes it fit to go on from: revisions continue far above all that clients can have seen since
/// the backup was made, so that a watch or a write of theirs that remembers a later state gets an error, instead of meeting another
/// object under the same revision. They continue at the milliseconds since 1970 where that is more: so do two restores of the same
/// backup, one after the other. Returns how many objects there are, and the revision.
///
/// # Errors
/// The file is no database of a known format, or damaged.
pub fn adopt(path: &Path) -> Result<(usize, Revision), OpenError> {
    let mut db = Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    layout::prepare(&mut db)?;
    let loaded = layout::load(&db, None)?;
    if let Some(error) = loaded.broken {
        return Err(error.into());
    }
    layout::set_aside(&mut db, &loaded.damaged)?;
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = Revision::try_from(since.as_millis()).unwrap_or(0);
    let revision = loaded.revision.saturating_add(LEAP).max(now);
    let tx = db.transaction()?;
    layout::set_revision(&tx, revision)?;
    tx.commit()?;
    Ok((loaded.entries.len(), revision))
}
