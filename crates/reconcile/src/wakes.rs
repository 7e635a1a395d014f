//! Which keys of a controller a change wakes: one rule for the driver's informers and the simulator's.

use crate::{Primary, Wakes, Watch, World};
use api::object::{self, Gvk, Key, Target};
use serde_json::Value;
use std::collections::BTreeSet;
#[expect(clippy::disallowed_types, reason = "watches add notes beside the controller that takes them")]
use std::sync::{Mutex, PoisonError};

/// Which objects have changed since somebody last took the notes. There is one note for an object at most.
#[derive(Debug, Default)]
#[expect(clippy::disallowed_types, reason = "watches add notes beside the controller that takes them")]
pub struct Notes(Mutex<BTreeSet<Target>>);

impl Notes {
    /// Notes that an object has changed, or is gone.
    pub fn add(&self, target: Target) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(target);
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// All notes; they are taken with that.
    pub fn take(&self) -> BTreeSet<Target> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a reconciler keyed by every kind is not shown: nobody owns or garbage-collects them, and each write makes one.
pub const UNTRACKED: [&str; 1] = ["Event"];

/// Whether a reconciler keyed by every kind looks at this one.
pub fn is_tracked(gvk: &Gvk) -> bool {
    !UNTRACKED.contains(&gvk.kind.as_str())
}

impl Primary {
    /// Whether objects of this kind are keys.
    pub fn is(&self, gvk: &Gvk) -> bool {
        match self {
            Self::Kind(kind) => kind == gvk,
            Self::Every => is_tracked(gvk),
        }
    }

    /// The changed object itself, where it is a key.
    pub fn woken_by(&self, gvk: &Gvk, object: &Value) -> Option<Target> {
        self.is(gvk).then(|| Target { gvk: gvk.clone(), key: Key::of(object) })
    }
}

impl Watch {
    /// Whether it tells of changes of this kind.
    pub fn is_of(&self, gvk: &Gvk) -> bool {
        self.gvk == *gvk || (self.is_every() && is_tracked(gvk))
    }

    /// The keys that a change of this object wakes, in a controller of `primary`.
    pub fn woken_by(&self, primary: &Primary, world: &dyn World, gvk: &Gvk, object: &Value) -> Vec<Target> {
        if !self.is_of(gvk) {
            return Vec::new();
        }
        match &self.wakes {
            Wakes::Nothing => Vec::new(),
            Wakes::ControllerOwner => {
                let (Primary::Kind(kind), Some(owner)) = (primary, object::controller_of(object)) else {
                    return Vec::new();
                };
                let named = Gvk::of(owner);
                if named.kind != kind.kind || named.group != kind.group {
                    return Vec::new();
                }
                let key = Key::new(object::meta(object, "namespace"), object::text(owner, "name"));
                vec![Target { gvk: kind.clone(), key }]
            }
            Wakes::Keys(keys) => keys(world, object),
            Wakes::Noted(notes, keys) => {
                notes.add(Target { gvk: gvk.clone(), key: Key::of(object) });
                keys.clone()
            }
        }
    }
}

/// The states of a changed object that concern somebody: the new one, and before it the old one where owners or labels may
/// have moved away from whom they concerned.
pub fn states<'a>(old: Option<&'a Value>, new: &'a Value) -> impl Iterator<Item = &'a Value> {
    old.filter(|old| old["metadata"] != new["metadata"]).into_iter().chain([new])
}
