//! Clusters of machines: what should happen, worked out from what is asked for and what is there.
//!
//! [`provider`] has the words of providers, [`machine`] the ledger: what to ask the provider of a machine next, and what its answer means;
//! [`launch`] makes a Cluster and the JobSets of a task, [`cluster`] is the reconciler of Cluster, [`jobs`] the turns of its jobs, [`inventory`] what a Kubernetes
//! cluster has free, [`resources`] the resources of clusters as text, [`shown`] other texts about clusters, attempts, services and pools,
//! [`transitions`] how the states of managed jobs change, [`callbacks`] runs their `event_callback`, [`budget`] what they may spend.
//! Pure: no I/O, no clock, no chance; it never learns which providers there are, nor how they are reached.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

pub mod autoscale;
mod backoff;
pub mod budget;
pub mod callbacks;
pub mod cluster;
pub mod evidence;
pub mod fleet;
pub mod inventory;
pub mod job;
pub mod job_turns;
pub mod jobs;
pub mod launch;
mod looks;
pub mod machine;
pub mod names;
pub mod pool_turns;
pub mod provider;
pub mod resources;
pub mod shown;
pub mod spot;
pub mod status;
pub mod transitions;
