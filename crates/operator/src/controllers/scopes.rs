//! Kinds whose objects live in namespaces.

use api::object::Gvk;

/// Kinds that own other objects and only ever live in namespaces, whatever their version.
const NAMESPACED: [&str; 12] = [
    "ConfigMap",
    "Endpoints",
    "Job",
    "JobSet",
    "Lease",
    "PersistentVolumeClaim",
    "Pod",
    "Secret",
    "Service",
    "ServiceAccount",
    "TrainJob",
    "TrainingRuntime",
];

/// Whether objects of the kind live in namespaces. The garbage collector asks when it knows no object of the kind.
pub fn is_namespaced(gvk: &Gvk) -> bool {
    NAMESPACED.contains(&gvk.kind.as_str())
}
