//! A TrainJob, its runtime and the observed world in; children and status out.
//!
//! Pure: no I/O, no clock, no randomness. [`controller`] holds the reconcilers, [`admission`] what the API server asks before
//! it stores a TrainJob or a runtime; both see a TrainJob through the same pipeline ([`build`]) of [`plugins`].
//!
//! # What a TrainJob writes
//!
//! A TrainJob of one pod that runs `true` is 30 writes from its creation to its end, events included (counted by
//! revisions on an idle machine, the node's lease left out):
//!
//! - 7 objects, one controller's after the other's: TrainJob, two ConfigMaps (snapshot of the runtime; the
//!   certificate under which training code reports), JobSet, Service, Job, Pod
//! - 1 binding of the Pod, with the condition `PodScheduled`
//! - 2 statuses of the Pod: running; ended. A pod that takes more than 100 ms to its first process has one more.
//!   If more than eight pods start within a second, the status of the ninth and later ones is written 100 ms
//!   after their first process started: those that end sooner have one status
//! - 1 change of the Pod's metadata: its finalizer goes once the Job has counted it
//! - 4 statuses of the Job: start time; ready; counted with `SuccessCriteriaMet`; `Complete`, which upstream
//!   writes after the pods are counted
//! - 5 statuses of the JobSet: counts of the new Jobs; active; ready; no longer active; completed. Two fall
//!   together where the Job is quicker than the JobSet's rest
//! - 5 statuses of the TrainJob, which follow the JobSet's counts, as upstream's
//! - 5 events, one for each message to users
//!
//! An MPIJob of eight workers is 16 writes until the launcher's Job is there and 12 more to its end; mpi-operator
//! writes the same. The test `a_life_takes_no_more_writes_than_it_has_to_tell` holds it. A write that would change
//! nothing is not stored.

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
