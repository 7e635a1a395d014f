//! The reconciler of ManagedJob: gives each task a cluster, watches its attempts, makes another one on evidence, and removes what is left.
//!
//! An attempt is a Launch named by job, task and attempt, with a Cluster of its own; [`crate::evidence`] judges it. Before the next attempt
//! begins, the last one is fenced: either its Cluster is gone, which its providers have confirmed, or, where only some machines were lost,
//! these are gone and the processes on the others have ended. So two attempts never write one checkpoint.

mod attempt;
mod events;
mod group;
mod observed;
mod pooled;
pub mod submitted;

pub(crate) use attempt::{task_environment, task_id};
pub(crate) use events::callback;
pub use observed::Observed;
pub use pooled::waits_for_worker;

use crate::evidence::Ruling;
use crate::transitions::job_state;
use api::jobset;
use api::object::{self, Gvk, Target};
use api::sky::{
    Ground, ManagedState as State, ManagedTask, budget_gvk, cluster_gvk, keys, launch_gvk, machine_gvk,
    managed_job_gvk, pool_gvk,
};
use jiff::{SignedDuration, Timestamp};
use reconcile::{Decision, Event, EventType, Next, Primary, Reconciler, StatusWrite, Wakes, Watch, World, Write};
use serde_json::{Value, json};

const REPORTER: &str = "sky-job-controller";
/// Seconds after the end of an attempt for which its machines wait for their output to be kept.
const KEEP_SECS: i64 = 30;
/// How soon a view that may lag is looked at again.
const SOON: SignedDuration = SignedDuration::from_secs(1);
/// How long after its creation a job's ConfigMap may be missing from the view, seconds.
const LATE_SECS: i64 = 60;

/// The reconciler.
pub struct ManagedJobController;

/// What a task becomes in one decision.
struct Turn {
    task: ManagedTask,
    writes: Vec<Write>,
    next: Next,
}

impl Turn {
    fn of(task: &ManagedTask) -> Self {
        Self { task: task.clone(), writes: Vec::new(), next: Next::AwaitChange }
    }

    fn says(mut self, message: impl Into<String>) -> Self {
        self.task.message = message.into();
        self
    }

    fn after(mut self, pause: SignedDuration) -> Self {
        self.next = Next::After(pause.max(SignedDuration::from_millis(1)));
        self
    }
}

/// The earlier of two.
pub(crate) fn soonest(one: Next, other: Next) -> Next {
    match (one, other) {
        (Next::After(one), Next::After(other)) => Next::After(one.min(other)),
        (Next::AwaitChange, other) => other,
        (one, _) => one,
    }
}

fn core(kind: &str) -> Gvk {
    Gvk::new("", "v1", kind)
}

fn batch_job() -> Gvk {
    Gvk::new("batch", "v1", "Job")
}

fn named(object: &Value) -> Vec<Target> {
    let Some(job) = object::label(object, keys::MANAGED_JOB) else { return Vec::new() };
    vec![Target { gvk: managed_job_gvk(), key: object::Key::new(object::meta(object, "namespace"), job) }]
}

fn of_label(_: &dyn World, object: &Value) -> Vec<Target> {
    named(object)
}

/// The job whose cluster it is, and those that run on it in a pool.
fn of_cluster(world: &dyn World, cluster: &Value) -> Vec<Target> {
    let mut found = named(cluster);
    if !found.is_empty() {
        let sets = world.owned_by(&jobset::gvk(), object::uid(cluster));
        found.extend(sets.iter().flat_map(|set| named(set)));
        found.sort_by(|a, b| a.key.cmp(&b.key));
        found.dedup();
    }
    found
}

/// The same for the cluster that a Machine belongs to.
fn of_machine(world: &dyn World, machine: &Value) -> Vec<Target> {
    let Some(cluster) = object::label(machine, keys::CLUSTER) else { return Vec::new() };
    let key = object::Key::new(object::meta(machine, "namespace"), cluster);
    world.head(&cluster_gvk(), &key).map(|cluster| of_cluster(world, &cluster)).unwrap_or_default()
}

/// The jobs of a pool that is being deleted.
fn of_pool(world: &dyn World, pool: &Value) -> Vec<Target> {
    let mut found = Vec::new();
    if object::is_terminating(pool) {
        let (namespace, name) = (object::meta(pool, "namespace"), object::meta(pool, "name"));
        world.each(&managed_job_gvk(), Some(namespace), &mut |job| {
            if job["spec"]["pool"] == name {
                found.push(Target { gvk: managed_job_gvk(), key: object::Key::of(job) });
            }
        });
    }
    found
}

impl Reconciler for ManagedJobController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "managedjob"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(managed_job_gvk())
    }

    fn watches(&self) -> Vec<Watch> {
        let keyed = |gvk, keys: fn(&dyn World, &Value) -> Vec<Target>| Watch { gvk, wakes: Wakes::Keys(keys) };
        let read = |gvk| Watch { gvk, wakes: Wakes::Nothing };
        vec![
            keyed(launch_gvk(), of_label),
            keyed(cluster_gvk(), of_cluster),
            keyed(jobset::gvk(), of_label),
            keyed(machine_gvk(), of_machine),
            keyed(pool_gvk(), of_pool),
            read(budget_gvk()),
            read(core("ConfigMap")),
            read(core("Node")),
            read(core("Pod")),
            read(batch_job()),
        ]
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        Observed::look(world, target)
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        observed.decide(now)
    }
}

/// The state of a job. SkyPilot calls a pipeline whose first task failed CANCELLED, as its last one was; here it is FAILED.
fn state_of(tasks: &[State]) -> State {
    match tasks.iter().all(|state| state.has_ended()) {
        true => tasks.iter().find(|state| **state != State::Succeeded).copied().unwrap_or(job_state(tasks)),
        false => job_state(tasks),
    }
}

impl Observed {
    fn decide(&self, now: Timestamp) -> Decision {
        if self.job.metadata.deletion_timestamp.is_some() {
            // its clusters are its dependents, and go with it
            return Decision::nothing();
        }
        if self.job.status.state.has_ended() {
            return self.clean_up(now);
        }
        let file = match &self.file {
            Some(Ok(file)) if file.tasks.is_empty() => {
                let why = format!("ConfigMap {} holds no task; submit the job again", self.job.spec.submission);
                return self.cannot(&why, now);
            }
            Some(Ok(file)) => file,
            Some(Err(why)) => return self.cannot(why, now),
            None if now < api::time::later_secs(self.created(), LATE_SECS) => {
                return Decision { next: Next::After(SOON), ..Decision::default() };
            }
            None => {
                let why = format!(
                    "ConfigMap {} with the tasks of the job does not exist; submit the job again with sky jobs launch",
                    self.job.spec.submission
                );
                return self.cannot(&why, now);
            }
        };
        let mut tasks = self.job.status.tasks.clone();
        tasks.resize_with(file.tasks.len(), ManagedTask::default);
        if self.job.spec.group {
            return self.group(file, &tasks, now);
        }
        let Some(current) = tasks.iter().position(|task| task.state != State::Succeeded) else {
            return self.told(tasks, Vec::new(), Next::AwaitChange);
        };
        let turn = match self.job.is_ending() {
            true => self.cancelled(&tasks[current], current, now),
            false => self.turn(file, &tasks[current], current, now),
        };
        let ended = turn.task.state.has_ended() && turn.task.state != State::Succeeded;
        tasks[current] = turn.task;
        if ended {
            for later in tasks.iter_mut().skip(current.saturating_add(1)) {
                later.state = State::Cancelled;
                later.ended_at = now.to_string();
            }
        }
        let (mut writes, mut next) = self.removed(current, now);
        writes.extend(turn.writes);
        if next == Next::AwaitChange {
            next = turn.next;
        }
        self.told(tasks, writes, next)
    }

    /// Whether its machines are kept after its task has succeeded.
    fn holds(&self) -> bool {
        self.job.spec.replica.as_ref().is_some_and(|replica| replica.holds)
    }

    fn created(&self) -> Timestamp {
        self.job.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |at| at.0)
    }

    /// A job that can never run, for a reason of the job itself.
    fn cannot(&self, why: &str, now: Timestamp) -> Decision {
        let mut tasks = self.job.status.tasks.clone();
        if tasks.is_empty() {
            tasks.push(ManagedTask::default());
        }
        for task in tasks.iter_mut().filter(|task| !task.state.has_ended()) {
            task.state = State::FailedPrechecks;
            task.message = why.to_owned();
            task.ended_at = now.to_string();
        }
        self.told(tasks, Vec::new(), Next::AwaitChange)
    }

    /// The decision with the status of these tasks, if it differs.
    fn told(&self, mut tasks: Vec<ManagedTask>, writes: Vec<Write>, next: Next) -> Decision {
        let before = &self.job.status;
        self.note_events(&mut tasks);
        let states: Vec<State> = tasks.iter().map(|task| task.state).collect();
        let mut status = before.clone();
        status.state = state_of(&states);
        if self.job.spec.group {
            status.state = self.state_of_group(&states).unwrap_or(status.state);
        }
        status.recoveries = tasks.iter().map(|task| task.recoveries).sum();
        // a job that waits keeps its empty status: with a hundred thousand jobs, a second write for each would be dear
        let is_seen = !before.tasks.is_empty() || self.job.spec.group || tasks.len() > 1;
        if is_seen || tasks.iter().any(|task| *task != ManagedTask::default()) {
            status.tasks = tasks;
        }
        if status == *before {
            return Decision { writes, next, ..Decision::default() };
        }
        let old = serde_json::to_value(before).unwrap_or_default();
        let mut body = crate::status::replacing(&old, serde_json::to_value(&status).unwrap_or_default());
        // other reconcilers grant turns and run callbacks
        if let Some(members) = body.as_object_mut() {
            members.retain(|name, _| !["turn", "worker", "workerCluster", "callbacks"].contains(&name.as_str()));
        }
        let version = object::resource_version(&self.object);
        let patch = json!({"metadata": {"resourceVersion": version}, "status": body});
        let events = self.changes(&status.tasks);
        Decision { writes, status: Some(StatusWrite::Merge(patch)), events, next, ..Decision::default() }
    }

    /// An event for each task that comes to another state.
    fn changes(&self, tasks: &[ManagedTask]) -> Vec<Event> {
        let before = |index: usize| self.job.status.tasks.get(index).map_or(State::Pending, |task| task.state);
        let changed = tasks.iter().enumerate().filter(|(index, task)| before(*index) != task.state);
        changed
            .map(|(index, task)| {
                let why = if task.message.is_empty() { String::new() } else { format!(": {}", task.message) };
                let bad = task.state.is_failed() || task.state == State::Recovering;
                Event {
                    regarding: None,
                    kind: if bad { EventType::Warning } else { EventType::Normal },
                    reason: "State".into(),
                    message: format!("task {index} is {}{why}", task.state.as_str()),
                    reporter: REPORTER,
                    action: "Reconciling",
                }
            })
            .collect()
    }

    /// The next step of a task that has not succeeded.
    fn turn(&self, file: &api::sky::JobFile, task: &ManagedTask, index: usize, now: Timestamp) -> Turn {
        let Some(asked) = file.tasks.get(index) else { return Turn::of(task) };
        let holds = self.holds();
        let is_empty = asked.is_empty || self.pool.is_some() && asked.task["run"].is_null();
        if is_empty && task.attempt == 0 && !holds {
            let mut turn = Turn::of(task);
            turn.task.state = State::Succeeded;
            turn.task.ended_at = now.to_string();
            return turn;
        }
        if let Some(turn) = self.without_pool(task, index, now) {
            return turn;
        }
        match task.open_attempt().is_some() {
            false => self.begin(asked, task, index, now),
            true => match self.judged(task, index, now) {
                Ruling::GoesOn { state, message } => self.goes_on(file, asked, task, index, (state, message), now),
                Ruling::Ask => self.ask(task, now),
                verdict => {
                    let turn = attempt::closed(task, &asked.recovery, verdict, self.place(task), now);
                    if self.pool.is_some() { pooled::again(turn, now) } else { turn }
                }
            },
        }
    }

    /// The end of a job that was cancelled, or stopped by a budget.
    fn cancelled(&self, task: &ManagedTask, index: usize, now: Timestamp) -> Turn {
        // a user who cancels it is right in any case
        match self.job.spec.cancel {
            true => self.ends(task, index, (State::Cancelled, Ground::Asked, ""), now),
            false => self.ends(task, index, (State::FailedNoResource, Ground::Budget, &self.job.spec.halted), now),
        }
    }

    /// Ends a task in this state, for this reason: first its machines go.
    fn ends(
        &self,
        task: &ManagedTask,
        index: usize,
        (end, ground, why): (State, Ground, &str),
        now: Timestamp,
    ) -> Turn {
        let mut turn = Turn::of(task);
        let (writes, is_gone) = self.ended_attempt(index, now);
        turn.writes = writes;
        turn.task.state = State::Cancelling;
        turn.task.message = match (ground, &self.pool) {
            (Ground::Group, _) => format!("{why}; the control plane removes its machines"),
            (_, None) => "the control plane removes the machines of the job".to_owned(),
            (_, Some(_)) => "the control plane ends the processes of the job".to_owned(),
        };
        if !is_gone && self.pool.is_some() {
            // a change of a pod wakes no job
            turn = turn.after(SOON);
        }
        if is_gone {
            turn.task.state = end;
            why.clone_into(&mut turn.task.message);
            turn.task.ended_at = now.to_string();
        }
        let evidence = if why.is_empty() { "the job was cancelled" } else { why };
        attempt::close(&mut turn.task, ground, evidence, self.place(task), now);
        turn
    }

    /// What is left of a job that has ended.
    fn clean_up(&self, now: Timestamp) -> Decision {
        let (writes, next) = self.removed(usize::MAX, now);
        Decision { writes, next, ..Decision::default() }
    }

    /// Removes what is left of the tasks before this one, once their output is kept.
    fn removed(&self, before: usize, now: Timestamp) -> (Vec<Write>, Next) {
        let (mut writes, mut next) = (Vec::new(), Next::AwaitChange);
        for (index, task) in self.job.status.tasks.iter().enumerate().take(before) {
            let turn = self.left(task, index, now);
            writes.extend(turn.writes);
            next = soonest(next, turn.next);
        }
        (writes, next)
    }

    /// Removes what is left of a task that has ended, once its output is kept.
    fn left(&self, task: &ManagedTask, index: usize, now: Timestamp) -> Turn {
        let mut turn = Turn::of(task);
        match self.waits_for_output(task, index, now) {
            Some(pause) => turn = turn.after(pause),
            None => {
                turn.writes = self.removals(index, None);
                turn.writes.extend(self.pool.iter().flat_map(|pool| pool.forgotten(index)));
            }
        }
        turn
    }
}
