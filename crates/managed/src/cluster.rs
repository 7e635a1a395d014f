//! The reconciler of Cluster: makes and ends the lines of the ledger, tries the next place where one has no room, gives jobs their turn,
//! and stops or ends a cluster that has been idle for long enough. Before machines stop or end, [`hooks`] run on them.
//!
//! Machines of one attempt are all of one candidate. A next attempt begins only by a status that names it, so one that is
//! decided on a stale view makes nothing new: names of machines are functions of cluster, attempt and rank.

mod hooks;

pub use hooks::told as failed_hooks;

use crate::jobs::{self, Job, Room, Status};
use crate::names::place;
use crate::resources;
use api::jobset;
use api::node::SSH_SESSIONS;
use api::object::{self, Gvk, Target};
use api::quantity::Quantity;
use api::sky::{
    API_VERSION, Autostop, Cluster, ClusterNode, ClusterPhase as Phase, HookEvent, HookRun, Interval, Machine,
    MachinePhase, Power, WaitFor, cluster_gvk, keys, machine_gvk,
};
use hooks::Hooks;
use jiff::{SignedDuration, Timestamp};
use reconcile::{
    Decision, Event, EventType, Next, Op, PatchBody, Primary, Propagation, Reconciler, StatusWrite, Wakes, Watch,
    World, Write,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

const REPORTER: &str = "sky-cluster-controller";
/// The pause before all candidates are tried again (`spec.retryUntilUp`), seconds.
const RETRY_SECS: i64 = 30;

/// The reconciler.
pub struct ClusterController;

/// What a decision reads.
pub struct Observed {
    cluster: Cluster,
    object: Arc<Value>,
    machines: Vec<Machine>,
    nodes: Vec<Arc<Value>>,
    jobsets: Vec<Arc<Value>>,
    /// The pods of its hooks.
    pods: Vec<Arc<Value>>,
}

fn node_gvk() -> Gvk {
    Gvk::new("", "v1", "Node")
}

fn of_cluster(_: &dyn World, object: &Value) -> Vec<Target> {
    let Some(name) = object::label(object, keys::CLUSTER) else { return Vec::new() };
    let namespace = object::label(object, keys::CLUSTER_NAMESPACE).unwrap_or_else(|| object::meta(object, "namespace"));
    vec![Target { gvk: cluster_gvk(), key: object::Key::new(namespace, name) }]
}

impl Reconciler for ClusterController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "cluster"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(cluster_gvk())
    }

    fn watches(&self) -> Vec<Watch> {
        let of_label = |gvk| Watch { gvk, wakes: Wakes::Keys(of_cluster) };
        let mut watches: Vec<Watch> = [machine_gvk(), jobset::gvk(), node_gvk()].map(of_label).into();
        watches.push(Watch { gvk: hooks::pod_gvk(), wakes: Wakes::ControllerOwner });
        watches
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let object = world.get(&target.gvk, &target.key)?;
        let cluster = Cluster::deserialize(&*object).ok()?;
        let uid = object::uid(&object);
        let owned = world.owned_by(&machine_gvk(), uid);
        let mut machines: Vec<Machine> =
            owned.iter().filter_map(|machine| Machine::deserialize(&**machine).ok()).collect();
        machines.sort_by_key(|machine| machine.spec.rank);
        let names = machines.iter().filter(|machine| !machine.status.node.is_empty());
        let nodes = names.filter_map(|machine| world.get(&node_gvk(), &object::Key::new("", &machine.status.node)));
        let nodes = nodes.collect();
        let jobsets = world.owned_by(&jobset::gvk(), uid);
        let has_hooks = !cluster.spec.hooks.is_empty();
        let pods = if has_hooks { world.owned_by(&hooks::pod_gvk(), uid) } else { Vec::new() };
        Some(Observed { cluster, object, machines, nodes, jobsets, pods })
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        let metadata = &observed.cluster.metadata;
        let held = metadata.finalizers.iter().flatten().any(|finalizer| finalizer == keys::LEDGER);
        match (metadata.deletion_timestamp.is_some(), held) {
            (true, false) => Decision::nothing(),
            (true, true) => observed.end(now),
            (false, false) => {
                let mut finalizers = metadata.finalizers.clone().unwrap_or_default();
                finalizers.push(keys::LEDGER.to_owned());
                let patch = observed.patch(json!({"metadata": {"finalizers": finalizers}}));
                Decision { writes: vec![patch], ..Decision::default() }
            }
            (false, true) => observed.keep(now),
        }
    }
}

impl Observed {
    /// A merge patch of the cluster as it was observed.
    fn patch(&self, mut body: Value) -> Write {
        body["metadata"]["resourceVersion"] = object::resource_version(&self.object).into();
        let target = Target::of(&self.object);
        Op::Patch { target, subresource: None, body: PatchBody::Merge(body) }.into()
    }

    fn name(&self) -> &str {
        object::meta(&self.object, "name")
    }

    /// The machines of the attempt that counts.
    fn current(&self) -> impl Iterator<Item = &Machine> {
        let prefix = format!("{}-{}-", self.name(), self.cluster.status.attempt);
        self.machines.iter().filter(move |machine| {
            let name = machine.metadata.name.as_deref().unwrap_or_default();
            let rank = name.strip_prefix(&prefix).unwrap_or_default();
            !rank.is_empty() && rank.bytes().all(|byte| byte.is_ascii_digit())
        })
    }

    fn is_current(&self, machine: &Machine) -> bool {
        self.current().any(|one| one.metadata.name == machine.metadata.name)
    }

    /// The status with the state of its hooks, while the cluster ends.
    fn ends_with_hooks(&self, hooks: Hooks) -> Decision {
        let before = &self.cluster.status.hooks;
        let status = (hooks.run != *before).then(|| {
            let (old, new) = (serde_json::to_value(before), serde_json::to_value(&hooks.run));
            let body = crate::status::replacing(&old.unwrap_or_default(), new.unwrap_or_default());
            StatusWrite::Merge(json!({"status": {"hooks": body}}))
        });
        Decision { writes: hooks.writes, status, events: hooks.events, next: hooks.next, ..Decision::default() }
    }

    /// What is left of a cluster that was deleted: first its hooks run, then its jobs end, then its machines, then it notes what it cost.
    fn end(&self, now: Timestamp) -> Decision {
        let mut writes: Vec<Write> = Vec::new();
        let purge = object::annotation(&self.object, keys::PURGE).is_some();
        match purge {
            // machines end once no pod runs on them
            true => writes.extend(self.hooks_left()),
            false => {
                let hooks = self.hooks(HookEvent::Down, now);
                if !hooks.is_over {
                    return self.ends_with_hooks(hooks);
                }
            }
        }
        if !self.jobsets.is_empty() && !purge {
            let left = self.jobsets.iter().filter(|jobset| !object::is_terminating(jobset));
            let ends = |jobset: &Arc<Value>| {
                delete(Target::of(jobset), Some(object::uid(jobset).to_owned()), Propagation::Foreground)
            };
            writes.extend(left.map(ends));
            return Decision { writes, ..Decision::default() };
        }
        for machine in &self.machines {
            let target = self.machine_target(machine);
            let marked = machine.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(keys::PURGE));
            if purge && !marked {
                let body = json!({"metadata": {"annotations": {keys::PURGE: "true"}}});
                writes
                    .push(Op::Patch { target: target.clone(), subresource: None, body: PatchBody::Merge(body) }.into());
            }
            if machine.metadata.deletion_timestamp.is_none() {
                writes.push(self.delete_machine(machine));
            }
        }
        if !self.machines.is_empty() {
            return Decision { writes, ..self.told() };
        }
        writes.push(Op::Create { object: self.history(now) }.into());
        let finalizers: Vec<&String> = self.cluster.metadata.finalizers.iter().flatten().collect();
        let finalizers: Vec<&&String> = finalizers.iter().filter(|name| **name != keys::LEDGER).collect();
        writes.push(self.patch(json!({"metadata": {"finalizers": finalizers}})));
        Decision { writes, ..Decision::default() }
    }

    /// What the providers say while machines do not go.
    fn told(&self) -> Decision {
        let message = self.machines.iter().map(|machine| machine.status.message.as_str()).find(|text| !text.is_empty());
        let message = message.unwrap_or_default();
        if message == self.cluster.status.message {
            return Decision::default();
        }
        Decision { status: Some(StatusWrite::Merge(json!({"status": {"message": message}}))), ..Decision::default() }
    }

    /// What `cost-report` tells of a cluster that is gone.
    fn history(&self, now: Timestamp) -> Value {
        let status = &self.cluster.status;
        let usage = closed(status.usage.clone(), now);
        let uid = object::uid(&self.object);
        let name = format!("{}-history-{}", self.name(), uid.get(..8).unwrap_or(uid));
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": name.trim_end_matches('-'), "namespace": object::meta(&self.object, "namespace"),
                "labels": {keys::HISTORY: "true"},
            },
            "data": {
                "name": shown(&self.object), "nodes": self.cluster.spec.nodes.to_string(),
                "resources": resources::of_cluster(&self.cluster),
                "launchedAt": status.launched_at, "hourlyPrice": status.hourly_price.to_string(),
                "user": self.cluster.spec.user, "endedAt": now.to_string(),
                "usage": serde_json::to_string(&usage).unwrap_or_default(),
            },
        })
    }

    fn machine_target(&self, machine: &Machine) -> Target {
        let name = machine.metadata.name.as_deref().unwrap_or_default();
        Target { gvk: machine_gvk(), key: object::Key::new(object::meta(&self.object, "namespace"), name) }
    }

    fn delete_machine(&self, machine: &Machine) -> Write {
        delete(self.machine_target(machine), machine.metadata.uid.clone(), Propagation::Background)
    }

    fn create_machine(&self, rank: i32) -> Option<Write> {
        let candidate = self.cluster.at()?;
        let mut object = json!({
            "apiVersion": API_VERSION, "kind": "Machine",
            "metadata": {
                "name": format!("{}-{}-{rank}", self.name(), self.cluster.status.attempt),
                "namespace": object::meta(&self.object, "namespace"),
                "labels": {keys::CLUSTER: self.name()},
                "finalizers": [keys::LEDGER],
                "ownerReferences": [{
                    "apiVersion": API_VERSION, "kind": "Cluster", "name": self.name(), "uid": object::uid(&self.object),
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {"cluster": self.name(), "rank": rank, "candidate": candidate, "power": self.cluster.spec.power},
        });
        if let Some(budgets) = object::annotation(&self.object, keys::BUDGETS) {
            // its spend is settled before its object goes
            object["metadata"]["annotations"] = json!({keys::BUDGETS: budgets});
            object["metadata"]["finalizers"] = json!([keys::LEDGER, keys::BUDGET]);
        }
        Some(Op::Create { object }.into())
    }

    /// A cluster that is to be there: machines, then turns, then rest.
    fn keep(&self, now: Timestamp) -> Decision {
        let mut writes: Vec<Write> = Vec::new();
        let (spec, status) = (&self.cluster.spec, &self.cluster.status);
        // what an attempt in vain has left
        let stale = self.machines.iter().filter(|machine| !self.is_current(machine));
        writes.extend(
            stale
                .filter(|machine| machine.metadata.deletion_timestamp.is_none())
                .map(|machine| self.delete_machine(machine)),
        );
        let refused = self
            .current()
            .find(|machine| matches!(machine.status.phase, MachinePhase::NoCapacity | MachinePhase::Refused));
        if let Some(machine) = refused {
            return Decision { writes, ..self.next_candidate(machine, now) };
        }
        let candidates = i32::try_from(spec.candidates.len()).unwrap_or(i32::MAX);
        if status.candidate >= candidates {
            return Decision { writes, ..self.exhausted(now) };
        }
        let alive: Vec<&Machine> =
            self.current().filter(|machine| machine.metadata.deletion_timestamp.is_none()).collect();
        let lost = |machine: &Machine| machine.status.phase == MachinePhase::Lost;
        let is_managed = object::label(&self.object, keys::MANAGED_JOB).is_some();
        let are_all_lost = !alive.is_empty() && alive.iter().all(|machine| lost(machine));
        if are_all_lost && self.machines.len() == alive.len() && !is_managed {
            // every machine is lost, so the cluster no longer exists; that of a managed job is evidence, which the job removes
            writes.push(self.delete_self());
            return Decision { writes, ..Decision::default() };
        }
        let made = self.make(&alive);
        let missing = !made.is_empty();
        writes.extend(made);
        let jobs = jobs::jobs(self.jobsets.iter().map(|jobset| &**jobset));
        let phase = self.phase(&alive, missing);
        let mut next = Next::AwaitChange;
        let mut shown = phase;
        let (mut run, mut events) = (self.past_hooks(), Vec::new());
        match spec.power {
            Power::Stopped => {
                let hooks = self.hooks(HookEvent::Stop, now);
                run = hooks.run;
                events = hooks.events;
                next = hooks.next;
                writes.extend(hooks.writes);
                if hooks.is_over {
                    writes.extend(self.stop(&jobs, &alive, now));
                }
            }
            Power::Running => {
                let stopped = alive.iter().filter(|machine| machine.spec.power != Power::Running);
                writes.extend(stopped.map(|machine| self.power(machine, Power::Running)));
                let remaining: Vec<&Machine> = alive.iter().copied().filter(|machine| !lost(machine)).collect();
                // lost machines do not delay jobs that fit on the others
                let takes_jobs = phase == Phase::Up || remaining.len() < alive.len() && self.all_run(&remaining);
                if takes_jobs {
                    let turns = jobs::turns(&jobs, &self.rooms(&remaining), now);
                    let idle_at = if phase == Phase::Up { self.idle_at(&jobs, &alive, now) } else { None };
                    match (turns.is_empty(), idle_at) {
                        (true, Some(at)) if at <= now => {
                            shown = Phase::Autostopping;
                            writes.extend(self.autostop());
                        }
                        (_, Some(at)) => next = Next::After(at.duration_since(now).max(SignedDuration::from_millis(1))),
                        (_, None) => {}
                    }
                    writes.extend(turns.into_iter().map(|object| Write::from(Op::Update { object })));
                }
                if jobs.iter().any(|job| job.status == Status::Pending && job.setup.is_none())
                    && next == Next::AwaitChange
                {
                    // a setup that never comes
                    next = Next::After(SignedDuration::from_secs(RETRY_SECS));
                }
            }
        }
        let (status, changes) = self.status(&alive, shown, run, now);
        events.extend(changes);
        Decision { writes, status, events, next, ..Decision::default() }
    }

    fn make(&self, alive: &[&Machine]) -> Vec<Write> {
        let deleting = |rank: i32| self.current().any(|machine| machine.spec.rank == rank);
        (0..self.cluster.spec.nodes)
            .filter(|rank| !alive.iter().any(|machine| machine.spec.rank == *rank) && !deleting(*rank))
            .filter_map(|rank| self.create_machine(rank))
            .collect()
    }

    fn phase(&self, alive: &[&Machine], missing: bool) -> Phase {
        let whole = !missing && i32::try_from(alive.len()) == Ok(self.cluster.spec.nodes);
        let all = |phase: MachinePhase| whole && alive.iter().all(|machine| machine.status.phase == phase);
        if whole && self.all_run(alive) {
            Phase::Up
        } else if all(MachinePhase::Stopped) {
            Phase::Stopped
        } else {
            Phase::Init
        }
    }

    /// Whether all of these machines can take jobs now.
    fn all_run(&self, machines: &[&Machine]) -> bool {
        machines.iter().all(|machine| machine.status.phase == MachinePhase::Running && self.is_ready(machine))
    }

    fn node(&self, machine: &Machine) -> Option<&Value> {
        let node = self.nodes.iter().find(|node| object::meta(node, "name") == machine.status.node)?;
        (object::label(node, keys::TOKEN) == machine.metadata.uid.as_deref()).then_some(node)
    }

    fn condition(&self, machine: &Machine, kind: &str) -> Option<&Value> {
        let conditions = self.node(machine)?["status"]["conditions"].as_array()?;
        conditions.iter().find(|one| one["type"] == kind)
    }

    fn is_ready(&self, machine: &Machine) -> bool {
        self.condition(machine, "Ready").is_some_and(|one| one["status"] == "True")
    }

    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    fn rooms(&self, alive: &[&Machine]) -> Vec<Room> {
        let room = |machine: &&Machine| {
            let node = self.node(machine)?;
            let amount = |name: &str| {
                let quantity = Quantity::from_json(&node["status"]["allocatable"][name]).ok();
                quantity.map_or(0.0, |quantity| quantity.milli_value() as f64 / 1000.0)
            };
            Some(Room {
                node: machine.status.node.clone(),
                address: machine.status.address.clone(),
                cpus: amount("cpu"),
                gpus: amount("nvidia.com/gpu"),
            })
        };
        alive.iter().filter_map(room).collect()
    }

    fn power(&self, machine: &Machine, power: Power) -> Write {
        let body = PatchBody::Merge(json!({"spec": {"power": power}}));
        Op::Patch { target: self.machine_target(machine), subresource: None, body }.into()
    }

    /// First the jobs end, then the machines stop.
    fn stop(&self, jobs: &[Job], alive: &[&Machine], now: Timestamp) -> Vec<Write> {
        let mut writes = Vec::new();
        for job in jobs.iter().filter(|job| !job.status.has_ended()) {
            let marked = jobs::stages(job).map(|jobset| jobs::marked(jobset, Status::FailedDriver, now));
            writes.extend(marked.map(|object| Write::from(Op::Update { object })));
        }
        if writes.is_empty() && !self.jobsets.iter().any(|jobset| jobs::is_active(jobset)) {
            let running = alive.iter().filter(|machine| machine.spec.power != Power::Stopped);
            writes.extend(running.map(|machine| self.power(machine, Power::Stopped)));
        }
        writes
    }

    /// When the cluster has been idle for long enough; `None` where it works, or is not to stop by itself.
    fn idle_at(&self, jobs: &[Job], alive: &[&Machine], now: Timestamp) -> Option<Timestamp> {
        let Autostop { idle_minutes, wait_for, since, .. } = self.cluster.spec.autostop.as_ref()?;
        if *wait_for != WaitFor::None && jobs.iter().any(|job| !job.status.has_ended()) {
            return None;
        }
        let parse = |text: &str| text.parse::<Timestamp>().ok();
        let told = alive.iter().filter_map(|machine| self.condition(machine, SSH_SESSIONS));
        let sessions: Vec<&Value> = told.filter(|_| *wait_for == WaitFor::JobsAndSsh).collect();
        if sessions.iter().any(|one| one["status"] == "True") {
            return None;
        }
        let left = sessions.iter().filter_map(|one| parse(object::text(one, "lastTransitionTime"))).max();
        let began = parse(since).max(parse(&self.cluster.status.launched_at));
        let last = match wait_for {
            WaitFor::None => began,
            _ => jobs.iter().flat_map(|job| [job.submitted, job.ended]).flatten().max().max(began).max(left),
        };
        Some(api::time::later_secs(last.unwrap_or(now), i64::from(*idle_minutes).saturating_mul(60)))
    }

    fn autostop(&self) -> Option<Write> {
        let autostop = self.cluster.spec.autostop.as_ref()?;
        if autostop.down {
            return Some(self.delete_self());
        }
        Some(self.patch(json!({"spec": {"power": Power::Stopped, "autostop": null}})))
    }

    fn delete_self(&self) -> Write {
        Op::Delete {
            target: Target::of(&self.object),
            propagation: Propagation::Background,
            uid: Some(object::uid(&self.object).to_owned()),
            resource_version: Some(object::resource_version(&self.object).to_owned()),
            grace_secs: None,
        }
        .into()
    }

    /// One candidate had no room: the next attempt is with the one after it.
    fn next_candidate(&self, machine: &Machine, now: Timestamp) -> Decision {
        let status = &self.cluster.status;
        let candidate = &machine.spec.candidate;
        let place = place(&[&candidate.provider, &candidate.region, &candidate.zone]);
        let what = format!("{place}: {}", machine.status.message);
        let mut rejected = status.rejected.clone();
        rejected.retain(|line| *line != what);
        rejected.push(what.clone());
        let body = json!({"status": {
            "attempt": status.attempt.saturating_add(1), "candidate": status.candidate.saturating_add(1),
            "rejected": rejected, "message": what, "lastActivity": now.to_string(),
            "refusals": status.refusals.saturating_add(u32::from(machine.status.phase == MachinePhase::Refused)),
        }});
        let event = Event {
            regarding: None,
            kind: EventType::Warning,
            reason: "NoCapacity".into(),
            message: what,
            reporter: REPORTER,
            action: "Provisioning",
        };
        Decision { status: Some(StatusWrite::Merge(body)), events: vec![event], ..Decision::default() }
    }

    /// No candidate is left.
    fn exhausted(&self, now: Timestamp) -> Decision {
        let status = &self.cluster.status;
        let failed = condition("Failed", true, "NoCapacity", "no candidate is left", status, now);
        if !self.cluster.spec.retry_until_up {
            let mut body = json!({"status": {"phase": Phase::Init, "conditions": [failed]}});
            body["status"]["observedGeneration"] = self.generation().into();
            let is_told = status.conditions.iter().any(|one| one.type_ == "Failed");
            let status =
                (!is_told || status.observed_generation != self.generation()).then_some(StatusWrite::Merge(body));
            return Decision { status, ..Decision::default() };
        }
        let since: Timestamp = status.last_activity.parse().unwrap_or(now);
        let again = api::time::later_secs(since, RETRY_SECS);
        if again > now {
            return Decision { next: Next::After(again.duration_since(now)), ..Decision::default() };
        }
        Decision {
            status: Some(StatusWrite::Merge(json!({"status": {"candidate": 0, "refusals": 0}}))),
            ..Decision::default()
        }
    }

    fn generation(&self) -> i64 {
        self.cluster.metadata.generation.unwrap_or(0)
    }

    fn status(
        &self,
        alive: &[&Machine],
        phase: Phase,
        hooks: HookRun,
        now: Timestamp,
    ) -> (Option<StatusWrite>, Vec<Event>) {
        let before = &self.cluster.status;
        let mut status = before.clone();
        (status.phase, status.hooks) = (phase, hooks);
        status.observed_generation = self.generation();
        let price = self.cluster.at().map_or(0.0, |candidate| candidate.hourly_price);
        status.hourly_price = price * f64::from(self.cluster.spec.nodes);
        let troubles = alive.iter().map(|machine| machine.status.message.as_str()).find(|text| !text.is_empty());
        status.message = troubles.unwrap_or_default().to_owned();
        status.nodes = alive
            .iter()
            .filter(|machine| !machine.status.id.is_empty())
            .map(|machine| ClusterNode {
                machine: machine.metadata.name.clone().unwrap_or_default(),
                node: machine.status.node.clone(),
                address: machine.status.address.clone(),
                home: machine.status.home.clone(),
            })
            .collect();
        // what runs is paid for, whether the cluster is well or not
        let runs = alive.iter().any(|machine| {
            !machine.status.id.is_empty() && !matches!(machine.status.phase, MachinePhase::Stopped | MachinePhase::Lost)
        });
        let open = status.usage.last().is_some_and(|interval| interval.to.is_empty());
        if runs && !open {
            status.usage.push(Interval { from: now.to_string(), to: String::new() });
        } else if !runs {
            status.usage = closed(status.usage, now);
        }
        let was_ready = before.conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
        let is_ready = matches!(phase, Phase::Up | Phase::Autostopping);
        if is_ready && (!was_ready || status.launched_at.is_empty()) {
            status.launched_at = now.to_string();
        }
        let reason = phase.as_str();
        let mut body = serde_json::to_value(&status).unwrap_or_default();
        body["conditions"] = json!([condition("Ready", is_ready, reason, &status.message, before, now)]);
        let old = serde_json::to_value(before).unwrap_or_default();
        if body == old {
            return (None, Vec::new());
        }
        let body = crate::status::replacing(&old, body);
        let events = (before.phase != phase)
            .then(|| Event {
                regarding: None,
                kind: EventType::Normal,
                reason: "Phase".into(),
                message: format!("{} is {}", shown(&self.object), phase.as_str()),
                reporter: REPORTER,
                action: "Reconciling",
            })
            .into_iter()
            .collect();
        (Some(StatusWrite::Merge(json!({"status": body}))), events)
    }
}

fn closed(mut usage: Vec<Interval>, now: Timestamp) -> Vec<Interval> {
    for interval in usage.iter_mut().filter(|interval| interval.to.is_empty()) {
        interval.to = now.to_string();
    }
    usage
}

/// What the user calls the cluster.
pub fn shown(cluster: &Value) -> &str {
    object::annotation(cluster, jobs::NAME).unwrap_or_else(|| object::meta(cluster, "name"))
}

fn condition(
    kind: &str,
    is_true: bool,
    reason: &str,
    message: &str,
    before: &api::sky::ClusterStatus,
    now: Timestamp,
) -> Value {
    let status = if is_true { "True" } else { "False" };
    let same = before.conditions.iter().find(|one| one.type_ == kind && one.status == status);
    let since = same.and_then(|one| serde_json::to_value(&one.last_transition_time).ok());
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since.unwrap_or_else(|| now.into()),
    })
}

/// Deletes an object, if it is the one of this uid.
pub(crate) fn delete(target: Target, uid: Option<String>, propagation: Propagation) -> Write {
    Op::Delete { target, propagation, uid, resource_version: None, grace_secs: None }.into()
}
