//! Runs any [`reconcile::Reconciler`] against any `kube::Client`.
//!
//! The driver knows no kind. It keeps one cache per watched kind ([`cache::Cache`], the reconcilers' `World`), wakes
//! reconcilers by what their watches say, and carries their decisions out in the one order that is safe: writes, then
//! status, then events. Results of its own writes enter the cache at once, so a reconciler sees what it did even before
//! the watch tells.
//!
//! Start reading at [`Driver::run`].

pub mod cache;
mod controller;
mod events;
mod execute;
mod generate;
mod informer;
mod queue;
mod requests;

use cache::Cache;
use controller::{Controller, Wake};
use events::Recorder;
use kube::Client;
use reconcile::Reconciler;
use requests::Requests;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How many objects of one controller are worked on at a time. They mostly wait for the API server to make a write durable,
/// and writes that wait together share a commit.
const WORKERS: usize = 32;

/// Spawns a controller's workers.
type Start = Box<dyn FnOnce(&mut JoinSet<()>, CancellationToken) + Send>;

/// A set of reconcilers over one API server.
pub struct Driver {
    requests: Arc<Requests>,
    cache: Arc<Cache>,
    recorder: Arc<Recorder>,
    controllers: Vec<Arc<dyn Wake>>,
    starts: Vec<Start>,
}

impl Driver {
    /// A driver without reconcilers. Nothing is requested before [`Driver::run`].
    pub fn new(client: Client) -> Self {
        let requests = Arc::new(Requests::new(client));
        Self {
            recorder: Arc::new(Recorder::new(requests.clone())),
            requests,
            cache: Arc::new(Cache::default()),
            controllers: Vec::new(),
            starts: Vec::new(),
        }
    }

    /// Adds a reconciler. Its kinds are watched once `run` starts.
    pub fn add<R: Reconciler>(&mut self, reconciler: R) {
        let controller =
            Arc::new(Controller::new(reconciler, self.requests.clone(), self.cache.clone(), self.recorder.clone()));
        self.controllers.push(controller.clone());
        self.starts.push(Box::new(move |tasks, stop| {
            for _ in 0..WORKERS {
                let (controller, stop) = (controller.clone(), stop.clone());
                tasks.spawn(async move { controller.work(stop).await });
            }
        }));
    }

    /// The cache that the reconcilers read: for whoever wants to look at the same world.
    pub fn cache(&self) -> Arc<Cache> {
        self.cache.clone()
    }

    /// Watches and reconciles until `stop`.
    ///
    /// Expected flow: discovery; one informer per kind that a reconciler names (every kind, where one is keyed by
    /// [`Primary::Every`]); when all have listed, the workers start; from then on each change wakes the reconcilers whose
    /// watches name it.
    ///
    /// Guarantees: one object is decided on by one worker at a time for each reconciler; no reconciler decides before all
    /// of its kinds were listed once; a panic in a reconciler costs that object a backoff and nothing else.
    ///
    /// Caveats: cancelling stops between requests; a decision half carried out is decided again by the next run.
    pub async fn run(self, stop: CancellationToken) {
        let every = self.controllers.iter().any(|c| c.every());
        let mut tasks = JoinSet::new();
        let informers =
            informer::Informers::new(self.requests.clone(), self.cache.clone(), self.controllers.clone(), stop.clone());
        if !informers.start(every).await {
            return;
        }
        let recorder = self.recorder.clone();
        tasks.spawn(async move { recorder.run().await });
        for start in self.starts {
            start(&mut tasks, stop.clone());
        }
        stop.cancelled().await;
        tasks.shutdown().await;
        informers.shutdown().await;
    }
}
