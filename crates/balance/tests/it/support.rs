//! Servers, clients, and a running load balancer.

use balance::{Backend, BackendState, BalancerConfig, BalancerReport, Probe};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// No wait of a test takes this long unless the test fails.
pub const LIMIT: Duration = Duration::from_secs(20);

pub type Body = BoxBody<Bytes, Infallible>;

pub fn full(text: impl Into<Bytes>) -> Response<Body> {
    Response::new(Full::new(text.into()).boxed())
}

/// A body whose chunks the test sends.
pub fn chunks() -> (mpsc::Sender<Bytes>, Body) {
    let (sender, receiver) = mpsc::channel(8);
    let frames = futures::stream::unfold(receiver, |mut receiver: mpsc::Receiver<Bytes>| async move {
        let chunk = receiver.recv().await?;
        Some((Ok(Frame::data(chunk)), receiver))
    });
    (sender, StreamBody::new(frames).boxed())
}

/// A server that ends with the value.
pub struct Server {
    pub address: SocketAddr,
    task: AbortOnDropHandle<()>,
}

impl Server {
    /// Closes its port and its connections.
    pub async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

/// Starts a server with this handler.
pub async fn server<F>(handler: F) -> Server
where
    F: Fn(Request<Incoming>) -> BoxFuture<'static, Response<Body>> + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let handler = Arc::new(handler);
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let handler = Arc::clone(&handler);
            connections.spawn(async move {
                let service = service_fn(move |request| {
                    let answer = handler(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let connection =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                let _ended = connection.with_upgrades().await;
            });
        }
    });
    Server { address, task: AbortOnDropHandle::new(task) }
}

/// A server that answers its name.
pub async fn named(name: &'static str) -> Server {
    server(move |_| Box::pin(async move { full(name) })).await
}

/// An address that refuses connections.
pub async fn refusing() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

pub fn backend(id: &str, address: SocketAddr) -> Backend {
    Backend {
        id: id.to_owned(),
        address: address.to_string(),
        state: BackendState::Serving,
        capacity: None,
        probe: None,
    }
}

/// Probes often, so that tests are fast.
pub fn config(backends: Vec<Backend>) -> BalancerConfig {
    let probe = Probe { interval: Duration::from_millis(200), timeout: Duration::from_secs(5), ..Probe::default() };
    BalancerConfig { backends, probe, ..BalancerConfig::default() }
}

/// A running load balancer.
pub struct Balance {
    pub address: SocketAddr,
    pub config: watch::Sender<BalancerConfig>,
    pub report: watch::Receiver<BalancerReport>,
    pub stop: CancellationToken,
    pub task: AbortOnDropHandle<()>,
}

pub async fn start(config: BalancerConfig) -> Balance {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (config, configs) = watch::channel(config);
    let (reports, report) = watch::channel(BalancerReport::default());
    let stop = CancellationToken::new();
    let task = AbortOnDropHandle::new(tokio::spawn(balance::serve(listener, configs, reports, stop.clone())));
    Balance { address, config, report, stop, task }
}

/// A load balancer whose backends are all ready.
pub async fn ready(config: BalancerConfig) -> Balance {
    let mut balance = start(config).await;
    balance.reported(|report| !report.backends.is_empty() && report.backends.values().all(|one| one.ready)).await;
    balance
}

impl Balance {
    /// Waits for a report.
    pub async fn reported(&mut self, wanted: impl Fn(&BalancerReport) -> bool) -> BalancerReport {
        let found =
            timeout(LIMIT, self.report.wait_for(|report| wanted(report))).await.map(|found| found.unwrap().clone());
        found.unwrap_or_else(|_| panic!("the last report is {:#?}", *self.report.borrow()))
    }

    /// Changes the configuration.
    pub fn change(&self, change: impl FnOnce(&mut BalancerConfig)) {
        self.config.send_modify(change);
    }

    /// One request without a body over a connection of its own.
    pub async fn get(&self, path: &str) -> Answer {
        send(self.address, get(path)).await
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

pub fn get(path: &str) -> Request<Body> {
    with_body(Method::GET, path, Empty::new().boxed())
}

pub fn with_body(method: Method, path: &str, body: Body) -> Request<Body> {
    Request::builder().method(method).uri(path).header("host", "service.example").body(body).unwrap()
}

/// A connection of a client.
pub async fn connect(address: SocketAddr) -> SendRequest<Body> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub async fn send(address: SocketAddr, request: Request<Body>) -> Answer {
    let mut client = connect(address).await;
    let response = timeout(LIMIT, client.send_request(request)).await.expect("an answer in time").unwrap();
    collect(response).await
}

pub async fn collect(response: Response<Incoming>) -> Answer {
    let (parts, body) = response.into_parts();
    let bytes = timeout(LIMIT, body.collect()).await.expect("a body in time").unwrap().to_bytes();
    Answer { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
}

/// The next chunk of a body.
pub async fn chunk(body: &mut Incoming) -> Option<Bytes> {
    if body.is_end_stream() {
        return None;
    }
    let frame = timeout(LIMIT, body.frame()).await.expect("a chunk in time");
    frame.map(|frame| frame.unwrap().into_data().unwrap())
}
