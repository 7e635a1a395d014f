//! How the state of a managed job changes, when a task of it is started again, and what the states of its tasks add up to.

use api::sky::{JobRecovery, ManagedState};

/// Whether a task is started again after its own code failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    No,
    /// Yes, and `max_restarts_on_errors` allows one less.
    Counted,
    /// Yes, however often: it exited with one of `recover_on_exit_codes`.
    Free,
}

/// Decides about a failure of a task. `exit_codes` has one for each node that reported one; `None`: they are unknown.
pub fn restarts(recovery: &JobRecovery, restarts_so_far: u32, exit_codes: Option<&[i64]>) -> Restart {
    if exit_codes.is_some_and(|codes| codes.iter().any(|code| recovery.recover_on_exit_codes.contains(code))) {
        return Restart::Free;
    }
    if restarts_so_far < recovery.max_restarts_on_errors { Restart::Counted } else { Restart::No }
}

/// The state of a job: that of its first task that has not ended; where all have, that of the last.
pub fn job_state(tasks: &[ManagedState]) -> ManagedState {
    let current = tasks.iter().find(|state| !state.has_ended());
    current.or(tasks.last()).copied().unwrap_or_default()
}
