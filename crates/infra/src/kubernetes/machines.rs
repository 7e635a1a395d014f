//! The provider `kubernetes`: a pod for each machine, in the cluster of a context of the kubeconfig.

use super::record::Goal;
use super::work::Inner;
use crate::access::Access;
use crate::attention::Attention;
use crate::provider::{Answer, Provider};
use futures::FutureExt;
use managed::provider::{Failure, Fate, Found, Handle, Request, Seen};
use ring::digest::{SHA256, digest};
use std::path::PathBuf;
use std::sync::Arc;

/// The name.
pub const NAME: &str = api::sky::providers::KUBERNETES;

/// What the provider works with.
pub struct Settings {
    /// For records.
    pub folder: PathBuf,
    /// The kubeconfig; `None`: the one of the environment and the home directory.
    pub kubeconfig: Option<PathBuf>,
    /// Whose pods are ours; the same after any restart.
    pub owner: String,
    /// This program, which runs in the pods too.
    pub program: PathBuf,
    /// Woken when a connection is lost.
    pub attention: Attention,
}

impl Settings {
    /// The owner as the value of a label.
    pub fn owner_hash(&self) -> String {
        digest(&SHA256, self.owner.as_bytes()).as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The provider.
#[derive(Clone)]
pub struct Machines(Arc<Inner>);

impl Machines {
    /// Machines of the kubeconfig's clusters.
    pub fn new(settings: Settings, access: Arc<dyn Access>) -> Self {
        Self(Arc::new(Inner::new(settings, access)))
    }

    /// Makes a machine whose record is there; several callers wait for one making.
    async fn made(&self, token: &str) -> Result<Seen, Failure> {
        let machine = self.0.machine(token);
        machine.making.join(|| self.0.clone().make(token.to_owned())).await
    }
}

impl Provider for Machines {
    fn name(&self) -> &'static str {
        NAME
    }

    fn create<'a>(&'a self, request: &'a Request) -> Answer<'a, Seen> {
        async move {
            if self.0.noted(request).await?.goal != Goal::Running {
                return Err(Failure::new(Fate::Retry, format!("machine {} is on its way out", request.node)));
            }
            self.made(&request.token).await
        }
        .boxed()
    }

    fn observe<'a>(&'a self, machine: &'a Handle) -> Answer<'a, Found> {
        self.0.up(&machine.token).boxed()
    }

    /// Ends agent and jobs, and deletes the pod, with all that was written in it.
    fn stop<'a>(&'a self, machine: &'a Handle) -> Answer<'a, Found> {
        self.0.stop(&machine.token).boxed()
    }

    /// Makes the pod anew.
    fn start<'a>(&'a self, machine: &'a Handle) -> Answer<'a, Found> {
        async move {
            if self.0.aim(&machine.token).await? {
                return self.made(&machine.token).await.map(Found::There);
            }
            self.0.up(&machine.token).await
        }
        .boxed()
    }

    fn delete<'a>(&'a self, machine: &'a Handle) -> Answer<'a, Found> {
        self.0.delete(machine).boxed()
    }

    fn list_owned(&self) -> Answer<'_, Vec<Seen>> {
        self.0.owned().boxed()
    }
}
