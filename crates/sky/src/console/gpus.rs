//! `sky gpus list`: accelerators of machines that are there, and of the price lists.

use std::collections::BTreeMap;

use placement::Cloud;
use placement::list::{Listed, Wish, accelerators};

use super::{Circumstances, Printed, hosts, table};
use crate::commands::Call;
use crate::infra::Infra;

/// Names that are listed first.
pub(super) const COMMON: [&str; 14] = [
    "A10",
    "A10G",
    "A100",
    "A100-80GB",
    "B200",
    "H100",
    "H200",
    "L4",
    "L40S",
    "RTX5090",
    "RTXPRO6000",
    "T4",
    "V100",
    "V100-32GB",
];
/// TPUs that are listed: the small ones of each generation.
const TPUS: [&str; 14] = [
    "tpu-v2-8",
    "tpu-v3-8",
    "tpu-v4-8",
    "tpu-v4-16",
    "tpu-v4-32",
    "tpu-v5litepod-1",
    "tpu-v5litepod-4",
    "tpu-v5litepod-8",
    "tpu-v5p-8",
    "tpu-v5p-16",
    "tpu-v5p-32",
    "tpu-v6e-1",
    "tpu-v6e-4",
    "tpu-v6e-8",
];

pub(super) fn list(call: &Call, world: &Circumstances<'_>) -> Printed {
    let mut printed = Printed::default();
    let misused = |message: &str| Printed::default().misused(&call.path, message);
    let mut place = match call.value("infra").map(Infra::read).transpose() {
        Ok(place) => place.unwrap_or_default(),
        Err(error) => return printed.refused(&error),
    };
    if let Some(name) = call.value("cloud") {
        place.cloud = Cloud::from_name(name);
    }
    if let Some(region) = call.value("region") {
        place.region = Some(region.to_owned());
    }
    let asked = call.value("accelerator_str");
    let (all, all_regions) = (call.is_set("all"), call.is_set("all_regions"));
    let wrong = match () {
        () if place.region.is_some() && place.cloud.is_none() => {
            "The --region flag is only valid when the --cloud flag is set."
        }
        () if all_regions && asked.is_none() => {
            "The --all-regions flag is only valid when an accelerator is specified."
        }
        () if all_regions && place.region.is_some() => {
            "--all-regions and --region flags cannot be used simultaneously."
        }
        () if all && asked.is_some() => "--all is only allowed without a GPU name.",
        () => "",
    };
    if !wrong.is_empty() {
        return misused(wrong);
    }
    let (name, count) = match asked.map(split).transpose() {
        Ok(pair) => pair.unwrap_or_default(),
        Err(error) => return misused(&error.to_string()),
    };
    let pattern = |name: &str| {
        let pattern = |text: &str| regex::Regex::new(&format!("(?i){text}")).ok();
        pattern(name).or_else(|| pattern(&regex::escape(name)))
    };
    let pattern = name.as_deref().and_then(pattern);
    let named = |one: &str| pattern.as_ref().is_none_or(|pattern| pattern.is_match(one));
    let wish = Wish { named: &named, count, cloud: place.cloud, region: place.region.as_deref(), all_regions };
    let groups = accelerators(world.catalogue, &wish);
    if call.value("output_format") == Some("json") {
        printed.line(json(&groups));
        return printed;
    }
    let wish = hosts::Wish {
        named: &named,
        is_one: asked.is_some(),
        count,
        cloud: place.cloud,
        place: place.region.as_deref(),
    };
    let tables = hosts::tables(world.hosts, &wish, world.catalogue);
    if let Some(cloud) = place.cloud.filter(|cloud| matches!(cloud, Cloud::Local | Cloud::Ssh | Cloud::Kubernetes)) {
        let none = || hosts::none_found(cloud, name.as_deref(), count);
        printed.line(tables.into_iter().next().unwrap_or_else(none));
        return printed;
    }
    for table in &tables {
        printed.line(format!("{table}\n"));
    }
    if !tables.is_empty() {
        printed.line("Cloud GPUs");
    }
    if asked.is_none() {
        counts(&mut printed, &groups, all);
        if !all {
            return printed;
        }
    } else if groups.is_empty() {
        let count = count.map(|count| format!(" with requested quantity {count}")).unwrap_or_default();
        let cloud =
            place.cloud.map_or_else(|| " in cloud catalogs.".to_owned(), |cloud| format!(" on {}.", cloud.display()));
        printed.line(format!(
            "Resources '{}'{count} not found{cloud} To show available accelerators, run: sky gpus list --all",
            name.unwrap_or_default()
        ));
        return printed;
    }
    let tables: Vec<String> = groups.iter().map(|(_, rows)| details(rows, !all)).collect();
    printed.line(tables.join("\n\n"));
    printed
}

/// Why a text names no accelerator.
#[derive(Debug, thiserror::Error)]
enum SplitError {
    #[error("Invalid accelerator quantity {0}. Expected a positive integer.")]
    Quantity(String),
    #[error("Invalid accelerator string {0}. Expected format: <accelerator_name>[:<quantity>].")]
    Format(String),
}

/// `A100:8`.
fn split(text: &str) -> Result<(Option<String>, Option<f64>), SplitError> {
    match text.split(':').collect::<Vec<_>>().as_slice() {
        [name] => Ok((Some((*name).to_owned()), None)),
        [name, count] => match count.trim().parse::<u32>() {
            Ok(count) if count > 0 => Ok((Some((*name).to_owned()), Some(f64::from(count)))),
            _ => Err(SplitError::Quantity((*count).to_owned())),
        },
        _ => Err(SplitError::Format(text.to_owned())),
    }
}

/// How many of each accelerator a machine may have.
fn counts(printed: &mut Printed, groups: &[(String, Vec<Listed>)], all: bool) {
    let mut counts: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for one in groups.iter().flat_map(|(_, rows)| rows) {
        let list = counts.entry(one.name.clone()).or_default();
        if !list.contains(&one.count) {
            list.push(one.count);
        }
    }
    let mut take = |names: &mut dyn Iterator<Item = String>| -> Vec<Vec<String>> {
        names
            .filter_map(|name| {
                let mut list = counts.remove(&name)?;
                list.sort_by(f64::total_cmp);
                Some(vec![name, list.iter().map(f64::to_string).collect::<Vec<_>>().join(", ")])
            })
            .collect()
    };
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let (common, tpus) = (take(&mut owned(&COMMON).into_iter()), take(&mut owned(&TPUS).into_iter()));
    let others: Vec<String> = groups.iter().flat_map(|(_, rows)| rows).map(|one| one.name.clone()).collect();
    let mut others: Vec<Vec<String>> = take(&mut others.into_iter());
    others.sort();
    printed.line(table::plain(&["COMMON_GPU", "AVAILABLE_QUANTITIES"], &common));
    printed.line("");
    printed.line(table::plain(&["GOOGLE_TPU", "AVAILABLE_QUANTITIES"], &tpus));
    printed.line("");
    if all {
        printed.line(table::plain(&["OTHER_GPU", "AVAILABLE_QUANTITIES"], &others));
        printed.line("");
    } else {
        printed.line("Hint: use -a/--all to see all accelerators (including non-common ones) and pricing.");
    }
}

fn details(rows: &[Listed], with_region: bool) -> String {
    let mut head = vec![
        "GPU",
        "QTY",
        "CLOUD",
        "INSTANCE_TYPE",
        "DEVICE_MEM",
        "vCPUs",
        "HOST_MEM",
        "HOURLY_PRICE",
        "HOURLY_SPOT_PRICE",
    ];
    if with_region {
        head.push("REGION");
    }
    let gigabytes = |size: Option<f64>| size.map_or_else(|| "-".to_owned(), |size| format!("{size:.0}GB"));
    let dollars = |price: Option<f64>| price.map_or_else(|| "-".to_owned(), |price| format!("$ {price:.3}"));
    let line = |one: &Listed| {
        let cpus = match one.cpus {
            None => "-".to_owned(),
            Some(cpus) if cpus.fract() == 0.0 => format!("{cpus:.0}"),
            Some(cpus) => format!("{cpus:.1}"),
        };
        let mut cells = vec![
            one.name.clone(),
            format!("{:?}", one.count),
            one.cloud.display().to_owned(),
            one.instance_type.clone().unwrap_or_else(|| "(attachable)".to_owned()),
            gigabytes(one.device_memory),
            cpus,
            gigabytes(one.memory),
            dollars(one.price),
            dollars(one.spot_price),
        ];
        if with_region {
            cells.push(one.region.clone());
        }
        cells
    };
    table::plain(&head, &rows.iter().map(line).collect::<Vec<_>>())
}

fn json(groups: &[(String, Vec<Listed>)]) -> String {
    let row = |one: &Listed| {
        serde_json::json!({
            "cloud": one.cloud.display(), "instance_type": one.instance_type, "accelerator_name": one.name,
            "accelerator_count": one.count, "cpu_count": one.cpus, "device_memory": one.device_memory,
            "memory": one.memory, "price": one.price, "spot_price": one.spot_price, "region": one.region,
        })
    };
    let map: serde_json::Map<String, serde_json::Value> =
        groups.iter().map(|(name, rows)| (name.clone(), rows.iter().map(row).collect())).collect();
    serde_json::to_string_pretty(&map).unwrap_or_default()
}
