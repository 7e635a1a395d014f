//! Callbacks of tasks: their pods, and in which order they run.

use crate::bugs::Bug;
use crate::jobs::{Of, Sim, job_target, later};
use api::object::{self, Gvk, Key, Target};
use api::sky::keys;
use managed::callbacks::CallbackController;
use reconcile::{Propagation, World};

fn pods() -> Gvk {
    Gvk::new("", "v1", "Pod")
}

impl Sim {
    /// One look of the controller of callbacks at a job.
    pub fn call_back(&mut self, id: u32) {
        if self.jobs[&id].calls {
            self.reconcile(&CallbackController, &job_target(id));
        }
    }

    /// The pods of callbacks begin and end. Each event has one, and they run in the order of the events.
    pub fn run_callbacks(&mut self) -> Result<(), String> {
        let now = self.model.now;
        let its = |pod: &std::sync::Arc<serde_json::Value>| object::label(pod, keys::CALLBACK).is_some();
        for pod in self.model.list(&pods(), None).into_iter().filter(its) {
            let uid = object::uid(&pod).to_owned();
            let name = object::meta(&pod, "name");
            let Some(ends) = self.calling.get(&uid).copied() else {
                let (of, number) = parsed(name).ok_or_else(|| format!("{name} is no callback"))?;
                let last = self.called.insert(of, number).unwrap_or(0);
                if number <= last {
                    return Err(format!("callback {number} of job {}.{} runs after callback {last}", of.0, of.1));
                }
                let ends = later(now, self.chance.secs(1, 20));
                self.timers.insert(ends);
                self.calling.insert(uid, ends);
                continue;
            };
            if ends <= now && !object::has_ended(&pod) {
                let phase = if self.chance.percent(90) { "Succeeded" } else { "Failed" };
                self.model.change(&pods(), &Key::of(&pod), |pod| pod["status"]["phase"] = phase.into());
                if self.bug == Bug::CallbackRemoved {
                    self.model.delete(&Target::of(&pod), Propagation::Background, None);
                }
            }
        }
        Ok(())
    }

    /// Whether all events of all jobs have had their callbacks.
    pub fn has_called_back(&self) -> bool {
        self.last.iter().filter(|(id, _)| self.jobs[id].calls).all(|(id, _)| {
            let job = self.model.get(&job_target(*id).gvk, &job_target(*id).key).expect("a job");
            let tasks = job["status"]["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
            tasks.iter().enumerate().all(|(index, task)| {
                let last = task["events"].as_array().and_then(|all| all.last()).map_or(0, |one| number(&one["number"]));
                number(&job["status"]["callbacks"][index]["lastEvent"]) == last
            })
        })
    }

    /// Whether every event had a callback, at the end.
    pub fn judge_callbacks(&self) -> Result<(), String> {
        for (id, job) in self.last.iter().filter(|(id, _)| self.jobs[id].calls) {
            for (index, task) in job.status.tasks.iter().enumerate() {
                let last = task.events.last().map_or(0, |event| event.number);
                let called = self.called.get(&(*id, index)).copied().unwrap_or(0);
                if u64::from(called) != u64::from(last) {
                    return Err(format!("job {id}.{index} has {last} events, and callback {called} was the last"));
                }
            }
        }
        Ok(())
    }
}

fn number(value: &serde_json::Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// The task and the number of the event of `job-7-0-callback-3`.
fn parsed(name: &str) -> Option<(Of, u32)> {
    let (task, event) = name.strip_prefix("job-")?.split_once("-callback-")?;
    let (job, task) = task.split_once('-')?;
    Some(((job.parse().ok()?, task.parse().ok()?), event.parse().ok()?))
}
