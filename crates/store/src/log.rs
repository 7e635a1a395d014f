//! The disk: one SQLite file, one writer thread, group commit.
//!
//! The file holds the objects as they are and the last revision. What happened before is kept beside it
//! ([`crate::archive`]), for watches that resume.
//!
//! Memory holds all that was acknowledged, so a write that fails loses nothing: it is refused, and the disk is brought in step
//! with memory ([`Log::heal`]) before the next one.

use crate::archive::Keeper;
use crate::commit::Ack;
use crate::file::{OpenError, Settle, connect, finish_replacement, replace, second};
use crate::health::{Fault, SetAside, Trouble};
use crate::layout::{self, Loaded};
use crate::memory::{Pending, Placed, Shared};
use crate::{Event, Revision, Txn, WriteError};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Transactions committed together at most.
const GROUP: usize = 512;
/// Which part of the time that the last commit took the next one may wait for the writers of the last to come back.
const COME_BACK: u32 = 4;
/// The longest such wait, however slow the disk.
const COME_BACK_MAX: Duration = Duration::from_millis(1);
/// A disk that failed is tried again, whether or not somebody writes, after this many times what the last try took...
const TRY_AGAIN: u32 = 10;
/// ... but at least and at most this.
const TRY_AGAIN_MIN: Duration = Duration::from_millis(5);
const TRY_AGAIN_MAX: Duration = Duration::from_secs(1);
/// Room that a full disk must have before it counts as well again, at most.
const PROBE_MAX: usize = 4 << 20;
/// Reads of a file that fails, or that seems damaged in another way each time.
const READS: usize = 5;

pub(crate) struct Log {
    /// `None`: it is to be opened again.
    db: Option<Connection>,
    path: PathBuf,
    settle: Settle,
    /// Bytes of the largest write that was refused since the disk was well: what there must be room for until it is well again.
    refused: usize,
}

/// A store as it was found.
pub(crate) struct Opened {
    pub(crate) log: Log,
    pub(crate) loaded: Loaded,
    pub(crate) set_aside: Vec<SetAside>,
}

impl Log {
    pub(crate) fn open(path: &Path, settle: Settle) -> Result<Opened, OpenError> {
        finish_replacement(path)?;
        let mut damage = None;
        for more in (0..READS).rev() {
            match Self::open_once(path, settle, &mut damage) {
                Ok(Some(opened)) => return Ok(opened),
                Err(OpenError::Database(error)) if more > 0 && may_pass(&error) => {}
                Err(error) => return Err(error),
                Ok(None) => {}
            }
        }
        Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_READ), None).into())
    }

    /// Opens the file and reads it. `None`: some of it seems to be damaged, otherwise than at the last try.
    fn open_once(path: &Path, settle: Settle, damage: &mut Option<String>) -> Result<Option<Opened>, OpenError> {
        let mut db = connect(path)?;
        layout::prepare(&mut db)?;
        let mut loaded = layout::load(&db, second(path, &db))?;
        let found = loaded.damage();
        let lossy = found.is_some();
        if lossy && *damage != found {
            *damage = found;
            return Ok(None);
        }
        let aside = match loaded.broken.take() {
            Some(error) => Err(error),
            None => layout::set_aside(&mut db, &loaded.damaged),
        };
        match aside {
            Err(error) if layout::is_damage(&error) => {
                drop(db);
                let read = loaded.entries.len();
                let what = format!(
                    "parts of the database were damaged ({error}): {read} objects could be read, others may be missing"
                );
                let entries = loaded.entries.iter().map(|(bucket, entry)| (bucket.as_ref(), entry));
                replace(path, loaded.revision, entries, &what)?;
                db = connect(path)?;
            }
            other => other?,
        }
        if loaded.leapt {
            tracing::error!(revision = loaded.revision, "the stored revision is damaged; revisions go on far above it");
        } else if lossy {
            // Objects are gone of which no event tells: the history ends before this revision, and watchers list again.
            loaded.revision = loaded.revision.saturating_add(1);
        }
        if lossy {
            let tx = db.transaction()?;
            layout::set_revision(&tx, loaded.revision)?;
            tx.commit()?;
        }
        let set_aside = layout::read_set_aside(&db)?;
        Ok(Some(Opened { log: Self { db: Some(db), path: path.to_owned(), settle, refused: 0 }, loaded, set_aside }))
    }

    /// Drops damaged rows, at once.
    pub(crate) fn drop_damaged(&mut self, rows: &[SetAside]) -> Result<(), OpenError> {
        let tx = open(&mut self.db)?.transaction()?;
        layout::drop_set_aside(&tx, rows)?;
        Ok(tx.commit()?)
    }

    /// Writes until the last sender is gone.
    ///
    /// Writers that were answered together come back together, but not at once: a commit that began with the first of them
    /// would make all others wait for a commit more. So a commit waits a little until as many are there as last time. A
    /// writer that is alone never waits.
    pub(crate) fn run(mut self, shared: &Shared, waiting: &Receiver<(Txn, Ack)>) {
        let keeper = shared.archive.as_ref().and_then(|archive| Keeper::start(archive.clone()).ok());
        let (mut expected, mut patience) = (0, Duration::ZERO);
        // in trouble: when the disk was tried last, and how long not to try it again
        let mut tried = (Instant::now(), Duration::ZERO);
        while let Some(first) = self.next_write(shared, waiting, &mut tried) {
            let begin = Instant::now();
            let mut pending = Pending::new(shared.revision());
            let mut acks: Vec<(Ack, Vec<Event>)> = Vec::new();
            // Writers that lost to one of `acks`. They are answered once its events are visible: a writer that read again
            // before would compute the same write from the same state, and lose again.
            let mut lost: Vec<Ack> = Vec::new();
            let mut dropped = Vec::new();
            let mut next = Some(first);
            while let Some((mut txn, ack)) = next {
                dropped.append(&mut txn.drops);
                match shared.evaluate(txn, &mut pending) {
                    Ok(events) => acks.push((ack, events)),
                    Err(WriteError::Conflict) if !acks.is_empty() => lost.push(ack),
                    // A client that has gone away does not read its answer.
                    Err(error) => ack.send(Err(error)),
                }
                next = if acks.len() + lost.len() >= GROUP {
                    None
                } else if let Ok(more) = waiting.try_recv() {
                    Some(more)
                } else if acks.len() < expected {
                    waiting.recv_timeout(patience.saturating_sub(begin.elapsed())).ok()
                } else {
                    None
                };
            }
            expected = acks.len();
            if acks.is_empty() {
                continue;
            }
            let commit = Instant::now();
            // Both are on their way at the same time; nothing is shown before both are there.
            let kept = keeper.as_ref().map(|keeper| keeper.keep(acks.iter().flat_map(|(_, events)| events)));
            let events = acks.iter().flat_map(|(_, events)| events);
            let appended = self.append(shared.revision(), events, &shared.vitals.set_aside(), dropped);
            _ = kept.map(|kept| kept.recv());
            match appended {
                Ok(renewed) => {
                    shared.vitals.renewed(&renewed);
                    let took = commit.elapsed();
                    shared.vitals.committed(took, acks.len());
                    patience = took.checked_div(COME_BACK).unwrap_or_default().min(COME_BACK_MAX);
                    if self.refused > 0 && size(&acks) >= self.refused {
                        self.refused = 0;
                        shared.vitals.set_trouble(None);
                    }
                    shared.publish(acks.iter().flat_map(|(_, events)| events));
                    for (ack, events) in acks {
                        ack.send(Ok(events));
                    }
                    for ack in lost {
                        ack.send(Err(WriteError::Conflict));
                    }
                }
                Err(error) => {
                    shared.vitals.failed();
                    self.refused = self.refused.max(size(&acks)).min(PROBE_MAX);
                    tried = (Instant::now(), TRY_AGAIN_MIN);
                    let trouble = self.failed(&error);
                    let refusal = refusal(&trouble);
                    shared.vitals.set_trouble(Some(trouble));
                    if let Some(archive) = &shared.archive {
                        archive.reset(shared.revision());
                    }
                    for ack in acks.into_iter().map(|(ack, _)| ack).chain(lost) {
                        ack.send(Err(refusal.clone()));
                    }
                }
            }
        }
    }

    /// The next write to try; `None` once nobody can send one any more. In trouble the disk is tried first when that is due
    /// (`tried`), and what cannot succeed is refused without a try: what takes long is not done for each of many writes.
    fn next_write(
        &mut self,
        shared: &Shared,
        waiting: &Receiver<(Txn, Ack)>,
        tried: &mut (Instant, Duration),
    ) -> Option<(Txn, Ack)> {
        let rest = |tried: &(Instant, Duration)| tried.1.saturating_sub(tried.0.elapsed());
        loop {
            let Some(trouble) = shared.vitals.trouble() else { return waiting.recv().ok() };
            let first = match waiting.recv_timeout(rest(tried)) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    self.heal(shared, tried);
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return None,
            };
            // on a disk that is only full, what is small may fit
            let may_fit = trouble.fault == Fault::Full && self.db.is_some();
            let trouble = if rest(tried).is_zero() { self.heal(shared, tried) } else { Some(trouble) };
            match trouble {
                Some(trouble) if !(may_fit && trouble.fault == Fault::Full) => first.1.send(Err(refusal(&trouble))),
                Some(_) | None => return Some(first),
            }
        }
    }

    /// Writes events that follow a revision. A damaged row that was set aside goes when its object is written anew, or when it is
    /// among the dropped: those that went are returned.
    fn append<'a>(
        &mut self,
        mut revision: Revision,
        events: impl Iterator<Item = &'a Event>,
        set_aside: &[SetAside],
        dropped: Vec<SetAside>,
    ) -> rusqlite::Result<Vec<SetAside>> {
        let tx = open(&mut self.db)?.transaction()?;
        if !dropped.is_empty() {
            layout::drop_set_aside(&tx, &dropped)?;
        }
        let mut renewed = dropped;
        for event in events {
            revision = event.revision;
            if event.deleted {
                layout::delete(&tx, &event.bucket, &event.entry.key)?;
            } else {
                layout::put(&tx, &event.bucket, &event.entry)?;
                for row in set_aside.iter().filter(|row| row.is_of(&event.bucket, &event.entry.key)) {
                    layout::let_go(&tx, row)?;
                    renewed.push(row.clone());
                }
            }
        }
        layout::set_revision(&tx, revision)?;
        tx.commit()?;
        Ok(renewed)
    }

    /// What a failed write means. Unless the disk was only full, it is no longer known what is on it: the file is opened again.
    fn failed(&mut self, error: &rusqlite::Error) -> Trouble {
        if error.sqlite_error_code() == Some(ErrorCode::DiskFull) {
            return Trouble { fault: Fault::Full, message: error.to_string() };
        }
        if let Some(db) = self.db.take() {
            give_up(db);
        }
        // for SQLite every error of a write is the same "disk I/O error"; the file itself says which
        (self.settle)(&self.path)
            .map_err(|error| Trouble::of(&error))
            .err()
            .filter(|trouble| trouble.fault != Fault::Other)
            .unwrap_or_else(|| Trouble { fault: Fault::Other, message: error.to_string() })
    }

    /// Tries whether the disk can be written again; brings what is on it in step with what was acknowledged. Returns what is
    /// wrong, if anything still is.
    fn heal(&mut self, shared: &Shared, tried: &mut (Instant, Duration)) -> Option<Trouble> {
        let begin = Instant::now();
        let result = match self.db {
            Some(_) => self.probe(shared.revision()),
            None => self.repair(shared),
        };
        let trouble = match result {
            Ok(()) => None,
            Err(OpenError::Database(error)) => Some(self.failed(&error)),
            Err(OpenError::File(error)) => Some(Trouble::of(&error)),
            Err(other) => Some(Trouble { fault: Fault::Other, message: other.to_string() }),
        };
        if trouble.is_none() {
            self.refused = 0;
        }
        shared.vitals.set_trouble(trouble.clone());
        let pause = begin.elapsed().saturating_mul(TRY_AGAIN).clamp(TRY_AGAIN_MIN, TRY_AGAIN_MAX);
        *tried = (Instant::now(), if trouble.is_some() { pause } else { Duration::ZERO });
        trouble
    }

    /// Whether there is room for what was refused.
    fn probe(&mut self, revision: Revision) -> Result<(), OpenError> {
        let db = open(&mut self.db)?;
        for bytes in [self.refused, 0] {
            let tx = db.transaction()?;
            layout::set_revision(&tx, revision)?;
            layout::set_ballast(&tx, bytes)?;
            tx.commit()?;
        }
        Ok(())
    }

    /// Opens the file again and makes it hold what memory holds. A file that is damaged is replaced.
    fn repair(&mut self, shared: &Shared) -> Result<(), OpenError> {
        let (revision, entries) = shared.all();
        finish_replacement(&self.path)?;
        // The log's first frames may be lost although they read well. Were they followed by good ones and the whole carried over into
        // the database, a crash in the middle would leave neither.
        (self.settle)(&self.path)?;
        self.db = Some(match self.compare(revision, &entries) {
            Err(OpenError::Database(error)) if layout::is_damage(&error) => {
                let what = format!("the database was damaged ({error}) and written again from memory");
                replace(&self.path, revision, entries.iter().map(|(b, e)| (b.as_ref(), e.as_ref())), &what)?;
                connect(&self.path)?
            }
            other => other?,
        });
        Ok(())
    }

    /// A write may be on disk although it was refused, and pages that could not be written may be gone although the kernel holds
    /// them for clean. So rows are compared, then each page is written anew.
    fn compare(&self, revision: Revision, entries: &[Placed]) -> Result<Connection, OpenError> {
        let mut wanted: HashMap<_, _> =
            entries.iter().map(|(bucket, entry)| ((bucket.to_string(), entry.key.clone()), entry)).collect();
        let mut db = connect(&self.path)?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        layout::prepare(&mut db)?;
        let loaded = layout::load(&db, None)?;
        if let Some(error) = loaded.broken {
            return Err(error.into());
        }
        let tx = db.transaction()?;
        // what memory does not hold was never acknowledged
        layout::remove(&tx, &loaded.damaged)?;
        for (bucket, found) in &loaded.entries {
            match wanted.remove(&(bucket.to_string(), found.key.clone())) {
                Some(entry) if entry.revision == found.revision => {}
                Some(entry) => layout::put(&tx, bucket, entry)?,
                None => layout::delete(&tx, bucket, &found.key)?,
            }
        }
        for ((bucket, _), entry) in wanted {
            layout::put(&tx, &bucket, entry)?;
        }
        layout::set_revision(&tx, revision)?;
        tx.commit()?;
        db.pragma_update(None, "temp_store", "MEMORY")?;
        db.execute_batch("VACUUM")?;
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
        Ok(db)
    }
}

/// Bytes of what is to be written.
fn size(acks: &[(Ack, Vec<Event>)]) -> usize {
    let events = acks.iter().flat_map(|(_, events)| events).filter(|event| !event.deleted);
    events.map(|event| event.entry.length()).sum::<usize>().max(1)
}

/// Closes the file without carrying its log over into it: what the log holds on disk is not known.
fn give_up(db: Connection) {
    if let Err(error) = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
        tracing::warn!(%error, "the database is closed with a checkpoint");
    }
}

fn open(db: &mut Option<Connection>) -> rusqlite::Result<&mut Connection> {
    db.as_mut().ok_or(rusqlite::Error::InvalidQuery)
}

fn refusal(trouble: &Trouble) -> WriteError {
    let message = trouble.message.clone();
    match trouble.fault {
        Fault::Full => WriteError::Full(message),
        Fault::ReadOnly => WriteError::ReadOnly(message),
        Fault::Other => WriteError::Failed(message),
    }
}

/// Whether another try may go better: the disk failed, or what it gave was wrong.
fn may_pass(error: &rusqlite::Error) -> bool {
    layout::is_damage(error) || error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
}
