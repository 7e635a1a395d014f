//! Requests on untyped objects: paths from discovery, bodies as JSON values.

use crate::Options;
use crate::limit::Limiter;
use crate::source::Held;
use api::object::{Gvk, Key};
use futures::{AsyncBufReadExt, Stream, StreamExt, TryStreamExt};
use http::header::RETRY_AFTER;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use kube::discovery::{Discovery, Scope, verbs};
use objects::packed::{Handed, Packed};
use reconcile::execution::Call;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::time::Instant;
use tracing::Instrument;
use tracing::field::Empty;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("the server does not serve {0}")]
    UnknownKind(Gvk),
    /// The API server's own words: what upstream's clients print.
    #[error("{message}")]
    Api { code: u16, reason: String, message: String, retry_after: Option<Duration> },
    #[error("the API server has not answered within {} s", ANSWER_MAX.as_secs())]
    Late,
    #[error("the API server's answer is not JSON")]
    Answer(#[source] serde_json::Error),
    #[error("cannot reach the API server")]
    Transport(#[source] Box<kube::Error>),
    #[error("cannot form the request")]
    Form(#[source] http::Error),
    #[error("cannot read the watch")]
    Stream(#[source] std::io::Error),
    #[error("the watch sent something that is not JSON")]
    Json(#[source] serde_json::Error),
}

impl RequestError {
    pub(crate) fn code(&self) -> u16 {
        if let Self::Api { code, .. } = self { *code } else { 0 }
    }

    /// How long the server asks to be left alone.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        if let Self::Api { retry_after, .. } = self { *retry_after } else { None }
    }

    pub(crate) fn is(&self, wanted: &str) -> bool {
        matches!(self, Self::Api { reason, .. } if reason == wanted)
    }
}

impl From<kube::Error> for RequestError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let (reason, message) = (status.reason.clone(), status.message.clone());
                Self::Api { code: status.code, reason, message, retry_after: None }
            }
            other => Self::Transport(Box::new(other)),
        }
    }
}

/// How the server serves a kind.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub plural: String,
    pub namespaced: bool,
    /// Can be listed and watched.
    pub watchable: bool,
}

/// How many objects are asked for at a time: what is read of them is large while it is read.
const PART: usize = 500;

/// How a request is made.
#[derive(Clone, Copy)]
pub(crate) struct How<'a> {
    pub content_type: &'a str,
    /// The program that asks, where it is not the client's own.
    pub agent: Option<&'static str>,
}

/// A part of a list.
#[derive(Default)]
pub(crate) struct Part {
    pub items: Vec<Value>,
    /// The list's revision, the same for all parts.
    pub revision: String,
    /// Where the next part goes on; empty where there is none.
    pub rest: String,
}

/// How long an answer may take: an API server gives a request up after a minute. Connections that a firewall has forgotten,
/// or whose other end has lost its power, say nothing for ever.
const ANSWER_MAX: Duration = Duration::from_secs(65);

/// The server ends each watch after so many seconds; one that lasts much longer is dead.
const WATCH_SECONDS: u64 = 290;
const WATCH_MAX: Duration = Duration::from_secs(WATCH_SECONDS + 15);

/// How much of an answer that is no Status is shown in the error.
const TOLD_MAX: usize = 300;

/// A client with the discovery that it needs.
pub(crate) struct Requests {
    client: Client,
    served: RwLock<BTreeMap<Gvk, Served>>,
    limiter: Option<Limiter>,
    /// Where alone to list and watch namespaced kinds.
    namespace: String,
    selects: Option<fn(&Gvk) -> Option<&'static str>>,
    /// The server is in this process and takes trees.
    hands: bool,
}

impl Requests {
    pub(crate) fn new(client: Client, options: &Options) -> Self {
        Self {
            client,
            served: RwLock::default(),
            limiter: options.limit.map(|(per_second, burst)| Limiter::new(per_second, burst)),
            namespace: options.namespace.clone().unwrap_or_default(),
            selects: options.selects,
            hands: options.source.as_ref().is_some_and(|source| source.takes_trees()),
        }
    }

    /// What narrows a list or watch of a kind, to be put behind other parameters.
    fn selection(&self, gvk: &Gvk) -> String {
        self.selects.and_then(|selects| selects(gvk)).map_or(String::new(), |query| format!("&{query}"))
    }

    /// Waits until a request may be made.
    async fn pass(&self) {
        if let Some(limiter) = &self.limiter {
            limiter.pass().await;
        }
    }

    /// Asks the server what it serves; the answer is kept for all later requests.
    pub(crate) async fn discover(&self) -> Result<BTreeMap<Gvk, Served>, RequestError> {
        let discovery = in_time(async { Ok(Discovery::new(self.client.clone()).run_aggregated().await?) }).await?;
        let mut served = BTreeMap::new();
        for group in discovery.groups() {
            for version in group.versions() {
                for (resource, capabilities) in group.versioned_resources(version) {
                    let gvk = Gvk::new(&resource.group, &resource.version, &resource.kind);
                    let watchable =
                        capabilities.supports_operation(verbs::LIST) && capabilities.supports_operation(verbs::WATCH);
                    let namespaced = matches!(capabilities.scope, Scope::Namespaced);
                    served.insert(gvk, Served { plural: resource.plural, namespaced, watchable });
                }
            }
        }
        *self.served.write().unwrap_or_else(PoisonError::into_inner) = served.clone();
        Ok(served)
    }

    pub(crate) fn served(&self, gvk: &Gvk) -> Option<Served> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).get(gvk).cloned()
    }

    async fn look_up(&self, gvk: &Gvk) -> Result<Served, RequestError> {
        if let Some(served) = self.served(gvk) {
            return Ok(served);
        }
        self.discover().await?.remove(gvk).ok_or_else(|| RequestError::UnknownKind(gvk.clone()))
    }

    /// The path of a kind's collection, or of one object where `key` names one.
    async fn path(&self, gvk: &Gvk, key: &Key) -> Result<String, RequestError> {
        let served = self.look_up(gvk).await?;
        let mut path =
            if gvk.group.is_empty() { format!("/api/{}", gvk.version) } else { format!("/apis/{}", gvk.api_version()) };
        if served.namespaced && !key.namespace.is_empty() {
            path += &format!("/namespaces/{}", key.namespace);
        }
        path += "/";
        path += &served.plural;
        if !key.name.is_empty() {
            path += "/";
            path += &key.name;
        }
        Ok(path)
    }

    /// The collection that is listed and watched.
    fn everywhere(&self) -> Key {
        Key::new(&self.namespace, "")
    }

    /// One of a decision's calls.
    pub(crate) async fn call(&self, call: Call, agent: Option<&'static str>) -> Result<Held, RequestError> {
        let method = Method::from_bytes(call.method().as_bytes()).expect("invariant: a constant of HTTP");
        let (tail, content_type) = (call.tail(), call.content_type());
        self.send(method, &call.target.gvk, &call.target.key, &tail, How { content_type, agent }, call.body).await
    }

    /// One request; `tail` is what follows the object's path (`/status`, `?force=true`), and a body of null is none.
    pub(crate) async fn send(
        &self,
        method: Method,
        gvk: &Gvk,
        key: &Key,
        tail: &str,
        how: How<'_>,
        body: Value,
    ) -> Result<Held, RequestError> {
        let path = self.path(gvk, key).await?;
        let bytes = if self.hands || body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{path}{tail}"))
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::CONTENT_TYPE, how.content_type)
            .body(bytes)
            .map_err(RequestError::Form)?;
        if let Some(agent) = how.agent {
            request.headers_mut().insert(http::header::USER_AGENT, http::HeaderValue::from_static(agent));
        }
        if self.hands {
            request.extensions_mut().insert(Handed(Arc::new(body)));
        }
        self.pass().await;
        in_time(async {
            let mut response = self.exchange(request).await?;
            if let Some(object) = response.extensions_mut().remove::<Arc<Packed>>() {
                return Ok(Held::Packed(object));
            }
            let bytes = response.into_body().collect_bytes().await?;
            let object = serde_json::from_slice(&bytes).map_err(RequestError::Answer)?;
            Ok(Held::Tree(Arc::new(object)))
        })
        .await
    }

    /// The head of a good answer, with the body to come; a bad answer, read to its end, is an error.
    async fn exchange(&self, request: Request<Vec<u8>>) -> Result<Response<Body>, RequestError> {
        let span = tracing::trace_span!(
            target: crate::SPANS, "request", http.request.method = request.method().as_str(),
            url.path = request.uri().path(), http.response.status_code = Empty
        );
        let response = self.client.send(request.map(Body::from)).instrument(span.clone()).await?;
        let status = response.status();
        span.record("http.response.status_code", status.as_u16());
        if !status.is_client_error() && !status.is_server_error() {
            return Ok(response);
        }
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let bytes = response.into_body().collect_bytes().await?;
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let text = |member: &str| answer[member].as_str().unwrap_or_default().to_owned();
        let mut message = text("message");
        if message.is_empty() {
            let said = String::from_utf8_lossy(&bytes);
            let said = said.trim();
            message = format!("{status}: {}", &said[..said.floor_char_boundary(TOLD_MAX)]);
        }
        let retry_after = retry_after.map(Duration::from_secs);
        Err(RequestError::Api { code: status.as_u16(), reason: text("reason"), message, retry_after })
    }

    /// Some objects of a kind (in the namespace that we are held to): the first ones, or those after a part's `rest`.
    pub(crate) async fn list(&self, gvk: &Gvk, after: &str) -> Result<Part, RequestError> {
        let mut tail = format!("?limit={PART}{}", self.selection(gvk));
        if !after.is_empty() {
            tail += "&continue=";
            tail.extend(form_urlencoded::byte_serialize(after.as_bytes()));
        }
        let how = How { content_type: "application/json", agent: None };
        let list = self.send(Method::GET, gvk, &self.everywhere(), &tail, how, Value::Null).await?;
        let mut list = Arc::unwrap_or_clone(list.open());
        let text = |name: &str| list["metadata"][name].as_str().unwrap_or_default().to_owned();
        let (revision, rest) = (text("resourceVersion"), text("continue"));
        let mut items = match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        for item in &mut items {
            // lists of built-in kinds do not repeat these in their items
            item["apiVersion"] = gvk.api_version().into();
            item["kind"] = gvk.kind.clone().into();
        }
        Ok(Part { items, revision, rest })
    }

    /// Watch events of a kind from a revision on, as they come: `{"type", "object"}`.
    pub(crate) async fn watch(
        &self,
        gvk: &Gvk,
        revision: &str,
    ) -> Result<impl Stream<Item = Result<Value, RequestError>> + use<>, RequestError> {
        let path = self.path(gvk, &self.everywhere()).await?;
        let request = Request::get(format!(
            "{path}?watch=true&resourceVersion={revision}&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}{}",
            self.selection(gvk)
        ))
        .header(http::header::ACCEPT, "application/json")
        .header(http::header::ACCEPT_ENCODING, "identity")
        .body(Vec::new())
        .map_err(RequestError::Form)?;
        self.pass().await;
        let end = api::time::after(Instant::now(), WATCH_MAX);
        let body = in_time(self.exchange(request)).await?.into_body();
        let lines = body.into_data_stream().map_err(std::io::Error::other).into_async_read().lines();
        let events = lines
            .map_err(RequestError::Stream)
            .map(|line| line.and_then(|line| serde_json::from_str(&line).map_err(RequestError::Json)));
        Ok(Box::pin(events.take_until(tokio::time::sleep_until(end))))
    }
}

/// What comes within [`ANSWER_MAX`].
async fn in_time<T>(answer: impl Future<Output = Result<T, RequestError>>) -> Result<T, RequestError> {
    tokio::time::timeout(ANSWER_MAX, answer).await.unwrap_or(Err(RequestError::Late))
}
