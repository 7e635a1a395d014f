//! How the pod of a machine is reached: commands in it, over the API server of its cluster.

use super::cluster::{Cluster, connect, fault, kubeconfig};
use super::line::Line;
use super::machines::{NAME, Settings};
use super::pod::{OWNER, Stand, capacity, deleted, ended, stand};
use super::record::{Goal, Record, id, parts};
use crate::fault::Fault;
use crate::host::Said;
use crate::kept::{Keeper, Line as _, Machine, Next, Reach, Stands, Tunnel};
use api::object::text;
use api::sky::keys;
use futures::FutureExt;
use kube::api::{DeleteParams, DynamicObject, ListParams, Preconditions};
use kube::{Api, ResourceExt};
use managed::provider::{Ended, Failure, Fate, Found, Handle, Request, Seen, State};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Pods of the kubeconfig's clusters.
pub struct Pods {
    pub settings: Settings,
}

/// A running pod in which the machine must be connected.
pub struct Spot {
    line: Line,
    /// The uid of the pod.
    pod: String,
    address: String,
}

impl Spot {
    pub async fn of(reach: &Pods, record: &Record, pod: &DynamicObject) -> Result<Self, Fault> {
        let address = text(&pod.data["status"], "podIP").to_owned();
        Ok(Self { line: reach.line(record).await?, pod: uid(pod), address })
    }
}

pub fn uid(pod: &DynamicObject) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

/// The pod of a machine, if it exists; another owner's pod of that name does not count.
pub async fn its_pod(pods: &Api<DynamicObject>, record: &Record) -> Result<Option<DynamicObject>, Fault> {
    let found = pods.get_opt(&record.pod()).await.map_err(|error| fault("look for the pod", &error))?;
    Ok(found.filter(|pod| pod.labels().get(keys::TOKEN).is_some_and(|token| *token == record.who.token)))
}

/// The events about a pod; none where the user may not read them.
pub async fn events_of(events: &Api<DynamicObject>, pod: &str) -> Vec<DynamicObject> {
    let about = ListParams::default().fields(&format!("involvedObject.name={pod}"));
    events.list(&about).await.map(|list| list.items).unwrap_or_default()
}

impl Pods {
    pub async fn cluster(&self, context: &str) -> Result<Cluster, Fault> {
        connect(kubeconfig(self.settings.kubeconfig.as_deref())?, context).await
    }

    pub async fn pods(&self, record: &Record) -> Result<Api<DynamicObject>, Fault> {
        Ok(self.cluster(&record.context).await?.pods(&record.namespace))
    }

    /// Runs commands in the pod of a machine.
    pub async fn line(&self, record: &Record) -> Result<Line, Fault> {
        let client = self.cluster(&record.context).await?.client;
        Ok(Line { pods: Api::namespaced(client, &record.namespace), pod: record.pod() })
    }
}

impl Keeper<Pods> {
    /// Ends the rest of a machine that must go.
    async fn end(&self, machine: &Machine<Pods>, record: &mut Record) -> Result<Found, Failure> {
        let gone = self.remove(machine, record).await.map_err(|fault| fault.failure(&record.id()))?;
        if !gone {
            return Ok(Found::There(record.seen(State::Ending)));
        }
        record.goal = Goal::Over;
        self.records.write(record)?;
        Ok(Found::ended(format!("pod {} was deleted, as asked", record.id())))
    }

    /// Removes the pod of a machine that is stopped.
    async fn stopped(&self, machine: &Machine<Pods>, record: &Record) -> Result<Found, Failure> {
        let gone = self.remove(machine, record).await.map_err(|fault| fault.failure(&record.id()))?;
        Ok(Found::There(record.seen(if gone { State::Stopped } else { State::Stopping })))
    }
}

impl Reach for Pods {
    const NAME: &'static str = NAME;
    const QUICK: Duration = Duration::from_secs(30);
    const AGAIN_MAX: Duration = Duration::from_secs(15);
    const ADOPTS: bool = true;

    type Record = Record;
    type Line = Line;
    type Spot = Spot;
    /// The uid of the pod.
    type Held = String;
    type Memory = ();

    fn id(record: &Record) -> String {
        record.id()
    }

    /// The record exists before the pod, and is removed after it.
    fn over() -> Ended {
        Ended::because("it has no pod: none was asked for, or it was deleted as asked")
    }

    fn line(spot: &Spot) -> Line {
        spot.line.clone()
    }

    fn of_agent(record: &Record) -> Vec<(&'static str, String)> {
        vec![("address", record.who.address.clone()), ("capacity", capacity(&record.candidate))]
    }

    /// Chooses the cluster of the pod.
    async fn note(keeper: &Keeper<Self>, request: &Request) -> Result<(), Failure> {
        if keeper.noted(request).await?.goal != Goal::Running {
            return Err(Failure::new(Fate::Retry, format!("machine {} is on its way out", request.node)));
        }
        Ok(())
    }

    async fn make(keeper: &Arc<Keeper<Self>>, machine: &Arc<Machine<Self>>, request: Request) -> Result<Seen, Failure> {
        keeper.make(machine, &request.token).await
    }

    async fn find(
        keeper: &Arc<Keeper<Self>>,
        machine: &Arc<Machine<Self>>,
        record: &mut Record,
    ) -> Result<Stands<Self>, Failure> {
        let place = record.id();
        let failed = |fault: Fault| fault.failure(&place);
        match record.goal {
            Goal::Over => return Ok(Stands::Otherwise(Found::Ended(Self::over()))),
            Goal::Gone => return keeper.end(machine, record).await.map(Stands::Otherwise),
            Goal::Stopped => return keeper.stopped(machine, record).await.map(Stands::Otherwise),
            Goal::Running => {}
        }
        let cluster = keeper.reach.cluster(&record.context).await.map_err(failed)?;
        let Some(pod) = its_pod(&cluster.pods(&record.namespace), record).await.map_err(failed)? else {
            let events = events_of(&cluster.events(&record.namespace), &record.pod()).await;
            return Ok(Stands::Otherwise(Found::Ended(deleted(&place, &events))));
        };
        match stand(&pod) {
            Stand::Ends => return Ok(Stands::Otherwise(Found::Ended(ended(&place, &pod)))),
            Stand::Runs => {}
            Stand::Waits(_) | Stand::Starts | Stand::Never(_) => {
                return Ok(Stands::Otherwise(Found::There(record.seen(State::Starting))));
            }
        }
        let spot = Spot::of(&keeper.reach, record, &pod).await.map_err(failed)?;
        Ok(match machine.linked().filter(|(_, pod)| *pod == spot.pod) {
            Some((port, _)) => Stands::Linked(spot.line, port),
            None => Stands::Runs(spot),
        })
    }

    async fn look(keeper: &Keeper<Self>, record: &Record, spot: &mut Spot) -> Result<Said, Fault> {
        let token = ("token", record.who.token.as_str());
        let claim = serde_json::json!({"owner": keeper.reach.settings.owner, "node": record.who.node}).to_string();
        spot.line.call("claim", &[token, ("record", &claim)], None, Self::QUICK).await?;
        spot.line.call("look", &[token, ("address", &spot.address)], None, Self::QUICK).await
    }

    async fn tunnel(keeper: &Keeper<Self>, spot: Spot, port: Option<u16>, dir: &str) -> Result<Tunnel<String>, Fault> {
        let (relay, process, port) = spot.line.relay(&format!("{dir}/program"), port.unwrap_or(0)).await?;
        let carrying = keeper.access.carry(relay);
        let carried = async move {
            carrying.await;
            drop(process);
        };
        Ok(Tunnel { port, held: spot.pod, carried: carried.boxed() })
    }

    /// Ends agent and jobs, and deletes the pod with all files in it.
    async fn stop(
        keeper: &Arc<Keeper<Self>>,
        machine: &Arc<Machine<Self>>,
        record: &mut Record,
        generation: i64,
    ) -> Result<Found, Failure> {
        if record.wish(Goal::Stopped, generation)? {
            keeper.records.write(record)?;
        }
        let line = keeper.reach.line(record).await.map_err(|fault| fault.failure(&record.id()))?;
        // jobs end in an orderly way if the pod can be reached
        let _ = line.call("stop", &[("token", &record.who.token)], None, Self::QUICK).await;
        keeper.stopped(machine, record).await
    }

    /// A stopped machine has no pod, so it is made again.
    async fn aim(
        keeper: &Arc<Keeper<Self>>,
        _: &Arc<Machine<Self>>,
        record: &mut Record,
        generation: i64,
    ) -> Result<Next, Failure> {
        if record.wish(Goal::Running, generation)? {
            keeper.records.write(record)?;
        }
        Ok(if record.goal == Goal::Running { Next::Make(Box::new(record.request())) } else { Next::Up })
    }

    async fn remove(
        keeper: &Arc<Keeper<Self>>,
        machine: &Arc<Machine<Self>>,
        record: &mut Record,
        handle: &Handle,
    ) -> Result<Found, Failure> {
        // if the handle names another pod than the recorded one, only that pod is ended
        if handle.id.as_ref().is_some_and(|id| !id.is_empty() && *id != record.id()) {
            return Self::remove_unrecorded(keeper, handle).await;
        }
        if record.goal != Goal::Gone {
            record.goal = Goal::Gone;
            keeper.records.write(record)?;
        }
        keeper.end(machine, record).await
    }

    /// Deletes one of our pods that has no record.
    async fn remove_unrecorded(keeper: &Keeper<Self>, handle: &Handle) -> Result<Found, Failure> {
        let Some((context, namespace, name)) = handle.id.as_deref().and_then(parts) else {
            return Ok(Found::Ended(Self::over()));
        };
        let place = id(context, namespace, name);
        let cluster = keeper.reach.cluster(context).await.map_err(|fault| fault.failure(&place))?;
        let (pods, owner) = (cluster.pods(namespace), keeper.reach.settings.owner_hash());
        let look = || async {
            let found = pods.get_opt(name).await.map_err(|error| fault("look for the pod", &error).failure(&place))?;
            Ok::<_, Failure>(found.filter(|pod| pod.labels().get(OWNER).is_some_and(|held| *held == owner)))
        };
        let gone = || Ok(Found::ended(format!("there is no pod {place} of ours")));
        let Some(pod) = look().await? else { return gone() };
        let preconditions = Some(Preconditions { uid: Some(uid(&pod)), resource_version: None });
        match pods.delete(name, &DeleteParams { preconditions, ..DeleteParams::default() }).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(fault("delete the pod", &error).failure(&place)),
        }
        if look().await?.is_none_or(|left| uid(&left) != uid(&pod)) {
            return gone();
        }
        let (token, unknown) = (handle.token.clone(), String::new);
        let (node, address, home) = (unknown(), unknown(), unknown());
        Ok(Found::There(Seen { token, id: place.clone(), state: State::Ending, node, address, home }))
    }

    /// Our pods in the clusters of all records, and stopped machines. Clusters that do not answer are skipped.
    async fn owned(keeper: &Arc<Keeper<Self>>) -> Result<Vec<Seen>, Failure> {
        let records = keeper.records.all()?;
        let stopped = records.iter().filter(|record| record.goal == Goal::Stopped);
        let mut found: Vec<Seen> = stopped.map(|record| record.seen(State::Stopped)).collect();
        // other clusters are not asked: their credentials may come from a program that asks a person
        let places: BTreeSet<(String, String)> =
            records.iter().map(|record| (record.context.clone(), record.namespace.clone())).collect();
        let ours = ListParams::default().labels(&format!("{OWNER}={}", keeper.reach.settings.owner_hash()));
        for (context, namespace) in places {
            let Ok(cluster) = keeper.reach.cluster(&context).await else { continue };
            let Ok(list) = cluster.pods(&namespace).list(&ours).await else { continue };
            for pod in list {
                let place = id(&context, &namespace, &pod.name_any());
                let token = pod.labels().get(keys::TOKEN).cloned().unwrap_or_default();
                if found.iter().any(|seen| seen.id == place) {
                    continue;
                }
                let state = if stand(&pod) == Stand::Ends { State::Ending } else { State::Running };
                let unknown = String::new;
                found.push(Seen { token, id: place, state, node: unknown(), address: unknown(), home: unknown() });
            }
        }
        Ok(found)
    }
}
