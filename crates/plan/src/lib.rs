//! A TrainJob, its runtime and the observed world in; children and status out.
//!
//! Pure: no I/O, no clock, no randomness. [`controller`] holds the reconcilers, [`admission`] what the API server asks before
//! it stores a TrainJob or a runtime; both see a TrainJob through the same pipeline ([`build`]) of [`plugins`].

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

pub mod admission;
pub mod annotations;
pub mod build;
pub mod conditions;
pub mod controller;
pub mod evidence;
mod failfast;
mod hardening;
pub mod info;
pub mod job;
mod kept;
mod lifecycle;
mod mpi;
pub mod mpijob;
pub mod names;
pub mod optimization;
pub mod plugins;
pub mod resources;
mod retry;
pub mod runtime;
mod schema;
mod settled;
mod snapshot;
mod state;
mod typed;
pub mod upsert;
mod warnings;
