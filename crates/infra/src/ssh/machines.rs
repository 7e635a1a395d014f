//! The provider `ssh`: takes a host of a pool by a claim file on that host, brings the agent there, and keeps a connection through which
//! the agent reaches the API server.

use super::reach::Ssh;
use crate::access::Access;
use crate::attention::Attention;
use crate::kept::{self, Keeper};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// The name.
pub const NAME: &str = api::sky::providers::SSH;
/// The settings of the provider.
pub struct Settings {
    /// The folder of records, ssh's sockets and short-lived passwords.
    pub folder: PathBuf,
    /// `~/.sky/ssh_node_pools.yaml`.
    pub pools: PathBuf,
    /// The home directory, which `~` means.
    pub home: PathBuf,
    /// The owner of our claims; the same after any restart.
    pub owner: String,
    pub api_server: SocketAddr,
    /// This program, which runs on the hosts too.
    pub program: PathBuf,
    /// Woken when a connection is lost.
    pub attention: Attention,
}

/// The provider.
pub type Machines = kept::Machines<Ssh>;

impl Machines {
    /// Machines of the pools' hosts.
    pub fn new(settings: Settings, access: Arc<dyn Access>) -> Self {
        let (folder, program, attention) =
            (settings.folder.clone(), settings.program.clone(), settings.attention.clone());
        Self(Arc::new(Keeper::new(Ssh { settings }, folder, program, attention, access)))
    }
}
