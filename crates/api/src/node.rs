//! The contract between nodes and the controllers that watch them: where a node's lease is, and how long a node may be silent.

use jiff::{SignedDuration, Timestamp};
use std::fmt;

/// Where the Leases of nodes are; each has its node's name.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";
/// Seconds that a lease names as its duration; a node renews it four times as often (the kubelet's numbers).
pub const LEASE_SECS: i32 = 40;
/// Seconds that the lease of a node names while its agent is connected to the control plane. The agent renews it four times as often.
pub const CONNECTED_LEASE_SECS: i32 = 1200;
/// How long a Lease may go without renewal before its node counts as dead (upstream's `--node-monitor-grace-period`).
pub const LEASE_GRACE: SignedDuration = SignedDuration::from_secs(50);

/// When the agent of a node was last heard of over its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It is connected, and answers.
    Now,
    /// The agent is not connected. The time is the end of its last connection, or the start of the control plane if no recent end is known.
    At(Timestamp),
}

/// The connections that agents keep to the control plane.
pub trait Connections: fmt::Debug + Send + Sync {
    fn heard(&self, node: &str) -> Heard;
}

/// Where no agent can connect.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoConnections;

impl Connections for NoConnections {
    fn heard(&self, _: &str) -> Heard {
        Heard::At(Timestamp::UNIX_EPOCH)
    }
}

/// A condition of nodes that say whether somebody is logged in over SSH; it changed last when somebody came, or the last one went.
pub const SSH_SESSIONS: &str = "SSHSessions";
/// The taint of a node that is off for good: its pods end without it (Kubernetes' non-graceful node shutdown).
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The annotation in which a node says how it enforces limits; [`Limited`] writes and reads it.
pub const LIMITS: &str = "trainyard.dev/limits";

/// How a limit is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforced {
    /// The kernel does it, by a cgroup.
    ByCgroup,
    /// The node looks at what is used, and ends what uses more.
    ByLooking,
    No,
}

/// How a node enforces limits of memory and processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    pub memory: Enforced,
    pub cpu: Enforced,
    /// Why the kernel does not do it; empty where it does both.
    pub why_not: String,
}

impl Limited {
    /// Of a node that has no cgroup controllers of these names (`memory`, `cpu`).
    pub fn without(controllers: &[&str], why: impl Into<String>) -> Self {
        let lacks = |name: &str| controllers.contains(&name);
        Self {
            memory: if lacks("memory") { Enforced::ByLooking } else { Enforced::ByCgroup },
            cpu: if lacks("cpu") { Enforced::No } else { Enforced::ByCgroup },
            why_not: if controllers.is_empty() { String::new() } else { why.into() },
        }
    }

    /// As [`Display`](fmt::Display) writes it; `None` for a text that no node writes.
    pub fn parse(text: &str) -> Option<Self> {
        let (what, why) = text.split_once(": ").unwrap_or((text, ""));
        let (memory, cpu) = match what {
            "enforced" => (Enforced::ByCgroup, Enforced::ByCgroup),
            "memory watched" => (Enforced::ByLooking, Enforced::ByCgroup),
            "memory watched, cpu not enforced" => (Enforced::ByLooking, Enforced::No),
            "cpu not enforced" => (Enforced::ByCgroup, Enforced::No),
            // of a version that did not look
            "not enforced" => (Enforced::No, Enforced::No),
            _ => return None,
        };
        Some(Self { memory, cpu, why_not: why.to_owned() })
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match (self.memory, self.cpu) {
            (Enforced::ByCgroup, Enforced::ByCgroup) => return f.write_str("enforced"),
            (Enforced::ByLooking, Enforced::ByCgroup) => "memory watched",
            (Enforced::ByLooking, Enforced::ByLooking | Enforced::No) => "memory watched, cpu not enforced",
            (Enforced::ByCgroup, Enforced::ByLooking | Enforced::No) => "cpu not enforced",
            (Enforced::No, _) => "not enforced",
        };
        write!(f, "{what}: {}", self.why_not)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_says_of_its_limits_is_read_again() {
        for missing in [&[][..], &["memory"], &["cpu"], &["memory", "cpu"]] {
            let limited = Limited::without(missing, "no cgroup: none");
            assert_eq!(Limited::parse(&limited.to_string()), Some(limited));
        }
        let older = Limited::parse("not enforced: cgroup v2 is not mounted").unwrap();
        assert_eq!((older.memory, older.cpu), (Enforced::No, Enforced::No));
        assert_eq!(Limited::parse("something else"), None);
    }
}
