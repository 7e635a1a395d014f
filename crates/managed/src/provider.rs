//! What is said to providers of machines, and what they answer.

use api::sky::Candidate;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// A machine that a provider is asked to make.
///
/// The token is the uid of its Machine object, so it is durable before the provider hears of it, and never used again.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// By which the provider knows it again: two requests with one token are one machine.
    pub token: String,
    /// What its Node is to be called.
    pub node: String,
    /// What it is to be, and where.
    pub candidate: Candidate,
    /// Labels with which its Node is to be registered.
    pub labels: BTreeMap<String, String>,
    /// Taints of effect `NoSchedule` with which its Node is to be registered: keys and values.
    pub taints: BTreeMap<String, String>,
}

/// A machine that the provider may know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    /// The token with which it was asked for.
    pub token: String,
    /// What the provider calls it; `None` where its answer was lost.
    pub id: Option<String>,
    /// Of the wish that it be stopped or started: one with a lower number came earlier, however late it is heard.
    pub generation: i64,
}

/// A machine, as its provider sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The token with which it was asked for.
    pub token: String,
    /// What the provider calls it.
    pub id: String,
    /// Where it stands.
    pub state: State,
    /// Its Node.
    pub node: String,
    /// Its address, as other machines of its cluster reach it; empty while it has none.
    pub address: String,
    /// The home directory that jobs have on it; empty while it is not known.
    pub home: String,
}

/// Where a machine stands with its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is being made, or starts.
    Starting,
    /// It runs, and its agent was started.
    Running,
    /// It is being stopped.
    Stopping,
    /// It is stopped: it keeps its disk, and costs no machine.
    Stopped,
    /// It is being ended.
    Ending,
}

/// Proof that a machine has ended: the provider looked where the machine was, and nothing of it runs there.
///
/// A list without the machine, or a place that does not answer, is no proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Why, in words for the user: the pod was evicted, the claim on the host is gone.
    pub why: String,
    /// When, where the provider knows it.
    pub at: Option<Timestamp>,
}

impl Ended {
    /// An end whose time the provider does not know.
    pub fn because(why: impl Into<String>) -> Self {
        Self { why: why.into(), at: None }
    }
}

/// What a provider knows of a machine that exists or may exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is there.
    There(Seen),
    /// It has ended, or never existed, and nothing of it is left.
    Ended(Ended),
    /// The provider does not see it now. It may be there nevertheless: a list may lag. Ask again.
    Absent,
}

impl Found {
    /// An end whose time the provider does not know.
    pub fn ended(why: impl Into<String>) -> Self {
        Self::Ended(Ended::because(why))
    }

    /// The machine, where it is there.
    pub fn there(self) -> Option<Seen> {
        match self {
            Self::There(seen) => Some(seen),
            Self::Ended(_) | Self::Absent => None,
        }
    }
}

/// Why a call failed, and what is to become of that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// What is to become of it.
    pub fate: Fate,
    /// What happened, to which machine, and what to do next: one line.
    pub what: String,
}

impl Failure {
    /// A failure of this fate.
    pub fn new(fate: Fate, what: impl Into<String>) -> Self {
        Self { fate, what: what.into() }
    }
}

/// What is to become of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Ask again after a backoff: a connection broke, an answer did not come. The call may have had its effect.
    Retry,
    /// Ask again, and not before this time is over: the provider said so.
    Later(Duration),
    /// There is no room at this place; another may have some.
    NextCandidate,
    /// It is refused, and would be again until somebody changes something: a key, a quota, a file.
    GiveUp,
}
