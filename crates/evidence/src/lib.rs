//! The history of the pods of TrainJobs and MPIJobs after their objects are gone: logs, how each run ended, and the last state of each
//! pod. It is kept with the job, within bounds, and removed with it.
//!
//! The node moves the directory of a deleted pod into the store (`store`). A task watches jobs, JobSets and the launchers of MPIJobs
//! (`follow`) and so knows whose pod it was. `serve` answers the API server from live and kept pods together.
//!
//! Bounds: 64 MiB of logs and 200 pods a job, 2 GiB in all; the first failure and the last run of each rank go
//! last. It is read as API group `history.trainyard.dev`. The same group answers which events mention a job, by a
//! search of their texts, so that `describe` of one job does not read the events of fifty thousand.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))] // they panic on a full disk

mod bounds;
mod follow;
mod runs;
mod serve;
mod store;

pub use follow::follow;
pub use serve::Evidence;
pub use store::Store;
