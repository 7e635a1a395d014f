//! Asks a backend whether it is ready.

use crate::balancer::Balancer;
use crate::config::Probe;
use crate::upstream::{Upstream, connect_failure, locked};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, LOCATION, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Time between probes of a backend that has never been ready, at most.
const EAGER: Duration = Duration::from_secs(1);
/// Failed requests wake the prober; probes of one backend start at least so far apart.
const APART: Duration = Duration::from_millis(200);
/// So much of an answer's body is read.
const BODY_MOST: usize = 64 << 10;

/// Probes a backend until the token ends it.
pub(crate) async fn follow(balancer: Arc<Balancer>, upstream: Arc<Upstream>, end: CancellationToken) {
    let probing = async {
        loop {
            let started = Instant::now();
            let probe = Arc::clone(&locked(&upstream.role).probe);
            let outcome = once(&upstream.address, &probe).await;
            balancer.probed(&upstream, outcome);
            let was_ready = locked(&upstream.health).first_ready_at.is_some();
            let pause = if was_ready { probe.interval } else { probe.interval.min(EAGER) };
            let after = |time: Duration| started.checked_add(time).unwrap_or(started);
            sleep_until(after(APART)).await;
            tokio::select! {
                () = sleep_until(after(pause)) => {}
                () = upstream.probe_now.notified() => {}
            }
        }
    };
    tokio::select! {
        () = probing => {}
        () = end.cancelled() => {}
    }
}

/// Sends one probe.
///
/// # Errors
/// The text says why the backend is not ready.
async fn once(address: &str, probe: &Probe) -> Result<(), String> {
    let method = if probe.post_data.is_some() { Method::POST } else { Method::GET };
    let name = format!("{method} {}", without_query(&probe.path));
    let limit = probe.timeout;
    match timeout(limit, exchange(address, probe, method, &name)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("{name}: no answer within {} s", limit.as_secs_f32())),
    }
}

async fn exchange(address: &str, probe: &Probe, method: Method, name: &str) -> Result<(), String> {
    let request = request(address, probe, method).map_err(|why| format!("{name}: {why}"))?;
    let failed = |error: hyper::Error| format!("{name}: {error}");
    let stream = TcpStream::connect(address).await.map_err(|error| format!("{name}: {}", connect_failure(&error)))?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(BODY_MOST);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let response = sender.send_request(request).await.map_err(failed)?;
    let status = response.status();
    if status.is_redirection()
        && let Some(to) = response.headers().get(LOCATION)
    {
        let to = without_query(to.to_str().unwrap_or("another address"));
        return Err(format!("{name} answered {}, a redirect to {to}: probes do not follow redirects", status.as_u16()));
    }
    if status != StatusCode::OK {
        return Err(format!("{name} answered {}", status.as_u16()));
    }
    read_some(response.into_body()).await.map_err(failed)
}

/// Reads a body's start, so that a backend that fails while it answers is not ready. A long body is cut off.
async fn read_some(mut body: Incoming) -> Result<(), hyper::Error> {
    let mut left = BODY_MOST;
    while let Some(frame) = body.frame().await {
        let length = frame?.data_ref().map_or(0, Bytes::len);
        if length >= left {
            break;
        }
        left = left.saturating_sub(length);
    }
    Ok(())
}

fn request(address: &str, probe: &Probe, method: Method) -> Result<Request<Full<Bytes>>, String> {
    let body = probe.post_data.clone().map(Bytes::from).unwrap_or_default();
    let mut request = Request::builder()
        .method(method)
        .uri(&probe.path)
        .body(Full::new(body))
        .map_err(|_| "the path is not valid in a URL; it starts with / and has no blanks".to_owned())?;
    let headers = request.headers_mut();
    let host = HeaderValue::from_str(address).map_err(|_| format!("the address {address:?} is not HOST:PORT"))?;
    headers.insert(HOST, host);
    headers.insert(USER_AGENT, HeaderValue::from_static("trainyard-balance"));
    if probe.post_data.is_some() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    for (name, value) in &probe.headers {
        let invalid = || format!("the name or the value of the probe's header {name:?} is not valid in HTTP");
        let (key, value) = (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value.as_str()));
        headers.insert(key.map_err(|_| invalid())?, value.map_err(|_| invalid())?);
    }
    Ok(request)
}

/// A path or URL for messages: a query may hold secrets.
fn without_query(path: &str) -> &str {
    path.split(['?', '#']).next().unwrap_or_default()
}
