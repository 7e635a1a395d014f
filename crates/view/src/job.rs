//! What is common to all kinds of jobs.

use crate::mpijob::State;
use crate::state::Phase;
use crate::trials;
use api::job_kind::JobKind;
use api::object;
use api::trainer::names::LABEL_JOBSET_NAME;
use serde_json::Value;

/// The job that a pod belongs to, by the shortest name that a command accepts.
pub fn job_of(pod: &Value) -> Option<String> {
    let mpi = object::label(pod, api::mpi::names::LABEL_JOB_NAME).map(|name| JobKind::Mpi.short_name(name));
    object::label(pod, LABEL_JOBSET_NAME).map(str::to_owned).or(mpi)
}

pub fn is_finished(kind: JobKind, job: &Value) -> bool {
    match kind {
        JobKind::Train => Phase::of(job).is_finished(),
        JobKind::Mpi => State::of(job).is_finished(),
        JobKind::Search => matches!(trials::state(job), "Complete" | "Failed"),
    }
}

/// A job's state as its kind calls it, in lower case.
pub fn state(kind: JobKind, job: &Value) -> String {
    match kind {
        JobKind::Train => Phase::of(job).as_str().to_lowercase(),
        JobKind::Mpi => State::of(job).to_string().to_lowercase(),
        JobKind::Search => trials::state(job).to_lowercase(),
    }
}
