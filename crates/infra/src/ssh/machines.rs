//! The provider `ssh`: takes a host of a pool by a claim on the host itself, brings the agent there, and keeps a connection by which the
//! agent reaches the API server.

use super::fit;
use super::record::Place;
use super::work::{Inner, QUICK};
use crate::access::Access;
use crate::attention::Attention;
use crate::provider::{Answer, Provider, Shell};
use crate::records::Records;
use futures::{FutureExt, StreamExt};
use managed::provider::{Failure, Fate, Handle, Offer, Request, Seen};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// The name.
pub const NAME: &str = "ssh";
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
    async fn up(&self, token: &str) -> Result<Option<Seen>, Failure> {
        let (inner, token) = (self.0.clone(), token.to_owned());
        let machine = inner.machine(&token);
        machine.coming_up.join(|| async move { inner.up(&token).await }).await
    }

    async fn offer(&self, place: Place) -> Option<Offer> {
        let session = self.0.open(&place).await.ok()?;
        let said = session.line().call("look", &[("token", "")], None, QUICK).await.ok()?;
        Some(fit::offer(&place, &said))
    }
}

impl Provider for Machines {
    fn name(&self) -> &'static str {
        NAME
    }

    /// One for each host that can be reached, in the order of the file: its region is the pool, its zone the host.
    fn offers(&self) -> Answer<'_, Vec<Offer>> {
        async {
            self.0.records.create_folder()?;
            let asked = self.0.places("")?.into_iter().map(|(place, _)| self.offer(place));
            let offers: Vec<Option<Offer>> = futures::stream::iter(asked).buffered(AT_ONCE).collect().await;
            Ok(offers.into_iter().flatten().collect())
        }
        .boxed()
    }

    fn create<'a>(&'a self, request: &'a Request) -> Answer<'a, Seen> {
        async move {
            let machine = self.0.machine(&request.token);
            machine.making.join(|| self.0.clone().make(request.clone())).await
        }
        .boxed()
    }

    fn observe<'a>(&'a self, machine: &'a Handle) -> Answer<'a, Option<Seen>> {
        self.up(&machine.token).boxed()
    }

    /// Ends the agent and all pods; the host stays taken, and its folder stays.
    fn stop<'a>(&'a self, machine: &'a Handle) -> Answer<'a, Option<Seen>> {
        self.0.stop(machine).boxed()
    }

    fn start<'a>(&'a self, machine: &'a Handle) -> Answer<'a, Option<Seen>> {
        async move { if self.0.aim(machine).await? { self.up(&machine.token).await } else { Ok(None) } }.boxed()
    }

    fn delete<'a>(&'a self, machine: &'a Handle) -> Answer<'a, Option<Seen>> {
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

    fn shell<'a>(&'a self, machine: &'a Handle) -> Answer<'a, Shell> {
        async move {
            let missing = || Failure::new(Fate::GiveUp, "there is no such machine".to_owned());
            let record = self.0.records.read(&machine.token)?.ok_or_else(missing)?;
            let place = record.current.ok_or_else(missing)?;
            let mut argv = vec!["ssh".to_owned()];
            if let Some(user) = place.user {
                argv.extend(["-l".to_owned(), user]);
            }
            if let Some(file) = place.identity_file {
                argv.extend(["-i".to_owned(), file.display().to_string()]);
            }
            argv.extend(["--".to_owned(), place.name]);
            Ok(Shell { argv })
        }
        .boxed()
    }
}
