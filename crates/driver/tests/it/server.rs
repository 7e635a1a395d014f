//! An API server that a test scripts: a few kinds in memory, and faults by name.

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use objects::packed::{Handed, Packed};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// What goes wrong with a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// This code and reason, in place of what was asked for.
    Refuse(u16, &'static str),
    /// This code, without a Status; and the seconds after which to come again.
    Busy(u16, u64),
    /// Done, but the connection breaks before the answer.
    Lost,
    /// Done, but only half of the answer arrives.
    Cut,
    /// Answered after so long.
    Slow(Duration),
    /// Somebody else writes the object just before.
    Outrun,
    /// A watch that tells nothing.
    Silent,
    /// A watch that ends as it begins.
    Short,
    /// A watch that says at once that its revision is too old.
    TooOld,
}

struct Planned {
    /// How the request begins: method, and path without `/apis/example.dev/v1`.
    on: &'static str,
    times: usize,
    fault: Fault,
}

type Reply = UnsyncBoxBody<Bytes, io::Error>;
type Line = Result<http_body::Frame<Bytes>, io::Error>;

struct Watcher {
    plural: String,
    lines: UnboundedSender<Line>,
    is_silent: bool,
}

#[derive(Default)]
struct State {
    /// By plural, namespace and name as in paths: `things/ns/a`.
    objects: BTreeMap<String, Value>,
    revision: u64,
    /// Each change: its revision, plural, type and object.
    history: Vec<(u64, String, &'static str, Value)>,
    watchers: Vec<Watcher>,
    log: Vec<String>,
    planned: Vec<Planned>,
    /// The objects of answers to those who take them as they are held.
    handed: Vec<Arc<Packed>>,
}

#[derive(Clone, Default)]
pub struct Server(Arc<Mutex<State>>);

/// Larger parts are invalid.
const SIZE_MAX: u64 = 100;

const GROUP: &str = "/apis/example.dev/v1";

fn status(code: u16, reason: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": format!("{reason}, says the server")})
}

type Answer = Result<Value, (u16, &'static str)>;

impl State {
    fn told(&self, plural: &str, kind: &str, object: &Value) {
        for watcher in self.watchers.iter().filter(|watcher| watcher.plural == plural && !watcher.is_silent) {
            let _ = watcher.lines.unbounded_send(Ok(line(kind, object)));
        }
    }

    fn store(&mut self, plural: &str, key: &str, kind: &'static str, mut object: Value) -> Value {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self.objects.insert(key.to_owned(), object.clone());
        self.history.push((self.revision, plural.to_owned(), kind, object.clone()));
        self.told(plural, kind, &object);
        object
    }

    fn answer(&mut self, method: &Method, path: &str, body: Value) -> Answer {
        let path = path.split('?').next().unwrap_or_default();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != "namespaces").collect();
        let key = |namespace: &str, plural: &str, name: &str| format!("{plural}/{namespace}/{name}");
        match (method.as_str(), parts.as_slice()) {
            ("GET", [plural]) => {
                let prefix = format!("{plural}/");
                let items: Vec<&Value> = self
                    .objects
                    .range(prefix.clone()..)
                    .take_while(|(key, _)| key.starts_with(&prefix))
                    .map(|(_, object)| object)
                    .collect();
                Ok(json!({"kind": "List", "metadata": {"resourceVersion": self.revision.to_string()}, "items": items}))
            }
            ("GET", [namespace, plural, name]) => {
                self.objects.get(&key(namespace, plural, name)).cloned().ok_or((404, "NotFound"))
            }
            ("POST", [namespace, plural]) => {
                let key = key(namespace, plural, body["metadata"]["name"].as_str().unwrap_or_default());
                if self.objects.contains_key(&key) {
                    return Err((409, "AlreadyExists"));
                }
                if *plural == "parts" && body["spec"]["size"].as_u64().is_some_and(|size| size > SIZE_MAX) {
                    return Err((422, "Invalid"));
                }
                let mut object = body;
                object["metadata"]["uid"] = format!("uid-{key}").into();
                Ok(self.store(plural, &key, "ADDED", object))
            }
            ("PUT", [namespace, plural, name]) => {
                let key = key(namespace, plural, name);
                let Some(held) = self.objects.get(&key) else { return Err((404, "NotFound")) };
                if held["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                    return Err((409, "Conflict"));
                }
                Ok(self.store(plural, &key, "MODIFIED", body))
            }
            ("PATCH", [namespace, plural, name, ..]) => {
                let key = key(namespace, plural, name);
                let Some(mut object) = self.objects.get(&key).cloned() else { return Err((404, "NotFound")) };
                reconcile::testing::merge(&mut object, &body);
                Ok(self.store(plural, &key, "MODIFIED", object))
            }
            _ => Err((404, "NotFound")),
        }
    }

    /// Somebody else's write to the object of this path.
    fn outrun(&mut self, path: &str) {
        let _ =
            self.answer(&Method::PATCH, path, json!({"metadata": {"labels": {"outrun": self.revision.to_string()}}}));
    }

    /// A watch: what has changed since the revision, and what will.
    fn watch(&mut self, path: &str, fault: Option<&Fault>) -> impl futures::Stream<Item = Line> + use<> {
        let plural = path.trim_start_matches('/').split('?').next().unwrap_or_default().to_owned();
        let since = path.split("resourceVersion=").nth(1).and_then(|rest| rest.split('&').next()?.parse().ok());
        let since: u64 = since.expect("a watch begins at a revision");
        let (lines, stream) = unbounded();
        let is_silent = matches!(fault, Some(Fault::Silent));
        let missed = self.history.iter().filter(|(revision, of, ..)| *revision > since && *of == plural);
        for (_, _, kind, object) in missed.filter(|_| !is_silent) {
            let _ = lines.unbounded_send(Ok(line(kind, object)));
        }
        match fault {
            Some(Fault::TooOld) => _ = lines.unbounded_send(Ok(line("ERROR", &status(410, "Expired")))),
            Some(Fault::Short) => {}
            _ => self.watchers.push(Watcher { plural, lines, is_silent }),
        }
        stream
    }
}

fn line(kind: &str, object: &Value) -> http_body::Frame<Bytes> {
    http_body::Frame::data(format!("{}\n", json!({"type": kind, "object": object})).into())
}

fn discovery(path: &str) -> Value {
    let resource = |group: &str, kind: &str, plural: &str| {
        json!({"resource": plural, "responseKind": {"group": group, "version": "v1", "kind": kind}, "scope": "Namespaced",
            "singularResource": kind.to_lowercase(), "verbs": ["create", "get", "list", "patch", "update", "watch"]})
    };
    let (name, resources) = if path == "/api" {
        ("", vec![resource("", "Event", "events")])
    } else {
        ("example.dev", vec![resource("example.dev", "Thing", "things"), resource("example.dev", "Part", "parts")])
    };
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": [{"metadata": {"name": name}, "versions": [{"version": "v1", "resources": resources}]}]})
}

impl Server {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// A client without a socket.
    pub fn client(&self) -> Client {
        let server = self.clone();
        Client::new(tower::service_fn(move |request| server.clone().serve(request)), "default")
    }

    /// The next `times` requests that begin like this meet the fault.
    pub fn plan(&self, on: &'static str, times: usize, fault: Fault) {
        self.state().planned.push(Planned { on, times, fault });
    }

    /// Faults are over.
    pub fn mend(&self) {
        self.state().planned.clear();
    }

    /// What a user does.
    pub fn user(&self, method: Method, path: &str, body: Value) -> Value {
        self.state().answer(&method, path, body).unwrap()
    }

    pub fn get(&self, key: &str) -> Value {
        self.state().objects.get(key).cloned().unwrap_or_default()
    }

    pub fn all(&self, plural: &str) -> Vec<Value> {
        let state = self.state();
        state.objects.iter().filter(|(key, _)| key.starts_with(&format!("{plural}/"))).map(|(_, o)| o.clone()).collect()
    }

    /// Ends the watches of a kind: cleanly, or in the middle of a line.
    pub fn end_watches(&self, plural: &str, cut: bool) {
        let mut state = self.state();
        for watcher in state.watchers.extract_if(.., |watcher| watcher.plural == plural) {
            if cut {
                let _ = watcher.lines.unbounded_send(Ok(http_body::Frame::data("{\"type\": \"MODI".into())));
                let _ = watcher.lines.unbounded_send(Err(io::ErrorKind::ConnectionReset.into()));
            }
        }
    }

    /// The server forgets its history: watches end with 410, and so do those that begin where they ended.
    pub fn forget(&self, plural: &str) {
        let state = self.state();
        for watcher in state.watchers.iter().filter(|watcher| watcher.plural == plural) {
            let _ = watcher.lines.unbounded_send(Ok(line("ERROR", &status(410, "Expired"))));
        }
    }

    /// The last Thing of this name that was handed over, as it is held.
    pub fn handed(&self, name: &str) -> Option<Arc<Packed>> {
        let state = self.state();
        let is_it = |tree: &Value| tree["kind"] == "Thing" && tree["metadata"]["name"] == name;
        state.handed.iter().rev().find(|object| is_it(&object.open())).cloned()
    }

    /// Requests since the last call, as `METHOD path`; watches apart.
    pub fn heard(&self) -> (Vec<String>, Vec<String>) {
        std::mem::take(&mut self.state().log).into_iter().partition(|line| !line.contains("watch=true"))
    }

    async fn serve(self, request: Request<Body>) -> Result<Response<Reply>, io::Error> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.to_string();
        if path == "/api" || path == "/apis" {
            return Ok(whole(200, &discovery(&path)));
        }
        let body = body.collect_bytes().await.map_err(io::Error::other)?;
        let handed = parts.extensions.get::<Handed>();
        assert!(handed.is_none() || body.is_empty(), "a tree has no text beside it");
        let body = match handed {
            Some(Handed(tree)) => (**tree).clone(),
            None => serde_json::from_slice(&body).unwrap_or_default(),
        };
        let path = path.strip_prefix(GROUP).or(path.strip_prefix("/api/v1")).expect("a path of ours").to_owned();
        let path = path.replace("/namespaces", "");
        let is_watch = path.contains("watch=true");
        let (fault, answer) = {
            let mut state = self.state();
            let heard = format!("{} {path}", parts.method);
            state.log.push(heard.clone());
            let planned = state.planned.iter_mut().find(|planned| {
                let same = heard.starts_with(planned.on)
                    && is_watch == matches!(planned.fault, Fault::Silent | Fault::Short | Fault::TooOld);
                same && planned.times > 0
            });
            let fault = planned.map(|planned| {
                planned.times -= 1;
                planned.fault.clone()
            });
            match &fault {
                Some(Fault::Refuse(code, reason)) => return Ok(whole(*code, &status(*code, reason))),
                Some(Fault::Busy(code, seconds)) => {
                    let mut answer = whole(*code, &Value::Null);
                    answer.headers_mut().insert(http::header::RETRY_AFTER, (*seconds).into());
                    return Ok(answer);
                }
                Some(Fault::Outrun) => state.outrun(&path),
                _ => {}
            }
            if is_watch {
                let lines = state.watch(&path, fault.as_ref());
                return Ok(in_pieces(lines));
            }
            let answer = state.answer(&parts.method, &path, body);
            (fault, answer)
        };
        let answer = match answer {
            Ok(object) if handed.is_some() => {
                let text = object.to_string().into_bytes();
                let object = Arc::new(Packed::new(Arc::new(object), text));
                self.state().handed.push(object.clone());
                let mut answer = Response::new(Full::default().map_err(|never| match never {}).boxed_unsync());
                answer.extensions_mut().insert(object);
                answer
            }
            Ok(object) => whole(200, &object),
            Err((code, reason)) => whole(code, &status(code, reason)),
        };
        match fault {
            Some(Fault::Lost) => Err(io::ErrorKind::ConnectionReset.into()),
            Some(Fault::Slow(delay)) => {
                tokio::time::sleep(delay).await;
                Ok(answer)
            }
            Some(Fault::Cut) => {
                let bytes = answer.into_body().collect().await?.to_bytes();
                let half = Ok(http_body::Frame::data(bytes.slice(..bytes.len() / 2)));
                Ok(in_pieces(futures::stream::iter([half, Err(io::ErrorKind::UnexpectedEof.into())])))
            }
            _ => Ok(answer),
        }
    }
}

fn whole(code: u16, body: &Value) -> Response<Reply> {
    let bytes = Full::new(Bytes::from(body.to_string()));
    Response::builder().status(code).body(bytes.map_err(|never| match never {}).boxed_unsync()).unwrap()
}

fn in_pieces(pieces: impl futures::Stream<Item = Line> + Send + 'static) -> Response<Reply> {
    Response::new(StreamBody::new(pieces).boxed_unsync())
}
