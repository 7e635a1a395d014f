//! Topology spread constraints: pods of a kind are to be spread evenly over the values of a node's label. Source of the rule:
//! Kubernetes' documentation on topology spread constraints.

use super::affinity;
use super::node::{Node, Reason};
use api::object;
use objects::selector::Selector;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whether a pod has constraints.
pub(super) fn asks(pod: &Value) -> bool {
    pod["spec"]["topologySpreadConstraints"].as_array().is_some_and(|list| !list.is_empty())
}

struct Constraint {
    topology: String,
    /// By how many pods a value may have more than the one with the fewest.
    max_skew: i64,
    /// `DoNotSchedule`, not `ScheduleAnyway`.
    is_required: bool,
    /// Pods that count, by the label's value, of the nodes that count.
    counts: BTreeMap<String, i64>,
    /// The fewest of these.
    least: i64,
    /// 1 where the pod itself counts.
    own: i64,
}

/// Where one pod's constraints let it go, given the pods that have a node.
pub(super) struct Spread(Vec<Constraint>);

/// Who counts: the selector, and labels of which the pod's own value is meant.
struct Counted {
    selector: Option<Selector>,
    same: Vec<(String, Option<String>)>,
}

impl Counted {
    fn of(constraint: &Value, pod: &Value) -> Self {
        let keys = constraint["matchLabelKeys"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let same = keys.map(|key| (key.to_owned(), object::label(pod, key).map(str::to_owned)));
        // a key that the pod lacks is left out
        let same = same.filter(|(_, value)| value.is_some()).collect();
        Self { selector: constraint.get("labelSelector").and_then(Selector::read), same }
    }

    fn has(&self, pod: &Value) -> bool {
        self.selector.as_ref().is_some_and(|selector| selector.selects(pod))
            && self.same.iter().all(|(key, value)| object::label(pod, key) == value.as_deref())
    }
}

impl Spread {
    /// What follows from the pods that have a node and the nodes' labels.
    pub(super) fn of(pod: &Value, placed: &[(Arc<Value>, &str)], nodes: &BTreeMap<Arc<str>, Node>) -> Self {
        let list = || pod["spec"]["topologySpreadConstraints"].as_array().into_iter().flatten();
        let is_required = |constraint: &Value| constraint["whenUnsatisfiable"] != "ScheduleAnyway";
        // a node counts if it has the labels of all constraints of its sort
        let topologies = |required: bool| -> Vec<&str> {
            list().filter(|c| is_required(c) == required).map(|c| object::text(c, "topologyKey")).collect()
        };
        let of_sort = [topologies(false), topologies(true)];
        let constraints = list().map(|constraint| {
            let topology = object::text(constraint, "topologyKey").to_owned();
            let is_required = is_required(constraint);
            let counts_node = |node: &Node| {
                let has = |key: &&str| object::label(&node.object, key).is_some();
                of_sort[usize::from(is_required)].iter().all(has)
                    && (constraint["nodeAffinityPolicy"] == "Ignore" || affinity::selects(pod, node))
                    && (constraint["nodeTaintsPolicy"] != "Honor" || node.is_tolerated(pod))
            };
            let counted = Counted::of(constraint, pod);
            let mut counts: BTreeMap<String, i64> = BTreeMap::new();
            for node in nodes.values().filter(|node| counts_node(node)) {
                if let Some(value) = object::label(&node.object, &topology) {
                    counts.entry(value.to_owned()).or_default();
                }
            }
            let namespace = object::meta(pod, "namespace");
            for (other, node) in placed {
                let is_near = object::meta(other, "namespace") == namespace && !object::is_terminating(other);
                let node = nodes.get(*node).filter(|node| counts_node(node));
                if let Some(node) = node.filter(|_| is_near && counted.has(other))
                    && let Some(count) = object::label(&node.object, &topology).and_then(|value| counts.get_mut(value))
                {
                    *count += 1;
                }
            }
            let wanted = constraint["minDomains"].as_u64().unwrap_or(1);
            let too_few = u64::try_from(counts.len()).is_ok_and(|there| there < wanted);
            let least = if too_few { 0 } else { counts.values().min().copied().unwrap_or_default() };
            let max_skew = constraint["maxSkew"].as_i64().unwrap_or(1);
            Constraint { topology, max_skew, is_required, counts, least, own: i64::from(counted.has(pod)) }
        });
        Self(constraints.collect())
    }

    /// Why they keep the pod from a node.
    pub(super) fn refuse(&self, node: &Node) -> Option<Reason> {
        for constraint in self.0.iter().filter(|constraint| constraint.is_required) {
            let Some(value) = object::label(&node.object, &constraint.topology) else {
                let why = "node(s) didn't match pod topology spread constraints (missing required label)";
                return Some(Reason::Other(why.to_owned()));
            };
            let there = constraint.counts.get(value).copied().unwrap_or_default();
            if there + constraint.own - constraint.least > constraint.max_skew {
                return Some(Reason::Other("node(s) didn't match pod topology spread constraints".to_owned()));
            }
        }
        None
    }

    /// How many pods there are where a node is, by the constraints that only wish: the fewer, the better. A node without the label
    /// comes last.
    pub(super) fn crowd(&self, node: &Node) -> i64 {
        let wishes = self.0.iter().filter(|constraint| !constraint.is_required);
        let crowd = |constraint: &Constraint| match object::label(&node.object, &constraint.topology) {
            Some(value) => constraint.counts.get(value).copied().unwrap_or_default(),
            None => i64::from(u32::MAX),
        };
        wishes.map(crowd).fold(0, i64::saturating_add)
    }
}
