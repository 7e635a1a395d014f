//! The health of the store: whether it can write, what it has set aside, and how long its commits took.

use crate::{Key, Revision};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the classes into which durations are counted, in seconds.
pub const SECONDS: [f64; 12] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// A stored object that was damaged. Its row is kept until the object is written anew or the row is dropped; it is not served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAside {
    /// Empty, as is the rest of the name, where it is not known what the damage hit.
    pub bucket: String,
    pub namespace: String,
    pub name: String,
    /// When it was last written, as the row says; `None` where that cannot be read.
    pub revision: Option<Revision>,
    pub why: String,
}

impl SetAside {
    /// Whether it is the row of this object.
    pub(crate) fn is_of(&self, bucket: &str, key: &Key) -> bool {
        !self.name.is_empty() && (&*self.bucket, &*self.namespace, &*self.name) == (bucket, &*key.namespace, &*key.name)
    }

    /// Damage of which it is not known what it hit.
    pub(crate) fn of_all(why: &str) -> Self {
        Self {
            bucket: String::new(),
            namespace: String::new(),
            name: String::new(),
            revision: None,
            why: why.to_owned(),
        }
    }
}

/// What kind of trouble a disk gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no room: no free block, or the quota is used up.
    Full,
    /// It is mounted read-only, or was made so after an error.
    ReadOnly,
    /// Anything else.
    Other,
}

impl Fault {
    pub(crate) fn of(error: &std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full,
            ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            _ => Self::Other,
        }
    }

    /// What is wrong, in a few words.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Self::Full => "the disk is full",
            Self::ReadOnly => "the disk is read-only",
            Self::Other => "the database cannot be written",
        }
    }
}

/// Why the store cannot write at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub fault: Fault,
    /// What the database says.
    pub message: String,
}

impl Trouble {
    pub(crate) fn of(error: &std::io::Error) -> Self {
        Self { fault: Fault::of(error), message: error.to_string() }
    }
}

/// How the store is.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// The last write failed, and none has succeeded since.
    pub trouble: Option<Trouble>,
    /// At most the first 1000.
    pub set_aside: Vec<SetAside>,
    /// Commits, by how long they took: for each bound of [`SECONDS`], and for what took longer, how many.
    pub commits: Vec<u64>,
    /// What all of them took.
    pub commit_time: Duration,
    /// Transactions in these commits.
    pub transactions: u64,
    /// Commits that failed.
    pub failed: u64,
    /// Bytes of the database and its log.
    pub bytes: u64,
}

/// The same, as the writer keeps it.
#[derive(Default)]
pub(crate) struct Vitals {
    trouble: Mutex<Option<Trouble>>,
    set_aside: Mutex<Vec<SetAside>>,
    commits: [AtomicU64; SECONDS.len() + 1],
    nanoseconds: AtomicU64,
    transactions: AtomicU64,
    failed: AtomicU64,
}

impl Vitals {
    pub(crate) fn found(&self, set_aside: Vec<SetAside>) {
        *self.set_aside.lock().unwrap_or_else(PoisonError::into_inner) = set_aside;
    }

    pub(crate) fn set_aside(&self) -> Vec<SetAside> {
        self.set_aside.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets damage of objects that have been written anew, and of rows that were dropped.
    pub(crate) fn renewed(&self, renewed: &[SetAside]) {
        if !renewed.is_empty() {
            self.set_aside.lock().unwrap_or_else(PoisonError::into_inner).retain(|row| !renewed.contains(row));
        }
    }

    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes whether the store can write; tells the log when that changes.
    pub(crate) fn set_trouble(&self, trouble: Option<Trouble>) {
        let mut now = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*now, &trouble) {
            (None, Some(trouble)) => tracing::error!(
                error = trouble.message,
                "the store cannot write; reads and running jobs go on, and it tries again by itself"
            ),
            (Some(_), None) => tracing::warn!("the store can write again"),
            _ => {}
        }
        *now = trouble;
    }

    pub(crate) fn committed(&self, took: Duration, transactions: usize) {
        let class = SECONDS.iter().position(|bound| took.as_secs_f64() <= *bound).unwrap_or(SECONDS.len());
        self.commits[class].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.transactions.fetch_add(transactions as u64, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn health(&self, bytes: u64) -> Health {
        Health {
            trouble: self.trouble(),
            set_aside: self.set_aside(),
            commits: self.commits.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            commit_time: Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)),
            transactions: self.transactions.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            bytes,
        }
    }
}
