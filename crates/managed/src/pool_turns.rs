//! Which worker of its pool a managed job gets next. Jobs that recover come first, then those of a higher priority, then those that were
//! submitted first. No job is overtaken by a smaller one.
//!
//! A turn is a number in the job's status, as in [`crate::job_turns`]; the worker is named beside it. The pool's `status.load` reports how many
//! jobs wait, and how many jobs each worker has. The pool is scaled by this report. A worker that ends gets no more jobs. The report marks it
//! as draining only after this reconciler has seen that it ends. So a worker that is reported as draining and without jobs stays without.

mod yard;

use self::yard::{Report, Seen, Shares, Worker, Yard};
use crate::launch::fit::{Size, taken};
use crate::looks::{Looks, Rank, rank};
use api::object::{self, Gvk, Key, Target};
use api::sky::{
    Cluster, FleetStatus, Ground, JobFile, ManagedJob, ManagedState as State, Replica, ReplicaState, WorkerShare,
    cluster_gvk, managed_job_gvk, pool_gvk,
};
use jiff::{SignedDuration, Timestamp};
use reconcile::{Decision, Next, Op, PatchBody, Primary, Reconciler, Wakes, Watch, World};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The reconciler. Its copies share what they know.
#[derive(Clone, Default)]
pub struct PoolTurns(Looks<Memory>);

#[derive(Default)]
struct Memory {
    has_looked: bool,
    /// Where each job stands, and in which pool.
    standing: BTreeMap<Key, (Key, Standing)>,
    pools: BTreeMap<Key, Yard>,
    /// The latest submission that was read, with the shares of its tasks: jobs of one submission mostly follow each other.
    read: Option<(Key, Vec<Shares>)>,
    /// What was written in the last decision is read again, because the write may have failed.
    assumed: Vec<Target>,
}

/// Where a job stands.
#[derive(Clone, Debug, PartialEq)]
enum Standing {
    Waits { rank: Rank, turn: u32, due: Timestamp },
    Has { worker: u32 },
}

/// What has changed, as it is now.
pub struct Changes {
    /// Jobs of pools, with the shares of their current tasks. `None`: the job is gone, or in no pool.
    jobs: Vec<(Key, Option<(ManagedJob, Shares)>)>,
    pools: Vec<(Key, Option<Seen>)>,
}

fn read<T: serde::de::DeserializeOwned>(object: &Value) -> Option<T> {
    T::deserialize(object).ok()
}

fn core(kind: &str) -> Gvk {
    Gvk::new("", "v1", kind)
}

/// Where a job of a pool stands; `None`: it needs no worker until it changes.
fn standing(key: &Key, job: &ManagedJob) -> Option<Standing> {
    let status = &job.status;
    if status.state.has_ended() || job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let made = status.made();
    let task = status.current().and_then(|index| status.tasks.get(index));
    let is_open = task.is_some_and(|task| task.open_attempt().is_some());
    let state = task.map_or(State::Pending, |task| task.state);
    if is_open || state == State::Cancelling || status.turn > made && !job.is_ending() {
        return Some(Standing::Has { worker: status.worker });
    }
    let waits = !job.is_ending() && matches!(state, State::Pending | State::Recovering);
    waits.then(|| Standing::Waits {
        rank: rank(key, job),
        turn: made.saturating_add(1),
        due: task.and_then(|task| task.not_before.parse().ok()).unwrap_or(Timestamp::MIN),
    })
}

/// Whether its last attempt ended because its worker did.
fn has_lost(job: &ManagedJob) -> bool {
    let status = &job.status;
    let task = status.current().and_then(|index| status.tasks.get(index));
    let attempt = task.and_then(|task| task.attempts.last());
    let grounds = [Ground::MachinesLost, Ground::NoCapacity, Ground::Asked];
    attempt.is_some_and(|attempt| grounds.contains(&attempt.ground))
}

/// What each machine of a worker has.
fn capacity(world: &dyn World, namespace: &str, cluster: &str) -> WorkerShare {
    let key = Key::new(namespace, &crate::names::object_name(cluster));
    let Some(cluster) = world.get(&cluster_gvk(), &key).and_then(|cluster| read::<Cluster>(&cluster)) else {
        return WorkerShare::default();
    };
    let node = |name: &str| world.get(&core("Node"), &Key::new("", name));
    let nodes = cluster.status.nodes.iter().filter_map(|one| node(&one.node));
    let size = Size::of_cluster(&cluster, nodes.map(|node| Size::allocatable(&node["status"]["allocatable"])));
    WorkerShare { cpus: size.cpus, memory: size.memory, gpus: taken(&cluster).accelerators }
}

/// A pool as it is.
fn seen(world: &dyn World, key: &Key) -> Option<Seen> {
    let object = world.get(&pool_gvk(), key)?;
    let status: FleetStatus = object.get("status").and_then(read).unwrap_or_default();
    let worker = |one: &Replica| {
        let is_ready = one.state == ReplicaState::Ready && !one.is_ending;
        let has = if is_ready { capacity(world, &key.namespace, &one.cluster) } else { WorkerShare::default() };
        let is_ending = one.is_ending || one.state.has_ended();
        (one.number, Worker { cluster: one.cluster.clone(), is_ready, is_ending, has })
    };
    let workers = status.replicas.iter().map(worker).collect();
    Some(Seen { is_ending: object::is_terminating(&object), workers, told: status.load })
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
        let noted = [managed_job_gvk(), pool_gvk()].map(|gvk| self.0.noted(gvk));
        let read = [cluster_gvk(), core("Node"), core("ConfigMap")];
        noted.into_iter().chain(read.map(|gvk| Watch { gvk, wakes: Wakes::Nothing })).collect()
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Changes> {
        if *target != Looks::<Memory>::key() {
            return None;
        }
        let mut memory = self.0.memory();
        let noted = self.0.changed().into_iter().chain(std::mem::take(&mut memory.assumed));
        let (pools, jobs): (Vec<Target>, Vec<Target>) = noted.partition(|target| target.gvk == pool_gvk());
        let keys = |targets: Vec<Target>| targets.into_iter().map(|target| target.key).collect::<BTreeSet<Key>>();
        let (mut pools, mut jobs) = (keys(pools), keys(jobs));
        if !std::mem::replace(&mut memory.has_looked, true) {
            for (gvk, all) in [(managed_job_gvk(), &mut jobs), (pool_gvk(), &mut pools)] {
                world.each(&gvk, None, &mut |object| {
                    all.insert(Key::of(object));
                });
            }
        }
        Some(Changes {
            jobs: jobs.into_iter().map(|key| (key.clone(), memory.job(world, &key))).collect(),
            pools: pools.into_iter().map(|key| (key.clone(), seen(world, &key))).collect(),
        })
    }

    fn decide(&self, observed: &Changes, now: Timestamp) -> Decision {
        let mut memory = self.0.memory();
        for (key, pool) in &observed.pools {
            memory.pools.entry(key.clone()).or_default().take_pool(pool.clone());
        }
        for (key, job) in &observed.jobs {
            memory.take_in(key, job.as_ref());
        }
        memory.pools.retain(|_, yard| !yard.is_done());
        memory.grant(now)
    }
}

impl Memory {
    /// A job of a pool, with the shares of its current task.
    fn job(&mut self, world: &dyn World, key: &Key) -> Option<(ManagedJob, Shares)> {
        let object = world.get(&managed_job_gvk(), key)?;
        // most jobs are in no pool
        let job: ManagedJob =
            Some(object).filter(|object| !object["spec"]["pool"].is_null()).and_then(|one| read(&one))?;
        if job.status.state.has_ended() {
            return Some((job, Shares::default()));
        }
        let submission = Key::new(&key.namespace, &job.spec.submission);
        if self.read.as_ref().is_none_or(|(read, _)| *read != submission) {
            self.read = shares_of(world, &submission).map(|shares| (submission, shares));
        }
        let tasks = self.read.as_ref().map(|(_, tasks)| tasks);
        let shares = tasks.and_then(|tasks| tasks.get(job.status.current().unwrap_or(0))).cloned();
        Some((job, shares.unwrap_or_default()))
    }

    fn take_in(&mut self, key: &Key, job: Option<&(ManagedJob, Shares)>) {
        if let Some((pool, before)) = self.standing.remove(key) {
            let yard = self.pools.entry(pool).or_default();
            match before {
                Standing::Waits { rank, due, .. } => yard.forget(rank, due),
                Standing::Has { worker } => yard.free(worker, key),
            }
        }
        let Some((job, shares, standing)) = job.and_then(|(job, shares)| Some((job, shares, standing(key, job)?)))
        else {
            return;
        };
        let pool = Key::new(&key.namespace, &job.spec.pool);
        let yard = self.pools.entry(pool.clone()).or_default();
        match standing.clone() {
            Standing::Waits { rank, turn, due } => {
                if has_lost(job) {
                    yard.lose(job.status.worker);
                }
                yard.wait(rank, turn, due, shares.clone());
            }
            Standing::Has { worker } => yard.hold(worker, key.clone(), shares.clone()),
        }
        self.standing.insert(key.clone(), (pool, standing));
    }

    fn grant(&mut self, now: Timestamp) -> Decision {
        let mut writes = Vec::new();
        let mut pauses: Vec<SignedDuration> = Vec::new();
        let mut patch = |target: &Target, body: Value| {
            let body = PatchBody::Merge(body);
            writes.push(Op::Patch { target: target.clone(), subresource: Some("status"), body }.into());
            self.assumed.push(target.clone());
        };
        for (pool, yard) in &mut self.pools {
            for granted in yard.grant(now) {
                let target = Target { gvk: managed_job_gvk(), key: granted.job.clone() };
                let (turn, worker, cluster) = (granted.turn, granted.worker, granted.cluster);
                patch(&target, json!({"status": {"turn": turn, "worker": worker, "workerCluster": cluster}}));
                self.standing.insert(granted.job, (pool.clone(), Standing::Has { worker }));
            }
            pauses.extend(yard.due().map(|due| due.duration_since(now)));
            match yard.report(now) {
                Report::None => {}
                Report::Later(pause) => pauses.push(pause),
                Report::Now(body) => patch(&Target { gvk: pool_gvk(), key: pool.clone() }, body),
            }
        }
        let next = pauses.into_iter().min().map(|pause| pause.max(SignedDuration::from_millis(1)));
        Decision { writes, next: next.map_or(Next::AwaitChange, Next::After), ..Decision::default() }
    }
}

/// What the tasks of a submission take of a worker; `None`: it is not in view, or cannot be read.
fn shares_of(world: &dyn World, submission: &Key) -> Option<Vec<Shares>> {
    let map = world.get(&core("ConfigMap"), submission)?;
    let file: JobFile = serde_json::from_str(map["data"]["job"].as_str()?).ok()?;
    Some(file.tasks.into_iter().map(|task| task.shares.into()).collect())
}
