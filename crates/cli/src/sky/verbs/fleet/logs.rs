//! `serve logs` and `jobs pool logs`.

use super::super::{Done, NOT_FOUND, misused, say};
use super::{capital, found, kind, member, noun};
use crate::sky::clusters::{self, SHOW, Sky};
use crate::sky::submit::{Trouble, value_error};
use ::clusters::Fleet;
use ::clusters::managed_output::{ManagedOutput, ReadError};
use ::sky::commands::Call;
use api::foreign::{visible, visible_line};
use futures::AsyncBufReadExt;
use futures::TryStreamExt;
use kube::api::LogParams;
use managed::fleet::FleetKind;
use managed::fleet::submitted::{balancer_name, job_name};
use std::path::PathBuf;

pub(in super::super) async fn logs(call: &Call) -> Done {
    let kind = kind(call);
    let (name, ids) = match kind {
        FleetKind::Service => (call.value("service_name"), call.values("replica_ids")),
        FleetKind::Pool => (call.value("pool_name"), call.values("worker_ids")),
    };
    let name = name.unwrap_or_default();
    let (of_controller, of_balancer) = (call.is_set("controller"), call.is_set("load_balancer"));
    let is_download = call.is_set("sync_down");
    let word = member(kind);
    let chosen = u8::from(of_controller) + u8::from(of_balancer) + u8::from(!ids.is_empty());
    if !is_download && chosen != 1 {
        let more = if kind == FleetKind::Service { ", --load-balancer" } else { "" };
        let id = word.to_uppercase();
        return Err(misused(call, format!("Name one of: --controller{more}, {id}_ID.")));
    }
    let numbers: Vec<u32> = ids.iter().filter_map(|id| id.parse().ok()).collect();
    let sky = clusters::connect().await?;
    let fleet = found(&sky, kind, name).await?;
    if is_download {
        return download(&sky, &fleet, kind, &numbers).await;
    }
    if of_controller {
        history(&fleet, kind);
        return Ok(0);
    }
    if of_balancer {
        return balancer(&sky, call, name).await;
    }
    let [number] = numbers.as_slice() else {
        return Err(misused(call, format!("Name one {word} at a time; --sync-down takes several.")));
    };
    check(&fleet, kind, *number)?;
    let output = output(call, kind, name, *number);
    tell_waits(&fleet, kind, *number);
    let read = output.read(&sky, SHOW, |line| {
        clusters::say(&line.shown());
        Ok(())
    });
    let shown = tokio::select! {
        shown = read => shown,
        _ = tokio::signal::ctrl_c() => return Ok(crate::exit::INTERRUPTED),
    };
    let is_there = shown.map_err(|error| match error {
        ReadError::Client(error) => Trouble::from(error),
        other => Trouble::Said(other.to_string()),
    })?;
    if !is_there {
        eprintln!("{} {number} has no output: it is gone, or has not begun.", capital(word));
        return Ok(NOT_FOUND);
    }
    Ok(0)
}

fn check(fleet: &Fleet, kind: FleetKind, number: u32) -> Result<(), Trouble> {
    if fleet.status.replicas.iter().any(|one| one.number == number) {
        return Ok(());
    }
    let numbers: Vec<String> = fleet.status.replicas.iter().map(|one| one.number.to_string()).collect();
    let there =
        if numbers.is_empty() { "It has none now".to_owned() } else { format!("It has {}", numbers.join(", ")) };
    Err(value_error(format!(
        "{} {number} of {} '{}' does not exist. {there}.",
        capital(member(kind)),
        noun(kind),
        fleet.spec.name
    )))
}

fn output(call: &Call, kind: FleetKind, name: &str, number: u32) -> ManagedOutput {
    ManagedOutput {
        job: job_name(kind, name, number),
        task: None,
        follow: call.is_set("follow"),
        tail: call.value("tail").and_then(|tail| tail.parse().ok()).filter(|tail| *tail > 0),
    }
}

/// Says what a replica waits for, whose output may not come for long.
fn tell_waits(fleet: &Fleet, kind: FleetKind, number: u32) {
    if let Some(replica) = fleet.status.replicas.iter().find(|one| one.number == number)
        && !replica.message.is_empty()
    {
        eprintln!(
            "{} {number} is {}: {}",
            capital(member(kind)),
            replica.state.as_str(),
            visible_line(&replica.message)
        );
    }
}

/// What the control plane knows.
fn history(fleet: &Fleet, kind: FleetKind) {
    let status = &fleet.status;
    let told = |text: &str| if text.is_empty() { String::new() } else { format!(": {}", visible_line(text)) };
    say(format!("{} '{}': {}{}", capital(noun(kind)), fleet.spec.name, status.state.as_str(), told(&status.message)));
    for version in &status.versions {
        let state = match (&version.stopped, version.ever_ready) {
            (stopped, _) if !stopped.is_empty() => format!("stopped{}", told(stopped)),
            (_, true) => "has been ready".to_owned(),
            (_, false) => "has not been ready yet".to_owned(),
        };
        say(format!("Version {}: {state}", version.number));
    }
    let wanted = status.scaler.target;
    let load = match kind {
        FleetKind::Service => format!("requests in the last minute: {}", status.load.requests_last_minute),
        FleetKind::Pool => format!("jobs that wait: {}", status.load.held),
    };
    say(format!("Wanted: {wanted} {}s; {load}", member(kind)));
    for one in &status.replicas {
        let times =
            [("launched", &one.launched_at), ("ran", &one.ran_at), ("ready", &one.ready_at), ("ended", &one.ended_at)];
        let times = times.iter().filter(|(_, at)| !at.is_empty()).map(|(what, at)| format!(", {what} {at}"));
        say(format!(
            "{} {} (version {}){}: {}{}",
            capital(member(kind)),
            one.number,
            one.version,
            times.collect::<String>(),
            one.state.as_str(),
            told(&one.message)
        ));
    }
}

/// The output of the load balancer.
async fn balancer(sky: &Sky, call: &Call, name: &str) -> Done {
    let params = LogParams {
        follow: call.is_set("follow"),
        tail_lines: call.value("tail").and_then(|tail| tail.parse().ok()).filter(|tail| *tail > 0),
        ..LogParams::default()
    };
    let stream = sky.pods().log_stream(&balancer_name(name), &params).await;
    let mut lines = match stream {
        Ok(stream) => stream.lines(),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            eprintln!("The load balancer of service '{name}' has not started yet.");
            return Ok(NOT_FOUND);
        }
        Err(error) => return Err(Trouble::from(error).into()),
    };
    let read = async {
        while let Ok(Some(line)) = lines.try_next().await {
            clusters::say(&visible(&line));
        }
    };
    tokio::select! {
        () = read => Ok(0),
        _ = tokio::signal::ctrl_c() => Ok(crate::exit::INTERRUPTED),
    }
}

/// Writes the output of replicas into `~/sky_logs/serve/NAME`.
async fn download(sky: &Sky, fleet: &Fleet, kind: FleetKind, numbers: &[u32]) -> Done {
    let name = &fleet.spec.name;
    let all: Vec<u32> = fleet.status.replicas.iter().map(|one| one.number).collect();
    let numbers = if numbers.is_empty() { &all } else { numbers };
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let folder = home.join("sky_logs").join(if kind == FleetKind::Pool { "pool" } else { "serve" }).join(name);
    for number in numbers {
        check(fleet, kind, *number)?;
        let into = folder.join(format!("{}_{number}", member(kind)));
        std::fs::create_dir_all(&into)
            .map_err(|error| value_error(format!("cannot make the folder {}: {error}", into.display())))?;
        let output = ManagedOutput { job: job_name(kind, name, *number), ..ManagedOutput::default() };
        output.download(sky, &into, SHOW).await.map_err(|error| value_error(error.to_string()))?;
    }
    say(format!("{} '{name}' logs: {}", capital(noun(kind)), folder.display()));
    Ok(0)
}
