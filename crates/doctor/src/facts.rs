//! The facts that the rules judge. Any of them may be unknown, because this user lacks a right.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;

/// A fact that may be hidden from this user.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen<T> {
    Known(T),
    /// Why it is hidden: `needs list on deployments.apps`.
    Unknown(String),
}

impl<T> Seen<T> {
    pub(crate) fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

impl<T> Seen<Vec<T>> {
    /// The known items; none if they are unknown.
    pub(crate) fn items(&self) -> &[T] {
        self.known().map_or(&[], Vec::as_slice)
    }
}

/// A request that a user may or may not make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Right {
    pub verb: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    /// The only object; empty for all.
    pub name: String,
    /// The namespace; empty for all namespaces, and for kinds without one.
    pub namespace: String,
}

impl Right {
    /// `pods/log`, `trainjobs.trainer.kubeflow.org`.
    pub(crate) fn target(&self) -> String {
        let mut text = self.resource.clone();
        if !self.group.is_empty() {
            text += &format!(".{}", self.group);
        }
        if !self.subresource.is_empty() {
            text += &format!("/{}", self.subresource);
        }
        if !self.name.is_empty() {
            text += &format!(" {:?}", self.name);
        }
        text
    }
}

/// How the API server answered a TrainJob that must be refused (its runtime does not exist), as a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// It refused it, as it should: admission works.
    Refused,
    /// It accepted it: no webhook checks TrainJobs.
    Taken,
    /// The API server did not reach a webhook; this is its message.
    NoAnswer(String),
}

/// The operator's service account, and which of the shipped roles' rights it has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Account {
    pub namespace: String,
    pub name: String,
    pub rights: Vec<(Right, bool)>,
}

/// All facts.
#[derive(Debug)]
pub(crate) struct Facts {
    pub now: Timestamp,
    /// How long something may make no progress before it counts as stuck.
    pub patience: SignedDuration,
    /// The namespace of questions about rights, and of the dry run.
    pub namespace: String,
    /// This user's name on the server; empty if the server does not say.
    pub user: String,
    /// The only namespace whose objects were read; `None`: all namespaces.
    pub only: Option<String>,
    /// Flags of the proposed commands.
    pub flags: String,
    pub server: String,
    /// The answer of `/version`.
    pub version: Seen<Value>,
    /// The answer of `/readyz?verbose`, whatever its status.
    pub health: Seen<String>,
    /// The CustomResourceDefinitions in this binary.
    pub expected: Vec<Value>,
    /// The installed CustomResourceDefinitions, by name; `None` for one that is missing.
    pub installed: BTreeMap<String, Seen<Option<Value>>>,
    /// The rights that our commands need, the commands that need them, and whether this user has them.
    pub own: Vec<(Right, &'static str, Seen<bool>)>,
    /// `None` if the account does not exist.
    pub account: Seen<Option<Account>>,
    /// Webhook configurations of both kinds.
    pub webhooks: Seen<Vec<Value>>,
    /// Ready addresses behind the webhooks' Services, by namespace and name.
    pub endpoints: BTreeMap<(String, String), Seen<usize>>,
    pub probe: Seen<Probe>,
    pub deployments: Seen<Vec<Value>>,
    pub leases: Seen<Vec<Value>>,
    pub cluster_runtimes: Seen<Vec<Value>>,
    pub runtimes: Seen<Vec<Value>>,
    pub trainjobs: Seen<Vec<Value>>,
    pub mpijobs: Seen<Vec<Value>>,
    /// Pods of MPIJobs.
    pub mpi_pods: Seen<Vec<Value>>,
    /// OptimizationJobs.
    pub searches: Seen<Vec<Value>>,
    pub jobsets: Seen<Vec<Value>>,
    pub jobs: Seen<Vec<Value>>,
    /// Pods of JobSets.
    pub pods: Seen<Vec<Value>>,
    /// Nodes of a control plane on one machine. Other nodes are the business of their administrators.
    pub nodes: Seen<Vec<Value>>,
    /// Warnings, oldest first.
    pub events: Seen<Vec<Value>>,
}

impl Facts {
    /// The version of the trainyard that serves this API, if one does. It brings controllers and admission along.
    pub(crate) fn embedded(&self) -> Option<&str> {
        self.version.known()?["gitVersion"].as_str()?.split_once("+trainyard-").map(|(_, version)| version)
    }
}
