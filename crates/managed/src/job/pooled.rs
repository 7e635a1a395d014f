//! A job in a pool: its attempts run on workers of the pool, whose clusters belong to the workers' own jobs.
//!
//! [`crate::pool_turns`] gives an attempt its worker. After an attempt only its Launch and its JobSets are removed; the worker stays. The next
//! attempt begins once the processes of the last one have ended, or the provider has confirmed that their machines are gone.

use super::attempt::close;
use super::observed::{Observed, Own, Whose};
use super::{LATE_SECS, SOON, Turn};
use crate::backoff;
use crate::cluster::delete;
use crate::evidence::Ruling;
use crate::fleet::{FleetKind, submitted::job_name};
use crate::jobs::{Status, is_active, stages};
use crate::names::object_name;
use api::object::{self, Key, Target};
use api::sky::{
    Ground, Machine, MachinePhase, ManagedJob, ManagedState as State, ManagedTask, cluster_gvk, managed_job_gvk,
    pool_gvk,
};
use jiff::{SignedDuration, Timestamp};
use reconcile::{Propagation, World, Write};
use serde_json::Value;
use std::sync::Arc;

/// Seconds to wait after a worker did not start an attempt: the first pause, and the longest after repeated failures.
const PAUSE_SECS: i64 = 1;
const PAUSE_MAX_SECS: i64 = 60;

/// Whether a pool is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    There,
    Ending,
    Gone,
}

/// What a job needs to know of its pool.
pub(super) struct Pooled {
    presence: Presence,
    /// The first task that has not succeeded.
    current: usize,
    /// Workers of its tasks that are there, by task.
    workers: Vec<(usize, Own)>,
    /// Why the worker of the current attempt has ended, if it has.
    end: Option<(Ground, String)>,
}

/// Why a worker has ended: what its own job says about it.
fn end_of(world: &dyn World, namespace: &str, pool: &str, worker: u32) -> Option<(Ground, String)> {
    let key = Key::new(namespace, job_name(FleetKind::Pool, pool, worker).as_str());
    let Some(job) = world.get(&managed_job_gvk(), &key) else {
        return Some((Ground::Asked, format!("worker {worker} of pool {pool} was terminated")));
    };
    let attempt = job["status"]["tasks"][0]["attempts"].as_array().and_then(|all| all.last()).unwrap_or(&Value::Null);
    let ground: Ground = serde_json::from_value(attempt["ground"].clone()).unwrap_or_default();
    if ground != Ground::None {
        let why = object::text(attempt, "evidence");
        return Some((ground, format!("worker {worker} of pool {pool} has ended: {why}")));
    }
    let is_cancelled = job["spec"]["cancel"] == true;
    is_cancelled.then(|| (Ground::Asked, format!("worker {worker} of pool {pool} is being terminated")))
}

impl Pooled {
    pub(super) fn look(world: &dyn World, target: &Target, job: &ManagedJob) -> Self {
        let (namespace, name) = (&target.key.namespace, &job.spec.pool);
        let presence = match world.head(&pool_gvk(), &Key::new(namespace, name)) {
            None => Presence::Gone,
            Some(pool) if object::is_terminating(&pool) => Presence::Ending,
            Some(_) => Presence::There,
        };
        let tasks = &job.status.tasks;
        let current = job.status.current().unwrap_or(tasks.len());
        let is_closed = |task: &ManagedTask| !task.attempts.is_empty() && task.open_attempt().is_none();
        let is_fencing = |task: &ManagedTask| {
            !task.state.has_ended() && (presence != Presence::There || job.is_ending() || is_closed(task))
        };
        let mut workers = Vec::new();
        for (index, task) in tasks.iter().enumerate().filter(|(_, task)| !task.cluster.is_empty()) {
            let cluster = world.get(&cluster_gvk(), &Key::new(namespace, &object_name(&task.cluster)));
            let whose = Whose { job: &target.key.name, task: Some(index) };
            workers.extend(
                cluster.and_then(|cluster| Own::look(world, cluster, whose, is_fencing(task))).map(|own| (index, own)),
            );
        }
        let end = (job.status.worker > 0 && !job.status.state.has_ended())
            .then(|| end_of(world, namespace, name, job.status.worker))
            .flatten();
        Self { presence, current, workers, end }
    }

    fn of(&self, index: usize) -> impl Iterator<Item = &Own> {
        self.workers.iter().filter(move |(of, _)| *of == index).map(|(_, own)| own)
    }

    /// The worker of the current task.
    pub(super) fn worker(&self) -> Option<&Own> {
        self.of(self.current).next()
    }

    /// JobSets of a task on workers that are not being removed.
    pub(super) fn sets(&self, index: usize) -> impl Iterator<Item = &Value> {
        let there = self.of(index).filter(|own| !object::is_terminating(&own.object));
        there.flat_map(|own| own.jobs.iter().flat_map(stages))
    }

    /// Deletions of the JobSets of a task that has ended.
    pub(super) fn forgotten(&self, index: usize) -> impl Iterator<Item = Write> {
        let there = self.sets(index).filter(|set| !object::is_terminating(set));
        there.map(|set| delete(Target::of(set), Some(object::uid(set).to_owned()), Propagation::Background))
    }

    /// What the end of its worker means for an attempt.
    pub(super) fn ruling(&self, task: &ManagedTask, ruling: Ruling) -> Ruling {
        let has_run = task.attempts.last().is_some_and(|attempt| !attempt.ran_at.is_empty());
        let told = |evidence: String| self.end.clone().unwrap_or((Ground::Asked, evidence));
        let (ground, evidence) = match ruling {
            Ruling::Lost { evidence, .. } => (Ground::MachinesLost, evidence),
            Ruling::Removed { evidence } => told(evidence),
            ruling => return ruling,
        };
        match (has_run, ground) {
            // it has lost nothing
            (false, Ground::MachinesLost) => Ruling::NoRoom { ground, evidence },
            (false, _) => Ruling::NoRoom { ground: Ground::NoCapacity, evidence },
            (true, Ground::MachinesLost) => Ruling::Lost { all: true, evidence },
            (true, Ground::Interrupted) => Ruling::Interrupted { evidence },
            (true, _) => Ruling::Removed { evidence },
        }
    }
}

/// What a job in a pool waits for before an attempt.
pub fn waits_for_worker(pool: &str) -> String {
    format!("it waits for a free worker of pool {pool}")
}

/// Lets the next attempt be on any worker, and begin soon.
pub(super) fn again(mut turn: Turn, now: Timestamp) -> Turn {
    let task = &mut turn.task;
    task.is_kept = false;
    task.lost_at.clear();
    if task.state == State::Pending {
        let pause = backoff::seconds(task.failures, PAUSE_SECS, PAUSE_MAX_SECS);
        task.not_before = api::time::later_secs(now, pause).to_string();
        task.message = task.attempts.last().map(|attempt| attempt.evidence.clone()).unwrap_or_default();
        turn = turn.after(SignedDuration::from_secs(pause));
    }
    turn
}

impl Observed {
    /// Ends what is left of the latest attempt of a task. `true`: nothing is left.
    pub(super) fn ended_attempt(&self, index: usize, now: Timestamp) -> (Vec<Write>, bool) {
        let mut writes = self.removals(index, None);
        let mut is_gone = !self.has_any(index);
        for own in self.pool.iter().flat_map(|pool| pool.of(index)) {
            writes.extend(own.ends(Status::Cancelled, now));
            is_gone &= is_over(own);
        }
        (writes, is_gone)
    }

    /// Waits until the last attempt has ended on its worker.
    pub(super) fn fenced_on_worker(&self, task: &ManagedTask, index: usize, now: Timestamp) -> Option<Turn> {
        let (writes, is_gone) = self.ended_attempt(index, now);
        if is_gone {
            return None;
        }
        let mut turn =
            Turn::of(task).says("the control plane ends the processes of the last attempt; then the next one begins");
        turn.writes = writes;
        Some(turn.after(SOON))
    }

    /// The end of a task whose pool is gone.
    pub(super) fn without_pool(&self, task: &ManagedTask, index: usize, now: Timestamp) -> Option<Turn> {
        let name = &self.job.spec.pool;
        let why = match self.pool.as_ref()?.presence {
            Presence::There => return None,
            // the view may lag, unless a worker was given already
            Presence::Gone if self.job.status.turn == 0 && now < api::time::later_secs(self.created(), LATE_SECS) => {
                return Some(Turn::of(task).after(SOON));
            }
            Presence::Gone => format!("pool {name} does not exist"),
            Presence::Ending => format!("pool {name} was deleted"),
        };
        let (writes, is_gone) = self.ended_attempt(index, now);
        let mut turn = Turn::of(task);
        turn.writes = writes;
        if !is_gone {
            return Some(turn.says(format!("{why}; the control plane ends the processes of the job")).after(SOON));
        }
        close(&mut turn.task, Ground::Asked, &why, self.place(task), now);
        turn.task.state = State::FailedNoResource;
        turn.task.ended_at = now.to_string();
        Some(turn.says(format!("{why}; `sky jobs pool status` lists the pools that there are")))
    }
}

/// Whether no process of a job runs on a worker: its pods have ended, or their machines are gone.
fn is_over(own: &Own) -> bool {
    let is_lost = |machine: &&Machine| machine.status.phase == MachinePhase::Lost;
    let lost: Vec<&str> = own.machines.iter().filter(is_lost).map(|one| one.status.node.as_str()).collect();
    let ends = |pod: &Arc<Value>| object::has_ended(pod) || lost.contains(&object::text(&pod["spec"], "nodeName"));
    // the counts of a JobSet whose machines are gone stay as they were
    own.pods.iter().all(ends) && (!lost.is_empty() || !own.jobs.iter().flat_map(stages).any(is_active))
}
