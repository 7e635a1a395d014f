//! The words of Kubeflow Trainer's contract: labels, annotations, suffixes of children, volumes, variables, conditions.
//!
//! Source: `pkg/constants` of Kubeflow Trainer 2.3. Clients, Kueue and running images read these
//! strings, so none of them may change.

/// Which step of a TrainJob a replicated job plays; a label of the Job template, see [`Ancestor`].
pub const LABEL_ANCESTOR: &str = "trainer.kubeflow.org/trainjob-ancestor-step";
/// Label of a runtime that says how long it will be with us; the only known value is [`SUPPORT_DEPRECATED`].
pub const LABEL_SUPPORT: &str = "trainer.kubeflow.org/support";
/// Value of [`LABEL_SUPPORT`]: using the runtime warns.
pub const SUPPORT_DEPRECATED: &str = "deprecated";
/// Label of a runtime that names its framework; SDKs choose runtimes by it.
pub const LABEL_FRAMEWORK: &str = "trainer.kubeflow.org/framework";
/// Label of a runtime; the value [`VALIDATION_DISABLED`] exempts it from the validating webhook.
pub const LABEL_WEBHOOK_VALIDATION: &str = "trainer.kubeflow.org/webhook-validation";
/// Value of [`LABEL_WEBHOOK_VALIDATION`].
pub const VALIDATION_DISABLED: &str = "disabled";
/// Finalizer that older releases put on runtimes; it is only ever removed.
pub const FINALIZER_RESOURCE_IN_USE: &str = "trainer.kubeflow.org/resource-in-use";
/// Where a warning about a deprecated runtime sends its reader.
pub const RUNTIME_DEPRECATION_POLICY_URL: &str =
    "https://trainer.kubeflow.org/en/latest/operator-guides/runtime.html#runtime-deprecation-policy";

/// Field manager of the objects that make up a TrainJob.
pub const MANAGER: &str = "trainer";
/// Field manager of what running trainers report.
pub const MANAGER_STATUS: &str = "trainer-status";
/// The component that a TrainJob's events name as their reporter.
pub const EVENT_REPORTER: &str = "trainer-trainjob-controller";
/// `managedBy` of a TrainJob that this controller reconciles; also the default.
pub const MANAGED_BY_TRAINER: &str = "trainer.kubeflow.org/trainjob-controller";
/// `managedBy` of a TrainJob that Kueue's MultiKueue runs elsewhere.
pub const MANAGED_BY_MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";

/// The main container, and the usual replicated job, of a trainer.
pub const NODE: &str = "node";
/// The replicated job that runs `mpirun`.
pub const LAUNCHER: &str = "launcher";
/// The port on which the processes of a job find each other.
pub const TRAINER_PORT: u16 = 29500;
/// The downward API path of a pod's index in its Job: the rank of a node.
pub const RANK_FIELD_PATH: &str = "metadata.annotations['batch.kubernetes.io/job-completion-index']";

/// ConfigMap with the runtime as it was when the TrainJob started.
pub const SUFFIX_RUNTIME_SNAPSHOT: &str = "-runtime-snapshot";
/// Secret with the SSH key pair of an MPI job.
pub const SUFFIX_MPI_SSH_AUTH: &str = "-mpi-ssh-auth";
/// ConfigMap with the hostfile of an MPI job.
pub const SUFFIX_MPI_HOSTFILE: &str = "-mpi-hostfile";
/// ConfigMap with the scripts of a Flux job.
pub const SUFFIX_FLUX_ENTRYPOINT: &str = "-flux-entrypoint";
/// Secret with the CURVE certificate of a Flux job.
pub const SUFFIX_FLUX_CURVE: &str = "-flux-curve";
/// ConfigMap with the certificate authority of the status server.
pub const SUFFIX_TLS_CONFIG: &str = "-tls-config";

/// Pod label of scheduler-plugins' coscheduling.
pub const LABEL_POD_GROUP: &str = "scheduling.x-k8s.io/pod-group";
/// Pod annotation of Volcano's gang scheduling.
pub const ANNOTATION_VOLCANO_GROUP: &str = "scheduling.k8s.io/group-name";
/// JobSet annotation that names Volcano's queue.
pub const ANNOTATION_VOLCANO_QUEUE: &str = "scheduling.volcano.sh/queue-name";
/// The pod label by which JobSet marks the pods of one JobSet.
pub const LABEL_JOBSET_NAME: &str = "jobset.sigs.k8s.io/jobset-name";

/// Which step of a TrainJob a replicated job plays ([`LABEL_ANCESTOR`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ancestor {
    DatasetInitializer,
    ModelInitializer,
    Trainer,
}

impl Ancestor {
    /// The label's value, which is also the main container's name for initializers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DatasetInitializer => "dataset-initializer",
            Self::ModelInitializer => "model-initializer",
            Self::Trainer => "trainer",
        }
    }

    /// From the label's value; `None` for values that mean nothing.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::DatasetInitializer, Self::ModelInitializer, Self::Trainer].into_iter().find(|a| a.as_str() == text)
    }
}

/// Types of a TrainJob's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionType {
    Suspended,
    Complete,
    Failed,
    /// Whether the JobSet is there; only where a TrainJob asks for [`super::annotations::LIFECYCLE`], as those below.
    Created,
    Running,
    Restarting,
}

impl ConditionType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Suspended => "Suspended",
            Self::Complete => "Complete",
            Self::Failed => "Failed",
            Self::Created => "Created",
            Self::Running => "Running",
            Self::Restarting => "Restarting",
        }
    }
}

/// Reasons that the TrainJob controller itself gives; `Complete` and `Failed` otherwise carry JobSet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    Suspended,
    Resumed,
    DeadlineExceeded,
    TrainingRuntimeNotSupported,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Suspended => "Suspended",
            Self::Resumed => "Resumed",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::TrainingRuntimeNotSupported => "TrainingRuntimeNotSupported",
        }
    }

    /// The condition's message; `None` where it depends on the TrainJob.
    pub fn message(self) -> Option<&'static str> {
        match self {
            Self::Suspended => Some("TrainJob is suspended"),
            Self::Resumed => Some("TrainJob is resumed"),
            Self::DeadlineExceeded => Some("TrainJob exceeded its active deadline"),
            Self::TrainingRuntimeNotSupported => None,
        }
    }
}

/// Reasons of the conditions Created, Running and Restarting. Those of Created are the ones that upstream's design (KEP-2170)
/// has for it.
pub mod lifecycle {
    /// Created: the JobSet is there.
    pub const CREATION_SUCCEEDED: &str = "JobsCreationSucceeded";
    /// Not created: runtime and TrainJob make no JobSet together.
    pub const BUILD_FAILED: &str = "JobsBuildFailed";
    /// Not created: the API refuses it.
    pub const CREATION_FAILED: &str = "JobsCreationFailed";
    /// Running: pods are ready or have succeeded.
    pub const PODS_READY: &str = "PodsReady";
    /// Not running any more: no pod is ready.
    pub const PODS_NOT_READY: &str = "PodsNotReady";
    /// Not running any more: suspended.
    pub const SUSPENDED: &str = "Suspended";
    /// Not running or restarting any more: the TrainJob has ended.
    pub const FINISHED: &str = "Finished";
    /// Restarting: the failure policy of the JobSet makes its pods anew.
    pub const JOBSET_RESTARTS: &str = "JobSetRestarting";
    /// Restarting: the TrainJob is tried again.
    pub const RETRYING: &str = "Retrying";
    /// Not restarting any more: pods are ready.
    pub const RESTARTED: &str = "Restarted";
}

/// Reason of the Warning event when an attempt has failed and another follows.
pub const EVENT_RETRYING: &str = "TrainJobRetrying";
/// Reason of the Warning event when children could not be built or written.
pub const EVENT_RESOURCES_CREATION_FAILED: &str = "TrainJobResourcesCreationFailed";
/// Action of that event.
pub const EVENT_ACTION_RECONCILING: &str = "Reconciling";

/// Environment variables that plugins set.
pub mod env {
    /// torchrun: how many nodes.
    pub const PET_NNODES: &str = "PET_NNODES";
    /// torchrun: how many processes on each node (`auto`: one a device).
    pub const PET_NPROC_PER_NODE: &str = "PET_NPROC_PER_NODE";
    /// torchrun: this node's rank.
    pub const PET_NODE_RANK: &str = "PET_NODE_RANK";
    /// torchrun: host of rank 0.
    pub const PET_MASTER_ADDR: &str = "PET_MASTER_ADDR";
    /// torchrun: port of rank 0.
    pub const PET_MASTER_PORT: &str = "PET_MASTER_PORT";

    /// JAX: how many processes take part.
    pub const JAX_NUM_PROCESSES: &str = "JAX_NUM_PROCESSES";
    /// JAX: this process's index.
    pub const JAX_PROCESS_ID: &str = "JAX_PROCESS_ID";
    /// JAX: `host:port` of process 0.
    pub const JAX_COORDINATOR_ADDRESS: &str = "JAX_COORDINATOR_ADDRESS";

    /// XGBoost: host of the tracker.
    pub const DMLC_TRACKER_URI: &str = "DMLC_TRACKER_URI";
    /// XGBoost: port of the tracker.
    pub const DMLC_TRACKER_PORT: &str = "DMLC_TRACKER_PORT";
    /// XGBoost: this node's index.
    pub const DMLC_TASK_ID: &str = "DMLC_TASK_ID";
    /// XGBoost: how many workers take part.
    pub const DMLC_NUM_WORKER: &str = "DMLC_NUM_WORKER";

    /// Open MPI: path of the hostfile.
    pub const OMPI_HOSTFILE: &str = "OMPI_MCA_orte_default_hostfile";
    /// Open MPI: keep host names as the hostfile writes them.
    pub const OMPI_KEEP_FQDN: &str = "OMPI_MCA_orte_keep_fqdn_hostnames";
    /// Open MPI: slots of a host that does not say.
    pub const OMPI_DEFAULT_SLOTS: &str = "OMPI_MCA_orte_set_default_slots";
    /// Open MPI: arguments of ssh.
    pub const OMPI_RSH_ARGS: &str = "OMPI_MCA_plm_rsh_args";

    /// Initializers: where the dataset or model is.
    pub const STORAGE_URI: &str = "STORAGE_URI";

    /// Status server: where to post progress.
    pub const SERVER_URL: &str = "KUBEFLOW_TRAINER_SERVER_URL";
    /// Status server: file with its certificate authority.
    pub const SERVER_CA_CERT: &str = "KUBEFLOW_TRAINER_SERVER_CA_CERT";
    /// Status server: file with the token to present.
    pub const SERVER_TOKEN: &str = "KUBEFLOW_TRAINER_SERVER_TOKEN";
}
