//! The cluster behind a `kube::Client`: the embedded API server in process, or a real one over the network.

use crate::node_object;
use crate::untyped::Untyped;
use crate::world::{EventType, PodApi, PodEvent, TokenAsk, WorldError};
use api::node::LEASE_NAMESPACE;
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams, Preconditions,
};
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Who events come from.
const COMPONENT: &str = "trainyard-node";

/// Follows the pods of a cluster, all of them, from the beginning; what fails is tried again.
pub type Pods = Arc<dyn Fn() -> BoxStream<'static, watcher::Event<Arc<Value>>> + Send + Sync>;

/// The cluster, for the agent of one node.
#[derive(Clone)]
pub struct KubeWorld {
    client: Client,
    node: String,
    /// `None`: its pods are watched by requests.
    pods: Option<Pods>,
    /// How often each event was recorded, by its name: a node may write events, but not read them.
    counts: Arc<Mutex<BTreeMap<String, u64>>>,
}

/// Events of which the number is known; once there are more, all begin anew.
const COUNTS_MAX: usize = 4096;

impl std::fmt::Debug for KubeWorld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeWorld").field("node", &self.node).finish_non_exhaustive()
    }
}

fn failed(what: &str, error: kube::Error) -> WorldError {
    match error {
        kube::Error::Api(status) if status.code == 404 => WorldError::NotFound,
        other => WorldError::Failed { what: what.to_owned(), why: other.to_string() },
    }
}

/// Whether the server says that the object has another uid than the one we know: for us, ours is gone.
fn is_other_uid(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => match status.code {
            409 => status.message.contains("UID"),
            422 => status.message.contains("metadata.uid"),
            _ => false,
        },
        _ => false,
    }
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

/// A kind of the core group.
fn core(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind))
}

fn lease_kind() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease"))
}

/// An object to send. Objects go over the wire untyped: a typed `Api` of each kind costs the binary a decoder of its own.
fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).expect("invariant: made with a kind and metadata")
}

impl KubeWorld {
    pub fn new(client: Client, node: &str) -> Self {
        Self { client, node: node.to_owned(), pods: None, counts: Arc::default() }
    }

    /// Hears of pods from there.
    #[must_use]
    pub fn with_pods(mut self, pods: Pods) -> Self {
        self.pods = Some(pods);
        self
    }

    /// What becomes of the node's pods.
    fn watched(&self) -> BoxStream<'static, watcher::Event<Arc<Value>>> {
        if let Some(pods) = &self.pods {
            let node = self.node.clone();
            let is_ours = move |event: &watcher::Event<Arc<Value>>| match event {
                watcher::Event::InitApply(pod) | watcher::Event::Apply(pod) | watcher::Event::Delete(pod) => {
                    pod["spec"]["nodeName"] == *node
                }
                watcher::Event::Init | watcher::Event::InitDone => true,
            };
            return pods().filter(move |event| std::future::ready(is_ours(event))).boxed();
        }
        let pods: Api<Untyped> = Api::all_with(self.client.clone(), &core("Pod"));
        let config = watcher::Config::default().fields(&format!("spec.nodeName={}", self.node));
        let tree = |pod: Untyped| Arc::new(pod.into_tree());
        let events = watcher(pods, config).backoff(Pauses::default()).filter_map(move |event| {
            std::future::ready(match event {
                Ok(watcher::Event::Init) => Some(watcher::Event::Init),
                Ok(watcher::Event::InitApply(pod)) => Some(watcher::Event::InitApply(tree(pod))),
                Ok(watcher::Event::InitDone) => Some(watcher::Event::InitDone),
                Ok(watcher::Event::Apply(pod)) => Some(watcher::Event::Apply(tree(pod))),
                Ok(watcher::Event::Delete(pod)) => Some(watcher::Event::Delete(tree(pod))),
                Err(error) => {
                    tracing::warn!(%error, "watching pods; trying again");
                    None
                }
            })
        });
        events.boxed()
    }

    fn namespaced(&self, namespace: &str, kind: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, kind)
    }

    /// For objects that are read and not sent.
    fn to_read(&self, namespace: &str, kind: &ApiResource) -> Api<Untyped> {
        Api::namespaced_with(self.client.clone(), namespace, kind)
    }

    fn all(&self, kind: &ApiResource) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), kind)
    }

    async fn read<K: DeserializeOwned>(&self, namespace: &str, kind: &str, name: &str) -> Result<K, WorldError> {
        let what = format!("reading {kind} {namespace}/{name}");
        let found = self.to_read(namespace, &core(kind)).get(name).await;
        let found = found.map_err(|error| failed(&what, error))?;
        found.typed().map_err(|error| WorldError::Failed { what, why: error.to_string() })
    }

    /// Creates the event, or counts it again.
    async fn record(&self, pod: &Pod, kind: EventType, reason: &str, message: &str) -> kube::Result<()> {
        let events = self.namespaced(namespace(pod), &core("Event"));
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let event_name = format!("{}.{:016x}", name(pod), crate::identity::hash(&[uid, reason, message]));
        let now = node_time(clock::now());
        let fresh = object(json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": event_name},
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "name": name(pod), "namespace": namespace(pod), "uid": uid,
                "resourceVersion": pod.metadata.resource_version,
            },
            "reason": reason,
            "message": message.chars().take(1024).collect::<String>(),
            "type": kind.as_str(),
            "source": {"component": COMPONENT, "host": self.node},
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
            "reportingComponent": COMPONENT, "reportingInstance": self.node,
        }));
        let count = {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            if counts.len() >= COUNTS_MAX {
                counts.clear();
            }
            let key = format!("{}/{event_name}", namespace(pod));
            let count = counts.entry(key).or_default();
            *count = count.saturating_add(1);
            *count
        };
        match events.create(&PostParams::default(), &fresh).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let count = count.max(2);
                let again = json!({"count": count, "lastTimestamp": now});
                events.patch(&event_name, &PatchParams::default(), &Patch::Merge(again)).await.map(drop)
            }
            other => other.map(drop),
        }
    }
}

/// Pauses between tries of a watch. The longest is short: with the usual ones, of up to half a minute, an agent heard of new pods and of ends
/// as late again as its API server was away.
#[derive(Default)]
struct Pauses(u32);

/// The first pause; it doubles up to the longest, milliseconds.
const PAUSE_MIN: u64 = 200;
const PAUSE_MAX: u64 = 2000;

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = PAUSE_MIN.saturating_mul(1 << self.0.min(8)).min(PAUSE_MAX);
        self.0 = self.0.saturating_add(1);
        Some(Duration::from_millis(pause))
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.0 = 0;
    }
}

fn node_time(at: Timestamp) -> String {
    crate::status::time(at)
}

impl PodApi for KubeWorld {
    fn pods(&self) -> BoxStream<'static, PodEvent> {
        // A relist comes as a bracket of single objects; it is handed on as one event when the bracket closes.
        let relisted: Vec<Arc<Pod>> = Vec::new();
        futures::stream::unfold((self.watched(), relisted), |(mut events, mut relisted)| async move {
            loop {
                let event = events.next().await?;
                let read = |pod: Arc<Value>| {
                    let name = api::object::meta(&pod, "name").to_owned();
                    match Pod::deserialize(&*pod) {
                        Ok(pod) => Some(Arc::new(pod)),
                        Err(error) => {
                            tracing::error!(%error, pod = name, "a pod that cannot be read; left alone");
                            None
                        }
                    }
                };
                let event = match event {
                    watcher::Event::Init => {
                        relisted.clear();
                        continue;
                    }
                    watcher::Event::InitApply(pod) => {
                        relisted.extend(read(pod));
                        continue;
                    }
                    watcher::Event::InitDone => PodEvent::All(std::mem::take(&mut relisted)),
                    watcher::Event::Apply(pod) => match read(pod) {
                        Some(pod) => PodEvent::Applied(pod),
                        None => continue,
                    },
                    watcher::Event::Delete(pod) => match read(pod) {
                        Some(pod) => PodEvent::Deleted(pod),
                        None => continue,
                    },
                };
                return Some((event, (events, relisted)));
            }
        })
        .boxed()
    }

    async fn patch_status(&self, pod: &Pod, status: Value) -> Result<(), WorldError> {
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
        let pods = self.to_read(namespace(pod), &core("Pod"));
        match pods.patch_status(name(pod), &PatchParams::default(), &Patch::Strategic(patch)).await {
            Ok(_) => Ok(()),
            Err(error) if is_other_uid(&error) => Err(WorldError::NotFound),
            Err(error) => Err(failed("writing the pod's status", error)),
        }
    }

    async fn delete_pod(&self, pod: &Pod) -> Result<(), WorldError> {
        let preconditions = Preconditions { uid: pod.metadata.uid.clone(), ..Preconditions::default() };
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        let pods = self.to_read(namespace(pod), &core("Pod"));
        match pods.delete(name(pod), &params).await {
            Ok(_) => Ok(()),
            Err(error) if is_other_uid(&error) => Err(WorldError::NotFound),
            Err(error) => Err(failed("deleting the pod", error)),
        }
    }

    async fn config_map(&self, ns: &str, name: &str) -> Result<ConfigMap, WorldError> {
        self.read(ns, "ConfigMap", name).await
    }

    fn config_map_changes(&self, ns: &str, name: &str) -> BoxStream<'static, ConfigMap> {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let changes = watcher(self.to_read(ns, &core("ConfigMap")), config).backoff(Pauses::default());
        let there = |event: Result<watcher::Event<Untyped>, watcher::Error>| async move {
            match event {
                Ok(watcher::Event::InitApply(found) | watcher::Event::Apply(found)) => found
                    .typed()
                    .inspect_err(|error| tracing::error!(%error, "a ConfigMap that cannot be read; left alone"))
                    .ok(),
                Ok(watcher::Event::Init | watcher::Event::InitDone | watcher::Event::Delete(_)) => None,
                Err(error) => {
                    tracing::warn!(%error, "watching a ConfigMap; trying again");
                    None
                }
            }
        };
        changes.filter_map(there).boxed()
    }

    async fn secret(&self, ns: &str, name: &str) -> Result<Secret, WorldError> {
        self.read(ns, "Secret", name).await
    }

    async fn token(&self, ask: &TokenAsk) -> Result<String, WorldError> {
        let api = self.namespaced(&ask.namespace, &core("ServiceAccount"));
        let mut spec = json!({
            "audiences": [],
            "expirationSeconds": ask.expiration_secs,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": ask.pod_name, "uid": ask.pod_uid},
        });
        if !ask.audience.is_empty() {
            spec["audiences"] = json!([ask.audience]);
        }
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        let what = "requesting a token";
        let answer: Result<Value, _> =
            api.create_subresource("token", &ask.service_account, &PostParams::default(), &request).await;
        let answer = answer.map_err(|error| failed(what, error))?;
        let token = answer["status"]["token"].as_str().map(str::to_owned);
        token.ok_or_else(|| WorldError::Failed { what: what.to_owned(), why: "the answer holds none".to_owned() })
    }

    async fn event(&self, pod: &Pod, kind: EventType, reason: &str, message: &str) {
        if let Err(error) = self.record(pod, kind, reason, message).await {
            tracing::debug!(%error, reason, "cannot record an event");
        }
    }

    async fn put_node(&self, node: Value) -> Result<(), WorldError> {
        let what = "registering the node";
        let nodes = self.all(&core("Node"));
        let old = nodes.get_opt(&self.node).await.map_err(|error| failed(what, error))?;
        let params = PatchParams::default();
        let old = match old {
            Some(old) => {
                let patch = json!({"metadata": {
                    "labels": node["metadata"]["labels"],
                    "annotations": node["metadata"]["annotations"],
                }});
                nodes.patch(&self.node, &params, &Patch::Merge(patch)).await.map_err(|error| failed(what, error))?;
                old
            }
            None => {
                let new = object(node.clone());
                nodes.create(&PostParams::default(), &new).await.map_err(|error| failed(what, error))?
            }
        };
        let mut node = node;
        node_object::keep_transitions(&mut node, &serde_json::to_value(&old).unwrap_or_default());
        let patch = json!({"status": node["status"]});
        nodes.patch_status(&self.node, &params, &Patch::Strategic(patch)).await.map_err(|e| failed(what, e))?;
        Ok(())
    }

    async fn renew_lease(&self, secs: i32) -> Result<(), WorldError> {
        let what = "renewing the node's lease";
        let leases = self.namespaced(LEASE_NAMESPACE, &lease_kind());
        let now = clock::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let patch = json!({"spec": {"renewTime": now, "holderIdentity": self.node, "leaseDurationSeconds": secs}});
        match leases.patch(&self.node, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(failed(what, error)),
        }
        let owner = self.all(&core("Node")).get_opt(&self.node).await.map_err(|error| failed(what, error))?;
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.node},
            "spec": patch["spec"],
        });
        if let Some(uid) = owner.and_then(|node| node.metadata.uid) {
            lease["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid}]);
        }
        let lease = object(lease);
        match leases.create(&PostParams::default(), &lease).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let namespaces = self.all(&core("Namespace"));
                let namespace =
                    object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}));
                namespaces.create(&PostParams::default(), &namespace).await.map_err(|error| failed(what, error))?;
                leases.create(&PostParams::default(), &lease).await.map(drop).map_err(|error| failed(what, error))
            }
            Err(error) => Err(failed(what, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_tries_of_a_watch_stay_short_and_begin_anew() {
        let mut pauses = Pauses::default();
        let millis = |pauses: &mut Pauses| pauses.next().map(|pause| pause.as_millis());
        let first: Vec<u128> = (0..5).filter_map(|_| millis(&mut pauses)).collect();
        assert_eq!(first, [200, 400, 800, 1600, 2000]);
        assert_eq!((0..100).filter_map(|_| millis(&mut pauses)).max(), Some(2000));
        pauses.reset();
        assert_eq!(millis(&mut pauses), Some(200));
    }
}
