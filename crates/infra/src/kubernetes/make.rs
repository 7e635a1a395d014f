//! How the pod of a machine is made, and removed.

use super::cluster::{Cluster, fault};
use super::machines::NAME;
use super::pod::{CONTAINER, Stand, manifest, mount_trouble, stand};
use super::reach::{Pods, Spot, events_of, its_pod, uid};
use super::record::{Goal, Record};
use crate::fault::Fault;
use crate::kept::{AGAIN, ENDING, Keeper, Line, Machine};
use crate::provider::not_ours;
use api::sky::Place;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams, Preconditions};
use kube::runtime::watcher::watch_object;
use managed::inventory::{Free, free};
use managed::provider::{Failure, Fate, Request, Seen};
use serde_json::Value;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// How long a pod may wait for a node, unless a setting says otherwise. The value is SkyPilot's.
const WAIT_SECONDS: i32 = 10;
/// How long it may take to make a container, including its image.
const START_MAX: Duration = Duration::from_secs(600);
/// Time between two looks at the events of a pod whose container is being made, and how long a volume may take to be mounted.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
const MOUNT_MAX: Duration = Duration::from_secs(20);

/// The free resources of the cluster's nodes; none if the user may not read them.
async fn free_in(cluster: &Cluster) -> Result<Vec<Free>, kube::Error> {
    let all = |kind: ApiResource| Api::<DynamicObject>::all_with(cluster.client.clone(), &kind);
    let nodes = all(ApiResource::erase::<Node>(&())).list(&ListParams::default()).await?;
    let pods = all(ApiResource::erase::<Pod>(&())).list(&ListParams::default()).await?;
    let values = |list: Vec<Result<Value, serde_json::Error>>| list.into_iter().filter_map(Result::ok).collect();
    let nodes: Vec<Value> = values(nodes.iter().map(serde_json::to_value).collect());
    let pods: Vec<Value> = values(pods.iter().map(serde_json::to_value).collect());
    Ok(free(&nodes, &pods))
}

impl Keeper<Pods> {
    /// The record of a requested machine: the existing one, or a new one, which is then durable.
    pub async fn noted(&self, request: &Request) -> Result<Record, Failure> {
        if let Some(record) = self.records.read(&request.token)? {
            return Ok(record);
        }
        let Place::Kubernetes { context, .. } = request.candidate.place() else {
            return Err(not_ours(NAME, request));
        };
        let cluster = self.reach.cluster(context).await;
        let cluster = cluster.map_err(|fault| Failure::new(Fate::GiveUp, fault.what()))?;
        let record = Record::of(request, cluster.context, cluster.namespace);
        self.records.write(&record)?;
        Ok(record)
    }

    /// Makes the machine of a record. If that fails, its remains are removed, and the fate says what happens next.
    pub async fn make(self: &Arc<Self>, machine: &Arc<Machine<Pods>>, token: &str) -> Result<Seen, Failure> {
        let gone = || Failure::new(Fate::Retry, "the machine is on its way out".to_owned());
        let mut record = self.records.read(token)?.filter(|record| record.goal == Goal::Running).ok_or_else(gone)?;
        let fault = match self.hold(&record).await {
            Ok(pod) => match self.brought(machine, &mut record, &pod).await {
                Ok(seen) => return Ok(seen),
                Err(fault) => fault,
            },
            Err(fault) => fault,
        };
        let fate = match &fault {
            Fault::Broken(_) | Fault::Stuck(_) => return Err(fault.failure(&record.id())),
            Fault::NoRoom(_) | Fault::Unreachable(_) => Fate::NextCandidate,
            Fault::Refused(_) | Fault::Unfit(_) | Fault::Absent => Fate::GiveUp,
        };
        // the rest is removed when the machine is deleted, which the ledger requests next
        if let Ok(true) = self.remove(machine, &record).await {
            record.goal = Goal::Over;
            self.records.write(&record)?;
        }
        Err(Failure::new(fate, fault.what()))
    }

    /// Brings program, relay and agent into the pod.
    async fn brought(
        self: &Arc<Self>,
        machine: &Arc<Machine<Pods>>,
        record: &mut Record,
        pod: &DynamicObject,
    ) -> Result<Seen, Fault> {
        let spot = Spot::of(&self.reach, record, pod).await?;
        self.bring(machine, record, spot).await
    }

    /// Makes sure that the pod exists, and waits until it runs.
    async fn hold(&self, record: &Record) -> Result<DynamicObject, Fault> {
        let cluster = self.reach.cluster(&record.context).await?;
        let pods = cluster.pods(&record.namespace);
        if its_pod(&pods, record).await?.is_none() {
            let nodes = match record.candidate.accelerators {
                None => Vec::new(),
                Some(_) => free_in(&cluster).await.map_err(|error| fault("list nodes and pods", &error))?,
            };
            let object = manifest(record, &self.reach.settings.owner_hash(), &nodes)?;
            let object = serde_json::from_value(object);
            let object: DynamicObject =
                object.map_err(|error| Fault::Refused(format!("pod_config makes no pod of it: {error}")))?;
            match pods.create(&PostParams::default(), &object).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    if its_pod(&pods, record).await?.is_none() {
                        return Err(Fault::Refused(format!("there is another pod {}", record.id())));
                    }
                }
                // the pod may have been created
                Err(error) => match fault("create the pod", &error) {
                    Fault::Unreachable(what) => return Err(Fault::Broken(what)),
                    fault => return Err(fault),
                },
            }
        }
        self.runs(pods, cluster.events(&record.namespace), record).await
    }

    /// Waits until the pod runs.
    async fn runs(
        &self,
        pods: Api<DynamicObject>,
        events: Api<DynamicObject>,
        record: &Record,
    ) -> Result<DynamicObject, Fault> {
        let name = record.pod();
        let seconds = match record.candidate.pod.wait_seconds {
            0 => WAIT_SECONDS,
            seconds => seconds,
        };
        let for_node = u64::try_from(seconds).ok().map(Duration::from_secs);
        let mut why = String::new();
        let mut states = pin!(watch_object(pods, &name));
        let begun = tokio::time::Instant::now();
        let mut since_node = None;
        loop {
            let limit = match (since_node, for_node) {
                (Some(since), _) => Some((since, START_MAX)),
                (None, Some(wait)) => Some((begun, wait)),
                (None, None) => None,
            };
            let next = async {
                match limit {
                    None => Ok(states.try_next().await),
                    Some((since, limit)) => {
                        tokio::time::timeout_at(api::time::after(since, limit), states.try_next()).await
                    }
                }
            };
            let next = tokio::select! {
                next = next => next,
                () = tokio::time::sleep(LOOK_AGAIN), if since_node.is_some() => {
                    // a missing folder or disk stays missing, and only events report it
                    if since_node.is_some_and(|since: tokio::time::Instant| since.elapsed() >= MOUNT_MAX)
                        && let Some(what) = mount_trouble(&events_of(&events, &name).await)
                    {
                        return Err(Fault::Refused(format!("a volume of the pod cannot be mounted: {what}")));
                    }
                    continue;
                }
            };
            let pod = match next {
                Err(_) if since_node.is_none() => {
                    let said = if why.is_empty() { "its scheduler does not say why" } else { &why };
                    return Err(Fault::NoRoom(format!("no node was found for the pod within {seconds} s: {said}")));
                }
                Err(_) => {
                    let seconds = START_MAX.as_secs();
                    return Err(Fault::NoRoom(format!("the pod's container was not made within {seconds} s")));
                }
                // the watch restarts by itself
                Ok(Err(_)) => {
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
                Ok(Ok(None)) => return Err(Fault::Broken("the watch of the pod ended".to_owned())),
                Ok(Ok(Some(pod))) => pod,
            };
            let Some(pod) = pod else { return Err(Fault::Absent) };
            match stand(&pod) {
                Stand::Runs => return Ok(pod),
                Stand::Waits(said) => why = said,
                Stand::Starts => since_node = since_node.or_else(|| Some(tokio::time::Instant::now())),
                Stand::Never(what) => {
                    let image = &record.candidate.pod.image;
                    return Err(Fault::Refused(format!(
                        "the pod's container {CONTAINER} does not start: {what} {image}"
                    )));
                }
                Stand::Ends => return Err(Fault::Stuck("the pod ended before its machine was made".to_owned())),
            }
        }
    }

    /// Ends the processes in the pod, then deletes it. Returns whether it is gone.
    pub async fn remove(&self, machine: &Machine<Pods>, record: &Record) -> Result<bool, Fault> {
        let pods = self.reach.pods(record).await?;
        let Some(pod) = its_pod(&pods, record).await? else {
            machine.unlink();
            return Ok(true);
        };
        if stand(&pod) == Stand::Runs {
            let line = self.reach.line(record).await?;
            // processes that do not end by themselves end with the pod
            if let Err(fault) = line.call("end", &[("token", &record.who.token)], None, ENDING).await
                && fault != Fault::Absent
            {
                tracing::info!(machine = record.id(), why = fault.what(), "its pod is deleted as it is");
            }
        }
        machine.unlink();
        if pod.metadata.deletion_timestamp.is_none() {
            let preconditions = Preconditions { uid: Some(uid(&pod)), resource_version: None };
            let options = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match pods.delete(&record.pod(), &options).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(true),
                Err(error) => return Err(fault("delete the pod", &error)),
            }
        }
        let left = its_pod(&pods, record).await?;
        Ok(left.is_none_or(|left| uid(&left) != uid(&pod)))
    }
}
