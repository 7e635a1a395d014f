//! Retries of a failed TrainJob: its JobSet is deleted, with everything below it, and made anew.
//!
//! Where things stand is in two objects, so that any step may be the last before a crash. The TrainJob says which attempt
//! it is at (and when that may start); the JobSet says which attempt it is, from the second on. In order: the failure is
//! counted on the TrainJob; the wait passes, the failed JobSet and its logs still there; the JobSet is deleted in the
//! foreground, so that no pod of it is left when its name is free; the next look finds no JobSet and builds one.

use crate::conditions::{self, time};
use crate::job::{Job, list};
use crate::names::{EVENT_ACTION_RECONCILING, EVENT_REPORTER, EVENT_RETRYING};
use api::jobset::reasons::FAIL_JOBSET_ACTION;
use api::object;
use api::trainer::annotations::{ATTEMPT, RETRY_AT};
use jiff::{SignedDuration, Timestamp};
use reconcile::{Event, EventType};
use serde_json::{Value, json};

/// Where a TrainJob stands between its attempts.
#[derive(Debug, PartialEq)]
pub(crate) enum Stage<'a> {
    /// In its attempt: nothing is to be tried again, now or ever.
    Attempt,
    /// Its attempt has failed and another is left: to be counted.
    Failed(Failure<'a>),
    /// The failure is counted; the next attempt starts after this time.
    Waiting(SignedDuration),
    /// The next attempt may start: the failed JobSet is to be deleted.
    Over(&'a Value),
    /// The failed JobSet is being deleted.
    Leaving,
}

/// An attempt that has failed.
#[derive(Debug, PartialEq)]
pub(crate) struct Failure<'a> {
    /// The JobSet's condition.
    condition: &'a Value,
    attempt: i64,
    retry_at: Timestamp,
    wait: SignedDuration,
}

/// Where an unfinished TrainJob stands, by its JobSet as it is now.
pub(crate) fn stage<'a>(job: &Job, jobset: Option<&'a Value>, now: Timestamp) -> Stage<'a> {
    let options = &job.options;
    let wait = options.retry_at.map(|at| now.duration_until(at)).filter(SignedDuration::is_positive);
    let Some(jobset) = jobset.filter(|jobset| is_of(job, jobset)) else {
        // nobody but a user deletes a JobSet before its time
        return wait.map_or(Stage::Attempt, Stage::Waiting);
    };
    let Some(condition) = failure(jobset) else { return Stage::Attempt };
    let attempt = attempt_of(jobset);
    // a rule that fails the JobSet at once says that trying again is of no use
    if attempt > options.retries || object::text(condition, "reason") == FAIL_JOBSET_ACTION {
        return Stage::Attempt;
    }
    if attempt >= options.attempt {
        let wait = options.wait_after(attempt);
        let retry_at = now.checked_add(wait).unwrap_or(now);
        return Stage::Failed(Failure { condition, attempt, retry_at, wait });
    }
    match wait {
        Some(wait) => Stage::Waiting(wait),
        None if object::is_terminating(jobset) => Stage::Leaving,
        None => Stage::Over(jobset),
    }
}

fn is_of(job: &Job, jobset: &Value) -> bool {
    object::controller_of(jobset).is_some_and(|owner| object::text(owner, "uid") == job.uid)
}

fn failure(jobset: &Value) -> Option<&Value> {
    let conditions = list(jobset.get("status")?, "conditions");
    conditions::find(conditions, "Failed").filter(|condition| condition["status"] == "True")
}

/// The attempt that a JobSet is; the first does not say, so that it is upstream's to the byte.
fn attempt_of(jobset: &Value) -> i64 {
    object::annotation(jobset, ATTEMPT).and_then(|text| text.parse().ok()).unwrap_or(1)
}

impl Failure<'_> {
    /// The TrainJob's annotations that count it.
    pub(crate) fn notes(&self) -> [(&'static str, Value); 2] {
        [(ATTEMPT, json!((self.attempt + 1).to_string())), (RETRY_AT, json!(time(self.retry_at)))]
    }

    /// How long until the next attempt.
    pub(crate) fn wait(&self) -> SignedDuration {
        self.wait
    }

    /// Says that it failed and what follows.
    pub(crate) fn event(&self, job: &Job) -> Event {
        let Self { condition, attempt, wait, .. } = self;
        let attempts = job.options.retries + 1;
        let (reason, message) = (object::text(condition, "reason"), object::text(condition, "message"));
        let next = attempt + 1;
        let after = wait.as_secs();
        Event {
            regarding: None,
            kind: EventType::Warning,
            reason: EVENT_RETRYING.to_owned(),
            message: format!(
                "attempt {attempt} of {attempts} failed ({reason}: {message}); attempt {next} starts in {after}s"
            ),
            reporter: EVENT_REPORTER,
            action: EVENT_ACTION_RECONCILING,
        }
    }
}
