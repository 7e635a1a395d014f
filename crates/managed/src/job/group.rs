//! Job groups: tasks that start together, reach one another by name, and end together.
//!
//! Each task has its own cluster, and its job there is held once it is set up. When the jobs of all tasks are ready, all are released, with the
//! addresses of all machines. A task that is started again does not wait for the others; they get the addresses of its new machines.

use super::observed::{Observed, Own};
use super::{Turn, soonest};
use crate::jobs::{is_ready, released};
use api::object::{self, Target};
use api::sky::{Ground, JobFile, JobTask, ManagedState as State, ManagedTask, keys};
use jiff::Timestamp;
use reconcile::{Decision, Next, Op, PatchBody, Write};
use serde_json::{Value, json};
use std::sync::Arc;

/// The state of a group that all its tasks need in one decision.
struct Group<'a> {
    file: &'a JobFile,
    tasks: &'a [ManagedTask],
    /// Addresses and names of all machines, as in [`keys::HOSTS`].
    hosts: String,
    /// Whether the code of one of its tasks has run.
    has_started: bool,
    /// Names of the tasks that are not ready to start.
    missing: Vec<&'a str>,
}

fn name(file: &JobFile, index: usize) -> &str {
    file.tasks.get(index).map(|task| task.name.as_str()).unwrap_or_default()
}

/// `a`, `a and b`, `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names.split_last() {
        None => String::new(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

impl Observed {
    /// The next step of each task of a group.
    pub(super) fn group(&self, file: &JobFile, before: &[ManagedTask], now: Timestamp) -> Decision {
        let group = Group {
            file,
            tasks: before,
            hosts: self.hosts(file, before),
            has_started: before.iter().any(|task| !task.started_at.is_empty()),
            missing: self.missing(file, before),
        };
        let (mut tasks, mut writes, mut next) = (Vec::new(), Vec::new(), Next::AwaitChange);
        for (index, task) in before.iter().enumerate() {
            let turn = match task.state.has_ended() {
                true => self.left(task, index, now),
                false => self.turn_in_group(&group, task, index, now),
            };
            tasks.push(turn.task);
            writes.extend(turn.writes);
            next = soonest(next, turn.next);
        }
        self.told(tasks, writes, next)
    }

    fn turn_in_group(&self, group: &Group<'_>, task: &ManagedTask, index: usize, now: Timestamp) -> Turn {
        if self.job.is_ending() {
            return self.cancelled(task, index, now);
        }
        let end = group.end(index);
        if let Some((_, why)) = end.as_ref().filter(|(due, _)| *due <= now) {
            return self.ends(task, index, (State::Cancelled, Ground::Group, why), now);
        }
        let mut turn = self.together(group, self.turn(group.file, task, index, now));
        if let Some((due, _)) = end {
            turn.next = soonest(turn.next, Next::After(due.duration_since(now)));
        }
        turn
    }

    /// Releases the job of a task that is held, if all are ready, and tells one that runs where the machines of the others are now.
    fn together(&self, group: &Group<'_>, mut turn: Turn) -> Turn {
        let Some((own, job)) = self.current(&turn.task).filter(|_| turn.task.open_attempt().is_some()) else {
            return turn;
        };
        if job.status.has_ended() {
            return turn;
        }
        if !job.is_held {
            turn.writes.extend(own.told(&group.hosts));
            return turn;
        }
        if !is_ready(job) {
            return turn;
        }
        if group.has_started || group.missing.is_empty() {
            turn.writes.push(Op::Update { object: released(&job.run, &group.hosts) }.into());
            return turn;
        }
        let (plural, verb) = if group.missing.len() == 1 { ("task", "is") } else { ("tasks", "are") };
        turn.says(format!("it is set up; its run starts when {plural} {} {verb} set up, too", listed(&group.missing)))
    }

    /// Addresses and names of the machines of all tasks.
    fn hosts(&self, file: &JobFile, tasks: &[ManagedTask]) -> String {
        let mut lines = Vec::new();
        for (index, task) in tasks.iter().enumerate().filter(|(_, task)| !task.state.has_ended()) {
            let nodes = self.cluster(&task.cluster).map(|own| own.cluster.status.nodes.as_slice()).unwrap_or_default();
            for (node, rank) in nodes.iter().zip(0..).filter(|(node, _)| !node.address.is_empty()) {
                let name = sky::group::host(&self.job.spec.name, name(file, index), rank);
                lines.push(format!("{} {name}", node.address));
            }
        }
        lines.join("\n")
    }

    /// The tasks whose jobs are neither ready nor released.
    fn missing<'a>(&self, file: &'a JobFile, tasks: &[ManagedTask]) -> Vec<&'a str> {
        let is_there = |task: &ManagedTask| self.current(task).is_some_and(|(_, job)| !job.is_held || is_ready(job));
        let missing = tasks.iter().enumerate().filter(|(_, task)| !task.state.has_ended() && !is_there(task));
        missing.map(|(index, _)| name(file, index)).collect()
    }

    /// The state of a group: that of its primary tasks. While others end after them, it is winding down.
    pub(super) fn state_of_group(&self, tasks: &[State]) -> Option<State> {
        let file = self.file.as_ref()?.as_ref().ok()?;
        let all = file.tasks.iter().zip(tasks);
        let primary: Vec<State> = all.filter(|(asked, _)| asked.auxiliary.is_none()).map(|(_, state)| *state).collect();
        match super::state_of(&primary) {
            _ if primary.is_empty() => None,
            state if state.has_ended() && !tasks.iter().all(|state| state.has_ended()) => Some(State::WindingDown),
            state => Some(state),
        }
    }
}

impl Group<'_> {
    /// When the group ends a task that has not ended, and why; `None`: it does not end it now.
    fn end(&self, index: usize) -> Option<(Timestamp, String)> {
        if let Some(failed) = self.tasks.iter().position(|task| task.state.is_failed()).filter(|_| !self.has_started) {
            let why = format!(
                "task {} of its group failed before the group started, so this task was cancelled",
                name(self.file, failed)
            );
            return Some((Timestamp::MIN, why));
        }
        let delay = self.file.tasks.get(index)?.auxiliary?;
        let is_primary = |(asked, _): &(&JobTask, &ManagedTask)| asked.auxiliary.is_none();
        let mut ended = Timestamp::MIN;
        for (_, task) in self.file.tasks.iter().zip(self.tasks).filter(is_primary) {
            if !task.state.has_ended() {
                return None;
            }
            ended = ended.max(task.ended_at.parse().unwrap_or(Timestamp::MIN));
        }
        let why = "all primary tasks of its group have ended".to_owned();
        Some((api::time::later_secs(ended, i64::from(delay)), why))
    }
}

impl Own {
    /// Updates the addresses of the group in its running pods.
    fn told(&self, hosts: &str) -> Vec<Write> {
        let is_old = |pod: &&Arc<Value>| {
            !object::has_ended(pod) && object::annotation(pod, keys::HOSTS).is_some_and(|told| told != hosts)
        };
        let body = json!({"metadata": {"annotations": {keys::HOSTS: hosts}}});
        let patched = |pod: &Arc<Value>| {
            let target = Target::of(pod);
            Op::Patch { target, subresource: None, body: PatchBody::Merge(body.clone()) }.into()
        };
        self.pods.iter().filter(is_old).map(patched).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed() {
        assert_eq!(listed(&["a"]), "a");
        assert_eq!(listed(&["a", "b"]), "a and b");
        assert_eq!(listed(&["a", "b", "c"]), "a, b and c");
    }
}
