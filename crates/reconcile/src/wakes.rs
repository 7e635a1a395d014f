//! Which keys of a controller a change wakes: one rule for the driver's informers and the simulator's.

use crate::{Primary, Wakes, Watch, World};
use api::object::{self, Gvk, Key, Target};
use serde_json::Value;

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
        }
    }
}

/// The states of a changed object that concern somebody: the new one, and before it the old one where owners or labels may
/// have moved away from whom they concerned.
pub fn states<'a>(old: Option<&'a Value>, new: &'a Value) -> impl Iterator<Item = &'a Value> {
    old.filter(|old| old["metadata"] != new["metadata"]).into_iter().chain([new])
}
