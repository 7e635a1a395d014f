//! Repairs exclusive placement: followers that select another topology domain than their leader's are deleted, so that
//! they are made again where it is. Spec A.19.

use super::pods::is_leader;
use api::jobset::{keys, reasons};
use api::object::{self, Gvk, Key, Target};
use jiff::Timestamp;
use reconcile::{Decision, Next, Op, PatchBody, Primary, Propagation, Reconciler, Wakes, Watch, World};
use serde_json::{Value, json};
use std::sync::Arc;

fn pods() -> Gvk {
    Gvk::new("", "v1", "Pod")
}

fn nodes() -> Gvk {
    Gvk::new("", "v1", "Node")
}

/// Reconciles leaders: the first pods of Jobs under exclusive placement.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlacementController;

/// What a pass over one leader reads.
pub struct Observed {
    topology: String,
    /// The leader's domain; `None` where its node is gone or has no such label.
    domain: Option<String>,
    /// The other pods of its Job.
    followers: Vec<Arc<Value>>,
}

impl Reconciler for PlacementController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "jobset-placement"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(pods())
    }

    fn watches(&self) -> Vec<Watch> {
        vec![Watch { gvk: nodes(), wakes: Wakes::Nothing }]
    }

    fn concerns(&self, pod: &Value) -> bool {
        object::annotation(pod, keys::EXCLUSIVE_TOPOLOGY).is_some()
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let leader = world.get(&target.gvk, &target.key)?;
        let topology = object::annotation(&leader, keys::EXCLUSIVE_TOPOLOGY)?.to_owned();
        let node = leader["spec"]["nodeName"].as_str().filter(|node| !node.is_empty())?;
        let arranged = object::annotation(&leader, keys::NODE_SELECTOR_STRATEGY).is_some();
        if !is_leader(&leader) || arranged || object::is_terminating(&leader) {
            return None;
        }
        let job = object::text(object::controller_of(&leader)?, "uid");
        let key = object::label(&leader, keys::JOB_KEY);
        let follows = |pod: &Arc<Value>| {
            !is_leader(pod)
                && object::label(pod, keys::JOB_KEY) == key
                && object::controller_of(pod).is_some_and(|owner| object::text(owner, "uid") == job)
        };
        let node = world.get(&nodes(), &Key::new("", node));
        Some(Observed {
            domain: node.and_then(|node| object::label(&node, &topology).map(str::to_owned)),
            followers: world.owned_by(&pods(), job).into_iter().filter(follows).collect(),
            topology,
        })
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        let mut decision = Decision::nothing();
        let Some(domain) = &observed.domain else {
            decision.report.note(format!("the leader's node is gone or has no label {}", observed.topology));
            decision.next = Next::Backoff;
            return decision;
        };
        let strays = |pod: &&Arc<Value>| pod["spec"]["nodeSelector"][&observed.topology].as_str() != Some(domain);
        if !observed.followers.iter().any(|pod| strays(&pod)) {
            return decision;
        }
        decision.report.note(format!("followers select another {} than {domain}", observed.topology));
        for pod in observed.followers.iter().filter(|pod| !object::is_terminating(pod)) {
            let target = Target::of(pod);
            let condition = json!({
                "type": "DisruptionTarget",
                "status": "True",
                "reason": reasons::EXCLUSIVE_PLACEMENT_VIOLATION,
                "message": "Pod violated JobSet exclusive placement policy",
                "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            });
            let said = pod["status"]["conditions"].as_array().is_some_and(|conditions| {
                conditions.iter().any(|c| c["type"] == condition["type"] && c["reason"] == condition["reason"])
            });
            if !said {
                let body = PatchBody::Strategic(json!({"status": {"conditions": [condition]}}));
                decision.writes.push(Op::Patch { target: target.clone(), subresource: Some("status"), body }.into());
            }
            let delete = Op::Delete {
                target,
                propagation: Propagation::Background,
                uid: Some(object::uid(pod).to_owned()),
                resource_version: None,
                grace_secs: None,
            };
            decision.writes.push(delete.into());
        }
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reconcile::testing::Model;

    #[test]
    fn followers_elsewhere_are_deleted() {
        let pod = |index: &str, rack: &str| {
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "namespace": "ns", "name": format!("js-w-0-{index}-abcde"), "labels": {keys::JOB_KEY: "k"},
                    "annotations": {keys::EXCLUSIVE_TOPOLOGY: "rack", "batch.kubernetes.io/job-completion-index": index},
                    "ownerReferences": [{"uid": "job", "controller": true}],
                },
                "spec": {"nodeName": "n", "nodeSelector": {"rack": rack}},
            })
        };
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"rack": "a"}}});
        let mut model = Model::of([node, pod("0", "x"), pod("1", "a"), pod("2", "a")]);
        let leader = Target { gvk: pods(), key: Key::new("ns", "js-w-0-0-abcde") };
        assert_eq!(model.run(&PlacementController, &leader), Next::AwaitChange);
        assert_eq!(model.writes, Vec::<String>::new());

        model.change(&nodes(), &Key::new("", "n"), |node| node["metadata"]["labels"]["rack"] = "b".into());
        model.run(&PlacementController, &leader);
        assert_eq!(model.writes.len(), 4, "{:?}", model.writes);
        for pod in model.all("Pod") {
            assert_eq!(object::is_terminating(&pod), !is_leader(&pod));
        }
        model.change(&nodes(), &Key::new("", "n"), |node| node["metadata"]["labels"] = json!({}));
        model.writes.clear();
        assert_eq!(model.run(&PlacementController, &leader), Next::Backoff);
        assert_eq!(model.writes, Vec::<String>::new());
    }
}
