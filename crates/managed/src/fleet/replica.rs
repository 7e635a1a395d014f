//! Where each replica stands, from its job and the reports of the load balancer.

use super::observed::{Observed, Own, section_of};
use super::{FleetKind, Turn};
use crate::jobs::RESOURCES;
use crate::names::place;
use api::object;
use api::sky::{ClusterPhase, Ground, ManagedState, Replica, ReplicaReport, ReplicaState as State};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// Seconds before a replica that is not ready has failed, where the file does not say.
const INITIAL_DELAY: f64 = 1200.0;
/// Seconds for which probes may fail before a replica that was ready has failed, where the file does not say.
const PROBING: f64 = 180.0;

/// How long a replica may not be ready.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Patience {
    initial: SignedDuration,
    probing: SignedDuration,
}

impl Patience {
    fn of(section: &Value) -> Self {
        let probe = &section["readiness_probe"];
        let seconds = |name: &str, default: f64| {
            let given = probe[name].as_f64().unwrap_or(default);
            SignedDuration::try_from_secs_f64(given).unwrap_or(SignedDuration::MAX)
        };
        Self {
            initial: seconds("initial_delay_seconds", INITIAL_DELAY),
            probing: seconds("consecutive_failure_threshold_timeout", PROBING),
        }
    }
}

/// A state, what to say about it, and whether another replica of the version would fail alike.
#[derive(Debug, PartialEq)]
struct Standing {
    state: State,
    message: String,
    is_fatal: bool,
    /// When the state changes by itself.
    due: Option<Timestamp>,
}

fn stands(state: State, message: impl Into<String>) -> Standing {
    Standing { state, message: message.into(), is_fatal: false, due: None }
}

fn fatal(state: State, message: impl Into<String>) -> Standing {
    Standing { is_fatal: true, ..stands(state, message) }
}

fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

impl Observed {
    /// Brings the records of all replicas up to date.
    pub(super) fn watch_replicas(&self, turn: &mut Turn, now: Timestamp) {
        let versions = turn.status.versions.clone();
        let mut due = Vec::new();
        for replica in &mut turn.status.replicas {
            let submission = versions.iter().find(|one| one.number == replica.version).map(|one| &one.submission);
            let section = submission.and_then(|name| self.file(name).ok()).map(section_of).unwrap_or(&Value::Null);
            if let Some(own) = self.job(replica.number) {
                note_place(replica, own, section);
                due.extend(self.watch(replica, own, Patience::of(section), now));
            } else if replica.is_ending && !replica.state.has_ended() {
                replica.state = State::ShuttingDown;
            }
        }
        if let Some(first) = due.into_iter().min() {
            turn.within(first.duration_since(now));
        }
    }

    fn watch(&self, replica: &mut Replica, own: &Own, patience: Patience, now: Timestamp) -> Option<Timestamp> {
        if replica.state.has_ended() && !replica.is_ending {
            return None;
        }
        if replica.is_ending {
            replica.state = State::ShuttingDown;
            let jobs = self.report(replica.number).map_or(0, |report| report.in_flight);
            replica.message = match (self.kind, jobs) {
                (FleetKind::Service, _) | (_, 0) => String::new(),
                (FleetKind::Pool, 1) => "1 job on it goes on to its end".to_owned(),
                (FleetKind::Pool, many) => format!("{many} jobs on it go on to their end"),
            };
            return None;
        }
        let standing = match own.job.status.state {
            state if state.has_ended() => ended(own),
            ManagedState::Running | ManagedState::WindingDown => {
                if replica.ran_at.is_empty() {
                    replica.ran_at = now.to_string();
                }
                match self.kind {
                    FleetKind::Service => running(replica, self.report(replica.number), patience, now),
                    FleetKind::Pool => stands(State::Ready, ""),
                }
            }
            ManagedState::Cancelling if !own.job.spec.halted.is_empty() => {
                stands(State::Preempted, own.job.spec.halted.as_str())
            }
            ManagedState::Cancelling => stands(State::Preempted, "its job was cancelled"),
            state => starting(own, state),
        };
        replica.state = standing.state;
        replica.message = standing.message;
        replica.is_fatal = standing.is_fatal;
        if standing.state == State::Ready && replica.ready_at.is_empty() {
            replica.ready_at = now.to_string();
        }
        if standing.state.has_ended() {
            replica.ended_at = now.to_string();
        }
        standing.due
    }
}

/// Notes where a replica is, and what it has.
fn note_place(replica: &mut Replica, own: &Own, section: &Value) {
    if let Some(task) = own.job.status.tasks.first() {
        replica.cluster.clone_from(&task.cluster);
    }
    let Some((object, cluster)) = &own.cluster else { return };
    if let Some(at) = cluster.at() {
        replica.place = place(&[&at.provider, &at.region, &at.zone]);
        replica.gpu = at.accelerators.as_ref().map(|gpus| format!("{}:{}", gpus.name, gpus.count)).unwrap_or_default();
        replica.resources = object::annotation(object, RESOURCES).unwrap_or_default().to_owned();
    }
    replica.launched_at.clone_from(&cluster.status.launched_at);
    let port = section["ports"].as_u64();
    // the head answers
    if let (Some(head), Some(port)) = (cluster.status.nodes.first(), port) {
        replica.address = match head.address.contains(':') {
            true => format!("[{}]:{port}", head.address),
            false => format!("{}:{port}", head.address),
        };
    }
}

fn starting(own: &Own, state: ManagedState) -> Standing {
    let message = own.job.status.tasks.first().map(|task| task.message.clone()).unwrap_or_default();
    let is_up = own.cluster.as_ref().is_some_and(|(_, cluster)| cluster.status.phase == ClusterPhase::Up);
    match state {
        ManagedState::Pending => stands(State::Pending, message),
        _ if is_up => stands(State::Starting, message),
        _ => stands(State::Provisioning, message),
    }
}

fn running(replica: &Replica, report: Option<&ReplicaReport>, patience: Patience, now: Timestamp) -> Standing {
    let Some(report) = report else {
        return stands(State::Starting, "the load balancer has not probed it yet");
    };
    if report.is_ready {
        return stands(State::Ready, "");
    }
    let failure = &report.last_failure;
    if replica.ready_at.is_empty() {
        let since = time(&replica.ran_at).unwrap_or(now);
        let until = api::time::later(since, patience.initial);
        return match now >= until {
            true => fatal(
                State::FailedInitialDelay,
                format!("not ready within {} s of its start: {failure}", patience.initial.as_secs()),
            ),
            false => Standing { due: Some(until), ..stands(State::Starting, failure.clone()) },
        };
    }
    let Some(since) = time(&report.failing_since) else { return stands(State::NotReady, failure.clone()) };
    let until = api::time::later(since, patience.probing);
    match now >= until {
        true => stands(
            State::FailedProbing,
            format!("its probes have failed for {} s: {failure}", patience.probing.as_secs()),
        ),
        false => Standing { due: Some(until), ..stands(State::NotReady, failure.clone()) },
    }
}

/// A replica whose job has ended, which no replica's does by itself.
fn ended(own: &Own) -> Standing {
    let task = own.job.status.tasks.first();
    let attempt = task.and_then(|task| task.attempts.last());
    let message = task.map(|task| task.message.clone()).unwrap_or_default();
    let evidence = attempt.map(|attempt| attempt.evidence.clone()).filter(|text| !text.is_empty());
    let evidence = evidence.unwrap_or_else(|| message.clone());
    match (own.job.status.state, attempt.map(|attempt| attempt.ground)) {
        (ManagedState::Succeeded, _) => {
            fatal(State::Failed, "its `run` exited with 0, but a replica must run until it is terminated")
        }
        (ManagedState::Cancelled, _) => stands(State::Preempted, "its job was cancelled"),
        (_, Some(Ground::MachinesLost | Ground::Interrupted | Ground::Asked)) => stands(State::Preempted, evidence),
        (ManagedState::Failed | ManagedState::FailedSetup, _) => fatal(State::Failed, evidence),
        _ => fatal(State::FailedProvision, message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(seconds: i64) -> Timestamp {
        api::time::later_secs(Timestamp::UNIX_EPOCH, seconds)
    }

    #[test]
    fn a_replica_is_given_the_time_that_its_file_says() {
        let patience = Patience::of(&json!({"readiness_probe": {"path": "/", "initial_delay_seconds": 30}}));
        let replica = Replica { ran_at: at(100).to_string(), ..Replica::default() };
        let failing = ReplicaReport { last_failure: "GET / answered 503".into(), ..ReplicaReport::default() };
        let early = running(&replica, Some(&failing), patience, at(129));
        assert_eq!((early.state, early.due), (State::Starting, Some(at(130))));
        let late = running(&replica, Some(&failing), patience, at(130));
        assert_eq!((late.state, late.is_fatal), (State::FailedInitialDelay, true));
        assert_eq!(late.message, "not ready within 30 s of its start: GET / answered 503");
        let ready = ReplicaReport { is_ready: true, ..ReplicaReport::default() };
        assert_eq!(running(&replica, Some(&ready), patience, at(500)).state, State::Ready);
    }

    #[test]
    fn a_replica_that_was_ready_fails_after_its_probes_have_failed_for_long() {
        let patience = Patience::of(&Value::Null);
        let replica = Replica { ready_at: at(10).to_string(), ..Replica::default() };
        let failing = ReplicaReport { failing_since: at(20).to_string(), ..ReplicaReport::default() };
        assert_eq!(running(&replica, Some(&failing), patience, at(199)).state, State::NotReady);
        let failed = running(&replica, Some(&failing), patience, at(200));
        assert_eq!((failed.state, failed.is_fatal), (State::FailedProbing, false));
    }
}
