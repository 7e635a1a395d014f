//! Pods that nobody will end.
//!
//! A kubelet reports the end of a pod. Where there never was one (the pod was deleted before it was bound, and a finalizer
//! holds it) or is none any more (its node was removed, or is silent for good), nobody does, and a client that waits for a
//! terminal phase, or for the pod to go, would wait for ever. Such pods are marked as failed and deleted, after upstream's waiting times.
//!
//! A silent node's pods are evicted once their toleration of `node.kubernetes.io/unreachable` is used up: 300 s by default, as
//! upstream's admission has it. Upstream then waits for the node to confirm that they ended, which may be for ever, and for its
//! administrator; here a node shares the machine with its control plane, and one that is silent so long does not run.
//!
//! A node that is off for good has the taint `node.kubernetes.io/out-of-service` and is not Ready: its pods end at once, unless they
//! tolerate it.
//!
//! When a node's absence was first seen is kept as an annotation of the pod: a node that comes back in time keeps its pods.

use api::node::OUT_OF_SERVICE;
use api::object::{self, Gvk, Key, Target};
use jiff::{SignedDuration, Timestamp};
use reconcile::{
    Decision, Event, EventType, Next, Op, PatchBody, Primary, Propagation, Reconciler, Wakes, Watch, World,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// For the end of a pod without node, from its deletion on; and before the absence of a new pod's node is taken for more
/// than the order in which things appear.
const PATIENCE: SignedDuration = SignedDuration::from_secs(20);
/// For the return of a node.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);
/// For a silent node to be heard of again, unless a pod tolerates more or less (upstream's default toleration).
const TOLERANCE_SECS: i64 = 300;
/// The taint that stands for a silent node in tolerations.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const REPORTER: &str = "taint-eviction-controller";
/// When the node of a pod was first seen to be missing.
pub const MISSING_SINCE: &str = "trainyard.dev/node-missing-since";

fn pods() -> Gvk {
    Gvk::new("", "v1", "Pod")
}

fn nodes() -> Gvk {
    Gvk::new("", "v1", "Node")
}

/// Ends pods that have no node to end them.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodGcController;

/// A pod that somebody may have to end.
#[derive(Clone, Debug)]
pub struct Observed {
    pod: Arc<Value>,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Deleted before it was bound.
    Nowhere,
    /// Bound to a node that is not there.
    Gone,
    /// Bound to a node that had gone, and is back.
    Back,
    /// Bound to a node that nobody has heard of since then.
    Silent(Timestamp),
    /// Bound to a node that is off for good.
    Off,
}

/// Since when a node counts as silent; `None` for one that does not.
fn silent_since(node: &Value) -> Option<Timestamp> {
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.find(|condition| condition["type"] == "Ready")?;
    (ready["status"] == "Unknown").then(|| object::text(ready, "lastTransitionTime").parse().ok())?
}

/// Whether a node is marked as off for good, and does not say the contrary.
fn is_off(node: &Value) -> bool {
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    taints.any(|taint| taint["key"] == OUT_OF_SERVICE && taint["effect"] == "NoExecute")
        && !conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// The tolerations of a pod for a taint of effect NoExecute, by its key and whether the value is right.
fn tolerations<'a>(pod: &'a Value, taint: &str, value: impl Fn(&str) -> bool) -> Vec<&'a Value> {
    let tolerates = |toleration: &&Value| {
        let (key, effect) = (object::text(toleration, "key"), object::text(toleration, "effect"));
        let exists = object::text(toleration, "operator") == "Exists";
        (key == taint && (exists || value(object::text(toleration, "value"))) || (key.is_empty() && exists))
            && matches!(effect, "" | "NoExecute")
    };
    pod["spec"]["tolerations"].as_array().into_iter().flatten().filter(tolerates).collect()
}

/// For how many seconds a pod tolerates that its node is silent; `None`: for ever.
fn tolerance_secs(pod: &Value) -> Option<i64> {
    let tolerations = tolerations(pod, UNREACHABLE, str::is_empty);
    if tolerations.is_empty() {
        return Some(TOLERANCE_SECS);
    }
    tolerations.iter().filter_map(|toleration| toleration["tolerationSeconds"].as_i64()).min()
}

/// Whether a pod ends with a node that is off for good: one that tolerates it ends once it is deleted.
fn ends_off(pod: &Value) -> bool {
    object::is_terminating(pod) || tolerations(pod, OUT_OF_SERVICE, |_| true).is_empty()
}

fn node_of(pod: &Value) -> &str {
    pod["spec"]["nodeName"].as_str().unwrap_or_default()
}

/// Pods of a node that has gone, or is back.
fn pods_of_node(world: &dyn World, node: &Value) -> Vec<Target> {
    let name = object::meta(node, "name");
    let there = world.get(&nodes(), &Key::new("", name)).is_some();
    let is_silent = silent_since(node).is_some() || is_off(node);
    let concerned = |pod: &&Arc<Value>| {
        node_of(pod) == name && (!there || is_silent || object::annotation(pod, MISSING_SINCE).is_some())
    };
    // most nodes tell that they are well, and concern nobody
    let word = if there && !is_silent { MISSING_SINCE } else { name };
    world.mentioning(&pods(), None, word).iter().filter(concerned).map(|pod| Target::of(pod)).collect()
}

impl Reconciler for PodGcController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "podgc"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(pods())
    }

    fn watches(&self) -> Vec<Watch> {
        vec![Watch { gvk: nodes(), wakes: Wakes::Keys(pods_of_node) }]
    }

    fn concerns(&self, pod: &Value) -> bool {
        let (ended, terminating) = (object::has_ended(pod), object::is_terminating(pod));
        if node_of(pod).is_empty() { terminating && !ended } else { terminating || !ended }
    }

    /// `None` for pods that a node sees to, and for those that have ended and stay.
    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let pod = world.get(&target.gvk, &target.key).filter(|pod| self.concerns(pod))?;
        let place = match node_of(&pod) {
            "" => Place::Nowhere,
            name => match world.get(&nodes(), &Key::new("", name)) {
                None => Place::Gone,
                Some(_) if object::annotation(&pod, MISSING_SINCE).is_some() => Place::Back,
                Some(node) if is_off(&node) && ends_off(&pod) => Place::Off,
                Some(node) => Place::Silent(silent_since(&node)?),
            },
        };
        Some(Observed { pod, place })
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        let Observed { pod, place } = observed;
        let time = |text: &str| text.parse::<Timestamp>().ok();
        let left = |since: Option<Timestamp>, wait| api::time::left(wait, since.unwrap_or(now), now);
        let mut decision = Decision::nothing();
        let noted = object::annotation(pod, MISSING_SINCE);
        let note = |value: Value| Op::Patch {
            target: Target::of(pod),
            subresource: None,
            body: PatchBody::Merge(
                json!({"metadata": {"uid": object::uid(pod), "annotations": {MISSING_SINCE: value}}}),
            ),
        };
        let wait = match (place, noted) {
            (Place::Back, _) => {
                decision.report.note("its node is back");
                decision.writes.push(note(Value::Null).into());
                return decision;
            }
            (Place::Off, _) => SignedDuration::ZERO,
            (Place::Nowhere, _) => left(time(object::meta(pod, "deletionTimestamp")), PATIENCE),
            (Place::Silent(since), _) => {
                let deleted = time(object::meta(pod, "deletionTimestamp"));
                let end = deleted.map(|at| api::time::left(PATIENCE, at, now));
                let evicted = tolerance_secs(pod).map(|secs| {
                    let secs = SignedDuration::from_secs(secs.clamp(0, 10 * TOLERANCE_SECS * TOLERANCE_SECS));
                    api::time::left(secs, *since, now)
                });
                match end.into_iter().chain(evicted).min() {
                    Some(wait) => wait,
                    None => return decision,
                }
            }
            (Place::Gone, Some(since)) => left(time(since), QUARANTINE),
            (Place::Gone, None) => {
                let wait = left(time(object::meta(pod, "creationTimestamp")), PATIENCE);
                if wait.is_positive() {
                    decision.next = Next::After(wait);
                } else {
                    decision.report.note("its node is not there");
                    decision.writes.push(note(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into()).into());
                    decision.next = Next::After(QUARANTINE);
                }
                return decision;
            }
        };
        if wait.is_positive() {
            decision.next = Next::After(wait);
            return decision;
        }
        decision.report.note("no node will end it");
        if matches!(place, Place::Silent(_) | Place::Off) && !object::is_terminating(pod) {
            decision.events.push(Event {
                regarding: None,
                kind: EventType::Normal,
                reason: "TaintManagerEviction".to_owned(),
                message: format!("Marking for deletion Pod {}", Key::of(pod)),
                reporter: REPORTER,
                action: "",
            });
        }
        if let Some(status) = failed_status(pod, *place, now) {
            let body = PatchBody::Merge(json!({"metadata": {"uid": object::uid(pod)}, "status": status}));
            decision.writes.push(Op::Patch { target: Target::of(pod), subresource: Some("status"), body }.into());
        }
        decision.writes.push(
            Op::Delete {
                target: Target::of(pod),
                propagation: Propagation::Background,
                uid: Some(object::uid(pod).to_owned()),
                resource_version: None,
                grace_secs: Some(0),
            }
            .into(),
        );
        decision
    }
}

/// Failed, and why; `None` where it has ended by itself.
fn failed_status(pod: &Value, place: Place, now: Timestamp) -> Option<Value> {
    let status = &pod["status"];
    if object::has_ended(pod) {
        return None;
    }
    let generation = &pod["metadata"]["generation"];
    let mut failed = json!({"phase": "Failed"});
    if !generation.is_null() {
        failed["observedGeneration"] = generation.clone();
    }
    let why = match place {
        Place::Gone => Some(("DeletionByPodGC", "PodGC: node no longer exists")),
        Place::Silent(_) | Place::Off => {
            Some(("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"))
        }
        Place::Nowhere | Place::Back => None,
    };
    if let Some((reason, message)) = why {
        let at = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|condition| condition["type"] != "DisruptionTarget");
        let mut condition = json!({"type": "DisruptionTarget", "status": "True", "reason": reason,
            "message": message, "lastProbeTime": null, "lastTransitionTime": at});
        if !generation.is_null() {
            condition["observedGeneration"] = generation.clone();
        }
        conditions.push(condition);
        failed["conditions"] = conditions.into();
    }
    Some(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reconcile::testing::Model;

    fn model(node: &str) -> (Model, Target) {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": node},
            "metadata": {"namespace": "ns", "name": "p", "finalizers": ["example/hold"]}});
        (Model::of([pod]), Target { gvk: pods(), key: Key::new("ns", "p") })
    }

    fn node() -> Value {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    }

    fn phase(model: &Model) -> Option<String> {
        model.one("Pod", "p").expect("held")["status"]["phase"].as_str().map(str::to_owned)
    }

    #[test]
    fn deleted_before_it_was_bound() {
        let (mut model, target) = model("");
        assert_eq!(model.run(&PodGcController, &target), Next::AwaitChange);
        model.delete(&target, Propagation::Background, Some(0));
        assert_eq!(model.run(&PodGcController, &target), Next::After(PATIENCE));
        model.pass(20);
        let generation = model.one("Pod", "p").expect("held")["metadata"]["generation"].clone();
        model.run(&PodGcController, &target);
        assert_eq!(phase(&model).as_deref(), Some("Failed"));
        assert_eq!(model.one("Pod", "p").expect("held")["status"]["observedGeneration"], generation);
    }

    #[test]
    fn a_node_has_time_to_come_back() {
        let (mut model, target) = model("n");
        model.put(node());
        assert_eq!(model.run(&PodGcController, &target), Next::AwaitChange);
        model.pass(60);
        model.delete(&Target { gvk: nodes(), key: Key::new("", "n") }, Propagation::Background, None);
        assert_eq!(pods_of_node(&model, &node()), std::slice::from_ref(&target));
        assert_eq!(model.run(&PodGcController, &target), Next::After(QUARANTINE));
        model.pass(30);
        model.put(node());
        assert_eq!(model.run(&PodGcController, &target), Next::AwaitChange);
        let pod = model.one("Pod", "p").expect("held");
        assert_eq!((object::annotation(&pod, MISSING_SINCE), pods_of_node(&model, &node()).len()), (None, 0));

        model.delete(&Target { gvk: nodes(), key: Key::new("", "n") }, Propagation::Background, None);
        model.run(&PodGcController, &target);
        model.pass(40);
        model.run(&PodGcController, &target);
        let pod = model.one("Pod", "p").expect("held");
        assert_eq!((phase(&model).as_deref(), object::is_terminating(&pod)), (Some("Failed"), true));
        assert_eq!(pod["status"]["conditions"][0]["reason"], "DeletionByPodGC");
    }

    /// A node that was last heard of so many seconds ago.
    fn silent(model: &mut Model, ago: i64) {
        let at = api::time::later_secs(model.now, -ago).to_string();
        let mut node = node();
        node["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": at}]);
        model.put(node);
    }

    #[test]
    fn pods_of_a_silent_node_are_evicted_when_their_patience_ends() {
        let toleration = |seconds: Value| json!([{"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
        let cases = [
            (json!([]), Some(TOLERANCE_SECS)),
            (toleration(json!(7)), Some(7)),
            (toleration(json!(0)), Some(0)),
            (toleration(Value::Null), None),
            (json!([{"operator": "Exists"}]), None),
            (json!([{"key": "gpu", "operator": "Exists", "tolerationSeconds": 1}]), Some(TOLERANCE_SECS)),
        ];
        for (tolerations, patience) in cases {
            let (mut model, target) = model("n");
            model.change(&pods(), &target.key, |pod| pod["spec"]["tolerations"] = tolerations.clone());
            silent(&mut model, 0);
            assert_eq!(pods_of_node(&model, &model.one("Node", "n").expect("a node")), std::slice::from_ref(&target));
            let expected = match patience {
                Some(0) | None => Next::AwaitChange,
                Some(seconds) => Next::After(SignedDuration::from_secs(seconds)),
            };
            assert_eq!(model.run(&PodGcController, &target), expected, "{tolerations}");
            model.pass(patience.unwrap_or(100_000));
            model.run(&PodGcController, &target);
            let evicted = patience.map(|_| "Failed".to_owned());
            assert_eq!(phase(&model), evicted, "{tolerations}");
            if evicted.is_some() {
                let pod = model.one("Pod", "p").expect("held");
                assert_eq!(pod["status"]["conditions"][0]["reason"], "DeletionByTaintManager");
                assert!(object::is_terminating(&pod));
                assert_eq!(model.events, ["Normal TaintManagerEviction: Marking for deletion Pod ns/p"]);
            }
        }
    }

    #[test]
    fn pods_of_a_node_that_is_off_for_good_end_at_once() {
        let tolerant = json!([{"key": OUT_OF_SERVICE, "operator": "Exists"}]);
        let cases = [
            ("Unknown", json!([]), false, true),
            ("False", json!([{"key": UNREACHABLE, "operator": "Exists"}]), false, true),
            ("True", json!([]), false, false),
            ("Unknown", tolerant.clone(), false, false),
            ("Unknown", tolerant, true, true),
        ];
        for (ready, tolerations, deleted, ends) in cases {
            let (mut model, target) = model("n");
            model.change(&pods(), &target.key, |pod| pod["spec"]["tolerations"] = tolerations.clone());
            let mut node = node();
            node["spec"]["taints"] = json!([{"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}]);
            node["status"]["conditions"] = json!([{"type": "Ready", "status": ready}]);
            model.put(node.clone());
            if deleted {
                model.delete(&target, Propagation::Background, Some(30));
            }
            let woken = pods_of_node(&model, &node);
            assert_eq!(woken.is_empty(), ready == "True", "{ready} {tolerations}");
            model.run(&PodGcController, &target);
            let expected = ends.then(|| "Failed".to_owned());
            assert_eq!(phase(&model), expected, "{ready} {tolerations} {deleted}");
        }
    }

    #[test]
    fn a_pod_that_is_deleted_on_a_silent_node_goes() {
        let (mut model, target) = model("n");
        silent(&mut model, 0);
        model.delete(&target, Propagation::Background, Some(0));
        assert_eq!(model.run(&PodGcController, &target), Next::After(PATIENCE));
        model.pass(20);
        model.run(&PodGcController, &target);
        assert_eq!(phase(&model).as_deref(), Some("Failed"));
    }

    #[test]
    fn a_new_pods_node_may_appear_later() {
        let (mut model, target) = model("n");
        assert_eq!(model.run(&PodGcController, &target), Next::After(PATIENCE));
        assert!(model.writes.is_empty());
    }
}
