//! Runs any [`reconcile::Reconciler`] against any `kube::Client`.
//!
//! The driver knows no kind. It keeps one cache per watched kind ([`cache::Cache`], the reconcilers' `World`), wakes
//! reconcilers by what their watches say, and carries their decisions out.
//!
//! Start reading at [`Driver::run`].
//!
//! # How a decision is carried out
//!
//! - Writes go out in order, up to the first error; then the status; then the events.
//! - A conflict is no error: the view was stale, so the reconciler looks again.
//! - The name of a child is a function of its parent, role, index and attempt. A repeated create collides with
//!   the first one and makes no duplicate.
//! - The API's answers enter the cache at once, unless the watch has already delivered something later. So a
//!   reconciler sees its own writes.
//! - A panic in a reconciler marks that one object with an event; all other objects go on.
//! - A request that only a change of the object can mend (422) is repeated after such a change.
//! - A server that asks to wait (`Retry-After`) is obeyed. A call without an answer, and a watch that should have
//!   ended, are repeated.
//!
//! # What keeps thousands of objects cheap
//!
//! - A reconciler can rest after each look for as long as that look took (`Reconciler::rests`: TrainJobs,
//!   JobSets, MPIJobs). It then writes once for a burst of changes.
//! - A reconciler can name the states that concern it (`Reconciler::concerns`); no other state wakes it. The
//!   simulator looks at everything at the end, and so finds a state that was left out.
//! - Changes are handled before objects of an initial list (two lanes of `reconcile::queue`; every fourth key is
//!   a listed one).
//! - Together, all controllers look at as many listed objects at once as half of the processors. Writes need no
//!   permit. While any look takes more than ten milliseconds, no permit is given (`looks`).
//! - An informer first fills the cache, for which an object's identity suffices (`objects::part::identity`). Later,
//!   and under the same permits, it tells whom each object concerns.
//! - A reconciler with an index of its own (`Wakes::Noted`) begins with everything that there is, and reads of
//!   each object only what it keeps (`World::each_part`).
//! - A list gives way to requests after each 64 objects.
//!
//! # Libraries that we do not use
//!
//! The registry of metrics (`metrics`) is our own: the operator's output must be controller-runtime's, and
//! `prometheus-client` prints OpenMetrics, which differs in the names of counters and the bounds of buckets. The
//! rate limit (`limit`) is our own: `governor` would add ten crates.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))] // they panic on a full disk

pub mod cache;
mod changes;
mod controller;
mod events;
mod execute;
mod informer;
pub mod limit;
mod looks;
pub mod metrics;
mod queue;
mod requests;
mod source;

use api::object::Gvk;
use cache::Cache;
use controller::{Controller, Wake};
use events::Recorder;
use futures::future::BoxFuture;
use kube::Client;
use looks::Looks;
use metrics::Registry;
use reconcile::{Event, Reconciler};
use requests::Requests;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use changes::Feed;
pub use source::{Held, Source, Told};

/// Target of the spans: one for each look at an object, and in it one for each request. At level trace, so that nothing is
/// spent on them unless somebody collects them.
pub const SPANS: &str = "trainyard::spans";

/// How many objects of one controller are worked on at a time. They mostly wait for the API server to make a write durable,
/// and writes that wait together share a commit.
const WORKERS: usize = 32;

/// How long objects in work may take to finish once the driver is asked to stop.
const FINISH_MAX: Duration = Duration::from_secs(2);

/// Told of each change of an object that a watch reports, deletions left out: its kind, a function that reads the state before where
/// it is known, the state now.
pub type Witness = Arc<dyn Fn(&Gvk, &dyn Fn() -> Option<Arc<Value>>, &Value) + Send + Sync>;

/// How a driver runs. The default is right for a server in the same process.
#[derive(Clone, Default)]
pub struct Options {
    /// Where it counts what it does. Default: nowhere.
    pub metrics: Option<Arc<Registry>>,
    /// Requests a second in the long run, and at once. Default: no limit.
    pub limit: Option<(f64, f64)>,
    /// The only namespace to look at; cluster-scoped kinds are seen all the same. Default: all.
    pub namespace: Option<String>,
    /// Objects worked on at a time, by the reconciler's name. Default: 32 each.
    pub workers: BTreeMap<&'static str, usize>,
    /// Takes away what nobody reads, before an object is kept. Default: everything is kept.
    pub slim: Option<fn(&Gvk, &mut Value)>,
    /// Kinds of which there are many: held as text, a tenth of the memory, and parsed for each look. Default: none.
    pub packs: Option<fn(&Gvk) -> bool>,
    /// What of a kind is listed and watched, as a query (`labelSelector=…`). Default: all of it.
    pub selects: Option<fn(&Gvk) -> Option<&'static str>>,
    /// The server in the same process, whose objects are shared. Not asked where `slim`, `packs`, `selects` or `namespace` is
    /// given. Default: lists and watches are requests.
    pub source: Option<Arc<dyn Source>>,
    /// Called with every change. Default: none.
    pub witness: Option<Witness>,
}

/// Writes events, and counts equal ones up.
#[derive(Clone)]
pub struct Events(Arc<Recorder>);

impl Events {
    /// Hands an event over to be written; about `about` where it does not say about whom.
    pub async fn record(&self, about: &Value, event: &Event) {
        self.0.record(about, event, None).await;
    }
}

/// Spawns a controller's workers.
type Start = Box<dyn FnOnce(&mut JoinSet<()>, CancellationToken) + Send>;

/// A set of reconcilers over one API server.
pub struct Driver {
    requests: Arc<Requests>,
    cache: Arc<Cache>,
    options: Options,
    program: Option<&'static str>,
    troubles: Arc<informer::Troubles>,
    recorder: Arc<Recorder>,
    looks: Arc<Looks>,
    controllers: Vec<Arc<dyn Wake>>,
    starts: Vec<Start>,
}

impl Driver {
    /// A driver without reconcilers. Nothing is requested before [`Driver::run`].
    pub fn new(client: Client) -> Self {
        Self::with(client, Options::default())
    }

    /// The same, run otherwise than by default.
    pub fn with(client: Client, options: Options) -> Self {
        let requests = Arc::new(Requests::new(client, &options));
        let cache = Arc::new(Cache::packing(options.packs));
        Self {
            options,
            program: None,
            troubles: Arc::default(),
            recorder: Arc::new(Recorder::new(requests.clone())),
            requests,
            cache,
            // half of the processors: the other half is for what changes, and for those who ask
            looks: Arc::new(Looks::new(available_parallelism().map_or(1, |all| all.get().div_ceil(2)))),
            controllers: Vec::new(),
            starts: Vec::new(),
        }
    }

    /// Reconcilers that are added after this call write as `program`, from which API servers take the field manager. Without a call
    /// they write as the program that the client names.
    pub fn write_as(&mut self, program: &'static str) {
        self.program = Some(program);
    }

    /// Adds a reconciler. Its kinds are watched once `run` starts.
    pub fn add<R: Reconciler>(&mut self, reconciler: R) {
        let workers = self.options.workers.get(reconciler.name()).copied().unwrap_or(WORKERS);
        let requests = self.requests.clone();
        let controller =
            Controller::new(reconciler, requests, self.cache.clone(), self.recorder.clone(), self.looks.clone())
                .named(self.program);
        let controller = Arc::new(controller.counted(self.options.metrics.clone(), workers));
        self.controllers.push(controller.clone());
        self.starts.push(Box::new(move |tasks, stop| {
            for _ in 0..workers {
                let (controller, stop) = (controller.clone(), stop.clone());
                tasks.spawn(async move { controller.work_on(stop).await });
            }
        }));
    }

    /// The cache that the reconcilers read, for callers that want the same view.
    pub fn cache(&self) -> Arc<Cache> {
        self.cache.clone()
    }

    /// For events about objects that no reconciler looks at. Written while the driver runs.
    pub fn events(&self) -> Events {
        Events(self.recorder.clone())
    }

    /// The kinds that cannot be listed or watched now, each with the reason, for reports on why nothing happens.
    pub fn troubles(&self) -> impl Fn() -> BTreeMap<Gvk, String> + Send + Sync + use<> {
        let troubles = self.troubles.clone();
        move || troubles.now()
    }

    /// For how long each kind that is served could not be listed or watched; zero for kinds whose watch works.
    pub fn behind(&self) -> impl Fn() -> BTreeMap<Gvk, Duration> + Send + Sync + use<> {
        let (troubles, cache, requests) = (self.troubles.clone(), self.cache.clone(), self.requests.clone());
        move || {
            let mut kinds: BTreeMap<_, _> = cache.kinds().into_iter().map(|gvk| (gvk, Duration::ZERO)).collect();
            // an optional kind that no server has is not behind
            kinds.extend(troubles.ages().into_iter().filter(|(gvk, _)| requests.served(gvk).is_some()));
            kinds
        }
    }

    /// Watches and reconciles until `stop`.
    ///
    /// Expected flow: discovery; one informer per kind that a reconciler names (every kind, where one is keyed by
    /// [`Primary::Every`]); when all have listed, the workers start; from then on each change wakes the reconcilers whose
    /// watches name it, and so does, a few at a time, each object that was listed.
    ///
    /// Guarantees: one object is decided on by one worker at a time for each reconciler; no reconciler decides before all
    /// of its kinds were listed once; a panic in a reconciler costs that object a backoff and nothing else.
    ///
    /// Caveats: what is in work at `stop` has 2 s to finish; a decision half carried out is decided again by the next run.
    pub fn run(self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        // boxed: compiled here, once
        Box::pin(self.run_until(stop))
    }

    async fn run_until(self, stop: CancellationToken) {
        let every = self.controllers.iter().any(|c| c.every());
        let (mut workers, mut events) = (JoinSet::new(), JoinSet::new());
        let informers = informer::Informers::new(
            self.requests.clone(),
            self.cache.clone(),
            self.controllers.clone(),
            self.options,
            self.troubles,
            stop.clone(),
            self.looks,
        );
        if !informers.start(every).await {
            informers.shutdown().await;
            return;
        }
        let recorder = self.recorder.clone();
        events.spawn(async move { recorder.run().await });
        for start in self.starts {
            start(&mut workers, stop.clone());
        }
        stop.cancelled().await;
        let finished = async { while workers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(FINISH_MAX, finished).await;
        workers.shutdown().await;
        events.shutdown().await;
        informers.shutdown().await;
    }
}
