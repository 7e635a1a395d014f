//! The kinds of objects that the command line looks at, and where an API server has them.

use api::job_kind::JobKind;
use api::object::Gvk;
use kube::core::ApiResource;

/// The kinds that the command line looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    TrainJob,
    TrainingRuntime,
    ClusterTrainingRuntime,
    OptimizationJob,
    MpiJob,
    JobSet,
    ManagedJob,
    SkyCluster,
    Machine,
    Serving,
    Pool,
    Budget,
    Job,
    Pod,
    ConfigMap,
    Event,
    Namespace,
    Node,
}

impl Kind {
    /// Whether its objects are in no namespace.
    pub fn is_shared(self) -> bool {
        matches!(self, Self::ClusterTrainingRuntime | Self::Namespace | Self::Node)
    }

    pub fn resource(self) -> ApiResource {
        let (gvk, plural) = match self {
            Self::TrainJob => (Gvk::new("trainer.kubeflow.org", "v1alpha1", "TrainJob"), "trainjobs"),
            Self::TrainingRuntime => {
                (Gvk::new("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime"), "trainingruntimes")
            }
            Self::ClusterTrainingRuntime => {
                (Gvk::new("trainer.kubeflow.org", "v1alpha1", "ClusterTrainingRuntime"), "clustertrainingruntimes")
            }
            Self::OptimizationJob => {
                (Gvk::new("trainer.kubeflow.org", "v1alpha1", "OptimizationJob"), "optimizationjobs")
            }
            Self::MpiJob => (api::mpi::gvk(), api::mpi::PLURAL),
            Self::JobSet => (api::jobset::gvk(), "jobsets"),
            Self::ManagedJob => (api::sky::managed_job_gvk(), "managedjobs"),
            Self::SkyCluster => (api::sky::cluster_gvk(), "clusters"),
            Self::Machine => (api::sky::machine_gvk(), "machines"),
            Self::Serving => (api::sky::serving_gvk(), "servings"),
            Self::Pool => (api::sky::pool_gvk(), "pools"),
            Self::Budget => (api::sky::budget_gvk(), "budgets"),
            Self::Job => (Gvk::new("batch", "v1", "Job"), "jobs"),
            Self::Pod => (Gvk::new("", "v1", "Pod"), "pods"),
            Self::ConfigMap => (Gvk::new("", "v1", "ConfigMap"), "configmaps"),
            Self::Event => (Gvk::new("", "v1", "Event"), "events"),
            Self::Namespace => (Gvk::new("", "v1", "Namespace"), "namespaces"),
            Self::Node => (Gvk::new("", "v1", "Node"), "nodes"),
        };
        ApiResource {
            api_version: gvk.api_version(),
            group: gvk.group,
            version: gvk.version,
            kind: gvk.kind,
            plural: plural.to_owned(),
        }
    }
}

impl From<JobKind> for Kind {
    fn from(kind: JobKind) -> Self {
        match kind {
            JobKind::Train => Self::TrainJob,
            JobKind::Mpi => Self::MpiJob,
            JobKind::Search => Self::OptimizationJob,
        }
    }
}
