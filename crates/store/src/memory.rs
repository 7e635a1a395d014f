//! The state in memory: what readers see, and how a write changes it.

use crate::aging::Aging;
use crate::archive::{Archive, Hint};
use crate::health::Vitals;
use crate::history::History;
use crate::snapshot::Map;
use crate::watch::{Batch, Gone, Interest, Portion};
use crate::{Codec, Entry, Event, Expect, Key, Limits, Op, Revision, Txn, WriteError};
use objects::packed::Packed;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// An object with the bucket that it is in.
pub(crate) type Placed = (Arc<str>, Arc<Entry>);

pub(crate) struct Bucket {
    pub(crate) map: Map,
    pub(crate) history: History,
}

impl Bucket {
    pub(crate) fn new(floor: Revision) -> Self {
        Self { map: Map::new_sync(), history: History::new(floor) }
    }
}

pub(crate) struct State {
    pub(crate) revision: Revision,
    /// History before this revision is forgotten in every bucket, also in those that come later.
    pub(crate) floor: Revision,
    /// As of the last rest.
    pub(crate) rested: Revision,
    pub(crate) buckets: HashMap<Arc<str>, Bucket>,
}

impl State {
    /// Everything in the bucket after this revision is in memory.
    fn oldest(&self, bucket: &str) -> Revision {
        self.buckets.get(bucket).map_or(self.floor, |found| found.history.floor())
    }
}

/// What readers, watchers and the writer share.
pub(crate) struct Shared {
    state: RwLock<State>,
    pub(crate) aging: Aging,
    pub(crate) codec: Box<dyn Codec>,
    limits: Limits,
    pub(crate) vitals: Vitals,
    /// The history on disk; a store without a disk has none.
    pub(crate) archive: Option<Arc<Archive>>,
}

impl Shared {
    /// An empty store's, whose history begins at a revision.
    pub(crate) fn new(revision: Revision, codec: impl Codec, limits: Limits, archive: Option<Arc<Archive>>) -> Self {
        let state = State { revision, floor: revision, rested: revision, buckets: HashMap::new() };
        Self {
            state: RwLock::new(state),
            aging: Aging::default(),
            codec: Box::new(codec),
            limits,
            vitals: Vitals::default(),
            archive,
        }
    }

    /// All objects as they are, with their buckets, and the revision.
    pub(crate) fn all(&self) -> (Revision, Vec<Placed>) {
        let (revision, maps) = {
            let state = self.read();
            let maps: Vec<_> = state.buckets.iter().map(|(name, bucket)| (name.clone(), bucket.map.clone())).collect();
            (state.revision, maps)
        };
        let entries = maps.iter().flat_map(|(name, map)| map.values().map(|entry| (name.clone(), entry.clone())));
        (revision, entries.collect())
    }

    // A panic while the lock is held can only come from a broken codec; the state itself is replaced as a whole, so
    // readers may go on.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Some of the events of interest after `after`, from memory or from the disk.
    pub(crate) fn events(
        &self,
        bucket: &str,
        interest: &Interest,
        after: Revision,
        portion: Portion,
        hint: &mut Option<Hint>,
    ) -> Result<Batch, Gone> {
        let (visible, oldest) = {
            let state = self.read();
            let found = match state.buckets.get(bucket) {
                Some(found) => found.history.after(interest, after, portion),
                None => (after >= state.floor).then_some((Vec::new(), false)),
            };
            if let Some((events, more)) = found {
                let revision = match events.last() {
                    Some(last) if more => last.revision,
                    _ => state.revision.max(after),
                };
                return Ok(Batch { events, revision, more });
            }
            (state.revision, state.oldest(bucket))
        };
        let archive = self.archive.as_ref();
        match archive.and_then(|archive| archive.read(bucket, interest, after, visible, portion, hint)) {
            Some((events, revision)) => Ok(Batch { events, revision, more: revision < visible }),
            None => Err(Gone { asked: after, oldest: archive.map_or(oldest, |a| a.floor().min(oldest)) }),
        }
    }

    pub(crate) fn waits(&self, bucket: &str, interest: &Interest, after: Revision, bytes: usize) -> bool {
        self.read().buckets.get(bucket).is_some_and(|found| found.history.waits(interest, after, bytes))
    }

    pub(crate) fn unsubscribe(&self, bucket: &str, interest: &Interest, bell: tokio::sync::watch::Receiver<Revision>) {
        if let Some(found) = self.write().buckets.get_mut(bucket) {
            found.history.unsubscribe(interest, bell);
        }
    }

    /// Evaluates a transaction against the visible state and what `pending` holds on top of it; adds its events there.
    pub(crate) fn evaluate(&self, txn: Txn, pending: &mut Pending) -> Result<Vec<Event>, WriteError> {
        let mut events: Vec<Event> = Vec::with_capacity(txn.ops.len());
        let mut revision = pending.revision;
        for op in txn.ops {
            let (bucket, key) = op.place();
            let own = |event: &&Event| event.entry.key == *key && event.bucket == *bucket;
            let current = match events.iter().rev().find(own) {
                Some(event) => (!event.deleted).then(|| event.entry.clone()),
                None => match pending.overlay.get(&(bucket.clone(), key.clone())) {
                    Some(entry) => entry.clone(),
                    None => self.read().buckets.get(bucket).and_then(|b| b.map.get(key)).cloned(),
                },
            };
            let expect = match &op {
                Op::Put { expect, .. } => *expect,
                Op::Delete { expect, .. } => Expect::Revision(*expect),
            };
            let first = events.iter().find(own).and_then(|event| event.previous.as_ref());
            match (expect, &current) {
                (Expect::Absent, None) => {}
                (Expect::Revision(wanted), Some(entry)) if entry.revision == wanted => {}
                (Expect::Revision(wanted), Some(_)) if first.is_some_and(|entry| entry.revision == wanted) => {}
                _ => return Err(WriteError::Conflict),
            }
            revision += 1;
            events.push(self.event(op, current, revision));
        }
        pending.revision = revision;
        for event in &events {
            let entry = (!event.deleted).then(|| event.entry.clone());
            pending.overlay.insert((event.bucket.clone(), event.entry.key.clone()), entry);
        }
        Ok(events)
    }

    fn event(&self, op: Op, previous: Option<Arc<Entry>>, revision: Revision) -> Event {
        let (bucket, key, mut value, deleted) = match op {
            Op::Put { bucket, key, value, .. } => (bucket, key, value, false),
            Op::Delete { bucket, key, .. } => {
                (bucket, key, previous.as_ref().map(|p| (*p.value()).clone()).unwrap_or_default(), true)
            }
        };
        self.codec.stamp(&mut value, revision);
        let text = self.codec.encode(&bucket, &value);
        let created = previous.as_ref().map_or(revision, |p| p.created);
        let object = Packed::new(Arc::new(value), text);
        let object = if self.codec.stays(&bucket) { object.staying() } else { object };
        let object = Arc::new(object);
        if !deleted {
            self.aging.add(&bucket, &object);
        }
        let entry = Entry { key, created, revision, object };
        Event { bucket, revision, entry: Arc::new(entry), previous, deleted }
    }

    /// Shows events to readers and watchers.
    pub(crate) fn publish<'a>(&self, events: impl IntoIterator<Item = &'a Event>) {
        let mut state = self.write();
        let state = &mut *state;
        let mut touched: Vec<Arc<str>> = Vec::new();
        for event in events {
            let floor = state.floor;
            let bucket = state.buckets.entry(event.bucket.clone()).or_insert_with(|| Bucket::new(floor));
            if event.deleted {
                bucket.map.remove_mut(&event.entry.key);
            } else {
                bucket.map.insert_mut(event.entry.key.clone(), event.entry.clone());
            }
            bucket.history.push(event.clone(), self.limits);
            state.revision = event.revision;
            if !touched.contains(&event.bucket) {
                touched.push(event.bucket.clone());
            }
        }
        for name in touched {
            if let Some(bucket) = state.buckets.get(&name) {
                bucket.history.ring(state.revision);
            }
        }
    }

    pub(crate) fn revision(&self) -> Revision {
        self.read().revision
    }
}

/// Transactions evaluated and not yet visible.
pub(crate) struct Pending {
    revision: Revision,
    overlay: HashMap<(Arc<str>, Key), Option<Arc<Entry>>>,
}

impl Pending {
    pub(crate) fn new(revision: Revision) -> Self {
        Self { revision, overlay: HashMap::new() }
    }
}
