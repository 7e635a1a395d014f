//! Machines that exist already and are reached by SSH: the hosts of the pools in which SkyPilot's users list them.
//!
//! To take a host, a launch creates a claim file on it, atomically, with the machine's token. So two launches, even by different
//! users, never share a host. All that is ours on a host is in one folder of its user, `~/.trainyard-machine/HOSTNAME`.
//!
//! - Before a host is touched, the record of the Machine names it (`record`). After a crash or a lost connection the record remains and is
//!   retried until the host confirms that it is clean.
//! - Each machine has one permanent OpenSSH connection (`session`, ControlMaster). Commands go over it as input of a shell (`host.sh`),
//!   because all users can read arguments. The agent reaches the API server through its reverse forward. The remote command ends when its
//!   input closes, so it ends even if the control plane is killed.
//! - The agent and its pods continue without a connection. A new connection gets the old port back by ending the session that still holds
//!   it. An agent is started only if none runs with the same program, Node and port.
//! - The agent follows `/dev/pts` (`node::sessions`) and reports in a condition of its Node whether a user is logged in; that keeps a
//!   cluster from stopping by itself.
//! - Each stop or start carries the Machine's generation, which the host records with the desired state. The host refuses a
//!   request with an older generation.

mod fit;
mod machines;
mod make;
mod reach;
mod record;
mod session;

pub use machines::{Machines, NAME, Settings};
pub use record::{Place, Record};
