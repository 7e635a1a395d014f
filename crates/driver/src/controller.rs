//! One reconciler's queue and workers.

use crate::cache::Cache;
use crate::events::Recorder;
use crate::execute::execute;
use crate::looks::Looks;
use crate::metrics::{Labels, Registry};
use crate::queue::{Queue, Ready};
use crate::requests::Requests;
use api::metrics::{
    ACTIVE_WORKERS, MAX_WORKERS, Metric, QUEUE_ADDS, QUEUE_DEPTH, QUEUE_RETRIES, QUEUE_SECONDS, QUEUE_WORK_SECONDS,
    RECONCILE_ERRORS, RECONCILE_PANICS, RECONCILE_SECONDS, RECONCILES,
};
use api::object::{Gvk, Key, Target};
use futures::FutureExt;
use jiff::Timestamp;
use reconcile::execution::Outcome;
use reconcile::queue::{Lane, REST_MAX, Settled};
use reconcile::{Decision, Event, EventType, Next, Primary, Reconciler, Watch, World};
use serde_json::Value;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::SemaphorePermit;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use tracing::field::Empty;

/// What informers know of a controller.
pub(crate) trait Wake: Send + Sync {
    /// Whether it looks at every kind.
    fn every(&self) -> bool;
    /// The kinds that it names, its own included.
    fn kinds(&self) -> Vec<Gvk>;
    fn wake(&self, gvk: &Gvk, object: &Value, news: News);
}

/// How a controller comes to hear of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It has changed.
    Changed,
    /// It was in a list, and may have changed.
    Listed,
    /// It was in the cache before any controller took its first look.
    AtStart,
}

impl News {
    fn lane(self) -> Lane {
        match self {
            Self::Changed => Lane::Changed,
            Self::Listed | Self::AtStart => Lane::Listed,
        }
    }
}

/// A reconciler whose observations nobody needs to name. Everything around the decision is then compiled once, not once for
/// each reconciler.
trait Decide: Send + Sync {
    fn name(&self) -> &'static str;
    fn decide(&self, world: &dyn World, target: &Target, now: Timestamp) -> Option<Decision>;
    fn concerns(&self, object: &Value) -> bool;
    fn rests(&self) -> bool;
}

impl<R: Reconciler> Decide for R {
    fn name(&self) -> &'static str {
        Reconciler::name(self)
    }

    fn decide(&self, world: &dyn World, target: &Target, now: Timestamp) -> Option<Decision> {
        let observed = self.observe(world, target)?;
        Some(Reconciler::decide(self, &observed, now))
    }

    fn concerns(&self, object: &Value) -> bool {
        Reconciler::concerns(self, object)
    }

    fn rests(&self) -> bool {
        Reconciler::rests(self)
    }
}

/// Between the death of a worker and the next one.
const WORKER_PAUSE: Duration = Duration::from_millis(100);

/// A key in work: given back whatever happens.
struct Held<'a> {
    queue: &'a Queue,
    target: &'a Target,
    /// How long it rests.
    rest: Duration,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.queue.done(self.target, self.rest);
    }
}

/// What a panic says.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

pub(crate) struct Controller {
    reconciler: Box<dyn Decide>,
    /// Asked for once: every change of any object is held against them.
    primary: Primary,
    watches: Vec<Watch>,
    /// The program as which it writes, where it is not the client's own.
    agent: Option<&'static str>,
    requests: Arc<Requests>,
    cache: Arc<Cache>,
    recorder: Arc<Recorder>,
    queue: Arc<Queue>,
    looks: Arc<Looks>,
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

    fn wake(&self, gvk: &Gvk, object: &Value, news: News) {
        let add = |target| self.queue.add_to(news.lane(), target);
        let woken = match news {
            News::Changed | News::Listed => Watch::woken_by,
            News::AtStart => Watch::woken_at_start,
        };
        self.primary.woken_by(gvk, object).filter(|_| self.reconciler.concerns(object)).into_iter().for_each(add);
        for watch in &self.watches {
            // the watch of a kind, which all controllers share, must not end with it
            match catch_unwind(AssertUnwindSafe(|| woken(watch, &self.primary, &*self.cache, gvk, object))) {
                Ok(targets) => targets.into_iter().for_each(add),
                Err(panic) => {
                    let (controller, panic) = (self.reconciler.name(), words(&*panic));
                    tracing::error!(controller, %gvk, object = %Key::of(object), panic, "bug: a watch panicked");
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
        looks: Arc<Looks>,
    ) -> Self {
        let (primary, watches) = (reconciler.primary(), reconciler.watches());
        let reconciler = Box::new(reconciler);
        Self {
            reconciler,
            primary,
            watches,
            requests,
            cache,
            recorder,
            queue: Arc::default(),
            looks,
            metrics: None,
            agent: None,
        }
    }

    /// The same, writing as a program of its own.
    pub(crate) fn named(self, agent: Option<&'static str>) -> Self {
        Self { agent, ..self }
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
            let Ready { target, waited, permit } = tokio::select! {
                next = self.queue.next(&self.looks) => next,
                () = stop.cancelled() => return,
            };
            let span = tracing::trace_span!(
                target: crate::SPANS, "reconcile", controller = self.reconciler.name(), object = %target, outcome = Empty
            );
            let mut held = Held { queue: &self.queue, target: &target, rest: Duration::ZERO };
            let begun = tokio::time::Instant::now();
            // apart, so that the many workers that wait are small
            let end = Box::pin(self.reconcile_counted(&target, waited, permit)).instrument(span.clone()).await;
            span.record("outcome", end.as_str());
            if self.reconciler.rests() {
                held.rest = begun.elapsed().min(REST_MAX);
            }
            drop(held);
        }
    }

    /// A worker that does not end before `stop`: what panics outside of a reconciliation costs it a moment.
    pub(crate) async fn work_on(&self, stop: CancellationToken) {
        while let Err(panic) = AssertUnwindSafe(self.work(stop.clone())).catch_unwind().await {
            let panic = words(&*panic);
            tracing::error!(
                controller = self.reconciler.name(),
                panic,
                "bug: a worker panicked; another takes its place"
            );
            tokio::time::sleep(WORKER_PAUSE).await;
        }
    }

    /// Looks at one object and carries out what is decided. A panic in any of it is a bug of ours: an event on the
    /// object reports it, the object waits longer each time, and other objects go on.
    async fn reconcile(&self, target: &Target, permit: Option<SemaphorePermit<'_>>) -> End {
        match AssertUnwindSafe(self.decide_and_carry_out(target, permit)).catch_unwind().await {
            Ok(end) => end,
            Err(panic) => {
                self.panicked(target, words(&*panic)).await;
                End::Panic
            }
        }
    }

    async fn panicked(&self, target: &Target, panic: &str) {
        let delay = self.queue.bar(target.clone());
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
            self.recorder.record(&object, &event, self.agent).await;
        }
    }

    async fn reconcile_counted(&self, target: &Target, waited: Duration, permit: Option<SemaphorePermit<'_>>) -> End {
        let Some(counts) = &self.metrics else { return self.reconcile(target, permit).await };
        let started = Instant::now();
        counts.add(&ACTIVE_WORKERS, 1.0);
        let queue: Labels<'_> = &[("controller", &counts.name), ("name", &counts.name)];
        counts.registry.observe(&QUEUE_SECONDS, queue, waited.as_secs_f64());
        let end = self.reconcile(target, permit).await;
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

    async fn decide_and_carry_out(&self, target: &Target, permit: Option<SemaphorePermit<'_>>) -> End {
        let look = self.looks.begin();
        let decision = self.reconciler.decide(&*self.cache, target, clock::now());
        drop(look);
        // what follows waits for the server, and takes nobody's processor
        drop(permit);
        let Some(decision) = decision else {
            self.queue.settle(target, &Outcome::Done, Next::AwaitChange);
            return End::Success;
        };
        if !decision.report.0.is_empty() {
            tracing::debug!(controller = self.reconciler.name(), object = %target, report = ?decision.report.0, "decided");
        }
        let next = decision.next;
        let outcome = execute(&self.requests, &self.cache, &self.recorder, self.agent, target, decision).await;
        let settled = self.queue.settle(target, &outcome, next);
        if let (Outcome::Failed(errors, _), Settled::Failed(delay)) = (&outcome, settled) {
            tracing::warn!(controller = self.reconciler.name(), object = %target, ?delay, error = errors.join("; "), "could not carry out the decision; will try again");
        }
        match settled {
            Settled::Success => End::Success,
            Settled::After(_) => End::RequeueAfter,
            Settled::Backoff(_) => End::Requeue,
            Settled::Failed(_) => End::Error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::object;
    use reconcile::Wakes;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    /// Panics on the objects that say so, and counts its looks.
    #[derive(Clone, Default)]
    struct Fragile(Arc<Mutex<BTreeMap<String, u32>>>);

    impl Reconciler for Fragile {
        type Observed = String;

        fn name(&self) -> &'static str {
            "fragile"
        }

        fn primary(&self) -> Primary {
            Primary::Kind(Gvk::new("", "v1", "Pod"))
        }

        fn watches(&self) -> Vec<Watch> {
            let keys = Wakes::Keys(|_, object| panic!("watching {}", object::meta(object, "name")));
            vec![Watch { gvk: Gvk::new("", "v1", "Node"), wakes: keys }]
        }

        fn observe(&self, _world: &dyn World, target: &Target) -> Option<String> {
            let name = target.key.name.clone();
            *self.0.lock().unwrap().entry(name.clone()).or_default() += 1;
            assert!(!name.starts_with("observe"), "observing {name}");
            Some(name)
        }

        fn decide(&self, name: &String, _now: Timestamp) -> Decision {
            assert!(!name.starts_with("decide"), "deciding on {name}");
            Decision::nothing()
        }
    }

    /// Makes an object at each look, and rests or does not.
    struct Busy {
        looks: Arc<Mutex<u32>>,
        rests: bool,
    }

    impl Reconciler for Busy {
        type Observed = u32;

        fn name(&self) -> &'static str {
            "busy"
        }

        fn primary(&self) -> Primary {
            Primary::Kind(Gvk::new("", "v1", "Pod"))
        }

        fn watches(&self) -> Vec<Watch> {
            Vec::new()
        }

        fn observe(&self, _world: &dyn World, _target: &Target) -> Option<u32> {
            let mut looks = self.looks.lock().unwrap();
            *looks += 1;
            Some(*looks)
        }

        fn decide(&self, look: &u32, _now: Timestamp) -> Decision {
            let metadata = serde_json::json!({"name": format!("made-{look}"), "namespace": "ns"});
            let object = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            let mut decision = Decision::nothing();
            decision.writes.push(reconcile::Op::Create { object }.into());
            decision
        }

        fn rests(&self) -> bool {
            self.rests
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_rests_looks_half_as_often() {
        let mut counts = Vec::new();
        for rests in [false, true] {
            let server = tower::service_fn(|_: http::Request<kube::client::Body>| async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let made = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"made","namespace":"ns"}}"#;
                Ok::<_, std::convert::Infallible>(
                    http::Response::builder()
                        .status(201)
                        .body(kube::client::Body::from(made.as_bytes().to_vec()))
                        .unwrap(),
                )
            });
            let requests = Arc::new(Requests::new(kube::Client::new(server, "default"), &crate::Options::default()));
            let recorder = Arc::new(Recorder::new(requests.clone()));
            let busy = Busy { looks: Arc::default(), rests };
            let looks = busy.looks.clone();
            let controller = Controller::new(busy, requests, Arc::default(), recorder, Arc::new(Looks::new(1)));
            let stop = CancellationToken::new();
            let changes = async {
                for _ in 0..1000 {
                    controller.wake(
                        &Gvk::new("", "v1", "Pod"),
                        &serde_json::json!({"metadata": {"name": "p", "namespace": "ns"}}),
                        News::Changed,
                    );
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                stop.cancel();
            };
            tokio::join!(controller.work(stop.clone()), changes);
            counts.push(*looks.lock().unwrap());
        }
        let (always, rested) = (counts[0], counts[1]);
        assert!(always >= 20 && rested.abs_diff(always / 2) <= 2, "{counts:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_costs_its_object_alone() {
        let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, std::convert::Infallible>(
                http::Response::builder().status(503).body(kube::client::Body::empty()).unwrap(),
            )
        });
        let requests = Arc::new(Requests::new(kube::Client::new(nobody, "default"), &crate::Options::default()));
        let fragile = Fragile::default();
        let recorder = Arc::new(Recorder::new(requests.clone()));
        let controller =
            Arc::new(Controller::new(fragile.clone(), requests, Arc::default(), recorder, Arc::new(Looks::new(1))));
        let stop = CancellationToken::new();
        let workers: Vec<_> = (0..2)
            .map(|_| {
                tokio::spawn({
                    let (controller, stop) = (controller.clone(), stop.clone());
                    async move { controller.work_on(stop).await }
                })
            })
            .collect();
        let pod = |name: &str| serde_json::json!({"metadata": {"name": name, "namespace": "ns"}});
        let wake = |name: &str| controller.wake(&Gvk::new("", "v1", "Pod"), &pod(name), News::Changed);
        controller.wake(&Gvk::new("", "v1", "Node"), &pod("node"), News::Changed);
        for second in 0..60 {
            for i in 0..20 {
                wake(&format!("observe-{i}"));
                wake(&format!("decide-{i}"));
            }
            wake(&format!("fine-{second}"));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let looks = fragile.0.lock().unwrap().clone();
        assert!((0..60).all(|second| looks.contains_key(&format!("fine-{second}"))), "{looks:?}");
        // each wait is twice the one before: 5 ms, 10 ms, … 41 s
        assert!((0..20).all(|i| (2..=16).contains(&looks[&format!("observe-{i}")])), "{looks:?}");
        stop.cancel();
        for worker in workers {
            worker.await.unwrap();
        }
    }
}
