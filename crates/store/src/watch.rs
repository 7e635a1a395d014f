//! History of a bucket and the readers that follow it.
//!
//! A watcher owns no queue: it holds the last revision it has seen and reads on from the bucket's history. So replay and
//! live events are one thing, a slow reader costs nothing, and one that the history has left behind learns that it has
//! missed something ([`Gone`]) instead of missing it silently.

use crate::memory::Shared;
use crate::{Event, Limits, Revision};
use std::collections::VecDeque;
use std::sync::Arc;

const KEPT_ALWAYS: usize = 64;

/// The recent events of a bucket, in order of revision.
#[derive(Debug)]
pub(crate) struct History {
    events: VecDeque<Event>,
    bytes: usize,
    /// Everything after this revision is in `events`.
    floor: Revision,
}

impl History {
    pub(crate) fn new(floor: Revision) -> Self {
        Self { events: VecDeque::new(), bytes: 0, floor }
    }

    pub(crate) fn push(&mut self, event: Event, limits: Limits) {
        self.bytes += event.entry.bytes.len();
        self.events.push_back(event);
        while self.events.len() > limits.events || (self.bytes > limits.bytes && self.events.len() > KEPT_ALWAYS) {
            if let Some(event) = self.events.pop_front() {
                self.bytes -= event.entry.bytes.len();
                self.floor = event.revision;
            }
        }
    }

    /// Forgets everything up to and including `revision`.
    pub(crate) fn compact(&mut self, revision: Revision) {
        while self.events.front().is_some_and(|e| e.revision <= revision) {
            if let Some(event) = self.events.pop_front() {
                self.bytes -= event.entry.bytes.len();
            }
        }
        self.floor = self.floor.max(revision);
    }

    pub(crate) fn floor(&self) -> Revision {
        self.floor
    }

    /// Events after `revision`, at most `limit`; `None` where some of them are forgotten.
    pub(crate) fn after(&self, revision: Revision, limit: usize) -> Option<Vec<Event>> {
        if revision < self.floor {
            return None;
        }
        let start = self.events.partition_point(|e| e.revision <= revision);
        Some(self.events.range(start..).take(limit).cloned().collect())
    }

    /// All events after `revision`, newest first, to walk a map back to what it was.
    pub(crate) fn back_to(&self, revision: Revision) -> Option<impl Iterator<Item = &Event>> {
        if revision < self.floor {
            return None;
        }
        let start = self.events.partition_point(|e| e.revision <= revision);
        Some(self.events.range(start..).rev())
    }
}

/// The reader's position is older than the history that the store keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {asked} ({oldest})")]
pub struct Gone {
    pub asked: Revision,
    /// The oldest revision that could be resumed from.
    pub oldest: Revision,
}

/// What a watcher got.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub events: Vec<Event>,
    /// Everything up to here has now been delivered to the reader.
    pub revision: Revision,
}

/// Follows one bucket from a revision on. Dropping it costs nothing.
pub struct Watcher {
    pub(crate) shared: Arc<Shared>,
    pub(crate) bucket: Arc<str>,
    pub(crate) cursor: Revision,
    pub(crate) wake: tokio::sync::watch::Receiver<Revision>,
}

impl Watcher {
    /// Events handed over at once at most.
    const BATCH: usize = 512;

    /// What has happened since the last call; empty where nothing has.
    pub fn poll(&mut self) -> Result<Batch, Gone> {
        let batch = self.shared.events(&self.bucket, self.cursor, Self::BATCH)?;
        self.cursor = batch.revision;
        Ok(batch)
    }

    /// Waits until something has happened in the bucket.
    ///
    /// Cancel-safe. Also returns, with an empty batch, when the store is gone.
    pub async fn next(&mut self) -> Result<Batch, Gone> {
        loop {
            self.wake.mark_unchanged();
            let batch = self.poll()?;
            if !batch.events.is_empty() || self.wake.changed().await.is_err() {
                return Ok(batch);
            }
        }
    }

    /// Up to where the reader has seen everything.
    pub fn revision(&self) -> Revision {
        self.cursor
    }
}
