//! Launches clusters and submits jobs to them.

use super::clusters::{Found, Sky};
use super::sync;
use crate::error::CliError;
use ::sky::resources::Resources;
use ::sky::task::Task;
use ::sky::value::Value as Field;
use api::sky::{API_VERSION, Accelerators, Candidate, Cluster, ClusterPhase, keys};
use jiff::Timestamp;
use kube::api::{DynamicObject, PostParams};
use managed::jobs::{RESOURCES, Submission, whole};
use managed::names::object_name;
use placement::Cloud;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Why a launch did not come to an end: what is said, as the class of SkyPilot's exception and a message.
pub(super) enum Trouble {
    Cli(CliError),
    Said(String),
}

impl From<CliError> for Trouble {
    fn from(error: CliError) -> Self {
        Self::Cli(error)
    }
}

impl From<kube::Error> for Trouble {
    fn from(error: kube::Error) -> Self {
        Self::Cli(error.into())
    }
}

fn said(class: &str, message: impl AsRef<str>) -> Trouble {
    Trouble::Said(format!("{class}: {}", message.as_ref()))
}

pub(super) fn value_error(message: impl AsRef<str>) -> Trouble {
    said("ValueError", message)
}

/// How many, of an amount such as `4`, `4+`, `16GB`.
fn amount(text: &Option<String>) -> f64 {
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    let text = text.as_deref().unwrap_or_default();
    let end = text.find(|c| !digits(c)).unwrap_or(text.len());
    text.get(..end).and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

pub(super) fn gpus(resources: &Resources) -> Option<Accelerators> {
    let (name, count) = resources.accelerators.as_ref()?;
    Some(Accelerators { name: name.clone(), count: count.as_number().unwrap_or(1.0) })
}

/// Where the machines are to be, in the order of preference.
///
/// # Errors
/// For places where no machines are made yet.
pub(super) fn candidates(task: &Task) -> Result<Vec<Candidate>, Trouble> {
    let of = |resources: &Resources| {
        let place = &resources.infra;
        if place.cloud != Some(Cloud::Local) {
            let there = place.cloud.map_or("wherever it is cheapest", Cloud::display);
            return Err(said(
                "sky.exceptions.NotSupportedError",
                format!(
                    "No machines are made {there} yet: name this machine by `--infra local`. `sky launch --dryrun` shows which machine the task would get."
                ),
            ));
        }
        let cpus = amount(&resources.cpus);
        let memory = match resources.memory.as_deref() {
            Some(times) if times.ends_with('x') => amount(&resources.memory) * cpus,
            _ => amount(&resources.memory),
        };
        Ok(Candidate {
            provider: "local".to_owned(),
            region: String::new(),
            zone: place.zone.clone().unwrap_or_default(),
            instance_type: resources.instance_type.clone().unwrap_or_default(),
            cpus,
            memory,
            accelerators: gpus(resources),
            spot: resources.use_spot == Some(true),
            hourly_price: 0.0,
        })
    };
    task.resources.list.iter().map(of).collect()
}

/// `1x[CPU:1+]`, `2x[H100:8]`: what a job of a task holds.
pub(super) fn job_resources(task: &Task) -> String {
    let each = task.resources.list.first().and_then(gpus);
    let each = each.map_or_else(|| "CPU:1+".to_owned(), |gpus| format!("{}:{}", gpus.name, gpus.count));
    format!("{}x[{each}]", task.num_nodes)
}

/// `1x Local(cpus=4, gpus={H100: 1})`: what a cluster is.
fn cluster_resources(nodes: i128, candidate: &Candidate) -> String {
    let mut parts: Vec<String> = Vec::new();
    if let Some(gpus) = &candidate.accelerators {
        parts.push(format!("gpus={}:{}", gpus.name, gpus.count));
    }
    for (name, amount) in [("cpus", candidate.cpus), ("mem", candidate.memory)] {
        if amount > 0.0 {
            parts.push(format!("{name}={amount}"));
        }
    }
    parts.push(if candidate.instance_type.is_empty() { "-".to_owned() } else { candidate.instance_type.clone() });
    format!("{nodes}x ({})", parts.join(", "))
}

pub(super) fn user() -> String {
    std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| {
        nix::unistd::User::from_uid(nix::unistd::geteuid())
            .ok()
            .flatten()
            .map_or_else(|| "user".to_owned(), |user| user.name)
    })
}

/// The Cluster that is asked for.
pub(super) fn cluster(shown: &str, task: &Task, candidates: Vec<Candidate>, command: &str) -> Value {
    let resources = candidates.first().map(|first| cluster_resources(task.num_nodes, first)).unwrap_or_default();
    json!({
        "apiVersion": API_VERSION, "kind": "Cluster",
        "metadata": {
            "name": object_name(shown), "finalizers": [keys::LEDGER],
            "annotations": {managed::jobs::NAME: shown, RESOURCES: resources},
        },
        "spec": {
            "nodes": i32::try_from(task.num_nodes).unwrap_or(i32::MAX), "candidates": candidates,
            "user": user(), "command": command,
        },
    })
}

/// Whether a cluster that is there has what a task asks for.
///
/// # Errors
/// What it lacks.
pub(super) fn fits(found: &Found, task: &Task) -> Result<(), Trouble> {
    let spec = &found.cluster.spec;
    let index = usize::try_from(found.cluster.status.candidate).unwrap_or(0);
    let Some(has) = spec.candidates.get(index).or(spec.candidates.first()) else { return Ok(()) };
    let is_met = |resources: &Resources| {
        let gpus = match (gpus(resources), &has.accelerators) {
            (None, _) => true,
            (Some(wanted), Some(has)) => wanted.name.eq_ignore_ascii_case(&has.name) && wanted.count <= has.count,
            (Some(_), None) => false,
        };
        let place = match resources.infra.cloud {
            None => true,
            Some(cloud) => cloud.name() == has.provider,
        };
        gpus && place
    };
    if i128::from(spec.nodes) >= task.num_nodes && task.resources.list.iter().any(is_met) {
        return Ok(());
    }
    let existing = cluster_resources(i128::from(spec.nodes), has);
    Err(said(
        "sky.exceptions.ResourcesMismatchError",
        format!(
            "Requested resources do not match the existing cluster.\n  Requested:\t{}\n  Existing:\t{existing}\nTo fix: specify a new cluster name, or down the existing cluster first: sky down {}",
            job_resources(task),
            found.shown()
        ),
    ))
}

/// What a waiting launch learns.
enum Ready {
    Up(Box<Found>),
    Gone,
    Failed(Box<Found>),
    Stopped,
}

/// Waits until a cluster is up.
///
/// # Errors
/// It was ended meanwhile, or no place has room for it.
pub(super) async fn up(sky: &Sky, shown: &str, generation: i64) -> Result<Found, Trouble> {
    let name = object_name(shown);
    let ready = sky
        .until(sky.clusters(), &name, |object| {
            let Some(found) = object.and_then(Found::of) else { return Some(Ready::Gone) };
            if found.is_ending() {
                return Some(Ready::Gone);
            }
            let status = &found.cluster.status;
            if status.observed_generation < generation {
                return None;
            }
            if found.cluster.spec.power == api::sky::Power::Stopped {
                return Some(Ready::Stopped);
            }
            if status.phase == ClusterPhase::Up {
                return Some(Ready::Up(Box::new(found)));
            }
            let failed = status.conditions.iter().any(|one| one.type_ == "Failed" && one.status == "True");
            failed.then(|| Ready::Failed(Box::new(found)))
        })
        .await?;
    match ready {
        Ready::Up(found) => Ok(*found),
        Ready::Gone => Err(said(
            "sky.exceptions.ClusterDoesNotExist",
            format!("Cluster '{shown}' was terminated while it was being launched: somebody ran `sky down {shown}`."),
        )),
        Ready::Stopped => Err(said(
            "sky.exceptions.ClusterNotUpError",
            format!("Cluster '{shown}' was stopped while it was being launched: `sky start {shown}` starts it again."),
        )),
        Ready::Failed(found) => {
            let tried = found.cluster.status.rejected.join("\n  ");
            if found.cluster.status.launched_at.is_empty() {
                // nothing of it was ever there: no record stays
                let _ = sky.clusters().delete(&name, &kube::api::DeleteParams::default()).await;
            }
            Err(said(
                "sky.exceptions.ResourcesUnavailableError",
                format!(
                    "Failed to provision all possible launchable resources. Tried:\n  {tried}\nTo keep retrying until the cluster is up, use the `--retry-until-up` flag."
                ),
            ))
        }
    }
}

/// Puts the working directory and the local files of a task onto the machines.
///
/// # Errors
/// A file cannot be read or written, or the machines' folders are not of this computer.
pub(super) fn send(found: &Found, task: &Task) -> Result<(), Trouble> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let source = |path: &str| match path.strip_prefix('~') {
        Some(rest) => home.join(rest.trim_start_matches('/')),
        None => PathBuf::from(path),
    };
    let workdir = match &task.workdir {
        None => None,
        Some(Field::Map(_)) => {
            return Err(value_error("`workdir` with a `url` is not fetched yet: check it out, and name the folder."));
        }
        Some(path) => Some(path.text()),
    };
    if let Some((target, _)) = task.mounts.buckets.first() {
        return Err(value_error(format!(
            "{target}: buckets are not mounted yet; give a local path, or fetch the data in `setup`."
        )));
    }
    let mut wanted: Vec<(PathBuf, String)> = Vec::new();
    if let Some(path) = &workdir {
        wanted.push((source(path), "~/sky_workdir".to_owned()));
    }
    for (target, from) in &task.mounts.files {
        if ::sky::mounts::is_cloud_url(from) {
            return Err(value_error(format!(
                "{from}: nothing is fetched from there yet; give a local path, or fetch it in `setup`."
            )));
        }
        wanted.push((source(from), target.clone()));
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let mut skipped = sync::Skipped::new();
    for node in &found.cluster.status.nodes {
        let folder = PathBuf::from(&node.home);
        if found.cluster.spec.candidates.iter().any(|one| one.provider != "local") || !folder.is_dir() {
            return Err(value_error(format!(
                "machine {} has no folder on this computer: its files cannot be sent yet.",
                node.machine
            )));
        }
        for (from, to) in &wanted {
            let below = match (to.strip_prefix('~'), to.strip_prefix('/')) {
                (Some(rest), _) => rest.trim_start_matches('/'),
                // the machine is this computer: what is outside of its home is not its own
                (None, Some(_)) => {
                    return Err(value_error(format!(
                        "{to}: machines of `infra: local` share this computer's folders; mount below ~/."
                    )));
                }
                (None, None) => to,
            };
            sync::copy(from, &folder.join(below), &mut skipped).map_err(|error| {
                said(
                    "sky.exceptions.CommandError",
                    format!("cannot copy {} to {}: {error}", from.display(), node.machine),
                )
            })?;
        }
    }
    skipped.sort();
    skipped.dedup();
    skipped.iter().for_each(|line| eprintln!("{line}"));
    Ok(())
}

/// Submits a task as the next job of a cluster, and returns its number.
///
/// # Errors
/// The API refuses it.
pub(super) async fn submit(
    sky: &Sky,
    found: &Found,
    task: &Task,
    with_setup: bool,
    now: Timestamp,
) -> Result<u32, Trouble> {
    let fields = task.envs.iter().chain(task.secrets.values.iter());
    let variables: serde_json::Map<String, Value> =
        fields.map(|(name, value)| (name.text(), Value::String(value.text()))).collect();
    let owner = json!([{
        "apiVersion": API_VERSION, "kind": "Cluster", "name": found.name(), "uid": api::object::uid(&found.object),
    }]);
    let mut secret = String::new();
    if !variables.is_empty() {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"generateName": format!("{}-env-", found.name()), "labels": {keys::CLUSTER: found.name()}, "ownerReferences": owner},
            "stringData": variables,
        });
        let made = sky.secrets().create(&PostParams::default(), &dynamic(object)?).await?;
        secret = made.metadata.name.unwrap_or_default();
    }
    let setup = task.setup.clone().filter(|_| with_setup);
    let status: &Cluster = &found.cluster;
    let index = usize::try_from(status.status.candidate).unwrap_or(0);
    let place = status.spec.candidates.get(index).cloned().unwrap_or_default();
    let none_if_empty = |text: &str| if text.is_empty() { Value::Null } else { text.into() };
    let mut job = Submission {
        cluster: found.name().to_owned(),
        cluster_uid: api::object::uid(&found.object).to_owned(),
        namespace: sky.namespace.clone(),
        cluster_shown: found.shown().to_owned(),
        id: sky.jobs(found.name()).await?.last().map_or(1, |last| last.id.saturating_add(1)),
        name: task.name.clone().unwrap_or_default(),
        user: user(),
        nodes: u32::try_from(task.num_nodes).unwrap_or(1),
        gpus: task.resources.list.first().and_then(gpus).map_or(0.0, |gpus| gpus.count),
        resources: job_resources(task),
        run_timestamp: format!("sky-{}", now.strftime("%Y-%m-%d-%H-%M-%S-%6f")),
        script: task.run.clone().unwrap_or_default(),
        is_setup: false,
        has_setup: setup.is_some(),
        secret,
        cluster_info: json!({
            "cluster_name": found.shown(), "cloud": place.provider,
            "region": none_if_empty(&place.region), "zone": none_if_empty(&place.zone),
        }),
    };
    debug_assert!(whole(job.gpus) <= 1_000_000);
    // the name is made of the number: who comes second takes the next one
    loop {
        match sky.jobsets().create(&PostParams::default(), &dynamic(job.jobset())?).await {
            Ok(_) => break,
            Err(kube::Error::Api(status)) if status.code == 409 => job.id = job.id.saturating_add(1),
            Err(error) => return Err(error.into()),
        }
    }
    let id = job.id;
    if let Some(script) = setup {
        let nodes = u32::try_from(status.spec.nodes).unwrap_or(1).min(job.nodes.max(1));
        let setup = Submission { script, is_setup: true, nodes, ..job };
        sky.jobsets().create(&PostParams::default(), &dynamic(setup.jobset())?).await?;
    }
    Ok(id)
}

pub(super) fn dynamic(object: Value) -> Result<DynamicObject, Trouble> {
    serde_json::from_value(object).map_err(|error| value_error(error.to_string()))
}
