//! The cache of objects that reconcilers read: what the watches delivered, plus the driver's own latest writes.

use crate::source::Held;
use api::object::{self, Gvk, Key};
use objects::compressed::Models;
use objects::packed::Packed;
use objects::take::Take;
use reconcile::World;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, mpsc};
use uuid::Uuid;

/// From so many objects on, a thread of its own reads them for somebody who looks at each.
const MANY: usize = 1000;
/// Objects that it reads together, and how often it may do so before the first of them are looked at.
const TOGETHER: usize = 64;
const AHEAD: usize = 4;

/// All cached objects of all watched kinds.
#[derive(Default)]
pub struct Cache {
    kinds: RwLock<BTreeMap<Gvk, Kind>>,
    /// Which kinds' objects are held as text.
    packs: Option<fn(&Gvk) -> bool>,
}

/// An object, and what is asked of it more often than it is looked at.
struct Entry {
    revision: u64,
    /// Its uid, where that is a UUID.
    uid: Option<Uuid>,
    held: Held,
    /// Uids of its owners; one empty uid where it has none.
    owners: Box<[Arc<str>]>,
}

impl Entry {
    /// `models`: of a kind whose objects are held as text.
    fn new(held: &Held, object: &Value, models: Option<&mut Models>, owners: Box<[Arc<str>]>) -> Self {
        let held = match (held, models) {
            (Held::Tree(tree), Some(models)) => match serde_json::to_vec(tree) {
                Ok(text) => {
                    let packed = Packed::from_text(text);
                    packed.compress(models);
                    Held::Packed(Arc::new(packed))
                }
                Err(_) => held.clone(),
            },
            (held, _) => held.clone(),
        };
        Self { revision: revision(object), uid: uuid(object::uid(object)), held, owners }
    }
}

/// One kind's objects.
#[derive(Default)]
struct Kind {
    objects: BTreeMap<Key, Entry>,
    /// By which its objects are compressed, where they are held as text.
    models: Option<Models>,
    /// Uids of owners with the keys of what they own; the empty uid with those that nobody owns. One set for all owners: most own one
    /// or two, and a set of its own takes half a kilobyte.
    by_owner: BTreeSet<(Arc<str>, Key)>,
    /// What the watch last told of objects that a write of ours has replaced since: it knows owners and labels of before.
    displaced: BTreeMap<Key, Held>,
    /// The newest revision that the watch has told of.
    told: u64,
}

/// What a resource version says about order; 0 where it is not a number (then nothing is ever taken for newer).
fn revision(object: &Value) -> u64 {
    object::resource_version(object).parse().unwrap_or(0)
}

/// A UUID as the API server writes it; of another text nothing.
fn uuid(text: &str) -> Option<Uuid> {
    let uuid = Uuid::try_parse(text).ok()?;
    (*uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == *text).then_some(uuid)
}

/// The uids of the owners; one empty uid where there is none.
fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    let owners = object["metadata"]["ownerReferences"].as_array().filter(|owners| !owners.is_empty());
    let nobody = owners.is_none().then_some("");
    owners.into_iter().flatten().map(|owner| object::text(owner, "uid")).chain(nobody)
}

impl Kind {
    /// `object` is the tree of `held`.
    fn put(&mut self, held: &Held, object: &Value) -> Option<Held> {
        let key = Key::of(object);
        // most changes leave owners as they are
        if let Some(old) = self.objects.get_mut(&key)
            && old.owners.iter().map(|uid| &**uid).eq(owner_uids(object))
        {
            let owners = std::mem::take(&mut old.owners);
            let old = std::mem::replace(old, Entry::new(held, object, self.models.as_mut(), owners));
            return Some(old.held);
        }
        // one text of an uid for all that name it
        let owners = owner_uids(object).map(|uid| {
            let uid: Arc<str> = uid.into();
            let known = self.owned_from(uid.clone(), Key::default()).next().map(|(known, _)| known.clone());
            known.unwrap_or(uid)
        });
        let owners: Box<[Arc<str>]> = owners.collect();
        let new = Entry::new(held, object, self.models.as_mut(), owners.clone());
        let old = self.objects.insert(key.clone(), new);
        if let Some(old) = &old {
            self.forget_owners(&key, &old.owners);
        }
        for uid in owners {
            self.by_owner.insert((uid, key.clone()));
        }
        old.map(|old| old.held)
    }

    fn remove(&mut self, key: &Key) -> Option<Held> {
        let old = self.objects.remove(key)?;
        self.forget_owners(key, &old.owners);
        Some(old.held)
    }

    fn forget_owners(&mut self, key: &Key, owners: &[Arc<str>]) {
        for uid in owners {
            self.by_owner.remove(&(uid.clone(), key.clone()));
        }
    }

    /// What has an owner of this uid, from a key on.
    fn owned_from(&self, uid: Arc<str>, first: Key) -> impl Iterator<Item = &(Arc<str>, Key)> {
        self.by_owner.range((uid.clone(), first)..).take_while(move |(owner, _)| *owner == uid)
    }
}

impl Cache {
    /// One that holds objects of some kinds as text: lean, where there are many.
    pub(crate) fn packing(packs: Option<fn(&Gvk) -> bool>) -> Self {
        Self { packs, ..Self::default() }
    }

    /// Looks at each object of a kind, one after the other; their managed fields may be missing.
    pub fn visit(&self, gvk: &Gvk, mut look: impl FnMut(&Value)) {
        self.held(gvk, None).iter().for_each(|held| look(&held.lean()));
    }

    /// Calls `look` for each object of a kind, with its revision; the object itself is read only where `is_new` says so.
    pub fn visit_new(
        &self,
        gvk: &Gvk,
        is_new: impl Fn(&Key, u64) -> bool,
        mut look: impl FnMut(Key, u64, Option<&Value>),
    ) {
        // objects are read once the lock is free again: writers wait for it
        let seen: Vec<(Key, u64, Option<Held>)> = match self.read().get(gvk) {
            None => Vec::new(),
            Some(kind) => {
                let held = |key: &Key, entry: &Entry| is_new(key, entry.revision).then(|| entry.held.clone());
                kind.objects.iter().map(|(key, entry)| (key.clone(), entry.revision, held(key, entry))).collect()
            }
        };
        for (key, revision, held) in seen {
            match held {
                Some(held) => look(key, revision, Some(&held.lean())),
                None => look(key, revision, None),
            }
        }
    }

    /// The kinds that have been listed.
    pub fn kinds(&self) -> Vec<Gvk> {
        self.read().keys().cloned().collect()
    }

    fn one(&self, gvk: &Gvk, key: &Key) -> Option<Held> {
        Some(self.read().get(gvk)?.objects.get(key)?.held.clone())
    }

    /// A kind's objects in a namespace (`None`: everywhere).
    fn held(&self, gvk: &Gvk, namespace: Option<&str>) -> Vec<Held> {
        match (self.read().get(gvk), namespace) {
            (None, _) => Vec::new(),
            (Some(kind), None) => kind.objects.values().map(|entry| entry.held.clone()).collect(),
            (Some(kind), Some(namespace)) => {
                let rest = kind.objects.range(Key::new(namespace, "")..);
                rest.take_while(|(key, _)| key.namespace == namespace).map(|(_, entry)| entry.held.clone()).collect()
            }
        }
    }

    /// Those of a kind in a namespace (`None`: everywhere) that have an owner of this uid.
    fn held_by(&self, gvk: &Gvk, owner_uid: &str, namespace: Option<&str>) -> Vec<Held> {
        let kinds = self.read();
        let Some(kind) = kinds.get(gvk) else { return Vec::new() };
        let first = Key::new(namespace.unwrap_or_default(), "");
        let owned = kind.owned_from(owner_uid.into(), first).map(|(_, key)| key);
        let here = owned.take_while(|key| namespace.is_none_or(|namespace| key.namespace == namespace));
        here.filter_map(|key| kind.objects.get(key).map(|entry| entry.held.clone())).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Gvk, Kind>> {
        self.kinds.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<Gvk, Kind>> {
        self.kinds.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A kind, known from now on.
    fn kind<'a>(&self, kinds: &'a mut BTreeMap<Gvk, Kind>, gvk: &Gvk) -> &'a mut Kind {
        let models = || self.packs.is_some_and(|packs| packs(gvk)).then(Models::default);
        kinds.entry(gvk.clone()).or_insert_with(|| Kind { models: models(), ..Kind::default() })
    }

    /// Whether there is any object of a kind.
    pub(crate) fn has(&self, gvk: &Gvk) -> bool {
        self.read().get(gvk).is_some_and(|kind| !kind.objects.is_empty())
    }

    /// Takes in a part of a fresh list, of each object its identity at least ([`objects::part::identity`]); returns the states that are
    /// no more, of objects that have changed.
    pub(crate) fn list_part(&self, gvk: &Gvk, objects: &[(Held, Arc<Value>)]) -> Vec<Arc<Value>> {
        let mut kinds = self.write();
        let kind = self.kind(&mut kinds, gvk);
        let past = objects.iter().filter_map(|(held, object)| {
            let old = kind.put(held, object)?.open();
            (object::resource_version(&old) != object::resource_version(object)).then_some(old)
        });
        past.collect()
    }

    /// The end of a fresh list at `revision`: only what it had is there (`None`: all there is); returns the states that are no more.
    pub(crate) fn list_end(&self, gvk: &Gvk, listed: Option<&BTreeSet<Key>>, at: u64) -> Vec<Arc<Value>> {
        let mut kinds = self.write();
        let kind = self.kind(&mut kinds, gvk);
        let gone: Vec<Key> = match listed {
            Some(listed) => kind.objects.keys().filter(|key| !listed.contains(key)).cloned().collect(),
            None => Vec::new(),
        };
        let mut past: Vec<Held> = gone.iter().filter_map(|key| kind.remove(key)).collect();
        past.extend(std::mem::take(&mut kind.displaced).into_values());
        kind.told = at;
        past.iter().map(Held::open).collect()
    }

    /// Takes in an added or modified object from the watch; returns what the watch told of it before.
    pub(crate) fn tell(&self, gvk: &Gvk, held: &Held, object: &Value) -> Option<Held> {
        let mut kinds = self.write();
        let kind = self.kind(&mut kinds, gvk);
        let at = revision(object);
        kind.told = kind.told.max(at);
        let key = Key::of(object);
        let displaced = kind.displaced.remove(&key);
        let old = match kind.objects.get(&key) {
            // our own write got here first, with something newer
            Some(ours) if ours.revision > at && object::uid(&ours.held.open()) == object::uid(object) => {
                kind.displaced.insert(key, held.clone());
                None
            }
            Some(_) | None => kind.put(held, object),
        };
        displaced.or(old)
    }

    /// Takes in a deletion from the watch; returns what the watch told of the object before.
    pub(crate) fn tell_deleted(&self, gvk: &Gvk, object: &Value) -> Option<Held> {
        let mut kinds = self.write();
        let kind = self.kind(&mut kinds, gvk);
        kind.told = kind.told.max(revision(object));
        let key = Key::of(object);
        let displaced = kind.displaced.remove(&key);
        let known = kind.objects.get(&key).is_some_and(|e| object::uid(&e.held.open()) == object::uid(object));
        let old = if known { kind.remove(&key) } else { None };
        displaced.or(old)
    }

    /// Takes in the API's answer to a write of ours, unless the watch has already told of later things: the object may
    /// have been deleted since.
    pub(crate) fn wrote(&self, held: &Held, object: &Value) {
        let (gvk, at) = (Gvk::of(object), revision(object));
        let mut kinds = self.write();
        let Some(kind) = kinds.get_mut(&gvk) else { return };
        let key = Key::of(object);
        let known = kind.objects.get(&key).map_or(0, |known| known.revision);
        if at > kind.told
            && at > known
            && let Some(old) = kind.put(held, object)
        {
            kind.displaced.entry(key).or_insert(old);
        }
    }

    /// Forgets a kind that the server no longer serves.
    pub(crate) fn drop_kind(&self, gvk: &Gvk) {
        self.write().remove(gvk);
    }
}

impl World for Cache {
    fn get(&self, gvk: &Gvk, key: &Key) -> Option<Arc<Value>> {
        Some(self.one(gvk, key)?.open())
    }

    fn head(&self, gvk: &Gvk, key: &Key) -> Option<Arc<Value>> {
        Some(self.one(gvk, key)?.head())
    }

    fn part(&self, gvk: &Gvk, key: &Key, take: fn(&str) -> Take) -> Option<Arc<Value>> {
        Some(self.one(gvk, key)?.part(take))
    }

    fn stands(&self, gvk: &Gvk, key: &Key, uid: &str) -> bool {
        let kinds = self.read();
        let Some(entry) = kinds.get(gvk).and_then(|kind| kind.objects.get(key)) else { return false };
        entry.uid.is_some() && entry.uid == uuid(uid) && !entry.held.may_be_terminating()
    }

    fn list(&self, gvk: &Gvk, namespace: Option<&str>) -> Vec<Arc<Value>> {
        self.held(gvk, namespace).iter().map(Held::open).collect()
    }

    fn each(&self, gvk: &Gvk, namespace: Option<&str>, look: &mut dyn FnMut(&Arc<Value>)) {
        self.held(gvk, namespace).iter().for_each(|held| look(&held.lean()));
    }

    fn each_part(&self, gvk: &Gvk, take: fn(&str) -> Take, look: &mut dyn FnMut(Arc<Value>)) {
        let held = self.held(gvk, None);
        if held.len() < MANY {
            return held.iter().for_each(|held| look(held.part(take)));
        }
        // one thread reads, and this one looks
        let (parts, read) = mpsc::sync_channel(AHEAD);
        std::thread::scope(|scope| {
            let reads =
                || held.chunks(TOGETHER).map(|chunk| chunk.iter().map(|held| held.part(take)).collect::<Vec<_>>());
            // who looks no more has no more to be read
            let reader =
                std::thread::Builder::new().spawn_scoped(scope, move || reads().try_for_each(|part| parts.send(part)));
            match reader {
                Ok(_) => read.iter().flatten().for_each(look),
                Err(_) => held.iter().for_each(|held| look(held.part(take))),
            }
            drop(read);
        });
    }

    fn mentioning(&self, gvk: &Gvk, namespace: Option<&str>, word: &str) -> Vec<Arc<Value>> {
        let mut held = self.held(gvk, namespace);
        held.retain(|held| held.may_have(word));
        held.iter().map(Held::open).collect()
    }

    fn owned_by(&self, gvk: &Gvk, owner_uid: &str) -> Vec<Arc<Value>> {
        self.held_by(gvk, owner_uid, None).iter().map(Held::open).collect()
    }

    fn parts_owned_by(&self, gvk: &Gvk, owner_uid: &str, take: fn(&str) -> Take) -> Vec<Arc<Value>> {
        self.held_by(gvk, owner_uid, None).iter().map(|held| held.part(take)).collect()
    }

    fn unowned(&self, gvk: &Gvk, namespace: &str) -> Vec<Arc<Value>> {
        self.held_by(gvk, "", Some(namespace)).iter().map(Held::open).collect()
    }

    fn kinds(&self) -> Vec<Gvk> {
        self.read().keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, version: u64, owner: &str) -> Arc<Value> {
        Arc::new(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ns", "name": name, "uid": name,
            "resourceVersion": version.to_string(), "ownerReferences": [{"uid": owner}]}}))
    }

    fn gvk() -> Gvk {
        Gvk::new("", "v1", "Pod")
    }

    /// A fresh list, whole.
    fn listed(cache: &Cache, objects: &[Arc<Value>], at: u64) -> Vec<Arc<Value>> {
        let parts: Vec<_> = objects.iter().map(|o| (Held::Tree(o.clone()), o.clone())).collect();
        let mut past = cache.list_part(&gvk(), &parts);
        past.extend(cache.list_end(&gvk(), Some(&objects.iter().map(|o| Key::of(o)).collect()), at));
        past
    }

    /// Both ways of holding objects.
    fn caches() -> [Cache; 2] {
        [Cache::default(), Cache::packing(Some(|_| true))]
    }

    fn tell(cache: &Cache, object: Arc<Value>) -> Option<Held> {
        cache.tell(&gvk(), &Held::Tree(object.clone()), &object)
    }

    fn wrote(cache: &Cache, object: Arc<Value>) {
        cache.wrote(&Held::Tree(object.clone()), &object);
    }

    #[test]
    fn own_writes_show_at_once_but_never_resurrect() {
        for cache in caches() {
            listed(&cache, &[pod("a", 5, "o")], 5);
            wrote(&cache, pod("b", 7, "o"));
            assert_eq!(cache.owned_by(&gvk(), "o").len(), 2);
            cache.tell_deleted(&gvk(), &pod("b", 9, "o"));
            wrote(&cache, pod("b", 8, "o"));
            assert_eq!(cache.list(&gvk(), Some("ns")).len(), 1);
            assert_eq!(cache.list(&gvk(), Some("other")).len(), 0);
        }
    }

    #[test]
    fn an_object_stands_until_somebody_asks_for_its_end() {
        const UID: &str = "0b2f1b0a-3a52-4c07-9c2b-3f8f7d3c1e55";
        let of = |uid: &str, more: Value| {
            let mut object = (*pod("a", 5, "o")).clone();
            object["metadata"]["uid"] = uid.into();
            object["metadata"]["deletionTimestamp"] = more;
            Arc::new(object)
        };
        let key = Key::new("ns", "a");
        for cache in caches() {
            assert!(!cache.stands(&gvk(), &key, UID), "it is not there");
            let mut plain = (*of(UID, Value::Null)).clone();
            plain["metadata"].as_object_mut().expect("an object").remove("deletionTimestamp");
            listed(&cache, &[Arc::new(plain)], 5);
            assert!(cache.stands(&gvk(), &key, UID));
            assert!(!cache.stands(&gvk(), &key, &UID.to_uppercase()), "another text is another uid");
            assert!(!cache.stands(&gvk(), &key, "") && !cache.stands(&gvk(), &Key::new("ns", "b"), UID));
            listed(&cache, &[of(UID, json!("2026-01-01T00:00:00Z"))], 6);
            assert!(!cache.stands(&gvk(), &key, UID));
            listed(&cache, &[of("not-a-uuid", Value::Null)], 7);
            assert!(!cache.stands(&gvk(), &key, "not-a-uuid"), "the object is asked");
        }
    }

    #[test]
    fn the_watch_remembers_what_our_write_replaced() {
        for cache in caches() {
            listed(&cache, &[pod("a", 5, "o")], 5);
            wrote(&cache, pod("a", 7, "p"));
            wrote(&cache, pod("a", 8, "q"));
            let owner = |old: Option<Held>| old.map(|old| old.open()["metadata"]["ownerReferences"][0]["uid"].clone());
            assert_eq!(owner(tell(&cache, pod("a", 7, "p"))), Some(json!("o")));
            assert_eq!(owner(tell(&cache, pod("a", 8, "q"))), Some(json!("p")));
            assert_eq!(owner(tell(&cache, pod("a", 9, "r"))), Some(json!("q")));
            wrote(&cache, pod("a", 10, "s"));
            assert_eq!(owner(cache.tell_deleted(&gvk(), &pod("a", 11, "s"))), Some(json!("r")));
            assert!(cache.list(&gvk(), None).is_empty());
        }
    }

    #[test]
    fn what_an_owner_has_follows_each_change() {
        let of = |name: &str, version: u64, owners: &[&str]| {
            let mut object = (*pod(name, version, "")).clone();
            object["metadata"]["ownerReferences"] = owners.iter().map(|uid| json!({"uid": uid})).collect();
            Arc::new(object)
        };
        for cache in caches() {
            listed(&cache, &[of("a", 1, &["o"]), of("b", 2, &["o", "p"]), of("c", 3, &[])], 3);
            let names = |objects: Vec<Arc<Value>>| -> Vec<String> {
                objects.iter().map(|object| object::meta(object, "name").to_owned()).collect()
            };
            let owned = |uid: &str| names(cache.owned_by(&gvk(), uid));
            assert_eq!(
                (owned("o"), owned("p"), owned("")),
                (vec!["a".into(), "b".into()], vec!["b".into()], vec!["c".into()])
            );
            tell(&cache, of("b", 4, &["o", "p"]));
            assert_eq!((owned("o").len(), owned("p").len()), (2, 1), "a change of something else");
            tell(&cache, of("b", 5, &["p"]));
            tell(&cache, of("c", 6, &["o"]));
            assert_eq!((owned("o"), owned("p"), owned("")), (vec!["a".into(), "c".into()], vec!["b".into()], vec![]));
            cache.tell_deleted(&gvk(), &of("b", 7, &["p"]));
            assert_eq!((owned("o").len(), owned("p").len()), (2, 0));
            tell(&cache, of("d", 8, &[]));
            assert_eq!(names(cache.unowned(&gvk(), "ns")), ["d"]);
            assert_eq!(cache.unowned(&gvk(), "n").len() + cache.unowned(&gvk(), "nt").len(), 0);
        }
    }

    #[test]
    fn a_word_finds_all_that_have_it() {
        for cache in caches() {
            listed(&cache, &[pod("a", 5, "o"), pod("b", 5, "p")], 5);
            let found = cache.mentioning(&gvk(), Some("ns"), "o");
            assert!(found.contains(&pod("a", 5, "o")));
            assert!(cache.mentioning(&gvk(), Some("other"), "o").is_empty());
            let mut names = Vec::new();
            cache.each(&gvk(), None, &mut |object| names.push(object::meta(object, "name").to_owned()));
            assert_eq!(names, ["a", "b"]);
            cache.each_part(&gvk(), objects::take::lean, &mut |object| {
                names.push(object::meta(&object, "uid").to_owned())
            });
            assert_eq!(names, ["a", "b", "a", "b"]);
        }
        let packed = Cache::packing(Some(|_| true));
        listed(&packed, &[pod("a", 5, "one"), pod("b", 5, "two")], 5);
        assert_eq!(packed.mentioning(&gvk(), None, "two"), [pod("b", 5, "two")]);
    }

    #[test]
    fn many_are_looked_at_in_order_while_they_are_read() {
        for cache in caches() {
            let pods: Vec<_> = (0..MANY * 3).map(|at| pod(&format!("p{at:05}"), 5, "o")).collect();
            listed(&cache, &pods, 5);
            let mut seen = Vec::new();
            cache.each_part(&gvk(), objects::take::lean, &mut |object| seen.push(object));
            assert_eq!(seen, pods);
            let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                cache.each_part(&gvk(), objects::take::lean, &mut |object| {
                    assert_ne!(object::meta(&object, "name"), "p00100")
                });
            }));
            assert!(panics.is_err(), "and it ends");
        }
    }

    #[test]
    fn an_older_watch_event_does_not_undo_our_write() {
        for cache in caches() {
            listed(&cache, &[pod("a", 5, "o")], 5);
            wrote(&cache, pod("a", 7, "p"));
            tell(&cache, pod("a", 6, "o"));
            assert!(cache.owned_by(&gvk(), "o").is_empty());
            assert_eq!(cache.owned_by(&gvk(), "p").len(), 1);
        }
    }

    #[test]
    fn a_relist_returns_what_is_no_more() {
        for cache in caches() {
            listed(&cache, &[pod("a", 5, "o"), pod("b", 5, "o")], 5);
            let past = listed(&cache, &[pod("b", 8, "o")], 9);
            let past: Vec<_> = past.iter().map(|o| (object::meta(o, "name"), object::resource_version(o))).collect();
            assert_eq!(past, [("b", "5"), ("a", "5")]);
            assert_eq!(cache.owned_by(&gvk(), "o").len(), 1);
        }
    }
}
