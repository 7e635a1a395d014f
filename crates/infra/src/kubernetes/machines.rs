//! The provider `kubernetes`: a pod for each machine, in the cluster of a context of the kubeconfig.

use super::reach::Pods;
use crate::access::Access;
use crate::attention::Attention;
use crate::kept::{self, Keeper};
use ring::digest::{SHA256, digest};
use std::path::PathBuf;
use std::sync::Arc;

/// The name.
pub const NAME: &str = api::sky::providers::KUBERNETES;

/// The settings of the provider.
pub struct Settings {
    /// The folder of the records.
    pub folder: PathBuf,
    /// The kubeconfig; `None`: that of the environment or the home directory.
    pub kubeconfig: Option<PathBuf>,
    /// The owner of our pods; the same after any restart.
    pub owner: String,
    /// This program, which runs in the pods too.
    pub program: PathBuf,
    /// Woken when a connection is lost.
    pub attention: Attention,
}

impl Settings {
    /// The owner, as the value of a label.
    pub fn owner_hash(&self) -> String {
        digest(&SHA256, self.owner.as_bytes()).as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The provider.
pub type Machines = kept::Machines<Pods>;

impl Machines {
    /// Machines of the kubeconfig's clusters.
    pub fn new(settings: Settings, access: Arc<dyn Access>) -> Self {
        let (folder, program, attention) =
            (settings.folder.clone(), settings.program.clone(), settings.attention.clone());
        Self(Arc::new(Keeper::new(Pods { settings }, folder, program, attention, access)))
    }
}
