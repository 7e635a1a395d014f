//! One pass over an MPIJob that is sound and ours.

use super::Observed;
use crate::annotations::Options;
use crate::mpijob::retry::{Failure, Stage};
use crate::mpijob::status::{Draft, Seen, event, job_is, phase};
use crate::mpijob::{Settings, asked, changed, children, reach, retry};
use api::mpi::{CleanPodPolicy, ConditionType, MpiJob, Reason, ReplicaType};
use api::object;
use api::object::{Key, Target};
use jiff::Timestamp;
use reconcile::{Decision, Event, EventType, Next, OnError, Op, PatchBody, Propagation, StatusWrite, Write};
use serde_json::{Value, json};
use std::sync::Arc;

/// A pass ends early, and no status is written: a child's name is somebody else's.
pub(super) struct Taken {
    name: String,
    /// Empty but for PodGroups, as upstream has it.
    kind: &'static str,
}

/// One pass over a MPIJob.
pub(super) struct Pass<'a> {
    pub(super) settings: &'a Settings,
    pub(super) observed: &'a Observed,
    pub(super) job: &'a MpiJob,
    /// What it asks for by annotation.
    pub(super) options: Options,
    pub(super) key: Key,
    pub(super) draft: Draft,
    /// The event of the first pass.
    pub(super) created: Option<Event>,
    pub(super) decision: Decision,
}

impl Pass<'_> {
    pub(super) fn run(&mut self, now: Timestamp) -> Result<(), Taken> {
        let (observed, suspended) = (self.observed, self.job.spec.is_suspended());
        if self.draft.status.conditions.is_empty() {
            self.created = Some(self.draft.created(&self.key));
        }
        let pods = observed.launcher_pods.iter().map(|pod| &**pod);
        let told = reach::told(pods, &self.job.spec, &self.key, &observed.stored, now);
        let is_over = self.draft.status.is_finished() && self.draft.status.completion_time.is_some();
        let launcher_ended =
            observed.launcher.as_ref().is_some_and(|job| job_is(job, "Complete") || job_is(job, "Failed"));
        if is_over || (self.has_lost_workers() && !launcher_ended) {
            self.tell(told);
            if is_over {
                self.expire(now);
            }
            if self.clean_policy() == CleanPodPolicy::None {
                self.decision.report.note("finished: workers stay");
                return Ok(());
            }
            self.decision.report.note("finished: workers are cleaned up");
            return self.clean_up();
        }
        if !suspended {
            self.draft.started();
        }
        let launcher = self.mine(observed.launcher.as_ref(), "")?;
        let stage = retry::stage(&self.options, launcher, now);
        if let Stage::Failed(failure) = stage {
            self.count_failure(failure);
            return Ok(());
        }
        let is_between_attempts = stage != Stage::Attempt;
        let has_ended = launcher.is_some_and(|job| job_is(job, "Complete") || job_is(job, "Failed"));
        let is_done = has_ended && !is_between_attempts;
        let mut workers: Vec<Option<Arc<Value>>> = Vec::new();
        let mut made = None;
        if !is_done {
            self.keep_service()?;
            self.keep_config()?;
            self.keep_secret()?;
            self.keep_network_policy()?;
            if !suspended {
                self.keep_pod_group()?;
                self.keep_workers()?;
                workers =
                    observed.workers.iter().map(|pod| pod.clone().filter(|pod| !self.goes_at_once(pod))).collect();
            }
            if launcher.is_none() && !is_between_attempts && self.may_launch(&workers) {
                made = Some(self.launch());
            }
        }
        match (stage, launcher) {
            (Stage::Waiting(left), _) => self.decision.next = Next::After(left),
            (Stage::Over, Some(launcher)) if !suspended => {
                if let Some(op) = deletion(launcher) {
                    self.write(op);
                }
            }
            (Stage::Attempt, Some(launcher)) => self.align(launcher, &workers),
            (Stage::Attempt | Stage::Over | Stage::Failed(_), _) => {}
        }
        self.tell(told);
        if suspended {
            self.clean_up()?;
        }
        let seen = Seen {
            suspended,
            launcher: launcher.or(made.as_ref()),
            launcher_pods: &observed.launcher_pods,
            workers: &workers,
            replaces_workers: self.replaces_workers() || self.options.attempt <= self.options.retries,
            is_between_attempts,
        };
        // a start, or a first look, is written with what else there is to tell, as upstream has it: nobody misses it but where a
        // status was changed by hand
        let before = self.draft.status.clone();
        self.draft.update(&self.key, &seen);
        if self.draft.status == before {
            self.draft.status = self.job.status.clone();
        }
        Ok(())
    }

    /// Whether the job has failed because workers were evicted, before its launcher has ended: it is over all the same, and the workers
    /// that are left go as its policy says (mpi-operator#643). Upstream leaves them running.
    fn has_lost_workers(&self) -> bool {
        let failed = self.job.status.condition(ConditionType::Failed);
        failed
            .is_some_and(|failed| failed.status == "True" && failed.reason.as_deref() == Some(Reason::Evicted.as_str()))
            && self.clean_policy() != CleanPodPolicy::None
            && !self.replaces_workers()
    }

    /// Counts a failed attempt on the job. The rest of the pass is for the job as it will be then.
    fn count_failure(&mut self, failure: Failure) {
        self.decision.report.note("its launcher has failed, and is tried again");
        self.draft.status = self.job.status.clone();
        let metadata = json!({
            "annotations": failure.annotations,
            // from a look at how things were before, it would be counted twice
            "resourceVersion": object::resource_version(&self.observed.stored),
        });
        let op = Op::Patch {
            target: Target::of(&self.observed.stored),
            subresource: None,
            body: PatchBody::Merge(json!({"metadata": metadata})),
        };
        self.decision.writes.push(Write { op, on_error: OnError::Stop, on_success: Some(failure.event) });
    }

    /// Whether workers that have ended are made anew.
    pub(super) fn replaces_workers(&self) -> bool {
        asked::replaces_workers(self.job) || self.options.attempt > 1
    }

    pub(super) fn finish(mut self, end: Result<(), Taken>) -> Decision {
        let created = self.created.take();
        if let Err(Taken { name, kind }) = end {
            let message = format!("Resource \"{name}\" of Kind \"{kind}\" already exists and is not managed by MPIJob");
            self.decision.report.note(message.clone());
            self.decision.next = Next::Backoff;
            self.tell_first(created);
            self.decision.events.push(event(EventType::Warning, Reason::ResourceExists.as_str(), message));
            return self.decision;
        }
        self.tell_first(created);
        if self.draft.status != self.job.status {
            let mut object = (*self.observed.stored).clone();
            object["status"] = json!(self.draft.status);
            self.decision.status = Some(StatusWrite::Replace(object));
            self.decision.events.append(&mut self.draft.events);
        }
        self.decision
    }

    /// Tells of the first pass with its first write, whatever becomes of those that follow: as upstream, which does so
    /// before it makes anything.
    fn tell_first(&mut self, created: Option<Event>) {
        let Some(created) = created else { return };
        match self.decision.writes.first_mut().filter(|write| write.on_success.is_none()) {
            Some(write) => {
                if write.on_error == OnError::Stop {
                    write.on_error = OnError::EventThenStop(created.clone());
                }
                write.on_success = Some(created);
            }
            None => self.decision.events.push(created),
        }
    }

    /// Events of our own; that one cannot be told, or was told before, holds up nothing.
    fn tell(&mut self, events: Vec<Value>) {
        let create = |object| Write { op: Op::Create { object }, on_error: OnError::Continue, on_success: None };
        self.decision.writes.extend(events.into_iter().map(create));
    }

    pub(super) fn uid(&self) -> &str {
        object::uid(&self.observed.stored)
    }

    pub(super) fn write(&mut self, op: Op) {
        self.decision.writes.push(op.into());
    }

    pub(super) fn warn(&self, message: String) -> OnError {
        OnError::EventThenStop(event(EventType::Warning, Reason::Failed.as_str(), message))
    }

    /// A child that is there, if it is this job's.
    pub(super) fn mine<'o>(
        &self,
        child: Option<&'o Arc<Value>>,
        kind: &'static str,
    ) -> Result<Option<&'o Value>, Taken> {
        let Some(child) = child else { return Ok(None) };
        let owner = object::controller_of(child).map(|owner| object::text(owner, "uid"));
        if owner == Some(self.uid()) {
            return Ok(Some(child));
        }
        Err(Taken { name: object::meta(child, "name").to_owned(), kind })
    }

    /// Suspends or resumes the launcher's Job, as the MPIJob is. One that ended while it was suspended stays as it is: upstream tries
    /// for ever to take its start time away, which the API does not allow.
    fn align(&mut self, launcher: &Value, workers: &[Option<Arc<Value>>]) {
        let is_suspended = launcher["spec"]["suspend"] == true;
        let has_ended = job_is(launcher, "Complete") || job_is(launcher, "Failed");
        match (self.job.spec.is_suspended(), is_suspended) {
            (true, false) => self.decision.writes.push(children::suspend(launcher)),
            (false, true) if has_ended => {}
            (false, true) if changed::is_outdated(launcher, self.job, &self.key, self.uid(), self.settings) => {
                self.decision.report.note("the launcher was changed while it was suspended: it is made anew");
                if let Some(op) = deletion(launcher) {
                    self.write(op);
                }
            }
            (false, true) if reach::holds_launcher_back(self.job, self.settings) && !self.may_launch(workers) => {}
            (false, true) => {
                let mut writes = children::resume(launcher, self.job, &self.key, self.uid(), self.settings);
                if let Some(last) = writes.last_mut() {
                    last.on_success = self.restart_policy_warning();
                }
                self.decision.writes.extend(writes);
            }
            (true, true) | (false, false) => {}
        }
    }

    /// Deletes a job whose time to live has passed, with all that is left of it.
    fn expire(&mut self, now: Timestamp) {
        let Some(left) = asked::time_to_live(&self.observed.stored, self.job, now) else { return };
        if left.is_positive() {
            self.decision.next = Next::After(left);
            return;
        }
        self.decision.report.note("its time to live has passed");
        self.write(Op::Delete {
            target: Target::of(&self.observed.stored),
            propagation: Propagation::Foreground,
            uid: Some(self.uid().to_owned()),
            // a user who changes the job at the last moment keeps it
            resource_version: Some(object::resource_version(&self.observed.stored).to_owned()),
            grace_secs: None,
        });
    }

    pub(super) fn clean_policy(&self) -> CleanPodPolicy {
        let policy = self.job.spec.run_policy.as_ref().and_then(|policy| policy.clean_pod_policy.as_deref());
        policy.and_then(|policy| policy.parse().ok()).unwrap_or(CleanPodPolicy::None)
    }

    /// Deletes the declared workers (under `Running` those that have not ended) and their PodGroup.
    fn clean_up(&mut self) -> Result<(), Taken> {
        let keeps_ended = self.clean_policy() == CleanPodPolicy::Running;
        if self.job.spec.role(ReplicaType::Worker).is_some() {
            for pod in &self.observed.workers {
                let Some(pod) = self.mine(pod.as_ref(), "")? else { continue };
                if keeps_ended && !matches!(phase(pod), "Running" | "Pending") {
                    continue;
                }
                if let Some(op) = deletion(pod) {
                    self.write(op);
                }
            }
        }
        self.draft.reset_workers();
        if let Some(op) = self.mine(self.observed.pod_group.as_ref(), "PodGroup")?.and_then(deletion) {
            self.write(op);
        }
        Ok(())
    }
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Deletes this object, not a later one of its name; `None` where that is under way.
pub(super) fn deletion(object: &Value) -> Option<Op> {
    (!object::is_terminating(object)).then(|| Op::Delete {
        target: Target::of(object),
        propagation: Propagation::Background,
        uid: Some(object::uid(object).to_owned()),
        resource_version: None,
        grace_secs: None,
    })
}
