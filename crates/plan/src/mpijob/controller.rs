//! The MPIJob controller, in the order of upstream's `pkg/controller/mpi_job_controller.go`.

mod keep;
mod pass;

use super::faults::faults;
use super::gang::Priorities;
use super::hosts::hostfile_fault;
use super::status::{Draft, cut, event};
use super::{GangScheduler, Settings, profile};
use crate::annotations::Options;
use api::field::aggregate;
use api::mpi::names::{
    LABEL_JOB_NAME, LABEL_JOB_ROLE, LABEL_OPERATOR_NAME, MANAGED_BY_MPI_OPERATOR, OPERATOR_NAME, ROLE_WORKER, config,
    launcher, network_policy, ssh_secret, worker,
};
use api::mpi::{MpiJob, Reason};
use api::object::{Gvk, Key, Target};
use api::{mpi, object};
use jiff::Timestamp;
use pass::Pass;
use reconcile::{Decision, EventType, Primary, Reconciler, Wakes, Watch, World};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// Reconciles MPIJobs.
#[derive(Clone, Debug, Default)]
pub struct MpiJobController {
    settings: Settings,
}

impl MpiJobController {
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

/// A MPIJob and everything that a pass over it looks at. Children are looked up by name: somebody else's are in the way.
pub struct Observed {
    /// As stored: what a status write sends back.
    stored: Arc<Value>,
    /// The same, typed; why not, where it cannot be read.
    job: serde_json::Result<MpiJob>,
    service: Option<Arc<Value>>,
    config: Option<Arc<Value>>,
    secret: Option<Arc<Value>>,
    launcher: Option<Arc<Value>>,
    /// Pods of the launcher's Job.
    launcher_pods: Vec<Arc<Value>>,
    /// The declared workers, by index.
    workers: Vec<Option<Arc<Value>>>,
    /// All its pods with the labels of its workers.
    worker_pods: Vec<Arc<Value>>,
    /// Pods with these labels that nobody owns: hosts like the others, and too many where there are too many.
    strays: Vec<Arc<Value>>,
    pod_group: Option<Arc<Value>>,
    network_policy: Option<Arc<Value>>,
    priorities: Priorities,
}

fn pods() -> Gvk {
    Gvk::new("", "v1", "Pod")
}

fn jobs() -> Gvk {
    Gvk::new("batch", "v1", "Job")
}

fn priority_classes() -> Gvk {
    Gvk::new("scheduling.k8s.io", "v1", "PriorityClass")
}

fn core(kind: &str) -> Gvk {
    Gvk::new("", "v1", kind)
}

/// Whether a pod carries the labels of a worker of the job with this name.
fn is_labelled(pod: &Value, job: &str) -> bool {
    let labels = [(LABEL_OPERATOR_NAME, OPERATOR_NAME), (LABEL_JOB_NAME, job), (LABEL_JOB_ROLE, ROLE_WORKER)];
    labels.iter().all(|(label, value)| object::label(pod, label) == Some(*value))
}

/// A pod wakes the MPIJob that controls it, or controls its Job, whatever its labels say. As with mpi-operator, a pod without a controller
/// wakes no job, although a job's `discover_hosts.sh` may list it: a change of such a pod is seen in the job's next pass.
fn wakes(world: &dyn World, pod: &Value) -> Vec<Target> {
    let namespace = object::meta(pod, "namespace");
    let owned = |object: &Value| {
        let owner = object::controller_of(object).filter(|owner| object::text(owner, "kind") == mpi::KIND)?;
        Some(Target { gvk: mpi::gvk(), key: Key::new(namespace, object::text(owner, "name")) })
    };
    let job = || {
        let owner = object::controller_of(pod).filter(|owner| object::text(owner, "kind") == "Job")?;
        owned(&*world.head(&jobs(), &Key::new(namespace, object::text(owner, "name")))?)
    };
    owned(pod).or_else(job).into_iter().collect()
}

impl Reconciler for MpiJobController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "mpijob"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(mpi::gvk())
    }

    fn watches(&self) -> Vec<Watch> {
        let owned = [core("Service"), core("ConfigMap"), core("Secret"), jobs()];
        let groups = self.settings.gang.iter().map(GangScheduler::pod_group);
        let mut watches: Vec<Watch> =
            owned.into_iter().chain(groups).map(|gvk| Watch { gvk, wakes: Wakes::ControllerOwner }).collect();
        watches.push(Watch { gvk: pods(), wakes: Wakes::Keys(wakes) });
        if profile::guards(&self.settings) {
            watches.push(Watch { gvk: profile::network_policies(), wakes: Wakes::ControllerOwner });
        }
        if self.settings.gang.is_some() {
            watches.push(Watch { gvk: priority_classes(), wakes: Wakes::Nothing });
        }
        watches
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let stored = world.get(&target.gvk, &target.key)?;
        let job = MpiJob::deserialize(&*stored);
        let Key { namespace, name } = &target.key;
        let get = |gvk: &Gvk, name: &str| world.get(gvk, &Key::new(namespace, name));
        let launcher = get(&jobs(), &launcher(name));
        let launcher_pods = match &launcher {
            Some(job) => world.owned_by(&pods(), object::uid(job)),
            None => Vec::new(),
        };
        let uid = object::uid(&stored);
        let of_worker = |pod: &Arc<Value>| is_labelled(pod, name);
        let worker_pods = world.owned_by(&pods(), uid).into_iter().filter(of_worker).collect();
        let strays = world.unowned(&pods(), namespace).into_iter().filter(of_worker).collect();
        let workers = match &job {
            Ok(job) if hostfile_fault(job, &target.key, &self.settings).is_none() => {
                (0..job.spec.workers()).map(|index| get(&pods(), &worker(name, index))).collect()
            }
            Ok(_) | Err(_) => Vec::new(),
        };
        let classes = self.settings.gang.iter().flat_map(|_| world.list(&priority_classes(), None));
        Some(Observed {
            service: get(&core("Service"), name),
            config: get(&core("ConfigMap"), &config(name)),
            secret: get(&core("Secret"), &ssh_secret(name)),
            pod_group: self.settings.gang.as_ref().and_then(|scheduler| get(&scheduler.pod_group(), name)),
            network_policy: profile::guards(&self.settings)
                .then(|| get(&profile::network_policies(), &network_policy(name)))
                .flatten(),
            priorities: classes
                .map(|class| (object::meta(&class, "name").to_owned(), class["value"].as_i64().unwrap_or(0)))
                .collect(),
            stored,
            job,
            launcher,
            launcher_pods,
            workers,
            worker_pods,
            strays,
        })
    }

    fn rests(&self) -> bool {
        true
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        let mut decision = Decision::nothing();
        let job = match &observed.job {
            Ok(job) => job,
            Err(why) => {
                decision.report.note(format!("the stored MPIJob cannot be read: {why}"));
                return decision;
            }
        };
        if job.spec.manager() != MANAGED_BY_MPI_OPERATOR {
            decision.report.note(format!("managed by {}", job.spec.manager()));
            return decision;
        }
        if object::is_terminating(&observed.stored) {
            decision.report.note("being deleted: garbage collection does the rest");
            return decision;
        }
        let key = Key::of(&observed.stored);
        let mut faults = faults(job, &key.name);
        if let Some(detail) = hostfile_fault(job, &key, &self.settings) {
            let path = api::field::Path::new("spec").child("mpiReplicaSpecs").key("Worker").child("replicas");
            faults.push(api::field::Error::invalid(&path, job.spec.workers(), detail));
        }
        if !faults.is_empty() {
            let message = cut(format!("Found validation errors: {}", aggregate(&faults)));
            decision.report.note(message.clone());
            decision.events.push(event(EventType::Warning, Reason::ValidationError.as_str(), message));
            return decision;
        }
        let draft = Draft::new(&job.status, now);
        let options = Options::of(&observed.stored);
        let mut pass = Pass { settings: &self.settings, observed, job, options, key, draft, created: None, decision };
        let end = pass.run(now);
        pass.finish(end)
    }
}
