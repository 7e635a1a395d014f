//! `history.trainyard.dev/v1alpha1`: what ran for a TrainJob or an MPIJob. Read-only: every pod that it has or had, every run
//! of their containers, and (subresource `log`) the lines of each run; and the events that mention it.
//!
//! This is an API group of its own for the reason that `history` gives. On a laptop `trainyard up` serves it; a cluster does not
//! have it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The API group.
pub const GROUP: &str = "history.trainyard.dev";
/// The only version.
pub const VERSION: &str = "v1alpha1";
/// The resource of TrainJobs' histories: each has the name of its job.
pub const TRAINJOBS: &str = "trainjobs";
/// That of MPIJobs' histories.
pub const MPIJOBS: &str = "mpijobs";
/// The resource of the events about a job: one object for a name, whatever has it.
pub const EVENTS: &str = "events";
/// That of the output of managed jobs, which has only the subresource of the lines.
pub const MANAGED_JOBS: &str = "managedjobs";
/// The subresource of the lines.
pub const LOG: &str = "log";

/// The path of a job's history, of one of the resources.
pub fn path(namespace: &str, plural: &str, name: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{plural}/{name}")
}

/// What ran of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobHistory {
    pub api_version: String,
    pub kind: String,
    pub metadata: Metadata,
    /// In the order in which they were made.
    pub pods: Vec<PastPod>,
}

/// The job that a history is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metadata {
    pub name: String,
    pub namespace: String,
    pub uid: String,
}

impl JobHistory {
    pub fn new(metadata: Metadata, pods: Vec<PastPod>) -> Self {
        Self { api_version: format!("{GROUP}/{VERSION}"), kind: "JobHistory".to_owned(), metadata, pods }
    }
}

/// Events that may be about a job: those of its namespace that mention its name. Whose they are is for the reader to judge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobEvents {
    pub api_version: String,
    pub kind: String,
    pub metadata: Metadata,
    /// `v1` Events without managed fields.
    pub items: Vec<Value>,
}

impl JobEvents {
    pub fn new(metadata: Metadata, items: Vec<Value>) -> Self {
        Self { api_version: format!("{GROUP}/{VERSION}"), kind: "JobEvents".to_owned(), metadata, items }
    }
}

/// A pod of the job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PastPod {
    /// The object: as it is, or as it was when it was last seen.
    pub pod: Value,
    /// The object is still there.
    pub live: bool,
    /// The attempt of the job (`trainyard.dev/attempt`), from 1; 0 for an MPIJob's workers, which may serve several.
    pub attempt: i64,
    /// Containers that have run, init containers first.
    pub containers: Vec<PastContainer>,
}

/// A container of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PastContainer {
    pub name: String,
    /// Oldest first.
    pub attempts: Vec<Run>,
}

/// One run of a container: from its start to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Run {
    /// Which run of the container in its pod, from 0: how often it was restarted before.
    pub attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Absent while it runs, and where its end was not seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// As in a pod's status: `Completed`, `Error`, `OOMKilled`, `StartError`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The most memory that one of its processes had resident.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// How much of its log is there, as stored: with a time before each line.
    pub log_bytes: u64,
    /// The beginning of the log is gone: it was rotated away, or removed to keep within bounds.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub log_cut: bool,
}
