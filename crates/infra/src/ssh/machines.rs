//! The provider `ssh`: takes a host of a pool by a claim on the host itself, brings the agent there, and keeps a connection by which the
//! agent reaches the API server.

use super::work::Inner;
use crate::access::Access;
use crate::attention::Attention;
use crate::provider::{Answer, Provider};
use crate::records::Records;
use futures::{FutureExt, StreamExt};
use managed::provider::{Failure, Found, Handle, Request, Seen};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// The name.
pub const NAME: &str = api::sky::providers::SSH;
/// How many hosts are asked at once.
const AT_ONCE: usize = 16;
/// What the provider works with.
pub struct Settings {
    /// For records, sockets of ssh and short-lived passwords.
    pub folder: PathBuf,
    /// `~/.sky/ssh_node_pools.yaml`.
    pub pools: PathBuf,
    /// What `~` stands for.
    pub home: PathBuf,
    /// Whose claims are ours; the same after any restart.
    pub owner: String,
    pub api_server: SocketAddr,
    /// This program, which runs on the hosts too.
    pub program: PathBuf,
    /// Woken when a connection is lost.
    pub attention: Attention,
}

/// The provider.
#[derive(Clone)]
pub struct Machines(Arc<Inner>);

impl Machines {
    /// Machines of the pools' hosts.
    pub fn new(settings: Settings, access: Arc<dyn Access>) -> Self {
        let records = Records::new(settings.folder.clone());
        Self(Arc::new(Inner::new(settings, access, records)))
    }

    /// As [`Inner::up`], which goes on where the caller is cut: copying the program anew may take longer than a call.
    async fn up(&self, token: &str) -> Result<Found, Failure> {
        let (inner, token) = (self.0.clone(), token.to_owned());
        let machine = inner.machine(&token);
        machine.coming_up.join(|| async move { inner.up(&token).await }).await
    }
}

impl Provider for Machines {
    fn name(&self) -> &'static str {
        NAME
    }

    fn create<'a>(&'a self, request: &'a Request) -> Answer<'a, Seen> {
        async move {
            let machine = self.0.machine(&request.token);
            machine.making.join(|| self.0.clone().make(request.clone())).await
        }
        .boxed()
    }

    fn observe<'a>(&'a self, machine: &'a Handle) -> Answer<'a, Found> {
        self.up(&machine.token).boxed()
    }

    /// Ends the agent and all pods; the host stays taken, and its folder stays.
    fn stop<'a>(&'a self, machine: &'a Handle) -> Answer<'a, Found> {
        self.0.stop(machine).boxed()
    }

    fn start<'a>(&'a self, machine: &'a Handle) -> Answer<'a, Found> {
        async move {
            match self.0.aim(machine).await? {
                Some(ended) => Ok(Found::Ended(ended)),
                None => self.up(&machine.token).await,
            }
        }
        .boxed()
    }

    fn delete<'a>(&'a self, machine: &'a Handle) -> Answer<'a, Found> {
        self.0.delete(machine).boxed()
    }

    /// Hosts that cannot be reached are left out.
    fn list_owned(&self) -> Answer<'_, Vec<Seen>> {
        async {
            let asked = futures::stream::iter(self.0.records.all()?.into_iter().map(|record| self.0.owned(record)));
            Ok(asked.buffered(AT_ONCE).collect::<Vec<_>>().await.concat())
        }
        .boxed()
    }
}
