//! `sky check`: where machines can be had, and why not elsewhere.

use placement::{Cloud, FreeNode};
use serde_json::{Value, json};

use super::{Circumstances, Printed, Tried, table};
use crate::commands::Call;

pub(super) fn check(call: &Call, world: &Circumstances<'_>) -> Printed {
    let mut printed = Printed::default();
    let mut asked: Vec<(Cloud, Option<&str>)> = Vec::new();
    for name in call.values("infra_list") {
        let (cloud, place) = name.split_once('/').map_or((name.as_str(), None), |(cloud, place)| (cloud, Some(place)));
        let Some(cloud) = Cloud::from_name(cloud) else {
            return printed.fail(1, format!("ValueError: There is no cloud {name}: `sky check` alone lists them."));
        };
        if let (Cloud::Ssh, Some(pool)) = (cloud, place)
            && !world.pools.iter().any(|known| known == pool)
        {
            return printed.fail(
                1,
                format!(
                    "ValueError: There is no pool {pool} in ~/.sky/ssh_node_pools.yaml: `sky check ssh` lists them."
                ),
            );
        }
        asked.push((cloud, place));
    }
    let is_asked = |cloud: Cloud, place: Option<&str>| {
        let same = |(one, other): &(Cloud, Option<&str>)| {
            *one == cloud && (other.is_none() || place.is_none() || *other == place)
        };
        asked.is_empty() || asked.iter().any(same)
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |infra: String, usable: bool, why: String| {
        rows.push(vec![infra, if usable { "yes" } else { "no" }.to_owned(), why]);
    };
    let tried = |infra: &str| world.tried.iter().find(|one| one.place == infra);
    let is_enabled = |cloud| world.enabled.contains(&cloud);
    let not_allowed = |cloud: Cloud| format!("`allowed_clouds` in ~/.sky/config.yaml lacks {}", cloud.name());
    if is_asked(Cloud::Local, None) {
        let here = world.nodes.iter().find(|node| node.cloud == Cloud::Local);
        let has = match (is_enabled(Cloud::Local), here) {
            (false, _) => Err(not_allowed(Cloud::Local)),
            (true, None) => Err("what this machine has is not known".to_owned()),
            (true, Some(node)) => Ok(size(node)),
        };
        row("local".to_owned(), has.is_ok(), has.unwrap_or_else(|why| why));
    }
    for pool in world.pools.iter().filter(|pool| is_asked(Cloud::Ssh, Some(pool))) {
        let hosts: Vec<&FreeNode> =
            world.nodes.iter().filter(|node| node.cloud == Cloud::Ssh && super::pool(&node.region) == pool).collect();
        let known: Vec<String> = hosts.iter().filter(|node| node.is_known).map(|node| size(node)).collect();
        let plural = if hosts.len() == 1 { "" } else { "s" };
        let seen = if known.is_empty() { String::new() } else { format!(" (seen: {})", known.join("; ")) };
        let place = format!("ssh/{pool}");
        let (is_usable, why) = match (is_enabled(Cloud::Ssh), tried(&place)) {
            (false, _) => (false, not_allowed(Cloud::Ssh)),
            (true, None) => (true, format!("{} host{plural}{seen}", hosts.len())),
            (true, Some(Tried { said, is_usable: true, .. })) => (true, format!("{said}{seen}")),
            (true, Some(Tried { said, is_usable: false, .. })) => (false, said.clone()),
        };
        row(place, is_usable, why);
    }
    for context in world.contexts.iter().filter(|context| is_asked(Cloud::Kubernetes, Some(context))) {
        let nodes: Vec<&FreeNode> =
            world.nodes.iter().filter(|node| node.cloud == Cloud::Kubernetes && node.region == *context).collect();
        let free: Vec<String> = nodes.iter().map(|node| size(node)).collect();
        let place = format!("k8s/{context}");
        match (is_enabled(Cloud::Kubernetes), world.unusable.iter().any(|(infra, _)| *infra == place)) {
            (false, _) => row(place, false, not_allowed(Cloud::Kubernetes)),
            (true, true) => {}
            (true, false) if nodes.is_empty() => {
                row(
                    place,
                    false,
                    "it is not the current context, nor one of allowed_contexts, or no node takes pods".into(),
                );
            }
            (true, false) => {
                let free = format!("free on its nodes: {}", free.join("; "));
                let (is_usable, why) = match tried(&place) {
                    None => (true, free),
                    Some(Tried { said, is_usable: true, .. }) => (true, format!("{said}; {free}")),
                    Some(Tried { said, is_usable: false, .. }) => (false, said.clone()),
                };
                row(place, is_usable, why);
            }
        }
    }
    for (infra, why) in world.unusable {
        let cloud = infra.split('/').next().and_then(Cloud::from_name);
        if cloud.is_none_or(|cloud| is_asked(cloud, None)) {
            row(infra.clone(), false, why.clone());
        }
    }
    let listed = Cloud::ALL.iter().copied().filter(|cloud| !world.makes.contains(cloud));
    for cloud in listed {
        let offers = world.catalogue.offers(cloud).len();
        if asked.is_empty() && offers == 0 || !is_asked(cloud, None) {
            continue;
        }
        let prices = match (offers, is_enabled(cloud)) {
            (0, _) => "no price list of it is here (`sky catalog import`)".to_owned(),
            (_, false) => not_allowed(cloud),
            (offers, true) => format!("its {offers} offers are shown"),
        };
        row(cloud.name().to_owned(), false, format!("no machines are made there yet; {prices}"));
    }
    if asked.iter().any(|(cloud, _)| *cloud == Cloud::Ssh)
        && !rows.iter().any(|row| row.first().is_some_and(|name| name.starts_with("ssh")))
    {
        rows.push(vec!["ssh".into(), "no".into(), "~/.sky/ssh_node_pools.yaml names no pool".into()]);
    }
    if call.value("output_format") == Some("json") {
        let record = |row: &Vec<String>| {
            let cell = |at: usize| row.get(at).map_or("", String::as_str);
            json!({"infra": cell(0), "usable": cell(1) == "yes", "why": cell(2)})
        };
        let records: Vec<Value> = rows.iter().map(record).collect();
        printed.line(serde_json::to_string_pretty(&records).unwrap_or_default());
        return printed;
    }
    printed.line(table::plain(&["INFRA", "USABLE", "WHY"], &rows));
    if Cloud::ALL.iter().all(|cloud| world.catalogue.offers(*cloud).is_empty()) {
        printed.line(format!(
            "\nNo price list is in {}: `sky catalog import` says what to fetch.",
            world.catalogue_folder
        ));
    }
    printed
}

/// `8 CPUs, 64 GiB, NVIDIA L4:2`.
fn size(node: &FreeNode) -> String {
    let gpus = node.accelerator.as_ref().map(|(name, count)| format!(", {name}:{count}")).unwrap_or_default();
    format!("{} CPUs, {:.0} GiB{gpus}", node.cpus, node.memory)
}
