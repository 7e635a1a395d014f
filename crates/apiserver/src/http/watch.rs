//! Watches: events of the store as a stream of JSON lines.

use super::Server;
use super::answer::{Body, object_bytes, response};
use crate::negotiate::{Accepted, Form};
use crate::query::ListOptions;
use crate::registry::{Object, Served, Target, parse_revision, too_large};
use crate::status::Status;
use crate::table::{self, Include};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use store::{Event, Gone, Revision, Watcher};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Between bookmarks of a watch that asked for them.
const BOOKMARK_EVERY: Duration = Duration::from_secs(30);
/// A last bookmark comes this long before a watch's time is up.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Watches without a timeout of their own end after 30 to 60 minutes, as upstream, so that clients spread over restarts.
const LONGEST_SECS: std::ops::Range<u64> = 1800..3600;
/// Chunks that wait for a slow client; after that the watch waits. Thousands of clients may read nothing: what a watch holds
/// for its own must be small.
const QUEUE: usize = 1;
/// Bytes of a chunk, but for the last event in it.
const CHUNK: usize = 16 << 10;
/// How long a client may take for a chunk before it is cut off: it lists again, or it is gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// What turns events into bytes.
pub(crate) struct Encoder {
    pub(crate) target: Target,
    pub(crate) options: ListOptions,
    pub(crate) accepted: Accepted,
    pub(crate) include: Include,
    pub(crate) server: Arc<Server>,
    /// Only the first event of a table carries the columns.
    columns_sent: bool,
}

impl Encoder {
    fn selects(&self, object: &Value) -> bool {
        let namespace = &self.target.namespace;
        (namespace.is_empty() || api::object::meta(object, "namespace") == namespace)
            && self.target.served.selects(&self.options, object)
    }

    /// One line: `{"type":…,"object":…}`.
    fn line(&mut self, kind: &str, object: &Object, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"type":""#);
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(br#"","object":"#);
        match self.accepted.form {
            Form::Object => match object {
                Object::Stored(entry) => out.extend_from_slice(&entry.bytes),
                Object::Made(_) => {
                    out.extend_from_slice(&object_bytes(object, self.target.served.resource.custom));
                }
            },
            Form::Table | Form::Metadata | Form::MetadataList => {
                let shaped = self.shaped(kind, object.value());
                out.extend_from_slice(&crate::wire::to_vec(&shaped, false));
            }
        }
        out.extend_from_slice(b"}\n");
    }

    fn shaped(&mut self, kind: &str, object: &Value) -> Value {
        let version = self.accepted.form_version;
        if matches!(self.accepted.form, Form::Metadata | Form::MetadataList) {
            return table::metadata(object, version);
        }
        let served: &Served = &self.target.served;
        let mut row = table::row(served, object, self.include, version, self.server.core.world.now());
        if kind == "BOOKMARK"
            && let Some(cells) = row["cells"].as_array_mut()
        {
            // There is no object that a row could be about.
            for cell in cells.iter_mut().filter(|c| *c == "<invalid>") {
                *cell = "<unknown>".into();
            }
        }
        let columns = (!self.columns_sent).then(|| table::columns(served));
        self.columns_sent = true;
        let meta = json!({"resourceVersion": api::object::resource_version(object)});
        table::table(columns, vec![row], meta, version)
    }

    fn bookmark(&mut self, revision: Revision, initial_end: bool, out: &mut Vec<u8>) {
        let served = &self.target.served;
        let mut meta = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({"kind": served.resource.kind, "apiVersion": served.api_version(), "metadata": meta});
        self.line("BOOKMARK", &Object::Made(Arc::new(object)), out);
    }

    /// An event as the watch's selectors see it.
    fn event(&mut self, event: &Event, out: &mut Vec<u8>) {
        let served = self.target.served.clone();
        let before = event.previous.as_ref().map(|entry| served.present(entry)).filter(|o| self.selects(o.value()));
        let now = served.present(&event.entry);
        let after = (!event.deleted && self.selects(now.value())).then_some(&now);
        match (before, after) {
            (None, None) => {}
            (None, Some(now)) => self.line("ADDED", now, out),
            (Some(_), Some(now)) => self.line("MODIFIED", now, out),
            (Some(_), None) if event.deleted => self.line("DELETED", &now, out),
            (Some(before), None) => {
                // Left the selection: what it was, as of now.
                let mut last = (**before.value()).clone();
                last["metadata"]["resourceVersion"] = event.revision.to_string().into();
                self.line("DELETED", &Object::Made(Arc::new(last)), out);
            }
        }
    }
}

fn error_line(status: &Status, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"type":"ERROR","object":"#);
    out.extend_from_slice(status.to_json().trim_end().as_bytes());
    out.extend_from_slice(b"}\n");
}

fn expired(gone: &Gone) -> Status {
    Status::new(410, "Expired", gone.to_string())
}

/// Where a watch begins.
struct Start {
    /// Objects to show as added first.
    initial: Vec<Object>,
    mark_initial_end: bool,
    from: Revision,
    watcher: Result<Watcher, Gone>,
}

impl Server {
    fn start(&self, target: &Target, options: &ListOptions) -> Result<Start, Status> {
        let served = &target.served;
        served.check_fields(&options.fields)?;
        let revision = parse_revision(&options.resource_version)?;
        let store = &self.core.store;
        let asks_initial = options.send_initial_events == Some(true);
        if asks_initial && revision > store.revision() {
            return Err(too_large(revision, store.revision()));
        }
        let shows_state = match options.send_initial_events {
            Some(asked) => asked,
            None => revision == 0,
        };
        if shows_state || (revision == 0) {
            let snapshot = store.snapshot(&served.bucket);
            let initial = if shows_state {
                let namespace = (!target.namespace.is_empty()).then_some(target.namespace.as_str());
                let objects = snapshot.iter(namespace, None).map(|entry| served.present(entry));
                objects.filter(|o| served.selects(options, o.value())).collect()
            } else {
                Vec::new()
            };
            let watcher = store.watch(&served.bucket, snapshot.revision);
            // Upstream ends the initial events with a mark also where they were not asked for by name.
            let mark_initial_end = shows_state && options.bookmarks;
            return Ok(Start { initial, mark_initial_end, from: snapshot.revision, watcher });
        }
        let watcher = store.watch(&served.bucket, revision);
        Ok(Start { initial: Vec::new(), mark_initial_end: false, from: revision, watcher })
    }

    /// A watch as a chunked response.
    pub(crate) fn watch(
        self: &Arc<Self>,
        target: Target,
        options: ListOptions,
        accepted: Accepted,
        include: Include,
    ) -> Result<Response<Body>, Status> {
        let (sender, receiver) = mpsc::channel::<Bytes>(QUEUE);
        self.spawn_watch(target, options, accepted, include, sender)?;
        let stream = futures::stream::unfold(receiver, |mut receiver| async move {
            let chunk = receiver.recv().await?;
            Some((Ok::<_, Infallible>(chunk), receiver))
        });
        let mut answer = response(200, "application/json", Bytes::new());
        *answer.body_mut() = Body::from_stream(stream);
        Ok(answer)
    }

    /// Starts a watch that sends its lines, one event or a few at once, until its time is up or the receiver is gone.
    pub(crate) fn spawn_watch(
        self: &Arc<Self>,
        target: Target,
        options: ListOptions,
        accepted: Accepted,
        include: Include,
        sender: mpsc::Sender<Bytes>,
    ) -> Result<(), Status> {
        let start = self.start(&target, &options)?;
        let secs = options.timeout_secs.and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0);
        let secs = secs.unwrap_or_else(|| rand::random_range(LONGEST_SECS));
        let deadline = api::time::after(Instant::now(), Duration::from_secs(secs));
        let encoder = Encoder { target, options, accepted, include, server: self.clone(), columns_sent: false };
        tokio::spawn(run(encoder, start, sender, deadline));
        Ok(())
    }
}

/// Gives what has been gathered to the client. `false`: it is gone, reads too slowly, or the watch's time is up.
async fn hand_over(sender: &mpsc::Sender<Bytes>, out: &mut Vec<u8>, deadline: Instant) -> bool {
    if out.is_empty() {
        return true;
    }
    let patience = api::time::after(Instant::now(), PATIENCE).min(deadline);
    let sent = tokio::time::timeout_at(patience, sender.send(std::mem::take(out).into())).await;
    matches!(sent, Ok(Ok(())))
}

async fn run(mut encoder: Encoder, start: Start, sender: mpsc::Sender<Bytes>, deadline: Instant) {
    let mut out = Vec::new();
    for object in &start.initial {
        encoder.line("ADDED", object, &mut out);
        if out.len() > CHUNK && !hand_over(&sender, &mut out, deadline).await {
            return;
        }
    }
    if start.mark_initial_end {
        encoder.bookmark(start.from, true, &mut out);
    }
    drop(start.initial);
    let mut watcher = match start.watcher {
        Ok(watcher) => watcher,
        Err(gone) => {
            error_line(&expired(&gone), &mut out);
            drop(sender.send(out.into()).await);
            return;
        }
    };
    if !hand_over(&sender, &mut out, deadline).await {
        return;
    }
    let bookmarks = encoder.options.bookmarks;
    let ended = encoder.target.served.custom.as_ref().map(|c| c.ended.clone()).unwrap_or_default();
    let mut last_bookmark = deadline.checked_sub(BOOKMARK_BEFORE_END).filter(|at| *at > Instant::now());
    let mut next_bookmark = api::time::after(Instant::now(), BOOKMARK_EVERY);
    loop {
        let bookmark_at = last_bookmark.map_or(next_bookmark, |last| last.min(next_bookmark));
        tokio::select! {
            batch = watcher.next() => match batch {
                Ok(batch) if batch.events.is_empty() => return,
                Ok(batch) => for event in &batch.events {
                    encoder.event(event, &mut out);
                    if out.len() > CHUNK && !hand_over(&sender, &mut out, deadline).await {
                        return;
                    }
                },
                Err(gone) => {
                    error_line(&expired(&gone), &mut out);
                    drop(sender.send(out.into()).await);
                    return;
                }
            },
            () = tokio::time::sleep_until(bookmark_at), if bookmarks => {
                if last_bookmark.is_some_and(|at| at <= Instant::now()) {
                    last_bookmark = None;
                }
                next_bookmark = api::time::after(Instant::now(), BOOKMARK_EVERY);
                // Only what has been sent may be promised.
                match watcher.poll() {
                    Ok(batch) => {
                        for event in &batch.events {
                            encoder.event(event, &mut out);
                        }
                        encoder.bookmark(watcher.revision(), false, &mut out);
                    }
                    Err(gone) => {
                        error_line(&expired(&gone), &mut out);
                        drop(sender.send(out.into()).await);
                        return;
                    }
                }
            },
            () = tokio::time::sleep_until(deadline) => return,
            () = sender.closed() => return,
            // What happened to the objects as their kind went is still to be told.
            () = ended.cancelled() => {
                if let Ok(batch) = watcher.poll() {
                    for event in &batch.events {
                        encoder.event(event, &mut out);
                    }
                }
                if !out.is_empty() {
                    drop(sender.send(out.into()).await);
                }
                return;
            }
        }
        if !hand_over(&sender, &mut out, deadline).await {
            return;
        }
    }
}
