//! `launch` and `exec`: a cluster where there is none, files, and a job.

use super::autostop::autostop;
use super::{Around, Done, End, NOT_FOUND, confirm, missing, misused, refused, say};
use crate::sky::clusters::{self, Found, SHOW, Sky};
use crate::sky::submit::{self, Launched, Trouble, size, value_error};
use crate::sky::words::as_typed;
use ::clusters::output;
use ::sky::commands::Call;
use ::sky::console::{Circumstances, Prepared, Source, check_name, planned, prepared};
use ::sky::value::Value as Field;
use api::sky::{Candidate, LaunchPhase, LaunchSpec, LaunchStatus, Place, Power, WhenSetUp};
use managed::jobs::Status;
use managed::launch::fit::{fits, taken};
use managed::launch::{self, Refused, step, unmet};
use offers::AtHand;
use serde_json::{Value, json};

pub(super) async fn launch(call: &Call, world: &Circumstances<'_>, around: Around) -> Done {
    let Prepared { mut task, told, source } = prepared(call, world).map_err(End::Printed)?;
    say(told.trim_end());
    let shown = call.value("cluster").unwrap_or(world.cluster).to_owned();
    say(format!("Running on cluster: {shown}"));
    check_name(&shown).map_err(|error| End::Trouble(Trouble::Said(error.to_string())))?;
    if task.service.is_some() {
        eprintln!("{}", as_typed("The section `service` has no effect here; `sky serve up` launches a service."));
    }
    refused::task(&task)?;
    check_secrets(&task)?;
    // of the task as it was written: it is checked further where a cluster is made
    let configuration = launch::configuration(&task, world.catalogue);
    let autostop = autostop(call, Some(&task))?;
    check_workdir(&task, world)?;
    let settings = around.given.map(|given| Field::Map(given).to_json()).unwrap_or_default();
    let catalog = around.catalog.unwrap_or_default();
    let sky = clusters::connect().await?;
    let mut place = String::new();
    match sky.find(&shown).await?.filter(|found| !found.is_ending()) {
        None => {
            let candidates = places(&sky, &mut task, source.as_ref(), world, (&settings, &catalog)).await?;
            place = self::place(candidates.first());
            confirm(call, &format!("Launching a new cluster '{shown}'. Proceed?"))?;
        }
        Some(found) => {
            let met = fits(&found.cluster, found.shown(), &task, Some(size(&sky, &found).await?))?;
            tell(unmet::check(&taken(&found.cluster).provider, met)?);
            if found.cluster.spec.power == Power::Stopped {
                confirm(call, &format!("Restarting the stopped cluster '{shown}'. Proceed?"))?;
            }
        }
    }
    let setup = match (call.is_set("no_setup"), call.is_set("fast")) {
        (true, _) => WhenSetUp::Never,
        (false, true) => WhenSetUp::UnlessDone,
        (false, false) => WhenSetUp::Always,
    };
    let spec = LaunchSpec {
        setup,
        configuration,
        no_autostop: autostop.as_ref().is_some_and(Value::is_null),
        autostop: autostop.and_then(|set| serde_json::from_value(set).ok()),
        retry_until_up: call.is_set("retry_until_up"),
        settings,
        catalog,
        ..LaunchSpec::default()
    };
    let name = submit::create(&sky, &shown, &task, spec, world.catalogue).await?;
    followed(&sky, call, &shown, &name, &place).await
}

/// Where the machines of a task may be, as the control plane sees it; prints what was considered.
pub(super) async fn places(
    sky: &Sky,
    task: &mut ::sky::Task,
    source: Option<&Source>,
    world: &Circumstances<'_>,
    around: (&Value, &str),
) -> Result<Vec<Candidate>, End> {
    let at_hand = look(sky, task, world, around).await?;
    find(task, source, world, &at_hand)?.shown()
}

/// The machines at hand for a task; prints which places are left out.
pub(super) async fn look(
    sky: &Sky,
    task: &::sky::Task,
    world: &Circumstances<'_>,
    (settings, catalog): (&Value, &str),
) -> Result<AtHand, End> {
    let asked = json!({"task": launch::bare(task, world.catalogue), "settings": settings, "catalog": catalog});
    let told = client::offers::look(&sky.client, &sky.namespace, &asked).await?;
    let at_hand = AtHand::from_json(&told).ok_or_else(|| {
        Trouble::Said(
            "the control plane is of another version; restart it: trainyard down, then trainyard up --detach"
                .to_owned(),
        )
    })?;
    let list = &task.resources.list;
    let is_meant = |place: &str| match place.split('/').next() {
        Some("ssh") => list.iter().any(|one| one.infra.cloud.is_none_or(|cloud| cloud == placement::Cloud::Ssh)),
        cloud => cloud == Some("k8s"),
    };
    at_hand.unusable.iter().filter(|(place, _)| is_meant(place)).for_each(|(place, why)| {
        eprintln!("{place} is left out: {why}");
    });
    Ok(at_hand)
}

/// Where the machines of a task may be, and what is printed about it.
pub(super) struct Places {
    told: String,
    found: Result<launch::Places, Refused>,
}

impl Places {
    /// Prints what was considered.
    ///
    /// # Errors
    /// No machines are made at any of the places.
    pub fn shown(self) -> Result<Vec<Candidate>, End> {
        say(self.told.trim_end());
        let launch::Places { candidates, without_effect } = self.found?;
        tell(without_effect);
        Ok(candidates)
    }

    /// The places in the order in which they are tried. None where no machines are made at any of them.
    pub fn candidates(&self) -> &[Candidate] {
        self.found.as_ref().map_or(&[], |found| &found.candidates)
    }

    /// Places that nothing is printed about.
    #[cfg(test)]
    pub fn of(candidates: Vec<Candidate>) -> Self {
        let found = Ok(launch::Places { candidates, without_effect: Vec::new() });
        Self { told: String::new(), found }
    }
}

/// Chooses among the machines at hand.
pub(super) fn find(
    task: &mut ::sky::Task,
    source: Option<&Source>,
    world: &Circumstances<'_>,
    at_hand: &AtHand,
) -> Result<Places, End> {
    let around = Circumstances {
        nodes: &at_hand.nodes,
        pools: &at_hand.pools,
        contexts: &at_hand.contexts.all,
        enabled: &at_hand.enabled,
        ..*world
    };
    let planned = planned(task, source, &around).map_err(End::Printed)?;
    let found = launch::places(task, &planned, at_hand.kubernetes.as_ref());
    Ok(Places { told: planned.told, found })
}

/// Follows a launch, then its job's output.
async fn followed(sky: &Sky, call: &Call, shown: &str, name: &str, place: &str) -> Done {
    let (mut is_told, mut is_up) = (false, call.path == "sky exec");
    let launched = submit::follow(sky, shown, name, async |status: &LaunchStatus| {
        if status.is_new && !is_told {
            is_told = true;
            say(format!("⚙︎ Launching on {place}."));
        }
        let has_machines =
            matches!(status.phase, LaunchPhase::Sending | LaunchPhase::Submitting | LaunchPhase::Succeeded);
        if has_machines && !is_up {
            is_up = true;
            say(format!("✓ Cluster launched: {shown}."));
            if let Some(found) = sky.find(shown).await? {
                clusters::tell_ssh(sky, &found).await?;
            }
        }
        Ok(())
    });
    let id = match launched.await? {
        Launched::Done(id) => id,
        Launched::Interrupted => {
            eprintln!(
                "\n{}",
                as_typed(&format!(
                    "The launch on cluster '{shown}' goes on. To see how far it is: sky status {shown}; to end it: sky down {shown}"
                ))
            );
            return Ok(crate::exit::INTERRUPTED);
        }
    };
    let Some(found) = sky.find(shown).await? else { return Err(missing(sky, shown).await.into()) };
    if id == 0 {
        say("Run commands not specified or empty.");
        if call.path != "sky exec" {
            useful(sky, &found, None).await;
        }
        return Ok(0);
    }
    submitted(sky, call, &found, id).await
}

fn tell(lines: Vec<String>) {
    lines.iter().for_each(|line| eprintln!("{line}"));
}

/// `Local`, `SSH pool`: where a cluster is launched first.
pub(super) fn place(candidate: Option<&Candidate>) -> String {
    let Some(candidate) = candidate else { return "-".to_owned() };
    let cloud = placement::Cloud::from_name(&candidate.provider);
    let cloud = cloud.map_or(candidate.provider.as_str(), |cloud| cloud.display());
    [cloud, &candidate.region].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A secret without a value names one that a team's server keeps. There is none here, and the variable would be empty.
pub(super) fn check_secrets(task: &::sky::Task) -> Result<(), End> {
    let secrets = &task.secrets;
    let empty = secrets.values.iter().find(|(_, value)| value.is_null()).map(|(name, _)| name.text());
    match empty.or_else(|| secrets.references.first().map(|reference| reference.name.clone())) {
        None => Ok(()),
        Some(name) => Err(value_error(format!(
            "Secret variable '{name}' is None. Please set a value for it in task YAML or with --secret flag. To set it to be empty, use an empty string ({name}: \"\" in task YAML or --secret {name}=\"\" in CLI). Secrets that a server keeps by name come later."
        ))
        .into()),
    }
}

pub(super) fn check_workdir(task: &::sky::Task, world: &Circumstances<'_>) -> Result<(), End> {
    use ::sky::check::PathKind;
    if let Some(path) = task.workdir.as_ref().and_then(|path| path.as_str())
        && (world.path)(path) != PathKind::Folder
    {
        let message = format!("Workdir must be a valid directory (or a symlink to a directory). {path} not found.");
        return Err(value_error(message).into());
    }
    for (_, from) in &task.mounts.files {
        if !::sky::mounts::is_cloud_url(from) && (world.path)(from) == PathKind::Missing {
            let message = format!(
                "File mount source '{from}' does not exist locally. To fix: check if it exists, and correct the path."
            );
            return Err(value_error(message).into());
        }
    }
    Ok(())
}

/// What is said of a job that was submitted; its output, where it is waited for.
async fn submitted(sky: &Sky, call: &Call, found: &Found, id: u32) -> Done {
    let shown = found.shown();
    say(format!("✓ Job submitted, ID: {id}"));
    if call.is_set("detach_run") || call.is_set("async_call") {
        useful(sky, found, Some(id)).await;
        return Ok(0);
    }
    let followed = tokio::select! {
        followed = output::follow(sky, found, id, None, None, SHOW) => followed?,
        _ = tokio::signal::ctrl_c() => {
            goes_on(shown, id);
            return Ok(crate::exit::INTERRUPTED);
        }
    };
    let code = match followed {
        Some(status) => {
            finished(sky, found, id, status).await;
            status.exit_code()
        }
        None => {
            eprintln!("Job {id} has gone with cluster '{shown}'.");
            NOT_FOUND
        }
    };
    useful(sky, found, Some(id)).await;
    Ok(code)
}

/// What is said of a job whose output is no longer followed: Ctrl-C ends the command, not the job.
pub(super) fn goes_on(shown: &str, id: u32) {
    eprintln!(
        "\n{}",
        as_typed(&format!(
            "Job {id} goes on, on cluster '{shown}'. To see its output: sky logs {shown} {id}; to end it: sky cancel {shown} {id}"
        ))
    );
}

pub(super) async fn finished(sky: &Sky, found: &Found, id: u32, status: Status) {
    let shown = found.shown();
    let mark = if status == Status::Succeeded { "✓" } else { "✗" };
    say(format!("{mark} Job finished (status: {}).", status.as_str()));
    if status == Status::FailedSetup {
        eprintln!("{}", as_typed(&format!("Job {id}'s setup failed: see `sky logs {shown} {id}`.")));
    }
    if matches!(status, Status::Failed | Status::FailedSetup) {
        let said = output::codes(sky, found, id).await.and_then(|codes| codes.sentence(id));
        said.iter().for_each(|text| eprintln!("{text}"));
    }
}

/// How to get a shell on the head.
async fn shell(sky: &Sky, found: &Found) -> Option<String> {
    let shown = found.shown();
    if clusters::entries().has(shown) {
        return Some(format!("ssh {shown}"));
    }
    let head = found.cluster.status.nodes.first()?;
    match found.cluster.at()?.place() {
        // the machine is a folder of this computer
        Place::Local => Some(format!("cd '{}' && HOME=$PWD bash -l", head.home)),
        Place::Kubernetes { .. } => {
            let machine = sky.machines().get_opt(&head.machine).await.ok()??;
            let (place, pod) = machine.data["status"]["id"].as_str()?.rsplit_once('/')?;
            let (context, namespace) = place.rsplit_once('/')?;
            let home = &head.home;
            Some(format!(
                "kubectl --context {context} -n {namespace} exec -it {pod} -- env HOME={home} sh -c 'cd; exec bash -l'"
            ))
        }
        Place::Ssh { .. } | Place::Other(_) => None,
    }
}

async fn useful(sky: &Sky, found: &Found, id: Option<u32>) {
    let shown = found.shown();
    if let Some(id) = id {
        say(format!(
            "\n📋 Useful Commands\nJob ID: {id}\n├── To cancel the job:\t\tsky cancel {shown} {id}\n├── To stream job logs:\t\tsky logs {shown} {id}\n└── To view job queue:\t\tsky queue {shown}"
        ));
    }
    let enter =
        shell(sky, found).await.map(|shell| format!("\n├── To log into the head VM:\t{shell}")).unwrap_or_default();
    say(format!(
        "\nCluster name: {shown}{enter}\n├── To submit a job:\t\tsky exec {shown} yaml_file\n├── To stop the cluster:\tsky stop {shown}\n└── To teardown the cluster:\tsky down {shown}"
    ));
}

pub(super) async fn exec(call: &Call, world: &Circumstances<'_>) -> Done {
    // where -c names the cluster, what stands where its name would is the first word of the command
    let call = &match (call.value("cluster_option"), call.value("cluster")) {
        (Some(_), Some(word)) => call.clone().preceded("entrypoint", word),
        _ => call.clone(),
    };
    let Some(shown) = call.value("cluster_option").or(call.value("cluster")).map(str::to_owned) else {
        return Err(misused(call, "Missing argument '[CLUSTER]'."));
    };
    if call.values("entrypoint").is_empty() {
        return Err(misused(call, "Missing argument '[ENTRYPOINT]...'"));
    }
    let Prepared { task, told, .. } = prepared(call, world).map_err(End::Printed)?;
    say(told.trim_end());
    say(format!("Submitting job to cluster: {shown}"));
    refused::mounts(&task)?;
    check_secrets(&task)?;
    check_workdir(&task, world)?;
    let sky = clusters::connect().await?;
    let Some(found) = sky.find(&shown).await?.filter(|found| !found.is_ending()) else {
        return Err(missing(&sky, &shown).await.into());
    };
    if let Some(why) = step::not_up(&shown, found.cluster.status.phase) {
        return Err(Trouble::from(why).into());
    }
    let met = fits(&found.cluster, found.shown(), &task, None)?;
    tell(unmet::check(&taken(&found.cluster).provider, met)?);
    let spec = LaunchSpec { on_existing: true, ..LaunchSpec::default() };
    let name = submit::create(&sky, &shown, &task, spec, world.catalogue).await?;
    followed(&sky, call, &shown, &name, "").await
}
