//! Amounts of resources: what pods ask for, what nodes have, and the text in which both are shown.

use api::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

/// The extended resource by which pods ask for GPUs.
pub const GPU: &str = "nvidia.com/gpu";

/// Amounts by resource.
pub type Amounts = BTreeMap<String, Quantity>;

/// Amounts of a `ResourceList`; what cannot be read counts as nothing.
pub fn amounts(list: &Value) -> Amounts {
    let list = list.as_object().into_iter().flatten();
    list.filter_map(|(name, value)| Some((name.clone(), Quantity::from_json(value).ok()?))).collect()
}

/// Requests, with limits where there is no request.
pub fn requested(container: &Value) -> Amounts {
    let mut found = amounts(&container["resources"]["limits"]);
    found.extend(amounts(&container["resources"]["requests"]));
    found
}

/// An amount as people say it: `2 CPUs`, `7.7Gi of memory`, `0 GPUs`.
pub fn shown(resource: &str, amount: Quantity) -> String {
    let plural = |n: &str, one: &str| if n == "1" { format!("1 {one}") } else { format!("{n} {one}s") };
    match resource {
        "cpu" => plural(&amount.to_string(), "CPU"),
        "memory" => {
            let bytes = amount.value() as f64;
            match bytes / f64::from(1 << 30) {
                gib if gib >= 1.0 => format!("{gib:.1}Gi of memory"),
                gib => format!("{:.0}Mi of memory", gib * 1024.0),
            }
        }
        GPU => plural(&amount.to_string(), "GPU"),
        "pods" => plural(&amount.to_string(), "pod"),
        other => format!("{amount} of {other}"),
    }
}

/// Amounts as people say them, without the count of pods: `2 CPUs, 1 GPU`; empty without any.
pub fn all_shown(amounts: &Amounts) -> String {
    let counted = amounts.iter().filter(|(name, _)| name.as_str() != "pods");
    counted.map(|(name, amount)| shown(name, *amount)).collect::<Vec<_>>().join(", ")
}

/// What a pod takes from its node as long as it is there: its containers together, or its hungriest init container; and overhead.
pub fn of_pod(pod: &Value) -> Amounts {
    let spec = &pod["spec"];
    let containers = |list: &str| spec[list].as_array().into_iter().flatten();
    let mut total = Amounts::new();
    let sidecars = containers("initContainers").filter(|container| container["restartPolicy"] == "Always");
    for container in containers("containers").chain(sidecars) {
        add(&mut total, &requested(container));
    }
    for container in containers("initContainers") {
        for (name, amount) in requested(container) {
            let held = total.entry(name).or_insert(Quantity::ZERO);
            *held = (*held).max(amount);
        }
    }
    add(&mut total, &amounts(&spec["overhead"]));
    total.insert("pods".to_owned(), Quantity::units(1));
    total.retain(|_, amount| !amount.is_zero());
    total
}

pub fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let held = to.entry(name.clone()).or_insert(Quantity::ZERO);
        *held = held.plus(*amount);
    }
}

/// Takes away; what is not there counts as nothing.
pub fn take(from: &mut Amounts, less: &Amounts) {
    for (name, amount) in less {
        let held = from.entry(name.clone()).or_insert(Quantity::ZERO);
        *held = held.minus(*amount);
    }
}

/// The amount of a resource.
pub fn held(amounts: &Amounts, resource: &str) -> Quantity {
    amounts.get(resource).copied().unwrap_or(Quantity::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_ask_for_what_they_need_at_most() {
        let cpu = |amount: &str| json!({"resources": {"requests": {"cpu": amount}}});
        let mut sidecar = cpu("1");
        sidecar["restartPolicy"] = "Always".into();
        let cases = [
            (json!({"containers": [cpu("1"), {"resources": {"limits": {"cpu": "500m"}}}]}), "1500m"),
            (json!({"containers": [cpu("1")], "initContainers": [cpu("3")]}), "3"),
            (json!({"containers": [cpu("1")], "initContainers": [sidecar]}), "2"),
            (json!({"containers": [cpu("1")], "overhead": {"cpu": "100m"}}), "1100m"),
        ];
        for (spec, wanted) in cases {
            assert_eq!(held(&of_pod(&json!({"spec": spec})), "cpu").to_string(), wanted, "{spec}");
        }
        assert_eq!(shown("cpu", Quantity::units(1)), "1 CPU");
        assert_eq!(shown(GPU, Quantity::ZERO), "0 GPUs");
        assert_eq!(shown("memory", Quantity::bytes(512 << 20)), "512Mi of memory");
    }
}
