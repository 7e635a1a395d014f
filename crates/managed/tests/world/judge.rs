//! What must always hold.

use crate::cloud::ZONES;
use crate::jobs::{Run, Sim, job_target, later, read};
use api::object;
use api::sky::{Ground, ManagedJob, ManagedState as State, machine_gvk, managed_job_gvk};
use reconcile::World;
use std::collections::BTreeSet;

/// Seconds for which a job may wait while there are machines for it.
const WAITS: i64 = 60;
/// Seconds for which a machine may outlive its job.
const OUTLIVES: i64 = 600;

impl Sim {
    /// What must hold of a job whenever it changes.
    pub fn judge(&mut self, id: u32) -> Result<(), String> {
        let now: ManagedJob = read(&self.model.get(&managed_job_gvk(), &job_target(id).key).expect("a job"));
        let before = self.last.insert(id, now.clone());
        let Some(task) = now.status.tasks.first() else { return Ok(()) };
        let was = before.as_ref().and_then(|job| job.status.tasks.first());
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
                self.judge_ground(id, attempt)?;
            }
        }
        if was.is_some_and(|was| {
            task.recoveries < was.recoveries || task.restarts < was.restarts || task.attempt < was.attempt
        }) {
            return Err(format!("job {id} forgets: {task:?}"));
        }
        let counted = task.restarts > self.jobs[&id].max_restarts;
        let endless = self.failed.get(&id).is_some_and(|failed| *failed > 40);
        if counted || endless || self.has_unpaid_restart(id, task) {
            return Err(format!("job {id} was started again {} times after its code failed: {task:?}", task.restarts));
        }
        if task.state.has_ended() && !old.has_ended() {
            self.ended.insert(id, self.model.now);
            self.judge_end(id, task)?;
            self.sum.recoveries += u64::from(task.recoveries);
            match task.state {
                State::Succeeded => {
                    self.sum.succeeded += 1;
                    self.sum.work_secs += self.jobs[&id].work * i64::try_from(self.jobs[&id].nodes).unwrap_or(1);
                }
                State::Cancelled => self.sum.cancelled += 1,
                State::FailedNoResource => self.sum.stopped += 1,
                _ => self.sum.failed += 1,
            }
        }
        Ok(())
    }

    /// Whether it goes on after a failure for which nothing was counted.
    fn has_unpaid_restart(&self, id: u32, task: &api::sky::ManagedTask) -> bool {
        let asked = &self.jobs[&id];
        let seen = self.failed.get(&id).copied().unwrap_or(0);
        let counted = asked.fails.iter().take(seen).filter(|(_, code)| !asked.codes.contains(code)).count();
        // the last one may not have been judged yet, and a lost machine may explain any of them
        let explained =
            task.attempts.iter().filter(|one| matches!(one.ground, Ground::MachinesLost | Ground::Asked)).count();
        let open = 1;
        !task.state.has_ended() && counted > usize::try_from(task.restarts).unwrap_or(0) + explained + open
    }

    /// Whether the ground of an attempt's end is true.
    fn judge_ground(&mut self, id: u32, attempt: &api::sky::JobAttempt) -> Result<(), String> {
        let run = self.runs.iter().find(|run| run.job == id && run.attempt == attempt.number);
        let wrong = |what: &str| Err(format!("job {id}, attempt {}: {what}: {}", attempt.number, attempt.evidence));
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
            Ground::Group => wrong("it is in no group"),
            Ground::Interrupted => wrong("no supervisor was killed"),
            Ground::Refused => wrong("nothing was refused"),
        }
    }

    /// Whether a job ended as it had to.
    fn judge_end(&self, id: u32, task: &api::sky::ManagedTask) -> Result<(), String> {
        let asked = &self.jobs[&id];
        let cancels = asked.cancel.is_some_and(|at| at <= self.model.now);
        let well = match task.state {
            State::Succeeded => self.done.get(&id) == Some(&asked.work),
            State::Cancelled => cancels,
            State::FailedNoResource => self.last.get(&id).is_some_and(|job| !job.spec.halted.is_empty()),
            State::Failed => {
                let seen = self.failed.get(&id).copied().unwrap_or(0);
                seen > 0 && !asked.fails.get(seen - 1).is_some_and(|(_, code)| asked.codes.contains(code))
            }
            _ => false,
        };
        if well { Ok(()) } else { Err(format!("job {id} ended as {}: {task:?}", task.state.as_str())) }
    }

    /// No two attempts of a task at a time.
    pub fn judge_runs(&self) -> Result<(), String> {
        for id in self.jobs.keys() {
            let live: Vec<&Run> = self.runs.iter().filter(|run| run.job == *id && self.is_live(run)).collect();
            if live.len() > 1 {
                let names: Vec<&str> = live.iter().map(|run| run.set.as_str()).collect();
                return Err(format!("job {id} runs twice: {}", names.join(" and ")));
            }
            let late = self.ended.get(id).is_some_and(|ended| live.iter().any(|run| run.began > *ended));
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
            let name = format!("train-{id}-0-");
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
