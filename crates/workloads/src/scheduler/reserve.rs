//! Room that is kept for the unit at the head of the queue.
//!
//! The first complete unit that does not fit gets a reservation: a share of nodes that has all it needs once what holds it now
//! has ended. Those behind it may take what is free only where that leaves its share whole, counting what they and others that
//! came after the head hold already. So nobody overtakes it for ever, and room that it has no use for is used. What runs
//! for ever is never waited for, and a unit that no emptied nodes could hold gets no reservation.

use super::affinity;
use super::index::Index;
use super::line::{Place, Shape, Unit};
use super::node::{Node, Spare};
use super::pod::Pod;
use super::request;
use api::object;
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many units at the head are looked at in one pass.
const HEADS_MAX: usize = 8;

/// Which pods are expected to stay on a node, and until when.
enum Stay<'a> {
    /// Those that run for ever.
    Endless,
    /// These, and those that came after a unit.
    Behind(&'a Place),
    /// Those that run for ever and have at least this priority: the others can be ended.
    EndlessFrom(i64),
}

/// What is kept, and for whom.
pub(super) struct Reservation {
    pub place: Arc<Place>,
    /// The needs of its pods, each on the node that it is to get.
    pub shares: BTreeMap<Arc<str>, Vec<Arc<Shape>>>,
}

/// Which complete units may get a reservation.
#[derive(Default)]
pub(super) struct Heads {
    pub eligible: BTreeSet<Arc<Place>>,
    /// Those that emptied nodes could not hold either.
    pub hopeless: BTreeSet<Arc<Place>>,
    /// The fewest pods of a shape that are known to be too many.
    too_many: BTreeMap<Arc<Shape>, u64>,
}

impl Heads {
    pub(super) fn leave(&mut self, place: &Arc<Place>) {
        self.eligible.remove(place);
        self.hopeless.remove(place);
    }

    /// The nodes are others: what was too much need not be.
    pub(super) fn look_anew(&mut self) {
        self.eligible.append(&mut self.hopeless);
        self.too_many.clear();
    }

    fn give_up(&mut self, unit: &Unit) {
        self.eligible.remove(&unit.place);
        self.hopeless.insert(unit.place.clone());
        if let [(shape, count)] = &unit.wants[..] {
            let least = self.too_many.entry(shape.clone()).or_insert(*count);
            *least = (*least).min(*count);
        }
    }

    fn is_known_hopeless(&self, unit: &Unit) -> bool {
        unit.wants.iter().any(|(shape, count)| self.too_many.get(shape).is_some_and(|least| count >= least))
    }
}

/// Whether a pod is not expected to end.
pub(super) fn runs_for_ever(pod: &Value) -> bool {
    let is_a_jobs = object::controller_of(pod).is_some_and(|owner| object::text(owner, "kind") == "Job");
    pod["spec"]["restartPolicy"] == "Always" && !is_a_jobs
}

/// Whether a pod comes after a unit in the queue.
fn comes_after(pod: &Pod, head: &Place) -> bool {
    let priority = Reverse(pod.priority);
    (priority, pod.created) > (head.priority, head.created)
}

impl Index {
    /// Sees to it that the head of the queue has a reservation. True: something about it has changed.
    pub(super) fn reserve(&mut self) -> bool {
        for _ in 0..HEADS_MAX {
            let head = self.heads.eligible.first().cloned();
            if self.reservation.as_ref().map(|held| &held.place) == head.as_ref() {
                return false;
            }
            let Some(head) = head else { return self.keep(None) };
            let Some(unit) = self.units.get(&head.unit) else {
                self.heads.leave(&head);
                continue;
            };
            let may_preempt = self.may_preempt(unit);
            let is_hopeless = !may_preempt && self.heads.is_known_hopeless(unit);
            let shares = if is_hopeless { None } else { self.shares(unit, may_preempt) };
            match shares {
                Some(shares) => return self.keep(Some(Reservation { place: head, shares })),
                None => {
                    let Some(unit) = self.units.remove(&head.unit) else { continue };
                    self.heads.give_up(&unit);
                    self.units.insert(head.unit.clone(), unit);
                }
            }
        }
        // further ones with the next change; until then nothing is kept
        self.keep(None)
    }

    pub(super) fn keep(&mut self, reservation: Option<Reservation>) -> bool {
        let had_one = self.drop_reservation();
        let has_one = reservation.is_some();
        if let Some(reservation) = reservation {
            self.touched_nodes.extend(reservation.shares.keys().cloned());
            self.line.head = Some(reservation.place.clone());
            self.reservation = Some(reservation);
        }
        had_one || has_one
    }

    /// Frees what is kept.
    pub(super) fn drop_reservation(&mut self) -> bool {
        let Some(old) = self.reservation.take() else { return false };
        self.line.head = None;
        for name in old.shares.into_keys() {
            if let Some(node) = self.nodes.get_mut(&name) {
                node.spare = None;
            }
            self.touched_nodes.insert(name);
        }
        true
    }

    /// Whether something is kept on a node.
    pub(super) fn is_kept(&self, node: &str) -> bool {
        self.reservation.as_ref().is_some_and(|held| held.shares.contains_key(node))
    }

    /// Reckons anew what those behind the head may take of a node.
    pub(super) fn spare(&mut self, name: &Arc<str>) {
        let Some(held) = &self.reservation else { return };
        let Some(shares) = held.shares.get(name) else { return };
        let Some(node) = self.nodes.get(name) else { return };
        let mut emptied = self.emptied(name, node, &Stay::Behind(&held.place));
        for shape in shares {
            emptied.take(&Value::Null, &shape.needs);
        }
        let ports = shares.iter().flat_map(|shape| shape.ports.iter().cloned()).collect();
        let spare = Spare { ports, ..Spare::of(&emptied) };
        if let Some(node) = self.nodes.get_mut(name) {
            node.spare = Some(spare);
        }
    }

    /// A node with those alone that will stay.
    fn emptied(&self, name: &Arc<str>, node: &Node, stay: &Stay<'_>) -> Node {
        let mut emptied = Node::new(node.object.clone());
        let pods = self.on_node.get(name).into_iter().flatten().filter_map(|key| self.pods.get(key));
        for pod in pods {
            let stays = match stay {
                Stay::Endless => runs_for_ever(&pod.object()),
                Stay::Behind(head) => runs_for_ever(&pod.object()) || comes_after(pod, head),
                Stay::EndlessFrom(least) => runs_for_ever(&pod.object()) && pod.priority >= *least,
            };
            // one that is being deleted is as good as gone
            if stays && !object::is_terminating(&pod.object()) {
                emptied.take(&pod.object(), &pod.shape.needs);
            }
        }
        emptied
    }

    /// Where a unit could be once what holds the nodes now has ended: at best beside all that came after it.
    fn shares(&self, unit: &Unit, may_preempt: bool) -> Option<BTreeMap<Arc<str>, Vec<Arc<Shape>>>> {
        let pods = || unit.pods.iter().take(unit.needed).filter_map(|key| self.pods.get(key));
        // what others are near is not known beforehand
        let is_unknown = |pod: &Pod| {
            let object = pod.open();
            affinity::asks_for_neighbours(&object) || self.missing_claim(&object).is_some()
        };
        if pods().any(is_unknown) {
            return None;
        }
        let at_last = if may_preempt { Stay::EndlessFrom(unit.place.priority.0) } else { Stay::Endless };
        [Stay::Behind(&unit.place), at_last].iter().find_map(|stay| {
            let mut nodes: Vec<(Reverse<u64>, &Arc<str>, Node)> = Vec::new();
            for (name, node) in &self.nodes {
                let free = unit.wants.iter().map(|(shape, count)| node.room_for(&shape.needs).min(*count)).sum();
                nodes.push((Reverse(free), name, self.emptied(name, node, stay)));
            }
            // where there is most room already, it waits least
            nodes.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
            let mut shares: BTreeMap<Arc<str>, Vec<Arc<Shape>>> = BTreeMap::new();
            for (shape, count) in &unit.wants {
                let sample = pods().find(|pod| pod.shape == *shape)?.open();
                let mut left = *count;
                for (_, name, node) in &mut nodes {
                    let takes = |node: &Node| affinity::selects(&sample, node) && node.keeps_out(&sample).is_none();
                    let here = node.room_for(&shape.needs).min(left).min(shape.most());
                    if here == 0 || !takes(node) || !node.has_ports(&shape.ports, false) {
                        continue;
                    }
                    for _ in 0..here {
                        node.take(&sample, &shape.needs);
                        shares.entry((*name).clone()).or_default().push(shape.clone());
                    }
                    left -= here;
                    if left == 0 {
                        break;
                    }
                }
                if left > 0 {
                    return None;
                }
            }
            Some(shares)
        })
    }
}

impl Spare {
    /// What is left of a node.
    fn of(node: &Node) -> Self {
        Self { left: node.left(), pods: node.pods_left(), ports: Vec::new() }
    }

    /// For how many pods of a shape it is enough.
    pub(super) fn room_for(&self, needs: &request::Resources) -> u64 {
        let pods = self.pods.map_or(u64::MAX, |left| u64::try_from(left).unwrap_or_default());
        let amount = |resource: &String| self.left.get(resource).copied().unwrap_or_default();
        needs.iter().map(|(resource, needed)| amount(resource).holds(*needed)).fold(pods, u64::min)
    }
}
