//! Which nodes a pod selects, and which pods it wants or does not want near it.

use super::node::{Node, Reason};
use super::spread::{self, Spread};
use api::object;
use objects::selector::Selector;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Labels of namespaces, by name.
pub(super) type Namespaces = BTreeMap<String, Arc<Value>>;

const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Whether the node has the labels that the pod's node selector and required node affinity ask for.
pub(super) fn selects(pod: &Value, node: &Node) -> bool {
    let empty = Map::new();
    let labels = node.object["metadata"]["labels"].as_object().unwrap_or(&empty);
    let mut selector = pod["spec"]["nodeSelector"].as_object().into_iter().flatten();
    if !selector.all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let required = &pod["spec"]["affinity"]["nodeAffinity"][REQUIRED];
    match required.get("nodeSelectorTerms").and_then(Value::as_array) {
        None => true,
        Some(terms) => terms.iter().any(|term| term_matches(term, labels, node.name())),
    }
}

/// The weights of preferred node affinities that the node satisfies, together.
pub(super) fn preference(pod: &Value, node: &Node) -> i64 {
    let empty = Map::new();
    let labels = node.object["metadata"]["labels"].as_object().unwrap_or(&empty);
    let preferred = &pod["spec"]["affinity"]["nodeAffinity"][PREFERRED];
    let preferred = preferred.as_array().into_iter().flatten();
    let satisfied = preferred.filter(|entry| term_matches(&entry["preference"], labels, node.name()));
    satisfied.map(|entry| entry["weight"].as_i64().unwrap_or_default()).sum()
}

/// Whether a node selector term matches; one without expressions and fields matches nothing.
fn term_matches(term: &Value, labels: &Map<String, Value>, name: &str) -> bool {
    let list = |member: &str| term[member].as_array().map(Vec::as_slice).unwrap_or_default();
    let (expressions, fields) = (list("matchExpressions"), list("matchFields"));
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let by_label = |e: &Value| requirement(e, labels.get(object::text(e, "key")).and_then(Value::as_str));
    let by_field = |e: &Value| object::text(e, "key") == "metadata.name" && requirement(e, Some(name));
    expressions.iter().all(by_label) && fields.iter().all(by_field)
}

fn requirement(expression: &Value, held: Option<&str>) -> bool {
    let values = || expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let compare = |holds: fn(i64, i64) -> bool| {
        let wanted = values().next().and_then(|value| value.parse().ok());
        held.and_then(|held| held.parse().ok()).zip(wanted).is_some_and(|(held, wanted)| holds(held, wanted))
    };
    match object::text(expression, "operator") {
        "In" => held.is_some_and(|held| values().any(|value| value == held)),
        "NotIn" => held.is_none_or(|held| values().all(|value| value != held)),
        "Exists" => held.is_some(),
        "DoesNotExist" => held.is_none(),
        "Gt" => compare(|held, wanted| held > wanted),
        "Lt" => compare(|held, wanted| held < wanted),
        _ => false,
    }
}

/// One required term of a pod's affinity or anti-affinity.
struct Term {
    selector: Option<Selector>,
    topology: String,
    namespaces: Vec<String>,
    /// `None`: no further namespaces.
    namespace_selector: Option<Selector>,
}

fn terms(pod: &Value, kind: &str) -> Vec<Term> {
    let list = pod["spec"]["affinity"][kind][REQUIRED].as_array().into_iter().flatten();
    list.map(|term| Term::of(pod, term)).collect()
}

/// Preferred terms, with their weights.
fn wishes(pod: &Value, kind: &str) -> Vec<(i64, Term)> {
    let list = pod["spec"]["affinity"][kind][PREFERRED].as_array().into_iter().flatten();
    list.map(|wish| (wish["weight"].as_i64().unwrap_or_default(), Term::of(pod, &wish["podAffinityTerm"]))).collect()
}

impl Term {
    /// A term of a pod.
    fn of(pod: &Value, term: &Value) -> Self {
        let mut namespaces: Vec<String> =
            term["namespaces"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        let namespace_selector = term.get("namespaceSelector").and_then(Selector::read);
        if namespaces.is_empty() && namespace_selector.is_none() {
            namespaces.push(object::meta(pod, "namespace").to_owned());
        }
        Self {
            selector: term.get("labelSelector").and_then(Selector::read),
            topology: object::text(term, "topologyKey").to_owned(),
            namespaces,
            namespace_selector,
        }
    }

    fn matches(&self, pod: &Value, namespaces: &Namespaces) -> bool {
        let name = object::meta(pod, "namespace");
        let by_labels = |selector: &Selector| {
            selector.is_empty() || namespaces.get(name).is_some_and(|namespace| selector.selects(namespace))
        };
        let near = self.namespaces.iter().any(|n| n == name) || self.namespace_selector.as_ref().is_some_and(by_labels);
        near && self.selector.as_ref().is_some_and(|selector| selector.selects(pod))
    }
}

/// Whether a pod keeps others away, or asks for neighbours: few do, and only those are asked.
pub(super) fn keeps_away(pod: &Value) -> bool {
    pod["spec"]["affinity"].get("podAntiAffinity").is_some()
}

/// Whether where a pod may go hangs on where others are.
pub(super) fn asks_for_neighbours(pod: &Value) -> bool {
    let affinity = &pod["spec"]["affinity"];
    affinity.get("podAffinity").is_some() || affinity.get("podAntiAffinity").is_some() || spread::asks(pod)
}

/// A node's label, and those of its values that count.
struct Domains {
    topology: String,
    values: BTreeSet<String>,
}

impl Domains {
    fn has(&self, node: &Node) -> bool {
        object::label(&node.object, &self.topology).is_some_and(|domain| self.values.contains(domain))
    }
}

/// Where one pod's neighbours, wanted or not, let it go.
pub(super) struct Neighbourhood {
    /// It goes into these alone; `true`: it is the first of its kind, and may settle anywhere that has the label.
    wanted: Vec<(Domains, bool)>,
    unwanted: Vec<Domains>,
    /// Where others do not want it.
    guarded: Vec<Domains>,
    /// Where it would rather be, and not be: a node's label, and what each pod near it that counts is worth.
    wishes: Vec<(String, BTreeMap<String, i64>)>,
    spread: Spread,
}

impl Neighbourhood {
    /// What follows from the pods that have a node, those of them that keep others away, and the nodes' labels.
    pub(super) fn of(
        pod: &Value,
        placed: &[(Arc<Value>, &str)],
        guards: &[(Arc<Value>, &str)],
        nodes: &BTreeMap<Arc<str>, Node>,
        namespaces: &Namespaces,
    ) -> Self {
        let domain = |node: &str, topology: &str| object::label(&nodes.get(node)?.object, topology).map(str::to_owned);
        let matching = |term: Term, anywhere: &mut bool| {
            let mut values = BTreeSet::new();
            for (_, node) in placed.iter().filter(|(other, _)| term.matches(other, namespaces)) {
                *anywhere = true;
                values.extend(domain(node, &term.topology));
            }
            Domains { topology: term.topology, values }
        };
        let wanted = terms(pod, "podAffinity").into_iter().map(|term| {
            let (itself, mut anywhere) = (term.matches(pod, namespaces), false);
            let domains = matching(term, &mut anywhere);
            (domains, !anywhere && itself)
        });
        let wanted = wanted.collect();
        let unwanted = terms(pod, "podAntiAffinity").into_iter().map(|term| matching(term, &mut false)).collect();
        let mut guarded: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (guard, node) in guards {
            for term in terms(guard, "podAntiAffinity").into_iter().filter(|term| term.matches(pod, namespaces)) {
                let value = domain(node, &term.topology);
                guarded.entry(term.topology).or_default().extend(value);
            }
        }
        let guarded = guarded.into_iter().map(|(topology, values)| Domains { topology, values }).collect();
        let signed = |kind, sign: i64| wishes(pod, kind).into_iter().map(move |(weight, term)| (weight * sign, term));
        let wishes = signed("podAffinity", 1).chain(signed("podAntiAffinity", -1)).map(|(weight, term)| {
            let mut worth: BTreeMap<String, i64> = BTreeMap::new();
            for (_, node) in placed.iter().filter(|(other, _)| term.matches(other, namespaces)) {
                if let Some(value) = domain(node, &term.topology) {
                    *worth.entry(value).or_default() += weight;
                }
            }
            (term.topology, worth)
        });
        let (wishes, spread) = (wishes.collect(), Spread::of(pod, placed, nodes));
        Self { wanted, unwanted, guarded, wishes, spread }
    }

    /// Orders the nodes that it may go to by what it would like, the best first.
    pub(super) fn dislike(&self, node: &Node) -> (i64, i64) {
        let worth = |(topology, worth): &(String, BTreeMap<String, i64>)| {
            object::label(&node.object, topology).and_then(|value| worth.get(value)).copied().unwrap_or_default()
        };
        (self.spread.crowd(node), self.wishes.iter().map(worth).fold(0, i64::saturating_sub))
    }

    /// Why the neighbours keep the pod from a node.
    pub(super) fn refuse(&self, node: &Node) -> Option<Reason> {
        if let Some(reason) = self.spread.refuse(node) {
            return Some(reason);
        }
        let suits = |(domains, is_first): &(Domains, bool)| {
            domains.has(node) || (*is_first && object::label(&node.object, &domains.topology).is_some())
        };
        let reason = if !self.wanted.iter().all(suits) {
            "node(s) didn't match pod affinity rules"
        } else if self.unwanted.iter().any(|domains| domains.has(node)) {
            "node(s) didn't match pod anti-affinity rules"
        } else if self.guarded.iter().any(|domains| domains.has(node)) {
            "node(s) didn't satisfy existing pods anti-affinity rules"
        } else {
            return None;
        };
        Some(Reason::Other(reason.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nodes_are_selected_by_labels_and_names() {
        let node = Node::new(Arc::new(json!({"metadata": {"name": "n", "labels": {"zone": "a", "gpus": "8"}}})));
        let expression = |key: &str, operator: &str, values: Value| {
            json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]}}}})
        };
        for (spec, want) in [
            (json!({}), true),
            (json!({"nodeSelector": {"zone": "a"}}), true),
            (json!({"nodeSelector": {"zone": "b"}}), false),
            (expression("zone", "In", json!(["b", "a"])), true),
            (expression("zone", "NotIn", json!(["a"])), false),
            (expression("gpus", "Gt", json!(["7"])), true),
            (expression("gpus", "Lt", json!(["8"])), false),
            (expression("other", "DoesNotExist", json!(null)), true),
            (json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}}), false),
            (
                json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}}}),
                true,
            ),
        ] {
            assert_eq!(selects(&json!({"spec": spec}), &node), want, "{spec}");
        }
    }
}
