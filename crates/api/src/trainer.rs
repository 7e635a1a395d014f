//! The API group `trainer.kubeflow.org/v1alpha1`: what Kubeflow Trainer's clients send and read.
//!
//! Our own fields are typed; parts that belong to Kubernetes (environment variables, volumes, pod and JobSet templates)
//! stay [`serde_json::Value`], so that a field that is newer than this program survives the way through it. The bounds,
//! defaults and CEL rules beside the fields are what `xtask crds` writes into the CRDs: the API server checks them, so no
//! other code does. Doc comments become the texts of `kubectl explain`.

pub mod annotations;
pub mod names;
mod optimizationjob;
mod patch;
pub mod printed;
mod runtime;
mod status;
mod trainjob;

pub use optimizationjob::{
    Assignment, CategoricalSpace, Direction, GridSearch, NumericSpace, NumericType, Objective, OptimizationJob,
    OptimizationJobSpec, OptimizationJobStatus, OptimizationResult, Parameter, RandomSearch, SearchAlgorithm,
    SearchSpace, TrainJobTemplate, TrainJobTemplateMetadata,
};
pub use patch::{
    ContainerPatch, EmbeddedMetadata, JobPatchSpec, JobSetPatchSpec, JobSetTemplatePatch, JobTemplatePatch,
    PodPatchSpec, PodTemplatePatch, ReplicatedJobPatch, RuntimePatch, RuntimeSpecPatch,
};
pub use runtime::{
    ClusterTrainingRuntime, CoschedulingPolicy, EnvInjection, EnvInjectionTarget, FluxPolicy, JaxPolicy,
    JobSetTemplate, MlPolicy, MpiImplementation, MpiPolicy, NetworkTopology, PodGroupPolicy, TopologyMode, TorchPolicy,
    TrainingRuntime, TrainingRuntimeSpec, VolcanoPolicy, XGBoostPolicy,
};
pub use status::{JobStatus, Metric, TrainJobStatus, TrainerStatus, UpdateTrainJobStatusRequest};
pub use trainjob::{Initializer, InitializerStep, RuntimeRef, TrainJob, TrainJobSpec, Trainer};

use crate::object::Gvk;

/// The API group.
pub const GROUP: &str = "trainer.kubeflow.org";
/// The only version served.
pub const VERSION: &str = "v1alpha1";
/// `trainer.kubeflow.org/v1alpha1`.
pub const API_VERSION: &str = "trainer.kubeflow.org/v1alpha1";

/// The kinds of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    TrainJob,
    TrainingRuntime,
    ClusterTrainingRuntime,
    OptimizationJob,
}

impl Kind {
    /// Every kind, by name of its resource.
    pub const ALL: [Self; 4] =
        [Self::ClusterTrainingRuntime, Self::OptimizationJob, Self::TrainingRuntime, Self::TrainJob];

    /// `TrainJob`, …
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TrainJob => "TrainJob",
            Self::TrainingRuntime => "TrainingRuntime",
            Self::ClusterTrainingRuntime => "ClusterTrainingRuntime",
            Self::OptimizationJob => "OptimizationJob",
        }
    }

    /// `trainjobs`, …
    pub fn plural(self) -> &'static str {
        match self {
            Self::TrainJob => "trainjobs",
            Self::TrainingRuntime => "trainingruntimes",
            Self::ClusterTrainingRuntime => "clustertrainingruntimes",
            Self::OptimizationJob => "optimizationjobs",
        }
    }

    /// Whether objects of the kind live in namespaces.
    pub fn is_namespaced(self) -> bool {
        self != Self::ClusterTrainingRuntime
    }

    /// Group, version and kind.
    pub fn gvk(self) -> Gvk {
        Gvk::new(GROUP, VERSION, self.as_str())
    }
}

/// Whether a member equals its type's default; such members are left out of JSON, as Go's `omitzero` does.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn objects_survive_the_way_through() {
        let cases: [(&str, Value); 3] = [
            (
                "TrainJob",
                json!({
                    "apiVersion": API_VERSION, "kind": "TrainJob", "metadata": {"name": "a", "namespace": "b"},
                    "spec": {
                        "runtimeRef": {"name": "torch-distributed"},
                        "trainer": {
                            "args": [], "command": ["python"], "numNodes": 0,
                            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x", "newer": 1}}}],
                            "resourcesPerNode": {"limits": {"nvidia.com/gpu": "2"}},
                        },
                        "runtimePatches": [{"manager": "m", "time": "2026-01-02T03:04:05Z", "trainingRuntimeSpec": {
                            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"replicatedJobs": [{"name": "node",
                            "template": {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}}]}}}}],
                        "suspend": false, "managedBy": "kueue.x-k8s.io/multikueue", "activeDeadlineSeconds": 5,
                    },
                    "status": {"jobsStatus": [
                        {"name": "node", "ready": 0, "succeeded": 1, "failed": 0, "active": 0, "suspended": 0}]},
                }),
            ),
            (
                "ClusterTrainingRuntime",
                json!({
                    "apiVersion": API_VERSION, "kind": "ClusterTrainingRuntime", "metadata": {"name": "a"},
                    "spec": {
                        "mlPolicy": {"numNodes": 1, "torch": {}},
                        "podGroupPolicy": {"volcano": {"networkTopology": {"mode": "soft"}}},
                        "template": {"spec": {"replicatedJobs": [{"name": "node", "unknown": [1]}]}},
                    },
                }),
            ),
            ("TrainJob", json!({"apiVersion": API_VERSION, "kind": "TrainJob", "metadata": {"name": "empty"}})),
        ];
        for (kind, object) in cases {
            let back = if kind == "TrainJob" {
                serde_json::to_value(serde_json::from_value::<TrainJob>(object.clone()).unwrap()).unwrap()
            } else {
                serde_json::to_value(serde_json::from_value::<ClusterTrainingRuntime>(object.clone()).unwrap()).unwrap()
            };
            assert_eq!(back, object);
        }
    }

    #[test]
    fn defaults_are_those_of_the_schema() {
        let job: TrainJob = serde_json::from_value(json!({"spec": {"runtimeRef": {"name": "r"}}})).unwrap();
        assert_eq!(job.spec.runtime_ref.group(), GROUP);
        assert_eq!(job.spec.runtime_ref.kind(), "ClusterTrainingRuntime");
        assert_eq!(job.spec.manager(), names::MANAGED_BY_TRAINER);
        assert!(!job.spec.is_suspended());
        let mpi = MpiPolicy::default();
        assert_eq!((mpi.num_proc_per_node(), mpi.ssh_auth_mount_path()), (1, "/root/.ssh"));
        assert_eq!(mpi.implementation(), MpiImplementation::OpenMpi);
    }
}
