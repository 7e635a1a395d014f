//! The turns of managed jobs: which of them may launch next. Jobs of a higher priority come first, then those that were submitted first.
//!
//! A turn is a number in the job's status: the job may make so many attempts. Attempts after a recovery need no turn, but they count
//! among the launches in progress. A job that a [`crate::budget`] is for needs a turn for those as well, and gets one only if the budget has
//! room.

use crate::budget::{self, Book};
use crate::looks::{Looks, Rank, rank};
use api::object::{Key, Target};
use api::sky::{ManagedJob, ManagedState, ManagedTask, managed_job_gvk};
use jiff::Timestamp;
use reconcile::{Decision, Next, Op, PatchBody, Primary, Reconciler, Watch, World, Write};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Jobs that are launched at the same time.
pub const LAUNCHES_MAX: usize = 64;

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
    /// Jobs that got a turn in the last decision. They are read again, because the write may have failed.
    assumed: Vec<Key>,
}

/// Where a job stands among all.
#[derive(Clone, Debug, PartialEq)]
enum Standing {
    Waits { rank: Rank, turn: u32, due: Timestamp },
    Launches,
}

/// Jobs that have changed, as they are now.
pub struct Changes(Vec<(Key, Option<ManagedJob>)>);

fn read(object: &Value) -> Option<ManagedJob> {
    serde_json::from_value(object.clone()).ok()
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
    let waits = |task: &&&ManagedTask| match task.state {
        ManagedState::Pending => true,
        ManagedState::Recovering => task.open_attempt().is_none() && (is_covered || budget::waits(task)),
        _ => false,
    };
    let is_launched = |task: &&ManagedTask| matches!(task.state, ManagedState::Starting | ManagedState::Recovering);
    let waiting: Vec<&&ManagedTask> = tasks.iter().filter(waits).collect();
    let turn = status.made().saturating_add(u32::try_from(waiting.len()).unwrap_or(u32::MAX));
    if waiting.is_empty() || status.turn >= turn {
        return (!waiting.is_empty() || tasks.iter().any(is_launched)).then_some(Standing::Launches);
    }
    let due = waiting.iter().map(|task| task.not_before.parse().unwrap_or(Timestamp::MIN)).min();
    Some(Standing::Waits { rank: rank(key, job), turn, due: due.unwrap_or(Timestamp::MIN) })
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
        let mut all = Vec::new();
        if std::mem::replace(&mut memory.has_looked, true) {
            let noted = noted.into_iter().map(|target| target.key).chain(std::mem::take(&mut memory.assumed));
            let keys: BTreeSet<Key> = noted.chain(memory.budgets.note(world, &others)).collect();
            all.extend(keys.into_iter().map(|key| {
                let job = world.get(&managed_job_gvk(), &key).and_then(|object| read(&object));
                (key, job)
            }));
        } else {
            memory.budgets.start(world);
            world.each(&managed_job_gvk(), None, &mut |object| all.push((Key::of(object), read(object))));
        }
        for (key, job) in &all {
            memory.budgets.take_job(world, key, job.as_ref());
        }
        Some(Changes(all))
    }

    fn decide(&self, observed: &Changes, now: Timestamp) -> Decision {
        let mut memory = self.0.memory();
        for (key, job) in &observed.0 {
            memory.take_in(key, job.as_ref());
        }
        memory.grant(now)
    }
}

impl Memory {
    fn take_in(&mut self, key: &Key, job: Option<&ManagedJob>) {
        match self.standing.remove(key) {
            Some(Standing::Waits { rank, turn, due }) => {
                self.waiting.remove(&rank);
                self.held.remove(&rank);
                self.later.remove(&(due, rank, turn));
            }
            Some(Standing::Launches) => drop(self.launching.remove(key)),
            None => {}
        }
        let Some(standing) = job.and_then(|job| standing(key, job, self.budgets.is_covered(key))) else { return };
        match &standing {
            Standing::Waits { rank, turn, due } => drop(self.later.insert((*due, rank.clone(), *turn))),
            Standing::Launches => drop(self.launching.insert(key.clone())),
        }
        self.standing.insert(key.clone(), standing);
    }

    fn grant(&mut self, now: Timestamp) -> Decision {
        while let Some((due, rank, turn)) = self.later.pop_first() {
            if due > now {
                self.later.insert((due, rank, turn));
                break;
            }
            self.waiting.insert(rank, turn);
        }
        if self.budgets.open(now) {
            self.waiting.append(&mut self.held);
        }
        let mut writes = Vec::new();
        while self.launching.len() < LAUNCHES_MAX
            && let Some((rank, turn)) = self.waiting.pop_first()
        {
            if !self.budgets.admits(&rank.2, now) {
                self.held.insert(rank, turn);
                continue;
            }
            let (_, _, key) = rank;
            let target = Target { gvk: managed_job_gvk(), key: key.clone() };
            let body = PatchBody::Merge(json!({"status": {"turn": turn}}));
            writes.push(Write::from(Op::Patch { target, subresource: Some("status"), body }));
            self.launching.insert(key.clone());
            self.standing.insert(key.clone(), Standing::Launches);
            self.assumed.push(key);
        }
        let due = self.later.first().map(|(due, _, _)| due.duration_since(now));
        let (more, again) = self.budgets.close(now);
        writes.extend(more);
        let next = due.into_iter().chain(again).min().map_or(Next::AwaitChange, Next::After);
        Decision { writes, next, ..Decision::default() }
    }
}
