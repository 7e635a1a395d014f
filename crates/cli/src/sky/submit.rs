//! Launches clusters and submits jobs to them.

use super::clusters::{Found, Sky};
use super::{git, sync};
use ::sky::task::Task;
use ::sky::value::Value as Field;
use api::sky::{ClusterNode, ClusterPhase};
use client::ClientError;
use jiff::Timestamp;
use kube::api::{DynamicObject, ListParams, PostParams};
use managed::launch::Refused;
use managed::launch::fit::{Size, taken};
use managed::launch::job::{Job, Setup};
use managed::names::object_name;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Why a launch did not come to an end: what is said, as the class of SkyPilot's exception and a message.
pub(super) enum Trouble {
    Client(ClientError),
    Said(String),
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<Refused> for Trouble {
    fn from(refused: Refused) -> Self {
        Self::Said(refused.to_string())
    }
}

impl From<kube::Error> for Trouble {
    fn from(error: kube::Error) -> Self {
        Self::Client(error.into())
    }
}

pub(super) fn said(class: &str, message: impl AsRef<str>) -> Trouble {
    Trouble::Said(format!("{class}: {}", message.as_ref()))
}

pub(super) fn value_error(message: impl AsRef<str>) -> Trouble {
    said("ValueError", message)
}

pub(super) fn user() -> String {
    std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| {
        nix::unistd::User::from_uid(nix::unistd::geteuid())
            .ok()
            .flatten()
            .map_or_else(|| "user".to_owned(), |user| user.name)
    })
}

/// Processors and GiB of memory that each machine of a cluster has at least: as its Nodes say, else as the cluster was asked for.
pub(super) async fn size(sky: &Sky, found: &Found) -> Result<Size, ClientError> {
    let asked = taken(&found.cluster);
    let names: Vec<&str> = found.cluster.status.nodes.iter().map(|node| node.node.as_str()).collect();
    let listed = match names.as_slice() {
        [] => Vec::new(),
        _ => sky.nodes().list(&ListParams::default()).await?.items,
    };
    let named = listed.iter().filter(|node| node.metadata.name.as_deref().is_some_and(|name| names.contains(&name)));
    let sizes = named.map(|node| Size::allocatable(&node.data["status"]["allocatable"]));
    let least = sizes.reduce(|a, b| Size { cpus: a.cpus.min(b.cpus), memory: a.memory.min(b.memory) });
    let least = least.unwrap_or(Size { cpus: 0.0, memory: 0.0 });
    // a machine was made for what was asked for, whatever it keeps back of it
    Ok(Size { cpus: least.cpus.max(asked.cpus), memory: least.memory.max(asked.memory) })
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
    let mut told = String::new();
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
            let is_news = status.message != told && !status.rejected.contains(&status.message);
            if !failed && is_news && !status.message.is_empty() {
                eprintln!("Waiting: {}", status.message);
                told.clone_from(&status.message);
            }
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
                let uid = found.object["metadata"]["uid"].clone();
                if sky.clusters().delete(&name, &kube::api::DeleteParams::default()).await.is_ok() {
                    let is_there = |object: &DynamicObject| object.metadata.uid.as_deref() == uid.as_str();
                    sky.until(sky.clusters(), &name, |object| (!object.is_some_and(is_there)).then_some(())).await?;
                }
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
/// A file cannot be read or written.
pub(super) async fn send(sky: &Sky, found: &Found, task: &Task) -> Result<(), Trouble> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let source = |path: &str| match path.strip_prefix('~') {
        Some(rest) => home.join(rest.trim_start_matches('/')),
        None => PathBuf::from(path),
    };
    // a repository stays as it is until it is sent
    let mut held = None;
    let workdir = match &task.workdir {
        None => None,
        Some(Field::Map(map)) => {
            let field = |name: &str| map.get(name).filter(|value| !value.is_null()).map(Field::text);
            let from = git::Source { url: field("url").unwrap_or_default(), reference: field("ref") };
            let (folder, lock) = git::checkout(&from, &home).map_err(|why| said("sky.exceptions.GitError", why))?;
            held = Some(lock);
            Some(folder)
        }
        Some(path) => Some(source(&path.text())),
    };
    let mut wanted: Vec<(PathBuf, String)> = Vec::new();
    if let Some(path) = &workdir {
        wanted.push((path.clone(), "~/sky_workdir".to_owned()));
    }
    for (target, from) in &task.mounts.files {
        wanted.push((source(from), target.clone()));
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let failed = |from: &str, machine: &str, error: &dyn std::fmt::Display| {
        said("sky.exceptions.CommandError", format!("cannot copy {from} to {machine}: {error}"))
    };
    let mut skipped = sync::Skipped::new();
    let mut trees: Vec<(sync::Tree, String)> = Vec::new();
    for (from, to) in wanted {
        let tree = sync::Tree::list(&from, &mut skipped);
        trees.push((tree.map_err(|error| failed(&from.display().to_string(), "the machines", &error))?, to));
    }
    skipped.sort();
    skipped.dedup();
    skipped.iter().for_each(|line| eprintln!("{line}"));
    let status = &found.cluster.status;
    let is_local = found.cluster.at().is_some_and(|one| one.provider == "local");
    if is_local && let Some((_, to)) = trees.iter().find(|(_, to)| to.starts_with('/')) {
        // the machine is this computer: what is outside of its home is not its own
        return Err(value_error(format!(
            "{to}: machines of `infra: local` share this computer's folders; mount below ~/."
        )));
    }
    let (here, there): (Vec<&ClusterNode>, Vec<&ClusterNode>) =
        status.nodes.iter().partition(|node| found.is_here(node));
    for node in here {
        for (tree, to) in &trees {
            sync::here::send(tree, Path::new(&node.home), to)
                .map_err(|error| failed(&tree.shown(), &node.machine, &error))?;
        }
    }
    let done = sync::there::send_all(sky, found, &there, &trees).await;
    drop(held);
    done.map_err(|(machine, why)| failed("the task's files", &machine, &why))
}

/// Submits a task as the next job of a cluster, and returns its number.
///
/// # Errors
/// The API refuses it.
pub(super) async fn submit(
    sky: &Sky,
    found: &Found,
    task: &Task,
    setup: Setup,
    now: Timestamp,
) -> Result<u32, Trouble> {
    let mut job = Job::new(&found.object, &found.cluster, found.shown(), task, setup, &user(), now)?;
    if let Some(secret) = job.secret() {
        let made = sky.secrets().create(&PostParams::default(), &dynamic(secret)?).await?;
        job.read_from(made.metadata.name.unwrap_or_default());
    }
    let mut id = sky.jobs(found.name()).await?.last().map_or(1, |last| last.id.saturating_add(1));
    // the name is made of the number: the second client to come takes the next one
    loop {
        match sky.jobsets().create(&PostParams::default(), &dynamic(job.main(id))?).await {
            Ok(_) => break,
            Err(kube::Error::Api(status)) if status.code == 409 => id = id.saturating_add(1),
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(setup) = job.setup(id) {
        sky.jobsets().create(&PostParams::default(), &dynamic(setup)?).await?;
    }
    Ok(id)
}

pub(super) fn dynamic(object: Value) -> Result<DynamicObject, Trouble> {
    serde_json::from_value(object).map_err(|error| value_error(error.to_string()))
}
