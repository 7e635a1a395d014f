//! Profile `openshift-ai`: what OpenShift's policies and its mesh ask of pods, and what may reach them.
//!
//! Children alone have it, never the job's `spec`, which Kueue compares. What a template says stays. That launchers wait for their
//! workers is in [`super::asked`].

use super::children::{labelled, selector};
use super::{MpiProfile, Settings};
use crate::build::fill;
use crate::hardening;
use api::mpi::names;
use api::object::{Gvk, Key};
use serde_json::{Map, Value, json};

/// By this, as a label or as an annotation of a pod, Istio and OpenShift Service Mesh know whether to give it a proxy.
const INJECT: &str = "sidecar.istio.io/inject";

/// The kind of NetworkPolicies.
pub(super) fn network_policies() -> Gvk {
    Gvk::new("networking.k8s.io", "v1", "NetworkPolicy")
}

/// Whether jobs have a NetworkPolicy.
pub(super) fn guards(settings: &Settings) -> bool {
    settings.profile == MpiProfile::OpenshiftAi
}

/// The NetworkPolicy of a job: its pods may reach each other, and nobody else may reach them. Where they go is not limited.
pub(super) fn network_policy(key: &Key, uid: &str) -> Value {
    let gvk = network_policies();
    let mut policy = labelled(key, uid, &gvk.api_version(), &gvk.kind, &names::network_policy(&key.name));
    let pods = json!({"matchLabels": selector(key)});
    policy["spec"] =
        json!({"podSelector": pods, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": pods}]}]});
    policy
}

/// Puts on a pod what the profile asks for and its template leaves open.
pub(super) fn decorate(metadata: &mut Map<String, Value>, spec: &mut Value, settings: &Settings) {
    match settings.profile {
        MpiProfile::Upstream => return,
        MpiProfile::OpenshiftAi => {}
    }
    // a named account is there for its security context constraints more often than for its token
    fill(spec.as_object_mut(), "automountServiceAccountToken", json!(false));
    // a proxy never ends, and would take the connections between ranks
    if metadata.get("labels").and_then(|labels| labels.get(INJECT)).is_none() {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        fill(annotations.as_object_mut(), INJECT, json!("false"));
    }
    // one that names root is not restricted by saying the rest, and its SSH server needs what is left
    if !names_root(spec) {
        hardening::restrict_pod(spec);
    }
}

/// Whether a pod, or a container of it, is to run as root.
fn names_root(spec: &Value) -> bool {
    let is_root = |of: &Value| of.pointer("/securityContext/runAsUser") == Some(&json!(0));
    let containers = ["initContainers", "containers"].into_iter().filter_map(|member| spec[member].as_array());
    is_root(spec) || containers.flatten().any(is_root)
}
