//! `launch` and `exec`: a cluster where there is none, files, and a job.

use super::autostop::{autostop, held, holding, set_autostop};
use super::{Done, End, NOT_FOUND, confirm, missing, misused, refused, say, skipped};
use crate::sky::clusters::{Found, Sky};
use crate::sky::hand::AtHand;
use crate::sky::logs;
use crate::sky::ssh::Entries;
use crate::sky::submit::{self, Trouble, size, value_error};
use crate::sky::words::{as_typed, without_values};
use ::sky::commands::Call;
use ::sky::console::{Prepared, World, check_name, planned, prepared};
use api::sky::{Candidate, ClusterPhase, Power, keys};
use client::ClientError;
use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, PostParams};
use managed::jobs::Status;
use managed::launch::fit::{fits, taken};
use managed::launch::job::Setup;
use managed::launch::{self, By, unmet};
use serde_json::json;

pub(super) async fn launch(call: &Call, world: &World<'_>, mut at_hand: AtHand) -> Done {
    let Prepared { mut task, told, source } = prepared(call, world).map_err(End::Printed)?;
    say(told.trim_end());
    let shown = call.value("cluster").unwrap_or(world.cluster).to_owned();
    say(format!("Running on cluster: {shown}"));
    check_name(&shown).map_err(|message| End::Trouble(Trouble::Said(message)))?;
    refused::task(&task)?;
    check_secrets(&task)?;
    // of the task as it was written: it is checked further where a cluster is made
    let configuration = launch::configuration(&task, world.catalogue);
    let autostop = autostop(call, Some(&task))?;
    check_workdir(&task, world)?;
    let sky = Sky::connect().await?;
    let name = managed::names::object_name(&shown);
    let mut existing = sky.find(&shown).await?;
    if let Some(ending) = existing.as_ref().filter(|found| found.is_ending()) {
        say(format!("Cluster '{}' is being terminated; waiting for it to be gone.", ending.shown()));
        sky.until(sky.clusters(), &name, |object| {
            let ending = object.and_then(Found::of).is_some_and(|found| found.is_ending());
            (!ending).then_some(())
        })
        .await?;
        existing = sky.find(&shown).await?;
    }
    let is_new = existing.is_none();
    if is_new {
        at_hand.look(&sky).await?;
        at_hand.look_at_contexts(&task.resources.list).await;
        let list = &task.resources.list;
        let is_meant = |place: &str| match place.split('/').next() {
            Some("ssh") => list.iter().any(|one| one.infra.cloud.is_none_or(|cloud| cloud == placement::Cloud::Ssh)),
            cloud => cloud == Some("k8s"),
        };
        at_hand.unusable.iter().filter(|(place, _)| is_meant(place)).for_each(|(place, why)| {
            eprintln!("{place} is left out: {why}");
        });
        let around = World { nodes: &at_hand.nodes, ..*world };
        let planned = planned(&mut task, source.as_ref(), &around).map_err(End::Printed)?;
        say(planned.told.trim_end());
        let launch::Places { candidates, without_effect } =
            launch::places(&task, &planned, at_hand.kubernetes.as_ref())?;
        tell(without_effect);
        let place = place(candidates.first());
        confirm(call, &format!("Launching a new cluster '{shown}'. Proceed?"))?;
        let command = without_values(std::env::args());
        let mut object = launch::cluster(&shown, &task, candidates, &By { user: &submit::user(), command: &command });
        if call.is_set("retry_until_up") {
            object["spec"]["retryUntilUp"] = true.into();
        }
        if let Some(autostop) = autostop.as_ref().filter(|autostop| autostop.is_object()) {
            object["spec"]["autostop"] = held(autostop);
        }
        match sky.clusters().create(&PostParams::default(), &submit::dynamic(object)?).await {
            Ok(_) => say(format!("⚙︎ Launching on {place}.")),
            // somebody else launches it: theirs is as good
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error.into()),
        }
        existing = sky.find(&shown).await?;
    }
    let Some(found) = existing else { return Err(missing(&sky, &shown).await.into()) };
    let was_up = found.cluster.status.phase == ClusterPhase::Up && found.cluster.spec.power == Power::Running;
    let met = fits(&found.cluster, found.shown(), &task, Some(size(&sky, &found).await?))?;
    if !is_new {
        tell(unmet::check(&taken(&found.cluster).provider, met)?);
    }
    let mut spec = json!({});
    if found.cluster.spec.power == Power::Stopped {
        confirm(call, &format!("Restarting the stopped cluster '{shown}'. Proceed?"))?;
        spec["power"] = "Running".into();
    }
    if let Some(autostop) = &autostop {
        spec["autostop"] = held(autostop);
    }
    sky.patch(&name, json!({"spec": spec})).await?;
    mend(&sky, &found).await?;
    let generation = sky.find(&shown).await?.and_then(|found| found.cluster.metadata.generation).unwrap_or(0);
    let found = holding(&sky, &name, autostop.as_ref(), submit::up(&sky, &shown, generation)).await?;
    say(format!("✓ Cluster launched: {shown}."));
    Entries::here().write(&sky, &found).await?;
    holding(&sky, &name, autostop.as_ref(), submit::send(&sky, &found, &task)).await?;
    let is_set_up = call.is_set("fast") && was_up && {
        let since = found.cluster.status.launched_at.parse().unwrap_or(Timestamp::MAX);
        managed::jobs::is_set_up(&sky.jobs(found.name()).await?, &configuration, since)
    };
    let setup = match call.is_set("no_setup") || is_set_up {
        true => Setup::LeftOut,
        false => Setup::As(configuration),
    };
    if task.run.is_none() && (task.setup.is_none() || matches!(setup, Setup::LeftOut)) {
        if let Some(autostop) = autostop {
            set_autostop(&sky, &name, autostop).await?;
        }
        say("Run commands not specified or empty.");
        useful(&sky, &found, None).await;
        return Ok(0);
    }
    let id = submit::submit(&sky, &found, &task, setup, Timestamp::now()).await?;
    if let Some(autostop) = autostop {
        set_autostop(&sky, &name, autostop).await?;
    }
    submitted(&sky, call, &found, id).await
}

fn tell(lines: Vec<String>) {
    lines.iter().for_each(|line| eprintln!("{line}"));
}

/// `Local`, `SSH pool`: where a cluster is launched first.
fn place(candidate: Option<&Candidate>) -> String {
    let Some(candidate) = candidate else { return "-".to_owned() };
    let cloud = placement::Cloud::from_name(&candidate.provider);
    let cloud = cloud.map_or(candidate.provider.as_str(), |cloud| cloud.display());
    [cloud, &candidate.region].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A secret without a value names one that a team's server keeps. There is none here, and the variable would be empty.
fn check_secrets(task: &::sky::Task) -> Result<(), End> {
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

fn check_workdir(task: &::sky::Task, world: &World<'_>) -> Result<(), End> {
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

/// Lets machines that are lost be made anew.
pub(super) async fn mend(sky: &Sky, found: &Found) -> Result<(), ClientError> {
    let wanted = ListParams::default().labels(&format!("{}={}", keys::CLUSTER, found.name()));
    for machine in sky.machines().list(&wanted).await? {
        if machine.data["status"]["phase"] == "Lost" {
            sky.machines()
                .delete(machine.metadata.name.as_deref().unwrap_or_default(), &DeleteParams::default())
                .await?;
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
        followed = logs::follow(sky, found, id, None, None) => followed?,
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
        let said = logs::codes(sky, found, id).await.and_then(|codes| codes.sentence(id));
        said.iter().for_each(|text| eprintln!("{text}"));
    }
}

/// How to get a shell on the head.
async fn shell(sky: &Sky, found: &Found) -> Option<String> {
    let shown = found.shown();
    if Entries::here().has(shown) {
        return Some(format!("ssh {shown}"));
    }
    let head = found.cluster.status.nodes.first()?;
    match found.cluster.at()?.provider.as_str() {
        // the machine is a folder of this computer
        "local" => Some(format!("cd '{}' && HOME=$PWD bash -l", head.home)),
        "kubernetes" => {
            let machine = sky.machines().get_opt(&head.machine).await.ok()??;
            let (place, pod) = machine.data["status"]["id"].as_str()?.rsplit_once('/')?;
            let (context, namespace) = place.rsplit_once('/')?;
            let home = &head.home;
            Some(format!(
                "kubectl --context {context} -n {namespace} exec -it {pod} -- env HOME={home} sh -c 'cd; exec bash -l'"
            ))
        }
        _ => None,
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

pub(super) async fn exec(call: &Call, world: &World<'_>) -> Done {
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
    let sky = Sky::connect().await?;
    let Some(found) = sky.find(&shown).await?.filter(|found| !found.is_ending()) else {
        return Err(missing(&sky, &shown).await.into());
    };
    match found.cluster.status.phase {
        ClusterPhase::Up => {}
        ClusterPhase::Autostopping => {
            return Err(Trouble::Said(format!(
                "sky.exceptions.ClusterNotUpError: Cannot execute on cluster '{shown}': cluster is autostopping. Please wait for autostop to complete, then use `sky start {shown}` to restart."
            ))
            .into());
        }
        ClusterPhase::Init | ClusterPhase::Stopped => return Err(skipped(&found, "executing tasks").into()),
    }
    let met = fits(&found.cluster, found.shown(), &task, None)?;
    tell(unmet::check(&taken(&found.cluster).provider, met)?);
    submit::send(&sky, &found, &task).await?;
    if task.run.is_none() {
        say("Run commands not specified or empty.");
        return Ok(0);
    }
    let id = submit::submit(&sky, &found, &task, Setup::LeftOut, Timestamp::now()).await?;
    submitted(&sky, call, &found, id).await
}
