//! The control plane: its controllers look at objects and act, until it is killed.

use crate::bugs::Bug;
use crate::cloud::{ZONES, zone_of};
use crate::jobs::{Sim, read};
use api::object::{self, Gvk, Key, Target};
use api::sky::{
    Candidate, Cluster, Launch, LaunchPhase, LaunchStatus, Machine, cluster_gvk, keys, launch_gvk, machine_gvk,
    managed_job_gvk,
};
use managed::cluster::ClusterController;
use managed::job::ManagedJobController;
use managed::jobs::jobs;
use managed::launch::job::{Job, Setup};
use managed::launch::step::{self, Step as LaunchStep, step as launch_step};
use managed::launch::{cluster_of, task_of};
use managed::machine::{Call, Step, answered, orphans, status_patch, step, token};
use managed::names::object_name;
use managed::provider::{Found, Seen};
use placement::Catalogue;
use reconcile::{Decision, Next, Op, PatchBody, Propagation, Reconciler, World, Write};
use serde_json::{Value, json};

fn write_status(target: &Target, body: Value) -> Decision {
    let op = Op::Patch { target: target.clone(), subresource: Some("status"), body: PatchBody::Merge(body) };
    Decision { writes: vec![op.into()], ..Decision::default() }
}

impl Sim {
    /// Whether the control plane is killed here.
    fn dies(&mut self) -> bool {
        let dies = self.is_deadly && self.chance.percent(20);
        self.sum.kills += u64::from(dies);
        dies
    }

    /// Carries out a decision, or the beginning of it.
    fn act(&mut self, target: &Target, mut decision: Decision) {
        if self.dies() {
            let done = usize::try_from(self.chance.below(decision.writes.len() as u64 + 1)).unwrap_or(0);
            decision.writes.truncate(done);
            (decision.status, decision.events) = (None, Vec::new());
        }
        self.planted(target, &mut decision);
        self.model.execute(target, &decision);
        if let Next::After(pause) = decision.next {
            let at = api::time::later(self.model.now, pause.max(jiff::SignedDuration::from_millis(1)));
            // that of a budget comes each minute, so a new one replaces it
            if target.key.name.is_empty() && self.has_budget {
                self.turns_due = Some(at);
                return;
            }
            self.timers.insert(at);
        }
    }

    /// A look; now and then at an outdated view.
    pub fn reconcile<R: Reconciler>(&mut self, reconciler: &R, target: &Target) {
        let decision = match self.is_late && !self.views.is_empty() && self.chance.percent(40) {
            true => {
                let at = usize::try_from(self.chance.below(self.views.len() as u64)).unwrap_or(0);
                self.views[at].now = self.model.now;
                self.views[at].decide(reconciler, target)
            }
            false => self.model.decide(reconciler, target),
        };
        if let Some(decision) = decision {
            self.act(target, decision);
        }
    }

    /// One look of every controller at everything of a job.
    pub fn look(&mut self, id: u32) {
        let name = format!("job-{id}");
        self.reconcile(&ManagedJobController, &Target { gvk: managed_job_gvk(), key: Key::new("default", &name) });
        let is_its = |object: &Value| object::label(object, keys::MANAGED_JOB) == Some(&name);
        for launch in self.model.list(&launch_gvk(), None).into_iter().filter(|one| is_its(one)) {
            self.launch(&launch);
        }
        for cluster in self.model.list(&cluster_gvk(), None).into_iter().filter(|one| is_its(one)) {
            self.reconcile(&ClusterController, &Target::of(&cluster));
            for machine in self.model.owned_by(&machine_gvk(), object::uid(&cluster)) {
                self.machine(&read(&machine));
            }
        }
    }

    /// Turns are given by one controller for all jobs; it begins anew with its control plane.
    pub fn give_turns(&mut self) {
        if self.dies() {
            self.turns = managed::job_turns::JobTurns::default();
        }
        let target = Target { gvk: managed_job_gvk(), key: Key::default() };
        let Some(decision) = self.model.decide(&self.turns, &target) else { return };
        self.act(&target, decision);
    }

    fn machine(&mut self, machine: &Machine) {
        let target =
            Target { gvk: machine_gvk(), key: Key::new("default", machine.metadata.name.as_deref().unwrap_or("")) };
        let due = self.asked.get(token(machine)).copied();
        let is_asked = machine.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(keys::REFRESH));
        let is_taken = machine.status.failures == 0 && self.cloud.taken.contains_key(token(machine));
        let is_due = due.is_none_or(|(due, version)| due <= self.model.now || version != generation(machine));
        if !is_due && !is_asked && !is_taken {
            return;
        }
        let call = match step(machine) {
            Step::Rest => return,
            Step::Release => {
                return self.model.change(&target.gvk, &target.key, released);
            }
            Step::Call(call) => call,
        };
        let zone = zone_of(&machine.spec.candidate);
        let mut answer = self.cloud.ask(&call, zone, self.model.now, &mut self.chance);
        if self.bug == Bug::AbsenceIsLoss && matches!(answer, Ok(Found::Absent)) {
            answer = Ok(Found::ended("it is not listed"));
        }
        if self.bug == Bug::SilenceIsLoss
            && answer.is_err()
            && matches!(call, Call::Observe(_))
            && machine.status.failures > 3
        {
            answer = Ok(Found::ended("it does not answer"));
        }
        if self.dies() {
            return;
        }
        let noted = answered(machine, &call, &answer, self.model.now);
        if self.model.get(&target.gvk, &target.key).is_none() {
            return;
        }
        if noted.gone {
            return self.model.change(&target.gvk, &target.key, released);
        }
        let again = api::time::later(self.model.now, jiff::SignedDuration::try_from(noted.again).expect("a minute"));
        self.asked.insert(token(machine).to_owned(), (again, generation(machine)));
        // a machine that rests is asked again when something has become of it
        if noted.again < std::time::Duration::from_secs(60) || noted.status.failures > 0 {
            self.timers.insert(again);
        }
        if noted.status != machine.status {
            let decision = write_status(&target, status_patch(&noted.status));
            self.model.execute(&target, &decision);
        }
        if is_asked && answer.is_ok() {
            self.model.change(&target.gvk, &target.key, |one| {
                one["metadata"]["annotations"].as_object_mut().map(|all| all.remove(keys::REFRESH));
            });
        }
    }

    /// Ends machines that no object stands for.
    pub fn sweep(&mut self) {
        let Some(listed) = self.cloud.list(self.model.now) else { return };
        let machines: Vec<Machine> = self.model.list(&machine_gvk(), None).iter().map(|one| read(one)).collect();
        let zone = |listed: &[Seen], token: &str| {
            let known = listed.iter().any(|seen| seen.token == token);
            known.then(|| self.cloud.machine(token).map_or(0, |made| made.zone))
        };
        let ends: Vec<_> = orphans(&listed, &machines)
            .into_iter()
            .filter_map(|handle| Some((zone(&listed, &handle.token)?, handle)))
            .collect();
        for (zone, handle) in ends {
            let _ = self.cloud.ask(&Call::Delete(handle), zone, self.model.now, &mut self.chance);
        }
    }

    fn launch(&mut self, object: &Value) {
        let launch: Launch = read(object);
        let target = Target::of(object);
        let task = task_of(&launch, &Catalogue::default()).expect("a task");
        let found = self.model.get(&cluster_gvk(), &Key::new("default", &object_name(&launch.spec.cluster)));
        let cluster: Option<(Value, Cluster)> = found.map(|found| ((*found).clone(), read(&found)));
        let sets = cluster.as_ref().map(|(one, _)| self.model.owned_by(&api::jobset::gvk(), object::uid(one)));
        let submitted = jobs(sets.iter().flatten().map(|set| &**set));
        let now = self.model.now;
        let seen = step::Seen {
            launch: &launch,
            task: &task,
            cluster: cluster.as_ref().map(|(object, read)| (object, read)),
            size: None,
            jobs: &submitted,
            now,
        };
        let note = |status: LaunchStatus| {
            let mut body = serde_json::to_value(&launch.status).unwrap_or_default();
            body.as_object_mut().into_iter().flatten().for_each(|(_, value)| *value = Value::Null);
            for (name, value) in serde_json::to_value(&status).unwrap_or_default().as_object().into_iter().flatten() {
                body[name] = value.clone();
            }
            write_status(&target, json!({"status": body}))
        };
        let mut decision = Decision::default();
        match launch_step(&seen) {
            LaunchStep::Rest | LaunchStep::Hold | LaunchStep::Abandon => return,
            LaunchStep::Wait(status) | LaunchStep::Note(status) if status == launch.status => return,
            LaunchStep::Wait(status) | LaunchStep::Note(status) => decision = note(status),
            LaunchStep::Place => {
                let places = (0..ZONES).map(|zone| Candidate {
                    provider: "cloud".into(),
                    region: format!("z{zone}"),
                    hourly_price: 1.0 + zone as f64,
                    spot: true,
                    ..Candidate::default()
                });
                let mut object = cluster_of(&launch, &task, places.collect(), now);
                object["metadata"]["namespace"] = "default".into();
                decision.writes.push(Op::Create { object }.into());
            }
            LaunchStep::Take { patch, is_set_up } => {
                let Some((object, _)) = &cluster else { return };
                let at = Target::of(object);
                let lost = self.model.owned_by(&machine_gvk(), object::uid(object));
                let lost = lost.iter().filter(|one| one["status"]["phase"] == "Lost");
                let mut writes: Vec<Write> = Vec::new();
                writes.push(Op::Patch { target: at, subresource: None, body: PatchBody::Merge(patch) }.into());
                writes.extend(lost.map(|one| remove(one)));
                let taken = step::taken(&launch, object, is_set_up);
                writes.extend(note(taken).writes);
                decision.writes = writes;
            }
            LaunchStep::Send => decision = note(step::sent(&launch)),
            LaunchStep::Submit => {
                let Some((object, read)) = &cluster else { return };
                let job = Job::new(object, read, &launch.spec.cluster, &task, Setup::LeftOut, "u", now);
                let job = job.expect("it fits").of(&launch);
                let attempt = launch.spec.managed.as_ref().map_or(1, |managed| managed.attempt);
                let id = match self.bug {
                    // a number of its own for each try
                    Bug::SubmittedTwice => submitted.last().map_or(1, |last| last.id + 1),
                    _ => attempt,
                };
                let mut object = job.main(id);
                if self.bug == Bug::GroupUnheld {
                    object["metadata"]["annotations"].as_object_mut().map(|all| all.remove(keys::HELD));
                }
                decision.writes.push(Op::Create { object }.into());
                decision.writes.extend(note(step::submitted(&launch, id, now)).writes);
            }
            LaunchStep::Release => {
                self.model.change(&target.gvk, &target.key, |one| one["metadata"]["finalizers"] = json!([]));
                return;
            }
        }
        self.act(&target, decision);
        if launch.status.phase == LaunchPhase::Pending {
            self.timers.insert(api::time::later_secs(now, 1));
        }
    }
}

fn generation(machine: &Machine) -> (i64, bool) {
    (machine.metadata.generation.unwrap_or(0), machine.metadata.deletion_timestamp.is_some())
}

/// Removes the finalizer of the ledger.
fn released(object: &mut Value) {
    if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
        finalizers.retain(|name| *name != keys::LEDGER);
    }
}

fn remove(object: &Value) -> Write {
    Op::Delete {
        target: Target::of(object),
        propagation: Propagation::Background,
        uid: Some(object::uid(object).to_owned()),
        resource_version: None,
        grace_secs: None,
    }
    .into()
}

/// The kind of JobSets.
pub fn sets() -> Gvk {
    api::jobset::gvk()
}
