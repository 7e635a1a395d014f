//! HTTP servers of the operator, plain or over TLS: accept, answer, and stop without dropping what is under way.

use bytes::Bytes;
use futures::FutureExt;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// How long a client may take for a handshake and for its headers.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long requests under way may go on once the server stops.
const STOP_MAX: Duration = Duration::from_secs(5);
/// How long a connection that has asked nothing yet is kept open once the server stops.
const FIRST_MAX: Duration = Duration::from_millis(500);
/// How many connections may be open at once; more wait in the listener's queue.
const CONNECTIONS_MAX: usize = 4096;

/// The answer to a request.
pub type Answer = Response<Full<Bytes>>;

/// Answers requests.
pub trait Service: Send + Sync + 'static {
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Answer> + Send;
}

/// An answer in words.
pub fn text(code: StatusCode, text: impl Into<String>) -> Answer {
    answer(code, "text/plain; charset=utf-8", text.into())
}

pub(crate) fn answer(code: StatusCode, content_type: &'static str, body: String) -> Answer {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A socket that several processes of this user may listen on at once: replicas on one machine then share the address, and
/// one that ends leaves no gap.
pub fn shared_listener(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(1024)
}

/// The two words that end a server.
#[derive(Clone, Default)]
pub struct Ends {
    /// It still serves, but every answer closes its connection: clients that keep connections look for another server.
    pub drain: CancellationToken,
    /// Nothing new is taken; requests under way have 5 s.
    pub stop: CancellationToken,
}

impl From<CancellationToken> for Ends {
    /// Without draining.
    fn from(stop: CancellationToken) -> Self {
        Self { drain: CancellationToken::new(), stop }
    }
}

/// Serves a socket until told to stop, over TLS where there is a configuration for it. HTTP/2 is spoken only where TLS offers
/// it.
pub async fn serve<S: Service>(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    service: Arc<S>,
    ends: impl Into<Ends>,
) {
    let ends = ends.into();
    let http2 = tls.as_ref().is_some_and(|tls| tls.alpn_protocols.iter().any(|name| name == b"h2"));
    let acceptor = tls.map(TlsAcceptor::from);
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => accepted,
            Some(_) = connections.join_next(), if connections.len() >= CONNECTIONS_MAX => continue,
            () = ends.stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(connection(stream, acceptor.clone(), http2, service.clone(), ends.clone()));
            }
            Err(error) => {
                // out of file descriptors, most likely: some will be closed soon
                let address = listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
                tracing::warn!(address, %error, "a connection cannot be accepted; trying again");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    // clients that have connected already are served
    while let Some(Ok((stream, _))) = listener.accept().now_or_never() {
        connections.spawn(connection(stream, acceptor.clone(), http2, service.clone(), ends.clone()));
    }
    drop(listener);
    let ended = tokio::time::timeout(STOP_MAX, async { while connections.join_next().await.is_some() {} }).await;
    if ended.is_err() {
        connections.shutdown().await;
    }
}

async fn connection<S: Service>(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    http2: bool,
    service: Arc<S>,
    ends: Ends,
) {
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = acceptor else { return exchange(stream, http2, service, ends).await };
    match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => exchange(stream, http2, service, ends).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn exchange<S: Service>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    http2: bool,
    service: Arc<S>,
    ends: Ends,
) {
    let answered = Arc::new(AtomicBool::new(false));
    let (Ends { drain, stop }, any) = (ends.clone(), answered.clone());
    let answer = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (service, drain, stop, any) = (service.clone(), drain.clone(), stop.clone(), any.clone());
        async move {
            let mut answer = service.answer(request).await;
            any.store(true, Ordering::Relaxed);
            if (drain.is_cancelled() || stop.is_cancelled()) && !http2 {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    if !http2 {
        builder = builder.http1_only();
    }
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    let connection = builder.serve_connection(TokioIo::new(stream), answer);
    tokio::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = ends.stop.cancelled() => {
            if !answered.load(Ordering::Relaxed) {
                // its first request is on the way, most likely
                let _ = tokio::time::timeout(FIRST_MAX, connection.as_mut()).await;
            }
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection broke");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    struct Fine;

    impl Service for Fine {
        async fn answer(&self, _: Request<Incoming>) -> Answer {
            text(StatusCode::OK, "fine")
        }
    }

    /// One exchange on a connection that is kept; the answer in lower case.
    async fn ask(stream: &mut TcpStream) -> String {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"fine") {
            let mut part = [0; 1024];
            let length = stream.read(&mut part).await.unwrap();
            assert!(length > 0, "it was closed before it answered");
            answer.extend_from_slice(&part[..length]);
        }
        String::from_utf8(answer).unwrap().to_ascii_lowercase()
    }

    #[tokio::test]
    async fn a_server_that_drains_answers_and_closes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ends = Ends::default();
        let server = tokio::spawn(serve(listener, None, Arc::new(Fine), ends.clone()));
        let mut kept = TcpStream::connect(address).await.unwrap();
        assert!(!ask(&mut kept).await.contains("connection: close"));
        ends.drain.cancel();
        assert!(ask(&mut kept).await.contains("connection: close"));
        assert_eq!(kept.read(&mut [0]).await.unwrap(), 0, "nothing more comes on this one");
        let mut new = TcpStream::connect(address).await.unwrap();
        assert!(ask(&mut new).await.contains("connection: close"), "who comes all the same is served");
        ends.stop.cancel();
        server.await.unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }
}
