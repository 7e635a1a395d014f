//! Which nodes a unit gets, and which units are tried after a change.

use super::affinity::{self, Neighbourhood};
use super::gang::Seat;
use super::index::Index;
use super::line::{Place, Shape, Unit};
use super::node::{self, Node, Reason};
use super::preempt::Preemption;
use super::request::Resources;
use api::object::{self, Key};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many pods get a node in one decision before others have their turn; a gang's pods all do.
const BINDINGS_MAX: usize = 256;
/// How many units that room alone does not help are tried in one pass.
const PARKED_MAX: usize = 16;

/// A pod, and the node that it gets.
pub(super) type Placement = (Key, Arc<str>);

/// What a unit's nodes are looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    Placing,
    /// To say why there are none.
    Telling,
    /// Among nodes that some pods are thought away from, which families do not know.
    Supposing,
}

/// Why a unit gets no nodes.
pub(super) struct Refused {
    /// How many of its pods would have fitted.
    pub fit: usize,
    pub why: String,
}

/// What one pass came to.
#[derive(Default)]
pub(super) struct Passed {
    pub placements: Vec<Placement>,
    /// What is preempted so that the head of the queue gets its nodes.
    pub preemption: Option<Preemption>,
    /// The pass ended before all units that may fit were tried.
    pub is_cut: bool,
    /// How many units it has looked at.
    pub looked: u64,
}

/// Orders nodes, best first: the fewest `PreferNoSchedule` taints that the pod does not tolerate, preferred nodes, those with pods of
/// the same JobSet, then the fullest, devices before cpu. Pods that ask for nothing go where the fewest are. Equals go by name.
type Cost = (usize, i64, Reverse<usize>, usize, Vec<api::quantity::Quantity>, Vec<api::quantity::Quantity>);

fn cost(pod: &Value, needs: &Resources, node: &Node) -> Cost {
    let members = if needs.is_empty() { 0 } else { node.members_like(pod) };
    let crowd = if needs.is_empty() { node.pods } else { 0 };
    let (mut devices, mut plain) = (Vec::new(), Vec::new());
    for resource in needs.keys() {
        let left = node.left_after(resource, needs);
        if resource.contains('/') { devices.push(left) } else { plain.push(left) }
    }
    (node.deterrents(pod), affinity::preference(pod, node).saturating_neg(), Reverse(members), crowd, devices, plain)
}

/// Nodes that take pods of one shape and one JobSet, best first.
struct Candidates {
    shape: Arc<Shape>,
    best: BTreeSet<(Cost, Arc<str>)>,
}

impl Candidates {
    fn suit(&self, pod: &super::pod::Pod) -> bool {
        self.shape == pod.shape
    }
}

impl Index {
    /// Tries all units that may fit since the last pass, the most important first, and notes the nodes that they get.
    pub(super) fn pass(&mut self) -> Passed {
        let mut passed = Passed::default();
        self.try_seated(&mut passed);
        loop {
            let ripe = self.line.take_ripe();
            if ripe.is_empty() {
                // all units that fit have nodes: the first of the others is the head
                if !self.reserve() {
                    break;
                }
                self.settle();
                continue;
            }
            if passed.placements.len() >= BINDINGS_MAX {
                self.line.ripen(ripe);
                passed.is_cut = true;
                return passed;
            }
            self.try_families(ripe, &mut passed);
        }
        passed.preemption = self.preempt();
        passed.is_cut = self.reservation.is_none() && !self.heads.eligible.is_empty();
        for _ in 0..PARKED_MAX {
            let Some(place) = self.line.next_parked(self.moves) else { return passed };
            self.attempt(&place, &mut passed);
        }
        passed.is_cut |= self.line.next_parked(self.moves).is_some();
        passed
    }

    /// Replacements for which a seat is kept, which no family knows of.
    fn try_seated(&mut self, passed: &mut Passed) {
        let replacements: Vec<Arc<Place>> = self.queue.iter().take_while(|place| !place.is_new).cloned().collect();
        for place in replacements {
            let Some(unit) = self.units.get(&place.unit) else { continue };
            let pod = unit.pods.first().and_then(|key| self.pods.get(key));
            let is_seated = |seat: &Seat| pod.is_some_and(|pod| seat.suits(&pod.object()).is_some());
            if self.seats_for(unit).iter().any(is_seated) {
                self.attempt(&place, passed);
            }
        }
    }

    fn try_families(&mut self, ripe: BTreeSet<Arc<Shape>>, passed: &mut Passed) {
        let first = |index: &Self, shape: Arc<Shape>| index.line.first(&shape).map(|place| (place, shape));
        let mut heads: BTreeSet<(Arc<Place>, Arc<Shape>)> =
            ripe.into_iter().filter_map(|shape| first(self, shape)).collect();
        while let Some((place, shape)) = heads.pop_first() {
            if passed.placements.len() >= BINDINGS_MAX {
                self.line.ripen(heads.into_iter().map(|(_, shape)| shape).chain([shape]));
                return;
            }
            // others may have taken the room meanwhile
            if self.line.first(&shape).as_ref() == Some(&place) {
                self.attempt(&place, passed);
            }
            heads.extend(first(self, shape));
        }
    }

    /// Tries one unit; it is gone from the queue, or waits for something else than before.
    fn attempt(&mut self, place: &Arc<Place>, passed: &mut Passed) {
        passed.looked += 1;
        let Some(unit) = self.units.remove(&place.unit) else { return };
        let found =
            if unit.replaces() || self.line.has_room(&unit) { Some(self.find(&unit, Aim::Placing)) } else { None };
        self.units.insert(place.unit.clone(), unit);
        match found {
            None => {}
            Some(Err(_)) => self.line.park(place, self.moves),
            Some(Ok(placements)) => {
                for (pod, node) in &placements {
                    self.assume(pod, node);
                }
                self.settle();
                passed.placements.extend(placements);
            }
        }
    }

    /// Nodes for the pods that a unit needs at once, for all or for none. Everything stays as it is.
    pub(super) fn find(&mut self, unit: &Unit, aim: Aim) -> Result<Vec<Placement>, Refused> {
        let mut placements: Vec<Placement> = Vec::new();
        let mut seats = self.seats_for(unit).to_vec();
        let mut left: Vec<Seat> = Vec::new();
        let mut candidates: Option<Candidates> = None;
        let is_behind = self.line.is_behind(&unit.place);
        let mut refused = None;
        for key in unit.pods.iter().take(unit.needed) {
            let Some(pod) = self.pods.get(key) else { continue };
            let (object, shape) = (pod.open(), pod.shape.clone());
            if let Some(claim) = self.missing_claim(&object) {
                let count = self.nodes.len();
                let why = format!("0/{count} nodes are available: persistentvolumeclaim {claim:?} not found.");
                refused = Some(Refused { fit: placements.len(), why });
                break;
            }
            // a seat that is kept for it is free for it alone
            let suited = seats.iter().enumerate().filter_map(|(at, seat)| Some((seat.suits(&object)?, at)));
            if let Some((_, at)) = suited.max_by_key(|(same_index, _)| *same_index).filter(|_| unit.replaces()) {
                let seat = seats.remove(at);
                if let Some(node) = super::node_of(&seat.pod).and_then(|name| self.nodes.get_mut(name)) {
                    node.give_back(&seat.pod, &seat.needs);
                }
                left.push(seat);
                candidates = None;
            }
            let neighbourhood = self.neighbourhood(&object, &placements);
            let mut of_shape = match candidates.take().filter(|held| held.suit(&self.pods[key])) {
                Some(held) => held,
                None => {
                    let from_family = left.is_empty() && aim != Aim::Supposing;
                    self.candidates(&object, &shape, from_family, is_behind)
                }
            };
            let takes = |name: &Arc<str>| match &neighbourhood {
                None => true,
                Some(near) => self.nodes.get(name).is_some_and(|node| near.refuse(node).is_none()),
            };
            let mut suited = of_shape.best.iter().filter(|(_, name)| takes(name));
            let best = match &neighbourhood {
                None => suited.next(),
                // of equals the first
                Some(near) => suited.min_by_key(|(_, name)| self.nodes.get(name).map(|node| near.dislike(node))),
            };
            let Some(best) = best.cloned() else {
                let why = if aim == Aim::Telling {
                    self.explain(&object, &shape, neighbourhood.as_ref(), is_behind)
                } else {
                    String::new()
                };
                refused = Some(Refused { fit: placements.len(), why });
                break;
            };
            of_shape.best.remove(&best);
            let (_, name) = best;
            if let Some(node) = self.nodes.get_mut(&name) {
                node.take(&object, &shape.needs);
                node.spend(&shape.needs, 1);
                if shape.ports.is_empty() && node.room_after(&shape.needs, is_behind) > 0 {
                    of_shape.best.insert((cost(&object, &shape.needs, node), name.clone()));
                }
            }
            candidates = Some(of_shape);
            placements.push((key.clone(), name));
        }
        for (key, name) in &placements {
            if let (Some(pod), Some(node)) = (self.pods.get(key), self.nodes.get_mut(name)) {
                node.give_back(&pod.open(), &pod.shape.needs);
                node.spend(&pod.shape.needs, -1);
            }
        }
        for seat in left {
            if let Some(node) = super::node_of(&seat.pod).and_then(|name| self.nodes.get_mut(name)) {
                node.take(&seat.pod, &seat.needs);
            }
        }
        refused.map_or(Ok(placements), Err)
    }

    pub(super) fn missing_claim(&self, pod: &Value) -> Option<String> {
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let mut claims = volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str());
        let namespace = object::meta(pod, "namespace");
        claims.find(|claim| !self.claims.contains(&Key::new(namespace, claim))).map(str::to_owned)
    }

    /// What the pod's neighbours say; `None` where none of them has a say.
    fn neighbourhood(&self, pod: &Value, more: &[Placement]) -> Option<Neighbourhood> {
        let asks = affinity::asks_for_neighbours(pod);
        let also = || more.iter().filter_map(|(key, node)| Some((self.pods.get(key)?.open(), &**node)));
        let guards = self.guards.iter().filter(|key| !self.holders.thought_away.contains(*key)).filter_map(|key| {
            let pod = self.pods.get(key)?;
            let super::index::State::On(node) = &pod.state else { return None };
            Some((pod.object(), &**node))
        });
        let guards: Vec<(Arc<Value>, &str)> =
            guards.chain(also().filter(|(pod, _)| affinity::keeps_away(pod))).collect();
        if !asks && guards.is_empty() {
            return None;
        }
        let placed: Vec<(Arc<Value>, &str)> = if asks { self.placed().chain(also()).collect() } else { Vec::new() };
        Some(Neighbourhood::of(pod, &placed, &guards, &self.nodes, &self.namespaces))
    }

    /// The nodes that take a pod, as far as they themselves and their room go.
    fn candidates(&self, pod: &Value, shape: &Arc<Shape>, from_family: bool, is_behind: bool) -> Candidates {
        let costed = |name: &Arc<str>, node: &Node| (cost(pod, &shape.needs, node), name.clone());
        let takes =
            |node: &Node| node.room_after(&shape.needs, is_behind) > 0 && node.has_ports(&shape.ports, is_behind);
        let best = match self.line.rooms(shape).filter(|_| from_family) {
            Some(rooms) => {
                let nodes = rooms.filter_map(|name| self.nodes.get_key_value(name));
                nodes.filter(|(_, node)| takes(node)).map(|(name, node)| costed(name, node)).collect()
            }
            None => {
                let fits = |node: &Node| takes(node) && affinity::selects(pod, node) && node.keeps_out(pod).is_none();
                self.nodes.iter().filter(|(_, node)| fits(node)).map(|(name, node)| costed(name, node)).collect()
            }
        };
        Candidates { shape: shape.clone(), best }
    }

    /// Why no node takes a pod.
    fn explain(&self, pod: &Value, shape: &Shape, near: Option<&Neighbourhood>, is_behind: bool) -> String {
        let refusal = |node: &Node| -> Vec<Reason> {
            if !affinity::selects(pod, node) {
                return vec![Reason::Other("node(s) didn't match Pod's node affinity/selector".to_owned())];
            }
            let reasons = node.refuses(pod, &shape.needs);
            let is_kept = node.room_after(&shape.needs, is_behind) == 0 || !node.has_ports(&shape.ports, is_behind);
            if reasons.is_empty() && is_kept {
                return vec![Reason::Other("node(s) kept their room for a job that comes first".to_owned())];
            }
            if reasons.is_empty() { near.and_then(|near| near.refuse(node)).into_iter().collect() } else { reasons }
        };
        let refusals: Vec<Vec<Reason>> = self.nodes.values().map(refusal).collect();
        node::explain(&refusals)
    }

    /// Why a unit waits; `None` where nothing keeps it.
    pub(super) fn why(&mut self, unit: &Unit) -> Option<String> {
        let Refused { fit, mut why } = self.find(unit, Aim::Telling).err()?;
        if self.never_preempts(unit) {
            why += " preemption: not eligible due to preemptionPolicy=Never.";
        }
        Some(match unit.is_gang() {
            true => {
                let (name, needed) = (&unit.name, unit.needed);
                format!("{why} Gang {name} needs nodes for {needed} pods at once; {fit} fit.")
            }
            false => why,
        })
    }
}
