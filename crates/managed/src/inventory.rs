//! What the nodes of a Kubernetes cluster have free, by their objects and those of the pods on them.

use api::object;
use api::quantity::Quantity;
use api::sky::keys;
use serde_json::Value;

/// Labels that say what a node's GPUs are, in the order in which they are believed.
pub const PRODUCTS: [&str; 6] = [
    "skypilot.co/accelerator",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "nvidia.com/gpu.product",
    "gpu.nvidia.com/class",
    "nebius.com/gpu-name",
];
/// Resources that are GPUs.
pub const GPUS: [&str; 2] = ["nvidia.com/gpu", "amd.com/gpu"];

const GIB: f64 = 1_073_741_824.0;

/// GPUs of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpus {
    /// The resource by which they are asked for.
    pub resource: String,
    /// The label that says what they are, and its value.
    pub label: String,
    pub product: String,
    /// How many are free, and how many pods could have if nobody had any.
    pub free: f64,
    pub all: f64,
}

/// What is left of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Free {
    pub node: String,
    pub cpus: f64,
    /// GiB.
    pub memory: f64,
    pub gpus: Option<Gpus>,
    /// Processors and GiB that pods could have if nobody had any.
    pub all: (f64, f64),
    /// Why pods that tolerate nothing but taints of GPUs cannot go there, in SkyPilot's words; empty where they can.
    pub unfit: String,
    /// Whether it is a machine of one of our clusters.
    pub is_of_cluster: bool,
}

#[expect(clippy::cast_precision_loss, reason = "sizes of machines")]
fn amount(amounts: &Value, name: &str) -> f64 {
    Quantity::from_json(&amounts[name]).map_or(0.0, |quantity| quantity.milli_value() as f64 / 1000.0)
}

/// What a pod asks for of a resource: its containers together, or the largest of those that run before them.
fn asked(pod: &Value, name: &str) -> f64 {
    let of = |container: &Value| {
        let resources = &container["resources"];
        let from = if resources["requests"][name].is_null() { "limits" } else { "requests" };
        amount(&resources[from], name)
    };
    let list = |key: &str| pod["spec"][key].as_array().map_or(&[][..], Vec::as_slice);
    let together: f64 = list("containers").iter().map(of).sum();
    let before = list("initContainers").iter().map(of).fold(0.0, f64::max);
    together.max(before)
}

/// Why pods that tolerate nothing but taints of GPUs cannot go there: `NotReady, Cordoned, NoSchedule Taint [a, b]`.
fn unfit(node: &Value) -> String {
    let conditions = node["status"]["conditions"].as_array();
    let is_ready = conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True");
    let mut all = Vec::new();
    if !is_ready {
        all.push("NotReady".to_owned());
    }
    if node["spec"]["unschedulable"] == true {
        all.push("Cordoned".to_owned());
    }
    let taints = node["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
    for effect in ["NoSchedule", "NoExecute"] {
        let of_it = taints.iter().filter(|taint| taint["effect"] == effect);
        let keys = of_it.map(|taint| object::text(taint, "key")).filter(|key| !GPUS.contains(key)).collect::<Vec<_>>();
        if !keys.is_empty() {
            all.push(format!("{effect} Taint [{}]", keys.join(", ")));
        }
    }
    all.join(", ")
}

/// What is free on each node that takes pods, in their order.
pub fn free(nodes: &[Value], pods: &[Value]) -> Vec<Free> {
    let mut all = every(nodes, pods);
    all.retain(|node| node.unfit.is_empty());
    all
}

/// The same of every node, whether it takes pods or not.
pub fn every(nodes: &[Value], pods: &[Value]) -> Vec<Free> {
    let counts = |pod: &&Value| !object::has_ended(pod);
    let of = |node: &Value| {
        let name = object::meta(node, "name");
        let here = pods.iter().filter(counts).filter(|pod| pod["spec"]["nodeName"] == name);
        let allocatable = &node["status"]["allocatable"];
        let left = |resource: &str| {
            let used: f64 = here.clone().map(|pod| asked(pod, resource)).sum();
            (amount(allocatable, resource) - used).max(0.0)
        };
        let label = |key: &&str| Some(((*key).to_owned(), object::label(node, key)?.to_owned()));
        let resource = GPUS.iter().find(|gpu| amount(allocatable, gpu) > 0.0);
        let gpus = resource.and_then(|resource| {
            let (label, product) = PRODUCTS.iter().find_map(label)?;
            let all = amount(allocatable, resource);
            Some(Gpus { resource: (*resource).to_owned(), label, product, free: left(resource), all })
        });
        Free {
            node: name.to_owned(),
            cpus: left("cpu"),
            memory: left("memory") / GIB,
            gpus,
            all: (amount(allocatable, "cpu"), amount(allocatable, "memory") / GIB),
            unfit: unfit(node),
            is_of_cluster: object::label(node, keys::CLUSTER).is_some(),
        }
    };
    nodes.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_asked_for_is_not_free() {
        let node = |name: &str, spec: Value| {
            json!({
                "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "NVIDIA-L4"}}, "spec": spec,
                "status": {
                    "allocatable": {"cpu": "7500m", "memory": "16Gi", "nvidia.com/gpu": "2"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            })
        };
        let taint = |key: &str| json!({"taints": [{"key": key, "effect": "NoSchedule"}]});
        let mut lost = node("lost", json!({}));
        lost["status"]["conditions"][0]["status"] = "Unknown".into();
        let mut nodes = [
            node("a", taint("nvidia.com/gpu")),
            node("b", taint("mine")),
            node("c", json!({"unschedulable": true})),
            lost,
        ];
        let pod = |node: &str, phase: &str| {
            json!({
                "spec": {
                    "nodeName": node,
                    "containers": [{"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 1}}}],
                    "initContainers": [{"resources": {"requests": {"cpu": "2"}}}],
                },
                "status": {"phase": phase},
            })
        };
        let pods = [pod("a", "Running"), pod("a", "Succeeded"), pod("b", "Running")];
        let gpus = Gpus {
            resource: "nvidia.com/gpu".into(),
            label: "nvidia.com/gpu.product".into(),
            product: "NVIDIA-L4".into(),
            free: 1.0,
            all: 2.0,
        };
        let (node, unfit) = ("a".to_owned(), String::new());
        let left =
            Free { node, cpus: 5.5, memory: 15.0, gpus: Some(gpus), all: (7.5, 16.0), unfit, is_of_cluster: false };
        assert_eq!(free(&nodes, &pods), [left]);
        nodes[0]["metadata"]["labels"][keys::CLUSTER] = "dev".into();
        assert!(free(&nodes, &pods)[0].is_of_cluster);
        let words: Vec<String> = every(&nodes, &pods).into_iter().map(|node| node.unfit).collect();
        assert_eq!(words, ["", "NoSchedule Taint [mine]", "Cordoned", "NotReady"]);
    }
}
