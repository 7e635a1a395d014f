//! The agent against a cluster of one trait: pods run, their statuses and logs come back, and nothing is lost when the
//! agent dies.

#![allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should")]

mod cluster;
mod ends;
mod lifecycle;
mod memory;
mod pods;
mod probes;
mod upgrade;

use cluster::Node;
