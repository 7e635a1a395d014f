//! Budgets: what managed jobs have spent, when they are stopped, and whether an attempt may begin.
//!
//! Spend is arithmetic over the intervals of machines ([`spend`]). A machine counts from the creation of its object, which precedes the call
//! to its provider, until its provider has confirmed that it is gone. It counts once the provider has shown it; one that was refused never
//! does.
//!
//! **No machine is lost.** A Machine that a budget counts carries a finalizer and names its budgets in an annotation. A machine of an attempt
//! that began under a budget has both from its creation; others get them at the first look. So its object stays until its spend is settled.
//! **None is counted twice.** One write adds the spend of a machine that is gone to `status.settled` and its uid to `status.settling`; it
//! fails if the budget has changed since it was read. Machines in `settling` no longer count by their intervals. Only after that write is
//! the finalizer removed. A crash or a lost answer between the two leaves a machine that is already settled, and the removal is repeated.
//!
//! Spend never falls within a period: the status keeps the highest value. If the clock jumps back, everything until the last look is
//! settled, and machines count on from the new time.
//!
//! All grants are given by [`crate::job_turns`], one after another. A job that has a turn or an open attempt holds a
//! reservation. It is computed from the job's status, so a restart needs no other record. The reservation is the price of the most
//! expensive place for `spec.reserveMinutes`, less the minutes since the attempt began, because the machines count from then on.

mod account;
mod book;
mod job;
mod machine;
mod text;

pub use account::{Account, CountedMachine, accrue, crossing, period_end, period_start};
pub(crate) use book::Book;
pub(crate) use job::waits;
pub use text::WAITS;

use api::object::{self, Key};
use api::sky::{Budget, BudgetAmount, BudgetLimit, BudgetSpec, JobRate, ManagedJob, budget_gvk};
use jiff::Timestamp;
use reconcile::World;
use serde::Deserialize;
use serde_json::Value;

/// Minutes that are reserved unless the budget says otherwise.
pub const RESERVE_MINUTES: u32 = 10;

/// A unit of a limit.
#[derive(Clone, Copy)]
pub struct Unit {
    /// The field of `spec.limit`.
    pub field: &'static str,
    /// As messages call it.
    pub words: &'static str,
    /// Its limit, if there is one.
    pub limit: fn(&BudgetLimit) -> Option<f64>,
    /// Its part of an amount.
    pub amount: fn(&BudgetAmount) -> f64,
    /// What an hour adds to it.
    pub rate: fn(&JobRate) -> f64,
}

/// All units.
pub const UNITS: [Unit; 3] = [
    Unit {
        field: "dollars",
        words: "dollars",
        limit: |limit| limit.dollars,
        amount: |amount| amount.dollars,
        rate: |rate| rate.dollars,
    },
    Unit {
        field: "gpuHours",
        words: "GPU-hours",
        limit: |limit| limit.gpu_hours,
        amount: |amount| amount.gpu_hours,
        rate: |rate| rate.gpus,
    },
    Unit {
        field: "machineHours",
        words: "machine-hours",
        limit: |limit| limit.machine_hours,
        amount: |amount| amount.machine_hours,
        rate: |rate| rate.machines,
    },
];

/// Two amounts, put together in each unit.
fn both(a: BudgetAmount, b: BudgetAmount, together: fn(f64, f64) -> f64) -> BudgetAmount {
    BudgetAmount {
        dollars: together(a.dollars, b.dollars),
        gpu_hours: together(a.gpu_hours, b.gpu_hours),
        machine_hours: together(a.machine_hours, b.machine_hours),
    }
}

/// The sum of two amounts.
pub fn plus(a: BudgetAmount, b: BudgetAmount) -> BudgetAmount {
    both(a, b, |a, b| a + b)
}

/// The higher of two amounts, in each unit.
pub fn highest(a: BudgetAmount, b: BudgetAmount) -> BudgetAmount {
    both(a, b, f64::max)
}

/// What so many hours at a rate amount to.
pub fn times(rate: JobRate, hours: f64) -> BudgetAmount {
    BudgetAmount { dollars: rate.dollars * hours, gpu_hours: rate.gpus * hours, machine_hours: rate.machines * hours }
}

/// Hours from one moment to another; 0 if the second one is earlier.
pub fn hours(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0) / 3600.0
}

/// The time for which a machine counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineTime {
    pub from: Timestamp,
    /// `None`: it has not ended.
    pub to: Option<Timestamp>,
    pub rate: JobRate,
}

/// What machines spent between two moments.
pub fn spend<'a>(
    machines: impl IntoIterator<Item = &'a MachineTime>,
    since: Timestamp,
    until: Timestamp,
) -> BudgetAmount {
    let one = |machine: &MachineTime| {
        let to = machine.to.unwrap_or(until).min(until);
        times(machine.rate, hours(machine.from.max(since), to))
    };
    machines.into_iter().map(one).fold(BudgetAmount::default(), plus)
}

/// Whether a budget is for a job of its namespace. A job in a pool has no machines: those of its worker count for the worker's own job.
pub fn covers(spec: &BudgetSpec, job: &ManagedJob) -> bool {
    let labels = job.metadata.labels.as_ref();
    let has = |(name, value): (&String, &String)| labels.and_then(|labels| labels.get(name)) == Some(value);
    job.spec.pool.is_empty()
        && (spec.user.is_empty() || spec.user == job.spec.user)
        && spec.selector.match_labels.iter().all(has)
}

/// The names of the budgets for a job, in their order.
pub(crate) fn covering(world: &dyn World, job: &ManagedJob) -> Vec<String> {
    let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
    let all = world.list(&budget_gvk(), Some(namespace));
    let budgets = all.iter().filter_map(|object| read(object)).filter(|budget| covers(&budget.spec, job));
    budgets.filter_map(|budget| budget.metadata.name).collect()
}

/// A budget that exists and is not being deleted.
fn read(object: &Value) -> Option<Budget> {
    if object::is_terminating(object) {
        return None;
    }
    Budget::deserialize(object).ok()
}

/// Minutes that an attempt reserves, as hours.
fn reserve_hours(spec: &BudgetSpec) -> f64 {
    f64::from(spec.reserve_minutes.unwrap_or(RESERVE_MINUTES)) / 60.0
}

/// The first unit without room for `more`. A unit whose limit is reached, or is 0, has no room at all.
pub fn full_unit(limit: &BudgetLimit, taken: BudgetAmount, spent: BudgetAmount, more: BudgetAmount) -> Option<Unit> {
    UNITS.into_iter().find(|unit| {
        let (amount, Some(limit)) = (unit.amount, (unit.limit)(limit)) else { return false };
        amount(&spent) >= limit || amount(&taken) + amount(&more) > limit
    })
}

/// The unit whose limit is reached.
pub fn exceeded_unit(limit: &BudgetLimit, spent: BudgetAmount) -> Option<Unit> {
    UNITS.into_iter().find(|unit| (unit.limit)(limit).is_some_and(|limit| (unit.amount)(&spent) >= limit))
}

/// The budgets of a namespace.
fn in_namespace<'a, V>(
    all: &'a std::collections::BTreeMap<Key, V>,
    namespace: &'a str,
) -> impl Iterator<Item = (&'a Key, &'a V)> {
    all.range(Key::new(namespace, "")..).take_while(move |(key, _)| key.namespace == namespace)
}
