//! A TrainingRuntime or ClusterTrainingRuntime, parsed once.

use crate::names;
use api::object::{self, Gvk, Key, Target};
use api::trainer::{FluxPolicy, MlPolicy, MpiPolicy, PodGroupPolicy, RuntimeRef, TorchPolicy, TrainingRuntimeSpec};
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

/// The two kinds of runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeKind {
    /// In the TrainJob's namespace.
    TrainingRuntime,
    /// Cluster-scoped.
    ClusterTrainingRuntime,
}

impl RuntimeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TrainingRuntime => "TrainingRuntime",
            Self::ClusterTrainingRuntime => "ClusterTrainingRuntime",
        }
    }

    pub fn gvk(self) -> Gvk {
        Gvk::new(names::GROUP, names::VERSION, self.as_str())
    }

    /// The kind that a TrainJob refers to.
    pub fn of(reference: &RuntimeRef) -> Result<Self, UnsupportedRuntime> {
        let known = [Self::TrainingRuntime, Self::ClusterTrainingRuntime];
        let kind = reference.kind.as_deref().unwrap_or_default();
        known
            .into_iter()
            .find(|k| reference.api_group.as_deref() == Some(names::GROUP) && k.as_str() == kind)
            .ok_or_else(|| UnsupportedRuntime { key: registry_key(reference) })
    }

    /// Where the runtime lives that a TrainJob of this namespace refers to.
    pub fn target(self, namespace: &str, name: &str) -> Target {
        let namespace = match self {
            Self::TrainingRuntime => namespace,
            Self::ClusterTrainingRuntime => "",
        };
        Target { gvk: self.gvk(), key: Key::new(namespace, name) }
    }
}

/// `spec.runtimeRef` names a kind that is no runtime.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("unsupported runtime: {key}")]
pub struct UnsupportedRuntime {
    /// `<Kind>.<group>`.
    pub key: String,
}

fn registry_key(reference: &RuntimeRef) -> String {
    let kind = reference.kind.as_deref().unwrap_or_default();
    match reference.api_group.as_deref() {
        None | Some("") => kind.to_owned(),
        Some(group) => format!("{kind}.{group}"),
    }
}

/// What a runtime says, of either kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Runtime {
    pub kind: RuntimeKind,
    pub name: String,
    pub framework: Framework,
    /// Whether `spec.mlPolicy` is there at all.
    pub has_ml_policy: bool,
    /// `spec.mlPolicy.numNodes`.
    pub num_nodes: Option<i32>,
    pub pod_group: PodGroupPolicy,
    /// `spec.template.metadata`.
    pub metadata: Value,
    /// `spec.template.spec`: a JobSet's spec; an empty object where there is none.
    pub template: Value,
    /// Labelled as about to go (`trainer.kubeflow.org/support: deprecated`).
    pub deprecated: bool,
}

/// The ML policy: how processes of a framework find each other.
#[derive(Clone, Debug, PartialEq)]
pub enum Framework {
    /// No framework's policy: only node counts.
    Plain,
    Torch(TorchPolicy),
    Jax,
    XgBoost,
    Mpi(MpiPolicy),
    Flux(FluxPolicy),
}

impl Runtime {
    /// Reads a runtime; `kind` is taken as given, since objects out of a typed cache may lack theirs.
    pub fn parse(kind: RuntimeKind, object: &Value) -> Result<Self, serde_json::Error> {
        let spec = match object.get("spec") {
            Some(spec @ Value::Object(_)) => TrainingRuntimeSpec::deserialize(spec)?,
            _ => TrainingRuntimeSpec::default(),
        };
        let metadata = object.pointer("/spec/template/metadata").cloned().unwrap_or(Value::Null);
        let policy = spec.ml_policy.as_ref();
        Ok(Self {
            kind,
            name: object::meta(object, "name").to_owned(),
            framework: policy.map_or(Framework::Plain, framework),
            has_ml_policy: policy.is_some(),
            num_nodes: policy.and_then(|p| p.num_nodes),
            pod_group: spec.pod_group_policy.unwrap_or_default(),
            metadata,
            template: match spec.template.spec {
                template @ Value::Object(_) => template,
                _ => Value::Object(serde_json::Map::new()),
            },
            deprecated: object::label(object, names::LABEL_SUPPORT) == Some(names::SUPPORT_DEPRECATED),
        })
    }
}

/// The schema admits one policy at most.
fn framework(policy: &MlPolicy) -> Framework {
    let MlPolicy { num_nodes: _, torch, mpi, flux, jax, xgboost } = policy;
    match (torch, mpi, flux, jax, xgboost) {
        (Some(torch), ..) => Framework::Torch(torch.clone()),
        (_, Some(mpi), ..) => Framework::Mpi(mpi.clone()),
        (_, _, Some(flux), ..) => Framework::Flux(flux.clone()),
        (_, _, _, Some(_), _) => Framework::Jax,
        (_, _, _, _, Some(_)) => Framework::XgBoost,
        (None, None, None, None, None) => Framework::Plain,
    }
}
