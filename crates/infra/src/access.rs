//! What agents on other machines need of the API server: to be its nodes, and a way to it.

use futures::future::BoxFuture;
use std::collections::BTreeMap;
use tokio::io::{AsyncRead, AsyncWrite};

/// The Node that a machine is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Of its machine.
    pub token: String,
    /// Name, labels and taints of the Node.
    pub node: String,
    pub labels: BTreeMap<String, String>,
    pub taints: BTreeMap<String, String>,
}

/// What an agent needs to reach the API server as its node.
#[derive(Clone, Debug)]
pub struct Pass {
    pub kubeconfig: String,
    /// The uid of its Node: another one wants another agent.
    pub uid: String,
}

/// Bytes in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// What the program that runs the API server gives its agents.
pub trait Access: Send + Sync + 'static {
    /// Makes the Node where it is missing, and the kubeconfig of its agent, by which the API server is at this port of 127.0.0.1.
    fn pass<'a>(&'a self, machine: &'a Identity, port: u16) -> BoxFuture<'a, Result<Pass, String>>;

    /// Leads the connections that come over a relay (`trainyard relay`) to the API server, until it ends.
    fn carry(&self, relay: Box<dyn Duplex>) -> BoxFuture<'static, ()>;
}
