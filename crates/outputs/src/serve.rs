//! Serves the output of managed jobs: `GET …/managedjobs/NAME/log` of `history.trainyard.dev`.
//!
//! | Parameter | What it asks for |
//! |---|---|
//! | `task=N` | one task [default: all] |
//! | `follow=true` | lines to come, until the task or the job has ended |
//! | `tail=N` | the last N lines of what is there |
//! | `places=true` | before each line the place after it, `0.1.run.4096`; after the last line, a line with a dot |
//! | `from=PLACE` | what comes after a place |

use crate::store::Outputs;
use crate::stream::{Of, Request, Streaming};
use api::job_history;
use api::sky::{ManagedJob, managed_job_gvk};
use apiserver::delegate::{Delegate, Text, Wanted};
use apiserver::query::Query;
use futures::StreamExt;
use futures::future::BoxFuture;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use resource::status::Status;
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// The output of managed jobs, as an API.
#[derive(Clone)]
pub struct ManagedLogs {
    outputs: Outputs,
    /// The API server, which is made after this part of it.
    server: Arc<OnceLock<Client>>,
}

impl ManagedLogs {
    pub fn new(outputs: Outputs) -> Self {
        Self { outputs, server: Arc::default() }
    }

    /// Says where the API server is.
    pub fn connect(&self, client: &Client) {
        drop(self.server.set(client.clone()));
    }

    async fn log(self, wanted: Wanted, request: Request) -> Result<Text, Status> {
        let Wanted { version, namespace, plural, name } = wanted;
        let not_found = || Status::not_found(job_history::GROUP, &plural, &name);
        if version != job_history::VERSION || plural != job_history::MANAGED_JOBS || namespace.is_empty() {
            return Err(not_found());
        }
        let starting = || Status::new(503, "ServiceUnavailable", "the server is starting");
        let client = self.server.get().ok_or_else(starting)?.clone();
        let job = managed_job(&client, &namespace, &name).await?.ok_or_else(not_found)?;
        let outputs = self.outputs.clone();
        // the watch may be late
        let job = tokio::task::spawn_blocking(move || outputs.saw_job(&job)).await;
        let job = job.map_err(|error| Status::internal(error.to_string()))?.ok_or_else(not_found)?;
        let streaming = Streaming::new(self.outputs, Of { client, namespace, name, job }, request);
        let chunks = futures::stream::unfold(streaming, |mut streaming| async move {
            let chunk = streaming.next().await?;
            Some((chunk, streaming))
        });
        Ok(chunks.boxed())
    }
}

/// A job as the API has it; `None`: there is none.
pub(crate) async fn managed_job(client: &Client, namespace: &str, name: &str) -> Result<Option<ManagedJob>, Status> {
    let failed = |error: &dyn std::fmt::Display| Status::internal(format!("the job cannot be read: {error}"));
    let gvk = managed_job_gvk();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(&gvk.group, &gvk.version, &gvk.kind));
    let jobs: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    let found = match jobs.get_opt(name).await {
        Ok(Some(found)) => serde_json::to_value(&found),
        Ok(None) => return Ok(None),
        Err(kube::Error::Api(status)) => return Err(Status::new(status.code, "InternalError", status.message)),
        Err(error) => return Err(failed(&error)),
    };
    found.and_then(serde_json::from_value).map(Some).map_err(|error| failed(&error))
}

fn request(query: &Query) -> Result<Request, Status> {
    let wrong = |name: &str, what: &str| Status::bad_request(format!("{name} must be {what}"));
    let number = |name: &'static str| match query.int(name)? {
        None => Ok(None),
        Some(number) => u32::try_from(number).map(Some).map_err(|_| wrong(name, "a number from 0 on")),
    };
    let from = match query.text("from") {
        "" => None,
        text => Some(text.parse().map_err(|_| wrong("from", "a place such as 0.1.run.4096"))?),
    };
    Ok(Request {
        task: number("task")?,
        follow: query.flag("follow"),
        tail: number("tail")?.map(|lines| lines as usize),
        from,
        places: query.flag("places"),
    })
}

impl Delegate for ManagedLogs {
    fn group(&self) -> &'static str {
        job_history::GROUP
    }

    fn has(&self, plural: &str) -> bool {
        plural == job_history::MANAGED_JOBS
    }

    fn get(&self, wanted: Wanted) -> BoxFuture<'static, Result<Value, Status>> {
        let missing = Status::not_found(job_history::GROUP, &wanted.plural, &wanted.name);
        Box::pin(std::future::ready(Err(missing)))
    }

    fn text(&self, wanted: Wanted, subresource: &str, query: &Query) -> BoxFuture<'static, Result<Text, Status>> {
        if subresource != job_history::LOG {
            let part = format!("{}/{subresource}", wanted.plural);
            let missing = Status::not_found(job_history::GROUP, &part, &wanted.name);
            return Box::pin(std::future::ready(Err(missing)));
        }
        match request(query) {
            Ok(request) => Box::pin(self.clone().log(wanted, request)),
            Err(wrong) => Box::pin(std::future::ready(Err(wrong))),
        }
    }
}
