//! The kinds of objects that the command line looks at, and where an API server has them.

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

/// The kinds of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    Train,
    Mpi,
    /// A search for parameters, whose trials are TrainJobs.
    Search,
}

impl JobKind {
    /// In the order in which a bare name is looked up.
    pub const ALL: [Self; 3] = [Self::Train, Self::Mpi, Self::Search];

    pub fn kind(self) -> Kind {
        match self {
            Self::Train => Kind::TrainJob,
            Self::Mpi => Kind::MpiJob,
            Self::Search => Kind::OptimizationJob,
        }
    }

    /// As messages call it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Train => "TrainJob",
            Self::Mpi => api::mpi::KIND,
            Self::Search => "OptimizationJob",
        }
    }

    pub fn singular(self) -> &'static str {
        match self {
            Self::Train => "trainjob",
            Self::Mpi => "mpijob",
            Self::Search => "optimizationjob",
        }
    }

    pub fn group(self) -> &'static str {
        match self {
            Self::Train | Self::Search => api::trainer::GROUP,
            Self::Mpi => api::mpi::GROUP,
        }
    }

    /// `trainjob.trainer.kubeflow.org/NAME`: what answers print and every command accepts.
    pub fn full_name(self, name: &str) -> String {
        format!("{}.{}/{name}", self.singular(), self.group())
    }

    /// The shortest name that every command accepts and no other kind can have.
    pub fn short_name(self, name: &str) -> String {
        match self {
            Self::Train => name.to_owned(),
            Self::Mpi | Self::Search => format!("{}/{name}", self.singular()),
        }
    }

    /// The kind of this word: singular, plural, or either with its group, in any case.
    pub fn of(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        Self::ALL.into_iter().find(|kind| {
            let bare = word.strip_suffix(&format!(".{}", kind.group())).unwrap_or(&word);
            bare == kind.singular() || bare.strip_suffix('s') == Some(kind.singular())
        })
    }
}
