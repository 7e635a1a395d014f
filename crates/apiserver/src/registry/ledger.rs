//! The resources in use in each namespace with quotas: exact under concurrent creates, and without counting again each time.
//!
//! A ledger follows the objects of one kind in one namespace and keeps their sums. What was admitted and is not yet visible is
//! reserved: the reservation travels with the transaction ([`store::Txn::hold`]), and ends when that has been decided and shown.
//! A reservation whose object has changed since it was made does not count, as the object itself does.

use super::{Core, Target};
use api::quota::{self as amounts, Amounts};
use jiff::Timestamp;
use resource::status::Status;
use resource::{Growth, Quotas};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{Entry, Event, Interest, Revision, Store, Watcher};

/// A namespace, and the group and plural of a kind.
type Place = (String, String, String);

/// The ledgers of all namespaces that have quotas and in which something was created.
pub(super) struct Ledgers {
    quotas: Arc<dyn Quotas>,
    ledgers: Mutex<HashMap<Place, Arc<Mutex<Ledger>>>>,
}

impl Ledgers {
    pub(super) fn new(quotas: Arc<dyn Quotas>) -> Self {
        Self { quotas, ledgers: Mutex::default() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // a ledger that a panic left half done is counted anew
    mutex.lock().unwrap_or_else(|poisoned| {
        mutex.clear_poison();
        PoisonError::into_inner(poisoned)
    })
}

/// What one object uses.
struct Item {
    entry: Arc<Entry>,
    class: String,
    used: Amounts,
    /// From when on, in seconds of Unix time, it uses less.
    over: Option<i64>,
}

/// What is admitted and not yet visible.
struct Reserved {
    name: String,
    /// The version of the object from which it was computed; `None`: there was none.
    base: Option<Revision>,
    object: Arc<Value>,
    more: Amounts,
}

struct Ledger {
    quotas: Arc<dyn Quotas>,
    group: String,
    plural: String,
    namespace: String,
    bucket: Arc<str>,
    /// `None`: it is to be counted anew.
    watcher: Option<Watcher>,
    items: HashMap<String, Item>,
    /// Sums by class, each with an object of that class.
    sums: HashMap<String, (Arc<Value>, Amounts)>,
    over: BTreeSet<(i64, String)>,
    reserved: HashMap<u64, Reserved>,
    next: u64,
}

impl Ledger {
    fn catch_up(&mut self, store: &Store, now: Timestamp) {
        let mut watcher = self.watcher.take();
        while let Some(following) = &mut watcher {
            match following.poll() {
                Ok(batch) => {
                    for event in &batch.events {
                        self.apply(event, now);
                    }
                    if !batch.more {
                        break;
                    }
                }
                Err(_) => watcher = None,
            }
        }
        if watcher.is_none() {
            self.items.clear();
            self.sums.clear();
            self.over.clear();
            let snapshot = store.snapshot(&self.bucket);
            let namespace = self.namespace.clone();
            for entry in snapshot.iter(Some(&namespace), None) {
                self.put(entry, now);
            }
            watcher = store.watch_some(&self.bucket, Interest::Namespace(namespace), snapshot.revision).ok();
        }
        self.watcher = watcher;
        while let Some((over, name)) = self.over.first().cloned()
            && over < now.as_second()
        {
            self.over.remove(&(over, name.clone()));
            if let Some(item) = self.take(&name) {
                self.put(&item.entry, now);
            }
        }
    }

    fn apply(&mut self, event: &Event, now: Timestamp) {
        let name = &event.entry.key.name;
        self.take(name);
        if !event.deleted {
            self.put(&event.entry, now);
        }
    }

    fn take(&mut self, name: &str) -> Option<Item> {
        let item = self.items.remove(name)?;
        if let Some((_, sum)) = self.sums.get_mut(&item.class) {
            for (name, amount) in &item.used {
                if let Some(sum) = sum.get_mut(name) {
                    *sum = sum.minus(*amount);
                }
            }
        }
        if let Some(over) = item.over {
            self.over.remove(&(over, name.to_owned()));
        }
        Some(item)
    }

    fn put(&mut self, entry: &Arc<Entry>, now: Timestamp) {
        let (name, object) = (&entry.key.name, &entry.object.glance());
        let class = self.quotas.class(&self.group, &self.plural, object);
        let used = self.quotas.usage(&self.group, &self.plural, object, now);
        let over = self.quotas.ends(&self.group, &self.plural, object).filter(|over| *over >= now.as_second());
        if let Some(over) = over {
            self.over.insert((over, name.clone()));
        }
        let (_, sum) = self.sums.entry(class.clone()).or_insert_with(|| (object.clone(), Amounts::new()));
        amounts::add(sum, &used);
        self.items.insert(name.clone(), Item { entry: entry.clone(), class, used, over });
    }

    /// What is in use of what this quota limits.
    fn used(&self, quota: &Value) -> Amounts {
        let mut out = Amounts::new();
        for (object, sum) in self.sums.values() {
            if self.quotas.counts(quota, &self.plural, object) {
                amounts::add(&mut out, sum);
            }
        }
        for reserved in self.reserved.values() {
            let shown = self.items.get(&reserved.name).map(|item| item.entry.revision) != reserved.base;
            if !shown && self.quotas.counts(quota, &self.plural, &reserved.object) {
                amounts::add(&mut out, &reserved.more);
            }
        }
        out
    }
}

/// A reservation; it ends when this is dropped.
struct Hold {
    ledger: Arc<Mutex<Ledger>>,
    number: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        lock(&self.ledger).reserved.remove(&self.number);
    }
}

/// What a write holds until it is visible, where it needs anything held.
pub(crate) type Held = Option<Arc<dyn std::any::Any + Send + Sync>>;

impl Core {
    /// Refuses a write for which a quota of its namespace has no room; else reserves what it adds, until the result is dropped.
    /// `old`: what is replaced, and its revision.
    ///
    /// # Errors
    /// 403 in upstream's words.
    pub(crate) fn admit_quotas(
        &self,
        target: &Target,
        object: &Value,
        old: Option<(&Value, Revision)>,
        dry_run: bool,
    ) -> Result<Held, Status> {
        let resource = &target.served.resource;
        let (group, plural) = (resource.group.as_str(), resource.plural.as_str());
        let namespace = api::object::meta(object, "namespace");
        if namespace.is_empty() {
            return Ok(None);
        }
        let rules = &self.ledgers.quotas;
        let quotas = rules.of(self, namespace);
        if quotas.is_empty() {
            return Ok(None);
        }
        let now = self.world.now();
        let mut more = rules.usage(group, plural, object, now);
        if let Some((old, _)) = old {
            let before = rules.usage(group, plural, old, now);
            for (name, amount) in &mut more {
                *amount = before.get(name).map_or(*amount, |before| amount.minus(*before));
            }
            more.retain(|_, amount| !amount.is_negative() && !amount.is_zero());
        }
        if more.is_empty() || !rules.limit(&quotas, group, plural) {
            return Ok(None);
        }
        let ledger = self.ledger(namespace, target);
        let mut held = lock(&ledger);
        held.catch_up(&self.store, now);
        let growth = Growth { group, plural, object, more: &more, new: old.is_none() };
        let limited = rules.check(&growth, &quotas, &|quota| held.used(quota))?;
        if !limited || dry_run {
            return Ok(None);
        }
        let number = held.next;
        held.next = number.wrapping_add(1);
        let name = api::object::meta(object, "name").to_owned();
        let base = old.map(|(_, revision)| revision);
        held.reserved.insert(number, Reserved { name, base, object: Arc::new(object.clone()), more });
        drop(held);
        Ok(Some(Arc::new(Hold { ledger, number })))
    }

    fn ledger(&self, namespace: &str, target: &Target) -> Arc<Mutex<Ledger>> {
        let resource = &target.served.resource;
        let place = (namespace.to_owned(), resource.group.clone(), resource.plural.clone());
        let mut ledgers = lock(&self.ledgers.ledgers);
        if let Some(ledger) = ledgers.get(&place) {
            return ledger.clone();
        }
        // those of namespaces that have no quotas any more
        ledgers.retain(|(namespace, ..), ledger| {
            Arc::strong_count(ledger) > 1 || !self.ledgers.quotas.of(self, namespace).is_empty()
        });
        let ledger = Arc::new(Mutex::new(Ledger {
            quotas: self.ledgers.quotas.clone(),
            group: resource.group.clone(),
            plural: resource.plural.clone(),
            namespace: namespace.to_owned(),
            bucket: target.served.bucket.clone(),
            watcher: None,
            items: HashMap::new(),
            sums: HashMap::new(),
            over: BTreeSet::new(),
            reserved: HashMap::new(),
            next: 0,
        }));
        ledgers.insert(place, ledger.clone());
        ledger
    }
}
