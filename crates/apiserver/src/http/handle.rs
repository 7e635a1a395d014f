//! Handles one HTTP request, from its head to its answer.

mod caller;
mod elsewhere;

use super::answer::{self, Body, failure, response};
use super::room::Room;
use super::{Server, discovery, tunnel};
use crate::audit::{Answered, Record};
use crate::auth;
use crate::decode::Content;
use crate::delegate::{Delegate, Wanted};
use crate::negotiate::{self, Accepted, Encoding, Form, Offer};
use crate::openapi::v2;
use crate::query::{self, Query};
use crate::registry::{Served, Target, internal};
use crate::route::{self, Discovery, Path, Route};
use crate::wire;
use bytes::{Bytes, BytesMut};
pub(crate) use caller::Caller;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header, request::Parts};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Limited};
use objects::packed::Handed;
use resource::User;
use resource::definitions::DEFINITIONS;
use resource::status::Status;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use tokio::sync::OwnedSemaphorePermit;

/// Bodies may have this many bytes (upstream's limit).
const BODY_MAX: usize = 3 << 20;

/// Bodies may take this long.
const BODY_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// The parts of a request that handlers look at.
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Content,
    pub(crate) user: User,
    /// Asked in this process, by who takes the object of the answer as it is held.
    pub(crate) hands: bool,
    /// For upgrades.
    pub(crate) parts: Mutex<Option<Parts>>,
}

impl Ask {
    pub(crate) fn header(&self, name: impl header::AsHeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }

    /// All `Accept` headers as one.
    pub(super) fn accept(&self) -> Option<String> {
        let all: Vec<&str> = self.headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok()).collect();
        (!all.is_empty()).then(|| all.join(","))
    }

    pub(super) fn negotiate(&self, offer: Offer) -> Result<Accepted, Status> {
        let mut accepted = negotiate::accept(self.accept().as_deref(), offer)?;
        accepted.pretty |= match self.query.get("pretty") {
            Some(_) => self.query.flag("pretty"),
            // These clients show answers to people: they get them readable.
            None => {
                let agent = self.header(header::USER_AGENT).unwrap_or_default();
                ["curl", "Wget", "Mozilla/5.0"].iter().any(|start| agent.starts_with(start))
            }
        };
        Ok(accepted)
    }

    pub(super) fn content_type(&self) -> String {
        negotiate::media_type(self.header(header::CONTENT_TYPE).unwrap_or_default())
    }

    pub(super) fn agent(&self) -> &str {
        self.header(header::USER_AGENT).unwrap_or_default()
    }
}

pub(super) const PLAIN: Offer = Offer { protobuf: true, routed: true, forms: false, tables: false, watch: false };

/// An empty namespace in a path: upstream's router takes it for one, and its kinds for all of them.
const IN_NONE: &str = "/namespaces//";

impl Server {
    /// Answers a request, whatever kind of body it comes with.
    pub(crate) fn handle<B>(self: &Arc<Self>, request: Request<B>, caller: Caller) -> BoxFuture<'static, Response<Body>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display,
    {
        let body = |body: B| body.map_err(|error| error.to_string()).boxed_unsync();
        self.clone().handle_boxed(request.map(body), caller)
    }

    /// Boxed here, so that all of a request's walk is compiled once and not again for each kind of connection.
    fn handle_boxed(
        self: Arc<Self>,
        request: Request<UnsyncBoxBody<Bytes, String>>,
        caller: Caller,
    ) -> BoxFuture<'static, Response<Body>> {
        Box::pin(async move {
            let what = format!("{} {}", request.method(), request.uri().path());
            let answer = AssertUnwindSafe(self.answer(request, caller)).catch_unwind().await;
            answer.unwrap_or_else(|_| {
                tracing::error!(what, "answering a request panicked: this is a bug");
                failure(&internal("the request could not be answered"), &Accepted::default())
            })
        })
    }

    async fn answer(
        self: &Arc<Self>,
        request: Request<UnsyncBoxBody<Bytes, String>>,
        caller: Caller,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let head_only = parts.method == Method::HEAD;
        let zips =
            parts.headers.get(header::ACCEPT_ENCODING).and_then(|v| v.to_str().ok()).is_some_and(|v| {
                v.split(',').any(|coding| coding.split(';').next().unwrap_or_default().trim() == "gzip")
            });
        let from_socket = matches!(caller, Caller::Socket { .. });
        let mut record = match (&caller, &self.audit) {
            (Caller::Socket { peer, .. }, Some(_)) => {
                Some(Record::begin(&parts, *peer, self.core.world.uid(), self.core.world.now()))
            }
            _ => None,
        };
        let counted = self.metrics.begin(&parts, &self.core.catalog());
        let mut response = match self.admit(&parts, caller, &mut record) {
            Err(status) => failure(&status, &Accepted::default()),
            Ok(user) => match self.read(body, from_socket).await {
                Err(status) => failure(&status, &Accepted::default()),
                Ok((body, _place)) => {
                    if let Some(record) = &mut record {
                        record.read(&body);
                    }
                    let handed = parts.extensions.get::<Handed>().filter(|_| !from_socket);
                    let ask = Ask {
                        hands: handed.is_some(),
                        body: handed.map_or_else(|| body.into(), |Handed(tree)| Content::tree(tree.clone())),
                        method: parts.method.clone(),
                        path: parts.uri.path().to_owned(),
                        query: Query::parse(parts.uri.query().unwrap_or_default()),
                        headers: parts.headers.clone(),
                        user,
                        parts: Mutex::new(Some(parts)),
                    };
                    let shape = ask.negotiate(PLAIN).unwrap_or_default();
                    let shape = Accepted { form: Form::Object, ..shape };
                    match self.dispatch(ask).await {
                        Ok(response) => response,
                        Err(status) => failure(&status, &shape),
                    }
                }
            },
        };
        if let (Some(record), Some(log)) = (record, &self.audit) {
            let answered = response.extensions().get::<Answered>();
            log.record(&record.finish(response.status(), answered, self.core.world.now()));
        }
        counted.end(response.status().as_u16());
        if head_only {
            *response.body_mut() = Body::empty();
        }
        let response = if zips { answer::zip(response).await } else { response };
        if !from_socket {
            return response;
        }
        self.room.lend(response).await.unwrap_or_else(|status| failure(&status, &Accepted::default()))
    }

    /// A request's body, with its place in the room until it has been answered; over a socket in time.
    async fn read(
        &self,
        body: UnsyncBoxBody<Bytes, String>,
        from_socket: bool,
    ) -> Result<(Bytes, Vec<OwnedSemaphorePermit>), Status> {
        if !from_socket {
            return read(body, None).await;
        }
        tokio::time::timeout(BODY_TIME_MAX, read(body, Some(&self.room))).await.unwrap_or_else(|_| {
            let seconds = BODY_TIME_MAX.as_secs();
            Err(Status::new(408, "Timeout", format!("the request's body did not come within {seconds} s")))
        })
    }

    async fn dispatch(self: &Arc<Self>, ask: Ask) -> Result<Response<Body>, Status> {
        if let Some(text) = ask.query.get("timeout")
            && query::duration(text).is_none()
        {
            return Err(Status::bad_request(format!(
                "invalid timeout specified in the request URL - time: {}",
                if text.is_empty() { "invalid duration \"\"".to_owned() } else { format!("invalid duration {text:?}") }
            )));
        }
        if ask.path.contains("//")
            && let Some(path) = route::nameless(&ask.path)
            && let Some(served) = self.core.catalog().get(&path.group, &path.version, &path.plural)
            && served.custom.is_none()
            && served.subresource(&path.subresource).is_some()
        {
            self.authorize(&ask, &path, verb(&ask, &path))?;
            return Err(Status::bad_request("name must be provided"));
        }
        match route::parse(&ask.path) {
            Route::Resource(_) if ask.path.starts_with("//") => Ok(nothing_here()),
            Route::Discovery(_) if ask.path.trim_end_matches('/').contains("//") => Ok(nothing_here()),
            // an empty namespace stands for all of them
            Route::Resource(_) if ask.path.replacen("/namespaces//", "/", 1).contains("//") => Err(no_resource()),
            Route::Resource(path) => self.resource(ask, path).await,
            Route::Discovery(what) => {
                self.authorize_path(&ask)?;
                self.discovery(&ask, &what)
            }
            Route::Other(_) if ask.path.starts_with("//") => Ok(nothing_here()),
            Route::Other(path) if path == tunnel::PATH => self.tunnel(&ask),
            Route::Other(path) => {
                self.authorize_path(&ask)?;
                match (&ask.method, path.as_str()) {
                    (&Method::GET, "/trainyard/backup") => self.backup().await,
                    (&Method::GET, super::damaged::PATH) => Ok(self.damaged()),
                    (&Method::DELETE, super::damaged::PATH) => self.drop_damaged(ask).await,
                    _ => self.other(&ask, &path),
                }
            }
        }
    }

    async fn resource(self: &Arc<Self>, ask: Ask, path: Path) -> Result<Response<Body>, Status> {
        let catalog = self.core.catalog();
        let Some(served) = catalog.get(&path.group, &path.version, &path.plural).cloned() else {
            self.authorize(&ask, &path, verb(&ask, &path))?;
            let mut delegates = self.delegates.iter().filter(|delegate| delegate.group() == path.group);
            if let Some(delegate) = delegates.find(|delegate| delegate.has(&path.plural)) {
                return delegated(&**delegate, &ask, path).await;
            }
            let known = |s: &Arc<Served>| s.resource.group == path.group && s.custom.is_none();
            if !catalog.kinds.values().any(known) {
                return Ok(nothing_here());
            }
            return Err(no_resource());
        };
        self.authorize(&ask, &path, verb(&ask, &path))?;
        let Path { namespace, name, .. } = &path;
        let scoped = served.resource.namespaced;
        let custom = served.custom.is_some();
        let placed = !(scoped && namespace.is_empty());
        let reads_all = matches!(ask.method, Method::GET) && name.is_empty();
        let in_none = !custom && ask.path.contains(IN_NONE);
        // what is only posted into namespaces has no other path
        if !placed && !in_none && !custom && served.resource.verbs == ["create"] {
            return Err(no_resource());
        }
        if in_none && !placed && !name.is_empty() {
            return Err(Status::bad_request("Namespace parameter required."));
        }
        if (!scoped && (in_none || !namespace.is_empty())) || (!placed && !name.is_empty()) {
            return if custom { Ok(nothing_here()) } else { Err(no_resource()) };
        }
        if custom && !placed && !reads_all {
            return Ok(nothing_here());
        }
        let deprecation = match &served.custom {
            Some(custom) => custom.deprecation.clone(),
            None => served.resource.facts.deprecation.map(str::to_owned),
        };
        let result = self.on_kind(ask, path, served).await;
        let Some(text) = deprecation else { return result };
        match result {
            Ok(mut response) => {
                answer::warn_first(&mut response, &text);
                Ok(response)
            }
            // the router refuses before the kind is looked at
            Err(status) if !custom && refused_by_router(&status) => Err(status),
            Err(status) => Err(status.with_warnings(&[text])),
        }
    }

    /// A request about a kind that is served where the path says.
    async fn on_kind(self: &Arc<Self>, ask: Ask, path: Path, served: Arc<Served>) -> Result<Response<Body>, Status> {
        let Path { namespace, name, subresource, rest, .. } = &path;
        let custom = served.custom.is_some();
        if custom && !subresource.is_empty() && served.subresource(subresource).is_none() {
            return Err(Status::not_found(&served.resource.group, &served.resource.plural, name));
        }
        if !subresource.is_empty()
            && (served.subresource(subresource).is_none() || !rest.is_empty() && subresource != "proxy")
        {
            return Err(no_resource());
        }
        // what is only asked has no names
        if served.resource.verbs == ["create"] && !name.is_empty() && !custom && subresource.is_empty() {
            return Err(no_resource());
        }
        let verb = verb(&ask, &path);
        // upstream's handler of custom resources makes an object by its body, whatever the path says
        let name = if custom && verb == "create" && subresource.is_empty() { String::new() } else { name.clone() };
        let target = Target { served, namespace: namespace.clone(), name, subresource: subresource.clone() };
        if path.watch && verb != "watch" {
            return Err(not_allowed());
        }
        // The old form of a watch may name one object.
        let named_watch = path.watch;
        if !named_watch && !self.allowed(&target, &ask.method, verb, ask.path.contains(IN_NONE)) {
            let resource = &target.served.resource;
            if custom && verb == "patch" && crate::registry::PatchKind::of(&ask.content_type()).is_none() {
                return Err(super::verbs::custom_patches());
            }
            if custom && target.name.is_empty() && matches!(verb, "update" | "patch") {
                return Err(Status::bad_request("name must be provided"));
            }
            if custom && !verb.is_empty() && !matches!(ask.method, Method::HEAD | Method::OPTIONS) {
                let what = resource::status::qualified(&resource.group, &resource.plural);
                let mut status = not_allowed();
                status.message = format!("{verb} is not supported on resources of kind \"{what}\"");
                status.details = Some(json!({"group": resource.group, "kind": resource.plural}));
                return Err(status);
            }
            return Err(not_allowed());
        }
        let special = if target.subresource.is_empty() { None } else { self.special(&ask, &target).await };
        match special {
            Some(result) => result,
            None => self.act(ask, target, verb, path.watch).await,
        }
    }

    /// Carries out a verb on a target that has it.
    async fn act(
        self: &Arc<Self>,
        ask: Ask,
        target: Target,
        verb: &str,
        old_watch: bool,
    ) -> Result<Response<Body>, Status> {
        if let Some(live) = target.served.live.clone() {
            return self.live(&ask, &target, verb, &*live).await;
        }
        let defines = *target.served.bucket == *DEFINITIONS && matches!(verb, "create" | "update" | "patch");
        let answer = match verb {
            "get" => self.get(&ask, &target),
            "list" | "watch" => self.list(ask, target, old_watch),
            "create" => self.create(&ask, &target).await,
            "update" => self.update(&ask, &target).await,
            "patch" => self.patch(&ask, &target).await,
            "delete" => self.delete(&ask, &target).await,
            "deletecollection" => self.delete_collection(&ask, &target).await,
            _ => Err(not_allowed()),
        };
        if defines && answer.is_ok() {
            self.serve_definitions().await;
        }
        answer
    }

    fn allowed(&self, target: &Target, method: &Method, verb: &str, in_none: bool) -> bool {
        if *method == Method::HEAD || *method == Method::OPTIONS {
            return false;
        }
        let resource = &target.served.resource;
        let verbs = if target.subresource.is_empty() {
            &resource.verbs
        } else {
            match target.served.subresource(&target.subresource) {
                Some(sub) => &sub.verbs,
                None => return false,
            }
        };
        let verb = if verb == "watch" { "list" } else { verb };
        let collection = target.name.is_empty();
        let fits = match verb {
            "list" | "deletecollection" => collection,
            "create" => collection || !target.subresource.is_empty(),
            _ => !collection,
        };
        let needs_namespace = resource.namespaced && target.namespace.is_empty() && !in_none;
        fits && verbs.contains(&verb) && !(needs_namespace && verb != "list" && resource.verbs.contains(&"get"))
    }
}

/// Asks the delegate that answers for the group.
async fn delegated(delegate: &dyn Delegate, ask: &Ask, path: Path) -> Result<Response<Body>, Status> {
    let is_object = !path.watch && !path.name.is_empty() && path.rest.is_empty();
    let is_post = ask.method == Method::POST && !path.subresource.is_empty();
    if !is_object || !(is_post || ask.method == Method::GET) {
        return Err(no_resource());
    }
    let Path { version, namespace, plural, name, subresource, .. } = path;
    let wanted = Wanted { version, namespace, plural, name };
    if is_post {
        let text = delegate.post(wanted, &subresource, ask.body.text().clone()).await?;
        return Ok(response(200, "text/plain", text));
    }
    if !subresource.is_empty() {
        let text = delegate.text(wanted, &subresource, &ask.query).await?;
        let mut answer = response(200, "text/plain", Bytes::new());
        *answer.body_mut() = Body::from_stream(text.map(Ok::<_, Infallible>));
        return Ok(answer);
    }
    let accepted = ask.negotiate(PLAIN)?;
    let object = delegate.get(wanted).await?;
    Ok(answer::encode(200, wire::to_vec(&object, false), &accepted))
}

/// The API verb of a request.
pub(crate) fn verb(ask: &Ask, path: &Path) -> &'static str {
    verb_of(&ask.method, path, &ask.query)
}

pub(crate) fn verb_of(method: &Method, path: &Path, query: &Query) -> &'static str {
    let collection = path.name.is_empty();
    match *method {
        Method::GET if path.watch || (collection && query.flag("watch")) => "watch",
        Method::GET | Method::HEAD if collection => "list",
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if collection => "deletecollection",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// A request's body, and the room that it takes.
async fn read(
    body: UnsyncBoxBody<Bytes, String>,
    room: Option<&Room>,
) -> Result<(Bytes, Vec<OwnedSemaphorePermit>), Status> {
    let mut body = Limited::new(body, BODY_MAX);
    let (mut out, mut places, mut counted) = (BytesMut::new(), Vec::new(), 0_usize);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error.is::<http_body_util::LengthLimitError>() {
            true => Status::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {BODY_MAX}")),
            false => Status::bad_request(format!("the request's body cannot be read: {error}")),
        })?;
        let Ok(data) = frame.into_data() else { continue };
        out.extend_from_slice(&data);
        if let Some(room) = room
            && out.len() > counted
        {
            // ahead of what came, so that a large body takes few places
            counted = out.len().saturating_mul(2);
            places.extend(room.take(out.len())?);
        }
    }
    Ok((out.freeze(), places))
}

fn nothing_here() -> Response<Body> {
    response(404, "text/plain; charset=utf-8", "404 page not found\n")
}

fn no_resource() -> Status {
    let mut status = Status::new(404, "NotFound", "the server could not find the requested resource");
    status.details = Some(json!({}));
    status
}

/// Whether no handler of the kind has seen the request: it has no such path or method, or reads or answers in no such format.
fn refused_by_router(status: &Status) -> bool {
    let formats = ["406: Not Acceptable", "415: Unsupported Media Type"];
    status.code == 405
        || status.message == no_resource().message
        || formats.iter().any(|format| status.message.starts_with(format))
}

pub(crate) fn not_allowed() -> Status {
    let mut status =
        Status::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
    status.details = Some(json!({}));
    status
}
