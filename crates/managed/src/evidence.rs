//! What the facts about an attempt of a managed job's task mean: it goes on, it has ended, or it must be made again, and on which ground.
//!
//! There are four grounds to make an attempt again: a provider has proof that a machine has ended, the agents report how the processes
//! exited, or that they were killed with their supervisor, or a person has removed the cluster. What the control plane cannot see is no ground. So a node that is silent, a provider that
//! does not answer and a launch that is late all mean: wait, and say for what.

use crate::jobs::{Job, Status};
use api::object;
use api::sky::{Cluster, Ground, Launch, LaunchPhase, Machine, MachinePhase, ManagedState, Power};
use jiff::Timestamp;
use serde_json::Value;

/// Seconds for which providers are asked whether machines are lost, after code has failed: a lost machine explains the failure. A provider
/// that does not show a machine then has not answered. Code that was ended by a signal is not blamed before all have answered.
const ASK_SECS: i64 = 600;
/// Seconds after the failure before which a provider may not know yet that it has taken a spot machine.
const SPOT_SECS: i64 = 5;

/// The facts about the latest attempt of a task.
#[derive(Clone, Copy, Debug)]
pub struct AttemptFacts<'a> {
    /// The Launch of the attempt, if it is there.
    pub launch: Option<&'a Launch>,
    /// The Cluster of the attempt: its JSON, and the same as a typed value.
    pub cluster: Option<(&'a Value, &'a Cluster)>,
    /// The Machines of the Cluster.
    pub machines: &'a [&'a Machine],
    /// The job of the attempt on its cluster.
    pub job: Option<&'a Job>,
    /// Exit codes of the job's ranks, where agents have reported them.
    pub exits: &'a [Option<i64>],
    /// An agent's message about a pod that was killed with its supervisor or its node; of several pods, the first one's.
    pub interrupted: Option<&'a str>,
    /// The first node that does not report, as users know its machine.
    pub silent: Option<&'a str>,
    /// Whether its machines are kept after its code has succeeded: it goes on until it is cancelled.
    pub holds: bool,
    /// When the providers were asked because the job failed, if they were.
    pub asked_at: Option<Timestamp>,
    pub now: Timestamp,
}

/// What the facts mean.
#[derive(Clone, Debug, PartialEq)]
pub enum Ruling {
    /// The attempt goes on in this state. The text says what it waits for; it may be empty.
    GoesOn { state: ManagedState, message: String },
    /// Ask the providers of its machines how they are, and judge again.
    Ask,
    /// It succeeded.
    Succeeded,
    /// Its own code failed, as the agents report: exit codes by rank.
    Failed { in_setup: bool, exits: Vec<i64>, evidence: String },
    /// The machine ended its processes, which did not exit by themselves.
    Interrupted { evidence: String },
    /// Machines are lost: all of them, or some.
    Lost { all: bool, evidence: String },
    /// A person has removed or stopped its cluster.
    Removed { evidence: String },
    /// A person has cancelled its job on the cluster.
    Cancelled { evidence: String },
    /// It never had machines. Another attempt may have some.
    NoRoom { ground: Ground, evidence: String },
    /// It was refused, and would be again.
    Refused { evidence: String },
}

fn goes_on(state: ManagedState, message: impl Into<String>) -> Ruling {
    Ruling::GoesOn { state, message: message.into() }
}

/// Judges an attempt. The order is that of the rules: success needs no explanation, and a lost machine explains a failure.
pub fn judge(facts: &AttemptFacts<'_>) -> Ruling {
    let has_succeeded = facts.job.is_some_and(|job| job.status == Status::Succeeded);
    if has_succeeded && !facts.holds {
        return Ruling::Succeeded;
    }
    if let Some(verdict) = removed(facts) {
        return verdict;
    }
    if let Some(verdict) = lost(facts) {
        return verdict;
    }
    if facts.holds && is_held(facts) {
        return goes_on(ManagedState::Running, "");
    }
    if let Some(verdict) = facts
        .launch
        .filter(|launch| launch.status.phase == LaunchPhase::Failed)
        .map(|launch| launch_failed(facts, launch))
    {
        return verdict;
    }
    match facts.job {
        Some(job) => ended(facts, job).unwrap_or_else(|| running(facts, job)),
        None => goes_on(ManagedState::Starting, facts.launch.map_or("", |launch| launch.status.message.as_str())),
    }
}

/// Whether nothing is left to run before the machines wait: the launch is over, and its job has succeeded or there was none.
fn is_held(facts: &AttemptFacts<'_>) -> bool {
    let is_launched = facts.launch.is_some_and(|launch| launch.status.phase == LaunchPhase::Succeeded);
    is_launched
        && match facts.job {
            Some(job) => job.status == Status::Succeeded,
            None => facts.launch.is_some_and(|launch| launch.status.job == 0),
        }
}

/// The cluster of an attempt has gone though the attempt needs it, or was stopped.
fn removed(facts: &AttemptFacts<'_>) -> Option<Ruling> {
    let launch = facts.launch?;
    let name = &launch.spec.cluster;
    if launch.status.cluster_uid.is_empty() {
        return None;
    }
    let there = facts.cluster.filter(|(object, _)| object::uid(object) == launch.status.cluster_uid);
    let what = match there {
        // a launch that found no room takes its cluster away itself
        None if launch.status.phase == LaunchPhase::Failed => return None,
        None => "removed",
        Some((object, _)) if object::is_terminating(object) => match launch.status.phase {
            LaunchPhase::Failed => return None,
            _ => "removed",
        },
        Some((_, cluster)) if cluster.spec.power == Power::Stopped => "stopped",
        Some(_) => return None,
    };
    Some(Ruling::Removed { evidence: format!("a user {what} cluster {name}") })
}

fn lost(facts: &AttemptFacts<'_>) -> Option<Ruling> {
    let is_lost = |machine: &&&Machine| machine.status.phase == MachinePhase::Lost;
    let lost: Vec<&&Machine> = facts.machines.iter().filter(is_lost).collect();
    let first = lost.first()?;
    let name = first.metadata.name.as_deref().unwrap_or_default();
    let others = match lost.len() {
        1 => String::new(),
        many => format!(" and {} more", many.saturating_sub(1)),
    };
    let provider = &first.spec.candidate.provider;
    let evidence = format!("{provider} reports the end of machine {name}{others}: {}", first.status.message);
    Some(Ruling::Lost { all: lost.len() == facts.machines.len(), evidence })
}

/// A launch that came to no job.
fn launch_failed(facts: &AttemptFacts<'_>, launch: &Launch) -> Ruling {
    let evidence = launch.status.message.clone();
    let class = evidence.split(':').next().unwrap_or_default();
    let had_places = !launch.status.cluster_uid.is_empty();
    let all_refused = facts.cluster.is_some_and(|(_, cluster)| {
        usize::try_from(cluster.status.refusals).is_ok_and(|refused| refused >= cluster.spec.candidates.len())
    });
    match class {
        "sky.exceptions.ResourcesUnavailableError" if had_places && !all_refused => {
            Ruling::NoRoom { ground: Ground::NoCapacity, evidence }
        }
        // a machine did not take files: it may be lost, which its provider says in its own time
        "sky.exceptions.CommandError" => Ruling::NoRoom { ground: Ground::Refused, evidence },
        "sky.exceptions.ClusterDoesNotExist" | "sky.exceptions.ClusterNotUpError" => Ruling::Removed { evidence },
        _ => Ruling::Refused { evidence },
    }
}

/// What the end of a job means; `None` while it goes on.
fn ended(facts: &AttemptFacts<'_>, job: &Job) -> Option<Ruling> {
    let in_setup = match job.status {
        Status::Pending | Status::SettingUp | Status::Running => return None,
        Status::Succeeded => return Some(Ruling::Succeeded),
        Status::Cancelled => {
            let evidence = format!("a user cancelled job {} on the cluster of this managed job", job.id);
            return Some(Ruling::Cancelled { evidence });
        }
        Status::FailedSetup => true,
        Status::Failed | Status::FailedDriver => false,
    };
    let Some(asked) = facts.asked_at else { return Some(Ruling::Ask) };
    let is_asked = |machine: &&Machine| {
        let annotations = machine.metadata.annotations.as_ref();
        machine.status.failures > 0 || annotations.is_some_and(|all| all.contains_key(api::sky::keys::REFRESH))
    };
    let spot = facts.machines.iter().any(|machine| machine.spec.candidate.spot);
    let is_early = spot && facts.now < api::time::later_secs(asked, SPOT_SECS);
    let is_open = facts.machines.iter().any(is_asked);
    let by_itself = facts.exits.iter().flatten().any(|code| !matches!(code, 0 | 128..));
    let is_patient = !by_itself || facts.now < api::time::later_secs(asked, ASK_SECS);
    if is_early || is_open && is_patient {
        let message =
            "the code of the job failed; the control plane asks the providers whether the machines still exist";
        return Some(goes_on(if in_setup { ManagedState::Starting } else { ManagedState::Running }, message));
    }
    if let Some(said) = facts.interrupted {
        return Some(Ruling::Interrupted { evidence: format!("an agent reports: {said}") });
    }
    let exits: Vec<i64> = facts.exits.iter().flatten().copied().collect();
    let shown: Vec<String> =
        facts.exits.iter().map(|exit| exit.map_or("?".to_owned(), |code| code.to_string())).collect();
    let what = if in_setup { "setup" } else { "run" };
    let evidence = match shown.is_empty() {
        true => format!("{what} failed; no agent reported an exit code"),
        false => format!("{what} failed; exit codes by rank: {}", shown.join(", ")),
    };
    Some(Ruling::Failed { in_setup, exits, evidence })
}

fn running(facts: &AttemptFacts<'_>, job: &Job) -> Ruling {
    let silent = facts.silent.map(|name| {
        format!(
            "machine {name} does not report; the job continues unless the provider confirms that the machine has ended"
        )
    });
    match job.status {
        Status::Running => goes_on(ManagedState::Running, silent.unwrap_or_default()),
        Status::SettingUp => goes_on(ManagedState::Starting, silent.unwrap_or_else(|| "its setup runs".to_owned())),
        _ => goes_on(
            ManagedState::Starting,
            silent.unwrap_or_else(|| "its job waits for its turn on the cluster".to_owned()),
        ),
    }
}
