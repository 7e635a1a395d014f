//! Bugs that are planted.

use crate::jobs::{Sim, job_target};
use api::object::{self, Key, Target};
use api::sky::{ManagedState as State, cluster_gvk, keys, machine_gvk, managed_job_gvk};
use reconcile::{Decision, Op, Propagation, World};
use serde_json::{Value, json};

/// What is done wrong on purpose: each must fail a seed, or the seeds prove nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    None,
    /// A machine that is not listed is said to have ended.
    AbsenceIsLoss,
    /// A machine that does not answer is said to have ended.
    SilenceIsLoss,
    /// The next attempt is always on the cluster of the last one.
    AlwaysKept,
    /// An attempt whose submission got no answer is submitted a second time.
    SubmittedTwice,
    /// The next attempt begins while the cluster of the last one is there.
    NotFenced,
    /// Processes on machines that are left go on beside the next attempt.
    NotEnded,
    /// A cluster goes by itself once all its machines are lost.
    ClusterEndsItself,
    /// Clusters of jobs that have ended stay.
    NothingRemoved,
    /// A cancelled job is made again if its machines are lost meanwhile.
    CancelForgotten,
    /// Code that failed is believed at once.
    FailureBelieved,
    /// Restarts are not counted.
    RestartsUncounted,
    /// A job whose launch found no room is not tried again.
    NeverAgain,
    /// Tasks of a group begin as soon as they can.
    GroupUnheld,
    /// Auxiliary tasks go on after the primary ones.
    DelayForgotten,
    /// Auxiliary tasks end at once with the primary ones.
    DelayCut,
    /// A task that has lost its machines counts as done.
    LossIsSuccess,
    /// The tasks after one that failed stay as they are.
    RestLeft,
    /// The pod of a callback goes before its end is recorded.
    CallbackRemoved,
    /// The end of a callback is not recorded.
    CallbackUnrecorded,
    /// It is not noticed that machines become free.
    FreeUnnoticed,
    /// A job gets no turn before its pause is over.
    PauseKept,
}

impl Bug {
    /// Bugs that show in jobs of several tasks.
    pub const OF_COMPOSED: [Self; 7] = [
        Self::GroupUnheld,
        Self::DelayForgotten,
        Self::DelayCut,
        Self::LossIsSuccess,
        Self::RestLeft,
        Self::CallbackRemoved,
        Self::CallbackUnrecorded,
    ];
    /// Bugs that show where machines are few.
    pub const OF_CROWDS: [Self; 2] = [Self::PauseKept, Self::FreeUnnoticed];
    pub const ALL: [Self; 12] = [
        Self::AbsenceIsLoss,
        Self::SilenceIsLoss,
        Self::NotFenced,
        Self::AlwaysKept,
        Self::SubmittedTwice,
        Self::NotEnded,
        Self::ClusterEndsItself,
        Self::NothingRemoved,
        Self::CancelForgotten,
        Self::FailureBelieved,
        Self::RestartsUncounted,
        Self::NeverAgain,
    ];
}

impl Sim {
    /// Bugs that change what a decision does.
    pub fn planted(&mut self, target: &Target, decision: &mut Decision) {
        let is_job = target.gvk == managed_job_gvk();
        let deletes = |op: &Op, kind: &str| matches!(op, Op::Delete { target, .. } if target.gvk.kind == kind);
        match self.bug {
            Bug::NotEnded if is_job => {
                decision.writes.retain(|write| !matches!(write.op, Op::Update { .. }));
            }
            Bug::NothingRemoved if is_job => {
                let has_ended = self
                    .last
                    .values()
                    .any(|job| job_target(job.spec.id) == *target && job.status.state == State::Succeeded);
                if has_ended {
                    decision.writes.retain(|write| !deletes(&write.op, "Cluster"));
                }
            }
            Bug::AlwaysKept if is_job => {
                if let Some(reconcile::StatusWrite::Merge(body)) = &mut decision.status {
                    for task in body["status"]["tasks"].as_array_mut().into_iter().flatten() {
                        if task["state"] == "RECOVERING" {
                            task["isKept"] = true.into();
                        }
                    }
                }
            }
            Bug::RestartsUncounted if is_job => strip(decision, "restarts"),
            Bug::CancelForgotten if is_job => {
                let key = target.key.clone();
                if self.model.get(&managed_job_gvk(), &key).is_some_and(|one| one["status"]["state"] == "RECOVERING") {
                    self.model.change(&managed_job_gvk(), &key, |one| one["spec"]["cancel"] = false.into());
                }
            }
            Bug::FailureBelieved if is_job => {
                // the providers are not asked
                let asked = decision
                    .writes
                    .iter()
                    .any(|write| matches!(&write.op, Op::Patch { target, .. } if target.gvk == machine_gvk()));
                if asked {
                    decision.writes.clear();
                }
            }
            Bug::ClusterEndsItself if target.gvk == cluster_gvk() => {
                let lost = self.model.get(&cluster_gvk(), &target.key).is_some_and(|cluster| {
                    let machines = self.model.owned_by(&machine_gvk(), object::uid(&cluster));
                    !machines.is_empty() && machines.iter().all(|one| one["status"]["phase"] == "Lost")
                });
                if lost {
                    self.model.delete(target, Propagation::Background, None);
                }
            }
            Bug::NotFenced if is_job => {
                // its clusters look as if they were gone
                let creates = |cluster: &std::sync::Arc<Value>| {
                    object::label(cluster, keys::MANAGED_JOB) == Some(&target.key.name)
                };
                for cluster in self.model.list(&cluster_gvk(), None).into_iter().filter(creates) {
                    if object::is_terminating(&cluster) {
                        self.model.change(&cluster_gvk(), &Key::of(&cluster), |one| {
                            one["metadata"]["ownerReferences"] = json!([]);
                            one["metadata"]["labels"] = json!({});
                        });
                    }
                }
            }
            Bug::LossIsSuccess if is_job => each_task(decision, |task| {
                if task["state"] == "RECOVERING" {
                    task["state"] = "SUCCEEDED".into();
                }
            }),
            Bug::RestLeft if is_job => each_task(decision, |task| {
                if task["state"] == "CANCELLED" {
                    task["state"] = "PENDING".into();
                }
            }),
            Bug::CallbackUnrecorded if is_job => {
                if matches!(&decision.status, Some(reconcile::StatusWrite::Merge(body)) if body["status"].get("callbacks").is_some())
                {
                    decision.status = None;
                }
            }
            Bug::PauseKept if target.key.name.is_empty() => {
                let now = self.model.now.to_string();
                let is_early = |op: &Op| {
                    let Op::Patch { target, .. } = op else { return false };
                    let job = self.model.get(&target.gvk, &target.key);
                    job.is_some_and(|job| job["status"]["tasks"][0]["notBefore"].as_str() > Some(&*now))
                };
                decision.writes.retain(|write| !is_early(&write.op));
            }
            Bug::NeverAgain if is_job => {
                if let Some(reconcile::StatusWrite::Merge(body)) = &mut decision.status {
                    for task in body["status"]["tasks"].as_array_mut().into_iter().flatten() {
                        if task.get("notBefore").is_some() {
                            task["notBefore"] = "2099-01-01T00:00:00Z".into();
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

fn each_task(decision: &mut Decision, change: impl Fn(&mut Value)) {
    if let Some(reconcile::StatusWrite::Merge(body)) = &mut decision.status {
        body["status"]["tasks"].as_array_mut().into_iter().flatten().for_each(change);
    }
}

fn strip(decision: &mut Decision, name: &str) {
    each_task(decision, |task| {
        task.as_object_mut().map(|task| task.remove(name));
    });
}
