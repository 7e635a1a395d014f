//! Core/v1 Events with first and last timestamps and a count: the form that `kubectl`, and the Kubeflow SDK's
//! `get_job_events`, can read (events.k8s.io writers leave `firstTimestamp` empty, which hides them from both).

use crate::requests::{How, Requests};
use api::error_chain;
use api::object::{self, Gvk, Key};
use api::stable;
use futures::StreamExt;
use http::Method;
use reconcile::Event;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use tokio::sync::{Mutex, mpsc};

/// How many distinct events are remembered for counting up; all are forgotten beyond that, and counts go on from what is
/// stored.
const REMEMBERED_MAX: usize = 4096;

/// Events that wait to be written; a controller that makes more waits with them.
const WAITING_MAX: usize = 4096;

/// Events that are written at a time.
const WRITERS: usize = 16;

/// An event and what it says of the object that it is about.
struct Entry {
    regarding: Value,
    event: Event,
    /// The program whose event it is.
    agent: Option<&'static str>,
}

/// Writes events beside the controllers' own work: an event is a durable write like any other, and no decision waits for
/// one. Equal ones are counted up. An event that cannot be written is logged and dropped, and so are those that still wait
/// when the driver stops.
pub(crate) struct Recorder {
    requests: Arc<Requests>,
    counts: Mutex<BTreeMap<String, u64>>,
    sender: mpsc::Sender<Entry>,
    receiver: std::sync::Mutex<Option<mpsc::Receiver<Entry>>>,
}

/// The object without all that no event says of it.
fn named(object: &Value) -> Value {
    json!({
        "apiVersion": object::text(object, "apiVersion"), "kind": object::text(object, "kind"),
        "metadata": {
            "namespace": object::meta(object, "namespace"), "name": object::meta(object, "name"),
            "uid": object::uid(object), "resourceVersion": object::resource_version(object),
        },
    })
}

impl Recorder {
    pub(crate) fn new(requests: Arc<Requests>) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        Self { requests, counts: Mutex::default(), sender, receiver: std::sync::Mutex::new(Some(receiver)) }
    }

    /// Hands the event over; about `primary` where it does not say about whom.
    pub(crate) async fn record(&self, primary: &Value, event: &Event, agent: Option<&'static str>) {
        let regarding = named(event.regarding.as_ref().unwrap_or(primary));
        // nobody writes any more once the driver has stopped
        let _ = self.sender.send(Entry { regarding, event: event.clone(), agent }).await;
    }

    /// Writes what is handed over, until cancelled. To be spawned once.
    pub(crate) async fn run(&self) {
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(receiver) = receiver else { return };
        let entries = futures::stream::unfold(receiver, |mut receiver| async move {
            let entry = receiver.recv().await?;
            Some((entry, receiver))
        });
        entries.for_each_concurrent(WRITERS, |entry| async move { self.count_and_write(&entry).await }).await;
    }

    async fn count_and_write(&self, entry: &Entry) {
        let Entry { regarding, event, .. } = entry;
        let said: [&str; 5] =
            [object::uid(regarding), &event.reason, &event.message, event.kind.as_str(), event.reporter];
        let name = format!("{}.{}", object::meta(regarding, "name"), stable::digits(said));
        let count = {
            let mut counts = self.counts.lock().await;
            if counts.len() > REMEMBERED_MAX {
                counts.clear();
            }
            let count = counts.entry(format!("{}/{name}", object::meta(regarding, "namespace"))).or_default();
            *count += 1;
            *count
        };
        if let Err(error) = self.write(entry, &name, count).await {
            // one that nobody has seen does not count
            let mut counts = self.counts.lock().await;
            if let Some(count) = counts.get_mut(&format!("{}/{name}", object::meta(regarding, "namespace"))) {
                *count = count.saturating_sub(1);
            }
            drop(counts);
            tracing::warn!(event = event.reason, about = %Key::of(regarding), error = %error_chain(&error), "dropped an event");
        }
    }

    async fn write(
        &self,
        Entry { regarding, event, agent }: &Entry,
        name: &str,
        count: u64,
    ) -> Result<(), crate::requests::RequestError> {
        let (merge, json) = ("application/merge-patch+json", "application/json");
        let [merge, json] = [merge, json].map(|content_type| How { content_type, agent: *agent });
        let gvk = Gvk::new("", "v1", "Event");
        let namespace = match object::meta(regarding, "namespace") {
            "" => "default",
            namespace => namespace,
        };
        let key = Key::new(namespace, name);
        let now = clock::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        if count > 1 {
            let body = json!({"count": count, "lastTimestamp": now});
            let patched = self.requests.send(Method::PATCH, &gvk, &key, "", merge, body).await;
            match patched {
                Ok(_) => return Ok(()),
                Err(error) if error.code() == 404 => {}
                Err(error) => return Err(error),
            }
        }
        let about = json!({
            "apiVersion": object::text(regarding, "apiVersion"), "kind": object::text(regarding, "kind"),
            "namespace": object::meta(regarding, "namespace"), "name": object::meta(regarding, "name"),
            "uid": object::uid(regarding), "resourceVersion": object::resource_version(regarding),
        });
        let mut body = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"namespace": namespace, "name": name},
            "involvedObject": about, "type": event.kind.as_str(), "reason": event.reason, "message": event.message,
            "source": {"component": event.reporter}, "reportingComponent": event.reporter,
            "firstTimestamp": now, "lastTimestamp": now, "count": count,
        });
        if !event.action.is_empty() {
            body["action"] = event.action.into();
        }
        let collection = Key::new(namespace, "");
        match self.requests.send(Method::POST, &gvk, &collection, "", json, body).await {
            // from before a restart: go on counting from what is there
            Err(error) if error.is("AlreadyExists") => {
                let held = self.requests.send(Method::GET, &gvk, &key, "", json, Value::Null).await?.open();
                let count = held["count"].as_u64().unwrap_or(1) + 1;
                let body = json!({"count": count, "lastTimestamp": now});
                self.requests.send(Method::PATCH, &gvk, &key, "", merge, body).await?;
                let held_name = format!("{namespace}/{name}");
                self.counts.lock().await.insert(held_name, count);
                Ok(())
            }
            other => other.map(|_| ()),
        }
    }
}
