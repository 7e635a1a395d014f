//! What a controller sees: for each kind an earlier moment of the truth, never an earlier one than before.

use crate::cluster::Cluster;
use crate::dice::Dice;
use api::object::{Gvk, Key};
use reconcile::World;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All objects of a kind at a moment, by namespace and name.
pub type Moment = Arc<BTreeMap<Key, Arc<Value>>>;

#[derive(Default)]
pub struct View {
    seen: BTreeMap<Gvk, (usize, Moment)>,
}

impl View {
    /// Takes later moments in; with dice, some of them, else all.
    pub fn catch_up(&mut self, cluster: &Cluster, mut dice: Option<&mut Dice>) {
        for (gvk, moments) in &*cluster.moments.borrow() {
            let newest = moments.len() - 1;
            let at = self.seen.get(gvk).map_or(0, |(at, _)| *at);
            // half of the kinds are up to date at a time, as watches are most of the time
            let at = match dice.as_deref_mut() {
                Some(dice) if newest > at => {
                    let lags = dice.chance(50);
                    if lags { at + dice.below((newest - at) as u64 + 1) as usize } else { newest }
                }
                Some(_) | None => newest,
            };
            self.seen.insert(gvk.clone(), (at, moments[at].clone()));
        }
    }
}

impl View {
    /// Takes the latest moments of these kinds in.
    pub fn see(&mut self, cluster: &Cluster, kinds: &BTreeSet<Gvk>) {
        let moments = cluster.moments.borrow();
        for gvk in kinds {
            if let Some(moments) = moments.get(gvk) {
                let newest = moments.len() - 1;
                self.seen.insert(gvk.clone(), (newest, moments[newest].clone()));
            }
        }
    }
}

impl World for View {
    fn get(&self, gvk: &Gvk, key: &Key) -> Option<Arc<Value>> {
        self.seen.get(gvk)?.1.get(key).cloned()
    }

    fn list(&self, gvk: &Gvk, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let Some((_, moment)) = self.seen.get(gvk) else { return Vec::new() };
        moment.iter().filter(|(key, _)| namespace.is_none_or(|n| key.namespace == n)).map(|(_, o)| o.clone()).collect()
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
        self.seen.keys().cloned().collect()
    }
}
