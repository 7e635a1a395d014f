//! The contract between nodes and the controllers that watch them: where a node's lease is, and how long a node may be silent.

use jiff::SignedDuration;

/// Where the Leases of nodes are; each has its node's name.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";
/// Seconds that a lease names as its duration; a node renews it four times as often (the kubelet's numbers).
pub const LEASE_SECS: i32 = 40;
/// How long a Lease may go without renewal before its node counts as dead (upstream's `--node-monitor-grace-period`).
pub const LEASE_GRACE: SignedDuration = SignedDuration::from_secs(50);
/// A condition of nodes that say whether somebody is logged in over SSH; it changed last when somebody came, or the last one went.
pub const SSH_SESSIONS: &str = "SSHSessions";
