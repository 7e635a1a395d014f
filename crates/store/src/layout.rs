//! The file's layout: its tables, its version, its rows and their checksums.
//!
//! Format 1 had no checksums. Format 2 has one for each row, over all of its columns, and one for the revision. A file of an older
//! format is migrated when it is opened; one of a newer format is left as it is.

use crate::{Entry, Key, OpenError, Revision, SetAside};
use objects::packed::Packed;
use rusqlite::types::{FromSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
use std::cmp::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// Version of the file's layout.
pub(crate) const FORMAT: i64 = 2;
/// What is added to the revision where the last one is not known: more than can have been written since the newest row.
pub(crate) const LEAP: Revision = 1_000_000_000;
/// Which program wrote the format, as `trainyard --version` says it.
const WRITER: &str = env!("CARGO_PKG_VERSION");

const TABLES: &str = "
    CREATE TABLE objects (
        bucket TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
        created INTEGER NOT NULL, revision INTEGER NOT NULL, value BLOB NOT NULL, checksum INTEGER,
        PRIMARY KEY (bucket, namespace, name)) WITHOUT ROWID;
    CREATE TABLE set_aside (
        bucket, namespace, name, created, revision, value, why TEXT NOT NULL, checksum INTEGER);
    CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
";
/// A reader of a half of the table looks after so many rows whether it has met the other one.
const LOOK_UP: usize = 256;
const SELECT: &str = "SELECT bucket, namespace, name, created, revision, value, checksum FROM objects";
const PUT: &str = "
    INSERT INTO objects (bucket, namespace, name, created, revision, value, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT DO UPDATE SET
        created = excluded.created, revision = excluded.revision, value = excluded.value, checksum = excluded.checksum";
const DELETE: &str = "DELETE FROM objects WHERE bucket = ?1 AND namespace = ?2 AND name = ?3";

/// Makes the tables of a new file; migrates an older one; refuses a newer one, untouched.
pub(crate) fn prepare(db: &mut Connection) -> Result<(), OpenError> {
    let known: bool = db.query_row("SELECT count(*) FROM sqlite_master WHERE name = 'meta'", [], |row| row.get(0))?;
    let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    if !known {
        tx.execute_batch(TABLES)?;
        set_revision(&tx, 0)?;
    } else {
        let format = meta(&tx, "layout")?.unwrap_or(1);
        if !(1..=FORMAT).contains(&format) {
            let by: Option<String> = tx
                .query_row("SELECT CAST(value AS TEXT) FROM meta WHERE key = 'writer'", [], |row| row.get(0))
                .optional()?;
            return Err(OpenError::Newer { format, by: by.unwrap_or_else(|| "unknown".to_owned()), known: FORMAT });
        }
        if format == FORMAT {
            return Ok(());
        }
        from_format_1(&tx)?;
    }
    set_meta(&tx, "layout", &FORMAT)?;
    set_meta(&tx, "writer", &WRITER)?;
    Ok(tx.commit()?)
}

/// Gives each row that can be read its checksum. The others are set aside when they are loaded.
fn from_format_1(db: &Connection) -> Result<(), OpenError> {
    tracing::info!("the database is of format 1; it is brought to format {FORMAT}");
    // the very first versions had no such table
    db.execute_batch(
        "CREATE TABLE IF NOT EXISTS set_aside (bucket, namespace, name, created, revision, value, why TEXT NOT NULL);
         ALTER TABLE set_aside ADD COLUMN checksum INTEGER;
         ALTER TABLE objects ADD COLUMN checksum INTEGER;",
    )?;
    let mut sums = Vec::new();
    {
        let mut rows = db.prepare(SELECT)?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            if let Ok((bucket, entry, _)) = entry(row)
                && serde_json::from_slice::<serde::de::IgnoredAny>(&entry.bytes()).is_ok()
            {
                sums.push((checksum(&bucket, &entry), bucket, entry.key));
            }
        }
    }
    let mut update =
        db.prepare("UPDATE objects SET checksum = ?4 WHERE bucket = ?1 AND namespace = ?2 AND name = ?3")?;
    for (sum, bucket, Key { namespace, name }) in sums {
        update.execute(params![bucket, namespace, name, sum])?;
    }
    set_revision(db, meta(db, "revision")?.unwrap_or(0).cast_unsigned())?;
    Ok(())
}

/// All that a file holds.
#[derive(Default)]
pub(crate) struct Loaded {
    pub(crate) revision: Revision,
    pub(crate) entries: Vec<Stored>,
    pub(crate) damaged: Vec<Damaged>,
    /// Why some part of the file could not be read at all.
    pub(crate) broken: Option<rusqlite::Error>,
    /// The revision in the file was not what had been written; it is one beyond all that may have been.
    pub(crate) leapt: bool,
}

/// A row that cannot be read.
pub(crate) struct Damaged {
    /// What its key columns hold.
    key: [Part; 3],
    why: String,
}

impl Loaded {
    /// All that is wrong with the file, in words, if anything is.
    pub(crate) fn damage(&self) -> Option<String> {
        let rows =
            self.damaged.iter().map(|Damaged { key, why }| format!("{:?} {why}", key.each_ref().map(Part::text)));
        let all: Vec<String> = rows.chain(self.broken.iter().map(|error| error.to_string())).collect();
        (self.leapt || !all.is_empty()).then(|| all.join("; "))
    }
}

/// A row's place in the order of the table.
type Place = (Arc<str>, Key);

/// An object as its row has it, with its bucket.
type Stored = (Arc<str>, Entry);

/// Reads all objects, where there is a second connection to the same content from both ends at the same time. The result names what
/// cannot be read; an error is one of the whole file.
pub(crate) fn load(db: &Connection, second: Option<Connection>) -> Result<Loaded, OpenError> {
    let mut loaded = match second.and_then(|second| from_both_ends(db, second)) {
        Some(entries) => Loaded { entries, ..Loaded::default() },
        None => from_the_start(db)?,
    };
    let newest = loaded.entries.iter().map(|(_, entry)| entry.revision).max().unwrap_or(0);
    let (revision, check) = match (meta(db, "revision"), meta(db, "revision_check")) {
        (Ok(revision), Ok(check)) => (revision, check),
        (Err(error), _) | (_, Err(error)) if !is_damage(&error) => return Err(error.into()),
        _ => (None, None),
    };
    let revision = revision.filter(|revision| check == Some(!revision)).map(i64::cast_unsigned);
    loaded.leapt = revision.is_none_or(|revision| revision < newest);
    loaded.revision = revision.filter(|_| !loaded.leapt).unwrap_or(newest.saturating_add(LEAP));
    Ok(loaded)
}

const ASCENDING: &str = "ORDER BY bucket, namespace, name";
const DESCENDING: &str = "ORDER BY bucket DESC, namespace DESC, name DESC";

/// Reads all objects that can be read.
fn from_the_start(db: &Connection) -> Result<Loaded, OpenError> {
    let mut loaded = Loaded::default();
    scan(db, ASCENDING, &mut loaded, |_| false)?;
    if loaded.broken.is_some() {
        // from the other end, up to the same hole
        let mut rest = Loaded::default();
        scan(db, DESCENDING, &mut rest, |_| false)?;
        append(&mut loaded.entries, rest.entries);
    }
    Ok(loaded)
}

/// Appends what was read from the other end, but for what is there already.
fn append(entries: &mut Vec<Stored>, mut rest: Vec<Stored>) {
    let last: Option<Place> = entries.last().map(|(bucket, entry)| (bucket.clone(), entry.key.clone()));
    let is_new = |(bucket, entry): &Stored| {
        last.as_ref().is_none_or(|(b, key)| (b.as_ref(), key) < (bucket.as_ref(), &entry.key))
    };
    rest.reverse();
    entries.extend(rest.into_iter().filter(is_new));
}

/// Reads all objects by two threads that go until they meet. `None`: something is not as it should be, and
/// [`from_the_start`] says what.
fn from_both_ends(db: &Connection, second: Connection) -> Option<Vec<Stored>> {
    // how far each has come
    let (first, last) = (Mutex::new(None), Mutex::new(None));
    // an answer every so often suffices: what both have read counts once
    let meets = |own: &Mutex<Option<Place>>, others: &Mutex<Option<Place>>, far: Ordering, entries: &[Stored]| {
        let Some((bucket, entry)) = entries.last().filter(|_| entries.len().is_multiple_of(LOOK_UP)) else {
            return false;
        };
        let place = (bucket.clone(), entry.key.clone());
        let others = others.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let met = others.is_some_and(|others| place.cmp(&others) != far);
        *own.lock().unwrap_or_else(PoisonError::into_inner) = Some(place);
        met
    };
    let read = |db: &Connection, order, meets: &dyn Fn(&[Stored]) -> bool| {
        let mut loaded = Loaded::default();
        scan(db, order, &mut loaded, meets).ok()?;
        (loaded.broken.is_none() && loaded.damaged.is_empty()).then_some(loaded.entries)
    };
    let (entries, rest) = std::thread::scope(|scope| {
        let backwards = std::thread::Builder::new().spawn_scoped(scope, || {
            // it moves to this thread
            let second = second;
            read(&second, DESCENDING, &|entries| meets(&last, &first, Ordering::Greater, entries))
        });
        let entries = read(db, ASCENDING, &|entries| meets(&first, &last, Ordering::Less, entries));
        (entries, backwards.ok().and_then(|backwards| backwards.join().ok().flatten()))
    });
    let mut entries = entries?;
    append(&mut entries, rest?);
    Some(entries)
}

/// Reads in an order, until `enough` says so of what there is.
fn scan(
    db: &Connection,
    order: &str,
    loaded: &mut Loaded,
    enough: impl Fn(&[Stored]) -> bool,
) -> Result<(), OpenError> {
    let mut rows = db.prepare(&format!("{SELECT} {order}"))?;
    let mut rows = rows.query([])?;
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(()),
            Err(error) if is_damage(&error) => {
                loaded.broken = Some(error);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let read = entry(row).and_then(|(bucket, entry, sum)| {
            let right = checksum(&bucket, &entry);
            if sum == Some(right) { Ok((bucket, entry)) } else { Err("its checksum is wrong".to_owned()) }
        });
        match read {
            Ok((bucket, entry)) => {
                // Objects of a bucket follow each other: they share its name.
                let bucket: Arc<str> = match loaded.entries.last() {
                    Some((last, _)) if **last == *bucket => last.clone(),
                    _ => bucket.into(),
                };
                loaded.entries.push((bucket, entry));
                if enough(&loaded.entries) {
                    return Ok(());
                }
            }
            Err(why) => {
                let key = [Part::read(row, 0), Part::read(row, 1), Part::read(row, 2)];
                loaded.damaged.push(Damaged { key, why });
            }
        }
    }
}

/// Whether the file's content is wrong, not the way to it.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase))
}

/// Moves damaged rows to the table `set_aside`, where nothing is lost: one damaged object must not keep all others from being
/// served, at this start and every later one. An error that [`is_damage`]: they cannot be told apart from others.
pub(crate) fn set_aside(db: &mut Connection, damaged: &[Damaged]) -> rusqlite::Result<()> {
    if damaged.is_empty() {
        return Ok(());
    }
    let tx = db.transaction()?;
    for Damaged { key, why } in damaged {
        let [bucket, namespace, name] = key.each_ref().map(Part::text);
        tracing::error!(
            bucket,
            namespace,
            name,
            why,
            "a stored object is damaged; it is set aside, the rest is served"
        );
        let moved = tx.execute(
            "INSERT INTO set_aside (bucket, namespace, name, created, revision, value, checksum, why)
             SELECT bucket, namespace, name, created, revision, value, checksum, ?4 FROM objects
             WHERE bucket = ?1 AND namespace = ?2 AND name = ?3",
            params![key[0], key[1], key[2], why],
        )?;
        let removed = tx.execute(DELETE, params![key[0], key[1], key[2]])?;
        if (moved, removed) != (1, 1) {
            return Err(out_of_order());
        }
    }
    tx.commit()
}

/// Removes damaged rows.
pub(crate) fn remove(db: &Connection, damaged: &[Damaged]) -> rusqlite::Result<()> {
    for Damaged { key, .. } in damaged {
        if db.execute(DELETE, params![key[0], key[1], key[2]])? != 1 {
            return Err(out_of_order());
        }
    }
    Ok(())
}

/// A row is not where its key says.
fn out_of_order() -> rusqlite::Error {
    let damage = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    rusqlite::Error::SqliteFailure(damage, Some("rows are out of order".to_owned()))
}

/// Notes damage that is not of one row.
pub(crate) fn note_damage(db: &Connection, why: &str) -> rusqlite::Result<()> {
    db.execute("INSERT INTO set_aside (bucket, namespace, name, why) VALUES ('', '', '', ?1)", [why]).map(drop)
}

/// Lets a row go that was set aside.
pub(crate) fn let_go(db: &Connection, SetAside { bucket, namespace, name, .. }: &SetAside) -> rusqlite::Result<()> {
    let sql = "DELETE FROM set_aside WHERE bucket = ?1 AND namespace = ?2 AND name = ?3";
    db.execute(sql, params![bucket, namespace, name]).map(drop)
}

/// What was set aside, at this start and before.
pub(crate) fn read_set_aside(db: &Connection) -> rusqlite::Result<Vec<SetAside>> {
    Ok(numbered_set_aside(db)?.into_iter().map(|(_, row)| row).collect())
}

/// Drops rows that were set aside. Their names may be no text: they are found by what was read of them.
pub(crate) fn drop_set_aside(db: &Connection, dropped: &[SetAside]) -> rusqlite::Result<()> {
    for (number, _) in numbered_set_aside(db)?.iter().filter(|(_, row)| dropped.contains(row)) {
        db.execute("DELETE FROM set_aside WHERE rowid = ?1", [number])?;
    }
    Ok(())
}

fn numbered_set_aside(db: &Connection) -> rusqlite::Result<Vec<(i64, SetAside)>> {
    let mut rows = db.prepare("SELECT bucket, namespace, name, why, revision, rowid FROM set_aside LIMIT 1000")?;
    let rows = rows.query_map([], |row| {
        let [bucket, namespace, name, why] = [0, 1, 2, 3].map(|index| Part::read(row, index).text());
        let revision = row.get::<_, i64>(4).ok().and_then(|revision| revision.try_into().ok());
        Ok((row.get(5)?, SetAside { bucket, namespace, name, revision, why }))
    })?;
    rows.collect()
}

pub(crate) fn put(db: &Connection, bucket: &str, entry: &Entry) -> rusqlite::Result<()> {
    let Entry { key, created, revision, object } = entry;
    let (created, revision) = (created.cast_signed(), revision.cast_signed());
    let sum = checksum(bucket, entry);
    db.prepare_cached(PUT)?
        .execute(params![bucket, key.namespace, key.name, created, revision, &object.text()[..], sum])
        .map(drop)
}

pub(crate) fn delete(db: &Connection, bucket: &str, key: &Key) -> rusqlite::Result<()> {
    db.prepare_cached(DELETE)?.execute(params![bucket, key.namespace, key.name]).map(drop)
}

pub(crate) fn set_revision(db: &Connection, revision: Revision) -> rusqlite::Result<()> {
    let revision = revision.cast_signed();
    set_meta(db, "revision", &revision)?;
    set_meta(db, "revision_check", &!revision)
}

/// Holds so much room in the file; 0: none.
pub(crate) fn set_ballast(db: &Connection, bytes: usize) -> rusqlite::Result<()> {
    db.execute("DELETE FROM meta WHERE key = 'ballast'", [])?;
    if bytes > 0 {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        db.execute("INSERT INTO meta (key, value) VALUES ('ballast', zeroblob(?1))", [bytes])?;
    }
    Ok(())
}

fn meta(db: &Connection, key: &str) -> rusqlite::Result<Option<i64>> {
    db.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| Ok(row.get(0).ok()))
        .optional()
        .map(Option::flatten)
}

fn set_meta(db: &Connection, key: &str, value: &dyn ToSql) -> rusqlite::Result<()> {
    let sql = "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = excluded.value";
    db.prepare_cached(sql)?.execute(params![key, value]).map(drop)
}

/// CRC-32 (IEEE 802.3) of a row: of each text and blob its length (64 bits, little-endian) and bytes, of each number its 64 bits.
pub(crate) fn checksum(bucket: &str, entry: &Entry) -> i64 {
    let mut sum = crc32fast::Hasher::new();
    let text = entry.bytes();
    for part in [bucket.as_bytes(), entry.key.namespace.as_bytes(), entry.key.name.as_bytes(), &text] {
        sum.update(&(part.len() as u64).to_le_bytes());
        sum.update(part);
    }
    sum.update(&entry.created.to_le_bytes());
    sum.update(&entry.revision.to_le_bytes());
    sum.finalize().into()
}

/// A text of the database as it is there, UTF-8 or not.
pub(crate) struct Part(Option<Vec<u8>>);

impl Part {
    fn read(row: &Row<'_>, index: usize) -> Self {
        match row.get_ref(index) {
            Ok(ValueRef::Text(text) | ValueRef::Blob(text)) => Self(Some(text.to_vec())),
            _ => Self(None),
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(self.0.as_deref().unwrap_or_default()).into_owned()
    }
}

impl ToSql for Part {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(self.0.as_deref().map_or(ValueRef::Null, ValueRef::Text)))
    }
}

/// An object from its row and the row's checksum, or what is wrong with the row.
fn entry(row: &Row<'_>) -> Result<(String, Entry, Option<i64>), String> {
    fn column<T: FromSql>(row: &Row<'_>, index: usize) -> Result<T, String> {
        row.get(index).map_err(|error| error.to_string())
    }
    let bytes: Vec<u8> = column(row, 5)?;
    let entry = Entry {
        key: Key { namespace: column(row, 1)?, name: column(row, 2)? },
        created: column::<i64>(row, 3)?.cast_unsigned(),
        revision: column::<i64>(row, 4)?.cast_unsigned(),
        object: Arc::new(Packed::from_text(bytes)),
    };
    Ok((column(row, 0)?, entry, row.get(6).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of so many objects in two buckets, closed, and two connections to it.
    fn filled(dir: &std::path::Path, count: u64) -> (Connection, Connection) {
        let path = dir.join("s.sqlite");
        let mut db = Connection::open(&path).unwrap();
        prepare(&mut db).unwrap();
        let tx = db.transaction().unwrap();
        for n in 0..count {
            let bucket = if n % 3 == 0 { "a" } else { "b" };
            let object = Arc::new(Packed::from_text(format!("{{\"n\":{n}}}").into_bytes()));
            put(&tx, bucket, &Entry { key: Key::new("ns", &format!("n{n}")), created: n, revision: n, object })
                .unwrap();
        }
        tx.commit().unwrap();
        (db, Connection::open(&path).unwrap())
    }

    fn places(entries: &[Stored]) -> Vec<(Place, u64)> {
        entries.iter().map(|(bucket, entry)| ((bucket.clone(), entry.key.clone()), entry.revision)).collect()
    }

    #[test]
    fn both_ends_make_the_whole() {
        let looked_up = u64::try_from(LOOK_UP).unwrap();
        for count in [0, 1, 2, looked_up - 1, looked_up, looked_up + 1, 2 * looked_up, 20 * looked_up + 7] {
            let dir = tempfile::tempdir().unwrap();
            let (db, second) = filled(dir.path(), count);
            let read = from_both_ends(&db, second).expect("nothing is wrong with it");
            let whole = from_the_start(&db).unwrap().entries;
            assert_eq!(read.len() as u64, count);
            assert_eq!(places(&read), places(&whole));
        }
    }

    #[test]
    fn damage_is_for_a_single_reader() {
        for damaged in ["n0", "n700", "n999"] {
            let dir = tempfile::tempdir().unwrap();
            let (db, second) = filled(dir.path(), 1000);
            db.execute("UPDATE objects SET created = created + 1 WHERE name = ?1", [damaged]).unwrap();
            assert!(from_both_ends(&db, second).is_none());
            let loaded = load(&db, None).unwrap();
            assert_eq!((loaded.entries.len(), loaded.damaged.len()), (999, 1));
        }
    }
}
