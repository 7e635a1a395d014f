//! Machines that are already there: nodes of a Kubernetes cluster, machines reached by SSH. They cost nothing more.

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
        let Some(size) = Size::of(request) else { return Err(Why::NoSuchSize) };
        let free = here.map(|node| size.places(node)).sum::<usize>();
        most = most.max(free);
        if free >= needed {
            found.push(Candidate {
                request: 0,
                cloud,
                region: region.to_owned(),
                zone: None,
                instance_type: size.name(),
                accelerator: size.accelerator.clone(),
                cpus: Some(size.cpus),
                memory: Some(size.memory),
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
    fn of(request: &Request) -> Option<Self> {
        if let Some(name) = &request.instance_type {
            return Self::read(name);
        }
        let accelerator = request.accelerator.clone();
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
        let times = |has: f64, wanted: f64| if wanted > 0.0 { (has / wanted).floor() } else { f64::INFINITY };
        let by_accelerator = match (&self.accelerator, &node.accelerator) {
            (None, _) => f64::INFINITY,
            (Some((wanted, count)), Some((has, free))) if wanted.eq_ignore_ascii_case(has) => times(*free, *count),
            _ => 0.0,
        };
        let places = times(node.cpus, self.cpus).min(times(node.memory, self.memory)).min(by_accelerator);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded, and not below zero")]
        let places = places.clamp(0.0, 1e6) as usize;
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(region: &str, cpus: f64, memory: f64, accelerator: Option<(&str, f64)>) -> FreeNode {
        let accelerator = accelerator.map(|(name, count)| (name.to_owned(), count));
        FreeNode { cloud: Cloud::Ssh, region: region.into(), cpus, memory, accelerator }
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
