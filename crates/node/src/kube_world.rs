//! The cluster behind a `kube::Client`: the embedded API server in process, or a real one over the network.

use crate::node_object::{self, LEASE_NAMESPACE, LEASE_SECS};
use crate::world::{EventType, PodEvent, TokenAsk, World, WorldError};
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, EventSource, Namespace, Node, ObjectReference, Pod, Secret, ServiceAccount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use serde_json::{Value, json};
use std::sync::Arc;

/// Who events come from.
const COMPONENT: &str = "trainyard-node";

/// The cluster, for the agent of one node.
#[derive(Clone)]
pub struct KubeWorld {
    client: Client,
    node: String,
}

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

impl KubeWorld {
    pub fn new(client: Client, node: &str) -> Self {
        Self { client, node: node.to_owned() }
    }

    fn api_of<K>(&self, pod: &Pod) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or("default"))
    }

    /// Creates the event, or counts it again.
    async fn record(&self, pod: &Pod, kind: EventType, reason: &str, message: &str) -> kube::Result<()> {
        let events: Api<Event> = self.api_of(pod);
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let event_name = format!("{}.{:016x}", name(pod), crate::identity::hash(&[uid, reason, message]));
        let now = Timestamp::now();
        let fresh = Event {
            metadata: ObjectMeta { name: Some(event_name.clone()), ..ObjectMeta::default() },
            involved_object: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: pod.metadata.name.clone(),
                namespace: pod.metadata.namespace.clone(),
                uid: pod.metadata.uid.clone(),
                resource_version: pod.metadata.resource_version.clone(),
                ..ObjectReference::default()
            },
            reason: Some(reason.to_owned()),
            message: Some(message.chars().take(1024).collect()),
            type_: Some(kind.as_str().to_owned()),
            source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: Some(self.node.clone()) }),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            reporting_component: Some(COMPONENT.to_owned()),
            reporting_instance: Some(self.node.clone()),
            ..Event::default()
        };
        match events.create(&PostParams::default(), &fresh).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let old = events.get(&event_name).await?;
                let again = json!({
                    "count": old.count.unwrap_or(1).saturating_add(1),
                    "lastTimestamp": node_time(now),
                });
                events.patch(&event_name, &PatchParams::default(), &Patch::Merge(again)).await.map(drop)
            }
            other => other.map(drop),
        }
    }
}

fn node_time(at: Timestamp) -> String {
    crate::status::time(at)
}

impl World for KubeWorld {
    fn pods(&self) -> BoxStream<'static, PodEvent> {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let config = watcher::Config::default().fields(&format!("spec.nodeName={}", self.node));
        // A relist comes as a bracket of single objects; it is handed on as one event when the bracket closes.
        let events = watcher(pods, config).default_backoff();
        let relisted: Vec<Arc<Pod>> = Vec::new();
        futures::stream::unfold((events.boxed(), relisted), |(mut events, mut relisted)| async move {
            loop {
                let event = match events.next().await? {
                    Ok(watcher::Event::Init) => {
                        relisted.clear();
                        continue;
                    }
                    Ok(watcher::Event::InitApply(pod)) => {
                        relisted.push(Arc::new(pod));
                        continue;
                    }
                    Ok(watcher::Event::InitDone) => PodEvent::All(std::mem::take(&mut relisted)),
                    Ok(watcher::Event::Apply(pod)) => PodEvent::Applied(Arc::new(pod)),
                    Ok(watcher::Event::Delete(pod)) => PodEvent::Deleted(Arc::new(pod)),
                    Err(error) => {
                        tracing::warn!(%error, "watching pods; trying again");
                        continue;
                    }
                };
                return Some((event, (events, relisted)));
            }
        })
        .boxed()
    }

    async fn patch_status(&self, pod: &Pod, status: Value) -> Result<(), WorldError> {
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
        let pods: Api<Pod> = self.api_of(pod);
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
        let pods: Api<Pod> = self.api_of(pod);
        match pods.delete(name(pod), &params).await {
            Ok(_) => Ok(()),
            Err(error) if is_other_uid(&error) => Err(WorldError::NotFound),
            Err(error) => Err(failed("deleting the pod", error)),
        }
    }

    async fn config_map(&self, ns: &str, name: &str) -> Result<ConfigMap, WorldError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), ns);
        api.get(name).await.map_err(|error| failed("reading a config map", error))
    }

    async fn secret(&self, ns: &str, name: &str) -> Result<Secret, WorldError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), ns);
        api.get(name).await.map_err(|error| failed("reading a secret", error))
    }

    async fn token(&self, ask: &TokenAsk) -> Result<String, WorldError> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &ask.namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: (!ask.audience.is_empty()).then(|| vec![ask.audience.clone()]),
                expiration_seconds: Some(ask.expiration_secs),
                bound_object_ref: Some(k8s_openapi::api::authentication::v1::BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: Some(ask.pod_name.clone()),
                    uid: Some(ask.pod_uid.clone()),
                }),
            }),
            ..TokenRequest::default()
        };
        let what = "requesting a token";
        let answer = api.create_token_request(&ask.service_account, &PostParams::default(), &request).await;
        let answer = answer.map_err(|error| failed(what, error))?;
        let token = answer.status.and_then(|status| status.token);
        token.ok_or_else(|| WorldError::Failed { what: what.to_owned(), why: "the answer holds none".to_owned() })
    }

    async fn event(&self, pod: &Pod, kind: EventType, reason: &str, message: &str) {
        if let Err(error) = self.record(pod, kind, reason, message).await {
            tracing::debug!(%error, reason, "cannot record an event");
        }
    }

    async fn put_node(&self, node: Value) -> Result<(), WorldError> {
        let what = "registering the node";
        let nodes: Api<Node> = Api::all(self.client.clone());
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
                let new: Node = serde_json::from_value(node.clone())
                    .map_err(|e| WorldError::Failed { what: what.to_owned(), why: e.to_string() })?;
                nodes.create(&PostParams::default(), &new).await.map_err(|error| failed(what, error))?
            }
        };
        let mut node = node;
        node_object::keep_transitions(&mut node, &serde_json::to_value(&old).unwrap_or_default());
        let patch = json!({"status": node["status"]});
        nodes.patch_status(&self.node, &params, &Patch::Strategic(patch)).await.map_err(|e| failed(what, e))?;
        Ok(())
    }

    async fn renew_lease(&self) -> Result<(), WorldError> {
        let what = "renewing the node's lease";
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), LEASE_NAMESPACE);
        let now = MicroTime(Timestamp::now());
        let patch =
            json!({"spec": {"renewTime": now, "holderIdentity": self.node, "leaseDurationSeconds": LEASE_SECS}});
        match leases.patch(&self.node, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(failed(what, error)),
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let owner = nodes.get_opt(&self.node).await.map_err(|error| failed(what, error))?;
        let owner = owner.and_then(|node| node.metadata.uid).map(|uid| OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.node.clone(),
            uid,
            ..OwnerReference::default()
        });
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.node.clone()),
                owner_references: owner.map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.node.clone()),
                lease_duration_seconds: Some(LEASE_SECS),
                renew_time: Some(now),
                ..LeaseSpec::default()
            }),
        };
        match leases.create(&PostParams::default(), &lease).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let namespaces: Api<Namespace> = Api::all(self.client.clone());
                let namespace = Namespace {
                    metadata: ObjectMeta { name: Some(LEASE_NAMESPACE.to_owned()), ..ObjectMeta::default() },
                    ..Namespace::default()
                };
                namespaces.create(&PostParams::default(), &namespace).await.map_err(|error| failed(what, error))?;
                leases.create(&PostParams::default(), &lease).await.map(drop).map_err(|error| failed(what, error))
            }
            Err(error) => Err(failed(what, error)),
        }
    }
}
