//! The API group `kubeflow.org/v2beta1`: an MPIJob runs `mpirun` in a launcher, which reaches into workers by SSH.
//!
//! The kind is mpi-operator's; its clients, Kueue and running images read what is here, so none of it may change. Our own
//! fields are typed; pod templates stay [`serde_json::Value`], so that a field that is newer than this program survives
//! the way through it. Doc comments become the texts of `kubectl explain`.

pub mod annotations;
mod mpijob;
pub mod names;
mod status;

pub use mpijob::{
    CleanPodPolicy, Implementation, LauncherCreationPolicy, MpiJob, MpiJobSpec, ReplicaSpec, ReplicaType,
    RestartPolicy, RunPolicy, SchedulingPolicy,
};
pub use status::{ConditionType, JobCondition, JobStatus, Reason, ReplicaStatus};

use crate::object::Gvk;

/// The API group.
pub const GROUP: &str = "kubeflow.org";
/// The only version served.
pub const VERSION: &str = "v2beta1";
/// `kubeflow.org/v2beta1`.
pub const API_VERSION: &str = "kubeflow.org/v2beta1";
/// The kind.
pub const KIND: &str = "MPIJob";
/// The resource's name.
pub const PLURAL: &str = "mpijobs";

/// `kubeflow.org/v2beta1, Kind=MPIJob`.
pub fn gvk() -> Gvk {
    Gvk::new(GROUP, VERSION, KIND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_survive_the_way_through() {
        let job = json!({
            "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "a", "namespace": "b"},
            "spec": {
                "slotsPerWorker": 2, "runLauncherAsWorker": true, "sshAuthMountPath": "/home/mpiuser/.ssh",
                "launcherCreationPolicy": "WaitForWorkersReady", "mpiImplementation": "Intel",
                "runPolicy": {"cleanPodPolicy": "Sometimes", "ttlSecondsAfterFinished": 5, "suspend": false,
                    "schedulingPolicy": {"minAvailable": 2, "minResources": {"cpu": 3}}},
                "mpiReplicaSpecs": {
                    "Launcher": {"replicas": 1, "template": {"spec": {"containers": [{"name": "a", "newer": 1}]}}},
                    "Observer": {"restartPolicy": "ExitCode"},
                },
            },
            "status": {"replicaStatuses": {"Launcher": {}, "Worker": {"active": 2}}},
        });
        let parsed: MpiJob = serde_json::from_value(job.clone()).unwrap();
        assert_eq!(serde_json::to_value(parsed).unwrap(), job);
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        for implementation in Implementation::ALL {
            assert_eq!(serde_json::to_value(implementation).unwrap(), json!(implementation.as_str()));
        }
        assert_eq!("Running".parse(), Ok(CleanPodPolicy::Running));
        assert!("running".parse::<CleanPodPolicy>().is_err());
        assert!("ExitCode".parse::<RestartPolicy>().is_err());
    }

    #[test]
    fn pods_and_children_are_named_by_role() {
        assert_eq!(names::worker("train", 10), "train-worker-10");
        assert_eq!(names::launcher("train"), "train-launcher");
        assert_eq!(names::config("train"), "train-config");
        assert_eq!(names::ssh_secret("train"), "train-ssh");
    }
}
