//! TrainJob: a training job as a user writes it.

use super::is_default;
use super::patch::RuntimePatch;
use super::status::TrainJobStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A training job: a reference to a runtime, which says how training of a framework is run, and what this job adds to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
     "message": "metadata.name must match RFC 1035 DNS label format"},
    {"rule": "size(self.metadata.name) <= 63", "message": "metadata.name must be no more than 63 characters"},
])))]
pub struct TrainJob {
    /// `trainer.kubeflow.org/v1alpha1`.
    #[serde(default)]
    pub api_version: String,
    /// `TrainJob`.
    #[serde(default)]
    pub kind: String,
    /// Name, namespace, labels and what else every object has. The name is a DNS label of at most 63 characters that
    /// begins with a letter: pods' host names are made of it.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::ObjectMeta"))]
    pub metadata: ObjectMeta,
    /// What to run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub spec: TrainJobSpec,
    /// What has become of it, as last observed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: TrainJobStatus,
}

/// What to run: a runtime and what this job changes in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrainJobSpec {
    /// The runtime to train with. Cannot be changed.
    #[cfg_attr(feature = "schema", schemars(transform = crate::schema::immutable))]
    pub runtime_ref: RuntimeRef,
    /// Fetches the dataset and the pre-trained model before training starts. Needs a runtime with initializer steps.
    /// Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(transform = crate::schema::immutable))]
    pub initializer: Option<Initializer>,
    /// The training step: code, size and resources. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(transform = crate::schema::immutable))]
    pub trainer: Option<Trainer>,
    /// Changes to the runtime's template for this job only, one entry a manager, so that users and controllers such as
    /// Kueue do not overwrite each other's. Applied in order. May be changed only while the job is suspended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 16), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["manager"])))]
    pub runtime_patches: Vec<RuntimePatch>,
    /// While true no pod runs; pods that run are stopped. Setting it back starts the job anew. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = false)))]
    pub suspend: Option<bool>,
    /// Seconds that the job may be active, counted from its start or its last resumption, before its pods are ended and
    /// it fails with reason DeadlineExceeded. At least 1; no limit if absent. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1), transform = crate::schema::immutable))]
    pub active_deadline_seconds: Option<i64>,
    /// Who reconciles the job: trainer.kubeflow.org/trainjob-controller (the default) or kueue.x-k8s.io/multikueue, which
    /// runs it in another cluster and copies the status here. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 253), extend(
        "default" = "trainer.kubeflow.org/trainjob-controller",
        "x-kubernetes-validations" = [
            {"rule": "self in ['trainer.kubeflow.org/trainjob-controller', 'kueue.x-k8s.io/multikueue']",
             "message": "ManagedBy must be trainer.kubeflow.org/trainjob-controller or kueue.x-k8s.io/multikueue if set"},
            {"rule": "self == oldSelf", "message": "field is immutable"},
        ])))]
    pub managed_by: Option<String>,
}

/// The default of `runtimeRef.apiGroup`.
const DEFAULT_RUNTIME_GROUP: &str = super::GROUP;
/// The default of `runtimeRef.kind`.
const DEFAULT_RUNTIME_KIND: &str = "ClusterTrainingRuntime";

/// Names a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuntimeRef {
    /// The runtime's name. A TrainingRuntime must be in the TrainJob's own namespace.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub name: String,
    /// The runtime's API group. Default: trainer.kubeflow.org.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 253), extend("default" = "trainer.kubeflow.org")))]
    pub api_group: Option<String>,
    /// The runtime's kind: TrainingRuntime or ClusterTrainingRuntime (the default).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 253), extend("default" = "ClusterTrainingRuntime")))]
    pub kind: Option<String>,
}

impl RuntimeRef {
    /// The API group, defaulted.
    pub fn group(&self) -> &str {
        self.api_group.as_deref().unwrap_or(DEFAULT_RUNTIME_GROUP)
    }

    /// The kind, defaulted.
    pub fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or(DEFAULT_RUNTIME_KIND)
    }
}

/// What is fetched before training starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Initializer {
    /// The dataset. Changes the runtime's step whose Job template is labelled
    /// trainer.kubeflow.org/trainjob-ancestor-step: dataset-initializer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataset: Option<InitializerStep>,
    /// The pre-trained model. Changes the runtime's step whose Job template is labelled
    /// trainer.kubeflow.org/trainjob-ancestor-step: model-initializer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<InitializerStep>,
}

/// One thing to fetch, and with which credentials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InitializerStep {
    /// Where it is: scheme://…, such as hf://owner/name or s3://bucket/path. Becomes the variable STORAGE_URI of the
    /// step's container, also when empty; the runtime's own value stays if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 2048), extend("x-kubernetes-validations" = [
        {"rule": "self == '' || self.matches('^[A-Za-z][A-Za-z0-9+.-]*://.+$')",
         "message": "storageUri may be empty, or it must be a valid URI (scheme://...)"}])))]
    pub storage_uri: Option<String>,
    /// Environment variables of the step's container; each replaces the runtime's of the same name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::schema::EnvVar>", length(max = 128), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])))]
    pub env: Vec<Value>,
    /// A Secret of the TrainJob's namespace; each of its keys becomes an environment variable of the step's container.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::LocalObjectReference>"))]
    pub secret_ref: Option<Value>,
}

/// The training step: what it changes in the runtime's step whose Job template is labelled
/// trainer.kubeflow.org/trainjob-ancestor-step: trainer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trainer {
    /// The training container's image, instead of the runtime's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 500)))]
    pub image: Option<String>,
    /// The training container's command, instead of the runtime's; args stay the runtime's unless given too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 128), inner(length(max = 1048576)), extend(
        "x-kubernetes-list-type" = "atomic")))]
    pub command: Option<Vec<String>>,
    /// The training container's arguments, instead of the runtime's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 128), inner(length(max = 1048576)), extend(
        "x-kubernetes-list-type" = "atomic")))]
    pub args: Option<Vec<String>>,
    /// Environment variables of the training container; each replaces the runtime's of the same name. Names that the
    /// runtime's ML policy sets itself are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::schema::EnvVar>", length(max = 128), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])))]
    pub env: Vec<Value>,
    /// How many training nodes (pods). Default: the runtime's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub num_nodes: Option<i32>,
    /// Compute resources of each training node; each named resource replaces the runtime's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::ResourceRequirements>"))]
    pub resources_per_node: Option<Value>,
    /// How many processes (MPI: slots) on each training node. Default: for torch one a GPU, or one a CPU where the node
    /// has no GPU; for MPI and Flux the runtime's. At least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
        {"rule": "self >= 1", "message": "numProcPerNode must be greater than or equal to 1"}])))]
    pub num_proc_per_node: Option<i32>,
}

impl TrainJobSpec {
    /// Whether no pod may run.
    pub fn is_suspended(&self) -> bool {
        self.suspend.unwrap_or(false)
    }

    /// Who reconciles the job, defaulted.
    pub fn manager(&self) -> &str {
        self.managed_by.as_deref().unwrap_or(super::names::MANAGED_BY_TRAINER)
    }
}
