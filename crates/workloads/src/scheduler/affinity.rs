//! Which nodes a pod selects, and which pods it wants or does not want near it.

use super::node::{Node, Placed, Reason};
use crate::selector::Selector;
use api::object;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Labels of namespaces, by name.
pub(super) type Namespaces = BTreeMap<String, Arc<Value>>;

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
    let preferred = &pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
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
    list.map(|term| {
        let mut namespaces: Vec<String> =
            term["namespaces"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        let namespace_selector = term.get("namespaceSelector").and_then(Selector::parse);
        if namespaces.is_empty() && namespace_selector.is_none() {
            namespaces.push(object::meta(pod, "namespace").to_owned());
        }
        Term {
            selector: term.get("labelSelector").and_then(Selector::parse),
            topology: object::text(term, "topologyKey").to_owned(),
            namespaces,
            namespace_selector,
        }
    })
    .collect()
}

impl Term {
    fn matches(&self, pod: &Value, namespaces: &Namespaces) -> bool {
        let name = object::meta(pod, "namespace");
        let by_labels = |selector: &Selector| {
            selector.is_empty() || namespaces.get(name).is_some_and(|namespace| selector.selects(namespace))
        };
        let near = self.namespaces.iter().any(|n| n == name) || self.namespace_selector.as_ref().is_some_and(by_labels);
        near && self.selector.as_ref().is_some_and(|selector| selector.selects(pod))
    }
}

/// Where pods are, by node, for questions about their neighbours.
pub(super) struct Neighbours<'a> {
    pub placed: &'a [Placed],
    pub nodes: &'a BTreeMap<String, Arc<Value>>,
    pub namespaces: &'a Namespaces,
}

impl Neighbours<'_> {
    /// The node's domain under a topology key.
    fn domain(&self, node: &str, topology: &str) -> Option<&str> {
        object::label(self.nodes.get(node)?, topology)
    }

    /// Why its neighbours, wanted or not, keep the pod from a node.
    pub(super) fn refuse(&self, pod: &Value, node: &Node) -> Option<Reason> {
        let same_domain = |placed: &Placed, topology: &str| {
            let domain = self.domain(node.name(), topology);
            domain.is_some() && self.domain(&placed.node, topology) == domain
        };
        for term in terms(pod, "podAffinity") {
            let here =
                |placed: &&Placed| same_domain(placed, &term.topology) && term.matches(&placed.pod, self.namespaces);
            let anywhere = self.placed.iter().any(|placed| term.matches(&placed.pod, self.namespaces));
            // the first of its kind may settle anywhere that has the topology
            let first =
                !anywhere && term.matches(pod, self.namespaces) && self.domain(node.name(), &term.topology).is_some();
            if !first && !self.placed.iter().any(|placed| here(&placed)) {
                return Some(Reason::Other("node(s) didn't match pod affinity rules".to_owned()));
            }
        }
        for term in terms(pod, "podAntiAffinity") {
            let unwanted =
                |placed: &Placed| same_domain(placed, &term.topology) && term.matches(&placed.pod, self.namespaces);
            if self.placed.iter().any(unwanted) {
                return Some(Reason::Other("node(s) didn't match pod anti-affinity rules".to_owned()));
            }
        }
        let unwelcome = |placed: &Placed| {
            let terms = terms(&placed.pod, "podAntiAffinity");
            terms.iter().any(|term| same_domain(placed, &term.topology) && term.matches(pod, self.namespaces))
        };
        let text = "node(s) didn't satisfy existing pods anti-affinity rules";
        self.placed.iter().filter(|placed| placed.guards).any(unwelcome).then(|| Reason::Other(text.to_owned()))
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
