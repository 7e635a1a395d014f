//! A checked run: creates its job, follows it to its end, and says how it ended.

use crate::choice;
use crate::daemon;
use crate::exit;
use crate::explain;
use crate::output;
use crate::retried;
use crate::screen::Screen;
use crate::tell;
use api::job_kind::JobKind;
use api::object;
use client::{ClientError, Cluster, Kind, Where};
use facts::follow::{Stop, follow};
use grammar::{Format, Global, RunArgs};
use serde_json::Value;
use std::time::Duration;
use submission::{Code, Ready, Spec, Submission, What, metrics, results};
use view::lines::Show;
use view::state::{Phase, condition};

/// How often, and how long, to look for metrics that the job has printed at its end.
const PRINTED_POLL: Duration = Duration::from_millis(250);
const PRINTED_TRIES: u32 = 12;

/// What the flags ask for.
pub(crate) fn spec(args: &RunArgs) -> Spec {
    let RunArgs { watch: _, detach: _, output: _, words, .. } = args;
    let mut words = words.iter();
    Spec {
        script: words.next().map(Into::into).unwrap_or_default(),
        arguments: words.cloned().collect(),
        name: args.name.clone(),
        nodes: args.nodes,
        nproc_per_node: args.nproc_per_node,
        runtime: args.runtime.clone(),
        python: args.python.clone(),
        venv: args.venv.clone(),
        uv: args.uv,
        env: args.env.clone(),
        cpus: args.cpus.clone(),
        memory: args.memory.clone(),
        gpus: args.gpus,
        workdir: args.workdir.clone(),
        image: args.image.clone(),
        retries: args.retries,
        timeout: args.timeout,
        output_dir: args.output_dir.clone(),
        metrics: args.metrics.clone(),
        sweep: args.sweep.clone(),
        objective: args.objective.clone(),
        parallel_trials: args.parallel_trials,
        module: args.module,
        no_checks: args.no_checks,
        warm: (args.warm || args.no_warm).then_some(args.warm),
    }
}

/// A run whose checks are done and whose job is not created yet.
pub(crate) struct Prepared<'a> {
    pub args: &'a RunArgs,
    pub cluster: Cluster,
    pub ready: Ready,
}

impl<'a> Prepared<'a> {
    /// Looks whether it can run; starts the control plane where it has to be.
    ///
    /// Errors: why it cannot.
    pub(crate) async fn of(args: &'a RunArgs, spec: Spec, global: &Global) -> Result<Self, ClientError> {
        let code = Code::find(&spec)?;
        if let Some(note) = grammar::usage::meant_for_us(args) {
            eprintln!("{note}");
        }
        let place = client::place(&choice(global))?;
        let mut submission = Submission::begin(spec, code, !matches!(place, Where::Elsewhere))?;
        if matches!(place, Where::Stopped(_)) {
            // nothing is started for what cannot run
            submission.before_the_server().await?;
        }
        let cluster = daemon::cluster(&choice(global)).await?;
        match submission.ready(&cluster, &tell).await {
            Ok(ready) => Ok(Self { args, cluster, ready }),
            Err(error) => Err(error.at(&cluster)),
        }
    }

    /// Creates the job, prints its name, and returns the object from the server.
    pub(crate) async fn start(&self) -> Result<Value, ClientError> {
        let created = self.ready.create(&self.cluster, What::Job, &tell).await?;
        if self.args.detach {
            output::created(&created, self.args.output.output);
        } else {
            eprintln!("job {} created", object::meta(&created, "name"));
        }
        Ok(created)
    }

    /// Follows the job to its end; Ctrl-C suspends it.
    pub(crate) async fn attend_or_stop(&self, created: &Value) -> Result<u8, ClientError> {
        let stop = Stop::default();
        let mut attended = std::pin::pin!(self.attend(created, &stop));
        tokio::select! {
            code = &mut attended => return code,
            _ = tokio::signal::ctrl_c() => {}
        }
        let name = object::meta(created, "name");
        eprintln!("\nstopping job {name} …");
        let stopped = async {
            self.cluster.suspend(JobKind::Train, name, true).await?;
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
        let mut screen = Screen::new(&show, name, &cluster.flags);
        let ended = tokio::select! {
            ended = follow(cluster, name, &show, stop, &mut screen, tell) => ended?,
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
        if let Some(written) = ended.job.as_ref().and_then(results::written) {
            eprintln!("results: {written}");
        }
        if args.timeout.is_some() && ended.job.as_ref().is_some_and(is_past_deadline) {
            return Ok(exit::TIMEOUT);
        }
        Ok(told.unwrap_or_else(|| exit::of_ended(&ended)))
    }

    /// Says which metrics of `--metric` the job never printed.
    async fn say_unprinted(&self, job: &Value) {
        let Ok(patterns) = metrics(&self.args.metrics) else { return };
        let name = object::meta(job, "name");
        let unread = |job: &Value| {
            let reported = job["status"]["trainerStatus"]["metrics"].as_array().cloned().unwrap_or_default();
            let is_there = |wanted: &str| reported.iter().any(|metric| metric["name"] == *wanted);
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

fn is_past_deadline(job: &Value) -> bool {
    condition(job, "Failed").is_some_and(|failed| failed["reason"] == "DeadlineExceeded")
}

/// How to go on after a job was suspended.
fn say_next(name: &str, flags: &str) {
    eprintln!("  go on:      trainyard resume {name}{flags} && trainyard logs -f {name}{flags}");
    eprintln!("  remove it:  trainyard delete {name}{flags}");
}
