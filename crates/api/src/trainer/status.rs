//! A TrainJob's status, and what a running trainer posts to the status server.

use super::is_default;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::{Deserialize, Serialize};

/// What has become of a TrainJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("minProperties" = 1)))]
pub struct TrainJobStatus {
    /// Suspended, Complete and Failed, each with when and why it last changed. Complete and Failed are final.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::schema::Condition>", length(max = 8), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])))]
    pub conditions: Vec<Condition>,
    /// Counts of child Jobs, one entry a replicated job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 100), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])))]
    pub jobs_status: Vec<JobStatus>,
    /// What the training code last reported of its progress. Absent until it reports; needs the feature gate
    /// TrainJobStatus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trainer_status: Option<TrainerStatus>,
}

/// Counts of the child Jobs of one replicated job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobStatus {
    /// Name of the replicated job.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub name: String,
    /// Jobs of which enough pods are ready or have succeeded.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub ready: i32,
    /// Jobs that completed.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub succeeded: i32,
    /// Jobs that failed.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub failed: i32,
    /// Jobs with a pod that is pending or running.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub active: i32,
    /// Jobs that are suspended.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub suspended: i32,
}

/// What the training code reports of its progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.lastUpdatedTime)", "message": "lastUpdatedTime is required when trainerStatus is present"}])))]
pub struct TrainerStatus {
    /// How much is done, in percent: 0 to 100; absent where unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 100)))]
    pub progress_percentage: Option<i32>,
    /// Seconds that training is expected to take yet; absent where unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub estimated_remaining_seconds: Option<i32>,
    /// The latest value of each metric.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic")))]
    pub metrics: Vec<Metric>,
    /// When the training code observed all this. Must be given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::Time>"))]
    pub last_updated_time: Option<Time>,
}

/// One metric's latest value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("required" = ["name", "value"])))]
pub struct Metric {
    /// The metric's name, such as loss or eval_accuracy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
    pub name: String,
    /// The value, as text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
    pub value: String,
}

/// Body of a POST to the status server, and of its answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateTrainJobStatusRequest {
    /// Replaces the TrainJob's trainerStatus; absent: nothing is written.
    #[serde(default, skip_serializing_if = "is_default")]
    pub trainer_status: Option<TrainerStatus>,
}
