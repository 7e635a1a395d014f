//! The downward API: a pod's own fields and its containers' resources, as text.

use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use std::collections::BTreeMap;

/// What a pod can be told about itself beside its own object.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub pod_ip: String,
    pub host_ip: String,
    /// What stands in for limits that a container does not have: the node's.
    pub node_cpu_milli: i64,
    pub node_memory_bytes: i64,
}

/// The value of a field path (`metadata.labels['a']`, `status.podIP`); `None` if there is no such field.
pub fn field(pod: &Pod, facts: &Facts, path: &str) -> Option<String> {
    let spec = pod.spec.as_ref();
    let text = |value: Option<&String>| Some(value.cloned().unwrap_or_default());
    match path {
        "metadata.name" => text(pod.metadata.name.as_ref()),
        "metadata.namespace" => text(pod.metadata.namespace.as_ref()),
        "metadata.uid" => text(pod.metadata.uid.as_ref()),
        "metadata.labels" => Some(listing(pod.metadata.labels.as_ref())),
        "metadata.annotations" => Some(listing(pod.metadata.annotations.as_ref())),
        "spec.nodeName" => text(spec.and_then(|s| s.node_name.as_ref())),
        "spec.serviceAccountName" => text(spec.and_then(|s| s.service_account_name.as_ref())),
        "status.podIP" | "status.podIPs" => Some(facts.pod_ip.clone()),
        "status.hostIP" | "status.hostIPs" => Some(facts.host_ip.clone()),
        _ => {
            let (map, key) = path.strip_suffix("']")?.split_once("['")?;
            let map = match map {
                "metadata.labels" => pod.metadata.labels.as_ref(),
                "metadata.annotations" => pod.metadata.annotations.as_ref(),
                _ => return None,
            };
            text(map.and_then(|m| m.get(key)))
        }
    }
}

/// `key="value"` lines, as the downward API writes maps.
fn listing(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> = map.into_iter().flatten().map(|(key, value)| format!("{key}={value:?}")).collect();
    lines.join("\n")
}

/// A container's limit or request (`limits.cpu`), divided and rounded up; `None` if there is no such resource.
pub fn resource(container: &Container, facts: &Facts, selector: &ResourceFieldSelector) -> Option<String> {
    let (kind, name) = selector.resource.split_once('.')?;
    let resources = container.resources.as_ref();
    let limit = resources.and_then(|r| r.limits.as_ref()).and_then(|l| l.get(name));
    let request = resources.and_then(|r| r.requests.as_ref()).and_then(|l| l.get(name));
    let quantity = match kind {
        "limits" => limit,
        "requests" => request,
        _ => return None,
    };
    let milli = match (quantity, kind, name) {
        (Some(quantity), _, _) => Quantity::parse(&quantity.0).ok()?.milli_value(),
        (None, "limits", "cpu") => facts.node_cpu_milli,
        (None, "limits", "memory") => facts.node_memory_bytes * 1000,
        (None, _, _) => 0,
    };
    let divisor = selector.divisor.as_ref().and_then(|d| Quantity::parse(&d.0).ok()).map(Quantity::milli_value);
    let divisor = divisor.filter(|d| *d > 0).unwrap_or(1000);
    Some((milli / divisor + i64::from(milli % divisor > 0)).to_string())
}
