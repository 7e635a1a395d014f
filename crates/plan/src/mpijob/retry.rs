//! Further attempts of a MPIJob whose launcher has failed (`trainyard.dev/retries`).
//!
//! Where things stand is in two objects, so that any step may be the last before a crash: the MPIJob's annotations say which attempt it
//! is at and when that may start; the launcher's Job says which attempt it is, from the second on. In order: the failure is counted on the
//! MPIJob; the wait passes, the failed launcher and its logs still there; the Job is deleted; the next look finds none, and makes one. Workers
//! stay, and those that have ended are made anew.

use crate::annotations::Options;
use crate::conditions::time;
use api::mpi::Reason;
use api::object;
use api::trainer::annotations::{ATTEMPT, RETRY_AT};
use jiff::{SignedDuration, Timestamp};
use reconcile::{Event, EventType};
use serde_json::{Value, json};

/// Reasons of a failed Job by which trying again is of no use: its time is over, or a rule of its own says so.
const FINAL: [&str; 2] = ["DeadlineExceeded", "PodFailurePolicy"];

/// Where a MPIJob stands between its attempts.
#[derive(Debug, PartialEq)]
pub(super) enum Stage {
    /// In its attempt: nothing is to be tried again, now or ever.
    Attempt,
    /// Its attempt has failed and another is left: to be counted.
    Failed(Failure),
    /// The failure is counted; the next attempt starts after this time.
    Waiting(SignedDuration),
    /// The next attempt may start: the failed Job is to be deleted.
    Over,
}

/// An attempt that has failed, to be counted.
#[derive(Debug, PartialEq)]
pub(super) struct Failure {
    /// The MPIJob's annotations that count it.
    pub annotations: Value,
    /// Says that it failed and what follows.
    pub event: Event,
}

/// Where an unfinished MPIJob stands, by its launcher's Job as it is now.
pub(super) fn stage(options: &Options, launcher: Option<&Value>, now: Timestamp) -> Stage {
    let left = options.retry_at.map(|at| now.duration_until(at)).filter(SignedDuration::is_positive);
    // nobody but a user deletes it before its time
    let Some(launcher) = launcher else { return left.map_or(Stage::Attempt, Stage::Waiting) };
    let Some(failed) = super::status::job_condition(launcher, "Failed").filter(|held| held["status"] == "True") else {
        return Stage::Attempt;
    };
    let (attempt, reason) = (attempt_of(launcher), object::text(failed, "reason"));
    if attempt > options.retries || FINAL.contains(&reason) {
        return Stage::Attempt;
    }
    if attempt < options.attempt {
        return left.map_or(Stage::Over, Stage::Waiting);
    }
    let wait = options.wait_after(attempt);
    let (next, most) = (attempt.saturating_add(1), options.retries.saturating_add(1));
    let message = format!(
        "attempt {attempt} of {most} failed ({reason}: {}); attempt {next} starts in {}s",
        object::text(failed, "message"),
        wait.as_secs()
    );
    Stage::Failed(Failure {
        annotations: json!({ATTEMPT: next.to_string(), RETRY_AT: time(now.checked_add(wait).unwrap_or(now))}),
        event: super::status::event(EventType::Warning, Reason::Restarting.as_str(), super::status::cut(message)),
    })
}

/// The attempt that a launcher's Job is; the first does not say, so that it is upstream's to the byte.
fn attempt_of(launcher: &Value) -> i64 {
    object::annotation(launcher, ATTEMPT).and_then(|text| text.parse().ok()).unwrap_or(1)
}
