//! Submits a job from a page: a form and its YAML, checked by the server's own dry run, which says at which field each error is.
//!
//! | Module | What it does |
//! |---|---|
//! | `form` | which fields a form has, and what the server's schema says about each |
//! | `draft` | what a form begins with: an example, or a copy of a job |
//! | `faults` | the server's refusal, taken apart into fields and sentences |

mod draft;
mod faults;
mod form;

use crate::job::{Address, Named};
use crate::problem::Problem;
use crate::row::Kind;
use crate::server::{Parameters, SignedIn};
use api::object;
use axum::Json;
use axum::extract::Path;
use axum::extract::rejection::JsonRejection;
use client::{ClientError, Cluster};
use faults::Fault;
use form::Field;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Kinds that can be submitted.
const KINDS: [Kind; 3] = [Kind::TrainJob, Kind::MpiJob, Kind::OptimizationJob];

/// What a page needs to submit a job.
#[derive(Debug, Serialize)]
pub(crate) struct Form {
    kind: Kind,
    /// The text that the editor begins with.
    draft: String,
    /// What creates it in a terminal, from a file.
    command: String,
    fields: Vec<Field>,
}

/// A form for a new job of a kind, or for a copy of a job.
pub async fn form(SignedIn(session): SignedIn, Parameters(parameters): Parameters) -> Result<Json<Form>, Problem> {
    let (mut kind, mut from) = (Kind::TrainJob, None);
    for (name, value) in parameters {
        match name.as_str() {
            "kind" => {
                let found = Kind::parse(&value).filter(|kind| KINDS.contains(kind));
                kind = found
                    .ok_or_else(|| Problem::bad_request(format!("jobs of kind {value:?} cannot be submitted here")))?;
            }
            "from" => {
                let parts: Vec<&str> = value.split('/').collect();
                let [kind, namespace, name] = parts.as_slice() else {
                    return Err(Problem::bad_request(format!("{value:?} is not KIND/NAMESPACE/NAME")));
                };
                let address: Address = Path(((*kind).to_owned(), (*namespace).to_owned(), (*name).to_owned()));
                from = Some(Named::of(&session, address)?);
            }
            _ => return Err(Problem::bad_request(format!("there is no parameter {name:?}"))),
        }
    }
    let draft = match &from {
        Some(named) if KINDS.contains(&named.kind) => {
            kind = named.kind;
            draft::copy(named.object().await?)
        }
        Some(named) => {
            return Err(Problem::bad_request(format!("a {} cannot be copied", named.kind.as_str())));
        }
        None => draft::example(kind, &session.cluster.namespace),
    };
    let fields = form::fields(&session.cluster, kind).await;
    let command = format!("kubectl{} create -f job.yaml", session.cluster.kubectl_flags);
    Ok(Json(Form { kind, draft, command, fields }))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Request {
    object: Value,
    /// Only say whether the server would take it.
    #[serde(default)]
    dry_run: bool,
}

/// What the server says about a job.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Answer {
    ok: bool,
    /// What was or would be created, or why not.
    message: String,
    faults: Vec<Fault>,
    /// The job's page.
    address: String,
}

/// Creates a job, or asks the server whether it would.
///
/// Errors: it is no job; the API server does not answer. What the API server refuses is an answer.
pub async fn submit(
    SignedIn(session): SignedIn,
    request: Result<Json<Request>, JsonRejection>,
) -> Result<Json<Answer>, Problem> {
    let Json(Request { object, dry_run }) = request.map_err(|error| Problem::bad_request(error.body_text()))?;
    let (version, word) = (object::text(&object, "apiVersion"), object::text(&object, "kind"));
    let of = |kind: &Kind| {
        let resource = client::Kind::from(*kind).resource();
        resource.kind == word && resource.api_version == version
    };
    let Some(kind) = KINDS.into_iter().find(of) else {
        let kinds: Vec<String> = KINDS
            .map(|kind| client::Kind::from(kind).resource())
            .map(|resource| format!("{} of {}", resource.kind, resource.api_version))
            .to_vec();
        let message = format!(
            "kind {word:?} of apiVersion {version:?} cannot be submitted here; use one of: {}",
            kinds.join(", ")
        );
        let field =
            if kinds.iter().any(|kind| kind.starts_with(&format!("{word} of"))) { "apiVersion" } else { "kind" };
        let faults = vec![Fault::at(field, &message)];
        return Ok(Json(Answer { message, faults, ..Answer::default() }));
    };
    let namespace = match object::meta(&object, "namespace") {
        "" => session.cluster.namespace.clone(),
        namespace => namespace.to_owned(),
    };
    if let Some(fault) = api::names::subdomain_faults(&namespace, false).first() {
        let message = format!("{namespace:?} is not a namespace: {fault}");
        let faults = vec![Fault::at("metadata.namespace", &message)];
        return Ok(Json(Answer { message, faults, ..Answer::default() }));
    }
    match create(&session.cluster, kind, &namespace, &object, dry_run).await {
        Ok(made) => {
            let name = object::meta(&made, "name");
            let word = client::Kind::from(kind).resource().kind;
            let (message, address) = match dry_run {
                true => (format!("the server would create {word} {name:?} in namespace {namespace}"), String::new()),
                false => {
                    let address = format!("/jobs/{}/{namespace}/{name}", kind.as_str());
                    (format!("{word} {name:?} was created in namespace {namespace}"), address)
                }
            };
            Ok(Json(Answer { ok: true, message, faults: Vec::new(), address }))
        }
        Err(kube::Error::Api(status)) if status.code != 401 => {
            let message = api::foreign::visible(&status.message).into_owned();
            Ok(Json(Answer { faults: faults::of(&status), message, ..Answer::default() }))
        }
        Err(error) => Err(ClientError::from(error).into()),
    }
}

async fn create(cluster: &Cluster, kind: Kind, namespace: &str, job: &Value, dry_run: bool) -> kube::Result<Value> {
    let resource = client::Kind::from(kind).resource();
    let dry_run = if dry_run { "&dryRun=All" } else { "" };
    let path = format!(
        "/apis/{}/{}/namespaces/{namespace}/{}?fieldValidation=Strict&fieldManager=trainyard-dashboard{dry_run}",
        resource.group, resource.version, resource.plural
    );
    let request = http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json");
    let request = request.body(job.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
    cluster.client.request(request).await
}
