//! The output of managed jobs: kept while it is written, and served as one stream over all attempts.
//!
//! A task watches the pods of managed jobs and reads their logs ([`follow()`]). Lines are in a file of the control plane within a fraction
//! of a second, so they survive their machine. Each pod is read to its end once: after a restart of the control plane its log is asked for
//! from the last kept line on. When all pods of a JobSet have ended and their output is on disk, the JobSet is annotated: its machines
//! may go.
//!
//! [`ManagedLogs`] answers the API server. The files are removed with the ManagedJob, or when there are too many (`store`).
//!
//! | Module | What it does |
//! |---|---|
//! | `record` | the format of a kept line |
//! | `segment` | the files of a stage of an attempt |
//! | `page` | what is remembered of attempts, and the marks between them |
//! | `store` | the files of all jobs, and their bounds |
//! | `reader` | what a reader is shown next |
//! | `stream` | a stream for a client |

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))] // they panic on a full disk

mod follow;
mod page;
mod part;
mod reader;
mod record;
mod segment;
mod serve;
mod store;
mod stream;

pub use follow::follow;
pub use serve::ManagedLogs;
pub use store::Outputs;
