//! Machines that are already there: nodes of a Kubernetes cluster, machines reached by SSH, this one. They cost nothing more.
//!
//! This machine holds as many of a cluster's machines as are asked for: they share its processors and its memory, not its accelerators.

use crate::cloud::Cloud;
use crate::request::{Amount, FreeNode, Request};
use crate::search::{Candidate, Why};

/// Processors for each accelerator, and without any, where nothing is asked for.
const CPUS: (f64, f64) = (4.0, 2.0);
/// GiB for each processor, with accelerators and without.
const MEMORY_PER_CPU: (f64, f64) = (4.0, 1.0);

/// A cluster or a pool each in which enough places are free.
pub(crate) fn candidates(
    nodes: &[FreeNode],
    cloud: Cloud,
    request: &Request,
    needed: usize,
) -> Result<Vec<Candidate>, Why> {
    let mut regions: Vec<&str> = Vec::new();
    for node in nodes.iter().filter(|node| node.cloud == cloud) {
        if !regions.contains(&node.region.as_str()) {
            regions.push(&node.region);
        }
    }
    if regions.is_empty() {
        return Err(Why::Full { free: 0, needed });
    }
    regions.retain(|region| request.region.as_ref().is_none_or(|asked| asked == region));
    if regions.is_empty() {
        return Err(Why::NotThere);
    }
    let mut most = 0;
    let mut found = Vec::new();
    for region in regions {
        let here = nodes.iter().filter(|node| node.cloud == cloud && node.region == region);
        let Some(size) = Size::of(cloud, request) else { return Err(Why::NoSuchSize) };
        let free = here.clone().map(|node| size.places(node)).fold(0, usize::saturating_add);
        most = most.max(free);
        if free >= needed {
            // a share of this machine is all of it
            let whole = here.clone().find(|_| cloud == Cloud::Local);
            found.push(Candidate {
                request: 0,
                cloud,
                region: region.to_owned(),
                zone: None,
                instance_type: if whole.is_some() { "-".to_owned() } else { size.name() },
                accelerator: size.accelerator.clone(),
                cpus: Some(whole.map_or(size.cpus, |node| node.cpus)),
                memory: Some(whole.map_or(size.memory, |node| node.memory)),
                use_spot: false,
                hourly: 0.0,
            });
        }
    }
    if found.is_empty() { Err(Why::Full { free: most, needed }) } else { Ok(found) }
}

/// What a pod asks for.
struct Size {
    cpus: f64,
    memory: f64,
    accelerator: Option<(String, f64)>,
}

impl Size {
    fn of(cloud: Cloud, request: &Request) -> Option<Self> {
        if let Some(name) = &request.instance_type {
            return Self::read(name);
        }
        let accelerator = request.accelerator.clone();
        if cloud == Cloud::Local && request.cpus.is_none() && request.memory.is_none() {
            return Some(Self { cpus: 0.0, memory: 0.0, accelerator });
        }
        let number = |amount: Amount| match amount {
            Amount::Exactly(number) | Amount::AtLeast(number) | Amount::PerCpu(number) => number,
        };
        let (with, without) = CPUS;
        let usual = accelerator.as_ref().map_or(without, |(_, count)| with * count.max(1.0));
        let cpus = request.cpus.map_or(usual, number);
        let times = if accelerator.is_some() { MEMORY_PER_CPU.0 } else { MEMORY_PER_CPU.1 };
        let memory = match request.memory {
            None => cpus * times,
            Some(Amount::PerCpu(times)) => cpus * times,
            Some(amount) => number(amount),
        };
        Some(Self { cpus, memory, accelerator })
    }

    /// Reads `4CPU--16GB--V100:1`.
    fn read(name: &str) -> Option<Self> {
        let mut parts = name.split("--");
        let cpus = parts.next()?.strip_suffix("CPU")?.parse().ok()?;
        let memory = parts.next()?.strip_suffix("GB")?.parse().ok()?;
        let accelerator = match parts.next() {
            None => None,
            Some(part) => {
                let (name, count) = part.rsplit_once(':')?;
                Some((name.to_owned(), count.parse().ok()?))
            }
        };
        Some(Self { cpus, memory, accelerator })
    }

    fn name(&self) -> String {
        let accelerator =
            self.accelerator.as_ref().map(|(name, count)| format!("--{name}:{count}")).unwrap_or_default();
        format!("{}CPU--{}GB{accelerator}", self.cpus, self.memory)
    }

    /// How many of them a node has room for.
    fn places(&self, node: &FreeNode) -> usize {
        if !node.is_known {
            return 1;
        }
        let times = |has: f64, wanted: f64| if wanted > 0.0 { (has / wanted).floor() } else { f64::INFINITY };
        let by_accelerator = match (&self.accelerator, &node.accelerator) {
            (None, _) => f64::INFINITY,
            (Some((wanted, count)), Some((has, free))) if is_named(has, wanted) => times(*free, *count),
            _ => 0.0,
        };
        let by_size = times(node.cpus, self.cpus).min(times(node.memory, self.memory));
        let by_size = if node.cloud == Cloud::Local && by_size >= 1.0 { f64::INFINITY } else { by_size };
        let places = by_size.min(by_accelerator);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded, and not below zero")]
        let places = places.clamp(0.0, 1e6) as usize;
        places
    }
}

/// Whether accelerators that call themselves so are those that are meant: `NVIDIA H100 80GB HBM3` is an `H100` and an `H100-80GB`, and an
/// `NVIDIA GeForce RTX 4090` is an `RTX4090`; an `NVIDIA L40S` is no `L4`.
pub fn is_named(product: &str, wanted: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_ascii_lowercase).collect()
    };
    let (has, wanted) = (words(product), words(wanted));
    let joined = wanted.concat();
    let is_run = (0..has.len())
        .any(|from| (from..=has.len()).any(|to| has.get(from..to).is_some_and(|run| run.concat() == joined)));
    !wanted.is_empty() && (is_run || wanted.iter().all(|word| has.contains(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_go_by_shorter_names() {
        for (product, wanted, is) in [
            ("V100", "v100", true),
            ("NVIDIA H100 80GB HBM3", "H100", true),
            ("NVIDIA A100-SXM4-80GB", "A100-80GB", true),
            ("NVIDIA A100-SXM4-40GB", "A100-80GB", false),
            ("NVIDIA-GeForce-RTX-4090", "RTX4090", true),
            ("NVIDIA L40S", "L4", false),
            ("NVIDIA L4", "L40S", false),
            ("NVIDIA L4", "", false),
        ] {
            assert_eq!(is_named(product, wanted), is, "{product} {wanted}");
        }
    }

    #[test]
    fn this_machine_is_shared_but_for_its_accelerators() {
        let here = FreeNode { cloud: Cloud::Local, ..node("", 2.0, 4.0, Some(("NVIDIA T4", 2.0))) };
        let found = |request: Request, needed| candidates(std::slice::from_ref(&here), Cloud::Local, &request, needed);
        let plain = found(Request::default(), 8).unwrap();
        assert_eq!(
            plain.iter().map(|one| (one.instance_type.as_str(), one.cpus)).collect::<Vec<_>>(),
            [("-", Some(2.0))]
        );
        let cpus = |number| Request { cpus: Some(Amount::AtLeast(number)), ..Request::default() };
        assert!(found(cpus(2.0), 8).is_ok());
        assert_eq!(found(cpus(3.0), 1), Err(Why::Full { free: 0, needed: 1 }));
        let gpu = Request { accelerator: Some(("T4".into(), 1.0)), ..Request::default() };
        assert!(found(gpu.clone(), 2).is_ok());
        assert_eq!(found(gpu, 3), Err(Why::Full { free: 2, needed: 3 }));
    }

    #[test]
    fn a_machine_that_nobody_has_seen_counts_as_one() {
        let unseen = |region| FreeNode { is_known: false, ..node(region, 0.0, 0.0, None) };
        let nodes = [unseen("a"), unseen("a"), node("b", 8.0, 64.0, None)];
        let request = Request { accelerator: Some(("H100".into(), 8.0)), ..Request::default() };
        let regions = |needed| {
            candidates(&nodes, Cloud::Ssh, &request, needed)
                .map(|found| found.into_iter().map(|one| one.region).collect())
        };
        assert_eq!(regions(2), Ok(vec!["a".to_owned()]));
        assert_eq!(regions(3), Err(Why::Full { free: 2, needed: 3 }));
    }

    fn node(region: &str, cpus: f64, memory: f64, accelerator: Option<(&str, f64)>) -> FreeNode {
        let accelerator = accelerator.map(|(name, count)| (name.to_owned(), count));
        FreeNode { cloud: Cloud::Ssh, region: region.into(), is_known: true, cpus, memory, accelerator }
    }

    #[test]
    fn places_are_counted_node_by_node() {
        let nodes = [
            node("a", 8.0, 64.0, Some(("V100", 2.0))),
            node("a", 8.0, 64.0, Some(("T4", 2.0))),
            node("b", 4.0, 15.0, Some(("V100", 8.0))),
            node("b", 32.0, 256.0, Some(("v100", 4.0))),
        ];
        let request = Request { accelerator: Some(("V100".into(), 1.0)), ..Request::default() };
        let regions = |needed| {
            let found = candidates(&nodes, Cloud::Ssh, &request, needed);
            found.map(|list| list.into_iter().map(|one| (one.region, one.instance_type)).collect::<Vec<_>>())
        };
        let name = || "4CPU--16GB--V100:1".to_owned();
        assert_eq!(regions(2), Ok(vec![("a".into(), name()), ("b".into(), name())]));
        assert_eq!(regions(4), Ok(vec![("b".into(), name())]));
        assert_eq!(regions(5), Err(Why::Full { free: 4, needed: 5 }));
        assert_eq!(candidates(&nodes, Cloud::Kubernetes, &request, 1), Err(Why::Full { free: 0, needed: 1 }));
        let elsewhere = Request { region: Some("c".into()), ..request.clone() };
        assert_eq!(candidates(&nodes, Cloud::Ssh, &elsewhere, 1), Err(Why::NotThere));
        let plain = candidates(&nodes, Cloud::Ssh, &Request::default(), 1).unwrap();
        assert_eq!(plain.first().map(|one| one.instance_type.as_str()), Some("2CPU--2GB"));
    }
}
