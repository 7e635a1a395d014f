//! `wait`, `runtimes`.

use crate::exit;
use crate::output;
use api::job_kind::JobKind;
use api::object;
use client::codes::ErrorCode;
use client::{ClientError, Cluster, Kind, value};
use facts::ending::refused;
use futures::{StreamExt, TryStreamExt};
use grammar::{Format, ListArgs, WaitArgs, WaitFor};
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use view::job::is_finished;
use view::state::{Phase, final_message};

fn name(object: &Value) -> &str {
    object::meta(object, "name")
}

fn list_of(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// Follows a job of either kind until `reached` says so of its state (`None`: it is gone); returns the last state.
pub(crate) async fn until(
    cluster: &Cluster,
    kind: Kind,
    job: &str,
    mut reached: impl FnMut(Option<&Value>) -> bool,
) -> Result<Option<Value>, ClientError> {
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

/// Waits for a state of a TrainJob or a search. Exit code 0 when reached, 1 when it cannot be reached any more, 124 out of time.
pub(crate) async fn wait(cluster: &Cluster, of: JobKind, name: &str, args: &WaitArgs) -> Result<u8, ClientError> {
    let (kind, title) = (Kind::from(of), of.title());
    if args.state != WaitFor::Deleted && cluster.find(kind, name).await?.is_none() {
        return Err(cluster.not_found(kind, title, name).await);
    }
    let state = |job: &Value| match of {
        JobKind::Train | JobKind::Mpi => Phase::of(job).as_str(),
        JobKind::Search => view::trials::state(job),
    };
    let is_reached = |job: Option<&Value>| match (args.state, job.map(state)) {
        (WaitFor::Deleted, state) => state.is_none(),
        (_, None) => false,
        (WaitFor::Complete, Some(state)) => state == "Complete",
        (WaitFor::Failed, Some(state)) => state == "Failed",
        (WaitFor::Finished, Some(state)) => matches!(state, "Complete" | "Failed"),
        (WaitFor::Running, Some(state)) => state == "Running",
        (WaitFor::Suspended, Some(state)) => state == "Suspended",
    };
    let is_final = |job: Option<&Value>| job.is_none_or(|job| is_finished(of, job));
    let ended = until(cluster, kind, name, |job| is_reached(job) || (args.state != WaitFor::Deleted && is_final(job)));
    let job = match args.timeout {
        None => ended.await?,
        Some(limit) => match tokio::time::timeout(limit, ended).await {
            Ok(job) => job?,
            Err(_) => {
                let wanted = &args.state;
                eprintln!("error[{}]: timed out: {title} {name:?} is not {wanted:?}", ErrorCode::WaitTimedOut);
                eprintln!("  see why: trainyard explain {}{}", of.short_name(name), cluster.flags);
                return Ok(exit::TIMEOUT);
            }
        },
    };
    let state = job.as_ref().map_or("Deleted", state);
    match (args.output.output, &job) {
        (Format::Json | Format::Yaml, Some(job)) => output::print(job, args.output.output),
        (Format::Json | Format::Yaml, None) => output::print(&Value::Null, args.output.output),
        (Format::Name | Format::Table | Format::Wide, _) => {
            println!("{} {}", of.full_name(name), state.to_lowercase());
        }
    }
    if is_reached(job.as_ref()) {
        return Ok(exit::OK);
    }
    let message = job.as_ref().map_or("", final_message);
    eprintln!("error[{}]: {title} {name:?} ended as {state}: {message}", ErrorCode::WaitInVain);
    eprintln!("  see why: trainyard explain {}{}", of.short_name(name), cluster.flags);
    Ok(exit::FAILURE)
}

/// Lists the runtimes of the cluster and of the namespace.
pub(crate) async fn runtimes(cluster: &Cluster, args: &ListArgs) -> Result<u8, ClientError> {
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
