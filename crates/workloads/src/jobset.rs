//! JobSet `jobset.x-k8s.io/v1alpha2`: several groups of Jobs that run, fail, restart and finish as one.
//!
//! [`JobSetController`] decides, one pass at a time, in the order of upstream's `pkg/controllers/jobset_controller.go`: what finished Jobs
//! make of the JobSet comes before anything new is made. [`admission`] is what its webhooks do, [`pods`] what its pod
//! webhooks do, [`placement`] repairs exclusive placement. Feature gates that are off upstream by default (InPlaceRestart,
//! RestartJob, ElasticJobSet) are off: admission refuses what needs them.

pub mod admission;
#[cfg(test)]
mod chaos;
mod children;
mod construct;
mod json;
pub mod placement;
pub mod pods;
mod policy;
mod startup;
mod status;
mod suspend;
#[cfg(test)]
mod tests;

use api::jobset::{ConditionType, JobSet, MANAGER, RestartStrategy, reasons};
use api::object::{self, Gvk, Key, Target};
use children::{Child, Children};
use jiff::{SignedDuration, Timestamp};
use reconcile::{
    Decision, EventType, Next, OnError, Op, Primary, Propagation, Reconciler, StatusWrite, Wakes, Watch, World, Write,
};
use serde_json::Value;
use startup::Startup;
use status::{Draft, event};
use std::collections::BTreeSet;
use std::sync::Arc;

fn jobs() -> Gvk {
    Gvk::new("batch", "v1", "Job")
}

fn services() -> Gvk {
    Gvk::new("", "v1", "Service")
}

fn volume_claims() -> Gvk {
    Gvk::new("", "v1", "PersistentVolumeClaim")
}

/// Reconciles JobSets: makes their Jobs, Service and volume claims, and carries out their policies.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobSetController;

/// What a pass over one JobSet reads.
pub struct Observed {
    /// The JobSet as stored: what a status write sends back.
    stored: Arc<Value>,
    /// The same, typed; why not, where it cannot be read.
    jobset: Result<JobSet, String>,
    /// The Jobs it controls, of all attempts.
    jobs: Vec<Arc<Value>>,
    /// Names of Jobs that the JobSet needs and somebody else has.
    taken: BTreeSet<String>,
    /// Whether there is a Service of the subdomain's name, made by the JobSet or by somebody else.
    has_service: bool,
    /// Names of the volume claims that exist.
    claims: BTreeSet<String>,
}

impl Reconciler for JobSetController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "jobset"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(api::jobset::gvk())
    }

    fn watches(&self) -> Vec<Watch> {
        vec![
            Watch { gvk: jobs(), wakes: Wakes::ControllerOwner },
            Watch { gvk: services(), wakes: Wakes::ControllerOwner },
            Watch { gvk: volume_claims(), wakes: Wakes::Nothing },
        ]
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let stored = world.get(&target.gvk, &target.key)?;
        let jobset: Result<JobSet, String> = JobSet::read(&stored).map_err(|e| e.to_string());
        let uid = object::uid(&stored);
        let controlled = |job: &Arc<Value>| {
            object::controller_of(job).is_some_and(|owner| {
                object::text(owner, "uid") == uid
                    && object::text(owner, "kind") == api::jobset::KIND
                    && object::text(owner, "apiVersion") == api::jobset::API_VERSION
            })
        };
        let in_namespace = |name: &str| Key::new(&target.key.namespace, name);
        let (mut taken, mut claims, mut has_service) = (BTreeSet::new(), BTreeSet::new(), false);
        if let Ok(jobset) = &jobset {
            for replicated in &jobset.spec.replicated_jobs {
                for index in 0..replicated.replicas {
                    let name = jobset.job_name(&replicated.name, i64::from(index));
                    let held = world.get(&jobs(), &in_namespace(&name));
                    if held.is_some_and(|job| !controlled(&job)) {
                        taken.insert(name);
                    }
                }
            }
            has_service = world.get(&services(), &in_namespace(jobset.subdomain())).is_some();
            for claim in construct::claims(jobset) {
                let name = object::meta(&claim, "name");
                if world.get(&volume_claims(), &in_namespace(name)).is_some() {
                    claims.insert(name.to_owned());
                }
            }
        }
        let jobs = world.owned_by(&jobs(), uid).into_iter().filter(controlled).collect();
        Some(Observed { stored, jobset, jobs, taken, has_service, claims })
    }

    fn rests(&self) -> bool {
        true
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        let mut decision = Decision::nothing();
        let jobset = match &observed.jobset {
            Ok(jobset) => jobset,
            Err(why) => {
                decision.report.note(format!("the stored JobSet cannot be read: {why}"));
                return decision;
            }
        };
        if object::is_terminating(&observed.stored) {
            decision.report.note("being deleted: garbage collection does the rest");
            return decision;
        }
        if let Some(manager) = jobset.spec.managed_by.as_deref().filter(|manager| *manager != MANAGER) {
            decision.report.note(format!("managed by {manager}"));
            return decision;
        }
        let children = match Children::of(&observed.jobs, jobset.status.restarts) {
            Ok(children) => children,
            Err(why) => {
                decision.report.note(why);
                decision.next = Next::Backoff;
                return decision;
            }
        };
        let mut pass = Pass { observed, jobset, children, draft: Draft::new(&jobset.status, now), decision };
        pass.run(now);
        pass.finish()
    }
}

fn makes_job(write: &Write) -> bool {
    matches!(&write.op, Op::Create { object } if object::text(object, "kind") == "Job")
}

/// One pass over a JobSet.
struct Pass<'a> {
    observed: &'a Observed,
    jobset: &'a JobSet,
    children: Children,
    draft: Draft,
    decision: Decision,
}

/// A child could not be made: the pass ends, and no status is written.
struct Aborted;

impl Pass<'_> {
    fn run(&mut self, now: Timestamp) {
        let counts = self.children.counts(self.jobset);
        self.draft.set_counts(counts);
        if self.jobset.is_finished() {
            let active = deletions(&self.children.active);
            self.decision.writes.extend(active);
            return self.expire(now);
        }
        let previous = deletions(&self.children.previous);
        self.decision.writes.extend(previous);
        if !self.jobset.is_suspended() && self.all_ready() {
            self.draft.jobs_ready();
        }
        if !self.children.failed.is_empty() {
            return policy::fail(self.jobset, &self.children, &mut self.draft, &mut self.decision.report);
        }
        if !self.children.successful.is_empty() && policy::is_successful(self.jobset, &self.children) {
            self.decision.report.note("enough Jobs have completed");
            return self.draft.complete();
        }
        self.make_service();
        self.make_claims();
        if let Err(Aborted) = self.make_jobs() {
            // whatever this pass found out is found out again by the next
            self.draft = Draft::new(&self.jobset.status, now);
            self.decision.next = Next::Backoff;
            return;
        }
        if self.jobset.is_suspended() {
            self.decision.writes.extend(self.children.active.iter().filter_map(suspend::suspend));
            self.draft.suspend();
        } else {
            self.resume();
        }
    }

    /// The decision, with the status where that changed.
    fn finish(self) -> Decision {
        let mut decision = self.decision;
        // new Jobs are counted by the look that they bring about: what became of them meanwhile is then counted with them
        let counts_later = self.draft.only_counts() && decision.writes.iter().any(makes_job);
        if self.draft.is_changed() && !counts_later {
            let mut object = (*self.observed.stored).clone();
            let status = serde_json::to_value(&self.draft.status);
            object["status"] = status.expect("invariant: a status has no keys that are not strings");
            decision.status = Some(StatusWrite::Replace(object));
            decision.events.extend(self.draft.events);
        }
        decision
    }

    /// Whether as many Jobs as are asked for are ready or have completed.
    fn all_ready(&self) -> bool {
        let wanted: i64 = self.jobset.spec.replicated_jobs.iter().map(|r| i64::from(r.replicas)).sum();
        let counts = &self.draft.status.replicated_jobs_status;
        wanted == counts.iter().map(|c| i64::from(c.ready) + i64::from(c.succeeded)).sum::<i64>()
    }

    /// Deletes the finished JobSet when its time has come.
    fn expire(&mut self, now: Timestamp) {
        let Some(ttl) = self.jobset.spec.ttl_seconds_after_finished else { return };
        let ends = [ConditionType::Completed, ConditionType::Failed].map(ConditionType::as_str);
        let mut conditions = self.jobset.status.conditions.iter();
        let Some(end) = conditions.find(|c| c.status == "True" && ends.contains(&c.type_.as_str())) else { return };
        let left = api::time::left(SignedDuration::from_secs(i64::from(ttl)), end.last_transition_time.0, now);
        if left > SignedDuration::ZERO {
            self.decision.next = Next::After(left);
            return;
        }
        self.decision.report.note(format!("finished more than {ttl} s ago"));
        self.decision.writes.push(deletion(&self.observed.stored));
        // a status would be written to an object that is on its way out
        self.draft = Draft::new(&self.jobset.status, now);
    }

    fn make_service(&mut self) {
        if !construct::has_host_names(self.jobset) || self.observed.has_service {
            return;
        }
        let failed = event(EventType::Warning, reasons::SERVICE_CREATION_FAILED, "{error}");
        self.create(construct::service(self.jobset), failed);
    }

    fn make_claims(&mut self) {
        for claim in construct::claims(self.jobset) {
            if !self.observed.claims.contains(object::meta(&claim, "name")) {
                let failed = event(EventType::Warning, reasons::CLAIM_CREATION_FAILED, "{error}");
                self.create(claim, failed);
            }
        }
    }

    fn create(&mut self, object: Value, failed: reconcile::Event) {
        let op = Op::Create { object };
        self.decision.writes.push(Write { op, on_error: OnError::EventThenStop(failed), on_success: None });
    }

    /// Makes the Jobs that are missing, in order, as far as dependencies and the startup policy let it.
    fn make_jobs(&mut self) -> Result<(), Aborted> {
        let startup = Startup::of(self.jobset, &self.draft.status.replicated_jobs_status);
        let in_order = startup.in_order && !self.jobset.is_suspended();
        for replicated in &self.jobset.spec.replicated_jobs {
            if !startup.may_start(replicated) {
                self.decision.report.note(format!("{} waits for what it depends on", replicated.name));
                continue;
            }
            if in_order && startup.has_started(replicated) {
                continue;
            }
            self.make_missing(replicated)?;
            if in_order {
                self.decision.report.note(format!("{} has to be ready before the next one starts", replicated.name));
                self.draft.starting_in_order();
                return Ok(());
            }
        }
        if in_order {
            self.draft.started_in_order();
        }
        Ok(())
    }

    fn make_missing(&mut self, replicated: &api::jobset::ReplicatedJob) -> Result<(), Aborted> {
        if self.strategy() == RestartStrategy::BlockingRecreate && !self.children.previous.is_empty() {
            self.decision.report.note("waits until all Jobs of the previous attempt are gone");
            return Ok(());
        }
        let mut taken = Vec::new();
        for index in 0..replicated.replicas {
            let name = self.jobset.job_name(&replicated.name, i64::from(index));
            if self.children.has(&name) {
                continue;
            }
            if self.observed.taken.contains(&name) {
                let error = format!("jobs.batch {name:?} already exists");
                taken.push(format!("job {name:?} creation failed with error: {error}"));
                continue;
            }
            let text = format!("job {name:?} creation failed with error: {{error}}");
            let failed = event(EventType::Warning, reasons::JOB_CREATION_FAILED, text);
            self.create(construct::job(self.jobset, replicated, index), failed);
        }
        if taken.is_empty() {
            return Ok(());
        }
        let failed = event(EventType::Warning, reasons::JOB_CREATION_FAILED, taken.join("\n"));
        self.decision.events.push(failed);
        Err(Aborted)
    }

    fn strategy(&self) -> RestartStrategy {
        self.jobset.spec.failure_policy.as_ref().map(|policy| policy.restart_strategy).unwrap_or_default()
    }

    /// Resumes suspended Jobs in the order in which they would start.
    fn resume(&mut self) {
        let startup = Startup::of(self.jobset, &self.draft.status.replicated_jobs_status);
        for replicated in &self.jobset.spec.replicated_jobs {
            if !startup.may_start(replicated) || (startup.in_order && startup.has_started(replicated)) {
                continue;
            }
            let of_it = |child: &&Child| child.replicated_job() == Some(replicated.name.as_str());
            for child in self.children.active.iter().filter(of_it).filter(|child| child.is_suspended()) {
                self.decision.writes.extend(suspend::resume(child, replicated));
            }
            if startup.in_order {
                return self.draft.starting_in_order();
            }
        }
        self.draft.resume();
    }
}

/// Deletes Jobs with their pods, but for those that are being deleted.
fn deletions(children: &[Child]) -> Vec<Write> {
    children.iter().filter(|child| !object::is_terminating(&child.job)).map(|child| deletion(&child.job)).collect()
}

/// Deletes this object, not a later one of its name, once all that it owns is gone.
fn deletion(object: &Value) -> Write {
    let op = Op::Delete {
        target: Target::of(object),
        propagation: Propagation::Foreground,
        uid: Some(object::uid(object).to_owned()),
        resource_version: None,
        grace_secs: None,
    };
    op.into()
}
