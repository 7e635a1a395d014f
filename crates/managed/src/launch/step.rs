//! Decides the next step of a launch from the facts.
//!
//! The Launch object holds all that must be remembered, and each step can be repeated: after a crash between a step and its record, the
//! next step is the same one. A Cluster made for a launch carries the launch's uid, and so does its job.

use super::Refused;
use super::fit::{Size, fits};
use crate::jobs::{Job, is_set_up};
use api::object;
use api::sky::{Autostop, Cluster, ClusterPhase, Launch, LaunchPhase, LaunchStatus, Power, WhenSetUp, keys};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sky::task::Task;
use std::collections::BTreeSet;

/// While a launch makes machines and sends files, idleness counts from a time that is this many seconds in the future.
const HELD: i64 = 30 * 60;
/// Time between two such delays while the launch goes on.
pub const RENEWED: SignedDuration = SignedDuration::from_mins(10);

/// The facts about a launch.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub launch: &'a Launch,
    /// The task of the launch.
    pub task: &'a Task,
    /// The Cluster of its name, as the API returned it and as it was parsed.
    pub cluster: Option<(&'a Value, &'a Cluster)>,
    /// The least that each of the cluster's machines has, if it is known.
    pub size: Option<Size>,
    /// The jobs of the cluster.
    pub jobs: &'a [Job],
    pub now: Timestamp,
}

/// What to do about a launch next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Do nothing until the launch is deleted.
    Rest,
    /// Do nothing until the launch or its cluster changes. The status says what the launch waits for.
    Wait(LaunchStatus),
    /// Delay the time at which the Cluster would stop by itself ([`held`]).
    Hold,
    /// Look for places, and make a Cluster of the launch's name.
    Place,
    /// Patch the Cluster so that it comes up, delete its lost Machines, and record that the launch is about it ([`taken`]).
    Take {
        patch: Value,
        /// Whether the machines are set up for the task.
        is_set_up: bool,
    },
    /// Put the launch's files onto the machines, then [`sent`].
    Send,
    /// Submit the job unless that is done, set when the cluster stops by itself, then [`submitted`].
    Submit,
    /// Write this status.
    Note(LaunchStatus),
    /// Delete the Cluster, which never had a running machine.
    Abandon,
    /// Remove the launch's finalizer.
    Release,
}

/// Whether a Cluster was made for this launch.
fn is_made_for(cluster: &Value, launch: &Launch) -> bool {
    object::annotation(cluster, keys::LAUNCH).is_some_and(|uid| Some(uid) == launch.metadata.uid.as_deref())
}

fn is_failed(cluster: &Cluster) -> bool {
    cluster.status.conditions.iter().any(|one| one.type_ == "Failed" && one.status == "True")
}

/// Whether a cluster has failed before any of its machines ran: its record is of no use.
pub fn never_was(cluster: &Cluster) -> bool {
    is_failed(cluster) && cluster.status.launched_at.is_empty()
}

/// What to do next.
pub fn step(seen: &Seen<'_>) -> Step {
    let Seen { launch, cluster, .. } = *seen;
    let status = &launch.status;
    if launch.metadata.deletion_timestamp.is_some() {
        let is_ours = launch.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == keys::LEDGER);
        return if is_ours { Step::Release } else { Step::Rest };
    }
    let is_its = |object: &Value| object::uid(object) == status.cluster_uid && !object::is_terminating(object);
    match status.phase {
        LaunchPhase::Succeeded => Step::Rest,
        LaunchPhase::Failed => {
            // the Cluster of a managed job is evidence, which the job removes
            let is_useless = launch.spec.managed.is_none()
                && cluster.is_some_and(|(object, read)| is_its(object) && never_was(read));
            if is_useless { Step::Abandon } else { Step::Rest }
        }
        LaunchPhase::Pending => pending(seen),
        LaunchPhase::Provisioning | LaunchPhase::Sending | LaunchPhase::Submitting => {
            match cluster.filter(|(object, _)| is_its(object)) {
                None => fail(seen, &ended(&launch.spec.cluster)),
                Some((_, read)) if status.phase == LaunchPhase::Provisioning => provisioning(seen, read),
                Some(_) if status.phase == LaunchPhase::Sending => Step::Send,
                Some(_) => Step::Submit,
            }
        }
    }
}

/// Why a launch fails if its cluster is gone.
pub fn ended(shown: &str) -> Refused {
    Refused::new(
        "sky.exceptions.ClusterDoesNotExist",
        format!("Cluster '{shown}' was terminated while it was being launched: somebody ran `sky down {shown}`."),
    )
}

/// The next step before the launch is about a Cluster.
fn pending(seen: &Seen<'_>) -> Step {
    let Seen { launch, task, cluster, size, .. } = *seen;
    let shown = &launch.spec.cluster;
    let Some((object, read)) = cluster.filter(|(object, _)| !object::is_terminating(object)) else {
        if launch.spec.on_existing || launch.spec.start {
            let why = Refused::new("sky.exceptions.ClusterDoesNotExist", format!("Cluster '{shown}' does not exist."));
            return fail(seen, &why);
        }
        return match cluster {
            None => Step::Place,
            Some(_) => waits(launch, &format!("Cluster '{shown}' is being terminated; waiting for it to be gone.")),
        };
    };
    if let Err(why) = fits(read, shown, task, if launch.spec.on_existing { None } else { size }) {
        return fail(seen, &why);
    }
    if launch.spec.on_existing {
        if let Some(why) = not_up(shown, read.status.phase) {
            return fail(seen, &why);
        }
        return Step::Take { patch: json!({}), is_set_up: false };
    }
    let was_up = read.status.phase == ClusterPhase::Up && read.spec.power == Power::Running;
    let since = read.status.launched_at.parse().unwrap_or(Timestamp::MAX);
    let is_set_up = launch.spec.setup == WhenSetUp::UnlessDone
        && was_up
        && !is_made_for(object, launch)
        && is_set_up(seen.jobs, &launch.spec.configuration, since);
    let mut patch = json!({});
    if read.spec.power == Power::Stopped {
        patch["spec"]["power"] = "Running".into();
    }
    if launch.spec.retry_until_up && !read.spec.retry_until_up {
        patch["spec"]["retryUntilUp"] = true.into();
    }
    match (launch.spec.no_autostop, held(launch, seen.now)) {
        (true, _) => patch["spec"]["autostop"] = Value::Null,
        (false, Some(held)) => patch["spec"]["autostop"] = held,
        (false, None) => {}
    }
    // the cluster has the hooks of its last launch
    let hooks = super::hooks(task);
    if !launch.spec.start && hooks != read.spec.hooks {
        patch["spec"]["hooks"] = json!(hooks);
    }
    Step::Take { patch, is_set_up }
}

/// Why a command that needs a running cluster is refused.
pub fn not_up(shown: &str, phase: ClusterPhase) -> Option<Refused> {
    let message = match phase {
        ClusterPhase::Up => return None,
        ClusterPhase::Autostopping => format!(
            "Cannot execute on cluster '{shown}': cluster is autostopping. Please wait for autostop to complete, then use `sky start {shown}` to restart."
        ),
        ClusterPhase::Init | ClusterPhase::Stopped => return Some(skipped(shown, phase, "Executing tasks")),
    };
    Some(Refused::new("sky.exceptions.ClusterNotUpError", message))
}

/// The state of a cluster that must come up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Coming<'a> {
    /// It is coming up. The text says what it waits for; it may be empty.
    Waits(&'a str),
    Up,
    /// It will not come up.
    Never(Refused),
}

/// The state of a cluster. `generation`: the generation of the spec that it has to meet.
pub fn coming<'a>(shown: &str, cluster: &'a Cluster, generation: i64) -> Coming<'a> {
    let status = &cluster.status;
    if status.observed_generation < generation {
        return Coming::Waits("");
    }
    if cluster.spec.power == Power::Stopped {
        return Coming::Never(Refused::new(
            "sky.exceptions.ClusterNotUpError",
            format!("Cluster '{shown}' was stopped while it was being launched: `sky start {shown}` starts it again."),
        ));
    }
    if status.phase == ClusterPhase::Up {
        return Coming::Up;
    }
    if is_failed(cluster) {
        let tried = status.rejected.join("\n  ");
        return Coming::Never(Refused::new(
            "sky.exceptions.ResourcesUnavailableError",
            format!(
                "Failed to provision all possible launchable resources. Tried:\n  {tried}\nTo keep retrying until the cluster is up, use the `--retry-until-up` flag."
            ),
        ));
    }
    // failed attempts are reported once all have failed
    Coming::Waits(if status.rejected.contains(&status.message) { "" } else { &status.message })
}

/// Says that an operation is refused because the cluster is not up.
pub fn skipped(shown: &str, phase: ClusterPhase, operation: &str) -> Refused {
    let hint = match phase {
        ClusterPhase::Init => format!(
            " Wait for a launch to finish, or use this command to try to transition the cluster to UP: sky start {shown}"
        ),
        _ => String::new(),
    };
    let message = format!(
        "{operation}: skipped for cluster '{shown}' (status: {}). It is only allowed for UP and AUTOSTOPPING clusters.{hint}",
        phase.as_str()
    );
    Refused::new("sky.exceptions.ClusterNotUpError", message)
}

/// The next step until the Cluster is up.
fn provisioning(seen: &Seen<'_>, cluster: &Cluster) -> Step {
    let launch = seen.launch;
    match coming(&launch.spec.cluster, cluster, launch.status.cluster_generation) {
        Coming::Waits(_) if is_due(launch, cluster, seen.now) => Step::Hold,
        Coming::Waits(message) => waits(launch, message),
        Coming::Never(why) => fail(seen, &why),
        Coming::Up if launch.spec.files.is_empty() => next(launch, LaunchPhase::Submitting),
        Coming::Up => next(launch, LaunchPhase::Sending),
    }
}

fn waits(launch: &Launch, message: &str) -> Step {
    Step::Wait(LaunchStatus { message: message.to_owned(), ..launch.status.clone() })
}

fn next(launch: &Launch, phase: LaunchPhase) -> Step {
    Step::Note(LaunchStatus { phase, message: String::new(), ..launch.status.clone() })
}

fn fail(seen: &Seen<'_>, why: &Refused) -> Step {
    Step::Note(failed(seen.launch, &why.to_string(), seen.now))
}

/// The status of a launch that will submit no job.
pub fn failed(launch: &Launch, message: &str, now: Timestamp) -> LaunchStatus {
    LaunchStatus {
        phase: LaunchPhase::Failed,
        message: message.to_owned(),
        ended_at: now.to_string(),
        ..launch.status.clone()
    }
}

/// The status of a launch that is about this Cluster from now on. The Cluster is as the API returned it after the patch.
pub fn taken(launch: &Launch, cluster: &Value, is_set_up: bool) -> LaunchStatus {
    LaunchStatus {
        phase: LaunchPhase::Provisioning,
        message: String::new(),
        cluster_uid: object::uid(cluster).to_owned(),
        cluster_generation: cluster["metadata"]["generation"].as_i64().unwrap_or(0),
        is_new: is_made_for(cluster, launch),
        is_set_up,
        ..launch.status.clone()
    }
}

/// The status of a launch whose files are on the machines.
pub fn sent(launch: &Launch) -> LaunchStatus {
    LaunchStatus { phase: LaunchPhase::Submitting, message: String::new(), ..launch.status.clone() }
}

/// The status of a launch whose job was submitted under this number; 0 without a job.
pub fn submitted(launch: &Launch, job: u32, now: Timestamp) -> LaunchStatus {
    LaunchStatus {
        phase: LaunchPhase::Succeeded,
        message: String::new(),
        job,
        ended_at: now.to_string(),
        ..launch.status.clone()
    }
}

/// The job of a launch, if it was submitted.
pub fn job_of<'a>(launch: &Launch, jobs: &'a [Job]) -> Option<&'a Job> {
    let uid = launch.metadata.uid.as_deref().unwrap_or_default();
    jobs.iter().find(|job| object::label(&job.run, keys::LAUNCH) == Some(uid))
}

/// Seconds for which a finished launch stays for its client to read.
const READ_FOR: i64 = 600;

/// Whether a finished launch is of no more use: its client has read how it ended, and its cluster is gone or was launched again since. The
/// last launch of a cluster stays, and keeps the files that the cluster's machines have; a launch that only started the cluster does not
/// count as the last.
pub fn is_left(launch: &Launch, all: &[Launch], clusters: &BTreeSet<String>, now: Timestamp) -> bool {
    let ended = |launch: &Launch| launch.status.ended_at.parse::<Timestamp>().ok();
    let Some(at) = ended(launch).filter(|_| launch.status.phase.is_over()) else { return false };
    if launch.spec.managed.is_some() {
        // its job removes it
        return false;
    }
    let uid = &launch.status.cluster_uid;
    let is_newer = |other: &&Launch| {
        other.status.cluster_uid == *uid
            && other.status.phase == LaunchPhase::Succeeded
            && !other.spec.start
            && ended(other).is_some_and(|other| other > at)
    };
    let is_last = clusters.contains(uid) && !launch.spec.start && !all.iter().any(|other| is_newer(&other));
    now > api::time::later_secs(at, READ_FOR) && !is_last
}

fn autostop(autostop: &Autostop, since: Timestamp) -> Value {
    let with = Autostop { since: since.to_string(), ..autostop.clone() };
    serde_json::to_value(with).unwrap_or_default()
}

/// When the cluster stops by itself while machines are made and files are sent. No cluster stops before its job exists, and a cluster whose
/// launch submits no job still stops by itself.
pub fn held(launch: &Launch, now: Timestamp) -> Option<Value> {
    launch.spec.autostop.as_ref().map(|set| autostop(set, held_until(now)))
}

/// The time from which idleness counts while a launch is in progress.
pub fn held_until(now: Timestamp) -> Timestamp {
    api::time::later_secs(now, HELD)
}

/// Whether the time at which the cluster would stop by itself must be delayed now, if the launch and the cluster have one.
fn is_due(launch: &Launch, cluster: &Cluster, now: Timestamp) -> bool {
    if launch.spec.autostop.is_none() {
        return false;
    }
    let since = cluster.spec.autostop.as_ref().and_then(|set| set.since.parse::<Timestamp>().ok());
    since.is_some_and(|since| since < api::time::later(held_until(now), -RENEWED))
}

/// When the cluster stops by itself after the job was submitted: idleness counts from now on.
pub fn set(launch: &Launch, now: Timestamp) -> Option<Value> {
    launch.spec.autostop.as_ref().map(|set| autostop(set, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_counts_later() {
        let now = Timestamp::UNIX_EPOCH;
        let mut launch = Launch::default();
        assert_eq!(held(&launch, now), None);
        launch.spec.autostop = Some(Autostop { down: true, ..Autostop::default() });
        let held = held(&launch, now).unwrap();
        assert_eq!(held, json!({"idleMinutes": 0, "down": true, "since": "1970-01-01T00:30:00Z"}));
        assert_eq!(set(&launch, now).unwrap()["since"], "1970-01-01T00:00:00Z");
    }

    #[test]
    fn what_is_held_is_put_off_when_it_is_due() {
        let now = Timestamp::UNIX_EPOCH;
        let mut launch = Launch::default();
        let mut cluster = Cluster::default();
        let at = |minutes: i64| {
            Some(Autostop { since: api::time::later_secs(now, 60 * minutes).to_string(), ..Autostop::default() })
        };
        cluster.spec.autostop = at(5);
        assert!(!is_due(&launch, &cluster, now), "the launch sets none");
        launch.spec.autostop = at(0);
        assert!(is_due(&launch, &cluster, now));
        cluster.spec.autostop = at(25);
        assert!(!is_due(&launch, &cluster, now));
        cluster.spec.autostop = None;
        assert!(!is_due(&launch, &cluster, now), "somebody took it away");
    }
}
