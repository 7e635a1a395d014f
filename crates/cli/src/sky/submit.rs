//! Launches clusters and submits jobs to them.

pub(super) use super::clusters::user;
use super::clusters::{self, Found, Sky};
use super::words::without_values;
use ::sky::task::Task;
use ::sky::value::Value as Field;
use api::foreign::visible;
use api::object;
use api::sky::{LaunchFiles, LaunchPhase, LaunchSpec, LaunchStatus};
use client::{ClientError, Home};
use files::send::{Known, SendError};
use files::{Digest, Progress, Skipped, Source, size_shown};
use kube::api::{DynamicObject, ListParams, PostParams};
use managed::launch::fit::Size;
use managed::launch::step;
use managed::launch::{self, Refused};
use managed::names::object_name;
use placement::Catalogue;
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use submission::git;

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

/// What each machine of a cluster has at least.
pub(super) async fn size(sky: &Sky, found: &Found) -> Result<Size, ClientError> {
    let names: Vec<&str> = found.cluster.status.nodes.iter().map(|node| node.node.as_str()).collect();
    let listed = match names.as_slice() {
        [] => Vec::new(),
        _ => sky.nodes().list(&ListParams::default()).await?.items,
    };
    let named = listed.iter().filter(|node| node.metadata.name.as_deref().is_some_and(|name| names.contains(&name)));
    Ok(Size::of_cluster(&found.cluster, named.map(|node| Size::allocatable(&node.data["status"]["allocatable"]))))
}

/// Sends the working directory and the local files of a task to the control plane, and returns what a launch says of them.
///
/// # Errors
/// A file cannot be read, or the control plane does not take it.
pub(super) async fn send(sky: &Sky, task: &Task) -> Result<Vec<LaunchFiles>, Trouble> {
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
            let (folder, lock) =
                git::checkout(&from, &home).map_err(|why| said("sky.exceptions.GitError", why.to_string()))?;
            held = Some(lock);
            Some(folder)
        }
        Some(path) => Some(source(&path.text())),
    };
    let workdir = workdir.map(|path| (path, "~/sky_workdir".to_owned()));
    let mounts = task.mounts.files.iter().map(|(target, from)| (source(from), target.clone()));
    let known = Home::find(clusters::choice().home.as_deref()).map(|own| own.root().join(KNOWN)).unwrap_or_default();
    let (mut skipped, mut launched, mut shown) = (Skipped::new(), Vec::new(), Shown::default());
    for (from, to) in workdir.into_iter().chain(mounts) {
        let failed = |error: &dyn std::fmt::Display| {
            said("sky.exceptions.CommandError", format!("cannot copy {} to the machines: {error}", from.display()))
        };
        let source = Source::list(&from, &mut skipped).map_err(|error| failed(&error))?;
        let (name, known) = (source.shown(), Known::of(&source, &known));
        let mut progress = |now: Progress| shown.tell(now);
        let sent = files::send(&sky.client, &sky.namespace, source, &known, &mut skipped, &mut progress).await;
        let list = sent.map_err(|error| match error {
            SendError::Read(error) => failed(&error),
            SendError::Api(error) => error.into(),
        })?;
        let list = list.iter().map(Digest::to_string).collect();
        launched.push(LaunchFiles { to, from: name, list });
    }
    drop(held);
    skipped.sort();
    skipped.dedup();
    skipped.iter().for_each(|line| eprintln!("{}", visible(line)));
    Ok(launched)
}

/// The folder of what is known of files that were sent, below the home of the control plane.
const KNOWN: &str = "known-files";

/// Tells how far the sending of files is, once it has taken a while.
#[derive(Default)]
struct Shown(Option<Instant>);

/// Progress is printed once files have been sent for this long, and again each time it has passed.
const TOLD: Duration = Duration::from_secs(2);

impl Shown {
    fn tell(&mut self, now: Progress) {
        let last = *self.0.get_or_insert_with(Instant::now);
        if last.elapsed() < TOLD {
            return;
        }
        self.0 = Some(Instant::now());
        let (done, all) = (size_shown(now.bytes), size_shown(now.all_bytes));
        eprintln!("Sending files: {done} of {all}");
    }
}

/// Creates the Secret with the variables of a task, and returns its name; empty: the task has none.
pub(super) async fn keep_variables(sky: &Sky, shown: &str, task: &Task) -> Result<String, Trouble> {
    let variables = launch::variables(task);
    if variables.is_empty() {
        return Ok(String::new());
    }
    let secret = dynamic(launch::secret(shown, variables))?;
    Ok(sky.secrets().create(&PostParams::default(), &secret).await?.metadata.name.unwrap_or_default())
}

/// Creates a launch of a task: the Secret with its variables, then the Launch. `spec` has neither cluster, task, files nor variables.
///
/// # Errors
/// The API refuses it, or a file cannot be sent.
pub(super) async fn create(
    sky: &Sky,
    shown: &str,
    task: &Task,
    spec: LaunchSpec,
    catalogue: &Catalogue,
) -> Result<String, Trouble> {
    let files = send(sky, task).await?;
    let secret = keep_variables(sky, shown, task).await?;
    let spec = LaunchSpec { secret, files, user: user(), command: without_values(std::env::args()), ..spec };
    let object = dynamic(launch::launch(shown, task, spec, catalogue))?;
    Ok(sky.launches().create(&PostParams::default(), &object).await?.metadata.name.unwrap_or_default())
}

/// What became of a launch.
pub(super) enum Launched {
    /// Its job was submitted under this number; 0 where it has none.
    Done(u32),
    /// Ctrl-C was typed; the launch goes on.
    Interrupted,
}

/// Watches a launch until its job is submitted, and calls `begins` at the start of each phase.
///
/// # Errors
/// It fails, or was taken back.
pub(super) async fn follow(
    sky: &Sky,
    shown: &str,
    name: &str,
    mut begins: impl AsyncFnMut(&LaunchStatus) -> Result<(), Trouble>,
) -> Result<Launched, Trouble> {
    let mut before: Option<LaunchStatus> = None;
    let followed = async {
        loop {
            let status = client::until(sky.launches(), name, |object| {
                let Some(object) = object else { return Some(None) };
                let status = serde_json::from_value(object.data["status"].clone()).unwrap_or_default();
                (before.as_ref() != Some(&status)).then_some(Some(status))
            });
            let Some(status): Option<LaunchStatus> = status.await? else {
                return Err(step::ended(shown).into());
            };
            if before.as_ref().map(|before| before.phase) != Some(status.phase) {
                begins(&status).await?;
            }
            match status.phase {
                LaunchPhase::Succeeded => return Ok(status.job),
                LaunchPhase::Failed => {
                    gone_again(sky, shown, &status).await?;
                    return Err(Trouble::Said(status.message));
                }
                _ if status.message.is_empty() || before.as_ref().is_some_and(|one| one.message == status.message) => {}
                LaunchPhase::Provisioning => eprintln!("Waiting: {}", visible(&status.message)),
                _ => eprintln!("{}", visible(&status.message)),
            }
            before = Some(status);
        }
    };
    tokio::select! {
        job = followed => job.map(Launched::Done),
        _ = tokio::signal::ctrl_c() => Ok(Launched::Interrupted),
    }
}

/// After a launch has failed, waits until the control plane has deleted a cluster that never had a machine.
async fn gone_again(sky: &Sky, shown: &str, status: &LaunchStatus) -> Result<(), ClientError> {
    let is_left = |found: &Found| object::uid(&found.object) == status.cluster_uid && step::never_was(&found.cluster);
    client::until(sky.clusters(), &object_name(shown), |object| {
        (!object.and_then(Found::of).is_some_and(|found| is_left(&found))).then_some(())
    })
    .await
}

pub(super) fn dynamic(object: Value) -> Result<DynamicObject, Trouble> {
    serde_json::from_value(object).map_err(|error| value_error(error.to_string()))
}
