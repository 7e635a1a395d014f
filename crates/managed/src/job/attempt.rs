//! How an attempt of a task begins and ends.

use super::observed::{Observed, Own};
use super::{SOON, Turn};
use crate::budget;
use crate::evidence::Ruling;
use crate::names;
use crate::transitions::{Restart, restarts};
use api::object;
use api::sky::{
    API_VERSION, Candidate, CapacityWanted, Cluster, Ground, JobAttempt, JobFile, JobRecovery, JobStrategy, JobTask,
    LaunchManaged, LaunchSpec, ManagedJob, ManagedState as State, ManagedTask, keys,
};
use jiff::{SignedDuration, Timestamp};
use reconcile::{Op, Write};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The most attempts that the status lists.
const TOLD_MAX: usize = 10;
/// The first pause after a launch that found no room, and the longest, seconds.
const PAUSE_SECS: i64 = 60;
const PAUSE_MAX_SECS: i64 = 300;
/// The most places that the status lists as those where a task may run.
const PLACES_MAX: usize = 16;
/// Launches in a row that failed for another reason than room, before the task ends.
const REFUSALS_MAX: u32 = 5;

/// The pause after so many launches in a row that found no room.
pub(super) fn pause(failures: u32) -> i64 {
    crate::backoff::seconds(failures, PAUSE_SECS, PAUSE_MAX_SECS)
}

/// Where the machines of an attempt are, and what they cost an hour.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Whereabouts {
    /// `provider/region/zone`.
    pub place: String,
    /// `provider/region`.
    pub region: String,
    pub hourly_price: f64,
    pub job: u32,
    /// All places where they may be.
    pub capacity: Option<CapacityWanted>,
}

impl Whereabouts {
    fn of(candidate: &Candidate, own: &Own) -> Self {
        let Candidate { provider, region, zone, .. } = candidate;
        Self {
            place: names::place(&[provider, region, zone]),
            region: names::place(&[provider, region]),
            hourly_price: candidate.hourly_price * f64::from(own.cluster.spec.nodes),
            job: 0,
            capacity: Some(capacity(&own.cluster)),
        }
    }

    fn note(&self, attempt: &mut JobAttempt) {
        if !self.place.is_empty() {
            attempt.place.clone_from(&self.place);
            attempt.hourly_price = self.hourly_price;
        }
        if self.job > 0 {
            attempt.job = self.job;
        }
    }
}

/// The machines that a cluster looks for.
fn capacity(cluster: &Cluster) -> CapacityWanted {
    let spec = &cluster.spec;
    let mut places: Vec<String> =
        spec.candidates.iter().map(|one| names::place(&[&one.provider, &one.region])).collect();
    places.sort();
    places.dedup();
    if places.len() > PLACES_MAX {
        places.clear();
    }
    // a price may differ between two launches
    let asked = |one: &Candidate| serde_json::to_string(&Candidate { hourly_price: 0.0, ..one.clone() });
    let asked: Vec<String> = spec.candidates.iter().filter_map(|one| asked(one).ok()).collect();
    let machine = api::stable::digits(asked.iter().map(String::as_str));
    CapacityWanted { places, nodes: u32::try_from(spec.nodes).unwrap_or(1), machine }
}

/// What a task waits for whose launch found no capacity. `until`: when it is tried again in any case.
fn waits_for(places: &[String], until: &str) -> String {
    let wherever = match places {
        [] => "one of its places".to_owned(),
        [place] => place.clone(),
        [one, other] => format!("{one} or {other}"),
        [one, other, rest @ ..] => format!("{one}, {other} or {} more places", rest.len()),
    };
    format!(
        "It waits for capacity: the control plane tries again when a machine of {wherever} becomes free, and otherwise at {until}."
    )
}

impl Observed {
    /// Where the latest attempt is.
    pub(super) fn place(&self, task: &ManagedTask) -> Whereabouts {
        let Some(own) = self.cluster(&task.cluster) else { return Whereabouts::default() };
        // once all places have been tried, it is at none
        let nowhere = || Whereabouts { capacity: Some(capacity(&own.cluster)), ..Whereabouts::default() };
        let at = own.cluster.at().map_or_else(nowhere, |candidate| Whereabouts::of(candidate, own));
        let at = Whereabouts { capacity: at.capacity.filter(|_| self.pool.is_none()), ..at };
        Whereabouts { job: self.current(task).map_or(0, |(_, job)| job.id), ..at }
    }

    /// The next attempt of a task that has none now: once the last one is fenced, its time has come, and the job has its turn.
    pub(super) fn begin(&self, asked: &JobTask, task: &ManagedTask, index: usize, now: Timestamp) -> Turn {
        let kept = Some(task.cluster.as_str()).filter(|_| task.is_kept).and_then(|shown| self.cluster(shown));
        let waits = match self.pool {
            None => self.fenced(task, kept, index, now),
            Some(_) => self.fenced_on_worker(task, index, now),
        };
        if let Some(waits) = waits {
            return waits;
        }
        let has_turn = self.job.status.turn > self.job.status.made();
        let due: Timestamp = task.not_before.parse().unwrap_or(now);
        // a turn is given sooner if there may be capacity
        if due > now && !has_turn {
            return Turn::of(task).after(due.duration_since(now));
        }
        // in a pool each attempt needs a worker
        let needs_turn =
            task.state == State::Pending || self.pool.is_some() || !self.budgets.is_empty() || budget::waits(task);
        if needs_turn && !has_turn {
            if (self.pool.is_none() && task.state != State::Pending) || budget::waits(task) {
                return Turn::of(task);
            }
            let message = match self.pool {
                None => "it waits for its turn: other jobs are being launched".to_owned(),
                Some(_) => super::waits_for_worker(&self.job.spec.pool),
            };
            return match task.message.is_empty() && task.attempt == 0 {
                // most get their turn at once
                true => Turn::of(task),
                false => Turn::of(task).says(message),
            };
        }
        let mut turn = Turn::of(task);
        let next = &mut turn.task;
        next.attempt = task.attempt.saturating_add(1);
        // machines may be lost before its code ever ran
        let is_again = task.state == State::Recovering || !task.started_at.is_empty();
        next.state = if is_again { State::Recovering } else { State::Starting };
        if self.pool.is_some() {
            next.cluster.clone_from(&self.job.status.worker_cluster);
        } else if kept.is_none() {
            next.cluster = self.cluster_name(asked, index, next.attempt);
        }
        next.is_kept = false;
        next.message.clear();
        next.not_before.clear();
        next.asked_at.clear();
        next.attempts.push(JobAttempt {
            number: next.attempt,
            cluster: next.cluster.clone(),
            began_at: now.to_string(),
            ..JobAttempt::default()
        });
        let surplus = next.attempts.len().saturating_sub(TOLD_MAX);
        next.attempts.drain(..surplus);
        // the Launch comes after this status, which names it
        turn.after(SOON)
    }

    /// What the user calls the cluster of an attempt.
    fn cluster_name(&self, asked: &JobTask, index: usize, attempt: u32) -> String {
        let spec = &self.job.spec;
        if spec.replica.is_some() {
            let again = if attempt > 1 { format!("-{attempt}") } else { String::new() };
            return format!("{}-{}{again}", spec.name, spec.id);
        }
        let base = [spec.name.as_str(), asked.name.as_str(), "job"];
        let base = base.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        format!("{base}-{}-{index}-{attempt}", spec.id)
    }

    /// What is left of the last attempt, and is to go before the next one.
    fn fenced(&self, task: &ManagedTask, kept: Option<&Own>, index: usize, now: Timestamp) -> Option<Turn> {
        let mut turn = Turn::of(task);
        turn.writes = self.removals(index, kept.map(|_| task.cluster.as_str()));
        match kept {
            None if !self.has_any(index) => None,
            // its message says for what it waits
            None if task.state == State::Pending => Some(turn),
            None => Some(
                turn.says("the control plane removes the machines of the last attempt; then the next attempt begins"),
            ),
            Some(own) => {
                turn.writes.extend(self.fence(own, now));
                let done = turn.writes.is_empty() && Observed::is_fenced(own);
                // a change of a pod wakes no job, so look again
                (!done).then(|| turn.says("the control plane stops the last attempt on the remaining machines; then the next attempt begins").after(SOON))
            }
        }
    }

    /// An attempt that goes on: its Launch is made where there is none yet.
    pub(super) fn goes_on(
        &self,
        file: &JobFile,
        asked: &JobTask,
        task: &ManagedTask,
        index: usize,
        (state, message): (State, String),
        now: Timestamp,
    ) -> Turn {
        let mut turn = Turn::of(task);
        if self.launch(index, task.attempt).is_none() && self.current(task).is_none() {
            turn.writes.push(self.launched(file, asked, task, index));
            return turn;
        }
        let next = &mut turn.task;
        let at = self.place(task);
        let Some(attempt) = next.attempts.last_mut() else { return turn };
        at.note(attempt);
        next.message = message;
        if state != State::Running {
            return turn;
        }
        if attempt.ran_at.is_empty() {
            attempt.ran_at = now.to_string();
            let is_first = next.started_at.is_empty();
            let since = if is_first { &mut next.started_at } else { &mut next.recovered_at };
            *since = now.to_string();
            next.failures = 0;
            next.capacity = None;
        }
        next.state = State::Running;
        if !next.asked_at.is_empty() {
            turn = turn.after(SOON);
        }
        turn
    }

    /// Asks the providers, because the code of the attempt has failed.
    pub(super) fn ask(&self, task: &ManagedTask, now: Timestamp) -> Turn {
        let mut turn = Turn::of(task).after(SOON);
        turn.writes = self.questions(task);
        turn.task.asked_at = now.to_string();
        turn
    }

    /// The Launch of the latest attempt.
    fn launched(&self, file: &JobFile, asked: &JobTask, task: &ManagedTask, index: usize) -> Write {
        let name = self.launch_name(index, task.attempt);
        let replica = self.job.spec.replica.as_ref();
        let env = task_environment(&self.job, file);
        let (first_place, last_place) = match asked.recovery.strategy {
            JobStrategy::Failover => (task.lost_at.clone(), String::new()),
            JobStrategy::EagerNextRegion | JobStrategy::None => (String::new(), task.lost_at.clone()),
        };
        let managed = LaunchManaged {
            job: object::meta(&self.object, "name").to_owned(),
            uid: object::uid(&self.object).to_owned(),
            task: u32::try_from(index).unwrap_or(u32::MAX),
            attempt: task.attempt,
            task_id: task_id(&self.job, file, index),
            env,
            first_place,
            last_place,
            only_place: replica.map(|replica| replica.place.clone()).unwrap_or_default(),
            held: self.job.spec.group,
            is_spot: replica.and_then(|replica| replica.is_spot),
        };
        let spec = LaunchSpec {
            cluster: task.cluster.clone(),
            task: asked.task.clone(),
            secret: asked.secret.clone(),
            files: asked.files.clone(),
            configuration: asked.configuration.clone(),
            settings: file.settings.clone(),
            catalog: file.catalog.clone(),
            user: self.job.spec.user.clone(),
            command: self.job.spec.command.clone(),
            managed: Some(managed),
            on_existing: self.pool.is_some(),
            ..LaunchSpec::default()
        };
        let mut object = json!({
            "apiVersion": API_VERSION, "kind": "Launch",
            "metadata": {
                "name": name, "namespace": self.namespace(), "finalizers": [keys::LEDGER],
                "labels": self.labels(task, index), "ownerReferences": [self.owner()],
            },
            "spec": spec,
        });
        if !self.budgets.is_empty() {
            object["metadata"]["annotations"] = json!({keys::BUDGETS: self.budgets.join(",")});
        }
        Op::Create { object }.into()
    }

    fn labels(&self, task: &ManagedTask, index: usize) -> Value {
        json!({
            keys::CLUSTER: names::object_name(&task.cluster),
            keys::MANAGED_JOB: object::meta(&self.object, "name"),
            keys::TASK: index.to_string(), keys::ATTEMPT: task.attempt.to_string(),
        })
    }
}

/// `SKYPILOT_TASK_ID` of a task, `sky-managed-TIMESTAMP_NAME_JOBID-TASK`: the same in all attempts.
pub(crate) fn task_id(job: &ManagedJob, file: &JobFile, index: usize) -> String {
    let asked = file.tasks.get(index).map(|task| task.name.as_str()).unwrap_or_default();
    let name = if asked.is_empty() { &job.spec.name } else { asked };
    format!("sky-managed-{}_{name}_{}-{index}", file.submitted, job.spec.id)
}

/// The variables that a managed job adds to those of each task, without [`task_id`].
pub(crate) fn task_environment(job: &ManagedJob, file: &JobFile) -> BTreeMap<String, String> {
    let id = job.spec.id.to_string();
    let ids = |index: usize| task_id(job, file, index);
    let mut env = match job.spec.replica {
        Some(_) => vec![("SKYPILOT_SERVE_REPLICA_ID", id)],
        None => vec![
            ("SKYPILOT_TASK_IDS", (0..file.tasks.len()).map(ids).collect::<Vec<_>>().join("\n")),
            ("SKYPILOT_MANAGED_JOB_ID", id.clone()),
            ("SKYPILOT_ROOT_JOB_ID", id),
            ("SKYPILOT_NUM_JOBS", file.count.max(1).to_string()),
            ("SKYPILOT_JOB_RANK", job.spec.rank.to_string()),
        ],
    };
    if job.spec.group {
        env.push(("SKYPILOT_JOBGROUP_NAME", job.spec.name.clone()));
    }
    env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Notes the end of the latest attempt, unless that is done.
pub(super) fn close(task: &mut ManagedTask, ground: Ground, evidence: &str, at: Whereabouts, now: Timestamp) {
    let Some(attempt) = task.attempts.last_mut().filter(|attempt| attempt.ended_at.is_empty()) else { return };
    at.note(attempt);
    if at.capacity.is_some() {
        task.capacity = at.capacity;
    }
    attempt.ended_at = now.to_string();
    attempt.ground = ground;
    evidence.clone_into(&mut attempt.evidence);
    if let Ok(ran) = attempt.ran_at.parse::<Timestamp>() {
        task.ran_secs = task.ran_secs.saturating_add(now.duration_since(ran).as_secs());
    }
    task.asked_at.clear();
}

/// A task whose latest attempt is over, by a verdict that does not let it go on.
pub(super) fn closed(
    task: &ManagedTask,
    recovery: &JobRecovery,
    verdict: Ruling,
    at: Whereabouts,
    now: Timestamp,
) -> Turn {
    let mut turn = Turn::of(task);
    let next = &mut turn.task;
    let end = |next: &mut ManagedTask, state: State, message: &str| {
        next.state = state;
        message.clone_into(&mut next.message);
        next.ended_at = now.to_string();
    };
    let region = at.region.clone();
    let (ground, evidence) = match &verdict {
        Ruling::GoesOn { .. } | Ruling::Ask => return turn,
        Ruling::Succeeded => (Ground::Exited, "all ranks exited with 0"),
        Ruling::Failed { evidence, .. } => (Ground::Exited, evidence.as_str()),
        Ruling::Lost { evidence, .. } => (Ground::MachinesLost, evidence.as_str()),
        Ruling::Interrupted { evidence } => (Ground::Interrupted, evidence.as_str()),
        Ruling::Removed { evidence } | Ruling::Cancelled { evidence } => (Ground::Asked, evidence.as_str()),
        Ruling::NoRoom { ground, evidence } => (*ground, evidence.as_str()),
        Ruling::Refused { evidence } => (Ground::Refused, evidence.as_str()),
    };
    close(next, ground, evidence, at, now);
    match verdict {
        Ruling::GoesOn { .. } | Ruling::Ask => {}
        Ruling::Succeeded => end(next, State::Succeeded, ""),
        Ruling::Cancelled { evidence } => end(next, State::Cancelled, &evidence),
        Ruling::Failed { in_setup, ref exits, ref evidence } => {
            let known = Some(exits.as_slice()).filter(|exits| !exits.is_empty());
            let again = restarts(recovery, task.restarts, known);
            match again {
                Restart::No => end(next, if in_setup { State::FailedSetup } else { State::Failed }, evidence),
                Restart::Counted | Restart::Free => {
                    recovers(next, evidence);
                    // its machines are well
                    next.is_kept = true;
                    if again == Restart::Counted {
                        next.restarts = task.restarts.saturating_add(1);
                    }
                }
            }
        }
        Ruling::Lost { ref evidence, .. } | Ruling::Interrupted { ref evidence } | Ruling::Removed { ref evidence }
            if recovery.strategy == JobStrategy::None =>
        {
            end(next, State::Failed, &format!("{evidence}; the job is not started again because job_recovery is none"));
        }
        Ruling::Lost { all, ref evidence } => {
            recovers(next, evidence);
            next.is_kept = !all;
            next.lost_at = region;
        }
        Ruling::Interrupted { ref evidence } => {
            recovers(next, evidence);
            // its machines are there again
            next.is_kept = true;
        }
        Ruling::Removed { ref evidence } => recovers(next, evidence),
        Ruling::NoRoom { ground: Ground::Refused, ref evidence } if task.failures.saturating_add(1) >= REFUSALS_MAX => {
            refused(next, evidence, end);
        }
        Ruling::NoRoom { ref evidence, .. } => {
            next.state = State::Pending;
            next.failures = task.failures.saturating_add(1);
            let pause = pause(next.failures);
            next.not_before = api::time::later_secs(now, pause).to_string();
            let places = next.capacity.as_ref().map(|wanted| wanted.places.as_slice()).unwrap_or_default();
            next.message = format!("{evidence}\n{}", waits_for(places, &next.not_before));
            turn = turn.after(SignedDuration::from_secs(pause));
        }
        Ruling::Refused { ref evidence } => refused(next, evidence, end),
    }
    turn
}

/// A task that no place takes: it could never run, or it cannot any more.
fn refused(next: &mut ManagedTask, evidence: &str, end: impl Fn(&mut ManagedTask, State, &str)) {
    let state = if next.started_at.is_empty() { State::FailedPrechecks } else { State::FailedNoResource };
    end(next, state, evidence);
}

fn recovers(next: &mut ManagedTask, evidence: &str) {
    next.state = State::Recovering;
    next.recoveries = next.recoveries.saturating_add(1);
    evidence.clone_into(&mut next.message);
    next.is_kept = false;
}
