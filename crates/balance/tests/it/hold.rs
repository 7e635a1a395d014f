//! Requests while no backend is ready.

use crate::support::{LIMIT, backend, config, get, named, refusing, send, start};
use balance::Hold;
use http::StatusCode;
use std::time::Duration;
use tokio::time::timeout;

#[tokio::test]
async fn held_requests_are_answered_when_a_backend_is_ready() {
    let mut balance = start(config(Vec::new())).await;
    let clients: Vec<_> = (0..20).map(|_| tokio::spawn(send(balance.address, get("/")))).collect();
    balance.reported(|report| report.held == 20).await;
    let a = named("a").await;
    balance.change(|config| config.backends.push(backend("a", a.address)));
    for client in clients {
        let answer = client.await.unwrap();
        assert_eq!((answer.status, answer.text.as_str()), (StatusCode::OK, "a"));
    }
    let report = balance.reported(|report| report.held == 0).await;
    assert_eq!((report.refused, report.requests_last_minute), (0, 20));
}

/// The scaler starts the first backend when it reads this report.
#[tokio::test]
async fn the_first_held_request_is_reported_at_once() {
    let mut balance = start(config(Vec::new())).await;
    // the state before is the default, so it is no change
    let client = tokio::spawn(send(balance.address, get("/")));
    let report = timeout(LIMIT, balance.report.changed()).await.map(|_| balance.report.borrow().clone()).unwrap();
    assert_eq!((report.held, report.requests_last_minute), (1, 1));
    client.abort();
    balance.reported(|report| report.held == 0).await;
}

#[tokio::test]
async fn more_requests_than_may_be_held_are_refused() {
    let mut config = config(vec![backend("a", refusing().await)]);
    config.hold = Hold { most: 2, ..Hold::default() };
    let mut balance = start(config).await;
    let held: Vec<_> = (0..2).map(|_| tokio::spawn(send(balance.address, get("/")))).collect();
    balance.reported(|report| report.held == 2).await;
    let answer = balance.get("/").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers["retry-after"], "5");
    assert_eq!(
        answer.text,
        "No backend is ready, and the 2 requests that may wait for one already do. Retry in 5 s.\n"
    );
    balance.reported(|report| report.refused == 1 && report.held == 2).await;
    // a stop does not leave clients without an answer
    balance.stop.cancel();
    for client in held {
        let answer = client.await.unwrap();
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.text, "The load balancer is stopping. Retry in 5 s.\n");
    }
    timeout(LIMIT, balance.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_is_held_for_a_limited_time() {
    let mut config = config(Vec::new());
    config.hold.time = Duration::from_secs(1);
    let balance = start(config).await;
    let answer = balance.get("/").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.text, "No backend became ready within 1 s. Retry in 5 s.\n");
    assert!(answer.headers.contains_key("retry-after"));
}
