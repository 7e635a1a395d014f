//! Machines that are pods of a Kubernetes cluster, in which a node agent of ours runs.
//!
//! A machine is one pod, whose name is made of its machine's token, so a repeated creation makes no second one. It does nothing by itself:
//! the program is brought by a command in it and checked by hash, or comes with the image; the agent is started the same way, as
//! on machines that are reached by SSH (`host.sh`), and reaches the API server through a relay over one more command, which is
//! opened from here. So the cluster need not reach this computer. Which cluster may have a pod of a machine is written down before it is asked.

mod cluster;
mod line;
mod machines;
mod pod;
mod record;
mod upkeep;
mod work;

pub use machines::{Machines, NAME, Settings};
