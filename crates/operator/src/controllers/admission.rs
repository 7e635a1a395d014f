//! Admission by kind: the webhooks that upstream has, as functions.
//!
//! The server calls each [`Webhook`] that `handles` a request: first `mutate`, then `validate`. On a laptop the server
//! is the embedded API server; on a cluster it is an HTTPS endpoint. Both put the webhook's name in front of a denial.

use api::field::ErrorList;
use api::object::{Gvk, Key, Target};
use jiff::Timestamp;
use plan::admission as trainer;
use plan::optimization::admission as optimization;
use plan::plugins::View;
use plan::runtime::RuntimeKind;
use serde_json::Value;
use std::sync::Arc;
use workloads::jobset::{admission as jobset, pods};

const TRAINER_GROUP: &str = "trainer.kubeflow.org";
const JOBSET_GROUP: &str = "jobset.x-k8s.io";

/// What is being done to an object. Deletion is guarded by no webhook of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
}

/// A pair of webhooks: one that changes, one that validates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Webhook {
    TrainJob,
    TrainingRuntime,
    ClusterTrainingRuntime,
    /// Ours alone: upstream's schema says all that upstream checks.
    OptimizationJob,
    JobSet,
    /// Exclusive placement of a JobSet's pods.
    Pod,
}

/// Other objects that a rule looks at.
pub trait Lookup {
    fn get(&self, target: &Target) -> Option<Arc<Value>>;
    /// All objects of a kind in a namespace.
    fn list(&self, gvk: &Gvk, namespace: &str) -> Vec<Arc<Value>>;
}

/// One object on its way in.
pub struct Review<'a> {
    pub operation: Operation,
    pub namespace: &'a str,
    /// The object before the change, for updates.
    pub old: Option<&'a Value>,
    pub lookup: &'a dyn Lookup,
    pub now: Timestamp,
}

/// A refusal, without the name of the webhook that refuses.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Denial {
    /// 422 `Invalid` with these causes.
    #[error("the object is invalid")]
    Invalid(ErrorList),
    /// Any other status, and what the client is warned of besides.
    #[error("{message}")]
    Refused { code: u16, reason: &'static str, message: String, warnings: Vec<String> },
}

impl From<trainer::Denial> for Denial {
    fn from(denial: trainer::Denial) -> Self {
        Self::Refused {
            code: denial.code(),
            reason: denial.reason(),
            message: denial.message().to_owned(),
            warnings: denial.warnings().to_vec(),
        }
    }
}

/// A denial in words only, as the pod webhooks give it.
fn forbidden(message: String) -> Denial {
    Denial::Refused { code: 403, reason: "Forbidden", message, warnings: Vec::new() }
}

impl Webhook {
    /// All of them, in the order in which they are asked.
    pub const ALL: [Self; 6] = [
        Self::TrainJob,
        Self::TrainingRuntime,
        Self::ClusterTrainingRuntime,
        Self::OptimizationJob,
        Self::JobSet,
        Self::Pod,
    ];

    /// Name of the mutating half; empty where there is none.
    pub fn mutator(self) -> &'static str {
        match self {
            Self::TrainJob => trainer::TRAINJOB_DEFAULTER,
            Self::TrainingRuntime | Self::ClusterTrainingRuntime | Self::OptimizationJob => "",
            Self::JobSet => jobset::MUTATOR,
            Self::Pod => pods::MUTATOR,
        }
    }

    /// Name of the validating half.
    pub fn validator(self) -> &'static str {
        match self {
            Self::TrainJob => trainer::TRAINJOB_VALIDATOR,
            Self::TrainingRuntime => trainer::TRAININGRUNTIME_VALIDATOR,
            Self::ClusterTrainingRuntime => trainer::CLUSTERTRAININGRUNTIME_VALIDATOR,
            Self::OptimizationJob => optimization::OPTIMIZATIONJOB_VALIDATOR,
            Self::JobSet => jobset::VALIDATOR,
            Self::Pod => pods::VALIDATOR,
        }
    }

    /// Group and plural of the resource that it guards.
    pub fn resource(self) -> (&'static str, &'static str) {
        match self {
            Self::TrainJob => (TRAINER_GROUP, "trainjobs"),
            Self::TrainingRuntime => (TRAINER_GROUP, "trainingruntimes"),
            Self::ClusterTrainingRuntime => (TRAINER_GROUP, "clustertrainingruntimes"),
            Self::OptimizationJob => (TRAINER_GROUP, "optimizationjobs"),
            Self::JobSet => (JOBSET_GROUP, "jobsets"),
            Self::Pod => ("", "pods"),
        }
    }

    /// Whether it wants to see this. Subresources are not guarded.
    pub fn handles(self, operation: Operation, group: &str, resource: &str) -> bool {
        (group, resource) == self.resource()
            && match self {
                Self::TrainJob
                | Self::TrainingRuntime
                | Self::ClusterTrainingRuntime
                | Self::OptimizationJob
                | Self::JobSet => true,
                Self::Pod => operation == Operation::Create,
            }
    }

    /// The mutating half.
    pub fn mutate(self, review: &Review<'_>, object: &mut Value) -> Result<(), Denial> {
        match (self, review.operation) {
            (Self::TrainJob, _) => Ok(trainer::default_trainjob(object, review.old, review.now)?),
            (Self::JobSet, Operation::Create) => {
                jobset::default(object);
                Ok(())
            }
            (Self::Pod, Operation::Create) => {
                with_pods(review, |lookup| pods::mutate(object, review.namespace, lookup).map_err(forbidden))
            }
            (Self::JobSet | Self::Pod, Operation::Update)
            | (Self::TrainingRuntime | Self::ClusterTrainingRuntime | Self::OptimizationJob, _) => Ok(()),
        }
    }

    /// The validating half; returns warnings for the client.
    pub fn validate(self, review: &Review<'_>, object: &Value) -> Result<Vec<String>, Denial> {
        match (self, review.operation) {
            (Self::TrainJob, _) => {
                let get = |target: &Target| review.lookup.get(target);
                Ok(trainer::validate_trainjob(object, review.old, View(&get))?)
            }
            (Self::TrainingRuntime, _) => {
                Ok(trainer::validate_runtime(RuntimeKind::TrainingRuntime, object, review.old)?)
            }
            (Self::ClusterTrainingRuntime, _) => {
                Ok(trainer::validate_runtime(RuntimeKind::ClusterTrainingRuntime, object, review.old)?)
            }
            (Self::OptimizationJob, _) => {
                let get = |target: &Target| review.lookup.get(target);
                optimization::validate_optimizationjob(object, review.old, View(&get)).map_err(Denial::Invalid)
            }
            (Self::JobSet, Operation::Create) => {
                let claims = Gvk::new("", "v1", "PersistentVolumeClaim");
                let claim = |name: &str| {
                    let key = Key::new(review.namespace, name);
                    review.lookup.get(&Target { gvk: claims.clone(), key })
                };
                silent_unless(jobset::validate_create(object, &claim))
            }
            (Self::JobSet, Operation::Update) => match review.old {
                Some(old) => silent_unless(jobset::validate_update(object, old)),
                None => Ok(Vec::new()),
            },
            (Self::Pod, Operation::Create) => with_pods(review, |lookup| {
                pods::validate_create(object, review.namespace, lookup).map_err(forbidden)?;
                Ok(Vec::new())
            }),
            (Self::Pod, Operation::Update) => Ok(Vec::new()),
        }
    }
}

fn silent_unless(errors: ErrorList) -> Result<Vec<String>, Denial> {
    if errors.is_empty() { Ok(Vec::new()) } else { Err(Denial::Invalid(errors)) }
}

/// The pod webhooks' view of other pods and of nodes.
fn with_pods<T>(review: &Review<'_>, work: impl FnOnce(&pods::Lookup<'_>) -> T) -> T {
    let pod = Gvk::new("", "v1", "Pod");
    let node = Gvk::new("", "v1", "Node");
    work(&pods::Lookup {
        pods: &|namespace| review.lookup.list(&pod, namespace),
        node: &|name| review.lookup.get(&Target { gvk: node.clone(), key: Key::new("", name) }),
    })
}
