//! Machines that are pods of a Kubernetes cluster. A node agent of ours runs in each.
//!
//! A machine is one pod. Its name is derived from the machine's token, so a repeated creation makes no second pod. The pod does nothing by
//! itself. A command in it brings the program, which is checked by its hash, unless it comes with the image. The agent is started in the
//! same way, as on machines that are reached by SSH (`host.sh`). It reaches the API server through a relay over another command, which is
//! opened from this side, so the cluster need not reach this computer. The cluster that may have a machine's pod is recorded before a
//! request goes there.
//!
//! - `trainyard relay` in the pod listens on its loopback and carries connections to this side, as streams of
//!   HTTP/2 (`node::tunnel::mux`) over the streams of one command. A relay that ends is started again on the same
//!   port; agent and pods notice only that the Node is NotReady meanwhile.
//! - The context in which a machine's pod is to be created is recorded before the pod is requested. A pod without
//!   a record is found by its label, in the contexts that records name.
//! - The pods of a cluster are no JobSet: a foreign cluster may lack that kind or forbid users to create one, and
//!   a controller that replaces a lost pod would create a machine without a Machine object. The reconciler treats
//!   the pods as a gang: if one of them finds no node in time, the attempt is over and all of its pods are
//!   deleted.

mod cluster;
mod line;
mod machines;
mod make;
mod pod;
mod reach;
mod record;

pub use machines::{Machines, NAME, Settings};
