//! What a cloud cannot do, whatever it is paid.

use crate::cloud::Cloud;

/// What a cloud may be unable to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Several machines that reach one another.
    MultiNode,
    /// Machines that may be taken away, for less.
    Spot,
    /// A container image.
    DockerImage,
    /// A machine image.
    ImageId,
    /// A choice of disks.
    DiskTier,
    /// A choice of networks.
    NetworkTier,
    /// Open ports.
    OpenPorts,
    /// A disk inside the machine.
    LocalDisk,
}

impl Feature {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::MultiNode => "multi-node",
            Self::Spot => "spot_instance",
            Self::DockerImage => "docker_image",
            Self::ImageId => "image_id",
            Self::DiskTier => "custom_disk_tier",
            Self::NetworkTier => "custom_network_tier",
            Self::OpenPorts => "open_ports",
            Self::LocalDisk => "local_disk",
        }
    }

    /// Whether a cloud can do it.
    pub fn is_had_by(self, cloud: Cloud) -> bool {
        use Cloud as C;
        match self {
            Self::MultiNode => !matches!(
                cloud,
                C::Hyperbolic
                    | C::PrimeIntellect
                    | C::RunPod
                    | C::Seeweb
                    | C::Shadeform
                    | C::Vast
                    | C::Verda
                    | C::Vsphere
                    | C::Yotta
            ),
            Self::Spot => !matches!(
                cloud,
                C::Cudo
                    | C::Do
                    | C::Fluidstack
                    | C::Hyperbolic
                    | C::Kubernetes
                    | C::Lambda
                    | C::Local
                    | C::Paperspace
                    | C::Scp
                    | C::Seeweb
                    | C::Shadeform
                    | C::Slurm
                    | C::Ssh
                    | C::Vsphere
                    | C::Yotta
            ),
            Self::DockerImage => !matches!(
                cloud,
                C::Cudo
                    | C::Hyperbolic
                    | C::Ibm
                    | C::Local
                    | C::Oci
                    | C::PrimeIntellect
                    | C::Scp
                    | C::Shadeform
                    | C::Slurm
                    | C::Verda
                    | C::Vsphere
            ),
            Self::ImageId => !matches!(
                cloud,
                C::Cudo
                    | C::Fluidstack
                    | C::Hyperbolic
                    | C::Lambda
                    | C::Local
                    | C::Mithril
                    | C::Paperspace
                    | C::PrimeIntellect
                    | C::Scp
                    | C::Seeweb
                    | C::Shadeform
                    | C::Vsphere
            ),
            Self::DiskTier => matches!(cloud, C::Aws | C::Azure | C::Gcp | C::Nebius | C::Oci | C::Slurm),
            Self::NetworkTier => matches!(cloud, C::Aws | C::Gcp | C::Ibm | C::Nebius | C::Oci | C::Slurm),
            Self::OpenPorts => !matches!(cloud, C::Hyperbolic | C::Ibm | C::Mithril | C::Slurm | C::Verda | C::Vsphere),
            Self::LocalDisk => cloud == C::Aws,
        }
    }

    /// Why a cloud cannot do it, as messages tell it.
    pub fn reason(self, cloud: Cloud) -> String {
        use Cloud as C;
        // an SSH machine is Kubernetes' to SkyPilot
        let cloud = if cloud == C::Ssh { C::Kubernetes } else { cloud };
        let name = cloud.display();
        match (self, cloud) {
            (Self::MultiNode, C::Hyperbolic) => "Multi-node not supported.".into(),
            (Self::MultiNode, C::PrimeIntellect) => "Multi-node not supported yet.".into(),
            (Self::MultiNode, C::Seeweb) => "Multi-node not supported. Seeweb does not support multi-node clusters.".into(),
            (Self::MultiNode, C::Shadeform) => format!("Multi-node clusters not supported on {name}."),
            (Self::MultiNode, C::Vsphere) => format!("Multi-node is not supported by the {name} implementation yet."),
            (Self::MultiNode, _) => {
                format!("Multi-node not supported yet, as the interconnection among nodes are non-trivial on {name}.")
            }
            (Self::Spot, C::Cudo) => "Spot is not supported, as Cudo API does not implement spot.".into(),
            (Self::Spot, C::Hyperbolic) => "Spot instances not supported.".into(),
            (Self::Spot, C::Seeweb) => "Spot instances not supported. Seeweb does not support spot instances.".into(),
            (Self::Spot, C::Shadeform) => format!("Spot instances not supported on {name}."),
            (Self::Spot, C::Yotta) => format!("Spot instances not supported yet on {name}."),
            (Self::Spot, _) => format!("Spot instances are not supported in {name}."),
            (Self::DockerImage, C::Cudo | C::Ibm | C::Oci | C::Scp | C::Vsphere) => format!(
                "Docker image is currently not supported on {name}. You can try running docker command inside the `run` section in task.yaml."
            ),
            (Self::DockerImage, C::Hyperbolic) => "Docker images not supported.".into(),
            (Self::DockerImage, C::PrimeIntellect) => "Custom docker image not supported yet.".into(),
            (Self::DockerImage, C::Shadeform) => format!("Docker images not supported on {name} yet."),
            (Self::DockerImage, C::Slurm) => "Docker image is not supported on this Slurm cluster because the Pyxis plugin is not installed. Please ask your cluster administrator to install Pyxis (https://github.com/NVIDIA/pyxis).".into(),
            (Self::DockerImage, C::Verda) => format!("Docker images are not supported on {name}."),
            (Self::DockerImage, _) => format!("Docker image is not supported on {name}"),
            // the space at the end is SkyPilot's
            (Self::ImageId, C::Cudo) => format!("Image ID is currently not supported on {name}. "),
            (Self::ImageId, C::Fluidstack | C::Paperspace) => format!("Specifying image ID is not supported for {name}."),
            (Self::ImageId, C::Hyperbolic) => "Custom image IDs not supported.".into(),
            (Self::ImageId, C::Lambda) => format!("Specifying image ID is not supported in {name}."),
            (Self::ImageId, C::Mithril) => format!("Custom image IDs are not supported yet on {name}."),
            (Self::ImageId, C::PrimeIntellect) => "Custom image not supported yet.".into(),
            (Self::ImageId, C::Scp) => format!("Specifying image ID is currently not supported on {name}."),
            (Self::ImageId, C::Seeweb) => "Custom image IDs not supported. Seeweb does not support custom image IDs.".into(),
            (Self::ImageId, C::Shadeform) => format!("Custom image IDs not supported on {name}."),
            (Self::ImageId, C::Vsphere) => format!("Specifying image id is currently not supported on {name}."),
            (Self::ImageId, _) => format!("Image ID is not supported on {name}"),
            (Self::DiskTier, C::Cudo) => format!("Custom disk tier is currently not supported on {name} Compute"),
            (Self::DiskTier, C::Do | C::Fluidstack | C::Paperspace) => {
                format!("Custom disk tiers is not supported in {name}.")
            }
            (Self::DiskTier, C::Hyperbolic) => "Custom disk tiers not supported.".into(),
            (Self::DiskTier, C::Ibm) => format!("Custom disk tier is currently not supported on {name}."),
            (Self::DiskTier, C::Mithril) => format!("Custom disk tier is not supported yet on {name}."),
            (Self::DiskTier, C::PrimeIntellect) => "Custom disk tier not supported yet.".into(),
            (Self::DiskTier, C::RunPod | C::Vast | C::Verda | C::Yotta) => {
                format!("Customizing disk tier is not supported yet on {name}.")
            }
            (Self::DiskTier, C::Seeweb) => {
                "Custom disk tiers not supported. Seeweb does not support custom disk tiers.".into()
            }
            (Self::DiskTier, C::Shadeform) => format!("Custom disk tiers not supported on {name}."),
            (Self::DiskTier, _) => format!("Custom disk tiers are not supported in {name}."),
            (Self::NetworkTier, C::Azure) => format!("Custom network tier is not supported on {name}."),
            (Self::NetworkTier, C::Cudo) => format!("Custom network tier is currently not supported on {name} Compute"),
            (Self::NetworkTier, C::Hyperbolic) => "Custom network tiers not supported.".into(),
            (Self::NetworkTier, C::Kubernetes) => {
                format!("Custom network tier is not supported in this {name} cluster.")
            }
            (Self::NetworkTier, C::Mithril | C::RunPod | C::Verda | C::Yotta) => {
                format!("Custom network tier is not supported yet on {name}.")
            }
            (Self::NetworkTier, C::PrimeIntellect) => "Custom network tier not supported yet.".into(),
            (Self::NetworkTier, C::Seeweb) => {
                "Custom network tiers not supported. Seeweb does not support custom network tiers.".into()
            }
            (Self::NetworkTier, C::Shadeform) => format!("Custom network tiers not supported on {name}."),
            (Self::NetworkTier, _) => format!("Custom network tier is currently not supported in {name}."),
            (Self::OpenPorts, C::Hyperbolic) => "Opening ports not supported.".into(),
            (Self::OpenPorts, C::Ibm | C::Vsphere) => format!("Opening ports is currently not supported on {name}."),
            (Self::OpenPorts, C::Mithril) => format!("Opening ports is not supported yet on {name}."),
            (Self::OpenPorts, C::Slurm) => format!("Opening ports is not supported in {name}."),
            (Self::OpenPorts, C::Verda) => format!("Opening ports is not supported on {name}."),
            (Self::OpenPorts, _) => format!("Opening ports is not supported on {name}"),
            (Self::LocalDisk, C::Mithril) => format!("Local disk is not supported yet on {name}."),
            (Self::LocalDisk, C::PrimeIntellect) => "Local disk is not supported yet.".into(),
            (Self::LocalDisk, C::Shadeform) => format!("Local disk is not supported on {name}."),
            (Self::LocalDisk, C::Yotta) => format!("Specifying local disks are not supported on {name}."),
            (Self::LocalDisk, _) => format!("Local disk is not supported on {name}"),
        }
    }
}

/// Whether a cloud has such disks (`low`, `medium`, `high`, `ultra`, `best`) for a type of machine; for some type where none is named.
pub fn has_disk_tier(cloud: Cloud, tier: &str, instance_type: Option<&str>) -> bool {
    match cloud {
        Cloud::Aws | Cloud::Gcp => true,
        _ if tier == "best" => true,
        Cloud::Nebius | Cloud::Oci => tier != "ultra",
        // fast disks come with the machines whose names have an `s`
        Cloud::Azure => tier != "ultra" && (tier == "low" || instance_type.is_none_or(is_s_series)),
        _ => false,
    }
}

/// Azure's names of machines: family, size, then letters for what they can do.
fn is_s_series(name: &str) -> bool {
    azure_parts(name).is_some_and(|(_, letters)| letters.chars().take_while(char::is_ascii_lowercase).any(|c| c == 's'))
}

/// Family and the rest behind the size of an Azure machine: (`E`, `s_v5`) of `Standard_E8-4s_v5`.
pub(crate) fn azure_parts(name: &str) -> Option<(&str, &str)> {
    let name = name.strip_prefix("Standard_").or_else(|| name.strip_prefix("Basic_"))?;
    let size = name.find(|c: char| !c.is_ascii_alphabetic())?;
    let (family, rest) = (name.get(..size)?, name.get(size..)?);
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let mut rest = rest.get(digits(rest)..)?;
    if let Some(fewer) = rest.strip_prefix('-')
        && digits(fewer) > 0
    {
        rest = fewer.get(digits(fewer)..)?;
    }
    Some((family, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn azure_machines_with_fast_disks_have_an_s() {
        for (name, fast) in [
            ("Standard_D8s_v5", true),
            ("Standard_NC6s_v3", true),
            ("Standard_NC24ads_A100_v4", true),
            ("Standard_E8-4s_v5", true),
            ("Standard_D2_v5", false),
            ("Basic_A1", false),
            ("whatever", false),
        ] {
            assert_eq!(has_disk_tier(Cloud::Azure, "high", Some(name)), fast, "{name}");
        }
        assert!(!has_disk_tier(Cloud::Azure, "ultra", Some("Standard_D8s_v5")));
        assert!(has_disk_tier(Cloud::Azure, "low", Some("Standard_D2_v5")));
        assert!(!has_disk_tier(Cloud::Lambda, "low", None));
        assert!(has_disk_tier(Cloud::Oci, "low", None) && !has_disk_tier(Cloud::Nebius, "ultra", None));
    }
}
