//! What a cloud can do for a machine: images, disks, ports, labels.

use placement::abilities::has_disk_tier;
use placement::{Cloud, Feature};
use regex::Regex;

use super::Surroundings;
use super::table::table;
use crate::error::TaskError;
use crate::quantity::disk_satisfies;
use crate::resources::Resources;
use crate::value::{Map, Value, quote};

/// GiB of a machine image of SkyPilot's on AWS.
const AWS_IMAGE_GIB: i128 = 45;

/// Looks at all that a machine asks of its cloud.
pub(super) fn check(resources: &mut Resources, around: &Surroundings<'_>) -> Result<(), TaskError> {
    image(resources, around)?;
    disk_tier(resources, resources.disk_tier.as_deref())?;
    volumes(resources)?;
    ports(resources, around)?;
    labels(resources, around)?;
    local_disk(resources, around)
}

/// Refuses what a cloud cannot do.
fn supports(cloud: Cloud, feature: Feature) -> Result<(), TaskError> {
    if feature.is_had_by(cloud) { Ok(()) } else { Err(TaskError::unsupported(lacking(cloud, &[feature]))) }
}

/// What a cloud cannot do, as messages tell it.
pub(crate) fn lacking(cloud: Cloud, features: &[Feature]) -> String {
    let rows = features.iter().map(|feature| vec![feature.name().into(), feature.reason(cloud)]).collect();
    format!(
        "The following features are not supported by {}:\n\t{}",
        cloud.display(),
        table(["Feature", "Reason"], rows).replace('\n', "\n\t")
    )
}

fn image(resources: &mut Resources, around: &Surroundings<'_>) -> Result<(), TaskError> {
    let error = |message: String| TaskError::value(message).at("$.resources.image_id");
    let docker = resources.container_image().is_some();
    let cloud = resources.infra.cloud;
    if resources.network_tier.as_deref() == Some("best") && !matches!(cloud, Some(Cloud::Gcp | Cloud::Nebius)) {
        let images = resources.image_id.iter().flat_map(Map::iter);
        let others: Vec<String> = images
            .filter(|(_, image)| !image.text().starts_with("docker:"))
            .map(|(region, image)| format!("{} (region: {})", image.text(), region.text()))
            .collect();
        if !others.is_empty() {
            return Err(error(format!(
                "When using network_tier=BEST, image_id must be a docker image. Found non-docker images: {}. Please either: (1) use a docker image (prefix with \"docker:\"), or (2) leave image_id empty to use the default",
                others.join(", ")
            )));
        }
    }
    if docker {
        if let Some(cloud) = cloud {
            supports(cloud, Feature::DockerImage)?;
        }
        if resources.docker_image.is_none() {
            return Ok(());
        }
    }
    let Some(images) = &mut resources.image_id else { return Ok(()) };
    let Some(cloud) = cloud else { return Err(error("Cloud must be specified when image_id is provided.".into())) };
    if !Feature::ImageId.is_had_by(cloud) {
        return Err(error(if cloud == Cloud::Lambda {
            "Lambda cloud only supports Docker images. Please prefix your image with \"docker:\" (e.g., image_id: docker:your-image-name).".into()
        } else {
            "image_id is only supported for AWS/GCP/Azure/IBM/OCI/Kubernetes/Nebius. For Lambda cloud, use \"docker:\" prefix for Docker images.".into()
        }));
    }
    if let Some(region) = resources.infra.region.as_deref() {
        let for_all = images.iter().find(|(key, _)| key.is_null()).map(|(_, image)| image.clone());
        let Some(image) = for_all.or_else(|| images.get(region).cloned()) else {
            return Err(error(format!(
                "image_id {} should contain the image for the specified region {region}.",
                Value::Map(images.clone()).quoted()
            )));
        };
        *images = Map::from_iter([(region, image)]);
    }
    for (region, image) in images.iter() {
        let (region, image) = (region.as_str(), image.text());
        let tagged = image.starts_with("skypilot:");
        if tagged && !around.catalogue.has_image(cloud, &image, region) {
            let place = region.map(|region| format!(" ({region})")).unwrap_or_default();
            return Err(error(format!(
                "Image tag {} is not valid, please make sure the tag exists in {}{place}.",
                quote(&image),
                cloud.display()
            )));
        }
        if cloud == Cloud::Aws && !tagged && region.is_none() {
            return Err(error(
                "image_id is only supported for AWS in a specific region, please explicitly specify the region.".into(),
            ));
        }
        let disk = resources.disk_size.unwrap_or(256);
        if cloud == Cloud::Aws && tagged && AWS_IMAGE_GIB > disk {
            return Err(error(format!(
                "Image {} is {AWS_IMAGE_GIB}GB, which is larger than the specified disk_size: {disk} GB. Please specify a larger disk_size to use this image.",
                quote(&image)
            )));
        }
    }
    Ok(())
}

fn disk_tier(resources: &Resources, tier: Option<&str>) -> Result<(), TaskError> {
    let (Some(tier), Some(cloud)) = (tier, resources.infra.cloud) else { return Ok(()) };
    let name = resources.instance_type.as_deref();
    if has_disk_tier(cloud, tier, name) {
        return Ok(());
    }
    Err(TaskError::value(format!("Disk tier {tier} is not supported for instance type {}.", name.unwrap_or("None")))
        .at("$.resources.disk_tier"))
}

fn volumes(resources: &Resources) -> Result<(), TaskError> {
    let Some(volumes) = &resources.volumes else { return Ok(()) };
    let error = |message: String| Err(TaskError::value(message).at("$.resources.volumes"));
    match resources.infra.cloud {
        None => return error("Cloud must be specified when volumes are provided.".into()),
        Some(Cloud::Gcp) => {}
        Some(other) => return error(format!("Volumes are only supported for GCP not for {}.", other.display())),
    }
    let named = volumes.iter().filter_map(Value::as_map).any(|volume| volume.contains("name"));
    if named && resources.infra.region.is_none() && resources.infra.zone.is_none() {
        return error("When specifying the volume name, please also specify the region or zone.".into());
    }
    Ok(())
}

fn ports(resources: &Resources, around: &Surroundings<'_>) -> Result<(), TaskError> {
    if resources.ports.is_none() {
        return Ok(());
    }
    match resources.infra.cloud {
        Some(cloud) => supports(cloud, Feature::OpenPorts),
        None if around.enabled.iter().any(|cloud| Feature::OpenPorts.is_had_by(*cloud)) => Ok(()),
        None => Err(TaskError::value(
            "No enabled clouds support opening ports. To fix: do not specify resources.ports, or enable a cloud that does support this feature.",
        )
        .at("$.resources.ports")),
    }
}

fn labels(resources: &Resources, around: &Surroundings<'_>) -> Result<(), TaskError> {
    let one = resources.infra.cloud.map(|cloud| [cloud]);
    let clouds = one.as_ref().map_or(around.enabled, |one| one.as_slice());
    let mut rows = Vec::new();
    for (key, value) in resources.labels.iter().flat_map(Map::iter) {
        let (key, value) = (key.text(), value.text());
        if let Some((cloud, reason)) = clouds.iter().find_map(|cloud| Some((cloud, bad_label(*cloud, &key, &value)?))) {
            rows.push(vec![format!("{key}: {value}"), format!("Label rejected due to {}: {reason}", cloud.display())]);
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    let table = table(["Label", "Reason"], rows).replace('\n', "\n\t");
    Err(TaskError::value(format!("The following labels are invalid:\n\t{table}")).at("$.resources.labels"))
}

/// Why a cloud does not take a label; the value is looked at last, and told first.
fn bad_label(cloud: Cloud, key: &str, value: &str) -> Option<String> {
    let is = |pattern: &str, text: &str| Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text));
    let (key_fits, value_fits, key_rule, value_rule) = match cloud {
        Cloud::Aws => (
            is(r"^\S{1,127}$", key) && !key.starts_with("aws:"),
            is(r"^\S{0,255}$", value),
            "Invalid tag key {} for AWS. Key must start with any character except 'aws:' and must be 128 characters or fewer in length.",
            "Invalid tag value {} for AWS. Value must be 256 characters or fewer in length.",
        ),
        Cloud::Gcp => (
            is(r"^[a-z]([a-z0-9_-]{0,62})?$", key),
            is(r"^[a-z0-9_-]{0,63}$", value),
            "Invalid label key {} for GCP. Key must start with a lowercase letter and can include lowercase alphanumeric characters, dashes, and underscores, with a total length of 63 characters or less.",
            "Invalid label value {} for GCP. Value can include lowercase alphanumeric characters, dashes, and underscores, with a total length of 63 characters or less.",
        ),
        Cloud::Kubernetes | Cloud::Ssh => (
            is(r"^(?:[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?$", key),
            is(r"^([a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?)?$", value),
            "Invalid label key {} for Kubernetes. Value must consist of alphanumeric characters or '-', '_', '.', and must be no more than 63 characters in length.",
            "Invalid label value {} for Kubernetes. Value must consist of alphanumeric characters or '-', '_', '.', and must be no more than 63 characters in length.",
        ),
        _ => return None,
    };
    match (key_fits, value_fits) {
        (_, false) => Some(value_rule.replace("{}", value)),
        (false, _) => Some(key_rule.replace("{}", key)),
        _ => None,
    }
}

fn local_disk(resources: &Resources, around: &Surroundings<'_>) -> Result<(), TaskError> {
    let Some(wanted) = &resources.local_disk else { return Ok(()) };
    match resources.infra.cloud {
        Some(cloud) => supports(cloud, Feature::LocalDisk)?,
        None if around.enabled.iter().any(|cloud| Feature::LocalDisk.is_had_by(*cloud)) => {}
        None => {
            return Err(TaskError::value(
                "No enabled cloud supports local disk selection. To fix: enable a cloud that supports this feature.",
            )
            .at("$.resources.local_disk"));
        }
    }
    let (Some(name), Some(cloud)) = (&resources.instance_type, resources.infra.cloud) else { return Ok(()) };
    let has = around.catalogue.machine(cloud, name).and_then(|offer| offer.local_disk.as_ref());
    if has.is_some_and(|disk| disk_satisfies(wanted, disk.nvme, disk.gigabytes)) {
        return Ok(());
    }
    Err(TaskError::value(format!("Specified instance type {name} does not have specified local disk {wanted}."))
        .at("$.resources.local_disk"))
}
