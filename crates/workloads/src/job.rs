//! The batch/v1 Job controller.
//!
//! Kubernetes' own, in behaviour (checked against recordings of 1.36): work queues, Indexed Jobs, backoff limits for the
//! Job and for each index, pod failure and success policies, replacement policy, suspension, deadline, time to live.
//!
//! How counting survives crashes and stale views. A pod keeps a finalizer until it is counted. Counting takes three looks
//! at the world: (1) its uid goes into `status.uncountedTerminatedPods` (for a succeeded index: the index into
//! `completedIndexes`), by an update under the Job's resource version; (2) the finalizer goes, under the pod's resource
//! version; (3) once the pod is *seen* without finalizer, or gone, the uid moves into the counter. Since a view never shows
//! an older state of a pod after a newer one, a pod that was counted is never again seen with its finalizer, so nothing
//! counts twice; and since uids are written before finalizers go, nothing is lost.
//!
//! Nothing is kept in memory: the row of failures that the backoff needs is an annotation ([`backoff::ANNOTATION`]), and
//! pods are named by Job, index and attempt ([`build`]), so that a create on a stale view collides instead of duplicating.
//!
//! Start reading at [`decide::decide`].

pub mod backoff;
mod build;
#[cfg(test)]
mod chaos;
mod decide;
mod finalizer;
pub mod indexes;
mod pods;
mod policy;
mod spec;
mod status;
#[cfg(test)]
mod tests;

pub use finalizer::PodFinalizerController;

use api::object::{self, Gvk, Key, Target};
use jiff::Timestamp;
use objects::selector::Selector;
use pods::Pod;
use reconcile::{Decision, Primary, Reconciler, Wakes, Watch, World};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The finalizer of a pod that is not counted yet.
pub const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// Label and annotation of a pod of an Indexed Job: its completion index.
pub const INDEX: &str = api::jobset::keys::COMPLETION_INDEX;
/// Annotation of a pod under `backoffLimitPerIndex`: the counted failures of its index before it.
pub const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// Annotation of a pod under `backoffLimitPerIndex`: the ignored failures of its index before it.
pub const INDEX_IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// The `managedBy` of Jobs that this controller runs; absent means the same.
pub const CONTROLLER_NAME: &str = "kubernetes.io/job-controller";

/// batch/v1 Job.
pub fn job_gvk() -> Gvk {
    Gvk::new("batch", "v1", "Job")
}

/// core/v1 Pod.
pub fn pod_gvk() -> Gvk {
    Gvk::new("", "v1", "Pod")
}

/// Makes pods of Jobs.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobController;

/// What a decision about a Job is made of.
#[derive(Clone, Debug)]
pub struct Observed {
    job: Arc<Value>,
    /// Pods whose controller it is, by name.
    pods: Vec<Pod>,
    /// Pods that nobody owns and its selector selects, by name.
    orphans: Vec<Pod>,
    /// Names like those of its pods that others have which nobody owns: pods that it gave up keep the names that it gave them.
    ownerless: BTreeSet<String>,
}

/// Whether the owner reference with `controller: true` is to this uid.
fn controlled_by(object: &Value, uid: &str) -> bool {
    object::controller_of(object).is_some_and(|owner| object::text(owner, "uid") == uid)
}

/// Jobs that a changed pod concerns: its controller, or, where it has none, those that would adopt it.
fn jobs_of_pod(world: &dyn World, pod: &Value) -> Vec<Target> {
    let namespace = object::meta(pod, "namespace");
    let target = |name: &str| Target { gvk: job_gvk(), key: Key::new(namespace, name) };
    match object::controller_of(pod) {
        Some(owner) if Gvk::of(owner) == job_gvk() => vec![target(object::text(owner, "name"))],
        Some(_) => Vec::new(),
        None => adopters(world, pod).iter().map(|job| target(object::meta(job, "name"))).collect(),
    }
}

/// Jobs of the pod's namespace, not being deleted, whose selector selects it.
fn adopters(world: &dyn World, pod: &Value) -> Vec<Arc<Value>> {
    let mut jobs = world.list(&job_gvk(), Some(object::meta(pod, "namespace")));
    jobs.retain(|job| {
        !object::is_terminating(job)
            && Selector::read(&job["spec"]["selector"]).is_some_and(|selector| selector.selects(pod))
    });
    jobs
}

impl Reconciler for JobController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "job"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(job_gvk())
    }

    fn watches(&self) -> Vec<Watch> {
        vec![Watch { gvk: pod_gvk(), wakes: Wakes::Keys(jobs_of_pod) }]
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let job = world.get(&job_gvk(), &target.key)?;
        let uid = object::uid(&job);
        let owned = world.parts_owned_by(&pod_gvk(), uid, pods::taking);
        let pods = owned.iter().filter(|pod| controlled_by(pod, uid)).map(Pod::read).collect();
        let selector = Selector::read(&job["spec"]["selector"]);
        let adoptable = |pod: &&Arc<Value>| {
            !object::is_terminating(pod) && selector.as_ref().is_some_and(|selector| selector.selects(pod))
        };
        let unowned = world.unowned(&pod_gvk(), &target.key.namespace);
        let orphans = unowned.iter().filter(adoptable).map(Pod::read).collect();
        let names = unowned.iter().map(|pod| object::meta(pod, "name"));
        let ownerless = names.filter(|name| build::is_like(name, &job)).map(str::to_owned).collect();
        Some(Observed { job, pods, orphans, ownerless })
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        decide::decide(observed, now)
    }
}
