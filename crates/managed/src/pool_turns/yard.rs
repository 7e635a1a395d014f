//! The workers of one pool, and the jobs that have or need one.

use crate::looks::Rank;
use api::object::Key;
use api::sky::{Accelerators, ReplicaReport, ServingLoad, WorkerShare};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The least time between two reports about a pool.
const REPORT: SignedDuration = SignedDuration::from_secs(1);

/// What a job takes of a worker: one of these. Empty: it takes a worker as a whole.
pub(super) type Shares = Arc<Vec<WorkerShare>>;

/// A pool: its workers, and the jobs that have one or wait for one.
#[derive(Default)]
pub(super) struct Yard {
    /// `None`: the pool does not exist.
    pub seen: Option<Seen>,
    /// Jobs that wait, and the turns that they need.
    waiting: BTreeMap<Rank, (u32, Shares)>,
    /// Jobs that begin to wait at a later time.
    later: BTreeMap<(Timestamp, Rank), (u32, Shares)>,
    /// Workers that have ended, as their jobs report; the pool may not show it yet.
    lost: BTreeSet<u32>,
    /// What the jobs of each worker take.
    used: BTreeMap<u32, BTreeMap<Key, Shares>>,
    told_at: Option<Timestamp>,
}

/// A pool as it was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub is_ending: bool,
    pub workers: BTreeMap<u32, Worker>,
    pub told: ServingLoad,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Worker {
    pub cluster: String,
    pub is_ready: bool,
    pub is_ending: bool,
    /// What each of its machines has.
    pub has: WorkerShare,
}

/// A worker for a job.
pub(super) struct Granted {
    pub job: Key,
    pub turn: u32,
    pub worker: u32,
    pub cluster: String,
}

/// Whether a report about a pool is due.
pub(super) enum Report {
    None,
    Later(SignedDuration),
    /// With this patch of the pool.
    Now(Value),
}

fn gpus(share: &WorkerShare) -> f64 {
    share.gpus.as_ref().map_or(0.0, |gpus| gpus.count)
}

/// Whether a share fits into what is left of a worker.
fn fits(wanted: &WorkerShare, left: &WorkerShare) -> bool {
    let kind = |share: &WorkerShare| share.gpus.as_ref().map(|gpus| gpus.name.to_lowercase()).unwrap_or_default();
    let is_kind = wanted.gpus.is_none() || kind(wanted) == kind(left);
    is_kind && wanted.cpus <= left.cpus && wanted.memory <= left.memory && gpus(wanted) <= gpus(left)
}

/// What is left of a worker once a job has taken the first of its shares that fits; `None`: the job takes all.
fn less(left: WorkerShare, wanted: &[WorkerShare]) -> Option<WorkerShare> {
    let taken = wanted.iter().find(|one| fits(one, &left))?;
    let count = gpus(&left) - gpus(taken);
    let rest = left.gpus.map(|gpus| Accelerators { count, ..gpus });
    Some(WorkerShare { cpus: left.cpus - taken.cpus, memory: left.memory - taken.memory, gpus: rest })
}

impl Yard {
    /// Takes in the pool as it is now; `None`: it does not exist.
    pub fn take_pool(&mut self, seen: Option<Seen>) {
        // numbers of workers are never used again
        self.lost.retain(|number| seen.as_ref().is_some_and(|seen| seen.workers.contains_key(number)));
        self.seen = seen;
    }

    pub fn is_done(&self) -> bool {
        self.seen.is_none() && self.waiting.is_empty() && self.later.is_empty() && self.used.is_empty()
    }

    /// A job needs a worker for this turn, not before `due`.
    pub fn wait(&mut self, rank: Rank, turn: u32, due: Timestamp, shares: Shares) {
        self.later.insert((due, rank), (turn, shares));
    }

    /// A job has a worker.
    pub fn hold(&mut self, worker: u32, job: Key, shares: Shares) {
        self.used.entry(worker).or_default().insert(job, shares);
    }

    /// A worker has ended.
    pub fn lose(&mut self, worker: u32) {
        self.lost.insert(worker);
    }

    /// A job waits no longer.
    pub fn forget(&mut self, rank: Rank, due: Timestamp) {
        self.waiting.remove(&rank);
        self.later.remove(&(due, rank));
    }

    /// A job no longer has its worker.
    pub fn free(&mut self, worker: u32, job: &Key) {
        if let Some(used) = self.used.get_mut(&worker) {
            used.remove(job);
            if used.is_empty() {
                self.used.remove(&worker);
            }
        }
    }

    /// When the first of the jobs begins to wait that do so later.
    pub fn due(&self) -> Option<Timestamp> {
        self.later.first_key_value().map(|((due, _), _)| *due)
    }

    /// What is left of a worker; `None`: nothing.
    fn left(&self, number: u32, worker: &Worker) -> Option<WorkerShare> {
        let used = self.used.get(&number).into_iter().flatten();
        used.map(|(_, shares)| shares).try_fold(worker.has.clone(), |left, taken| less(left, taken))
    }

    /// The worker for a job that takes one of these shares, and its cluster.
    fn worker_for(&self, shares: &[WorkerShare]) -> Option<(u32, String)> {
        let seen = self.seen.as_ref().filter(|seen| !seen.is_ending)?;
        let ready = || seen.workers.iter().filter(|(number, worker)| worker.is_ready && !self.lost.contains(*number));
        let has_room = |number: u32, worker: &Worker| {
            self.left(number, worker).is_some_and(|left| shares.iter().any(|one| fits(one, &left)))
        };
        let fitting = ready().find(|(number, worker)| has_room(**number, worker));
        // a job that fits nowhere, as far as is known, gets a worker of its own
        let found = fitting.or_else(|| ready().find(|(number, _)| !self.used.contains_key(number)));
        found.map(|(number, worker)| (*number, worker.cluster.clone()))
    }

    /// Workers for the jobs that come next.
    pub fn grant(&mut self, now: Timestamp) -> Vec<Granted> {
        while self.due().is_some_and(|due| due <= now)
            && let Some(((_, rank), job)) = self.later.pop_first()
        {
            self.waiting.insert(rank, job);
        }
        let mut granted = Vec::new();
        while let Some((worker, cluster)) =
            self.waiting.first_key_value().and_then(|(_, (_, shares))| self.worker_for(shares))
            && let Some((Rank { key: job, .. }, (turn, shares))) = self.waiting.pop_first()
        {
            self.hold(worker, job.clone(), shares);
            granted.push(Granted { job, turn, worker, cluster });
        }
        granted
    }

    fn load(&self, seen: &Seen) -> ServingLoad {
        let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        let report = |(number, worker): (&u32, &Worker)| ReplicaReport {
            replica: *number,
            is_draining: worker.is_ending,
            in_flight: self.used.get(number).map_or(0, |used| count(used.len())),
            ..ReplicaReport::default()
        };
        ServingLoad {
            held: count(self.waiting.len()).saturating_add(count(self.later.len())),
            backends: seen.workers.iter().map(report).collect(),
            ..ServingLoad::default()
        }
    }

    /// Reports what the workers have to do, if that has changed.
    pub fn report(&mut self, now: Timestamp) -> Report {
        let Some(seen) = &self.seen else { return Report::None };
        let load = self.load(seen);
        if load == seen.told {
            return Report::None;
        }
        let due = self.told_at.map_or(now, |at| api::time::later(at, REPORT));
        // a clock that was set back delays no report for long
        if due > now && due.duration_since(now) <= REPORT {
            return Report::Later(due.duration_since(now));
        }
        let before = serde_json::to_value(&seen.told).unwrap_or_default();
        let load = crate::status::replacing(&before, serde_json::to_value(&load).unwrap_or_default());
        self.told_at = Some(now);
        Report::Now(json!({"status": {"load": load}}))
    }
}
