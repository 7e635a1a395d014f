//! The store as those have it who read, write and watch.

use crate::archive::Archive;
use crate::commit::{Ack, Commit, stopped};
use crate::file::{OpenError, Settle, settle, with};
use crate::health::{Health, SetAside};
use crate::log::{Log, Opened};
use crate::memory::{Bucket, Pending, Shared};
use crate::snapshot::{Map, Snapshot, take_back};
use crate::watch::{Gone, Interest, Portion, Watcher};
use crate::{Codec, Entry, Key, Limits, Revision, Txn, WriteError};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

/// How often a snapshot of the past reads on from the disk: some 2 MiB each time, which takes tens of milliseconds.
const BACK_MAX: usize = 16;

enum Backend {
    /// Writers take turns; each carries out its own transaction.
    Memory(Mutex<()>),
    Log {
        queue: Option<mpsc::Sender<(Txn, Ack)>>,
        thread: Option<JoinHandle<()>>,
    },
}

struct Inner {
    shared: Arc<Shared>,
    /// Where the database is, where there is one.
    path: Option<PathBuf>,
    backend: Backend,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Backend::Log { queue, thread } = &mut self.backend {
            drop(queue.take());
            if let Some(thread) = thread.take()
                && thread.join().is_err()
            {
                tracing::error!("the store's writer thread panicked");
            }
        }
    }
}

/// The store; cheap to clone. When the last clone is dropped, waiting writes are carried out and the database is closed.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

impl Store {
    /// A store without a disk: writes happen in the caller, at once.
    pub fn memory(codec: impl Codec) -> Self {
        Self::memory_with(codec, Limits::default())
    }

    /// As [`Store::memory`], with bounds of its own.
    pub fn memory_with(codec: impl Codec, limits: Limits) -> Self {
        let shared = Arc::new(Shared::new(0, codec, limits, None));
        Self { inner: Arc::new(Inner { shared, path: None, backend: Backend::Memory(Mutex::new(())) }) }
    }

    /// A store in the SQLite file at `path`, made if absent. Reads all objects into memory; what happened in the last
    /// minutes stays on disk, in a folder beside it.
    ///
    /// # Errors
    /// The file cannot be opened or is no store, or another process has it open.
    pub fn open(path: &Path, codec: impl Codec) -> Result<Self, OpenError> {
        Self::open_with(path, codec, Limits::default())
    }

    /// As [`Store::open`], with bounds of its own.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(path: &Path, codec: impl Codec, limits: Limits) -> Result<Self, OpenError> {
        Self::open_on(path, codec, limits, settle)
    }

    /// As [`Store::open_with`], on a disk that has its own way to write a file down once more.
    ///
    /// # Errors
    /// As [`Store::open`].
    #[doc(hidden)]
    pub fn open_on(path: &Path, codec: impl Codec, limits: Limits, settle: Settle) -> Result<Self, OpenError> {
        let Opened { log, loaded, set_aside } = Log::open(path, settle)?;
        let revision = loaded.revision;
        let archive = Archive::open(path, revision, limits).map(Arc::new);
        let shared = Shared::new(revision, codec, limits, archive);
        shared.vitals.found(set_aside);
        {
            let mut state = shared.write();
            for (bucket, mut entry) in loaded.entries {
                if shared.codec.stays(&bucket) {
                    entry.object = Arc::new(entry.object.staying());
                }
                shared.aging.add(&bucket, &entry.object);
                let bucket = state.buckets.entry(bucket).or_insert_with(|| Bucket::new(revision));
                bucket.map.insert_mut(entry.key.clone(), Arc::new(entry));
            }
        }
        let shared = Arc::new(shared);
        let (queue, waiting) = mpsc::channel();
        let writer = shared.clone();
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || log.run(&writer, &waiting))
            .map_err(OpenError::Thread)?;
        let backend = Backend::Log { queue: Some(queue), thread: Some(thread) };
        Ok(Self { inner: Arc::new(Inner { shared, path: Some(path.to_owned()), backend }) })
    }

    /// Starts a write. With SQLite behind it goes on in the writer thread whether or not the answer is awaited.
    pub fn submit(&self, mut txn: Txn) -> Commit {
        let shared = &self.inner.shared;
        match &self.inner.backend {
            Backend::Memory(turn) => {
                let _turn: MutexGuard<'_, ()> = turn.lock().unwrap_or_else(PoisonError::into_inner);
                // until the end of the block
                let _hold = txn.hold.take();
                let mut pending = Pending::new(shared.revision());
                let result = shared.evaluate(txn, &mut pending);
                if let Ok(events) = &result {
                    shared.publish(events);
                }
                Commit::Done(Some(result))
            }
            Backend::Log { queue, .. } => {
                let (ack, answer) = Ack::new(txn.hold.take());
                match queue.as_ref().map(|queue| queue.send((txn, ack))) {
                    Some(Ok(())) => Commit::Waiting(answer),
                    _ => Commit::Done(Some(Err(stopped()))),
                }
            }
        }
    }

    /// The object as it is, if it is.
    pub fn get(&self, bucket: &str, key: &Key) -> Option<Arc<Entry>> {
        self.inner.shared.read().buckets.get(bucket)?.map.get(key).cloned()
    }

    /// The bucket as it is: an immutable view that costs nothing to take.
    pub fn snapshot(&self, bucket: &str) -> Snapshot {
        let state = self.inner.shared.read();
        let map = state.buckets.get(bucket).map_or_else(Map::new_sync, |b| b.map.clone());
        Snapshot { revision: state.revision, map }
    }

    /// The bucket as it was after `revision`.
    ///
    /// # Errors
    /// The store has forgotten what happened since, or the revision lies in the future.
    pub fn snapshot_at(&self, bucket: &str, revision: Revision) -> Result<Snapshot, Gone> {
        let state = self.inner.shared.read();
        let gone = |oldest| Gone { asked: revision, oldest };
        let Some(found) = state.buckets.get(bucket) else {
            let known = (state.floor..=state.revision).contains(&revision);
            return known.then(|| Snapshot { revision, map: Map::new_sync() }).ok_or(gone(state.floor));
        };
        if revision > state.revision {
            return Err(gone(state.revision));
        }
        let mut map = found.map.clone();
        if let Some(events) = found.history.back_to(revision) {
            for event in events {
                take_back(&mut map, &event.entry.key, event.previous.as_ref());
            }
            return Ok(Snapshot { revision, map });
        }
        let (visible, oldest) = (state.revision, found.history.floor());
        drop(state);
        // From the disk, if it is not too much; there the oldest comes first.
        let mut before: HashMap<Key, Option<Arc<Entry>>> = HashMap::new();
        let (mut reached, mut hint) = (revision, None);
        for _ in 0..BACK_MAX {
            let portion = Portion { events: usize::MAX, bytes: usize::MAX };
            let archive = self.inner.shared.archive.as_ref();
            let read = archive.and_then(|a| a.read(bucket, &Interest::All, reached, visible, portion, &mut hint));
            let (events, to) = read.ok_or(gone(oldest))?;
            for event in events {
                before.entry(event.entry.key.clone()).or_insert(event.previous);
            }
            reached = to;
            if reached >= visible {
                for (key, previous) in &before {
                    take_back(&mut map, key, previous.as_ref());
                }
                return Ok(Snapshot { revision, map });
            }
        }
        Err(gone(oldest))
    }

    /// A while is over: objects are older by one rest ([`Store::compress`]), and the events from before the last call that the disk
    /// has are dropped from memory, as by now those who watch have heard of them. To be called every few seconds.
    pub fn rest(&self) {
        self.inner.shared.aging.rest();
        let Some(archive) = &self.inner.shared.archive else { return };
        let disk = archive.floor();
        let mut gone = Vec::new();
        {
            let mut state = self.inner.shared.write();
            let state = &mut *state;
            let before = std::mem::replace(&mut state.rested, state.revision);
            gone.extend(state.buckets.values_mut().flat_map(|bucket| bucket.history.rest(disk, before)));
        }
        // not while others wait
        drop(gone);
    }

    /// Compresses some `bytes` of the objects that no write has replaced during the last two rests ([`Store::rest`]). True: there may be
    /// more of them.
    pub fn compress(&self, bytes: usize) -> bool {
        self.inner.shared.aging.compress(bytes)
    }

    /// Follows a bucket: everything after `from`, first what has happened, then what happens.
    ///
    /// # Errors
    /// Some of it is forgotten.
    pub fn watch(&self, bucket: &str, from: Revision) -> Result<Watcher, Gone> {
        self.watch_some(bucket, Interest::All, from)
    }

    /// As [`Store::watch`], for some of the bucket's objects. What happens to others does not wake the watcher.
    ///
    /// # Errors
    /// Some of what happened in the bucket is forgotten.
    pub fn watch_some(&self, bucket: &str, interest: Interest, from: Revision) -> Result<Watcher, Gone> {
        let shared = &self.inner.shared;
        let mut state = shared.write();
        let floor = state.floor;
        let (bucket, found) = match state.buckets.get_key_value(bucket) {
            Some((name, _)) => (name.clone(), state.buckets.get_mut(bucket)),
            None => (bucket.into(), None),
        };
        let found = match found {
            Some(found) => found,
            None => state.buckets.entry(bucket.clone()).or_insert_with(|| Bucket::new(floor)),
        };
        let memory = found.history.floor();
        let oldest = shared.archive.as_ref().map_or(memory, |archive| archive.floor().min(memory));
        if from < oldest {
            return Err(Gone { asked: from, oldest });
        }
        let wake = found.history.subscribe(&interest);
        Ok(Watcher { shared: shared.clone(), bucket, interest, cursor: from, wake, hint: None })
    }

    /// Revision of the last visible write.
    pub fn revision(&self) -> Revision {
        self.inner.shared.revision()
    }

    /// How the store is: whether it can write, and what it has written.
    pub fn health(&self) -> Health {
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let bytes = self.inner.path.as_ref().map_or(0, |path| size(path).saturating_add(size(&with(path, "-wal"))));
        self.inner.shared.vitals.health(bytes)
    }

    /// How many objects there are, by bucket.
    pub fn counts(&self) -> Vec<(Arc<str>, usize)> {
        let state = self.inner.shared.read();
        state.buckets.iter().map(|(name, bucket)| (name.clone(), bucket.map.size())).collect()
    }

    /// Writes all objects as they are at one moment to a database of its own, for its owner alone, while writes go on. Blocks for
    /// as long as that takes; returns the revision.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn back_up(&self, to: &Path) -> Result<Revision, OpenError> {
        let (revision, entries) = self.inner.shared.all();
        crate::copy::write(to, revision, entries.iter().map(|(bucket, entry)| (bucket.as_ref(), entry.as_ref())), &[])?;
        Ok(revision)
    }

    /// Drops damaged rows for ever, as [`Store::health`] tells of them. What is not among them is left alone.
    ///
    /// # Errors
    /// The disk cannot be written.
    pub async fn drop_damaged(&self, rows: Vec<SetAside>) -> Result<(), WriteError> {
        self.submit(Txn { drops: rows, ..Txn::default() }).await.map(drop)
    }

    /// Forgets the history up to now: watches can start from here on, not from before.
    pub fn compact(&self) {
        let mut state = self.inner.shared.write();
        let revision = state.revision;
        state.floor = revision;
        for bucket in state.buckets.values_mut() {
            bucket.history.compact(revision);
        }
        if let Some(archive) = &self.inner.shared.archive {
            archive.reset(revision);
        }
    }
}
