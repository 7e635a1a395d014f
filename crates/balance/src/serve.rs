//! Connections of clients, from the listener to the end of the load balancer.

use crate::balancer::Balancer;
use crate::body::ResponseBody;
use crate::config::BalancerConfig;
use crate::headers::Client;
use crate::report::BalancerReport;
use crate::stall::Stalling;
use crate::tls::Tls;
use crate::{proxy, reporter};
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Requests in flight get this time after the stop.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);
/// A client that does not finish its TLS handshake in this time is disconnected.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// A client that does not finish a request's headers in this time, or sends no request, is disconnected.
const HEADERS_LIMIT: Duration = Duration::from_secs(60);
/// Headers of a request, and what is read at once.
const BUFFER_MOST: usize = 64 << 10;
const HEADERS_MOST: u32 = 64 << 10;
/// Requests at a time on one HTTP/2 connection.
const STREAMS_MOST: u32 = 250;
/// After the listener fails, usually because the process has too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Between two looks at the first bytes of a connection.
const PEEK_PAUSE: Duration = Duration::from_millis(5);

type Builder = auto::Builder<TokioExecutor>;

/// Answers requests on the listener until `stop` is cancelled. Returns after all requests in flight have ended, at most 30 s later.
///
/// Each new configuration replaces the last one; after the sender of configurations is dropped, the last one stays. The number of
/// connections is bounded by the process's limit of open files.
pub async fn serve(
    listener: TcpListener,
    mut config: watch::Receiver<BalancerConfig>,
    report: watch::Sender<BalancerReport>,
    stop: CancellationToken,
) {
    let balancer = Balancer::new();
    let first = config.borrow_and_update().clone();
    balancer.apply(first);
    let configured = Arc::clone(&balancer);
    let _configs = AbortOnDropHandle::new(tokio::spawn(async move {
        while config.changed().await.is_ok() {
            let new = config.borrow_and_update().clone();
            configured.apply(new);
        }
    }));
    let _reports = AbortOnDropHandle::new(tokio::spawn(reporter::follow(Arc::clone(&balancer), report)));
    let builders = Arc::new(builders());
    tokio::select! {
        () = accept(&balancer, &listener, &builders) => {}
        () = stop.cancelled() => {}
    }
    drop(listener);
    balancer.stopping.cancel();
    balancer.tasks.close();
    if timeout(DRAIN_LIMIT, balancer.tasks.wait()).await.is_err() {
        tracing::warn!("requests in flight did not end within {} s, and were cut off", DRAIN_LIMIT.as_secs());
        balancer.killed.cancel();
        balancer.tasks.wait().await;
    }
    balancer.retire();
}

/// Settings of connections, by protocol. hyper-util could find the protocol out by itself, but would double the read buffer of each
/// connection for the few bytes that it looks at.
struct Builders {
    http1: Builder,
    http2: Builder,
}

fn builders() -> Builders {
    let mut http1 = Builder::new(TokioExecutor::new()).http1_only();
    http1.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS_LIMIT).max_buf_size(BUFFER_MOST);
    let mut http2 = Builder::new(TokioExecutor::new()).http2_only();
    http2
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MOST)
        .max_header_list_size(HEADERS_MOST)
        .keep_alive_interval(HEADERS_LIMIT);
    Builders { http1, http2 }
}

/// Accepts connections for ever.
async fn accept(balancer: &Arc<Balancer>, listener: &TcpListener, builders: &Arc<Builders>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let connection = connection(Arc::clone(balancer), Arc::clone(builders), stream, peer);
                balancer.tasks.spawn(connection);
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection, trying again in 0.1 s: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Answers the requests of one connection.
async fn connection(balancer: Arc<Balancer>, builders: Arc<Builders>, stream: TcpStream, peer: SocketAddr) {
    if stream.set_nodelay(true).is_err() {
        return; // the client has gone
    }
    let Ok(address) = HeaderValue::try_from(peer.ip().to_canonical().to_string()) else { return };
    let client = |is_tls| Client { address, is_tls };
    let settings = balancer.settings();
    let limit = settings.stream_timeout;
    let tls = settings.tls.clone();
    drop(settings);
    let choose = |is_http2| if is_http2 { &builders.http2 } else { &builders.http1 };
    match tls {
        Tls::Off => {
            let begun = tokio::select! {
                begun = timeout(HEADERS_LIMIT, begins_http2(&stream)) => begun,
                () = balancer.stopping.cancelled() => return,
            };
            let Ok(Ok(is_http2)) = begun else { return };
            requests(balancer, choose(is_http2), Stalling::new(stream, limit), client(false)).await;
        }
        // Boxed, so that connections without TLS need no memory for it.
        Tls::On(acceptor) => {
            let accepted = acceptor.accept(Stalling::new(stream, limit));
            if let Ok(Ok(stream)) = Box::pin(timeout(HANDSHAKE_LIMIT, accepted)).await {
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                Box::pin(requests(balancer, choose(is_http2), stream, client(true))).await;
            }
        }
        Tls::Unusable => {}
    }
}

/// Whether a client speaks HTTP/2 without TLS. Reads nothing.
async fn begins_http2(stream: &TcpStream) -> io::Result<bool> {
    const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut start = [0; PREFACE.len()];
    loop {
        let length = stream.peek(&mut start).await?;
        let begun = start.get(..length).unwrap_or_default();
        if length == 0 || !PREFACE.starts_with(begun) {
            return Ok(false);
        }
        if length == PREFACE.len() {
            return Ok(true);
        }
        // The kernel does not say when more bytes follow those that it has shown.
        sleep(PEEK_PAUSE).await;
    }
}

async fn requests<I>(balancer: Arc<Balancer>, builder: &Builder, stream: I, client: Client)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (stopping, killed) = (balancer.stopping.clone(), balancer.killed.clone());
    let service = ClientService { balancer, client };
    // Boxed, since a future has room for each place through which a value moves.
    let mut connection = Box::pin(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    // Connections fail in many ways that only concern their client: no log.
    tokio::select! {
        _ended = connection.as_mut() => return,
        () = stopping.cancelled() => connection.as_mut().graceful_shutdown(),
        () = killed.cancelled() => return,
    }
    tokio::select! {
        _ended = connection => {}
        () = killed.cancelled() => {}
    }
}

/// Answers the requests of a client.
#[derive(Clone)]
struct ClientService {
    balancer: Arc<Balancer>,
    client: Client,
}

impl Service<Request<Incoming>> for ClientService {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    /// Boxed, so that an idle connection and a long answer keep no memory for it.
    type Future = Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let Self { balancer, client } = self.clone();
        Box::pin(async move { Ok(proxy::answer(balancer, client, request).await) })
    }
}
