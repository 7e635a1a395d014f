//! `trainyard run`: creates a TrainJob for a script, follows it, and returns its exit code.

use crate::args::{Format, Global, RunArgs};
use crate::change::suspended;
use crate::code::Code;
use crate::create::{What, create};
use crate::daemon;
use crate::exit;
use crate::explain;
use crate::follow::{Show, Stop, follow};
use crate::launcher::{Launcher, Setting};
use crate::manifest::Draft;
use crate::output;
use crate::preflight::{Preflight, Ready};
use crate::results;
use crate::retried;
use crate::sweep::{self, Search};
use crate::usage;
use crate::warm::Folders;
use crate::watch;
use api::job_kind::JobKind;
use api::names::env_name_faults;
use api::object;
use api::trainer::names::LABEL_FRAMEWORK;
use api::trainer::printed::Patterns;
use client::codes::ErrorCode;
use client::{ClientError, Cluster, Home, Kind, Where};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use view::state::{Phase, condition};

/// How often, and how long, to look for metrics that the job has printed at its end.
const PRINTED_POLL: Duration = Duration::from_millis(250);
const PRINTED_TRIES: u32 = 12;

/// Runs what the flags say.
pub(crate) async fn run(args: &RunArgs, global: &Global) -> Result<u8, ClientError> {
    printed(&args.metrics)?;
    if args.watch {
        return watch::watch(args, global).await;
    }
    let search = Search::of(args)?;
    let changed = search.as_ref().map(|search| search.arguments(args));
    let args = changed.as_ref().unwrap_or(args);
    let prepared = Prepared::of(args, global).await?;
    let done = async {
        match &search {
            Some(search) => sweep::run(&prepared, search).await,
            None => {
                let job = prepared.start().await?;
                if args.detach { Ok(exit::OK) } else { prepared.attend_or_stop(&job).await }
            }
        }
    };
    done.await.map_err(|error| error.at(&prepared.cluster))
}

/// A run that was looked at, of which nothing has been created yet.
pub(crate) struct Prepared<'a> {
    pub args: &'a RunArgs,
    pub cluster: Cluster,
    pub code: Code,
    setting: Setting,
    ready: Ready,
    warm: bool,
}

impl<'a> Prepared<'a> {
    /// Looks whether it can run; starts the control plane where it has to be.
    ///
    /// Errors: why it cannot.
    pub(crate) async fn of(args: &'a RunArgs, global: &Global) -> Result<Self, ClientError> {
        let code = Code::find(args)?;
        if let Some(note) = usage::meant_for_us(args) {
            eprintln!("{note}");
        }
        let place = client::place(&global.choice())?;
        let chosen = [
            (
                "--python",
                args.python.is_some(),
                "a cluster's pods have the Python of their image; choose that with --image",
            ),
            (
                "--venv",
                args.venv.is_some(),
                "a cluster's pods have the Python of their image; choose that with --image",
            ),
            ("--uv", args.uv, "a cluster's pods have the Python of their image; choose that with --image"),
            ("--output-dir", args.output_dir.is_some(), "on a cluster, write to a volume of the runtime"),
        ];
        let here = !matches!(place, Where::Elsewhere);
        if let Some((flag, _, why)) = chosen.iter().find(|(_, given, _)| *given && !here) {
            return Err(ClientError::Usage(
                ErrorCode::FlagOfOtherPlace,
                format!("{flag} is for jobs on this machine: {why}"),
            ));
        }
        let setting = Setting::of(args, &code, variables(&args.env)?)?;
        let mut look = Preflight::begin(args, &code, &setting, here)?;
        if matches!(place, Where::Stopped(_)) {
            // nothing is started for what cannot run
            look.before_the_server().await?;
        }
        let cluster = daemon::cluster(&global.choice()).await?;
        let running = || cluster.home.clone().and_then(|root| Home::at(root).running());
        if !args.metrics.is_empty() && running().is_some_and(|running| running.status_server.is_none()) {
            return Err(ClientError::Usage(
                ErrorCode::FlagOfOtherPlace,
                "--metric needs the status server, and this control plane runs without it (--status-server none); restart `trainyard up` without that flag".to_owned(),
            ));
        }
        let checked = async {
            let ready = look.ready(&cluster).await?;
            let warm = !args.module && starts_warm(&cluster, args, &setting.folder, &ready.runtime)?;
            results::prepare(args)?;
            Ok((ready, warm))
        };
        match checked.await {
            Ok((ready, warm)) => Ok(Self { args, cluster, code, setting, ready, warm }),
            Err(error) => Err(ClientError::at(error, &cluster)),
        }
    }

    pub(crate) fn draft(&self) -> Draft<'_> {
        let Self { args, code, setting, ready, warm, .. } = self;
        Draft { args, code, setting, ready, warm: *warm }
    }

    /// Creates the job and says so; returns it as the server has it.
    pub(crate) async fn start(&self) -> Result<Value, ClientError> {
        let created = create(&self.cluster, self.draft(), What::Job).await?;
        if self.args.detach {
            output::created(&created, self.args.output.output);
        } else {
            eprintln!("job {} created", object::meta(&created, "name"));
        }
        Ok(created)
    }

    /// Follows the job to its end; Ctrl-C suspends it.
    async fn attend_or_stop(&self, created: &Value) -> Result<u8, ClientError> {
        let stop = Stop::default();
        let mut attended = std::pin::pin!(self.attend(created, &stop));
        tokio::select! {
            code = &mut attended => return code,
            _ = tokio::signal::ctrl_c() => {}
        }
        let name = object::meta(created, "name");
        eprintln!("\nstopping job {name} …");
        let stopped = async {
            suspended(&self.cluster, JobKind::Train, name, true).await?;
            stop.set();
            attended.await
        };
        tokio::select! {
            code = stopped => code,
            _ = tokio::signal::ctrl_c() => Ok(self.left_behind(name)),
        }
    }

    /// A second Ctrl-C: the processes end by themselves.
    fn left_behind(&self, name: &str) -> u8 {
        let flags = &self.cluster.flags;
        eprintln!("\njob {name} is suspended, and its processes may still be ending");
        eprintln!("  look at them: trainyard describe {name}{flags}");
        say_next(name, flags);
        exit::INTERRUPTED
    }

    /// Follows the job to its end, or until it is suspended by `stop`; says how it ended and returns its exit code.
    pub(crate) async fn attend(&self, created: &Value, stop: &Stop) -> Result<u8, ClientError> {
        let Self { args, cluster, .. } = self;
        let name = object::meta(created, "name");
        let show = Show {
            progress: args.output.output != Format::Json,
            json: args.output.output == Format::Json,
            ..Show::default()
        };
        let ended = tokio::select! {
            ended = follow(cluster, name, &show, stop) => ended?,
            never = retried::tell(cluster, created) => never,
        };
        if ended.is_stopped {
            match ended.left.sentence() {
                None => eprintln!("job {name} is suspended: its processes have ended, its settings are kept"),
                Some(left) => eprintln!("job {name} is suspended, and {left}"),
            }
            eprintln!("  look at it: trainyard describe {name}{}", cluster.flags);
            say_next(name, &cluster.flags);
            return Ok(exit::INTERRUPTED);
        }
        let mut told = None;
        match &ended.job {
            Some(job) if Phase::of(job) == Phase::Complete => eprintln!("job {name} complete"),
            Some(job) => told = explain::print_end(cluster, job, &ended.pods).await,
            None => eprintln!("job {name} was deleted"),
        }
        if let Some(job) = &ended.job {
            self.say_unprinted(job).await;
        }
        if let Some(left) = ended.left.sentence() {
            eprintln!("{left}: trainyard describe {name}{}", cluster.flags);
        }
        if let Some(written) = ended.job.as_ref().and_then(results::of) {
            eprintln!("results: {written}");
        }
        if args.timeout.is_some() && ended.job.as_ref().is_some_and(is_past_deadline) {
            return Ok(exit::TIMEOUT);
        }
        Ok(told.unwrap_or_else(|| ended.exit_code()))
    }

    /// Says which metrics of `--metric` the job never printed.
    async fn say_unprinted(&self, job: &Value) {
        let Ok(patterns) = printed(&self.args.metrics) else { return };
        let name = object::meta(job, "name");
        let unread = |job: &Value| {
            let metrics = job["status"]["trainerStatus"]["metrics"].as_array().cloned().unwrap_or_default();
            let is_there = |wanted: &str| metrics.iter().any(|metric| metric["name"] == *wanted);
            patterns.names().filter(|wanted| !is_there(wanted)).map(str::to_owned).collect::<Vec<_>>()
        };
        let mut left = unread(job);
        // the last lines are read a moment after the end
        for _ in 0..PRINTED_TRIES {
            if left.is_empty() {
                return;
            }
            tokio::time::sleep(PRINTED_POLL).await;
            match self.cluster.find(Kind::TrainJob, name).await {
                Ok(Some(job)) => left = unread(&job),
                Ok(None) | Err(_) => return,
            }
        }
        if !left.is_empty() {
            eprintln!("rank 0 printed no value for --metric {}", left.join(", "));
            eprintln!("  see what it printed: trainyard logs {name} --rank 0{}", self.cluster.flags);
        }
    }
}

/// The metrics of `--metric`.
///
/// Errors: `Usage` for what is no pattern.
fn printed(flags: &[String]) -> Result<Patterns, ClientError> {
    let refused = |why: String| ClientError::Usage(ErrorCode::FlagRefused, format!("--metric {why}"));
    if flags.is_empty() {
        return Ok(Patterns::default());
    }
    if let Some(flag) = flags.iter().find(|flag| flag.trim().is_empty() || flag.contains('\n')) {
        return Err(refused(format!(
            "{flag:?} is no pattern; write a name, or an expression such as 'loss=([0-9.]+)'"
        )));
    }
    Patterns::parse(&flags.join("\n")).map_err(refused)
}

/// Whether the ranks are forked from a process that has imported torch: by flag, or as the folder's last flag said.
///
/// Errors: `Usage` where it is asked for and cannot be.
fn starts_warm(cluster: &Cluster, args: &RunArgs, folder: &Path, runtime: &Value) -> Result<bool, ClientError> {
    let Some(home) = &cluster.home else {
        if args.warm {
            return Err(ClientError::Usage(
                ErrorCode::FlagOfOtherPlace,
                format!("--warm works on this machine only, and {} is a cluster", cluster.server),
            ));
        }
        return Ok(false);
    };
    let framework = object::label(runtime, LABEL_FRAMEWORK).unwrap_or_default();
    if Launcher::of(framework) != Launcher::Torchrun {
        if args.warm {
            return Err(ClientError::Usage(
                ErrorCode::FlagOfOtherPlace,
                format!(
                    "--warm works with torch only, and runtime {} is for {framework}",
                    object::meta(runtime, "name")
                ),
            ));
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

/// How to go on after a job was suspended.
fn say_next(name: &str, flags: &str) {
    eprintln!("  go on:      trainyard resume {name}{flags} && trainyard logs -f {name}{flags}");
    eprintln!("  remove it:  trainyard delete {name}{flags}");
}

/// `--env` flags, each NAME=VALUE.
fn variables(flags: &[String]) -> Result<Vec<(String, String)>, ClientError> {
    let pairs = flags.iter().map(|flag| match flag.split_once('=') {
        Some((name, value)) if env_name_faults(name).is_empty() && !name.starts_with('-') => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(ClientError::Usage(ErrorCode::FlagRefused, format!("--env {flag:?} is not NAME=VALUE"))),
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
        assert!(variables(&["-x=1".to_owned()]).is_err(), "a flag to mpirun");
    }
}
