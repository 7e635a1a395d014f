//! What JobSet's pod webhooks do: exclusive placement of a Job's pods in one topology domain. Spec A.19.
//!
//! The first pod of a Job, its leader, gets affinities that keep other Jobs out of its domain; the others follow it by a
//! node selector, and are refused as long as it has no node.

use super::json::{entry_object, push};
use api::jobset::keys;
use api::object;
use serde_json::{Value, json};
use std::sync::Arc;

/// Name of the mutating webhook.
pub const MUTATOR: &str = "mpod.kb.io";
/// Name of the validating webhook.
pub const VALIDATOR: &str = "vpod.kb.io";

/// What the webhooks look up.
pub struct Lookup<'a> {
    /// All pods of a namespace.
    pub pods: &'a dyn Fn(&str) -> Vec<Arc<Value>>,
    /// A node by name.
    pub node: &'a dyn Fn(&str) -> Option<Arc<Value>>,
}

/// Whether the pod is one of a JobSet whose placement was not arranged beforehand by node labels.
fn concerns(pod: &Value) -> bool {
    object::label(pod, keys::JOBSET_NAME).is_some()
        && object::annotation(pod, keys::JOBSET_NAME).is_some()
        && object::annotation(pod, keys::NODE_SELECTOR_STRATEGY).is_none()
}

/// Whether it is the first pod of its Job.
pub(crate) fn is_leader(pod: &Value) -> bool {
    object::annotation(pod, keys::COMPLETION_INDEX) == Some("0")
}

/// Changes a pod that is being created. Its priority must have been resolved before.
///
/// # Errors
/// The leader has a node, but the node is unknown or lacks the topology label: the text of a denial.
pub fn mutate(pod: &mut Value, namespace: &str, lookup: &Lookup<'_>) -> Result<(), String> {
    if !concerns(pod) {
        return Ok(());
    }
    if let Some(priority) = pod["spec"]["priority"].as_i64() {
        pod["metadata"]["labels"][keys::PRIORITY] = priority.to_string().into();
    }
    let Some(topology) = object::annotation(pod, keys::EXCLUSIVE_TOPOLOGY).map(str::to_owned) else { return Ok(()) };
    if is_leader(pod) {
        keep_others_out(pod, &topology);
        return Ok(());
    }
    // whatever is wrong with the leader is said by validation
    let Ok(leader) = leader(pod, namespace, lookup) else { return Ok(()) };
    let node = leader["spec"]["nodeName"].as_str().unwrap_or_default();
    if node.is_empty() {
        return Ok(());
    }
    let domain = domain(node, &topology, lookup)?;
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        entry_object(spec, "nodeSelector").insert(topology, domain.into());
    }
    Ok(())
}

/// Refuses followers that have no leader to follow.
///
/// # Errors
/// The text of the denial.
pub fn validate_create(pod: &Value, namespace: &str, lookup: &Lookup<'_>) -> Result<(), String> {
    let Some(topology) = object::annotation(pod, keys::EXCLUSIVE_TOPOLOGY) else { return Ok(()) };
    if !concerns(pod) || is_leader(pod) {
        return Ok(());
    }
    let Some(selector) = pod["spec"].get("nodeSelector").filter(|selector| selector.is_object()) else {
        return Err("follower pod node selector not set".to_owned());
    };
    if selector.get(topology).is_none() {
        return Err(format!("follower pod node selector for topology domain not found. missing selector: {topology}"));
    }
    let leader = leader(pod, namespace, lookup)?;
    if leader["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
        return Err(
            "leader pod not yet scheduled, not creating follower pod. this is an expected, transient error".to_owned()
        );
    }
    Ok(())
}

/// The leader attracts the pods of its Job and repels those of other Jobs of the same priority.
fn keep_others_out(pod: &mut Value, topology: &str) {
    let job = object::label(pod, keys::JOB_KEY).unwrap_or_default().to_owned();
    let priority = object::label(pod, keys::PRIORITY).unwrap_or_default().to_owned();
    let own = json!({"key": keys::JOB_KEY, "operator": "In", "values": [job]});
    let others = json!([
        {"key": keys::JOB_KEY, "operator": "Exists"},
        {"key": keys::JOB_KEY, "operator": "NotIn", "values": [job]},
        {"key": keys::PRIORITY, "operator": "In", "values": [priority]},
    ]);
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let affinity = entry_object(spec, "affinity");
    for (kind, expressions) in [("podAffinity", json!([own])), ("podAntiAffinity", others)] {
        let term = json!({
            "labelSelector": {"matchExpressions": expressions},
            "topologyKey": topology,
            "namespaceSelector": {},
        });
        push(entry_object(affinity, kind), "requiredDuringSchedulingIgnoredDuringExecution", term);
    }
}

/// The one pod that leads this one's Job.
fn leader(pod: &Value, namespace: &str, lookup: &Lookup<'_>) -> Result<Arc<Value>, String> {
    let label = |key: &str| object::label(pod, key).ok_or_else(|| format!("pod missing label: {key}"));
    let (jobset, replicated) = (label(keys::JOBSET_NAME)?, label(keys::REPLICATED_JOB_NAME)?);
    let name = format!("{jobset}-{replicated}-{}-0", label(keys::JOB_INDEX)?);
    let is_it = |pod: &Arc<Value>| {
        object::meta(pod, "name").rsplit_once('-').is_some_and(|(base, _)| base == name)
            && object::annotation(pod, keys::EXCLUSIVE_TOPOLOGY).is_some()
            && !object::is_terminating(pod)
    };
    let mut found: Vec<Arc<Value>> = (lookup.pods)(namespace).into_iter().filter(is_it).collect();
    // one that has ended leads on, unless another has come in its place; upstream then waits until the first is deleted
    let lives = |pod: &Arc<Value>| !object::has_ended(pod);
    if found.iter().any(lives) {
        found.retain(lives);
    }
    let leader = match found.len() {
        1 => found.remove(0),
        count => {
            return Err(format!(
                "expected 1 leader pod ({name}), but got {count}. this is an expected, transient error"
            ));
        }
    };
    let owner = |pod: &Value| object::controller_of(pod).map(|owner| object::text(owner, "uid").to_owned());
    let follows = owner(pod).ok_or("follower pod has no owner reference")?;
    let leads = owner(&leader)
        .ok_or_else(|| format!("leader pod {:?} has no owner reference", object::meta(&leader, "name")))?;
    if follows != leads {
        return Err(format!("follower pod owner UID ({follows}) != leader pod owner UID ({leads})"));
    }
    Ok(leader)
}

/// The value of a node's topology label.
fn domain(node: &str, topology: &str, lookup: &Lookup<'_>) -> Result<String, String> {
    let found = (lookup.node)(node).ok_or_else(|| format!("nodes {node:?} not found"))?;
    let value = object::label(&found, topology).map(str::to_owned);
    value.ok_or_else(|| format!("node does not have topology label: {topology}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(index: &str, node: Option<&str>) -> Value {
        let mut pod = json!({
            "metadata": {
                "name": format!("js-w-0-{index}-abcde"),
                "labels": {keys::JOBSET_NAME: "js", keys::REPLICATED_JOB_NAME: "w", keys::JOB_INDEX: "0", keys::JOB_KEY: "k"},
                "annotations": {keys::JOBSET_NAME: "js", keys::EXCLUSIVE_TOPOLOGY: "rack", keys::COMPLETION_INDEX: index},
                "ownerReferences": [{"uid": "job", "controller": true}],
            },
            "spec": {"priority": 7},
        });
        if let Some(node) = node {
            pod["spec"]["nodeName"] = node.into();
        }
        pod
    }

    /// What becomes of a follower: its rack, or why it is refused.
    fn follow(pods: &[Value], node_labels: Value) -> Result<Value, String> {
        let node = Arc::new(json!({"metadata": {"name": "n", "labels": node_labels}}));
        let lookup = Lookup {
            pods: &|_| pods.iter().cloned().map(Arc::new).collect(),
            node: &|name| (name == "n").then(|| node.clone()),
        };
        let mut follower = pod("1", None);
        mutate(&mut follower, "ns", &lookup)?;
        validate_create(&follower, "ns", &lookup)?;
        assert_eq!(follower["metadata"]["labels"][keys::PRIORITY], "7");
        Ok(follower["spec"]["nodeSelector"]["rack"].clone())
    }

    #[test]
    fn followers_go_where_their_leader_is() {
        let rack = json!({"rack": "r7"});
        assert_eq!(follow(&[pod("0", Some("n"))], rack.clone()), Ok(json!("r7")));
        let ended = |phase: &str| {
            let mut leader = pod("0", Some("n"));
            leader["status"]["phase"] = phase.into();
            leader
        };
        assert_eq!(follow(&[ended("Succeeded")], rack.clone()), Ok(json!("r7")));
        assert_eq!(follow(&[ended("Failed"), pod("0", Some("n"))], rack.clone()), Ok(json!("r7")));
        let refused = Err("follower pod node selector not set".to_owned());
        assert_eq!(follow(&[ended("Failed"), ended("Failed")], rack.clone()), refused);
        assert_eq!(follow(&[pod("0", None)], rack.clone()), refused);
        assert_eq!(follow(&[], rack.clone()), refused);
        let mut foreign = pod("0", Some("n"));
        foreign["metadata"]["ownerReferences"][0]["uid"] = "other".into();
        assert_eq!(follow(&[foreign], rack), refused);
        let unlabelled = Err("node does not have topology label: rack".to_owned());
        assert_eq!(follow(&[pod("0", Some("n"))], json!({})), unlabelled);
    }

    #[test]
    fn leaders_keep_other_jobs_out() {
        let lookup = Lookup { pods: &|_| Vec::new(), node: &|_| None };
        let mut leader = pod("0", None);
        assert_eq!(mutate(&mut leader, "ns", &lookup), Ok(()));
        assert_eq!(validate_create(&leader, "ns", &lookup), Ok(()));
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let affinity = &leader["spec"]["affinity"];
        assert_eq!(affinity["podAffinity"][required][0]["topologyKey"], "rack");
        let expressions = &affinity["podAntiAffinity"][required][0]["labelSelector"]["matchExpressions"];
        assert_eq!(expressions[1], json!({"key": keys::JOB_KEY, "operator": "NotIn", "values": ["k"]}));
        assert_eq!(expressions[2]["values"], json!(["7"]));

        let mut arranged = pod("1", None);
        arranged["metadata"]["annotations"][keys::NODE_SELECTOR_STRATEGY] = "true".into();
        let before = arranged.clone();
        assert_eq!(mutate(&mut arranged, "ns", &lookup), Ok(()));
        assert_eq!(validate_create(&arranged, "ns", &lookup), Ok(()));
        assert_eq!(arranged, before);
    }
}
