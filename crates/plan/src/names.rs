//! Names and numbers that more than one module of this crate speaks about: the Trainer's own and a few of Kubernetes'.

pub use api::trainer::names::*;
pub use api::trainer::{API_VERSION, GROUP, VERSION};

/// Replicated job and container that fetch the data set.
pub const DATASET_INITIALIZER: &str = "dataset-initializer";
/// Replicated job and container that fetch the model.
pub const MODEL_INITIALIZER: &str = "model-initializer";
/// The key of the ConfigMap that freezes a TrainJob's runtime.
pub const SNAPSHOT_KEY: &str = "runtime";
/// `apiVersion` of JobSets.
pub const JOBSET_API_VERSION: &str = "jobset.x-k8s.io/v1alpha2";
