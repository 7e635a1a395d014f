//! The GPUs of existing machines, and which of them are free, for `gpus list`. Nothing is started to find out.

use crate::Sky;
use api::sky::{Candidate, Place};
use kube::api::{DynamicObject, ListParams};
use managed::inventory::Free;
use offers::{AtHand, region};
use offers::{inventory, inventory_of};
use placement::Cloud;
use sky::console::Host;

/// Why a host of a pool gives no facts about itself.
const UNSEEN: &str = "Unknown until a cluster has run there";

fn host(cloud: Cloud, place: &str, free: Free) -> Host {
    let (cpus, memory) = free.all;
    Host {
        cloud,
        place: place.to_owned(),
        node: free.node,
        cpus: Some((free.cpus, cpus)),
        memory: Some((free.memory, memory)),
        gpus: free.gpus.map(|gpus| (gpus.product, gpus.free, gpus.all)),
        unfit: free.unfit,
    }
}

/// This machine, the contexts of the kubeconfig and the pools; `control_plane`: the one that runs, if any. A place that cannot be asked is
/// skipped, and `tell` receives the reason.
pub async fn hosts(at_hand: &AtHand, control_plane: Option<&Sky>, tell: &(dyn Fn(&str) + Sync)) -> Vec<Host> {
    let mut all = Vec::new();
    let own = match control_plane {
        Some(sky) => inventory(&sky.client).await.unwrap_or_default(),
        None => Vec::new(),
    };
    all.extend(this_machine(at_hand, own.iter().find(|node| !node.is_of_cluster).cloned()));
    for (context, found) in inventory_of(&at_hand.contexts).await {
        match found {
            Ok(nodes) => all.extend(nodes.into_iter().map(|node| host(Cloud::Kubernetes, &context, node))),
            Err(error) => tell(&format!("The nodes of {context} are left out: {}", api::error_chain(&error))),
        }
    }
    let machines = match control_plane {
        Some(sky) => sky.machines().list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default(),
        None => Vec::new(),
    };
    for pool in &at_hand.pools {
        let is_of_it = |one: &&DynamicObject| {
            let candidate = serde_json::from_value::<Candidate>(one.data["spec"]["candidate"].clone());
            let pool = region(pool);
            candidate.is_ok_and(|one| matches!(one.place(), Place::Ssh { pool: of, .. } if of == pool))
        };
        let of_it = machines.iter().filter(is_of_it);
        let names = of_it.filter_map(|one| one.data["status"]["node"].as_str());
        let seen: Vec<Host> = names
            .filter_map(|name| own.iter().find(|node| node.node == name))
            // one cluster has all of it
            .map(|node| {
                let mut host = host(Cloud::Ssh, pool, node.clone());
                host.unfit.clear();
                host.gpus = host.gpus.map(|(name, _, all)| (name, 0.0, all));
                host
            })
            .collect();
        let hosts = at_hand.nodes.iter().filter(|node| node.cloud == Cloud::Ssh && node.region == region(pool)).count();
        let unseen = hosts.saturating_sub(seen.len());
        all.extend(seen);
        if unseen > 0 {
            let node = if unseen == 1 { "1 host".to_owned() } else { format!("{unseen} hosts") };
            let (place, unfit) = (pool.clone(), UNSEEN.to_owned());
            all.push(Host { cloud: Cloud::Ssh, place, node, cpus: None, memory: None, gpus: None, unfit });
        }
    }
    all
}

/// This machine: its Node says what is free if the control plane runs, else all of it is free. GPUs of clusters are not free.
fn this_machine(at_hand: &AtHand, node: Option<Free>) -> Option<Host> {
    let here = at_hand.nodes.iter().find(|node| node.cloud == Cloud::Local)?;
    let gpus = here.accelerator.clone();
    Some(match node {
        Some(node) => {
            let free = node.gpus.as_ref().map_or(0.0, |gpus| gpus.free);
            let gpus = gpus.map(|(name, all)| (name, free, all));
            Host { gpus, ..host(Cloud::Local, "", node) }
        }
        None => Host {
            cloud: Cloud::Local,
            place: String::new(),
            node: nix::unistd::gethostname()
                .map_or_else(|_| "-".to_owned(), |name| name.to_string_lossy().into_owned()),
            cpus: Some((here.cpus, here.cpus)),
            memory: Some((here.memory, here.memory)),
            gpus: gpus.map(|(name, all)| (name, all, all)),
            unfit: String::new(),
        },
    })
}
