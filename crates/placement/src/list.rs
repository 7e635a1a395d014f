//! Accelerators of the price lists: which machine has them, and for how much.

use std::collections::BTreeMap;

use crate::catalogue::{Catalogue, Offer};
use crate::cloud::Cloud;
use crate::gcp;

/// Which accelerators to list.
pub struct Wish<'a> {
    /// Whether a name is meant.
    pub named: &'a dyn Fn(&str) -> bool,
    /// How many of it, if that is said.
    pub count: Option<f64>,
    /// Where, if that is said.
    pub cloud: Option<Cloud>,
    /// In regions whose names hold this.
    pub region: Option<&'a str>,
    /// Each region rather than the cheapest.
    pub all_regions: bool,
}

/// A machine with accelerators.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// The cloud.
    pub cloud: Cloud,
    /// The machine's type; none where the accelerator is attached to one.
    pub instance_type: Option<String>,
    /// The accelerator.
    pub name: String,
    /// How many.
    pub count: f64,
    /// Processors.
    pub cpus: Option<f64>,
    /// GiB of one accelerator.
    pub device_memory: Option<f64>,
    /// GiB of the machine.
    pub memory: Option<f64>,
    /// Dollars an hour.
    pub price: Option<f64>,
    /// Dollars an hour of one that may be taken away.
    pub spot_price: Option<f64>,
    /// The region.
    pub region: String,
}

/// Accelerators by name, in the order in which the clouds tell of them; of each, cheaper clouds first.
pub fn accelerators(catalogue: &Catalogue, wish: &Wish<'_>) -> Vec<(String, Vec<Listed>)> {
    let mut groups: Vec<(String, Vec<Listed>)> = Vec::new();
    for cloud in Cloud::ALL.iter().copied().filter(|cloud| wish.cloud.is_none_or(|asked| asked == *cloud)) {
        for (name, rows) in of_cloud(catalogue, cloud, wish) {
            match groups.iter_mut().find(|(known, _)| *known == name) {
                Some((_, all)) => all.extend(rows),
                None => groups.push((name, rows)),
            }
        }
    }
    for (_, rows) in &mut groups {
        let least = |cloud: Cloud, price: fn(&Listed) -> Option<f64>| {
            rows.iter().filter(|one| one.cloud == cloud).filter_map(price).min_by(f64::total_cmp)
        };
        let mut keyed: Vec<([f64; 4], Listed)> = rows
            .iter()
            .map(|one| {
                let key = [
                    last(least(one.cloud, |one| one.price)),
                    last(least(one.cloud, |one| one.spot_price)),
                    last(one.price),
                    last(one.spot_price),
                ];
                (key, one.clone())
            })
            .collect();
        keyed.sort_by(|(a, _), (b, _)| ordered(a, b));
        *rows = keyed.into_iter().map(|(_, one)| one).collect();
    }
    groups
}

/// What has no price comes last.
fn last(price: Option<f64>) -> f64 {
    price.unwrap_or(f64::INFINITY)
}

fn ordered(a: &[f64], b: &[f64]) -> std::cmp::Ordering {
    a.iter().zip(b).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
}

fn of_cloud(catalogue: &Catalogue, cloud: Cloud, wish: &Wish<'_>) -> BTreeMap<String, Vec<Listed>> {
    let is_named = |offer: &&Offer| offer.accelerators.as_ref().is_some_and(|(name, _)| (wish.named)(name));
    let gpus: Vec<&Offer> = catalogue.offers(cloud).iter().filter(|offer| offer.gpu.is_some()).collect();
    // the memory of one is shown where it is known of all that were looked at
    let looked_at: Vec<&Offer> =
        if cloud == Cloud::Gcp { gpus.iter().copied().filter(is_named).collect() } else { gpus.clone() };
    let known = looked_at.iter().all(|offer| offer.gpu.is_some_and(|size| size.is_some()));
    #[expect(clippy::float_cmp, reason = "counts that files name")]
    let meant = |offer: &&Offer| {
        is_named(offer)
            && wish.region.is_none_or(|region| offer.region.to_lowercase().contains(&region.to_lowercase()))
            && wish.count.is_none_or(|count| offer.accelerators.as_ref().is_some_and(|(_, has)| *has == count))
    };
    let mut rows: Vec<Listed> = gpus
        .into_iter()
        .filter(meant)
        .filter_map(|offer| listed(catalogue, cloud, offer))
        .map(|one| Listed { device_memory: one.device_memory.filter(|_| known), ..one })
        .collect();
    rows.sort_by(|a, b| {
        ordered(&[last(a.price), last(a.spot_price)], &[last(b.price), last(b.spot_price)])
            .then_with(|| if wish.all_regions { a.region.cmp(&b.region) } else { std::cmp::Ordering::Equal })
    });
    let mut groups: BTreeMap<String, Vec<Listed>> = BTreeMap::new();
    for one in rows {
        // sizes of a TPU stand together
        let generation = one.name.strip_prefix("tpu-").and_then(|rest| rest.split('-').next());
        let group = generation.map_or_else(|| one.name.clone(), |generation| format!("tpu-{generation}"));
        let group = groups.entry(group).or_default();
        let same = |other: &Listed| {
            other.instance_type == one.instance_type
                && other.name == one.name
                && (other.count, other.cpus, other.memory) == (one.count, one.cpus, one.memory)
                && (!wish.all_regions || other.region == one.region)
        };
        if !group.iter().any(same) {
            group.push(one);
        }
    }
    for (name, group) in &mut groups {
        if !name.starts_with("tpu-") {
            group.sort_by(|a, b| {
                a.count
                    .total_cmp(&b.count)
                    .then_with(|| a.instance_type.cmp(&b.instance_type))
                    .then_with(|| ordered(&[a.cpus.unwrap_or(0.0)], &[b.cpus.unwrap_or(0.0)]))
            });
        }
    }
    groups
}

fn listed(catalogue: &Catalogue, cloud: Cloud, offer: &Offer) -> Option<Listed> {
    let (name, count) = offer.accelerators.clone()?;
    let own = Listed {
        cloud,
        instance_type: offer.instance_type.clone(),
        name,
        count,
        cpus: offer.cpus,
        device_memory: offer.gpu.flatten(),
        memory: offer.memory,
        price: offer.price,
        spot_price: offer.spot_price,
        region: offer.region.clone(),
    };
    if cloud != Cloud::Gcp || own.name.starts_with("tpu-") {
        return Some(own);
    }
    // with the cheapest machine of the zone that it goes with
    let (rows, cpus, memory) = gcp::hosts(catalogue, (&own.name, count), None, None);
    let host = rows
        .into_iter()
        .filter(|host| host.region == offer.region && host.zone == offer.zone)
        .filter(|host| cpus.is_none_or(|wish| wish.is_met_by(host.cpus, None)))
        .filter(|host| memory.is_none_or(|wish| wish.is_met_by(host.memory, host.cpus)))
        .filter(|host| host.price.is_some())
        .min_by(|a, b| last(a.price).total_cmp(&last(b.price)))?;
    let sum = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
    Some(Listed {
        instance_type: host.instance_type.clone(),
        cpus: host.cpus,
        memory: host.memory,
        price: sum(own.price, host.price),
        spot_price: sum(own.spot_price, host.spot_price),
        ..own
    })
}
