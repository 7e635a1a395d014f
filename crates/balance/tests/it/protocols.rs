//! WebSocket, HTTP/2, TLS, and headers of proxies.

use crate::support::{Body, LIMIT, backend, collect, config, full, get, named, ready, server, start};
use balance::CertificatePair;
use futures::{SinkExt, StreamExt};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

/// Answers a WebSocket handshake, and sends each message back.
fn echo(mut request: Request<hyper::body::Incoming>) -> Response<Body> {
    let Some(key) = request.headers().get("sec-websocket-key") else { return full("ok") };
    let accept = derive_accept_key(key.as_bytes());
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let io = TokioIo::new(upgrade.await.unwrap());
        let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
        while let Some(Ok(message)) = socket.next().await {
            if message.is_text() {
                socket.send(message).await.unwrap();
            }
        }
    });
    let response = Response::builder().status(101).header("connection", "Upgrade").header("upgrade", "websocket");
    response.header("sec-websocket-accept", accept).body(Empty::new().boxed()).unwrap()
}

#[tokio::test]
async fn websockets_are_tunnelled() {
    let server = server(|request| Box::pin(async move { echo(request) })).await;
    let mut balance = ready(config(vec![backend("a", server.address)])).await;
    let stream = TcpStream::connect(balance.address).await.unwrap();
    let url = format!("ws://{}/chat", balance.address);
    let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
    for text in ["one".to_owned(), "x".repeat(100_000)] {
        socket.send(Message::text(text.clone())).await.unwrap();
        let got = timeout(LIMIT, socket.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(got, Message::text(text));
    }
    balance.reported(|report| report.backends["a"].in_flight == 1).await;
    socket.close(None).await.unwrap();
    drop(socket);
    balance.reported(|report| report.backends["a"].in_flight == 0).await;
}

#[tokio::test]
async fn a_silent_tunnel_ends() {
    let server = server(|request| Box::pin(async move { echo(request) })).await;
    let mut settings = config(vec![backend("a", server.address)]);
    settings.stream_timeout = Duration::from_secs(1);
    let mut balance = ready(settings).await;
    let stream = TcpStream::connect(balance.address).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(format!("ws://{}/", balance.address), stream).await.unwrap();
    let end = timeout(LIMIT, socket.next()).await.unwrap();
    assert!(!matches!(end, Some(Ok(Message::Text(_)))), "{end:?}");
    balance.reported(|report| report.backends["a"].in_flight == 0).await;
}

#[tokio::test]
async fn a_refused_websocket_gets_the_answer() {
    let server = server(|request| {
        Box::pin(async move {
            let mut response = full("no");
            if request.headers().contains_key("upgrade") {
                *response.status_mut() = StatusCode::FORBIDDEN;
            }
            response
        })
    })
    .await;
    let balance = ready(config(vec![backend("a", server.address)])).await;
    let mut request = get("/");
    request.headers_mut().insert("connection", "upgrade".try_into().unwrap());
    request.headers_mut().insert("upgrade", "websocket".try_into().unwrap());
    let answer = crate::support::send(balance.address, request).await;
    assert_eq!((answer.status, answer.text.as_str()), (StatusCode::FORBIDDEN, "no"));
}

/// Answers the headers that a proxy sets.
fn seen(request: &Request<hyper::body::Incoming>) -> Response<Body> {
    let names = ["host", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "connection"];
    let header = |name: &str| request.headers().get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
    let mut seen: Vec<String> = names.into_iter().map(header).collect();
    seen.push(format!("{:?} {}", request.version(), request.uri()));
    full(seen.join(" | "))
}

async fn over_http2<I>(io: I, url: &str) -> String
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(io)).await.unwrap();
    tokio::spawn(connection);
    let sent: Vec<_> =
        (0..20).map(|_| client.send_request(Request::get(url).body(Empty::<bytes::Bytes>::new()).unwrap())).collect();
    let mut answers = futures::future::join_all(sent).await.into_iter();
    let first = collect(answers.next().unwrap().unwrap()).await;
    assert_eq!(first.status, StatusCode::OK);
    for answer in answers {
        assert_eq!(collect(answer.unwrap()).await.text, first.text);
    }
    first.text
}

#[tokio::test]
async fn clients_speak_http2_without_tls() {
    let server = server(|request| Box::pin(async move { seen(&request) })).await;
    let balance = ready(config(vec![backend("a", server.address)])).await;
    let stream = TcpStream::connect(balance.address).await.unwrap();
    let text = over_http2(stream, "http://service.example/a?b=c").await;
    assert_eq!(text, "service.example | 127.0.0.1 | http | service.example | - | HTTP/1.1 /a?b=c");
}

fn connector(certificate: &str, protocols: &[&str]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

fn pair() -> CertificatePair {
    let made = rcgen::generate_simple_self_signed(["service.example".to_owned()]).unwrap();
    CertificatePair { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
}

#[tokio::test]
async fn clients_speak_tls() {
    let server = server(|request| Box::pin(async move { seen(&request) })).await;
    let pair = pair();
    let mut settings = config(vec![backend("a", server.address)]);
    settings.tls = Some(pair.clone());
    let balance = ready(settings).await;
    let name = ServerName::try_from("service.example").unwrap();

    let stream = TcpStream::connect(balance.address).await.unwrap();
    let stream = connector(&pair.certificate, &["h2"]).connect(name.clone(), stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let text = over_http2(stream, "https://service.example/").await;
    assert_eq!(text, "service.example | 127.0.0.1 | https | service.example | - | HTTP/1.1 /");

    let stream = TcpStream::connect(balance.address).await.unwrap();
    let stream = connector(&pair.certificate, &[]).connect(name, stream).await.unwrap();
    let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let answer = collect(client.send_request(get("/x")).await.unwrap()).await;
    assert_eq!(answer.text, "service.example | 127.0.0.1 | https | service.example | - | HTTP/1.1 /x");
}

/// A certificate that cannot be used replaces no usable one, and never leads to plain text.
#[tokio::test]
async fn a_broken_certificate_is_reported() {
    let a = named("a").await;
    let broken = CertificatePair { certificate: "none".to_owned(), key: "none".to_owned() };
    let mut settings = config(vec![backend("a", a.address)]);
    settings.tls = Some(broken.clone());
    let mut balance = start(settings).await;
    let report = balance.reported(|report| report.tls_error.is_some()).await;
    let why = report.tls_error.unwrap();
    assert!(why.starts_with("tls.") && !why.contains("none"), "{why}");
    let mut client = crate::support::connect(balance.address).await;
    assert!(timeout(LIMIT, client.send_request(get("/"))).await.unwrap().is_err());

    let pair = pair();
    balance.change(|config| config.tls = Some(pair.clone()));
    balance.reported(|report| report.tls_error.is_none() && report.backends["a"].ready).await;
    balance.change(|config| config.tls = Some(broken));
    balance.reported(|report| report.tls_error.is_some()).await;
    let stream = TcpStream::connect(balance.address).await.unwrap();
    let name = ServerName::try_from("service.example").unwrap();
    let stream = connector(&pair.certificate, &["h2"]).connect(name, stream).await.unwrap();
    assert_eq!(over_http2(stream, "https://service.example/").await, "a");
}
