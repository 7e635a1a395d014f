//! Reads a job and what belongs to it through an API server: the facts of a diagnosis, its history and logs, its place in the queue, what it
//! uses and reports.
//!
//! `diagnose`, a pure function, says why the job waits or fails: first by the process that failed by itself;
//! processes that were ended with it, or that only lost a peer, come after it. `view` says what it all looks like. What only the machine
//! itself can tell (processes, files) comes in by [`Machine`].

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod bytes;
pub mod ending;
pub mod follow;
mod gone;
pub mod history;
pub mod machine;
pub mod merged;
pub mod queue;
pub mod reader;
pub mod reports;
pub mod run_log;
mod subject;
pub mod usage;
mod waiting;

pub use bytes::{Piece, Pieces, lines, settled, whole};
pub use machine::{Machine, ThisMachine};
pub use subject::{Named, Subject, pods_of_job};
pub use waiting::{Reasons, why};

use crate::history::{Past, RunOf, Window};
use api::mpi::names::{LABEL_JOB_NAME, LABEL_JOB_ROLE, ROLE_LAUNCHER, launcher};
use api::object;
use client::codes::ErrorCode;
use client::{ClientError, Cluster, Kind, pods_of};
use diagnose::{Facts, Home, Line, LogTail, PodFacts, Reason};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, LogParams};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use view::NoSuch;
use view::bars::{is_bar, last_state};
use view::lines::Source;
use view::marks;
use view::mpijob::State;
use view::state::{Phase, final_message, last_seen, statuses};

/// Lines of each log that are read.
const TAIL: i64 = 200;
/// Logs that are read, those of failures first.
const LOGS_MAX: usize = 32;
/// Logs that are read at the same time.
const AT_ONCE: usize = 8;
/// How long a node may take to send a log: without its log a job is still judged.
const READ_MAX: Duration = Duration::from_secs(5);

/// A run of a container whose log is of interest.
struct Wanted {
    pod: Value,
    container: String,
    attempt: i64,
    /// The container's last run but one, as the API server names it.
    previous: bool,
    failed: bool,
    live: bool,
    /// The server's history has the lines.
    kept: bool,
}

/// The error of a command that asked for a part of a job which is not there.
pub fn missing(part: NoSuch) -> ClientError {
    let code = match part {
        NoSuch::Rank(_) => ErrorCode::RankMissing,
        NoSuch::Attempt(_) => ErrorCode::AttemptMissing,
    };
    ClientError::Usage(code, part.to_string())
}

/// All facts of a job. What may not be read is left out.
///
/// Errors: the pods or events cannot be listed.
pub async fn of(cluster: &Cluster, job: Value, machine: &impl Machine) -> Result<Facts, ClientError> {
    let mut facts = objects(cluster, job).await?;
    let name = object::meta(&facts.job, "name").to_owned();
    let job = history::Job::Train(&name);
    let past = history::of(cluster, job).await.unwrap_or_default();
    if let Some(past) = &past {
        add(&mut facts, past);
    }
    gone::add(&mut facts);
    facts.logs = logs(cluster, job, &facts, past.as_ref()).await;
    facts.modules = machine.modules(&facts);
    // whether it gets on is asked of jobs at work alone
    if Phase::of(&facts.job) == Phase::Running {
        (facts.reports, facts.processors) =
            futures::join!(reports::kept_reports(cluster, &facts.job), usage::processors(cluster, &name));
        if cluster.local {
            facts.processes = machine.processes(&facts);
        }
    }
    Ok(facts)
}

/// All facts of an MPIJob.
///
/// Errors: the pods or events cannot be listed.
pub async fn of_mpijob(cluster: &Cluster, job: Value) -> Result<Facts, ClientError> {
    let name = object::meta(&job, "name");
    let (labels, launcher) = (format!("{LABEL_JOB_NAME}={name}"), launcher(name));
    let (pods, events, launcher, nodes) = futures::join!(
        cluster.list(Kind::Pod, &labels),
        events(cluster, name),
        cluster.find(Kind::Job, &launcher),
        nodes(cluster),
    );
    let events = events?;
    let uid = object::uid(&job);
    let launcher = launcher.ok().flatten();
    let launcher = launcher.filter(|held| object::controller_of(held).is_some_and(|owner| owner["uid"] == uid));
    let pods = pods?.into_iter().map(|pod| PodFacts { pod, live: true, attempt: 1 }).collect();
    let mut facts = Facts {
        jobs: launcher.into_iter().collect(),
        nodes,
        pods,
        events,
        now: Timestamp::now(),
        home: home(cluster),
        job,
        ..Facts::default()
    };
    let name = object::meta(&facts.job, "name").to_owned();
    let job = history::Job::Mpi(&name);
    let past = history::of(cluster, job).await.unwrap_or_default();
    // of those that are gone the last launcher alone, once the job has failed: that pods were ended with it, or while it was suspended,
    // says nothing
    if State::of(&facts.job) == State::Failed
        && !facts.pods.iter().any(|pod| is_launcher(&pod.pod))
        && let Some(last) = past.as_ref().and_then(|past| past.pods.iter().rfind(|old| is_launcher(&old.pod)))
    {
        facts.pods.push(PodFacts { pod: last.pod.clone(), live: false, attempt: last.attempt });
    }
    facts.logs = logs(cluster, job, &facts, past.as_ref()).await;
    Ok(facts)
}

/// All facts of a JobSet that no other job has made, without logs.
///
/// Errors: its pods or events cannot be listed.
pub async fn of_jobset(cluster: &Cluster, jobset: Value) -> Result<Facts, ClientError> {
    let name = object::meta(&jobset, "name");
    let labels = pods_of(name);
    let (pods, events, jobs) =
        futures::join!(cluster.pods(name), events(cluster, name), cluster.list(Kind::Job, &labels));
    let events = events?;
    let pods = pods?.into_iter().map(|pod| PodFacts { pod, live: true, attempt: 1 }).collect();
    let jobs = jobs.unwrap_or_default();
    Ok(Facts { job: jobset, jobs, pods, events, now: Timestamp::now(), home: home(cluster), ..Facts::default() })
}

fn is_launcher(pod: &Value) -> bool {
    object::label(pod, LABEL_JOB_ROLE) == Some(ROLE_LAUNCHER)
}

/// The events that may be about a job and what it made, the last one last. On a cluster that is all of the namespace.
///
/// Errors: they cannot be listed.
pub async fn events(cluster: &Cluster, job: &str) -> Result<Vec<Value>, ClientError> {
    let mut events = match history::events(cluster, job).await? {
        Some(events) => events,
        None => cluster.list(Kind::Event, "").await?,
    };
    events.sort_by(|a, b| last_seen(a).cmp(last_seen(b)));
    Ok(events)
}

/// The nodes; none where they may not be read.
async fn nodes(cluster: &Cluster) -> Vec<Value> {
    let list = cluster.api_all(Kind::Node).list(&ListParams::default()).await;
    list.map(|list| list.items.iter().map(client::value).collect()).unwrap_or_default()
}

/// The same without logs and history.
async fn objects(cluster: &Cluster, job: Value) -> Result<Facts, ClientError> {
    let name = object::meta(&job, "name").to_owned();
    let labels = pods_of(&name);
    let (pods, events, jobset, jobs, nodes) = futures::join!(
        cluster.pods(&name),
        events(cluster, &name),
        cluster.find(Kind::JobSet, &name),
        cluster.list(Kind::Job, &labels),
        nodes(cluster),
    );
    let events = events?;
    let attempt = attempt_of(&job);
    let pods = pods?.into_iter().map(|pod| PodFacts { pod, live: true, attempt }).collect();
    Ok(Facts {
        // without the right to read them, or without their kind, there is less to tell
        jobset: jobset.ok().flatten().unwrap_or_default(),
        jobs: jobs.unwrap_or_default(),
        nodes,
        pods,
        events,
        now: Timestamp::now(),
        home: home(cluster),
        job,
        ..Facts::default()
    })
}

/// The attempt that the job is at. While the next one waits, what is there is still of the one before.
fn attempt_of(job: &Value) -> i64 {
    use api::trainer::annotations::ATTEMPT;
    object::annotation(job, ATTEMPT).and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// What leads a command that is typed back to this server.
pub fn home(cluster: &Cluster) -> Home {
    let namespace = format!(" -n {}", cluster.namespace);
    Home {
        flags: cluster.flags.trim().to_owned(),
        kubectl: format!("kubectl{}{namespace}", cluster.kubectl_flags),
        local: cluster.local,
    }
}

/// Adds the pods that are gone, and says of those that are there which attempt they belong to.
fn add(facts: &mut Facts, past: &Past) {
    for old in &past.pods {
        match facts.pods.iter_mut().find(|pod| object::uid(&pod.pod) == object::uid(&old.pod)) {
            Some(pod) => pod.attempt = old.attempt,
            None => facts.pods.push(PodFacts { pod: old.pod.clone(), live: false, attempt: old.attempt }),
        }
    }
}

/// The ends of the logs of containers that failed, and of those at work.
async fn logs(cluster: &Cluster, job: history::Job<'_>, facts: &Facts, past: Option<&Past>) -> Vec<LogTail> {
    let mut wanted: Vec<Wanted> = facts.pods.iter().flat_map(|pod| runs(pod, past)).collect();
    // a pod that is gone has its log in the history or nowhere, and a node that is silent sends none
    wanted.retain(|run| run.kept || (run.live && answers(facts, &run.pod)));
    wanted.sort_by_key(|run| (!run.failed, !run.live));
    wanted.truncate(LOGS_MAX);
    let reads = futures::stream::iter(wanted).map(|run| async move {
        let read = tokio::time::timeout(READ_MAX, read(cluster, job, &run)).await;
        read.ok().flatten()
    });
    let mut logs: Vec<LogTail> = reads.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
    logs.sort_by(|a, b| (&a.pod, &a.container, a.attempt).cmp(&(&b.pod, &b.container, b.attempt)));
    logs
}

/// Whether the node of a pod is heard of, as far as nodes may be read.
fn answers(facts: &Facts, pod: &Value) -> bool {
    let name = object::text(&pod["spec"], "nodeName");
    let node = facts.nodes.iter().find(|node| object::meta(node, "name") == name);
    node.and_then(diagnose::pods::readiness).is_none_or(|ready| ready["status"] != "Unknown")
}

/// The runs of a pod's containers whose logs are read: the last one that failed, and the one that goes on.
fn runs(pod: &PodFacts, past: Option<&Past>) -> Vec<Wanted> {
    let uid = object::uid(&pod.pod);
    let kept: BTreeSet<(&str, i64)> = past
        .and_then(|past| past.pods.iter().find(|old| object::uid(&old.pod) == uid))
        .into_iter()
        .flat_map(|old| &old.containers)
        .flat_map(|container| container.attempts.iter().map(|run| (container.name.as_str(), i64::from(run.attempt))))
        .collect();
    let mut runs = Vec::new();
    for status in statuses(&pod.pod) {
        let container = object::text(status, "name");
        let restarts = status["restartCount"].as_i64().unwrap_or(0);
        let failed = |state: &Value| state["terminated"]["exitCode"].as_i64().is_some_and(|code| code != 0);
        let mut want = |attempt: i64, previous: bool, failed: bool| {
            runs.push(Wanted {
                pod: pod.pod.clone(),
                container: container.to_owned(),
                attempt,
                previous,
                failed,
                live: pod.live,
                kept: kept.contains(&(container, attempt)),
            });
        };
        if failed(&status["state"]) {
            want(restarts, false, true);
        } else if failed(&status["lastState"]) {
            // while a container waits to be started again, its last run is what the API server calls its log
            let waits = status["state"]["waiting"].is_object();
            want(restarts.saturating_sub(1), !waits, true);
        }
        if status["state"]["running"].is_object() {
            want(restarts, false, false);
        }
    }
    runs
}

async fn read(cluster: &Cluster, job: history::Job<'_>, run: &Wanted) -> Option<LogTail> {
    let uid = object::uid(&run.pod);
    let lines: Vec<(String, String)> = if run.kept {
        let of = RunOf { pod: uid, container: &run.container, attempt: u32::try_from(run.attempt).unwrap_or(0) };
        history::lines(cluster, job, of, Window { tail: Some(TAIL), ..Window::default() }).await.ok()?
    } else {
        let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
        let parameters = LogParams {
            container: Some(run.container.clone()),
            previous: run.previous,
            tail_lines: Some(TAIL),
            timestamps: true,
            ..LogParams::default()
        };
        let text = whole(&api, object::meta(&run.pod, "name"), &parameters).await.ok()?;
        String::from_utf8_lossy(&text)
            .lines()
            .map(history::stamped)
            .map(|(time, line)| (time.to_owned(), line.to_owned()))
            .collect()
    };
    let source = Source::of(&run.pod, run.attempt);
    let mut pieces = marks::Pieces::default();
    let mut read: Vec<Line> = Vec::new();
    let line = |time: Option<Timestamp>, text: &str| {
        let (rank, text) = source.rank_of(text);
        Line { time, rank, text: text.to_owned() }
    };
    for (time, text) in lines {
        let whole = source.whole(&mut pieces, last_state(&text));
        // a progress bar is no evidence
        if !is_bar(&whole) {
            read.push(line(time.parse().ok(), &whole));
        }
    }
    read.extend(pieces.rest().map(|text| line(None, &text)));
    Some(LogTail {
        pod: object::meta(&run.pod, "name").to_owned(),
        uid: uid.to_owned(),
        container: run.container.clone(),
        attempt: run.attempt,
        lines: read,
    })
}

/// The facts that a list of jobs is judged by: no events, no logs.
pub fn of_list(cluster: &Cluster, job: &Value, jobset: &Value, pods: &[Value], now: Timestamp) -> Facts {
    let pods = pods.iter().map(|pod| PodFacts { pod: pod.clone(), live: true, attempt: 1 }).collect();
    Facts { job: job.clone(), jobset: jobset.clone(), pods, now, home: home(cluster), ..Facts::default() }
}

/// What a row of a list says of a job: how it ended, or why it waits. By its pods alone, as [`of_list`].
pub fn said(cluster: &Cluster, job: &Value, jobset: &Value, pods: &[Value], now: Timestamp) -> String {
    let diagnosis = diagnose::diagnose(&of_list(cluster, job, jobset, pods, now));
    match diagnosis.reason {
        // what the job itself says of its end says more than that nothing is known
        Reason::Complete | Reason::Unknown => final_message(job).to_owned(),
        Reason::Running => String::new(),
        _ => diagnosis.why,
    }
}
