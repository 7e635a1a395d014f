//! Garbage collection: objects go when their owners have gone.
//!
//! Keyed by every object of every kind. An object is looked at when it changes, when an owner of its changes for the worse
//! (deleted, or waiting in a foreground deletion), and, while it is itself being deleted and waits for its dependents, when
//! one of those changes. Everything else follows from one object's metadata, so the common case costs nothing.
//!
//! The view may lag: an owner made a moment ago may not be in it yet. So nothing is deleted for want of an owner before the
//! server itself has said that the owner is not there ([`Op::Absent`]).

use api::object::{self, Gvk, Key, Target};
use jiff::Timestamp;
use reconcile::{Decision, Op, PatchBody, Primary, Propagation, Reconciler, Wakes, Watch, World};
use serde_json::{Value, json};
use std::sync::Arc;

/// Finalizer of an object that waits until its dependents have lost their references to it.
const ORPHAN: &str = "orphan";
/// Finalizer of an object that waits until its blocking dependents have gone.
const FOREGROUND: &str = "foregroundDeletion";

/// Whether objects of a kind live in namespaces.
pub type IsNamespaced = fn(&Gvk) -> bool;

/// Deletes dependents, and ends foreground and orphaning deletions.
#[derive(Clone, Copy, Debug)]
pub struct GarbageCollector {
    is_namespaced: IsNamespaced,
}

impl GarbageCollector {
    /// `is_namespaced` is asked about kinds of which the world has no object.
    pub fn new(is_namespaced: IsNamespaced) -> Self {
        Self { is_namespaced }
    }

    /// Whether objects of the kind live in namespaces, as far as can be seen.
    fn is_namespaced(self, world: &dyn World, gvk: &Gvk) -> bool {
        match world.list(gvk, None).first() {
            Some(object) => !object::meta(object, "namespace").is_empty(),
            None => (self.is_namespaced)(gvk),
        }
    }

    fn owner_state(self, world: &dyn World, dependent: &Value, reference: &Value) -> OwnerState {
        let (namespace, name) = (object::meta(dependent, "namespace"), object::text(reference, "name"));
        let named = reference_gvk(reference);
        let is_it = |owner: &Arc<Value>| object::uid(owner) == object::text(reference, "uid");
        let state = |owner: Arc<Value>| {
            if object::is_terminating(&owner) && has_finalizer(&owner, FOREGROUND) {
                OwnerState::Waiting
            } else {
                OwnerState::Solid
            }
        };
        // by far the most common case is the cheapest
        if stands(world, &named, namespace, reference) {
            return OwnerState::Solid;
        }
        if let Some(owner) = find(world, &named, namespace, name).filter(is_it) {
            return state(owner);
        }
        let Some(gvk) = known_kind(&world.kinds(), &named) else { return OwnerState::Unknown };
        match find(world, &gvk, namespace, name).filter(is_it) {
            Some(owner) => state(owner),
            // an object of the cluster cannot have an owner in a namespace; such a reference is passed over
            None if namespace.is_empty() && self.is_namespaced(world, &gvk) => OwnerState::Unknown,
            None => OwnerState::Absent(Target { gvk, key: Key::new(namespace, name) }),
        }
    }
}

/// What an owner reference leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OwnerState {
    /// It is there.
    Solid,
    /// It is there, being deleted, and waits for its dependents.
    Waiting,
    /// It is not there, or another object has its name.
    Absent(Target),
    /// Its kind is not served, or cannot own this object: nobody can say.
    Unknown,
}

/// An object with what is needed to decide about it.
#[derive(Clone, Debug)]
pub struct Observed {
    object: Arc<Value>,
    /// In the order of its owner references.
    owners: Vec<OwnerState>,
    /// Everything that names it as an owner; only where it, or an owner of its, is being deleted.
    dependents: Vec<Arc<Value>>,
}

fn references(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|list| list.iter().any(|held| held == finalizer))
}

/// Whether it is being deleted in a way that concerns its dependents.
fn waits_for_dependents(object: &Value) -> bool {
    object::is_terminating(object) && (has_finalizer(object, FOREGROUND) || has_finalizer(object, ORPHAN))
}

/// The kind as the world has it: a reference may name another version.
fn known_kind(kinds: &[Gvk], named: &Gvk) -> Option<Gvk> {
    let same = |kind: &&Gvk| kind.group == named.group && kind.kind == named.kind;
    kinds.iter().find(same).cloned()
}

/// An owner of an object in a namespace: there, or in no namespace.
fn find(world: &dyn World, gvk: &Gvk, namespace: &str, name: &str) -> Option<Arc<Value>> {
    world.head(gvk, &Key::new(namespace, name)).or_else(|| world.head(gvk, &Key::new("", name)))
}

/// Whether the owner that an object in a namespace names is there, and nobody has asked for its end. False is not certain.
fn stands(world: &dyn World, gvk: &Gvk, namespace: &str, reference: &Value) -> bool {
    let (name, uid) = (object::text(reference, "name"), object::text(reference, "uid"));
    [namespace, ""].iter().any(|namespace| world.stands(gvk, &Key::new(namespace, name), uid))
}

fn reference_gvk(reference: &Value) -> Gvk {
    Gvk::from_api_version(object::text(reference, "apiVersion"), object::text(reference, "kind"))
}

/// Everything that names this uid as an owner.
fn dependents(world: &dyn World, uid: &str) -> Vec<Arc<Value>> {
    if uid.is_empty() {
        return Vec::new();
    }
    world.kinds().iter().flat_map(|kind| world.owned_by(kind, uid)).collect()
}

/// Whom else a changed object concerns: its dependents, where it has gone or waits for them; its owners, where they wait.
fn concerned(world: &dyn World, object: &Value) -> Vec<Target> {
    let (gvk, key) = (Gvk::of(object), Key::of(object));
    let held = || world.head(&gvk, &key).filter(|held| object::uid(held) == object::uid(object));
    let mut targets = Vec::new();
    if !world.stands(&gvk, &key, object::uid(object)) && held().is_none_or(|held| waits_for_dependents(&held)) {
        targets.extend(dependents(world, object::uid(object)).iter().map(|dependent| Target::of(dependent)));
    }
    let references = references(object);
    if references.is_empty() {
        return targets;
    }
    for reference in references {
        let named = reference_gvk(reference);
        let namespace = object::meta(object, "namespace");
        if stands(world, &named, namespace, reference) {
            continue;
        }
        let owner = find(world, &named, namespace, object::text(reference, "name")).or_else(|| {
            let gvk = known_kind(&world.kinds(), &named)?;
            find(world, &gvk, namespace, object::text(reference, "name"))
        });
        targets.extend(owner.filter(|owner| waits_for_dependents(owner)).map(|owner| Target::of(&owner)));
    }
    targets
}

impl Reconciler for GarbageCollector {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "gc"
    }

    fn primary(&self) -> Primary {
        Primary::Every
    }

    fn watches(&self) -> Vec<Watch> {
        vec![Watch::every(Wakes::Keys(concerned))]
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let object = world.head(&target.gvk, &target.key)?;
        let waits = waits_for_dependents(&object);
        if !waits && (references(&object).is_empty() || object::is_terminating(&object)) {
            return None;
        }
        let owners: Vec<OwnerState> = if waits {
            Vec::new()
        } else {
            references(&object).iter().map(|reference| self.owner_state(world, &object, reference)).collect()
        };
        if !waits && owners.iter().all(|owner| *owner == OwnerState::Solid) {
            return None;
        }
        let dependents = if waits || owners.contains(&OwnerState::Waiting) {
            dependents(world, object::uid(&object))
        } else {
            Vec::new()
        };
        Some(Observed { object, owners, dependents })
    }

    fn decide(&self, observed: &Observed, _now: Timestamp) -> Decision {
        let Observed { object, owners, dependents } = observed;
        let mut decision = Decision::nothing();
        let mut write = |op: Op| decision.writes.push(op.into());
        if object::is_terminating(object) {
            let uid = object::uid(object);
            if has_finalizer(object, ORPHAN) {
                dependents.iter().for_each(|dependent| write(without_owners(dependent, |owner| owner == uid)));
                write(without_finalizer(object, ORPHAN));
                decision.report.note(format!("{} dependents are orphaned", dependents.len()));
            } else if !dependents.iter().any(|dependent| blocks(dependent, uid)) {
                write(without_finalizer(object, FOREGROUND));
                decision.report.note("no dependent blocks its deletion");
            }
            return decision;
        }
        if owners.contains(&OwnerState::Unknown) {
            decision.report.note("an owner's kind is not served: nobody can say whether it is there");
            return decision;
        }
        let solid = owners.contains(&OwnerState::Solid);
        let waiting = owners.contains(&OwnerState::Waiting);
        for (reference, owner) in references(object).iter().zip(owners) {
            if let OwnerState::Absent(target) = owner {
                let uid = object::text(reference, "uid").to_owned();
                write(Op::Absent { target: target.clone(), uid });
            }
        }
        if solid {
            let kept: Vec<&str> = references(object)
                .iter()
                .zip(owners)
                .filter(|(_, owner)| **owner == OwnerState::Solid)
                .map(|(reference, _)| object::text(reference, "uid"))
                .collect();
            write(without_owners(object, |uid| !kept.contains(&uid)));
            decision.report.note("some of its owners have gone, some have not");
            return decision;
        }
        let propagation = if waiting && !dependents.is_empty() {
            // dependents of its own that wait for their dependents might, through them, be waiting for this one
            if dependents.iter().any(|dependent| waits_for_dependents(dependent)) {
                write(unblocked(object));
            }
            Propagation::Foreground
        } else if has_finalizer(object, ORPHAN) {
            Propagation::Orphan
        } else if has_finalizer(object, FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        decision.report.note(if waiting { "its owner waits for it to go" } else { "none of its owners is there" });
        decision.writes.push(
            Op::Delete {
                target: Target::of(object),
                propagation,
                uid: Some(object::uid(object).to_owned()),
                resource_version: Some(object::resource_version(object).to_owned()),
                grace_secs: None,
            }
            .into(),
        );
        decision
    }
}

/// Whether the owner's foreground deletion waits for this dependent.
fn blocks(dependent: &Value, uid: &str) -> bool {
    references(dependent).iter().any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true)
}

/// A change of metadata that is refused if the object is not as it was seen.
fn patch(object: &Value, mut metadata: Value) -> Op {
    metadata["uid"] = object::uid(object).into();
    metadata["resourceVersion"] = object::resource_version(object).into();
    Op::Patch { target: Target::of(object), subresource: None, body: PatchBody::Merge(json!({"metadata": metadata})) }
}

fn or_null(list: Vec<Value>) -> Value {
    if list.is_empty() { Value::Null } else { list.into() }
}

fn without_finalizer(object: &Value, finalizer: &str) -> Op {
    let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.retain(|held| held != finalizer);
    patch(object, json!({"finalizers": or_null(finalizers)}))
}

fn without_owners(object: &Value, gone: impl Fn(&str) -> bool) -> Op {
    let kept = references(object).iter().filter(|reference| !gone(object::text(reference, "uid"))).cloned().collect();
    patch(object, json!({"ownerReferences": or_null(kept)}))
}

fn unblocked(object: &Value) -> Op {
    let mut owners = references(object).to_vec();
    owners.iter_mut().for_each(|owner| owner["blockOwnerDeletion"] = false.into());
    patch(object, json!({"ownerReferences": owners}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use reconcile::Next;
    use reconcile::testing::Model;

    const COLLECTOR: GarbageCollector = GarbageCollector { is_namespaced: |gvk| gvk.kind != "Node" };

    fn object(kind: &str, name: &str, owners: &[(&str, &str, bool)]) -> Value {
        let owners: Vec<Value> = owners
            .iter()
            .map(|(kind, name, blocking)| {
                let uid = format!("{}-{name}", kind.to_lowercase());
                json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "blockOwnerDeletion": blocking})
            })
            .collect();
        let namespace = if kind == "Node" { "" } else { "ns" };
        let mut made = json!({"apiVersion": "v1", "kind": kind, "metadata": {"namespace": namespace, "name": name}});
        if !owners.is_empty() {
            made["metadata"]["ownerReferences"] = owners.into();
        }
        made
    }

    fn target(kind: &str, name: &str) -> Target {
        Target { gvk: Gvk::new("", "v1", kind), key: Key::new(if kind == "Node" { "" } else { "ns" }, name) }
    }

    /// Collects until nothing is left to collect; returns what is there, `Kind/name` with `~` where it is being deleted.
    fn collect(model: &mut Model) -> Vec<String> {
        loop {
            let before = model.writes.len();
            for gvk in model.kinds() {
                for held in model.list(&gvk, None) {
                    assert_eq!(model.run(&COLLECTOR, &Target::of(&held)), Next::AwaitChange);
                }
            }
            if model.writes.len() == before {
                break;
            }
        }
        let mut left = Vec::new();
        for gvk in model.kinds() {
            for held in model.list(&gvk, None) {
                let mark = if object::is_terminating(&held) { "~" } else { "" };
                left.push(format!("{mark}{}/{}", gvk.kind, object::meta(&held, "name")));
            }
        }
        left
    }

    fn owners(model: &Model, kind: &str, name: &str) -> Vec<String> {
        let held = model.one(kind, name).expect("it is there");
        references(&held).iter().map(|owner| object::text(owner, "name").to_owned()).collect()
    }

    #[test]
    fn background_takes_chains_and_spares_the_co_owned() {
        let mut model = Model::of([
            object("ConfigMap", "o", &[]),
            object("ConfigMap", "other", &[]),
            object("Secret", "a", &[("ConfigMap", "o", false)]),
            object("Secret", "b", &[("ConfigMap", "o", true)]),
            object("Secret", "both", &[("ConfigMap", "o", false), ("ConfigMap", "other", false)]),
            object("ServiceAccount", "leaf", &[("Secret", "a", false)]),
        ]);
        assert_eq!(collect(&mut model).len(), 6);
        model.delete(&target("ConfigMap", "o"), Propagation::Background, None);
        assert_eq!(collect(&mut model), ["ConfigMap/other", "Secret/both"]);
        assert_eq!(owners(&model, "Secret", "both"), ["other"]);
        model.delete(&target("ConfigMap", "other"), Propagation::Background, None);
        assert!(collect(&mut model).is_empty());
    }

    #[test]
    fn owners_that_are_not_what_was_named() {
        let mut of_another_uid = object("Secret", "uid", &[("ConfigMap", "o", false)]);
        of_another_uid["metadata"]["ownerReferences"][0]["uid"] = "another".into();
        let mut of_unknown_kind = object("Secret", "unknown", &[("Mystery", "m", false)]);
        of_unknown_kind["metadata"]["ownerReferences"][0]["apiVersion"] = "mystery.example/v1".into();
        let mut elsewhere = object("Secret", "elsewhere", &[("ConfigMap", "o", false)]);
        elsewhere["metadata"]["namespace"] = "other".into();
        let mut model = Model::of([
            object("ConfigMap", "o", &[]),
            object("Node", "n", &[]),
            object("Secret", "never", &[("ConfigMap", "nope", false)]),
            object("Secret", "of-node", &[("Node", "n", false)]),
            object("Node", "odd", &[("ConfigMap", "o", false)]),
            of_another_uid,
            of_unknown_kind,
            elsewhere,
        ]);
        let left = ["ConfigMap/o", "Node/n", "Node/odd", "Secret/of-node", "Secret/unknown"];
        assert_eq!(collect(&mut model), left);
    }

    #[test]
    fn an_owner_that_the_view_lacks_is_asked_for() {
        struct Lagging(Model);
        impl World for Lagging {
            fn get(&self, gvk: &Gvk, key: &Key) -> Option<Arc<Value>> {
                self.0.get(gvk, key).filter(|_| gvk.kind != "ConfigMap")
            }
            fn list(&self, gvk: &Gvk, namespace: Option<&str>) -> Vec<Arc<Value>> {
                self.0.list(gvk, namespace)
            }
            fn owned_by(&self, gvk: &Gvk, uid: &str) -> Vec<Arc<Value>> {
                self.0.owned_by(gvk, uid)
            }
            fn kinds(&self) -> Vec<Gvk> {
                self.0.kinds()
            }
        }
        let model = Model::of([object("ConfigMap", "o", &[]), object("Secret", "a", &[("ConfigMap", "o", false)])]);
        let mut world = Lagging(model);
        let observed = COLLECTOR.observe(&world, &target("Secret", "a")).expect("something to decide");
        let decision = COLLECTOR.decide(&observed, world.0.now);
        assert!(!world.0.execute(&target("Secret", "a"), &decision), "a conflict, not a deletion");
        assert!(world.0.one("Secret", "a").is_some());
    }

    #[test]
    fn foreground_waits_for_those_that_block() {
        let mut held = object("Secret", "held", &[("ConfigMap", "o", true)]);
        held["metadata"]["finalizers"] = json!(["example/hold"]);
        let mut free = object("Secret", "free", &[("ConfigMap", "o", false)]);
        free["metadata"]["finalizers"] = json!(["example/hold"]);
        let mut model = Model::of([object("ConfigMap", "o", &[]), held, free]);
        model.delete(&target("ConfigMap", "o"), Propagation::Foreground, None);
        assert_eq!(collect(&mut model), ["~ConfigMap/o", "~Secret/free", "~Secret/held"]);
        let release = |model: &mut Model, name: &str| {
            model.change(&Gvk::new("", "v1", "Secret"), &Key::new("ns", name), |o| {
                o["metadata"]["finalizers"] = json!([])
            });
        };
        release(&mut model, "held");
        assert_eq!(collect(&mut model), ["~Secret/free"]);
        release(&mut model, "free");
        assert!(collect(&mut model).is_empty());
    }

    #[test]
    fn foreground_goes_down_the_tree_and_comes_to_an_end_in_a_circle() {
        let mut model = Model::of([
            object("ConfigMap", "top", &[]),
            object("Secret", "middle", &[("ConfigMap", "top", true)]),
            object("Pod", "leaf", &[("Secret", "middle", true)]),
        ]);
        model.delete(&target("ConfigMap", "top"), Propagation::Foreground, None);
        assert!(collect(&mut model).is_empty());
        let order: Vec<&str> =
            model.writes.iter().filter(|line| line.starts_with("delete")).map(String::as_str).collect();
        assert_eq!(order, ["delete Secret middle", "delete Pod leaf"]);

        let mut model = Model::of([
            object("ConfigMap", "a", &[("Secret", "b", true)]),
            object("Secret", "b", &[("ConfigMap", "a", true)]),
        ]);
        model.delete(&target("ConfigMap", "a"), Propagation::Foreground, None);
        assert!(collect(&mut model).is_empty());
    }

    #[test]
    fn another_finalizer_outlives_the_collectors_own() {
        let mut owned = object("ConfigMap", "q", &[]);
        owned["metadata"]["finalizers"] = json!(["example/own"]);
        let mut model = Model::of([owned]);
        model.delete(&target("ConfigMap", "q"), Propagation::Foreground, None);
        assert_eq!(collect(&mut model), ["~ConfigMap/q"]);
        let held = model.one("ConfigMap", "q").expect("it is there");
        assert_eq!(held["metadata"]["finalizers"], json!(["example/own"]));
    }

    #[test]
    fn orphans_stay_without_the_reference() {
        let mut model = Model::of([
            object("ConfigMap", "o", &[]),
            object("ConfigMap", "other", &[]),
            object("Secret", "a", &[("ConfigMap", "o", true), ("ConfigMap", "other", false)]),
            object("Secret", "b", &[("ConfigMap", "o", true)]),
        ]);
        model.delete(&target("ConfigMap", "o"), Propagation::Orphan, None);
        assert_eq!(collect(&mut model), ["ConfigMap/other", "Secret/a", "Secret/b"]);
        assert_eq!(owners(&model, "Secret", "a"), ["other"]);
        let orphan = model.one("Secret", "b").expect("it stays");
        assert!(orphan["metadata"].get("ownerReferences").is_none());
    }

    #[test]
    fn who_is_woken() {
        let mut model = Model::of([object("ConfigMap", "o", &[]), object("Secret", "a", &[("ConfigMap", "o", true)])]);
        let (owner, dependent) = (model.one("ConfigMap", "o").expect("o"), model.one("Secret", "a").expect("a"));
        assert_eq!(concerned(&model, &owner), []);
        assert_eq!(concerned(&model, &dependent), []);
        model.delete(&target("ConfigMap", "o"), Propagation::Foreground, None);
        assert_eq!(concerned(&model, &owner), [target("Secret", "a")]);
        assert_eq!(concerned(&model, &dependent), [target("ConfigMap", "o")]);
        let mut model = Model::of([object("Secret", "a", &[("ConfigMap", "o", true)])]);
        assert_eq!(concerned(&model, &owner), [target("Secret", "a")]);
        model.put(object("ConfigMap", "o", &[]));
        assert_eq!(concerned(&model, &owner), []);
    }
}
