//! What a MPIJob asks for beyond upstream's API, by annotation.

use super::{MpiProfile, Settings};
use crate::annotations::Options;
use api::mpi::MpiJob;
use api::mpi::annotations::{REACHABLE, REPLACE_WORKERS, SSH_SECRET, WAIT_FOR_WORKERS};
use api::mpi::names::ssh_secret;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

fn said<'a>(job: &'a MpiJob, annotation: &str) -> Option<&'a str> {
    job.metadata.annotations.as_ref()?.get(annotation).map(String::as_str)
}

/// The user's own Secret with keys; none is made then.
pub(super) fn own_secret(job: &MpiJob) -> Option<&str> {
    said(job, SSH_SECRET).filter(|name| !name.is_empty())
}

/// The Secret that pods mount.
pub(super) fn secret(job: &MpiJob, name: &str) -> String {
    own_secret(job).map_or_else(|| ssh_secret(name), str::to_owned)
}

/// Whether workers that have ended are made anew as long as the launcher runs.
pub(super) fn replaces_workers(job: &MpiJob) -> bool {
    said(job, REPLACE_WORKERS) == Some("true")
}

/// Whether the launcher is to start once all workers can be reached. A job that says nothing has its operator's default.
pub(super) fn waits_until_reachable(job: &MpiJob, settings: &Settings) -> bool {
    match said(job, WAIT_FOR_WORKERS) {
        Some(said) => said == REACHABLE,
        None => settings.profile == MpiProfile::OpenshiftAi,
    }
}

/// How long a job that has ended is to stay; `None`: for ever.
pub(super) fn time_to_live(stored: &Value, job: &MpiJob, now: Timestamp) -> Option<SignedDuration> {
    let seconds = Options::of(stored).ttl_secs?;
    let since = job.status.completion_time.as_ref()?.0;
    Some(api::time::left(SignedDuration::from_secs(seconds), since, now))
}
