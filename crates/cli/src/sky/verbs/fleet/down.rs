//! `serve down` and `jobs pool down`.

use super::super::jobs::{self, Job};
use super::super::{Done, NOT_FOUND, confirm, misused, say};
use super::{capital, kind, member, missing, noun};
use crate::sky::clusters::{self, Sky};
use crate::sky::submit::{Trouble, value_error};
use ::sky::commands::Call;
use client::ClientError;
use kube::api::{Patch, PatchParams};
use managed::fleet::FleetKind;
use managed::fleet::submitted::job_name;
use serde_json::json;

pub(in super::super) async fn down(call: &Call) -> Done {
    let kind = kind(call);
    let (argument, named) = match kind {
        FleetKind::Pool => ("POOL_NAMES", call.values("pool_names")),
        FleetKind::Service => ("SERVICE_NAMES", call.values("service_names")),
    };
    if named.is_empty() != call.is_set("all") {
        let given = if named.is_empty() { "None" } else { "both" };
        return Err(misused(call, format!("Can only specify one of {argument} or --all. Provided {given}.")));
    }
    if let Some(replica) = call.value("replica_id") {
        return one(call, named, replica).await;
    }
    let sky = clusters::connect().await?;
    let names: Vec<String> = match call.is_set("all") {
        true => sky.all_fleets(kind).await?.into_iter().map(|one| one.spec.name).collect(),
        false => named.to_vec(),
    };
    let what = match names.as_slice() {
        [] => {
            say(format!("No {}s to terminate.", noun(kind)));
            return Ok(0);
        }
        _ if call.is_set("all") => format!("all {}s", noun(kind)),
        names => format!("{}(s) {}", noun(kind), names.join(", ")),
    };
    let jobs = jobs_in(&sky, kind, &names).await?;
    let told = match jobs.len() {
        0 => String::new(),
        1 => " Its 1 job that has not ended will be cancelled.".to_owned(),
        many => format!(" {many} jobs that have not ended will be cancelled."),
    };
    confirm(call, &format!("Terminating {what}.{told} Proceed?"))?;
    for job in &jobs {
        jobs::end(&sky, job).await?;
    }
    match jobs.as_slice() {
        [] => {}
        [job] => say(format!("Job {} is being cancelled.", job.id())),
        many => say(format!("{} jobs are being cancelled.", many.len())),
    }
    let mut code = 0;
    for name in &names {
        if !sky.delete_fleet(kind, name).await? {
            let Trouble::Said(line) = missing(&sky, kind, name).await else { continue };
            eprintln!("{}", line.trim_start_matches("ValueError: "));
            code = NOT_FOUND;
            continue;
        }
        let word = capital(noun(kind));
        say(format!("{word} '{name}' and its {}s are being terminated.", member(kind)));
    }
    Ok(code)
}

/// The jobs of pools that have not ended, the newest first.
async fn jobs_in(sky: &Sky, kind: FleetKind, names: &[String]) -> Result<Vec<Job>, ClientError> {
    if kind == FleetKind::Service {
        return Ok(Vec::new());
    }
    let mut all = jobs::all(sky).await?;
    all.retain(|job| !job.has_ended() && names.iter().any(|name| job.is_in(name)));
    Ok(all)
}

/// Ends one replica. Another one comes in its place.
async fn one(call: &Call, named: &[String], replica: &str) -> Done {
    let [name] = named else {
        return Err(misused(call, "The --replica-id option can only be used with a single service name."));
    };
    let Ok(number) = replica.parse::<u32>() else {
        return Err(misused(call, format!("Invalid value for '--replica-id': {replica} is not a valid integer.")));
    };
    let sky = clusters::connect().await?;
    let fleet = super::found(&sky, FleetKind::Service, name).await?;
    let Some(replica) = fleet.status.replicas.iter().find(|one| one.number == number) else {
        return Err(value_error(format!("Replica {number} of service '{name}' does not exist.")).into());
    };
    if replica.state.has_ended() && !call.is_set("purge") {
        return Err(value_error(format!(
            "Replica {number} of service '{name}' is {} already.",
            replica.state.as_str()
        ))
        .into());
    }
    confirm(call, &format!("Terminating replica ID {number} in '{name}'. Proceed?"))?;
    let job = job_name(FleetKind::Service, name, number);
    let body = Patch::Merge(json!({"spec": {"cancel": true}}));
    match sky.managed_jobs().patch(&job, &PatchParams::default(), &body).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(Trouble::from(error).into()),
        Ok(_) => {}
    }
    say(format!("Replica {number} of service '{name}' is being terminated. The control plane makes another one."));
    Ok(0)
}
