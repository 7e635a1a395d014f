//! TrainingRuntime and ClusterTrainingRuntime: the blueprint for jobs of a framework, written once by a platform engineer.

use super::is_default;
use super::patch::EmbeddedMetadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How training of a framework is run, for the TrainJobs of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrainingRuntime {
    /// `trainer.kubeflow.org/v1alpha1`.
    #[serde(default)]
    pub api_version: String,
    /// `TrainingRuntime`.
    #[serde(default)]
    pub kind: String,
    /// Name, namespace, labels and what else every object has.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::ObjectMeta"))]
    pub metadata: ObjectMeta,
    /// How to train.
    #[serde(default, skip_serializing_if = "is_default")]
    pub spec: TrainingRuntimeSpec,
}

/// How training of a framework is run, for the TrainJobs of every namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClusterTrainingRuntime {
    /// `trainer.kubeflow.org/v1alpha1`.
    #[serde(default)]
    pub api_version: String,
    /// `ClusterTrainingRuntime`.
    #[serde(default)]
    pub kind: String,
    /// Name, labels and what else every object has.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::ObjectMeta"))]
    pub metadata: ObjectMeta,
    /// How to train.
    #[serde(default, skip_serializing_if = "is_default")]
    pub spec: TrainingRuntimeSpec,
}

/// How to train: the framework's policy, gang scheduling, and the template of the JobSet that runs the pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("minProperties" = 1)))]
pub struct TrainingRuntimeSpec {
    /// How the framework's processes are arranged and how they find each other. Without it the template runs as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ml_policy: Option<MlPolicy>,
    /// Schedule all pods of a job together or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_group_policy: Option<PodGroupPolicy>,
    /// Template of the JobSet that each TrainJob becomes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub template: JobSetTemplate,
}

/// Template of a JobSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("minProperties" = 1)))]
pub struct JobSetTemplate {
    /// Labels and annotations of the JobSet.
    #[serde(default, skip_serializing_if = "is_default")]
    pub metadata: EmbeddedMetadata,
    /// Spec of the JobSet (jobset.x-k8s.io/v1alpha2).
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::JobSetSpec"))]
    pub spec: Value,
}

/// How the framework's processes are arranged. At most one framework may be named; none is plain: as many pods as
/// numNodes says, and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("x-kubernetes-validations" = [
    {"rule": "[has(self.torch), has(self.mpi), has(self.jax), has(self.xgboost),has(self.flux)].filter(x, x).size() <= 1",
     "message": "Only one of the policy can be configured"}])))]
pub struct MlPolicy {
    /// How many training nodes (pods) unless the TrainJob says. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_nodes: Option<i32>,
    /// PyTorch: torchrun's PET variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch: Option<TorchPolicy>,
    /// MPI: SSH keys, a hostfile and a launcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpi: Option<MpiPolicy>,
    /// Flux: a Flux Framework instance over the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flux: Option<FluxPolicy>,
    /// JAX: the distributed runtime's variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jax: Option<JaxPolicy>,
    /// XGBoost: the collective tracker's variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xgboost: Option<XGBoostPolicy>,
}

/// Settings of PyTorch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TorchPolicy {
    /// Further containers that get the PET variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_injection: Option<EnvInjection>,
}

/// Containers, other than the trainer's main one, that get the framework's variables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EnvInjection {
    /// The containers, by replicated job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 16), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["jobName"])))]
    pub targets: Vec<EnvInjectionTarget>,
}

/// Containers of one replicated job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EnvInjectionTarget {
    /// Name of the replicated job in the template.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub job_name: String,
    /// Names of its containers or init containers; not node, which has the variables anyway.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 8), inner(length(max = 63)), extend(
        "x-kubernetes-list-type" = "set",
        "x-kubernetes-validations" = [{"rule": "!self.exists(c, c == 'node')", "message":
            "containerNames must not include the main node container because PET_* envs are always injected into it"}])))]
    pub container_names: Vec<String>,
}

/// Settings of MPI.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MpiPolicy {
    /// How many processes (slots) on each node unless the TrainJob says. With the default, 1, and several GPUs a node:
    /// one a GPU. At least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = 1, "x-kubernetes-validations" = [
        {"rule": "self >= 1", "message": "NumProcPerNode in mpiPolicy must be >= 1"}])))]
    pub num_proc_per_node: Option<i32>,
    /// The MPI implementation in the image. Default: OpenMPI.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>", extend(
        "default" = "OpenMPI", "enum" = ["OpenMPI", ""])))]
    pub mpi_implementation: Option<MpiImplementation>,
    /// Directory into which the SSH key pair is mounted. Default: /root/.ssh.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 4096), extend("default" = "/root/.ssh")))]
    pub ssh_auth_mount_path: Option<String>,
    /// Whether the launcher's pod is one of the training nodes. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = false)))]
    pub run_launcher_as_node: Option<bool>,
}

impl MpiPolicy {
    /// Slots of each node, defaulted.
    pub fn num_proc_per_node(&self) -> i32 {
        self.num_proc_per_node.unwrap_or(1)
    }

    /// The implementation, defaulted.
    pub fn implementation(&self) -> MpiImplementation {
        self.mpi_implementation.unwrap_or(MpiImplementation::OpenMpi)
    }

    /// Where the SSH keys are mounted, defaulted.
    pub fn ssh_auth_mount_path(&self) -> &str {
        self.ssh_auth_mount_path.as_deref().unwrap_or("/root/.ssh")
    }

    /// Whether the launcher is a node, defaulted.
    pub fn run_launcher_as_node(&self) -> bool {
        self.run_launcher_as_node.unwrap_or(false)
    }
}

/// An implementation of MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MpiImplementation {
    #[serde(rename = "OpenMPI")]
    OpenMpi,
    /// The empty string, which upstream's schema lets through and no controller can build.
    #[serde(rename = "")]
    Unset,
}

/// Settings of Flux.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FluxPolicy {
    /// How many processes on each node unless the TrainJob says. Default: 1. At least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = 1, "x-kubernetes-validations" = [
        {"rule": "self >= 1", "message": "NumProcPerNode in fluxPolicy must be >= 1"}])))]
    pub num_proc_per_node: Option<i32>,
}

/// Settings of JAX; there are none yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JaxPolicy {}

/// Settings of XGBoost; there are none yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct XGBoostPolicy {}

/// Which gang scheduler places the pods. The template must also name it as schedulerName.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PodGroupPolicy {
    /// The coscheduling plugin of scheduler-plugins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coscheduling: Option<CoschedulingPolicy>,
    /// Volcano.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volcano: Option<VolcanoPolicy>,
}

/// Settings of coscheduling.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CoschedulingPolicy {
    /// Seconds that the scheduler waits for the whole gang. Default: 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = 60)))]
    pub schedule_timeout_seconds: Option<i32>,
}

/// Settings of Volcano.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VolcanoPolicy {
    /// How close together, in terms of the network, the gang must be placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopology>,
}

/// How close together a gang must be placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NetworkTopology {
    /// hard: never place it wider apart; soft: try not to. Default: hard.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "hard")))]
    pub mode: Option<TopologyMode>,
    /// The highest tier of the network that the gang may span. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::PlainInteger>", extend("default" = 1)))]
    pub highest_tier_allowed: Option<i64>,
}

/// Whether a network topology is a must or a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum TopologyMode {
    Hard,
    Soft,
}
