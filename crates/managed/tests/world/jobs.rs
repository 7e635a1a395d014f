//! The jobs, their users and their processes; and what must always hold. It is long because all of it shares one state.

use crate::cloud::{Chance, Cloud, ZONES};
use crate::control::sets;
use api::object::{self, Gvk, Key, Target};
use api::sky::{
    API_VERSION, Ground, JobStrategy, Machine, MachinePhase, ManagedJob, ManagedState as State, cluster_gvk, keys,
    machine_gvk, managed_job_gvk,
};
use jiff::Timestamp;
use managed::job_turns::JobTurns;
use managed::machine::token;
use reconcile::testing::Model;
use reconcile::{Decision, Op, Propagation, World};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// Jobs of a seed.
const JOBS: u32 = 5;
/// Seconds in which things go wrong.
const FAULTS: i64 = 2 * 86_400;
/// Seconds in which all must end after that.
const REST: i64 = 86_400;
/// Seconds for which a machine may outlive its job.
const OUTLIVES: i64 = 600;
/// A task of so many seconds of work is checkpointed as often.
const CHECKPOINT: i64 = 600;
/// How long a controller of SkyPilot does not see a job before it makes it again: five probes, 15 s apart, at least 60 s.
const BLIND: i64 = 75;

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
    /// An attempt is submitted once more when nobody knows whether it was.
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
}

impl Bug {
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

/// What happened in all seeds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sum {
    pub seeds: u64,
    pub jobs: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub recoveries: u64,
    /// Recoveries in which some machines stayed.
    pub replaced: u64,
    /// Running jobs that SkyPilot's rule would have made again because their zone was not reached.
    pub blind: u64,
    pub kills: u64,
    pub world_secs: i64,
    pub machine_secs: i64,
    /// Seconds of work that counted.
    pub work_secs: i64,
    pub writes: u64,
}

impl Sum {
    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.jobs += other.jobs;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.recoveries += other.recoveries;
        self.replaced += other.replaced;
        self.blind += other.blind;
        self.kills += other.kills;
        self.world_secs += other.world_secs;
        self.machine_secs += other.machine_secs;
        self.work_secs += other.work_secs;
        self.writes += other.writes;
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let years = |secs: i64| secs as f64 / 86_400.0 / 365.0;
        write!(
            f,
            "{} seeds: {} jobs ({} succeeded, {} failed, {} cancelled), {} recoveries on evidence ({} kept machines), \
             0 of healthy jobs; the rule of 60 s and 5 probes would have made {} healthy jobs again; {} kills, {} writes, \
             {:.2} cluster-years, {:.2} machine-years, goodput {:.0} %",
            self.seeds,
            self.jobs,
            self.succeeded,
            self.failed,
            self.cancelled,
            self.recoveries,
            self.replaced,
            self.blind,
            self.kills,
            self.writes,
            years(self.world_secs),
            years(self.machine_secs),
            self.work_secs as f64 * 100.0 / self.machine_secs.max(1) as f64
        )
    }
}

/// What a user asked for.
struct Asked {
    /// Seconds of work.
    work: i64,
    nodes: usize,
    strategy: JobStrategy,
    /// Its code fails by itself at these seconds of work, with this exit code.
    fails: Vec<(i64, i64)>,
    max_restarts: u32,
    codes: Vec<i64>,
    submitted: Timestamp,
    cancel: Option<Timestamp>,
    down: Option<Timestamp>,
    /// When a user removed its cluster.
    downed: BTreeSet<String>,
}

/// The processes of an attempt.
#[derive(Clone, Debug)]
struct Run {
    job: u32,
    set: String,
    cluster: String,
    attempt: u32,
    tokens: Vec<String>,
    zone: usize,
    began: Timestamp,
    /// Seconds of work when it began.
    from: i64,
    /// When its processes end by a signal.
    stops: Option<Timestamp>,
    /// How it ended by itself: an exit code, and when.
    exited: Option<(Timestamp, i64)>,
    /// When the processes of the machines that are left fail, because others are lost.
    breaks: Option<Timestamp>,
    is_over: bool,
}

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
    jobs: BTreeMap<u32, Asked>,
    runs: Vec<Run>,
    /// Work that a checkpoint holds.
    done: BTreeMap<u32, i64>,
    /// Failures that happened, by job.
    failed: BTreeMap<u32, usize>,
    last: BTreeMap<u32, ManagedJob>,
    ended: BTreeMap<u32, Timestamp>,
    /// When a zone was last dark.
    dark_until: Timestamp,
    start: Timestamp,
}

fn later(at: Timestamp, secs: i64) -> Timestamp {
    api::time::later_secs(at, secs)
}

fn read<T: serde::de::DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(object.clone()).expect("an object of its kind")
}

fn job_target(id: u32) -> Target {
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
        };
        for id in 1..=JOBS {
            let asked = sim.asked_for();
            sim.timers.extend([asked.submitted].into_iter().chain(asked.cancel).chain(asked.down));
            sim.jobs.insert(id, asked);
        }
        sim
    }

    fn asked_for(&mut self) -> Asked {
        let chance = &mut self.chance;
        let submitted = later(self.start, chance.secs(1, FAULTS / 2));
        let work = chance.secs(60, 40_000);
        let mut fails = Vec::new();
        if chance.percent(40) {
            for _ in 0..=chance.below(3) {
                fails.push((chance.secs(1, work), if chance.percent(50) { 33 } else { 1 }));
            }
            fails.sort_unstable();
        }
        let during = |chance: &mut Chance| later(submitted, chance.secs(1, 20_000));
        let cancel = chance.percent(20).then(|| during(chance));
        let down = chance.percent(10).then(|| during(chance));
        Asked {
            work,
            nodes: usize::try_from(1 + chance.below(4)).expect("few"),
            strategy: [JobStrategy::EagerNextRegion, JobStrategy::Failover]
                [usize::try_from(chance.below(2)).expect("few")],
            fails,
            max_restarts: u32::try_from(chance.below(3)).expect("few"),
            codes: if chance.percent(50) { vec![33] } else { Vec::new() },
            submitted,
            cancel,
            down,
            downed: BTreeSet::new(),
        }
    }

    /// From the first submission to the end of all.
    pub fn run(mut self) -> Result<Sum, String> {
        let (calm, end) = (later(self.start, FAULTS), later(self.start, FAULTS + REST));
        self.timers.extend([calm, later(self.start, 60)]);
        loop {
            let now = self.model.now;
            if now >= calm && self.faults {
                self.faults = false;
                self.cloud.faults = false;
                (self.cloud.dark, self.cloud.full) = ([Timestamp::MIN; ZONES], [Timestamp::MIN; ZONES]);
            }
            self.users();
            self.weather();
            self.cloud.pass(now, &mut self.chance);
            self.processes();
            self.control()?;
            if self.is_over() {
                self.sum.jobs += u64::from(JOBS);
                self.sum.world_secs = now.duration_since(self.start).as_secs();
                self.sum.writes = u64::try_from(self.model.writes.len()).unwrap_or(0);
                return Ok(self.sum);
            }
            if now >= end {
                return Err(format!("it does not come to an end: {}", self.left()));
            }
            self.advance(end);
        }
    }

    /// To the next moment at which something happens.
    fn advance(&mut self, end: Timestamp) {
        let now = self.model.now;
        self.timers = self.timers.split_off(&later(now, 0));
        self.timers.remove(&now);
        let timer = self.timers.first().copied();
        let runs = self.runs.iter().filter(|run| !run.is_over).flat_map(|run| {
            let done = later(run.began, self.jobs[&run.job].work - run.from);
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
        if self.views.len() > 6 {
            self.views.pop_front();
        }
        self.views.push_back(self.model.clone());
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
        let task = json!({"run": "train", "num_nodes": asked.nodes});
        let recovery = json!({
            "strategy": asked.strategy, "maxRestartsOnErrors": asked.max_restarts, "recoverOnExitCodes": asked.codes,
        });
        let file = json!({"submitted": "2026", "tasks": [{"name": "train", "task": task, "recovery": recovery}]});
        self.model.put(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("tasks-{id}"), "namespace": "default"},
            "data": {"job": file.to_string()},
        }));
        self.model.put(json!({
            "apiVersion": API_VERSION, "kind": "ManagedJob", "metadata": {"name": format!("job-{id}"), "namespace": "default"},
            "spec": {"id": id, "name": "train", "submission": format!("tasks-{id}")},
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
            if self.cloud.full[zone] <= now && self.chance.percent(2) {
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

    fn are_all_well(&self, run: &Run) -> bool {
        run.tokens.iter().all(|token| self.cloud.machine(token).is_some())
    }

    /// Whether processes of a run exist.
    fn is_live(&self, run: &Run) -> bool {
        let now = self.model.now;
        let has_stopped = run.stops.is_some_and(|at| at <= now) || run.exited.is_some_and(|(at, _)| at <= now);
        !run.is_over && !has_stopped && run.tokens.iter().any(|token| self.cloud.machine(token).is_some())
    }

    /// When the code of a run fails by itself next.
    fn fails(&self, run: &Run) -> Option<(Timestamp, i64)> {
        let seen = self.failed.get(&run.job).copied().unwrap_or(0);
        let (at, code) = self.jobs[&run.job].fails.get(seen)?;
        Some((later(run.began, (at - run.from).max(1)), *code))
    }

    /// Processes begin, work, fail and end.
    fn processes(&mut self) {
        self.begin_runs();
        let now = self.model.now;
        for at in 0..self.runs.len() {
            if self.runs[at].is_over {
                continue;
            }
            let run = self.runs[at].clone();
            let work = self.jobs[&run.job].work;
            let worked = run.from + now.duration_since(run.began).as_secs();
            let is_whole = self.are_all_well(&run);
            if is_whole && run.exited.is_none() && run.stops.is_none_or(|at| at > now) {
                let held = self.done.entry(run.job).or_insert(0);
                *held = (*held).max(worked.min(work) / CHECKPOINT * CHECKPOINT);
                if let Some((_, code)) = self.fails(&run).filter(|(at, _)| *at <= now) {
                    *self.failed.entry(run.job).or_insert(0) += 1;
                    self.runs[at].exited = Some((now, code));
                } else if worked >= work {
                    self.done.insert(run.job, work);
                    self.runs[at].exited = Some((now, 0));
                }
            } else if !is_whole && run.breaks.is_none() && run.exited.is_none() {
                // the others hang, or fail at once
                let after = if self.chance.percent(50) { 1 } else { self.chance.secs(30, 900) };
                self.runs[at].breaks = Some(later(now, after));
            }
            if run.breaks.is_some_and(|at| at <= now) && run.exited.is_none() {
                self.runs[at].exited = Some((now, 143));
            }
            self.tell(at);
        }
    }

    fn begin_runs(&mut self) {
        for set in self.model.list(&sets(), None) {
            let name = object::meta(&set, "name").to_owned();
            let begins = set["spec"]["suspend"] == false && !object::is_terminating(&set);
            if !begins || self.runs.iter().any(|run| run.set == name) {
                continue;
            }
            let label = |key: &str| object::label(&set, key).unwrap_or_default().to_owned();
            let job: u32 = label(keys::MANAGED_JOB).trim_start_matches("job-").parse().expect("a number");
            let nodes: BTreeSet<String> = set["spec"]["replicatedJobs"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|rank| {
                    let spec = &rank["template"]["spec"]["template"]["spec"];
                    spec["nodeSelector"]["kubernetes.io/hostname"].as_str().map(str::to_owned)
                })
                .collect();
            let machines: Vec<Machine> = self.model.list(&machine_gvk(), None).iter().map(|one| read(one)).collect();
            let tokens: Vec<String> = machines
                .iter()
                .filter(|one| nodes.contains(&one.status.node))
                .map(|one| token(one).to_owned())
                .collect();
            let zone = tokens.iter().find_map(|token| self.cloud.machine(token)).map(|made| made.zone);
            // agents of a zone that is dark have not heard of it
            if zone.is_some_and(|zone| self.cloud.is_dark(zone, self.model.now)) {
                continue;
            }
            self.runs.push(Run {
                job,
                set: name,
                cluster: label(keys::CLUSTER),
                attempt: label(keys::ATTEMPT).parse().expect("a number"),
                tokens,
                zone: zone.unwrap_or(0),
                began: self.model.now,
                from: self.done.get(&job).copied().unwrap_or(0),
                stops: None,
                exited: None,
                breaks: None,
                is_over: false,
            });
        }
    }

    /// What agents report of a run, and what they hear.
    fn tell(&mut self, at: usize) {
        let run = self.runs[at].clone();
        let now = self.model.now;
        if self.cloud.is_dark(run.zone, now) {
            return;
        }
        let key = Key::new("default", &run.set);
        let Some(set) = self.model.get(&sets(), &key) else {
            self.runs[at].is_over = !self.is_live(&run);
            return;
        };
        let is_asked = set["spec"]["suspend"] == true || object::is_terminating(&set);
        if is_asked && run.stops.is_none() {
            let ends = later(now, self.chance.secs(1, 25));
            self.timers.insert(ends);
            self.runs[at].stops = Some(ends);
        }
        // nobody tells of processes on a machine that is gone; they count until it is known to be lost, and its Node goes
        let machines = self.model.all("Machine");
        let counts = machines.iter().filter(|one| one["status"]["phase"] != "Lost");
        let objects: BTreeSet<String> = counts.map(|one| object::uid(one).to_owned()).collect();
        let is_there = |token: &String| self.cloud.machine(token).is_some();
        let untold = run.tokens.iter().filter(|token| !is_there(token) && objects.contains(*token)).count();
        let processes = self.is_live(&run);
        let live = if processes { run.tokens.iter().filter(|token| is_there(token)).count() } else { 0 };
        let active = live + untold;
        let is_live = active > 0;
        let has_agent = run.tokens.iter().any(is_there);
        let ended = run.exited.filter(|_| has_agent);
        let has_said = set["status"].get("conditions").is_some();
        let mut status = json!({"replicatedJobsStatus": [{"name": "r", "active": active}]});
        if let (Some((_, code)), false) = (ended, has_said) {
            let kind = if code == 0 { "Completed" } else { "Failed" };
            status["conditions"] = json!([{"type": kind, "status": "True", "lastTransitionTime": now.to_string()}]);
            self.report(&set, &run, code);
        }
        self.model.change(&sets(), &key, |object| {
            for (name, value) in status.as_object().into_iter().flatten() {
                object["status"][name] = value.clone();
            }
            if !is_live && object::is_terminating(object) {
                object["metadata"]["finalizers"] = json!([]);
            }
        });
        if !is_live && (ended.is_some() || is_asked) {
            self.runs[at].is_over = true;
        }
    }

    /// The pods of a run that failed, with the exit code of its head.
    fn report(&mut self, set: &Value, run: &Run, code: i64) {
        let job = self.model.put(json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": run.set, "namespace": "default",
                "ownerReferences": [{"kind": "JobSet", "name": run.set, "uid": object::uid(set)}]},
        }));
        self.model.put(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": run.set, "namespace": "default",
                "labels": {
                    "jobset.sigs.k8s.io/jobset-name": run.set, "jobset.sigs.k8s.io/replicatedjob-name": "head",
                    keys::CLUSTER: run.cluster,
                },
                "ownerReferences": [{"kind": "Job", "name": run.set, "uid": object::uid(&job)}],
            },
            "status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": code}}}]},
        }));
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
            self.give_turns();
            let ids: Vec<u32> = self.jobs.keys().copied().collect();
            for id in &ids {
                if self.model.get(&managed_job_gvk(), &job_target(*id).key).is_some() && self.has_work(*id) {
                    self.look(*id);
                    self.note_job(*id);
                    self.judge(*id)?;
                }
            }
            self.processes();
            self.judge_runs()?;
            if self.model.revision() == before {
                break;
            }
        }
        if self.chance.percent(20) || !self.faults {
            self.sweep();
            self.timers.insert(later(self.model.now, 60));
        }
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

    /// What must hold of a job whenever it changes.
    fn judge(&mut self, id: u32) -> Result<(), String> {
        let now: ManagedJob = read(&self.model.get(&managed_job_gvk(), &job_target(id).key).expect("a job"));
        let before = self.last.insert(id, now.clone());
        let Some(task) = now.status.tasks.first() else { return Ok(()) };
        let was = before.as_ref().and_then(|job| job.status.tasks.first());
        let old = was.map_or(State::Pending, |task| task.state);
        if old.has_ended() && task.state != old {
            return Err(format!("job {id} was {} and is {}", old.as_str(), task.state.as_str()));
        }
        if !crate::jobs::is_recorded(old, task.state) {
            return Err(format!("job {id} went from {} to {}", old.as_str(), task.state.as_str()));
        }
        let was_told = |number: u32| was.and_then(|task| task.attempts.iter().find(|one| one.number == number));
        for attempt in task.attempts.iter().filter(|one| !one.ended_at.is_empty()) {
            if was_told(attempt.number).is_none_or(|before| before.ended_at.is_empty()) {
                self.judge_ground(id, attempt)?;
            }
        }
        if was.is_some_and(|was| {
            task.recoveries < was.recoveries || task.restarts < was.restarts || task.attempt < was.attempt
        }) {
            return Err(format!("job {id} forgets: {task:?}"));
        }
        let counted = task.restarts > self.jobs[&id].max_restarts;
        let endless = self.failed.get(&id).is_some_and(|failed| *failed > 40);
        if counted || endless || self.has_unpaid_restart(id, task) {
            return Err(format!("job {id} was started again {} times after its code failed: {task:?}", task.restarts));
        }
        if task.state.has_ended() && !old.has_ended() {
            self.ended.insert(id, self.model.now);
            self.judge_end(id, task)?;
            self.sum.recoveries += u64::from(task.recoveries);
            match task.state {
                State::Succeeded => {
                    self.sum.succeeded += 1;
                    self.sum.work_secs += self.jobs[&id].work * i64::try_from(self.jobs[&id].nodes).unwrap_or(1);
                }
                State::Cancelled => self.sum.cancelled += 1,
                _ => self.sum.failed += 1,
            }
        }
        Ok(())
    }

    /// Whether it goes on after a failure for which nothing was counted.
    fn has_unpaid_restart(&self, id: u32, task: &api::sky::ManagedTask) -> bool {
        let asked = &self.jobs[&id];
        let seen = self.failed.get(&id).copied().unwrap_or(0);
        let counted = asked.fails.iter().take(seen).filter(|(_, code)| !asked.codes.contains(code)).count();
        // the last one may not have been judged yet, and a lost machine may explain any of them
        let explained =
            task.attempts.iter().filter(|one| matches!(one.ground, Ground::MachinesLost | Ground::Asked)).count();
        let open = 1;
        !task.state.has_ended() && counted > usize::try_from(task.restarts).unwrap_or(0) + explained + open
    }

    /// Whether the ground of an attempt's end is true.
    fn judge_ground(&mut self, id: u32, attempt: &api::sky::JobAttempt) -> Result<(), String> {
        let run = self.runs.iter().find(|run| run.job == id && run.attempt == attempt.number);
        let wrong = |what: &str| Err(format!("job {id}, attempt {}: {what}: {}", attempt.number, attempt.evidence));
        let asked = &self.jobs[&id];
        match attempt.ground {
            Ground::MachinesLost => {
                // one that was replaced already has its name again
                let is_taken = match run.filter(|run| !run.tokens.is_empty()) {
                    Some(run) => run.tokens.iter().any(|token| self.cloud.taken.contains_key(token)),
                    None => {
                        let name = attempt.evidence.split_whitespace().nth(6).unwrap_or_default().trim_end_matches(':');
                        self.cloud.taken.values().any(|taken| taken.node == name)
                    }
                };
                if !is_taken {
                    return wrong("its machine is well");
                }
                if run.is_some_and(|run| {
                    !run.tokens.is_empty() && run.tokens.iter().any(|token| self.cloud.machine(token).is_some())
                }) {
                    self.sum.replaced += 1;
                }
                Ok(())
            }
            Ground::Exited => match run.and_then(|run| run.exited) {
                None => wrong("its processes have not exited"),
                Some((_, 143)) => {
                    let machines = self.model.all("Machine");
                    let its = machines
                        .iter()
                        .filter(|one| one["spec"]["cluster"] == managed::names::object_name(&attempt.cluster));
                    let states: Vec<String> = its
                        .map(|one| {
                            let is_there = self.cloud.machine(object::uid(one)).is_some();
                            format!("{} there={is_there} {}", object::meta(one, "name"), one["status"])
                        })
                        .collect();
                    wrong(&format!("its machine was lost, and its code is blamed: {} {run:?}", states.join("; ")))
                }
                Some(_) => Ok(()),
            },
            Ground::Asked => {
                let is_asked = asked.cancel.is_some_and(|at| at <= self.model.now)
                    || asked.downed.contains(&managed::names::object_name(&attempt.cluster));
                if is_asked { Ok(()) } else { wrong("nobody asked for its end") }
            }
            Ground::NoCapacity | Ground::None => Ok(()),
            Ground::Interrupted => wrong("no supervisor was killed"),
            Ground::Refused => wrong("nothing was refused"),
        }
    }

    /// Whether a job ended as it had to.
    fn judge_end(&self, id: u32, task: &api::sky::ManagedTask) -> Result<(), String> {
        let asked = &self.jobs[&id];
        let cancels = asked.cancel.is_some_and(|at| at <= self.model.now);
        let well = match task.state {
            State::Succeeded => self.done.get(&id) == Some(&asked.work),
            State::Cancelled => cancels,
            State::Failed => {
                let seen = self.failed.get(&id).copied().unwrap_or(0);
                seen > 0 && !asked.fails.get(seen - 1).is_some_and(|(_, code)| asked.codes.contains(code))
            }
            _ => false,
        };
        if well { Ok(()) } else { Err(format!("job {id} ended as {}: {task:?}", task.state.as_str())) }
    }

    /// No two attempts of a task at a time.
    fn judge_runs(&self) -> Result<(), String> {
        for id in self.jobs.keys() {
            let live: Vec<&Run> = self.runs.iter().filter(|run| run.job == *id && self.is_live(run)).collect();
            if live.len() > 1 {
                let names: Vec<&str> = live.iter().map(|run| run.set.as_str()).collect();
                return Err(format!("job {id} runs twice: {}", names.join(" and ")));
            }
            let late = self.ended.get(id).is_some_and(|ended| live.iter().any(|run| run.began > *ended));
            if late {
                return Err(format!("job {id} runs after its end"));
            }
        }
        Ok(())
    }

    /// No machine outlives its job for long, unless nobody reaches it.
    fn outlived(&self) -> Result<(), String> {
        let now = self.model.now;
        for (id, ended) in &self.ended {
            let until = later((*ended).max(self.dark_until), OUTLIVES);
            let name = format!("train-{id}-0-");
            let machines = self.model.all("Machine");
            let left = machines.iter().find(|machine| object::meta(machine, "name").starts_with(&name));
            if let Some(machine) = left.filter(|_| now > until) {
                let made = self.cloud.machine(object::uid(machine));
                let status = &machine["status"];
                let what = format!("{made:?} {status} ending={} since {ended}", object::is_terminating(machine));
                return Err(format!(
                    "machine {} outlives job {id}: {what}; {}",
                    object::meta(machine, "name"),
                    self.left()
                ));
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.ended.len() == self.jobs.len()
            && self.model.all("Cluster").is_empty()
            && self.model.all("Launch").is_empty()
            && self.model.all("Machine").is_empty()
            && self.model.all("JobSet").is_empty()
            && self.cloud.left() == 0
    }

    /// What is there at the end, in a few words.
    fn left(&self) -> String {
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

fn strip(decision: &mut Decision, name: &str) {
    if let Some(reconcile::StatusWrite::Merge(body)) = &mut decision.status {
        for task in body["status"]["tasks"].as_array_mut().into_iter().flatten() {
            task.as_object_mut().map(|task| task.remove(name));
        }
    }
}

/// Whether the recorded graph of states has a way from one to the other in one decision.
pub fn is_recorded(from: State, to: State) -> bool {
    use State::{Cancelled, Cancelling, Failed, Pending, Recovering, Running, Starting, Succeeded};
    from == to
        || match from {
            Pending => matches!(to, Starting | Recovering | Cancelling | Cancelled | Succeeded) || to.is_failed(),
            Starting | Recovering => {
                matches!(to, Pending | Running | Recovering | Cancelling | Cancelled | Succeeded) || to.is_failed()
            }
            Running => {
                matches!(to, Recovering | Pending | Cancelling | Cancelled | Succeeded | Failed) || to.is_failed()
            }
            Cancelling => to == Cancelled,
            _ => false,
        }
}
