//! What agents on other machines need to be nodes of the API server: their identity, and a connection to it.

use futures::future::BoxFuture;
use std::collections::BTreeMap;
use tokio::io::{AsyncRead, AsyncWrite};

/// The Node that a machine will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The token of its machine.
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
    /// The uid of its Node. A Node with another uid needs another agent.
    pub uid: String,
}

/// Why an agent gets no pass.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    #[error("there is another node {0} already; remove it: kubectl delete node {0}")]
    Taken(String),
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// Its kubeconfig was not made.
    #[error("{0}")]
    Kubeconfig(String),
}

/// Bytes in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// How the program that runs the API server equips its agents.
pub trait Access: Send + Sync + 'static {
    /// Makes the Node if it is missing, and its agent's kubeconfig. In that file the API server is at this port of 127.0.0.1.
    fn pass<'a>(&'a self, machine: &'a Identity, port: u16) -> BoxFuture<'a, Result<Pass, PassError>>;

    /// Carries the connections of a relay (`trainyard relay`) to the API server, until the relay ends.
    fn carry(&self, relay: Box<dyn Duplex>) -> BoxFuture<'static, ()>;
}
