//! An in-memory index of budgets, their machines and their jobs, updated from watched changes.
//!
//! It holds machines and jobs of namespaces that have a budget, and nothing else.

use super::job::{self, Job, Rates};
use super::machine::{Counted, Found};
use super::{
    Account, CountedMachine, accrue, crossing, exceeded_unit, full_unit, in_namespace, period_end, plus, text, times,
};
use api::object::{self, Key, Target};
use api::sky::{
    Budget, BudgetAction, BudgetAmount, BudgetJob, BudgetStatus, JobRate, ManagedJob, budget_gvk, cluster_gvk, keys,
    machine_gvk, managed_job_gvk,
};
use jiff::{SignedDuration, Timestamp};
use reconcile::{OnError, Op, PatchBody, Wakes, Watch, World, Write};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How often the sums are written while machines run, and jobs that wait are considered again.
const BEAT: SignedDuration = SignedDuration::from_secs(60);
/// How soon jobs that wait are considered again while reservations run out.
const AGAIN: SignedDuration = SignedDuration::from_secs(10);
/// How soon something is looked for again that is not in view yet.
const SOON: SignedDuration = SignedDuration::from_secs(1);
/// Jobs that a status lists.
const LISTED_MAX: usize = 10;
/// Jobs that get their reason in one decision.
const TOLD_MAX: usize = 64;

/// What one decision adds up for a budget.
#[derive(Default)]
struct Sheet {
    account: Account,
    reserved: BudgetAmount,
    /// Jobs that wait for it.
    waiting: Vec<Key>,
}

/// The index.
#[derive(Default)]
pub(crate) struct Book {
    budgets: BTreeMap<Key, Budget>,
    machines: BTreeMap<Key, Counted>,
    /// Machines whose Clusters are not in view.
    unknown: BTreeSet<Key>,
    jobs: BTreeMap<Key, Job>,
    /// Jobs whose submissions are not in view.
    unread: BTreeSet<Key>,
    /// The latest submission that was read: jobs of one submission mostly follow each other.
    read: Option<(Key, Rates)>,
    sheets: BTreeMap<Key, Sheet>,
    /// Jobs with machines that cost something now.
    running: BTreeSet<Key>,
    /// Why jobs wait.
    reasons: BTreeMap<Key, String>,
    /// Jobs that were stopped in the last decision. They are read again, because the write may have failed.
    assumed: Vec<Key>,
    has_changed: bool,
    /// When jobs that wait are considered again.
    due: Option<Timestamp>,
}

impl Book {
    /// What has to be watched. `noted`: the watch that notes the changes of a kind.
    pub fn watches(noted: impl Fn(object::Gvk) -> Watch) -> Vec<Watch> {
        let read = |gvk| Watch { gvk, wakes: Wakes::Nothing };
        let maps = object::Gvk::new("", "v1", "ConfigMap");
        vec![noted(budget_gvk()), noted(machine_gvk()), read(cluster_gvk()), read(maps)]
    }

    /// The first look. The jobs are taken in by [`Book::take_job`].
    pub fn start(&mut self, world: &dyn World) {
        world.each(&budget_gvk(), None, &mut |object| {
            if let Some(budget) = super::read(object) {
                self.budgets.insert(Key::of(object), budget);
            }
        });
        let namespaces: BTreeSet<String> = self.budgets.keys().map(|key| key.namespace.clone()).collect();
        namespaces.iter().for_each(|namespace| self.read_machines(world, namespace));
        // machines of a budget that was deleted while no control plane ran
        for machine in world.mentioning(&machine_gvk(), None, keys::BUDGET) {
            self.take_machine(world, Key::of(&machine));
        }
    }

    /// Reads what has changed. Returns the jobs that have to be read again.
    pub fn note(&mut self, world: &dyn World, changed: &[Target]) -> Vec<Key> {
        let mut again = std::mem::take(&mut self.assumed);
        for target in changed.iter().filter(|target| target.gvk == budget_gvk()) {
            if self.take_budget(world, &target.key) {
                let namespace = target.key.namespace.as_str();
                world.each(&managed_job_gvk(), Some(namespace), &mut |job| again.push(Key::of(job)));
                self.read_machines(world, namespace);
            }
        }
        let machines = changed.iter().filter(|target| target.gvk == machine_gvk()).map(|target| target.key.clone());
        let machines: Vec<Key> = machines.chain(std::mem::take(&mut self.unknown)).collect();
        machines.into_iter().for_each(|key| self.take_machine(world, key));
        again.extend(std::mem::take(&mut self.unread));
        again
    }

    /// Reads a budget. Returns whether other jobs may be covered now.
    fn take_budget(&mut self, world: &dyn World, key: &Key) -> bool {
        let found = world.get(&budget_gvk(), key).and_then(|object| super::read(&object));
        self.has_changed = true;
        let scope = |budget: Option<&Budget>| {
            budget.map(|budget| (budget.spec.user.clone(), budget.spec.selector.clone(), budget.metadata.uid.clone()))
        };
        let is_other = scope(found.as_ref()) != scope(self.budgets.get(key));
        match found {
            Some(budget) => drop(self.budgets.insert(key.clone(), budget)),
            None => drop(self.budgets.remove(key)),
        }
        is_other
    }

    fn read_machines(&mut self, world: &dyn World, namespace: &str) {
        let mut all = Vec::new();
        world.each(&machine_gvk(), Some(namespace), &mut |machine| all.push(Key::of(machine)));
        all.into_iter().for_each(|key| self.take_machine(world, key));
    }

    fn take_machine(&mut self, world: &dyn World, key: Key) {
        let found = world.get(&machine_gvk(), &key);
        let is_named = |object: &Arc<Value>| object::annotation(object, keys::BUDGETS).is_some();
        let concerns = in_namespace(&self.budgets, &key.namespace).next().is_some() || self.machines.contains_key(&key);
        if !concerns && !found.as_ref().is_some_and(is_named) {
            return;
        }
        self.has_changed = true;
        match found.map(|object| Counted::read(world, &object)) {
            Some(Found::Counted(machine)) => drop(self.machines.insert(key, *machine)),
            Some(Found::Later) => drop(self.unknown.insert(key)),
            Some(Found::Other) => drop(self.machines.remove(&key)),
            None => {
                if let Some(machine) = self.machines.get_mut(&key) {
                    machine.has_vanished = true;
                }
            }
        }
    }

    /// Takes in a job as it is now; `None`: it is gone.
    pub fn take_job(&mut self, world: &dyn World, key: &Key, job: Option<&ManagedJob>) {
        let before = self.jobs.remove(key);
        self.reasons.remove(key);
        let covers = |job: &&ManagedJob| {
            let names = in_namespace(&self.budgets, &key.namespace)
                .filter(|(_, budget)| super::covers(&budget.spec, job))
                .map(|(key, _)| key.name.clone());
            names.collect::<Vec<String>>()
        };
        let Some((job, budgets)) = job.map(|job| (job, covers(&job))).filter(|(_, budgets)| !budgets.is_empty()) else {
            self.has_changed |= before.is_some();
            return;
        };
        self.has_changed = true;
        let Some(mut taken) = Job::read(job, budgets, before.and_then(|before| before.rates)) else { return };
        if taken.rates.is_none() {
            taken.rates = self.rates(world, &taken.submission);
        }
        if taken.rates.is_none() {
            self.unread.insert(key.clone());
        }
        self.jobs.insert(key.clone(), taken);
    }

    fn rates(&mut self, world: &dyn World, submission: &Key) -> Option<Rates> {
        if let Some((_, rates)) = self.read.as_ref().filter(|(key, _)| key == submission) {
            return Some(rates.clone());
        }
        let rates = job::rates(world, submission)?;
        self.read = Some((submission.clone(), rates.clone()));
        Some(rates)
    }

    /// Whether a budget is for this job, which has not ended.
    pub fn is_covered(&self, job: &Key) -> bool {
        self.jobs.contains_key(job)
    }

    /// Adds up what is spent and reserved. Returns whether jobs that wait have to be considered again.
    pub fn open(&mut self, now: Timestamp) -> bool {
        self.forget_settled();
        self.add_up(now);
        let again = std::mem::take(&mut self.has_changed) || self.due.is_some_and(|due| due <= now);
        if again {
            self.due = None;
            return true;
        }
        for job in self.reasons.keys() {
            for name in self.jobs.get(job).into_iter().flat_map(|job| &job.budgets) {
                if let Some(sheet) = self.sheets.get_mut(&Key::new(&job.namespace, name)) {
                    sheet.waiting.push(job.clone());
                }
            }
        }
        false
    }

    /// Forgets machines whose objects are gone, once all their budgets have settled them.
    fn forget_settled(&mut self) {
        let (budgets, jobs) = (&self.budgets, &self.jobs);
        self.machines.retain(|key, machine| {
            let mut held = names(machine, jobs).filter_map(|name| budgets.get(&Key::new(&key.namespace, name)));
            !machine.has_vanished || held.any(|budget| !budget.status.settling.contains(&machine.uid))
        });
    }

    fn add_up(&mut self, now: Timestamp) {
        self.sheets.clear();
        self.running.clear();
        if self.budgets.is_empty() {
            return;
        }
        let mut lines: BTreeMap<Key, Vec<CountedMachine>> = BTreeMap::new();
        for (key, machine) in &self.machines {
            for name in names(machine, &self.jobs) {
                lines.entry(Key::new(&key.namespace, name)).or_default().push(machine.line());
            }
            self.running.extend(machine.job.clone().filter(|_| machine.runs()));
        }
        for (key, budget) in &self.budgets {
            let lines = lines.remove(key).unwrap_or_default();
            self.sheets.insert(key.clone(), Sheet { account: accrue(budget, &lines, now), ..Sheet::default() });
        }
        for (key, job) in self.jobs.iter().filter(|(_, job)| job.is_launched()) {
            let rate = job.rate().unwrap_or_default();
            for name in job.budgets.iter().map(|name| Key::new(&key.namespace, name)) {
                let (Some(budget), Some(sheet)) = (self.budgets.get(&name), self.sheets.get_mut(&name)) else {
                    continue;
                };
                sheet.reserved = plus(sheet.reserved, times(rate, job.reserved_hours(&budget.spec, now)));
            }
        }
    }

    /// Whether all budgets of a job have room for another attempt; if so, it is reserved.
    pub fn admits(&mut self, key: &Key, now: Timestamp) -> bool {
        let Some(job) = self.jobs.get_mut(key) else { return true };
        let Some(rate) = job.rate() else { return false };
        let all: Vec<Key> = job.budgets.iter().map(|name| Key::new(&key.namespace, name)).collect();
        for name in &all {
            let (Some(budget), Some(sheet)) = (self.budgets.get(name), self.sheets.get_mut(name)) else { continue };
            let (spent, more) = (sheet.account.status.spent, times(rate, super::reserve_hours(&budget.spec)));
            if let Some(unit) = full_unit(&budget.spec.limit, plus(spent, sheet.reserved), spent, more) {
                sheet.waiting.push(key.clone());
                self.reasons.insert(key.clone(), text::waits(budget, unit, more, now));
                return false;
            }
        }
        for name in &all {
            if let (Some(budget), Some(sheet)) = (self.budgets.get(name), self.sheets.get_mut(name)) {
                sheet.reserved = plus(sheet.reserved, times(rate, super::reserve_hours(&budget.spec)));
            }
        }
        job.has_turn = true;
        self.reasons.remove(key);
        true
    }

    /// What has to be written, and when to look again.
    pub fn close(&mut self, now: Timestamp) -> (Vec<Write>, Option<SignedDuration>) {
        let mut writes = Vec::new();
        let mut next: Option<SignedDuration> = None;
        let mut sooner = |pause: SignedDuration| next = Some(next.map_or(pause, |next| next.min(pause)));
        let mut stops = BTreeMap::new();
        for (key, sheet) in &self.sheets {
            let Some(budget) = self.budgets.get(key) else { continue };
            let stopped = self.stopped(key, budget, sheet);
            writes.extend(written(key, budget, sheet, &stopped, now));
            stops.extend(stopped);
            let ends = period_end(budget.spec.period, now).map(|end| end.duration_since(now));
            ends.into_iter().chain(crossing(&budget.spec, &sheet.account)).for_each(&mut sooner);
            if sheet.account.rate != JobRate::default() {
                sooner(BEAT);
            }
            if !sheet.waiting.is_empty() {
                let pause = if sheet.reserved == BudgetAmount::default() { BEAT } else { AGAIN };
                let at = api::time::later(now, ends.map_or(pause, |ends| ends.min(pause)));
                self.due = Some(self.due.map_or(at, |due| due.min(at)));
                sooner(pause);
            }
        }
        for (key, why) in stops {
            writes.push(Job::halted(&key, &why));
            self.jobs.entry(key.clone()).and_modify(|job| job.is_stopped = true);
            self.assumed.push(key);
        }
        for (key, machine) in &self.machines {
            writes.extend(machine.claimed(key, names(machine, &self.jobs)));
            writes.extend(machine.released(key));
        }
        let told = self.reasons.iter().filter_map(|(key, why)| self.jobs.get(key)?.told(key, why));
        let told: Vec<Write> = told.take(TOLD_MAX).collect();
        if told.len() == TOLD_MAX || !self.unknown.is_empty() || !self.unread.is_empty() {
            sooner(SOON);
        }
        writes.extend(told.into_iter().map(|write| Write { on_error: OnError::Continue, ..write }));
        (writes, next)
    }

    /// Jobs that a budget stops now, and why: those that have machines or began an attempt.
    fn stopped(&self, key: &Key, budget: &Budget, sheet: &Sheet) -> BTreeMap<Key, String> {
        let Some(unit) = exceeded_unit(&budget.spec.limit, sheet.account.status.spent) else { return BTreeMap::new() };
        in_namespace(&self.jobs, &key.namespace)
            .filter(|(_, job)| !job.is_stopped && job.budgets.contains(&key.name))
            .filter(|(job, facts)| facts.began.is_some() || self.running.contains(job))
            .map(|(job, _)| (job.clone(), text::halts(budget, &sheet.account.status, unit)))
            .collect()
    }
}

/// The names of all budgets that count a machine.
fn names<'a>(machine: &'a Counted, jobs: &'a BTreeMap<Key, Job>) -> impl Iterator<Item = &'a str> + Clone {
    let covering = machine.job.as_ref().and_then(|job| jobs.get(job));
    let more = covering.into_iter().flat_map(|job| &job.budgets).filter(|name| !machine.named.contains(name));
    machine.named.iter().chain(more).map(String::as_str)
}

/// An amount with six digits after the point, rounded up.
fn shown(amount: BudgetAmount) -> BudgetAmount {
    let up = |number: f64| (number * 1e6).ceil() / 1e6;
    BudgetAmount {
        dollars: up(amount.dollars),
        gpu_hours: up(amount.gpu_hours),
        machine_hours: up(amount.machine_hours),
    }
}

/// The list of jobs after this decision.
fn listed(before: &[BudgetJob], waiting: &[Key], stopped: &BTreeMap<Key, String>, now: Timestamp) -> Vec<BudgetJob> {
    let is_stopped = |job: &&BudgetJob| job.action == BudgetAction::Stopped;
    let mut all: Vec<BudgetJob> = before.iter().filter(is_stopped).cloned().collect();
    let at = now.to_string();
    for key in stopped.keys() {
        all.push(BudgetJob { name: key.name.clone(), action: BudgetAction::Stopped, at: at.clone() });
    }
    let surplus = all.len().saturating_sub(LISTED_MAX);
    all.drain(..surplus);
    for key in waiting.iter().take(LISTED_MAX) {
        let known = before.iter().find(|job| job.name == key.name && job.action == BudgetAction::Waits);
        let since = known.map_or_else(|| at.clone(), |job| job.at.clone());
        all.push(BudgetJob { name: key.name.clone(), action: BudgetAction::Waits, at: since });
    }
    // those that wait now say more than those that were stopped before
    let surplus = all.len().saturating_sub(LISTED_MAX);
    all.drain(..surplus);
    all
}

fn conditions(budget: &Budget, is_exceeded: bool, message: &str, now: Timestamp) -> Value {
    let status = if is_exceeded { "True" } else { "False" };
    let before = budget.status.conditions.iter().find(|one| one.type_ == "Exceeded" && one.status == status);
    let since = before.and_then(|one| serde_json::to_value(&one.last_transition_time).ok());
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!([{
        "type": "Exceeded", "status": status, "reason": if is_exceeded { "LimitReached" } else { "WithinLimit" },
        "message": message, "lastTransitionTime": since.unwrap_or_else(|| now.into()),
    }])
}

/// Whether the sums have to be written: once a minute while machines run, and when a reservation begins or ends.
fn is_stale(before: &BudgetStatus, after: &BudgetStatus, sheet: &Sheet, now: Timestamp) -> bool {
    let last: Timestamp = before.accrued_at.parse().unwrap_or(Timestamp::MIN);
    let is_running = sheet.account.rate != JobRate::default();
    let is_due = now >= api::time::later(last, BEAT);
    let is_reserving = |status: &BudgetStatus| status.reserved != BudgetAmount::default();
    before.spent != after.spent && (is_due || !is_running) || is_reserving(before) != is_reserving(after)
}

/// The write of a budget's status, if one is due.
fn written(
    key: &Key,
    budget: &Budget,
    sheet: &Sheet,
    stopped: &BTreeMap<Key, String>,
    now: Timestamp,
) -> Option<Write> {
    let before = &budget.status;
    let mut after = sheet.account.status.clone();
    let unit = exceeded_unit(&budget.spec.limit, after.spent);
    (after.spent, after.reserved) = (shown(after.spent), shown(sheet.reserved));
    after.message = match unit {
        Some(unit) => text::exceeded(budget, unit, now),
        None if sheet.waiting.is_empty() => String::new(),
        None => text::FULL.to_owned(),
    };
    match unit {
        Some(_) if after.exceeded_at.is_empty() => after.exceeded_at = now.to_string(),
        Some(_) => {}
        None => after.exceeded_at.clear(),
    }
    after.jobs = listed(&before.jobs, &sheet.waiting, stopped, now);
    // without the fields whose changes can wait for a minute
    let rest = |status: &BudgetStatus| BudgetStatus {
        spent: BudgetAmount::default(),
        reserved: BudgetAmount::default(),
        accrued_at: String::new(),
        settling: Vec::new(),
        conditions: Vec::new(),
        ..status.clone()
    };
    let settles = after.settling.iter().any(|uid| !before.settling.contains(uid));
    let is_due = settles || rest(before) != rest(&after) || is_stale(before, &after, sheet, now);
    if !is_due && !before.conditions.is_empty() {
        return None;
    }
    let mut body = serde_json::to_value(&after).unwrap_or_default();
    body["conditions"] = conditions(budget, unit.is_some(), &after.message, now);
    let body = crate::status::replacing(&serde_json::to_value(before).unwrap_or_default(), body);
    let body = json!({"metadata": {"resourceVersion": budget.metadata.resource_version}, "status": body});
    let target = Target { gvk: budget_gvk(), key: key.clone() };
    Some(Op::Patch { target, subresource: Some("status"), body: PatchBody::Merge(body) }.into())
}
