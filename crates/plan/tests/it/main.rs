//! Tests of the pipeline as its callers see it: decisions on recorded and made-up TrainJobs, and what must hold for all.

#![allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should")]

mod admission;
mod goldens;
mod lint;
mod mpijobs;
mod properties;
mod render;
mod rules;
mod runtimes;
