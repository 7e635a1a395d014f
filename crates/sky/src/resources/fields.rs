//! The fields of one description, each read and checked.

use placement::Cloud;

use super::{Autostop, Resources};
use crate::error::TaskError;
use crate::infra::Infra;
use crate::quantity::{self, Suffixes};
use crate::schema::{self, Reader};
use crate::shapes::shape;
use crate::value::{Map, Value, parse_float, parse_int, quote};

/// The smallest disk that differs from "not given": a disk of this size counts as not given.
const DEFAULT_DISK_GIB: i128 = 256;
/// Seconds that a hook may take, unless it says otherwise.
const HOOK_SECONDS: i128 = 3600;
/// What a machine may be stopped for; hooks run at all of them, unless they say otherwise.
const HOOK_EVENTS: [&str; 3] = ["stop", "preemption", "down"];

impl Resources {
    pub(crate) fn read(mut config: Map, hooks: Option<&Value>, reader: Reader) -> Result<Self, TaskError> {
        let at = |field: &'static str| move |error: TaskError| error.at(format!("$.resources.{field}"));
        let mut text = |key: &str| config.take(key).map(|value| value.text());
        let (cloud, infra, region, zone) = (text("cloud"), text("infra"), text("region"), text("zone"));
        let mut this = Self {
            infra: place(cloud.as_deref(), infra, region, zone).map_err(at("infra"))?,
            instance_type: text("instance_type"),
            cpus: text("cpus"),
            local_disk: None,
            priority_class: text("priority_class").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()),
            runpod_docker_username: text("_docker_username_for_runpod"),
            ..Self::default()
        };
        let (memory, disk_size, local_disk) = (text("memory"), text("disk_size"), text("local_disk"));
        let (disk_tier, network_tier) = (text("disk_tier"), text("network_tier"));
        this.use_spot = config.take("use_spot").and_then(|value| value.as_bool());
        let said = config.take("job_recovery");
        this.never_recovers = said.is_some();
        this.job_recovery = recovery(said);
        this.never_recovers &= this.job_recovery.is_none();
        this.disk_size = disk_size.map(|size| disk(&size)).transpose().map_err(at("disk_size"))?.flatten();
        this.set_image(config.take("image_id")).map_err(at("image_id"))?;
        this.disk_tier = tier(disk_tier, "disk_tier", "Disk", &["low", "medium", "high", "ultra", "best"])
            .map_err(at("disk_tier"))?;
        this.network_tier =
            tier(network_tier, "network_tier", "Network", &["standard", "best"]).map_err(at("network_tier"))?;
        this.ports = config
            .take("ports")
            .map(|value| quantity::ports(port_texts(&value)))
            .transpose()
            .map_err(at("ports"))?
            .filter(|ports| !ports.is_empty());
        this.labels = map_of(config.take("labels"));
        this.docker_login = map_of(config.take("_docker_login_config"));
        this.requires_fuse = config.take("_requires_fuse").and_then(|value| value.as_bool());
        this.image_managed = config.take("_is_image_managed").and_then(|value| value.as_bool());
        this.accelerator_unnamed = config.take("_no_missing_accel_warnings").and_then(|value| value.as_bool());
        this.overrides = overrides(config.take("_cluster_config_overrides"), reader)?;
        check_cpus(this.cpus.as_deref()).map_err(at("cpus"))?;
        this.memory = memory.map(|text| memory_wish(&text, this.infra.cloud)).transpose().map_err(at("memory"))?;
        let args = map_of(config.take("accelerator_args"));
        this.set_accelerators(config.take("accelerators"), args).map_err(at("accelerators"))?;
        this.set_autostop(config.take("autostop"), hooks).map_err(at("autostop"))?;
        this.priority = config.take("priority");
        this.volumes =
            config.take("volumes").map(volumes).transpose().map_err(at("volumes"))?.filter(|list| !list.is_empty());
        this.local_disk = local_disk.map(|text| quantity::local_disk(&text)).transpose().map_err(at("local_disk"))?;
        this.max_hourly_cost = config.take("max_hourly_cost");
        Ok(this)
    }

    fn set_image(&mut self, image: Option<Value>) -> Result<(), TaskError> {
        let region = self.infra.region.clone().map_or(Value::Null, Value::Str);
        let mut images = match image {
            None => return Ok(()),
            Some(Value::Map(mut images)) => {
                if let Some(docker) = images.remove("docker") {
                    let docker = image_text(&docker)?;
                    self.docker_image = Some(docker.strip_prefix("docker:").unwrap_or(&docker).to_owned());
                }
                let for_all =
                    images.iter().find(|(key, _)| key.is_null()).map(|(_, image)| image_text(image)).transpose()?;
                match for_all {
                    Some(image) => Map::from_iter([(region, image)]),
                    None => images
                        .iter()
                        .map(|(key, image)| Ok((key.text().trim().to_owned(), image_text(image)?)))
                        .collect::<Result<Map, TaskError>>()?,
                }
            }
            Some(one) => Map::from_iter([(region, one.text().trim().to_owned())]),
        };
        if self.docker_image.is_some() {
            let both = images
                .iter()
                .filter(|(_, image)| image.text().starts_with("docker:"))
                .map(|(key, image)| format!("{} (region: {})", image.text(), key.text()));
            let both: Vec<String> = both.collect();
            if !both.is_empty() {
                return Err(TaskError::value(format!(
                    "image_id has both a 'docker' key and docker:-prefixed region values: {}. Please use only one mechanism to specify the Docker image.",
                    both.join(", ")
                )));
            }
        }
        if matches!(self.infra.cloud, Some(Cloud::Kubernetes | Cloud::Ssh)) {
            images = images.into_iter().map(|(key, image)| (key, with_docker(&image.text()))).collect();
        }
        self.image_id = Some(images).filter(|images| !images.is_empty());
        Ok(())
    }

    fn set_accelerators(&mut self, field: Option<Value>, args: Option<Map>) -> Result<(), TaskError> {
        self.accelerator_args = args;
        let Some(field) = field else { return Ok(()) };
        let (name, count) = match &field {
            Value::Str(text) => named_count(text)?,
            Value::Map(map) => match map.iter().next() {
                Some((name, count)) => (name.text(), count.clone()),
                None => return Ok(()),
            },
            other => return Err(TaskError::wrong_type("accelerators", other, "a name")),
        };
        if count.as_number().is_none_or(|number| number <= 0.0) {
            return Err(TaskError::value(format!(
                "Accelerator count must be a positive number. Got: {}: {}.",
                quote(&name),
                count.quoted()
            )));
        }
        if name.to_lowercase().contains("tpu") {
            self.set_tpu(&name)?;
        }
        self.accelerators = Some((name, count));
        Ok(())
    }

    /// TPUs are Google's: they choose the cloud, and the software of their machines.
    fn set_tpu(&mut self, name: &str) -> Result<(), TaskError> {
        const OF_GKE: [&str; 5] =
            ["tpu-v4-podslice", "tpu-v5-lite-device", "tpu-v5-lite-podslice", "tpu-v5p-slice", "tpu-v6e-slice"];
        let of_gke = OF_GKE.contains(&name);
        let cloud = *self.infra.cloud.get_or_insert(if of_gke { Cloud::Kubernetes } else { Cloud::Gcp });
        if !matches!(cloud, Cloud::Gcp | Cloud::Kubernetes) {
            return Err(TaskError::value("Cloud must be GCP or Kubernetes for TPU accelerators."));
        }
        let args = self.accelerator_args.get_or_insert_default();
        if cloud != Cloud::Gcp || of_gke {
            return Ok(());
        }
        let vm = args.get("tpu_vm").is_none_or(Value::is_truthy);
        if !args.contains("runtime_version") {
            let version = match name {
                _ if !vm => "2.12.0",
                name if name.starts_with("tpu-v5") => "v2-alpha-tpuv5",
                name if name.starts_with("tpu-v6e") => "v2-alpha-tpuv6e",
                _ => "tpu-vm-base",
            };
            args.insert("runtime_version", version);
        }
        match &self.instance_type {
            Some(other) if vm && other != "TPU-VM" => {
                Err(TaskError::value(format!("Cannot specify instance type (got {}) for TPU VM.", quote(other))))
            }
            _ => Ok(()),
        }
    }

    fn set_autostop(&mut self, field: Option<Value>, hooks: Option<&Value>) -> Result<(), TaskError> {
        let after = |minutes: Value| Autostop::After { minutes, down: Value::Bool(false), wait_for: None };
        let mut own_hook = None;
        self.autostop = match field {
            Some(Value::Bool(false)) => Some(Autostop::Off),
            Some(Value::Bool(true)) => Some(after(Value::Int(0))),
            Some(minutes @ Value::Int(_)) => Some(after(minutes)),
            Some(Value::Str(text)) => Some(after(Value::Int(quantity::minutes(&text)?))),
            Some(Value::Map(map)) => {
                let down = map.get("down").cloned().unwrap_or(Value::Bool(false));
                own_hook = map.given("hook").map(|run| {
                    let event = if down.is_truthy() { "down" } else { "stop" };
                    let mut hook = Map::from_iter([("run", run.clone()), ("events", Value::List(vec![event.into()]))]);
                    hook.insert_some("timeout", map.given("hook_timeout").cloned());
                    hook
                });
                let minutes = map.get("idle_minutes").cloned().unwrap_or(Value::Int(0));
                Some(Autostop::After {
                    minutes,
                    down,
                    wait_for: map.get("wait_for").map(|mode| mode.text().to_lowercase()),
                })
            }
            _ => None,
        };
        let given = hooks.and_then(Value::as_list).unwrap_or_default().iter().filter_map(Value::as_map);
        self.hooks = given.chain(own_hook.as_ref()).map(hook).collect();
        Ok(())
    }
}

/// Where a machine is to be: by `infra`, or by cloud, region and zone.
fn place(
    cloud: Option<&str>,
    infra: Option<String>,
    region: Option<String>,
    zone: Option<String>,
) -> Result<Infra, TaskError> {
    let cloud = cloud
        .map(|name| {
            Cloud::from_name(name)
                .ok_or_else(|| TaskError::value(format!("Cloud {} is not a valid cloud.", quote(name))))
        })
        .transpose()?;
    let Some(infra) = infra else { return Ok(Infra { cloud, region, zone }) };
    if cloud.is_some() || region.is_some() || zone.is_some() {
        let or_none = |text: Option<&str>| text.unwrap_or("None").to_owned();
        return Err(TaskError::value(format!(
            "Cannot specify both `infra` and `cloud`, `region`, or `zone` parameters. Got: infra={infra}, cloud={}, region={}, zone={}",
            or_none(cloud.map(Cloud::display)),
            or_none(region.as_deref()),
            or_none(zone.as_deref())
        )));
    }
    Infra::read(&infra)
}

fn tier(text: Option<String>, field: &str, what: &str, known: &[&str]) -> Result<Option<String>, TaskError> {
    let Some(tier) = text.map(|text| text.to_lowercase()) else { return Ok(None) };
    if known.contains(&tier.as_str()) {
        return Ok(Some(tier));
    }
    Err(TaskError::value(format!("Invalid {field} {}. {what} tier must be one of {}.", quote(&tier), known.join(", "))))
}

/// A strategy alone, or with settings; `none` is no recovery.
pub(crate) fn recovery(field: Option<Value>) -> Option<Map> {
    let mut config = match field? {
        Value::Map(map) => map,
        name => Map::from_iter([("strategy", name)]),
    };
    let strategy = config.get("strategy").cloned().unwrap_or(Value::Null);
    if strategy.as_str() == Some("none") {
        return None;
    }
    config.insert("strategy", strategy.as_str().map_or(strategy.clone(), |name| name.to_uppercase().into()));
    Some(config)
}

/// GiB of a disk; nothing for the size that counts as not given.
fn disk(text: &str) -> Result<Option<i128>, TaskError> {
    let size = quantity::whole_gib(text, "disk_size", Suffixes::default())?;
    match parse_int(&size).unwrap_or(0) {
        DEFAULT_DISK_GIB => Ok(None),
        size if size <= 0 => {
            Err(TaskError::value(format!("\"disk_size\" must be a positive integer (in GB). Got: {}.", quote(text))))
        }
        size => Ok(Some(size)),
    }
}

fn check_cpus(cpus: Option<&str>) -> Result<(), TaskError> {
    let Some(text) = cpus else { return Ok(()) };
    match parse_float(text.strip_suffix('+').unwrap_or(text)) {
        None => Err(TaskError::value(format!(
            "The \"cpus\" field should be either a number or a string \"<number>+\". Found: {}",
            quote(text)
        ))),
        Some(number) if number <= 0.0 => {
            Err(TaskError::value(format!("The \"cpus\" field should be positive. Found: {}", quote(text))))
        }
        Some(_) => Ok(()),
    }
}

fn memory_wish(text: &str, cloud: Option<Cloud>) -> Result<String, TaskError> {
    let memory = quantity::memory(text, "memory", Suffixes { plus: true, times: true })?;
    match parse_float(memory.strip_suffix(['+', 'x']).unwrap_or(&memory)) {
        None => Err(TaskError::value(format!(
            "The \"memory\" field should be either a number or a string \"<number>+\". Found: {}",
            quote(&memory)
        ))),
        // Slurm: no limit
        Some(number) if number < 0.0 || (number == 0.0 && cloud != Some(Cloud::Slurm)) => {
            Err(TaskError::value(format!("The \"memory\" field should be positive. Found: {}", quote(&memory))))
        }
        Some(_) => Ok(memory),
    }
}

/// `NAME[:COUNT]`; a count is whole where it can be.
fn named_count(text: &str) -> Result<(String, Value), TaskError> {
    let refuse = || {
        TaskError::value(format!(
            "The \"accelerators\" field as a str should be <name> or <name>:<cnt>. Found: {}",
            quote(text)
        ))
    };
    match text.split(':').collect::<Vec<_>>().as_slice() {
        [name] => Ok(((*name).to_owned(), Value::Int(1))),
        [name, count] => {
            let count = parse_float(count).filter(|count| !count.is_nan()).ok_or_else(refuse)?;
            #[expect(clippy::cast_possible_truncation, reason = "whole and bounded")]
            let count = if count.fract() == 0.0 && count.abs() < 1e15 {
                Value::Int(count as i128)
            } else {
                Value::Float(count)
            };
            Ok(((*name).to_owned(), count))
        }
        _ => Err(refuse()),
    }
}

fn port_texts(value: &Value) -> Vec<String> {
    match value {
        Value::List(list) => list.iter().map(Value::text).collect(),
        one => vec![one.text()],
    }
}

fn map_of(value: Option<Value>) -> Option<Map> {
    match value {
        Some(Value::Map(map)) => Some(map),
        _ => None,
    }
}

fn image_text(image: &Value) -> Result<String, TaskError> {
    image
        .as_str()
        .map(|text| text.trim().to_owned())
        .ok_or_else(|| TaskError::wrong_type("An image in image_id", image, "a text"))
}

fn with_docker(image: &str) -> String {
    if image.starts_with("docker:") { image.to_owned() } else { format!("docker:{image}") }
}

/// A hook with what it does not say filled in.
fn hook(given: &Map) -> Map {
    let events = match given.given("events") {
        Some(Value::List(events)) if !events.is_empty() => events.clone(),
        _ => HOOK_EVENTS.iter().map(|event| Value::from(*event)).collect(),
    };
    Map::from_iter([
        ("run", given.get("run").cloned().unwrap_or(Value::Null)),
        ("events", Value::List(events)),
        ("timeout", given.given("timeout").cloned().unwrap_or(Value::Int(HOOK_SECONDS))),
    ])
}

/// The task's `config`, which goes to the server in the resources, and is looked at again there.
fn overrides(field: Option<Value>, reader: Reader) -> Result<Option<Map>, TaskError> {
    let Some(Value::Map(config)) = field else { return Ok(None) };
    if config.is_empty() {
        return Ok(Some(config));
    }
    let value = Value::Map(config.clone());
    schema::check_all(&value, shape("config"), reader)
        .map_err(|refusal| TaskError::refused(refusal, "Invalid resources.config override: ", "$.config"))?;
    Ok(Some(config))
}

/// Disks to attach, with what they do not say filled in.
fn volumes(field: Value) -> Result<Vec<Value>, TaskError> {
    let Value::List(list) = field else { return Ok(Vec::new()) };
    list.into_iter()
        .map(|volume| match volume {
            Value::Map(volume) => volume_with_defaults(volume).map(Value::Map),
            other => Ok(other),
        })
        .collect()
}

fn volume_with_defaults(mut volume: Map) -> Result<Map, TaskError> {
    let Some(path) = volume.get("path").map(Value::text) else {
        return Err(TaskError::value(format!(
            "Invalid volume {}. Volume must have a \"path\" field.",
            Value::Map(volume).quoted()
        )));
    };
    let known = |value: Option<&Value>, names: &[&str], other: &str| {
        let lower = value.map(|value| value.text().to_lowercase()).unwrap_or_default();
        if names.contains(&lower.as_str()) { lower } else { other.to_owned() }
    };
    let kind = known(volume.get("storage_type"), &["network", "instance"], "network");
    let mode = known(volume.get("attach_mode"), &["read_only", "read_write"], "read_write");
    let tier = known(volume.get("disk_tier"), &["low", "medium", "high", "ultra", "best"], "best");
    volume.insert("storage_type", kind.as_str());
    if !volume.contains("auto_delete") {
        volume.insert("auto_delete", false);
    }
    volume.insert("attach_mode", mode);
    if kind != "network" {
        volume.remove("name");
    } else if !volume.contains("name") {
        return Err(TaskError::value(format!("Network volume {path} must have \"name\" field.")));
    }
    if volume.contains("disk_tier") || kind == "network" {
        volume.insert("disk_tier", tier);
    }
    Ok(volume)
}
