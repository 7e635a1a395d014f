//! Which backend gets a request, and what happens when backends go.

use crate::support::{
    LIMIT, backend, chunks, collect, config, connect, full, get, named, ready, send, server, with_body,
};
use balance::{BackendState, BalancerReport, Policy};
use bytes::Bytes;
use futures::future::join_all;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

#[tokio::test]
async fn requests_are_spread_over_backends() {
    let (a, b) = (named("a").await, named("b").await);
    for policy in Policy::ALL {
        let mut config = config(vec![backend("a", a.address), backend("b", b.address)]);
        config.policy = policy;
        let balance = ready(config).await;
        let mut answers = Vec::new();
        for _ in 0..6 {
            answers.push(balance.get("/").await.text);
        }
        let of_a = answers.iter().filter(|answer| *answer == "a").count();
        assert_eq!(of_a, 3, "{policy:?}: {answers:?}");
    }
}

#[tokio::test]
async fn no_get_is_lost_when_a_backend_is_killed() {
    let (a, b) = (named("a").await, named("b").await);
    let mut balance = ready(config(vec![backend("a", a.address), backend("b", b.address)])).await;
    let address = balance.address;
    let killed = Arc::new(Semaphore::new(0));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let killed = Arc::clone(&killed);
            tokio::spawn(async move {
                let mut client = connect(address).await;
                let mut seen = BTreeSet::new();
                for count in 0..100 {
                    if count == 50 {
                        killed.add_permits(1);
                    }
                    client.ready().await.unwrap();
                    let answer = collect(client.send_request(get("/")).await.unwrap()).await;
                    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
                    seen.insert(answer.text);
                }
                seen
            })
        })
        .collect();
    let _permit = timeout(LIMIT, killed.acquire_many(4)).await.unwrap().unwrap();
    a.kill().await;
    for seen in join_all(clients).await {
        assert!(seen.unwrap().contains("b"));
    }
    // a failed connection marks the backend before all requests are counted
    let is_whole = |report: &BalancerReport| !report.backends["a"].ready && report.requests_last_minute == 800;
    let report = balance.reported(is_whole).await;
    let backend = &report.backends["a"];
    assert!(backend.last_failure.is_some() && backend.failing_since.is_some() && backend.first_ready_at.is_some());
}

/// Bytes of an upload are read only when there is a connection, so another backend can get them.
#[tokio::test]
async fn an_upload_moves_to_another_backend() {
    let a = named("a").await;
    let b = server(|request| {
        Box::pin(async move {
            let length = request.into_body().collect().await.unwrap().to_bytes().len();
            full(length.to_string())
        })
    })
    .await;
    let mut config = config(vec![backend("a", a.address), backend("b", b.address)]);
    config.policy = Policy::RoundRobin;
    config.probe.interval = LIMIT;
    let balance = ready(config).await;
    a.kill().await;
    let (chunk, body) = chunks();
    let sent = tokio::spawn(send(balance.address, with_body(Method::POST, "/", body)));
    for _ in 0..10 {
        chunk.send(Bytes::from(vec![b'x'; 100_000])).await.unwrap();
    }
    drop(chunk);
    let answer = sent.await.unwrap();
    assert_eq!((answer.status, answer.text.as_str()), (StatusCode::OK, "1000000"));
}

/// The backend reads a POST and closes the connection: it may have done what it was asked.
#[tokio::test]
async fn a_post_that_a_backend_has_seen_is_not_repeated() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let a = listener.local_addr().unwrap();
    let closing = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 4096];
            let length = stream.read(&mut head).await.unwrap();
            if head[..length].starts_with(b"GET") {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            }
        }
    }));
    let b = named("b").await;
    let mut config = config(vec![backend("a", a), backend("b", b.address)]);
    config.policy = Policy::RoundRobin;
    let balance = ready(config).await;
    let answer = send(balance.address, with_body(Method::POST, "/", full("once").into_body())).await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert_eq!(answer.text, "Backend a got the request, but no answer came: it closed the connection.\n");
    drop(closing);
}

#[tokio::test]
async fn a_request_that_no_backend_takes_is_held() {
    let a = named("a").await;
    let mut config = config(vec![backend("a", a.address)]);
    config.probe.interval = LIMIT;
    config.hold.time = Duration::from_secs(1);
    let balance = ready(config).await;
    a.kill().await;
    let answer = balance.get("/").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.text, "No backend became ready within 1 s. Retry in 5 s.\n");
}

#[tokio::test]
async fn a_slow_answer_survives_an_update() {
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, goes) = (Arc::clone(&begun), Arc::clone(&go));
    let old = server(move |request| {
        let (begins, goes) = (Arc::clone(&begins), Arc::clone(&goes));
        Box::pin(async move {
            if request.uri().path() == "/slow" {
                begins.notify_one();
                goes.notified().await;
            }
            full("old")
        })
    })
    .await;
    let new = named("new").await;
    let mut balance = ready(config(vec![backend("old", old.address)])).await;
    let slow = tokio::spawn(send(balance.address, get("/slow")));
    timeout(LIMIT, begun.notified()).await.unwrap();

    // the new one is probed, and gets no request
    let mut probed = backend("new", new.address);
    probed.state = BackendState::Probed;
    balance.change(|config| config.backends.push(probed));
    balance.reported(|report| report.backends.get("new").is_some_and(|new| new.ready)).await;
    assert_eq!(balance.get("/").await.text, "old");

    // the switch
    balance.change(|config| {
        config.backends[0].state = BackendState::Draining;
        config.backends[1].state = BackendState::Serving;
    });
    timeout(LIMIT, async { while balance.get("/").await.text != "new" {} }).await.unwrap();
    balance.reported(|report| report.backends["old"].in_flight == 1).await;
    go.notify_one();
    assert_eq!(slow.await.unwrap().text, "old");
    balance.reported(|report| report.backends["old"].in_flight == 0).await;
    balance.change(|config| drop(config.backends.remove(0)));
    balance.reported(|report| !report.backends.contains_key("old")).await;
    assert_eq!(balance.get("/").await.text, "new");
}

#[tokio::test]
async fn a_removed_backend_finishes_and_the_stop_waits_for_it() {
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, goes) = (Arc::clone(&begun), Arc::clone(&go));
    let slow = server(move |request| {
        let (begins, goes) = (Arc::clone(&begins), Arc::clone(&goes));
        Box::pin(async move {
            if request.uri().path() == "/slow" {
                begins.notify_one();
                goes.notified().await;
            }
            full("done")
        })
    })
    .await;
    let mut balance = ready(config(vec![backend("a", slow.address)])).await;
    let sent = tokio::spawn(send(balance.address, get("/slow")));
    timeout(LIMIT, begun.notified()).await.unwrap();
    balance.change(|config| config.backends.clear());
    balance.reported(|report| report.backends.is_empty()).await;
    balance.stop.cancel();
    // the listener closes first
    timeout(LIMIT, async { while TcpStream::connect(balance.address).await.is_ok() {} }).await.unwrap();
    assert!(!balance.task.is_finished());
    go.notify_one();
    assert_eq!(sent.await.unwrap().text, "done");
    timeout(LIMIT, balance.task).await.unwrap().unwrap();
}
