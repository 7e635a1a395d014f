//! `Budget`: what the managed jobs of a namespace, a user or a label may spend.

use super::is_default;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A limit on what managed jobs spend. Jobs wait while the budget has no room for their next attempt, and are stopped when it is reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Budget {
    /// `sky.trainyard.dev/v1alpha1`.
    #[serde(default)]
    pub api_version: String,
    /// `Budget`.
    #[serde(default)]
    pub kind: String,
    /// Name, namespace, labels and what else every object has.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::ObjectMeta"))]
    pub metadata: ObjectMeta,
    /// The limit, and the jobs that it is for.
    pub spec: BudgetSpec,
    /// What was spent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: BudgetStatus,
}

/// The limit, and the jobs that it is for: all managed jobs of the namespace that meet `user` and `selector`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetSpec {
    /// The limit in one unit or more. The budget is exceeded once one of them is reached.
    pub limit: BudgetLimit,
    /// Only jobs whose `spec.user` is this name. Default: jobs of all users.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(length(max = 253)))]
    pub user: String,
    /// Only jobs with these labels. Default: jobs with any labels.
    #[serde(default, skip_serializing_if = "is_default")]
    pub selector: BudgetSelector,
    /// When spend starts again from zero, UTC. Default: Total.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "Total")))]
    pub period: BudgetPeriod,
    /// An attempt starts only if the budget has room for this many minutes at its most expensive place. 0 reserves nothing. Default: 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1_000_000), extend("default" = 10)))]
    pub reserve_minutes: Option<u32>,
}

/// The limit in one unit or more. In any of them, 0 means that no job is launched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.dollars) || has(self.gpuHours) || has(self.machineHours)",
     "message": "a budget needs a limit: set at least one of dollars, gpuHours and machineHours"}])))]
pub struct BudgetLimit {
    /// Dollars, by the prices of the places. Machines of SSH pools and this computer have no price.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub dollars: Option<f64>,
    /// Hours of accelerators.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub gpu_hours: Option<f64>,
    /// Hours of machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub machine_hours: Option<f64>,
}

/// Labels of managed jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetSelector {
    /// Labels that a job must have, with these values.
    #[serde(default, skip_serializing_if = "is_default")]
    pub match_labels: BTreeMap<String, String>,
}

/// When a budget begins anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum BudgetPeriod {
    /// Never.
    #[default]
    Total,
    /// At midnight, UTC.
    Day,
    /// On the first of the month, UTC.
    Month,
}

/// What was spent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetStatus {
    /// When the period began, RFC 3339: not before the budget was created.
    #[serde(default, skip_serializing_if = "is_default")]
    pub period_start: String,
    /// Spent in this period, until `accruedAt`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub spent: BudgetAmount,
    /// Reserved for attempts that began a short time ago or are about to begin.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reserved: BudgetAmount,
    /// Time up to which `spent` is added up, RFC 3339. Updated once a minute while machines run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub accrued_at: String,
    /// When the limit was reached, RFC 3339; empty: it is not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exceeded_at: String,
    /// What the budget does, and what a user can do about it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub message: String,
    /// Jobs that were stopped or wait, the latest ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub jobs: Vec<BudgetJob>,
    /// The part of `spent` that no longer depends on existing machines.
    #[serde(default, skip_serializing_if = "is_default")]
    pub settled: BudgetAmount,
    /// Start of the unsettled spend of existing machines, RFC 3339. Earlier spend is in `settled` or belongs to an earlier period.
    #[serde(default, skip_serializing_if = "is_default")]
    pub counted_from: String,
    /// Uids of machines that are in `settled` although their objects may still exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub settling: Vec<String>,
    /// Each with when and why it last changed: `Exceeded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::schema::Condition>", extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])))]
    pub conditions: Vec<Condition>,
}

/// An amount in each unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetAmount {
    /// Dollars.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dollars: f64,
    /// Hours of accelerators.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpu_hours: f64,
    /// Hours of machines.
    #[serde(default, skip_serializing_if = "is_default")]
    pub machine_hours: f64,
}

/// A job that a budget acted on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetJob {
    /// The name of the ManagedJob.
    pub name: String,
    /// What the budget did.
    pub action: BudgetAction,
    /// When it did so first, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub at: String,
}

/// What a budget did to a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum BudgetAction {
    /// Its next attempt waits.
    #[default]
    Waits,
    /// It was stopped.
    Stopped,
}
