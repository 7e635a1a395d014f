//! The Node object: what the machine has, and that it is alive.

use crate::gpus::{self, Gpu};
use crate::host;
use crate::status::time;
use crate::wire::Isolation;
use api::node::{LIMITS, Limited, SSH_SESSIONS};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

/// Says how isolated pods are, and why not more.
const ISOLATION_ANNOTATION: &str = "trainyard.dev/isolation";

/// What the Node object is made of.
#[derive(Debug)]
pub struct Machine<'a> {
    pub name: &'a str,
    pub host_ip: Ipv4Addr,
    pub data: &'a Path,
    pub gpus: &'a [Gpu],
    /// How many of them others of this machine have for now: pods cannot have them.
    pub gpus_lent: usize,
    pub isolation: &'a Isolation,
    /// How limits of memory and processors are enforced.
    pub limits: &'a Limited,
    /// Resources by name, over what was found (`cpu: "64"` on a laptop that is to hold many small pods).
    pub capacity: &'a BTreeMap<String, String>,
    /// Beside those that tell what the machine is.
    pub labels: &'a BTreeMap<String, String>,
    /// Of effect `NoSchedule`: keys and values.
    pub taints: &'a BTreeMap<String, String>,
    pub pods_max: u32,
    /// How many sessions over SSH there are, where somebody looks.
    pub sessions: Option<usize>,
    /// The Kubernetes version that clients are told (`v1.36.3`).
    pub version: &'a str,
}

/// The whole object, status included.
pub fn node(machine: &Machine<'_>, now: Timestamp) -> Value {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let mut labels = json!({
        "kubernetes.io/hostname": machine.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": arch,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": arch,
    });
    if let Some(gpu) = machine.gpus.first() {
        labels["nvidia.com/gpu.count"] = json!(machine.gpus.len().to_string());
        labels["nvidia.com/gpu.present"] = json!("true");
        if !gpu.product.is_empty() {
            labels["nvidia.com/gpu.product"] = json!(label_value(&gpu.product));
            labels["nvidia.com/gpu.memory"] = json!(gpu.memory_mib.to_string());
        }
    }
    for (name, value) in machine.labels {
        labels[name] = json!(value);
    }
    let isolation = match machine.isolation {
        Isolation::Hosts { user_namespace: false } => "hosts".to_owned(),
        Isolation::Hosts { user_namespace: true } => "hosts, in user namespaces".to_owned(),
        Isolation::Plain { why } if why.is_empty() => "plain".to_owned(),
        Isolation::Plain { why } => format!("plain: {why}"),
    };
    let capacity = capacity(machine);
    let mut allocatable = capacity.clone();
    if machine.gpus_lent > 0 && !machine.capacity.contains_key(gpus::RESOURCE) {
        let left = machine.gpus.len().saturating_sub(machine.gpus_lent);
        allocatable.insert(gpus::RESOURCE.into(), json!(left.to_string()));
    }
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": machine.name,
            "labels": labels,
            "annotations": {ISOLATION_ANNOTATION: isolation, LIMITS: machine.limits.to_string()},
        },
        "status": {
            "capacity": capacity,
            "allocatable": allocatable,
            "conditions": conditions(machine.sessions, now),
            "addresses": [
                {"type": "InternalIP", "address": machine.host_ip.to_string()},
                {"type": "Hostname", "address": machine.name},
            ],
            "nodeInfo": {
                "machineID": read("/etc/machine-id"),
                "systemUUID": read("/sys/class/dmi/id/product_uuid"),
                "bootID": host::boot_id(),
                "kernelVersion": read("/proc/sys/kernel/osrelease"),
                "osImage": os_image(),
                "containerRuntimeVersion": format!("trainyard://{}", env!("CARGO_PKG_VERSION")),
                "kubeletVersion": machine.version,
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": arch,
            },
        },
    });
    if !machine.taints.is_empty() {
        let taint = |(key, value)| json!({"key": key, "value": value, "effect": "NoSchedule"});
        node["spec"]["taints"] = machine.taints.iter().map(taint).collect();
    }
    node
}

fn capacity(machine: &Machine<'_>) -> Map<String, Value> {
    let mut capacity = Map::new();
    capacity.insert("cpu".into(), json!(host::cpus().to_string()));
    capacity.insert("memory".into(), json!(format!("{}Ki", host::memory_bytes() / 1024)));
    capacity.insert("pods".into(), json!(machine.pods_max.to_string()));
    capacity.insert("ephemeral-storage".into(), json!(format!("{}Ki", disk_bytes(machine.data) / 1024)));
    capacity.insert("hugepages-1Gi".into(), json!("0"));
    capacity.insert("hugepages-2Mi".into(), json!("0"));
    if !machine.gpus.is_empty() {
        capacity.insert(gpus::RESOURCE.into(), json!(machine.gpus.len().to_string()));
    }
    capacity.extend(machine.capacity.iter().map(|(name, quantity)| (name.clone(), json!(quantity))));
    capacity
}

fn conditions(sessions: Option<usize>, now: Timestamp) -> Value {
    let condition = |kind: &str, is_true: bool, reason: &str, message: &str| {
        json!({
            "type": kind,
            "status": if is_true { "True" } else { "False" },
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": time(now),
            "lastTransitionTime": time(now),
        })
    };
    let mut all = vec![
        condition("MemoryPressure", false, "KubeletHasSufficientMemory", "the node has sufficient memory available"),
        condition("DiskPressure", false, "KubeletHasNoDiskPressure", "the node has no disk pressure"),
        condition("PIDPressure", false, "KubeletHasSufficientPID", "the node has sufficient PID available"),
        condition("Ready", true, "KubeletReady", "the node agent is running pods"),
    ];
    if let Some(sessions) = sessions {
        let (reason, message) = match sessions {
            0 => ("NobodyLoggedIn", "nobody is logged in over SSH".to_owned()),
            1 => ("LoggedIn", "1 terminal is open over SSH".to_owned()),
            many => ("LoggedIn", format!("{many} terminals are open over SSH")),
        };
        all.push(condition(SSH_SESSIONS, sessions > 0, reason, &message));
    }
    Value::Array(all)
}

/// Keeps the transition times of conditions that did not change.
pub fn keep_transitions(node: &mut Value, old: &Value) {
    let olds = old["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for condition in node["status"]["conditions"].as_array_mut().into_iter().flatten() {
        let same = olds.iter().find(|o| o["type"] == condition["type"] && o["status"] == condition["status"]);
        if let Some(since) = same.map(|o| o["lastTransitionTime"].clone()).filter(|t| !t.is_null()) {
            condition["lastTransitionTime"] = since;
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn os_image() -> String {
    let text = read("/etc/os-release");
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "Linux".to_owned(), |name| name.trim_matches('"').to_owned())
}

fn disk_bytes(path: &Path) -> u64 {
    nix::sys::statvfs::statvfs(path).map(|stat| stat.blocks() * stat.fragment_size()).unwrap_or(0)
}

/// A product's name as a label value: `NVIDIA H200` → `NVIDIA-H200`.
fn label_value(text: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let value: String = text.chars().map(fits).take(63).collect();
    value.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects() {
        let gpus = [Gpu { index: 0, product: "NVIDIA H200 (x)".into(), memory_mib: 7 }];
        let capacity = [("cpu".to_owned(), "64".to_owned())].into();
        let machine = Machine {
            name: "laptop",
            host_ip: Ipv4Addr::LOCALHOST,
            data: Path::new("/"),
            gpus: &gpus,
            gpus_lent: 0,
            isolation: &Isolation::Plain { why: "no".into() },
            limits: &Limited::without(&["memory", "cpu"], "no cgroup"),
            capacity: &capacity,
            labels: &[("l".to_owned(), "v".to_owned())].into(),
            taints: &[("t".to_owned(), "v".to_owned())].into(),
            pods_max: 500,
            sessions: Some(2),
            version: "v1.36.3",
        };
        let old = node(&machine, Timestamp::from_second(1).unwrap());
        let mut new = node(&machine, Timestamp::from_second(100).unwrap());
        keep_transitions(&mut new, &old);
        let ready = &new["status"]["conditions"][3];
        assert_eq!(ready["lastTransitionTime"], "1970-01-01T00:00:01Z");
        assert_eq!(ready["lastHeartbeatTime"], "1970-01-01T00:01:40Z");
        let sessions = &new["status"]["conditions"][4];
        assert_eq!((&sessions["type"], &sessions["status"]), (&json!("SSHSessions"), &json!("True")));
        assert_eq!(new["status"]["capacity"]["cpu"], "64");
        assert_eq!(new["status"]["allocatable"]["nvidia.com/gpu"], "1");
        let lent = node(&Machine { gpus_lent: 1, ..machine }, Timestamp::UNIX_EPOCH);
        let of_gpus = |what: &str| lent["status"][what]["nvidia.com/gpu"].clone();
        assert_eq!((of_gpus("capacity"), of_gpus("allocatable")), (json!("1"), json!("0")));
        assert_eq!(new["metadata"]["labels"]["l"], "v");
        assert_eq!(new["spec"]["taints"], json!([{"key": "t", "value": "v", "effect": "NoSchedule"}]));
        assert_eq!(new["metadata"]["labels"]["nvidia.com/gpu.product"], "NVIDIA-H200--x");
        let annotations =
            json!({"trainyard.dev/isolation": "plain: no", LIMITS: "memory watched, cpu not enforced: no cgroup"});
        assert_eq!(new["metadata"]["annotations"], annotations);
        assert_eq!(new["metadata"]["labels"]["l"], "v");
        assert_eq!(new["spec"]["taints"], json!([{"key": "t", "value": "v", "effect": "NoSchedule"}]));
    }
}
