//! The status that a pass writes: conditions by upstream's rules, and the events that tell of them. Spec A.20.

use api::jobset::{ConditionType, JobSetStatus, ReplicatedJobStatus, reasons};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use reconcile::{Event, EventType};

/// Reporter of a JobSet's events.
pub(crate) const REPORTER: &str = "jobset";

/// A status in the making. Events are emitted only if the status is written, so only changes may add some.
pub(crate) struct Draft {
    pub status: JobSetStatus,
    pub events: Vec<Event>,
    /// Something beside the counts.
    changed: bool,
    counted: bool,
    now: Timestamp,
}

/// Makes an event about the JobSet.
pub(crate) fn event(kind: EventType, reason: &str, message: impl Into<String>) -> Event {
    Event {
        regarding: None,
        kind,
        reason: reason.to_owned(),
        message: message.into(),
        reporter: REPORTER,
        action: "Reconciling",
    }
}

impl Draft {
    pub(crate) fn new(status: &JobSetStatus, now: Timestamp) -> Self {
        Self { status: status.clone(), events: Vec::new(), changed: false, counted: false, now }
    }

    /// Whether there is something to write.
    pub(crate) fn is_changed(&self) -> bool {
        self.changed || self.counted
    }

    /// Whether the counts are all that there is to write.
    pub(crate) fn only_counts(&self) -> bool {
        self.counted && !self.changed
    }

    /// Replaces the counts where they differ; the order of the list means nothing.
    pub(crate) fn set_counts(&mut self, mut counts: Vec<ReplicatedJobStatus>) {
        let sorted = |list: &[ReplicatedJobStatus]| {
            let mut list = list.to_vec();
            list.sort_by(|a, b| b.name.cmp(&a.name));
            list
        };
        counts.sort_by(|a, b| b.name.cmp(&a.name));
        if sorted(&self.status.replicated_jobs_status) != counts {
            self.status.replicated_jobs_status = counts;
            self.counted = true;
        }
    }

    /// Sets a condition, and says so where that changed something. A False condition is never added; one whose status
    /// stays keeps the time of its last transition.
    fn set(&mut self, kind: ConditionType, holds: bool, reason: &str, message: &str, tone: EventType) {
        let status = if holds { "True" } else { "False" };
        let mut new = Condition {
            type_: kind.as_str().to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: Time(self.now),
            observed_generation: None,
        };
        let mut changed = false;
        if let (true, Some(other)) = (holds, excluded_by(kind)) {
            for condition in &mut self.status.conditions {
                if condition.type_ == other.as_str() && condition.status == "True" {
                    condition.status = "False".to_owned();
                    changed = true;
                }
            }
        }
        match self.status.conditions.iter_mut().find(|c| c.type_ == new.type_) {
            Some(held) if held.status != new.status => {
                *held = new;
                changed = true;
            }
            Some(held) if held.reason != new.reason || held.message != new.message => {
                new.last_transition_time = held.last_transition_time.clone();
                *held = new;
                changed = true;
            }
            Some(_) => {}
            None if holds => {
                self.status.conditions.push(new);
                changed = true;
            }
            None => {}
        }
        if changed {
            self.changed = true;
            self.events.push(event(tone, reason, message));
        }
    }

    fn end_restart(&mut self, reason: &str, message: &str) {
        self.set(ConditionType::RestartingJobSet, false, reason, message, EventType::Normal);
    }

    /// All Jobs are ready: a restart, where one was going on, is over.
    pub(crate) fn jobs_ready(&mut self) {
        self.end_restart(reasons::JOBS_READY, "all jobs are ready");
    }

    pub(crate) fn complete(&mut self) {
        let message = "jobset completed successfully";
        self.set(ConditionType::Completed, true, reasons::ALL_JOBS_COMPLETED, message, EventType::Normal);
        self.end_restart(reasons::JOBSET_COMPLETED, message);
        self.status.terminal_state = ConditionType::Completed.as_str().to_owned();
    }

    pub(crate) fn fail(&mut self, reason: &str, message: &str) {
        self.set(ConditionType::Failed, true, reason, message, EventType::Warning);
        self.end_restart(reasons::JOBSET_FAILED, "jobset failed");
        self.status.terminal_state = ConditionType::Failed.as_str().to_owned();
    }

    pub(crate) fn suspend(&mut self) {
        let message = "jobset is suspended";
        self.set(ConditionType::Suspended, true, reasons::SUSPENDED_JOBS, message, EventType::Normal);
        self.end_restart(reasons::JOBSET_SUSPENDED, message);
    }

    pub(crate) fn resume(&mut self) {
        self.set(ConditionType::Suspended, false, reasons::RESUME_JOBS, "jobset is resumed", EventType::Normal);
    }

    pub(crate) fn starting_in_order(&mut self) {
        let message = "in order startup policy is in progress";
        let kind = ConditionType::StartupPolicyInProgress;
        self.set(kind, true, reasons::IN_ORDER_IN_PROGRESS, message, EventType::Normal);
    }

    pub(crate) fn started_in_order(&mut self) {
        let message = "in order startup policy has completed";
        let kind = ConditionType::StartupPolicyCompleted;
        self.set(kind, true, reasons::IN_ORDER_COMPLETED, message, EventType::Normal);
    }

    /// Starts all Jobs anew: those of earlier attempts are deleted by the passes that follow. Two events tell of it, one
    /// with the condition's reason and one with the action's.
    pub(crate) fn restart(&mut self, counts: bool, reason: &str, action: &str, message: &str) {
        self.status.restarts += 1;
        if counts {
            self.status.restarts_count_towards_max += 1;
        }
        self.changed = true;
        self.set(ConditionType::RestartingJobSet, true, reason, message, EventType::Warning);
        self.events.push(event(EventType::Warning, action, message));
    }
}

/// The condition that cannot be True beside this one.
fn excluded_by(kind: ConditionType) -> Option<ConditionType> {
    match kind {
        ConditionType::StartupPolicyInProgress => Some(ConditionType::StartupPolicyCompleted),
        ConditionType::StartupPolicyCompleted => Some(ConditionType::StartupPolicyInProgress),
        ConditionType::Completed
        | ConditionType::Failed
        | ConditionType::Suspended
        | ConditionType::RestartingJobSet => None,
    }
}
