//! Managed jobs that budgets are for.

use super::{hours, text};
use api::object::{self, Key, Target};
use api::sky::{BudgetSpec, JobFile, JobRate, ManagedJob, ManagedTask, managed_job_gvk};
use jiff::Timestamp;
use reconcile::{Op, PatchBody, World, Write};
use serde_json::json;
use std::sync::Arc;

/// What an hour of each task of a submission costs at most.
pub(super) type Rates = Arc<[JobRate]>;

/// A job that has not ended and that a budget is for.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The names of its budgets.
    pub budgets: Vec<String>,
    pub submission: Key,
    /// `None`: what was submitted is not in view yet.
    pub rates: Option<Rates>,
    /// Numbers of the tasks that have their turn now, and what their latest attempts cost an hour.
    in_play: Vec<(usize, f64)>,
    /// When their newest attempt began, of those that have not ended.
    pub began: Option<Timestamp>,
    /// Whether it may begin an attempt at once.
    pub has_turn: bool,
    /// Whether it is being stopped already, by a budget or a user.
    pub is_stopped: bool,
    version: String,
    tasks: Vec<ManagedTask>,
}

impl Job {
    pub fn read(job: &ManagedJob, budgets: Vec<String>, rates: Option<Rates>) -> Option<Self> {
        let status = &job.status;
        if status.state.has_ended() || job.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let in_play: Vec<(usize, &ManagedTask)> = job.in_play().collect();
        let price = |task: &ManagedTask| task.attempts.last().map_or(0.0, |attempt| attempt.hourly_price);
        let open = || in_play.iter().filter_map(|(_, task)| task.open_attempt());
        let all_open = !in_play.is_empty() && open().count() == in_play.len();
        let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
        Some(Self {
            budgets,
            submission: Key::new(namespace, &job.spec.submission),
            rates,
            in_play: match in_play.as_slice() {
                [] => vec![(0, 0.0)],
                some => some.iter().map(|(index, task)| (*index, price(task))).collect(),
            },
            began: open().filter_map(|attempt| attempt.began_at.parse().ok()).max(),
            has_turn: status.turn > status.made(),
            is_stopped: job.is_ending(),
            version: job.metadata.resource_version.clone().unwrap_or_default(),
            tasks: if all_open { Vec::new() } else { status.tasks.clone() },
        })
    }

    /// What an hour of its next or latest attempts costs at most; `None`: it is not known yet.
    pub fn rate(&self) -> Option<JobRate> {
        let rates = self.rates.as_ref()?;
        let mut sum = JobRate::default();
        for (index, price) in &self.in_play {
            let rate = rates.get(*index).copied().unwrap_or_default();
            sum.machines += rate.machines.max(1.0);
            sum.dollars += rate.dollars.max(*price);
            sum.gpus += rate.gpus;
        }
        Some(sum)
    }

    /// Whether budgets may reserve something for it.
    pub fn is_launched(&self) -> bool {
        self.has_turn || self.began.is_some()
    }

    /// Hours that a budget still reserves for it.
    pub fn reserved_hours(&self, spec: &BudgetSpec, now: Timestamp) -> f64 {
        let all = super::reserve_hours(spec);
        match self.began {
            Some(began) => (all - hours(began, now)).max(0.0),
            None if self.has_turn => all,
            None => 0.0,
        }
    }

    /// Ends the job.
    pub fn halted(key: &Key, why: &str) -> Write {
        let target = Target { gvk: managed_job_gvk(), key: key.clone() };
        Op::Patch { target, subresource: None, body: PatchBody::Merge(json!({"spec": {"halted": why}})) }.into()
    }

    /// Says what its tasks wait for, unless they say so already.
    pub fn told(&self, key: &Key, why: &str) -> Option<Write> {
        let is_told = |task: &ManagedTask| task.open_attempt().is_some() || task.message == why;
        let are_told = self.in_play.iter().all(|(index, _)| self.tasks.get(*index).is_some_and(is_told));
        // without tasks and with an attempt, all have been launched
        if are_told || self.tasks.is_empty() && self.began.is_some() {
            return None;
        }
        let mut tasks = self.tasks.clone();
        if tasks.is_empty() {
            tasks.push(ManagedTask::default());
        }
        for (index, _) in &self.in_play {
            if let Some(task) = tasks.get_mut(*index).filter(|task| !is_told(task)) {
                why.clone_into(&mut task.message);
            }
        }
        let target = Target { gvk: managed_job_gvk(), key: key.clone() };
        let body = json!({"metadata": {"resourceVersion": self.version}, "status": {"tasks": tasks}});
        Some(Op::Patch { target, subresource: Some("status"), body: PatchBody::Merge(body) }.into())
    }
}

/// Whether a job was waiting for a budget when it was read: its next attempt needs a turn although it recovers.
pub(crate) fn waits(task: &ManagedTask) -> bool {
    task.message.starts_with(text::WAITS)
}

/// The rates of a submission's tasks; `None`: it is not in view. One that cannot be read has none, and its jobs fail.
pub(super) fn rates(world: &dyn World, submission: &Key) -> Option<Rates> {
    let map = world.get(&object::Gvk::new("", "v1", "ConfigMap"), submission)?;
    let file: JobFile = serde_json::from_str(map["data"]["job"].as_str().unwrap_or_default()).unwrap_or_default();
    Some(file.tasks.iter().map(|task| task.rate).collect())
}
