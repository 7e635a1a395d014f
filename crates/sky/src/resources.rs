//! What a task asks for: one machine's description, or several of which one will do.

mod alternatives;
mod fields;

pub(crate) use fields::recovery;

use placement::{Catalogue, Cloud};

use crate::error::TaskError;
use crate::infra::Infra;
use crate::value::{Map, Value, float, quote};

/// How several descriptions are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Any of them; the cheapest wins.
    Any,
    /// The first that can be had.
    Preferred,
}

/// One description, or several.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternatives {
    /// How several are meant.
    pub order: Order,
    /// At least one.
    pub list: Vec<Resources>,
}

/// When an idle cluster is stopped.
#[derive(Clone, Debug, PartialEq)]
pub enum Autostop {
    /// Never.
    Off,
    /// After some minutes.
    After {
        /// How many.
        minutes: Value,
        /// Whether it is deleted rather than stopped.
        down: Value,
        /// What keeps it from being idle: `jobs_and_ssh`, `jobs`, `none`.
        wait_for: Option<String>,
    },
}

/// One machine's description. What is not given is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources {
    /// Cloud, region and zone.
    pub infra: Infra,
    /// The provider's name of the machine's type.
    pub instance_type: Option<String>,
    /// Processors: `4`, `4+`.
    pub cpus: Option<String>,
    /// GiB: `16`, `16+`, `4x` (times the processors).
    pub memory: Option<String>,
    /// Name and count.
    pub accelerators: Option<(String, Value)>,
    /// Settings of the accelerators.
    pub accelerator_args: Option<Map>,
    /// Whether a machine is asked for that may be taken away.
    pub use_spot: Option<bool>,
    /// What a managed job does when its machine is gone.
    pub job_recovery: Option<Map>,
    /// Whether that was said to be `none`. SkyPilot drops the word, and recovers.
    pub never_recovers: bool,
    /// GiB.
    pub disk_size: Option<i128>,
    /// `low`, `medium`, `high`, `ultra`, `best`.
    pub disk_tier: Option<String>,
    /// `standard`, `best`.
    pub network_tier: Option<String>,
    /// `mode:size[+]`.
    pub local_disk: Option<String>,
    /// Dollars an hour, at most.
    pub max_hourly_cost: Option<Value>,
    /// Ports and ranges, sorted.
    pub ports: Option<Vec<String>>,
    /// Labels of the machine.
    pub labels: Option<Map>,
    /// Image by region; the region is null where one image is meant for all.
    pub image_id: Option<Map>,
    /// The container image beside a machine image.
    pub docker_image: Option<String>,
    /// When it is stopped.
    pub autostop: Option<Autostop>,
    /// Scripts that run before it is stopped.
    pub hooks: Vec<Map>,
    /// -1000 to 1000.
    pub priority: Option<Value>,
    /// A named priority.
    pub priority_class: Option<String>,
    /// Disks to attach.
    pub volumes: Option<Vec<Value>>,
    /// Settings of the task that override the user's configuration.
    pub overrides: Option<Map>,
    /// How to log in to the registry of the container image.
    pub docker_login: Option<Map>,
    /// The registry's user on RunPod.
    pub runpod_docker_username: Option<String>,
    /// Whether buckets are mounted.
    pub requires_fuse: Option<bool>,
    /// Whether the image was made by the platform.
    pub image_managed: Option<bool>,
    /// Whether the accelerator was chosen by its memory rather than named.
    pub accelerator_unnamed: Option<bool>,
}

impl Alternatives {
    /// As a file for the server has it.
    pub fn write(&self, catalogue: &Catalogue) -> Map {
        match self.list.as_slice() {
            [one] => one.write(catalogue),
            many => {
                let list = many.iter().map(|one| Value::Map(one.write(catalogue))).collect::<Vec<_>>();
                let key = if self.order == Order::Preferred { "ordered" } else { "any_of" };
                Map::from_iter([(key, Value::List(list))])
            }
        }
    }
}

impl Resources {
    /// A machine whose memory is its type's must be of a type that there is. Without a price list nothing is known.
    ///
    /// # Errors
    /// For an instance type that its cloud does not have.
    pub(crate) fn check_instance_type(&self, catalogue: &Catalogue) -> Result<(), TaskError> {
        let (None, Some(cloud), Some(name)) = (&self.memory, self.infra.cloud, &self.instance_type) else {
            return Ok(());
        };
        if catalogue.size_of(cloud, name).is_some() {
            return Ok(());
        }
        let message = match cloud {
            Cloud::Kubernetes | Cloud::Ssh => format!(
                "Invalid Kubernetes instance type: {}. Kubernetes instance types use the format \"<cpus>CPU--<mem>GB\" or \"<cpus>CPU--<mem>GB--<accelerator>:<count>\" (e.g. \"4CPU--16GB\", \"4CPU--16GB--H100:1\").",
                quote(name)
            ),
            Cloud::Slurm => format!("Invalid instance name: {name}"),
            // accelerators of a TPU pod have no machine of their own
            Cloud::Gcp if name == "TPU-VM" => return Ok(()),
            _ if catalogue.offers(cloud).is_empty() => return Ok(()),
            _ => format!("No instance type {name} found."),
        };
        Err(TaskError::value(message))
    }

    /// The container image, if one is meant.
    pub fn container_image(&self) -> Option<String> {
        if let Some(image) = &self.docker_image {
            return Some(image.clone());
        }
        let images = self.image_id.as_ref().filter(|images| images.len() == 1)?;
        let (region, image) = images.iter().next()?;
        let meant = region.is_null() || region.as_str() == self.infra.region.as_deref();
        meant.then(|| image.as_str()?.strip_prefix("docker:").map(str::to_owned)).flatten()
    }

    /// The machine with a login to the registry of its container image; unchanged where there is no such image.
    pub fn with_docker_login(mut self, login: &Map) -> Self {
        let Some(image) = self.container_image() else { return self };
        self.docker_login = Some(login.clone());
        if self.docker_image.is_none() {
            let region = self.image_id.as_ref().and_then(|images| images.keys().next().cloned()).unwrap_or(Value::Null);
            self.image_id = Some(Map::from_iter([(region, format!("docker:{image}"))]));
        }
        self
    }

    /// As a file for the server has it.
    pub fn write(&self, catalogue: &Catalogue) -> Map {
        let mut out = Map::new();
        out.insert_some("infra", self.infra.text());
        out.insert_some("instance_type", self.instance_type.clone());
        out.insert_some("cpus", self.cpus.clone());
        let of_type = || Some(float(catalogue.memory_of(self.infra.cloud?, self.instance_type.as_deref()?)?));
        out.insert_some("memory", self.memory.clone().or_else(of_type));
        out.insert_some(
            "accelerators",
            self.accelerators.clone().map(|(name, count)| Value::Map(Map::from_iter([(name, count)]))),
        );
        out.insert_some("accelerator_args", self.accelerator_args.clone());
        out.insert_some("use_spot", self.use_spot);
        out.insert_some("job_recovery", self.job_recovery.clone());
        out.insert_some("disk_size", self.disk_size);
        let mut images = self.image_id.clone().unwrap_or_default();
        images.insert_some("docker", self.docker_image.clone());
        out.insert_some("image_id", Some(images).filter(|images| !images.is_empty()));
        out.insert_some("disk_tier", self.disk_tier.clone());
        out.insert_some("network_tier", self.network_tier.clone());
        out.insert_some("local_disk", self.local_disk.clone());
        out.insert_some("max_hourly_cost", self.max_hourly_cost.clone());
        out.insert_some("ports", self.ports.as_deref().map(Value::from));
        out.insert_some("labels", self.labels.clone());
        out.insert_some("volumes", self.volumes.clone());
        out.insert_some("autostop", self.autostop.as_ref().map(Autostop::write));
        out.insert_some("_no_missing_accel_warnings", self.accelerator_unnamed);
        out.insert_some("priority", self.priority.clone());
        out.insert_some("priority_class", self.priority_class.clone());
        out.insert_some("_docker_login_config", self.docker_login.clone());
        out.insert_some("_docker_username_for_runpod", self.runpod_docker_username.clone());
        out.insert_some("_cluster_config_overrides", self.overrides.clone());
        out.insert_some("_is_image_managed", self.image_managed);
        out.insert_some("_requires_fuse", self.requires_fuse);
        out
    }
}

impl Autostop {
    fn write(&self) -> Value {
        match self {
            Self::Off => Value::Bool(false),
            Self::After { minutes, down, wait_for } => {
                let mut out = Map::from_iter([("idle_minutes", minutes.clone()), ("down", down.clone())]);
                out.insert_some("wait_for", wait_for.clone());
                Value::Map(out)
            }
        }
    }
}
