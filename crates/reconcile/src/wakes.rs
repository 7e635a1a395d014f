//! Which keys of a controller a change wakes: one rule for the driver's informers and the simulator's.

use crate::{Primary, Wakes, Watch, World};
use api::object::{self, Gvk, Key, Target};
use objects::part;
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

    /// The keys that an object wakes which was there before the controller's first look: as if it had changed, but it is not noted,
    /// because that look is at everything.
    pub fn woken_at_start(&self, primary: &Primary, world: &dyn World, gvk: &Gvk, object: &Value) -> Vec<Target> {
        match &self.wakes {
            Wakes::Noted(_, keys) if self.is_of(gvk) => keys.clone(),
            _ => self.woken_by(primary, world, gvk, object),
        }
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
    old.filter(|old| !stays(old, new)).into_iter().chain([new])
}

/// Metadata that each write changes, whomever the object concerns.
const BY_EACH_WRITE: [&str; 3] = ["generation", "managedFields", "resourceVersion"];

/// Whether a changed object concerns whom it concerned before, as far as its metadata says so.
fn stays(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old["metadata"].as_object(), new["metadata"].as_object()) else { return false };
    let lasting = |(name, _): &(&String, &Value)| !BY_EACH_WRITE.contains(&name.as_str());
    old.iter().filter(lasting).eq(new.iter().filter(lasting))
}

/// As [`states`] says of trees, of the texts of objects: whether the old state concerns nobody else. False also where the texts
/// do not show it.
pub fn stays_by_text(old: &[u8], new: &[u8]) -> bool {
    let (Some(old), Some(new)) = (part::member(old, "metadata"), part::member(new, "metadata")) else { return false };
    let lasting = |(name, _): &(&[u8], &[u8])| !BY_EACH_WRITE.iter().any(|each| each.as_bytes() == *name);
    part::members(old).filter(lasting).eq(part::members(new).filter(lasting))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_there_at_the_start_wakes_and_is_not_noted() {
        let (kind, other) = (Gvk::new("", "v1", "Pod"), Gvk::new("", "v1", "Node"));
        let notes = std::sync::Arc::new(Notes::default());
        let key = Target { gvk: other.clone(), key: Key::default() };
        let watch = Watch { gvk: kind.clone(), wakes: Wakes::Noted(notes.clone(), vec![key.clone()]) };
        let (primary, world) = (Primary::Kind(other.clone()), crate::testing::Model::default());
        let pod = json!({"kind": "Pod", "metadata": {"name": "a", "namespace": "n"}});
        assert_eq!(watch.woken_at_start(&primary, &world, &other, &pod), []);
        let woken = [key];
        assert_eq!(watch.woken_at_start(&primary, &world, &kind, &pod), woken);
        assert!(notes.is_empty());
        assert_eq!(watch.woken_by(&primary, &world, &kind, &pod), woken);
        assert_eq!(notes.take().len(), 1);
    }

    #[test]
    fn an_old_state_is_shown_where_it_may_concern_somebody_else() {
        let object = |change: fn(&mut Value)| {
            let mut object = json!({"kind": "Pod", "metadata": {"name": "a", "uid": "u", "resourceVersion": "1", "generation": 1,
                "labels": {"a": "b"}, "managedFields": [{"manager": "m"}]}, "spec": {}});
            change(&mut object);
            object
        };
        let old = object(|_| ());
        let same: [fn(&mut Value); 2] = [
            |object| object["status"] = json!({"phase": "Running"}),
            |object| {
                for (name, value) in
                    [("generation", json!(2)), ("managedFields", json!([])), ("resourceVersion", json!("2"))]
                {
                    object["metadata"][name] = value;
                }
            },
        ];
        let other: [fn(&mut Value); 4] = [
            |object| object["metadata"]["labels"]["a"] = json!("c"),
            |object| object["metadata"]["ownerReferences"] = json!([{"uid": "o"}]),
            |object| _ = object["metadata"].as_object_mut().and_then(|meta| meta.remove("labels")),
            |object| object["metadata"]["uid"] = json!("v"),
        ];
        let cases = same.iter().map(|change| (change, 1)).chain(other.iter().map(|change| (change, 2)));
        for (change, shown) in cases {
            let new = object(*change);
            assert_eq!(states(Some(&old), &new).count(), shown, "{new}");
            let texts = (old.to_string(), new.to_string());
            assert_eq!(stays_by_text(texts.0.as_bytes(), texts.1.as_bytes()), shown == 1, "{new}");
        }
        assert_eq!(states(None, &old).count(), 1);
        assert!(!stays_by_text(b"{}", b"{}"));
    }
}
