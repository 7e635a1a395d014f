//! The extension points of the pipeline, and the one ordered list of plugins.
//!
//! A new framework is one module and one entry in [`PLUGINS`]. Every method of [`Plugin`] has an empty default; a plugin
//! implements those where it has something to say and returns at once where the runtime's policy is not its own. Plugins are
//! pure: what they want to know of other objects they name in `reads`, and find in a [`View`].

pub mod coscheduling;
#[cfg(test)]
pub(crate) mod fixture;
pub mod flux;
mod gang;
pub mod jax;
pub mod jobset;
mod keys;
pub mod mpi;
pub mod plainml;
pub mod status;
pub mod torch;
pub mod torchtune;
pub mod volcano;
pub mod xgboost;

use crate::info::Info;
use crate::job::Job;
use api::field::ErrorList;
use api::object::{Gvk, Key, Target};
use reconcile::Op;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thiserror::Error;

/// All plugins, in the order in which each extension point runs them: ML policies first, then what decorates pods, the
/// JobSet last, so that whatever pods mount exists before them.
// Q-10 (fixed): upstream's order is that of a map, another one in each process.
pub static PLUGINS: &[&dyn Plugin] = &[
    &plainml::PlainMl,
    &torch::Torch,
    &jax::Jax,
    &xgboost::XgBoost,
    &mpi::Mpi,
    &flux::Flux,
    &status::TrainJobStatus,
    &coscheduling::Coscheduling,
    &volcano::Volcano,
    &jobset::JobSet,
];

/// One plugin of the pipeline. The points run in the order in which they stand here: `validate` in admission, the others
/// whenever children are built, each for all plugins before the next begins; the first error ends a build.
pub trait Plugin: Sync {
    /// A short stable name, for reports.
    fn name(&self) -> &'static str;

    /// Faults of a TrainJob on its runtime, before anything is enforced: `info` is what [`crate::build::new_info`] made.
    fn validate(&self, _cx: &Validation<'_>, _findings: &mut Findings) {}

    /// Node counts, variables, ports and volumes of a framework.
    fn enforce_ml_policy(&self, _info: &mut Info, _job: &Job) -> Result<(), BuildError> {
        Ok(())
    }

    /// Labels and annotations that gang scheduling wants on pods.
    fn enforce_pod_group_policy(&self, _info: &mut Info, _job: &Job) -> Result<(), BuildError> {
        Ok(())
    }

    /// What goes onto pods whatever the framework.
    fn enforce_pod_spec(&self, _info: &mut Info, _job: &Job, _settings: &Settings) -> Result<(), BuildError> {
        Ok(())
    }

    /// The last word on `info` before children are built from it: counts are final now.
    fn pre_build(&self, _info: &mut Info, _job: &Job) -> Result<(), BuildError> {
        Ok(())
    }

    /// The children, in order. Make objects with [`Job::child`], so that they are owned; wrap those that are kept
    /// up to date in [`apply`]. An applied child that the API server already holds as it should be is dropped by the pipeline.
    fn build(&self, _cx: &Build<'_>) -> Result<Vec<Op>, BuildError> {
        Ok(Vec::new())
    }

    /// The objects that `build` looks up, existing or not.
    fn reads(&self, _job: &Job, _settings: &Settings) -> Vec<Target> {
        Vec::new()
    }

    /// Kinds of children whose changes wake the TrainJob that controls them. Kinds that a cluster may lack (PodGroups) are
    /// listed too: the shell that runs the controller leaves out those that are not served.
    fn watches(&self) -> Vec<Gvk> {
        Vec::new()
    }
}

/// What admission gives a plugin.
pub struct Validation<'a> {
    /// The runtime under the new TrainJob's patches and resources.
    pub info: &'a Info,
    /// On update, the TrainJob as it was.
    pub old: Option<&'a Job>,
    pub new: &'a Job,
    /// `spec` of the new TrainJob as it was sent: the values that faults show.
    pub spec: &'a Value,
    /// The containers and init containers of each replicated job of the runtime, before any patch.
    pub runtime_containers: &'a BTreeMap<String, BTreeSet<String>>,
    /// Any object, by name.
    pub view: View<'a>,
}

/// What admission found.
#[derive(Debug, Default, PartialEq)]
pub struct Findings {
    pub warnings: Vec<String>,
    pub errors: ErrorList,
}

/// What a builder gets.
pub struct Build<'a> {
    pub info: &'a Info,
    pub job: &'a Job,
    pub settings: &'a Settings,
    /// The objects that `reads` named.
    pub view: View<'a>,
}

/// Other objects, as they are known now.
#[derive(Clone, Copy)]
pub struct View<'a>(pub &'a dyn Fn(&Target) -> Option<Arc<Value>>);

impl View<'_> {
    pub fn get(&self, target: &Target) -> Option<Arc<Value>> {
        (self.0)(target)
    }
}

/// Configuration of the process that plugins depend on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The server that training code reports progress to; `None` while the feature gate `TrainJobStatus` is off.
    pub status_server: Option<StatusServer>,
}

/// Where pods find the status server.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusServer {
    /// `https://<service>.<namespace>.svc:<port>`, without a slash at the end.
    pub base_url: String,
    pub ca: CaSource,
}

/// The certificate authority that the status server's certificate is from.
#[derive(Clone, Debug, PartialEq)]
pub enum CaSource {
    /// Key `ca.crt` of this Secret.
    Secret(Key),
    /// PEM text.
    Inline(String),
}

/// Children cannot be built. The text ends up in an event.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct BuildError(pub String);

impl BuildError {
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// A child that is kept as built: server-side applied by force under the Trainer's field manager.
pub fn apply(object: Value) -> Op {
    Op::Apply { object, manager: crate::names::MANAGER }
}
