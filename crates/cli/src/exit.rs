//! Exit codes of `trainyard`.
//!
//! `run` and `logs -f` return the exit code of the job's first failed process where there is one; these codes are for
//! all else.

use client::ClientError;
use facts::follow::Ended;
use view::state::{self, Phase};

/// All went well; of `run` and `wait`: the job completed.
pub const OK: u8 = 0;
/// The job failed without an exit code of its own, or the request failed.
pub const FAILURE: u8 = 1;
/// Wrong use: unknown flag, bad value, missing file.
pub const USAGE: u8 = 2;
/// The object that was named does not exist.
pub const NOT_FOUND: u8 = 3;
/// No control plane answers.
pub const UNREACHABLE: u8 = 4;
/// `doctor` found errors.
pub const UNHEALTHY: u8 = 5;
/// `wait` ran out of time.
pub const TIMEOUT: u8 = 124;
/// Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// The code for an error.
pub fn of(error: &ClientError) -> u8 {
    match error {
        ClientError::Usage(..) => USAGE,
        ClientError::NotFound { .. } => NOT_FOUND,
        ClientError::NotRunning { .. } | ClientError::NotReady { .. } | ClientError::Unreachable { .. } => UNREACHABLE,
        ClientError::Forbidden { .. }
        | ClientError::Unauthorized(_)
        | ClientError::NotServed
        | ClientError::NoMpiJobs => FAILURE,
        ClientError::Api(..) | ClientError::Io { .. } | ClientError::Kubeconfig { .. } => FAILURE,
    }
}

/// The code for the end of a job that was followed.
pub(crate) fn of_ended(ended: &Ended) -> u8 {
    match ended.job.as_ref().map(Phase::of) {
        Some(Phase::Complete) => OK,
        Some(Phase::Failed | Phase::Pending | Phase::Running | Phase::Suspended) => state::exit_code(&ended.pods),
        None => FAILURE,
    }
}
