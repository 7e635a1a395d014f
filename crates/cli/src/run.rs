//! `trainyard run`: a script becomes a TrainJob, is followed, and its exit code is returned.

use crate::args::{Format, Global, RunArgs};
use crate::code::{Code, Start};
use crate::connect::{self, Cluster, Kind, Where, value};
use crate::error::CliError;
use crate::exit;
use crate::explain;
use crate::follow::{Show, follow};
use crate::jobs::suspended;
use crate::launcher::{Launcher, Setting};
use crate::manifest::{Draft, Pods, VOLUME, manifest, stem, steps};
use crate::output;
use crate::preflight::Preflight;
use crate::retried;
use crate::ship::{Bundle, MOUNT};
use crate::usage;
use crate::view::{Phase, condition};
use crate::warm::Folders;
use api::names::env_name_faults;
use api::object;
use api::trainer::API_VERSION;
use api::trainer::names::LABEL_FRAMEWORK;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

pub(crate) async fn run(args: &RunArgs, global: &Global) -> Result<u8, CliError> {
    let code = Code::find(args)?;
    if let Some(note) = usage::meant_for_us(args) {
        eprintln!("{note}");
    }
    let place = connect::place(global)?;
    let chosen = [("--python", args.python.is_some()), ("--venv", args.venv.is_some()), ("--uv", args.uv)];
    if let Some((flag, _)) = chosen.iter().find(|(_, given)| *given && place == Where::Elsewhere) {
        let why = "a cluster's pods have the Python of their image; choose that with --image";
        return Err(CliError::Usage(format!("{flag} is for jobs on this machine: {why}")));
    }
    let setting = Setting::of(args, &code, variables(&args.env)?)?;
    let mut look = Preflight::begin(args, &code, &setting, place != Where::Elsewhere)?;
    if place == Where::HereStopped {
        // nothing is started for what cannot run
        look.before_the_server().await?;
    }
    let cluster = Cluster::started(global).await?;
    let checked = async {
        let ready = look.ready(&cluster).await?;
        let warm = starts_warm(&cluster, args, &setting.folder, &ready.runtime)?;
        run_on(&cluster, Draft { args, code: &code, setting: &setting, ready: &ready, warm }).await
    };
    checked.await.map_err(|error| error.at(&cluster))
}

async fn run_on(cluster: &Cluster, draft: Draft<'_>) -> Result<u8, CliError> {
    let args = draft.args;
    let created = if cluster.local {
        create(cluster, manifest(draft, &Pods::Here)).await?
    } else if draft.code.start == Start::Command && draft.code.folder.is_none() {
        create(cluster, manifest(draft, &Pods::Image)).await?
    } else {
        ship(cluster, draft).await?
    };
    let name = object::meta(&created, "name").to_owned();
    if args.detach {
        match args.output.output {
            Format::Json | Format::Yaml => output::print(&created, args.output.output),
            Format::Table | Format::Wide | Format::Name => println!("{name}"),
        }
        return Ok(exit::OK);
    }
    eprintln!("job {name} created");

    let show = Show {
        progress: args.output.output != Format::Json,
        json: args.output.output == Format::Json,
        ..Show::default()
    };
    let ended = tokio::select! {
        ended = follow(cluster, &name, &show) => ended?,
        never = retried::tell(cluster, &created) => never,
        _ = tokio::signal::ctrl_c() => return interrupted(cluster, &name).await,
    };
    let mut told = None;
    match &ended.job {
        Some(job) if Phase::of(job) == Phase::Complete => eprintln!("job {name} complete"),
        Some(job) => told = explain::print_end(cluster, job, &ended.pods).await,
        None => eprintln!("job {name} was deleted"),
    }
    if args.timeout.is_some() && ended.job.as_ref().is_some_and(is_past_deadline) {
        return Ok(exit::TIMEOUT);
    }
    Ok(told.unwrap_or_else(|| ended.exit_code()))
}

/// Whether the ranks are forked from a process that has imported torch: by flag, or as the folder's last flag said.
///
/// Errors: `Usage` where it is asked for and cannot be.
fn starts_warm(cluster: &Cluster, args: &RunArgs, folder: &Path, runtime: &Value) -> Result<bool, CliError> {
    let Some(home) = &cluster.home else {
        if args.warm {
            return Err(CliError::Usage(format!("--warm is for this machine; {} is a cluster", cluster.server)));
        }
        return Ok(false);
    };
    let framework = object::label(runtime, LABEL_FRAMEWORK).unwrap_or_default();
    if Launcher::of(framework) != Launcher::Torchrun {
        if args.warm {
            return Err(CliError::Usage(format!(
                "--warm is for torch; runtime {} is for {framework}",
                object::meta(runtime, "name")
            )));
        }
        return Ok(false);
    }
    let folders = Folders::of(home);
    if !args.warm && !args.no_warm {
        return Ok(folders.has(folder));
    }
    if folders.set(folder, args.warm)? && args.warm {
        eprintln!("runs of {} start warm from now on; --no-warm ends that", folder.display());
    }
    Ok(args.warm)
}

fn is_past_deadline(job: &Value) -> bool {
    condition(job, "Failed").is_some_and(|failed| failed["reason"] == "DeadlineExceeded")
}

async fn create(cluster: &Cluster, job: Value) -> Result<Value, CliError> {
    let object = serde_json::from_value(job).expect("a TrainJob is an object");
    Ok(value(&cluster.api(Kind::TrainJob).create(&PostParams::default(), &object).await?))
}

/// Creates the job on a cluster, whose pods do not see this machine's files: they get them by a ConfigMap.
///
/// Expected flow: the ConfigMap first, for the job names it; then the job; then the job becomes the ConfigMap's owner, so that
/// they go together. Where the job is refused, the ConfigMap is deleted again.
async fn ship(cluster: &Cluster, draft: Draft<'_>) -> Result<Value, CliError> {
    let Draft { args, code, ready, .. } = draft;
    let (bundle, script) = match &code.folder {
        Some(folder) if code.start == Start::Command => (Bundle::folder(folder)?, PathBuf::new()),
        None => (Bundle::script(&code.script)?, PathBuf::from(code.script.file_name().unwrap_or_default())),
        Some(folder) => (Bundle::folder(folder)?, code.inside(folder)?),
    };
    bundle.skipped.iter().for_each(|skipped| eprintln!("not sent: {skipped}"));
    let steps = steps(&ready.runtime);
    if steps.is_empty() {
        return Err(CliError::Usage(format!(
            "runtime {:?} has no container \"node\", so the script cannot be put anywhere; choose another: trainyard runtimes",
            object::meta(&ready.runtime, "name")
        )));
    }
    // whether a job may be called so is told of the job, not of its files
    let stem = stem(args.name.as_deref().map_or(code.named.as_path(), Path::new));
    let files = serde_json::to_value(bundle.config_map(&stem)?).expect("a ConfigMap is JSON");
    let maps = cluster.api(Kind::ConfigMap);
    let files = serde_json::from_value(files).expect("a ConfigMap is an object");
    let files = value(&maps.create(&PostParams::default(), &files).await?);
    let files = object::meta(&files, "name");
    eprintln!("sent {} to {} (context {}) as ConfigMap {files}", bundle.summary(), cluster.server, cluster.context);

    let script = if code.start == Start::Command { code.script.clone() } else { Path::new(MOUNT).join(script) };
    let pods = Pods::Elsewhere { script, volume: bundle.volume(VOLUME, files), steps };
    let created = match create(cluster, manifest(draft, &pods)).await {
        Ok(created) => created,
        Err(error) => {
            let _ = maps.delete(files, &DeleteParams::default()).await;
            return Err(error);
        }
    };
    let name = object::meta(&created, "name");
    let owner = json!({"apiVersion": API_VERSION, "kind": "TrainJob", "name": name, "uid": object::uid(&created)});
    let owned = Patch::Merge(json!({"metadata": {"ownerReferences": [owner]}}));
    if let Err(error) = maps.patch(files, &PatchParams::default(), &owned).await {
        eprintln!("ConfigMap {files} will outlive job {name}, for it could not be made its own: {error}");
        eprintln!("  remove it once the job has ended: kubectl delete configmap {files} -n {}", cluster.namespace);
    }
    Ok(created)
}

/// Stops the job's pods and says how to go on. A second Ctrl-C does not wait.
async fn interrupted(cluster: &Cluster, name: &str) -> Result<u8, CliError> {
    eprintln!("\nstopping job {name} …");
    tokio::select! {
        stopped = suspended(cluster, name, true) => { stopped?; }
        _ = tokio::signal::ctrl_c() => {}
    }
    eprintln!("job {name} is suspended: its processes are stopped, its settings are kept");
    let flags = &cluster.flags;
    eprintln!("  look at it: trainyard describe {name}{flags}");
    eprintln!("  go on:      trainyard resume {name}{flags} && trainyard logs -f {name}{flags}");
    eprintln!("  remove it:  trainyard delete {name}{flags}");
    Ok(exit::INTERRUPTED)
}

/// `--env` flags, each NAME=VALUE.
fn variables(flags: &[String]) -> Result<Vec<(String, String)>, CliError> {
    let pairs = flags.iter().map(|flag| match flag.split_once('=') {
        Some((name, value)) if env_name_faults(name).is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(CliError::Usage(format!("--env {flag:?} is not NAME=VALUE"))),
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_variables_are_refused() {
        assert!(variables(&["novalue".to_owned()]).is_err());
        assert!(variables(&["=x".to_owned()]).is_err());
    }
}
