//! Machines that are there already and are reached by SSH: the hosts of the pools in which SkyPilot's users list them.
//!
//! A host is taken by a claim on the host itself, a file that is made once or not at all and holds the machine's token; so no two
//! launches, of whomever, use one twice. All that is ours on a host is in one folder of its user, `~/.trainyard-machine/HOSTNAME`.

mod fit;
mod machines;
mod record;
mod session;
mod upkeep;
mod work;

pub use machines::{Machines, NAME, Settings};
pub use record::{Place, Record};
