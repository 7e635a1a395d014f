//! Gangs of kinds that this crate does not know: a [`Rule`] says whose pods start together, and how many they are.
//!
//! Some of them may come later, when others are ready. Their room is kept from the start, and whenever one of them has ended and the
//! next is not there yet: by a place-holder, which is a pod in the index and nowhere else. Otherwise two gangs could each hold
//! what the other still needs.

use super::gang::Group;
use super::index::{Index, State};
use super::line::Shape;
use super::members::Members;
use super::pod::Pod;
use api::object::{self, Gvk, Key};
use serde_json::{Value, json};
use std::sync::Arc;

/// Whose pods are a gang.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The kind that pods are of: their controller, or that of their Job.
    pub owner: fn() -> Gvk,
    /// Label of pods: the owner's name.
    pub owner_label: &'static str,
    /// Label of pods: their role.
    pub role_label: &'static str,
    /// What an owner says; `None` where its pods are no gang (any more).
    pub read: fn(&Value) -> Option<Needs>,
}

/// What starts together.
#[derive(Clone, Debug, PartialEq)]
pub struct Needs {
    /// How many pods there are in all.
    pub count: usize,
    /// How many of them are enough to start; the others follow.
    pub least: usize,
    /// Pods whose room is kept while they do not exist.
    pub kept: Option<Kept>,
}

/// A role of one pod whose room is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// As the label says it.
    pub role: &'static str,
    /// The pod's template.
    pub template: Value,
    /// It is made when others are ready, so these do not wait for it.
    pub is_late: bool,
}

/// The gang that a pod is of by one of the rules.
pub(super) fn group_of(pod: &Value, rules: &[Rule]) -> Option<Group> {
    let owner = object::controller_of(pod)?;
    let kind = object::text(owner, "kind");
    rules.iter().enumerate().find_map(|(at, rule)| {
        let name = object::label(pod, rule.owner_label)?;
        let is_its = kind == "Job" || kind == (rule.owner)().kind;
        is_its.then(|| Group::Owned(at, Key::new(object::meta(pod, "namespace"), name)))
    })
}

/// The key of a place-holder, which no pod can have.
fn key_of(owner: &Key, kept: &Kept) -> Key {
    Key::new(&owner.namespace, &format!("{} ({})", owner.name, kept.role))
}

impl Index {
    /// Takes in what an owner says, or that there is none.
    pub(super) fn take_owner(&mut self, at: usize, key: &Key, object: Option<&Arc<Value>>) {
        let now = object.map(|object| (self.rules[at].read)(object));
        let key = (at, key.clone());
        if self.owned.get(&key) == now.as_ref() {
            return;
        }
        self.touched_groups.insert(Group::Owned(at, key.1.clone()));
        match now {
            Some(now) => self.owned.insert(key, now),
            None => self.owned.remove(&key),
        };
    }

    /// Makes a gang's place-holder where one is missing, and takes it away where it is not needed.
    pub(super) fn keep_room(&mut self, group: &Group) {
        let Group::Owned(at, owner) = group else { return };
        let Some(members) = self.groups.get(group) else { return };
        let wanted = self.owned.get(&(*at, owner.clone())).and_then(|needs| needs.as_ref()?.kept.as_ref());
        let wanted = wanted.and_then(|kept| {
            let first = self.is_missing(members, self.rules[*at].role_label, kept)?;
            Some((key_of(owner, kept), kept.template.clone(), object::meta(&first, "creationTimestamp").to_owned()))
        });
        let held: Vec<Key> = members.keys().filter(|key| self.is_room(key)).cloned().collect();
        for key in &held {
            let is_wanted = wanted.as_ref().is_some_and(|(wanted, ..)| wanted == key);
            // without anybody beside it, it is one of those that start together
            let is_early = !self.runs(self.groups.get(group)) && !self.waits(key);
            if !is_wanted || is_early {
                self.remove_pod(key);
            }
        }
        let Some((key, template, created)) = wanted.filter(|(key, ..)| !self.pods.contains_key(key)) else { return };
        let object = Arc::new(json!({
            "metadata": {"name": key.name, "namespace": key.namespace, "creationTimestamp": created,
                "labels": template["metadata"]["labels"]},
            "spec": template["spec"],
        }));
        let shape = self.line.known(Shape::of(&object));
        let mut pod = Pod::new(&object, State::Waits, shape, group.clone());
        pod.is_room = true;
        self.add_pod(&key, &object, pod);
    }

    /// Whether a place-holder is called for; then one of the pods that it is for.
    fn is_missing(&self, members: &Members, role_label: &str, kept: &Kept) -> Option<Arc<Value>> {
        let real = || members.keys().filter_map(|key| self.pods.get(key)).filter(|pod| !pod.is_room);
        let is_here = |pod: &&Pod| pod.state != State::Ended && !object::is_terminating(&pod.object());
        let is_it = |pod: &Pod| object::label(&pod.object(), role_label) == Some(kept.role);
        if real().filter(is_here).any(is_it) {
            return None;
        }
        let holds = |pod: &&Pod| is_here(pod) && matches!(pod.state, State::On(_));
        let waits = |pod: &&Pod| kept.is_late && pod.state == State::Waits;
        real().find(|pod| holds(pod) || waits(pod)).map(Pod::object)
    }

    /// Whether real pods of a gang hold nodes, and are to go on.
    fn runs(&self, members: Option<&Members>) -> bool {
        let mut pods = members.into_iter().flat_map(|members| &members.bound).filter_map(|key| self.pods.get(key));
        pods.any(|pod| !pod.is_room && matches!(pod.state, State::On(_)) && !object::is_terminating(&pod.object()))
    }

    /// How many of a gang have ended and stay as they are.
    fn ended(&self, at: usize, members: &Members, needs: &Needs) -> usize {
        let role = |pod: &Pod| object::label(&pod.object(), self.rules[at].role_label).map(str::to_owned);
        let comes_again = |pod: &Pod| needs.kept.as_ref().is_some_and(|kept| role(pod).as_deref() == Some(kept.role));
        let pods = members.bound.iter().filter_map(|key| self.pods.get(key));
        let stays = |pod: &&Pod| pod.state == State::Ended && !object::is_terminating(&pod.object());
        pods.filter(stays).filter(|pod| !comes_again(pod)).count()
    }

    fn waits(&self, key: &Key) -> bool {
        self.pods.get(key).is_some_and(|pod| pod.state == State::Waits)
    }

    /// Whether this is a place-holder.
    pub(super) fn is_room(&self, key: &Key) -> bool {
        self.pods.get(key).is_some_and(|pod| pod.is_room)
    }

    /// How many of a gang that nobody of runs have to be there; `None`: each goes by itself.
    pub(super) fn together(&self, at: usize, owner: &Key, members: &Members, there: usize) -> Option<usize> {
        match self.owned.get(&(at, owner.clone())) {
            // what its owner wants is not known yet: nobody goes ahead
            None => Some(there.saturating_add(1)),
            Some(None) => None,
            Some(Some(_)) if self.runs(Some(members)) => None,
            Some(Some(needs)) => {
                // one that has ended is not made anew, but for whose room is kept
                let ended = self.ended(at, members, needs);
                Some(match needs.least < needs.count {
                    true => needs.least.saturating_sub(ended).max(1),
                    false => needs.count.saturating_sub(ended).max(there),
                })
            }
        }
    }
}
