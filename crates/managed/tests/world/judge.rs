//! What must always hold.

use crate::cloud::ZONES;
use crate::jobs::{Asked, Kind, Of, Sim, job_target, later, read};
use crate::runs::Run;
use api::object;
use api::sky::{Ground, ManagedJob, ManagedState as State, ManagedTask, keys, machine_gvk, managed_job_gvk};
use jiff::Timestamp;
use reconcile::World;
use std::collections::BTreeSet;

/// Seconds for which a job may wait while there are machines for it.
const WAITS: i64 = 60;
/// Seconds after which a task that is to end at least begins to.
const ENDS: i64 = 60;
/// Seconds for which a machine may outlive its job.
const OUTLIVES: i64 = 600;

/// `3`, or `3.1` for a further task.
fn shown((job, task): Of) -> String {
    if task == 0 { job.to_string() } else { format!("{job}.{task}") }
}

impl Sim {
    /// What must hold of a job whenever it changes.
    pub fn judge(&mut self, id: u32) -> Result<(), String> {
        let now: ManagedJob = read(&self.model.get(&managed_job_gvk(), &job_target(id).key).expect("a job"));
        let before = self.last.insert(id, now.clone());
        for (index, task) in now.status.tasks.iter().enumerate() {
            self.judge_task((id, index), before.as_ref().and_then(|job| job.status.tasks.get(index)), task)?;
        }
        self.judge_group(id, &now)?;
        let has_ended = |job: &ManagedJob| {
            job.status.state.has_ended() && job.status.tasks.iter().all(|task| task.state.has_ended())
        };
        if has_ended(&now) && !before.as_ref().is_some_and(has_ended) {
            self.ended.insert(id, self.model.now);
            match now.status.state {
                State::Succeeded => self.sum.succeeded += 1,
                State::Cancelled => self.sum.cancelled += 1,
                State::FailedNoResource => self.sum.stopped += 1,
                _ => self.sum.failed += 1,
            }
        }
        Ok(())
    }

    fn judge_task(&mut self, of: Of, was: Option<&ManagedTask>, task: &ManagedTask) -> Result<(), String> {
        let id = shown(of);
        let old = was.map_or(State::Pending, |task| task.state);
        if old.has_ended() && task.state != old {
            return Err(format!("job {id} was {} and is {}", old.as_str(), task.state.as_str()));
        }
        if !is_recorded(old, task.state) {
            return Err(format!("job {id} went from {} to {}", old.as_str(), task.state.as_str()));
        }
        let was_told = |number: u32| was.and_then(|task| task.attempts.iter().find(|one| one.number == number));
        for attempt in task.attempts.iter().filter(|one| !one.ended_at.is_empty()) {
            if was_told(attempt.number).is_none_or(|before| before.ended_at.is_empty()) {
                self.judge_ground(of, attempt)?;
            }
        }
        if was.is_some_and(|was| {
            task.recoveries < was.recoveries || task.restarts < was.restarts || task.attempt < was.attempt
        }) {
            return Err(format!("job {id} forgets: {task:?}"));
        }
        let counted = task.restarts > self.asked(of).max_restarts;
        let endless = self.failed.get(&of).is_some_and(|failed| *failed > 40);
        if counted || endless || self.has_unpaid_restart(of, task) {
            return Err(format!("job {id} was started again {} times after its code failed: {task:?}", task.restarts));
        }
        if task.state.has_ended() && !old.has_ended() {
            self.judge_end(of, task)?;
            self.sum.recoveries += u64::from(task.recoveries);
            if task.state == State::Succeeded {
                let asked = self.asked(of);
                self.sum.work_secs += asked.work * i64::try_from(asked.nodes).unwrap_or(1);
            }
        }
        Ok(())
    }

    /// When all primary tasks of a group have ended; `None`: they have not, or it is none.
    fn primaries_ended(&self, id: u32, job: &ManagedJob) -> Option<Timestamp> {
        let asked = self.jobs[&id].tasks().zip(&job.status.tasks);
        let primary = asked.filter(|(asked, _)| asked.auxiliary.is_none()).map(|(_, task)| task);
        let ended = primary.map(|task| if task.state.has_ended() { task.ended_at.parse().ok() } else { None });
        ended.collect::<Option<Vec<Timestamp>>>()?.into_iter().max().filter(|_| self.jobs[&id].kind == Kind::Group)
    }

    /// Auxiliary tasks end with the primary ones, after their delay.
    fn judge_group(&self, id: u32, job: &ManagedJob) -> Result<(), String> {
        let Some(ended) = self.primaries_ended(id, job) else { return Ok(()) };
        for (index, task) in job.status.tasks.iter().enumerate() {
            let Some(delay) = self.asked((id, index)).auxiliary else { continue };
            let until = later(later(ended, i64::from(delay)).max(self.dark_until), ENDS);
            if self.model.now > until && !task.state.has_ended() && task.state != State::Cancelling {
                let state = task.state.as_str();
                return Err(format!(
                    "job {id}.{index} is {state}, and its primary tasks ended at {ended}, delay {delay}"
                ));
            }
        }
        Ok(())
    }

    /// Tasks of a pipeline begin one after another, those of a group together.
    pub fn judge_begins(&self) -> Result<(), String> {
        let now = self.model.now;
        for run in self.runs.iter().filter(|run| run.began == now) {
            let ((id, task), asked) = (run.of, &self.jobs[&run.of.0]);
            let Some(job) = self.last.get(&id) else { continue };
            let others = asked.tasks().enumerate().filter(|(index, _)| *index != task);
            let is_first = !self.runs.iter().any(|one| one.of.0 == id && one.began < now);
            for (index, other) in others {
                let state = job.status.tasks.get(index).map_or(State::Pending, |task| task.state);
                let wrong = match asked.kind {
                    Kind::Pipeline => index < task && self.done.get(&(id, index)) != Some(&other.work),
                    Kind::Group => is_first && !state.has_ended() && !self.has_set((id, index)),
                };
                if wrong {
                    return Err(format!("job {id}.{task} begins at {now} although {id}.{index} is {}", state.as_str()));
                }
            }
        }
        Ok(())
    }

    /// Whether a job of the task is on its cluster.
    fn has_set(&self, (id, task): Of) -> bool {
        let (job, task) = (format!("job-{id}"), task.to_string());
        self.model.all("JobSet").iter().any(|set| {
            object::label(set, keys::MANAGED_JOB) == Some(&job) && object::label(set, keys::TASK) == Some(&task)
        })
    }

    /// Whether it goes on after a failure for which nothing was counted.
    fn has_unpaid_restart(&self, of: Of, task: &ManagedTask) -> bool {
        let asked = self.asked(of);
        let seen = self.failed.get(&of).copied().unwrap_or(0);
        let counted = asked.fails.iter().take(seen).filter(|(_, code)| !asked.codes.contains(code)).count();
        // the last one may not have been judged yet, and a lost machine may explain any of them
        let explained =
            task.attempts.iter().filter(|one| matches!(one.ground, Ground::MachinesLost | Ground::Asked)).count();
        let open = 1;
        !task.state.has_ended() && counted > usize::try_from(task.restarts).unwrap_or(0) + explained + open
    }

    /// Whether the ground of an attempt's end is true.
    fn judge_ground(&mut self, of: Of, attempt: &api::sky::JobAttempt) -> Result<(), String> {
        let id = of.0;
        let run = self.runs.iter().find(|run| run.of == of && run.attempt == attempt.number);
        let named = shown(of);
        let wrong = |what: &str| Err(format!("job {named}, attempt {}: {what}: {}", attempt.number, attempt.evidence));
        let asked = &self.jobs[&id];
        match attempt.ground {
            Ground::MachinesLost => {
                // one that was replaced already has its name again
                let is_taken = match run.filter(|run| !run.tokens.is_empty()) {
                    Some(run) => run.tokens.iter().any(|token| self.cloud.taken.contains_key(token)),
                    None => {
                        let name = attempt.evidence.split_whitespace().nth(6).unwrap_or_default().trim_end_matches(':');
                        self.cloud.taken.values().any(|taken| taken.node == name)
                    }
                };
                if !is_taken {
                    return wrong("its machine is well");
                }
                if run.is_some_and(|run| {
                    !run.tokens.is_empty() && run.tokens.iter().any(|token| self.cloud.machine(token).is_some())
                }) {
                    self.sum.replaced += 1;
                }
                Ok(())
            }
            Ground::Exited => match run.and_then(|run| run.exited) {
                None => wrong("its processes have not exited"),
                Some((_, 143)) => {
                    let machines = self.model.all("Machine");
                    let its = machines
                        .iter()
                        .filter(|one| one["spec"]["cluster"] == managed::names::object_name(&attempt.cluster));
                    let states: Vec<String> = its
                        .map(|one| {
                            let is_there = self.cloud.machine(object::uid(one)).is_some();
                            format!("{} there={is_there} {}", object::meta(one, "name"), one["status"])
                        })
                        .collect();
                    wrong(&format!("its machine was lost, and its code is blamed: {} {run:?}", states.join("; ")))
                }
                Some(_) => Ok(()),
            },
            Ground::Asked => {
                let is_asked = asked.cancel.is_some_and(|at| at <= self.model.now)
                    || asked.downed.contains(&managed::names::object_name(&attempt.cluster));
                if is_asked { Ok(()) } else { wrong("nobody asked for its end") }
            }
            Ground::NoCapacity | Ground::None => Ok(()),
            Ground::Budget => {
                let is_halted = self.last.get(&id).is_some_and(|job| !job.spec.halted.is_empty());
                if is_halted { Ok(()) } else { wrong("no budget stops it") }
            }
            Ground::Group => {
                let job = self.last.get(&id);
                let delay = self.asked(of).auxiliary.map(i64::from);
                let ended = job.and_then(|job| self.primaries_ended(id, job)).zip(delay);
                let is_due = ended.is_some_and(|(ended, delay)| later(ended, delay) <= self.model.now);
                let has_failed = job.is_some_and(|job| job.status.tasks.iter().any(|task| task.state.is_failed()));
                let has_begun = self.runs.iter().any(|run| run.of.0 == id);
                if is_due || has_failed && !has_begun { Ok(()) } else { wrong("its group goes on") }
            }
            Ground::Interrupted => wrong("no supervisor was killed"),
            Ground::Refused => wrong("nothing was refused"),
        }
    }

    /// Whether a job ended as it had to.
    fn judge_end(&self, of: Of, task: &ManagedTask) -> Result<(), String> {
        let (id, asked) = (of.0, self.asked(of));
        let cancels = self.jobs[&id].cancel.is_some_and(|at| at <= self.model.now);
        let before = self.last.get(&id).and_then(|job| job.status.tasks.get(..of.1)).unwrap_or_default();
        let follows = before.iter().any(|task| task.state.has_ended() && task.state != State::Succeeded);
        let by_group = task.attempts.last().is_none_or(|attempt| attempt.ground == Ground::Group);
        let well = match task.state {
            State::Succeeded => self.done.get(&of) == Some(&asked.work),
            State::Cancelled => {
                cancels
                    || match self.jobs[&id].kind {
                        Kind::Pipeline => follows,
                        Kind::Group => by_group,
                    }
            }
            State::FailedNoResource => self.last.get(&id).is_some_and(|job| !job.spec.halted.is_empty()),
            State::Failed => {
                let seen = self.failed.get(&of).copied().unwrap_or(0);
                seen > 0 && !asked.fails.get(seen - 1).is_some_and(|(_, code)| asked.codes.contains(code))
            }
            _ => false,
        };
        if well { Ok(()) } else { Err(format!("job {} ended as {}: {task:?}", shown(of), task.state.as_str())) }
    }

    /// No two attempts of a task at a time.
    pub fn judge_runs(&self) -> Result<(), String> {
        let of = |(id, job): (&u32, &Asked)| (0..=job.more.len()).map(|task| (*id, task)).collect::<Vec<Of>>();
        for of in self.jobs.iter().flat_map(of) {
            let id = shown(of);
            let live: Vec<&Run> = self.runs.iter().filter(|run| run.of == of && self.is_live(run)).collect();
            if live.len() > 1 {
                let names: Vec<&str> = live.iter().map(|run| run.set.as_str()).collect();
                return Err(format!("job {id} runs twice: {}", names.join(" and ")));
            }
            let late = self.ended.get(&of.0).is_some_and(|ended| live.iter().any(|run| run.began > *ended));
            if late {
                return Err(format!("job {id} runs after its end"));
            }
        }
        Ok(())
    }

    /// No job waits for long while machines for it are free.
    pub fn judge_waiting(&mut self) -> Result<(), String> {
        let Some(hosts) = self.cloud.hosts else { return Ok(()) };
        let now = self.model.now;
        let machines = self.model.list(&machine_gvk(), None);
        let free: Vec<usize> = (0..ZONES)
            .map(|zone| {
                // the control plane has to notice that a machine is gone before another one can be in its place
                let named = machines.iter().filter(|one| one["spec"]["candidate"]["region"] == format!("z{zone}"));
                let shown = named.filter(|one| one["status"].get("id").is_some()).map(|one| object::uid(one));
                let taken: BTreeSet<&str> = shown.chain(self.cloud.made_at(zone)).collect();
                if self.cloud.is_dark(zone, now) { 0 } else { hosts[zone].saturating_sub(taken.len()) }
            })
            .collect();
        for (id, job) in &self.last {
            let task = job.status.tasks.first();
            let waits = task.is_some_and(|task| task.state == State::Pending && task.failures > 0);
            // what is left of its latest attempt may be out of reach
            let is_fenced =
                !machines.iter().any(|one| object::meta(one, "name").starts_with(&format!("train-{id}-0-")));
            let fits = is_fenced && free.iter().any(|free| *free >= self.jobs[id].nodes);
            if !waits || !fits {
                self.idle.remove(id);
                continue;
            }
            let since = *self.idle.entry(*id).or_insert(now);
            if now > later(since, WAITS) {
                let what = format!("{free:?} machines are free since {since}, and it needs {}", self.jobs[id].nodes);
                return Err(format!("job {id} waits at {now}: {what}: {:?}; {}", job.status, self.left()));
            }
        }
        Ok(())
    }

    /// No machine outlives its job for long, unless nobody reaches it.
    pub fn outlived(&self) -> Result<(), String> {
        let now = self.model.now;
        for (id, ended) in &self.ended {
            let until = later((*ended).max(self.dark_until), OUTLIVES);
            let name = format!("train-{id}-");
            let machines = self.model.all("Machine");
            let left = machines.iter().find(|machine| object::meta(machine, "name").starts_with(&name));
            if let Some(machine) = left.filter(|_| now > until) {
                let made = self.cloud.machine(object::uid(machine));
                let status = &machine["status"];
                let what = format!("{made:?} {status} ending={} since {ended}", object::is_terminating(machine));
                return Err(format!(
                    "machine {} outlives job {id}: {what}; {}",
                    object::meta(machine, "name"),
                    self.left()
                ));
            }
        }
        Ok(())
    }
}

/// Whether the recorded graph of states has a way from one to the other in one decision.
fn is_recorded(from: State, to: State) -> bool {
    use State::{Cancelled, Cancelling, Failed, Pending, Recovering, Running, Starting, Succeeded};
    from == to
        || match from {
            Pending => matches!(to, Starting | Recovering | Cancelling | Cancelled | Succeeded) || to.is_failed(),
            Starting | Recovering => {
                matches!(to, Pending | Running | Recovering | Cancelling | Cancelled | Succeeded) || to.is_failed()
            }
            Running => {
                matches!(to, Recovering | Pending | Cancelling | Cancelled | Succeeded | Failed) || to.is_failed()
            }
            Cancelling => matches!(to, Cancelled | State::FailedNoResource),
            _ => false,
        }
}
