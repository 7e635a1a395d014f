//! `delete`, `suspend` and `resume`, of jobs of all kinds.

use crate::jobs::until;
use crate::{consent, exit, output, tell};
use api::job_kind::JobKind;
use api::object;
use client::codes::ErrorCode;
use client::{ClientError, Cluster, Kind, value};
use facts::Subject;
use facts::ending::{Ending, wait_for_pods};
use grammar::{DeleteArgs, Format, ResumeArgs, SuspendArgs};
use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use std::io::IsTerminal;
use view::job::is_finished;
use view::trials::PARENT;

/// How many names are listed before a deletion.
const NAMED_MAX: usize = 10;

/// Deletes jobs and, unless told not to, waits until their pods are gone.
pub(crate) async fn delete(cluster: &Cluster, args: &DeleteArgs) -> Result<u8, ClientError> {
    // look first: a typo in the second name should not cost the first job
    let jobs = match args.selects() {
        true => selected(cluster, args).await?,
        false => named(cluster, &args.jobs).await?,
    };
    if args.selects() && !agreed(&jobs, args)? {
        return Ok(exit::OK);
    }
    let parameters = if args.no_wait { DeleteParams::background() } else { DeleteParams::foreground() };
    for job in &jobs {
        match cluster.api(job.kind.into()).delete(&job.name, &parameters).await {
            // it ended meanwhile, as trials do with their search
            Err(kube::Error::Api(status)) if status.code == 404 && args.selects() => {}
            done => drop(done?),
        }
    }
    if !args.no_wait {
        for job in &jobs {
            let gone = until(cluster, job.kind.into(), &job.name, |object| object.is_none());
            match job.pods() {
                // its pods are counted meanwhile
                Some(labels) => {
                    let (gone, _left) = tokio::try_join!(gone, wait_for_pods(cluster, &labels, tell))?;
                    drop(gone);
                }
                None => drop(gone.await?),
            }
        }
    }
    match args.output.output {
        format @ (Format::Json | Format::Yaml) => {
            let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
            output::print(&json!({"deleted": names}), format);
        }
        Format::Name | Format::Table | Format::Wide => {
            jobs.iter().for_each(|job| println!("{} deleted", job.full_name()));
        }
    }
    Ok(exit::OK)
}

/// The jobs that flags choose: all, those that are over, those that are old, those with these labels.
async fn selected(cluster: &Cluster, args: &DeleteArgs) -> Result<Vec<Subject>, ClientError> {
    let now = Timestamp::now();
    let before = args.older_than.map(|age| now.checked_sub(age).unwrap_or(Timestamp::MIN));
    let parameters = ListParams::default().labels(args.selector.as_deref().unwrap_or_default());
    let mut jobs = Vec::new();
    for kind in JobKind::ALL {
        let listed = match cluster.api(kind.into()).list(&parameters).await.map_err(ClientError::from) {
            // a cluster need not have all kinds
            Err(ClientError::NotServed | ClientError::Forbidden { .. }) if kind != JobKind::Train => continue,
            listed => listed?,
        };
        for object in listed.items.iter().map(value) {
            let made: Option<Timestamp> = object::meta(&object, "creationTimestamp").parse().ok();
            // a trial goes with its search, and a part of one is no result
            let is_trial = object::label(&object, PARENT).is_some() && object::controller_of(&object).is_some();
            let is_meant = !is_trial
                && (!args.finished || is_finished(kind, &object))
                && before.is_none_or(|before| made.is_some_and(|made| made < before));
            if is_meant {
                jobs.push(Subject { kind, name: object::meta(&object, "name").to_owned(), object });
            }
        }
    }
    Ok(jobs)
}

/// Names what will be deleted; in a terminal asks first.
fn agreed(jobs: &[Subject], args: &DeleteArgs) -> Result<bool, ClientError> {
    if jobs.is_empty() {
        eprintln!("no job matches the flags; nothing is deleted");
        return Ok(false);
    }
    let running = jobs.iter().filter(|job| !job.is_finished()).count();
    let names: Vec<String> = jobs.iter().take(NAMED_MAX).map(Subject::short_name).collect();
    let more = jobs.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let title = if jobs.len() == 1 { "1 job".to_owned() } else { format!("{} jobs", jobs.len()) };
    let unfinished = match running {
        0 => String::new(),
        running => format!(" ({running} not finished)"),
    };
    eprintln!("deleting {title}{unfinished}: {}{more}", names.join(", "));
    if args.yes || !std::io::stdin().is_terminal() {
        return Ok(true);
    }
    consent::is_given("nothing is deleted")
}

async fn named(cluster: &Cluster, names: &[String]) -> Result<Vec<Subject>, ClientError> {
    let mut jobs: Vec<Subject> = Vec::new();
    for name in names {
        let job = Subject::find(cluster, name).await?;
        if jobs.iter().all(|known| (known.kind, &known.name) != (job.kind, &job.name)) {
            jobs.push(job);
        }
    }
    Ok(jobs)
}

/// Suspends jobs and, unless told not to, waits until their processes have ended.
pub(crate) async fn suspend(cluster: &Cluster, args: &SuspendArgs) -> Result<u8, ClientError> {
    let jobs = changeable(cluster, &args.jobs, "suspend").await?;
    let mut written = Vec::new();
    for job in &jobs {
        written.push(cluster.suspend(job.kind, &job.name, true).await?);
    }
    for job in &jobs {
        let left = match job.pods().filter(|_| !args.no_wait) {
            Some(labels) => wait_for_pods(cluster, &labels, tell).await?,
            None => Ending::default(),
        };
        if let Some(left) = left.sentence() {
            eprintln!("{left}; look at them: trainyard describe {}{}", job.short_name(), cluster.flags);
        }
    }
    report(&jobs, &written, "suspended", args.output.output);
    Ok(exit::OK)
}

/// Resumes jobs.
pub(crate) async fn resume(cluster: &Cluster, args: &ResumeArgs) -> Result<u8, ClientError> {
    let jobs = changeable(cluster, &args.jobs, "resume").await?;
    let mut written = Vec::new();
    for job in &jobs {
        written.push(cluster.suspend(job.kind, &job.name, false).await?);
        if let Some(labels) = job.pods()
            && let Ok(pods) = cluster.list(Kind::Pod, &labels).await
        {
            let leaving = pods.iter().filter(|pod| object::is_terminating(pod)).map(|pod| (pod, true));
            if let Some(left) = Ending::of(leaving, Timestamp::now()).sentence() {
                eprintln!("{}: {left}; the job starts after that", job.name);
            }
        }
    }
    report(&jobs, &written, "resumed", args.output.output);
    Ok(exit::OK)
}

/// The jobs of these names, all of which can be suspended or resumed.
async fn changeable(cluster: &Cluster, names: &[String], verb: &str) -> Result<Vec<Subject>, ClientError> {
    let jobs = named(cluster, names).await?;
    for job in &jobs {
        if job.is_finished() {
            let (title, state) = (job.title(), job.state());
            let has = if job.kind == JobKind::Mpi { "has" } else { "is" };
            return Err(ClientError::Api(
                ErrorCode::NothingToDo,
                format!("{title} {has} {state}: there is nothing to {verb}"),
            ));
        }
        if job.kind == JobKind::Search {
            return Err(job.without_pods(cluster, verb).await);
        }
    }
    Ok(jobs)
}

fn report(jobs: &[Subject], written: &[Value], what: &str, format: Format) {
    match (format, written) {
        (Format::Json | Format::Yaml, [one]) => output::print(one, format),
        (Format::Json | Format::Yaml, many) => {
            output::print(&json!({"apiVersion": "v1", "kind": "List", "items": many}), format);
        }
        (Format::Name | Format::Table | Format::Wide, _) => {
            jobs.iter().for_each(|job| println!("{} {what}", job.full_name()));
        }
    }
}
