//! Nodes: whether they are well, what they have, and which jobs hold how much of it. A pure function of objects.

use crate::amounts::{Amounts, add, amounts, of_pod};
use crate::job::job_of;
use crate::state::condition;
use api::object;
use api::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

/// A node, and what its pods hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeUse {
    pub name: String,
    /// `Ready`, `NotReady`; `Unknown` if the node does not report.
    pub state: &'static str,
    /// Since when, RFC 3339.
    pub since: String,
    /// Why it is not ready, or gets no new pods; empty: all is well.
    pub why: String,
    /// What pods can ask for.
    pub capacity: Amounts,
    /// What its pods have asked for.
    pub held: Amounts,
    /// Those who hold it, the most GPUs first, then the most processors.
    pub holders: Vec<NodeHolder>,
}

/// A job on a node, or a pod that belongs to none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeHolder {
    pub namespace: String,
    /// The job, by the shortest name that a command accepts; else the pod.
    pub name: String,
    pub is_job: bool,
    pub pods: usize,
    pub held: Amounts,
}

/// GPUs of all kinds of an amount: `nvidia.com/gpu`, `amd.com/gpu`.
pub fn gpus(of: &Amounts) -> Quantity {
    let each = of.iter().filter(|(name, _)| name.ends_with("/gpu"));
    each.fold(Quantity::ZERO, |sum, (_, amount)| sum.plus(*amount))
}

/// The nodes by name, with what the pods hold that are on them and have not ended.
pub fn in_use(nodes: &[Value], pods: &[Value]) -> Vec<NodeUse> {
    let mut holders: BTreeMap<&str, BTreeMap<(String, String), NodeHolder>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !object::has_ended(pod)) {
        let on = object::text(&pod["spec"], "nodeName");
        if on.is_empty() {
            continue;
        }
        let job = job_of(pod);
        let is_job = job.is_some();
        let name = job.unwrap_or_else(|| object::meta(pod, "name").to_owned());
        let namespace = object::meta(pod, "namespace").to_owned();
        let holder = holders.entry(on).or_default().entry((namespace.clone(), name.clone()));
        let holder = holder.or_insert_with(|| NodeHolder { namespace, name, is_job, ..NodeHolder::default() });
        holder.pods = holder.pods.saturating_add(1);
        add(&mut holder.held, &of_pod(pod));
    }
    let mut all: Vec<NodeUse> = nodes.iter().map(|node| node_use(node, &mut holders)).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn node_use(node: &Value, holders: &mut BTreeMap<&str, BTreeMap<(String, String), NodeHolder>>) -> NodeUse {
    let name = object::meta(node, "name").to_owned();
    let mut its: Vec<NodeHolder> = holders.remove(name.as_str()).unwrap_or_default().into_values().collect();
    let cpus = |holder: &NodeHolder| crate::amounts::held(&holder.held, "cpu");
    its.sort_by(|a, b| gpus(&b.held).cmp(&gpus(&a.held)).then_with(|| cpus(b).cmp(&cpus(a))));
    let mut held = Amounts::new();
    its.iter().for_each(|holder| add(&mut held, &holder.held));
    let ready = condition(node, "Ready");
    let (state, said) = match ready.map(|ready| object::text(ready, "status")) {
        Some("True") => ("Ready", ""),
        Some("False") => ("NotReady", ready.map_or("", |ready| object::text(ready, "message"))),
        _ => ("Unknown", ready.map_or("it has not registered yet", |ready| object::text(ready, "message"))),
    };
    let mut why = said.to_owned();
    if node["spec"]["unschedulable"] == true {
        let cordoned = "it is cordoned and gets no new pods";
        why = if why.is_empty() { cordoned.to_owned() } else { format!("{why}; {cordoned}") };
    }
    NodeUse {
        state,
        since: ready.map(|ready| object::text(ready, "lastTransitionTime").to_owned()).unwrap_or_default(),
        why,
        capacity: amounts(&node["status"]["allocatable"]),
        held,
        holders: its,
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, labels: Value, node: &str, cpu: &str, gpus: i64) -> Value {
        let requests = json!({"cpu": cpu, "nvidia.com/gpu": gpus});
        json!({
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {"nodeName": node, "containers": [{"resources": {"requests": requests}}]},
        })
    }

    #[test]
    fn a_node_says_who_holds_what() {
        let of = |job: &str| json!({"jobset.sigs.k8s.io/jobset-name": job});
        let allocatable = json!({"cpu": "8", "nvidia.com/gpu": 4});
        let conditions = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let nodes = [
            json!({"metadata": {"name": "b"}, "status": {"allocatable": allocatable, "conditions": conditions}}),
            json!({"metadata": {"name": "a"}, "spec": {"unschedulable": true}, "status": {"allocatable": allocatable}}),
        ];
        let mut ended = pod("ended", of("old"), "b", "1", 1);
        ended["status"] = json!({"phase": "Succeeded"});
        let pods = [
            pod("small-0", of("small"), "b", "3", 0),
            pod("big-0", of("big"), "b", "1", 1),
            pod("big-1", of("big"), "b", "1", 2),
            pod("alone", json!({}), "b", "500m", 0),
            pod("waits", of("waits"), "", "1", 1),
            ended,
        ];
        let told = in_use(&nodes, &pods);
        let [a, b] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!((a.name.as_str(), a.state, a.holders.len()), ("a", "Unknown", 0));
        assert_eq!(a.why, "it has not registered yet; it is cordoned and gets no new pods");
        assert_eq!((b.state, b.since.as_str(), b.why.as_str()), ("Ready", "2026-01-01T00:00:00Z", ""));
        let names: Vec<(&str, bool, usize)> =
            b.holders.iter().map(|holder| (holder.name.as_str(), holder.is_job, holder.pods)).collect();
        assert_eq!(names, [("big", true, 2), ("small", true, 1), ("alone", false, 1)]);
        assert_eq!((gpus(&b.held).value(), gpus(&b.capacity).value()), (3, 4));
        assert_eq!(crate::amounts::held(&b.held, "cpu").to_string(), "5500m");
    }
}
