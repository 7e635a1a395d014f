//! Watches: readers that follow the events of a bucket.

use crate::archive::Hint;
use crate::memory::Shared;
use crate::{Event, Key, Revision};
use std::sync::Arc;

/// Which objects of a bucket a watcher hears of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interest {
    All,
    Namespace(String),
    Object(Key),
}

impl Interest {
    pub fn covers(&self, key: &Key) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => key.namespace == *namespace,
            Self::Object(wanted) => key == wanted,
        }
    }
}

/// Events handed over at once, at most (in bytes, but for the last of them).
#[derive(Clone, Copy)]
pub(crate) struct Portion {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
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
    /// There is more to be read at once.
    pub more: bool,
}

/// Follows one bucket from a revision on.
pub struct Watcher {
    pub(crate) shared: Arc<Shared>,
    pub(crate) bucket: Arc<str>,
    pub(crate) interest: Interest,
    pub(crate) cursor: Revision,
    pub(crate) wake: tokio::sync::watch::Receiver<Revision>,
    /// Where on disk it reads on.
    pub(crate) hint: Option<Hint>,
}

impl Watcher {
    /// Small, as a reader that waits for a slow client keeps it alive.
    const PORTION: Portion = Portion { events: 512, bytes: 64 << 10 };

    /// Some of what has happened since the last call; empty where nothing has, or where nothing of it is of interest yet.
    pub fn poll(&mut self) -> Result<Batch, Gone> {
        let batch = self.shared.events(&self.bucket, &self.interest, self.cursor, Self::PORTION, &mut self.hint)?;
        self.cursor = batch.revision;
        Ok(batch)
    }

    /// Waits until something of interest has happened in the bucket.
    ///
    /// Cancel-safe. Also returns, with an empty batch, when the store is gone.
    pub async fn next(&mut self) -> Result<Batch, Gone> {
        loop {
            self.wake.mark_unchanged();
            let batch = self.poll()?;
            if !batch.events.is_empty() {
                return Ok(batch);
            }
            if batch.more {
                // it reads from the disk
                tokio::task::yield_now().await;
            } else if self.wake.changed().await.is_err() {
                return Ok(batch);
            }
        }
    }

    /// Up to where the reader has seen everything.
    pub fn revision(&self) -> Revision {
        self.cursor
    }

    /// Whether more than `bytes` of events wait for this reader.
    pub fn is_behind(&self, bytes: usize) -> bool {
        self.shared.waits(&self.bucket, &self.interest, self.cursor, bytes)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if self.interest != Interest::All {
            let (_, silent) = tokio::sync::watch::channel(0);
            self.shared.unsubscribe(&self.bucket, &self.interest, std::mem::replace(&mut self.wake, silent));
        }
    }
}
