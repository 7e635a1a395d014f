//! Resources of pods: what one requests, and how many devices a node has.
//! Source: upstream's `pkg/runtime/runtime.go`.

use crate::job::list;
use api::object;
use api::quantity::Quantity;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Amounts by resource name.
pub type ResourceList = BTreeMap<String, Quantity>;

/// Resources that a pod may request as a whole, beside hugepages.
const POD_LEVEL: [&str; 2] = ["cpu", "memory"];

/// Rewrites a quantity in canonical form; leaves what is none alone.
pub fn canonical(value: &mut Value) {
    if let Ok(quantity) = Quantity::from_json(value) {
        *value = json!(quantity.to_string());
    }
}

/// A list of amounts as JSON, canonical.
pub fn render(amounts: &ResourceList) -> Value {
    amounts.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string()))).collect()
}

/// Adds so many times `other` to `sum`.
pub fn add(sum: &mut ResourceList, other: &ResourceList, count: i64) {
    for (name, amount) in other {
        let slot = sum.entry(name.clone()).or_insert(Quantity::ZERO);
        *slot = slot.plus(amount.times(count));
    }
}

/// What the scheduler takes a pod of this spec to request: the sum over its containers and sidecars or, where that is
/// more, the largest init container with the sidecars that run beside it; the pod's own requests in place of the sum where
/// it has any; its overhead on top. Limits count for nothing: nobody has made requests of them at this point.
pub fn pod_requests(pod: &Value) -> ResourceList {
    let mut total = ResourceList::new();
    for container in list(pod, "containers") {
        add(&mut total, &requests(container), 1);
    }
    let mut sidecars = ResourceList::new();
    let mut peak = ResourceList::new();
    for container in list(pod, "initContainers") {
        let own = requests(container);
        let mut now = sidecars.clone();
        add(&mut now, &own, 1);
        if object::text(container, "restartPolicy") == "Always" {
            add(&mut total, &own, 1);
            sidecars = now.clone();
        }
        raise(&mut peak, &now);
    }
    raise(&mut total, &peak);
    for (name, amount) in requests(pod) {
        if POD_LEVEL.contains(&name.as_str()) || name.starts_with("hugepages-") {
            total.insert(name, amount);
        }
    }
    add(&mut total, &amounts(pod.get("overhead")), 1);
    total
}

/// GPUs among these resource requirements: the first request whose name contains `gpu`, else the first such limit; rounded
/// up. The schema's maps have no order, so "first" is by name.
// Q-23 (kept): MIG slices, DRA claims and accelerators of other names are not counted; recordings and Kueue agree on it.
pub fn gpu_count(resources: &Value) -> i64 {
    let count = |member: &str| {
        amounts(resources.get(member)).into_iter().find(|(name, _)| is_gpu(name)).map_or(0, |(_, q)| q.value())
    };
    match count("requests") {
        0 => count("limits"),
        gpus => gpus,
    }
}

/// Whether these resource requirements speak about GPUs at all, if only to ask for none.
pub fn names_gpu(resources: &Value) -> bool {
    ["requests", "limits"].iter().any(|m| amounts(resources.get(*m)).keys().any(|name| is_gpu(name)))
}

fn is_gpu(name: &str) -> bool {
    name.to_ascii_lowercase().contains("gpu")
}

/// CPUs among these resource requirements: requested, else the limit; rounded up.
pub fn cpu_count(resources: &Value) -> i64 {
    let count = |member: &str| amounts(resources.get(member)).get("cpu").map_or(0, |q| q.value());
    match count("requests") {
        0 => count("limits"),
        cpus => cpus,
    }
}

fn requests(holder: &Value) -> ResourceList {
    amounts(holder.pointer("/resources/requests"))
}

fn amounts(map: Option<&Value>) -> ResourceList {
    let map = map.and_then(Value::as_object).into_iter().flatten();
    map.filter_map(|(name, value)| Some((name.clone(), Quantity::from_json(value).ok()?))).collect()
}

fn raise(peak: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        let slot = peak.entry(name.clone()).or_insert(Quantity::ZERO);
        *slot = (*slot).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_request_what_the_scheduler_counts() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        let cases = [
            (json!({"containers": [container("1"), container("500m")]}), "1500m"),
            (json!({"containers": [container("1")], "initContainers": [container("3")]}), "3"),
            (json!({"containers": [container("1")], "initContainers": [sidecar("2"), container("3")]}), "5"),
            (json!({"containers": [container("4")], "initContainers": [sidecar("2"), container("3")]}), "6"),
            (json!({"containers": [container("4")], "resources": {"requests": {"cpu": "10", "x": 1}}}), "10"),
            (json!({"containers": [container("4")], "overhead": {"cpu": "250m"}}), "4250m"),
        ];
        for (pod, expected) in cases {
            assert_eq!(render(&pod_requests(&pod)), json!({"cpu": expected}), "{pod}");
        }
    }

    #[test]
    fn devices_are_counted_by_request_then_limit() {
        assert_eq!(gpu_count(&json!({"limits": {"nvidia.com/gpu": 4}})), 4);
        assert_eq!(gpu_count(&json!({"requests": {"example.com/GPU": "2"}, "limits": {"nvidia.com/gpu": 4}})), 2);
        assert_eq!(gpu_count(&json!({"limits": {"google.com/tpu": 4}})), 0);
        assert_eq!(cpu_count(&json!({"limits": {"cpu": "2500m"}})), 3);
        assert_eq!(cpu_count(&json!({"limits": {"cpu": 4}, "requests": {"cpu": "700m"}})), 1);
    }
}
