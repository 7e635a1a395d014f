//! One reconciler's queue and workers.

use crate::cache::Cache;
use crate::events::Recorder;
use crate::execute::{Outcome, execute};
use crate::informer::{is_primary, is_tracked};
use crate::metrics::{
    ACTIVE_WORKERS, Labels, MAX_WORKERS, Metric, QUEUE_ADDS, QUEUE_DEPTH, QUEUE_RETRIES, QUEUE_SECONDS,
    QUEUE_WORK_SECONDS, RECONCILE_ERRORS, RECONCILE_PANICS, RECONCILE_SECONDS, RECONCILES, Registry,
};
use crate::queue::Queue;
use crate::requests::Requests;
use api::object::{self, Gvk, Key, Target};
use jiff::Timestamp;
use reconcile::{Decision, Event, EventType, Next, Primary, Reconciler, Wakes, Watch, World};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use tracing::field::Empty;

/// What informers know of a controller.
pub(crate) trait Wake: Send + Sync {
    /// Whether it looks at every kind.
    fn every(&self) -> bool;
    /// The kinds that it names, its own included.
    fn kinds(&self) -> Vec<Gvk>;
    fn wake(&self, gvk: &Gvk, object: &Value);
}

/// A reconciler whose observations nobody needs to name. Everything around the decision is then compiled once, not once for
/// each reconciler.
trait Decide: Send + Sync {
    fn name(&self) -> &'static str;
    fn decide(&self, world: &dyn World, target: &Target, now: Timestamp) -> Option<Decision>;
}

impl<R: Reconciler> Decide for R {
    fn name(&self) -> &'static str {
        Reconciler::name(self)
    }

    fn decide(&self, world: &dyn World, target: &Target, now: Timestamp) -> Option<Decision> {
        let observed = self.observe(world, target)?;
        Some(Reconciler::decide(self, &observed, now))
    }
}

pub(crate) struct Controller {
    reconciler: Box<dyn Decide>,
    /// Asked for once: every change of any object is held against them.
    primary: Primary,
    watches: Vec<Watch>,
    requests: Arc<Requests>,
    cache: Arc<Cache>,
    recorder: Arc<Recorder>,
    queue: Arc<Queue>,
    metrics: Option<Counts>,
}

/// Where a controller counts, under which name.
struct Counts {
    registry: Arc<Registry>,
    name: String,
}

impl Counts {
    fn add(&self, metric: &Metric, amount: f64) {
        self.registry.add(metric, &self.labels(), amount);
    }

    fn labels(&self) -> [(&'static str, &str); 1] {
        [("controller", &self.name)]
    }
}

/// How a reconciliation ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Success,
    /// To be looked at again at a known time.
    RequeueAfter,
    /// To be looked at again after a backoff: the view was stale, or something is missing.
    Requeue,
    Error,
    Panic,
}

impl End {
    fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::RequeueAfter => "requeue_after",
            Self::Requeue => "requeue",
            Self::Error | Self::Panic => "error",
        }
    }
}

impl Wake for Controller {
    fn every(&self) -> bool {
        self.primary == Primary::Every || self.watches.iter().any(Watch::is_every)
    }

    fn kinds(&self) -> Vec<Gvk> {
        let primary = match &self.primary {
            Primary::Kind(gvk) => Some(gvk),
            Primary::Every => None,
        };
        let named = self.watches.iter().filter(|watch| !watch.is_every()).map(|watch| &watch.gvk);
        primary.into_iter().chain(named).cloned().collect()
    }

    fn wake(&self, gvk: &Gvk, object: &Value) {
        if is_primary(&self.primary, gvk) {
            self.queue.add(Target { gvk: gvk.clone(), key: Key::of(object) });
        }
        for watch in &self.watches {
            if watch.gvk != *gvk && !(watch.is_every() && is_tracked(gvk)) {
                continue;
            }
            match &watch.wakes {
                Wakes::Nothing => {}
                Wakes::ControllerOwner => {
                    let Some(owner) = object::controller_of(object) else { continue };
                    let owner_gvk = Gvk::of(owner);
                    if let Primary::Kind(kind) = &self.primary
                        && kind.kind == owner_gvk.kind
                        && kind.group == owner_gvk.group
                    {
                        let key = Key::new(object::meta(object, "namespace"), object::text(owner, "name"));
                        self.queue.add(Target { gvk: kind.clone(), key });
                    }
                }
                Wakes::Keys(keys) => {
                    for target in keys(&*self.cache as &dyn World, object) {
                        self.queue.add(target);
                    }
                }
            }
        }
    }
}

impl Controller {
    pub(crate) fn new<R: Reconciler>(
        reconciler: R,
        requests: Arc<Requests>,
        cache: Arc<Cache>,
        recorder: Arc<Recorder>,
    ) -> Self {
        let (primary, watches) = (reconciler.primary(), reconciler.watches());
        let reconciler = Box::new(reconciler);
        Self { reconciler, primary, watches, requests, cache, recorder, queue: Arc::default(), metrics: None }
    }

    /// The same, counting what it does; its series are called as upstream's controllers are.
    pub(crate) fn counted(mut self, registry: Option<Arc<Registry>>, workers: usize) -> Self {
        let Some(registry) = registry else { return self };
        let counts = Counts { registry, name: format!("{}_controller", self.reconciler.name()) };
        counts.registry.set(&MAX_WORKERS, &counts.labels(), f64::from(u32::try_from(workers).unwrap_or(u32::MAX)));
        let (queue, name) = (self.queue.clone(), counts.name.clone());
        counts.registry.on_read(self.reconciler.name(), move |registry| {
            let labels: Labels<'_> = &[("controller", &name), ("name", &name)];
            let (depth, adds) = queue.counts();
            registry.set(&QUEUE_DEPTH, labels, depth as f64);
            registry.set(&QUEUE_ADDS, labels, adds as f64);
        });
        self.metrics = Some(counts);
        self
    }

    /// One worker: takes keys until stopped. A key in work when `stop` comes is finished first.
    pub(crate) async fn work(&self, stop: CancellationToken) {
        loop {
            let (target, waited) = tokio::select! {
                next = self.queue.next() => next,
                () = stop.cancelled() => return,
            };
            let span = tracing::trace_span!(
                target: crate::SPANS, "reconcile", controller = self.reconciler.name(), object = %target, outcome = Empty
            );
            let end = self.reconcile_counted(&target, waited).instrument(span.clone()).await;
            span.record("outcome", end.as_str());
            self.queue.done(&target);
        }
    }

    /// A panic in pure code is a bug of ours: it is told where the object is looked at, and other objects go on.
    fn decide(&self, target: &Target) -> Result<Option<Decision>, String> {
        let decided = catch_unwind(AssertUnwindSafe(|| self.reconciler.decide(&*self.cache, target, Timestamp::now())));
        decided.map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
        })
    }

    async fn reconcile_counted(&self, target: &Target, waited: Duration) -> End {
        let Some(counts) = &self.metrics else { return self.reconcile(target).await };
        let started = Instant::now();
        counts.add(&ACTIVE_WORKERS, 1.0);
        let queue: Labels<'_> = &[("controller", &counts.name), ("name", &counts.name)];
        counts.registry.observe(&QUEUE_SECONDS, queue, waited.as_secs_f64());
        let end = self.reconcile(target).await;
        counts.add(&ACTIVE_WORKERS, -1.0);
        let seconds = started.elapsed().as_secs_f64();
        counts.registry.observe(&RECONCILE_SECONDS, &counts.labels(), seconds);
        counts.registry.observe(&QUEUE_WORK_SECONDS, queue, seconds);
        counts.registry.add(&RECONCILES, &[("controller", &counts.name), ("result", end.as_str())], 1.0);
        if matches!(end, End::Error | End::Panic) {
            counts.add(&RECONCILE_ERRORS, 1.0);
        }
        if end == End::Panic {
            counts.add(&RECONCILE_PANICS, 1.0);
        }
        if matches!(end, End::Error | End::Panic | End::Requeue) {
            counts.registry.add(&QUEUE_RETRIES, queue, 1.0);
        }
        end
    }

    async fn reconcile(&self, target: &Target) -> End {
        let decision = match self.decide(target) {
            Ok(Some(decision)) => decision,
            Ok(None) => {
                self.queue.succeeded(target);
                return End::Success;
            }
            Err(panic) => {
                let delay = self.queue.add_backoff(target.clone());
                tracing::error!(controller = self.reconciler.name(), object = %target, ?delay, panic, "bug: the controller panicked on this object");
                if let Some(object) = self.cache.get(&target.gvk, &target.key) {
                    let event = Event {
                        regarding: None,
                        kind: EventType::Warning,
                        reason: "ControllerPanicked".to_owned(),
                        message: format!(
                            "a bug in the {} controller stops work on this object: {panic}",
                            self.reconciler.name()
                        ),
                        reporter: self.reconciler.name(),
                        action: "Reconciling",
                    };
                    self.recorder.record(&object, &event).await;
                }
                return End::Panic;
            }
        };
        if !decision.report.0.is_empty() {
            tracing::debug!(controller = self.reconciler.name(), object = %target, report = ?decision.report.0, "decided");
        }
        let next = decision.next;
        match execute(&self.requests, &self.cache, &self.recorder, target, decision).await {
            Outcome::Done => match next {
                Next::AwaitChange => {
                    self.queue.succeeded(target);
                    End::Success
                }
                Next::After(delay) => {
                    self.queue.succeeded(target);
                    let delay = Duration::try_from(delay).unwrap_or(Duration::ZERO);
                    self.queue.add_after(target.clone(), delay);
                    End::RequeueAfter
                }
                Next::Backoff => {
                    self.queue.add_backoff(target.clone());
                    End::Requeue
                }
            },
            Outcome::Again => {
                self.queue.add_backoff(target.clone());
                End::Requeue
            }
            Outcome::Failed(errors) => {
                let delay = self.queue.add_backoff(target.clone());
                tracing::warn!(controller = self.reconciler.name(), object = %target, ?delay, error = errors.join("; "), "could not carry out the decision; will try again");
                if let Next::After(after) = next
                    && let Ok(after) = Duration::try_from(after)
                {
                    self.queue.add_after(target.clone(), after);
                }
                End::Error
            }
        }
    }
}
