//! The disk: one SQLite file, one writer thread, group commit.
//!
//! The file holds the objects as they are and the last revision. What happened before is not kept on disk: after a restart
//! watches resume from the revision at which the store was opened, older ones list again.

use crate::memory::{Ack, Pending, Shared};
use crate::{Entry, Event, Key, Revision, Txn, WriteError};
use bytes::Bytes;
use rusqlite::types::{FromSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
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
    CREATE TABLE IF NOT EXISTS set_aside (
        bucket, namespace, name, created, revision, value, why TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
";

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the database cannot be opened; another process may have it open")]
    Database(#[from] rusqlite::Error),
    #[error("the database has layout {0}, which this version does not know")]
    Layout(i64),
    #[error("the writer thread cannot be started")]
    Thread(#[source] std::io::Error),
}

pub(crate) struct Log {
    db: Connection,
}

type Loaded = (Log, Revision, Vec<(Arc<str>, Entry)>);

impl Log {
    pub(crate) fn open(path: &Path) -> Result<Loaded, OpenError> {
        let mut db = Connection::open(path)?;
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
        let entries = load(&mut db)?;
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
                    patience = commit.elapsed().checked_div(COME_BACK).unwrap_or_default().min(COME_BACK_MAX);
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

/// All objects. A row that cannot be read is moved to the table `set_aside`, where nothing is lost: one damaged object must
/// not keep all others from being served, at this start and every later one.
fn load(db: &mut Connection) -> Result<Vec<(Arc<str>, Entry)>, OpenError> {
    let mut out: Vec<(Arc<str>, Entry)> = Vec::new();
    let mut damaged = Vec::new();
    {
        let mut rows = db.prepare(
            "SELECT bucket, namespace, name, created, revision, value FROM objects ORDER BY bucket, namespace, name",
        )?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            match entry(row) {
                Ok((bucket, entry)) => {
                    // Objects of a bucket follow each other: they share its name.
                    let bucket: Arc<str> = match out.last() {
                        Some((last, _)) if **last == *bucket => last.clone(),
                        _ => bucket.into(),
                    };
                    out.push((bucket, entry));
                }
                Err(why) => {
                    damaged.push(([Part::read(row, 0)?, Part::read(row, 1)?, Part::read(row, 2)?], why));
                }
            }
        }
    }
    if damaged.is_empty() {
        return Ok(out);
    }
    let tx = db.transaction()?;
    for (key, why) in damaged {
        let [bucket, namespace, name] = key.each_ref().map(|part| String::from_utf8_lossy(&part.0));
        tracing::error!(%bucket, %namespace, %name, why, "a stored object cannot be read; it is set aside, the rest is served");
        tx.execute(
            "INSERT INTO set_aside SELECT bucket, namespace, name, created, revision, value, ?4 FROM objects
             WHERE bucket = ?1 AND namespace = ?2 AND name = ?3",
            params![key[0], key[1], key[2], why],
        )?;
        tx.execute("DELETE FROM objects WHERE bucket = ?1 AND namespace = ?2 AND name = ?3", key)?;
    }
    tx.commit()?;
    Ok(out)
}

/// A text of the database as it is there, UTF-8 or not.
struct Part(Vec<u8>);

impl Part {
    fn read(row: &Row<'_>, index: usize) -> rusqlite::Result<Self> {
        match row.get_ref(index)? {
            ValueRef::Text(text) | ValueRef::Blob(text) => Ok(Self(text.to_vec())),
            other => Err(rusqlite::Error::InvalidColumnType(index, "objects' key".to_owned(), other.data_type())),
        }
    }
}

impl ToSql for Part {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(&self.0)))
    }
}

/// An object from its row, or what is wrong with the row.
fn entry(row: &Row<'_>) -> Result<(String, Entry), String> {
    fn column<T: FromSql>(row: &Row<'_>, index: usize) -> Result<T, String> {
        row.get(index).map_err(|error| error.to_string())
    }
    let bytes: Vec<u8> = column(row, 5)?;
    let value = serde_json::from_slice(&bytes).map_err(|error| format!("the value is not JSON: {error}"))?;
    let entry = Entry {
        key: Key { namespace: column(row, 1)?, name: column(row, 2)? },
        created: column::<i64>(row, 3)?.cast_unsigned(),
        revision: column::<i64>(row, 4)?.cast_unsigned(),
        value: Arc::new(value),
        bytes: Bytes::from(bytes),
    };
    Ok((column(row, 0)?, entry))
}
