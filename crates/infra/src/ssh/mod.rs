//! Machines that are there already and are reached by SSH: the hosts of the pools in which SkyPilot's users list them.
//!
//! A host is taken by a claim on the host itself, a file that is made once or not at all and holds the machine's token; so no two
//! launches, of whomever, use one twice. All that is ours on a host is in one folder of its user, `~/.trainyard-machine/HOSTNAME`.
//!
//! - A claim is a file that is linked into place once or not at all, with the token of the Machine. Which hosts
//!   may have something of a Machine is recorded here before they are touched (`record`). After a crash or a lost
//!   connection the record remains and is retried until the host confirms that it is clean.
//! - One `ssh` of the system per machine stays (`session`, ControlMaster). Commands go over it as input of a
//!   shell (`host.sh`), because arguments can be read by everybody. A reverse forward of it is how the agent
//!   reaches the API server. Its remote end reads until there is no more input, so it ends with the control
//!   plane, however that ends.
//! - The agent and its pods need no connection to go on. A new connection gets the old port back by ending the
//!   session that still holds it. An agent is started only where none runs with the same program, Node and port.
//! - The agent follows `/dev/pts` (`node::sessions`) and says in a condition of its Node whether somebody is
//!   logged in; that keeps a cluster from stopping by itself.
//! - Stops and starts carry the generation of the Machine, noted beside the goal on the host. One that comes
//!   late, from a process that was killed, is refused.

mod fit;
mod machines;
mod record;
mod session;
mod upkeep;
mod work;

pub use machines::{Machines, NAME, Settings};
pub use record::{Place, Record};
