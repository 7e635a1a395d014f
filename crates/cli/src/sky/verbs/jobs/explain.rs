//! `jobs explain`: what a managed job waits for, where it was tried, what each attempt cost, and why it ended.

use super::super::tables::{lasting, time};
use super::super::{Done, NOT_FOUND, say};
use super::{Job, numbered};
use crate::sky::clusters;
use crate::sky::words::as_typed;
use ::sky::commands::Call;
use api::sky::{Ground, JobAttempt, ManagedJob, ManagedTask};
use jiff::Timestamp;
use managed::callbacks::pod_name;
use managed::job::submitted::name_of;
use managed::shown::{cost, ground};

pub(in crate::sky::verbs) async fn explain(call: &Call) -> Done {
    let id = call.value("job_id").and_then(|id| id.parse::<u32>().ok()).unwrap_or_default();
    let sky = clusters::connect().await?;
    let Some(Job { job, .. }) = numbered(&sky, &[id].into()).await?.pop() else {
        eprintln!("{}", as_typed(&format!("Managed job {id} not found. `sky jobs queue -a -u` lists all jobs.")));
        return Ok(NOT_FOUND);
    };
    if call.value("output_format") == Some("json") {
        say(serde_json::to_string_pretty(&job.status).unwrap_or_default());
        return Ok(0);
    }
    lines(&job, Timestamp::now()).iter().for_each(say);
    Ok(0)
}

/// `1 recovery`, `2 recoveries`.
fn recoveries(count: u32) -> String {
    format!("{count} {}", if count == 1 { "recovery" } else { "recoveries" })
}

fn lines(job: &ManagedJob, now: Timestamp) -> Vec<String> {
    let status = &job.status;
    let mut lines = vec![format!(
        "Managed job {} '{}': {}, {}",
        job.spec.id,
        job.spec.name,
        status.state.as_str(),
        recoveries(status.recoveries)
    )];
    if status.tasks.is_empty() {
        let why = match job.spec.pool.as_str() {
            "" => "it waits for its turn to be launched".to_owned(),
            pool => managed::job::waits_for_worker(pool),
        };
        lines.push(format!("  Status: {why}"));
    }
    for (index, task) in status.tasks.iter().enumerate() {
        if status.tasks.len() > 1 {
            lines.push(format!("Task {index}: {}", task.state.as_str()));
        }
        let why = task.message.trim_end();
        if !why.is_empty() {
            let what = if task.state.has_ended() { "Reason" } else { "Status" };
            lines.push(format!("  {what}: {}", why.replace('\n', "\n    ")));
        }
        let shown = u32::try_from(task.attempts.len()).unwrap_or(u32::MAX);
        let before = task.attempt.saturating_sub(shown);
        if before > 0 {
            lines.push(format!("  Earlier attempts that are no longer recorded: {before}."));
        }
        lines.extend(task.attempts.iter().flat_map(|attempt| attempt_lines(task, attempt, now)));
        lines.extend(callback_lines(job, task, index));
    }
    lines
}

/// What became of the callbacks of a task. Nothing is said of those that succeeded.
fn callback_lines(job: &ManagedJob, task: &ManagedTask, index: usize) -> Vec<String> {
    let callbacks = job.status.callbacks.get(index).cloned().unwrap_or_default();
    let mut lines = Vec::new();
    if callbacks.failed > 0 {
        let plural = if callbacks.failed == 1 { "callback" } else { "callbacks" };
        lines.push(format!("  {} {plural} failed. Latest: {}", callbacks.failed, callbacks.last_failure));
    }
    if callbacks.skipped > 0 {
        let events = if callbacks.skipped == 1 { "event" } else { "events" };
        lines.push(format!(
            "  {} {events} had no callback, because the callbacks before them took too long.",
            callbacks.skipped
        ));
    }
    if let Some(event) = task.events.iter().find(|event| event.number > callbacks.last_event) {
        let pod = pod_name(&name_of(job.spec.id), index, event.number);
        lines
            .push(format!("  The callback for {} has not ended. `kubectl logs {pod}` shows its output.", event.status));
    }
    lines
}

fn attempt_lines(task: &ManagedTask, attempt: &JobAttempt, now: Timestamp) -> Vec<String> {
    let until = time(&attempt.ended_at).unwrap_or(now);
    let cost = cost(attempt, now);
    let place = if attempt.place.is_empty() { "no place yet" } else { &attempt.place };
    let ran = match (time(&attempt.ran_at), attempt.ended_at.is_empty()) {
        (None, true) => "does not run yet".to_owned(),
        (None, false) => "never ran".to_owned(),
        (Some(at), true) => format!("runs since {}", lasting(now.duration_since(at).as_secs())),
        (Some(at), false) => format!("ran {}", lasting(until.duration_since(at).as_secs())),
    };
    let mut lines =
        vec![format!("  attempt {} on {place}, cluster {}: {ran}, ${cost:.2}", attempt.number, attempt.cluster)];
    if attempt.ground != Ground::None && attempt.evidence != task.message {
        lines.push(format!("    {}: {}", ground(attempt.ground), attempt.evidence.replace('\n', "\n      ")));
    }
    lines
}
