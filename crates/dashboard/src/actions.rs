//! What a page does to jobs: suspend, resume, delete, several at once. Everything is done with the user's own token.

use crate::job::Named;
use crate::problem::Problem;
use crate::row::Kind;
use crate::server::SignedIn;
use api::job_kind::JobKind;
use api::object;
use axum::Json;
use axum::extract::Path;
use axum::extract::rejection::JsonRejection;
use client::{ClientError, Cluster};
use facts::pods_of_job;
use futures::StreamExt;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde::{Deserialize, Serialize};
use serde_json::json;
use view::trials;

/// Jobs of one request.
const JOBS_MAX: usize = 500;
/// Jobs that are changed at the same time.
const AT_ONCE: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verb {
    Suspend,
    Resume,
    Delete,
}

/// A job that is meant: by its uid, too, so that a later one of the same name is not.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Meant {
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Request {
    verb: Verb,
    jobs: Vec<Meant>,
    /// Only say what would happen.
    #[serde(default)]
    dry_run: bool,
}

/// What happened to one job, or would happen.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outcome {
    kind: String,
    namespace: String,
    name: String,
    /// Whether it was done, or can be.
    ok: bool,
    /// What will go or change, or why it cannot.
    message: String,
    /// The same on a command line.
    command: String,
}

/// Carries out a request, or says what it would do.
pub async fn act(
    SignedIn(session): SignedIn,
    request: Result<Json<Request>, JsonRejection>,
) -> Result<Json<Vec<Outcome>>, Problem> {
    let Json(request) = request.map_err(|error| Problem::bad_request(error.body_text()))?;
    if request.jobs.len() > JOBS_MAX {
        return Err(Problem::bad_request(format!("at most {JOBS_MAX} jobs can be changed at once")));
    }
    let Request { verb, jobs, dry_run } = request;
    let session = &session;
    let outcomes = futures::stream::iter(jobs).map(|meant| async move {
        let address = Path((meant.kind.clone(), meant.namespace.clone(), meant.name.clone()));
        let done = match Named::of(session, address) {
            Ok(named) => one(&named, verb, &meant.uid, dry_run).await.map(|message| (message, command(&named, verb))),
            Err(problem) => Err(problem),
        };
        let Meant { kind, namespace, name, .. } = meant;
        match done {
            Ok((message, command)) => Outcome { kind, namespace, name, ok: true, message, command },
            Err(problem) => {
                Outcome { kind, namespace, name, ok: false, message: problem.message, command: String::new() }
            }
        }
    });
    Ok(Json(outcomes.buffered(AT_ONCE).collect().await))
}

/// Returns what happened, or would happen, in a sentence.
async fn one(named: &Named, verb: Verb, uid: &str, dry_run: bool) -> Result<String, Problem> {
    let job = named.object().await?;
    if object::uid(&job) != uid {
        let message = format!("{} was deleted and created again since the page was loaded; reload it", named.name);
        return Err(Problem::not_found(message));
    }
    let state = crate::row::Kept::of(named.kind, &job).stands;
    let now = jiff::Timestamp::now();
    let is_over = crate::row::is_finished(&state.word(0, &diagnose::Signs::default(), now));
    match verb {
        Verb::Suspend | Verb::Resume if is_over => {
            Err(Problem::bad_request("it has ended: there is nothing to change"))
        }
        Verb::Suspend | Verb::Resume => set_suspended(named, verb == Verb::Suspend, dry_run).await,
        Verb::Delete => delete(named, uid, dry_run).await,
    }
}

async fn set_suspended(named: &Named, suspend: bool, dry_run: bool) -> Result<String, Problem> {
    let Named { kind, name, cluster } = named;
    let says = if suspend { "its processes end; it can be resumed" } else { "it starts when there is room" };
    let spec = match kind {
        Kind::TrainJob | Kind::JobSet => json!({"suspend": suspend}),
        Kind::MpiJob => json!({"runPolicy": {"suspend": suspend}}),
        Kind::OptimizationJob => {
            return Err(Problem::bad_request("a search cannot be suspended; suspend its trials, or delete it"));
        }
        Kind::ManagedJob => {
            return Err(Problem::bad_request("a managed job cannot be suspended; cancel it: sky jobs cancel"));
        }
    };
    let parameters = PatchParams { dry_run, ..PatchParams::default() };
    let body = Patch::Merge(json!({"spec": spec}));
    cluster.api((*kind).into()).patch(name, &parameters, &body).await.map_err(ClientError::from)?;
    Ok(says.to_owned())
}

async fn delete(named: &Named, uid: &str, dry_run: bool) -> Result<String, Problem> {
    let Named { kind, name, cluster } = named;
    let goes = goes(*kind, name, cluster).await;
    let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
    let parameters = DeleteParams { dry_run, preconditions, ..DeleteParams::background() };
    match cluster.api((*kind).into()).delete(name, &parameters).await {
        // it ended meanwhile, as trials do with their search
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        done => drop(done.map_err(ClientError::from)?),
    }
    Ok(goes)
}

/// What goes with a job, in words.
async fn goes(kind: Kind, name: &str, cluster: &Cluster) -> String {
    let count = async |of, labels: String, one: &str| {
        let number = cluster.list(of, &labels).await.map_or(0, |found| found.len());
        if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
    };
    let with = match (kind.of_command(), kind) {
        (_, Kind::ManagedJob) => "its machines".to_owned(),
        (Some(JobKind::Search), _) => {
            count(client::Kind::TrainJob, format!("{}={name}", trials::PARENT), "trial").await
        }
        (of, _) => {
            // a JobSet's pods have the label of a TrainJob's
            let labels = pods_of_job(of.unwrap_or(JobKind::Train), name);
            count(client::Kind::Pod, labels.unwrap_or_default(), "pod").await
        }
    };
    format!("{with} and the job's history go with it")
}

/// The same on a command line.
fn command(named: &Named, verb: Verb) -> String {
    let Named { kind, name, .. } = named;
    let word = match verb {
        Verb::Suspend => "suspend",
        Verb::Resume => "resume",
        Verb::Delete => "delete",
    };
    if let Some(command) = named.trainyard(word) {
        return command;
    }
    let (kubectl, kind) = (named.kubectl(), kind.as_str());
    match verb {
        Verb::Delete => format!("{kubectl} delete {kind} {name}"),
        Verb::Suspend | Verb::Resume => {
            let suspend = verb == Verb::Suspend;
            format!("{kubectl} patch {kind} {name} --type merge -p '{{\"spec\":{{\"suspend\":{suspend}}}}}'")
        }
    }
}
