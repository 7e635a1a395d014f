//! `metrics.trainyard.dev/v1alpha1`: the history of the progress that TrainJobs reported. Read-only.
//!
//! This is an API group of its own because a CRD has no subresources that hold data; `trainyard up` serves it
//! itself. A TrainJobHistory has the TrainJob's name and namespace, and `reports`: oldest first, each in the form of the
//! TrainJob's `status.trainerStatus`. On a cluster the operator keeps the same lines in a ConfigMap beside
//! the TrainJob.

use serde_json::{Value, json};

/// The API group.
pub const GROUP: &str = "metrics.trainyard.dev";
/// The only version.
pub const VERSION: &str = "v1alpha1";
/// The resource: a history is called what its TrainJob is called.
pub const PLURAL: &str = "trainjobs";

/// The path of a TrainJob's history.
pub fn path(namespace: &str, name: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}/{name}")
}

/// Key of that ConfigMap: the reports as JSON lines, oldest first.
pub const REPORTS: &str = "reports.jsonl";

/// Name of the ConfigMap in which a cluster's operator keeps a TrainJob's history.
pub fn config_map(job: &str) -> String {
    format!("{job}.progress")
}

/// A history as an object.
pub fn object(namespace: &str, name: &str, reports: Vec<Value>) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "TrainJobHistory",
        "metadata": {"name": name, "namespace": namespace},
        "reports": reports,
    })
}
