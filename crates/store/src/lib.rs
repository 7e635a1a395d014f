//! Revisioned values with watch: memory in front, SQLite behind.
//!
//! The store keeps JSON objects in buckets, ordered by namespace and name, and gives every write a revision: a number
//! that only grows, also over restarts. Reads and watches are served from memory. A write is a [`Txn`]: a batch of puts
//! and deletes, each with the revision that it expects to replace; it happens as a whole or not at all.
//!
//! While the disk cannot be written, the store refuses writes and still serves reads and watches ([`Health`]). `Store::memory` has
//! no SQLite and no thread: the caller carries out each write, which is what a deterministic simulator needs.
//!
//! The store knows neither HTTP nor kinds. What an object's revision looks like inside the object, and what bytes
//! it is on the wire, is the [`Codec`]'s business.
//!
//! # Durability
//!
//! - One thread writes. It takes all waiting transactions, evaluates them, commits them to SQLite with one fsync,
//!   shows them to readers and watchers, and then acknowledges them. So a crash cannot take back anything that
//!   was visible.
//! - Memory holds everything that was acknowledged. While a disk fails, only writes are refused, and `/readyz`
//!   says so. Once the file can be written again, the store writes to it what it lacks.
//! - After a failed fsync SQLite cannot say which pages are on the disk, so the store writes every page again
//!   (`VACUUM`, seconds for a large file).
//! - Rows have checksums, and the file has a format number. A damaged row is set aside until its object is
//!   written again.
//! - A large file is read from both ends at once, by a second connection that takes no lock, once its log is
//!   empty.
//!
//! # Watches
//!
//! - The last minutes of history are also on disk (`archive`), so a watch resumes after a restart. A reader that
//!   is older than this history gets 410 in the stream.
//! - History older than two to four seconds is on disk only (`Store::rest`), because open watches have received
//!   it.
//! - A watch of one namespace or one object is woken only by changes there.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))] // they panic on a full disk

mod aging;
mod archive;
mod commit;
mod copy;
mod file;
mod handle;
mod health;
mod history;
mod layout;
mod log;
mod memory;
mod snapshot;
mod watch;

pub use commit::Commit;
pub use copy::{adopt, back_up_closed, damaged_closed, drop_damaged_closed};
pub use file::{OpenError, Settle};
pub use handle::Store;
pub use health::{Fault, Health, SECONDS, SetAside, Trouble};

pub use snapshot::Snapshot;
pub use watch::{Batch, Gone, Interest, Watcher};

use bytes::Bytes;
use objects::packed::Packed;
use serde_json::Value;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// A point in the store's history. 0 is before all.
pub type Revision = u64;

/// Name of an object inside its bucket. Cluster-scoped objects have an empty namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// One version of one object. Shared by readers, watchers and the history; never changed.
#[derive(Debug)]
pub struct Entry {
    pub key: Key,
    /// Revision of the write that made the object.
    pub created: Revision,
    /// Revision of the write that made this version.
    pub revision: Revision,
    /// The object, with its revision stamped in, as the codec encodes it.
    pub object: Arc<Packed>,
}

impl Entry {
    /// The object's tree, which stays for a while.
    pub fn value(&self) -> Arc<Value> {
        self.object.open()
    }

    /// The object as the codec encodes it.
    pub fn bytes(&self) -> Bytes {
        self.object.text()
    }

    /// How many bytes these are.
    pub fn length(&self) -> usize {
        self.object.length()
    }
}

/// What a transaction requires of the version that it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The object does not exist.
    Absent,
    /// This is the revision of its last write; of several writes of one transaction, that of the last write before it.
    Revision(Revision),
}

/// One write.
#[derive(Clone, Debug)]
pub enum Op {
    Put {
        bucket: Arc<str>,
        key: Key,
        value: Value,
        expect: Expect,
    },
    /// Watchers see the object as it was stored.
    Delete {
        bucket: Arc<str>,
        key: Key,
        expect: Revision,
    },
}

impl Op {
    /// The bucket and the object's name in it.
    pub fn place(&self) -> (&Arc<str>, &Key) {
        match self {
            Self::Put { bucket, key, .. } | Self::Delete { bucket, key, .. } => (bucket, key),
        }
    }
}

/// Writes that happen together. Each gets a revision of its own, in order.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    pub ops: Vec<Op>,
    /// Damaged rows to be dropped.
    pub drops: Vec<SetAside>,
    /// Is dropped when the transaction is visible, or has failed; whether or not anybody still waits for the answer.
    pub hold: Option<Arc<dyn Any + Send + Sync>>,
}

impl Txn {
    pub fn one(op: Op) -> Self {
        Self { ops: vec![op], ..Self::default() }
    }
}

/// A change that happened.
#[derive(Clone, Debug)]
pub struct Event {
    pub bucket: Arc<str>,
    pub revision: Revision,
    /// The new version; for a delete the last version, stamped with the revision of the delete.
    pub entry: Arc<Entry>,
    /// The version before, absent for a create.
    pub previous: Option<Arc<Entry>>,
    pub deleted: bool,
}

/// Why a write did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// An expectation did not hold: read again and retry. What the write lost to is visible by now.
    #[error("the object has changed meanwhile")]
    Conflict,
    /// There is no room on the disk. The store takes writes again by itself once there is.
    #[error(
        "the disk is full ({0}): make room on the disk of the control plane's home, then try again; running jobs go on"
    )]
    Full(String),
    /// The disk takes no writes at all. The store takes writes again by itself once it does.
    #[error(
        "the disk is read-only ({0}): make the disk of the control plane's home writable, then try again; running jobs go on"
    )]
    ReadOnly(String),
    /// The database could not be written. The store tries by itself whether it can again.
    #[error(
        "the database cannot be written ({0}): see to the disk of the control plane's home, then try again; running jobs go on"
    )]
    Failed(String),
}

/// What the store leaves to the layer above.
pub trait Codec: Send + Sync + 'static {
    /// Puts the revision into the object.
    fn stamp(&self, value: &mut Value, revision: Revision);
    /// The bytes to keep and to send. Must be JSON.
    fn encode(&self, bucket: &str, value: &Value) -> Vec<u8>;
    /// Whether trees of the bucket's objects stay once they were looked at: where there are few, and each request asks them.
    fn stays(&self, _bucket: &str) -> bool {
        false
    }
}

/// Bounds of the history that is kept for watches that resume.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Events kept in memory for a bucket at most.
    pub events: usize,
    /// Encoded bytes of the events kept for a bucket at most (the newest 64 events are kept whatever their size).
    pub bytes: usize,
    /// Bytes of the history on disk at most, of all buckets together and compressed.
    pub archive_bytes: u64,
    /// How long the history on disk is kept at least, within `archive_bytes`.
    pub archive_time: Duration,
    /// Bytes of the history on disk that are kept also after their time.
    pub archive_kept: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            events: 10_000,
            bytes: 4 << 20,
            archive_bytes: 512 << 20,
            archive_time: Duration::from_secs(6 * 60),
            archive_kept: 16 << 20,
        }
    }
}
