//! MPIJob: what a user writes.

use super::names::{MANAGED_BY_MPI_OPERATOR, ROOT_SSH_PATH};
use super::status::JobStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::str::FromStr;

/// A job of MPI processes: a launcher runs mpirun, which starts ranks in workers by SSH.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("required" = Vec::<String>::new())))]
pub struct MpiJob {
    /// `kubeflow.org/v2beta1`.
    #[serde(default)]
    pub api_version: String,
    /// `MPIJob`.
    #[serde(default)]
    pub kind: String,
    /// Name, namespace, labels and what else every object has.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::ObjectMeta"))]
    pub metadata: ObjectMeta,
    /// What to run.
    #[serde(default)]
    pub spec: MpiJobSpec,
    /// What has become of it, as last observed.
    #[serde(default, skip_serializing_if = "super::status::is_default")]
    pub status: JobStatus,
}

/// What to run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("required" = ["mpiReplicaSpecs"])))]
pub struct MpiJobSpec {
    /// How many ranks each host of the hostfile takes. Default: 1. At least 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = 1)))]
    pub slots_per_worker: Option<i32>,
    /// Whether the launcher takes ranks as well; then there may be no workers. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = false)))]
    pub run_launcher_as_worker: Option<bool>,
    /// How the job runs and what is left of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_policy: Option<RunPolicy>,
    /// The pods, by role: Launcher, exactly one, and Worker.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = serde_json::Value::Null)))]
    pub mpi_replica_specs: BTreeMap<String, ReplicaSpec>,
    /// Directory in which the first container of each pod finds id_rsa, id_rsa.pub and authorized_keys: that of the
    /// image's user. Default: /root/.ssh.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "/root/.ssh")))]
    pub ssh_auth_mount_path: Option<String>,
    /// When the launcher is made: AtStartup (the default), together with the workers, or WaitForWorkersReady.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "AtStartup")))]
    pub launcher_creation_policy: Option<String>,
    /// The MPI in the image: OpenMPI (the default), Intel or MPICH. It decides on the hostfile's form and the launcher's
    /// variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "OpenMPI")))]
    pub mpi_implementation: Option<Implementation>,
}

/// How a job runs and what is left of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunPolicy {
    /// Which workers are deleted once the launcher has ended: All, Running (those that are running or pending) or None
    /// (the default).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clean_pod_policy: Option<String>,
    /// Seconds after its end at which the launcher's Job is deleted; the MPIJob stays. At least 0; never if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i32>,
    /// Seconds that the launcher's Job may be active before it fails. At least 0; no limit if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,
    /// How many failures of the launcher are borne before the job fails. At least 0; 6 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<i32>,
    /// How a gang scheduler is to place the pods, where the operator works with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_policy: Option<SchedulingPolicy>,
    /// While true no pod runs; pods that run are stopped. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = false)))]
    pub suspend: Option<bool>,
    /// Who reconciles the job: kubeflow.org/mpi-operator, which an absent value means, too, or
    /// kueue.x-k8s.io/multikueue, which runs it in another cluster and copies the status here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
}

/// How a gang scheduler is to place the pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SchedulingPolicy {
    /// How many pods must fit before one is scheduled. Default: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_available: Option<i32>,
    /// Volcano's queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// What must be free before a pod is scheduled. Default: the sum of what minAvailable pods request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "Option<std::collections::BTreeMap<String, crate::schema::Quantity>>")
    )]
    pub min_resources: Option<BTreeMap<String, Value>>,
    /// Volcano's PriorityClass of the group. Default: that of the launcher, else that of the workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<String>,
    /// Seconds after which scheduler-plugins gives up to place the group. Default: 0, its own default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_timeout_seconds: Option<i32>,
}

/// The pods of one role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplicaSpec {
    /// How many: 1 launcher, at least 1 worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The pod. Its first container is the one that runs mpirun or, in a worker, sshd.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::PodTemplateSpec"))]
    pub template: Value,
    /// When a container is restarted: Never (the default of workers) or OnFailure (the default of the launcher). The
    /// template's own policy does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<String>,
}

impl MpiJobSpec {
    /// Ranks of each host.
    pub fn slots(&self) -> i32 {
        self.slots_per_worker.unwrap_or(1)
    }

    /// Whether the launcher takes ranks.
    pub fn launcher_is_worker(&self) -> bool {
        self.run_launcher_as_worker.unwrap_or(false)
    }

    /// Where keys are mounted.
    pub fn ssh_path(&self) -> &str {
        self.ssh_auth_mount_path.as_deref().filter(|path| !path.is_empty()).unwrap_or(ROOT_SSH_PATH)
    }

    /// The MPI in the image.
    pub fn implementation(&self) -> Implementation {
        self.mpi_implementation.unwrap_or(Implementation::OpenMpi)
    }

    /// When the launcher is made; upstream takes an unknown word for WaitForWorkersReady.
    pub fn launcher_creation(&self) -> LauncherCreationPolicy {
        match self.launcher_creation_policy.as_deref() {
            None | Some("" | "AtStartup") => LauncherCreationPolicy::AtStartup,
            Some(_) => LauncherCreationPolicy::WaitForWorkersReady,
        }
    }

    /// The pods of a role.
    pub fn role(&self, role: ReplicaType) -> Option<&ReplicaSpec> {
        self.mpi_replica_specs.get(role.as_str())
    }

    /// How many workers are declared.
    pub fn workers(&self) -> i32 {
        self.role(ReplicaType::Worker).and_then(|spec| spec.replicas).unwrap_or(0)
    }

    /// Whether no pod is to run.
    pub fn is_suspended(&self) -> bool {
        self.run_policy.as_ref().and_then(|policy| policy.suspend).unwrap_or(false)
    }

    /// Who reconciles the job.
    pub fn manager(&self) -> &str {
        self.run_policy.as_ref().and_then(|policy| policy.managed_by.as_deref()).unwrap_or(MANAGED_BY_MPI_OPERATOR)
    }
}

/// Makes an enum of words: `ALL`, `as_str`, `FromStr`.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum $name {
            $($(#[$about])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// As the API writes it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl FromStr for $name {
            type Err = ();

            fn from_str(text: &str) -> Result<Self, ()> {
                Self::ALL.iter().copied().find(|one| one.as_str() == text).ok_or(())
            }
        }
    };
}

words! {
    /// An MPI.
    Implementation {
        OpenMpi = "OpenMPI",
        Intel = "Intel",
        Mpich = "MPICH",
    }
}

words! {
    /// A pod's role, as `mpiReplicaSpecs` and `replicaStatuses` name it.
    ReplicaType {
        Launcher = "Launcher",
        Worker = "Worker",
    }
}

words! {
    /// Which workers are deleted once the launcher has ended. The schema lets any word through.
    CleanPodPolicy {
        All = "All",
        /// Those that are running or pending.
        Running = "Running",
        None = "None",
    }
}

words! {
    /// When the launcher is made. The schema lets any word through.
    LauncherCreationPolicy {
        AtStartup = "AtStartup",
        WaitForWorkersReady = "WaitForWorkersReady",
    }
}

words! {
    /// When a container is restarted: the words that the controller takes. The schema lets any through.
    RestartPolicy {
        Never = "Never",
        OnFailure = "OnFailure",
    }
}
