//! The queue: which units wait, in which order, and which of them room that has come may suit.
//!
//! Pods that ask for the same have one [`Family`], which knows on which nodes there is room for how many of them. A complete unit
//! waits in one family for as many nodes as it needs at once; when a pod goes, the families that gained by it say which unit is
//! next, and nobody else is looked at.

use super::gang::Group;
use super::node::Node;
use super::request::{HostPort, Resources};
use super::{affinity, request};
use api::object::Key;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What of a pod decides on which nodes it fits, its neighbours left aside.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shape {
    pub needs: Resources,
    /// Ports of its node.
    pub ports: Vec<HostPort>,
    /// Selectors and tolerations.
    place: String,
}

impl Shape {
    pub(super) fn of(pod: &Value) -> Self {
        let spec = &pod["spec"];
        let place = json!([spec["nodeSelector"], spec["affinity"]["nodeAffinity"], spec["tolerations"]]);
        Self { needs: request::of_pod(pod), ports: request::host_ports(pod), place: place.to_string() }
    }

    /// How many of its pods a node takes at most: sums of rooms must not saturate, and two pods do not share a port.
    pub(super) fn most(&self) -> u64 {
        if self.ports.is_empty() { u64::from(u32::MAX) } else { 1 }
    }

    /// For how many of its pods a node has room.
    fn room_on(&self, sample: &Value, node: &Node) -> Room {
        let all = node.room_for(&self.needs).min(self.most());
        if all == 0 || !affinity::selects(sample, node) || node.keeps_out(sample).is_some() {
            return Room::default();
        }
        if !node.has_ports(&self.ports, false) {
            return Room::default();
        }
        let open = if node.has_ports(&self.ports, true) { node.room_after(&self.needs, true).min(all) } else { 0 };
        Room { all, kept: all - open }
    }
}

/// For how many pods of a shape there is room.
#[derive(Clone, Copy, Default)]
struct Room {
    all: u64,
    /// Of these, how many are kept from those behind the head of the queue.
    kept: u64,
}

/// A unit's place in the queue: those that replace members of running gangs, then by priority, then by age.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub is_new: bool,
    pub priority: Reverse<i64>,
    /// When its oldest pod was made.
    pub created: Option<Timestamp>,
    pub name: String,
    /// Its first pod.
    pub unit: Key,
}

/// Pods that are being deleted and still run.
#[derive(Clone, Debug, Default)]
pub(super) struct Ending {
    pub pods: usize,
    /// When the last of them is killed.
    pub at: Option<Timestamp>,
}

/// Pods that are placed together.
#[derive(Debug)]
pub(super) struct Unit {
    pub group: Group,
    /// The gang's name; empty for a pod on its own.
    pub name: String,
    /// Those that wait for a node, in the order of their ranks.
    pub pods: Vec<Key>,
    /// How many of them have to be placed at once; the others follow one by one.
    pub needed: usize,
    /// How many pods are not there yet, or may not be placed yet.
    pub missing: usize,
    /// Pods of an earlier run that have not ended yet: the unit starts after them.
    pub ending: Ending,
    pub place: Arc<Place>,
    /// How many of the pods that are placed at once have which shape.
    pub wants: Vec<(Arc<Shape>, u64)>,
}

impl Unit {
    /// It replaces a member of a gang that runs.
    pub(super) fn replaces(&self) -> bool {
        !self.place.is_new
    }

    /// Whether it may get nodes: all its pods are there, and nothing of an earlier run is left.
    pub(super) fn is_ready(&self) -> bool {
        self.missing == 0 && self.ending.pods == 0
    }

    /// Whether it needs more than one pod.
    pub(super) fn is_gang(&self) -> bool {
        self.needed + self.missing > 1
    }
}

/// Pods of one shape.
struct Family {
    /// Any of them.
    sample: Arc<Value>,
    /// Nodes with room, and for how many.
    rooms: BTreeMap<Arc<str>, Room>,
    total: Room,
    /// Units that have pods of it.
    users: usize,
    /// Units that wait for room here, by how much of it they need.
    waiting: BTreeMap<u64, BTreeSet<Arc<Place>>>,
}

/// All units that wait.
#[derive(Default)]
pub(super) struct Line {
    /// The unit that a reservation is kept for: those behind it have less room.
    pub head: Option<Arc<Place>>,
    families: BTreeMap<Arc<Shape>, Family>,
    /// Families in which there may be room for somebody.
    ripe: BTreeSet<Arc<Shape>>,
    /// In which family a unit waits.
    waits_in: BTreeMap<Arc<Place>, (Arc<Shape>, u64)>,
    /// Units that found no place for reasons beyond room, and how far things had gone when they were tried last.
    parked: BTreeSet<(u64, Arc<Place>)>,
    tried: BTreeMap<Arc<Place>, u64>,
}

impl Line {
    /// Takes in a unit that is complete. `sample` gives one of its pods of a shape.
    pub(super) fn join(
        &mut self,
        unit: &Unit,
        nodes: &BTreeMap<Arc<str>, Node>,
        sample: impl Fn(&Shape) -> Arc<Value>,
    ) {
        for (shape, _) in &unit.wants {
            let family = self.families.entry(shape.clone()).or_insert_with(|| {
                let sample = sample(shape);
                let rooms = nodes.iter().map(|(name, node)| (name.clone(), shape.room_on(&sample, node)));
                let rooms: BTreeMap<Arc<str>, Room> = rooms.filter(|(_, room)| room.all > 0).collect();
                let sum = |total: Room, room: &Room| Room { all: total.all + room.all, kept: total.kept + room.kept };
                let total = rooms.values().fold(Room::default(), sum);
                Family { sample, rooms, total, users: 0, waiting: BTreeMap::new() }
            });
            family.users += 1;
        }
        if let Some(want) = unit.wants.first() {
            self.wait(&unit.place, want);
        }
    }

    /// The shape as those that wait have it: one for all of them.
    pub(super) fn known(&self, shape: Shape) -> Arc<Shape> {
        self.families.get_key_value(&shape).map_or_else(|| Arc::new(shape), |(known, _)| known.clone())
    }

    fn wait(&mut self, place: &Arc<Place>, (shape, count): &(Arc<Shape>, u64)) {
        self.stop_waiting(place);
        let Some(family) = self.families.get_mut(shape) else { return };
        family.waiting.entry(*count).or_default().insert(place.clone());
        self.waits_in.insert(place.clone(), (shape.clone(), *count));
        self.ripe.insert(shape.clone());
    }

    fn stop_waiting(&mut self, place: &Arc<Place>) {
        if let Some((shape, count)) = self.waits_in.remove(place)
            && let Some(family) = self.families.get_mut(&shape)
            && let Some(places) = family.waiting.get_mut(&count)
        {
            places.remove(place);
            if places.is_empty() {
                family.waiting.remove(&count);
            }
        }
        if let Some(at) = self.tried.remove(place) {
            self.parked.remove(&(at, place.clone()));
        }
    }

    /// Lets a unit go.
    pub(super) fn leave(&mut self, unit: &Unit) {
        self.stop_waiting(&unit.place);
        for (shape, _) in &unit.wants {
            let Some(family) = self.families.get_mut(shape) else { continue };
            family.users -= 1;
            if family.users == 0 {
                self.families.remove(shape);
                self.ripe.remove(shape);
            }
        }
    }

    /// A node has changed, or is gone.
    pub(super) fn refresh(&mut self, name: &Arc<str>, node: Option<&Node>) {
        for (shape, family) in &mut self.families {
            let room = node.map_or(Room::default(), |node| shape.room_on(&family.sample, node));
            let before = if room.all > 0 { family.rooms.insert(name.clone(), room) } else { family.rooms.remove(name) };
            let before = before.unwrap_or_default();
            family.total.all = family.total.all - before.all + room.all;
            family.total.kept = family.total.kept - before.kept + room.kept;
            if room.all > before.all || room.kept < before.kept {
                self.ripe.insert(shape.clone());
            }
        }
    }

    /// Families that may have room for somebody since they were last asked.
    pub(super) fn take_ripe(&mut self) -> BTreeSet<Arc<Shape>> {
        std::mem::take(&mut self.ripe)
    }

    pub(super) fn ripen(&mut self, shapes: impl IntoIterator<Item = Arc<Shape>>) {
        let known = shapes.into_iter().filter(|shape| self.families.contains_key(shape));
        self.ripe.extend(known);
    }

    /// The first unit of a family that there is enough room for.
    pub(super) fn first(&self, shape: &Arc<Shape>) -> Option<Arc<Place>> {
        let family = self.families.get(shape)?;
        let heads =
            family.waiting.range(..=family.total.all).filter_map(|(count, places)| Some((count, places.first()?)));
        let open = family.total.all - family.total.kept;
        heads.filter(|(count, place)| **count <= open || !self.is_behind(place)).map(|(_, place)| place).min().cloned()
    }

    /// Whether a unit comes after the one that a reservation is kept for.
    pub(super) fn is_behind(&self, place: &Place) -> bool {
        self.head.as_ref().is_some_and(|head| place > &**head)
    }

    /// The nodes that have room for a shape.
    pub(super) fn rooms(&self, shape: &Arc<Shape>) -> Option<impl Iterator<Item = &Arc<str>>> {
        self.families.get(shape).map(|family| family.rooms.keys())
    }

    fn total(&self, shape: &Arc<Shape>, is_behind: bool) -> u64 {
        let total = self.families.get(shape).map_or(Room::default(), |family| family.total);
        if is_behind { total.all - total.kept } else { total.all }
    }

    /// Whether there is room for all shapes of a unit, each looked at by itself; if not, it waits for the first that lacks.
    pub(super) fn has_room(&mut self, unit: &Unit) -> bool {
        let is_behind = self.is_behind(&unit.place);
        let Some(lacks) = unit.wants.iter().find(|(shape, count)| self.total(shape, is_behind) < *count) else {
            return true;
        };
        self.wait(&unit.place, lacks);
        false
    }

    /// A unit has found no place though there seemed to be room: it is tried again when things have gone on.
    pub(super) fn park(&mut self, place: &Arc<Place>, at: u64) {
        self.stop_waiting(place);
        self.parked.insert((at, place.clone()));
        self.tried.insert(place.clone(), at);
    }

    /// The parked unit that was tried longest ago, if things have gone on since.
    pub(super) fn next_parked(&self, now: u64) -> Option<Arc<Place>> {
        self.parked.first().filter(|(at, _)| *at < now).map(|(_, place)| place.clone())
    }
}
