//! What a controller sees: for each kind an earlier moment of the truth, never an earlier one than before; and of single
//! objects what the API answered to the controller itself, until the watch has told as much.

use crate::cluster::Cluster;
use crate::dice::Dice;
use api::object::{self, Gvk, Key};
use reconcile::World;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All objects of a kind, by namespace and name, as they were at a revision of the store.
#[derive(Clone, Default)]
pub struct Moment {
    pub revision: u64,
    pub objects: Arc<BTreeMap<Key, Arc<Value>>>,
}

/// What a watch tells: an object's new state (the last one, where it was deleted), and what the watch had told before.
pub struct Change {
    pub gvk: Gvk,
    pub old: Option<Arc<Value>>,
    pub new: Arc<Value>,
    pub is_gone: bool,
}

#[derive(Default)]
pub struct View {
    kinds: BTreeMap<Gvk, Kind>,
}

#[derive(Default)]
struct Kind {
    /// How many moments the watch has told of.
    told: usize,
    moment: Moment,
    /// What the API has answered and the watch has not told of yet, with its revision.
    shown: BTreeMap<Key, (u64, Arc<Value>)>,
}

impl Kind {
    /// Takes the next moment in.
    fn step(&mut self, gvk: &Gvk, next: &Moment, changes: &mut Vec<Change>) {
        let (before, after) = (&self.moment.objects, &next.objects);
        for (key, new) in after.iter() {
            let old = before.get(key);
            if !old.is_some_and(|old| Arc::ptr_eq(old, new)) {
                changes.push(Change { gvk: gvk.clone(), old: old.cloned(), new: new.clone(), is_gone: false });
            }
        }
        let gone = before.iter().filter(|(key, _)| !after.contains_key(key));
        changes.extend(gone.map(|(_, old)| Change { gvk: gvk.clone(), old: None, new: old.clone(), is_gone: true }));
        self.moment = next.clone();
        self.shown.retain(|_, (revision, _)| *revision > next.revision);
        self.told += 1;
    }

    fn objects(&self) -> BTreeMap<&Key, &Arc<Value>> {
        let mut objects: BTreeMap<&Key, &Arc<Value>> = self.moment.objects.iter().collect();
        objects.extend(self.shown.iter().map(|(key, (_, object))| (key, object)));
        objects
    }
}

impl View {
    /// Takes later moments in, and returns what watches tell of them, in order. With dice some of the moments, else all.
    pub fn catch_up(&mut self, cluster: &Cluster, mut dice: Option<&mut Dice>) -> Vec<Change> {
        let mut changes = Vec::new();
        for (gvk, moments) in &*cluster.moments.borrow() {
            let kind = self.kinds.entry(gvk.clone()).or_default();
            // half of the kinds are up to date at a time, as watches are most of the time
            let lags = dice.as_deref_mut().is_some_and(|dice| dice.chance(50));
            let unseen = (moments.len() - kind.told) as u64;
            let unseen = dice.as_deref_mut().filter(|_| lags).map_or(unseen, |dice| dice.below(unseen + 1));
            let upto = kind.told + unseen as usize;
            for next in &moments[kind.told..upto] {
                kind.step(gvk, next, &mut changes);
            }
        }
        changes
    }

    /// The API has answered with this object.
    pub fn show(&mut self, object: Arc<Value>) {
        let (gvk, key) = (Gvk::of(&object), Key::of(&object));
        let kind = self.kinds.entry(gvk).or_default();
        let revision = object::resource_version(&object).parse().unwrap_or(0);
        if revision > kind.moment.revision {
            kind.shown.insert(key, (revision, object));
        }
    }

    /// Everything that it sees.
    pub fn everything(&self) -> Vec<(Gvk, Arc<Value>)> {
        let kinds = self.kinds.iter();
        kinds.flat_map(|(gvk, kind)| kind.objects().into_values().map(|object| (gvk.clone(), object.clone()))).collect()
    }
}

impl World for View {
    fn get(&self, gvk: &Gvk, key: &Key) -> Option<Arc<Value>> {
        let kind = self.kinds.get(gvk)?;
        let shown = kind.shown.get(key).map(|(_, object)| object);
        shown.or_else(|| kind.moment.objects.get(key)).cloned()
    }

    fn list(&self, gvk: &Gvk, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let Some(kind) = self.kinds.get(gvk) else { return Vec::new() };
        let objects = kind.objects().into_iter().filter(|(key, _)| namespace.is_none_or(|n| key.namespace == n));
        objects.map(|(_, object)| object.clone()).collect()
    }

    fn owned_by(&self, gvk: &Gvk, owner_uid: &str) -> Vec<Arc<Value>> {
        let mut objects = self.list(gvk, None);
        objects.retain(|object| {
            let owners = object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
            if owner_uid.is_empty() { owners.is_empty() } else { owners.iter().any(|owner| owner["uid"] == owner_uid) }
        });
        objects
    }

    fn kinds(&self) -> Vec<Gvk> {
        self.kinds.keys().cloned().collect()
    }
}
