//! `status` and `queue`: what there is. Names of clusters may be patterns.

use super::tables::{ago, job_row, record, time};
use super::{Done, fleet, jobs, not_up, say};
use crate::sky::clusters::{self, Found};
use crate::sky::submit::{Trouble, user, value_error};
use ::sky::commands::Call;
use ::sky::console::{Circumstances, plain};
use api::object;
use api::sky::ClusterPhase;
use jiff::Timestamp;
use managed::fleet::FleetKind;
use managed::jobs::Job;
use managed::resources::of_cluster;
use managed::shown::{autostop, infra};
use serde_json::{Value, json};

/// Names with `*` and `?` in them, as a shell would read them.
fn is_like(name: &str, pattern: &str) -> bool {
    let text: String = pattern
        .chars()
        .map(|c| match c {
            '*' => ".*".to_owned(),
            '?' => ".".to_owned(),
            c => regex::escape(&c.to_string()),
        })
        .collect();
    regex::Regex::new(&format!("^{text}$")).is_ok_and(|pattern| pattern.is_match(name))
}

/// Those that are meant where none is named: one's own, or those of all users. Clusters of managed jobs are the jobs' own.
pub(super) fn unnamed(mut all: Vec<Found>, call: &Call) -> Vec<Found> {
    all.retain(|found| !found.is_managed() && (call.is_set("all_users") || found.is_mine()));
    all
}

/// Those of the clusters that are named, and the names that none has.
pub(super) fn named(all: Vec<Found>, names: &[String]) -> (Vec<Found>, Vec<String>) {
    let unknown = names.iter().filter(|name| !all.iter().any(|found| is_like(found.shown(), name))).cloned().collect();
    let known = all.into_iter().filter(|found| names.iter().any(|name| is_like(found.shown(), name))).collect();
    (known, unknown)
}

pub(super) async fn status(call: &Call, world: &Circumstances<'_>) -> Done {
    let names = call.values("clusters").to_vec();
    if call.is_set("endpoints") && call.value("endpoint").is_some() {
        return Err(value_error("Cannot specify both --endpoint and --endpoints at the same time.").into());
    }
    let sky = clusters::connect().await?;
    let mut all = sky.all().await?;
    if call.is_set("refresh") {
        let meant: Vec<Found> = match names.is_empty() {
            true => unnamed(all.clone(), call),
            false => named(all.clone(), &names).0,
        };
        if !sky.refresh(&meant).await? {
            eprintln!("Not all machines could be asked how they are: what is shown of them is what was known before.");
        }
        all = sky.all().await?;
    }
    clusters::entries().keep(&all);
    let (shown, unknown) = if names.is_empty() { (unnamed(all, call), Vec::new()) } else { named(all, &names) };
    if call.is_set("ip") {
        if !unknown.is_empty() {
            say(format!("Cluster(s) not found: {}.", unknown.join(", ")));
        }
        return match shown.as_slice() {
            [one] => match one.cluster.status.nodes.first() {
                Some(head) if one.cluster.status.phase == ClusterPhase::Up => {
                    say(&head.address);
                    Ok(0)
                }
                _ => Err(value_error(format!("Cluster {} is not UP: it has no address.", one.shown())).into()),
            },
            found => {
                let what = match (names.as_slice(), found) {
                    ([name], []) => format!("'{name}' cluster not found."),
                    (_, _) => format!("{} clusters are meant.", found.len()),
                };
                let usage =
                    "Please specify a single cluster to show its IP address.\nUsage: `sky status --ip <cluster>`";
                Err(value_error(format!("{what} {usage}")).into())
            }
        };
    }
    let now = Timestamp::now();
    if call.value("output_format") == Some("json") {
        let list: Vec<Value> = shown.iter().map(record).collect();
        say(serde_json::to_string_pretty(&list).unwrap_or_default());
        return Ok(0);
    }
    if !unknown.is_empty() {
        say(format!("Cluster(s) not found: {}.", unknown.join(", ")));
    }
    let clouds: Vec<&str> = world.enabled.iter().map(|cloud| cloud.display()).collect();
    say(format!("Enabled Infra: {}", clouds.join(", ")).trim_end());
    println!();
    say("Clusters");
    if shown.is_empty() {
        match unknown.as_slice() {
            [] => say("No existing clusters."),
            [name] => say(format!("Cluster '{name}' not found.")),
            names => say(format!("Clusters {} not found.", names.join(", "))),
        }
    } else {
        let mut head = vec!["NAME", "INFRA", "RESOURCES", "STATUS", "AUTOSTOP", "LAUNCHED"];
        if call.is_set("all_users") {
            head.insert(1, "USER");
        }
        if call.is_set("verbose") {
            head.extend(["HEAD_IP", "COMMAND", "LAST_EVENT"]);
        }
        let row = |found: &Found| {
            let status = &found.cluster.status;
            let launched = time(&status.launched_at).or_else(|| time(object::meta(&found.object, "creationTimestamp")));
            let mut row = vec![
                found.shown().to_owned(),
                infra(&found.cluster),
                of_cluster(&found.cluster),
                status.phase.as_str().to_owned(),
                autostop(&found.cluster),
                ago(launched, now),
            ];
            if call.is_set("all_users") {
                row.insert(1, found.cluster.spec.user.clone());
            }
            if call.is_set("verbose") {
                let ip = status.nodes.first().map_or("-".to_owned(), |head| head.address.clone());
                let event = if status.message.is_empty() { "-".to_owned() } else { status.message.clone() };
                row.extend([ip, found.cluster.spec.command.clone(), event]);
            }
            row
        };
        let rows: Vec<Vec<String>> = shown.iter().map(row).collect();
        say(plain(&head, &rows));
    }
    if names.is_empty() {
        let mut hint = String::new();
        if call.is_set("show_managed_jobs") {
            let jobs = jobs::progress(call, &sky, now).await?;
            say(format!("\nManaged jobs\n{}", jobs.section));
            hint = jobs.hint;
        }
        if call.is_set("show_services") {
            say(format!("\nServices\n{}", fleet::section(&sky, FleetKind::Service).await?));
        }
        if call.is_set("show_pools") {
            say(format!("\nPools\n{}", fleet::section(&sky, FleetKind::Pool).await?));
        }
        if !hint.is_empty() {
            say(format!("\n{hint}"));
        }
    }
    Ok(0)
}

pub(super) async fn queue(call: &Call) -> Done {
    let names = call.values("clusters").to_vec();
    let json = call.value("output_format") == Some("json");
    let sky = clusters::connect().await?;
    let all = sky.all().await?;
    let (shown, unknown) = if names.is_empty() { (unnamed(all, call), Vec::new()) } else { named(all, &names) };
    let now = Timestamp::now();
    let mut records = serde_json::Map::new();
    let failed = |shown: &str, why: &str| {
        let line = format!("Failed to get the job queue for cluster '{shown}'.\n  {why}");
        if json { eprintln!("{line}") } else { say(line) }
    };
    if !json {
        let told: Vec<&str> = if names.is_empty() {
            shown.iter().map(Found::shown).collect()
        } else {
            names.iter().map(String::as_str).collect()
        };
        say("Fetching and parsing job queue...");
        say(format!("Fetching job queue for: {}", told.join(", ")).trim_end());
    }
    for found in &shown {
        if let Some(Trouble::Said(why)) = not_up(found, "getting the job queue") {
            failed(found.shown(), &why);
            continue;
        }
        let mut jobs = sky.jobs(found.name()).await?;
        if !call.is_set("all_users") {
            let user = user();
            jobs.retain(|job| job.user == user);
        }
        if call.is_set("skip_finished") {
            jobs.retain(|job| !job.status.has_ended());
        }
        jobs.reverse();
        if json {
            let record = |job: &Job| {
                json!({
                    "job_id": job.id, "job_name": job.name, "username": job.user, "status": job.status.as_str(),
                    "submitted_at": job.submitted.map(Timestamp::as_second), "start_at": job.started.map(Timestamp::as_second),
                    "end_at": job.ended.map(Timestamp::as_second), "resources": job.resources,
                    "log_path": format!("~/sky_logs/{}", job.run_timestamp),
                })
            };
            records.insert(found.shown().to_owned(), jobs.iter().map(record).collect());
            continue;
        }
        let whose = if call.is_set("all_users") { "all users" } else { "current user" };
        say(format!("\nJob queue of {whose} on cluster {}", found.shown()));
        let rows: Vec<Vec<String>> = jobs.iter().map(|job| job_row(job, now)).collect();
        let head =
            ["ID", "NAME", "USER", "SUBMITTED", "STARTED", "DURATION", "RESOURCES", "STATUS", "LOG", "GIT COMMIT"];
        say(plain(&head, &rows));
    }
    if json {
        say(serde_json::to_string_pretty(&records).unwrap_or_default());
    }
    for name in unknown {
        failed(&name, &format!("sky.exceptions.ClusterDoesNotExist: Cluster '{name}' does not exist."));
    }
    Ok(0)
}
