//! The agent's interface to the cluster: pods bound to its node, objects that pods refer to, and reports of their status.

use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use serde_json::Value;
use std::future::Future;
use std::sync::Arc;

/// A change of the pods bound to the node.
#[derive(Clone, Debug)]
pub enum PodEvent {
    /// All of them, as of now: whatever is not among them is gone.
    All(Vec<Arc<Pod>>),
    Applied(Arc<Pod>),
    Deleted(Arc<Pod>),
}

/// Why the cluster did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The object (or the pod with that uid) is not there.
    #[error("not found")]
    NotFound,
    /// Anything else: try again later.
    #[error("{what}: {why}")]
    Failed { what: String, why: String },
}

/// A service account token that a pod asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenAsk {
    pub namespace: String,
    pub service_account: String,
    /// Empty: the API server's own.
    pub audience: String,
    pub expiration_secs: i64,
    pub pod_name: String,
    pub pod_uid: String,
}

/// Severity of an event, as Kubernetes has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

impl EventType {
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        }
    }
}

/// The cluster, as the agent sees it. `kube_world::KubeWorld` is the real one; tests have their own.
pub trait PodApi: Send + Sync + 'static {
    /// The pods of the node, forever; begins with `All`.
    fn pods(&self) -> BoxStream<'static, PodEvent>;

    /// Writes `status` over the pod's (strategic merge), if it still has that uid.
    fn patch_status(&self, pod: &Pod, status: Value) -> impl Future<Output = Result<(), WorldError>> + Send;

    /// Deletes the pod at once: nothing of it runs any more.
    fn delete_pod(&self, pod: &Pod) -> impl Future<Output = Result<(), WorldError>> + Send;

    fn config_map(&self, ns: &str, name: &str) -> impl Future<Output = Result<ConfigMap, WorldError>> + Send;

    /// The ConfigMap, whenever it is there or has changed, forever; begins with what there is.
    fn config_map_changes(&self, ns: &str, name: &str) -> BoxStream<'static, ConfigMap>;

    fn secret(&self, ns: &str, name: &str) -> impl Future<Output = Result<Secret, WorldError>> + Send;

    fn token(&self, ask: &TokenAsk) -> impl Future<Output = Result<String, WorldError>> + Send;

    /// Records an event about the pod; failures are the implementation's to log.
    fn event(&self, pod: &Pod, kind: EventType, reason: &str, message: &str) -> impl Future<Output = ()> + Send;

    /// Creates or updates the Node object, status included.
    fn put_node(&self, node: Value) -> impl Future<Output = Result<(), WorldError>> + Send;

    /// Says that the node is alive, which is valid for so many seconds.
    fn renew_lease(&self, secs: i32) -> impl Future<Output = Result<(), WorldError>> + Send;
}
