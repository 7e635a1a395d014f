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
        // an SSH machine is Kubernetes' to SkyPilot
        let name = if cloud == Cloud::Ssh { Cloud::Kubernetes } else { cloud }.display();
        match (self, cloud) {
            (Self::MultiNode, _) => {
                format!("Multi-node not supported yet, as the interconnection among nodes are non-trivial on {name}.")
            }
            (Self::Spot, _) => format!("Spot instances are not supported in {name}."),
            (Self::DockerImage, _) => format!("Docker image is not supported on {name}"),
            (Self::ImageId, Cloud::Lambda) => format!("Specifying image ID is not supported in {name}."),
            (Self::ImageId, _) => format!("Image ID is not supported on {name}"),
            (Self::DiskTier, Cloud::RunPod) => format!("Customizing disk tier is not supported yet on {name}."),
            (Self::DiskTier, _) => format!("Custom disk tiers are not supported in {name}."),
            (Self::NetworkTier, Cloud::Azure) => format!("Custom network tier is not supported on {name}."),
            (Self::NetworkTier, Cloud::RunPod) => format!("Custom network tier is not supported yet on {name}."),
            (Self::NetworkTier, _) => format!("Custom network tier is currently not supported in {name}."),
            (Self::OpenPorts, _) => format!("Opening ports is not supported on {name}"),
            (Self::LocalDisk, _) => format!("Local disk is not supported on {name}"),
        }
    }
}

/// Whether a cloud has such disks (`low`, `medium`, `high`, `ultra`, `best`) for a type of machine; for some type where none is named.
pub fn has_disk_tier(cloud: Cloud, tier: &str, instance_type: Option<&str>) -> bool {
    match cloud {
        Cloud::Aws | Cloud::Gcp => true,
        _ if tier == "best" => true,
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
    }
}
