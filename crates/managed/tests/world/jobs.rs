//! The jobs, their users and their processes.

use crate::bugs::Bug;
use crate::chance::Chance;
use crate::cloud::{Cloud, ZONES};
use crate::control::sets;
use crate::runs::Run;
use crate::sum::Sum;
use api::object::{self, Gvk, Key, Target};
use api::sky::{
    API_VERSION, JobStrategy, Machine, MachinePhase, ManagedJob, cluster_gvk, keys, machine_gvk, managed_job_gvk,
};
use jiff::Timestamp;
use managed::job_turns::JobTurns;
use managed::machine::token;
use reconcile::testing::Model;
use reconcile::{Propagation, World};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Jobs of a seed.
const JOBS: u32 = 5;
/// Seconds in which things go wrong.
pub const FAULTS: i64 = 2 * 86_400;
/// Seconds in which all must end after that.
const REST: i64 = 86_400;
/// A task of so many seconds of work is checkpointed as often.
pub const CHECKPOINT: i64 = 600;
/// How long a controller of SkyPilot does not see a job before it makes it again: five probes, 15 s apart, at least 60 s.
const BLIND: i64 = 75;

/// What a user asked for: a job of one task, or the part of one task in a job of several.
#[derive(Clone)]
pub struct Asked {
    /// The further tasks of the job.
    pub more: Vec<Asked>,
    /// How the tasks of a job of several run.
    pub kind: Kind,
    /// Whether its tasks have callbacks.
    pub calls: bool,
    /// In a group: seconds after which it is ended once all primary tasks have ended.
    pub auxiliary: Option<u32>,
    /// Seconds of work.
    pub work: i64,
    pub nodes: usize,
    pub strategy: JobStrategy,
    /// Its code fails by itself at these seconds of work, with this exit code.
    pub fails: Vec<(i64, i64)>,
    pub max_restarts: u32,
    pub codes: Vec<i64>,
    pub priority: i32,
    pub submitted: Timestamp,
    pub cancel: Option<Timestamp>,
    pub down: Option<Timestamp>,
    /// When a user removed its cluster.
    pub downed: BTreeSet<String>,
}

/// How the tasks of a job run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One after another.
    Pipeline,
    /// Together.
    Group,
}

impl Asked {
    /// All tasks of the job.
    pub fn tasks(&self) -> impl Iterator<Item = &Self> {
        [self].into_iter().chain(&self.more)
    }
}

/// A task: the numbers of its job and of itself.
pub type Of = (u32, usize);

pub struct Sim {
    pub model: Model,
    pub views: VecDeque<Model>,
    pub chance: Chance,
    pub cloud: Cloud,
    pub turns: JobTurns,
    pub timers: BTreeSet<Timestamp>,
    /// When a machine's provider is asked again, and for which generation that was said.
    pub asked: BTreeMap<String, (Timestamp, (i64, bool))>,
    pub faults: bool,
    /// Whether views are outdated now, and whether the control plane is being killed. All is looked at again a second later.
    pub is_late: bool,
    pub is_deadly: bool,
    pub bug: Bug,
    pub sum: Sum,
    pub jobs: BTreeMap<u32, Asked>,
    pub runs: Vec<Run>,
    /// Work that a checkpoint holds.
    pub done: BTreeMap<Of, i64>,
    /// Failures that happened.
    pub failed: BTreeMap<Of, usize>,
    pub last: BTreeMap<u32, ManagedJob>,
    pub ended: BTreeMap<u32, Timestamp>,
    /// When a zone was last dark.
    pub dark_until: Timestamp,
    pub start: Timestamp,
    /// Seconds in which things go wrong.
    pub fault_secs: i64,
    /// Hours that the machines of all jobs may run together, if there is a budget; it is raised once things no longer go wrong.
    pub limit: Option<f64>,
    pub has_budget: bool,
    /// When turns are looked at again, if there is a budget.
    pub turns_due: Option<Timestamp>,
    /// When they had run for so long.
    pub crossed: Option<Timestamp>,
    /// The machines at the latest look at turns.
    pub seen: BTreeMap<Key, Arc<Value>>,
    /// When the pods of callbacks end, by uid; and the latest callback of each task.
    pub calling: BTreeMap<String, Timestamp>,
    pub called: BTreeMap<Of, u32>,
    /// Since when a job waits although there are machines for it.
    pub idle: BTreeMap<u32, Timestamp>,
}

pub fn later(at: Timestamp, secs: i64) -> Timestamp {
    api::time::later_secs(at, secs)
}

pub fn read<T: serde::de::DeserializeOwned>(object: &Value) -> T {
    T::deserialize(object).expect("an object of its kind")
}

pub fn job_target(id: u32) -> Target {
    Target { gvk: managed_job_gvk(), key: Key::new("default", &format!("job-{id}")) }
}

impl Sim {
    pub fn new(seed: u64, bug: Bug) -> Self {
        let model = Model::default();
        let start = model.now;
        let mut sim = Self {
            model,
            views: VecDeque::new(),
            chance: Chance(seed),
            cloud: Cloud::new(),
            turns: JobTurns::default(),
            timers: BTreeSet::new(),
            asked: BTreeMap::new(),
            faults: true,
            is_late: false,
            is_deadly: false,
            bug,
            sum: Sum { seeds: 1, ..Sum::default() },
            jobs: BTreeMap::new(),
            runs: Vec::new(),
            done: BTreeMap::new(),
            failed: BTreeMap::new(),
            last: BTreeMap::new(),
            ended: BTreeMap::new(),
            dark_until: Timestamp::MIN,
            start,
            fault_secs: FAULTS,
            limit: None,
            has_budget: false,
            turns_due: None,
            crossed: None,
            seen: BTreeMap::new(),
            calling: BTreeMap::new(),
            called: BTreeMap::new(),
            idle: BTreeMap::new(),
        };
        for id in 1..=JOBS {
            let asked = sim.asked_for();
            sim.add(id, asked);
        }
        sim
    }

    pub fn add(&mut self, id: u32, asked: Asked) {
        self.timers.extend([asked.submitted].into_iter().chain(asked.cancel).chain(asked.down));
        self.jobs.insert(id, asked);
    }

    /// What was asked for of a task.
    pub fn asked(&self, (job, task): Of) -> &Asked {
        let job = &self.jobs[&job];
        if task == 0 { job } else { &job.more[task - 1] }
    }

    /// From the first submission to the end of all.
    pub fn run(mut self) -> Result<Sum, String> {
        let (calm, end) = (later(self.start, self.fault_secs), later(self.start, self.fault_secs + REST));
        self.timers.extend([calm, later(self.start, 60)]);
        loop {
            let now = self.model.now;
            if now >= calm && self.faults {
                self.faults = false;
                self.cloud.faults = false;
                (self.cloud.dark, self.cloud.full) = ([Timestamp::MIN; ZONES], [Timestamp::MIN; ZONES]);
                self.raise();
            }
            self.users();
            self.weather();
            self.cloud.pass(now, &mut self.chance);
            self.processes();
            self.control()?;
            if self.is_over() {
                self.judge_sum()?;
                self.judge_callbacks()?;
                self.sum.jobs += u64::try_from(self.jobs.len()).unwrap_or(0);
                self.sum.crossed = u64::from(self.crossed.is_some());
                self.sum.world_secs = now.duration_since(self.start).as_secs();
                self.forget_writes();
                return Ok(self.sum);
            }
            if now >= end {
                return Err(format!("it does not come to an end: {}", self.left()));
            }
            self.advance(end);
        }
    }

    /// Counts what was written, and forgets it: it is copied with each view.
    fn forget_writes(&mut self) {
        self.sum.writes += u64::try_from(self.model.writes.len()).unwrap_or(0);
        self.model.writes.clear();
        self.model.events.clear();
    }

    /// To the next moment at which something happens.
    fn advance(&mut self, end: Timestamp) {
        let now = self.model.now;
        self.timers = self.timers.split_off(&later(now, 0));
        self.timers.remove(&now);
        let due = self.turns_due.filter(|at| *at > now);
        let timer = self.timers.first().copied().into_iter().chain(due).min();
        let runs = self.runs.iter().filter(|run| !run.is_over).flat_map(|run| {
            let done = later(run.began, self.asked(run.of).work - run.from);
            let fails = self.fails(run).map(|(at, _)| at);
            [run.stops, run.breaks, fails, Some(done)]
        });
        let next =
            runs.flatten().filter(|at| *at > now).chain(timer).chain(self.cloud.next().filter(|at| *at > now)).min();
        let next = next.unwrap_or(end).min(end).max(later(now, 1));
        let secs = next.duration_since(now).as_secs().max(1);
        self.cloud.machine_secs += secs * i64::try_from(self.cloud.machines.len()).unwrap_or(0);
        self.sum.machine_secs = self.cloud.machine_secs;
        self.model.now = later(now, secs);
        self.forget_writes();
        // a view is only of use if it is outdated, and while views are
        let is_news = self.views.back().is_none_or(|view| view.revision() != self.model.revision());
        if !self.faults {
            self.views.clear();
        } else if is_news {
            if self.views.len() > 6 {
                self.views.pop_front();
            }
            self.views.push_back(self.model.clone());
        }
    }

    fn users(&mut self) {
        let now = self.model.now;
        let ids: Vec<u32> = self.jobs.keys().copied().collect();
        for id in ids {
            let asked = &self.jobs[&id];
            let is_there = self.model.get(&managed_job_gvk(), &job_target(id).key).is_some();
            if asked.submitted <= now && !is_there {
                self.submit(id);
            }
            let asked = &self.jobs[&id];
            let cancels = asked.cancel.is_some_and(|at| at <= now);
            if is_there && cancels {
                self.model.change(&managed_job_gvk(), &job_target(id).key, |one| one["spec"]["cancel"] = true.into());
            }
            if is_there && asked.down.is_some_and(|at| at <= now) {
                self.down(id);
            }
        }
    }

    fn submit(&mut self, id: u32) {
        let asked = &self.jobs[&id];
        let calls = asked.calls;
        let task = |(at, asked): (usize, &Asked)| {
            let recovery = json!({
                "strategy": asked.strategy, "maxRestartsOnErrors": asked.max_restarts, "recoverOnExitCodes": asked.codes,
            });
            let mut task = json!({"run": "train", "num_nodes": asked.nodes});
            if calls {
                task["event_callback"] = "notify".into();
            }
            let name = if asked.more.is_empty() && at == 0 { "train".to_owned() } else { format!("t{at}") };
            let auxiliary = match self.bug {
                Bug::DelayForgotten => None,
                Bug::DelayCut => asked.auxiliary.map(|_| 0),
                _ => asked.auxiliary,
            };
            json!({"name": name, "task": task, "recovery": recovery, "auxiliary": auxiliary})
        };
        let tasks: Vec<Value> = asked.tasks().enumerate().map(task).collect();
        let (is_group, priority) = (asked.kind == Kind::Group, asked.priority);
        let file = json!({"submitted": "2026", "tasks": tasks});
        self.model.put(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("tasks-{id}"), "namespace": "default"},
            "data": {"job": file.to_string()},
        }));
        self.model.put(json!({
            "apiVersion": API_VERSION, "kind": "ManagedJob", "metadata": {"name": format!("job-{id}"), "namespace": "default"},
            "spec": {"id": id, "name": "train", "submission": format!("tasks-{id}"), "priority": priority, "group": is_group},
        }));
        self.note_job(id);
    }

    /// The turns of jobs are given by what has changed.
    fn note_job(&mut self, id: u32) {
        use reconcile::Reconciler;
        let Some(object) = self.model.get(&managed_job_gvk(), &job_target(id).key) else { return };
        for watch in self.turns.watches() {
            watch.woken_by(&self.turns.primary(), &self.model, &managed_job_gvk(), &object);
        }
    }

    /// A user removes the cluster of a job.
    fn down(&mut self, id: u32) {
        let name = format!("job-{id}");
        let its =
            |object: &Value| object::label(object, keys::MANAGED_JOB) == Some(&name) && !object::is_terminating(object);
        let found = self.model.list(&cluster_gvk(), None).into_iter().find(|object| its(object));
        let asked = self.jobs.get_mut(&id).expect("a job");
        if let Some(cluster) = found {
            asked.down = None;
            asked.downed.insert(object::meta(&cluster, "name").to_owned());
            self.model.delete(&Target::of(&cluster), Propagation::Background, None);
        }
    }

    /// Zones that nobody reaches, that have no room, and a key that is wrong.
    fn weather(&mut self) {
        if !self.faults {
            return;
        }
        let now = self.model.now;
        for zone in 0..ZONES {
            if self.cloud.dark[zone] <= now && self.chance.percent(1) {
                let until = later(now, self.chance.secs(5, 1500));
                self.cloud.dark[zone] = until;
                self.dark_until = self.dark_until.max(until);
                self.timers.insert(until);
                let secs = until.duration_since(now).as_secs();
                let hit = self.runs.iter().filter(|run| run.zone == zone && self.is_live(run) && run.exited.is_none());
                let hit = hit.filter(|run| secs >= BLIND && self.are_all_well(run)).count();
                self.sum.blind += u64::try_from(hit).unwrap_or(0);
            }
            if self.cloud.hosts.is_none() && self.cloud.full[zone] <= now && self.chance.percent(2) {
                let until = later(now, self.chance.secs(60, 7200));
                self.cloud.full[zone] = until;
                self.timers.insert(until);
            }
        }
        // a burst
        if self.chance.percent(1) {
            let zone = usize::try_from(self.chance.below(ZONES as u64)).expect("few");
            self.cloud.machines.iter_mut().filter(|made| made.zone == zone).for_each(|made| made.preempted = now);
        }
    }

    /// Everybody else on the cluster: nodes register and go silent, what nobody owns goes.
    fn everybody(&mut self) {
        let nodes = Gvk::new("", "v1", "Node");
        let machines: Vec<Machine> = self.model.list(&machine_gvk(), None).iter().map(|one| read(one)).collect();
        for node in self.model.list(&nodes, None) {
            let token = object::label(&node, keys::TOKEN).unwrap_or_default();
            let stands =
                |one: &&Machine| managed::machine::token(one) == token && one.status.phase != MachinePhase::Lost;
            if !machines.iter().any(|one| stands(&one)) {
                self.model.delete(&Target::of(&node), Propagation::Background, None);
            }
        }
        let has_node = |one: &&Machine| !one.status.node.is_empty() && one.status.phase != MachinePhase::Lost;
        for machine in machines.iter().filter(has_node) {
            let made = self.cloud.machine(token(machine));
            let is_heard = made.is_some_and(|made| !self.cloud.is_dark(made.zone, self.model.now));
            let ready = if is_heard { "True" } else { "Unknown" };
            let labels = json!({
                keys::TOKEN: token(machine), keys::CLUSTER: machine.spec.cluster, keys::CLUSTER_NAMESPACE: "default",
            });
            let name = &machine.status.node;
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
                "status": {"allocatable": {"cpu": "8"}, "conditions": [{"type": "Ready", "status": ready}]},
            });
            let same = self.model.get(&nodes, &Key::new("", name)).is_some_and(|held| {
                held["status"] == node["status"] && held["metadata"]["labels"] == node["metadata"]["labels"]
            });
            if !same && (is_heard || self.model.get(&nodes, &Key::new("", name)).is_some()) {
                self.model.put(node);
            }
        }
        // the garbage collector
        let clusters: BTreeSet<String> =
            self.model.list(&cluster_gvk(), None).iter().map(|one| object::uid(one).to_owned()).collect();
        for set in self.model.list(&sets(), None) {
            let name = object::meta(&set, "name");
            let owner = object::text(&set["metadata"]["ownerReferences"][0], "uid").to_owned();
            if !clusters.contains(&owner) && !object::is_terminating(&set) {
                self.model.delete(&Target::of(&set), Propagation::Foreground, None);
            }
            let began = self.runs.iter().any(|run| run.set == name && !run.is_over);
            if object::is_terminating(&set) && !began {
                self.model.change(&sets(), &Key::of(&set), |object| object["metadata"]["finalizers"] = json!([]));
            }
        }
    }

    /// The control plane works until it has nothing to do, and is watched.
    fn control(&mut self) -> Result<(), String> {
        self.is_late = self.faults && self.chance.percent(10);
        self.is_deadly = self.faults && self.chance.percent(5);
        if self.is_late || self.is_deadly {
            self.timers.insert(later(self.model.now, 1));
        }
        for _ in 0..60 {
            let before = self.model.revision();
            self.everybody();
            self.note_spend();
            self.give_turns();
            let ids: Vec<u32> = self.jobs.keys().copied().collect();
            for id in &ids {
                if self.model.get(&managed_job_gvk(), &job_target(*id).key).is_some() && self.has_work(*id) {
                    self.look(*id);
                    self.note_job(*id);
                    self.judge(*id)?;
                }
                if self.last.contains_key(id) {
                    self.call_back(*id);
                }
            }
            self.run_callbacks()?;
            self.processes();
            self.judge_runs()?;
            self.judge_begins()?;
            if self.model.revision() == before {
                break;
            }
        }
        if self.chance.percent(20) || !self.faults {
            self.sweep();
            self.timers.insert(later(self.model.now, 60));
        }
        self.judge_budget()?;
        self.judge_waiting()?;
        self.outlived()
    }

    /// Whether anything of a job is there to look at.
    fn has_work(&self, id: u32) -> bool {
        let job: ManagedJob = read(&self.model.get(&managed_job_gvk(), &job_target(id).key).expect("a job"));
        let name = format!("job-{id}");
        let its = |object: &Value| object::label(object, keys::MANAGED_JOB) == Some(&name);
        !job.status.state.has_ended()
            || self.model.list(&cluster_gvk(), None).iter().any(|one| its(one))
            || self.model.list(&api::sky::launch_gvk(), None).iter().any(|one| its(one))
    }

    fn is_over(&self) -> bool {
        self.ended.len() == self.jobs.len()
            && self.model.all("Cluster").is_empty()
            && self.model.all("Launch").is_empty()
            && self.model.all("Machine").is_empty()
            && self.model.all("JobSet").is_empty()
            && self.cloud.left() == 0
            && self.has_called_back()
    }

    /// What is there at the end, in a few words.
    pub fn left(&self) -> String {
        let jobs: Vec<String> = self
            .last
            .values()
            .filter(|job| !job.status.state.has_ended())
            .map(|job| format!("{:?}", job.status))
            .collect();
        let names = |kind: &str| {
            self.model.all(kind).iter().map(|one| object::meta(one, "name").to_owned()).collect::<Vec<_>>().join(" ")
        };
        format!(
            "{} machines; Clusters {}; Machines {}; Launches {}; JobSets {}; {}",
            self.cloud.left(),
            names("Cluster"),
            names("Machine"),
            names("Launch"),
            names("JobSet"),
            jobs.join("\n")
        )
    }
}
