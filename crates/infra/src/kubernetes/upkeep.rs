//! Machines that are there: how they are looked at, stopped, started and ended.

use super::cluster::fault;
use super::pod::{OWNER, Stand, deleted, ended, stand};
use super::record::{Goal, Record, id, parts};
use super::work::{Inner, QUICK, events_of, its_pod, locked, uid};
use crate::fault::Fault;
use api::sky::keys;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Preconditions};
use managed::provider::{Ended, Failure, Found, Handle, Seen, State};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A machine without a record: the record is there before the pod, and goes after it.
fn over() -> Ended {
    Ended::because("it has no pod: none was asked for, or it was deleted as asked")
}

impl Inner {
    /// The machine as it is; one that is to run has its agent and its relay then.
    pub async fn up(self: &Arc<Self>, token: &str) -> Result<Found, Failure> {
        let machine = self.machine(token);
        let _turn = machine.turn.lock().await;
        let Some(mut record) = self.records.read(token)? else { return Ok(Found::Ended(over())) };
        let place = record.id();
        let failed = |fault: Fault| fault.failure(&place);
        match record.goal {
            Goal::Over => return Ok(Found::Ended(over())),
            Goal::Gone => return self.end(&machine, record).await,
            Goal::Stopped => {
                let gone = self.remove(&machine, &record).await.map_err(failed)?;
                return Ok(Found::There(record.seen(if gone { State::Stopped } else { State::Stopping })));
            }
            Goal::Running => {}
        }
        let cluster = self.cluster(&record.context).await.map_err(failed)?;
        let Some(pod) = its_pod(&cluster.pods(&record.namespace), &record).await.map_err(failed)? else {
            let events = events_of(&cluster.events(&record.namespace), &record.pod()).await;
            return Ok(Found::Ended(deleted(&place, &events)));
        };
        match stand(&pod) {
            Stand::Ends => return Ok(Found::Ended(ended(&place, &pod))),
            Stand::Runs => {}
            Stand::Waits(_) | Stand::Starts | Stand::Never(_) => return Ok(Found::There(record.seen(State::Starting))),
        }
        let port = locked(&machine.link)
            .as_ref()
            .filter(|link| !link.ended.is_cancelled() && link.pod == uid(&pod))
            .map(|link| link.port);
        let Some(port) = port else {
            return self.bring(&machine, &mut record, &pod).await.map(Found::There).map_err(failed);
        };
        // an agent that ended by itself is started again
        let line = self.line(&record).await.map_err(failed)?;
        self.start_agent(&line, &record, port).await.map_err(failed)?;
        Ok(Found::There(record.seen(State::Running)))
    }

    /// Ends what is left of a machine that is to go.
    async fn end(&self, machine: &super::work::Machine, mut record: Record) -> Result<Found, Failure> {
        let gone = self.remove(machine, &record).await.map_err(|fault| fault.failure(&record.id()))?;
        if !gone {
            return Ok(Found::There(record.seen(State::Ending)));
        }
        record.goal = Goal::Over;
        self.records.write(&record)?;
        locked(&self.machines).remove(&record.token);
        Ok(Found::ended(format!("pod {} was deleted, as asked", record.id())))
    }

    pub async fn delete(&self, handle: &Handle) -> Result<Found, Failure> {
        let machine = self.machine(&handle.token);
        machine.making.end();
        let _turn = machine.turn.lock().await;
        let Some(mut record) = self.records.read(&handle.token)? else { return self.delete_unknown(handle).await };
        // one that is not the noted one is ended alone
        if handle.id.as_ref().is_some_and(|id| !id.is_empty() && *id != record.id()) {
            return self.delete_unknown(handle).await;
        }
        if record.goal != Goal::Gone {
            record.goal = Goal::Gone;
            self.records.write(&record)?;
        }
        self.end(&machine, record).await
    }

    /// Deletes a pod of ours of which nothing is remembered.
    async fn delete_unknown(&self, handle: &Handle) -> Result<Found, Failure> {
        let Some((context, namespace, name)) = handle.id.as_deref().and_then(parts) else {
            return Ok(Found::Ended(over()));
        };
        let place = id(context, namespace, name);
        let cluster = self.cluster(context).await.map_err(|fault| fault.failure(&place))?;
        let (pods, owner) = (cluster.pods(namespace), self.settings.owner_hash());
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

    pub async fn stop(&self, token: &str) -> Result<Found, Failure> {
        let machine = self.machine(token);
        let _turn = machine.turn.lock().await;
        let Some(mut record) = self.records.read(token)? else { return Ok(Found::Ended(over())) };
        let place = record.id();
        if record.goal == Goal::Running {
            record.goal = Goal::Stopped;
            self.records.write(&record)?;
        }
        let line = self.line(&record).await.map_err(|fault| fault.failure(&place))?;
        // jobs end as they should, where the pod can be reached
        let _ = line.call("stop", &[("token", token)], None, QUICK).await;
        let gone = self.remove(&machine, &record).await.map_err(|fault| fault.failure(&place))?;
        Ok(Found::There(record.seen(if gone { State::Stopped } else { State::Stopping })))
    }

    /// Notes that a stopped machine is to run; says whether it is to run now.
    pub async fn aim(&self, token: &str) -> Result<bool, Failure> {
        let machine = self.machine(token);
        let _turn = machine.turn.lock().await;
        let Some(mut record) = self.records.read(token)? else { return Ok(false) };
        if record.goal == Goal::Stopped {
            record.goal = Goal::Running;
            self.records.write(&record)?;
        }
        Ok(record.goal == Goal::Running)
    }

    /// Our pods in the clusters of all records, and machines that are stopped. Clusters that do not answer are left out.
    pub async fn owned(&self) -> Result<Vec<Seen>, Failure> {
        let records = self.records.all()?;
        let stopped = records.iter().filter(|record| record.goal == Goal::Stopped);
        let mut found: Vec<Seen> = stopped.map(|record| record.seen(State::Stopped)).collect();
        // others are not asked: their credentials may be a program that asks a person
        let places: BTreeSet<(String, String)> =
            records.iter().map(|record| (record.context.clone(), record.namespace.clone())).collect();
        let ours = ListParams::default().labels(&format!("{OWNER}={}", self.settings.owner_hash()));
        for (context, namespace) in places {
            let Ok(cluster) = self.cluster(&context).await else { continue };
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
