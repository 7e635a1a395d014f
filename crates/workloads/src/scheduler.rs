//! The gang scheduler of embedded mode: gives pending pods their nodes.
//!
//! It updates an index of pods, nodes and the queue with each change ([`index`]). A decision looks only at pods that the
//! change may have helped ([`line`]). The pods of a gang get their nodes in one decision or not at all ([`gang`]); gangs and
//! single pods are tried in the order of priority and age. A pod goes where its node selector, affinities, tolerations and
//! resource requests let it; of several nodes to one that holds members of its gang, then to the fullest ([`placing`]). A pod
//! that gets no node gets a message that says what is missing, in upstream's words with the amounts added. Messages have a key
//! of their own, so that no placement waits for them ([`telling`]).
//!
//! As long as no node has ever reported, no messages are written: in a control plane without nodes a test plays the node's part.
//!
//! It honours host ports and topology spread constraints ([`spread`]). The node chooses a pod's devices. `resourceClaims` are ignored.
//!
//! # How it decides
//!
//! - Pods with the same requirements form a family (`line`). A family knows how many of its pods fit on each
//!   node, and a gang waits in its family until there is room for all pods that must start together. A change of
//!   a node is passed to the families; only those that gained room are looked at. Finished pods are never looked
//!   at again.
//! - The first complete gang that does not fit gets a reservation (`reserve`): a share of the nodes that is large
//!   enough for it once the pods that run there now have ended. Gangs behind it may use only the rest, so small
//!   gangs cannot overtake a large one for ever. A reservation lasts until its gang starts, a gang of higher
//!   priority comes, or the nodes change. It is in memory only: a scheduler that restarts may choose other nodes.
//! - Where the PriorityClass of the first gang allows it, gangs of lower priority are ended for it (`preempt`):
//!   whole gangs, as few as possible, the newest first. All pods of a gang are marked before the first is
//!   deleted, so that a scheduler that restarts finishes what it began.
//! - For kinds that the scheduler does not know (MPIJob) a rule (`owned`) says which pods start together and how
//!   many. A place-holder keeps the room of pods that come later.
//! - Ports of a node are part of what a family asks for. Topology spread is counted by domain.
//! - Messages to waiting pods are written under a key of their own, some 32 a second, and delay no pod that fits.
//!   Where a gang stands is answered from the index (`standing`), as API group `queue.trainyard.dev`.

mod affinity;
mod gang;
#[cfg(test)]
mod gang_tests;
mod index;
mod line;
mod members;
mod node;
mod owned;
#[cfg(test)]
mod owned_tests;
mod placing;
mod pod;
mod preempt;
#[cfg(test)]
mod preempt_tests;
mod request;
mod reserve;
mod slim;
mod spread;
#[cfg(test)]
mod spread_tests;
mod standing;
mod telling;
#[cfg(test)]
mod tests;

use api::object::{self, Gvk, Key, Target};
use index::Index;
use jiff::{SignedDuration, Timestamp};
pub use owned::{Kept, Needs, Rule};
use reconcile::wakes::Notes;
use reconcile::{Decision, Event, EventType, Next, OnError, Op, Primary, Reconciler, Wakes, Watch, World, Write};
use serde_json::{Value, json};
use slim::{slim, slimmed, taking};
pub use standing::Standing;
use std::ops::DerefMut;
use std::sync::Arc;
#[expect(clippy::disallowed_types, reason = "a pass goes on from the last one")]
use std::sync::Mutex;
use telling::Teller;

/// Schedulers whose pods this one takes care of: on one machine there is nobody else.
const SCHEDULERS: [&str; 4] = ["default-scheduler", "scheduler-plugins-scheduler", "volcano", "kai-scheduler"];
/// Reporter of the events.
const REPORTER: &str = "default-scheduler";
/// Seconds for which a gang may be incomplete before its pods say so: Jobs are made one after another.
const INCOMPLETE_SECS: i64 = 5;
/// Seconds after which a condition whose amounts alone have changed is written again.
const AMOUNTS_SECS: i64 = 30;
/// How long until the units that a pass did not reach are tried, or until the writer of messages looks whether a pass is over.
const SOON: SignedDuration = SignedDuration::from_millis(20);

fn core(kind: &str) -> Gvk {
    Gvk::new("", "v1", kind)
}

/// Binds pending pods to nodes.
#[derive(Clone, Debug, Default)]
pub struct Scheduler {
    rules: Vec<Rule>,
    notes: Arc<Notes>,
    #[expect(clippy::disallowed_types, reason = "a pass goes on from the last one")]
    memory: Arc<Mutex<Memory>>,
}

/// What it knows, and what it did last.
#[derive(Default)]
struct Memory {
    /// `None`: it has not looked at anything yet.
    index: Option<Index>,
    teller: Teller,
    /// Pods that were given nodes in the last decision: what became of them the world says.
    assumed: Vec<Key>,
    /// Changes were taken from the notes, and are not in the index yet.
    is_looking: bool,
    /// How many units were looked at.
    looked: u64,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("looked", &self.looked).finish_non_exhaustive()
    }
}

impl Scheduler {
    /// One that knows gangs of more kinds, by these rules.
    pub fn with_rules(rules: Vec<Rule>) -> Self {
        Self { rules, ..Self::default() }
    }

    /// All kinds that are looked at.
    fn kinds(&self) -> impl Iterator<Item = Gvk> {
        index::kinds().into_iter().chain(self.rules.iter().map(|rule| (rule.owner)()))
    }

    /// The key of placement: a pass is about all pods. It names a node that cannot exist, since scheduling has no object of
    /// its own.
    pub fn key() -> Target {
        Target { gvk: core("Node"), key: Key::default() }
    }

    /// The key under which messages to waiting pods are written.
    pub fn telling() -> Target {
        Target { gvk: core("Node"), key: Key::new("", "Those who wait") }
    }

    /// How many units were looked at so far, to be placed: what a change costs.
    pub fn looked(&self) -> u64 {
        self.memory().looked
    }

    fn memory(&self) -> impl DerefMut<Target = Memory> {
        self.memory.lock().unwrap_or_else(|poisoned| {
            // a bug stopped a decision half way: everything is read anew
            self.memory.clear_poison();
            let mut memory = poisoned.into_inner();
            *memory = Memory::default();
            memory
        })
    }
}

/// What a look reads: objects that have changed, as they are now. The first look makes an index of all there are.
pub struct Observed {
    is_telling: bool,
    changes: Vec<(Target, Option<Arc<Value>>)>,
}

/// Whether a pod is to get a node: pending, ours, not held back by a gate, not on its way out.
fn waits(pod: &Value) -> bool {
    let spec = &pod["spec"];
    let scheduler = spec["schedulerName"].as_str().unwrap_or("default-scheduler");
    SCHEDULERS.contains(&scheduler)
        && node_of(pod).is_none()
        && !object::has_ended(pod)
        && !object::is_terminating(pod)
        && spec["schedulingGates"].as_array().is_none_or(Vec::is_empty)
}

fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str().filter(|name| !name.is_empty())
}

impl Reconciler for Scheduler {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "scheduler"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(core("Node"))
    }

    fn watches(&self) -> Vec<Watch> {
        let keys = [Self::key(), Self::telling()];
        let noted = |gvk| Watch { gvk, wakes: Wakes::Noted(self.notes.clone(), keys.to_vec()) };
        self.kinds().map(noted).collect()
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let read = |target: Target| {
            let object = world.get(&target.gvk, &target.key).map(|object| slim(&target.gvk, &object));
            (target, object)
        };
        let pod = |key: Key| Target { gvk: core("Pod"), key };
        let mut memory = self.memory();
        if *target == Self::telling() {
            let told = memory.teller.told.iter().map(|(_, key, _)| read(pod(key.clone())));
            return Some(Observed { is_telling: true, changes: told.collect() });
        }
        if *target != Self::key() {
            return None;
        }
        memory.is_looking = true;
        let noted = self.notes.take();
        let assumed = std::mem::take(&mut memory.assumed);
        let changes = match memory.index {
            Some(_) => noted.into_iter().chain(assumed.into_iter().map(pod)).map(read).collect(),
            // of a hundred thousand pods not all are held at once
            None => {
                let mut index = Index::with_rules(&self.rules);
                for gvk in self.kinds() {
                    world.each_part(&gvk, taking(&gvk), &mut |object| {
                        let target = Target { gvk: gvk.clone(), key: Key::of(&object) };
                        index.take_in(&target, Some(&slimmed(&gvk, object)));
                    });
                }
                memory.index = Some(index);
                Vec::new()
            }
        };
        Some(Observed { is_telling: false, changes })
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        let mut memory = self.memory();
        match observed.is_telling {
            // what is about to be looked at may end the wait
            true if memory.is_looking || !self.notes.is_empty() => {
                Decision { next: Next::After(SOON), ..Decision::nothing() }
            }
            true => memory.tell(&observed.changes, now),
            false => memory.place(&observed.changes, now),
        }
    }
}

impl Memory {
    fn place(&mut self, changes: &[(Target, Option<Arc<Value>>)], now: Timestamp) -> Decision {
        self.is_looking = false;
        let mut decision = Decision::nothing();
        let Some(index) = &mut self.index else { return decision };
        for (target, object) in changes {
            index.take_in(target, object.as_ref());
        }
        index.settle();
        if !index.has_reported() {
            decision.report.note("no node has reported yet");
            return decision;
        }
        let mut passed = index.pass();
        // a place-holder, which keeps room, is no pod that could get a message
        passed.placements.retain(|(key, _)| !index.is_room(key));
        self.looked = self.looked.saturating_add(passed.looked);
        if passed.is_cut {
            decision.next = Next::After(SOON);
        }
        let bound = passed.placements.iter().filter_map(|(key, node)| Some((index.pods.get(key)?.object(), node)));
        decision.writes = bound.map(|(pod, node)| binding(&pod, node)).collect();
        self.assumed = passed.placements.into_iter().map(|(key, _)| key).collect();
        if let Some(preemption) = passed.preemption {
            decision.writes.extend(preemption.writes(index, now));
            self.assumed.extend(preemption.victims.into_iter().filter(|key| !index.is_room(key)));
        }
        decision
    }

    fn tell(&mut self, changes: &[(Target, Option<Arc<Value>>)], now: Timestamp) -> Decision {
        let decision = Decision::nothing();
        let Some(index) = &mut self.index else { return decision };
        for (target, object) in changes {
            index.take_telling(&target.key, object.as_ref());
        }
        if index.has_reported() { self.teller.tell(index, now) } else { decision }
    }
}

fn event(pod: &Value, kind: EventType, reason: &str, message: String, action: &'static str) -> Event {
    Event { regarding: Some(pod.clone()), kind, reason: reason.to_owned(), message, reporter: REPORTER, action }
}

/// The write that gives a pod its node.
fn binding(pod: &Value, node: &str) -> Write {
    let key = Key::of(pod);
    let object = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": key.name, "namespace": key.namespace, "uid": object::uid(pod)},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let op = Op::Subresource { target: Target::of(pod), subresource: "binding", object };
    let text = format!("Successfully assigned {key} to {node}");
    let event = event(pod, EventType::Normal, "Scheduled", text, "Binding");
    Write { op, on_error: OnError::Continue, on_success: Some(event) }
}
