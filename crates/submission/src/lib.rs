//! Makes a submission: turns the values of a [`Spec`] into a TrainJob, a search or an MPIJob.
//!
//! [`Code`] is what runs, [`Submission`] checks whether it can run (interpreter, framework, syntax, names, resources), and [`Ready`]
//! creates the objects; on a cluster also the ConfigMap with the code for its pods. [`mpi`] makes MPIJobs, [`template`] writes a commented
//! job.yaml.
//!
//! Nothing is printed. A [`Tell`] receives one line for each event worth reporting (a runtime was chosen, files are left out); everything
//! else is a value or an error.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod choice;
mod code;
mod create;
pub mod git;
mod launcher;
mod manifest;
pub mod mpi;
mod preflight;
mod python;
pub mod results;
mod runtime;
mod search;
mod setting;
mod ship;
mod sources;
mod spec;
pub mod template;
mod warm;

pub use code::Code;
pub use create::What;
pub use preflight::flags::metrics;
pub use preflight::{Ready, Submission};
pub use python::cache_folder;
pub use search::Search;
pub use ship::files;
pub use sources::Sources;
pub use spec::Spec;

/// Receives messages about the progress, one line at a time.
pub type Tell<'a> = &'a (dyn Fn(&str) + Sync);
