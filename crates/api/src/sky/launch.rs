//! `Launch`: a task on its way to a cluster.

use super::{Autostop, is_default};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A task that is to run on a cluster: the control plane makes the cluster where there is none, puts the task's files onto its machines and
/// submits the job. No client need wait for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Launch {
    /// `sky.trainyard.dev/v1alpha1`.
    #[serde(default)]
    pub api_version: String,
    /// `Launch`.
    #[serde(default)]
    pub kind: String,
    /// Name, namespace, labels and what else every object has.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::ObjectMeta"))]
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: LaunchSpec,
    /// How far it is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: LaunchStatus,
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaunchSpec {
    /// What the user calls the cluster.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024)))]
    pub cluster: String,
    /// The task in the form of a task file. Variables, secrets and the client's files are left out.
    #[cfg_attr(feature = "schema", schemars(extend("type" = "object", "x-kubernetes-preserve-unknown-fields" = true)))]
    pub task: serde_json::Value,
    /// The Secret with the variables of the job. Default: it has none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub secret: String,
    /// Files of the client, which the control plane keeps by content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub files: Vec<LaunchFiles>,
    /// Whether the cluster must be there and up. Default: false; it is made or started.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_existing: bool,
    /// Whether the cluster must be there. It is started if it is not up. Default: false; it is made.
    #[serde(default, skip_serializing_if = "is_default")]
    pub start: bool,
    /// Whether the task's `setup` runs before its job. Default: Always.
    #[serde(default, skip_serializing_if = "is_default")]
    pub setup: WhenSetUp,
    /// A digest of what the task sets up: machines that were set up for this need not be set up again. Default: they are.
    #[serde(default, skip_serializing_if = "is_default")]
    pub configuration: String,
    /// When the cluster stops by itself, from when the job was submitted. Default: as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autostop: Option<Autostop>,
    /// Whether the cluster is not to stop by itself any more. Default: as it is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub no_autostop: bool,
    /// Whether the cluster tries all places again if none had capacity. Default: as it is; a new one does not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retry_until_up: bool,
    /// Settings of this launch that go before those of the control plane's `~/.sky/config.yaml`.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(extend("type" = "object", "x-kubernetes-preserve-unknown-fields" = true)))]
    pub settings: serde_json::Value,
    /// The folder of price lists. Default: `~/.sky/catalogs/v8` of the control plane.
    #[serde(default, skip_serializing_if = "is_default")]
    pub catalog: String,
    /// The managed job whose attempt it is. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed: Option<LaunchManaged>,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub user: String,
    /// The command that asked for it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub command: String,
}

/// What a launch needs to know of its managed job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaunchManaged {
    /// The name of the ManagedJob.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub job: String,
    /// Its uid.
    pub uid: String,
    /// Number of the task in its job, from 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub task: u32,
    /// Number of the attempt, from 1.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempt: u32,
    /// `SKYPILOT_TASK_ID` of its processes: the same in all attempts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub task_id: String,
    /// Further variables of its processes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// `provider/region` that is tried last.
    #[serde(default, skip_serializing_if = "is_default")]
    pub last_place: String,
    /// `provider/region` that is tried first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub first_place: String,
    /// `provider/region/zone`, and no other is tried. Default: all are.
    #[serde(default, skip_serializing_if = "is_default")]
    pub only_place: String,
    /// Whether the job waits, once it is set up, until the managed job releases it: the tasks of a job group start together. Default: false.
    #[serde(default, skip_serializing_if = "is_default")]
    pub held: bool,
    /// Whether its machines are spot machines. Default: as the task says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_spot: Option<bool>,
}

/// A folder or a file that is put onto the machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaunchFiles {
    /// Where on the machines: below the home unless it is absolute.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 4096)))]
    pub to: String,
    /// What the client calls it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub from: String,
    /// The SHA-256 of each part of the list of its files.
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub list: Vec<String>,
}

/// Whether a task's `setup` runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum WhenSetUp {
    /// It runs.
    #[default]
    Always,
    /// It runs unless the cluster is up and was set up for this configuration.
    UnlessDone,
    /// It does not run.
    Never,
}

/// How far a launch is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaunchStatus {
    /// What is done about it now.
    #[serde(default, skip_serializing_if = "is_default")]
    pub phase: LaunchPhase,
    /// What it waits for, or why it failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub message: String,
    /// The uid of the Cluster that it is about, once there is one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cluster_uid: String,
    /// The generation of the Cluster that has to be up.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cluster_generation: i64,
    /// Whether the cluster was made for it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_new: bool,
    /// Whether its `setup` is left out, as the machines are set up for its configuration.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_set_up: bool,
    /// The number of its job; 0 where it has none, or not yet.
    #[serde(default, skip_serializing_if = "is_default")]
    pub job: u32,
    /// When it ended, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ended_at: String,
}

/// What is done about a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum LaunchPhase {
    /// A place for the cluster is looked for, or an older cluster of its name ends.
    #[default]
    Pending,
    /// The cluster's machines are made or started.
    Provisioning,
    /// Its files are put onto the machines.
    Sending,
    /// Its job is submitted.
    Submitting,
    /// Its job was submitted, or it has none and the cluster is up.
    Succeeded,
    /// It will not come to a job.
    Failed,
}

impl LaunchPhase {
    /// Whether nothing more is done about it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}
