//! The way of one request: a backend is chosen, a connection made, the request sent, the answer passed on.
//!
//! A request moves to another backend, at most [`BACKENDS_MOST`] in all, when
//! - no connection can be made, or the connection was closed before the request was written: any request, since its body is untouched;
//! - the connection ends before the first byte of an answer: only idempotent requests without a body, which are safe to repeat.

use crate::balancer::{Balancer, Flight, NoBackend};
use crate::body::{Activity, RequestBody, ResponseBody};
use crate::headers::{self, Client};
use crate::link::Link;
use crate::tunnel;
use crate::upstream::{Upstream, connect_failure};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout_at;

/// Backends that one request tries.
const BACKENDS_MOST: usize = 3;
/// Connections that may fail for one request.
const REFUSALS_MOST: u32 = 100;
/// What a refused client is advised to wait.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("5");
/// A backend may close an idle connection while a request is on its way. For a request that cannot be repeated, only a connection that was
/// used this recently is taken.
const FRESH: Duration = Duration::from_secs(1);
/// The oldest idle connection for requests that can be repeated.
const ANY_AGE: Duration = Duration::from_secs(60);

/// A request that waits for a connection.
type Outgoing = Request<RequestBody>;

/// What one backend did with a request.
enum Outcome {
    Answered(Response<ResponseBody>),
    /// Another backend may get the request.
    Again(Outgoing, String),
    /// The backend took no connection.
    Refused(Outgoing, String),
    /// The request ends here.
    Failed(Response<ResponseBody>),
}

/// Answers a request of a client.
pub(crate) async fn answer(
    balancer: Arc<Balancer>,
    client: Client,
    mut request: Request<Incoming>,
) -> Response<ResponseBody> {
    balancer.arrived();
    if *request.method() == Method::CONNECT {
        let why = "The load balancer of a service opens no tunnels to other hosts. Send the request without CONNECT.";
        return text(StatusCode::METHOD_NOT_ALLOWED, why.to_owned());
    }
    let activity = Activity::new();
    let client_upgrade =
        request.headers().contains_key(http::header::UPGRADE).then(|| hyper::upgrade::on(&mut request));
    let (mut parts, body) = request.into_parts();
    let is_upgrade = headers::to_backend(&mut parts, &client);
    let body = RequestBody::new(body, &activity);
    let exchange = Exchange {
        limit: balancer.settings().stream_timeout,
        activity,
        client_upgrade: client_upgrade.filter(|_| is_upgrade),
        can_repeat: body.is_none() && parts.method.is_idempotent(),
        balancer,
    };
    exchange.run(outgoing(parts.method, parts.uri, parts.headers, body)).await
}

fn outgoing(method: Method, uri: Uri, headers: HeaderMap, body: RequestBody) -> Outgoing {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    request
}

struct Exchange {
    balancer: Arc<Balancer>,
    activity: Arc<Activity>,
    limit: Duration,
    client_upgrade: Option<OnUpgrade>,
    /// A second backend does no harm, even if the first has seen the request.
    can_repeat: bool,
}

impl Exchange {
    async fn run(mut self, mut request: Outgoing) -> Response<ResponseBody> {
        let mut tried: Vec<Arc<Upstream>> = Vec::new();
        let mut last = String::new();
        let mut refused = 0_u32;
        while tried.len() < BACKENDS_MOST && refused < REFUSALS_MOST {
            let flight = match self.balancer.choose(&tried).await {
                Ok(flight) => flight,
                Err(NoBackend::Tried) => break,
                Err(why) => return refusal(&why),
            };
            tried.push(Arc::clone(&flight.upstream));
            // The wait for a backend is no silence of the backend.
            self.activity.touch();
            match self.attempt(flight, request).await {
                Outcome::Answered(response) | Outcome::Failed(response) => return response,
                Outcome::Again(same, why) => (request, last) = (same, why),
                Outcome::Refused(same, why) => {
                    // it has seen nothing of the request; another one gets it, or the next one that is ready
                    tried.pop();
                    refused = refused.saturating_add(1);
                    (request, last) = (same, why);
                }
            }
        }
        let count = tried.len().saturating_add(refused as usize);
        text(
            StatusCode::BAD_GATEWAY,
            format!("No backend answered; {count} tried. The last, {last}. Retry the request."),
        )
    }

    /// Gives the request to one backend: over an idle connection first, then over a new one. More idle ones are not tried, since a request
    /// that makes the backend fail would fail it once for each.
    async fn attempt(&mut self, mut flight: Flight, mut request: Outgoing) -> Outcome {
        let upstream = Arc::clone(&flight.upstream);
        let age = if self.can_repeat { ANY_AGE } else { FRESH };
        if let Some(link) = upstream.idle(age) {
            match self.send(flight, link, request).await {
                Ok(outcome) => return outcome,
                // Usually it was closed while it was idle.
                Err((same, unused, _)) => (request, flight) = (same, unused),
            }
        }
        let link = match upstream.connect().await {
            Ok(link) => link,
            Err(error) => {
                let why = connect_failure(&error);
                self.balancer.probed(&upstream, Err(why.clone()));
                upstream.probe_now.notify_one();
                return Outcome::Refused(request, format!("{}: {why}", upstream.id));
            }
        };
        match self.send(flight, link, request).await {
            Ok(outcome) => outcome,
            Err((same, _, why)) => {
                upstream.probe_now.notify_one();
                Outcome::Again(same, format!("{}: {why}", upstream.id))
            }
        }
    }

    /// Sends the request. The error has what can be sent again: the request was not sent, or can be repeated.
    async fn send(
        &mut self,
        flight: Flight,
        mut link: Link,
        request: Outgoing,
    ) -> Result<Outcome, (Outgoing, Flight, String)> {
        let copy = self.can_repeat.then(|| {
            let (uri, headers) = (request.uri().clone(), request.headers().clone());
            outgoing(request.method().clone(), uri, headers, RequestBody::none())
        });
        if !request.body().is_none() || self.client_upgrade.is_some() {
            link.detach();
        }
        let id = &flight.upstream.id;
        let answered = {
            let sent = pin!(link.send(request));
            self.within_limit(sent).await
        };
        let Some(answered) = answered else {
            let seconds = self.limit.as_secs();
            let why = format!("Backend {id} sent no answer, and no byte moved for {seconds} s. Retry the request.");
            return Ok(Outcome::Failed(text(StatusCode::GATEWAY_TIMEOUT, why)));
        };
        match answered {
            Ok(response) => Ok(self.pass_on(response, flight, link)),
            Err(mut error) => match error.take_message().or(copy) {
                Some(same) => Err((same, flight, failure(error.error()))),
                None => {
                    let why = format!("Backend {id} got the request, but no answer came: {}.", failure(error.error()));
                    flight.upstream.probe_now.notify_one();
                    Ok(Outcome::Failed(text(StatusCode::BAD_GATEWAY, why)))
                }
            },
        }
    }

    /// The future's value; none after no byte has moved for the limit.
    async fn within_limit<F: Future + Unpin>(&self, mut future: F) -> Option<F::Output> {
        loop {
            let deadline = self.activity.deadline(self.limit);
            if let Ok(value) = timeout_at(deadline, &mut future).await {
                return Some(value);
            }
            if self.activity.deadline(self.limit) <= deadline {
                return None;
            }
        }
    }

    /// The answer for the client, with a body that is read while it is sent.
    fn pass_on(&mut self, response: Response<Incoming>, flight: Flight, link: Link) -> Outcome {
        self.activity.touch();
        let (mut parts, body) = response.into_parts();
        let is_upgraded = parts.status == StatusCode::SWITCHING_PROTOCOLS;
        headers::to_client(&mut parts.headers, is_upgraded);
        parts.version = Version::HTTP_11;
        if !is_upgraded {
            let body = ResponseBody::new(body, flight, link, Arc::clone(&self.activity), self.limit);
            return Outcome::Answered(Response::from_parts(parts, body));
        }
        let Some(client) = self.client_upgrade.take() else {
            let id = &flight.upstream.id;
            let why = format!("Backend {id} changed the protocol (101), which the request did not ask for.");
            return Outcome::Failed(text(StatusCode::BAD_GATEWAY, why));
        };
        let backend = hyper::upgrade::on(Response::from_parts(copy_of(&mut parts), body));
        tunnel::start(client, backend, flight, Arc::clone(&self.activity), self.limit);
        Outcome::Answered(Response::from_parts(parts, ResponseBody::Text(None)))
    }
}

/// The parts that hold the backend's half of an upgraded connection: its extensions.
fn copy_of(parts: &mut http::response::Parts) -> http::response::Parts {
    let (mut copy, ()) = Response::new(()).into_parts();
    copy.extensions = std::mem::take(&mut parts.extensions);
    copy
}

/// Why an exchange failed, in a few words.
fn failure(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        "it closed the connection".to_owned()
    } else if error.is_parse() {
        "its answer is not HTTP/1.1".to_owned()
    } else {
        error.to_string()
    }
}

fn refusal(why: &NoBackend) -> Response<ResponseBody> {
    let why = match why {
        NoBackend::Full(0) => "No backend is ready, and none will be. The owner of the service knows why.".to_owned(),
        NoBackend::Full(most) => {
            format!("No backend is ready, and the {most} requests that may wait for one already do. Retry in 5 s.")
        }
        NoBackend::Late(time) => format!("No backend became ready within {} s. Retry in 5 s.", time.as_secs()),
        NoBackend::Stopping => "The load balancer is stopping. Retry in 5 s.".to_owned(),
        NoBackend::Tried => "No other backend is ready. Retry in 5 s.".to_owned(),
    };
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, why);
    response.headers_mut().insert(RETRY_AFTER, RETRY_SECONDS);
    response
}

fn text(status: StatusCode, mut why: String) -> Response<ResponseBody> {
    why.push('\n');
    let mut response = Response::new(ResponseBody::Text(Some(Bytes::from(why))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
