//! Conditions Created, Running and Restarting, where a TrainJob asks for them (annotation
//! `trainyard.dev/lifecycle-conditions`).
//!
//! Off by default: upstream has none of them, and the Kubeflow SDK takes a TrainJob with any condition for not running yet.
//! With them on, the condition that says where the TrainJob stands is the last, which is the one that `kubectl get` shows.

use crate::conditions::{self, Condition};
use crate::job::{Job, list};
use crate::names::ConditionType::{self, Complete, Created, Failed, Restarting, Running, Suspended};
use crate::names::lifecycle as reasons;
use crate::retry::Stage;
use crate::state::Status;
use api::object;
use api::trainer::annotations::RESTARTS;
use jiff::Timestamp;
use serde_json::{Value, json};

/// How building the children went, as far as it is known when deciding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Built<'a> {
    /// They can be built; the JobSet tells whether they were.
    Fine,
    /// Runtime and TrainJob make none together: the build error.
    Not(&'a str),
    /// The API refuses one; a place for the error.
    Refused(&'a str),
}

/// How often the JobSet of this attempt has restarted.
fn restarts(jobset: Option<&Value>) -> i64 {
    jobset.and_then(|jobset| jobset.pointer("/status/restarts")).and_then(Value::as_i64).unwrap_or(0)
}

/// The annotation that counts restarts, where it is to change.
pub(crate) fn note(job: &Job, jobset: Option<&Value>) -> Option<(&'static str, Value)> {
    let now = restarts(jobset);
    let changed = job.options.lifecycle && jobset.is_some() && job.options.restarts.unwrap_or(0) != now;
    changed.then(|| (RESTARTS, if now == 0 { Value::Null } else { json!(now.to_string()) }))
}

/// Brings the three conditions up to date with everything else that the status says.
pub(crate) fn update(
    status: &mut Status,
    job: &Job,
    jobset: Option<&Value>,
    stage: &Stage<'_>,
    built: Built<'_>,
    now: Timestamp,
) {
    if !job.options.lifecycle {
        return;
    }
    let mut set = |kind, is_true, reason: &str, message: String| {
        let condition = Condition { kind, status: is_true, reason: reason.to_owned(), message, since: None };
        conditions::set(&mut status.conditions, &condition, now);
    };
    match (built, jobset) {
        (Built::Not(error), None) => set(Created, false, reasons::BUILD_FAILED, error.to_owned()),
        // also where a JobSet that is there cannot be brought up to date
        (Built::Refused(error), _) => set(Created, false, reasons::CREATION_FAILED, error.to_owned()),
        (Built::Fine | Built::Not(_), Some(_)) => {
            set(Created, true, reasons::CREATION_SUCCEEDED, "the JobSet is there".to_owned())
        }
        (Built::Fine, None) => {}
    }
    let finished = status.is_finished();
    let ready = list_of(jobset).iter().any(|step| {
        ["ready", "succeeded"].iter().any(|counter| step.get(*counter).and_then(Value::as_i64).unwrap_or(0) > 0)
    });
    let retrying = *stage != Stage::Attempt || (jobset.is_none() && job.options.attempt > 1);
    let runs = ready && !finished && !job.suspend && !retrying;
    let mut set = |kind: ConditionType, is_true: bool, reason: &str, message: String| {
        // what never was is not said not to be
        if is_true || conditions::find(&status.conditions, kind.as_str()).is_some() {
            let condition = Condition { kind, status: is_true, reason: reason.to_owned(), message, since: None };
            conditions::set(&mut status.conditions, &condition, now);
        }
    };
    let (reason, message) = match () {
        () if runs => (reasons::PODS_READY, "pods are ready or have succeeded"),
        () if finished => (reasons::FINISHED, "the TrainJob has ended"),
        () if job.suspend => (reasons::SUSPENDED, "the TrainJob is suspended"),
        () => (reasons::PODS_NOT_READY, "no pod is ready"),
    };
    set(Running, runs, reason, message.to_owned());
    let (attempt, restarts) = (job.options.attempt, restarts(jobset));
    if finished {
        set(Restarting, false, reasons::FINISHED, "the TrainJob has ended".to_owned());
    } else if retrying {
        let attempts = job.options.retries + 1;
        set(Restarting, true, reasons::RETRYING, format!("attempt {attempt} of {attempts}"));
    } else if runs {
        set(Restarting, false, reasons::RESTARTED, "pods are ready again".to_owned());
    } else if restarts > 0 && !job.suspend {
        set(Restarting, true, reasons::JOBSET_RESTARTS, format!("restart {restarts} of the JobSet"));
    }
    put_last(&mut status.conditions);
}

fn list_of(jobset: Option<&Value>) -> &[Value] {
    jobset.and_then(|jobset| jobset.get("status")).map_or(&[], |status| list(status, "replicatedJobsStatus"))
}

/// Moves the condition that says where the TrainJob stands to the end of the list.
fn put_last(conditions: &mut Vec<Value>) {
    let by_weight = [Failed, Complete, Suspended, Restarting, Running, Created];
    let Some(current) = by_weight.into_iter().find(|kind| conditions::is_true(conditions, *kind)) else { return };
    if let Some(at) = conditions.iter().position(|condition| object::text(condition, "type") == current.as_str()) {
        let condition = conditions.remove(at);
        conditions.push(condition);
    }
}
