//! `stop`, `start`, `down` and `autostop`: of one cluster or several.

use super::autostop::{autostop, set_autostop, wait_for};
use super::show::{named, unnamed};
use super::{Done, Verb, confirm, misused, say};
use crate::sky::clusters::{self, Found, Sky};
use crate::sky::submit::{self, Launched, Trouble, value_error};
use crate::sky::words::as_typed;
use ::sky::commands::Call;
use api::foreign::visible;
use api::object;
use api::sky::{Cluster, ClusterPhase, HookRun, LaunchSpec, LaunchStatus, Power, WhenSetUp, keys};
use kube::api::{DeleteParams, DynamicObject, ListParams};
use managed::cluster::failed_hooks;
use managed::launch::empty_task;
use placement::Catalogue;
use serde_json::{Value, json};

pub(super) async fn several(verb: Verb, call: &Call) -> Done {
    let names = call.values("clusters").to_vec();
    let everything = call.is_set("all") || call.is_set("all_users");
    let word = call.path.trim_start_matches("sky ").to_owned();
    if verb == Verb::Autostop && call.is_set("cancel") && call.value("idle_minutes").is_some() {
        let minutes = call.value("idle_minutes").unwrap_or_default();
        return Err(misused(
            call,
            format!(
                "Only one of --idle-minutes and --cancel should be specified. cancel: True, idle_minutes: {minutes}"
            ),
        ));
    }
    if call.value("graceful_timeout").is_some() && !call.is_set("graceful") {
        return Err(misused(call, "--graceful-timeout needs --graceful."));
    }
    if call.is_set("graceful") {
        eprintln!(
            "No mount has a cache to be flushed: jobs end first and machines after them, as they do without --graceful."
        );
    }
    if verb == Verb::Start && call.is_set("down") && call.value("idle_minutes_to_autostop").is_none() {
        return Err(misused(
            call,
            "--down needs --idle-minutes-to-autostop: a cluster that is started has no job yet.",
        ));
    }
    if names.is_empty() && !everything {
        let message = match verb {
            Verb::Start => {
                "`sky start` requires either a cluster name or glob (see `sky status`), or the -a/--all flag."
                    .to_owned()
            }
            _ => format!(
                "`sky {word}` requires either a cluster name or glob (see `sky status`), or the -a/--all flag for all your clusters, or the -u/--all-users flag for all clusters in your team."
            ),
        };
        return Err(misused(call, message));
    }
    let sky = clusters::connect().await?;
    let mut ended = Vec::new();
    if verb == Verb::Down {
        let is_meant = |launch: &LaunchSpec| match everything {
            true => call.is_set("all_users") || launch.user == submit::user(),
            false => names.contains(&launch.cluster),
        };
        ended = end_unmade(&sky, &sky.all().await?, is_meant).await?;
    }
    let all = sky.all().await?;
    // a launch may have made its cluster right before it was taken back
    ended.retain(|name| !all.iter().any(|found| found.shown() == name));
    ended.iter().for_each(|name| say(format!("Terminating cluster {name}...done.")));
    let (found, mut unknown) = if everything { (unnamed(all, call), Vec::new()) } else { named(all, &names) };
    unknown.retain(|name| !ended.contains(name));
    if found.is_empty() && unknown.is_empty() && !ended.is_empty() {
        return Ok(0);
    }
    if !unknown.is_empty() {
        say(format!("Cluster(s) not found: {}.", unknown.join(", ")));
    }
    let found: Vec<Found> = found.into_iter().filter(|one| verb == Verb::Down || !one.is_ending()).collect();
    if found.is_empty() {
        say("Cluster(s) not found (tip: see `sky status`).");
        return Ok(0);
    }
    let doing = match verb {
        Verb::Stop => "Stopping",
        Verb::Start => "Starting",
        Verb::Down => "Terminating",
        _ if call.is_set("cancel") => "Cancelling autostop on",
        _ => "Scheduling autostop on",
    };
    let list: Vec<&str> = found.iter().map(Found::shown).collect();
    let plural = if found.len() == 1 { "" } else { "s" };
    confirm(call, &format!("{doing} {} cluster{plural}: {}. Proceed?", found.len(), list.join(", ")))?;
    let mut code = 0;
    for one in &found {
        match change(verb, call, &sky, one).await {
            Ok(0) => continue,
            Ok(code) => return Ok(code),
            Err(Trouble::Said(message)) => eprintln!("{word} of cluster {} failed: {message}", one.shown()),
            Err(Trouble::Client(error)) => eprintln!("{word} of cluster {} failed: {}", one.shown(), error.render()),
        }
        code = 1;
    }
    Ok(code)
}

/// Returns the exit code.
async fn change(verb: Verb, call: &Call, sky: &Sky, found: &Found) -> Result<u8, Trouble> {
    let (shown, name) = (found.shown().to_owned(), found.name().to_owned());
    let detached = call.is_set("async_call");
    let generation = |found: Option<Found>| found.and_then(|found| found.cluster.metadata.generation).unwrap_or(0);
    match verb {
        Verb::Down => {
            if call.is_set("purge") {
                sky.patch(&name, json!({"metadata": {"annotations": {keys::PURGE: "true"}}})).await?;
            }
            end_launches(sky, &name).await?;
            let uid = object::uid(&found.object).to_owned();
            match sky.clusters().delete(&name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => drop(other?),
            }
            if !detached {
                let mut hooks = HookNotes::new(&found.cluster);
                client::until(sky.clusters(), &name, |object| {
                    let same = object.filter(|object| object.metadata.uid.as_deref() == Some(&*uid));
                    if let Some(now) = same.and_then(Found::of) {
                        hooks.look(&now);
                    }
                    same.is_none().then_some(())
                })
                .await?;
            }
            clusters::entries().forget(&shown);
            say(format!("Terminating cluster {shown}...done."));
        }
        Verb::Stop => {
            sky.patch(&name, json!({"spec": {"power": "Stopped"}})).await?;
            if !detached {
                let generation = generation(sky.find(&shown).await?);
                let mut hooks = HookNotes::new(&found.cluster);
                let stopped = client::until(sky.clusters(), &name, |object| {
                    let Some(found) = object.and_then(Found::of).filter(|found| !found.is_ending()) else {
                        return Some(false);
                    };
                    hooks.look(&found);
                    let status = &found.cluster.status;
                    let is_stopped = status.phase == ClusterPhase::Stopped && status.observed_generation >= generation;
                    (is_stopped || found.cluster.spec.power == Power::Running).then_some(is_stopped)
                });
                if !stopped.await? {
                    return Err(value_error(format!("cluster {shown} was started or terminated meanwhile")));
                }
            }
            clusters::entries().forget(&shown);
            say(format!("Stopping cluster {shown}...done.\n  To restart the cluster, run: sky start {shown}"));
        }
        Verb::Start => {
            if found.cluster.status.phase == ClusterPhase::Up && !call.is_set("force") {
                say(format!("Cluster {shown} already has status UP."));
                return Ok(0);
            }
            if let Launched::Interrupted = start(call, sky, &shown).await? {
                let hint = format!(
                    "The start of cluster '{shown}' goes on. To see how far it is: sky status {shown}; to stop it: sky stop {shown}"
                );
                eprintln!("\n{}", as_typed(&hint));
                return Ok(crate::exit::INTERRUPTED);
            }
            say(format!("Cluster {shown} started."));
        }
        _ => {
            let minutes = call.value("idle_minutes").and_then(|minutes| minutes.parse::<i64>().ok()).unwrap_or(5);
            if call.is_set("cancel") || minutes < 0 {
                set_autostop(sky, &name, Value::Null).await?;
                say(format!("Cancelling autostop on cluster '{shown}'...done"));
                return Ok(0);
            }
            if found.cluster.status.phase == ClusterPhase::Stopped {
                return Err(value_error(format!("cluster {shown} is STOPPED: `sky start {shown}` starts it")));
            }
            let wait = wait_for(call.value("wait_for"));
            let down = call.is_set("down");
            set_autostop(sky, &name, json!({"idleMinutes": minutes, "down": down, "waitFor": wait})).await?;
            let ends = if down { "autodowned" } else { "autostopped" };
            say(format!(
                "Scheduling autostop on cluster '{shown}'...done\n  The cluster will be {ends} after {minutes} minutes of idleness.\n  To cancel the autostop, run: sky autostop {shown} --cancel"
            ));
        }
    }
    Ok(0)
}

/// Prints that hooks of a cluster run, and which of them failed: each once.
struct HookNotes {
    /// The hooks that are reported.
    before: HookRun,
}

impl HookNotes {
    /// `cluster` as it was before: what became of its hooks then is not reported.
    fn new(cluster: &Cluster) -> Self {
        Self { before: cluster.status.hooks.clone() }
    }

    fn look(&mut self, found: &Found) {
        let (before, now) = (&self.before, &found.cluster.status.hooks);
        if now == before {
            return;
        }
        let (shown, event) = (found.shown(), now.event.as_str());
        if now.number != before.number && now.ended_at.is_empty() {
            let hint = format!(
                "Running {event} hooks on cluster {shown}; `sky logs --hook {event} {shown}` shows their output."
            );
            eprintln!("{}", as_typed(&hint));
        }
        if now.number != before.number || now.failures != before.failures {
            failed_hooks(&found.cluster, shown).iter().for_each(|line| eprintln!("{}", visible(line)));
        }
        self.before = now.clone();
    }
}

/// Starts a cluster: a Launch without a job, which goes on without this client.
async fn start(call: &Call, sky: &Sky, shown: &str) -> Result<Launched, Trouble> {
    let autostop = autostop(call, None)?;
    let spec = LaunchSpec {
        start: true,
        setup: WhenSetUp::Never,
        no_autostop: autostop.as_ref().is_some_and(Value::is_null),
        autostop: autostop.and_then(|set| serde_json::from_value(set).ok()),
        retry_until_up: call.is_set("retry_until_up"),
        ..LaunchSpec::default()
    };
    let name = submit::create(sky, shown, &empty_task(), spec, &Catalogue::default()).await?;
    if call.is_set("async_call") {
        return Ok(Launched::Done(0));
    }
    let launched = submit::follow(sky, shown, &name, async |_| Ok(())).await?;
    if let Launched::Done(_) = launched
        && let Some(found) = sky.find(shown).await?
    {
        clusters::tell_ssh(sky, &found).await?;
    }
    Ok(launched)
}

/// A launch that is under way.
struct UnderWay {
    object: DynamicObject,
    spec: LaunchSpec,
}

/// Launches that are under way, of one cluster or of all.
async fn under_way(sky: &Sky, cluster: Option<&str>) -> Result<Vec<UnderWay>, Trouble> {
    let wanted = cluster
        .map_or_else(ListParams::default, |name| ListParams::default().labels(&format!("{}={name}", keys::CLUSTER)));
    let all = sky.launches().list(&wanted).await?.into_iter().filter_map(|object| {
        let status: LaunchStatus = serde_json::from_value(object.data["status"].clone()).unwrap_or_default();
        let spec = serde_json::from_value(object.data["spec"].clone()).ok()?;
        (!status.phase.is_over()).then_some(UnderWay { object, spec })
    });
    Ok(all.collect())
}

/// Takes a launch back, and waits until it is gone.
async fn take_back(sky: &Sky, launch: &DynamicObject) -> Result<(), Trouble> {
    let name = launch.metadata.name.clone().unwrap_or_default();
    match sky.launches().delete(&name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        other => drop(other?),
    }
    let is_it = |object: &DynamicObject| object.metadata.uid == launch.metadata.uid;
    client::until(sky.launches(), &name, |object| (!object.is_some_and(is_it)).then_some(())).await?;
    Ok(())
}

/// Takes back the launches of a cluster that are under way: none of them makes it anew.
async fn end_launches(sky: &Sky, cluster: &str) -> Result<(), Trouble> {
    for launch in under_way(sky, Some(cluster)).await? {
        take_back(sky, &launch.object).await?;
    }
    Ok(())
}

/// Takes back launches whose clusters are not made yet, and returns what their users call those.
async fn end_unmade(sky: &Sky, made: &[Found], is_meant: impl Fn(&LaunchSpec) -> bool) -> Result<Vec<String>, Trouble> {
    let mut ended = Vec::new();
    for launch in under_way(sky, None).await? {
        let shown = &launch.spec.cluster;
        if is_meant(&launch.spec) && !made.iter().any(|found| found.shown() == shown) {
            take_back(sky, &launch.object).await?;
            ended.push(shown.clone());
        }
    }
    Ok(ended)
}
