//! Which reconcilers run, and which rules guard which kinds: the composition that a cluster's operator and a laptop's
//! control plane share.
//!
//! `plan` and `workloads` hold the logic, `driver` runs it; here is only what belongs together and what it is called.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))] // they panic on a full disk

pub mod access;
pub mod admission;
pub mod certificates;
pub mod client;
pub mod cluster;
mod controllers;
pub mod health;
mod health_events;
mod jobs;
pub mod leader;
mod metrics_server;
mod prerequisites;
pub mod registration;
mod rotation;
mod runtime_cache;
mod runtimes;
pub mod serve;
pub mod settings;
pub mod status_server;
pub mod tls;
pub mod traces;
pub mod webhooks;

pub use controllers::{Controllers, Surroundings, UnknownController};
