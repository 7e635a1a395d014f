//! Takes the tracking finalizer off pods that no Job will count: theirs is over, gone or another by now.

use super::pods::{Pod, is_tracked};
use super::spec::Spec;
use super::status::Status;
use super::{adopters, build, job_gvk, pod_gvk};
use api::object::{self, Gvk, Key, Target};
use jiff::Timestamp;
use objects::take;
use reconcile::{Decision, Primary, Reconciler, Wakes, Watch, World};
use serde_json::Value;
use std::sync::Arc;

/// Keyed by pod, so that a pod whose Job is gone for good is seen at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodFinalizerController;

/// Pods to look at when a Job has ended or gone.
fn pods_of_ended_job(world: &dyn World, job: &Value) -> Vec<Target> {
    // after a start most Jobs are like this: none of them is read again
    if Status::read(job).finished().is_none() && world.stands(&job_gvk(), &Key::of(job), object::uid(job)) {
        return Vec::new();
    }
    let alive = world.part(&job_gvk(), &Key::of(job), take::state).filter(|held| object::uid(held) == object::uid(job));
    if alive.is_some_and(|job| Status::read(&job).finished().is_none()) {
        return Vec::new();
    }
    world.owned_by(&pod_gvk(), object::uid(job)).iter().map(|pod| Target::of(pod)).collect()
}

impl Reconciler for PodFinalizerController {
    type Observed = Pod;

    fn name(&self) -> &'static str {
        "job-pod-finalizer"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(pod_gvk())
    }

    fn watches(&self) -> Vec<Watch> {
        vec![Watch { gvk: job_gvk(), wakes: Wakes::Keys(pods_of_ended_job) }]
    }

    fn concerns(&self, pod: &Value) -> bool {
        is_tracked(pod)
    }

    /// `None` for a pod that carries no tracking finalizer, or whose Job will see to it.
    fn observe(&self, world: &dyn World, target: &Target) -> Option<Pod> {
        let object = world.head(&pod_gvk(), &target.key).filter(|pod| self.concerns(pod))?;
        let awaited = || match object::controller_of(&object) {
            Some(owner) if Gvk::of(owner) == job_gvk() => {
                let key = Key::new(&target.key.namespace, object::text(owner, "name"));
                let is_it = |job: &Arc<Value>| object::uid(job) == object::text(owner, "uid");
                // most are not over: these are not read any further
                let goes_on = |job: Arc<Value>| Status::read(&job).finished().is_none();
                let is_external = |job: Arc<Value>| Spec::read(&job).is_none_or(|spec| spec.external);
                world.part(&job_gvk(), &key, take::state).filter(is_it).is_some_and(goes_on)
                    || world.get(&job_gvk(), &key).filter(is_it).is_some_and(is_external)
            }
            Some(_) => true,
            None => !object::is_terminating(&object) && !adopters(world, &object).is_empty(),
        };
        if awaited() { None } else { world.get(&pod_gvk(), &target.key).map(|pod| Pod::read(&pod)) }
    }

    fn decide(&self, pod: &Pod, _now: Timestamp) -> Decision {
        let mut decision = Decision { writes: vec![build::remove_finalizer(pod).into()], ..Decision::default() };
        decision.report.note("no Job will count this pod any more");
        decision
    }
}
