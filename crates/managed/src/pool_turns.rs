//! Which worker of its pool a managed job gets next. Jobs of a higher priority come first, then those that were submitted first; none is
//! passed by a smaller one.
//!
//! A turn is a number in the job's status, as in [`crate::job_turns`], with the worker beside it. What each worker has to do, and how many
//! jobs wait, is reported in the pool's `status.load`, which its scaler reads. A worker that ends gets no more jobs, and is told to be free
//! in that report only after this reconciler has seen that it ends: so none is given to it in between.

use crate::launch::fit::{Size, taken};
use api::object::{self, Gvk, Key, Target};
use api::sky::{
    Accelerators, Cluster, FleetStatus, Ground, JobFile, ManagedJob, ManagedState as State, ReplicaReport,
    ReplicaState, ServingLoad, WorkerShare, cluster_gvk, managed_job_gvk, pool_gvk,
};
use jiff::{SignedDuration, Timestamp};
use reconcile::wakes::Notes;
use reconcile::{Decision, Next, Op, PatchBody, Primary, Reconciler, Wakes, Watch, World};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::DerefMut;
use std::sync::Arc;
#[expect(clippy::disallowed_types, reason = "a look goes on from the last one")]
use std::sync::{Mutex, PoisonError};

/// The least time between two reports about a pool.
const REPORT: SignedDuration = SignedDuration::from_secs(1);

/// Its order among those that wait: priority, number, then whatever tells them apart.
type Rank = (Reverse<i32>, u32, Key);

/// The reconciler. Its copies share what they know.
#[derive(Clone, Default)]
pub struct PoolTurns {
    notes: Arc<Notes>,
    #[expect(clippy::disallowed_types, reason = "a look goes on from the last one")]
    memory: Arc<Mutex<Memory>>,
}

#[derive(Default)]
struct Memory {
    has_looked: bool,
    /// Where each job stands, and in which pool.
    standing: BTreeMap<Key, (Key, Standing)>,
    pools: BTreeMap<Key, Yard>,
    /// Shares of the tasks of a submission: ConfigMaps never change.
    shares: BTreeMap<Key, Arc<Vec<Vec<WorkerShare>>>>,
    /// What was written in the last decision is read again, because the write may have failed.
    assumed: Vec<Target>,
}

/// Where a job stands.
#[derive(Clone, Debug, PartialEq)]
enum Standing {
    Waits { rank: Rank, turn: u32, due: Timestamp },
    Has { worker: u32 },
}

/// A pool: its workers, and the jobs that wait for them.
#[derive(Default)]
struct Yard {
    /// `None`: it is not there, or not any more.
    seen: Option<Seen>,
    waiting: BTreeMap<Rank, (u32, Arc<Vec<WorkerShare>>)>,
    /// Those whose time comes later.
    later: BTreeSet<(Timestamp, Rank)>,
    /// Workers that have ended, as jobs on them say: the pool finds out in its own time. Numbers are never used again.
    lost: BTreeSet<u32>,
    /// What the jobs of each worker take.
    used: BTreeMap<u32, BTreeMap<Key, Arc<Vec<WorkerShare>>>>,
    told_at: Option<Timestamp>,
}

/// A pool as it was read.
#[derive(Clone, Debug, Default)]
struct Seen {
    is_ending: bool,
    workers: BTreeMap<u32, Worker>,
    told: ServingLoad,
}

#[derive(Clone, Debug, Default)]
struct Worker {
    cluster: String,
    is_ready: bool,
    is_ending: bool,
    has: WorkerShare,
}

/// What has changed, as it is now.
pub struct Changes {
    jobs: Vec<(Key, Option<ManagedJob>)>,
    pools: Vec<(Key, Option<Seen>)>,
    shares: Vec<(Key, Arc<Vec<Vec<WorkerShare>>>)>,
}

fn read<T: serde::de::DeserializeOwned>(object: &Value) -> Option<T> {
    serde_json::from_value(object.clone()).ok()
}

/// The first task of a job that has not succeeded.
fn current(job: &ManagedJob) -> usize {
    let tasks = &job.status.tasks;
    tasks.iter().position(|task| task.state != State::Succeeded).unwrap_or(0)
}

/// Where a job stands; `None`: it needs no worker until it changes.
fn standing(key: &Key, job: &ManagedJob) -> Option<Standing> {
    let status = &job.status;
    if job.spec.pool.is_empty() || status.state.has_ended() || job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let made: u32 = status.tasks.iter().map(|task| task.attempt).sum();
    let task = status.tasks.get(current(job));
    let is_open = task.and_then(|task| task.attempts.last()).is_some_and(|attempt| attempt.ended_at.is_empty());
    let state = task.map_or(State::Pending, |task| task.state);
    if is_open || state == State::Cancelling || status.turn > made && !job.spec.cancel {
        return Some(Standing::Has { worker: status.worker });
    }
    let waits = !job.spec.cancel && matches!(state, State::Pending | State::Recovering);
    waits.then(|| Standing::Waits {
        rank: (Reverse(job.spec.priority), job.spec.id, key.clone()),
        turn: made.saturating_add(1),
        due: task.and_then(|task| task.not_before.parse().ok()).unwrap_or(Timestamp::MIN),
    })
}

/// Whether its last attempt ended because its worker did.
fn has_lost(job: &ManagedJob) -> bool {
    let attempt = job.status.tasks.get(current(job)).and_then(|task| task.attempts.last());
    let grounds = [Ground::MachinesLost, Ground::NoCapacity, Ground::Asked];
    attempt.is_some_and(|attempt| grounds.contains(&attempt.ground))
}

/// What each machine of a worker has.
fn capacity(world: &dyn World, namespace: &str, cluster: &str) -> WorkerShare {
    let key = Key::new(namespace, &crate::names::object_name(cluster));
    let Some(cluster) = world.get(&cluster_gvk(), &key).and_then(|cluster| read::<Cluster>(&cluster)) else {
        return WorkerShare::default();
    };
    let node = |name: &str| world.get(&Gvk::new("", "v1", "Node"), &Key::new("", name));
    let nodes = cluster.status.nodes.iter().filter_map(|one| node(&one.node));
    let size = Size::of_cluster(&cluster, nodes.map(|node| Size::allocatable(&node["status"]["allocatable"])));
    WorkerShare { cpus: size.cpus, memory: size.memory, gpus: taken(&cluster).accelerators }
}

/// A pool as it is.
fn seen(world: &dyn World, key: &Key) -> Option<Seen> {
    let object = world.get(&pool_gvk(), key)?;
    let status: FleetStatus = object.get("status").and_then(read).unwrap_or_default();
    let worker = |one: &api::sky::Replica| {
        let is_ready = one.state == ReplicaState::Ready && !one.is_ending;
        let has = if is_ready { capacity(world, &key.namespace, &one.cluster) } else { WorkerShare::default() };
        let is_ending = one.is_ending || one.state.has_ended();
        (one.number, Worker { cluster: one.cluster.clone(), is_ready, is_ending, has })
    };
    let workers = status.replicas.iter().map(worker).collect();
    Some(Seen { is_ending: object::is_terminating(&object), workers, told: status.load })
}

fn gpus(share: &WorkerShare) -> f64 {
    share.gpus.as_ref().map_or(0.0, |gpus| gpus.count)
}

fn kind(gpus: &Option<Accelerators>) -> String {
    gpus.as_ref().map(|gpus| gpus.name.to_lowercase()).unwrap_or_default()
}

/// Whether one of these fits into what is left of a worker.
fn fits(wanted: &[WorkerShare], left: &WorkerShare) -> bool {
    wanted.iter().any(|one| {
        let is_kind = one.gpus.is_none() || kind(&one.gpus) == kind(&left.gpus);
        is_kind && one.cpus <= left.cpus && one.memory <= left.memory && gpus(one) <= gpus(left)
    })
}

/// What is left of a worker once a job has taken its share; `None`: nothing, as it takes all.
fn less(left: WorkerShare, taken: &[WorkerShare]) -> Option<WorkerShare> {
    let fitting = taken.iter().find(|one| fits(std::slice::from_ref(*one), &left))?;
    let count = gpus(&left) - gpus(fitting);
    let kind = left.gpus.map(|gpus| Accelerators { count, ..gpus });
    Some(WorkerShare { cpus: left.cpus - fitting.cpus, memory: left.memory - fitting.memory, gpus: kind })
}

impl PoolTurns {
    /// The key of all looks, which names no job.
    fn key() -> Target {
        Target { gvk: managed_job_gvk(), key: Key::default() }
    }

    fn memory(&self) -> impl DerefMut<Target = Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reconciler for PoolTurns {
    type Observed = Changes;

    fn name(&self) -> &'static str {
        "managedjob-pools"
    }

    fn primary(&self) -> Primary {
        // no object is a key: all jobs and pools share one
        Primary::Kind(managed_job_gvk())
    }

    fn concerns(&self, _: &Value) -> bool {
        false
    }

    fn watches(&self) -> Vec<Watch> {
        let noted = |gvk| Watch { gvk, wakes: Wakes::Noted(self.notes.clone(), vec![Self::key()]) };
        let read = |gvk| Watch { gvk, wakes: Wakes::Nothing };
        vec![
            noted(managed_job_gvk()),
            noted(pool_gvk()),
            read(cluster_gvk()),
            read(Gvk::new("", "v1", "Node")),
            read(Gvk::new("", "v1", "ConfigMap")),
        ]
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Changes> {
        if *target != Self::key() {
            return None;
        }
        let mut memory = self.memory();
        let mut targets: BTreeSet<(bool, Key)> = BTreeSet::new();
        let noted = self.notes.take().into_iter().chain(std::mem::take(&mut memory.assumed));
        targets.extend(noted.map(|target| (target.gvk == pool_gvk(), target.key)));
        if !std::mem::replace(&mut memory.has_looked, true) {
            for gvk in [managed_job_gvk(), pool_gvk()] {
                world.each(&gvk, None, &mut |object| {
                    targets.insert((gvk == pool_gvk(), Key::of(object)));
                });
            }
        }
        let (mut jobs, mut pools, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for (is_pool, key) in targets {
            if is_pool {
                pools.push((key.clone(), seen(world, &key)));
                continue;
            }
            let object = world.get(&managed_job_gvk(), &key);
            // most jobs are in no pool
            let job: Option<ManagedJob> =
                object.filter(|object| !object["spec"]["pool"].is_null()).and_then(|object| read(&object));
            if let Some(job) = &job {
                let submission = Key::new(&key.namespace, &job.spec.submission);
                if !memory.shares.contains_key(&submission) && !job.status.state.has_ended() {
                    shares.extend(shares_of(world, &submission).map(|shares| (submission, shares)));
                }
            }
            jobs.push((key, job));
        }
        Some(Changes { jobs, pools, shares })
    }

    fn decide(&self, observed: &Changes, now: Timestamp) -> Decision {
        let mut memory = self.memory();
        memory.shares.extend(observed.shares.iter().cloned());
        for (key, pool) in &observed.pools {
            memory.pools.entry(key.clone()).or_default().seen.clone_from(pool);
        }
        for (key, job) in &observed.jobs {
            memory.take_in(key, job.as_ref());
        }
        memory.pools.retain(|_, yard| !yard.is_done());
        if memory.standing.is_empty() {
            memory.shares.clear();
        }
        memory.grant(now)
    }
}

fn shares_of(world: &dyn World, submission: &Key) -> Option<Arc<Vec<Vec<WorkerShare>>>> {
    let map = world.get(&Gvk::new("", "v1", "ConfigMap"), submission)?;
    let file: JobFile = serde_json::from_str(map["data"]["job"].as_str()?).ok()?;
    Some(Arc::new(file.tasks.into_iter().map(|task| task.shares).collect()))
}

impl Memory {
    fn take_in(&mut self, key: &Key, job: Option<&ManagedJob>) {
        if let Some((pool, before)) = self.standing.remove(key) {
            let yard = self.pools.entry(pool).or_default();
            match before {
                Standing::Waits { rank, due, .. } => {
                    yard.waiting.remove(&rank);
                    yard.later.remove(&(due, rank));
                }
                Standing::Has { worker } => yard.free(worker, key),
            }
        }
        let Some((job, standing)) = job.and_then(|job| Some((job, standing(key, job)?))) else { return };
        let pool = Key::new(&key.namespace, &job.spec.pool);
        let of_submission = self.shares.get(&Key::new(&key.namespace, &job.spec.submission));
        let shares = of_submission.and_then(|tasks| tasks.get(current(job))).cloned().unwrap_or_default();
        let yard = self.pools.entry(pool.clone()).or_default();
        match &standing {
            Standing::Waits { rank, turn, due } => {
                if has_lost(job) {
                    yard.lost.insert(job.status.worker);
                }
                yard.waiting.insert(rank.clone(), (*turn, Arc::new(shares)));
                yard.later.insert((*due, rank.clone()));
            }
            Standing::Has { worker } => {
                yard.used.entry(*worker).or_default().insert(key.clone(), Arc::new(shares));
            }
        }
        self.standing.insert(key.clone(), (pool, standing));
    }

    fn grant(&mut self, now: Timestamp) -> Decision {
        let (mut writes, mut next) = (Vec::new(), Next::AwaitChange);
        let mut within = |pause: SignedDuration| {
            let pause = pause.max(SignedDuration::from_millis(1));
            if !matches!(next, Next::After(sooner) if sooner <= pause) {
                next = Next::After(pause);
            }
        };
        for (pool, yard) in &mut self.pools {
            for (key, granted) in yard.grant(now) {
                let target = Target { gvk: managed_job_gvk(), key: key.clone() };
                let status = json!({
                    "turn": granted.turn, "worker": granted.worker, "workerCluster": granted.cluster,
                });
                let body = PatchBody::Merge(json!({"status": status}));
                writes.push(Op::Patch { target: target.clone(), subresource: Some("status"), body }.into());
                self.standing.insert(key, (pool.clone(), Standing::Has { worker: granted.worker }));
                self.assumed.push(target);
            }
            if let Some((due, _)) = yard.later.first() {
                within(due.duration_since(now));
            }
            match yard.report(now) {
                Report::None => {}
                Report::Later(pause) => within(pause),
                Report::Now(patch) => {
                    let target = Target { gvk: pool_gvk(), key: pool.clone() };
                    let body = PatchBody::Merge(patch);
                    writes.push(Op::Patch { target: target.clone(), subresource: Some("status"), body }.into());
                    self.assumed.push(target);
                }
            }
        }
        Decision { writes, next, ..Decision::default() }
    }
}

/// A worker for a job.
struct Granted {
    turn: u32,
    worker: u32,
    cluster: String,
}

/// Whether a report about a pool is due.
enum Report {
    None,
    Later(SignedDuration),
    /// With this patch of the pool.
    Now(Value),
}

impl Yard {
    fn is_done(&self) -> bool {
        self.seen.is_none() && self.waiting.is_empty() && self.used.is_empty()
    }

    fn free(&mut self, worker: u32, job: &Key) {
        if let Some(used) = self.used.get_mut(&worker) {
            used.remove(job);
            if used.is_empty() {
                self.used.remove(&worker);
            }
        }
    }

    /// What is left of a worker; `None`: nothing.
    fn left(&self, number: u32, worker: &Worker) -> Option<WorkerShare> {
        let used = self.used.get(&number).into_iter().flatten();
        used.map(|(_, shares)| shares).try_fold(worker.has.clone(), |left, taken| less(left, taken))
    }

    /// The worker for a job that takes one of these shares.
    fn worker_for(&self, seen: &Seen, shares: &[WorkerShare]) -> Option<u32> {
        let ready = || seen.workers.iter().filter(|(number, worker)| worker.is_ready && !self.lost.contains(*number));
        let has_room = |number: u32, worker: &Worker| self.left(number, worker).is_some_and(|left| fits(shares, &left));
        let fitting = ready().find(|(number, worker)| has_room(**number, worker));
        // where nothing is known about a worker, it takes one job at a time
        fitting.or_else(|| ready().find(|(number, _)| !self.used.contains_key(number))).map(|(number, _)| *number)
    }

    /// Workers for the jobs that come next.
    fn grant(&mut self, now: Timestamp) -> Vec<(Key, Granted)> {
        while self.later.first().is_some_and(|(due, _)| *due <= now) {
            self.later.pop_first();
        }
        let Some(seen) = self.seen.take() else { return Vec::new() };
        let granted = if seen.is_ending { Vec::new() } else { self.grant_of(&seen) };
        self.seen = Some(seen);
        granted
    }

    fn grant_of(&mut self, seen: &Seen) -> Vec<(Key, Granted)> {
        let rests: BTreeSet<Rank> = self.later.iter().map(|(_, rank)| rank.clone()).collect();
        let mut granted = Vec::new();
        while let Some((rank, (turn, shares))) =
            self.waiting.iter().find(|(rank, _)| !rests.contains(*rank)).map(|(rank, job)| (rank.clone(), job.clone()))
        {
            let Some(worker) = self.worker_for(seen, &shares) else { break };
            let cluster = seen.workers.get(&worker).map(|worker| worker.cluster.clone()).unwrap_or_default();
            self.waiting.remove(&rank);
            let (_, _, key) = rank;
            self.used.entry(worker).or_default().insert(key.clone(), shares);
            granted.push((key, Granted { turn, worker, cluster }));
        }
        granted
    }

    fn load(&self, seen: &Seen) -> ServingLoad {
        let report = |(number, worker): (&u32, &Worker)| ReplicaReport {
            replica: *number,
            is_draining: worker.is_ending,
            in_flight: self.used.get(number).map_or(0, |used| u64::try_from(used.len()).unwrap_or(u64::MAX)),
            ..ReplicaReport::default()
        };
        ServingLoad {
            held: u64::try_from(self.waiting.len()).unwrap_or(u64::MAX),
            backends: seen.workers.iter().map(report).collect(),
            ..ServingLoad::default()
        }
    }

    /// Reports what the workers have to do, if that has changed.
    fn report(&mut self, now: Timestamp) -> Report {
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
        self.told_at = Some(now);
        let before = serde_json::to_value(&seen.told).unwrap_or_default();
        let load = crate::status::replacing(&before, serde_json::to_value(&load).unwrap_or_default());
        Report::Now(json!({"status": {"load": load}}))
    }
}
