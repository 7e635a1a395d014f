//! `serve status` and `jobs pool status`.

use super::super::{Done, NOT_FOUND, jobs, say};
use super::{capital, kind, member, missing, noun, rows as table, served};
use crate::sky::clusters::{self, Sky};
use crate::sky::submit::Trouble;
use ::clusters::Fleet;
use ::sky::commands::Call;
use ::sky::console::{ServiceRow, served_table};
use api::foreign::visible_line;
use api::sky::JobFile;
use client::ClientError;
use jiff::Timestamp;
use managed::fleet::FleetKind;

pub(in super::super) async fn status(call: &Call) -> Done {
    let kind = kind(call);
    let names = if kind == FleetKind::Pool { call.values("pool_names") } else { call.values("service_names") };
    let sky = clusters::connect().await?;
    let mut fleets = sky.all_fleets(kind).await?;
    let unknown = names.iter().any(|name| !fleets.iter().any(|one| one.spec.name == *name));
    let code = if unknown { NOT_FOUND } else { 0 };
    for name in names.iter().filter(|name| !fleets.iter().any(|one| one.spec.name == **name)) {
        let Trouble::Said(line) = missing(&sky, kind, name).await else { continue };
        eprintln!("{}", line.trim_start_matches("ValueError: "));
    }
    if !names.is_empty() {
        fleets.retain(|one| names.contains(&one.spec.name));
    }
    if call.is_set("endpoint") {
        return Ok(endpoints(&fleets, names).max(code));
    }
    if fleets.is_empty() && unknown {
        return Ok(code);
    }
    if fleets.is_empty() {
        let title = format!("{}s", capital(noun(kind)));
        say(format!("{title}\nNo live {}s.", noun(kind)));
        return Ok(0);
    }
    let rows = read(&sky, &fleets, kind).await?;
    let all = call.is_set("verbose") || call.is_set("show_all");
    say(format!("{}s", capital(noun(kind))));
    say(served_table(&rows, served(kind), all, Timestamp::now().as_second()));
    fleets.iter().for_each(|fleet| tell(fleet, kind));
    Ok(code)
}

/// What a table has no place for: why a service is as it is, and why its replicas are.
fn tell(fleet: &Fleet, kind: FleetKind) {
    let status = &fleet.status;
    let mut lines = Vec::new();
    lines.extend(status.message.lines().map(str::to_owned));
    let told = status.replicas.iter().filter(|one| !one.message.is_empty());
    lines.extend(told.map(|one| format!("{} {}: {}", member(kind), one.number, one.message)));
    lines.dedup();
    if !lines.is_empty() {
        eprintln!("\n{} '{}':", capital(noun(kind)), visible_line(&fleet.spec.name));
        lines.iter().for_each(|line| eprintln!("  {}", visible_line(line)));
    }
}

fn endpoints(fleets: &[Fleet], names: &[String]) -> u8 {
    for fleet in fleets {
        let endpoint = &fleet.status.load.endpoint;
        match (endpoint.is_empty(), names.len()) {
            (true, _) => eprintln!("Service '{}' has no endpoint yet: its load balancer starts.", fleet.spec.name),
            (false, 1) => say(endpoint),
            (false, _) => say(format!("{}: {endpoint}", fleet.spec.name)),
        }
    }
    u8::from(fleets.iter().any(|fleet| fleet.status.load.endpoint.is_empty()))
}

async fn read(sky: &Sky, fleets: &[Fleet], kind: FleetKind) -> Result<Vec<ServiceRow>, ClientError> {
    let mut rows = Vec::new();
    let jobs = if kind == FleetKind::Pool { jobs::running(sky).await? } else { Vec::new() };
    for fleet in fleets {
        let map = sky.config_maps().get_opt(&fleet.spec.submission).await?;
        let text = map.as_ref().and_then(|map| map.data["data"]["job"].as_str());
        let file: Option<JobFile> = text.and_then(|text| serde_json::from_str(text).ok());
        let mut used = table::Used::new();
        for job in jobs.iter().rev().filter(|job| !job.has_ended() && job.is_in(&fleet.spec.name)) {
            let status = &job.job.status;
            if status.tasks.iter().any(|task| task.open_attempt().is_some()) {
                used.entry(status.worker).or_default().push(job.id());
            }
        }
        rows.push(table::row(fleet, file.as_ref(), kind, &used));
    }
    Ok(rows)
}

/// The section of services, or of pools, in `sky status`.
pub(in super::super) async fn section(sky: &Sky, kind: FleetKind) -> Result<String, ClientError> {
    let fleets = sky.all_fleets(kind).await?;
    if fleets.is_empty() {
        return Ok(format!("No live {}s.", noun(kind)));
    }
    let rows = read(sky, &fleets, kind).await?;
    let table = served_table(&rows, served(kind), false, Timestamp::now().as_second());
    // the replicas have a command of their own
    Ok(table.split("\n\n").next().unwrap_or_default().to_owned())
}
