//! The reconcilers under test, behind one type.

use crate::view::View;
use api::object::Target;
use jiff::Timestamp;
use plan::controller::TrainJobController;
use plan::evidence::PodFailureController;
use plan::optimization::controller::OptimizationController;
use plan::plugins::{CaSource, Settings, StatusServer};
use reconcile::{Decision, Primary, Reconciler, Wakes, World};
use std::collections::BTreeSet;
use workloads::{gc, job, jobset, scheduler, serviceaccount};

/// A reconciler without its types.
pub trait Actor {
    fn name(&self) -> &'static str;
    /// What it may be woken for: every object of its kind that it sees, and whatever its watches make of the others.
    fn targets(&self, view: &View) -> Vec<Target>;
    fn decide(&self, view: &View, target: &Target, now: Timestamp) -> Option<Decision>;
}

struct Erased<R>(R);

impl<R: Reconciler> Actor for Erased<R> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn targets(&self, view: &View) -> Vec<Target> {
        let kinds = match self.0.primary() {
            Primary::Kind(gvk) => vec![gvk],
            Primary::Every => view.kinds(),
        };
        let own = kinds.iter().flat_map(|gvk| view.list(gvk, None)).map(|object| Target::of(&object));
        let mut targets: BTreeSet<Target> = own.collect();
        for watch in self.0.watches() {
            let Wakes::Keys(keys) = watch.wakes else { continue };
            let kinds = if watch.is_every() { view.kinds() } else { vec![watch.gvk] };
            let changed = kinds.iter().flat_map(|gvk| view.list(gvk, None));
            targets.extend(changed.flat_map(|object| keys(view, &object)));
        }
        targets.into_iter().collect()
    }

    fn decide(&self, view: &View, target: &Target, now: Timestamp) -> Option<Decision> {
        self.0.observe(view, target).map(|observed| self.0.decide(&observed, now))
    }
}

pub fn actors() -> Vec<Box<dyn Actor>> {
    // searches want to know that there is a status server, and no more of it
    let status_server = StatusServer { base_url: "https://status".to_owned(), ca: CaSource::Inline(String::new()) };
    let searches = OptimizationController::new(&Settings { status_server: Some(status_server) });
    vec![
        Box::new(Erased(searches)),
        Box::new(Erased(TrainJobController::default())),
        Box::new(Erased(PodFailureController)),
        Box::new(Erased(jobset::JobSetController)),
        Box::new(Erased(job::JobController)),
        Box::new(Erased(job::PodFinalizerController)),
        Box::new(Erased(scheduler::Scheduler)),
        Box::new(Erased(gc::GarbageCollector)),
        Box::new(Erased(serviceaccount::ServiceAccountController::new("made up"))),
    ]
}
