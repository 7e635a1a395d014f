//! MPIJobs: the object that values describe, and what this machine needs to run it.

mod file;
mod local;
mod manifest;
mod words;

pub use file::{NoMpiJob, read};
pub use local::{check, here};
pub use manifest::{Here, Implementation, Spec, check_hosts, check_name, manifest};
pub use words::for_a_shell;
