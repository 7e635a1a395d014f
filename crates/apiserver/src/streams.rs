//! What only the node agent can answer: logs of pods, and shells in them.

use crate::status::Status;
use axum::extract::ws::WebSocket;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use serde_json::Value;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// `PodLogOptions`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogOptions {
    /// Empty: the pod's only container.
    pub container: String,
    pub follow: bool,
    pub previous: bool,
    pub timestamps: bool,
    pub since: Option<Timestamp>,
    pub tail_lines: Option<i64>,
    pub limit_bytes: Option<i64>,
}

/// What is asked of a pod's container beside its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    Exec,
    Attach,
    PortForward,
}

/// The options of exec, attach and portforward.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamOptions {
    pub container: String,
    pub command: Vec<String>,
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
    /// Of portforward over WebSocket protocols that name them in the query.
    pub ports: Vec<u16>,
    /// The protocol agreed upon: `v5.channel.k8s.io`, `v4.channel.k8s.io`, `SPDY/3.1+portforward.k8s.io`, …; over SPDY also
    /// older ones, and none at all.
    pub protocol: String,
}

/// A connection of bare bytes.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// What a client's connection has become once both sides agreed.
pub enum Socket {
    WebSocket(Box<WebSocket>),
    /// `Upgrade: SPDY/3.1`, which kubectl before 1.30 speaks.
    Spdy(Box<dyn Io>),
}

/// The node agent, as the API server needs it. Pods are given as stored.
pub trait PodStreams: Send + Sync {
    /// The log of a container. Ends with the log, or with the container where `follow` is set.
    fn logs(
        &self,
        pod: Arc<Value>,
        options: LogOptions,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Bytes>, Status>>;

    /// Whether `stream` would work, asked before the connection is upgraded, so that errors are plain answers.
    fn check(&self, pod: &Value, kind: StreamKind, options: &StreamOptions) -> Result<(), Status>;

    /// A connection to a port of the pod.
    fn connect(&self, pod: &Value, port: u16) -> BoxFuture<'static, io::Result<TcpStream>>;

    /// Speaks the agreed protocol over an upgraded connection until either side ends.
    fn stream(
        &self,
        pod: Arc<Value>,
        kind: StreamKind,
        options: StreamOptions,
        socket: Socket,
    ) -> BoxFuture<'static, ()>;
}
