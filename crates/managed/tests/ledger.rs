//! The ledger under a provider that loses answers, makes machines late or twice and lists them late, and a control plane that is killed at every
//! write and every call. `TRAINYARD_LEDGER_SEEDS` says how many seeds run (default 300: seconds).
//! Another test kills it behind each write and each call of a life of a cluster, one by one; one life for 300 seeds.

#[path = "world/chance.rs"]
mod chance;

use api::object::{self, Key, Target};
use api::sky::{API_VERSION, ClusterPhase, Machine, cluster_gvk, keys, machine_gvk};
use chance::Chance;
use managed::cluster::ClusterController;
use managed::jobs::Submission;
use managed::machine::{Answer, Call, Step, answered, node_name, orphans, status_patch, step, token};
use managed::provider::{Failure, Fate, Found, Handle, Seen, State};
use reconcile::testing::Model;
use reconcile::{Decision, Op, PatchBody, World, Write};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What is done wrong on purpose: each must fail a seed, or the simulation proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// Nobody compares machines with the ledger.
    NoSweep,
    /// The object goes with the first call to delete, whatever the provider says.
    ReleasedUnheard,
    /// Objects are read before the provider lists its machines.
    ObjectsFirst,
    /// Two machines of one token are both let live.
    TwinsLive,
    /// The finalizer of a cluster goes while machines are there.
    ClusterForgets,
    /// A machine that is not listed is said to have ended.
    AbsenceIsLoss,
}

/// A machine of the provider.
#[derive(Clone, Debug)]
struct Made {
    seen: Seen,
    /// From which tick on lists and lookups show it.
    visible: u64,
}

#[derive(Default)]
struct Provider {
    machines: Vec<Made>,
    /// Creations that take effect at that tick.
    late: Vec<(u64, String, String)>,
    ids: u64,
    /// How many machines were ever made.
    made: u64,
}

/// A call whose answer is on its way.
struct Flight {
    machine: Machine,
    call: Call,
    answer: Answer,
}

struct Sim {
    model: Model,
    chance: Chance,
    provider: Provider,
    flights: BTreeMap<String, Flight>,
    swept: Option<(Vec<Seen>, Option<Vec<Machine>>)>,
    tick: u64,
    /// Whether things go wrong.
    faults: bool,
    bug: Bug,
    jobs: u32,
    /// What must never happen, and did.
    broken: Option<String>,
    /// Writes of the control plane and calls of providers so far.
    points: u64,
    /// Behind which of them the control plane is killed.
    kill_at: Option<u64>,
}

fn target() -> Target {
    Target { gvk: cluster_gvk(), key: Key::new("default", "dev") }
}

fn lost() -> Answer {
    Err(Failure::new(Fate::Retry, "no answer"))
}

impl Sim {
    fn new(seed: u64, bug: Bug) -> Self {
        Self {
            model: Model::default(),
            chance: Chance(seed),
            provider: Provider::default(),
            flights: BTreeMap::new(),
            swept: None,
            tick: 0,
            faults: true,
            bug,
            jobs: 0,
            broken: None,
            points: 0,
            kill_at: None,
        }
    }

    /// Behind a write or a call: whether the control plane is killed here.
    fn dies(&mut self) -> bool {
        self.points += 1;
        let dies = self.kill_at == Some(self.points);
        if dies {
            self.kill();
        }
        dies
    }

    fn wrong(&mut self, of_hundred: u64) -> bool {
        self.faults && self.chance.percent(of_hundred)
    }

    fn machines(&self) -> Vec<Machine> {
        let all = self.model.list(&machine_gvk(), None);
        all.iter().map(|machine| serde_json::from_value((**machine).clone()).expect("a machine")).collect()
    }

    // ── the provider ──────────────────────────────────────────────────────────────────────────────────────

    fn appear(&mut self, token: &str, node: &str) -> Seen {
        self.provider.ids += 1;
        self.provider.made += 1;
        let seen = Seen {
            token: token.into(),
            id: format!("i{}", self.provider.ids),
            state: State::Running,
            node: node.into(),
            address: "10.0.0.1".into(),
            home: "/home".into(),
        };
        let lag = if self.wrong(30) { self.chance.below(12) } else { 0 };
        self.provider.machines.push(Made { seen: seen.clone(), visible: self.tick + lag });
        seen
    }

    fn find(&self, machine: &Handle) -> Option<usize> {
        self.provider.machines.iter().position(|made| match &machine.id {
            // the name is enough: a machine can be seen by a caller that knows its name
            Some(id) => made.seen.id == *id,
            None => made.seen.token == machine.token && made.visible <= self.tick,
        })
    }

    /// The effect of a call and its answer.
    fn ask(&mut self, call: &Call) -> Answer {
        if self.wrong(8) {
            return lost(); // it never arrived
        }
        let answer = match call {
            Call::Create(request) => {
                let handle = Handle { token: request.token.clone(), id: None, generation: 0 };
                match self.find(&handle) {
                    Some(at) => Ok(Found::There(self.provider.machines[at].seen.clone())),
                    None if self.wrong(10) => return Err(Failure::new(Fate::NextCandidate, "full")),
                    None if self.wrong(12) => {
                        let at = self.tick + 1 + self.chance.below(15);
                        self.provider.late.push((at, request.token.clone(), request.node.clone()));
                        return lost();
                    }
                    None => Ok(Found::There(self.appear(&request.token, &request.node))),
                }
            }
            Call::Observe(machine) => Ok(self.look(machine)),
            Call::Stop(machine) => Ok(self.turn(machine, State::Stopped)),
            Call::Start(machine) => Ok(self.turn(machine, State::Running)),
            Call::Delete(machine) => Ok(self.delete(machine)),
        };
        if self.wrong(12) { lost() } else { answer }
    }

    /// What the provider knows of a machine; its lists lag.
    fn look(&mut self, machine: &Handle) -> Found {
        let found = match self.find(machine) {
            Some(_) if self.wrong(8) => Found::Absent,
            Some(at) => Found::There(self.provider.machines[at].seen.clone()),
            None if machine.id.is_none() && self.may_come(&machine.token) => Found::Absent,
            None => Found::ended("it is terminated"),
        };
        match found {
            Found::Absent if self.bug == Bug::AbsenceIsLoss => Found::ended("it is not listed"),
            found => found,
        }
    }

    /// Whether a machine of this token will come, or will be seen.
    fn may_come(&self, token: &str) -> bool {
        self.provider.late.iter().any(|(_, late, _)| late == token)
            || self.provider.machines.iter().any(|made| made.seen.token == token)
    }

    fn turn(&mut self, machine: &Handle, state: State) -> Found {
        if let Some(at) = self.find(machine) {
            let held = &mut self.provider.machines[at].seen;
            if held.state != State::Ending {
                held.state = state;
            }
        }
        self.look(machine)
    }

    fn delete(&mut self, machine: &Handle) -> Found {
        if let Some(at) = self.find(machine) {
            let is_new = self.provider.machines[at].seen.state != State::Ending;
            if self.wrong(40) && is_new {
                self.provider.machines[at].seen.state = State::Ending;
            } else {
                self.provider.machines.remove(at);
            }
        }
        self.look(machine)
    }

    // ── the control plane ─────────────────────────────────────────────────────────────────────────────────

    /// Decides about the cluster, and carries it out up to some write: behind it the control plane was killed.
    fn reconcile(&mut self) {
        let Some(mut decision) = self.model.decide(&ClusterController, &target()) else { return };
        if self.bug == Bug::ClusterForgets {
            let terminating =
                self.model.get(&cluster_gvk(), &target().key).is_some_and(|one| object::is_terminating(&one));
            if terminating {
                let body = PatchBody::Merge(json!({"metadata": {"finalizers": []}}));
                let patch = Op::Patch { target: target(), subresource: None, body };
                decision = Decision { writes: vec![Write::from(patch)], ..Decision::default() };
            }
        }
        if self.wrong(15) && !decision.writes.is_empty() {
            let done = self.chance.below(decision.writes.len() as u64 + 1) as usize;
            decision.writes.truncate(done);
            (decision.status, decision.events) = (None, Vec::new());
            self.model.execute(&target(), &decision);
            self.kill();
            return;
        }
        let writes = decision.writes.len() as u64;
        let until = self.kill_at.and_then(|at| at.checked_sub(self.points)).filter(|done| (1..=writes).contains(done));
        match until {
            Some(done) => {
                decision.writes.truncate(done as usize);
                (decision.status, decision.events) = (None, Vec::new());
                self.points += done;
                self.kill();
            }
            None => self.points += writes,
        }
        let tells = decision.status.is_some();
        self.model.execute(&target(), &decision);
        if tells {
            self.dies();
        }
    }

    /// All that is in memory is lost.
    fn kill(&mut self) {
        self.flights.clear();
        self.swept = None;
    }

    /// Asks the provider of one machine, if no answer is on its way.
    fn begin(&mut self) {
        let machines = self.machines();
        if machines.is_empty() {
            return;
        }
        let machine = machines[self.chance.below(machines.len() as u64) as usize].clone();
        let name = machine.metadata.name.clone().unwrap_or_default();
        if self.flights.contains_key(&name) {
            return;
        }
        match step(&machine) {
            Step::Rest => {}
            Step::Release => self.release(&machine),
            Step::Call(call) => {
                let answer = self.ask(&call);
                if self.dies() {
                    return; // what was answered, nobody knows
                }
                if self.bug == Bug::ReleasedUnheard && matches!(call, Call::Delete(_)) {
                    self.release(&machine);
                    return;
                }
                self.flights.insert(name, Flight { machine, call, answer });
            }
        }
    }

    /// Notes an answer.
    fn note(&mut self) {
        let Some(name) = self.flights.keys().nth(self.chance.below(4) as usize).cloned() else { return };
        let Some(flight) = self.flights.remove(&name) else { return };
        let noted = answered(&flight.machine, &flight.call, &flight.answer, self.model.now);
        let key = Key::new("default", &name);
        let held = self.model.get(&machine_gvk(), &key);
        // the write names the uid
        if held.is_none_or(|held| object::uid(&held) != token(&flight.machine)) {
            return;
        }
        if noted.gone {
            return self.release(&flight.machine);
        }
        self.model
            .change(&machine_gvk(), &key, |object| object["status"] = status_patch(&noted.status)["status"].clone());
        self.dies();
    }

    fn release(&mut self, machine: &Machine) {
        let key = Key::new("default", machine.metadata.name.as_deref().unwrap_or_default());
        let id = &machine.status.id;
        if !id.is_empty() && self.provider.machines.iter().any(|made| made.seen.id == *id) {
            self.broken = Some(format!("the object of machine {id} went before the machine"));
        }
        let node = Target { gvk: object::Gvk::new("", "v1", "Node"), key: Key::new("", &node_name(machine)) };
        self.model.delete(&node, reconcile::Propagation::Background, None);
        if self.dies() {
            return;
        }
        if self.model.get(&machine_gvk(), &key).is_some_and(|held| object::uid(&held) == token(machine)) {
            self.model.change(&machine_gvk(), &key, |object| object["metadata"]["finalizers"] = json!([]));
            self.dies();
        }
    }

    /// Compares the provider's list with the ledger, in two moments.
    fn sweep(&mut self) {
        if self.bug == Bug::NoSweep {
            return;
        }
        match self.swept.take() {
            None => {
                let early = (self.bug == Bug::ObjectsFirst).then(|| self.machines());
                let shown = self.provider.machines.iter().filter(|made| made.visible <= self.tick);
                let listed = shown.map(|made| made.seen.clone()).collect();
                // objects that were read long before
                match early {
                    Some(early) if self.chance.percent(70) => self.swept = Some((Vec::new(), Some(early))),
                    _ => self.swept = Some((listed, None)),
                }
            }
            Some((listed, Some(early))) => {
                let shown = self.provider.machines.iter().map(|made| made.seen.clone());
                let listed: Vec<Seen> = listed.into_iter().chain(shown).collect();
                self.end_orphans(&listed, &early);
            }
            Some((listed, None)) => self.end_orphans(&listed, &self.machines()),
        }
    }

    fn end_orphans(&mut self, listed: &[Seen], machines: &[Machine]) {
        for orphan in orphans(listed, machines) {
            if self.bug == Bug::TwinsLive && machines.iter().any(|machine| token(machine) == orphan.token) {
                continue;
            }
            let _ = self.ask(&Call::Delete(orphan));
            if self.dies() {
                return;
            }
        }
    }

    // ── everybody else ────────────────────────────────────────────────────────────────────────────────────

    /// Nodes register, jobs end, what was deleted in the foreground or has lost its owner goes, late creations come.
    fn around(&mut self) {
        let (due, later) = self.provider.late.drain(..).partition(|(at, _, _)| *at <= self.tick);
        self.provider.late = later;
        let due: Vec<(u64, String, String)> = due;
        for (_, token, node) in due {
            self.appear(&token, &node);
        }
        for machine in self.machines() {
            let node = node_name(&machine);
            let is_noted = !machine.status.id.is_empty() && machine.metadata.deletion_timestamp.is_none();
            if is_noted && self.model.one("Node", &node).is_none() {
                self.model.put(json!({
                    "apiVersion": "v1", "kind": "Node",
                    "metadata": {"name": node, "labels": {keys::TOKEN: token(&machine), keys::CLUSTER: "dev"}},
                    "status": {"allocatable": {"cpu": "3900m"}, "conditions": [{"type": "Ready", "status": "True"}]},
                }));
            }
        }
        let cluster = self.cluster().map(|cluster| object::uid(&cluster).to_owned());
        for jobset in self.model.all("JobSet") {
            let key = Key::of(&jobset);
            // what the garbage collector does
            if jobset["metadata"]["ownerReferences"][0]["uid"].as_str() != cluster.as_deref() {
                self.model.delete(&Target::of(&jobset), reconcile::Propagation::Background, None);
            } else if object::is_terminating(&jobset) {
                self.model.change(&api::jobset::gvk(), &key, |object| object["metadata"]["finalizers"] = json!([]));
            } else if jobset["spec"]["suspend"] == false
                && jobset["status"].get("conditions").is_none()
                && self.chance.percent(30)
            {
                let now = self.model.now.to_string();
                self.model.change(&api::jobset::gvk(), &key, |object| {
                    object["status"] =
                        json!({"conditions": [{"type": "Completed", "status": "True", "lastTransitionTime": now}]});
                });
            }
        }
    }

    fn cluster(&self) -> Option<Value> {
        self.model.get(&cluster_gvk(), &target().key).map(|cluster| (*cluster).clone())
    }

    fn launch(&mut self) {
        if self.cluster().is_some() {
            return;
        }
        let candidates: Vec<Value> = (0..40).map(|at| json!({"provider": "any", "region": format!("r{at}")})).collect();
        let nodes = 1 + self.chance.below(3);
        let mut object = json!({
            "apiVersion": API_VERSION, "kind": "Cluster",
            "metadata": {"name": "dev", "namespace": "default", "uid": format!("c{}", self.chance.next())},
            "spec": {"nodes": nodes, "candidates": candidates, "retryUntilUp": true},
        });
        if self.chance.percent(20) {
            object["spec"]["autostop"] = json!({"idleMinutes": self.chance.below(2), "down": self.chance.percent(50)});
        }
        self.model.put(object);
    }

    fn set(&mut self, change: impl FnOnce(&mut Value)) {
        if self.cluster().is_some_and(|cluster| !object::is_terminating(&cluster)) {
            self.model.change(&cluster_gvk(), &target().key, change);
        }
    }

    fn user(&mut self) {
        match self.chance.below(12) {
            0..=2 => self.launch(),
            3 => self.set(|cluster| cluster["spec"]["power"] = "Stopped".into()),
            4 | 5 => self.set(|cluster| cluster["spec"]["power"] = "Running".into()),
            6 => self.down(),
            7 => self.set(|cluster| cluster["spec"]["autostop"] = json!({"idleMinutes": 0, "down": true})),
            8 => self.set(|cluster| cluster["spec"]["autostop"] = Value::Null),
            _ => self.exec(),
        }
    }

    fn exec(&mut self) {
        let Some(cluster) = self.cluster().filter(|cluster| !object::is_terminating(cluster)) else { return };
        self.jobs += 1;
        let job = Submission::on(&cluster, self.jobs, 1);
        self.model.put(job.jobset());
    }

    fn down(&mut self) {
        self.model.delete(&target(), reconcile::Propagation::Background, None);
    }

    fn act(&mut self) {
        self.tick += 1;
        match self.chance.below(20) {
            0 if self.faults => self.user(),
            0..=5 => self.reconcile(),
            6..=9 => self.begin(),
            10..=13 => self.note(),
            14 | 15 => self.sweep(),
            16 if self.wrong(30) => self.kill(),
            17 => self.model.pass(20),
            _ => self.around(),
        }
    }

    /// Chaos, then a last wish, then quiet; what holds then.
    fn run(mut self) -> Result<u64, String> {
        self.launch();
        let wish = self.chance.below(3);
        for _ in 0..400 {
            self.act();
        }
        if wish > 0 {
            // the last wish must find a cluster that can have it
            if self.cluster().is_some_and(|cluster| object::is_terminating(&cluster)) {
                self.faults = false;
                (0..3000).for_each(|_| self.act());
                self.faults = true;
            }
            self.launch();
        }
        let power = if wish == 1 { "Running" } else { "Stopped" };
        match wish {
            0 => self.down(),
            _ => self.set(|cluster| {
                cluster["spec"]["power"] = power.into();
                cluster["spec"]["autostop"] = Value::Null;
            }),
        }
        (0..60).for_each(|_| {
            if self.chance.below(20) > 0 {
                self.act_without_user()
            }
        });
        self.faults = false;
        // long enough for all that is late; longer only where it is needed
        for _ in 0..20 {
            (0..300).for_each(|_| self.act());
            if self.provider.late.is_empty() && self.judge(wish).is_ok() {
                break;
            }
        }
        self.judge(wish)
    }

    /// A cluster's life without any other fault: launched, stopped, started, stopped by itself, started, ended by itself; and one that is
    /// ended by its user. Gives how many writes and calls that took.
    fn live(mut self) -> Result<u64, String> {
        self.faults = false;
        self.launch();
        self.exec();
        self.settle("launch", 1)?;
        self.set(|cluster| cluster["spec"]["power"] = "Stopped".into());
        self.settle("stop", 2)?;
        self.set(|cluster| cluster["spec"]["power"] = "Running".into());
        self.settle("start", 1)?;
        self.set(|cluster| cluster["spec"]["autostop"] = json!({"idleMinutes": 0}));
        self.settle("autostop", 2)?;
        self.set(|cluster| cluster["spec"]["power"] = "Running".into());
        self.settle("another start", 1)?;
        self.set(|cluster| cluster["spec"]["autostop"] = json!({"idleMinutes": 0, "down": true}));
        self.settle("autostop with --down", 0)?;
        self.launch();
        self.settle("another launch", 1)?;
        self.down();
        self.settle("down", 0)?;
        Ok(self.points)
    }

    fn settle(&mut self, what: &str, wish: u64) -> Result<(), String> {
        let mut says = Ok(0);
        for _ in 0..100 {
            (0..20).for_each(|_| self.act());
            says = self.judge(wish);
            if says.is_ok() {
                break;
            }
        }
        says.map(|_| ()).map_err(|why| format!("after {what}: {why}"))
    }

    fn act_without_user(&mut self) {
        self.tick += 1;
        match self.chance.below(5) {
            0 => self.reconcile(),
            1 => self.begin(),
            2 => self.note(),
            3 => self.sweep(),
            _ => self.around(),
        }
    }

    fn judge(&self, wish: u64) -> Result<u64, String> {
        if let Some(why) = &self.broken {
            return Err(why.clone());
        }
        let machines = self.machines();
        for made in &self.provider.machines {
            let of_token: Vec<&Made> =
                self.provider.machines.iter().filter(|other| other.seen.token == made.seen.token).collect();
            if of_token.len() > 1 {
                return Err(format!("{} machines of one token", of_token.len()));
            }
            let object = machines.iter().find(|machine| token(machine) == made.seen.token);
            match object {
                None => return Err(format!("machine {} has no object", made.seen.id)),
                Some(object) if object.status.id != made.seen.id => {
                    return Err(format!("machine {} is noted as {:?}", made.seen.id, object.status.id));
                }
                Some(_) => {}
            }
        }
        match (wish, self.cluster()) {
            (0, None) if self.provider.machines.is_empty() && machines.is_empty() => Ok(self.provider.made),
            (0, _) => Err(format!("{} machines after down", self.provider.machines.len())),
            (_, None) => Err("the cluster has gone by itself".into()),
            (wish, Some(cluster)) => {
                let (phase, state) = if wish == 1 {
                    (ClusterPhase::Up, State::Running)
                } else {
                    (ClusterPhase::Stopped, State::Stopped)
                };
                let nodes = cluster["spec"]["nodes"].as_u64().unwrap_or(0);
                let well = self.provider.machines.iter().filter(|made| made.seen.state == state).count() as u64;
                if cluster["status"]["phase"] != phase.as_str()
                    || well != nodes
                    || self.provider.machines.len() as u64 != nodes
                {
                    return Err(format!(
                        "wanted {nodes} machines {}, there are {well} of {}: {}",
                        phase.as_str(),
                        self.provider.machines.len(),
                        cluster["status"]
                    ));
                }
                let jobs = self.model.all("JobSet");
                let waits = jobs.iter().find(|jobset| {
                    jobset["spec"]["suspend"] == true && object::annotation(jobset, keys::ENDED).is_none()
                });
                if let (1, Some(jobset)) = (wish, waits) {
                    return Err(format!("{} never got its turn", object::meta(jobset, "name")));
                }
                Ok(self.provider.made)
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "how long to look is said from outside")]
fn seeds() -> u64 {
    std::env::var("TRAINYARD_LEDGER_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300)
}

#[test]
fn no_machine_is_lost_or_made_twice() {
    let mut made = 0;
    for seed in 0..seeds() {
        made += Sim::new(seed, Bug::None).run().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    assert!(made > seeds(), "{made} machines: the seeds do nothing");
}

#[test]
fn a_kill_behind_any_write_or_call_changes_nothing() {
    for seed in 0..seeds().div_ceil(300) {
        let points = Sim::new(seed, Bug::None).live().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert!(points > 60, "{points} writes and calls: the life is not lived");
        for at in 1..=points {
            let sim = Sim { kill_at: Some(at), ..Sim::new(seed, Bug::None) };
            sim.live().unwrap_or_else(|why| panic!("seed {seed}, killed behind {at} of {points}: {why}"));
        }
    }
}

#[test]
fn planted_bugs_are_found() {
    let bugs = [
        Bug::NoSweep,
        Bug::ReleasedUnheard,
        Bug::ObjectsFirst,
        Bug::TwinsLive,
        Bug::ClusterForgets,
        Bug::AbsenceIsLoss,
    ];
    for bug in bugs {
        let found = (0..seeds()).any(|seed| Sim::new(seed, bug).run().is_err());
        assert!(found, "{bug:?} harms nobody in {} seeds", seeds());
    }
}
