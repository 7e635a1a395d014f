//! `sky jobs cancel`: managed jobs by number, by name, or all.

use super::super::{Done, NOT_FOUND, confirm, misused, say};
use super::{Job, all, numbered};
use crate::sky::clusters::{self, Sky};
use crate::sky::words::as_typed;
use ::sky::commands::Call;
use ::sky::console::wrong_choice;
use client::ClientError;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeSet;

pub(in super::super) async fn cancel(call: &Call) -> Done {
    if let Some(message) = wrong_choice(call) {
        return Err(misused(call, message));
    }
    if call.value("graceful_timeout").is_some() && !call.is_set("graceful") {
        return Err(misused(call, "--graceful-timeout needs --graceful."));
    }
    if call.is_set("graceful") {
        eprintln!("No mount has a cache to be flushed: jobs end as they do without --graceful.");
    }
    let ids: BTreeSet<u32> = call.values("job_ids").iter().filter_map(|id| id.parse().ok()).collect();
    let sky = clusters::connect().await?;
    confirm(call, &format!("Cancelling {}. Proceed?", what(call)))?;
    let jobs = match ids.is_empty() {
        true => all(&sky).await?,
        false => numbered(&sky, &ids).await?,
    };
    let Chosen { chosen, code } = match (call.value("name"), call.value("pool")) {
        _ if !call.values("job_ids").is_empty() => by_id(call, &jobs, &ids),
        (Some(name), _) => by_name(&jobs, name),
        (None, Some(pool)) => by_pool(&jobs, pool),
        (None, None) => {
            let is_meant = |job: &&Job| !job.has_ended() && (call.is_set("all_users") || job.is_mine());
            Chosen { chosen: jobs.iter().filter(is_meant).collect(), code: 0 }
        }
    };
    // the newest end first: the turn of one that ends must not go to the next in line
    let mut ended = Vec::new();
    for job in chosen {
        if end(&sky, job).await? {
            ended.insert(0, job.id().to_string());
        }
    }
    match ended.as_slice() {
        [] if code == 0 => say("No job to cancel."),
        [] => {}
        [one] => say(format!("Job with ID {one} is scheduled to be cancelled.")),
        all => say(format!("Jobs with IDs {} are scheduled to be cancelled.", all.join(", "))),
    }
    Ok(code)
}

/// What is to be ended, for the question.
fn what(call: &Call) -> String {
    let ids = call.values("job_ids");
    match (ids, call.value("name")) {
        ([], Some(name)) => format!("'{name}'"),
        ([], None) if call.value("pool").is_some() => {
            format!("managed jobs in pool '{}'", call.value("pool").unwrap_or_default())
        }
        ([], None) if call.is_set("all_users") => "all managed jobs FOR ALL USERS".to_owned(),
        ([], None) => "all managed jobs".to_owned(),
        ([one], _) => format!("managed job with ID {one}"),
        (ids, _) => format!("managed jobs with IDs {}", ids.join(",")),
    }
}

/// Jobs to end, the newest first, and the exit code if nothing else goes wrong.
struct Chosen<'a> {
    chosen: Vec<&'a Job>,
    code: u8,
}

/// The jobs of these numbers that have not ended; the others are named.
fn by_id<'a>(call: &Call, jobs: &'a [Job], ids: &BTreeSet<u32>) -> Chosen<'a> {
    let mut code = 0;
    let is_number = |id: &&String| id.parse::<u32>().is_ok_and(|id| jobs.iter().any(|job| job.id() == id));
    for id in call.values("job_ids").iter().filter(|id| !is_number(id)) {
        eprintln!("{}", as_typed(&format!("Job {id} not found. Skipped. `sky jobs queue -a -u` lists all jobs.")));
        code = NOT_FOUND;
    }
    let (over, chosen): (Vec<&Job>, Vec<&Job>) =
        jobs.iter().filter(|job| ids.contains(&job.id())).partition(|job| job.has_ended());
    for job in over.iter().rev() {
        say(format!("Job {} is already in terminal state {}. Skipped.", job.id(), job.state().as_str()));
    }
    Chosen { chosen, code }
}

/// The job of this name that has not ended. Several are only named: their numbers tell them apart.
fn by_name<'a>(jobs: &'a [Job], name: &str) -> Chosen<'a> {
    let chosen: Vec<&Job> = jobs.iter().filter(|job| !job.has_ended() && job.job.spec.name == name).collect();
    match chosen.as_slice() {
        [] => {
            eprintln!("No running job found with name '{name}'.");
            Chosen { chosen, code: NOT_FOUND }
        }
        [_] => Chosen { chosen, code: 0 },
        several => {
            let ids: Vec<String> = several.iter().map(|job| job.id().to_string()).collect();
            eprintln!("Multiple running jobs found with name '{name}'.\nJob IDs: [{}]", ids.join(", "));
            Chosen { chosen: Vec::new(), code: 1 }
        }
    }
}

/// The jobs of a pool that have not ended.
fn by_pool<'a>(jobs: &'a [Job], pool: &str) -> Chosen<'a> {
    let chosen: Vec<&Job> = jobs.iter().filter(|job| !job.has_ended() && job.is_in(pool)).collect();
    if chosen.is_empty() {
        eprintln!("No running job found in pool '{pool}'.");
        return Chosen { chosen, code: NOT_FOUND };
    }
    Chosen { chosen, code: 0 }
}

/// Asks for the end of a job; `false` if it is gone.
pub(in super::super) async fn end(sky: &Sky, job: &Job) -> Result<bool, ClientError> {
    let body = json!({"spec": {"cancel": true}});
    match sky.managed_jobs().patch(&job.object, &PatchParams::default(), &Patch::Merge(body)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        other => other.map(|_| true).map_err(Into::into),
    }
}
