//! How the state of a managed job's task changes, when the task is started again, and which state its tasks give the job.

use api::sky::{JobRecovery, ManagedState};
use thiserror::Error;

/// What happens to a task of a managed job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// Its first attempt begins.
    Start,
    /// Its code runs.
    Started,
    /// Its attempt found no machines and is repeated later.
    Backoff,
    /// Its attempt is repeated because the control plane does not know how far it was.
    Restart,
    /// The same for a task that had been running before.
    RestartRecovering,
    /// Its machines were lost, or its code failed and runs again.
    Recover,
    /// The same, whichever step it is at.
    RecoverForced,
    /// Its code runs again.
    Recovered,
    /// Its code exited with 0.
    Succeeded,
    /// It ends in this state of failure, unless it has ended.
    Failed(ManagedState),
    /// It ends in this state of failure, even if it has ended otherwise.
    FailedAnyway(ManagedState),
    /// A user ends it. It ends at once if it waits for its turn.
    CancelPending,
    /// A user ends it.
    Cancelling,
    /// Its machines are gone because a user ended it.
    Cancelled,
}

/// A task after a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    pub state: ManagedState,
    /// Whether the task recovered: one more in `recoveries`.
    pub is_recovery: bool,
    /// Whether the time of its end is recorded. A task that was cancelled while it waited has none.
    pub has_end: bool,
}

/// A transition that a task's state does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a task that is {} cannot make the transition {transition:?}", from.as_str())]
pub struct NotAllowed {
    pub from: ManagedState,
    pub transition: Transition,
}

impl Transition {
    /// The task after this transition from a state. Where failures and cancellations do not apply, the task stays as it is.
    ///
    /// # Errors
    /// The state does not allow the transition.
    pub fn apply(self, from: ManagedState) -> Result<Moved, NotAllowed> {
        use ManagedState::{Cancelled, Cancelling, Pending, Recovering, Running, Starting, Succeeded, WindingDown};
        let is_open = !from.has_ended();
        let is_active = matches!(from, Pending | Starting | Running | WindingDown | Recovering);
        let to = match self {
            Self::Start => (from == Pending).then_some(Starting),
            Self::Started => matches!(from, Pending | Starting).then_some(Running),
            Self::Backoff => matches!(from, Starting | Recovering).then_some(Pending),
            Self::Restart => is_open.then_some(Starting),
            Self::RestartRecovering => is_open.then_some(Recovering),
            Self::Recover => (from == Running).then_some(Recovering),
            Self::RecoverForced => is_active.then_some(Recovering),
            Self::Recovered => (from == Recovering).then_some(Running),
            Self::Succeeded => matches!(from, Running | WindingDown).then_some(Succeeded),
            Self::Failed(state) => Some(if is_open { state } else { from }),
            Self::FailedAnyway(state) => Some(state),
            Self::CancelPending => Some(if from == Pending { Cancelled } else { from }),
            Self::Cancelling => Some(if is_open { Cancelling } else { from }),
            Self::Cancelled => Some(if from == Cancelling { Cancelled } else { from }),
        };
        let state = to.ok_or(NotAllowed { from, transition: self })?;
        let had_no_turn = self == Self::CancelPending && is_open;
        Ok(Moved { state, is_recovery: self == Self::Recovered, has_end: state.has_ended() && !had_no_turn })
    }
}

/// Whether a task is started again after its own code failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    No,
    /// It is; `max_restarts_on_errors` limits how often.
    Counted,
    /// It is, without a limit: it exited with one of `recover_on_exit_codes`.
    Free,
}

/// Decides about a failure of a task. `exit_codes` has one for each node that reported one; `None`: they are unknown.
pub fn restarts(recovery: &JobRecovery, restarts_so_far: u32, exit_codes: Option<&[i64]>) -> Restart {
    let codes = exit_codes.unwrap_or_default();
    if codes.iter().any(|code| recovery.recover_on_exit_codes.contains(code)) {
        Restart::Free
    } else if restarts_so_far < recovery.max_restarts_on_errors {
        Restart::Counted
    } else {
        Restart::No
    }
}

/// The state of a job: that of its first task that has not ended, or of its last task.
pub fn job_state(tasks: &[ManagedState]) -> ManagedState {
    let current = tasks.iter().find(|state| !state.has_ended());
    current.or(tasks.last()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_has_ended_stays_so() {
        use Transition::*;
        let all = [
            Start,
            Started,
            Backoff,
            Restart,
            RestartRecovering,
            Recover,
            RecoverForced,
            Recovered,
            Succeeded,
            CancelPending,
            Cancelling,
            Cancelled,
            Failed(ManagedState::FailedSetup),
        ];
        for from in ManagedState::ALL.into_iter().filter(|state| state.has_ended()) {
            for transition in all {
                let state = transition.apply(from).map_or_else(|error| error.from, |moved| moved.state);
                assert_eq!(state, from, "{transition:?}");
            }
            let anyway = FailedAnyway(ManagedState::FailedController).apply(from);
            assert_eq!(anyway.map(|moved| moved.state), Ok(ManagedState::FailedController));
        }
    }

    #[test]
    fn an_error_names_state_and_transition() {
        let error = Transition::Succeeded.apply(ManagedState::Pending).unwrap_err();
        assert_eq!(error.to_string(), "a task that is PENDING cannot make the transition Succeeded");
    }

    #[test]
    fn exit_codes_of_the_list_are_not_counted() {
        let recovery =
            JobRecovery { max_restarts_on_errors: 1, recover_on_exit_codes: vec![33], ..JobRecovery::default() };
        assert_eq!(restarts(&recovery, 5, Some(&[0, 33])), Restart::Free);
        assert_eq!(restarts(&recovery, 0, Some(&[1])), Restart::Counted);
        assert_eq!(restarts(&recovery, 0, None), Restart::Counted);
        assert_eq!(restarts(&recovery, 1, Some(&[])), Restart::No);
    }

    #[test]
    fn a_job_without_tasks_is_pending() {
        assert_eq!(job_state(&[]), ManagedState::Pending);
        assert_eq!(job_state(&[ManagedState::Succeeded, ManagedState::Running]), ManagedState::Running);
        assert_eq!(job_state(&[ManagedState::Failed, ManagedState::Cancelled]), ManagedState::Cancelled);
    }
}
