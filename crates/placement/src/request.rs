//! What is asked for.

use std::collections::BTreeSet;

use crate::abilities::Feature;
use crate::cloud::Cloud;

/// How much of something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// So much and no more.
    Exactly(f64),
    /// So much or more.
    AtLeast(f64),
    /// So many for each processor, or more (memory alone).
    PerCpu(f64),
}

impl Amount {
    /// Reads `8`, `8+`, `4x`; nothing for what is none of them.
    pub fn read(text: &str) -> Option<Self> {
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        match (text.strip_suffix('+'), text.strip_suffix('x')) {
            (Some(text), _) => number(text).map(Self::AtLeast),
            (_, Some(text)) => number(text).map(Self::PerCpu),
            _ => number(text).map(Self::Exactly),
        }
    }

    /// Whether a machine with so much, and so many processors, will do.
    #[expect(clippy::float_cmp, reason = "sizes that files name")]
    pub fn is_met_by(self, has: Option<f64>, cpus: Option<f64>) -> bool {
        has.is_some_and(|has| match self {
            Self::Exactly(wanted) => has == wanted,
            Self::AtLeast(wanted) => has >= wanted,
            Self::PerCpu(times) => cpus.is_some_and(|cpus| has >= cpus * times),
        })
    }
}

/// A disk inside the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskWish {
    /// Whether it must be NVMe.
    pub nvme: bool,
    /// GB of all of them; within one of it where it is exact.
    pub gigabytes: Amount,
}

/// One description of a machine. What is not given is any.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// The cloud.
    pub cloud: Option<Cloud>,
    /// The region; a context of Kubernetes, a pool of SSH machines.
    pub region: Option<String>,
    /// The zone.
    pub zone: Option<String>,
    /// The provider's name of the machine's type.
    pub instance_type: Option<String>,
    /// Processors.
    pub cpus: Option<Amount>,
    /// GiB.
    pub memory: Option<Amount>,
    /// Canonical name and count.
    pub accelerator: Option<(String, f64)>,
    /// Whether the accelerator is a TPU that comes with its own machine.
    pub tpu_vm: bool,
    /// Whether a machine is asked for that may be taken away.
    pub use_spot: bool,
    /// A disk inside the machine.
    pub local_disk: Option<DiskWish>,
    /// `low`, `medium`, `high`, `ultra`, `best`.
    pub disk_tier: Option<String>,
    /// Dollars an hour for one machine, at most.
    pub max_hourly_cost: Option<f64>,
    /// What the cloud must be able to do.
    pub needs: BTreeSet<Feature>,
    /// Regions in which its image is; all where nothing is said.
    pub image_regions: Option<Vec<String>>,
}

/// What may not be used. All that is given must be equal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// The cloud.
    pub cloud: Option<Cloud>,
    /// The region.
    pub region: Option<String>,
    /// The zone.
    pub zone: Option<String>,
    /// The machine's type.
    pub instance_type: Option<String>,
    /// Name and count.
    pub accelerator: Option<(String, f64)>,
    /// Whether it may be taken away.
    pub use_spot: Option<bool>,
}

/// A machine that is already there, and what of it is free.
#[derive(Clone, Debug, PartialEq)]
pub struct FreeNode {
    /// [`Cloud::Kubernetes`], [`Cloud::Ssh`] or [`Cloud::Local`].
    pub cloud: Cloud,
    /// The context, or the pool; empty for this machine.
    pub region: String,
    /// Whether anybody has looked at it. One that nobody has seen has room for one, whatever is asked for: the rest below says
    /// nothing, and its provider will tell.
    pub is_known: bool,
    /// Free processors.
    pub cpus: f64,
    /// Free GiB.
    pub memory: f64,
    /// Name of its accelerators, and how many are free.
    pub accelerator: Option<(String, f64)>,
}
