//! The controllers by name, and the parser of `--controllers`.

pub mod admission;
pub mod gangs;
pub mod scopes;

use api::node::{Connections, NoConnections};
use driver::Driver;
use managed::fleet::FleetKind;
use plan::controller::{RuntimeController, TrainJobController};
use plan::evidence::PodFailureController;
use plan::mpijob::{self, controller::MpiJobController};
use plan::optimization::controller::OptimizationController;
use plan::plugins::{CaSource, Settings, StatusServer};
use plan::runtime::RuntimeKind;
use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;
pub use workloads::scheduler::Scheduler;
use workloads::{
    aggregation, claims, disruption, gc, job, jobset, namespace, nodelifecycle, podgc, quota, serviceaccount,
};

/// The settings of all controllers.
#[derive(Clone, Debug)]
pub struct Surroundings {
    pub settings: Settings,
    pub mpi: mpijob::Settings,
    /// The API server's certificate authority, PEM: every namespace gets it in a ConfigMap.
    pub root_ca: String,
    /// All of its copies know the same.
    pub scheduler: Scheduler,
    /// Of agents of nodes.
    pub connections: Arc<dyn Connections>,
}

impl Default for Surroundings {
    fn default() -> Self {
        let scheduler = Scheduler::with_rules(gangs::rules());
        Self {
            settings: Settings::default(),
            mpi: mpijob::Settings::default(),
            root_ca: String::new(),
            scheduler,
            connections: Arc::new(NoConnections),
        }
    }
}

impl Surroundings {
    /// Lets training code report to the status server at this URL (no slash at the end), whose certificate `root_ca` made.
    pub fn report_to(&mut self, base_url: String) {
        let ca = CaSource::Inline(self.root_ca.clone());
        self.settings.status_server = Some(StatusServer { base_url, ca });
    }
}

/// Whose work a controller does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Trainer's: what a cluster's operator runs.
    Trainer,
    /// mpi-operator's: on a cluster it has a lease of its own.
    Mpi,
    /// JobSet's controller.
    JobSet,
    /// What a cluster brings along.
    Cluster,
    /// The scheduler's: wants nodes to put pods on.
    Scheduler,
    /// That of sky's clusters, which is our own: wants nodes, too.
    Machines,
}

impl Side {
    fn wants_nodes(self) -> bool {
        matches!(self, Self::Scheduler | Self::Machines)
    }

    /// The program that does this work on a cluster. Managed fields then name the same writers here as there.
    fn program(self) -> &'static str {
        match self {
            // the images of both call theirs so
            Self::Trainer | Self::JobSet => "manager",
            Self::Mpi => "mpi-operator",
            Self::Cluster => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Machines => "trainyard",
        }
    }
}

struct Known {
    name: &'static str,
    side: Side,
    add: fn(&mut Driver, &Surroundings),
}

/// A name can stand for several reconcilers that are of no use without each other.
const KNOWN: [Known; 20] = [
    known("trainjob", Side::Trainer, |driver, around| {
        driver.add(TrainJobController::new(around.settings.clone()));
        driver.add(PodFailureController);
    }),
    known("trainingruntime", Side::Trainer, |driver, _| {
        driver.add(RuntimeController::new(RuntimeKind::TrainingRuntime));
    }),
    known("clustertrainingruntime", Side::Trainer, |driver, _| {
        driver.add(RuntimeController::new(RuntimeKind::ClusterTrainingRuntime));
    }),
    known("optimizationjob", Side::Trainer, |driver, around| driver.add(OptimizationController::new(&around.settings))),
    known("mpijob", Side::Mpi, |driver, around| driver.add(MpiJobController::new(around.mpi.clone()))),
    known("jobset", Side::JobSet, |driver, _| {
        driver.add(jobset::JobSetController);
        driver.add(jobset::placement::PlacementController);
    }),
    known("job", Side::Cluster, |driver, _| {
        driver.add(job::JobController);
        driver.add(job::PodFinalizerController);
    }),
    known("scheduler", Side::Scheduler, |driver, around| driver.add(around.scheduler.clone())),
    known("cluster", Side::Machines, |driver, _| driver.add(managed::cluster::ClusterController)),
    known("managedjob", Side::Machines, |driver, _| {
        driver.add(managed::job::ManagedJobController);
        driver.add(managed::callbacks::CallbackController);
        driver.add(managed::job_turns::JobTurns::default());
        driver.add(managed::pool_turns::PoolTurns::default());
    }),
    known("fleet", Side::Machines, |driver, _| {
        driver.add(managed::fleet::FleetController(FleetKind::Service));
        driver.add(managed::fleet::FleetController(FleetKind::Pool));
    }),
    known("gc", Side::Cluster, |driver, _| driver.add(gc::GarbageCollector::new(scopes::is_namespaced))),
    known("podgc", Side::Cluster, |driver, _| driver.add(podgc::PodGcController)),
    known("namespace", Side::Cluster, |driver, _| driver.add(namespace::NamespaceController)),
    known("nodelifecycle", Side::Cluster, |driver, around| {
        driver.add(nodelifecycle::NodeLifecycleController::new(around.connections.clone()));
    }),
    known("serviceaccount", Side::Cluster, |driver, around| {
        driver.add(serviceaccount::ServiceAccountController::new(&around.root_ca));
    }),
    known("claims", Side::Cluster, |driver, _| driver.add(claims::ClaimProtectionController)),
    known("quota", Side::Cluster, |driver, _| driver.add(quota::QuotaController)),
    known("disruption", Side::Cluster, |driver, _| driver.add(disruption::DisruptionController)),
    known("aggregation", Side::Cluster, |driver, _| driver.add(aggregation::AggregationController)),
];

const fn known(name: &'static str, side: Side, add: fn(&mut Driver, &Surroundings)) -> Known {
    Known { name, side, add }
}

/// A choice of controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controllers(BTreeSet<&'static str>);

/// A name in a choice that no controller has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no controller {name:?}; there are: {}", KNOWN.iter().map(|k| k.name).collect::<Vec<_>>().join(", "))]
pub struct UnknownController {
    name: String,
}

impl FromStr for Controllers {
    type Err = UnknownController;

    /// `all`, `none`, or names with commas.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self(KNOWN.iter().map(|known| known.name).collect())),
            "none" | "" => Ok(Self(BTreeSet::new())),
            names => names
                .split(',')
                .map(|name| {
                    let name = name.trim();
                    let found = KNOWN.iter().find(|known| known.name == name);
                    found.map(|known| known.name).ok_or_else(|| UnknownController { name: name.to_owned() })
                })
                .collect::<Result<_, _>>()
                .map(Self),
        }
    }
}

impl Controllers {
    fn chosen(&self) -> impl Iterator<Item = &'static Known> {
        KNOWN.iter().filter(|known| self.0.contains(known.name))
    }

    /// Without those that want nodes: somebody else places pods, or nobody does.
    #[must_use]
    pub fn without_nodes(&self) -> Self {
        Self(self.chosen().filter(|known| !known.side.wants_nodes()).map(|known| known.name).collect())
    }

    /// Whether all are Trainer's or mpi-operator's: the others' work is the cluster's own.
    pub fn is_for_operator(&self) -> bool {
        self.chosen().all(|known| matches!(known.side, Side::Trainer | Side::Mpi))
    }

    /// mpi-operator's alone.
    #[must_use]
    pub fn of_mpi(&self) -> Self {
        Self(self.chosen().filter(|known| known.side == Side::Mpi).map(|known| known.name).collect())
    }

    /// All but mpi-operator's.
    #[must_use]
    pub fn without_mpi(&self) -> Self {
        Self(self.chosen().filter(|known| known.side != Side::Mpi).map(|known| known.name).collect())
    }

    /// Whether mpi-operator's is among them: then its kind is wanted, too.
    pub fn wants_mpi(&self) -> bool {
        !self.of_mpi().is_empty()
    }

    /// Whether any of Trainer's is among them: then its kinds, runtimes and rules are wanted too.
    pub fn wants_trainer(&self) -> bool {
        self.chosen().any(|known| known.side == Side::Trainer)
    }

    /// Whether JobSet's is among them: then its kind and rules are wanted too.
    pub fn wants_jobset(&self) -> bool {
        self.chosen().any(|known| known.side == Side::JobSet)
    }

    /// Whether that of sky's clusters is among them: then its kinds are wanted, and a controller of their machines.
    pub fn wants_clusters(&self) -> bool {
        self.chosen().any(|known| known.side == Side::Machines)
    }

    /// Whether the scheduler is among them.
    pub fn wants_scheduler(&self) -> bool {
        self.chosen().any(|known| known.side == Side::Scheduler)
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the chosen ones to a driver.
    pub fn add_to(&self, driver: &mut Driver, around: &Surroundings) {
        self.chosen().for_each(|known| (known.add)(driver, around));
    }

    /// The same, and each writes as the program that does its work on a cluster.
    pub fn add_as_programs_to(&self, driver: &mut Driver, around: &Surroundings) {
        for known in self.chosen() {
            driver.write_as(known.side.program());
            (known.add)(driver, around);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_told_by_name() {
        assert!("all".parse::<Controllers>().unwrap().wants_trainer());
        assert!("none".parse::<Controllers>().unwrap().is_empty());
        let some: Controllers = "jobset, scheduler".parse().unwrap();
        assert!(some.wants_jobset() && !some.wants_trainer());
        assert_eq!(some.without_nodes(), "jobset".parse().unwrap());
        let error = "jobset,jobs".parse::<Controllers>().unwrap_err();
        assert!(error.to_string().contains("\"jobs\"") && error.to_string().contains("scheduler"));
    }
}
