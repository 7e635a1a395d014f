//! The children of an MPIJob, as a pass makes and repairs them.

use super::Observed;
use super::pass::{Pass, Taken, deletion, is_ready};
use crate::mpi::KEYS;
use crate::mpijob::pods::says_restart_policy;
use crate::mpijob::status::{event, phase};
use crate::mpijob::{asked, children, gang, hosts, pods, profile, reach};
use api::mpi::names::LABEL_REPLICA_INDEX;
use api::mpi::{Reason, ReplicaType};
use api::object;
use api::trainer::annotations::ATTEMPT;
use reconcile::{Event, EventType, Op, Write};
use serde_json::{Value, json};
use std::sync::Arc;

impl Pass<'_> {
    pub(super) fn keep_service(&mut self) -> Result<(), Taken> {
        match self.mine(self.observed.service.as_ref(), "")? {
            None => self.write(Op::Create { object: children::service(self.job, &self.key, self.uid()) }),
            Some(held) => {
                if let Some(object) = children::repaired_service(held, self.job, &self.key) {
                    self.write(Op::Update { object });
                }
            }
        }
        Ok(())
    }

    pub(super) fn keep_config(&mut self) -> Result<(), Taken> {
        let Observed { worker_pods, strays, .. } = self.observed;
        // that a stray has gone wakes nobody: one that this pass deletes is no host any more
        let strays = strays.iter().filter(|pod| !self.is_surplus(pod, worker_pods.len() + strays.len()));
        let running = worker_pods.iter().chain(strays).filter(|pod| phase(pod) == "Running");
        let running: Vec<&str> = running.map(|pod| object::meta(pod, "name")).collect();
        let data = hosts::data(self.job, &self.key, &running, self.settings);
        match self.mine(self.observed.config.as_ref(), "")? {
            None => self.write(Op::Create { object: children::config_map(&self.key, self.uid(), data) }),
            Some(held) if held["data"] == data => {}
            Some(held) => {
                let mut object = held.clone();
                object["data"] = data;
                self.write(Op::Update { object });
            }
        }
        Ok(())
    }

    pub(super) fn keep_secret(&mut self) -> Result<(), Taken> {
        if asked::own_secret(self.job).is_some() {
            return Ok(());
        }
        match self.mine(self.observed.secret.as_ref(), "")? {
            None => {
                let object = children::secret(&self.key, self.uid());
                self.write(Op::CreateGenerated { object, generator: KEYS });
            }
            Some(held) => {
                if let Some(object) = children::renewed_secret(held) {
                    self.write(Op::UpdateGenerated { object, generator: KEYS });
                }
            }
        }
        Ok(())
    }

    pub(super) fn keep_network_policy(&mut self) -> Result<(), Taken> {
        if !profile::guards(self.settings) {
            return Ok(());
        }
        let wanted = profile::network_policy(&self.key, self.uid());
        match self.mine(self.observed.network_policy.as_ref(), "")? {
            None => self.write(Op::Create { object: wanted }),
            Some(held) if held["spec"] == wanted["spec"] => {}
            Some(held) => {
                let mut object = held.clone();
                object["spec"] = wanted["spec"].clone();
                self.write(Op::Update { object });
            }
        }
        Ok(())
    }

    pub(super) fn keep_pod_group(&mut self) -> Result<(), Taken> {
        let Some(scheduler) = &self.settings.gang else { return Ok(()) };
        let Observed { stored, priorities, .. } = self.observed;
        let wanted = gang::pod_group(scheduler, self.job, &self.key, stored, priorities, self.launcher_comes_later());
        match self.mine(self.observed.pod_group.as_ref(), "PodGroup")? {
            None => self.write(Op::Create { object: wanted }),
            Some(held) if gang::asks_the_same(held, &wanted) => {}
            Some(held) => {
                let mut object = held.clone();
                object["spec"] = wanted["spec"].clone();
                self.write(Op::Update { object });
            }
        }
        Ok(())
    }

    /// Deletes workers that are too many, makes those that are missing. One that has ended stays as it is.
    pub(super) fn keep_workers(&mut self) -> Result<(), Taken> {
        if self.job.spec.role(ReplicaType::Worker).is_none() {
            // those of a role that was taken out of the job stay, as upstream's do
            return Ok(());
        }
        let Observed { worker_pods, strays, .. } = self.observed;
        // its own are not too many because of strays: that one worker would go for ever
        for (pods, there) in [(worker_pods, worker_pods.len()), (strays, worker_pods.len() + strays.len())] {
            let surplus = pods.iter().filter(|pod| self.is_surplus(pod, there)).filter_map(|pod| deletion(pod));
            surplus.collect::<Vec<_>>().into_iter().for_each(|op| self.write(op));
        }
        for (index, pod) in (0i32..).zip(&self.observed.workers) {
            if let Some(pod) = self.mine(pod.as_ref(), "")? {
                let has_ended = matches!(phase(pod), "Failed" | "Succeeded");
                if let Some(op) = deletion(pod).filter(|_| has_ended && self.replaces_workers()) {
                    self.write(op);
                }
                continue;
            }
            let object = pods::of_worker(self.job, &self.key, self.uid(), index, self.settings);
            let on_error = self.warn("worker pod created failed: {error}".to_owned());
            self.decision.writes.push(Write { op: Op::Create { object }, on_error, on_success: None });
        }
        Ok(())
    }

    /// Whether this pass deletes a pod, as one too many of so many.
    pub(super) fn is_surplus(&self, pod: &Value, there: usize) -> bool {
        let spec = &self.job.spec;
        let count = usize::try_from(spec.workers()).unwrap_or_default();
        // H-19 (kept): the label is one more than the index where the launcher is a worker, so that one worker goes that has to be
        // made again; recordings hold it
        let index = object::label(pod, LABEL_REPLICA_INDEX).and_then(|text| text.parse::<usize>().ok());
        let looks_after = !spec.is_suspended() && spec.role(ReplicaType::Worker).is_some();
        looks_after && there > count && index.is_some_and(|index| index >= count)
    }

    /// Whether a worker is gone by the end of this pass: the API takes one that has ended away at once, and keeps one that runs until
    /// its kubelet has ended it.
    pub(super) fn goes_at_once(&self, pod: &Value) -> bool {
        matches!(phase(pod), "Failed" | "Succeeded") && self.is_surplus(pod, self.observed.worker_pods.len())
    }

    pub(super) fn launcher_comes_later(&self) -> bool {
        reach::launcher_comes_later(self.job, self.settings)
    }

    /// Whether the launcher may be made, or resumed by us: `workers` are those that this pass looked after.
    pub(super) fn may_launch(&mut self, workers: &[Option<Arc<Value>>]) -> bool {
        let ready = workers.iter().flatten().filter(|pod| is_ready(pod)).count();
        // upstream makes the launcher of a suspended job at once, and later resumes it beside its workers
        let is_early = self.job.spec.is_suspended() && reach::holds_launcher_back(self.job, self.settings);
        if is_early || (self.launcher_comes_later() && ready < workers.len()) {
            self.decision.report.note(format!("{ready} of {} workers are ready: the launcher waits", workers.len()));
            return false;
        }
        true
    }

    /// Makes the launcher's Job, and shows it as it will be.
    pub(super) fn launch(&mut self) -> Value {
        let mut object = children::launcher_job(self.job, &self.key, self.uid(), self.settings);
        if self.options.attempt > 1 {
            object["metadata"]["annotations"] = json!({ATTEMPT: self.options.attempt.to_string()});
        }
        let on_error = self.warn("launcher pod created failed: {error}".to_owned());
        let on_success = self.restart_policy_warning();
        self.decision.writes.push(Write { op: Op::Create { object: object.clone() }, on_error, on_success });
        object
    }

    /// Told with the write that it is about: a later pass does not make it again.
    pub(super) fn restart_policy_warning(&self) -> Option<Event> {
        let message = "Restart policy in pod template overridden by restart policy in replica spec";
        says_restart_policy(self.job)
            .then(|| event(EventType::Warning, Reason::SetPodTemplateRestartPolicy.as_str(), message))
    }
}
