//! `get`, `delete`, `suspend`, `resume`, `wait`, `runtimes`.

use crate::args::{DeleteArgs, Format, GetArgs, JobArgs, ListArgs, WaitArgs, WaitFor};
use crate::codes::ErrorCode;
use crate::connect::{Cluster, Kind, pods_of, value};
use crate::error::CliError;
use crate::exit;
use crate::facts;
use crate::follow::refused;
use crate::output;
use crate::progress;
use crate::view::{Attempts, Phase, RestartCounts, age, final_message};
use api::object::{self, Key};
use api::take::{self, Take};
use api::trainer::names::LABEL_JOBSET_NAME;
use diagnose::{Reason, Signs};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Lists jobs, or shows one.
pub(crate) async fn get(cluster: &Cluster, args: &GetArgs) -> Result<u8, CliError> {
    let format = args.output.output;
    if matches!(format, Format::Table | Format::Wide) {
        return table(cluster, args).await;
    }
    let (jobs, one) = match &args.job {
        Some(name) => (vec![cluster.job(name).await?], true),
        None if args.all_namespaces => {
            let list = cluster.api_all(Kind::TrainJob).list(&ListParams::default()).await?;
            (list.items.iter().map(value).collect(), false)
        }
        None => (cluster.list(Kind::TrainJob, "").await?, false),
    };
    match format {
        Format::Name => jobs.iter().for_each(|job| println!("trainjob.trainer.kubeflow.org/{}", name(job))),
        _ if one => output::print(&jobs[0], format),
        _ => output::print(&list_of(&jobs), format),
    }
    Ok(exit::OK)
}

/// A row for each job.
async fn table(cluster: &Cluster, args: &GetArgs) -> Result<u8, CliError> {
    let now = Timestamp::now();
    let (everywhere, is_wide) = (args.all_namespaces, args.output.output == Format::Wide);
    let mut header = vec!["NAME", "STATE", "NODES", "PROGRESS", "AGE", "RUNTIME"];
    if everywhere {
        header.insert(0, "NAMESPACE");
    }
    if is_wide {
        header.extend(["ATTEMPT", "RESTARTS", "MESSAGE"]);
    }
    let one = args.job.as_deref();
    let beside = Beside::read(cluster, one, everywhere, is_wide, now).await;
    let none = Pods::default();
    let row = |job: &Value| {
        let key = Key::of(job);
        let (jobset, pods) = (beside.jobsets.get(&key).unwrap_or(&Value::Null), beside.pods.get(&key).unwrap_or(&none));
        let mut row = vec![
            name(job).to_owned(),
            diagnose::standing_by(job, jobset, &pods.signs, now).to_string(),
            job["spec"]["trainer"]["numNodes"].as_i64().map_or("-".to_owned(), |n| n.to_string()),
            progress::percentage(job).map_or("-".to_owned(), |p| format!("{p}%")),
            age(job, now),
            object::text(&job["spec"]["runtimeRef"], "name").to_owned(),
        ];
        if everywhere {
            row.insert(0, object::meta(job, "namespace").to_owned());
        }
        if is_wide {
            row.extend(wide(cluster, job, jobset, &pods.whole, now));
        }
        row
    };
    let mut rows = Vec::new();
    match one {
        Some(name) => rows.push(row(&cluster.job(name).await?)),
        None => {
            let add = |job| rows.push(row(&job));
            cluster.each(Kind::TrainJob, everywhere, ListParams::default(), take::lean, add).await?;
        }
    }
    if rows.is_empty() {
        let mpijobs = cluster.list(Kind::MpiJob, "").await.unwrap_or_default();
        let next = match mpijobs.len() {
            0 => "start one with: trainyard run SCRIPT",
            _ => "for its MPIJobs: trainyard mpijob get",
        };
        eprintln!("no jobs in namespace {}; {next}", cluster.namespace);
    } else {
        output::table(&header, rows);
    }
    Ok(exit::OK)
}

/// What tables read beside the jobs, by job: what restarts is not said by a job itself.
struct Beside {
    /// Of a table that is not wide only those that have restarted all pods.
    jobsets: BTreeMap<Key, Value>,
    pods: BTreeMap<Key, Pods>,
}

/// The pods of a job.
#[derive(Default)]
struct Pods {
    signs: Signs,
    /// The pods themselves, for a wide table alone.
    whole: Vec<Value>,
}

impl Beside {
    /// Of one job, or of all. `is_wide`: with the objects themselves, and also with pods that have no node.
    async fn read(cluster: &Cluster, one: Option<&str>, everywhere: bool, is_wide: bool, now: Timestamp) -> Self {
        let mut jobsets = BTreeMap::new();
        let mut pods: BTreeMap<Key, Pods> = BTreeMap::new();
        let mut of_jobsets = ListParams::default();
        if let Some(name) = one {
            of_jobsets = of_jobsets.fields(&format!("metadata.name={name}"));
        }
        let mut of_pods = ListParams::default().labels(&one.map_or(LABEL_JOBSET_NAME.to_owned(), pods_of));
        if !is_wide {
            // a pod without a node has nothing to tell, but why it has none
            of_pods = of_pods.fields("spec.nodeName!=");
        }
        let add_jobset = |jobset: Value| {
            if is_wide || jobset["status"]["restarts"].as_i64().is_some_and(|restarts| restarts > 0) {
                jobsets.insert(Key::of(&jobset), jobset);
            }
        };
        let add_pod = |pod: Value| {
            let job = object::label(&pod, LABEL_JOBSET_NAME).unwrap_or_default();
            let its = pods.entry(Key::new(object::meta(&pod, "namespace"), job)).or_default();
            its.signs.see(&pod, now);
            if is_wide {
                its.whole.push(pod);
            }
        };
        let take = if is_wide { take::lean } else { but_spec };
        // nobody has to be allowed to read JobSets and pods to see his jobs
        let _unreadable = futures::join!(
            cluster.each(Kind::JobSet, everywhere, of_jobsets, take, add_jobset),
            cluster.each(Kind::Pod, everywhere, of_pods, take, add_pod)
        );
        Self { jobsets, pods }
    }
}

/// What tells of restarts.
fn but_spec(member: &str) -> Take {
    if member == "spec" { Take::Nothing } else { take::lean(member) }
}

/// Attempt, restarts (of all pods at once, and of containers) and what there is to say: how it ended, or why it waits.
fn wide(cluster: &Cluster, job: &Value, jobset: &Value, pods: &[Value], now: Timestamp) -> [String; 3] {
    let counts = RestartCounts::of(jobset, pods);
    let attempts = Attempts::of(job);
    let diagnosis = diagnose::diagnose(&facts::of_list(cluster, job, jobset, pods, now));
    let message = match diagnosis.reason {
        // what the job itself says of its end says more than that nothing is known
        Reason::Complete | Reason::Unknown => final_message(job).to_owned(),
        Reason::Running => String::new(),
        _ => diagnosis.why,
    };
    [format!("{}/{}", attempts.now, attempts.most), (counts.jobset + counts.containers).to_string(), message]
}

fn name(object: &Value) -> &str {
    object::meta(object, "name")
}

fn list_of(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// Deletes jobs and, unless told not to, waits until their pods are gone.
pub(crate) async fn delete(cluster: &Cluster, args: &DeleteArgs) -> Result<u8, CliError> {
    let api = cluster.api(Kind::TrainJob);
    // look first: a typo in the second name should not cost the first job
    for job in &args.jobs {
        cluster.job(job).await?;
    }
    let parameters = if args.no_wait { DeleteParams::background() } else { DeleteParams::foreground() };
    for job in &args.jobs {
        api.delete(job, &parameters).await?;
    }
    if !args.no_wait {
        for job in &args.jobs {
            until(cluster, Kind::TrainJob, job, |object| object.is_none()).await?;
        }
    }
    match args.output.output {
        Format::Json | Format::Yaml => output::print(&json!({"deleted": args.jobs}), args.output.output),
        Format::Name | Format::Table | Format::Wide => {
            args.jobs.iter().for_each(|job| println!("trainjob.trainer.kubeflow.org/{job} deleted"));
        }
    }
    Ok(exit::OK)
}

/// Suspends or resumes a job.
pub(crate) async fn set_suspend(cluster: &Cluster, args: &JobArgs, suspend: bool) -> Result<u8, CliError> {
    let job = cluster.job(&args.job).await?;
    if Phase::of(&job).is_finished() {
        let state = Phase::of(&job).as_str().to_lowercase();
        return Err(CliError::Api(
            ErrorCode::NothingToDo,
            format!(
                "TrainJob \"{}\" is {state}: there is nothing to {}",
                args.job,
                if suspend { "suspend" } else { "resume" }
            ),
        ));
    }
    let job = suspended(cluster, &args.job, suspend).await?;
    match args.output.output {
        Format::Json | Format::Yaml => output::print(&job, args.output.output),
        Format::Name | Format::Table | Format::Wide => {
            println!("trainjob.trainer.kubeflow.org/{} {}", args.job, if suspend { "suspended" } else { "resumed" });
        }
    }
    Ok(exit::OK)
}

/// Writes `spec.suspend`.
pub(crate) async fn suspended(cluster: &Cluster, job: &str, suspend: bool) -> Result<Value, CliError> {
    let body = Patch::Merge(json!({"spec": {"suspend": suspend}}));
    Ok(value(&cluster.api(Kind::TrainJob).patch(job, &PatchParams::default(), &body).await?))
}

/// Follows a job of either kind until `reached` says so of its state (`None`: it is gone); returns the last state.
pub(crate) async fn until(
    cluster: &Cluster,
    kind: Kind,
    job: &str,
    mut reached: impl FnMut(Option<&Value>) -> bool,
) -> Result<Option<Value>, CliError> {
    let config = watcher::Config::default().fields(&format!("metadata.name={job}"));
    let mut changes = watcher(cluster.api(kind), config).default_backoff().boxed();
    let mut last = None;
    let mut listed = None;
    loop {
        use watcher::Event;
        // errors are retried with backoff by the stream itself: the control plane may be restarting
        match changes.try_next().await {
            // what a list says holds at its end: before, an object that was not named yet is not gone
            Ok(Some(Event::Init)) => {
                listed = None;
                continue;
            }
            Ok(Some(Event::InitApply(object))) => {
                listed = Some(value(&object));
                continue;
            }
            Ok(Some(Event::InitDone)) => last = listed.take(),
            Ok(Some(Event::Apply(object))) => last = Some(value(&object)),
            Ok(Some(Event::Delete(_))) => last = None,
            Ok(None) => return Ok(last),
            Err(error) => {
                tracing::debug!(%error, "watching the job; trying again");
                if let Some(error) = refused(error) {
                    return Err(error);
                }
                continue;
            }
        }
        if reached(last.as_ref()) {
            return Ok(last);
        }
    }
}

/// Waits for a state. Exit code 0 when reached, 1 when it cannot be reached any more, 124 out of time.
pub(crate) async fn wait(cluster: &Cluster, args: &WaitArgs) -> Result<u8, CliError> {
    if args.state != WaitFor::Deleted {
        cluster.job(&args.job).await?;
    }
    let is_reached = |job: Option<&Value>| match (args.state, job.map(Phase::of)) {
        (WaitFor::Deleted, phase) => phase.is_none(),
        (_, None) => false,
        (WaitFor::Complete, Some(phase)) => phase == Phase::Complete,
        (WaitFor::Failed, Some(phase)) => phase == Phase::Failed,
        (WaitFor::Finished, Some(phase)) => phase.is_finished(),
        (WaitFor::Running, Some(phase)) => phase == Phase::Running,
        (WaitFor::Suspended, Some(phase)) => phase == Phase::Suspended,
    };
    let is_final = |job: Option<&Value>| job.is_none_or(|job| Phase::of(job).is_finished());
    let ended = until(cluster, Kind::TrainJob, &args.job, |job| {
        is_reached(job) || (args.state != WaitFor::Deleted && is_final(job))
    });
    let job = match args.timeout {
        None => ended.await?,
        Some(limit) => match tokio::time::timeout(limit, ended).await {
            Ok(job) => job?,
            Err(_) => {
                eprintln!(
                    "error[{}]: timed out: TrainJob \"{}\" is not {:?}",
                    ErrorCode::WaitTimedOut,
                    args.job,
                    args.state
                );
                eprintln!("  see where it stands: trainyard describe {}{}", args.job, cluster.flags);
                return Ok(exit::TIMEOUT);
            }
        },
    };
    let state = job.as_ref().map_or("Deleted", |job| Phase::of(job).as_str());
    match (args.output.output, &job) {
        (Format::Json | Format::Yaml, Some(job)) => output::print(job, args.output.output),
        (Format::Json | Format::Yaml, None) => output::print(&Value::Null, args.output.output),
        (Format::Name | Format::Table | Format::Wide, _) => {
            println!("trainjob.trainer.kubeflow.org/{} {}", args.job, state.to_lowercase());
        }
    }
    if is_reached(job.as_ref()) {
        return Ok(exit::OK);
    }
    eprintln!(
        "error[{}]: TrainJob \"{}\" ended as {state}: {}",
        ErrorCode::WaitInVain,
        args.job,
        job.as_ref().map_or("", final_message)
    );
    eprintln!("  see why: trainyard explain {}{}", args.job, cluster.flags);
    Ok(exit::FAILURE)
}

/// Lists the runtimes of the cluster and of the namespace.
pub(crate) async fn runtimes(cluster: &Cluster, args: &ListArgs) -> Result<u8, CliError> {
    let shared = cluster.api_all(Kind::ClusterTrainingRuntime).list(&ListParams::default()).await?;
    let mut runtimes: Vec<Value> = shared.items.iter().map(value).collect();
    runtimes.extend(cluster.list(Kind::TrainingRuntime, "").await?);
    match args.output.output {
        Format::Json | Format::Yaml => output::print(&list_of(&runtimes), args.output.output),
        Format::Name => runtimes.iter().for_each(|runtime| println!("{}", name(runtime))),
        Format::Table | Format::Wide => {
            let rows = runtimes.iter().map(|runtime| {
                let framework = object::label(runtime, "trainer.kubeflow.org/framework").unwrap_or("-");
                let nodes = runtime["spec"]["mlPolicy"]["numNodes"].as_i64().unwrap_or(1);
                let scope = if object::meta(runtime, "namespace").is_empty() { "cluster" } else { "namespace" };
                vec![name(runtime).to_owned(), framework.to_owned(), nodes.to_string(), scope.to_owned()]
            });
            output::table(&["NAME", "FRAMEWORK", "NODES", "SCOPE"], rows.collect());
        }
    }
    Ok(exit::OK)
}
