//! Carries out what `managed::machine` says about each Machine: calls its provider, notes the answer, lets the object go when the machine
//! is gone; and ends machines that no object stands for.

use crate::attention::Attention;
use crate::provider::Provider;
use api::node::OUT_OF_SERVICE;
use api::sky::{Machine, MachinePhase, MachineStatus, keys, machine_gvk};
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use managed::machine::{Answer, Call, Step, answered, node_name, node_of, orphans, status_patch, step, token};
use managed::provider::{Failure, Fate, Found, Handle};
use serde_json::json;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// After which a call counts as without answer; it may have had its effect.
const CALL_MAX: Duration = Duration::from_secs(120);
/// How often the providers' lists are compared with the ledger.
const SWEEP: Duration = Duration::from_secs(60);
/// The pause after the API server could not be asked.
const API_RETRY: Duration = Duration::from_millis(500);
/// Between the end of a connection and the look at its machine. An agent that ends again and again is looked at twice a second at most.
const SETTLE: Duration = Duration::from_millis(500);

/// Machines by namespace and name: what of them was seen last, and whom to wake when it changes.
type Known = BTreeMap<(String, String), (Fingerprint, Wakes)>;

/// What wakes the task of a machine.
#[derive(Clone, Default)]
struct Wakes {
    /// Its object has changed.
    change: Arc<Notify>,
    /// Something may have happened to it ([`Attention`]).
    attention: Arc<Notify>,
}

/// What of a Machine wakes its task: not the status, which the task writes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fingerprint {
    uid: String,
    generation: i64,
    ending: bool,
    purge: bool,
    /// Somebody wants to know how it is now.
    refresh: Option<String>,
}

/// Follows all Machines, and calls their providers.
#[derive(Clone)]
pub struct MachineController {
    client: Client,
    providers: Arc<BTreeMap<String, Arc<dyn Provider>>>,
    attention: Attention,
}

impl MachineController {
    /// The controller of these providers' machines; `attention` says which of them to look at before their time.
    pub fn new(client: Client, providers: impl IntoIterator<Item = Arc<dyn Provider>>, attention: Attention) -> Self {
        let providers = providers.into_iter().map(|provider| (provider.name().to_owned(), provider)).collect();
        Self { client, providers: Arc::new(providers), attention }
    }

    fn resource() -> ApiResource {
        let gvk = machine_gvk();
        ApiResource::from_gvk(&GroupVersionKind::gvk(&gvk.group, &gvk.version, &gvk.kind))
    }

    fn machines(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &Self::resource())
    }

    /// Works until `stop`. A call that is under way then is dropped; the next run asks again.
    pub async fn run(self, stop: CancellationToken) {
        let mut tasks = JoinSet::new();
        for provider in self.providers.values().cloned() {
            let controller = self.clone();
            tasks.spawn(async move { controller.sweep(provider).await });
        }
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &Self::resource());
        let mut events = pin!(watcher(all, watcher::Config::default()).boxed());
        let mut known = Known::new();
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => break,
                event = events.next() => event,
                Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            };
            match event {
                Some(Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object))) => {
                    self.follow(&object, &mut known, &mut tasks);
                }
                Some(Ok(watcher::Event::Delete(object))) => {
                    let at = (object.namespace().unwrap_or_default(), object.name_any());
                    if let Some((_, wakes)) = known.remove(&at) {
                        self.attention.forget(&node_of(&at.0, &at.1), &wakes.attention);
                    }
                }
                Some(Ok(watcher::Event::Init | watcher::Event::InitDone)) => {}
                Some(Err(error)) => {
                    tracing::warn!(%error, "watching machines; trying again");
                    tokio::time::sleep(API_RETRY).await;
                }
                None => break,
            }
        }
        tasks.shutdown().await;
    }

    fn follow(&self, object: &DynamicObject, known: &mut Known, tasks: &mut JoinSet<()>) {
        let at = (object.namespace().unwrap_or_default(), object.name_any());
        let now = Fingerprint {
            uid: object.uid().unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or(0),
            ending: object.metadata.deletion_timestamp.is_some(),
            purge: object.annotations().contains_key(keys::PURGE),
            refresh: object.annotations().get(keys::REFRESH).cloned(),
        };
        match known.get_mut(&at) {
            Some((before, wakes)) if before.uid == now.uid => {
                if *before != now {
                    *before = now;
                    wakes.change.notify_one();
                }
            }
            _ => {
                let wakes = Wakes::default();
                let (controller, uid) = (self.clone(), now.uid.clone());
                self.attention.register(node_of(&at.0, &at.1), wakes.attention.clone());
                known.insert(at.clone(), (now, wakes.clone()));
                tasks.spawn(async move { controller.keep(&at.0, &at.1, &uid, &wakes).await });
            }
        }
    }

    /// Keeps one machine until its object is gone.
    async fn keep(&self, namespace: &str, name: &str, uid: &str, wakes: &Wakes) {
        let api = self.machines(namespace);
        loop {
            let object = match api.get_opt(name).await {
                Ok(Some(object)) if object.uid().as_deref() == Some(uid) => object,
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(%error, machine = name, "cannot read a machine; trying again");
                    tokio::time::sleep(API_RETRY).await;
                    continue;
                }
            };
            let machine: Machine = match serde_json::to_value(&object).and_then(serde_json::from_value) {
                Ok(machine) => machine,
                Err(error) => {
                    tracing::error!(%error, machine = name, "a machine that cannot be read; left alone");
                    wakes.change.notified().await;
                    continue;
                }
            };
            let again = match step(&machine) {
                Step::Rest => None,
                Step::Release => match self.release(&api, &object, &machine).await {
                    Ok(()) => return,
                    Err(error) => Some(self.trouble(name, &error)),
                },
                Step::Call(call) => {
                    let answer = self.ask(&machine.spec.candidate.provider, &call).await;
                    let noted = answered(&machine, &call, &answer, clock::now());
                    let done = if noted.gone {
                        self.release(&api, &object, &machine).await
                    } else if noted.status == machine.status {
                        Ok(())
                    } else if let Err(error) = self.note_loss(&machine, &noted.status).await {
                        Err(error)
                    } else {
                        // one of the same name that came after it is not meant
                        let mut patch = status_patch(&noted.status);
                        patch["metadata"] = json!({"uid": uid});
                        api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
                    };
                    match done {
                        Ok(()) if noted.gone => return,
                        Ok(()) => Some(noted.again),
                        Err(error) => Some(self.trouble(name, &error)),
                    }
                }
            };
            if object.annotations().contains_key(keys::REFRESH) {
                self.refreshed(&api, &object).await;
            }
            match again {
                None => wakes.change.notified().await,
                Some(again) => tokio::select! {
                    () = tokio::time::sleep(again) => {}
                    () = wakes.change.notified() => {}
                    () = wakes.attention.notified() => tokio::time::sleep(SETTLE).await,
                },
            }
        }
    }

    /// Takes away the annotation that asked how the machine is, unless somebody has asked once more.
    async fn refreshed(&self, api: &Api<DynamicObject>, object: &DynamicObject) {
        let name = object.name_any();
        let asked = object.annotations().get(keys::REFRESH);
        let now = match api.get_opt(&name).await {
            Ok(Some(now)) if now.annotations().get(keys::REFRESH) == asked => now,
            _ => return,
        };
        let metadata = json!({"resourceVersion": now.resource_version(), "annotations": {keys::REFRESH: null}});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        if let Err(error) = api.patch(&name, &PatchParams::default(), &patch).await {
            tracing::debug!(%error, machine = name, "cannot note that the machine was asked");
        }
    }

    fn trouble(&self, name: &str, error: &kube::Error) -> Duration {
        tracing::warn!(%error, machine = name, "cannot note what became of a machine; trying again");
        API_RETRY
    }

    async fn ask(&self, provider: &str, call: &Call) -> Answer {
        let Some(provider) = self.providers.get(provider) else {
            let known: Vec<&str> = self.providers.keys().map(String::as_str).collect();
            let what = format!("there is no provider {provider} here; there are: {}", known.join(", "));
            return Err(Failure::new(Fate::GiveUp, what));
        };
        let answer = async {
            match call {
                Call::Create(request) => provider.create(request).await.map(Found::There),
                Call::Observe(machine) => provider.observe(machine).await,
                Call::Stop(machine) => provider.stop(machine).await,
                Call::Start(machine) => provider.start(machine).await,
                Call::Delete(machine) => provider.delete(machine).await,
            }
        };
        match tokio::time::timeout(CALL_MAX, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                let what = format!("{} gave no answer within {} s", provider.name(), CALL_MAX.as_secs());
                Err(Failure::new(Fate::Retry, what))
            }
        }
    }

    fn nodes(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node")))
    }

    /// The machine's Node; not another machine's of that name.
    async fn node(&self, machine: &Machine) -> kube::Result<Option<DynamicObject>> {
        let is_its = |node: &DynamicObject| node.labels().get(keys::TOKEN).is_some_and(|held| held == token(machine));
        Ok(self.nodes().get_opt(&node_name(machine)).await?.filter(is_its))
    }

    /// Marks the Node of a machine that has ended: no agent will report the ends of its pods, so they end without. The mark comes before
    /// the machine's status, which is the last that is written about a lost machine.
    async fn note_loss(&self, machine: &Machine, status: &MachineStatus) -> kube::Result<()> {
        if status.phase != MachinePhase::Lost {
            return Ok(());
        }
        let Some(node) = self.node(machine).await? else { return Ok(()) };
        let (nodes, name) = (self.nodes(), node.name_any());
        let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
        let mut conditions = list(&node.data["status"]["conditions"]);
        for ready in conditions.iter_mut().filter(|one| one["type"] == "Ready" && one["status"] != "Unknown") {
            ready["status"] = "Unknown".into();
            ready["reason"] = "MachineGone".into();
            ready["message"] = format!("The machine has ended: {}.", status.message).into();
            let now = clock::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            ready["lastTransitionTime"] = now.into();
        }
        let status = json!({"metadata": {"uid": node.uid()}, "status": {"conditions": conditions}});
        nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
        let mut taints = list(&node.data["spec"]["taints"]);
        if !taints.iter().any(|taint| taint["key"] == OUT_OF_SERVICE) {
            taints.push(json!({"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}));
            let spec = json!({"metadata": {"uid": node.uid()}, "spec": {"taints": taints}});
            nodes.patch(&name, &PatchParams::default(), &Patch::Merge(spec)).await?;
        }
        Ok(())
    }

    /// Removes the machine's Node, then the finalizer: the object goes last.
    async fn release(&self, api: &Api<DynamicObject>, object: &DynamicObject, machine: &Machine) -> kube::Result<()> {
        let nodes = self.nodes();
        if let Some(node) = self.node(machine).await? {
            let gone = nodes.delete(&node.name_any(), &kube::api::DeleteParams::default()).await;
            if let Err(error) = gone
                && !is_status(&error, 404)
            {
                return Err(error);
            }
        }
        let left: Vec<&String> = object.finalizers().iter().filter(|held| *held != keys::LEDGER).collect();
        let patch = json!({"metadata": {"resourceVersion": object.resource_version(), "finalizers": left}});
        match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(error) if !is_status(&error, 404) => Err(error),
            _ => Ok(()),
        }
    }

    /// Ends machines that no object stands for, now and ever after.
    async fn sweep(&self, provider: Arc<dyn Provider>) {
        loop {
            match self.orphans(&*provider).await {
                Ok(orphans) => {
                    for orphan in orphans {
                        tracing::warn!(
                            id = orphan.id,
                            provider = provider.name(),
                            "ending a machine that nobody asked for"
                        );
                        if let Err(error) = provider.delete(&orphan).await {
                            tracing::warn!(%error, "cannot end it; trying again");
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(error, provider = provider.name(), "cannot compare machines with the ledger")
                }
            }
            tokio::time::sleep(SWEEP).await;
        }
    }

    async fn orphans(&self, provider: &dyn Provider) -> Result<Vec<Handle>, String> {
        // in this order: an object is there before its machine is
        let listed = provider.list_owned().await.map_err(|error| error.to_string())?;
        if listed.is_empty() {
            return Ok(Vec::new());
        }
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &Self::resource());
        let objects = futures::stream::once(async move { all.list(&ListParams::default()).await });
        let objects: Vec<_> = objects.try_collect::<Vec<_>>().await.map_err(|error| error.to_string())?;
        let machines: Result<Vec<Machine>, _> = objects
            .into_iter()
            .flatten()
            .map(|object| serde_json::to_value(&object).and_then(serde_json::from_value))
            .collect();
        // an object that cannot be read is no reason to end its machine
        Ok(orphans(&listed, &machines.map_err(|error| error.to_string())?))
    }
}

fn is_status(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}
