//! What has become of an MPIJob.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Whether a member equals its type's default; such members are left out of JSON, as Go's `omitempty` does.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What has become of a job, as last observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobStatus {
    /// Aspects of the job's state. The one that changed last comes last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])))]
    pub conditions: Vec<JobCondition>,
    /// How many pods stand where, by role: Launcher and Worker.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replica_statuses: BTreeMap<String, ReplicaStatus>,
    /// When the job was first seen and not suspended, or was last resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::Time>"))]
    pub start_time: Option<Time>,
    /// When the launcher had ended for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::Time>"))]
    pub completion_time: Option<Time>,
    /// Never written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::Time>"))]
    pub last_reconcile_time: Option<Time>,
}

/// How many pods of a role stand where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplicaStatus {
    /// How many run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub active: i32,
    /// How many succeeded.
    #[serde(default, skip_serializing_if = "is_default")]
    pub succeeded: i32,
    /// How many failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed: i32,
    /// Never written; deprecated for selector.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::LabelSelector>"))]
    pub label_selector: Option<LabelSelector>,
    /// Never written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}

/// One aspect of a job's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("required" = ["status", "type"])))]
pub struct JobCondition {
    /// The aspect: Created, Running, Suspended, Succeeded or Failed.
    #[serde(rename = "type")]
    pub condition_type: String,
    /// Whether it holds: True, False or Unknown.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["True", "False", "Unknown"])))]
    pub status: String,
    /// Why it was last set, for programs: one word in CamelCase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it was last set, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When status or reason last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::Time>"))]
    pub last_update_time: Option<Time>,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::Time>"))]
    pub last_transition_time: Option<Time>,
}

impl JobStatus {
    /// Whether the condition is there and True.
    pub fn is(&self, condition: ConditionType) -> bool {
        self.condition(condition).is_some_and(|found| found.status == "True")
    }

    /// The condition, where it is there.
    pub fn condition(&self, condition: ConditionType) -> Option<&JobCondition> {
        self.conditions.iter().find(|found| found.condition_type == condition.as_str())
    }

    /// Whether the job has succeeded or failed; it may still go on where a worker was evicted, see `completion_time`.
    pub fn is_finished(&self) -> bool {
        self.is(ConditionType::Succeeded) || self.is(ConditionType::Failed)
    }
}

/// Types of an MPIJob's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionType {
    Created,
    Running,
    /// In upstream's API, where nothing sets it; here between two attempts.
    Restarting,
    Succeeded,
    Suspended,
    Failed,
}

impl ConditionType {
    /// As `status.conditions[].type` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Running => "Running",
            Self::Restarting => "Restarting",
            Self::Succeeded => "Succeeded",
            Self::Suspended => "Suspended",
            Self::Failed => "Failed",
        }
    }
}

/// Reasons of conditions and events. A failed launcher's Job lends its own reason to the condition Failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    Created,
    Running,
    Succeeded,
    Failed,
    Suspended,
    Resumed,
    Evicted,
    /// Ours: the launcher has failed, and is tried again.
    Restarting,
    /// Of an event: the spec cannot be run.
    ValidationError,
    /// Of an event: a child's name is somebody else's.
    ResourceExists,
    /// Of an event: the template's restart policy does not count.
    SetPodTemplateRestartPolicy,
    /// Of an event, ours: a launcher that was to wait for its workers did so in vain.
    WorkersNotReachable,
    /// Of an event, ours: a launcher succeeded, and entered no worker.
    WorkersNotUsed,
}

impl Reason {
    /// As conditions and events have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "MPIJobCreated",
            Self::Running => "MPIJobRunning",
            Self::Succeeded => "MPIJobSucceeded",
            Self::Failed => "MPIJobFailed",
            Self::Suspended => "MPIJobSuspended",
            Self::Resumed => "MPIJobResumed",
            Self::Evicted => "MPIJobEvicted",
            Self::Restarting => "MPIJobRestarting",
            Self::ValidationError => "ValidationError",
            Self::ResourceExists => "ErrResourceExists",
            Self::SetPodTemplateRestartPolicy => "SetPodTemplateRestartPolicy",
            Self::WorkersNotReachable => "WorkersNotReachable",
            Self::WorkersNotUsed => "WorkersNotUsed",
        }
    }
}
