//! How a machine is made: its pod, then the program, the relay and the agent in it.

use super::cluster::{Cluster, connect, fault, kubeconfig};
use super::line::Line;
use super::machines::{NAME, Settings};
use super::pod::{CONTAINER, Stand, capacity, manifest, mount_trouble, stand};
use super::record::{Goal, Record};
use crate::access::Access;
use crate::fault::Fault;
use crate::host::first;
use crate::making::Making;
use crate::program::Program;
use crate::provider::not_ours;
use crate::records::Records;
use api::object::text;
use api::sky::{Place, keys};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams, Preconditions};
use kube::runtime::watcher::watch_object;
use kube::{Api, ResourceExt};
use managed::inventory::{Free, free};
use managed::provider::{Failure, Fate, Found, Request, Seen, State};
use serde_json::Value;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// How long a command in a pod may take that is quick, one that ends what runs there, and one that takes the program.
pub const QUICK: Duration = Duration::from_secs(30);
pub const ENDING: Duration = Duration::from_secs(90);
const UPLOAD: Duration = Duration::from_secs(900);
/// How long a pod may wait for a node where nobody says otherwise; SkyPilot's.
const WAIT_SECONDS: i32 = 10;
/// How long a container may take to be made, its image included.
const START_MAX: Duration = Duration::from_secs(600);
/// Between two looks at the events of a pod whose container is being made, and how long a volume may take to be mounted.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
const MOUNT_MAX: Duration = Duration::from_secs(20);
/// First and longest pause before a lost connection is tried again.
const AGAIN: Duration = Duration::from_millis(500);
const AGAIN_MAX: Duration = Duration::from_secs(15);

pub struct Inner {
    pub settings: Settings,
    pub access: Arc<dyn Access>,
    pub records: Records<Record>,
    program: Program,
    pub machines: Mutex<BTreeMap<String, Arc<Machine>>>,
}

/// What is known of a machine while this process lives.
#[derive(Default)]
pub struct Machine {
    /// One call at a time.
    pub turn: tokio::sync::Mutex<()>,
    pub making: Making,
    pub link: Mutex<Option<Link>>,
}

/// A relay that is kept; it is closed when this goes.
pub struct Link {
    /// The port of the pod's loopback.
    pub port: u16,
    /// The uid of the pod.
    pub pod: String,
    pub ended: CancellationToken,
    _task: AbortOnDropHandle<()>,
}

pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn uid(pod: &DynamicObject) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

/// The pod of a machine, where there is one; not somebody else's that is called so.
pub async fn its_pod(pods: &Api<DynamicObject>, record: &Record) -> Result<Option<DynamicObject>, Fault> {
    let found = pods.get_opt(&record.pod()).await.map_err(|error| fault("look for the pod", &error))?;
    Ok(found.filter(|pod| pod.labels().get(keys::TOKEN).is_some_and(|token| *token == record.token)))
}

/// The events about a pod; none where the user may not read them.
pub async fn events_of(events: &Api<DynamicObject>, pod: &str) -> Vec<DynamicObject> {
    let about = ListParams::default().fields(&format!("involvedObject.name={pod}"));
    events.list(&about).await.map(|list| list.items).unwrap_or_default()
}

impl Inner {
    pub fn new(settings: Settings, access: Arc<dyn Access>) -> Self {
        let records = Records::new(settings.folder.clone());
        let program = Program::new(settings.program.clone());
        Self { settings, access, records, program, machines: Mutex::default() }
    }

    pub fn machine(&self, token: &str) -> Arc<Machine> {
        locked(&self.machines).entry(token.to_owned()).or_default().clone()
    }

    pub async fn cluster(&self, context: &str) -> Result<Cluster, Fault> {
        connect(kubeconfig(self.settings.kubeconfig.as_deref())?, context).await
    }

    pub async fn pods(&self, record: &Record) -> Result<Api<DynamicObject>, Fault> {
        Ok(self.cluster(&record.context).await?.pods(&record.namespace))
    }

    /// Commands in the pod of a machine.
    pub async fn line(&self, record: &Record) -> Result<Line, Fault> {
        let client = self.cluster(&record.context).await?.client;
        Ok(Line { pods: Api::namespaced(client, &record.namespace), pod: record.pod() })
    }

    /// What the cluster's nodes have free; nothing where nobody may look.
    pub async fn free(&self, cluster: &Cluster) -> Result<Vec<Free>, kube::Error> {
        let all = |kind: ApiResource| Api::<DynamicObject>::all_with(cluster.client.clone(), &kind);
        let nodes = all(ApiResource::erase::<Node>(&())).list(&ListParams::default()).await?;
        let pods = all(ApiResource::erase::<Pod>(&())).list(&ListParams::default()).await?;
        let values = |list: Vec<Result<Value, serde_json::Error>>| list.into_iter().filter_map(Result::ok).collect();
        let nodes: Vec<Value> = values(nodes.iter().map(serde_json::to_value).collect());
        let pods: Vec<Value> = values(pods.iter().map(serde_json::to_value).collect());
        Ok(free(&nodes, &pods))
    }

    /// The record of a machine that is asked for: the one that is there, or a new one, which is durable then.
    pub async fn noted(&self, request: &Request) -> Result<Record, Failure> {
        self.records.create_folder()?;
        if let Some(record) = self.records.read(&request.token)? {
            return Ok(record);
        }
        let Place::Kubernetes { context, .. } = request.candidate.place() else {
            return Err(not_ours(NAME, request));
        };
        let cluster = self.cluster(context).await;
        let cluster = cluster.map_err(|fault| Failure::new(Fate::GiveUp, fault.what()))?;
        let record = Record::of(request, cluster.context, cluster.namespace);
        self.records.write(&record)?;
        Ok(record)
    }

    /// Makes the machine that a record is about. What cannot be is removed again, and told by its fate.
    pub async fn make(self: Arc<Self>, token: String) -> Result<Seen, Failure> {
        let machine = self.machine(&token);
        let _turn = machine.turn.lock().await;
        let gone = || Failure::new(Fate::Retry, "the machine is on its way out".to_owned());
        let mut record = self.records.read(&token)?.filter(|record| record.goal == Goal::Running).ok_or_else(gone)?;
        let fault = match self.hold(&record).await {
            Ok(pod) => match self.bring(&machine, &mut record, &pod).await {
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
        // what is left is removed when the machine is deleted, which the ledger asks for next
        if let Ok(true) = self.remove(&machine, &record).await {
            record.goal = Goal::Over;
            self.records.write(&record)?;
        }
        Err(Failure::new(fate, fault.what()))
    }

    /// Sees to it that the pod is there, and waits until it runs.
    async fn hold(&self, record: &Record) -> Result<DynamicObject, Fault> {
        let cluster = self.cluster(&record.context).await?;
        let pods = cluster.pods(&record.namespace);
        if its_pod(&pods, record).await?.is_none() {
            let nodes = match record.candidate.accelerators {
                None => Vec::new(),
                Some(_) => self.free(&cluster).await.map_err(|error| fault("list nodes and pods", &error))?,
            };
            let object = manifest(record, &self.settings.owner_hash(), &nodes)?;
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
                // it may have been made
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
                    // a folder or a disk that is not there stays so, and a pod says nothing of it: events do
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
                // the watch begins anew by itself
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

    /// Sees to it that program, relay and agent are there, and keeps the relay.
    pub async fn bring(
        self: &Arc<Self>,
        machine: &Arc<Machine>,
        record: &mut Record,
        pod: &DynamicObject,
    ) -> Result<Seen, Fault> {
        let line = self.line(record).await?;
        let (sha256, size) = self.program.digest().await?;
        let token = ("token", record.token.as_str());
        let claim = serde_json::json!({"owner": self.settings.owner, "node": record.node}).to_string();
        line.call("claim", &[token, ("record", &claim)], None, QUICK).await?;
        let address = text(&pod.data["status"], "podIP").to_owned();
        let said = line.call("look", &[token, ("address", &address)], None, QUICK).await?;
        if first(&said, "sha256") != sha256 {
            let adopted = line.call("adopt", &[token, ("sha256", sha256)], None, QUICK).await?;
            if first(&adopted, "sha256") != sha256 {
                let variables = [token, ("sha256", sha256), ("size", &size.to_string())];
                line.call("upload", &variables, Some(&self.program.path), UPLOAD).await?;
            }
        }
        let entered = line.call("enter", &[token], None, QUICK).await?;
        // the old port where it can be had: pods know it
        let port = first(&entered, "port").parse().unwrap_or(0);
        let program = format!("{}/program", first(&said, "dir"));
        let (relay, process, port) = line.relay(&program, port).await?;
        let carrying = self.access.carry(relay);
        let carried = async move {
            carrying.await;
            drop(process);
        };
        let home = format!("{}/home", first(&said, "dir"));
        if (&record.address, &record.home) != (&address, &home) {
            (record.address, record.home) = (address, home);
            if let Err(error) = self.records.write(record) {
                tracing::warn!(%error, "cannot note where a machine is");
            }
        }
        self.keep(machine, record, uid(pod), port, carried.boxed());
        self.start_agent(&line, record, port).await?;
        Ok(record.seen(State::Running))
    }

    pub async fn start_agent(&self, line: &Line, record: &Record, port: u16) -> Result<(), Fault> {
        let (sha256, _) = self.program.digest().await?;
        let pass = self.access.pass(&record.identity(), port).await.map_err(Fault::Stuck)?;
        let (port, node) = (port.to_string(), format!("{} {port}", pass.uid));
        let variables = [
            ("token", record.token.as_str()),
            ("sha256", sha256),
            ("node", &node),
            ("port", &port),
            ("kubeconfig", &pass.kubeconfig),
            ("address", &record.address),
            ("capacity", &capacity(&record.candidate)),
        ];
        line.call("start", &variables, None, ENDING).await.map(drop)
    }

    /// Keeps the relay, and makes a new one when it ends, until it is dropped.
    fn keep(
        self: &Arc<Self>,
        machine: &Arc<Machine>,
        record: &Record,
        pod: String,
        port: u16,
        carried: BoxFuture<'static, ()>,
    ) {
        let ended = CancellationToken::new();
        let (inner, token, id, over) = (self.clone(), record.token.clone(), record.id(), ended.clone());
        let node = record.node.clone();
        let task = tokio::spawn(async move {
            carried.await;
            over.cancel();
            inner.settings.attention.look_at(&node);
            tracing::warn!(machine = id, "the connection to a machine is lost; its pods go on");
            // not this task's to wait for: the new link ends it
            tokio::spawn(async move {
                let mut pause = AGAIN;
                loop {
                    tokio::time::sleep(pause).await;
                    pause = pause.saturating_mul(2).min(AGAIN_MAX);
                    if locked(&inner.machine(&token).link).as_ref().is_none_or(|link| !link.ended.is_cancelled()) {
                        return;
                    }
                    // boxed: it keeps the next one in turn
                    let up: BoxFuture<'_, Result<Found, Failure>> = inner.up(&token).boxed();
                    match up.await {
                        Ok(_) => return,
                        Err(error) => tracing::debug!(%error, machine = id, "not connected yet"),
                    }
                }
            });
        });
        *locked(&machine.link) = Some(Link { port, pod, ended, _task: AbortOnDropHandle::new(task) });
    }

    /// Deletes the pod, what runs in it first; says whether it is gone.
    pub async fn remove(&self, machine: &Machine, record: &Record) -> Result<bool, Fault> {
        let pods = self.pods(record).await?;
        let Some(pod) = its_pod(&pods, record).await? else {
            *locked(&machine.link) = None;
            return Ok(true);
        };
        if stand(&pod) == Stand::Runs {
            let line = self.line(record).await?;
            // what does not end by itself ends with the pod
            if let Err(fault) = line.call("end", &[("token", &record.token)], None, ENDING).await
                && fault != Fault::Absent
            {
                tracing::info!(machine = record.id(), why = fault.what(), "its pod is deleted as it is");
            }
        }
        *locked(&machine.link) = None;
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
