//! A task as the search for machines sees it, and what a message says where nothing was found.

use std::collections::BTreeSet;

use placement::place::{Task as Wanted, USUAL_SECONDS, Unplaceable};
use placement::search::{Search, Why};
use placement::{Amount, Block, Cloud, DiskWish, Feature, Request};

use crate::check::abilities::lacking;
use crate::error::{Class, TaskError};
use crate::resources::{Order, Resources};
use crate::task::Task;
use crate::value::{Value, float, parse_float, quote_all};

/// Tasks that run one after another, as the search for machines sees them.
///
/// # Errors
/// For data on a cloud whose prices nobody knows.
pub fn wanted(tasks: &[Task]) -> Result<Vec<Wanted>, TaskError> {
    let one = |(at, task): (usize, &Task)| {
        let inputs = match &task.inputs {
            Some((place, gigabytes)) if at == 0 => Some((cloud_of_data(place)?, gigabytes.as_number().unwrap_or(0.0))),
            _ => None,
        };
        Ok(Wanted {
            requests: task.resources.list.iter().map(|one| (request(one), USUAL_SECONDS)).collect(),
            ordered: task.resources.order == Order::Preferred,
            nodes: usize::try_from(task.num_nodes).unwrap_or(usize::MAX),
            parents: at.checked_sub(1).into_iter().collect(),
            inputs,
            outputs: task.outputs.as_ref().and_then(|(_, gigabytes)| gigabytes.as_number()).unwrap_or(0.0),
        })
    };
    tasks.iter().enumerate().map(one).collect()
}

fn cloud_of_data(place: &str) -> Result<Cloud, TaskError> {
    match place.split(':').next() {
        Some("s3") => Ok(Cloud::Aws),
        Some("gs") => Ok(Cloud::Gcp),
        Some("cos") => Ok(Cloud::Ibm),
        _ => Err(TaskError::value(format!("cloud path not supported: {place}")).at("$.inputs")),
    }
}

/// A description of a machine as the search sees it.
pub fn request(one: &Resources) -> Request {
    let amount = |text: &Option<String>| text.as_deref().and_then(Amount::read);
    let count = |count: &Value| count.as_number().unwrap_or(1.0);
    let tpu_vm = one.accelerators.as_ref().is_some_and(|(name, _)| name.to_lowercase().starts_with("tpu-"))
        && one.accelerator_args.as_ref().and_then(|args| args.get("tpu_vm")).is_none_or(Value::is_truthy);
    let regions = one.image_id.as_ref().filter(|images| images.keys().all(|region| !region.is_null()));
    Request {
        cloud: one.infra.cloud,
        region: one.infra.region.clone(),
        zone: one.infra.zone.clone(),
        instance_type: one.instance_type.clone(),
        cpus: amount(&one.cpus),
        memory: amount(&one.memory),
        accelerator: one.accelerators.as_ref().map(|(name, number)| (name.clone(), count(number))),
        tpu_vm,
        use_spot: one.use_spot.unwrap_or(false),
        local_disk: one.local_disk.as_deref().and_then(disk_wish),
        disk_tier: one.disk_tier.clone(),
        max_hourly_cost: one.max_hourly_cost.as_ref().and_then(Value::as_number),
        needs: needs(one),
        image_regions: regions.map(|images| images.keys().map(Value::text).collect()),
    }
}

/// Reads `nvme:900+`.
fn disk_wish(text: &str) -> Option<DiskWish> {
    let (mode, size) = text.split_once(':').unwrap_or(("nvme", text));
    let wanted = parse_float(size.trim_end_matches('+'))?;
    let gigabytes = if size.ends_with('+') { Amount::AtLeast(wanted) } else { Amount::Exactly(wanted) };
    Some(DiskWish { nvme: mode == "nvme", gigabytes })
}

fn needs(one: &Resources) -> BTreeSet<Feature> {
    let machine_image = one
        .image_id
        .as_ref()
        .is_some_and(|images| images.iter().any(|(_, image)| !image.text().starts_with("docker:")));
    let tier = one.disk_tier.as_deref().is_some_and(|tier| tier != "best");
    let attached = one.volumes.iter().flatten().filter_map(Value::as_map).any(|volume| volume.contains("disk_tier"));
    let given = [
        (Feature::Spot, one.use_spot == Some(true)),
        (Feature::DiskTier, tier || attached),
        (Feature::NetworkTier, one.network_tier.as_deref() == Some("best")),
        (Feature::DockerImage, one.container_image().is_some()),
        (Feature::ImageId, machine_image),
        (Feature::OpenPorts, one.ports.is_some()),
        (Feature::LocalDisk, one.local_disk.is_some()),
    ];
    given.into_iter().filter(|(_, needed)| *needed).map(|(feature, _)| feature).collect()
}

/// What may not be used: all that a description names.
pub fn block(one: &Resources) -> Block {
    let number = |count: &Value| count.as_number().unwrap_or(1.0);
    Block {
        cloud: one.infra.cloud,
        region: one.infra.region.clone(),
        zone: one.infra.zone.clone(),
        instance_type: one.instance_type.clone(),
        accelerator: one.accelerators.as_ref().map(|(name, count)| (name.clone(), number(count))),
        use_spot: Some(one.use_spot.unwrap_or(false)),
    }
}

/// What a message says where nothing will do for a task.
pub fn refusal(unplaceable: &Unplaceable, tasks: &[Task], enabled: &[Cloud]) -> TaskError {
    let told = match unplaceable {
        // clouds are looked at for all tasks before machines are for any
        Unplaceable::Nothing { task, search } => tasks
            .iter()
            .find_map(|task| not_enabled(task, enabled))
            .or_else(|| tasks.get(*task).map(|task| nothing(task, search, enabled))),
        Unplaceable::Circle => None,
    };
    TaskError { class: Class::Unavailable, ..TaskError::value(told.unwrap_or_else(|| unplaceable.to_string())) }
}

fn nothing(task: &Task, search: &Search, enabled: &[Cloud]) -> String {
    let list = &task.resources.list;
    // of descriptions in an order SkyPilot names the one that it tried last
    let first = match task.resources.order {
        Order::Preferred => list.len().saturating_sub(1),
        _ => 0,
    };
    let tried = list.iter().enumerate().skip(first);
    let clouds_named = |cloud: Cloud| list.iter().all(|one| one.infra.cloud == Some(cloud));
    let source = match () {
        () if !enabled.contains(&Cloud::Kubernetes) => "Catalog",
        () if list.iter().any(|one| one.infra.cloud.is_none()) => "Catalog and kubernetes cluster",
        () if clouds_named(Cloud::Ssh) => "Node pool",
        () if clouds_named(Cloud::Kubernetes) => "Kubernetes cluster",
        () => "Catalog",
    };
    let asked: Vec<String> =
        tried.clone().map(|(_, one)| format!("{}x {}", task.num_nodes, describe(one, true))).collect();
    let near = search.near(|at| at >= first);
    let near = if near.is_empty() {
        String::new()
    } else {
        format!("\nTry one of these offered accelerators: {}", quote_all(&near))
    };
    let mut hints = Vec::new();
    for (at, one) in tried {
        let lacks = search.rejections.iter().filter(|rejection| rejection.request == at).filter_map(|rejection| {
            let Why::Lacks(features) = &rejection.why else { return None };
            Some(lacking(rejection.cloud, features))
        });
        let lacks: Vec<String> = lacks.collect();
        if !lacks.is_empty() {
            hints.push(format!("Resource: {}\n{}", describe(one, false), lacks.join("\n")));
        }
    }
    let hints: Vec<String> = hints.join("\n").split('\n').map(|line| format!("      {line}")).collect();
    format!(
        "{source} does not contain any instances satisfying the request: {}.\nTo fix: relax or change the resource requirements.{near}\n\nHint: sky gpus list to list available accelerators.\n      sky check to check the enabled clouds.\nHint: Check Per Resource Hint\n{}",
        asked.join(", "),
        hints.join("\n")
    )
}

/// What a message says of a task that names clouds, none of which is enabled.
fn not_enabled(task: &Task, enabled: &[Cloud]) -> Option<String> {
    let disabled: Option<BTreeSet<Cloud>> =
        task.resources.list.iter().map(|one| one.infra.cloud.filter(|cloud| !enabled.contains(cloud))).collect();
    let disabled = disabled.filter(|disabled| !disabled.is_empty())?;
    let name = task.name.as_deref().map(|name| format!(" {}", crate::value::quote(name))).unwrap_or_default();
    let names: Vec<&str> = disabled.iter().map(|cloud| cloud.name()).collect();
    let displays = names.iter().map(|name| if *name == Cloud::Ssh.name() { "SSH Node Pools" } else { name });
    let displays: Vec<&str> = displays.collect();
    Some(format!(
        "Task{name} requires {} which {} not enabled. To enable access, change the task cloud requirement or run: sky check {}",
        displays.join(", "),
        if disabled.len() == 1 { "is" } else { "are" },
        names.join(" ")
    ))
}

/// A description of a machine in one line, as messages have it: `AWS({'V100': 1}, region=us-east-1)`.
pub fn describe(one: &Resources, with_place: bool) -> String {
    let mut parts: Vec<String> = Vec::new();
    let spot = if one.use_spot == Some(true) { "[Spot]" } else { "" };
    let machine = format!("{}{spot}", one.instance_type.as_deref().unwrap_or_default());
    if !machine.is_empty() {
        parts.push(machine);
    }
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            parts.push(format!("{name}{value}"));
        }
    };
    add("cpus=", one.cpus.clone());
    add("mem=", one.memory.clone());
    let accelerators = one
        .accelerators
        .as_ref()
        .map(|(name, count)| Value::Map([(name.as_str(), count.clone())].into_iter().collect()).quoted());
    add("", accelerators);
    let args = one.accelerator_args.as_ref().filter(|_| one.accelerators.is_some());
    add("accelerator_args=", args.map(|args| Value::Map(args.clone()).quoted()));
    let image = one.image_id.as_ref().map(|images| {
        let for_all = images.iter().find(|(region, _)| region.is_null()).map(|(_, image)| image.text());
        for_all.unwrap_or_else(|| Value::Map(images.clone()).quoted())
    });
    let images: Vec<String> =
        image.into_iter().chain(one.docker_image.as_ref().map(|image| format!("docker:{image}"))).collect();
    add("image_id=", Some(images.join(" | ")).filter(|text| !text.is_empty()));
    add("disk_tier=", one.disk_tier.clone());
    add("network_tier=", one.network_tier.clone());
    add("disk_size=", one.disk_size.map(|size| size.to_string()));
    add("local_disk=", one.local_disk.clone());
    add("max_cost=", one.max_hourly_cost.as_ref().map(|cost| format!("${}/hr", dollars(cost))));
    add("ports=", one.ports.as_ref().map(quote_all));
    if with_place {
        let region = one.infra.region.as_deref().map(|region| region.strip_prefix("ssh-").unwrap_or(region));
        add("region=", region.map(str::to_owned));
        add("zone=", one.infra.zone.clone());
    }
    format!("{}({})", one.infra.cloud.map_or("<Cloud>", Cloud::display), parts.join(", "))
}

fn dollars(cost: &Value) -> String {
    match cost {
        Value::Float(number) => float(*number),
        other => other.text(),
    }
}
