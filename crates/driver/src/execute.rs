//! Carries out a decision: writes, then status, then events.

use crate::cache::Cache;
use crate::events::Recorder;
use crate::generate;
use crate::informer::chain;
use crate::requests::{RequestError, Requests};
use api::object::{self, Key, Target};
use http::Method;
use reconcile::{Decision, Event, Fate, OnError, Op, PatchBody, Propagation, StatusWrite, World};
use serde_json::{Map, Value, json};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// How carrying out a decision ended.
pub(crate) enum Outcome {
    Done,
    /// The view was stale (conflict): look again.
    Again,
    Failed(Vec<String>),
}

/// Expected flow: writes in order; the status if no write failed for good; the events if the status is written.
///
/// Guarantees: a conflict ends it at once and is no error. A write marked `Continue` that fails is reported and retried,
/// and what follows it is done all the same.
pub(crate) async fn execute(
    requests: &Requests,
    cache: &Cache,
    recorder: &Recorder,
    target: &Target,
    decision: Decision,
) -> Outcome {
    let Decision { writes, status, events, next: _, report: _ } = decision;
    let primary = cache.get(&target.gvk, &target.key);
    let mut failures = Vec::new();
    for write in writes {
        let error = match perform(requests, cache, &write.op).await {
            Ok(changed) => {
                if let (true, Some(event)) = (changed, &write.on_success) {
                    record(recorder, primary.as_deref(), event).await;
                }
                continue;
            }
            Err(error) => error,
        };
        if error.fate() == Fate::Again {
            return Outcome::Again;
        }
        let text = about_the_prefix(chain(&error), &write.op);
        let go_on = match &write.on_error {
            OnError::Stop => false,
            OnError::Continue => true,
            OnError::EventThenStop(event) | OnError::EventThenContinue(event) => {
                record(recorder, primary.as_deref(), &event.about_error(&text)).await;
                matches!(write.on_error, OnError::EventThenContinue(_))
            }
            OnError::EventThenStatus(event, status) => {
                record(recorder, primary.as_deref(), &event.about_error(&text)).await;
                match write_status(requests, target, &status.about_error(&text)).await {
                    Ok(object) => cache.wrote(object),
                    Err(error) => failures.push(chain(&error)),
                }
                false
            }
        };
        failures.push(text);
        if !go_on {
            return Outcome::Failed(failures);
        }
    }
    if let Some(status) = status {
        match write_status(requests, target, &status).await {
            Ok(object) => cache.wrote(object),
            Err(error) if error.code() == 404 => return Outcome::Done,
            Err(error) if error.fate() == Fate::Again => return Outcome::Again,
            Err(error) => {
                failures.push(chain(&error));
                return Outcome::Failed(failures);
            }
        }
    }
    for event in &events {
        record(recorder, primary.as_deref(), event).await;
    }
    if failures.is_empty() { Outcome::Done } else { Outcome::Failed(failures) }
}

async fn write_status(requests: &Requests, target: &Target, status: &StatusWrite) -> Result<Value, RequestError> {
    let (method, content_type, body) = match status {
        StatusWrite::Replace(object) => (Method::PUT, JSON, object),
        StatusWrite::Merge(body) => (Method::PATCH, MERGE, body),
    };
    requests.send(method, &target.gvk, &target.key, "/status", content_type, Some(body)).await
}

/// Records an event, unless there is nothing that it could be about: a controller's key need not name an object.
async fn record(recorder: &Recorder, primary: Option<&Value>, event: &Event) {
    if let Some(object) = primary.or(event.regarding.as_ref()) {
        recorder.record(object, event).await;
    }
}

/// Speaks of the prefix where a name was made from one, as the API server does when it makes the name: the texts for
/// several attempts are then equal, and their events are counted up.
fn about_the_prefix(text: String, op: &Op) -> String {
    match op {
        Op::Create { object } | Op::CreateGenerated { object, .. }
            if !object::meta(object, "generateName").is_empty() =>
        {
            let (name, prefix) = (object::meta(object, "name"), object::meta(object, "generateName"));
            text.replace(&format!("{name:?}"), &format!("{prefix:?}"))
        }
        _ => text,
    }
}

/// Whether it changed anything: false where the object to create was there already, or the one to change or delete gone.
async fn perform(requests: &Requests, cache: &Cache, op: &Op) -> Result<bool, RequestError> {
    match op {
        Op::Create { object } => create(requests, cache, object).await,
        Op::CreateGenerated { object, generator } => {
            let object = generate::fill(object, *generator);
            create(requests, cache, &object).await
        }
        Op::Apply { object, manager } => {
            let target = Target::of(object);
            let tail = format!("?fieldManager={manager}&force=true");
            let content_type = "application/apply-patch+yaml";
            let result =
                requests.send(Method::PATCH, &target.gvk, &target.key, &tail, content_type, Some(object)).await?;
            cache.wrote(result);
            Ok(true)
        }
        Op::Update { object } => {
            let target = Target::of(object);
            let result = requests.send(Method::PUT, &target.gvk, &target.key, "", JSON, Some(object)).await?;
            cache.wrote(result);
            Ok(true)
        }
        Op::Patch { target, subresource, body } => {
            let (content_type, body) = match body {
                PatchBody::Merge(body) => (MERGE, body),
                PatchBody::Json(body) => ("application/json-patch+json", body),
                PatchBody::Strategic(body) => ("application/strategic-merge-patch+json", body),
            };
            let tail = subresource.map(|name| format!("/{name}")).unwrap_or_default();
            let result = requests.send(Method::PATCH, &target.gvk, &target.key, &tail, content_type, Some(body)).await;
            match result {
                Ok(result) => cache.wrote(result),
                // it was to be changed, and is gone: the watch will tell
                Err(error) if error.code() == 404 => return Ok(false),
                Err(error) => return Err(error),
            }
            Ok(true)
        }
        Op::Subresource { target, subresource, object } => {
            let method = if matches!(*subresource, "binding" | "eviction") { Method::POST } else { Method::PUT };
            let tail = format!("/{subresource}");
            let result = requests.send(method, &target.gvk, &target.key, &tail, JSON, Some(object)).await?;
            if !object::uid(&result).is_empty() {
                cache.wrote(result);
            }
            Ok(true)
        }
        Op::Delete { target, propagation, uid, resource_version, grace_secs } => {
            let options = delete_options(*propagation, uid.as_deref(), resource_version.as_deref(), *grace_secs);
            match requests.send(Method::DELETE, &target.gvk, &target.key, "", JSON, Some(&options)).await {
                Ok(result) if object::is_terminating(&result) && !object::uid(&result).is_empty() => {
                    cache.wrote(result)
                }
                Ok(_) => {}
                Err(error) if error.code() == 404 => return Ok(false),
                Err(error) => return Err(error),
            }
            Ok(true)
        }
        Op::DeleteCollection { gvk, namespace } => {
            let options = delete_options(Propagation::Background, None, None, None);
            let collection = Key::new(namespace, "");
            requests.send(Method::DELETE, gvk, &collection, "", JSON, Some(&options)).await?;
            Ok(true)
        }
        Op::Absent { target, uid } => {
            match requests.send(Method::GET, &target.gvk, &target.key, "", JSON, None).await {
                Ok(held) if object::uid(&held) == uid => Err(RequestError::StillThere(target.clone())),
                Ok(_) => Ok(false),
                Err(error) if error.code() == 404 => Ok(false),
                Err(error) => Err(error),
            }
        }
    }
}

async fn create(requests: &Requests, cache: &Cache, object: &Value) -> Result<bool, RequestError> {
    let target = Target::of(object);
    let collection = Key::new(&target.key.namespace, "");
    match requests.send(Method::POST, &target.gvk, &collection, "", JSON, Some(object)).await {
        Ok(result) => cache.wrote(result),
        // names are deterministic: our own earlier write, or somebody's object that the next look will show
        Err(error) if error.is("AlreadyExists") => return Ok(false),
        Err(error) => return Err(error),
    }
    Ok(true)
}

fn delete_options(
    propagation: Propagation,
    uid: Option<&str>,
    resource_version: Option<&str>,
    grace_secs: Option<i64>,
) -> Value {
    let policy = match propagation {
        Propagation::Background => "Background",
        Propagation::Foreground => "Foreground",
        Propagation::Orphan => "Orphan",
    };
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
    let mut preconditions = Map::new();
    for (name, value) in [("uid", uid), ("resourceVersion", resource_version)] {
        if let Some(value) = value {
            preconditions.insert(name.to_owned(), value.into());
        }
    }
    if !preconditions.is_empty() {
        options["preconditions"] = Value::Object(preconditions);
    }
    if let Some(secs) = grace_secs {
        options["gracePeriodSeconds"] = secs.into();
    }
    options
}
