//! The second look at a task checks what its file alone cannot tell: files of this machine, regions and instance types of price
//! lists, names of GPUs, contexts, and what a cloud cannot do.

pub(crate) mod abilities;
mod place;
mod table;

use placement::{Catalogue, Cloud};
use regex::Regex;

use crate::error::TaskError;
use crate::mounts::is_cloud_url;
use crate::resources::Resources;
use crate::suggest;
use crate::task::Task;
use crate::value::{Value, float, parse_float, quote, quote_all};

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// Nothing is there.
    Missing,
    /// A folder, or a link to one.
    Folder,
    /// Anything else.
    File,
}

/// What a machine knows.
pub struct Surroundings<'a> {
    /// Price lists.
    pub catalogue: &'a Catalogue,
    /// Clouds that may be used, in the order in which they are tried.
    pub enabled: &'a [Cloud],
    /// Contexts of the kubeconfig.
    pub contexts: &'a [String],
    /// Pools of SSH machines that are set up.
    pub ssh_pools: &'a [String],
    /// Clusters of Slurm.
    pub slurm_clusters: &'a [String],
    /// Whether the strategies of managed jobs are looked at: a client leaves them to its server.
    pub on_server: bool,
    /// What a path is; `~` is the user's home, and what is not absolute is below the working directory.
    pub path: &'a dyn Fn(&str) -> PathKind,
}

/// Where a task's working directory is on its machines.
const REMOTE_WORKDIR: &str = "~/sky_workdir";
/// What a managed job can do when its machine is gone.
const STRATEGIES: [&str; 2] = ["failover", "eager_next_region"];

/// Looks at a task, and fills in what follows from it (cloud, region, canonical names of GPUs).
///
/// # Errors
/// For the first thing that cannot be.
pub fn check(task: &mut Task, around: &Surroundings<'_>) -> Result<(), TaskError> {
    name(task)?;
    workdir(task, around)?;
    files(task, around)?;
    for resources in &mut task.resources.list {
        machine(resources, around).map_err(|error| error.at("$.resources"))?;
    }
    Ok(())
}

fn name(task: &Task) -> Result<(), TaskError> {
    let Some(name) = &task.name else { return Ok(()) };
    let fits = Regex::new(r"^[a-zA-Z0-9]+(?:[._-]{1,2}[a-zA-Z0-9]+)*$").is_ok_and(|pattern| pattern.is_match(name));
    if fits {
        return Ok(());
    }
    Err(TaskError::value(format!(
        "Invalid task name {name}. Valid name: ASCII characters and may contain lowercase and uppercase letters, digits, underscores, periods, and dashes. Must start and end with alphanumeric characters. No triple dashes or underscores."
    ))
    .at("$.name"))
}

fn workdir(task: &Task, around: &Surroundings<'_>) -> Result<(), TaskError> {
    let Some(Value::Str(path)) = &task.workdir else { return Ok(()) };
    if (around.path)(path) == PathKind::Folder {
        return Ok(());
    }
    Err(TaskError::value(format!("Workdir must be a valid directory (or a symlink to a directory). {path} not found."))
        .at("$.workdir"))
}

fn files(task: &Task, around: &Surroundings<'_>) -> Result<(), TaskError> {
    for (target, source) in &task.mounts.files {
        let at = |message: String| {
            TaskError::value(message)
                .at(format!("$.file_mounts{}", crate::yaml::path_step(&Value::from(target.as_str()))))
        };
        let location = format!("file_mounts.{target}: {source}");
        if target.ends_with('/') {
            return Err(at(format!("Mount paths cannot end with a slash Found: {target} in {location}")));
        }
        if target == REMOTE_WORKDIR && task.workdir.is_some() {
            return Err(at(taken_by_workdir()));
        }
        if source.ends_with('/') {
            return Err(at(format!("Mount paths cannot end with a slash Found: {source} in {location}")));
        }
        if is_cloud_url(target) {
            return Err(at("File mount destination paths cannot be cloud storage".into()));
        }
        if !is_cloud_url(source) && !source.starts_with("skypilot:") && (around.path)(source) == PathKind::Missing {
            return Err(at(format!(
                "File mount source {} does not exist locally. To fix: check if it exists, and correct the path.",
                quote(source)
            )));
        }
    }
    Ok(())
}

/// Why nothing else may be mounted where the working directory is.
pub(crate) fn taken_by_workdir() -> String {
    format!(
        "Cannot use {} as a destination path of a file mount, as it will be used by the workdir. If uploading a file/folder to the workdir is needed, please specify the full path to the file/folder.",
        quote(REMOTE_WORKDIR)
    )
}

/// Whether a target is where the working directory is.
pub(crate) fn is_remote_workdir(target: &str) -> bool {
    target == REMOTE_WORKDIR
}

fn machine(resources: &mut Resources, around: &Surroundings<'_>) -> Result<(), TaskError> {
    accelerator(resources, around)?;
    place::check(resources, around)?;
    instance_type(resources, around)?;
    size(resources, around)?;
    strategy(resources, around)?;
    abilities::check(resources, around)?;
    match resources.max_hourly_cost.as_ref().and_then(Value::as_number) {
        Some(cost) if cost <= 0.0 => {
            Err(TaskError::value(format!("max_hourly_cost must be a positive number, got {}", float(cost))))
        }
        _ => Ok(()),
    }
}

/// The canonical name of an accelerator. A name is a pattern: `A100-80` is `A100-80GB` where only that has it in its name.
fn accelerator(resources: &mut Resources, around: &Surroundings<'_>) -> Result<(), TaskError> {
    let Some((name, _)) = &mut resources.accelerators else { return Ok(()) };
    if name.to_lowercase().starts_with("tpu-") {
        *name = name.to_lowercase();
        return Ok(());
    }
    let pattern = Regex::new(&format!("(?i){name}")).map_err(|_| {
        TaskError::value(format!("{} is no name of an accelerator.", quote(name))).at("$.resources.accelerators")
    })?;
    let mut names = Vec::new();
    for (known, clouds) in around.catalogue.accelerator_names().iter().filter(|(known, _)| pattern.is_match(known)) {
        if known.eq_ignore_ascii_case(name) {
            name.clone_from(known);
            return Ok(());
        }
        if resources.infra.cloud.is_none_or(|cloud| clouds.iter().any(|has| has == cloud.display())) {
            names.push(known.clone());
        }
    }
    match names.as_slice() {
        // it may be one of a Kubernetes cluster's own
        [] => Ok(()),
        [one] => {
            name.clone_from(one);
            Ok(())
        }
        many => Err(TaskError::value(format!(
            "Accelerator name {} is ambiguous. Please choose one of {}.",
            quote(name),
            quote_all(many)
        ))
        .at("$.resources.accelerators")),
    }
}

/// The instance type exists; it names the cloud where none is named.
fn instance_type(resources: &mut Resources, around: &Surroundings<'_>) -> Result<(), TaskError> {
    let Some(name) = &resources.instance_type else { return Ok(()) };
    let at = |message: String| Err(TaskError::value(message).at("$.resources.instance_type"));
    let exists =
        |cloud: Cloud| around.catalogue.size_of(cloud, name).is_some() || name == "TPU-VM" && cloud == Cloud::Gcp;
    if let Some(cloud) = resources.infra.cloud {
        // without a price list nothing is known
        let known = exists(cloud)
            || (around.catalogue.offers(cloud).is_empty()
                && !matches!(cloud, Cloud::Kubernetes | Cloud::Ssh | Cloud::Slurm));
        return if known {
            Ok(())
        } else {
            at(format!("Invalid instance type {} for cloud {}.", quote(name), cloud.display()))
        };
    }
    let having: Vec<Cloud> = around.enabled.iter().copied().filter(|cloud| exists(*cloud)).collect();
    match having.as_slice() {
        [] => at(format!("Invalid instance type {} {}.", quote(name), place::for_clouds(around.enabled))),
        [one] => {
            resources.infra.cloud = Some(*one);
            Ok(())
        }
        many => at(format!(
            "Ambiguous instance type {}. Please specify cloud explicitly among {}.",
            quote(name),
            place::displays(many)
        )),
    }
}

/// An instance type has the processors and the memory that are asked for beside it.
fn size(resources: &Resources, around: &Surroundings<'_>) -> Result<(), TaskError> {
    let (Some(name), Some(cloud)) = (&resources.instance_type, resources.infra.cloud) else { return Ok(()) };
    let Some((cpus, memory)) = around.catalogue.size_of(cloud, name) else { return Ok(()) };
    let least = |text: &str| text.ends_with(['+', 'x']);
    let number = |text: &str| parse_float(text.trim_end_matches(['+', 'x'])).unwrap_or(0.0);
    if let (Some(asked), Some(has)) = (&resources.cpus, cpus) {
        let has = float(has);
        if least(asked) && parse_float(&has).is_some_and(|has| has < number(asked)) {
            return Err(TaskError::value(format!(
                "{name} does not have enough vCPUs. {name} has {has} vCPUs, but {asked} is requested."
            )));
        }
        if !least(asked) && parse_float(&has) != Some(number(asked)) {
            return Err(TaskError::value(format!(
                "{name} does not have the requested number of vCPUs. {name} has {has} vCPUs, but {asked} is requested."
            )));
        }
    }
    if let (Some(asked), Some(has)) = (&resources.memory, memory) {
        if least(asked) && has < number(asked) {
            return Err(TaskError::value(format!(
                "{name} does not have enough memory. {name} has {} GB memory, but {asked} is requested.",
                float(has)
            )));
        }
        #[expect(clippy::float_cmp, reason = "numbers that files name")]
        if !least(asked) && has != number(asked) {
            return Err(TaskError::value(format!(
                "{name} does not have the requested memory. {name} has {} GB memory, but {asked} is requested.",
                float(has)
            )));
        }
    }
    Ok(())
}

fn strategy(resources: &Resources, around: &Surroundings<'_>) -> Result<(), TaskError> {
    if around.on_server { check_strategy(resources, None) } else { Ok(()) }
}

/// Whether there is the strategy by which a managed job recovers; `typed` is its name as the command line has it.
pub(crate) fn check_strategy(resources: &Resources, typed: Option<&str>) -> Result<(), TaskError> {
    let Some(name) = resources.job_recovery.as_ref().and_then(|recovery| recovery.given("strategy")).map(Value::text)
    else {
        return Ok(());
    };
    let lower = name.to_lowercase();
    if STRATEGIES.contains(&lower.as_str()) {
        return Ok(());
    }
    let name = typed.map_or(name, str::to_owned);
    let near =
        suggest::nearest(&lower, STRATEGIES).map(|near| format!(" Did you mean {}?", quote(near))).unwrap_or_default();
    Err(TaskError::value(format!(
        "Jobs recovery strategy {} is not a valid jobs recovery strategy among {}.{near}",
        quote(&name),
        quote_all(STRATEGIES)
    ))
    .at("$.resources.job_recovery"))
}
