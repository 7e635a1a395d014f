//! What one cloud has for a request: which types of machines, where, and for how much.

use std::collections::BTreeSet;

use crate::Rules;
use crate::abilities::{azure_parts, has_disk_tier};
use crate::catalogue::{Catalogue, Offer};
use crate::cloud::Cloud;
use crate::gcp;
use crate::request::{Amount, DiskWish, Request};
use crate::search::Why;

/// A count of accelerators is as asked for within this.
const SAME_COUNT: f64 = 0.01;
/// Processors of a machine for which nothing is asked.
const USUAL_CPUS: f64 = 8.0;
/// The same where all machines are large (Lambda).
const USUAL_CPUS_LAMBDA: f64 = 30.0;
/// GiB for each processor where no memory is asked for.
const USUAL_MEMORY_PER_CPU: f64 = 4.0;

const AWS_FAMILIES: [&str; 9] = ["m6i.", "m6id.", "m7i.", "r6i.", "r6id.", "r7i.", "c6i.", "c6id.", "c7i."];
const AZURE_FAMILIES: [(&str, &str); 3] = [("D", "s_v5"), ("E", "s_v5"), ("F", "s_v2")];
const GCP_FAMILIES: [&str; 6] =
    ["n2-standard-", "n2-highmem-", "n2-highcpu-", "n4-standard-", "n4-highcpu-", "n4-highmem-"];

/// A type of machine that will do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kind {
    pub(crate) name: String,
    /// Accelerators that are attached to it, where they are priced apart.
    pub(crate) attached: Option<(String, f64)>,
}

/// Types of machines for a request, the cheapest first.
pub(crate) fn kinds(catalogue: &Catalogue, cloud: Cloud, request: &Request, rules: Rules) -> Result<Vec<Kind>, Why> {
    if let Some(name) = &request.instance_type {
        return named(catalogue, cloud, request, name);
    }
    if catalogue.offers(cloud).is_empty() {
        return Err(Why::NoPriceList);
    }
    let found = match &request.accelerator {
        None => plain(catalogue, cloud, request, rules),
        Some((name, count)) => accelerated(catalogue, cloud, request, (name, *count), rules),
    }?;
    let fast =
        |kind: &Kind| request.disk_tier.as_deref().is_none_or(|tier| has_disk_tier(cloud, tier, Some(&kind.name)));
    let kinds: Vec<Kind> = found.into_iter().filter(fast).collect();
    if kinds.is_empty() { Err(Why::NoDiskTier) } else { Ok(kinds) }
}

fn named(catalogue: &Catalogue, cloud: Cloud, request: &Request, name: &str) -> Result<Vec<Kind>, Why> {
    if request.disk_tier.as_deref().is_some_and(|tier| !has_disk_tier(cloud, tier, Some(name))) {
        return Err(Why::NoDiskTier);
    }
    let own = accelerators(catalogue, cloud, name);
    let attached = match (cloud, &request.accelerator) {
        (Cloud::Gcp, Some(asked)) => Some(asked.clone()),
        (Cloud::Gcp, None) => own,
        (_, Some((asked, count))) => {
            let same = own
                .as_ref()
                .is_some_and(|(has, number)| has.eq_ignore_ascii_case(asked) && (number - count).abs() <= SAME_COUNT);
            if !same {
                return Err(Why::OtherAccelerators { instance_type: name.to_owned(), has: own });
            }
            None
        }
        (_, None) => None,
    };
    Ok(vec![Kind { name: name.to_owned(), attached }])
}

/// The accelerators that a type of machine has.
pub(crate) fn accelerators(catalogue: &Catalogue, cloud: Cloud, instance_type: &str) -> Option<(String, f64)> {
    if cloud == Cloud::Gcp {
        return gcp::made_for(instance_type).map(|(name, count)| (name.to_owned(), count));
    }
    catalogue.machine(cloud, instance_type)?.accelerators.clone()
}

/// Machines without accelerators; where a cloud has only others of the size, those.
fn plain(catalogue: &Catalogue, cloud: Cloud, request: &Request, rules: Rules) -> Result<Vec<Kind>, Why> {
    let usual = |cpus: f64| Some(Amount::AtLeast(cpus));
    let (cpus, memory) = match (cloud, request.cpus, request.memory) {
        (Cloud::RunPod, cpus, memory) => (cpus, memory),
        (Cloud::Lambda, None, None) => (usual(USUAL_CPUS_LAMBDA), Some(Amount::PerCpu(USUAL_MEMORY_PER_CPU))),
        (_, None, None) => (usual(USUAL_CPUS), Some(Amount::PerCpu(USUAL_MEMORY_PER_CPU))),
        (_, cpus, None) => (cpus, Some(Amount::PerCpu(USUAL_MEMORY_PER_CPU))),
        (_, cpus, memory) => (cpus, memory),
    };
    let general = |offer: &&Offer| {
        let Some(name) = offer.instance_type.as_deref() else { return false };
        let starts = |families: &[&str]| families.iter().any(|family| name.starts_with(family));
        match cloud {
            Cloud::Aws => starts(&AWS_FAMILIES),
            Cloud::Gcp => starts(&GCP_FAMILIES),
            Cloud::Azure => azure_parts(name).is_some_and(|parts| AZURE_FAMILIES.contains(&parts)),
            _ => true,
        }
    };
    let tier = |offer: &&Offer| {
        request.disk_tier.as_deref().is_none_or(|tier| has_disk_tier(cloud, tier, offer.instance_type.as_deref()))
    };
    let disk = |offer: &&Offer| cloud != Cloud::Aws || request.local_disk.is_none_or(|wish| wish.is_met_by(offer));
    let mut rows: Vec<&Offer> = in_place(catalogue.offers(cloud), request)
        .filter(|offer| memory.is_none_or(|wish| wish.is_met_by(offer.memory, offer.cpus)))
        .filter(|offer| cpus.is_none_or(|wish| wish.is_met_by(offer.cpus, None)))
        .filter(general)
        .filter(tier)
        .filter(disk)
        .collect();
    if rows.is_empty() {
        let elsewhere = request.region.is_some() && in_place(catalogue.offers(cloud), request).next().is_none();
        return Err(if elsewhere { Why::NotThere } else { Why::NoSuchSize });
    }
    if rules == Rules::Own && rows.iter().any(|offer| offer.accelerators.is_none()) {
        rows.retain(|offer| offer.accelerators.is_none());
    }
    // the price of a machine that may be taken away counts only where there is a limit to it
    let spot = request.use_spot && (request.max_hourly_cost.is_some() || rules == Rules::Own);
    let name = cheapest_one(rows, spot, request.max_hourly_cost)?;
    Ok(vec![Kind { name, attached: None }])
}

impl DiskWish {
    fn is_met_by(self, offer: &Offer) -> bool {
        offer.local_disk.as_ref().is_some_and(|disk| {
            let enough = match self.gigabytes {
                Amount::AtLeast(size) => disk.gigabytes >= size,
                Amount::Exactly(size) | Amount::PerCpu(size) => (disk.gigabytes - size).abs() < 1.0,
            };
            disk.kind == "ssd" && (disk.nvme || !self.nvme) && enough
        })
    }
}

fn accelerated(
    catalogue: &Catalogue,
    cloud: Cloud,
    request: &Request,
    asked: (&str, f64),
    rules: Rules,
) -> Result<Vec<Kind>, Why> {
    let (name, count) = asked;
    let disk = |offer: &&Offer| cloud != Cloud::Aws || request.local_disk.is_none_or(|wish| wish.is_met_by(offer));
    let has = |offer: &&Offer| offer.accelerators.as_ref().is_some_and(|(_, has)| (has - count).abs() <= SAME_COUNT);
    let mut rows: Vec<&Offer> = in_place(catalogue.of_accelerator(cloud, name), request).filter(has).collect();
    if rows.is_empty() {
        return Err(Why::NoSuchAccelerator { near: near(catalogue, cloud, request, name, count) });
    }
    rows.retain(disk);
    if rows.is_empty() {
        return Err(Why::NoSuchSize);
    }
    if cloud == Cloud::Gcp {
        return attached(catalogue, request, asked);
    }
    // SkyPilot does not hand RunPod the memory that is asked for
    let memory = request.memory.filter(|_| cloud != Cloud::RunPod || rules == Rules::Own);
    let rows: Vec<&Offer> = rows
        .into_iter()
        .filter(|offer| request.cpus.is_none_or(|wish| wish.is_met_by(offer.cpus, None)))
        .filter(|offer| memory.is_none_or(|wish| wish.is_met_by(offer.memory, offer.cpus)))
        .collect();
    if rows.is_empty() {
        return Err(Why::NoSuchSize);
    }
    let kinds = cheapest(rows, request.use_spot, request.max_hourly_cost)?;
    Ok(kinds.into_iter().map(|name| Kind { name, attached: None }).collect())
}

/// Google's machine for an accelerator.
fn attached(catalogue: &Catalogue, request: &Request, asked: (&str, f64)) -> Result<Vec<Kind>, Why> {
    let accelerators = Some((asked.0.to_owned(), asked.1));
    if request.tpu_vm {
        let (cpus, memory) = if asked.0.contains("v4") { (240.0, 400.0) } else { (96.0, 334.0) };
        let fits = request.cpus.is_none_or(|wish| wish.is_met_by(Some(cpus), None))
            && request.memory.is_none_or(|wish| wish.is_met_by(Some(memory), Some(cpus)));
        let kind = Kind { name: gcp::TPU_VM.to_owned(), attached: accelerators };
        return if fits { Ok(vec![kind]) } else { Err(Why::NoSuchSize) };
    }
    let (rows, cpus, memory) = gcp::hosts(catalogue, asked, request.cpus, request.memory);
    let rows: Vec<&Offer> = rows
        .into_iter()
        .filter(|offer| cpus.is_none_or(|wish| wish.is_met_by(offer.cpus, None)))
        .filter(|offer| memory.is_none_or(|wish| wish.is_met_by(offer.memory, offer.cpus)))
        .collect();
    if rows.is_empty() {
        return Err(Why::NoSuchSize);
    }
    Ok(vec![Kind { name: cheapest_one(rows, false, None)?, attached: accelerators }])
}

/// Offers in the region and the zone that a request names.
fn in_place<'a>(offers: impl IntoIterator<Item = &'a Offer>, request: &'a Request) -> impl Iterator<Item = &'a Offer> {
    let same = |asked: &Option<String>, has: Option<&str>| {
        asked.as_ref().is_none_or(|asked| has.is_some_and(|has| has.eq_ignore_ascii_case(asked)))
    };
    offers.into_iter().filter(move |offer| {
        same(&request.region, Some(offer.region.as_str())) && same(&request.zone, offer.zone.as_deref())
    })
}

/// Types of machines, the cheapest first; of equals the one that stands first in the file.
fn cheapest(rows: Vec<&Offer>, spot: bool, limit: Option<f64>) -> Result<Vec<String>, Why> {
    let mut priced: Vec<(f64, &Offer)> =
        rows.into_iter().filter_map(|offer| Some((offer.price(spot)?, offer))).collect();
    priced.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some(least) = priced.first().map(|(price, _)| *price) else { return Err(Why::NoPrice { spot }) };
    if limit.is_some_and(|limit| least > limit) {
        return Err(Why::TooDear { least });
    }
    let mut known: BTreeSet<&str> = BTreeSet::new();
    let within = priced.iter().take_while(|(price, _)| limit.is_none_or(|limit| *price <= limit));
    let names = within.filter_map(|(_, offer)| offer.instance_type.as_deref()).filter(|name| known.insert(name));
    Ok(names.map(str::to_owned).collect())
}

/// The cheapest of them alone.
fn cheapest_one(rows: Vec<&Offer>, spot: bool, limit: Option<f64>) -> Result<String, Why> {
    let mut best: Option<(f64, &Offer)> = None;
    for offer in rows {
        if let Some(price) = offer.price(spot)
            && best.is_none_or(|(least, _)| price < least)
        {
            best = Some((price, offer));
        }
    }
    let Some((least, offer)) = best else { return Err(Why::NoPrice { spot }) };
    if limit.is_some_and(|limit| least > limit) {
        return Err(Why::TooDear { least });
    }
    offer.instance_type.clone().ok_or(Why::NoSuchSize)
}

/// Accelerators with that in their name, and as many of them or more, the cheapest first: `A100-80GB:8`.
fn near(catalogue: &Catalogue, cloud: Cloud, request: &Request, name: &str, count: f64) -> Vec<String> {
    let name = name.to_lowercase();
    let mut rows: Vec<(f64, &str, f64)> = in_place(catalogue.offers(cloud), request)
        .filter_map(|offer| {
            let (has, number) = offer.accelerators.as_ref()?;
            (*number >= count && has.to_lowercase().contains(&name))
                .then(|| (offer.price(false).unwrap_or(f64::INFINITY), has.as_str(), *number))
        })
        .collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut found: Vec<String> = Vec::new();
    for (_, name, number) in rows {
        let text = if number.fract() == 0.0 { format!("{name}:{number}") } else { format!("{name}:{number:.2}") };
        if !found.contains(&text) {
            found.push(text);
        }
    }
    found
}

/// A region, and its zones where they are told apart; in the order in which they are tried.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Region<'a> {
    pub(crate) name: &'a str,
    pub(crate) zones: Option<Vec<&'a str>>,
}

/// Where a type of machine is to be had, in the order in which it is tried: the cheapest first, and regions in the United States
/// before others on AWS and Lambda.
pub(crate) fn regions<'a>(catalogue: &'a Catalogue, cloud: Cloud, kind: &Kind, spot: bool) -> Vec<Region<'a>> {
    let zoned = catalogue.has_zones(cloud);
    let machines = sorted(catalogue.of_type(cloud, &kind.name).collect(), spot, zoned);
    let Some((name, count)) = &kind.attached else { return american_first(cloud, machines) };
    #[expect(clippy::float_cmp, reason = "counts that files name")]
    let with = |offer: &&Offer| offer.accelerators.as_ref().is_some_and(|(_, has)| has == count);
    let accelerators = sorted(catalogue.of_accelerator(cloud, name).filter(with).collect(), spot, zoned);
    if kind.name == gcp::TPU_VM {
        return accelerators;
    }
    // both must be there
    let both = |region: Region<'a>| {
        let machine = machines.iter().find(|machine| machine.name == region.name)?;
        let has = |zone: &&str| machine.zones.as_ref().is_none_or(|zones| zones.contains(zone));
        let zones: Option<Vec<&str>> = region.zones.map(|zones| zones.into_iter().filter(has).collect());
        zones.as_ref().is_none_or(|zones| !zones.is_empty()).then_some(Region { name: region.name, zones })
    };
    accelerators.into_iter().filter_map(both).collect()
}

fn sorted(rows: Vec<&Offer>, spot: bool, zoned: bool) -> Vec<Region<'_>> {
    let mut rows: Vec<(f64, &str, Option<&str>)> = rows
        .into_iter()
        .filter(|offer| !offer.region.is_empty() && (!zoned || offer.zone.is_some()))
        .filter_map(|offer| Some((offer.price(spot)?, offer.region.as_str(), offer.zone.as_deref())))
        .collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| (a.1, a.2).cmp(&(b.1, b.2))));
    let mut regions: Vec<Region<'_>> = Vec::new();
    for (_, name, zone) in rows {
        let at = regions.iter().position(|region| region.name == name);
        let at = at.unwrap_or_else(|| {
            regions.push(Region { name, zones: zoned.then(Vec::new) });
            regions.len().saturating_sub(1)
        });
        if let (Some(Region { zones: Some(zones), .. }), Some(zone)) = (regions.get_mut(at), zone) {
            zones.push(zone);
        }
    }
    regions
}

fn american_first(cloud: Cloud, regions: Vec<Region<'_>>) -> Vec<Region<'_>> {
    if !matches!(cloud, Cloud::Aws | Cloud::Lambda) {
        return regions;
    }
    let (mut first, others): (Vec<_>, Vec<_>) = regions.into_iter().partition(|region| region.name.starts_with("us-"));
    first.extend(others);
    first
}

/// Dollars an hour for a machine with its accelerators in a region, and in a zone if one is named.
pub(crate) fn hourly(
    catalogue: &Catalogue,
    cloud: Cloud,
    kind: &Kind,
    spot: bool,
    region: &str,
    zone: Option<&str>,
) -> Option<f64> {
    let machine = if kind.name == gcp::TPU_VM {
        0.0
    } else {
        catalogue
            .of_type(cloud, &kind.name)
            .filter(|offer| offer.region == region && zone.is_none_or(|zone| offer.zone.as_deref() == Some(zone)))
            .filter_map(|offer| offer.price(spot))
            .min_by(f64::total_cmp)?
    };
    match &kind.attached {
        Some((name, count)) => Some(machine + gcp::price(catalogue, (name, *count), spot, region, zone)?),
        None => Some(machine),
    }
}
