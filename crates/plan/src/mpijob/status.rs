//! The status that a pass writes, and the events that tell of it.

use api::mpi::names::EVENT_REPORTER;
use api::mpi::{ConditionType, JobCondition, JobStatus, Reason, ReplicaStatus, ReplicaType};
use api::object::{self, Key};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use reconcile::{Event, EventType};
use serde_json::Value;
use std::sync::Arc;

/// Longest message that an event takes.
const MESSAGE_MAX: usize = 1024;
/// `reason` of a Job that failed because its pods did.
const BACKOFF_LIMIT_EXCEEDED: &str = "BackoffLimitExceeded";

/// A status in the making.
pub(super) struct Draft {
    pub status: JobStatus,
    pub events: Vec<Event>,
    now: Timestamp,
}

/// Makes an event about the MPIJob.
pub(super) fn event(kind: EventType, reason: &str, message: impl Into<String>) -> Event {
    Event {
        regarding: None,
        kind,
        reason: reason.to_owned(),
        message: message.into(),
        reporter: EVENT_REPORTER,
        action: "",
    }
}

/// Cuts a message to what an event takes.
pub(super) fn cut(message: String) -> String {
    const DOTS: &str = "...";
    if message.len() <= MESSAGE_MAX {
        return message;
    }
    format!("{}{DOTS}", &message[..message.floor_char_boundary(MESSAGE_MAX - DOTS.len())])
}

/// A pod's phase.
pub(super) fn phase(pod: &Value) -> &str {
    object::text(&pod["status"], "phase")
}

/// Whether a Job has a condition of this type that is True.
pub(super) fn job_is(job: &Value, kind: &str) -> bool {
    job_condition(job, kind).is_some_and(|condition| condition["status"] == "True")
}

pub(super) fn job_condition<'a>(job: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut conditions = job["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == kind)
}

fn time(value: &Value) -> Option<Time> {
    Some(Time(value.as_str()?.parse().ok()?))
}

impl Draft {
    pub(super) fn new(status: &JobStatus, now: Timestamp) -> Self {
        Self { status: status.clone(), events: Vec::new(), now }
    }

    /// Sets a condition; false where it is so already. Only its status and its reason count: a message alone changes
    /// nothing. It moves to the end of the list; an end takes Running and Failed away.
    fn set(&mut self, kind: ConditionType, holds: bool, reason: &str, message: String) -> bool {
        let status = if holds { "True" } else { "False" };
        let held = self.status.condition(kind);
        if held.is_some_and(|held| held.status == status && held.reason.as_deref() == Some(reason)) {
            return false;
        }
        let now = Time(self.now);
        // copied from the condition before, as upstream does, even if that has none
        let since = held.filter(|held| held.status == status).map(|held| held.last_transition_time.clone());
        let set = JobCondition {
            condition_type: kind.as_str().to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_update_time: Some(now.clone()),
            last_transition_time: since.unwrap_or(Some(now)),
        };
        let is = |condition: &JobCondition, kind: ConditionType| condition.condition_type == kind.as_str();
        self.status.conditions.retain(|held| {
            let excluded = (kind == ConditionType::Running && is(held, ConditionType::Restarting))
                || (kind == ConditionType::Restarting && is(held, ConditionType::Running));
            !is(held, kind) && !excluded
        });
        if matches!(kind, ConditionType::Succeeded | ConditionType::Failed) {
            for held in &mut self.status.conditions {
                let others = [ConditionType::Running, ConditionType::Restarting, ConditionType::Failed];
                if others.into_iter().any(|other| is(held, other)) {
                    held.status = "False".to_owned();
                }
            }
        }
        self.status.conditions.push(set);
        true
    }

    fn tell(&mut self, kind: EventType, reason: &str, message: impl Into<String>) {
        self.events.push(event(kind, reason, message));
    }

    /// The first look at a MPIJob.
    pub(super) fn created(&mut self, key: &Key) -> Event {
        let message = format!("MPIJob {key} is created.");
        self.set(ConditionType::Created, true, Reason::Created.as_str(), message.clone());
        event(EventType::Normal, Reason::Created.as_str(), message)
    }

    pub(super) fn started(&mut self) {
        if self.status.start_time.is_none() {
            self.status.start_time = Some(Time(self.now));
        }
    }

    fn replicas(&mut self, role: ReplicaType) -> &mut ReplicaStatus {
        self.status.replica_statuses.entry(role.as_str().to_owned()).or_default()
    }

    /// Nobody counts any more.
    pub(super) fn reset_workers(&mut self) {
        *self.replicas(ReplicaType::Worker) = ReplicaStatus::default();
    }

    /// What the pods and the launcher's Job make of the status.
    pub(super) fn update(&mut self, key: &Key, seen: &Seen<'_>) {
        if seen.suspended {
            if self.set(ConditionType::Suspended, true, Reason::Suspended.as_str(), "MPIJob suspended".to_owned()) {
                self.tell(EventType::Normal, Reason::Suspended.as_str(), "MPIJob suspended");
            }
        } else if self.status.condition(ConditionType::Suspended).is_some()
            && self.set(ConditionType::Suspended, false, Reason::Resumed.as_str(), "MPIJob resumed".to_owned())
        {
            self.tell(EventType::Normal, Reason::Resumed.as_str(), "MPIJob resumed");
            self.status.start_time = Some(Time(self.now));
        }
        let running = seen.launcher_pods.iter().filter(|pod| phase(pod) == "Running").count();
        if let Some(launcher) = seen.launcher {
            self.count_launcher(key, launcher, seen, running);
        }
        if seen.is_between_attempts && !seen.suspended {
            let message = format!("MPIJob {key} is tried again.");
            self.set(ConditionType::Restarting, true, Reason::Restarting.as_str(), message);
        }
        let evicted = self.count_workers(seen.workers);
        if evicted > 0 && !seen.replaces_workers {
            let message = format!("{evicted}/{} workers are evicted", seen.workers.len());
            self.set(ConditionType::Failed, true, Reason::Evicted.as_str(), message.clone());
            self.tell(EventType::Warning, Reason::Evicted.as_str(), message);
        }
        let workers_run = seen.workers.iter().all(|pod| pod.as_deref().is_some_and(|pod| phase(pod) == "Running"));
        if seen.suspended {
            let message = format!("MPIJob {key} is suspended.");
            self.set(ConditionType::Running, false, Reason::Suspended.as_str(), message);
        } else if self.status.is_finished() {
            self.was_never_running(key);
        } else if running >= 1 && workers_run {
            let message = format!("MPIJob {key} is running.");
            // H-25 (fixed): upstream tells of it in each pass
            if self.set(ConditionType::Running, true, Reason::Running.as_str(), message) {
                self.tell(EventType::Normal, Reason::Running.as_str(), format!("MPIJob {key} is running"));
            }
        }
    }

    fn count_launcher(&mut self, key: &Key, launcher: &Value, seen: &Seen<'_>, running: usize) {
        let number = |value: &Value| value.as_i64().and_then(|number| i32::try_from(number).ok()).unwrap_or_default();
        let mut counts = ReplicaStatus { failed: number(&launcher["status"]["failed"]), ..ReplicaStatus::default() };
        if job_is(launcher, "Complete") {
            counts.succeeded = 1;
            let message = format!("MPIJob {key} successfully completed.");
            if self.status.completion_time.is_none() {
                self.status.completion_time = time(&launcher["status"]["completionTime"]);
            }
            self.set(ConditionType::Succeeded, true, Reason::Succeeded.as_str(), message.clone());
            self.tell(EventType::Normal, Reason::Succeeded.as_str(), message);
        } else if seen.is_between_attempts {
            // its failure is not the job's
        } else if let Some(failed) = job_condition(launcher, "Failed").filter(|failed| failed["status"] == "True") {
            let (reason, message) = failure(key, failed, seen.launcher_pods);
            if self.status.completion_time.is_none() {
                self.status.completion_time = Some(Time(self.now));
            }
            self.set(ConditionType::Failed, true, &reason, message.clone());
            self.tell(EventType::Warning, &reason, message);
        } else {
            counts.active = i32::try_from(running).unwrap_or(i32::MAX);
        }
        *self.replicas(ReplicaType::Launcher) = counts;
    }

    /// Counts workers by phase; how many were evicted. One that is about to be made has no phase yet.
    fn count_workers(&mut self, workers: &[Option<Arc<Value>>]) -> usize {
        let mut counts = ReplicaStatus::default();
        let mut evicted = 0;
        for pod in workers.iter().flatten() {
            match phase(pod) {
                "Failed" => {
                    counts.failed += 1;
                    evicted += usize::from(pod["status"]["reason"] == "Evicted");
                }
                "Succeeded" => counts.succeeded += 1,
                "Running" => counts.active += 1,
                _ => {}
            }
        }
        *self.replicas(ReplicaType::Worker) = counts;
        evicted
    }

    /// Who computes how long a job ran looks for the condition, so it is there.
    fn was_never_running(&mut self, key: &Key) {
        if self.status.condition(ConditionType::Running).is_some() {
            return;
        }
        let at = self.status.completion_time.clone().unwrap_or(Time(self.now));
        self.status.conditions.push(JobCondition {
            condition_type: ConditionType::Running.as_str().to_owned(),
            status: "False".to_owned(),
            reason: Some(Reason::Running.as_str().to_owned()),
            message: Some(format!("MPIJob {key} is finished but Running condition was never set.")),
            last_update_time: Some(at.clone()),
            last_transition_time: Some(at),
        });
    }
}

/// What a pass has seen, or made, by its end.
pub(super) struct Seen<'a> {
    pub suspended: bool,
    pub launcher: Option<&'a Value>,
    pub launcher_pods: &'a [Arc<Value>],
    /// The declared workers, as far as this pass looked after them; `None`: about to be made.
    pub workers: &'a [Option<Arc<Value>>],
    /// Workers that have ended are made anew: their end is not the job's.
    pub replaces_workers: bool,
    /// The launcher has failed, or was deleted for that, and another attempt follows.
    pub is_between_attempts: bool,
}

/// Reason and message of a launcher's failure: its Job's and, where pods failed too often, what the newest one said.
// H-32 (kept): a pod without a reason leaves a slash at the end; recordings hold it.
fn failure(key: &Key, failed: &Value, pods: &[Arc<Value>]) -> (String, String) {
    let said = |member: &str| Some(object::text(failed, member).to_owned()).filter(|text| !text.is_empty());
    let mut reason = said("reason").unwrap_or_else(|| Reason::Failed.as_str().to_owned());
    let mut message = said("message").unwrap_or_else(|| format!("MPIJob {key} has failed"));
    if reason == BACKOFF_LIMIT_EXCEEDED {
        let mut last: Option<&Value> = None;
        for pod in pods.iter().filter(|pod| phase(pod) == "Failed") {
            let made = |pod: &Value| object::meta(pod, "creationTimestamp").to_owned();
            if last.is_none_or(|last| made(last) < made(pod)) {
                last = Some(pod);
            }
        }
        if let Some(pod) = last {
            let said = |member| object::text(&pod["status"], member);
            reason = format!("{reason}/{}", said("reason"));
            message = cut(format!("{message}: {}", said("message")));
        }
    }
    (reason, message)
}
