//! `mpijob logs`: what the launcher prints, or a worker; from what is kept of it where its pod is gone.

use super::{find, name_of, refusal};
use crate::exit;
use api::mpi::names::{LABEL_JOB_NAME, LABEL_JOB_ROLE, ROLE_LAUNCHER, worker};
use api::object;
use client::codes::ErrorCode;
use client::{ClientError, Cluster, Kind};
use facts::history::{self, RunOf, Window};
use facts::reader::is_gone;
use facts::{self, Piece, missing, whole};
use futures::stream::{BoxStream, select};
use futures::{FutureExt, StreamExt};
use grammar::mpi::LogsArgs;
use grammar::which;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;
use view::mpijob::{State, message, workers};
use view::runs::{Which, no_attempt};
use view::state::{byte, why_pending};

/// Time between two looks at what a followed job does while nothing can be read and no change is heard of, as who may not watch hears
/// of none.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(crate) async fn logs(cluster: &Cluster, args: &LogsArgs) -> Result<u8, ClientError> {
    let name = name_of(&args.mpijob).unwrap_or(&args.mpijob);
    let job = find(cluster, name).await?;
    let (_, wanted) = workers(&job);
    if let Some(number) = args.worker.filter(|number| i64::from(*number) >= wanted) {
        let there = match wanted {
            0 => "it has no workers".to_owned(),
            1 => "it has worker 0 alone".to_owned(),
            n => format!("it has workers 0 to {}", n.saturating_sub(1)),
        };
        let told = format!("--worker {number}: MPIJob {name:?} has no such worker; {there}");
        return Err(ClientError::Usage(ErrorCode::RankMissing, told));
    }
    if args.follow {
        return follow(cluster, name, args).await;
    }
    let which = which(args.attempt, args.previous);
    if which != Which::Last {
        return attempts(cluster, name, args, which).await;
    }
    let whose = args.worker.map_or("launcher".to_owned(), |number| format!("worker {number}"));
    let state = State::of(&job).to_string().to_lowercase();
    let Some(pod) = pod_of(cluster, name, args.worker).await? else {
        let runs = Kept::all(cluster, name, args.worker).await?;
        if let Some(kept) = last_kept(&runs) {
            kept.print_gone(cluster, name, args).await?;
            tell_of_earlier(runs.len());
            return Ok(exit::OK);
        }
        if let Some(why) = refusal(cluster, &job).await {
            return Err(ClientError::Api(ErrorCode::NotInPod, format!("MPIJob {name:?} cannot start: {why}")));
        }
        let message = match message(&job) {
            "" => String::new(),
            message => format!(": {message}"),
        };
        let gone = if State::of(&job).is_finished() { "has no pod any more" } else { "has no pod yet" };
        let told = format!("the {whose} of MPIJob {name:?} {gone}; the job is {state}{message}");
        return Err(ClientError::Api(ErrorCode::NotInPod, told));
    };
    if Run::of(&pod).is_none() {
        let why = why_pending(&pod).map(|why| format!(": {why}")).unwrap_or_default();
        eprintln!("no log lines: pod {} has not started{why}", object::meta(&pod, "name"));
        return Ok(exit::OK);
    }
    print(cluster, &pod, args, false, &mut 0).await?;
    tell_of_earlier(Kept::all(cluster, name, args.worker).await?.len());
    Ok(exit::OK)
}

/// Prints the attempts that are asked for, oldest first.
async fn attempts(cluster: &Cluster, job: &str, args: &LogsArgs, which: Which) -> Result<u8, ClientError> {
    let runs = Kept::all(cluster, job, args.worker).await?;
    let most = i64::try_from(runs.len()).unwrap_or(i64::MAX);
    let is_wanted = |number: i64| match which {
        Which::Last => number == most,
        Which::Previous => number.saturating_add(1) == most,
        Which::Nth(n) => number == n,
        Which::All => true,
    };
    let chosen: Vec<(i64, &Kept)> = (1..).zip(&runs).filter(|(number, _)| is_wanted(*number)).collect();
    if runs.is_empty() {
        eprintln!("no log lines: nothing of MPIJob {job:?} has started");
    } else if chosen.is_empty() {
        let whose = args.worker.map_or(String::new(), |number| format!("worker {number} of "));
        no_attempt(&format!("{whose}MPIJob {job:?}"), which, most).map_err(missing)?;
    }
    for (number, run) in chosen {
        let prefix = if which == Which::All { format!("[attempt {number}] ") } else { String::new() };
        run.print(cluster, job, args, &prefix).await?;
    }
    Ok(exit::OK)
}

/// Says that what was printed was the last of several attempts.
fn tell_of_earlier(most: usize) {
    if most > 1 {
        eprintln!("this was the last of {most} attempts; earlier ones: --previous, --attempt N or --attempt all");
    }
}

/// The last run whose log the server keeps.
fn last_kept(runs: &[Kept]) -> Option<&Kept> {
    runs.iter().rfind(|run| run.is_kept)
}

/// A run of a pod's main container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    pod: String,
    restarts: i64,
}

impl Run {
    /// The last one; `None` where it has not begun.
    fn of(pod: &Value) -> Option<Self> {
        let status = main_status(pod)?;
        let begun = ["running", "terminated"].iter().any(|state| !status["state"][*state].is_null());
        begun.then(|| Self { pod: object::uid(pod).to_owned(), restarts: status["restartCount"].as_i64().unwrap_or(0) })
    }
}

/// A run of the launcher or of a worker, whose pod may be gone.
struct Kept {
    pod: Value,
    container: String,
    run: api::job_history::Run,
    /// The server keeps its log; a cluster's has it as long as there is the pod.
    is_kept: bool,
}

impl Kept {
    /// All of the launcher, or of a worker, oldest first. Where the server keeps no history: the last of each pod.
    async fn all(cluster: &Cluster, job: &str, number: Option<i32>) -> Result<Vec<Self>, ClientError> {
        let Some(past) = history::of(cluster, history::Job::Mpi(job)).await? else {
            let mut pods = pods_of(cluster, job, number).await?;
            pods.sort_by_key(|pod| object::meta(pod, "creationTimestamp").to_owned());
            let begun = pods.into_iter().filter(|pod| Run::of(pod).is_some());
            let last = |pod: Value| {
                let (container, run) = (main_container(&pod).to_owned(), api::job_history::Run::default());
                Self { pod, container, run, is_kept: false }
            };
            return Ok(begun.map(last).collect());
        };
        let number = number.map(|number| worker(job, number));
        let is_wanted = |pod: &Value| match &number {
            Some(name) => object::meta(pod, "name") == name,
            None => object::label(pod, LABEL_JOB_ROLE) == Some(ROLE_LAUNCHER),
        };
        let mut all = Vec::new();
        for old in past.pods.into_iter().filter(|old| is_wanted(&old.pod)) {
            let container = main_container(&old.pod).to_owned();
            let ran = old.containers.into_iter().find(|ran| ran.name == container);
            for run in ran.into_iter().flat_map(|ran| ran.attempts) {
                all.push(Self { pod: old.pod.clone(), container: container.clone(), run, is_kept: true });
            }
        }
        Ok(all)
    }

    async fn print_gone(&self, cluster: &Cluster, job: &str, args: &LogsArgs) -> Result<(), ClientError> {
        eprintln!("pod {} is gone; this is what it printed last", object::meta(&self.pod, "name"));
        self.print(cluster, job, args, "").await
    }

    async fn print(&self, cluster: &Cluster, job: &str, args: &LogsArgs, prefix: &str) -> Result<(), ClientError> {
        if self.run.log_cut && args.tail.is_none() {
            eprintln!("the beginning of the log is gone: only the newest part of a long log is kept");
        }
        if self.is_kept {
            let run = RunOf { pod: object::uid(&self.pod), container: &self.container, attempt: self.run.attempt };
            let window = Window { tail: args.tail, since: None };
            for (_, line) in history::lines(cluster, history::Job::Mpi(job), run, window).await? {
                put(&format!("{prefix}{line}"));
            }
        } else {
            let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
            let container = Some(self.container.clone());
            let parameters = LogParams { container, tail_lines: args.tail, ..LogParams::default() };
            for line in facts::lines(&whole(&api, object::meta(&self.pod, "name"), &parameters).await?) {
                put(&format!("{prefix}{line}"));
            }
        }
        let _ = std::io::stdout().flush();
        Ok(())
    }
}

fn main_container(pod: &Value) -> &str {
    object::text(&pod["spec"]["containers"][0], "name")
}

fn main_status(pod: &Value) -> Option<&Value> {
    let statuses = pod["status"]["containerStatuses"].as_array()?;
    statuses.iter().find(|status| status["name"] == main_container(pod))
}

/// The pods of the launcher, or that of a worker.
async fn pods_of(cluster: &Cluster, job: &str, number: Option<i32>) -> Result<Vec<Value>, ClientError> {
    if let Some(number) = number {
        let name = worker(job, number);
        return Ok(cluster.find(Kind::Pod, &name).await?.into_iter().collect());
    }
    cluster.list(Kind::Pod, &labels_of_launcher(job)).await
}

/// The newest pod of the launcher, or that of a worker.
async fn pod_of(cluster: &Cluster, job: &str, number: Option<i32>) -> Result<Option<Value>, ClientError> {
    let pods = pods_of(cluster, job, number).await?;
    Ok(pods.into_iter().max_by_key(|pod| object::meta(pod, "creationTimestamp").to_owned()))
}

/// Prints lines until the job has ended. Returns the exit code of a launcher that failed.
async fn follow(cluster: &Cluster, name: &str, args: &LogsArgs) -> Result<u8, ClientError> {
    let mut printed: BTreeMap<Run, usize> = BTreeMap::new();
    let mut over: Option<Run> = None;
    let mut changes = changes(cluster, name, args.worker);
    loop {
        // before the pod: what it printed last is shown
        let job = cluster.find(Kind::MpiJob, name).await?;
        let Some(job) = job else {
            eprintln!("MPIJob {name:?} was deleted");
            return Ok(exit::FAILURE);
        };
        let pod = pod_of(cluster, name, args.worker).await?;
        if let Some(pod) = &pod
            && let Some(run) = Run::of(pod)
            && over.as_ref() != Some(&run)
        {
            match print(cluster, pod, args, true, printed.entry(run.clone()).or_default()).await {
                Ok(()) => {
                    over = Some(run);
                    continue;
                }
                // the control plane may be starting again while the job goes on
                Err(ClientError::Unreachable { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let state = State::of(&job);
        if state.is_finished() {
            if pod.is_none()
                && printed.is_empty()
                && let Some(kept) = last_kept(&Kept::all(cluster, name, args.worker).await?)
            {
                kept.print_gone(cluster, name, args).await?;
            }
            if state == State::Succeeded {
                return Ok(exit::OK);
            }
            eprintln!("MPIJob {name:?} failed: {}", message(&job));
            let code = match pod_of(cluster, name, None).await? {
                Some(launcher) => main_status(&launcher).and_then(|s| s["state"]["terminated"]["exitCode"].as_i64()),
                None => {
                    last_kept(&Kept::all(cluster, name, None).await?).and_then(|kept| kept.run.exit_code.map(i64::from))
                }
            };
            return Ok(byte(code));
        }
        if let Some(why) = refusal(cluster, &job).await {
            eprintln!("MPIJob {name:?} cannot start: {why}");
            return Ok(exit::FAILURE);
        }
        // one look for all that has changed by now
        if tokio::time::timeout(LOOK_EVERY, changes.next()).await.is_ok() {
            while let Some(Some(())) = changes.next().now_or_never() {}
        }
    }
}

/// Changes of a job and of the pod whose log is followed.
fn changes(cluster: &Cluster, job: &str, number: Option<i32>) -> BoxStream<'static, ()> {
    let named = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
    let pods = match number {
        Some(number) => named(&worker(job, number)),
        None => watcher::Config::default().labels(&labels_of_launcher(job)),
    };
    let jobs = watcher(cluster.api(Kind::MpiJob), named(job)).default_backoff();
    let pods = watcher(cluster.api(Kind::Pod), pods).default_backoff();
    let heard = |event: Result<watcher::Event<_>, watcher::Error>| async move {
        event.inspect_err(|error| tracing::debug!(%error, "watching the job; trying again")).ok().map(drop)
    };
    select(jobs, pods).filter_map(heard).boxed()
}

fn labels_of_launcher(job: &str) -> String {
    format!("{LABEL_JOB_NAME}={job},{LABEL_JOB_ROLE}={ROLE_LAUNCHER}")
}

/// Prints a log, but for the lines that were printed already.
async fn print(
    cluster: &Cluster,
    pod: &Value,
    args: &LogsArgs,
    follow: bool,
    printed: &mut usize,
) -> Result<(), ClientError> {
    let name = object::meta(pod, "name");
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let tail_lines = args.tail.filter(|_| *printed == 0);
    let container = Some(main_container(pod).to_owned());
    let parameters = LogParams { container, follow, tail_lines, ..LogParams::default() };
    let mut lines = match api.log_stream(name, &parameters).await {
        Ok(lines) => facts::Pieces::new(lines),
        // its job ended meanwhile and took it along
        Err(kube::Error::Api(status)) if is_gone(&status, name) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut before = *printed;
    loop {
        let piece = lines.next().await.map_err(|error| ClientError::Unreachable {
            server: Some(cluster.server.clone()),
            local: cluster.local,
            source: Box::new(error),
        })?;
        let Some(piece) = piece else { break };
        let Piece::Line { text: line, .. } = piece else { continue };
        if before > 0 {
            before = before.saturating_sub(1);
            continue;
        }
        *printed = printed.saturating_add(1);
        put(&line);
    }
    let _ = std::io::stdout().flush();
    Ok(())
}

fn put(line: &str) {
    // a closed pipe (`| head`) ends the command, as no reader is left
    if writeln!(std::io::stdout().lock(), "{line}").is_err() {
        std::process::exit(i32::from(exit::OK));
    }
}
