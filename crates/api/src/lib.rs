//! The wire: every kind, name, label, condition and config type that crosses a process boundary.
//!
//! This crate does no I/O, reads no clock and owns no behaviour beyond parsing, rendering and naming.
//! Modules are grouped by API group; `field` holds Kubernetes' field errors, which both admission and
//! schema validation speak.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod causes;
pub mod config;
pub mod decimal;
pub mod field;
pub mod foreign;
pub mod history;
pub mod job_history;
pub mod job_kind;
pub mod jobset;
pub mod metrics;
pub mod mpi;
pub mod names;
pub mod near;
pub mod node;
pub mod object;
pub mod pattern;
pub mod podgroup;
pub mod quantity;
pub mod queue_place;
pub mod quota;
#[cfg(feature = "schema")]
pub mod schema;
pub mod shell;
pub mod sky;
pub mod stable;
pub mod time;
pub mod trainer;

pub use causes::error_chain;
