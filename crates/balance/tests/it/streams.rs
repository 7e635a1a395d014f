//! Bodies on their way.

use crate::support::{
    Balance, Body, Server, backend, chunk, chunks, collect, config, connect, full, get, ready, send, server, with_body,
};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body as _, Incoming};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::support::LIMIT;

/// A server that gives the test each request but probes, and answers what the test sends.
async fn scripted(answer: Response<Body>) -> (Server, mpsc::Receiver<Request<Incoming>>) {
    let (sender, receiver) = mpsc::channel(1);
    let answer = Arc::new(Mutex::new(Some(answer)));
    let server = server(move |request| {
        let (sender, answer) = (sender.clone(), Arc::clone(&answer));
        Box::pin(async move {
            if request.uri().path() == "/" {
                return full("ok");
            }
            sender.send(request).await.unwrap();
            let answer = answer.lock().unwrap().take();
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        })
    })
    .await;
    (server, receiver)
}

async fn before(server: &Server) -> Balance {
    ready(config(vec![backend("a", server.address)])).await
}

#[tokio::test]
async fn events_arrive_before_the_end() {
    let (events, body) = chunks();
    let (server, _requests) = scripted(Response::new(body)).await;
    let mut balance = before(&server).await;
    let mut client = connect(balance.address).await;
    let response = client.send_request(get("/events")).await.unwrap();
    let mut body = response.into_body();
    for event in ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"] {
        events.send(Bytes::from(event)).await.unwrap();
        assert_eq!(chunk(&mut body).await.unwrap(), event);
    }
    balance.reported(|report| report.backends["a"].in_flight == 1).await;
    drop(events);
    assert_eq!(chunk(&mut body).await, None);
    balance.reported(|report| report.backends["a"].in_flight == 0).await;
}

#[tokio::test]
async fn an_upload_arrives_chunk_by_chunk() {
    let (server, mut requests) = scripted(full("thanks")).await;
    let balance = before(&server).await;
    let (parts, body) = chunks();
    let sent = tokio::spawn(send(balance.address, with_body(Method::POST, "/upload", body)));
    parts.send(Bytes::from("first")).await.unwrap();
    let request = timeout(LIMIT, requests.recv()).await.unwrap().unwrap();
    assert_eq!(request.headers()["transfer-encoding"], "chunked");
    let mut body = request.into_body();
    assert_eq!(chunk(&mut body).await.unwrap(), "first");
    parts.send(Bytes::from("second")).await.unwrap();
    assert_eq!(chunk(&mut body).await.unwrap(), "second");
    drop(parts);
    assert_eq!(chunk(&mut body).await, None);
    assert_eq!(sent.await.unwrap().text, "thanks");
}

#[tokio::test]
async fn a_known_length_stays_known() {
    let (server, mut requests) = scripted(full("four")).await;
    let balance = before(&server).await;
    let answer = send(balance.address, with_body(Method::PUT, "/x", full("abc").into_body())).await;
    assert_eq!(answer.headers["content-length"], "4");
    let request = requests.recv().await.unwrap();
    assert_eq!(request.headers()["content-length"], "3");
    assert!(!request.headers().contains_key("transfer-encoding"));
}

/// Answers that have no body, and yet may name a length. The connection stays usable.
#[tokio::test]
async fn answers_without_a_body_are_passed_on() {
    let server = server(|request| {
        Box::pin(async move {
            let mut response = Response::new(Empty::new().boxed());
            match request.uri().path() {
                "/304" => *response.status_mut() = StatusCode::NOT_MODIFIED,
                "/204" => *response.status_mut() = StatusCode::NO_CONTENT,
                _ => return full("seven b"),
            }
            response
        })
    })
    .await;
    let balance = before(&server).await;
    let mut client = connect(balance.address).await;
    for (method, path, status, length) in [
        (Method::GET, "/304", StatusCode::NOT_MODIFIED, None),
        (Method::HEAD, "/x", StatusCode::OK, Some("7")),
        (Method::GET, "/204", StatusCode::NO_CONTENT, None),
        (Method::GET, "/x", StatusCode::OK, Some("7")),
    ] {
        client.ready().await.unwrap();
        let sent = client.send_request(with_body(method.clone(), path, Empty::new().boxed()));
        let answer = collect(timeout(LIMIT, sent).await.unwrap().unwrap()).await;
        let got = answer.headers.get("content-length").map(|length| length.to_str().unwrap());
        assert_eq!((answer.status, got), (status, length), "{method} {path}: {answer:?}");
        assert!(!answer.headers.contains_key("transfer-encoding"), "{method} {path}: {answer:?}");
        assert_eq!(answer.text.len(), if method == Method::HEAD { 0 } else { length.map_or(0, |_| 7) });
    }
}

/// hyper leaves the length out, as RFC 9110 allows. Nothing waits for the bytes that it announces.
#[tokio::test]
async fn a_304_that_names_a_length_has_no_body() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut request).await {
                    let is_probe = request[..length].starts_with(b"GET / ");
                    let status =
                        if is_probe { "200 OK\r\ncontent-length: 0" } else { "304 Not Modified\r\ncontent-length: 99" };
                    stream.write_all(format!("HTTP/1.1 {status}\r\netag: \"x\"\r\n\r\n").as_bytes()).await.unwrap();
                }
            });
        }
    });
    let balance = ready(config(vec![backend("a", address)])).await;
    for _ in 0..2 {
        let answer = balance.get("/x").await;
        assert_eq!((answer.status, answer.text.as_str()), (StatusCode::NOT_MODIFIED, ""));
        assert_eq!(answer.headers["etag"], "\"x\"");
    }
}

#[tokio::test]
async fn silence_before_the_answer_ends_the_request() {
    let (server, mut requests) = scripted(full("unused")).await;
    let mut settings = config(vec![backend("a", server.address)]);
    settings.stream_timeout = Duration::from_secs(1);
    let balance = ready(settings).await;
    assert_eq!(balance.get("/first").await.text, "unused");
    requests.recv().await.unwrap();
    let answer = balance.get("/second").await;
    assert_eq!(answer.status, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(answer.text, "Backend a sent no answer, and no byte moved for 1 s. Retry the request.\n");
}

/// An upload may take longer than the limit, as long as bytes move.
#[tokio::test]
async fn a_slow_upload_is_no_silence() {
    let (server, mut requests) = scripted(full("thanks")).await;
    let mut settings = config(vec![backend("a", server.address)]);
    settings.stream_timeout = Duration::from_secs(2);
    let balance = ready(settings).await;
    let (parts, body) = chunks();
    let sent = tokio::spawn(send(balance.address, with_body(Method::POST, "/upload", body)));
    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    for _ in 0..6 {
        ticks.tick().await;
        parts.send(Bytes::from("x")).await.unwrap();
    }
    drop(parts);
    drop(requests.recv().await);
    assert_eq!(sent.await.unwrap().text, "thanks");
}

#[tokio::test]
async fn silence_within_an_answer_ends_it() {
    let (events, body) = chunks();
    let (server, _requests) = scripted(Response::new(body)).await;
    let mut settings = config(vec![backend("a", server.address)]);
    settings.stream_timeout = Duration::from_secs(2);
    let mut balance = ready(settings).await;
    let mut client = connect(balance.address).await;
    let mut body = client.send_request(get("/events")).await.unwrap().into_body();
    events.send(Bytes::from("data: 1\n\n")).await.unwrap();
    assert_eq!(chunk(&mut body).await.unwrap(), "data: 1\n\n");
    let end = timeout(LIMIT, body.frame()).await.unwrap();
    assert!(end.is_some_and(|end| end.is_err()), "the client must notice that the answer is incomplete");
    balance.reported(|report| report.backends["a"].in_flight == 0).await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_completed() {
    let (events, body) = chunks();
    let (server, _requests) = scripted(Response::new(body)).await;
    let balance = before(&server).await;
    let mut client = connect(balance.address).await;
    let mut body = client.send_request(get("/events")).await.unwrap().into_body();
    events.send(Bytes::from("data: 1\n\n")).await.unwrap();
    assert_eq!(chunk(&mut body).await.unwrap(), "data: 1\n\n");
    server.kill().await;
    let end = timeout(LIMIT, body.frame()).await.unwrap();
    assert!(end.is_some_and(|end| end.is_err()));
    assert!(!body.is_end_stream());
}

/// The client reads nothing, so the load balancer cannot send on.
#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    let (events, body) = chunks();
    let (server, _requests) = scripted(Response::new(body)).await;
    let mut settings = config(vec![backend("a", server.address)]);
    settings.stream_timeout = Duration::from_secs(2);
    let mut balance = ready(settings).await;
    let mut stream = TcpStream::connect(balance.address).await.unwrap();
    stream.write_all(b"GET /events HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let sending = async { while events.send(Bytes::from(vec![0; 1 << 20])).await.is_ok() {} };
    timeout(LIMIT, sending).await.unwrap();
    balance.reported(|report| report.backends["a"].in_flight == 0).await;
}

/// A client that leaves ends its request at the backend.
#[tokio::test]
async fn a_client_that_leaves_is_noticed() {
    let (events, body) = chunks();
    let (server, _requests) = scripted(Response::new(body)).await;
    let mut balance = before(&server).await;
    let mut stream = TcpStream::connect(balance.address).await.unwrap();
    stream.write_all(b"GET /events HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    balance.reported(|report| report.backends["a"].in_flight == 1).await;
    drop(stream);
    balance.reported(|report| report.backends["a"].in_flight == 0).await;
    timeout(LIMIT, events.closed()).await.unwrap();
}
