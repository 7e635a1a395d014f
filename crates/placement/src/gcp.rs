//! Google's accelerators are priced apart from their machines: which machine an accelerator goes with.

use crate::catalogue::{Catalogue, Offer};
use crate::cloud::Cloud;
use crate::request::Amount;

/// The machine's type of TPUs that bring their own.
pub(crate) const TPU_VM: &str = "TPU-VM";

/// Machines that are made for an accelerator: its name, and for each count of it the machines' types.
type MadeFor = (&'static str, &'static [(f64, &'static [&'static str])]);

const MADE_FOR: [MadeFor; 8] = [
    (
        "A100",
        &[
            (1.0, &["a2-highgpu-1g"]),
            (2.0, &["a2-highgpu-2g"]),
            (4.0, &["a2-highgpu-4g"]),
            (8.0, &["a2-highgpu-8g"]),
            (16.0, &["a2-megagpu-16g"]),
        ],
    ),
    (
        "A100-80GB",
        &[
            (1.0, &["a2-ultragpu-1g"]),
            (2.0, &["a2-ultragpu-2g"]),
            (4.0, &["a2-ultragpu-4g"]),
            (8.0, &["a2-ultragpu-8g"]),
        ],
    ),
    (
        "L4",
        &[
            (1.0, &["g2-standard-4", "g2-standard-8", "g2-standard-12", "g2-standard-16", "g2-standard-32"]),
            (2.0, &["g2-standard-24"]),
            (4.0, &["g2-standard-48"]),
            (8.0, &["g2-standard-96"]),
        ],
    ),
    (
        "H100",
        &[(1.0, &["a3-highgpu-1g"]), (2.0, &["a3-highgpu-2g"]), (4.0, &["a3-highgpu-4g"]), (8.0, &["a3-highgpu-8g"])],
    ),
    ("H100-MEGA", &[(8.0, &["a3-megagpu-8g"])]),
    ("H200", &[(8.0, &["a3-ultragpu-8g"])]),
    ("B200", &[(8.0, &["a4-highgpu-8g"])]),
    (
        "RTXPRO6000",
        &[
            (1.0, &["g4-standard-48"]),
            (2.0, &["g4-standard-96"]),
            (4.0, &["g4-standard-192"]),
            (8.0, &["g4-standard-384"]),
        ],
    ),
];

/// Processors of the machine to which accelerators are attached, where nothing is asked for: count, processors.
const PROCESSORS: [(&str, &[(f64, f64)]); 5] = [
    ("K80", &[(1.0, 4.0), (2.0, 8.0), (4.0, 16.0), (8.0, 32.0), (16.0, 64.0)]),
    ("V100", &[(1.0, 8.0), (2.0, 16.0), (4.0, 32.0), (8.0, 64.0)]),
    ("T4", &[(1.0, 4.0), (2.0, 8.0), (4.0, 48.0)]),
    ("P100", &[(1.0, 8.0), (2.0, 16.0), (4.0, 32.0), (8.0, 64.0)]),
    ("", &[(1.0, 8.0), (2.0, 16.0), (4.0, 32.0), (8.0, 64.0), (16.0, 128.0)]),
];
/// GiB for each of these processors, where nothing is asked for.
const MEMORY_PER_CPU: f64 = 4.0;
/// Machines to which accelerators can be attached.
const HOSTS: [&str; 3] = ["n1-standard", "n1-highmem", "n1-highcpu"];

/// The accelerators of a machine that is made for some.
pub(crate) fn made_for(instance_type: &str) -> Option<(&'static str, f64)> {
    MADE_FOR.iter().find_map(|(name, counts)| {
        counts.iter().find_map(|(count, types)| types.contains(&instance_type).then_some((*name, *count)))
    })
}

/// Offers of machines that an accelerator can go with, and what they must have then: processors and memory.
#[expect(clippy::float_cmp, reason = "counts that files name")]
pub(crate) fn hosts<'a>(
    catalogue: &'a Catalogue,
    (name, count): (&str, f64),
    cpus: Option<Amount>,
    memory: Option<Amount>,
) -> (Vec<&'a Offer>, Option<Amount>, Option<Amount>) {
    if let Some((_, counts)) = MADE_FOR.iter().find(|(made_for, _)| *made_for == name) {
        let types = counts.iter().find(|(has, _)| *has == count).map_or(&[][..], |(_, types)| types);
        let mut rows: Vec<&Offer> = Vec::new();
        for name in types {
            rows.extend(catalogue.of_type(Cloud::Gcp, name));
        }
        return (rows, cpus, memory);
    }
    let own = PROCESSORS.iter().find(|(known, _)| *known == name);
    let table = own.or_else(|| PROCESSORS.last()).map_or(&[][..], |(_, table)| table);
    let usual = table.iter().find(|(has, _)| *has == count).map(|(_, cpus)| *cpus);
    let cpus = cpus.or_else(|| usual.filter(|_| memory.is_none()).map(Amount::AtLeast));
    let memory = memory.or(match cpus {
        Some(Amount::Exactly(cpus) | Amount::AtLeast(cpus)) => Some(Amount::AtLeast(cpus * MEMORY_PER_CPU)),
        _ => None,
    });
    if cpus.is_none() && memory.is_none() {
        // so many of them go with no machine
        return (Vec::new(), None, None);
    }
    let is_host = |offer: &&Offer| {
        offer.instance_type.as_ref().is_some_and(|name| HOSTS.iter().any(|family| name.starts_with(family)))
    };
    (catalogue.offers(Cloud::Gcp).iter().filter(is_host).collect(), cpus, memory)
}

/// Dollars an hour for accelerators alone, in a region, and in a zone if one is named.
#[expect(clippy::float_cmp, reason = "counts that files name")]
pub(crate) fn price(
    catalogue: &Catalogue,
    (name, count): (&str, f64),
    spot: bool,
    region: &str,
    zone: Option<&str>,
) -> Option<f64> {
    let rows = || {
        catalogue.of_accelerator(Cloud::Gcp, name).filter(|offer| {
            offer.accelerators.as_ref().is_some_and(|(_, has)| *has == count)
                && offer.region == region
                && zone.is_none_or(|zone| offer.zone.as_deref() == Some(zone))
        })
    };
    let least = |spot| rows().filter_map(|offer| offer.price(spot)).min_by(f64::total_cmp);
    if spot { least(true).or_else(|| least(false)) } else { least(false) }
}
