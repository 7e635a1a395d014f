//! Events for callbacks: which changes of a task's state SkyPilot reports, and by which names.

use super::Observed;
use api::sky::{JobTask, ManagedState as State, ManagedTask, TaskEvent};

/// The most events that the status lists. Older ones have no callback.
const EVENTS_MAX: usize = 20;

/// The callback of a task: its script without surrounding blanks, unless it is empty.
pub(crate) fn callback(asked: &JobTask) -> Option<&str> {
    asked.task["event_callback"].as_str().map(str::trim).filter(|script| !script.is_empty())
}

/// The events of a change of a task: `JOB_STATUS` of their callbacks, in their order. A repeated launch has none, and a task that is
/// cancelled before its first launch.
fn statuses(before: &ManagedTask, after: &ManagedTask) -> &'static [&'static str] {
    let never_launched = before.attempt == 0;
    match (before.state, after.state) {
        (from, to) if from == to => &[],
        (_, State::Starting) if never_launched => &["SUBMITTED", "STARTING"],
        (_, State::Pending | State::Submitted | State::Starting | State::WindingDown) => &[],
        (State::Recovering, State::Running) => &["RECOVERED"],
        (_, State::Running) => &["STARTED"],
        // the pause after a recovery that found no machines
        (State::Pending, State::Recovering) => &[],
        (_, State::Recovering) => &["RECOVERING"],
        // it has nothing to run
        (_, State::Succeeded) if never_launched => &["STARTED", "SUCCEEDED"],
        (_, State::Succeeded) => &["SUCCEEDED"],
        (_, State::Cancelling | State::Cancelled) if never_launched => &[],
        (_, State::Cancelling) => &["CANCELLING"],
        (State::Cancelling, State::Cancelled) => &["CANCELLED"],
        (_, State::Cancelled) => &["CANCELLING", "CANCELLED"],
        (
            _,
            State::Failed
            | State::FailedSetup
            | State::FailedPrechecks
            | State::FailedNoResource
            | State::FailedController,
        ) => &["FAILED"],
    }
}

impl Observed {
    /// Adds the events of this decision to tasks that have a callback. Replicas of services and workers of pools have none.
    pub(super) fn note_events(&self, tasks: &mut [ManagedTask]) {
        let Some(Ok(file)) = self.file.as_ref().filter(|_| self.job.spec.replica.is_none()) else { return };
        for ((index, task), asked) in tasks.iter_mut().enumerate().zip(&file.tasks) {
            if callback(asked).is_none() {
                continue;
            }
            let unknown = ManagedTask::default();
            for status in statuses(self.job.status.tasks.get(index).unwrap_or(&unknown), task) {
                let number = task.events.last().map_or(0, |event| event.number).saturating_add(1);
                let cluster = task.cluster.clone();
                task.events.push(TaskEvent { number, status: (*status).to_owned(), cluster });
            }
            let surplus = task.events.len().saturating_sub(EVENTS_MAX);
            task.events.drain(..surplus);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(state: State, attempt: u32) -> ManagedTask {
        ManagedTask { state, attempt, ..ManagedTask::default() }
    }

    #[test]
    fn changes_have_the_names_of_skypilot() {
        use State::{Cancelled, Cancelling, FailedSetup, Pending, Recovering, Running, Starting, Succeeded};
        let cases: [(State, u32, State, &[&str]); 16] = [
            (Pending, 0, Starting, &["SUBMITTED", "STARTING"]),
            (Pending, 1, Starting, &[]),
            (Starting, 1, Pending, &[]),
            (Starting, 1, Running, &["STARTED"]),
            (Running, 1, Running, &[]),
            (Running, 1, Recovering, &["RECOVERING"]),
            (Recovering, 1, Pending, &[]),
            (Pending, 1, Recovering, &[]),
            (Recovering, 2, Running, &["RECOVERED"]),
            (Running, 1, Succeeded, &["SUCCEEDED"]),
            (Pending, 0, Succeeded, &["STARTED", "SUCCEEDED"]),
            (Running, 1, FailedSetup, &["FAILED"]),
            (Running, 1, Cancelling, &["CANCELLING"]),
            (Cancelling, 1, Cancelled, &["CANCELLED"]),
            (Running, 1, Cancelled, &["CANCELLING", "CANCELLED"]),
            (Pending, 0, Cancelled, &[]),
        ];
        for (from, attempt, to, expected) in cases {
            assert_eq!(statuses(&task(from, attempt), &task(to, attempt)), expected, "{from:?} {attempt} {to:?}");
        }
    }
}
