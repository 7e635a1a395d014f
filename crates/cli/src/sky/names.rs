//! Names that shells complete in the commands of `sky`: clusters, jobs, services, pools and places.

use super::clusters;
use super::verbs::managed_jobs;
use crate::complete::is_sky;
use crate::soon::soon;
use api::sky::ManagedJob;
use clap::Arg;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter};
use client::Home;
use managed::fleet::FleetKind;
use placement::Catalogue;
use std::ffi::OsString;
use std::path::PathBuf;

/// Adds completion of names to an argument that takes a name.
pub(crate) fn with_names(path: &str, arg: Arg) -> Arg {
    let of_cluster = ["launch", "exec", "status", "queue", "logs", "cancel", "stop", "start", "down", "autostop"]
        .contains(&path.strip_prefix("sky ").unwrap_or_default());
    match arg.get_id().as_str() {
        "cluster" | "clusters" if of_cluster => arg.add(ArgValueCandidates::new(clusters)),
        "jobs" | "job_ids" if of_cluster => arg.add(ArgValueCandidates::new(jobs)),
        "job_id" | "job_ids" if path.starts_with("sky jobs ") => arg.add(ArgValueCandidates::new(numbers)),
        // `serve up` takes the name of a new service
        "service_name" | "service_names" if path != "sky serve up" => {
            arg.add(ArgValueCandidates::new(|| fleets(FleetKind::Service)))
        }
        "pool" | "pool_name" | "pool_names" => arg.add(ArgValueCandidates::new(|| fleets(FleetKind::Pool))),
        "infra" | "infra_list" => arg.add(ArgValueCandidates::new(places)),
        "entrypoint" | "service_yaml" | "pool_yaml" => arg.add(ArgValueCompleter::new(PathCompleter::any())),
        _ => arg,
    }
}

fn clusters() -> Vec<CompletionCandidate> {
    let names = soon(|| async {
        let all = clusters::running().await?.all().await.ok()?;
        Some(all.iter().map(|found| found.shown().to_owned()).collect::<Vec<_>>())
    });
    names.flatten().into_iter().flatten().map(CompletionCandidate::new).collect()
}

/// The names of services, or of pools.
fn fleets(kind: FleetKind) -> Vec<CompletionCandidate> {
    let found = soon(move || async move { clusters::running().await?.all_fleets(kind).await.ok() });
    found.flatten().into_iter().flatten().map(|fleet| CompletionCandidate::new(fleet.spec.name)).collect()
}

/// Numbers of managed jobs, with names and states, the newest first.
fn numbers() -> Vec<CompletionCandidate> {
    let jobs = soon(|| async { managed_jobs(&clusters::running().await?).await.ok() });
    let candidate = |job: ManagedJob| {
        let help = format!("{} {}", job.spec.name, job.status.state.as_str());
        CompletionCandidate::new(job.spec.id.to_string()).help(Some(help.into()))
    };
    jobs.flatten().into_iter().flatten().map(candidate).collect()
}

/// Job numbers, with names and states, of the cluster on the unfinished command line.
fn jobs() -> Vec<CompletionCandidate> {
    let Some(cluster) = cluster_of(std::env::args_os()) else { return Vec::new() };
    let jobs = soon(|| async move {
        let sky = clusters::running().await?;
        let found = sky.find(&cluster).await.ok()??;
        sky.jobs(found.name()).await.ok()
    });
    let candidate = |job: managed::jobs::Job| {
        let help = format!("{} {}", job.name, job.status.as_str());
        CompletionCandidate::new(job.id.to_string()).help(Some(help.into()))
    };
    jobs.flatten().into_iter().flatten().map(candidate).collect()
}

/// The first word of the unfinished line that is neither a command nor an option. The shell gives its words after `--`.
fn cluster_of(words: impl IntoIterator<Item = OsString>) -> Option<String> {
    let words = words.into_iter().skip_while(|word| word != "--").skip(1);
    let after = words.skip_while(|word| !is_sky(word)).skip(2);
    let mut after = after.map(|word| word.to_string_lossy().into_owned());
    after.find(|word| !word.starts_with('-') && !word.is_empty())
}

/// Values for `--infra`: this machine, pools, contexts.
fn places() -> Vec<CompletionCandidate> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let own = Home::find(None).map(|own| own.kubeconfig()).unwrap_or_default();
    let at_hand = offers::observe(&home, None, &own, &Catalogue::default());
    let pools = at_hand.pools.iter().map(|pool| format!("ssh/{pool}"));
    let contexts = at_hand.contexts.all.iter().map(|context| format!("k8s/{context}"));
    std::iter::once("local".to_owned()).chain(pools).chain(contexts).map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_take_names_complete_them() {
        let tree = grammar::sky::command(&with_names);
        for (path, id) in [
            ("logs", "cluster"),
            ("logs", "job_ids"),
            ("cancel", "jobs"),
            ("down", "clusters"),
            ("launch", "cluster"),
            ("check", "infra_list"),
            ("launch", "infra"),
            ("jobs logs", "job_id"),
            ("jobs cancel", "job_ids"),
            ("jobs launch", "pool"),
            ("jobs pool down", "pool_names"),
            ("serve logs", "service_name"),
            ("serve status", "service_names"),
        ] {
            let command = path.split(' ').fold(&tree, |tree, word| tree.find_subcommand(word).unwrap());
            let arg = command.get_arguments().find(|arg| arg.get_id() == id).unwrap();
            assert!(arg.get::<ArgValueCandidates>().is_some(), "{path} {id}");
        }
    }

    #[test]
    fn the_cluster_is_that_of_the_unfinished_line() {
        let of = |line: &str| cluster_of(line.split(' ').map(OsString::from));
        assert_eq!(of("trainyard -- trainyard sky logs --no-follow dev 1").as_deref(), Some("dev"));
        assert_eq!(of("trainyard -- ~/bin/sky logs dev").as_deref(), Some("dev"));
        assert_eq!(of("trainyard -- trainyard sky logs"), None);
    }
}
