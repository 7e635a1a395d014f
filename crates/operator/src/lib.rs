//! Which reconcilers run, and which rules guard which kinds: the composition that a cluster's operator and a laptop's
//! control plane share.
//!
//! Five modules: `controllers` composes the reconcilers and the rules of admission; `cluster` runs them in a cluster (webhooks over
//! HTTPS, certificates, election, probes, metrics); `embedded` is for an API server in the same process; `status_server` takes the reports
//! of training code; `numbers` has the metrics of both. `serve`, `client` and
//! `traces` are shared.
//!
//! `plan` and `workloads` hold the logic, `driver` runs it; here is only what belongs together and what it is called.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))] // they panic on a full disk

pub mod client;
pub mod cluster;
pub mod controllers;
pub mod embedded;
pub mod numbers;
pub mod serve;
pub mod status_server;
pub mod traces;

pub use controllers::{Controllers, Surroundings, UnknownController};
