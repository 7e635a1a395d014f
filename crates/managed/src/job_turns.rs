//! The turns of managed jobs: which of them may launch next. Jobs that recover come first, then those of a higher priority, then those that
//! were submitted first.
//!
//! A turn is a number in the job's status: the job may make so many attempts. Attempts after a recovery need no turn, but they count
//! among the launches in progress. A job that a [`crate::budget`] is for needs a turn for those as well, and gets one only if the budget has
//! room.
//!
//! A job whose launch found no capacity gets its next turn when its pause is over, and before that when [`capacity`] may be free. What a
//! job waits for is in its status. Which machines became free is in memory alone, so the first look of a control plane takes it that
//! capacity may be free everywhere.

mod capacity;
mod machines;

use self::capacity::{Capacity, Freed, Launching, Waiter};
use self::machines::Machines;
use crate::backoff;
use crate::budget::{self, Book};
use crate::looks::{Looks, Rank, rank};
use api::object::{Key, Target};
use api::sky::{CapacityWanted, ManagedJob, ManagedState, ManagedTask, machine_gvk, managed_job_gvk};
use jiff::Timestamp;
use reconcile::{Decision, Next, Op, PatchBody, Primary, Reconciler, Watch, World, Write};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Jobs that are launched at the same time.
pub const LAUNCHES_MAX: usize = 64;
/// Seconds before a launch that found no capacity is repeated although some may be free: the first pause, and the longest after repeated
/// failures. So a job that needs many machines does not take and give back some of them all the time.
const RETRY_SECS: i64 = 1;
const RETRY_MAX_SECS: i64 = 15;

/// The reconciler. Its copies share what they know.
#[derive(Clone, Default)]
pub struct JobTurns(Looks<Memory>);

/// The jobs that wait for a turn or are being launched.
#[derive(Default)]
struct Memory {
    has_looked: bool,
    standing: BTreeMap<Key, Standing>,
    /// Those that may be launched now, and their next turns.
    waiting: BTreeMap<Rank, u32>,
    /// Those whose time comes later.
    later: BTreeSet<(Timestamp, Rank, u32)>,
    launching: BTreeSet<Key>,
    /// Those that may be launched once a budget has room.
    held: BTreeMap<Rank, u32>,
    budgets: Book,
    machines: Machines,
    capacity: Capacity,
    /// Jobs that got a turn in the last decision. They are read again, because the write may have failed.
    assumed: Vec<Key>,
}

/// Where a job stands among all.
#[derive(Clone, Debug, PartialEq)]
enum Standing {
    Waits {
        rank: Rank,
        turn: u32,
        due: Timestamp,
        /// What it waits for, if its latest launch found no capacity.
        waiter: Option<Waiter>,
    },
    Launches(Launching),
}

/// What has changed, as it is now.
pub struct Changes {
    jobs: Vec<(Key, Option<ManagedJob>)>,
    freed: Vec<Freed>,
    /// Whether this is the first look.
    is_first: bool,
}

fn read(object: &Value) -> Option<ManagedJob> {
    ManagedJob::deserialize(object).ok()
}

/// Where a job stands; `None`: it needs no turn until it changes.
fn standing(key: &Key, job: &ManagedJob, is_covered: bool) -> Option<Standing> {
    let status = &job.status;
    // jobs of pools have turns of their own
    if status.state.has_ended()
        || job.metadata.deletion_timestamp.is_some()
        || job.is_ending()
        || !job.spec.pool.is_empty()
    {
        return None;
    }
    let unseen = ManagedTask::default();
    let mut tasks: Vec<&ManagedTask> = job.in_play().map(|(_, task)| task).collect();
    if status.tasks.is_empty() {
        if job.spec.group {
            // its reconciler lists its tasks first: all of them get their turn at once
            return None;
        }
        tasks.push(&unseen);
    }
    let waits = |task: &&ManagedTask| match task.state {
        ManagedState::Pending => true,
        ManagedState::Recovering => task.open_attempt().is_none() && (is_covered || budget::waits(task)),
        _ => false,
    };
    let is_launched = |task: &&ManagedTask| matches!(task.state, ManagedState::Starting | ManagedState::Recovering);
    let waiting: Vec<&ManagedTask> = tasks.iter().copied().filter(waits).collect();
    let turn = status.made().saturating_add(u32::try_from(waiting.len()).unwrap_or(u32::MAX));
    if waiting.is_empty() || status.turn >= turn {
        let launched: Vec<&ManagedTask> = tasks.into_iter().filter(|task| waits(task) || is_launched(task)).collect();
        let wanted = wanted(launched.iter().copied());
        let began = launched.iter().filter_map(|task| task.open_attempt()?.began_at.parse().ok()).max();
        return (!launched.is_empty()).then_some(Standing::Launches(Launching { wanted, began }));
    }
    let due = waiting.iter().map(|task| task.not_before.parse().unwrap_or(Timestamp::MIN)).min();
    let rank = rank(key, job);
    let waiter = waiter(&rank, waiting.iter().copied());
    Some(Standing::Waits { rank, turn, due: due.unwrap_or(Timestamp::MIN), waiter })
}

/// What tasks look for together; `None`: it is not known.
fn wanted<'a>(tasks: impl Iterator<Item = &'a ManagedTask>) -> Option<CapacityWanted> {
    tasks.filter_map(|task| task.capacity.clone()).reduce(|mut all, one| {
        all.nodes = all.nodes.saturating_add(one.nodes);
        all.machine = format!("{} {}", all.machine, one.machine);
        if all.places.is_empty() || one.places.is_empty() {
            all.places.clear();
        } else {
            all.places.extend(one.places);
            all.places.sort();
            all.places.dedup();
        }
        all
    })
}

/// What a job with these waiting tasks waits for; `None`: nothing, because none of them was launched in vain.
fn waiter<'a>(rank: &Rank, tasks: impl Iterator<Item = &'a ManagedTask> + Clone) -> Option<Waiter> {
    let failed = tasks.clone().filter(|task| task.failures > 0 && task.capacity.is_some());
    let failed_at = |task: &ManagedTask| task.attempts.last().and_then(|one| one.ended_at.parse::<Timestamp>().ok());
    let failures = failed.clone().map(|task| task.failures).max()?;
    let failed_at = failed.filter_map(failed_at).max()?;
    let pause = backoff::seconds(failures, RETRY_SECS, RETRY_MAX_SECS);
    let (rank, wanted) = (rank.clone(), wanted(tasks)?);
    Some(Waiter { rank, wanted, failed_at, earliest: api::time::later_secs(failed_at, pause) })
}

impl Reconciler for JobTurns {
    type Observed = Changes;

    fn name(&self) -> &'static str {
        "managedjob-turns"
    }

    fn primary(&self) -> Primary {
        // no object is a key: all jobs share one
        Primary::Kind(managed_job_gvk())
    }

    fn concerns(&self, _: &Value) -> bool {
        false
    }

    fn watches(&self) -> Vec<Watch> {
        let noted = |gvk| self.0.noted(gvk);
        [noted(managed_job_gvk())].into_iter().chain(Book::watches(noted)).collect()
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Changes> {
        if *target != Looks::<Memory>::key() {
            return None;
        }
        let mut memory = self.0.memory();
        let memory = &mut *memory;
        let (noted, others): (Vec<Target>, Vec<Target>) =
            self.0.changed().into_iter().partition(|target| target.gvk == managed_job_gvk());
        let mut jobs = Vec::new();
        let mut freed = Vec::new();
        let is_first = !std::mem::replace(&mut memory.has_looked, true);
        if is_first {
            memory.budgets.start(world);
            memory.machines.start(world);
            world.each(&managed_job_gvk(), None, &mut |object| jobs.push((Key::of(object), read(object))));
        } else {
            let machines = others.iter().filter(|target| target.gvk == machine_gvk());
            freed.extend(machines.filter_map(|target| memory.machines.note(world, &target.key)));
            let noted = noted.into_iter().map(|target| target.key).chain(std::mem::take(&mut memory.assumed));
            let keys: BTreeSet<Key> = noted.chain(memory.budgets.note(world, &others)).collect();
            jobs.extend(keys.into_iter().map(|key| {
                let job = world.get(&managed_job_gvk(), &key).and_then(|object| read(&object));
                (key, job)
            }));
        }
        for (key, job) in &jobs {
            memory.budgets.take_job(world, key, job.as_ref());
        }
        Some(Changes { jobs, freed, is_first })
    }

    fn decide(&self, observed: &Changes, now: Timestamp) -> Decision {
        let mut memory = self.0.memory();
        for (key, job) in &observed.jobs {
            memory.take_in(key, job.as_ref(), observed.is_first, now);
        }
        for freed in &observed.freed {
            memory.capacity.appear(freed, now);
        }
        memory.grant(now)
    }
}

impl Memory {
    fn take_in(&mut self, key: &Key, job: Option<&ManagedJob>, is_first: bool, now: Timestamp) {
        let before = self.standing.remove(key);
        let standing = job.and_then(|job| standing(key, job, self.budgets.is_covered(key)));
        match &before {
            Some(Standing::Waits { rank, turn, due, .. }) => {
                self.waiting.remove(rank);
                self.held.remove(rank);
                self.later.remove(&(*due, rank.clone(), *turn));
            }
            Some(Standing::Launches(_)) => drop(self.launching.remove(key)),
            None => {}
        }
        match &standing {
            Some(Standing::Waits { rank, turn, due, .. }) => drop(self.later.insert((*due, rank.clone(), *turn))),
            Some(Standing::Launches(_)) => drop(self.launching.insert(key.clone())),
            None => {}
        }
        self.note_capacity(key, before.as_ref(), standing.as_ref(), is_first, now);
        if let Some(standing) = standing {
            self.standing.insert(key.clone(), standing);
        }
    }

    fn note_capacity(
        &mut self,
        key: &Key,
        before: Option<&Standing>,
        after: Option<&Standing>,
        is_first: bool,
        now: Timestamp,
    ) {
        let waiter = |standing: Option<&Standing>| match standing {
            Some(Standing::Waits { waiter, .. }) => waiter.clone(),
            _ => None,
        };
        let (was, waits) = (waiter(before), waiter(after));
        if waits.is_some() && was == waits {
            return;
        }
        if let Some(was) = was {
            self.capacity.forget(&was);
        }
        match (waits, after) {
            (Some(waiter), _) => self.capacity.wait(waiter, is_first),
            (None, Some(Standing::Launches(launching))) => self.capacity.launch(key, launching.clone(), is_first, now),
            (None, _) => self.capacity.settle(key),
        }
    }

    fn grant(&mut self, now: Timestamp) -> Decision {
        while let Some((due, rank, turn)) = self.later.pop_first() {
            if due > now {
                self.later.insert((due, rank, turn));
                break;
            }
            self.waiting.insert(rank, turn);
        }
        let taken = self.launching.len().saturating_add(self.waiting.len());
        for rank in self.capacity.pick(now, LAUNCHES_MAX.saturating_sub(taken)) {
            if let Some(Standing::Waits { turn, due, .. }) = self.standing.get(&rank.key) {
                self.later.remove(&(*due, rank.clone(), *turn));
                self.waiting.insert(rank, *turn);
            }
        }
        if self.budgets.open(now) {
            self.waiting.append(&mut self.held);
        }
        let mut writes = Vec::new();
        while self.launching.len() < LAUNCHES_MAX
            && let Some((rank, turn)) = self.waiting.pop_first()
        {
            if !self.budgets.admits(&rank.key, now) {
                self.capacity.give_up(&rank.key);
                self.held.insert(rank, turn);
                continue;
            }
            let key = rank.key;
            let target = Target { gvk: managed_job_gvk(), key: key.clone() };
            let body = PatchBody::Merge(json!({"status": {"turn": turn}}));
            writes.push(Write::from(Op::Patch { target, subresource: Some("status"), body }));
            self.launching.insert(key.clone());
            let wanted = match self.standing.get(&key) {
                Some(Standing::Waits { waiter: Some(waiter), .. }) => {
                    self.capacity.forget(waiter);
                    Some(waiter.wanted.clone())
                }
                _ => None,
            };
            let launching = Launching { wanted, began: None };
            self.capacity.launch(&key, launching.clone(), false, now);
            self.standing.insert(key.clone(), Standing::Launches(launching));
            self.assumed.push(key);
        }
        let due = self.later.first().map(|(due, _, _)| due.duration_since(now));
        let retried = self.capacity.due(now).map(|due| due.duration_since(now));
        let (more, again) = self.budgets.close(now);
        writes.extend(more);
        let next = due.into_iter().chain(retried).chain(again).min().map_or(Next::AwaitChange, Next::After);
        Decision { writes, next, ..Decision::default() }
    }
}
