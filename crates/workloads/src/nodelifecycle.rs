//! Whether nodes are alive: a node whose Lease is not renewed is not Ready any more, so that no pod is placed on it.
//!
//! A connected agent renews the Lease of its node seldom, and the Lease names a long duration. Such a node is alive while its agent is
//! connected and its Lease is valid. After the connection ends, the node has 50 s to connect again or to renew its Lease.
//!
//! Source of the rule: Kubernetes' node lifecycle controller (`--node-monitor-grace-period`, 50 s). Nodes without a Lease are
//! left alone, for nobody promised to renew one.

use api::node::{Connections, Heard, LEASE_GRACE as GRACE, LEASE_NAMESPACE, LEASE_SECS, NoConnections};
use api::object::{self, Gvk, Key, Target};
use jiff::{SignedDuration, Timestamp};
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
pub struct NodeLifecycleController {
    connections: Arc<dyn Connections>,
}

impl NodeLifecycleController {
    pub fn new(connections: Arc<dyn Connections>) -> Self {
        Self { connections }
    }
}

impl Default for NodeLifecycleController {
    /// A controller that looks at Leases only.
    fn default() -> Self {
        Self::new(Arc::new(NoConnections))
    }
}

/// A node and its Lease, if it has one.
#[derive(Clone, Debug)]
pub struct Observed {
    node: Arc<Value>,
    lease: Option<Lease>,
}

/// The Lease of a node, and when its agent was last connected.
#[derive(Clone, Copy, Debug)]
struct Lease {
    renewed: Timestamp,
    /// How long it is valid, if that is longer than `LEASE_SECS`: only connected agents ask for that.
    long: Option<SignedDuration>,
    heard: Heard,
}

impl Lease {
    /// When the node was last heard of, and how long it has from then on.
    fn last(&self) -> (Timestamp, SignedDuration) {
        match (self.long, self.heard) {
            (None, _) => (self.renewed, GRACE),
            (Some(valid), Heard::Now) => (self.renewed, valid),
            (Some(_), Heard::At(at)) => (self.renewed.max(at), GRACE),
        }
    }
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
        let lease = lease.and_then(|lease| {
            let secs = lease["spec"]["leaseDurationSeconds"].as_i64().unwrap_or_default();
            Some(Lease {
                renewed: object::text(&lease["spec"], "renewTime").parse().ok()?,
                long: (secs > i64::from(LEASE_SECS)).then(|| SignedDuration::from_secs(secs)),
                heard: self.connections.heard(&target.key.name),
            })
        });
        Some(Observed { node, lease })
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        let mut decision = Decision::nothing();
        let Some(lease) = observed.lease else { return decision };
        let (last, time) = lease.last();
        let left = api::time::left(time, last, now);
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
            decision.report.note(format!("{name} was last heard of at {last}"));
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

    fn decide(renewed: Option<&str>, ready: &str) -> Decision {
        let lease = renewed.map(|text| Lease { renewed: at(text), long: None, heard: Heard::Now });
        decided(lease, ready)
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn decided(lease: Option<Lease>, ready: &str) -> Decision {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"conditions": [
            {"type": "Ready", "status": ready, "reason": "KubeletReady"}, {"type": "NetworkUnavailable", "status": "False"}]}});
        let observed = Observed { node: Arc::new(node), lease };
        NodeLifecycleController::default().decide(&observed, at("2026-01-01T00:01:00Z"))
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

    /// What becomes of a node with a long lease, renewed and heard of at these times of the last hour.
    fn connected(renewed: &str, heard: Heard) -> Option<SignedDuration> {
        let lease = Lease { renewed: at(renewed), long: Some(SignedDuration::from_secs(1200)), heard };
        let decision = decided(Some(lease), "True");
        match decision.next {
            Next::After(left) if decision.status.is_none() => Some(left),
            _ => None,
        }
    }

    #[test]
    fn a_node_that_is_connected_is_alive_while_its_long_lease_is_valid() {
        let old = "2025-12-31T23:50:00Z";
        // it is looked at as often as any, and so within its time after the end of the connection
        assert_eq!(connected(old, Heard::Now), Some(GRACE));
        assert_eq!(connected("2025-12-31T23:41:10Z", Heard::Now), Some(SignedDuration::from_secs(10)));
        assert_eq!(
            connected("2025-12-31T23:40:00Z", Heard::Now),
            None,
            "the agent has stopped, and its connection has not"
        );
    }

    #[test]
    fn a_node_whose_connection_has_ended_has_time_to_come_back() {
        let old = "2025-12-31T23:50:00Z";
        let ended = |text| Heard::At(at(text));
        assert_eq!(connected(old, ended("2026-01-01T00:00:40Z")), Some(SignedDuration::from_secs(30)));
        assert_eq!(connected(old, ended("2026-01-01T00:00:05Z")), None);
        // the control plane has just started, or the connection is not noted yet
        assert_eq!(
            connected("2026-01-01T00:00:50Z", ended("2025-12-31T00:00:00Z")),
            Some(SignedDuration::from_secs(40))
        );
    }

    #[test]
    fn a_node_without_a_lease_is_left_alone() {
        assert_eq!(decide(None, "True").next, Next::AwaitChange);
        assert!(decide(None, "True").status.is_none());
    }
}
