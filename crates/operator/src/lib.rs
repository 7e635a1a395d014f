//! Which reconcilers run, and which rules guard which kinds: the composition that a cluster's operator and a laptop's
//! control plane share.
//!
//! `plan` and `workloads` hold the logic, `driver` runs it; here is only what belongs together and what it is called.

pub mod admission;
mod controllers;
pub mod status_server;

pub use controllers::{Controllers, Surroundings, UnknownController};
