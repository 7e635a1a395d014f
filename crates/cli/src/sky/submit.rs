//! Launches clusters and submits jobs to them.

use super::clusters::{Found, Sky};
use super::{contexts, fit, git, sync, unmet};
use ::sky::console::Planned;
use ::sky::resources::Resources;
use ::sky::task::Task;
use ::sky::value::{Map, Value as Field};
use api::sky::{API_VERSION, Accelerators, Candidate, Cluster, ClusterNode, ClusterPhase, PodOptions, keys};
use client::ClientError;
use jiff::Timestamp;
use kube::api::{DynamicObject, PostParams};
use managed::jobs::{RESOURCES, Submission, whole};
use managed::names::object_name;
use placement::{Catalogue, Cloud};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// As many places are tried at most: a Cluster holds no more.
const CANDIDATES_MAX: usize = 1000;

/// Why a launch did not come to an end: what is said, as the class of SkyPilot's exception and a message.
pub(super) enum Trouble {
    Cli(ClientError),
    Said(String),
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        Self::Cli(error)
    }
}

impl From<kube::Error> for Trouble {
    fn from(error: kube::Error) -> Self {
        Self::Cli(error.into())
    }
}

pub(super) fn said(class: &str, message: impl AsRef<str>) -> Trouble {
    Trouble::Said(format!("{class}: {}", message.as_ref()))
}

pub(super) fn value_error(message: impl AsRef<str>) -> Trouble {
    said("ValueError", message)
}

/// How many, of an amount such as `4`, `4+`, `16GB`.
pub(super) fn amount(text: &Option<String>) -> f64 {
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    let text = text.as_deref().unwrap_or_default();
    let end = text.find(|c| !digits(c)).unwrap_or(text.len());
    text.get(..end).and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

pub(super) fn gpus(resources: &Resources) -> Option<Accelerators> {
    let (name, count) = resources.accelerators.as_ref()?;
    Some(Accelerators { name: name.clone(), count: count.as_number().unwrap_or(1.0) })
}

/// Where the machines are to be, in the order of preference. `kubernetes`: of `~/.sky/config.yaml`.
///
/// # Errors
/// For places where no machines are made yet, and where none has all that is asked for.
pub(super) fn candidates(task: &Task, planned: &Planned, kubernetes: Option<&Map>) -> Result<Vec<Candidate>, Trouble> {
    let of = |found: &placement::search::Candidate| {
        let asked = task.resources.list.get(found.request).cloned().unwrap_or_default();
        let cpus = amount(&asked.cpus);
        let memory = match asked.memory.as_deref() {
            Some(times) if times.ends_with('x') => amount(&asked.memory) * cpus,
            _ => amount(&asked.memory),
        };
        let on_kubernetes = found.cloud == Cloud::Kubernetes;
        // a pod has what it asks for, and no more
        let (cpus, memory) = match on_kubernetes {
            true => (found.cpus.unwrap_or(cpus), found.memory.unwrap_or(memory)),
            false => (cpus, memory),
        };
        Candidate {
            provider: found.cloud.name().to_owned(),
            region: found.region.strip_prefix("ssh-").unwrap_or(&found.region).to_owned(),
            zone: found.zone.clone().unwrap_or_default(),
            instance_type: Some(found.instance_type.clone()).filter(|name| name != "-").unwrap_or_default(),
            // what was asked for: a machine may have more
            cpus,
            memory,
            accelerators: found.accelerator.clone().map(|(name, count)| Accelerators { name, count }),
            spot: found.use_spot,
            hourly_price: found.hourly,
            pod: if on_kubernetes { contexts::pod(&asked, kubernetes, &found.region) } else { PodOptions::default() },
        }
    };
    let mut refused = None;
    let mut told = false;
    let mut all: Vec<Candidate> = Vec::new();
    for found in &planned.candidates {
        let lacks = task.resources.list.get(found.request).map(|one| unmet::at(found.cloud.name(), one));
        let lacks = lacks.unwrap_or_default();
        if !lacks.refused.is_empty() {
            refused = refused.or(Some((found.cloud.name(), lacks.refused)));
            continue;
        }
        if let (false, Some(one)) = (std::mem::replace(&mut told, true), task.resources.list.get(found.request)) {
            unmet::check(found.cloud.name(), one)?;
        }
        all.push(of(found));
    }
    all.dedup();
    all.truncate(CANDIDATES_MAX);
    if let (true, Some((provider, what))) = (all.is_empty(), &refused) {
        return Err(unmet::refused(provider, what));
    }
    if all.is_empty() {
        let names: Vec<&str> = planned.passed_over.iter().map(|cloud| cloud.display()).collect();
        return Err(said(
            "sky.exceptions.NotSupportedError",
            format!(
                "No machines are made on {} yet, and nothing else meets what the task asks for: `sky explain` says what would help, and `sky check` where machines are made.",
                names.join(", ")
            ),
        ));
    }
    Ok(all)
}

/// `1x[CPU:1+]`, `2x[H100:8]`: what a job of a task holds.
fn job_resources(nodes: i128, each: &Resources) -> String {
    let each = gpus(each).map_or_else(|| "CPU:1+".to_owned(), |gpus| format!("{}:{}", gpus.name, gpus.count));
    format!("{nodes}x[{each}]")
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
    let nodes = i32::try_from(task.num_nodes).unwrap_or(i32::MAX);
    let resources = candidates.first().map(|first| managed::resources::of(nodes, first)).unwrap_or_default();
    json!({
        "apiVersion": API_VERSION, "kind": "Cluster",
        "metadata": {
            "name": object_name(shown), "finalizers": [keys::LEDGER],
            "annotations": {managed::jobs::NAME: shown, RESOURCES: resources},
        },
        "spec": {
            "nodes": nodes, "candidates": candidates,
            "user": user(), "command": command,
        },
    })
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
    let index = usize::try_from(status.candidate).unwrap_or(0);
    let is_local = found.cluster.spec.candidates.get(index).is_some_and(|one| one.provider == "local");
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
            let below = to.strip_prefix('~').unwrap_or(to).trim_start_matches('/');
            let to = Path::new(&node.home).join(below);
            sync::here::copy(tree, &to).map_err(|error| failed(&tree.shown(), &node.machine, &error))?;
        }
    }
    let done = sync::there::send_all(sky, found, &there, &trees).await;
    drop(held);
    done.map_err(|(machine, why)| failed("the task's files", &machine, &why))
}

/// Whether the `setup` of a task goes before its job.
pub(super) enum Setup {
    LeftOut,
    /// It does, where the task has one; noted as having set up this.
    As(String),
}

/// What tells what a task sets up from another configuration: machines, variables and `setup`.
pub(super) fn configuration(task: &Task, catalogue: &Catalogue) -> String {
    let resources = task.resources.list.iter().map(|one| Field::Map(one.write(catalogue)).quoted());
    let (nodes, envs) = (task.num_nodes.to_string(), Field::Map(task.envs.clone()).quoted());
    let setup = task.setup.clone().unwrap_or_default();
    let all: Vec<String> = [nodes, setup, envs].into_iter().chain(resources).collect();
    api::stable::digits(all.iter().map(String::as_str))
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
    let each = fit::fits(found, task, None)?;
    let (script, configuration) = match setup {
        Setup::LeftOut => (None, String::new()),
        Setup::As(configuration) => (task.setup.clone(), configuration),
    };
    let status: &Cluster = &found.cluster;
    let index = usize::try_from(status.status.candidate).unwrap_or(0);
    let place = status.spec.candidates.get(index).cloned().unwrap_or_default();
    let none_if_empty = |text: &str| if text.is_empty() { Value::Null } else { text.into() };
    let id = sky.jobs(found.name()).await?.last().map_or(1, |last| last.id.saturating_add(1));
    let mut job = Submission {
        cluster_shown: found.shown().to_owned(),
        name: task.name.clone().unwrap_or_default(),
        user: user(),
        gpus: gpus(each).map_or(0.0, |gpus| gpus.count),
        resources: job_resources(task.num_nodes, each),
        run_timestamp: format!("sky-{}", now.strftime("%Y-%m-%d-%H-%M-%S-%6f")),
        script: task.run.clone().unwrap_or_default(),
        is_setup: false,
        has_setup: script.is_some(),
        configuration,
        secret,
        cluster_info: json!({
            "cluster_name": found.shown(), "cloud": place.provider,
            "region": none_if_empty(&place.region), "zone": none_if_empty(&place.zone),
        }),
        ..Submission::on(&found.object, id, u32::try_from(task.num_nodes).unwrap_or(1))
    };
    debug_assert!(whole(job.gpus) <= 1_000_000);
    // the name is made of the number: the second client to come takes the next one
    loop {
        match sky.jobsets().create(&PostParams::default(), &dynamic(job.jobset())?).await {
            Ok(_) => break,
            Err(kube::Error::Api(status)) if status.code == 409 => job.id = job.id.saturating_add(1),
            Err(error) => return Err(error.into()),
        }
    }
    let id = job.id;
    if let Some(script) = script {
        let nodes = u32::try_from(status.spec.nodes).unwrap_or(1).min(job.nodes.max(1));
        let setup = Submission { script, is_setup: true, nodes, ..job };
        sky.jobsets().create(&PostParams::default(), &dynamic(setup.jobset())?).await?;
    }
    Ok(id)
}

pub(super) fn dynamic(object: Value) -> Result<DynamicObject, Trouble> {
    serde_json::from_value(object).map_err(|error| value_error(error.to_string()))
}
