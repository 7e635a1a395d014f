//! The MPIJob controller, in the order of upstream's `pkg/controller/mpi_job_controller.go`.

use super::asked;
use super::children;
use super::faults::faults;
use super::gang::{self, Priorities};
use super::hosts::{self, hostfile_fault};
use super::pods::{self, says_restart_policy};
use super::profile;
use super::reach;
use super::retry::{self, Failure, Stage};
use super::status::{Draft, Seen, cut, event, job_is, phase};
use super::{GangScheduler, Settings};
use crate::annotations::Options;
use crate::mpi::KEYS;
use api::field::aggregate;
use api::mpi::names::{
    LABEL_JOB_NAME, LABEL_JOB_ROLE, LABEL_OPERATOR_NAME, LABEL_REPLICA_INDEX, MANAGED_BY_MPI_OPERATOR, OPERATOR_NAME,
    ROLE_WORKER, config, launcher, network_policy, ssh_secret, worker,
};
use api::mpi::{self, CleanPodPolicy, MpiJob, Reason, ReplicaType};
use api::object::{self, Gvk, Key, Target};
use api::trainer::annotations::ATTEMPT;
use jiff::Timestamp;
use reconcile::{
    Decision, Event, EventType, Next, OnError, Op, PatchBody, Primary, Propagation, Reconciler, StatusWrite, Wakes,
    Watch, World, Write,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Reconciles MPIJobs.
#[derive(Clone, Debug, Default)]
pub struct MpiJobController {
    settings: Settings,
}

impl MpiJobController {
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

/// A MPIJob and everything that a pass over it looks at. Children are looked up by name: somebody else's are in the way.
pub struct Observed {
    /// As stored: what a status write sends back.
    stored: Arc<Value>,
    /// The same, typed; why not, where it cannot be read.
    job: Result<MpiJob, String>,
    service: Option<Arc<Value>>,
    config: Option<Arc<Value>>,
    secret: Option<Arc<Value>>,
    launcher: Option<Arc<Value>>,
    /// Pods of the launcher's Job.
    launcher_pods: Vec<Arc<Value>>,
    /// The declared workers, by index.
    workers: Vec<Option<Arc<Value>>>,
    /// All its pods with the labels of its workers.
    worker_pods: Vec<Arc<Value>>,
    /// Pods with these labels that nobody owns: hosts like the others, and too many where there are too many.
    strays: Vec<Arc<Value>>,
    pod_group: Option<Arc<Value>>,
    network_policy: Option<Arc<Value>>,
    priorities: Priorities,
}

fn pods() -> Gvk {
    Gvk::new("", "v1", "Pod")
}

fn jobs() -> Gvk {
    Gvk::new("batch", "v1", "Job")
}

fn priority_classes() -> Gvk {
    Gvk::new("scheduling.k8s.io", "v1", "PriorityClass")
}

fn core(kind: &str) -> Gvk {
    Gvk::new("", "v1", kind)
}

/// A pod wakes the MPIJob that controls it, or controls its Job, whatever its labels say.
fn wakes(world: &dyn World, pod: &Value) -> Vec<Target> {
    let namespace = object::meta(pod, "namespace");
    let owned = |object: &Value| {
        let owner = object::controller_of(object).filter(|owner| object::text(owner, "kind") == mpi::KIND)?;
        Some(Target { gvk: mpi::gvk(), key: Key::new(namespace, object::text(owner, "name")) })
    };
    let job = || {
        let owner = object::controller_of(pod).filter(|owner| object::text(owner, "kind") == "Job")?;
        owned(&*world.get(&jobs(), &Key::new(namespace, object::text(owner, "name")))?)
    };
    owned(pod).or_else(job).into_iter().collect()
}

impl Reconciler for MpiJobController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "mpijob"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(mpi::gvk())
    }

    fn watches(&self) -> Vec<Watch> {
        let owned = [core("Service"), core("ConfigMap"), core("Secret"), jobs()];
        let groups = self.settings.gang.iter().map(GangScheduler::pod_group);
        let mut watches: Vec<Watch> =
            owned.into_iter().chain(groups).map(|gvk| Watch { gvk, wakes: Wakes::ControllerOwner }).collect();
        watches.push(Watch { gvk: pods(), wakes: Wakes::Keys(wakes) });
        if profile::guards(&self.settings) {
            watches.push(Watch { gvk: profile::network_policies(), wakes: Wakes::ControllerOwner });
        }
        if self.settings.gang.is_some() {
            watches.push(Watch { gvk: priority_classes(), wakes: Wakes::Nothing });
        }
        watches
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let stored = world.get(&target.gvk, &target.key)?;
        let job: Result<MpiJob, String> = serde_json::from_value((*stored).clone()).map_err(|e| e.to_string());
        let Key { namespace, name } = &target.key;
        let get = |gvk: &Gvk, name: &str| world.get(gvk, &Key::new(namespace, name));
        let launcher = get(&jobs(), &launcher(name));
        let launcher_pods = match &launcher {
            Some(job) => world.owned_by(&pods(), object::uid(job)),
            None => Vec::new(),
        };
        let uid = object::uid(&stored);
        let labels =
            [(LABEL_OPERATOR_NAME, OPERATOR_NAME), (LABEL_JOB_NAME, name.as_str()), (LABEL_JOB_ROLE, ROLE_WORKER)];
        let of_worker =
            |pod: &Arc<Value>| labels.iter().all(|(label, value)| object::label(pod, label) == Some(*value));
        let worker_pods = world.owned_by(&pods(), uid).into_iter().filter(of_worker).collect();
        let strays = world.unowned(&pods(), namespace).into_iter().filter(of_worker).collect();
        let workers = match &job {
            Ok(job) if hostfile_fault(job, &target.key, &self.settings).is_none() => {
                (0..job.spec.workers()).map(|index| get(&pods(), &worker(name, index))).collect()
            }
            Ok(_) | Err(_) => Vec::new(),
        };
        let classes = self.settings.gang.iter().flat_map(|_| world.list(&priority_classes(), None));
        Some(Observed {
            service: get(&core("Service"), name),
            config: get(&core("ConfigMap"), &config(name)),
            secret: get(&core("Secret"), &ssh_secret(name)),
            pod_group: self.settings.gang.as_ref().and_then(|scheduler| get(&scheduler.pod_group(), name)),
            network_policy: profile::guards(&self.settings)
                .then(|| get(&profile::network_policies(), &network_policy(name)))
                .flatten(),
            priorities: classes
                .map(|class| (object::meta(&class, "name").to_owned(), class["value"].as_i64().unwrap_or(0)))
                .collect(),
            stored,
            job,
            launcher,
            launcher_pods,
            workers,
            worker_pods,
            strays,
        })
    }

    fn rests(&self) -> bool {
        true
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        let mut decision = Decision::nothing();
        let job = match &observed.job {
            Ok(job) => job,
            Err(why) => {
                decision.report.note(format!("the stored MPIJob cannot be read: {why}"));
                return decision;
            }
        };
        if job.spec.manager() != MANAGED_BY_MPI_OPERATOR {
            decision.report.note(format!("managed by {}", job.spec.manager()));
            return decision;
        }
        if object::is_terminating(&observed.stored) {
            decision.report.note("being deleted: garbage collection does the rest");
            return decision;
        }
        let key = Key::of(&observed.stored);
        let mut faults = faults(job, &key.name);
        if let Some(detail) = hostfile_fault(job, &key, &self.settings) {
            let path = api::field::Path::new("spec").child("mpiReplicaSpecs").key("Worker").child("replicas");
            faults.push(api::field::Error::invalid(&path, job.spec.workers(), detail));
        }
        if !faults.is_empty() {
            let message = cut(format!("Found validation errors: {}", aggregate(&faults)));
            decision.report.note(message.clone());
            decision.events.push(event(EventType::Warning, Reason::ValidationError.as_str(), message));
            return decision;
        }
        let draft = Draft::new(&job.status, now);
        let options = Options::of(&observed.stored);
        let mut pass = Pass { settings: &self.settings, observed, job, options, key, draft, created: None, decision };
        let end = pass.run(now);
        pass.finish(end)
    }
}

/// A pass ends early, and no status is written: a child's name is somebody else's.
struct Taken {
    name: String,
    /// Empty but for PodGroups, as upstream has it.
    kind: &'static str,
}

/// One pass over a MPIJob.
struct Pass<'a> {
    settings: &'a Settings,
    observed: &'a Observed,
    job: &'a MpiJob,
    /// What it asks for by annotation.
    options: Options,
    key: Key,
    draft: Draft,
    /// The event of the first pass.
    created: Option<Event>,
    decision: Decision,
}

impl Pass<'_> {
    fn run(&mut self, now: Timestamp) -> Result<(), Taken> {
        let (observed, suspended) = (self.observed, self.job.spec.is_suspended());
        if self.draft.status.conditions.is_empty() {
            self.created = Some(self.draft.created(&self.key));
        }
        let pods = observed.launcher_pods.iter().map(|pod| &**pod);
        let told = reach::told(pods, &self.job.spec, &self.key, &observed.stored, now);
        if self.draft.status.is_finished() && self.draft.status.completion_time.is_some() {
            self.tell(told);
            self.expire(now);
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
    fn replaces_workers(&self) -> bool {
        asked::replaces_workers(self.job) || self.options.attempt > 1
    }

    fn finish(mut self, end: Result<(), Taken>) -> Decision {
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

    fn uid(&self) -> &str {
        object::uid(&self.observed.stored)
    }

    fn write(&mut self, op: Op) {
        self.decision.writes.push(op.into());
    }

    fn warn(&self, message: String) -> OnError {
        OnError::EventThenStop(event(EventType::Warning, Reason::Failed.as_str(), message))
    }

    /// A child that is there, if it is this job's.
    fn mine<'o>(&self, child: Option<&'o Arc<Value>>, kind: &'static str) -> Result<Option<&'o Value>, Taken> {
        let Some(child) = child else { return Ok(None) };
        let owner = object::controller_of(child).map(|owner| object::text(owner, "uid"));
        if owner == Some(self.uid()) {
            return Ok(Some(child));
        }
        Err(Taken { name: object::meta(child, "name").to_owned(), kind })
    }

    fn keep_service(&mut self) -> Result<(), Taken> {
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

    fn keep_config(&mut self) -> Result<(), Taken> {
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

    fn keep_secret(&mut self) -> Result<(), Taken> {
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

    fn keep_network_policy(&mut self) -> Result<(), Taken> {
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

    fn keep_pod_group(&mut self) -> Result<(), Taken> {
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
    fn keep_workers(&mut self) -> Result<(), Taken> {
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
    fn is_surplus(&self, pod: &Value, there: usize) -> bool {
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
    fn goes_at_once(&self, pod: &Value) -> bool {
        matches!(phase(pod), "Failed" | "Succeeded") && self.is_surplus(pod, self.observed.worker_pods.len())
    }

    fn launcher_comes_later(&self) -> bool {
        reach::launcher_comes_later(self.job, self.settings)
    }

    /// Whether the launcher may be made, or resumed by us: `workers` are those that this pass looked after.
    fn may_launch(&mut self, workers: &[Option<Arc<Value>>]) -> bool {
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
    fn launch(&mut self) -> Value {
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
    fn restart_policy_warning(&self) -> Option<Event> {
        let message = "Restart policy in pod template overridden by restart policy in replica spec";
        says_restart_policy(self.job)
            .then(|| event(EventType::Warning, Reason::SetPodTemplateRestartPolicy.as_str(), message))
    }

    /// Suspends or resumes the launcher's Job, as the MPIJob is. One that ended while it was suspended stays as it is: upstream tries
    /// for ever to take its start time away, which the API does not allow.
    fn align(&mut self, launcher: &Value, workers: &[Option<Arc<Value>>]) {
        let is_suspended = launcher["spec"]["suspend"] == true;
        let has_ended = job_is(launcher, "Complete") || job_is(launcher, "Failed");
        match (self.job.spec.is_suspended(), is_suspended) {
            (true, false) => self.decision.writes.push(children::suspend(launcher)),
            (false, true) if has_ended => {}
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

    fn clean_policy(&self) -> CleanPodPolicy {
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

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Deletes this object, not a later one of its name; `None` where that is under way.
fn deletion(object: &Value) -> Option<Op> {
    (!object::is_terminating(object)).then(|| Op::Delete {
        target: Target::of(object),
        propagation: Propagation::Background,
        uid: Some(object::uid(object).to_owned()),
        resource_version: None,
        grace_secs: None,
    })
}
