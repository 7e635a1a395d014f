//! The world as the watches tell it, plus what the driver itself has just written.

use api::object::{self, Gvk, Key};
use reconcile::World;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// All cached objects of all watched kinds.
#[derive(Default)]
pub struct Cache {
    kinds: RwLock<BTreeMap<Gvk, Kind>>,
    /// Which kinds' objects are held as text.
    packs: Option<fn(&Gvk) -> bool>,
}

/// One object as it is held. As a tree it takes some ten times its text, ready to be read; as text it is parsed for each
/// reader.
#[derive(Clone)]
enum Held {
    Tree(Arc<Value>),
    Text { revision: u64, text: Arc<[u8]> },
}

impl Held {
    fn new(object: &Arc<Value>, packed: bool) -> Self {
        match packed.then(|| serde_json::to_vec(object)) {
            Some(Ok(text)) => Self::Text { revision: revision(object), text: text.into() },
            Some(Err(_)) | None => Self::Tree(object.clone()),
        }
    }

    fn open(&self) -> Arc<Value> {
        match self {
            Self::Tree(object) => object.clone(),
            // written from a value above, and read back into one
            Self::Text { text, .. } => Arc::new(serde_json::from_slice(text).unwrap_or_default()),
        }
    }

    fn revision(&self) -> u64 {
        match self {
            Self::Tree(object) => revision(object),
            Self::Text { revision, .. } => *revision,
        }
    }
}

/// One kind's objects.
#[derive(Default)]
struct Kind {
    objects: BTreeMap<Key, Held>,
    packed: bool,
    /// Keys by the uid of each owner; under the empty uid those without any.
    by_owner: BTreeMap<String, BTreeSet<Key>>,
    /// What the watch last told of objects that a write of ours has replaced since: it knows owners and labels of before.
    displaced: BTreeMap<Key, Arc<Value>>,
    /// The newest revision that the watch has told of.
    told: u64,
}

/// What a resource version says about order; 0 where it is not a number (then nothing is ever taken for newer).
fn revision(object: &Value) -> u64 {
    object::resource_version(object).parse().unwrap_or(0)
}

/// The uids of the owners; one empty uid where there is none.
fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    let owners = object["metadata"]["ownerReferences"].as_array().filter(|owners| !owners.is_empty());
    let nobody = owners.is_none().then_some("");
    owners.into_iter().flatten().map(|owner| object::text(owner, "uid")).chain(nobody)
}

impl Kind {
    fn put(&mut self, object: &Arc<Value>) -> Option<Arc<Value>> {
        let key = Key::of(object);
        let old = self.objects.insert(key.clone(), Held::new(object, self.packed)).map(|old| old.open());
        if let Some(old) = &old {
            self.forget_owners(&key, old);
        }
        for uid in owner_uids(object) {
            self.by_owner.entry(uid.to_owned()).or_default().insert(key.clone());
        }
        old
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let old = self.objects.remove(key)?.open();
        self.forget_owners(key, &old);
        Some(old)
    }

    fn forget_owners(&mut self, key: &Key, old: &Value) {
        for uid in owner_uids(old) {
            if let Some(keys) = self.by_owner.get_mut(uid) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_owner.remove(uid);
                }
            }
        }
    }
}

impl Cache {
    /// One that holds objects of some kinds as text: lean, where there are many.
    pub(crate) fn packing(packs: Option<fn(&Gvk) -> bool>) -> Self {
        Self { packs, ..Self::default() }
    }

    /// Looks at each object of a kind, one after the other.
    pub fn visit(&self, gvk: &Gvk, mut look: impl FnMut(&Value)) {
        let held: Vec<Held> =
            self.read().get(gvk).into_iter().flat_map(|kind| kind.objects.values().cloned()).collect();
        held.into_iter().for_each(|held| look(&held.open()));
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Gvk, Kind>> {
        self.kinds.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<Gvk, Kind>> {
        self.kinds.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A kind, known from now on.
    fn kind<'a>(&self, kinds: &'a mut BTreeMap<Gvk, Kind>, gvk: &Gvk) -> &'a mut Kind {
        let packed = self.packs.is_some_and(|packs| packs(gvk));
        kinds.entry(gvk.clone()).or_insert_with(|| Kind { packed, ..Kind::default() })
    }

    /// Takes in a part of a fresh list; returns the states that are no more, of objects that have changed.
    pub(crate) fn list_part(&self, gvk: &Gvk, objects: &[Arc<Value>]) -> Vec<Arc<Value>> {
        let mut kinds = self.write();
        let kind = self.kind(&mut kinds, gvk);
        let past = objects.iter().filter_map(|o| kind.put(o).filter(|old| old["metadata"] != o["metadata"]));
        past.collect()
    }

    /// The end of a fresh list at `revision`: only what it had is there; returns the states that are no more.
    pub(crate) fn list_end(&self, gvk: &Gvk, listed: &BTreeSet<Key>, at: u64) -> Vec<Arc<Value>> {
        let mut kinds = self.write();
        let kind = self.kind(&mut kinds, gvk);
        let gone: Vec<Key> = kind.objects.keys().filter(|key| !listed.contains(key)).cloned().collect();
        let mut past: Vec<Arc<Value>> = gone.iter().filter_map(|key| kind.remove(key)).collect();
        past.extend(std::mem::take(&mut kind.displaced).into_values());
        kind.told = at;
        past
    }

    /// Takes in an added or modified object from the watch; returns what the watch told of it before.
    pub(crate) fn tell(&self, gvk: &Gvk, object: &Arc<Value>) -> Option<Arc<Value>> {
        let mut kinds = self.write();
        let kind = self.kind(&mut kinds, gvk);
        let at = revision(object);
        kind.told = kind.told.max(at);
        let key = Key::of(object);
        let displaced = kind.displaced.remove(&key);
        let old = match kind.objects.get(&key) {
            // our own write got here first, with something newer
            Some(held) if held.revision() > at && object::uid(&held.open()) == object::uid(object) => {
                kind.displaced.insert(key, object.clone());
                None
            }
            Some(_) | None => kind.put(object),
        };
        displaced.or(old)
    }

    /// Takes in a deletion from the watch; returns what the watch told of the object before.
    pub(crate) fn tell_deleted(&self, gvk: &Gvk, object: &Value) -> Option<Arc<Value>> {
        let mut kinds = self.write();
        let kind = self.kind(&mut kinds, gvk);
        kind.told = kind.told.max(revision(object));
        let key = Key::of(object);
        let displaced = kind.displaced.remove(&key);
        if kind.objects.get(&key).is_some_and(|held| object::uid(&held.open()) == object::uid(object)) {
            return displaced.or(kind.remove(&key));
        }
        displaced
    }

    /// Takes in the API's answer to a write of ours, unless the watch has already told of later things: the object may
    /// have been deleted since.
    pub(crate) fn wrote(&self, object: Value) {
        let (gvk, at) = (Gvk::of(&object), revision(&object));
        let mut kinds = self.write();
        let Some(kind) = kinds.get_mut(&gvk) else { return };
        let held = kind.objects.get(&Key::of(&object)).map_or(0, Held::revision);
        if at > kind.told && at > held {
            let key = Key::of(&object);
            if let Some(old) = kind.put(&Arc::new(object)) {
                kind.displaced.entry(key).or_insert(old);
            }
        }
    }

    /// Forgets a kind that the server no longer serves.
    pub(crate) fn drop_kind(&self, gvk: &Gvk) {
        self.write().remove(gvk);
    }
}

impl World for Cache {
    fn get(&self, gvk: &Gvk, key: &Key) -> Option<Arc<Value>> {
        let held = self.read().get(gvk)?.objects.get(key).cloned();
        held.map(|held| held.open())
    }

    fn list(&self, gvk: &Gvk, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let held: Vec<Held> = match (self.read().get(gvk), namespace) {
            (None, _) => Vec::new(),
            (Some(kind), None) => kind.objects.values().cloned().collect(),
            (Some(kind), Some(namespace)) => {
                let rest = kind.objects.range(Key::new(namespace, "")..);
                rest.take_while(|(key, _)| key.namespace == namespace).map(|(_, held)| held.clone()).collect()
            }
        };
        held.iter().map(Held::open).collect()
    }

    fn owned_by(&self, gvk: &Gvk, owner_uid: &str) -> Vec<Arc<Value>> {
        let held: Vec<Held> = match self.read().get(gvk) {
            None => Vec::new(),
            Some(kind) => {
                let keys = kind.by_owner.get(owner_uid).into_iter().flatten();
                keys.filter_map(|key| kind.objects.get(key).cloned()).collect()
            }
        };
        held.iter().map(Held::open).collect()
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
        let mut past = cache.list_part(&gvk(), objects);
        past.extend(cache.list_end(&gvk(), &objects.iter().map(|o| Key::of(o)).collect(), at));
        past
    }

    /// Both ways of holding objects.
    fn caches() -> [Cache; 2] {
        [Cache::default(), Cache::packing(Some(|_| true))]
    }

    #[test]
    fn own_writes_show_at_once_but_never_resurrect() {
        for cache in caches() {
            listed(&cache, &[pod("a", 5, "o")], 5);
            cache.wrote((*pod("b", 7, "o")).clone());
            assert_eq!(cache.owned_by(&gvk(), "o").len(), 2);
            cache.tell_deleted(&gvk(), &pod("b", 9, "o"));
            cache.wrote((*pod("b", 8, "o")).clone());
            assert_eq!(cache.list(&gvk(), Some("ns")).len(), 1);
            assert_eq!(cache.list(&gvk(), Some("other")).len(), 0);
        }
    }

    #[test]
    fn the_watch_remembers_what_our_write_replaced() {
        for cache in caches() {
            listed(&cache, &[pod("a", 5, "o")], 5);
            cache.wrote((*pod("a", 7, "p")).clone());
            cache.wrote((*pod("a", 8, "q")).clone());
            let owner = |old: Option<Arc<Value>>| old.map(|old| old["metadata"]["ownerReferences"][0]["uid"].clone());
            assert_eq!(owner(cache.tell(&gvk(), &pod("a", 7, "p"))), Some(json!("o")));
            assert_eq!(owner(cache.tell(&gvk(), &pod("a", 8, "q"))), Some(json!("p")));
            assert_eq!(owner(cache.tell(&gvk(), &pod("a", 9, "r"))), Some(json!("q")));
            cache.wrote((*pod("a", 10, "s")).clone());
            assert_eq!(owner(cache.tell_deleted(&gvk(), &pod("a", 11, "s"))), Some(json!("r")));
            assert!(cache.list(&gvk(), None).is_empty());
        }
    }

    #[test]
    fn an_older_watch_event_does_not_undo_our_write() {
        for cache in caches() {
            listed(&cache, &[pod("a", 5, "o")], 5);
            cache.wrote((*pod("a", 7, "p")).clone());
            cache.tell(&gvk(), &pod("a", 6, "o"));
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
