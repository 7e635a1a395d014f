//! `serve up`, `serve update` and `jobs pool apply`: a version of a service or a pool.

use super::super::launch::{check_secrets, check_workdir, place, places};
use super::super::{Around, Done, End, confirm, misused, refused, say};
use super::{capital, group, kind, member, noun};
use crate::sky::clusters::{self, Sky};
use crate::sky::submit::{self, Trouble, said, value_error};
use crate::sky::words::without_values;
use ::clusters::{FleetError, FleetSecrets};
use ::sky::commands::Call;
use ::sky::console::{Circumstances, Prepared, check_name, prepared};
use ::sky::task::Task;
use ::sky::value::{Map, Value as Field};
use api::sky::{Candidate, FleetSpec, JobFile, UpdateMode};
use jiff::Timestamp;
use managed::fleet::{FleetKind, submitted};
use managed::job::submitted::priced;
use std::net::{IpAddr, SocketAddr};

/// `serve up`, and `jobs pool apply`, which updates a pool that exists.
pub(in super::super) async fn apply(call: &Call, world: &Circumstances<'_>, around: Around) -> Done {
    let kind = kind(call);
    if kind == FleetKind::Pool {
        let is_file = !call.values("pool_yaml").is_empty();
        match (is_file, call.value("workers")) {
            (true, Some(_)) => {
                return Err(misused(call, "Cannot specify both --workers and POOL_YAML. Please use one of them."));
            }
            (false, workers) => return resize(call, workers).await,
            (true, None) => {}
        }
    }
    let mut version = Version::read(call, world)?;
    let listen = listen(call)?;
    let given = call.value("service_name").or(call.value("pool")).map(str::to_owned);
    let name = given.or(version.task.name.clone().filter(|name| name != "sky-cmd"));
    let name = name.unwrap_or_else(|| format!("{}-{}", noun(kind), world.cluster));
    let word = capital(noun(kind));
    check_name(&name).map_err(|_| {
        value_error(format!(
            "{word} name '{name}' is invalid: it begins with a letter, and has letters, digits, '-', '_' and '.' only."
        ))
    })?;
    let sky = clusters::connect().await?;
    let exists = match sky.fleet(kind, &name).await? {
        Some(fleet) if fleet.is_ending() => return Err(ending(kind, &name).into()),
        Some(_) if kind == FleetKind::Service => return Err(running(&name).into()),
        found => found.is_some(),
    };
    version.show_places(&sky, kind, world, &around).await?;
    let doing = if exists { "Updating" } else { "Launching a new" };
    confirm(call, &format!("{doing} {} '{name}'. Proceed?", noun(kind)))?;
    let file = version.send(&sky, &name, world, around).await?;
    let (spec, secrets) = (FleetSpec { listen, ..spec(&name) }, version.secrets()?);
    let done = match exists {
        true => sky.update_fleet(kind, &file, spec, mode(call), secrets).await.map(Some),
        false => sky.create_fleet(kind, &file, spec, secrets).await.map(|()| None),
    };
    let updated = done.map_err(|error| trouble(kind, &name, error))?;
    tell(kind, &name, updated);
    Ok(0)
}

/// `jobs pool apply -p NAME --workers N`: the latest version with another number of workers.
async fn resize(call: &Call, workers: Option<&str>) -> Done {
    let Some(workers) = workers else {
        return Err(misused(call, "Name the file of a pool, or both --pool and --workers."));
    };
    let Some(name) = call.value("pool") else {
        return Err(misused(call, "A pool name must be provided to update the number of workers."));
    };
    let Ok(workers) = workers.parse::<u32>() else {
        return Err(misused(call, format!("Invalid value for '--workers': {workers} is below 0.")));
    };
    let sky = clusters::connect().await?;
    let fleet = super::found(&sky, FleetKind::Pool, name).await?;
    if fleet.is_ending() {
        return Err(ending(FleetKind::Pool, name).into());
    }
    let submission = sky.config_maps().get_opt(&fleet.spec.submission).await?;
    let text = submission.as_ref().and_then(|map| map.data["data"]["job"].as_str());
    let mut file: JobFile = text.and_then(|text| serde_json::from_str(text).ok()).ok_or_else(|| {
        value_error(format!("The control plane no longer has the file of pool '{name}'. Apply the pool again: sky jobs pool apply -p {name} FILE"))
    })?;
    for task in &mut file.tasks {
        task.service["pool"] = serde_json::json!({"workers": workers});
    }
    let plural = if workers == 1 { "" } else { "s" };
    confirm(call, &format!("Updating pool '{name}' to {workers} worker{plural}. Proceed?"))?;
    let updated = sky.update_fleet(FleetKind::Pool, &file, spec(name), mode(call), FleetSecrets::default()).await;
    let updated = updated.map_err(|error| trouble(FleetKind::Pool, name, error))?;
    tell(FleetKind::Pool, name, Some(updated));
    Ok(0)
}

/// `serve update`.
pub(in super::super) async fn update(call: &Call, world: &Circumstances<'_>, around: Around) -> Done {
    let kind = kind(call);
    let name = call.value("service_name").unwrap_or_default().to_owned();
    let mut version = Version::read(call, world)?;
    let spec = FleetSpec { listen: listen(call)?, ..spec(&name) };
    let sky = clusters::connect().await?;
    let fleet = super::found(&sky, kind, &name).await?;
    if fleet.is_ending() {
        return Err(ending(kind, &name).into());
    }
    version.show_places(&sky, kind, world, &around).await?;
    confirm(call, &format!("Updating {} '{name}'. Proceed?", noun(kind)))?;
    let file = version.send(&sky, &name, world, around).await?;
    let updated = sky.update_fleet(kind, &file, spec, mode(call), version.secrets()?).await;
    let updated = updated.map_err(|error| trouble(kind, &name, error))?;
    tell(kind, &name, Some(updated));
    Ok(0)
}

/// The value of `--listen`. Says who can reach an address that is not of this computer alone.
fn listen(call: &Call) -> Result<String, End> {
    let Some(given) = call.value("listen") else { return Ok(String::new()) };
    let address = given.parse::<SocketAddr>().map(|address| address.ip()).or_else(|_| given.parse::<IpAddr>());
    let Ok(address) = address else {
        let wrong = "Invalid value for '--listen'";
        return Err(misused(call, format!("{wrong}: '{given}' is not an address, such as 0.0.0.0 or 0.0.0.0:8080.")));
    };
    if !address.is_loopback() {
        eprintln!("Everybody who can reach {given} can send requests to this service.");
    }
    Ok(given.to_owned())
}

fn spec(name: &str) -> FleetSpec {
    FleetSpec {
        name: name.to_owned(),
        user: submit::user(),
        command: without_values(std::env::args()),
        ..FleetSpec::default()
    }
}

fn mode(call: &Call) -> UpdateMode {
    match call.value("mode") {
        Some(mode) if mode.eq_ignore_ascii_case("blue_green") => UpdateMode::BlueGreen,
        _ => UpdateMode::Rolling,
    }
}

/// A task that is to be a version.
struct Version {
    task: Task,
    source: Option<::sky::console::Source>,
    /// Where its machines may be, as shown.
    places: Vec<Candidate>,
}

impl Version {
    fn read(call: &Call, world: &Circumstances<'_>) -> Result<Self, End> {
        let kind = kind(call);
        let Prepared { mut task, told, source } = prepared(call, world).map_err(End::Printed)?;
        say(told.trim_end());
        let section = task.service.clone().unwrap_or_default();
        let is_pool = section.contains("pool");
        match (kind, task.service.is_some(), is_pool) {
            (FleetKind::Service, true, false) | (FleetKind::Pool, true, true) => {}
            (FleetKind::Service, _, _) => {
                return Err(value_error(
                    "Service section not found in the YAML file. To fix, add a valid `service` field.",
                )
                .into());
            }
            (FleetKind::Pool, _, _) => {
                return Err(
                    value_error("Pool section not found in the YAML file. To fix, add a valid `pool` field.").into()
                );
            }
        }
        refused::task(&task)?;
        check_secrets(&task)?;
        check_workdir(&task, world)?;
        check_recovery(&task, kind)?;
        match kind {
            FleetKind::Service => drop(submitted::port(&task)?),
            FleetKind::Pool => {
                if task.run.take().is_some() {
                    eprintln!(
                        "`run` of a pool has no effect: workers run `setup`, and then the jobs that are submitted to the pool."
                    );
                }
            }
        }
        Ok(Self { task, source, places: Vec::new() })
    }

    /// Shows where replicas may be.
    async fn show_places(
        &mut self,
        sky: &Sky,
        kind: FleetKind,
        world: &Circumstances<'_>,
        around: &Around,
    ) -> Result<(), End> {
        let settings = around.given.clone().map(|given| Field::Map(given).to_json()).unwrap_or_default();
        let catalog = around.catalog.clone().unwrap_or_default();
        say(format!("Each {} will use the following resources (estimated):", member(kind)));
        let candidates =
            places(sky, &mut self.task.clone(), self.source.as_ref(), world, (&settings, &catalog)).await?;
        say(format!("First choice: {}", place(candidates.first())));
        let is_local = candidates.first().is_some_and(|one| one.place() == api::sky::Place::Local);
        if is_local && kind == FleetKind::Service {
            eprintln!(
                "On `infra: local` all replicas share this computer's ports. To run more than one, let the server listen on the address $TRAINYARD_NODE_IP instead of 0.0.0.0."
            );
        }
        self.places = candidates;
        Ok(())
    }

    /// The task with its files and variables at the control plane, as they are now.
    async fn send(&self, sky: &Sky, name: &str, world: &Circumstances<'_>, around: Around) -> Result<JobFile, Trouble> {
        let files = submit::send(sky, &self.task).await?;
        let secret = submit::keep_variables(sky, name, &self.task).await?;
        Ok(JobFile {
            submitted: Timestamp::now().strftime("%Y-%m-%d-%H-%M-%S-%6f").to_string(),
            tasks: vec![priced(submitted::task(&self.task, world.catalogue, files, secret), &self.places)],
            settings: around.given.map(|given| Field::Map(given).to_json()).unwrap_or_default(),
            catalog: around.catalog.unwrap_or_default(),
            ..JobFile::default()
        })
    }

    fn secrets(&self) -> Result<FleetSecrets, Trouble> {
        let tls = self.task.service.as_ref().and_then(|section| section.given("tls")).and_then(Field::as_map);
        Ok(FleetSecrets { headers: submitted::headers(&self.task), tls: tls.map(certificate).transpose()? })
    }
}

/// Reads certificate and key of the load balancer.
fn certificate(tls: &Map) -> Result<(String, String), Trouble> {
    let read = |field: &str| {
        let path = tls.get(field).map(Field::text).unwrap_or_default();
        let home = std::env::var("HOME").unwrap_or_default();
        let full = path.strip_prefix("~/").map_or_else(|| path.clone(), |rest| format!("{home}/{rest}"));
        std::fs::read_to_string(full)
            .map_err(|error| value_error(format!("service.tls.{field}: cannot read {path}: {error}")))
    };
    Ok((read("certfile")?, read("keyfile")?))
}

/// SkyPilot refuses this of services: a replica that is lost is replaced anyway.
fn check_recovery(task: &Task, kind: FleetKind) -> Result<(), Trouble> {
    let is_set = task.resources.list.iter().any(|one| one.job_recovery.is_some());
    if is_set && kind == FleetKind::Service {
        return Err(value_error(
            "job_recovery is disabled for SkyServe. SkyServe will replenish preempted spot with on-demand instances.",
        ));
    }
    Ok(())
}

fn running(name: &str) -> Trouble {
    said(
        "RuntimeError",
        format!(
            "Service '{name}' exists. To give it a newer version: sky serve update {name} FILE; for another service, choose another name with -n."
        ),
    )
}

fn ending(kind: FleetKind, name: &str) -> Trouble {
    let word = capital(noun(kind));
    said(
        "RuntimeError",
        format!("{word} '{name}' is being terminated; `{} status {name}` shows when it is gone.", group(kind)),
    )
}

fn trouble(kind: FleetKind, name: &str, error: FleetError) -> End {
    match error {
        FleetError::Submit(error) => Trouble::from(error).into(),
        FleetError::Exists => running(name).into(),
        FleetError::Missing => value_error(format!("{} '{name}' does not exist.", capital(noun(kind)))).into(),
        FleetError::Ending => ending(kind, name).into(),
    }
}

/// What was done, and what can be done next.
fn tell(kind: FleetKind, name: &str, updated: Option<u32>) {
    let word = capital(noun(kind));
    match updated {
        Some(version) => say(format!("✓ {word} '{name}' is being updated to version {version}.")),
        None => say(format!("✓ {word} '{name}' is being launched.")),
    }
    let group = group(kind);
    let mut lines = vec![format!("To see its state:\t\t{group} status {name}")];
    match kind {
        FleetKind::Service => {
            lines.push(format!("To see its endpoint:\t{group} status {name} --endpoint"));
            lines.push(format!("To see a replica's logs:\t{group} logs {name} REPLICA_ID"));
        }
        FleetKind::Pool => {
            lines.push(format!("To submit jobs to it:\tsky jobs launch -p {name} FILE"));
            lines.push(format!("To see a worker's logs:\t{group} logs {name} WORKER_ID"));
        }
    }
    lines.push(format!("To terminate it:\t\t{group} down {name}"));
    let last = lines.len().saturating_sub(1);
    let lines: Vec<String> = lines
        .into_iter()
        .enumerate()
        .map(|(at, line)| format!("{} {line}", if at == last { "└──" } else { "├──" }))
        .collect();
    say(format!("\n📋 Useful Commands\n{}", lines.join("\n")));
}
