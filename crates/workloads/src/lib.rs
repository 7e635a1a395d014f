//! Embedded-mode controllers: JobSet, Job, gang scheduler, garbage collection, namespaces.

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
pub mod selector;
pub mod serviceaccount;
