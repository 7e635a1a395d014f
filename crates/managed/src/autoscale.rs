//! How many replicas a service or a pool has, and which of them end first.
//!
//! [`Scaler::look`] sets the target from the load; [`Scaler::changes`] compares it with the replicas. Both are pure, and time comes in only as
//! the number of looks: a look is due every [`Scaler::interval`] seconds. The rules are SkyPilot's (recordings: `autoscaler`).

use api::sky::{ReplicaState, ScalerMemory, UpdateMode};
use serde_json::Value;

/// Seconds over which requests are counted.
pub const WINDOW_SECS: f64 = 60.0;
/// Seconds between two looks, and between those at a service without replicas.
const INTERVAL_SECS: u32 = 20;
const INTERVAL_AT_ZERO_SECS: u32 = 5;
/// Seconds for which a load must ask for more replicas, or for fewer, by default.
const UPSCALE_SECS: f64 = 300.0;
const DOWNSCALE_SECS: f64 = 1200.0;

/// What a service or a pool asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingRules {
    /// Fewest replicas.
    pub least: u32,
    /// Most replicas, without those in reserve.
    pub most: u32,
    /// Replicas in reserve, beyond the target.
    pub reserve: u32,
    /// What the target follows.
    pub demand: Demand,
    /// Spot machines, with on-demand machines in their place. `None`: all replicas are as the task says.
    pub fallback: Option<Fallback>,
    /// Looks in a row that must ask for more replicas, or for fewer, before the target changes.
    pub up_looks: u32,
    pub down_looks: u32,
}

/// What the target follows.
#[derive(Clone, Debug, PartialEq)]
pub enum Demand {
    /// Nothing: it is the least.
    Fixed,
    /// Requests: so many per second for each replica.
    Requests(f64),
    /// Requests: so many per second for a replica with these GPUs, `A100:1` or `A100`.
    Instances(Vec<(String, f64)>),
    /// Jobs that wait: one replica more while they are more than this, one fewer while they are fewer.
    Queue(u64),
}

/// On-demand machines beside spot machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fallback {
    /// Replicas that are always on on-demand machines.
    pub base: u32,
    /// Whether on-demand machines stand in for spot machines that are not ready.
    pub is_dynamic: bool,
}

/// The load of a service or a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demanded {
    /// Requests that came within [`WINDOW_SECS`].
    Requests(u64),
    /// Jobs that wait for a worker.
    Waiting(u64),
}

/// A replica, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    pub number: u32,
    pub version: u32,
    pub state: ReplicaState,
    /// Whether its machines are spot machines.
    pub is_spot: bool,
    /// `A100:1`; empty for none.
    pub gpu: String,
    /// Jobs that run on it.
    pub jobs: u64,
    /// Whether it has failed in a way that the next one of its version would repeat.
    pub is_fatal: bool,
}

/// What is to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// One more replica. `None`: as the task says; else whether on a spot machine.
    Add(Option<bool>),
    /// End the replica of this number.
    End(u32),
}

/// The scaler of a service or a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaler {
    pub rules: ScalingRules,
    pub memory: ScalerMemory,
    /// How replicas of older versions are replaced.
    pub mode: UpdateMode,
    /// Whether a replica of this version has ever been ready.
    pub ever_ready: bool,
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn whole(value: f64) -> u32 {
    value.clamp(0.0, f64::from(u32::MAX)) as u32
}

fn count(value: &Value) -> Option<u32> {
    number(value).map(whole)
}

fn looks(delay: &Value, default: f64) -> u32 {
    whole(number(delay).unwrap_or(default) / f64::from(INTERVAL_SECS))
}

impl ScalingRules {
    /// The rules of a `service` section in the form of a task file.
    pub fn of(service: &Value) -> Self {
        if let Some(pool) = service.get("pool") {
            return Self::of_pool(pool);
        }
        let policy = &service["replica_policy"];
        let least = count(&policy["min_replicas"]).unwrap_or(1);
        let demand = match &policy["target_qps_per_replica"] {
            Value::Object(targets) => Demand::Instances(
                targets.iter().filter_map(|(gpu, target)| Some((gpu.clone(), number(target)?))).collect(),
            ),
            target => number(target).map_or(Demand::Fixed, Demand::Requests),
        };
        let base = count(&policy["base_ondemand_fallback_replicas"]);
        let is_dynamic = policy["dynamic_ondemand_fallback"].as_bool().unwrap_or(false);
        Self {
            least,
            most: count(&policy["max_replicas"]).unwrap_or(least),
            reserve: count(&policy["num_overprovision"]).unwrap_or(0),
            demand,
            fallback: (is_dynamic || base.is_some_and(|base| base > 0))
                .then(|| Fallback { base: base.unwrap_or(0), is_dynamic }),
            up_looks: looks(&policy["upscale_delay_seconds"], UPSCALE_SECS),
            down_looks: looks(&policy["downscale_delay_seconds"], DOWNSCALE_SECS),
        }
    }

    fn of_pool(pool: &Value) -> Self {
        let fixed = count(&pool["workers"]);
        let least = count(&pool["min_workers"]).or(fixed).unwrap_or(1);
        let threshold = number(&pool["queue_length_threshold"]).unwrap_or(1.0);
        Self {
            least,
            most: count(&pool["max_workers"]).unwrap_or(least),
            reserve: 0,
            demand: Demand::Queue(u64::from(whole(threshold))),
            fallback: None,
            up_looks: looks(&pool["upscale_delay_seconds"], UPSCALE_SECS),
            down_looks: looks(&pool["downscale_delay_seconds"], DOWNSCALE_SECS),
        }
    }

    fn clipped(&self, target: u32) -> u32 {
        target.min(self.most).max(self.least)
    }

    /// Requests per second that a replica with these GPUs is for.
    pub fn capacity(&self, gpu: &str) -> f64 {
        let targets = match &self.demand {
            Demand::Instances(targets) => targets,
            Demand::Requests(target) => return *target,
            Demand::Fixed | Demand::Queue(_) => return 0.0,
        };
        let kind = |name: &str| name.split(':').next().unwrap_or_default().to_owned();
        let exact = targets.iter().find(|(name, _)| *name == kind(gpu));
        let found = exact.or_else(|| targets.iter().find(|(name, _)| kind(name) == kind(gpu)));
        found.map_or_else(|| targets.iter().map(|(_, target)| *target).fold(f64::INFINITY, f64::min), |(_, of)| *of)
    }
}

/// How far a replica is: those that are least far end first.
fn stage(state: ReplicaState) -> u8 {
    match state {
        ReplicaState::Pending => 0,
        ReplicaState::Provisioning => 1,
        ReplicaState::Starting => 2,
        ReplicaState::NotReady => 3,
        _ => 4,
    }
}

/// The numbers of so many replicas, those first that are missed least.
fn first_to_end(mut members: Vec<&Member>, many: usize) -> Vec<u32> {
    members.sort_by_key(|one| (stage(one.state), one.version, one.jobs, std::cmp::Reverse(one.number)));
    members.iter().take(many).map(|one| one.number).collect()
}

fn length(members: &[&Member]) -> u32 {
    u32::try_from(members.len()).unwrap_or(u32::MAX)
}

/// How many there are too many, and too few.
fn surplus_and_lack(there: u32, wanted: u32) -> (usize, usize) {
    (there.saturating_sub(wanted) as usize, wanted.saturating_sub(there) as usize)
}

impl Scaler {
    /// The scaler of the first version.
    pub fn new(rules: ScalingRules, version: u32) -> Self {
        let memory = ScalerMemory { target: rules.least, version, ..ScalerMemory::default() };
        Self { rules, memory, mode: UpdateMode::default(), ever_ready: false }
    }

    /// Replicas that are wanted.
    pub fn wanted(&self) -> u32 {
        self.memory.target.saturating_add(self.rules.reserve)
    }

    /// Seconds until the next look.
    pub fn interval(&self) -> u32 {
        if self.wanted() == 0 { INTERVAL_AT_ZERO_SECS } else { INTERVAL_SECS }
    }

    /// Takes a newer version in. `load` is that of the last look.
    pub fn update(&mut self, rules: ScalingRules, version: u32, mode: UpdateMode, load: Demanded) {
        self.rules = rules;
        self.mode = mode;
        self.ever_ready = false;
        let target = self.rules.clipped(self.memory.target);
        self.memory =
            ScalerMemory { target, version, looked_at: self.memory.looked_at.clone(), ..ScalerMemory::default() };
        if !matches!(self.rules.demand, Demand::Instances(_)) {
            self.memory.target = self.asked(load, &[]);
        }
    }

    /// The target that the load asks for.
    fn asked(&self, load: Demanded, members: &[Member]) -> u32 {
        let per_second = match load {
            #[expect(clippy::cast_precision_loss, reason = "requests of a minute")]
            Demanded::Requests(count) => count as f64 / WINDOW_SECS,
            Demanded::Waiting(_) => 0.0,
        };
        let asked = match (&self.rules.demand, load) {
            (Demand::Requests(target), _) => whole((per_second / target).ceil()),
            (Demand::Instances(targets), _) => self.asked_of_instances(per_second, targets, members),
            (Demand::Queue(threshold), Demanded::Waiting(waiting)) => match waiting {
                0 => 0,
                _ if waiting > *threshold => self.memory.target.saturating_add(1),
                // as in the recordings: a pool without workers stays without one while few jobs wait
                _ if waiting < *threshold && self.memory.target == 0 => 0,
                _ if waiting < *threshold => self.memory.target.saturating_sub(1).max(1),
                _ => self.memory.target.max(1),
            },
            (Demand::Fixed | Demand::Queue(_), _) => self.rules.least,
        };
        self.rules.clipped(asked)
    }

    fn asked_of_instances(&self, per_second: f64, targets: &[(String, f64)], members: &[Member]) -> u32 {
        use ReplicaState::{Provisioning, Ready, Starting};
        let capacity = |one: &Member| self.rules.capacity(&one.gpu);
        let coming = members.iter().filter(|one| matches!(one.state, Ready | Starting | Provisioning));
        let total: f64 = coming.map(capacity).sum();
        let largest = targets.iter().map(|(_, target)| *target).fold(0.0, f64::max);
        if total <= 0.0 {
            return self.rules.least;
        }
        if per_second >= total {
            let more = whole(((per_second - total) / largest).ceil());
            return u32::try_from(members.len()).unwrap_or(u32::MAX).saturating_add(more);
        }
        let mut ready: Vec<f64> = members.iter().filter(|one| one.state == Ready).map(capacity).collect();
        if ready.is_empty() {
            ready.push(largest);
        }
        ready.sort_by(|a, b| b.total_cmp(a));
        // the fewest of the largest that are enough
        let mut sum = 0.0;
        let enough = ready.iter().position(|one| {
            sum += one;
            sum > per_second
        });
        u32::try_from(enough.map_or(ready.len(), |at| at.saturating_add(1))).unwrap_or(u32::MAX)
    }

    /// A look at the load, which may change the target. It is not due while the newest version cannot start.
    pub fn look(&mut self, load: Demanded, members: &[Member]) {
        let asked = self.asked(load, members);
        let memory = &mut self.memory;
        match asked.cmp(&memory.target) {
            // the first replica is added at once
            _ if memory.target == 0 => memory.target = asked,
            std::cmp::Ordering::Equal => (memory.up, memory.down) = (0, 0),
            std::cmp::Ordering::Greater => {
                (memory.up, memory.down) = (memory.up.saturating_add(1), 0);
                if memory.up >= self.rules.up_looks {
                    (memory.target, memory.up) = (asked, 0);
                }
            }
            std::cmp::Ordering::Less => {
                (memory.up, memory.down) = (0, memory.down.saturating_add(1));
                if memory.down >= self.rules.down_looks {
                    (memory.target, memory.down) = (asked, 0);
                }
            }
        }
    }

    /// Whether the newest version cannot start: it has never been ready, and a replica of it has failed for good.
    pub fn is_stuck(&self, members: &[Member]) -> bool {
        !self.ever_ready && members.iter().any(|one| one.version == self.memory.version && one.is_fatal)
    }

    /// Notes that a replica of the newest version is ready.
    pub fn note_ready(&mut self, members: &[Member]) {
        let is_ready = |one: &Member| one.version == self.memory.version && one.state == ReplicaState::Ready;
        self.ever_ready |= members.iter().any(is_ready);
    }

    /// Replicas of older versions that end. `active`: the versions that get requests.
    pub fn outdated(&self, members: &[Member], active: &[u32]) -> Vec<u32> {
        let is_latest = |one: &&Member| one.version == self.memory.version;
        if self.mode == UpdateMode::BlueGreen {
            let Some(oldest) = active.iter().min() else { return Vec::new() };
            return members.iter().filter(|one| one.version < *oldest).map(|one| one.number).collect();
        }
        let old: Vec<&Member> = members.iter().filter(|one| !is_latest(one) && !one.state.has_ended()).collect();
        let ready = members.iter().filter(is_latest).filter(|one| one.state == ReplicaState::Ready).count();
        let kept = (self.wanted() as usize).saturating_sub(ready);
        if kept == 0 {
            return old.iter().map(|one| one.number).collect();
        }
        let surplus = old.len().saturating_sub(kept);
        // jobs of a worker do not count here: all of an old version end sooner or later
        let old = old.into_iter().map(|one| Member { jobs: 0, ..one.clone() }).collect::<Vec<_>>();
        first_to_end(old.iter().collect(), surplus)
    }

    /// What is to change among the replicas of the newest version.
    pub fn changes(&self, members: &[Member]) -> Vec<Scaling> {
        let is_counted = |one: &&Member| one.version == self.memory.version && !one.state.has_ended();
        let latest: Vec<&Member> = members.iter().filter(is_counted).collect();
        if let Some(fallback) = self.rules.fallback {
            return self.with_fallback(fallback, &latest);
        }
        let (surplus, lack) = surplus_and_lack(length(&latest), self.wanted());
        let ended = match &self.rules.demand {
            Demand::Queue(_) => first_to_end(latest.into_iter().filter(|one| one.jobs == 0).collect(), surplus),
            Demand::Instances(_) => self.smallest(latest, surplus),
            Demand::Fixed | Demand::Requests(_) => first_to_end(latest, surplus),
        };
        let added = std::iter::repeat_n(Scaling::Add(None), lack);
        added.chain(ended.into_iter().map(Scaling::End)).collect()
    }

    /// So many replicas of the smallest capacity.
    fn smallest(&self, mut members: Vec<&Member>, many: usize) -> Vec<u32> {
        members.sort_by(|a, b| {
            let by_capacity = self.rules.capacity(&a.gpu).total_cmp(&self.rules.capacity(&b.gpu));
            by_capacity.then(a.version.cmp(&b.version)).then(b.number.cmp(&a.number))
        });
        members.iter().take(many).map(|one| one.number).collect()
    }

    fn with_fallback(&self, fallback: Fallback, latest: &[&Member]) -> Vec<Scaling> {
        let (spot, on_demand): (Vec<&Member>, Vec<&Member>) = latest.iter().copied().partition(|one| one.is_spot);
        let spot_wanted = self.wanted().saturating_sub(fallback.base);
        let ready = spot.iter().filter(|one| one.state == ReplicaState::Ready).count();
        let missing = spot_wanted.saturating_sub(u32::try_from(ready).unwrap_or(u32::MAX));
        let stand_ins = if fallback.is_dynamic { missing } else { 0 };
        let on_demand_wanted = fallback.base.saturating_add(stand_ins).min(self.memory.target);
        let mut ended = Vec::new();
        let mut changes = Vec::new();
        for (members, wanted, is_spot) in [(spot, spot_wanted, true), (on_demand, on_demand_wanted, false)] {
            let (surplus, lack) = surplus_and_lack(length(&members), wanted);
            changes.extend(std::iter::repeat_n(Scaling::Add(Some(is_spot)), lack));
            ended.extend(first_to_end(members, surplus).into_iter().map(Scaling::End));
        }
        changes.extend(ended);
        changes
    }
}
