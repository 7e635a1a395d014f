//! Which server a client is to ask.

use crate::home::Home;
use std::path::PathBuf;

/// Which server to ask, and in which namespace. What is absent is chosen as [`crate::Cluster::existing`] says.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The folder of a control plane of this machine.
    pub home: Option<PathBuf>,
    pub kubeconfig: Option<PathBuf>,
    /// Of the kubeconfig; absent: its current one.
    pub context: Option<String>,
    /// Absent: the context's, else `default`.
    pub namespace: Option<String>,
    /// kubectl or oc has called, whose choice of a cluster goes before ours.
    pub plugin: bool,
    /// Called with each warning of the API server, once for each text.
    pub warn: fn(&str),
}

impl Choice {
    /// The control plane of this machine with this home, whatever flags and environment say.
    pub fn of_home(home: &Home) -> Self {
        Self { home: Some(home.root().to_owned()), ..Self::default() }
    }
}

impl Default for Choice {
    fn default() -> Self {
        Self { home: None, kubeconfig: None, context: None, namespace: None, plugin: false, warn: |_| {} }
    }
}
