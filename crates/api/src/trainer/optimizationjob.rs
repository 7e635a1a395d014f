//! OptimizationJob: a search for the parameters with which a TrainJob does best.

use super::is_default;
use super::trainjob::TrainJobSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A search for the parameters with which a TrainJob does best: many trials, each a TrainJob of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OptimizationJob {
    /// `trainer.kubeflow.org/v1alpha1`.
    #[serde(default)]
    pub api_version: String,
    /// `OptimizationJob`.
    #[serde(default)]
    pub kind: String,
    /// Name, namespace, labels and what else every object has.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::ObjectMeta"))]
    pub metadata: ObjectMeta,
    /// What to search. Cannot be changed.
    pub spec: OptimizationJobSpec,
    /// What has become of it, as last observed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: OptimizationJobStatus,
}

/// What to search, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("x-kubernetes-validations" = [
    {"rule": "self == oldSelf", "message": "OptimizationJobSpec is immutable and cannot be updated after creation"},
    {"rule": "self.parallelTrials <= self.numTrials", "message": "parallelTrials cannot exceed numTrials"},
    {"rule": "!has(self.searchAlgorithm.grid) || self.parameters.all(p, has(p.searchSpace.categorical))", "message":
        "Grid search requires all parameters to be Categorical; Uniform and LogUniform are not supported."},
])))]
pub struct OptimizationJobSpec {
    /// The metric to optimise; exactly one.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["metric"])))]
    pub objectives: Vec<Objective>,
    /// How trials are chosen. Default: at random.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = {"random": {}})))]
    pub search_algorithm: Option<SearchAlgorithm>,
    /// The parameters to vary: 1 to 100.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 100), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])))]
    pub parameters: Vec<Parameter>,
    /// How many trials in all: 1 to 100. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 100), extend("default" = 1)))]
    pub num_trials: Option<i32>,
    /// How many trials may run at once: 1 to 100, at most numTrials. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 100), extend("default" = 1)))]
    pub parallel_trials: Option<i32>,
    /// The TrainJob of each trial, before its parameters are filled in.
    pub train_job_template: TrainJobTemplate,
}

/// A metric and which way is better.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Objective {
    /// Name of the metric, as the training code reports it.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
    pub metric: String,
    /// Maximize or Minimize (the default).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "Minimize")))]
    pub direction: Option<Direction>,
}

/// Which way a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Direction {
    Maximize,
    Minimize,
}

/// How trials are chosen; exactly one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("x-kubernetes-validations" = [
    {"rule": "[has(self.random),has(self.grid)].filter(x,x==true).size() == 1",
     "message": "exactly one of the fields in [random grid] must be set"}])))]
pub struct SearchAlgorithm {
    /// Values at random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random: Option<RandomSearch>,
    /// Every combination of values; needs categorical parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grid: Option<GridSearch>,
}

/// Values at random.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RandomSearch {
    /// Seed of the random numbers: the same seed gives the same trials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
}

/// Every combination of values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GridSearch {}

/// One parameter and its possible values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Parameter {
    /// The parameter's name.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
    pub name: String,
    /// Its possible values.
    pub search_space: SearchSpace,
}

/// The possible values of a parameter; exactly one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("x-kubernetes-validations" = [
    {"rule": "[has(self.uniform),has(self.logUniform),has(self.categorical)].filter(x,x==true).size() == 1",
     "message": "exactly one of the fields in [uniform logUniform categorical] must be set"}])))]
pub struct SearchSpace {
    /// A number between two bounds, each equally likely.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(transform = crate::schema::min_below_max))]
    pub uniform: Option<NumericSpace>,
    /// A number between two positive bounds, each order of magnitude equally likely.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(transform = crate::schema::positive_min_below_max))]
    pub log_uniform: Option<NumericSpace>,
    /// One of a list of values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub categorical: Option<CategoricalSpace>,
}

/// Numbers between two bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NumericSpace {
    /// The lower bound: a decimal number, as text.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64),
        extend("pattern" = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$")))]
    pub min: String,
    /// The upper bound, above min: a decimal number, as text.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64),
        extend("pattern" = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$")))]
    pub max: String,
    /// Int for whole numbers, Float (the default) for any.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "Float")))]
    pub value_type: Option<NumericType>,
}

/// Which numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum NumericType {
    Int,
    Float,
}

/// A list of values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CategoricalSpace {
    /// The values: 1 to 100, all different.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 100), inner(length(max = 64)), extend(
        "x-kubernetes-list-type" = "set")))]
    pub choices: Vec<String>,
}

/// The TrainJob of each trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrainJobTemplate {
    /// Labels and annotations of each trial's TrainJob.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
        {"rule": "!has(self.name) && !has(self.namespace)",
         "message": "name and namespace cannot be set in a template."}])))]
    pub metadata: TrainJobTemplateMetadata,
    /// Spec of each trial's TrainJob.
    pub spec: TrainJobSpec,
}

/// Metadata of a trial's TrainJob.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrainJobTemplateMetadata {
    /// Must not be set: trials are named by the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Must not be set: trials live in the OptimizationJob's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Labels by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Accepted for compatibility; without effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
}

/// What has become of a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OptimizationJobStatus {
    /// Where the search stands, each with when and why it last changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::schema::Condition>", length(max = 100), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])))]
    pub conditions: Vec<Condition>,
    /// The best trial so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<OptimizationResult>,
}

/// The best trial of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OptimizationResult {
    /// Name of the trial's TrainJob.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 63)))]
    pub train_job_name: String,
    /// The values it was run with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 100), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])))]
    pub parameters: Vec<Assignment>,
}

/// A parameter's value in one trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Assignment {
    /// The parameter.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
    pub name: String,
    /// Its value, as text.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
    pub value: String,
}
