//! Annotations by which an MPIJob asks for more than upstream's API has.
//!
//! They are Trainyard's own, so that no field is added to upstream's kind; mpi-operator passes over them.

pub use crate::trainer::annotations::TTL_SECONDS;

/// `reachable`: the launcher starts once each host of its hostfile has answered by SSH, or fails after ten minutes and says
/// which have not. Default: it starts at once, as upstream's.
pub const WAIT_FOR_WORKERS: &str = "trainyard.dev/wait-for-workers";
/// Value of [`WAIT_FOR_WORKERS`].
pub const REACHABLE: &str = "reachable";
/// `true`: a worker that failed or succeeded while the launcher runs is made anew. Default: `false`, as upstream.
pub const REPLACE_WORKERS: &str = "trainyard.dev/replace-workers";
/// Name of a Secret with the keys to use; no Secret is made then. It has the keys `ssh-privatekey` and `ssh-publickey`.
pub const SSH_SECRET: &str = "trainyard.dev/ssh-secret";
