//! Machines that are at hand: this one, the hosts of SSH pools, and nodes of Kubernetes clusters. What hosts have is known once a machine of a cluster has run on them.

use ::sky::pools;
use ::sky::resources::Resources;
use ::sky::value::{Map, Value};
use api::object;
use api::quantity::Quantity;
use api::sky::{Candidate, Place};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use managed::launch::{AtHand, Contexts};
use placement::{Catalogue, Cloud, FreeNode};
use std::path::Path;

/// Where SkyPilot's users list machines that they reach by SSH, below the home.
pub const POOLS: &str = ".sky/ssh_node_pools.yaml";
/// Clouds in the order in which they are tried; the others come behind them.
const FIRST: [Cloud; 5] = [Cloud::Aws, Cloud::Gcp, Cloud::Azure, Cloud::Lambda, Cloud::RunPod];
const GIB: f64 = 1_073_741_824.0;

/// The region of a pool, as task files have it.
pub fn region(pool: &str) -> String {
    format!("ssh-{pool}")
}

/// What files of this computer say: the machine itself, the pools of a home's file, and the contexts of the kubeconfig. `config`:
/// `~/.sky/config.yaml`. `own`: the kubeconfig of the control plane, whose cluster is none to make machines on.
pub fn observe(home: &Path, config: Option<&Map>, own: &Path, catalogue: &Catalogue) -> AtHand {
    let kubernetes = config.and_then(|config| config.get("kubernetes")).and_then(Value::as_map).cloned();
    let contexts = crate::contexts::read(kubernetes.as_ref(), own);
    let mut found = AtHand { nodes: vec![this_machine()], contexts, kubernetes, ..AtHand::default() };
    match std::fs::read_to_string(home.join(POOLS)) {
        Ok(text) => add_pools(&mut found, &text, home),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => found.unusable.push(("ssh".to_owned(), format!("~/{POOLS} cannot be read: {error}"))),
    }
    found.enabled = enabled(config, catalogue, &found);
    found
}

/// Adds pools by their names and numbers of hosts.
fn add_pools(found: &mut AtHand, text: &str, home: &Path) {
    let pools = match pools::parse(text, home, Path::is_file) {
        Ok(pools) => pools,
        Err(why) => {
            found.unusable.push(("ssh".to_owned(), format!("~/{POOLS}: {why}")));
            return;
        }
    };
    for (name, hosts) in pools {
        let hosts = match hosts {
            Ok(hosts) => hosts,
            Err(why) => {
                found.unusable.push((format!("ssh/{name}"), format!("~/{POOLS}: {why}")));
                continue;
            }
        };
        let unseen = FreeNode {
            cloud: Cloud::Ssh,
            region: region(&name),
            is_known: false,
            cpus: 0.0,
            memory: 0.0,
            accelerator: None,
        };
        found.nodes.extend(std::iter::repeat_n(unseen, hosts.len()));
        found.pools.push(name);
    }
}

/// Clouds that may be used: those of `allowed_clouds` in `~/.sky/config.yaml`, else those whose price lists are here, this machine, and
/// SSH pools and Kubernetes clusters where there are any.
fn enabled(config: Option<&Map>, catalogue: &Catalogue, found: &AtHand) -> Vec<Cloud> {
    if let Some(list) = config.and_then(|config| config.get("allowed_clouds")).and_then(Value::as_list) {
        return list.iter().filter_map(|name| Cloud::from_name(name.as_str()?)).collect();
    }
    let mut clouds: Vec<Cloud> = catalogue.clouds().filter(|cloud| !catalogue.offers(*cloud).is_empty()).collect();
    clouds.sort_by_key(|cloud| (FIRST.iter().position(|first| first == cloud).unwrap_or(FIRST.len()), *cloud));
    clouds.push(Cloud::Local);
    clouds.extend((!found.pools.is_empty()).then_some(Cloud::Ssh));
    if !found.contexts.all.is_empty() && !clouds.contains(&Cloud::Kubernetes) {
        clouds.push(Cloud::Kubernetes);
    }
    clouds
}

/// Adds what the clusters of Kubernetes have free that these alternatives may use.
pub async fn look_at_contexts(found: &mut AtHand, list: &[Resources]) {
    if !list.is_empty() && !Contexts::are_meant(list) {
        return;
    }
    found.contexts.narrow(list);
    for (context, nodes) in crate::contexts::look(&found.contexts).await {
        match nodes {
            Ok(nodes) => found.nodes.extend(nodes),
            Err(error) => found.unusable.push((format!("k8s/{context}"), api::error_chain(&error))),
        }
    }
}

/// Says of hosts what their Nodes say, where machines of clusters run on them.
///
/// # Errors
/// The control plane's answer.
pub async fn look_at_hosts(found: &mut AtHand, client: &Client, namespace: &str) -> Result<(), kube::Error> {
    if found.pools.is_empty() {
        return Ok(());
    }
    let resource =
        |gvk: &object::Gvk| ApiResource::from_gvk(&GroupVersionKind::gvk(&gvk.group, &gvk.version, &gvk.kind));
    let machines: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &resource(&api::sky::machine_gvk()));
    let nodes: Api<DynamicObject> = Api::all_with(client.clone(), &resource(&object::Gvk::new("", "v1", "Node")));
    let everything = ListParams::default();
    let (machines, nodes) = tokio::try_join!(machines.list(&everything), nodes.list(&everything))?;
    for machine in &machines {
        let Ok(candidate) = serde_json::from_value::<Candidate>(machine.data["spec"]["candidate"].clone()) else {
            continue;
        };
        let Place::Ssh { pool, .. } = candidate.place() else { continue };
        let pool = region(pool);
        let of_it = |node: &&DynamicObject| node.metadata.name.as_deref() == machine.data["status"]["node"].as_str();
        let Some(node) = nodes.iter().find(of_it) else { continue };
        if let Some(host) = found.nodes.iter_mut().find(|host| host.region == pool && !host.is_known) {
            let product = node.metadata.labels.as_ref().and_then(|all| all.get("nvidia.com/gpu.product"));
            *host = seen(pool, &node.data["status"]["allocatable"], product);
        }
    }
    Ok(())
}

/// A host, by what its Node can give.
fn seen(region: String, allocatable: &serde_json::Value, product: Option<&String>) -> FreeNode {
    let quantity = |name: &str| Quantity::from_json(&allocatable[name]).ok();
    #[expect(clippy::cast_precision_loss, reason = "sizes of one machine")]
    let amount = |name: &str| quantity(name).map_or(0.0, |quantity| quantity.milli_value() as f64 / 1000.0);
    #[expect(clippy::cast_precision_loss, reason = "sizes of one machine")]
    let memory = quantity("memory").map_or(0.0, |quantity| quantity.value() as f64);
    let gpus = amount("nvidia.com/gpu");
    FreeNode {
        cloud: Cloud::Ssh,
        region,
        is_known: true,
        cpus: amount("cpu"),
        memory: memory / GIB,
        accelerator: product.filter(|_| gpus > 0.0).map(|product| (product.clone(), gpus)),
    }
}

/// This machine: processors, memory and GPUs.
fn this_machine() -> FreeNode {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| kibibytes(&text)).unwrap_or(0.0);
    let gpus = gpus();
    #[expect(clippy::cast_precision_loss, reason = "sizes of one machine")]
    FreeNode {
        cloud: Cloud::Local,
        region: String::new(),
        is_known: true,
        cpus: cpus as f64,
        memory: memory / (1024.0 * 1024.0),
        accelerator: gpus.first().map(|name| (name.clone(), gpus.len() as f64)),
    }
}

/// The total of `/proc/meminfo`.
fn kibibytes(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// What the GPUs of this machine call themselves, by the driver's files, else by `nvidia-smi`.
fn gpus() -> Vec<String> {
    let model = |text: String| text.lines().find_map(|line| Some(line.strip_prefix("Model:")?.trim().to_owned()));
    let folders = std::fs::read_dir("/proc/driver/nvidia/gpus").into_iter().flatten().flatten();
    let found: Vec<String> =
        folders.filter_map(|folder| model(std::fs::read_to_string(folder.path().join("information")).ok()?)).collect();
    if !found.is_empty() {
        return found;
    }
    let asked = std::process::Command::new("nvidia-smi").args(["--query-gpu=name", "--format=csv,noheader"]).output();
    let answer = asked.ok().filter(|answer| answer.status.success()).map(|answer| answer.stdout).unwrap_or_default();
    String::from_utf8_lossy(&answer)
        .lines()
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_counted_and_faults_have_names() {
        let of = |text: &str| {
            let mut found = AtHand::default();
            add_pools(&mut found, text, Path::new("/home/me"));
            found
        };
        let found = of("a:\n  hosts: [x, {ip: 10.0.0.1}]\ny:\n  hosts: [1e3]\nb: {}\n");
        assert_eq!(found.pools, ["a", "y"]);
        assert_eq!(
            found.nodes.iter().map(|node| (node.region.as_str(), node.is_known)).collect::<Vec<_>>(),
            [("ssh-a", false), ("ssh-a", false), ("ssh-y", false)]
        );
        assert!(matches!(found.unusable.as_slice(), [(place, why)] if place == "ssh/b" && why.contains("no hosts")));
        let found = of(
            "z: {hosts: [w]}\nb: {user: u, hosts: [x, {ip: y}, {ip: x}]}\na: {hosts: [{ip: q, user: u}]}\nc: {user: u, hosts: [q]}\n",
        );
        assert_eq!(found.pools, ["a", "z"]);
        assert_eq!(found.nodes.len(), 2);
        let why: Vec<String> = found.unusable.iter().map(|(place, why)| format!("{place}: {why}")).collect();
        assert!(
            matches!(why.as_slice(), [b, c] if b.contains("ssh/b: ") && b.contains("host \"x\" is already in pool \"b\"")
            && c.contains("ssh/c: ") && c.contains("host \"q\" is already in pool \"a\"")),
            "{why:?}"
        );
        for wrong in ["- x", "a: ["] {
            let found = of(wrong);
            assert!(found.pools.is_empty() && found.unusable.len() == 1, "{wrong}");
        }
        assert_eq!(of("# none yet\n"), AtHand::default());
    }

    #[test]
    fn hosts_have_what_their_nodes_can_give() {
        let allocatable = serde_json::json!({"cpu": "7500m", "memory": "16Gi", "nvidia.com/gpu": "2"});
        let node = seen("ssh-a".into(), &allocatable, Some(&"NVIDIA-L4".to_owned()));
        assert_eq!((node.cpus, node.memory, node.accelerator), (7.5, 16.0, Some(("NVIDIA-L4".to_owned(), 2.0))));
        assert_eq!(kibibytes("MemFree: 1 kB\nMemTotal:  2048 kB\n"), Some(2048.0));
    }
}
