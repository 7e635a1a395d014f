//! Watches: events of the store as a stream of JSON lines or protobuf frames, each encoded once for all watches that see it the same
//! way.

use super::Server;
use super::answer::{Body, object_bytes, response};
use super::lines::{Change, Kind, View};
use super::node_life::NodeLife;
use crate::negotiate::{Accepted, Form, JSON, PROTOBUF_STREAM};
use crate::protobuf;
use crate::query::ListOptions;
use crate::registry::{Object, Served, Target, parse_revision, too_large};
use crate::table::{self, Include, Shown};
use bytes::Bytes;
use http::Response;
use resource::status::Status;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use store::{Event, Gone, Interest, Key, Revision, Watcher};
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

/// A client that has taken nothing for so long is cut off if more events wait for it than [`BEHIND`].
const STALL: Duration = Duration::from_secs(1);
/// Bytes of events that may wait for a client that takes nothing. Upstream ends such a watch, too; the client goes on from the
/// last event that it got, or lists again.
const BEHIND: usize = 4 << 20;

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
        self.target.served.selects(&self.options, object)
    }

    /// One line: `{"type":…,"object":…}`; for clients that take protobuf, one frame.
    fn line(&self, kind: &str, object: &Object) -> Vec<u8> {
        if self.accepted.streams_protobuf() {
            return match self.accepted.form {
                Form::Metadata | Form::MetadataList => {
                    frame(kind, &table::metadata(&object.value(), self.accepted.form_version))
                }
                Form::Object | Form::Table => frame(kind, &object.value()),
            };
        }
        let mut out = Vec::with_capacity(64);
        out.extend_from_slice(br#"{"type":""#);
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(br#"","object":"#);
        match self.accepted.form {
            Form::Object => match object {
                Object::Stored(entry) => out.extend_from_slice(&entry.bytes()),
                Object::Made(_) => {
                    out.extend_from_slice(&object_bytes(object, self.target.served.resource.custom));
                }
            },
            Form::Table | Form::Metadata | Form::MetadataList => {
                self.shape(kind, object, &mut out);
            }
        }
        out.extend_from_slice(b"}\n");
        out
    }

    /// The object as a table or as its metadata.
    fn shape(&self, kind: &str, object: &Object, out: &mut Vec<u8>) {
        let version = self.accepted.form_version;
        let tree = object.value();
        let text = object.text();
        let shown = Shown { tree: &tree, text: text.as_deref() };
        if matches!(self.accepted.form, Form::Metadata | Form::MetadataList) {
            return shown.write_metadata(version, out);
        }
        let served: &Served = &self.target.served;
        let mut row = table::row(served, shown, self.include, version, self.server.core.world.now());
        if kind == "BOOKMARK" {
            row.without_object();
        }
        let columns = (!self.columns_sent).then(|| table::columns(served));
        let meta = json!({"resourceVersion": api::object::resource_version(&tree)});
        out.extend_from_slice(&table::table(columns, [|out: &mut Vec<u8>| row.write(out)], &meta, version));
    }

    fn bookmark(&mut self, revision: Revision, initial_end: bool) -> Bytes {
        let served = &self.target.served;
        let mut meta = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let mut object = json!({"kind": served.resource.kind, "apiVersion": served.api_version(), "metadata": meta});
        // with what Go always writes of the kind
        served.normalize(&mut object);
        (served.resource.facts.bookmark)(&mut object);
        let line = self.line("BOOKMARK", &Object::Made(Arc::new(object)));
        self.columns_sent = true;
        line.into()
    }

    /// An object that there was when the watch began.
    fn initial(&mut self, object: &Object) -> Vec<u8> {
        let line = self.line("ADDED", object);
        self.columns_sent = true;
        line
    }

    /// An event as the watch's selectors see it: encoded once for all watches that see it so.
    fn event(&mut self, event: &Event) -> Option<Bytes> {
        let served = self.target.served.clone();
        let change = if self.options.labels.is_empty() && self.options.fields.is_empty() {
            match (&event.previous, event.deleted) {
                (Some(_), true) => Change::Deleted,
                (None, false) => Change::Added,
                (Some(_), false) => Change::Modified,
                (None, true) => return None,
            }
        } else {
            let before =
                event.previous.as_ref().is_some_and(|previous| self.selects(&served.present(previous).value()));
            let after = !event.deleted && self.selects(&served.present(&event.entry).value());
            match (before, after) {
                (false, false) => return None,
                (false, true) => Change::Added,
                (true, true) => Change::Modified,
                (true, false) if event.deleted => Change::Deleted,
                (true, false) => Change::Left,
            }
        };
        let Accepted { encoding, form, form_version, .. } = self.accepted;
        let columns = form == Form::Table && !self.columns_sent;
        let (kind, revision, include) = (Kind(served.clone()), event.revision, self.include);
        let view = View { kind, revision, change, encoding, form, form_version, include, columns };
        let line = self.server.lines.get(view, || match (change, &event.previous) {
            (Change::Left, Some(previous)) => {
                // What it was, as of now.
                let mut last = (*served.present_value(previous)).clone();
                last["metadata"]["resourceVersion"] = event.revision.to_string().into();
                self.line("DELETED", &Object::Made(Arc::new(last))).into()
            }
            (change, _) => self.line(change.name(), &served.present(&event.entry)).into(),
        });
        self.columns_sent = true;
        Some(line)
    }
}

/// An event as protobuf (`metav1.WatchEvent`, without an envelope of its own), after its length in four bytes.
fn frame(kind: &str, object: &Value) -> Vec<u8> {
    // a stored object of a built-in kind fits its fields; were there one that does not, JSON says what it is
    let raw = protobuf::encode(object).unwrap_or_else(|| crate::wire::to_vec(object, false));
    let mut extension = Vec::with_capacity(raw.len().saturating_add(8));
    protobuf::bytes(&mut extension, 1, &raw);
    let mut event = Vec::with_capacity(extension.len().saturating_add(24));
    protobuf::bytes(&mut event, 1, kind.as_bytes());
    protobuf::bytes(&mut event, 2, &extension);
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[..], &event].concat()
}

/// The events of a chunk of frames, without their lengths.
pub(super) fn frames(chunk: &Bytes) -> impl Iterator<Item = Bytes> {
    let mut rest = chunk.clone();
    std::iter::from_fn(move || {
        let length = u32::from_be_bytes(rest.get(..4)?.try_into().ok()?);
        let end = usize::try_from(length).ok()?.checked_add(4).filter(|end| *end <= rest.len())?;
        let event = rest.split_to(end).slice(4..);
        Some(event)
    })
}

fn error_line(status: &Status, accepted: &Accepted) -> Bytes {
    if accepted.streams_protobuf() {
        return frame("ERROR", &serde_json::from_str(&status.to_json()).unwrap_or_default()).into();
    }
    let mut out = Vec::new();
    out.extend_from_slice(br#"{"type":"ERROR","object":"#);
    out.extend_from_slice(status.to_json().trim_end().as_bytes());
    out.extend_from_slice(b"}\n");
    out.into()
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
    /// Or the error that the client gets in the stream.
    watcher: Result<Watcher, Status>,
}

/// Whose changes can be seen through a watch at all; nobody else's wake it.
fn interest(target: &Target, options: &ListOptions) -> Interest {
    let pinned = options.fields.pinned("metadata.namespace");
    let namespace = match target.namespace.as_str() {
        "" if target.served.resource.namespaced => pinned,
        "" => Some(""),
        namespace => Some(namespace),
    };
    match (namespace, options.fields.pinned("metadata.name")) {
        (Some(namespace), Some(name)) => Interest::Object(Key::new(namespace, name)),
        (Some(""), None) | (None, _) => Interest::All,
        (Some(namespace), None) => Interest::Namespace(namespace.to_owned()),
    }
}

impl Server {
    fn start(&self, target: &Target, options: &ListOptions) -> Result<Start, Status> {
        let served = &target.served;
        served.check_fields(&options.fields)?;
        let revision = parse_revision(&options.resource_version)
            // as upstream answers
            .map_err(|why| Status::new(500, "", why.to_string()))?;
        let store = &self.core.store;
        let asks_initial = options.send_initial_events == Some(true);
        if asks_initial && revision > store.revision() {
            let watcher =
                Err(too_large(revision, store.revision(), Some(if served.resource.facts.cached { 1 } else { 3 })));
            return Ok(Start { initial: Vec::new(), mark_initial_end: false, from: revision, watcher });
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
                let signs = options.signs();
                objects.filter(|object| served.selects_object(options, &signs, object)).collect()
            } else {
                Vec::new()
            };
            let watcher = store
                .watch_some(&served.bucket, interest(target, options), snapshot.revision)
                .map_err(|gone| expired(&gone));
            // Upstream ends the initial events with a mark also where they were not asked for by name.
            let mark_initial_end = shows_state && options.bookmarks;
            return Ok(Start { initial, mark_initial_end, from: snapshot.revision, watcher });
        }
        let watcher =
            store.watch_some(&served.bucket, interest(target, options), revision).map_err(|gone| expired(&gone));
        Ok(Start { initial: Vec::new(), mark_initial_end: false, from: revision, watcher })
    }

    /// A watch as a chunked response.
    pub(crate) fn watch(
        self: &Arc<Self>,
        target: Target,
        options: ListOptions,
        accepted: Accepted,
        include: Include,
        life: Option<NodeLife>,
    ) -> Result<Response<Body>, Status> {
        let (sender, receiver) = mpsc::channel::<Vec<Bytes>>(QUEUE);
        let media_type = if accepted.streams_protobuf() { PROTOBUF_STREAM } else { JSON };
        self.spawn_watch(target, options, accepted, include, life, sender)?;
        let none = Vec::new().into_iter();
        let stream = futures::stream::unfold((receiver, none), |(mut receiver, mut chunk)| async move {
            loop {
                if let Some(line) = chunk.next() {
                    return Some((Ok::<_, Infallible>(line), (receiver, chunk)));
                }
                chunk = receiver.recv().await?.into_iter();
            }
        });
        let mut answer = response(200, media_type, Bytes::new());
        *answer.body_mut() = Body::from_stream(stream);
        Ok(answer)
    }

    /// Starts a watch that sends its lines, one event or a few at once, until its time is up, the receiver is gone, or the Node is
    /// whose agent asks.
    pub(crate) fn spawn_watch(
        self: &Arc<Self>,
        target: Target,
        options: ListOptions,
        accepted: Accepted,
        include: Include,
        life: Option<NodeLife>,
        sender: mpsc::Sender<Vec<Bytes>>,
    ) -> Result<(), Status> {
        let start = self.start(&target, &options)?;
        let deadline = api::time::after(Instant::now(), timeout(options.timeout_secs));
        let encoder = Encoder { target, options, accepted, include, server: self.clone(), columns_sent: false };
        let resource = &encoder.target.served.resource;
        let namespaced = !encoder.target.namespace.is_empty();
        let open = self.metrics.watches(&resource.group, &resource.version, &resource.plural, namespaced);
        let watching = async move {
            run(encoder, start, sender, deadline).await;
            drop(open);
        };
        tokio::spawn(self.while_it_lives(life, watching));
        Ok(())
    }
}

/// How long a watch lasts. Upstream counts nanoseconds in 64 bits, which wrap around; what is then below nothing ends at once.
fn timeout(secs: Option<i64>) -> Duration {
    match secs.unwrap_or_default().wrapping_mul(1_000_000_000) {
        0 => Duration::from_secs(rand::random_range(LONGEST_SECS)),
        nanos => Duration::from_nanos(u64::try_from(nanos).unwrap_or_default()),
    }
}

/// Lines on their way to one client.
struct Outlet {
    sender: mpsc::Sender<Vec<Bytes>>,
    lines: Vec<Bytes>,
    bytes: usize,
    /// When the watch's time is up.
    deadline: Instant,
    /// The client accepts lists of metadata only. An event cannot be one, so upstream ends the stream at the first event.
    ends_at_event: bool,
}

impl Outlet {
    fn push(&mut self, line: Bytes) {
        self.bytes = self.bytes.saturating_add(line.len());
        self.lines.push(line);
    }

    fn lines_of(&mut self, encoder: &mut Encoder, event: &Event) {
        if let Some(line) = encoder.event(event) {
            self.push(line);
        }
    }

    fn is_full(&self) -> bool {
        self.bytes > CHUNK
    }

    /// Gives what has been gathered to the client. `false`: it is gone, reads too slowly, or the watch's time is up.
    async fn hand_over(&mut self, watcher: Option<&Watcher>) -> bool {
        if self.lines.is_empty() {
            return true;
        }
        if self.ends_at_event {
            return false;
        }
        let patience = api::time::after(Instant::now(), PATIENCE).min(self.deadline);
        loop {
            let look = api::time::after(Instant::now(), STALL).min(patience);
            match tokio::time::timeout_at(look, self.sender.reserve()).await {
                Ok(Ok(place)) => {
                    place.send(std::mem::take(&mut self.lines));
                    self.bytes = 0;
                    return true;
                }
                Ok(Err(_)) => return false,
                Err(_) if Instant::now() >= patience => return false,
                Err(_) if watcher.is_some_and(|watcher| watcher.is_behind(BEHIND)) => {
                    tracing::debug!("a watch ends whose client does not read");
                    return false;
                }
                Err(_) => {}
            }
        }
    }

    /// The last lines: whether the client takes them is its own affair.
    async fn finish(mut self, line: Option<Bytes>) {
        // an error is no object that would have a form
        self.ends_at_event &= !self.lines.is_empty();
        self.lines.extend(line);
        self.hand_over(None).await;
    }
}

async fn run(mut encoder: Encoder, start: Start, sender: mpsc::Sender<Vec<Bytes>>, deadline: Instant) {
    let ends_at_event = encoder.accepted.form == Form::MetadataList;
    let mut outlet = Outlet { sender, lines: Vec::new(), bytes: 0, deadline, ends_at_event };
    let mut chunk = Vec::new();
    for object in &start.initial {
        chunk.extend_from_slice(&encoder.initial(object));
        if chunk.len() > CHUNK {
            outlet.push(std::mem::take(&mut chunk).into());
            if !outlet.hand_over(start.watcher.as_ref().ok()).await {
                return;
            }
        }
    }
    if !chunk.is_empty() {
        outlet.push(chunk.into());
    }
    if start.mark_initial_end {
        outlet.push(encoder.bookmark(start.from, true));
    }
    drop(start.initial);
    let mut watcher = match start.watcher {
        Ok(watcher) => watcher,
        Err(status) => return outlet.finish(Some(error_line(&status, &encoder.accepted))).await,
    };
    if !outlet.hand_over(Some(&watcher)).await {
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
                Ok(batch) => for event in batch.events {
                    outlet.lines_of(&mut encoder, &event);
                    drop(event);
                    if outlet.is_full() && !outlet.hand_over(Some(&watcher)).await {
                        return;
                    }
                },
                Err(gone) => return outlet.finish(Some(error_line(&expired(&gone), &encoder.accepted))).await,
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
                            outlet.lines_of(&mut encoder, event);
                        }
                        outlet.push(encoder.bookmark(watcher.revision(), false));
                    }
                    Err(gone) => return outlet.finish(Some(error_line(&expired(&gone), &encoder.accepted))).await,
                }
            },
            () = tokio::time::sleep_until(deadline) => return,
            () = outlet.sender.closed() => return,
            // What happened to the objects as their kind went is still to be told.
            () = ended.cancelled() => {
                while let Ok(batch) = watcher.poll() {
                    for event in &batch.events {
                        outlet.lines_of(&mut encoder, event);
                    }
                    if !batch.more || !outlet.hand_over(Some(&watcher)).await {
                        break;
                    }
                }
                return outlet.finish(None).await;
            }
        }
        if !outlet.hand_over(Some(&watcher)).await {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_told_apart() {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "x".repeat(300)}});
        let chunk = Bytes::from([frame("ADDED", &object), frame("MODIFIED", &object)].concat());
        let events: Vec<Bytes> = frames(&chunk).collect();
        assert_eq!(events.len(), 2);
        assert_eq!((&events[0][..7], &events[1][..10]), (&b"\x0a\x05ADDED"[..], &b"\x0a\x08MODIFIED"[..]));
        let raw = events[0].windows(4).position(|bytes| bytes == b"k8s\0").expect("an object in its envelope");
        assert_eq!(protobuf::decode(&events[0][raw..]), Ok(object));
        assert_eq!(frames(&chunk.slice(..chunk.len() - 1)).count(), 1, "what is cut off is no event");
    }
}
