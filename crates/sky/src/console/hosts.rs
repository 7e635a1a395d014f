//! GPUs of machines that are there already, and how many of them are free: `sky gpus list` shows them before those of the price lists.

use std::collections::BTreeMap;

use placement::{Catalogue, Cloud, is_named};

use super::gpus::COMMON;
use super::table;

/// A machine that is there: this one, one of an SSH pool, or a node of a Kubernetes cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// [`Cloud::Local`], [`Cloud::Ssh`] or [`Cloud::Kubernetes`].
    pub cloud: Cloud,
    /// The pool, or the context; empty for this machine.
    pub place: String,
    /// Its name.
    pub node: String,
    /// Processors: free, and in all. `None`: not known yet.
    pub cpus: Option<(f64, f64)>,
    /// GiB: free, and in all.
    pub memory: Option<(f64, f64)>,
    /// What its GPUs call themselves, how many are free, and how many there are.
    pub gpus: Option<(String, f64, f64)>,
    /// Why nothing can be started there; empty where it can.
    pub unfit: String,
}

/// Where machines are that are there: how that is called, one place of it, and the head of its column.
const KINDS: [(Cloud, &str, &str, &str); 3] = [
    (Cloud::Local, "Local", "", "INFRA"),
    (Cloud::Kubernetes, "Kubernetes", "Context", "CONTEXT"),
    (Cloud::Ssh, "SSH Node Pool", "SSH Node Pool", "NODE_POOL"),
];

/// What is asked for.
pub(super) struct Wish<'a> {
    pub named: &'a dyn Fn(&str) -> bool,
    /// Whether a name was given: then nodes are not listed.
    pub is_one: bool,
    pub count: Option<f64>,
    pub cloud: Option<Cloud>,
    pub place: Option<&'a str>,
}

/// The usual name of what calls itself so: `NVIDIA-H100-80GB-HBM3` is an `H100`. The longest of those that fit, the common ones first.
fn usual<'a>(product: &'a str, catalogue: &'a Catalogue) -> &'a str {
    let longest = |names: &mut dyn Iterator<Item = &'a str>| {
        names.filter(|name| is_named(product, name)).max_by_key(|name| name.len())
    };
    let listed = || longest(&mut catalogue.accelerator_names().iter().map(|(name, _)| name.as_str()));
    longest(&mut COMMON.into_iter()).or_else(listed).unwrap_or(product)
}

/// What is said where no machine of a kind of place has such GPUs.
pub(super) fn none_found(cloud: Cloud, name: Option<&str>, count: Option<f64>) -> String {
    let (shown, whole) = match cloud {
        Cloud::Ssh => ("SSH Node Pool", "SSH Node Pool"),
        Cloud::Kubernetes => ("Kubernetes", "any allowed Kubernetes cluster"),
        _ => ("this machine", "this machine"),
    };
    let count = count.map(|count| format!(" with requested quantity {count}")).unwrap_or_default();
    match name {
        None => format!("No GPUs found in {whole}. To further debug, run: sky check {}", cloud.name()),
        Some(name) => format!(
            "Resources '{name}'{count} not found in {whole}. To show available accelerators in {shown}, run: sky gpus list --infra {}",
            cloud.name()
        ),
    }
}

/// The tables of all machines that are meant; one for each kind of place that has GPUs.
pub(super) fn tables(hosts: &[Host], wish: &Wish<'_>, catalogue: &Catalogue) -> Vec<String> {
    let place_is_meant = |host: &&Host| wish.place.is_none_or(|place| super::pool(place) == host.place);
    let of = |(cloud, kind, one, column): (Cloud, &str, &str, &str)| {
        if wish.cloud.is_some_and(|asked| asked != cloud) {
            return None;
        }
        let hosts: Vec<&Host> = hosts.iter().filter(|host| host.cloud == cloud).filter(place_is_meant).collect();
        let mut places: Vec<&str> = hosts.iter().map(|host| host.place.as_str()).collect();
        places.sort_unstable();
        places.dedup();
        let count = |place: Option<&str>| {
            let here = hosts.iter().filter(|host| place.is_none_or(|place| host.place == place));
            counted(here.copied(), wish, catalogue)
        };
        if count(None).is_empty() {
            return None;
        }
        let mut text = format!("{kind} GPUs");
        let used = |(free, all): (f64, f64)| format!("{free} of {all} free");
        if places.len() > 1 {
            let rows = count(None).into_iter().map(|(name, gpus)| vec![name, used(gpus.amounts)]);
            text += &format!("\n{}", table::plain(&["GPU", "UTILIZATION"], &rows.collect::<Vec<_>>()));
        }
        let head = ["GPU", if wish.count.is_some() { "QTY_FILTER" } else { "REQUESTABLE_QTY_PER_NODE" }, "UTILIZATION"];
        for place in &places {
            let row = |(name, gpus): (String, Gpus)| {
                let quantities = gpus.quantities.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
                vec![name, quantities, used(gpus.amounts)]
            };
            if !one.is_empty() {
                text += &format!("\n{one}: {place}");
            }
            let rows = count(Some(place)).into_iter().map(row).collect::<Vec<_>>();
            text += &format!("\n{}", table::plain(&head, &rows));
        }
        if !wish.is_one {
            text += &format!("\n\n{kind} per-node GPU availability\n{}", nodes(&hosts, column, catalogue));
        }
        Some(text)
    };
    KINDS.into_iter().filter_map(of).collect()
}

/// GPUs of one name.
#[derive(Default)]
struct Gpus {
    /// How many one machine may be asked for.
    quantities: Vec<f64>,
    /// How many are free, and how many there are.
    amounts: (f64, f64),
}

/// The GPUs that are meant, by name. Those of machines on which nothing can be started are left out.
fn counted<'a>(
    hosts: impl Iterator<Item = &'a Host>,
    wish: &Wish<'_>,
    catalogue: &Catalogue,
) -> BTreeMap<String, Gpus> {
    let mut all: BTreeMap<String, Gpus> = BTreeMap::new();
    for host in hosts.filter(|host| host.unfit.is_empty()) {
        let Some((product, free, has)) = &host.gpus else { continue };
        let name = usual(product, catalogue);
        if !(wish.named)(name) || wish.count.is_some_and(|count| count > *has) {
            continue;
        }
        let gpus = all.entry(name.to_owned()).or_default();
        // powers of two, and all that one has
        let powers = std::iter::successors(Some(1.0), |count| Some(count * 2.0)).take_while(|count| count < has);
        let meant = powers.chain([*has]).filter(|count| wish.count.is_none_or(|asked| asked == *count));
        for count in meant.chain(wish.count) {
            if !gpus.quantities.contains(&count) {
                gpus.quantities.push(count);
            }
        }
        gpus.quantities.sort_by(f64::total_cmp);
        gpus.amounts = (gpus.amounts.0 + free, gpus.amounts.1 + has);
    }
    all
}

fn nodes(hosts: &[&Host], column: &str, catalogue: &Catalogue) -> String {
    let share = |pair: Option<(f64, f64)>| match pair {
        Some((free, all)) => format!("{free:.0} of {all:.0} free"),
        None => "-".to_owned(),
    };
    let row = |host: &&Host| {
        let place = if host.place.is_empty() { Cloud::Local.name() } else { &host.place };
        let (name, used) = match &host.gpus {
            None => ("-", "-".to_owned()),
            Some((product, free, all)) => (usual(product, catalogue), format!("{free} of {all} free")),
        };
        let status = if host.unfit.is_empty() { "Healthy" } else { &host.unfit };
        vec![
            place.to_owned(),
            host.node.clone(),
            share(host.cpus),
            share(host.memory),
            name.to_owned(),
            used,
            status.to_owned(),
        ]
    };
    let head = [column, "NODE", "vCPU", "Memory (GB)", "GPU", "GPU UTILIZATION", "NODE STATUS"];
    table::plain(&head, &hosts.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(cloud: Cloud, place: &str, node: &str, gpus: Option<(&str, f64, f64)>) -> Host {
        Host {
            cloud,
            place: place.into(),
            node: node.into(),
            cpus: Some((3.5, 8.0)),
            memory: Some((10.0, 32.0)),
            gpus: gpus.map(|(name, free, all)| (name.into(), free, all)),
            unfit: String::new(),
        }
    }

    fn shown(hosts: &[Host], wish: &Wish<'_>) -> String {
        tables(hosts, wish, &Catalogue::default()).join("\n\n")
    }

    #[test]
    fn gpus_of_this_machine_of_clusters_and_of_pools() {
        let lost =
            Host { unfit: "NotReady".into(), ..host(Cloud::Kubernetes, "c", "n1", Some(("NVIDIA-L4", 4.0, 4.0))) };
        let hosts = [
            host(Cloud::Local, "", "laptop", Some(("NVIDIA H100 80GB HBM3", 1.0, 2.0))),
            host(Cloud::Kubernetes, "c", "n0", Some(("NVIDIA-A100-SXM4-80GB", 5.0, 6.0))),
            lost,
            host(Cloud::Kubernetes, "d", "n2", None),
            Host {
                cpus: None,
                memory: None,
                unfit: "not looked at".into(),
                ..host(Cloud::Ssh, "lab", "2 hosts", None)
            },
        ];
        let all = Wish { named: &|_| true, is_one: false, count: None, cloud: None, place: None };
        let text = "\
Local GPUs
GPU   REQUESTABLE_QTY_PER_NODE  UTILIZATION
H100  1, 2                      1 of 2 free

Local per-node GPU availability
INFRA  NODE    vCPU         Memory (GB)    GPU   GPU UTILIZATION  NODE STATUS
local  laptop  4 of 8 free  10 of 32 free  H100  1 of 2 free      Healthy

Kubernetes GPUs
GPU        UTILIZATION
A100-80GB  5 of 6 free
Context: c
GPU        REQUESTABLE_QTY_PER_NODE  UTILIZATION
A100-80GB  1, 2, 4, 6                5 of 6 free
Context: d
GPU  REQUESTABLE_QTY_PER_NODE  UTILIZATION

Kubernetes per-node GPU availability
CONTEXT  NODE  vCPU         Memory (GB)    GPU        GPU UTILIZATION  NODE STATUS
c        n0    4 of 8 free  10 of 32 free  A100-80GB  5 of 6 free      Healthy
c        n1    4 of 8 free  10 of 32 free  L4         4 of 4 free      NotReady
d        n2    4 of 8 free  10 of 32 free  -          -                Healthy";
        assert_eq!(shown(&hosts, &all), text);
        let two = Wish { named: &|name| name == "H100", is_one: true, count: Some(2.0), ..all };
        assert_eq!(shown(&hosts, &two), "Local GPUs\nGPU   QTY_FILTER  UTILIZATION\nH100  2           1 of 2 free");
        let elsewhere = Wish { cloud: Some(Cloud::Ssh), ..two };
        assert_eq!(shown(&hosts, &elsewhere), "");
    }
}
