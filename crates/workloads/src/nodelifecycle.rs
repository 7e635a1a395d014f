//! Whether nodes are alive: a node whose Lease is not renewed is not Ready any more, so that no pod is placed on it.
//!
//! Source of the rule: Kubernetes' node lifecycle controller (`--node-monitor-grace-period`, 50 s). Nodes without a Lease are
//! left alone, for nobody promised to renew one.

use api::node::{LEASE_GRACE as GRACE, LEASE_NAMESPACE};
use api::object::{self, Gvk, Key, Target};
use jiff::Timestamp;
use reconcile::{Decision, Event, EventType, Next, Primary, Reconciler, StatusWrite, Wakes, Watch, World};
use serde_json::{Value, json};
use std::sync::Arc;

const REPORTER: &str = "node-controller";
/// Conditions that the node itself reports, and that nobody knows once it is silent.
const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

fn nodes() -> Gvk {
    Gvk::new("", "v1", "Node")
}

fn leases() -> Gvk {
    Gvk::new("coordination.k8s.io", "v1", "Lease")
}

/// Marks silent nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeLifecycleController;

/// A node and when it was last heard of; `None` without a Lease.
#[derive(Clone, Debug)]
pub struct Observed {
    node: Arc<Value>,
    renewed: Option<Timestamp>,
}

fn node_of(_world: &dyn World, lease: &Value) -> Vec<Target> {
    if object::meta(lease, "namespace") != LEASE_NAMESPACE {
        return Vec::new();
    }
    vec![Target { gvk: nodes(), key: Key::new("", object::meta(lease, "name")) }]
}

impl Reconciler for NodeLifecycleController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "nodelifecycle"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(nodes())
    }

    fn watches(&self) -> Vec<Watch> {
        vec![Watch { gvk: leases(), wakes: Wakes::Keys(node_of) }]
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let node = world.get(&nodes(), &target.key)?;
        let lease = world.get(&leases(), &Key::new(LEASE_NAMESPACE, &target.key.name));
        let renewed = lease.and_then(|lease| object::text(&lease["spec"], "renewTime").parse().ok());
        Some(Observed { node, renewed })
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        let mut decision = Decision::nothing();
        let Some(renewed) = observed.renewed else { return decision };
        let left = api::time::left(GRACE, renewed, now);
        if left.is_positive() {
            decision.next = Next::After(left.min(GRACE));
            return decision;
        }
        let mut node = (*observed.node).clone();
        let Some(conditions) = node["status"]["conditions"].as_array_mut() else { return decision };
        let mut changed = false;
        for condition in conditions.iter_mut() {
            if REPORTED.contains(&object::text(condition, "type")) && condition["status"] != "Unknown" {
                condition["status"] = json!("Unknown");
                condition["reason"] = json!("NodeStatusUnknown");
                condition["message"] = json!("Kubelet stopped posting node status.");
                condition["lastTransitionTime"] = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
                changed = true;
            }
        }
        if changed {
            let name = object::meta(&node, "name");
            decision.report.note(format!("{name} was last heard of at {renewed}"));
            decision.events.push(Event {
                regarding: None,
                kind: EventType::Normal,
                reason: "NodeNotReady".to_owned(),
                message: format!("Node {name} status is now: NodeNotReady"),
                reporter: REPORTER,
                action: "",
            });
            decision.status = Some(StatusWrite::Replace(node));
        }
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    fn decide(renewed: Option<&str>, ready: &str) -> Decision {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"conditions": [
            {"type": "Ready", "status": ready, "reason": "KubeletReady"}, {"type": "NetworkUnavailable", "status": "False"}]}});
        let renewed = renewed.map(|text| text.parse().expect("a time"));
        let now = "2026-01-01T00:01:00Z".parse().expect("a time");
        NodeLifecycleController.decide(&Observed { node: Arc::new(node), renewed }, now)
    }

    #[test]
    fn a_silent_node_is_not_ready() {
        let decision = decide(Some("2026-01-01T00:00:05Z"), "True");
        let Some(StatusWrite::Replace(node)) = decision.status else { panic!("a status is written") };
        assert_eq!(node["status"]["conditions"][0]["status"], "Unknown");
        assert_eq!(node["status"]["conditions"][1]["status"], "False", "not the node's own report");
        assert_eq!(decision.events.len(), 1);
        assert!(decide(Some("2026-01-01T00:00:05Z"), "Unknown").status.is_none(), "said once");
    }

    #[test]
    fn a_node_that_is_heard_of_is_looked_at_when_its_time_is_up() {
        let decision = decide(Some("2026-01-01T00:00:50Z"), "True");
        assert_eq!(decision.next, Next::After(SignedDuration::from_secs(40)));
        assert!(decision.status.is_none());
        // a renewal from the future (a clock that was set back) does not silence the check for ever
        assert_eq!(decide(Some("2027-01-01T00:00:00Z"), "True").next, Next::After(GRACE));
    }

    #[test]
    fn a_node_without_a_lease_is_left_alone() {
        assert_eq!(decide(None, "True").next, Next::AwaitChange);
        assert!(decide(None, "True").status.is_none());
    }
}
