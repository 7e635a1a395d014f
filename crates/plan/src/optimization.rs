//! OptimizationJob: a search for the parameters with which TrainJobs do best (KEP-3562 of Kubeflow Trainer).
//!
//! Upstream has the kind and a proposal, no controller. The proposal's facts hold here: trials are TrainJobs, parameters
//! reach them as variables `KUBEFLOW_TRAINER_OPT_<NAME>`, metrics come back in `status.trainerStatus`, conditions are
//! Created, Complete and Failed. [`suggest`] chooses values, [`controller`] runs the search, [`admission`] refuses what
//! cannot be searched.

pub mod admission;
pub mod chance;
pub mod controller;
mod grid;
pub mod search;
pub mod space;
pub mod suggest;
pub mod template;
mod tpe;
pub mod trial;

#[cfg(test)]
mod tests;
