//! When a backend is ready.

use crate::support::{Body, LIMIT, backend, config, full, ready, refusing, server, start};
use balance::{BackendReport, Probe};
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

fn answers(status: StatusCode) -> Response<Body> {
    let mut response = full("");
    *response.status_mut() = status;
    response
}

/// The backend's report after the second failure.
async fn failed(address: SocketAddr, probe: Probe) -> BackendReport {
    let mut config = config(vec![backend("a", address)]);
    config.probe = Probe { interval: Duration::from_millis(200), ..probe };
    let mut balance = start(config).await;
    let report = balance.reported(|report| report.backends.get("a").is_some_and(|a| a.failures > 1)).await;
    let report = report.backends["a"].clone();
    assert!(!report.ready && report.first_ready_at.is_none() && report.failing_since.is_some(), "{report:?}");
    report
}

async fn why(address: SocketAddr, probe: Probe) -> String {
    failed(address, probe).await.last_failure.unwrap()
}

fn path(path: &str) -> Probe {
    Probe { path: path.to_owned(), ..Probe::default() }
}

#[tokio::test]
async fn an_error_is_a_failure() {
    let broken = server(|_| Box::pin(async { answers(StatusCode::SERVICE_UNAVAILABLE) })).await;
    assert_eq!(why(broken.address, path("/health?key=secret")).await, "GET /health answered 503");
    let empty = server(|_| Box::pin(async { answers(StatusCode::NO_CONTENT) })).await;
    assert_eq!(why(empty.address, path("/health")).await, "GET /health answered 204");
}

#[tokio::test]
async fn a_redirect_is_a_failure() {
    let login = server(|request| {
        Box::pin(async move {
            let mut response = answers(StatusCode::FOUND);
            if request.uri().path() == "/login" {
                response = full("ok");
            }
            response.headers_mut().insert("location", "/login?next=%2F".try_into().unwrap());
            response
        })
    })
    .await;
    let expected = "GET /health answered 302, a redirect to /login: probes do not follow redirects";
    assert_eq!(why(login.address, path("/health")).await, expected);
}

#[tokio::test]
async fn a_probe_that_hangs_is_a_failure() {
    let hanging = server(|_| Box::pin(std::future::pending())).await;
    let probe = Probe { timeout: Duration::from_millis(300), ..path("/health") };
    assert_eq!(why(hanging.address, probe).await, "GET /health: no answer within 0.3 s");
}

#[tokio::test]
async fn a_refused_connection_is_a_failure() {
    assert_eq!(why(refusing().await, path("/health")).await, "GET /health: connection refused");
}

#[tokio::test]
async fn an_invalid_probe_says_what_is_wrong() {
    let fine = server(|_| Box::pin(async { full("ok") })).await;
    let probe = Probe { headers: vec![("bad name".to_owned(), "secret".to_owned())], ..path("/health") };
    let expected = "GET /health: the name or the value of the probe's header \"bad name\" is not valid in HTTP";
    assert_eq!(why(fine.address, probe).await, expected);
}

/// The backend is ready, and only the start of its answer is read.
#[tokio::test]
async fn a_gigabyte_does_no_harm() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let long = server(move |_| {
        let counted = Arc::clone(&counted);
        Box::pin(async move {
            let frames = futures::stream::unfold(0, move |count: usize| {
                let counted = Arc::clone(&counted);
                async move {
                    counted.fetch_add(1, Ordering::Relaxed);
                    let frame = Ok::<_, Infallible>(Frame::data(Bytes::from(vec![0; 1 << 20])));
                    (count < 1024).then_some((frame, count + 1))
                }
            });
            Response::new(StreamBody::new(frames).boxed())
        })
    })
    .await;
    let mut config = config(vec![backend("a", long.address)]);
    config.probe.interval = LIMIT;
    let _balance = ready(config).await;
    // buffers of sockets hold a few MiB
    assert!(sent.load(Ordering::Relaxed) < 64, "{sent:?} MiB");
}

#[tokio::test]
async fn a_probe_sends_what_the_service_asks_for() {
    let model = server(|request| {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let is_right = parts.method == "POST"
                && parts.uri == "/v1/chat?x=1"
                && parts.headers["authorization"] == "Bearer token"
                && parts.headers["content-type"] == "application/json"
                && body == r#"{"prompt":"hi"}"#;
            answers(if is_right { StatusCode::OK } else { StatusCode::BAD_REQUEST })
        })
    })
    .await;
    let mut config = config(vec![backend("a", model.address)]);
    config.probe = Probe {
        path: "/v1/chat?x=1".to_owned(),
        post_data: Some(r#"{"prompt":"hi"}"#.to_owned()),
        headers: vec![("Authorization".to_owned(), "Bearer token".to_owned())],
        ..config.probe
    };
    ready(config).await;
}

#[tokio::test]
async fn a_backend_recovers() {
    let is_well = Arc::new(AtomicBool::new(true));
    let answers_well = Arc::clone(&is_well);
    let a = server(move |_| {
        let status = if answers_well.load(Ordering::Relaxed) { StatusCode::OK } else { StatusCode::BAD_GATEWAY };
        Box::pin(async move { answers(status) })
    })
    .await;
    let mut balance = ready(config(vec![backend("a", a.address)])).await;
    is_well.store(false, Ordering::Relaxed);
    balance.reported(|report| !report.backends["a"].ready && report.backends["a"].failures > 1).await;
    is_well.store(true, Ordering::Relaxed);
    let report = balance.reported(|report| report.backends["a"].ready).await;
    let a = &report.backends["a"];
    assert_eq!((a.failures, a.failing_since), (0, None));
    assert_eq!(a.last_failure.as_deref(), Some("GET / answered 502"));
}
