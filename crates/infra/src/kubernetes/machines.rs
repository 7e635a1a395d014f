//! The provider `kubernetes`: a pod for each machine, in the cluster of a context of the kubeconfig.

use super::record::Goal;
use super::work::Inner;
use crate::access::Access;
use crate::attention::Attention;
use crate::provider::{Answer, Provider, Shell};
use api::sky::{Accelerators, Candidate};
use futures::FutureExt;
use managed::inventory::Free;
use managed::provider::{Failure, Fate, Handle, Offer, Request, Seen};
use ring::digest::{SHA256, digest};
use std::path::PathBuf;
use std::sync::Arc;

/// The name.
pub const NAME: &str = "kubernetes";

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

fn offer(context: &str, free: Free) -> Offer {
    let accelerators = free.gpus.map(|gpus| Accelerators { name: gpus.product, count: gpus.free });
    let candidate = Candidate {
        provider: NAME.to_owned(),
        region: context.to_owned(),
        cpus: free.cpus,
        memory: free.memory,
        accelerators: accelerators.filter(|gpus| gpus.count > 0.0),
        ..Candidate::default()
    };
    Offer { candidate, free: None }
}

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

    /// What each node of the current context's cluster has free.
    fn offers(&self) -> Answer<'_, Vec<Offer>> {
        async {
            let failed = |fault: crate::fault::Fault| fault.failure(NAME);
            let cluster = self.0.cluster("").await.map_err(failed)?;
            let free = self.0.free(&cluster).await;
            let free = free.map_err(|error| failed(super::cluster::fault("list nodes and pods", &error)))?;
            Ok(free.into_iter().map(|free| offer(&cluster.context, free)).collect())
        }
        .boxed()
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

    fn observe<'a>(&'a self, machine: &'a Handle) -> Answer<'a, Option<Seen>> {
        self.0.up(&machine.token).boxed()
    }

    /// Ends agent and jobs, and deletes the pod, with all that was written in it.
    fn stop<'a>(&'a self, machine: &'a Handle) -> Answer<'a, Option<Seen>> {
        self.0.stop(&machine.token).boxed()
    }

    /// Makes the pod anew.
    fn start<'a>(&'a self, machine: &'a Handle) -> Answer<'a, Option<Seen>> {
        async move {
            if self.0.aim(&machine.token).await? { self.made(&machine.token).await.map(Some) } else { Ok(None) }
        }
        .boxed()
    }

    fn delete<'a>(&'a self, machine: &'a Handle) -> Answer<'a, Option<Seen>> {
        self.0.delete(machine).boxed()
    }

    fn list_owned(&self) -> Answer<'_, Vec<Seen>> {
        self.0.owned().boxed()
    }

    fn shell<'a>(&'a self, machine: &'a Handle) -> Answer<'a, Shell> {
        async move {
            let missing = || Failure::new(Fate::GiveUp, "there is no such machine".to_owned());
            let record = self.0.records.read(&machine.token)?.ok_or_else(missing)?;
            let pod = record.pod();
            let words = ["kubectl", "--context", &record.context, "-n", &record.namespace, "exec", "-i", &pod, "--"];
            let home = format!("HOME={}", record.home);
            let argv = words.into_iter().chain(["env", &home, "/bin/sh", "-c"]);
            Ok(Shell { argv: argv.map(str::to_owned).collect() })
        }
        .boxed()
    }
}
