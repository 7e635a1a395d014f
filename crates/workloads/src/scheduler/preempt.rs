//! Preemption for the head of the queue: whole gangs of lower priority, the least important first and of these the newest.
//!
//! The unit that has the reservation takes nodes from others where its pods' priority is higher and their `preemptionPolicy` is
//! not `Never`. No more gangs go than necessary; while pods are being deleted already, the scheduler waits for them and ends no others.
//! All pods of a gang are marked (condition `DisruptionTarget`) before the first is deleted. A mark is a promise: a scheduler that
//! finds one pod of a gang marked and not deleted, after a crash for instance, deletes the whole gang.

use super::gang::Group;
use super::index::{Index, State};
use super::line::{Shape, Unit};
use super::node::Node;
use super::placing::{Aim, Placement};
use super::pod::Pod;
use super::reserve::Reservation;
use super::{REPORTER, event};
use api::object::{self, Key, Target};
use jiff::Timestamp;
use reconcile::{EventType, OnError, Op, PatchBody, Propagation, Write};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many gangs that would go are looked at one by one whether they may stay; each costs a search for nodes.
const REPRIEVES_MAX: usize = 32;
/// Reason of the condition by which a pod is marked, in upstream's word.
const MARK: &str = "PreemptionByScheduler";

/// Pods that hold nodes.
#[derive(Default)]
pub(super) struct Holders {
    /// How many of them stay, by priority.
    priorities: BTreeMap<i64, usize>,
    /// Groups of which some stay.
    gangs: BTreeMap<Group, Holding>,
    /// The same, in the order in which they go.
    order: BTreeSet<Rank>,
    /// Those that are being deleted.
    leaving: BTreeSet<Key>,
    /// Those that are marked, and not deleted yet.
    marked: BTreeSet<Key>,
    /// Those that are thought away for a moment.
    pub thought_away: BTreeSet<Key>,
}

/// Those of a group that hold nodes and stay: how many, by priority and by when they were made.
#[derive(Default)]
struct Holding {
    priorities: BTreeMap<i64, usize>,
    created: BTreeMap<String, usize>,
}

/// A group's place among those that may go: its highest priority, when its first pod was made, the newest first.
type Rank = (i64, Reverse<Option<String>>, Group);

impl Holding {
    /// `None` where nobody stays.
    fn rank(&self, group: &Group) -> Option<Rank> {
        let (highest, _) = self.priorities.last_key_value()?;
        let first = self.created.first_key_value().map(|(created, _)| created.clone());
        Some((*highest, Reverse(first), group.clone()))
    }
}

/// Counts one more, or one less.
fn count<K: Ord>(counts: &mut BTreeMap<K, usize>, of: K, is_more: bool) {
    let held = counts.get(&of).copied().unwrap_or_default();
    match if is_more { held + 1 } else { held.saturating_sub(1) } {
        0 => _ = counts.remove(&of),
        now => _ = counts.insert(of, now),
    }
}

/// A pod's priority; 0 where the server has given it none.
pub(super) fn priority(pod: &Value) -> i64 {
    pod["spec"]["priority"].as_i64().unwrap_or_default()
}

fn is_marked(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|c| object::text(c, "type") == "DisruptionTarget" && object::text(c, "reason") == MARK)
}

impl Holders {
    /// A pod has got a node.
    pub(super) fn come(&mut self, key: &Key, pod: &Pod) {
        if object::is_terminating(&pod.object()) {
            self.leaving.insert(key.clone());
            return;
        }
        self.count(pod, true);
        if is_marked(&pod.object()) {
            self.marked.insert(key.clone());
        }
    }

    /// A pod holds its node no longer.
    pub(super) fn go(&mut self, key: &Key, pod: &Pod) {
        self.marked.remove(key);
        if self.leaving.remove(key) {
            return;
        }
        self.count(pod, false);
    }

    /// Counts a pod that stays, or has stayed until now.
    fn count(&mut self, pod: &Pod, is_more: bool) {
        let priority = pod.priority;
        count(&mut self.priorities, priority, is_more);
        let mut holding = self.gangs.remove(&pod.group).unwrap_or_default();
        if let Some(rank) = holding.rank(&pod.group) {
            self.order.remove(&rank);
        }
        count(&mut holding.priorities, priority, is_more);
        count(&mut holding.created, object::meta(&pod.object(), "creationTimestamp").to_owned(), is_more);
        if let Some(rank) = holding.rank(&pod.group) {
            self.order.insert(rank);
            self.gangs.insert(pod.group.clone(), holding);
        }
    }

    /// Whether anybody of a lower priority holds a node.
    fn has_below(&self, priority: i64) -> bool {
        self.priorities.first_key_value().is_some_and(|(lowest, _)| *lowest < priority)
    }
}

/// Which pods are deleted, and which pods get their room.
pub(super) struct Preemption {
    pub victims: Vec<Key>,
    /// The pods that get the room, and where; empty where an earlier preemption is carried on with.
    nominated: Vec<Placement>,
}

impl Preemption {
    /// Marks, deletions, and the nominations of the pods that get the room.
    pub(super) fn writes(&self, index: &Index, now: Timestamp) -> Vec<Write> {
        let at = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let real = |key: &Key| index.pods.get(key).filter(|pod| !pod.is_room);
        let victims = || self.victims.iter().filter_map(real);
        let status = |pod: &Value, status: Value| Op::Patch {
            target: Target::of(pod),
            subresource: Some("status"),
            body: PatchBody::Strategic(json!({ "status": status })),
        };
        let mark = json!({"conditions": [{
            "type": "DisruptionTarget",
            "status": "True",
            "reason": MARK,
            "message": format!("{REPORTER}: preempting to accommodate a higher priority pod"),
            "lastTransitionTime": at,
        }]});
        let unmarked = victims().filter(|pod| !is_marked(&pod.object()));
        let mut writes: Vec<Write> = unmarked.map(|pod| status(&pod.object(), mark.clone()).into()).collect();
        let mut nominated = self.nominated.iter().filter_map(|(key, node)| Some((real(key)?, node))).peekable();
        let first = nominated.peek().map(|(pod, _)| *pod);
        for pod in victims() {
            let State::On(node) = &pod.state else { continue };
            let op = Op::Delete {
                target: Target::of(&pod.object()),
                propagation: Propagation::Background,
                uid: Some(object::uid(&pod.object()).to_owned()),
                resource_version: None,
                grace_secs: None,
            };
            let text = first.map(|first| format!("Preempted by pod {} on node {node}", object::uid(&first.object())));
            let event = text.map(|text| event(&pod.object(), EventType::Normal, "Preempted", text, "Preempting"));
            writes.push(Write { op, on_error: OnError::Continue, on_success: event });
        }
        let gangs: BTreeSet<String> = victims().map(|pod| name_of(&pod.group)).collect();
        let (count, gangs) = (self.victims.len(), Vec::from_iter(gangs).join(", "));
        for (at, (pod, node)) in nominated.enumerate() {
            let text = format!("Ends {count} pod(s) of lower priority to make room: {gangs}");
            let event = event(&pod.object(), EventType::Normal, "Preempting", text, "Preempting");
            let op = status(&pod.object(), json!({"nominatedNodeName": &**node}));
            writes.push(Write { op, on_error: OnError::Continue, on_success: (at == 0).then_some(event) });
        }
        writes
    }
}

/// What a gang is called where people read it.
fn name_of(group: &Group) -> String {
    match group {
        Group::JobSet(key, _) | Group::Declared(key) | Group::Owned(_, key) | Group::Alone(key) => key.to_string(),
    }
}

impl Index {
    /// What is preempted so that the head of the queue gets its nodes; `None` if nothing needs to be, or if it would not help.
    pub(super) fn preempt(&mut self) -> Option<Preemption> {
        let begun: BTreeSet<Group> =
            self.holders.marked.iter().filter_map(|key| Some(self.pods.get(key)?.group.clone())).collect();
        if !begun.is_empty() {
            let victims = begun.iter().flat_map(|group| self.staying(group)).collect();
            return Some(Preemption { victims, nominated: Vec::new() });
        }
        let head = self.reservation.as_ref()?.place.clone();
        let unit = self.units.remove(&head.unit)?;
        let found = self.victims_of(&unit);
        self.units.insert(head.unit.clone(), unit);
        let (gangs, nominated) = found?;
        // where it is going to be is kept for it, and nothing else
        let mut shares: BTreeMap<Arc<str>, Vec<Arc<Shape>>> = BTreeMap::new();
        for (key, node) in &nominated {
            if let Some(pod) = self.pods.get(key) {
                shares.entry(node.clone()).or_default().push(pod.shape.clone());
            }
        }
        self.keep(Some(Reservation { place: head, shares }));
        self.settle();
        let victims = gangs.iter().flat_map(|group| self.staying(group)).collect();
        Some(Preemption { victims, nominated })
    }

    /// Whether a unit takes nodes from others: some hold nodes that are less important, and its pods do not forbid it.
    pub(super) fn may_preempt(&self, unit: &Unit) -> bool {
        self.holders.has_below(unit.place.priority.0) && !self.never_preempts(unit)
    }

    /// Whether a unit's pods say that nobody is to go for them.
    pub(super) fn never_preempts(&self, unit: &Unit) -> bool {
        let mut pods = unit.pods.iter().filter_map(|key| self.pods.get(key));
        pods.any(|pod| pod.never_preempts)
    }

    /// The pods of a group that hold nodes and are not being deleted.
    fn staying(&self, group: &Group) -> Vec<Key> {
        let bound = self.groups.get(group).into_iter().flat_map(|members| &members.bound);
        let stays = |pod: &Pod| matches!(pod.state, State::On(_)) && !object::is_terminating(&pod.object());
        bound.filter(|key| self.pods.get(*key).is_some_and(stays)).cloned().collect()
    }

    /// The gangs whose end gives a unit its nodes, and these. `None` too where the end of those that leave already does.
    fn victims_of(&mut self, unit: &Unit) -> Option<(Vec<Group>, Vec<Placement>)> {
        if !self.may_preempt(unit) {
            return None;
        }
        let leaving = Vec::from_iter(self.holders.leaving.iter().cloned());
        self.think_away(&leaving, true);
        let found = match self.find(unit, Aim::Supposing) {
            Ok(_) => None,
            Err(_) => self.fewest(unit),
        };
        self.think_away(&leaving, false);
        found
    }

    fn fewest(&mut self, unit: &Unit) -> Option<(Vec<Group>, Vec<Placement>)> {
        let mut gangs = self.less_important(unit.place.priority.0);
        self.fits_without(unit, &gangs)?;
        // as far down the list as it takes
        let (mut too_few, mut enough) = (0, gangs.len());
        while enough - too_few > 1 {
            let middle = usize::midpoint(too_few, enough);
            match self.fits_without(unit, &gangs[..middle]) {
                Some(_) => enough = middle,
                None => too_few = middle,
            }
        }
        gangs.truncate(enough);
        let mut placements = self.fits_without(unit, &gangs)?;
        // the last is needed; of the others the more important ones stay first
        let mut tests = 0;
        for at in (0..gangs.len().saturating_sub(1)).rev() {
            let gets: BTreeSet<&Arc<str>> = placements.iter().map(|(_, node)| node).collect();
            let is_there = self.nodes_of(&gangs[at]).iter().any(|node| gets.contains(node));
            let gang = gangs.remove(at);
            if !is_there {
                continue;
            }
            tests += 1;
            match if tests > REPRIEVES_MAX { None } else { self.fits_without(unit, &gangs) } {
                Some(found) => placements = found,
                None => gangs.insert(at, gang),
            }
        }
        Some((gangs, placements))
    }

    /// Groups of which all that hold nodes are less important, in the order in which they go.
    fn less_important(&self, than: i64) -> Vec<Group> {
        let below = self.holders.order.iter().take_while(|(highest, ..)| *highest < than);
        below.map(|(.., group)| group.clone()).collect()
    }

    fn nodes_of(&self, group: &Group) -> BTreeSet<Arc<str>> {
        let node = |key: &Key| match &self.pods.get(key)?.state {
            State::On(node) => Some(node.clone()),
            State::Waits | State::Ended | State::Apart => None,
        };
        self.staying(group).iter().filter_map(node).collect()
    }

    /// The nodes that a unit would get if these groups were gone. Everything stays as it is.
    fn fits_without(&mut self, unit: &Unit, gangs: &[Group]) -> Option<Vec<Placement>> {
        let pods: Vec<Key> = gangs.iter().flat_map(|group| self.staying(group)).collect();
        self.think_away(&pods, true);
        for group in gangs {
            self.think_seats_away(group, Node::give_back);
        }
        let found = self.find(unit, Aim::Supposing).ok();
        for group in gangs {
            self.think_seats_away(group, Node::take);
        }
        self.think_away(&pods, false);
        found
    }

    /// Takes pods from their nodes for a while, or puts them back.
    fn think_away(&mut self, pods: &[Key], is_away: bool) {
        for key in pods {
            let Some(pod) = self.pods.get(key) else { continue };
            let State::On(name) = &pod.state else { continue };
            if let Some(node) = self.nodes.get_mut(name) {
                let act = if is_away { Node::give_back } else { Node::take };
                act(node, &pod.object(), &pod.shape.needs);
            }
            match is_away {
                true => self.holders.thought_away.insert(key.clone()),
                false => self.holders.thought_away.remove(key),
            };
        }
    }

    fn think_seats_away(&mut self, group: &Group, act: impl Fn(&mut Node, &Value, &super::request::Resources)) {
        for seat in self.groups.get(group).into_iter().flat_map(|members| &members.seats) {
            if let Some(node) = super::node_of(&seat.pod).and_then(|name| self.nodes.get_mut(name)) {
                act(node, &seat.pod, &seat.needs);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(group: &str, name: usize, priority: i64, is_leaving: bool) -> (Key, Pod) {
        let key = Key::new("ns", &format!("{group}-{name}"));
        let mut object = json!({"metadata": {"namespace": "ns", "name": key.name,
            "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", name * 7 % 60)}, "spec": {"priority": priority}});
        if is_leaving {
            object["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
        }
        let shape = Arc::new(Shape::of(&object));
        let (group, state) = (Group::Alone(Key::new("ns", group)), State::On("node".into()));
        (key, Pod::new(&Arc::new(object), state, shape, group))
    }

    /// As it is worked out from all pods at once.
    fn whole(held: &BTreeMap<Key, Pod>) -> Vec<Rank> {
        let mut found: BTreeMap<&Group, Vec<&Pod>> = BTreeMap::new();
        for pod in held.values().filter(|pod| !object::is_terminating(&pod.object())) {
            found.entry(&pod.group).or_default().push(pod);
        }
        let mut order: Vec<Rank> = found
            .into_iter()
            .map(|(group, pods)| {
                let highest = pods.iter().map(|pod| priority(&pod.object())).max().unwrap();
                let created = pods.iter().map(|pod| object::meta(&pod.object(), "creationTimestamp").to_owned()).min();
                (highest, Reverse(created), group.clone())
            })
            .collect();
        order.sort();
        order
    }

    #[test]
    fn the_order_in_which_gangs_go_follows_each_change() {
        let (mut holders, mut held) = (Holders::default(), BTreeMap::new());
        let mut chance: usize = 1;
        let mut most = 0;
        for _ in 0..2_000 {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let of = |bits: usize, below: usize| (chance >> bits) % below;
            let (key, pod) =
                pod(["a", "b", "c", "d"][of(33, 4)], of(36, 6), i64::try_from(of(40, 3)).unwrap(), of(44, 5) == 0);
            if let Some(old) = held.remove(&key) {
                holders.go(&key, &old);
            } else {
                holders.come(&key, &pod);
                held.insert(key, pod);
            }
            let order = Vec::from_iter(holders.order.iter().cloned());
            assert_eq!(order, whole(&held));
            assert_eq!(holders.gangs.len(), order.len());
            most = most.max(order.len());
        }
        assert_eq!(most, 4);
        for (key, pod) in &held {
            holders.go(key, pod);
        }
        assert!(holders.order.is_empty() && holders.gangs.is_empty() && holders.priorities.is_empty());
    }
}
