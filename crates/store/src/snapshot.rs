//! A read-only view of a bucket at one moment.

use crate::{Entry, Key, Revision};
use rpds::RedBlackTreeMapSync;
use std::sync::Arc;

pub(crate) type Map = RedBlackTreeMapSync<Key, Arc<Entry>>;

/// Makes a map hold what it held before a write.
pub(crate) fn take_back(map: &mut Map, key: &Key, previous: Option<&Arc<Entry>>) {
    match previous {
        Some(previous) => map.insert_mut(key.clone(), previous.clone()),
        None => _ = map.remove_mut(key),
    }
}

/// A bucket at one revision.
#[derive(Clone)]
pub struct Snapshot {
    pub revision: Revision,
    pub(crate) map: Map,
}

impl Snapshot {
    /// Number of objects, in all namespaces.
    pub fn len(&self) -> usize {
        self.map.size()
    }

    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub fn get(&self, key: &Key) -> Option<&Arc<Entry>> {
        self.map.get(key)
    }

    /// Objects ordered by namespace and name: those of one namespace (`None`: of all), after the key `after`.
    pub fn iter<'a>(
        &'a self,
        namespace: Option<&'a str>,
        after: Option<&'a Key>,
    ) -> impl Iterator<Item = &'a Arc<Entry>> + 'a {
        use std::ops::Bound;
        let start = match (after, namespace) {
            (Some(key), _) => Bound::Excluded(key.clone()),
            (None, Some(namespace)) => Bound::Included(Key::new(namespace, "")),
            (None, None) => Bound::Unbounded,
        };
        self.map
            .range((start, Bound::Unbounded))
            .map(|(_, entry)| entry)
            .take_while(move |entry| namespace.is_none_or(|namespace| entry.key.namespace == namespace))
    }
}
