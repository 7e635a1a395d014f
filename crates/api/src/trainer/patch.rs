//! Runtime patches: what a TrainJob's user, or a controller such as Kueue, may change in the runtime's template.
//!
//! The shape follows the runtime's own template down to the pod; only the fields listed here exist.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The changes of one manager.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuntimePatch {
    /// Who owns this entry: a domain name, or a domain name and a path, such as kueue.x-k8s.io/manager.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253), transform = crate::schema::immutable))]
    pub manager: String,
    /// When the entry was last written. Set at admission, for observation only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::Time>"))]
    pub time: Option<Time>,
    /// Changes to the spec of the TrainingRuntime or ClusterTrainingRuntime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training_runtime_spec: Option<RuntimeSpecPatch>,
}

/// What of a runtime's spec may be patched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuntimeSpecPatch {
    /// Changes to the JobSet template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<JobSetTemplatePatch>,
}

/// Changes to the JobSet that the TrainJob becomes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobSetTemplatePatch {
    /// Labels and annotations to add to the JobSet, or to replace there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<EmbeddedMetadata>,
    /// Changes to the JobSet's spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<JobSetPatchSpec>,
}

/// What of a JobSet's spec may be patched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobSetPatchSpec {
    /// Changes to replicated jobs, matched by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 100), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])))]
    pub replicated_jobs: Vec<ReplicatedJobPatch>,
}

/// Changes to one replicated job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplicatedJobPatch {
    /// Which replicated job of the runtime.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub name: String,
    /// Changes to its Job template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<JobTemplatePatch>,
}

/// Changes to a Job template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobTemplatePatch {
    /// Labels and annotations to add to the Job, or to replace there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<EmbeddedMetadata>,
    /// Changes to the Job's spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<JobPatchSpec>,
}

/// What of a Job's spec may be patched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobPatchSpec {
    /// Changes to the pod template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<PodTemplatePatch>,
}

/// Changes to a pod template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PodTemplatePatch {
    /// Labels and annotations to add to the pods, or to replace there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<EmbeddedMetadata>,
    /// Changes to the pods' spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<PodPatchSpec>,
}

/// What of a pod's spec may be patched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PodPatchSpec {
    /// The service account that the pods run as. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 253), transform = crate::schema::immutable))]
    pub service_account_name: Option<String>,
    /// Volumes to add, or to change where the name is already there. Cannot be changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::schema::Volume>", length(max = 128), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]),
        transform = crate::schema::immutable))]
    pub volumes: Vec<Value>,
    /// Changes to init containers, matched by name. Cannot be changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]),
        transform = crate::schema::immutable))]
    pub init_containers: Vec<ContainerPatch>,
    /// Changes to containers, matched by name. Cannot be changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]),
        transform = crate::schema::immutable))]
    pub containers: Vec<ContainerPatch>,
    /// Secrets with which images are pulled, added to the runtime's. Cannot be changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::schema::LocalObjectReference>", length(max = 64), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]),
        transform = crate::schema::immutable))]
    pub image_pull_secrets: Vec<Value>,
    /// The pods' security context, merged field by field. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::PodSecurityContext>",
        transform = crate::schema::immutable))]
    pub security_context: Option<Value>,
    /// Labels that a cluster node must have to get the pods, added to the runtime's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Where the scheduler may place the pods, merged field by field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::Affinity>"))]
    pub affinity: Option<Value>,
    /// Taints that the pods tolerate, instead of the runtime's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::schema::Toleration>", length(max = 128), extend(
        "x-kubernetes-list-type" = "atomic")))]
    pub tolerations: Vec<Value>,
    /// Gates that keep the pods from being scheduled until they are removed, added to the runtime's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::schema::PodSchedulingGate>", length(max = 16), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])))]
    pub scheduling_gates: Vec<Value>,
    /// Seconds between asking the pods to end and killing them. At least 0. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0), transform = crate::schema::immutable))]
    pub termination_grace_period_seconds: Option<i64>,
}

/// Changes to one container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContainerPatch {
    /// Which container; the runtime must have it.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub name: String,
    /// Environment variables to add or to replace. Refused for the containers node, dataset-initializer and
    /// model-initializer, whose variables are set with spec.trainer.env and spec.initializer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::schema::EnvVar>", length(max = 128), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])))]
    pub env: Vec<Value>,
    /// Volumes to mount into the container; each volume at most once here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::schema::VolumeMount>", length(max = 128), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])))]
    pub volume_mounts: Vec<Value>,
    /// The container's security context, merged field by field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::SecurityContext>"))]
    pub security_context: Option<Value>,
}

/// Metadata of an object inside a template or patch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EmbeddedMetadata {
    /// Accepted for compatibility; the object is named by its controller.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Accepted for compatibility; the object is made in its owner's namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
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
