//! Pods as processes: shims, logs, volumes, identities, devices.
//!
//! The agent (`agent`) watches the pods bound to its node and keeps a directory per pod (`poddir`). Into it goes, once all
//! that a pod needs is at hand, a launch description (`wire::Launch`); then a shim process (`shim`) is started, which runs
//! the pod's containers and appends what happens to a journal. Pod status (`status`) is a pure function of pod and journal,
//! so that an agent that was killed and started again, or upgraded, goes on where the last one stopped: nothing is started
//! twice, and no exit code or log line is lost.
//!
//! It runs pods, and knows nothing of their controllers.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))] // they panic on a full disk

pub mod agent;
pub mod cgroup;
mod crowd;
pub mod end;
mod env;
pub mod evidence;
pub mod exec;
mod fields;
mod files;
pub mod gpus;
pub mod host;
mod http_get;
pub mod identity;
pub mod kube_world;
pub mod link;
pub mod logs;
mod memory;
pub mod node_object;
mod orphans;
pub mod poddir;
pub mod ports;
pub mod prepare;
mod probes;
pub mod programs;
mod registry;
mod say;
mod sessions;
pub mod shim;
mod slots;
pub mod status;
pub mod tunnel;
mod untyped;
pub mod usage;
mod volumes;
mod warm;
pub mod wire;
mod worker;
pub mod world;
