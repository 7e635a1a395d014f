//! MPIJob `kubeflow.org/v2beta1`, as mpi-operator 0.8.2 runs it: a Service, a ConfigMap with the hosts, a Secret with keys,
//! a pod for each worker and a Job for the launcher.
//!
//! [`controller`] decides, one pass at a time, in upstream's order. What a pass makes is in [`children`], pods are in
//! [`pods`], their PodGroup is in [`gang`], a launcher that waits for its workers in [`reach`], further attempts in [`retry`], what the status says is in [`status`], what a profile adds in [`profile`]; [`faults`] finds what cannot be run. A
//! child is made where it is missing and repaired where upstream repairs it; everything else that somebody has changed in it
//! stays.

mod asked;
mod changed;
mod children;
pub mod controller;
mod faults;
mod gang;
mod hosts;
mod pods;
mod profile;
mod reach;
mod retry;
mod status;
#[cfg(test)]
mod tests;

pub use api::config::MpiProfile;
pub use reach::launcher_comes_later;

/// The settings of the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Who schedules gangs; `None`: no PodGroups are made.
    pub gang: Option<GangScheduler>,
    /// The cluster's DNS domain, where hosts are to be written with it.
    pub cluster_domain: Option<String>,
    /// Our own image, in which a launcher waits for its workers; `None`: it is not known.
    pub image: Option<String>,
    /// What children have beyond upstream's.
    pub profile: MpiProfile,
}

/// A scheduler that places all pods of a PodGroup or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GangScheduler {
    Volcano,
    /// scheduler-plugins' coscheduling; the scheduler's name.
    Coscheduling(String),
}

impl GangScheduler {
    /// By the scheduler's name; an empty one is none.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "" => None,
            "volcano" => Some(Self::Volcano),
            other => Some(Self::Coscheduling(other.to_owned())),
        }
    }
}
