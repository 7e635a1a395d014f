//! What a submission is made of: from the values of a [`Spec`] to a TrainJob, a search or an MPIJob.
//!
//! [`Code`] is what runs, [`Submission`] looks whether it can run (interpreter, framework, syntax, names, resources), and [`Ready`] creates
//! the objects; on a cluster also the ConfigMap with the code for its pods. [`mpi`] makes MPIJobs, [`template`] writes a commented job.yaml.
//!
//! Nothing is printed. What is worth a line while work goes on (a runtime that was chosen, files that are left out) is given to a
//! [`Tell`]; everything else is a value or an error.

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

/// Is given lines about what happens, one at a time.
pub type Tell<'a> = &'a (dyn Fn(&str) + Sync);
