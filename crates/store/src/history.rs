//! The recent events of a bucket in memory, and which watchers each of them wakes.
//!
//! A watcher of one namespace or one object is not woken by others: it has a bell of its own, shared with watchers of
//! the same scope, and a list of the events in that scope. So its position does not age while others write: it has
//! missed something only if one of *its* events is forgotten.

use crate::watch::{Interest, Portion};
use crate::{Event, Key, Limits, Revision};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use tokio::sync::watch;

const KEPT_ALWAYS: usize = 64;

/// The recent events of a bucket, in order of revision.
pub(crate) struct History {
    events: VecDeque<Event>,
    bytes: usize,
    /// Everything after this revision is in `events`.
    floor: Revision,
    rested: Rested,
    /// Rings with every event.
    bell: watch::Sender<Revision>,
    namespaces: HashMap<String, Scope>,
    objects: HashMap<Key, Scope>,
}

/// What the watchers of one namespace or one object share.
struct Scope {
    /// Revisions of the history's events that are of interest to them.
    revisions: VecDeque<Revision>,
    /// All events of interest after this revision are in the history.
    floor: Revision,
    rested: Rested,
    bell: watch::Sender<Revision>,
}

/// What of the events remains in memory that a rest has left to the disk: how much a reader who has not seen them has to read.
struct Rested {
    /// Revision and bytes of each, in order.
    sizes: VecDeque<(Revision, usize)>,
    /// Everything after this revision is in `sizes`, or in memory.
    floor: Revision,
}

impl Rested {
    /// As many events as a history has in memory.
    const MOST: usize = 10_000;

    fn new(floor: Revision) -> Self {
        Self { sizes: VecDeque::new(), floor }
    }

    fn push(&mut self, revision: Revision, bytes: usize) {
        self.sizes.push_back((revision, bytes));
        if self.sizes.len() > Self::MOST
            && let Some((oldest, _)) = self.sizes.pop_front()
        {
            self.floor = oldest;
        }
    }

    /// Everything up to `revision` is forgotten.
    fn forget(&mut self, revision: Revision) {
        self.sizes.clear();
        self.floor = self.floor.max(revision);
    }

    /// Bytes of those after `revision`; `None` where some are forgotten.
    fn after(&self, revision: Revision) -> Option<usize> {
        let first = self.sizes.partition_point(|(at, _)| *at <= revision);
        (revision >= self.floor).then(|| self.sizes.range(first..).map(|(_, bytes)| bytes).sum())
    }
}

impl Scope {
    fn push(&mut self, revision: Revision) {
        self.revisions.push_back(revision);
        self.bell.send_replace(revision);
    }

    /// `event` leaves memory; for the disk alone, where it `rests`.
    fn pop(&mut self, event: &Event, rests: bool) {
        while self.revisions.front().is_some_and(|first| *first <= event.revision) {
            if let Some(first) = self.revisions.pop_front() {
                self.floor = first;
            }
        }
        if rests {
            self.rested.push(event.revision, event.entry.length());
        } else {
            self.rested.forget(event.revision);
        }
    }
}

impl History {
    pub(crate) fn new(floor: Revision) -> Self {
        Self {
            events: VecDeque::new(),
            bytes: 0,
            floor,
            rested: Rested::new(floor),
            bell: watch::Sender::new(0),
            namespaces: HashMap::new(),
            objects: HashMap::new(),
        }
    }

    pub(crate) fn push(&mut self, event: Event, limits: Limits) {
        let key = &event.entry.key;
        if let Some(scope) = self.namespaces.get_mut(&key.namespace) {
            scope.push(event.revision);
        }
        if let Some(scope) = self.objects.get_mut(key) {
            scope.push(event.revision);
        }
        self.bytes = self.bytes.saturating_add(event.entry.length());
        self.events.push_back(event);
        while self.events.len() > limits.events || (self.bytes > limits.bytes && self.events.len() > KEPT_ALWAYS) {
            self.pop(false);
        }
    }

    /// Leaves everything up to and including `revision` to the disk, which has all that is newer than `disk`.
    pub(crate) fn rest(&mut self, disk: Revision, revision: Revision) -> Vec<Event> {
        let mut gone = Vec::new();
        while self.events.front().is_some_and(|event| event.revision > disk && event.revision <= revision) {
            gone.extend(self.pop(true));
        }
        gone
    }

    /// Rings for watches of everything; the others' bells ring as their events come.
    pub(crate) fn ring(&self, revision: Revision) {
        self.bell.send_replace(revision);
    }

    fn pop(&mut self, rests: bool) -> Option<Event> {
        let event = self.events.pop_front()?;
        let bytes = event.entry.length();
        self.bytes = self.bytes.saturating_sub(bytes);
        self.floor = event.revision;
        if rests {
            self.rested.push(event.revision, bytes);
        } else {
            self.rested.forget(event.revision);
        }
        let key = &event.entry.key;
        if let Some(scope) = self.namespaces.get_mut(&key.namespace) {
            scope.pop(&event, rests);
        }
        if let Some(scope) = self.objects.get_mut(key) {
            scope.pop(&event, rests);
        }
        Some(event)
    }

    /// Forgets everything up to and including `revision`.
    pub(crate) fn compact(&mut self, revision: Revision) {
        while self.events.front().is_some_and(|e| e.revision <= revision) {
            self.pop(false);
        }
        self.floor = self.floor.max(revision);
        self.rested.forget(revision);
    }

    pub(crate) fn floor(&self) -> Revision {
        self.floor
    }

    fn scope(&self, interest: &Interest) -> Option<&Scope> {
        match interest {
            Interest::All => None,
            Interest::Namespace(namespace) => self.namespaces.get(namespace),
            Interest::Object(key) => self.objects.get(key),
        }
    }

    /// Whether nothing of interest after `revision` is forgotten.
    pub(crate) fn covers(&self, interest: &Interest, revision: Revision) -> bool {
        revision >= self.scope(interest).map_or(self.floor, |scope| scope.floor.min(self.floor))
    }

    /// Events of interest after `revision`, a portion of them and whether it was cut short; `None` where some are forgotten.
    pub(crate) fn after(
        &self,
        interest: &Interest,
        revision: Revision,
        portion: Portion,
    ) -> Option<(Vec<Event>, bool)> {
        if !self.covers(interest, revision) {
            return None;
        }
        let mut out = Vec::new();
        let mut bytes = 0_usize;
        for event in self.of_interest(interest, revision) {
            if out.len() >= portion.events || bytes >= portion.bytes {
                return Some((out, true));
            }
            bytes = bytes.saturating_add(event.entry.length());
            out.push(event.clone());
        }
        Some((out, false))
    }

    fn of_interest<'a>(&'a self, interest: &'a Interest, after: Revision) -> Box<dyn Iterator<Item = &'a Event> + 'a> {
        let start = |revision| self.events.partition_point(move |e| e.revision <= revision);
        let Some(scope) = self.scope(interest) else {
            return Box::new(self.events.range(start(after)..).filter(|event| interest.covers(&event.entry.key)));
        };
        let first = scope.revisions.partition_point(|revision| *revision <= after);
        let at = move |revision: &Revision| self.events.get(start(revision.saturating_sub(1)));
        Box::new(scope.revisions.range(first..).filter_map(at))
    }

    /// Whether more than `bytes` of events of interest wait for a reader that has seen everything up to `after`.
    pub(crate) fn waits(&self, interest: &Interest, after: Revision, bytes: usize) -> bool {
        let mut sum = 0_usize;
        if !self.covers(interest, after) {
            match self.scope(interest).map_or(&self.rested, |scope| &scope.rested).after(after) {
                Some(rested) if rested <= bytes => sum = rested,
                _ => return true,
            }
        }
        self.of_interest(interest, after).any(|event| {
            sum = sum.saturating_add(event.entry.length());
            sum > bytes
        })
    }

    /// All events after `revision`, newest first, to walk a map back to what it was.
    pub(crate) fn back_to(&self, revision: Revision) -> Option<impl Iterator<Item = &Event>> {
        if revision < self.floor {
            return None;
        }
        let start = self.events.partition_point(|e| e.revision <= revision);
        Some(self.events.range(start..).rev())
    }

    /// The bell of those with this interest.
    pub(crate) fn subscribe(&mut self, interest: &Interest) -> watch::Receiver<Revision> {
        let (events, floor) = (&self.events, self.floor);
        let new = || Scope {
            revisions: events.iter().filter(|e| interest.covers(&e.entry.key)).map(|e| e.revision).collect(),
            floor,
            rested: Rested::new(floor),
            bell: watch::Sender::new(0),
        };
        match interest {
            Interest::All => self.bell.subscribe(),
            Interest::Namespace(namespace) => entry(&mut self.namespaces, namespace, new).bell.subscribe(),
            Interest::Object(key) => entry(&mut self.objects, key, new).bell.subscribe(),
        }
    }

    /// A watcher with this interest ends.
    pub(crate) fn unsubscribe(&mut self, interest: &Interest, bell: watch::Receiver<Revision>) {
        drop(bell);
        if self.scope(interest).is_some_and(|scope| scope.bell.receiver_count() == 0) {
            match interest {
                Interest::All => {}
                Interest::Namespace(namespace) => _ = self.namespaces.remove(namespace),
                Interest::Object(key) => _ = self.objects.remove(key),
            }
        }
    }
}

fn entry<'a, K: Clone + Eq + Hash>(
    scopes: &'a mut HashMap<K, Scope>,
    key: &K,
    new: impl FnOnce() -> Scope,
) -> &'a mut Scope {
    scopes.entry(key.clone()).or_insert_with(new)
}
