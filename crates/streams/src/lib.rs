//! The interface to the node agent: logs of pods, and shells in them; and the protocols by which clients ask for those.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod client;
mod forward;
mod frames;
#[cfg(test)]
mod properties;
mod session;
mod spdy;
mod websocket;
pub mod wire;

#[cfg(any(test, feature = "testing"))]
pub use websocket::testing;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use resource::status::Status;
use serde_json::Value;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

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
    WebSocket(Box<dyn Io>),
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
    fn check(&self, pod: &Value, kind: StreamKind, options: &StreamOptions) -> BoxFuture<'static, Result<(), Status>>;

    /// A connection to a port of the pod.
    fn connect(&self, pod: &Value, port: u16) -> BoxFuture<'static, io::Result<Box<dyn Io>>>;

    /// Executes a command in a running container.
    ///
    /// # Errors
    /// Why it could not be, in a sentence for the client.
    fn exec(&self, pod: &Value, options: &StreamOptions) -> BoxFuture<'static, Result<Command, String>>;
}

/// Where the agents of other machines dial in: what the server asks of their pods goes back over connections that they keep
/// open, so that none of them has to be reached.
pub trait Tunnels: Send + Sync {
    /// What is spoken over such a connection, as the header `Upgrade` names it: with its version.
    fn protocol(&self) -> &'static str;

    /// Speaks over the connection of a node's agent until either side ends it. A newer one takes the place of an older one. The future is
    /// dropped when the node is deleted, and the connection with it.
    fn serve(&self, node: String, io: Box<dyn Io>) -> BoxFuture<'static, ()>;
}

/// Changes the size of a terminal: columns, rows.
pub type Resize = Box<dyn Fn(u16, u16) + Send + Sync>;

/// A running command. Dropping it closes its streams.
pub struct Command {
    /// `None` if not asked for. Drop it to end the input.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// `None` in a terminal.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// In a terminal.
    pub resize: Option<Resize>,
    /// The exit code; all output may not have been read yet.
    pub exit: BoxFuture<'static, io::Result<i32>>,
}

/// Speaks the agreed protocol over an upgraded connection until either side ends.
pub async fn speak(
    agent: Arc<dyn PodStreams>,
    pod: Arc<Value>,
    kind: StreamKind,
    options: StreamOptions,
    socket: Socket,
) {
    match kind {
        StreamKind::Exec => session::exec(&*agent, &pod, options, socket).await,
        StreamKind::Attach => session::attach(&*agent, pod, options, socket).await,
        StreamKind::PortForward => forward::forward(agent, pod, options, socket).await,
    }
}
