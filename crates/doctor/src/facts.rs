//! The facts that rules judge, each of which may be unknown for want of a right.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;

/// Something that may not have been visible.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen<T> {
    Known(T),
    /// Why not: `needs list on deployments.apps`.
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
    /// What is known; nothing where nothing is.
    pub(crate) fn items(&self) -> &[T] {
        self.known().map_or(&[], Vec::as_slice)
    }
}

/// A request that somebody may or may not make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Right {
    pub verb: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    /// Of one object; empty for all.
    pub name: String,
    /// Empty: in all namespaces, or of a kind without.
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
    /// It was refused, as it should be: admission is at work.
    Refused,
    /// It was taken: nobody looks at TrainJobs.
    Taken,
    /// The API server did not reach a webhook, in its own words.
    NoAnswer(String),
}

/// The operator's service account, and what it may do of what the shipped roles say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Account {
    pub namespace: String,
    pub name: String,
    pub rights: Vec<(Right, bool)>,
}

/// All that is looked at.
#[derive(Debug)]
pub(crate) struct Facts {
    pub now: Timestamp,
    /// How long something may stand still before it counts as stuck.
    pub patience: SignedDuration,
    /// Where rights are asked for, and the dry run is made.
    pub namespace: String,
    /// Who we are, as the server calls us; empty where it does not say.
    pub user: String,
    /// The only namespace whose objects were read; `None`: those of all.
    pub only: Option<String>,
    /// Flags of the commands that are proposed.
    pub flags: String,
    pub server: String,
    /// The answer of `/version`.
    pub version: Seen<Value>,
    /// The answer of `/readyz?verbose`, whatever its status.
    pub health: Seen<String>,
    /// The CustomResourceDefinitions in this binary.
    pub expected: Vec<Value>,
    /// Those that are installed, by name; `None` where one is not.
    pub installed: BTreeMap<String, Seen<Option<Value>>>,
    /// What the commands need, with the commands that do, and whether this user may.
    pub own: Vec<(Right, &'static str, Seen<bool>)>,
    /// `None` where there is no such account.
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
    /// Those of a control plane on one machine; others' are their administrators' business.
    pub nodes: Seen<Vec<Value>>,
    /// Warnings, oldest first.
    pub events: Seen<Vec<Value>>,
}

impl Facts {
    /// The version of the trainyard that serves this API itself, which then brings controllers and admission along.
    pub(crate) fn embedded(&self) -> Option<&str> {
        self.version.known()?["gitVersion"].as_str()?.split_once("+trainyard-").map(|(_, version)| version)
    }
}
