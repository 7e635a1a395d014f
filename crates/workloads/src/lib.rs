//! Embedded-mode controllers: JobSet, Job, gang scheduler, garbage collection, namespaces.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

pub mod aggregation;
pub mod claims;
pub mod disruption;
pub mod gc;
pub mod job;
pub mod jobset;
pub mod namespace;
pub mod nodelifecycle;
mod plurals;
pub mod podgc;
pub mod quota;
pub mod scheduler;
pub mod serviceaccount;
