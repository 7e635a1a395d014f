//! The parts of the binary that other crates use too: the operator's webhooks as plugins of the embedded API server, and
//! the kinds and runtimes that `up` installs.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))] // they panic on a full disk

pub mod admission;
pub mod install;
