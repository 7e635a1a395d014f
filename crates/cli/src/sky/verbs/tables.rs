//! How clusters and jobs stand in tables and in JSON.

use crate::sky::clusters::Found;
use jiff::Timestamp;
use managed::jobs::Job;
use managed::shown::infra;
use serde_json::{Value, json};

/// `3 mins ago`, `-` where it is not known.
pub(super) fn ago(at: Option<Timestamp>, now: Timestamp) -> String {
    let Some(at) = at else { return "-".to_owned() };
    let seconds = now.duration_since(at).as_secs().max(0);
    let unit = |count: i64, name: &str| format!("{count} {name}{} ago", if count == 1 { "" } else { "s" });
    match seconds {
        0..60 => unit(seconds, "sec"),
        60..3600 => unit(seconds / 60, "min"),
        3600..86_400 => unit(seconds / 3600, "hr"),
        _ => unit(seconds / 86_400, "day"),
    }
}

/// `1h 2m 3s`.
pub(super) fn lasting(seconds: i64) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m {rest}s"),
        (_, _) => format!("{hours}h {minutes}m {rest}s"),
    }
}

pub(super) fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// A cluster, as `status -o json` has it.
pub(super) fn record(found: &Found) -> Value {
    let (spec, status) = (&found.cluster.spec, &found.cluster.status);
    let autostop = spec.autostop.as_ref();
    json!({
        "name": found.shown(), "status": status.phase.as_str(), "num_nodes": spec.nodes, "infra": infra(&found.cluster),
        "resources_str": managed::resources::of_cluster(&found.cluster), "user_name": spec.user,
        "launched_at": time(&status.launched_at).map(Timestamp::as_second),
        "autostop": autostop.map_or(-1, |autostop| autostop.idle_minutes),
        "to_down": autostop.is_some_and(|autostop| autostop.down),
        "head_ip": status.nodes.first().map(|head| &head.address),
        "node_ips": status.nodes.iter().map(|node| &node.address).collect::<Vec<_>>(),
        "hourly_cost": status.hourly_price, "last_event": status.message, "last_use": spec.command,
    })
}

pub(super) fn job_row(job: &Job, now: Timestamp) -> Vec<String> {
    let until = job.ended.unwrap_or(now);
    let lasted = job.started.map(|started| lasting(until.duration_since(started).as_secs().max(0)));
    let name = if job.name.is_empty() { "-" } else { &job.name };
    vec![
        job.id.to_string(),
        name.to_owned(),
        job.user.clone(),
        ago(job.submitted, now),
        ago(job.started, now),
        lasted.unwrap_or_else(|| "-".to_owned()),
        job.resources.clone(),
        job.status.as_str().to_owned(),
        format!("~/sky_logs/{}", job.run_timestamp),
        "-".to_owned(),
    ]
}
