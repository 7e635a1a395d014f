//! Carries out what `managed::machine` decides for each Machine: calls its provider, records the answer, and removes the object when the
//! machine is gone. It also ends machines that have no object.

use crate::attention::Attention;
use crate::provider::Provider;
use api::node::OUT_OF_SERVICE;
use api::object::Gvk;
use api::sky::{Machine, MachinePhase, MachineStatus, keys, machine_gvk};
use effects::{Effects, Loop, Unseen, Wakes, release, resource};
use futures::TryStreamExt;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use managed::machine::{Answer, Call, Noted, Step, answered, node_name, orphans, status_patch, step, token};
use managed::provider::{Failure, Fate, Found, Handle};
use reconcile::Next;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// After this time a call counts as unanswered; it may have had its effect.
const CALL_MAX: Duration = Duration::from_secs(120);
/// How often the providers' lists are compared with the ledger.
const SWEEP: Duration = Duration::from_secs(60);

/// The parts of a Machine whose change wakes its loop. The status is not among them, because the loop writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    generation: i64,
    ending: bool,
    purge: bool,
    /// The pending question how the machine is now.
    refresh: Option<String>,
}

/// Wakes the loop of a provider.
pub(crate) type MachineWakes = Wakes<Mark>;

/// Whose machines a loop handles.
#[derive(Clone)]
enum Whose {
    One(Arc<dyn Provider>),
    /// Machines of all providers except these, which are here.
    NotHere(Vec<String>),
}

/// The machines of one provider.
#[derive(Clone)]
struct Machines {
    client: Client,
    whose: Whose,
}

/// A Machine as it was read.
struct Seen {
    object: DynamicObject,
    machine: Machine,
}

/// The action for a Machine.
#[expect(clippy::large_enum_variant, reason = "one at a time, and soon used up")]
enum Doing {
    /// A call of its provider.
    Call(Call),
    /// Nothing of it is left: its object is removed.
    Release,
    /// A client has asked how it is, and the answer is known.
    Refreshed,
}

/// Follows all Machines, and calls their providers; each provider has its own loop.
pub struct MachineController {
    /// Each with what its sweep needs.
    loops: Vec<(Loop<Machines>, Machines)>,
}

impl MachineController {
    /// The controller of these providers' machines; `attention` names machines to look at before their time.
    pub fn new(client: Client, providers: impl IntoIterator<Item = Arc<dyn Provider>>, attention: &Attention) -> Self {
        let providers: Vec<Arc<dyn Provider>> = providers.into_iter().collect();
        let names: Vec<String> = providers.iter().map(|one| one.name().to_owned()).collect();
        let field = |is: &str, name: &str| format!("spec.candidate.provider{is}{name}");
        let others: Vec<String> = names.iter().map(|name| field("!=", name)).collect();
        let not_ours = (others.join(","), Whose::NotHere(names));
        let ours = providers.into_iter().map(|one| (field("=", one.name()), Whose::One(one)));
        let follow = |(fields, whose): (String, Whose)| {
            let machines = Machines { client: client.clone(), whose };
            let watched = watcher::Config::default().fields(&fields);
            let one = Loop::new(client.clone(), &machine_gvk(), watched, machines.clone());
            attention.wakes(one.wakes());
            (one, machines)
        };
        Self { loops: ours.chain([not_ours]).map(follow).collect() }
    }

    /// Works until `stop`, and then drops an unfinished call; the next run asks again.
    pub async fn run(self, stop: CancellationToken) {
        let mut tasks = JoinSet::new();
        for (one, machines) in self.loops {
            tasks.spawn(one.run(stop.clone()));
            tasks.spawn(async move { machines.sweep().await });
        }
        stop.cancelled().await;
        tasks.shutdown().await;
    }
}

impl Effects for Machines {
    type Mark = Mark;
    type Seen = Seen;
    type Call = Doing;
    type Answer = Option<Answer>;

    fn mark(&self, object: &DynamicObject) -> Mark {
        Mark {
            generation: object.metadata.generation.unwrap_or(0),
            ending: object.metadata.deletion_timestamp.is_some(),
            purge: object.annotations().contains_key(keys::PURGE),
            refresh: object.annotations().get(keys::REFRESH).cloned(),
        }
    }

    async fn look(&self, object: DynamicObject) -> Result<Seen, Unseen> {
        let machine = serde_json::from_value(serde_json::to_value(&object)?)?;
        Ok(Seen { object, machine })
    }

    fn step(&self, seen: &Seen) -> Option<Doing> {
        match step(&seen.machine) {
            Step::Call(call) => Some(Doing::Call(call)),
            Step::Release => Some(Doing::Release),
            Step::Rest => seen.object.annotations().contains_key(keys::REFRESH).then_some(Doing::Refreshed),
        }
    }

    async fn call(&self, seen: &Seen, doing: &Doing) -> Option<Answer> {
        match doing {
            Doing::Call(call) => Some(self.ask(&seen.machine.spec.candidate.provider, call).await),
            Doing::Release | Doing::Refreshed => None,
        }
    }

    async fn note(&self, seen: &Seen, doing: &Doing, answer: Option<Answer>) -> kube::Result<Next> {
        let next = match (doing, answer) {
            (Doing::Call(call), Some(answer)) => {
                let noted = answered(&seen.machine, call, &answer, clock::now());
                self.write(seen, &noted).await?;
                Next::After(noted.again.try_into().unwrap_or_default())
            }
            (Doing::Release, _) => {
                self.release(seen).await?;
                return Ok(Next::AwaitChange);
            }
            (Doing::Call(_) | Doing::Refreshed, _) => Next::AwaitChange,
        };
        if seen.object.annotations().contains_key(keys::REFRESH) {
            self.refreshed(&seen.object).await;
        }
        Ok(next)
    }
}

impl Machines {
    /// The Machines of an object's namespace.
    fn within(&self, object: &DynamicObject) -> Api<DynamicObject> {
        let namespace = object.namespace().unwrap_or_default();
        Api::namespaced_with(self.client.clone(), &namespace, &resource(&machine_gvk()))
    }

    /// Records the meaning of an answer, and removes the object if nothing of the machine is left.
    async fn write(&self, seen: &Seen, noted: &Noted) -> kube::Result<()> {
        let machine = &seen.machine;
        if noted.gone {
            return self.release(seen).await;
        }
        if noted.status == machine.status {
            return Ok(());
        }
        self.note_loss(machine, &noted.status).await?;
        // a later object of the same name is not meant
        let mut patch = status_patch(&noted.status);
        patch["metadata"] = json!({"uid": token(machine)});
        let (name, params) = (seen.object.name_any(), PatchParams::default());
        self.within(&seen.object).patch_status(&name, &params, &Patch::Merge(patch)).await.map(drop)
    }

    /// Removes the annotation that asked how the machine is, unless a client has asked again.
    async fn refreshed(&self, object: &DynamicObject) {
        let (api, name) = (self.within(object), object.name_any());
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

    async fn ask(&self, provider: &str, call: &Call) -> Answer {
        let provider = match &self.whose {
            Whose::One(provider) => provider,
            Whose::NotHere(known) => {
                let what = format!("there is no provider {provider} here; there are: {}", known.join(", "));
                return Err(Failure::new(Fate::GiveUp, what));
            }
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
        Api::all_with(self.client.clone(), &resource(&Gvk::new("", "v1", "Node")))
    }

    /// The machine's Node, unless the Node of that name belongs to another machine.
    async fn node(&self, machine: &Machine) -> kube::Result<Option<DynamicObject>> {
        let is_its = |node: &DynamicObject| node.labels().get(keys::TOKEN).is_some_and(|held| held == token(machine));
        Ok(self.nodes().get_opt(&node_name(machine)).await?.filter(is_its))
    }

    /// Marks the Node of a machine that has ended: no agent will report the ends of its pods, so they end without a report. The mark comes
    /// before the machine's status, which is the last that is written about a lost machine.
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

    /// Removes the machine's Node, then the finalizer, so the object goes last.
    async fn release(&self, seen: &Seen) -> kube::Result<()> {
        let (nodes, object) = (self.nodes(), &seen.object);
        if let Some(node) = self.node(&seen.machine).await? {
            let gone = nodes.delete(&node.name_any(), &kube::api::DeleteParams::default()).await;
            if let Err(error) = gone
                && !is_status(&error, 404)
            {
                return Err(error);
            }
        }
        release(&self.within(object), object, keys::LEDGER).await
    }

    /// Ends machines that have no object, now and at regular intervals.
    async fn sweep(&self) {
        let Whose::One(provider) = &self.whose else { return };
        loop {
            match self.orphans(&**provider).await {
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
                    tracing::warn!(%error, provider = provider.name(), "cannot compare machines with the ledger")
                }
            }
            tokio::time::sleep(SWEEP).await;
        }
    }

    async fn orphans(&self, provider: &dyn Provider) -> Result<Vec<Handle>, SweepError> {
        // in this order, because an object exists before its machine
        let listed = provider.list_owned().await?;
        if listed.is_empty() {
            return Ok(Vec::new());
        }
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource(&machine_gvk()));
        let objects = futures::stream::once(async move { all.list(&ListParams::default()).await });
        let objects: Vec<_> = objects.try_collect::<Vec<_>>().await?;
        let machines: Result<Vec<Machine>, _> = objects
            .into_iter()
            .flatten()
            .map(|object| serde_json::to_value(&object).and_then(serde_json::from_value))
            .collect();
        // an unreadable object is no reason to end its machine
        Ok(orphans(&listed, &machines?))
    }
}

/// Why machines were not compared with the ledger.
#[derive(Debug, thiserror::Error)]
enum SweepError {
    #[error(transparent)]
    Provider(#[from] Failure),
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Unreadable(#[from] serde_json::Error),
}

fn is_status(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}
