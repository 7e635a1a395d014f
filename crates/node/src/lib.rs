//! Pods as processes: shims, logs, volumes, identities, devices.
//!
//! The agent (`agent`) watches the pods bound to its node and keeps a directory per pod (`poddir`). Into it goes, once all
//! that a pod needs is at hand, a launch description (`wire::Launch`); then a shim process (`shim`) is started, which runs
//! the pod's containers and appends what happens to a journal. Pod status (`status`) is a pure function of pod and journal,
//! so that an agent that was killed and started again, or upgraded, goes on where the last one stopped: nothing is started
//! twice, and no exit code or log line is lost.
//!
//! It runs pods, and knows nothing of their controllers.
//!
//! # Pods
//!
//! - Each pod has a shim: a small process in a session of its own that starts the containers, reaps them, writes
//!   their logs, and appends each change of state to a journal.
//! - The control plane may be killed at any moment. The next `up` reads the journals and takes the pods over, a
//!   newer version too: what crosses that border has a version (`wire::PROTOCOL`). An older `up` leaves pods of
//!   newer shims alone, and says so.
//! - The agent has a worker for a pod until it has ended and the cluster knows all of it. Thousands of ended pods
//!   cost an entry each.
//! - Each pod has an address in 127.0.0.0/8 and its own `/etc/hosts`, so `<job>-node-0-0.<job>` resolves as on a
//!   cluster. All pods share the machine's ports: a job that asks for a rendezvous port (29500) gets another one
//!   in all its pods, from a slot that no other control plane of the machine can take (`slots`). Forwarded ports
//!   go to sockets that a process of the pod holds (`ports`).
//! - Images are ignored: pods run programs of the host, or a program of ours (`programs::StandIn`).
//! - What pods use (`metrics.k8s.io`) is measured when somebody asks (`usage`), at most once a second.
//!
//! # Limits and ends
//!
//! - A pod has a cgroup where the machine allows it (`cgroup`), with one child group per container attempt, for
//!   limits, OOM accounting and killing.
//! - Elsewhere the kernel's log says who was killed for lack of memory. If a shim is
//!   killed, `orphans` finds its remaining processes by a mark in their environment and ends them, before anybody
//!   else gets its GPUs. The processes that keep its containers do the same, even without an agent.
//! - Several agents may run on one machine: its own, and those of clusters on it. All share one
//!   allocator (`gpus::Share`): it gives a GPU to a machine of a cluster or to a pod of the local node, never both, and
//!   the Node's allocatable GPUs say so at once.
//!
//! # Other machines
//!
//! `trainyard node` is the same agent with an API server elsewhere. It dials out (`tunnel`): a request is upgraded
//! to HTTP/2 in which the API server is the client, so logs, commands and forwarded ports come back over a
//! connection that the agent opened.
//!
//! - Both sides ask every 5 s whether the other is there. A lost connection ends what went over it, and no pod.
//! - Agents of other protocol versions are refused with an explanation.
//! - The agent authenticates as the user `system:node:NAME`. `kinds`' `access` has the rights of such users, and
//!   the plugin `NodeRestriction` says what their writes may change. Token, watches and tunnel of a node are
//!   bound to the uid of its Node: they end when the Node is deleted, even if a finalizer keeps the object.
//! - Not there yet: hosts files know the peers of one machine only; `top` and the history measure and keep pods
//!   of the control plane's own machine.

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
pub mod mpi_wait;
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
mod unix_diag;
mod untyped;
pub mod usage;
mod volumes;
mod warm;
pub mod wire;
mod worker;
pub mod world;
