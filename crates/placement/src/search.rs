//! Everything that could run one task, what each would cost, and why all else was dropped.

use std::fmt;

use crate::Rules;
use crate::abilities::Feature;
use crate::catalogue::Catalogue;
use crate::cloud::Cloud;
use crate::free;
use crate::market::{self, Kind};
use crate::request::{Block, FreeNode, Request};

/// What there is to choose from.
#[derive(Clone, Copy, Debug)]
pub struct Market<'a> {
    /// Price lists.
    pub catalogue: &'a Catalogue,
    /// Clouds that may be used. Of equal offers the one of the first cloud wins.
    pub enabled: &'a [Cloud],
    /// Machines that are already there (Kubernetes, SSH, this one).
    pub nodes: &'a [FreeNode],
    /// What may not be used.
    pub blocked: &'a [Block],
    /// Whose rules hold.
    pub rules: Rules,
}

/// A machine that will do, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Which of the task's descriptions it meets.
    pub request: usize,
    /// The cloud.
    pub cloud: Cloud,
    /// The region.
    pub region: String,
    /// The zone, where it is chosen by zone.
    pub zone: Option<String>,
    /// The machine's type.
    pub instance_type: String,
    /// Its accelerators: name and count.
    pub accelerator: Option<(String, f64)>,
    /// Its processors.
    pub cpus: Option<f64>,
    /// Its GiB.
    pub memory: Option<f64>,
    /// Whether it may be taken away.
    pub use_spot: bool,
    /// Dollars an hour for one.
    pub hourly: f64,
}

/// Something that was looked at and dropped.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    /// For which of the task's descriptions.
    pub request: usize,
    /// The cloud.
    pub cloud: Cloud,
    /// The machine's type, and the place, where it got as far as that.
    pub what: Option<String>,
    /// Why.
    pub why: Why,
}

/// Why something was dropped.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// The cloud may not be used.
    NotEnabled,
    /// The cloud cannot do what is asked for.
    Lacks(Vec<Feature>),
    /// Nothing is known of the cloud's machines.
    NoPriceList,
    /// The cloud has no such accelerator in that number, there.
    NoSuchAccelerator {
        /// Others with that in their name, as many or more.
        near: Vec<String>,
    },
    /// The machine that is named has other accelerators.
    OtherAccelerators {
        /// Its type.
        instance_type: String,
        /// What it has.
        has: Option<(String, f64)>,
    },
    /// No machine has so many processors, so much memory or such a disk.
    NoSuchSize,
    /// No machine has such disks.
    NoDiskTier,
    /// The cloud has nothing in the region or the zone that is named.
    NotThere,
    /// Nothing of it has a price.
    NoPrice {
        /// Whether it is the price of a machine that may be taken away.
        spot: bool,
    },
    /// It costs more than it may.
    TooDear {
        /// Dollars an hour for the cheapest.
        least: f64,
    },
    /// Its image is elsewhere.
    NoImage,
    /// It may not be used now.
    Blocked,
    /// Another type of the same cloud does it for less.
    Dearer {
        /// That type.
        than: String,
    },
    /// Too few of its machines are free.
    Full {
        /// How many such machines are free.
        free: usize,
        /// How many are needed.
        needed: usize,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEnabled => write!(out, "the cloud is not enabled"),
            Self::Lacks(features) => {
                let names: Vec<&str> = features.iter().map(|feature| feature.name()).collect();
                write!(out, "the cloud does not support {}", names.join(", "))
            }
            Self::NoPriceList => write!(out, "its price list is not here: `sky catalog import` says what to fetch"),
            Self::NoSuchAccelerator { near } if near.is_empty() => write!(out, "no such accelerator"),
            Self::NoSuchAccelerator { near } => write!(out, "no such accelerator; it has {}", near.join(", ")),
            Self::OtherAccelerators { instance_type, has: None } => write!(out, "{instance_type} has no accelerators"),
            Self::OtherAccelerators { instance_type, has: Some((name, count)) } => {
                write!(out, "{instance_type} has {name}:{count}")
            }
            Self::NoSuchSize => {
                write!(out, "no machine of that size; a `+` behind `cpus` or `memory` lets larger ones in")
            }
            Self::NoDiskTier => write!(out, "no machine with that disk_tier"),
            Self::NotThere => write!(out, "nothing in that region or zone"),
            Self::NoPrice { spot: true } => write!(out, "no spot price"),
            Self::NoPrice { spot: false } => write!(out, "no price"),
            Self::TooDear { least } => write!(out, "over max_hourly_cost: the cheapest costs ${least} an hour"),
            Self::NoImage => write!(out, "image_id names no image for this region"),
            Self::Blocked => write!(out, "blocked: it could not be had before"),
            Self::Dearer { than } => write!(out, "dearer than {than}"),
            Self::Full { free, needed } => write!(out, "{free} such machines are free, and {needed} are needed"),
        }
    }
}

/// What came of looking for one task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Search {
    /// What will do, description by description, cloud by cloud, place by place in the order in which they are tried.
    pub candidates: Vec<Candidate>,
    /// What was dropped.
    pub rejections: Vec<Rejection>,
}

impl Search {
    /// Names of accelerators that are near those that these descriptions ask for, sorted.
    pub fn near(&self, descriptions: impl Fn(usize) -> bool) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for rejection in self.rejections.iter().filter(|rejection| descriptions(rejection.request)) {
            if let Why::NoSuchAccelerator { near } = &rejection.why {
                names.extend(near.iter().cloned());
            }
        }
        names.sort();
        names.dedup();
        names
    }
}

/// Looks for machines for one of a task's descriptions.
pub(crate) fn search(market: &Market<'_>, at: usize, request: &Request, nodes: usize) -> Search {
    let mut found = Search::default();
    let one = request.cloud.map(|cloud| [cloud]);
    let clouds = one.as_ref().map_or(market.enabled, |one| one.as_slice());
    for cloud in clouds.iter().copied() {
        let mut rejected = Vec::new();
        let outcome = in_cloud(market, cloud, request, nodes, &mut rejected);
        found.rejections.extend(rejected.into_iter().map(|(what, why)| Rejection { request: at, cloud, what, why }));
        match outcome {
            Ok(candidates) => {
                found.candidates.extend(candidates.into_iter().map(|one| Candidate { request: at, ..one }));
            }
            Err(why) => found.rejections.push(Rejection { request: at, cloud, what: None, why }),
        }
    }
    found
}

fn in_cloud(
    market: &Market<'_>,
    cloud: Cloud,
    request: &Request,
    nodes: usize,
    rejected: &mut Vec<(Option<String>, Why)>,
) -> Result<Vec<Candidate>, Why> {
    if !market.enabled.contains(&cloud) {
        return Err(Why::NotEnabled);
    }
    let mut lacking: Vec<Feature> = request.needs.iter().copied().filter(|feature| !feature.is_had_by(cloud)).collect();
    let is_tpu_node = cloud == Cloud::Gcp
        && !request.tpu_vm
        && request.accelerator.as_ref().is_some_and(|(name, _)| name.starts_with("tpu-"));
    if nodes > 1 && (!Feature::MultiNode.is_had_by(cloud) || is_tpu_node) {
        lacking.insert(0, Feature::MultiNode);
    }
    if !lacking.is_empty() {
        return Err(Why::Lacks(lacking));
    }
    let all = if matches!(cloud, Cloud::Kubernetes | Cloud::Ssh | Cloud::Local) {
        free::candidates(market.nodes, cloud, request, nodes)?
    } else {
        priced(market, cloud, request, rejected)?
    };
    let blocked = |one: &Candidate| market.blocked.iter().any(|block| block.matches(one));
    let (dropped, kept): (Vec<Candidate>, Vec<Candidate>) = all.into_iter().partition(blocked);
    rejected.extend(dropped.iter().map(|one| (Some(one.told()), Why::Blocked)));
    Ok(kept)
}

fn priced(
    market: &Market<'_>,
    cloud: Cloud,
    request: &Request,
    rejected: &mut Vec<(Option<String>, Why)>,
) -> Result<Vec<Candidate>, Why> {
    let catalogue = market.catalogue;
    let kinds = market::kinds(catalogue, cloud, request, market.rules)?;
    let Some((kind, others)) = kinds.split_first() else { return Err(Why::NoSuchSize) };
    rejected.extend(others.iter().map(|other| (Some(other.name.clone()), Why::Dearer { than: kind.name.clone() })));
    let mut candidates = Vec::new();
    let mut dropped = None;
    for (region, zone) in places(market, cloud, kind, request) {
        let one = candidate(catalogue, cloud, kind, request.use_spot, region, zone);
        let refusal = match &one {
            _ if request.image_regions.as_ref().is_some_and(|known| !known.iter().any(|name| name == region)) => {
                Why::NoImage
            }
            None => Why::NoPrice { spot: request.use_spot },
            // SkyPilot looks at the price when it chooses the type, and not again in each region
            Some(one)
                if market.rules == Rules::Own && request.max_hourly_cost.is_some_and(|limit| one.hourly > limit) =>
            {
                Why::TooDear { least: one.hourly }
            }
            Some(_) => {
                candidates.extend(one);
                continue;
            }
        };
        dropped = Some(refusal.clone());
        rejected.push((Some(told(&kind.name, region, zone)), refusal));
    }
    if candidates.is_empty() && dropped.is_none() {
        return Err(if request.use_spot && !places_at_full_price(market, cloud, kind, request) {
            Why::NoPrice { spot: true }
        } else {
            Why::NotThere
        });
    }
    Ok(candidates)
}

fn places_at_full_price(market: &Market<'_>, cloud: Cloud, kind: &Kind, request: &Request) -> bool {
    let full = Request { use_spot: false, ..request.clone() };
    places(market, cloud, kind, &full).is_empty()
}

/// Regions, or zones where a machine is chosen by zone (spot, and always on GCP), that a request lets in.
fn places<'a>(market: &Market<'a>, cloud: Cloud, kind: &Kind, request: &'a Request) -> Vec<(&'a str, Option<&'a str>)> {
    let mut places = Vec::new();
    for region in market::regions(market.catalogue, cloud, kind, request.use_spot) {
        if request.region.as_ref().is_some_and(|asked| asked != region.name) {
            continue;
        }
        let asked = request.zone.as_deref();
        let zones = region
            .zones
            .map(|zones| zones.into_iter().filter(|zone| asked.is_none_or(|asked| asked == *zone)).collect::<Vec<_>>());
        match zones {
            Some(zones) if zones.is_empty() => {}
            Some(zones) if request.use_spot || cloud == Cloud::Gcp => {
                places.extend(zones.into_iter().map(|zone| (region.name, Some(zone))));
            }
            _ => places.push((region.name, asked)),
        }
    }
    places
}

fn candidate(
    catalogue: &Catalogue,
    cloud: Cloud,
    kind: &Kind,
    use_spot: bool,
    region: &str,
    zone: Option<&str>,
) -> Option<Candidate> {
    let hourly = market::hourly(catalogue, cloud, kind, use_spot, region, zone)?;
    let (cpus, memory) = catalogue.size_of(cloud, &kind.name).unwrap_or_default();
    Some(Candidate {
        request: 0,
        cloud,
        region: region.to_owned(),
        zone: zone.map(str::to_owned),
        instance_type: kind.name.clone(),
        accelerator: kind.attached.clone().or_else(|| market::accelerators(catalogue, cloud, &kind.name)),
        cpus,
        memory,
        use_spot,
        hourly,
    })
}

fn told(instance_type: &str, region: &str, zone: Option<&str>) -> String {
    match zone {
        Some(zone) => format!("{instance_type} in {region}/{zone}"),
        None => format!("{instance_type} in {region}"),
    }
}

impl Candidate {
    fn told(&self) -> String {
        told(&self.instance_type, &self.region, self.zone.as_deref())
    }

    /// Cloud, region and zone in one text, as `infra` has them: `aws/us-east-1`.
    pub fn infra(&self) -> String {
        let region = self.region.strip_prefix("ssh-").unwrap_or(&self.region);
        let parts = [self.cloud.name(), region, self.zone.as_deref().unwrap_or_default()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
    }
}

impl Block {
    /// Whether it forbids a candidate.
    pub fn matches(&self, one: &Candidate) -> bool {
        let same = |blocked: &Option<String>, has: Option<&str>| {
            blocked.as_ref().is_none_or(|blocked| Some(blocked.as_str()) == has)
        };
        self.cloud.is_none_or(|cloud| cloud == one.cloud)
            && same(&self.instance_type, Some(&one.instance_type))
            && same(&self.region, Some(&one.region))
            && same(&self.zone, one.zone.as_deref())
            && self.accelerator.as_ref().is_none_or(|blocked| one.accelerator.as_ref() == Some(blocked))
            && self.use_spot.is_none_or(|spot| spot == one.use_spot)
    }
}

/// The places where a candidate's cloud has its type of machine, in the order in which they are tried; what a request pins and
/// what is blocked are not taken off.
pub fn tries(catalogue: &Catalogue, one: &Candidate) -> Vec<String> {
    let attached = one.accelerator.clone().filter(|_| one.cloud == Cloud::Gcp);
    let kind = Kind { name: one.instance_type.clone(), attached };
    let mut found = Vec::new();
    for region in market::regions(catalogue, one.cloud, &kind, one.use_spot) {
        match region.zones {
            Some(zones) if one.use_spot || one.cloud == Cloud::Gcp => {
                found.extend(zones.iter().map(|zone| format!("{}/{}/{zone}", one.cloud.name(), region.name)));
            }
            _ => found.push(format!("{}/{}", one.cloud.name(), region.name)),
        }
    }
    found
}
