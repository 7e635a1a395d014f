//! What a pod asks of a node. Source of the rule: Kubernetes' documentation on resource requests, init and sidecar
//! containers, and pod overhead.

use api::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

/// Amounts by resource name (`cpu`, `memory`, `nvidia.com/gpu`, …).
pub(super) type Resources = BTreeMap<String, Quantity>;

/// A port of its node that a pod takes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HostPort {
    number: i64,
    protocol: String,
    /// Empty: on all addresses.
    address: String,
}

impl HostPort {
    /// Whether two pods cannot have them on one node.
    pub(super) fn clashes(&self, other: &Self) -> bool {
        let meet = self.address.is_empty() || other.address.is_empty() || self.address == other.address;
        meet && self.number == other.number && self.protocol == other.protocol
    }
}

/// The ports of its node that a pod takes: those of its containers and sidecars.
pub(super) fn host_ports(pod: &Value) -> Vec<HostPort> {
    let list = |name: &str| pod["spec"][name].as_array().into_iter().flatten();
    let sidecars = list("initContainers").filter(|container| container["restartPolicy"] == "Always");
    let ports = list("containers").chain(sidecars).flat_map(|c| c["ports"].as_array().into_iter().flatten());
    let taken = ports.filter_map(|port| {
        let number = port["hostPort"].as_i64().filter(|number| *number > 0)?;
        let protocol = port["protocol"].as_str().unwrap_or("TCP").to_owned();
        let address = port["hostIP"].as_str().filter(|address| *address != "0.0.0.0").unwrap_or_default();
        Some(HostPort { number, protocol, address: address.to_owned() })
    });
    taken.collect()
}

/// Adds amounts to others.
pub(super) fn add(to: &mut Resources, more: &Resources) {
    for (name, amount) in more {
        let held = to.entry(name.clone()).or_insert(Quantity::ZERO);
        *held = held.plus(*amount);
    }
}

/// The larger amount of each.
fn raise(to: &mut Resources, other: &Resources) {
    for (name, amount) in other {
        let held = to.entry(name.clone()).or_insert(Quantity::ZERO);
        if *amount > *held {
            *held = *amount;
        }
    }
}

/// Amounts of a `ResourceList`; what cannot be read counts as nothing.
pub(super) fn resources(list: Option<&Value>) -> Resources {
    let list = list.and_then(Value::as_object).into_iter().flatten();
    list.filter_map(|(name, value)| Some((name.clone(), Quantity::from_json(value).ok()?))).collect()
}

/// Requests, with limits where there is no request.
fn requested(holder: &Value) -> Resources {
    let mut amounts = resources(holder["resources"].get("limits"));
    amounts.extend(resources(holder["resources"].get("requests")));
    amounts
}

/// What the pod takes from its node as long as it is there: its containers and sidecars together, or its hungriest init
/// container with the sidecars started before, whichever is more; pod-level requests instead where there are some; and
/// overhead.
pub(super) fn of_pod(pod: &Value) -> Resources {
    let spec = &pod["spec"];
    let containers = |list: &str| spec[list].as_array().into_iter().flatten();
    let (mut sidecars, mut peak) = (Resources::new(), Resources::new());
    for container in containers("initContainers") {
        let mut needs = requested(container);
        if container["restartPolicy"] == "Always" {
            add(&mut sidecars, &needs);
            raise(&mut peak, &sidecars);
        } else {
            add(&mut needs, &sidecars);
            raise(&mut peak, &needs);
        }
    }
    let mut total = sidecars;
    for container in containers("containers") {
        add(&mut total, &requested(container));
    }
    raise(&mut total, &peak);
    total.extend(requested(spec));
    add(&mut total, &resources(spec.get("overhead")));
    total.retain(|_, amount| !amount.is_zero());
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_ask_for_what_they_need_at_most() {
        let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
        let cases = [
            (json!({"containers": [{"resources": cpu("1")}, {"resources": {"limits": {"cpu": "500m"}}}]}), "1500m"),
            (json!({"containers": [{"resources": cpu("1")}], "initContainers": [{"resources": cpu("3")}]}), "3"),
            (
                json!({"containers": [{"resources": cpu("1")}],
                    "initContainers": [{"resources": cpu("1"), "restartPolicy": "Always"}, {"resources": cpu("2")}]}),
                "3",
            ),
            (
                json!({"containers": [{"resources": cpu("1")}], "resources": cpu("4"), "overhead": {"cpu": "100m"}}),
                "4100m",
            ),
            (json!({"containers": [{"resources": cpu("0")}]}), "0"),
        ];
        for (spec, want) in cases {
            let found = of_pod(&json!({"spec": spec})).get("cpu").copied().unwrap_or(Quantity::ZERO);
            assert_eq!(found.to_string(), want, "{spec}");
        }
    }
}
