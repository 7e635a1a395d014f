//! What a managed job's page has beside what all jobs have: its attempts, with where each ran, what it cost and why it ended.

use super::{address, dollars, sky_state};
use crate::sheet::{Cell, Part, table};
use api::object;
use api::sky::{Ground, JobAttempt, ManagedJob, ManagedTask};
use client::Cluster;
use jiff::Timestamp;
use managed::names::object_name;
use managed::shown::{cost, ground};
use serde_json::Value;

/// How long the code of an attempt ran; empty if it never did.
fn ran(attempt: &JobAttempt, now: Timestamp) -> Cell {
    let Ok(began) = attempt.ran_at.parse::<Timestamp>() else {
        return Cell::text(if attempt.ended_at.is_empty() { "not yet" } else { "never" });
    };
    let until = attempt.ended_at.parse().unwrap_or(now);
    let seconds = until.duration_since(began).as_secs().max(0);
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    Cell::number(seconds as f64, view::state::short_duration(seconds))
}

fn attempt_row(namespace: &str, task: (usize, &ManagedTask), attempt: &JobAttempt, now: Timestamp) -> Vec<Cell> {
    let place = if attempt.place.is_empty() { "no place yet" } else { &attempt.place };
    let is_over = attempt.ground != Ground::None;
    let cluster = match attempt.cluster.as_str() {
        "" => Cell::text(""),
        // an ended attempt's cluster is gone
        cluster if is_over => Cell::text(cluster),
        cluster => Cell::link(address(&["clusters", namespace, &object_name(cluster)]), cluster),
    };
    vec![
        Cell::count(task.0),
        Cell::number(f64::from(attempt.number), attempt.number.to_string()),
        Cell::text(place),
        cluster,
        Cell::time(&attempt.began_at),
        ran(attempt, now),
        dollars(cost(attempt, now)),
        Cell::text(ground(attempt.ground)),
        Cell::text(&attempt.evidence),
    ]
}

/// The parts.
pub(crate) fn parts(cluster: &Cluster, object: &Value, now: Timestamp) -> Vec<Part> {
    let job: ManagedJob = serde_json::from_value(object.clone()).unwrap_or_default();
    let namespace = &cluster.namespace;
    let tasks = job.status.tasks.iter().enumerate();
    let task_rows = tasks.clone().map(|(number, task)| {
        vec![
            Cell::count(number),
            sky_state(task.state.as_str()),
            Cell::text(task.message.trim_end()),
            Cell::number(f64::from(task.recoveries), task.recoveries.to_string()),
            Cell::time(&task.started_at),
            Cell::time(&task.ended_at),
        ]
    });
    let headings = ["Task", "State", "Why", "Recoveries", "Started", "Ended"];
    let waits = match job.spec.pool.as_str() {
        "" => "No task has started: the job waits to be launched.".to_owned(),
        pool => format!("It is pending: {}.", managed::job::waits_for_worker(pool)),
    };
    let mut parts = vec![table("Tasks", &headings, task_rows.collect(), &waits)];
    let attempts = tasks.flat_map(|task| task.1.attempts.iter().rev().map(move |attempt| (task, attempt)));
    let rows = attempts.map(|(task, attempt)| attempt_row(namespace, task, attempt, now)).collect();
    let headings = ["Task", "Attempt", "Place", "Cluster", "Began", "Ran for", "Cost", "Why it ended", "Evidence"];
    parts.push(table("Attempts", &headings, rows, "No attempt yet."));
    let callbacks = job.status.callbacks.iter().filter(|one| one.failed > 0);
    let lines: Vec<String> =
        callbacks.map(|one| format!("Failed calls: {}. Latest error: {}", one.failed, one.last_failure)).collect();
    if !lines.is_empty() {
        parts.push(Part::Lines { title: "Callbacks that failed".to_owned(), lines });
    }
    if let Some(budgets) = object::annotation(object, api::sky::keys::BUDGETS) {
        let links = budgets.split(',').map(str::trim).filter(|name| !name.is_empty());
        let rows = links.map(|name| vec![Cell::link(address(&["budgets", namespace, name]), name)]).collect();
        parts.push(table("Budgets", &["Budget"], rows, ""));
    }
    parts
}
