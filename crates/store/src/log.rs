//! The disk: one SQLite file, one writer thread, group commit.
//!
//! The file holds the objects as they are and the last revision. What happened before is not kept on disk: after a restart
//! watches resume from the revision at which the store was opened, older ones list again.

use crate::memory::{Ack, Pending, Shared};
use crate::{Entry, Event, Key, Revision, Txn, WriteError};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Version of the file's layout.
const LAYOUT: i64 = 1;
/// Transactions committed together at most.
const GROUP: usize = 512;
/// Which part of the time that the last commit took the next one may wait for the writers of the last to come back.
const COME_BACK: u32 = 4;
/// The longest such wait, however slow the disk.
const COME_BACK_MAX: Duration = Duration::from_millis(1);
/// Bytes of a database page. A row that does not fit a quarter of a page (SQLite's rule for rows inside an index) takes
/// overflow pages of its own: with SQLite's usual 4096 every object beyond 1000 bytes would cost a page more to write.
const PAGE: u32 = 8192;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS objects (
        bucket TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
        created INTEGER NOT NULL, revision INTEGER NOT NULL, value BLOB NOT NULL,
        PRIMARY KEY (bucket, namespace, name)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
";

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the database cannot be opened; another process may have it open")]
    Database(#[from] rusqlite::Error),
    #[error("the database has layout {0}, which this version does not know")]
    Layout(i64),
    #[error("the stored object {bucket} {namespace}/{name} is not JSON")]
    Object { bucket: String, namespace: String, name: String, source: serde_json::Error },
    #[error("the writer thread cannot be started")]
    Thread(#[source] std::io::Error),
}

pub(crate) struct Log {
    db: Connection,
}

type Loaded = (Log, Revision, Vec<(Arc<str>, Entry)>);

impl Log {
    pub(crate) fn open(path: &Path) -> Result<Loaded, OpenError> {
        let db = Connection::open(path)?;
        // Only a new file takes it; others keep theirs.
        db.pragma_update(None, "page_size", PAGE)?;
        // One process owns the file; WAL then needs no shared memory. FULL: a commit is on disk when it returns.
        db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.execute_batch(&format!("BEGIN IMMEDIATE; {TABLES} COMMIT;"))?;
        let layout = meta(&db, "layout")?;
        match layout {
            None => set_meta(&db, "layout", LAYOUT)?,
            Some(LAYOUT) => {}
            Some(other) => return Err(OpenError::Layout(other)),
        }
        let revision = meta(&db, "revision")?.unwrap_or(0).cast_unsigned();
        let entries = load(&db)?;
        Ok((Self { db }, revision, entries))
    }

    /// Writes until the last sender is gone.
    ///
    /// Writers that were answered together come back together, but not at once: a commit that began with the first of them
    /// would make all others wait for a commit more. So a commit waits a little until as many are there as last time. A
    /// writer that is alone never waits.
    pub(crate) fn run(mut self, shared: &Shared, waiting: &Receiver<(Txn, Ack)>) {
        let mut failed: Option<WriteError> = None;
        let (mut expected, mut patience) = (0, Duration::ZERO);
        while let Ok(first) = waiting.recv() {
            let begin = Instant::now();
            let mut pending = Pending::new(shared.revision());
            let mut acks: Vec<(Ack, Vec<Event>)> = Vec::new();
            // Writers that lost to one of `acks`. They are answered once its events are visible: a writer that read again
            // before would compute the same write from the same state, and lose again.
            let mut lost: Vec<Ack> = Vec::new();
            let mut next = Some(first);
            while let Some((txn, ack)) = next {
                let result = match &failed {
                    Some(error) => Err(error.clone()),
                    None => shared.evaluate(txn, &mut pending),
                };
                match result {
                    Ok(events) => acks.push((ack, events)),
                    Err(WriteError::Conflict) if !acks.is_empty() => lost.push(ack),
                    // A client that has gone away does not read its answer.
                    Err(error) => drop(ack.send(Err(error))),
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
            match self.append(acks.iter().flat_map(|(_, events)| events)) {
                Ok(()) => {
                    patience = (commit.elapsed() / COME_BACK).min(COME_BACK_MAX);
                    shared.publish(acks.iter().flat_map(|(_, events)| events));
                    for (ack, events) in acks {
                        drop(ack.send(Ok(events)));
                    }
                    for ack in lost {
                        drop(ack.send(Err(WriteError::Conflict)));
                    }
                }
                Err(error) => {
                    // What is on disk is no longer known, so nothing more may be promised.
                    tracing::error!(%error, "the store cannot write; it takes no more writes");
                    let error = WriteError::Failed(error.to_string());
                    for ack in acks.into_iter().map(|(ack, _)| ack).chain(lost) {
                        drop(ack.send(Err(error.clone())));
                    }
                    failed = Some(error);
                }
            }
        }
    }

    fn append<'a>(&mut self, events: impl Iterator<Item = &'a Event>) -> rusqlite::Result<()> {
        let tx = self.db.transaction()?;
        {
            let mut put = tx.prepare_cached(
                "INSERT INTO objects (bucket, namespace, name, created, revision, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT DO UPDATE SET revision = excluded.revision, value = excluded.value",
            )?;
            let mut delete =
                tx.prepare_cached("DELETE FROM objects WHERE bucket = ?1 AND namespace = ?2 AND name = ?3")?;
            let mut revision = 0;
            for event in events {
                let Entry { key, created, bytes, .. } = &*event.entry;
                revision = event.revision.cast_signed();
                if event.deleted {
                    delete.execute(params![&*event.bucket, key.namespace, key.name])?;
                } else {
                    put.execute(params![
                        &*event.bucket,
                        key.namespace,
                        key.name,
                        created.cast_signed(),
                        revision,
                        &bytes[..]
                    ])?;
                }
            }
            set_meta(&tx, "revision", revision)?;
        }
        tx.commit()
    }
}

fn meta(db: &Connection, key: &str) -> rusqlite::Result<Option<i64>> {
    db.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0)).optional()
}

fn set_meta(db: &Connection, key: &str, value: i64) -> rusqlite::Result<()> {
    let sql = "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = excluded.value";
    db.prepare_cached(sql)?.execute(params![key, value]).map(drop)
}

fn load(db: &Connection) -> Result<Vec<(Arc<str>, Entry)>, OpenError> {
    let mut rows = db.prepare(
        "SELECT bucket, namespace, name, created, revision, value FROM objects ORDER BY bucket, namespace, name",
    )?;
    let mut rows = rows.query([])?;
    let mut out: Vec<(Arc<str>, Entry)> = Vec::new();
    while let Some(row) = rows.next()? {
        let bucket: String = row.get(0)?;
        // Objects of a bucket follow each other: they share its name.
        let bucket: Arc<str> = match out.last() {
            Some((last, _)) if **last == *bucket => last.clone(),
            _ => bucket.into(),
        };
        let key = Key { namespace: row.get(1)?, name: row.get(2)? };
        let bytes: Vec<u8> = row.get(5)?;
        let value = serde_json::from_slice(&bytes).map_err(|source| OpenError::Object {
            bucket: bucket.to_string(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            source,
        })?;
        let entry = Entry {
            key,
            created: row.get::<_, i64>(3)?.cast_unsigned(),
            revision: row.get::<_, i64>(4)?.cast_unsigned(),
            value: Arc::new(value),
            bytes: Bytes::from(bytes),
        };
        out.push((bucket, entry));
    }
    Ok(out)
}
