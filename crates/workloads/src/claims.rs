//! Lets go of volume claims that are being deleted once no pod uses them.
//!
//! The API server puts a finalizer on each claim, so that one that is in use stays until its pods are gone; here it comes
//! off again. A pod uses a claim from the moment it has a node until it is deleted, ended or not: a node starts no pod with
//! a claim that is being deleted.

use api::object::{self, Gvk, Key, Target};
use jiff::Timestamp;
use reconcile::{Decision, Op, PatchBody, Primary, Reconciler, Wakes, Watch, World};
use serde_json::{Value, json};
use std::sync::Arc;

/// What holds a claim that may be in use.
const PROTECTION: &str = "kubernetes.io/pvc-protection";

fn claims() -> Gvk {
    Gvk::new("", "v1", "PersistentVolumeClaim")
}

fn pods() -> Gvk {
    Gvk::new("", "v1", "Pod")
}

/// Takes the protection off claims that nobody uses and somebody deleted.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClaimProtectionController;

/// What a pass over one claim reads.
pub struct Observed {
    claim: Arc<Value>,
    /// The first pod that uses it.
    user: Option<String>,
}

/// Names of the claims that a pod mounts.
fn claims_of(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str())
}

fn wake_claims(_: &dyn World, pod: &Value) -> Vec<Target> {
    let key = |name: &str| Key::new(object::meta(pod, "namespace"), name);
    claims_of(pod).map(|name| Target { gvk: claims(), key: key(name) }).collect()
}

impl Reconciler for ClaimProtectionController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "claims"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(claims())
    }

    fn watches(&self) -> Vec<Watch> {
        vec![Watch { gvk: pods(), wakes: Wakes::Keys(wake_claims) }]
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let claim = world.get(&target.gvk, &target.key)?;
        if !object::is_terminating(&claim) {
            return None;
        }
        let uses = |pod: &Arc<Value>| {
            !pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty()
                && claims_of(pod).any(|name| name == target.key.name)
        };
        let user = world.mentioning(&pods(), Some(&target.key.namespace), &target.key.name).into_iter().find(uses);
        Some(Observed { claim, user: user.map(|pod| object::meta(&pod, "name").to_owned()) })
    }

    fn decide(&self, observed: &Observed, _now: Timestamp) -> Decision {
        let mut decision = Decision::nothing();
        if let Some(pod) = &observed.user {
            decision.report.note(format!("in use by pod {pod}"));
            return decision;
        }
        let finalizers = observed.claim["metadata"]["finalizers"].as_array().into_iter().flatten();
        let (held, kept): (Vec<&Value>, Vec<&Value>) = finalizers.partition(|finalizer| **finalizer == PROTECTION);
        if !held.is_empty() {
            // the version makes it a conflict if somebody adds a finalizer meanwhile
            let meta = json!({"finalizers": kept, "resourceVersion": object::resource_version(&observed.claim)});
            let body = PatchBody::Merge(json!({"metadata": meta}));
            decision.writes.push(Op::Patch { target: Target::of(&observed.claim), subresource: None, body }.into());
        }
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reconcile::Propagation;
    use reconcile::testing::Model;

    #[test]
    fn claims_go_when_their_last_pod_is_gone() {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "ns", "finalizers": [PROTECTION, "example.com/own"]}});
        let pod = |name: &str, node: Option<&str>| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns"},
                "spec": {"nodeName": node, "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}})
        };
        let target = Target::of(&claim);
        let mut model = Model::of([claim, pod("user", Some("n")), pod("waits", None)]);
        model.run(&ClaimProtectionController, &target);
        model.delete(&target, Propagation::Background, None);
        model.run(&ClaimProtectionController, &target);
        assert_eq!(model.writes, Vec::<String>::new());

        let user = Key::new("ns", "user");
        model.delete(&Target { gvk: pods(), key: user.clone() }, Propagation::Background, None);
        model.end_grace(&pods(), &user);
        model.run(&ClaimProtectionController, &target);
        assert_eq!(model.writes, ["patch PersistentVolumeClaim data"]);
        let claim = model.one("PersistentVolumeClaim", "data").expect("held by its own finalizer");
        assert_eq!(claim["metadata"]["finalizers"], json!(["example.com/own"]));
    }
}
