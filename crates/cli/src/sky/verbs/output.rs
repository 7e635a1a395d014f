//! `logs` and `cancel`: jobs by number.

use super::launch::{finished, goes_on};
use super::{Done, End, NOT_FOUND, confirm, missing, misused, not_up, say};
use crate::sky::clusters::{self, Found, SHOW, Sky};
use crate::sky::submit::{self, Trouble, value_error};
use ::clusters::output::{self, DownloadError};
use ::sky::commands::Call;
use api::object;
use api::sky::HookEvent;
use jiff::Timestamp;
use kube::api::PostParams;
use managed::jobs::{Status, marked, stages};
use std::path::PathBuf;

/// `logs --hook [EVENT] CLUSTER`: the output of hooks. The event may be left out, and what follows `--hook` is then the cluster.
async fn show_hooks(call: &Call) -> Done {
    if call.is_set("autostop_alias") && call.value("hook_event").is_some() {
        let message = "--autostop is a deprecated alias for --hook stop and cannot be combined with --hook.";
        return Err(misused(call, message));
    }
    let given = if call.is_set("autostop_alias") { "stop" } else { call.value("hook_event").unwrap_or_default() };
    let event = HookEvent::parse(given);
    let shown = match (event, call.value("cluster")) {
        (Some(_), Some(cluster)) => cluster,
        (None, Some(cluster)) if given.is_empty() => cluster,
        (None, Some(_)) => {
            let message = format!("Invalid value for --hook: '{given}' is not one of 'stop', 'preemption', 'down'.");
            return Err(misused(call, message));
        }
        (None, None) if !given.is_empty() => given,
        (_, None) => return Err(misused(call, "Missing argument 'CLUSTER'.")),
    };
    let has_others = call.is_set("sync_down") || call.is_set("status") || !call.values("job_ids").is_empty();
    if has_others || call.value("worker").is_some() {
        let message = "--hook cannot be combined with job log options (--sync-down/--status/--worker/job IDs).";
        return Err(misused(call, message));
    }
    let sky = clusters::connect().await?;
    let Some(found) = sky.find(shown).await? else { return Err(missing(&sky, shown).await.into()) };
    let hooks = &found.cluster.status.hooks;
    let they_run = found.is_ending() || hooks.number > 0 && hooks.ended_at.is_empty();
    if let Some(trouble) = not_up(&found, "tailing hook logs").filter(|_| !they_run) {
        return Err(trouble.into());
    }
    let tail = call.value("tail").and_then(|tail| tail.parse::<usize>().ok()).filter(|tail| *tail > 0);
    let printed = tokio::select! {
        printed = ::clusters::print_hooks(&sky, &found, event, (call.is_set("follow"), tail), SHOW) => printed?,
        _ = tokio::signal::ctrl_c() => return Ok(crate::exit::INTERRUPTED),
    };
    if printed.is_some() {
        return Ok(0);
    }
    match event {
        Some(event) => eprintln!("No {} hook log found.", event.as_str()),
        None => eprintln!("No hook has fired yet on this cluster."),
    }
    Ok(1)
}

pub(super) async fn show_logs(call: &Call) -> Done {
    if call.is_set("autostop_alias") || call.value("hook_event").is_some() {
        return show_hooks(call).await;
    }
    let Some(shown) = call.value("cluster").map(str::to_owned) else {
        return Err(misused(call, "Missing argument '[CLUSTER]'."));
    };
    let wanted = call.values("job_ids").to_vec();
    let mut ids: Vec<u32> = Vec::new();
    for id in &wanted {
        let Ok(id) = id.parse() else {
            return Err(misused(call, format!("Invalid job ID {id}. Job ID must be integers.")));
        };
        ids.push(id);
    }
    if ids.len() > 1 && !call.is_set("sync_down") && !call.is_set("status") {
        return Err(misused(
            call,
            format!(
                "Cannot stream logs of multiple jobs (IDs: {}).\nPass -s/--sync-down to download the logs instead.",
                wanted.join(", ")
            ),
        ));
    }
    if call.is_set("sync_down") && call.is_set("status") {
        return Err(misused(
            call,
            "Both --sync_down and --status are specified (ambiguous). To fix: specify at most one of them.",
        ));
    }
    let worker = match call.value("worker").map(|worker| worker.parse::<u32>()) {
        None => None,
        Some(Ok(worker)) if worker > 0 => Some(worker),
        Some(_) => return Err(misused(call, "--worker must be a positive integer.")),
    };
    let operation = match (call.is_set("status"), call.is_set("sync_down")) {
        (true, _) => "getting job status",
        (_, true) => "downloading logs",
        (false, false) => "tailing logs",
    };
    let sky = clusters::connect().await?;
    let Some(found) = sky.find(&shown).await? else { return Err(missing(&sky, &shown).await.into()) };
    if let Some(trouble) = not_up(&found, operation) {
        return Err(trouble.into());
    }
    let jobs = sky.jobs(found.name()).await?;
    let chosen: Vec<u32> = if ids.is_empty() { jobs.last().map(|job| job.id).into_iter().collect() } else { ids };
    if chosen.is_empty() {
        eprintln!("No jobs found on cluster '{shown}'.");
        return Ok(NOT_FOUND);
    }
    let mut code = 0;
    for id in chosen {
        let Some(job) = jobs.iter().find(|job| job.id == id) else {
            eprintln!("Job {id} not found on cluster '{shown}': `sky queue {shown}` lists its jobs.");
            code = NOT_FOUND;
            continue;
        };
        if let Some(worker) = worker.filter(|worker| *worker >= job.nodes) {
            let ran = match job.nodes {
                0 | 1 => "on the head alone, and has no workers".to_owned(),
                nodes => format!("on {nodes} machines: its workers are 1 to {}", nodes.saturating_sub(1)),
            };
            return Err(value_error(format!("--worker {worker}: job {id} ran {ran}.")).into());
        }
        if call.is_set("sync_down") {
            let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
            let downloaded = output::download(&sky, &found, job, worker, &home, SHOW).await;
            let folder = downloaded.map_err(|error| match error {
                DownloadError::Client(error) => Trouble::from(error),
                refused => value_error(refused.to_string()),
            })?;
            say(format!("Job {id} logs: {}", folder.display()));
            continue;
        }
        if call.is_set("status") {
            say(format!("Job {id}: {}", job.status.as_str()));
            code = job.status.exit_code();
            continue;
        }
        let tail = call.value("tail").and_then(|tail| tail.parse::<usize>().ok()).filter(|tail| *tail > 0);
        if job.status.has_ended() || !call.is_set("follow") {
            output::print(&sky, &found, job, worker, tail, SHOW).await?;
            if job.status.has_ended() {
                finished(&sky, &found, id, job.status).await;
            }
            code = job.status.exit_code();
            continue;
        }
        say(format!("Tailing logs of job {id} on cluster '{shown}'..."));
        let followed = tokio::select! {
            followed = output::follow(&sky, &found, id, worker, tail, SHOW) => followed?,
            _ = tokio::signal::ctrl_c() => {
                goes_on(&shown, id);
                return Ok(crate::exit::INTERRUPTED);
            }
        };
        code = match followed {
            Some(status) => {
                finished(&sky, &found, id, status).await;
                status.exit_code()
            }
            None => NOT_FOUND,
        };
    }
    Ok(code)
}

pub(super) async fn cancel(call: &Call) -> Done {
    let shown = call.value("cluster").unwrap_or_default().to_owned();
    let all = call.is_set("all") || call.is_set("all_users");
    let ids: Vec<u32> = call.values("jobs").iter().filter_map(|id| id.parse().ok()).collect();
    if all && !ids.is_empty() {
        return Err(value_error("Cannot specify both --all and job IDs.").into());
    }
    if ids.is_empty() && !all {
        say("No job IDs or --all/--all-users provided; cancelling the latest running job.");
    }
    let sky = clusters::connect().await?;
    let Some(found) = sky.find(&shown).await? else {
        return Err(misused(call, format!("Cluster '{shown}' does not exist.")));
    };
    if let Some(trouble) = not_up(&found, "cancelling jobs") {
        return Err(trouble.into());
    }
    let what = match (all, ids.as_slice()) {
        (true, _) if call.is_set("all_users") => "all jobs of all users".to_owned(),
        (true, _) => "all your jobs".to_owned(),
        (_, []) => "the latest running job".to_owned(),
        (_, ids) => format!("jobs {}", ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    };
    confirm(call, &format!("Cancelling {what} on cluster '{shown}'. Proceed?"))?;
    let jobs = sky.jobs(found.name()).await?;
    for id in ids.iter().filter(|id| !jobs.iter().any(|job| job.id == **id)) {
        eprintln!("Job {id} not found on cluster '{shown}': `sky queue {shown}` lists its jobs.");
    }
    let (user, of_all) = (submit::user(), call.is_set("all_users") || !ids.is_empty());
    let open = jobs.iter().filter(|job| !job.status.has_ended() && (of_all || job.user == user));
    let chosen: Vec<u32> = match (all, ids.is_empty()) {
        (true, _) => open.map(|job| job.id).collect(),
        (false, false) => open.map(|job| job.id).filter(|id| ids.contains(id)).collect(),
        (false, true) => open.filter(|job| job.status != Status::Pending).map(|job| job.id).max().into_iter().collect(),
    };
    // those that wait end first: the room of one that runs must not go to the next in line
    for id in chosen.iter().rev() {
        end_job(&sky, &found, *id).await?;
    }
    match chosen.as_slice() {
        [] => say("No jobs cancelled."),
        ids => {
            say(format!("Cancelled jobs with IDs: {}", ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")))
        }
    }
    Ok(0)
}

/// Marks a job as cancelled; a change that another client makes meanwhile is not undone.
async fn end_job(sky: &Sky, found: &Found, id: u32) -> Result<(), End> {
    loop {
        let Some(job) = output::job(sky, found, id).await?.filter(|job| !job.status.has_ended()) else { return Ok(()) };
        let mut again = false;
        for stage in stages(&job) {
            let object = submit::dynamic(marked(stage, Status::Cancelled, Timestamp::now()))?;
            let name = object::meta(stage, "name");
            match sky.jobsets().replace(name, &PostParams::default(), &object).await {
                Err(kube::Error::Api(status)) if status.code == 409 => again = true,
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => drop(other?),
            }
        }
        if !again {
            return Ok(());
        }
    }
}
