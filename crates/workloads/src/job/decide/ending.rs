//! How a Job comes to its end, and what its status says of it.

use super::super::policy::{self, Verdict};
use super::super::status::{COMPLETE, Condition, FAILED, FAILURE_TARGET, SUCCESS_CRITERIA_MET, SUSPENDED};
use super::{Sync, event, whole_seconds};
use api::time::left;
use jiff::SignedDuration;
use reconcile::EventType;

/// Reason of a Job that its pod failure policy has ended.
pub const POD_FAILURE_POLICY: &str = "PodFailurePolicy";

/// How a Job comes to an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    pub success: bool,
    pub reason: String,
    message: String,
}

impl Ending {
    pub fn failure(reason: &str, message: impl Into<String>) -> Self {
        Self { success: false, reason: reason.to_owned(), message: message.into() }
    }

    pub fn success(reason: &str, message: impl Into<String>) -> Self {
        Self { success: true, reason: reason.to_owned(), message: message.into() }
    }

    pub fn from_condition(success: bool, condition: &Condition) -> Self {
        Self { success, reason: condition.reason.clone(), message: condition.message.clone() }
    }

    /// The condition that says so while pods are still ending.
    pub fn interim(&self) -> &'static str {
        if self.success { SUCCESS_CRITERIA_MET } else { FAILURE_TARGET }
    }

    /// The condition that says so when all is done.
    pub fn terminal(&self) -> &'static str {
        if self.success { COMPLETE } else { FAILED }
    }
}

impl Sync<'_> {
    /// Whether, and how, the Job is at its end; not counting its completions, which need all pods to have ended.
    pub fn ending(&self) -> Option<Ending> {
        if let Some(met) = self.before.is(SUCCESS_CRITERIA_MET) {
            return Some(Ending::from_condition(true, met));
        }
        if let Some(target) = self.before.is(FAILURE_TARGET) {
            return Some(Ending::from_condition(false, target));
        }
        let told = self.pods.iter().filter(|pod| self.failed(pod)).find_map(|pod| match self.verdict(pod) {
            Verdict::FailJob(message) => Some(message),
            Verdict::Count | Verdict::Ignore | Verdict::FailIndex => None,
        });
        if let Some(message) = told {
            return Some(Ending::failure(POD_FAILURE_POLICY, message));
        }
        let counted = self.newly_failed().into_iter().filter(|pod| !self.ignored(pod)).count();
        let failures = u64::from(self.before.failed) + (self.uncounted_failed.len() + counted) as u64;
        if failures > u64::from(self.spec.backoff_limit) || self.restarted_too_often() {
            return Some(Ending::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
        }
        if self.deadline_left().is_some_and(|left| !left.is_positive()) {
            return Some(Ending::failure("DeadlineExceeded", "Job was active longer than specified deadline"));
        }
        if !self.spec.indexed {
            return None;
        }
        if let Some(failed) = &self.failed {
            if self.spec.max_failed_indexes.is_some_and(|max| failed.len() > max) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                return Some(Ending::failure("MaxFailedIndexesExceeded", message));
            }
            if !failed.is_empty() && failed.len() + self.succeeded.len() >= self.spec.size() {
                return Some(Ending::failure("FailedIndexes", "Job has failed indexes"));
            }
        }
        let met = policy::succeeds(self.spec.success_policy(), self.spec.size(), &self.succeeded)?;
        Some(Ending::success("SuccessPolicy", met))
    }

    /// Containers that are restarted in place spend the backoff limit too.
    fn restarted_too_often(&self) -> bool {
        let restarts: u64 = self.pods.iter().map(|pod| pod.restarts()).sum();
        self.spec.restarts_in_place && restarts >= u64::from(self.spec.backoff_limit.max(1))
    }

    /// `None` where no deadline runs.
    pub fn deadline_left(&self) -> Option<SignedDuration> {
        let deadline = self.spec.active_deadline.filter(|_| !self.spec.suspend)?;
        let resuming = self.before.is(SUSPENDED).is_some();
        let start = if resuming { self.now } else { self.status.start_time? };
        Some(left(SignedDuration::from_secs(deadline), start, self.now))
    }

    pub fn complete(&self) -> bool {
        match self.spec.completions {
            None => self.successes() > 0,
            Some(completions) => self.successes() >= completions,
        }
    }

    /// Writes the interim condition, and the terminal one once nothing is left to end or to count.
    pub fn end(&mut self, ending: &Ending, unfinished: bool) {
        let Ending { success, reason, message } = ending;
        if self.status.is(ending.interim()).is_none() {
            self.report.note(format!("{}: {message}", ending.interim()));
            self.status.set_condition(Condition::new(ending.interim(), true, reason, message, self.now));
        }
        let uncounted = self.status.uncounted.as_ref();
        if unfinished || uncounted.is_some_and(|u| !u.succeeded.is_empty() || !u.failed.is_empty()) {
            return;
        }
        self.report.note(format!("{}: nothing is left to end or to count", ending.terminal()));
        self.status.set_condition(Condition::new(ending.terminal(), true, reason, message, self.now));
        self.ending_since = None;
        if *success {
            self.status.completion_time = Some(whole_seconds(self.now));
            if self.spec.completions.is_some_and(|completions| self.status.succeeded > completions) {
                let message = "Too many succeeded pods running after completion count reached";
                self.events.push(event(EventType::Warning, "TooManySucceededPods", message));
            }
            self.events.push(event(EventType::Normal, "Completed", "Job completed"));
        } else {
            self.events.push(event(EventType::Warning, reason, message.clone()));
        }
        self.waits.clear();
        self.waits.extend(self.spec.ttl.map(SignedDuration::from_secs));
    }
}
