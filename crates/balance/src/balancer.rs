//! The state that all connections share: the backends, those that are ready, and the counters of the report.

use crate::config::{Backend, BackendState, BalancerConfig, Hold, Probe};
use crate::policy::Picker;
use crate::probe;
use crate::report::BalancerReport;
use crate::tls::{self, Tls};
use crate::upstream::{Upstream, locked};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Held requests that may go to a backend within [`TURN`].
const TURNS: usize = 4;
const TURN: Duration = Duration::from_millis(10);

/// The part of the configuration that requests and probers read.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) stream_timeout: Duration,
    pub(crate) hold: Hold,
    pub(crate) tls: Tls,
}

pub(crate) struct Balancer {
    settings: RwLock<Arc<Settings>>,
    last: Mutex<Last>,
    upstreams: Mutex<BTreeMap<String, Arc<Upstream>>>,
    /// The ids in the order of the configuration.
    order: Mutex<Vec<String>>,
    picker: Mutex<Picker<Arc<Upstream>>>,
    /// Counts changes of the ready backends; held requests wait for it.
    changes: watch::Sender<u64>,
    arrivals: AtomicU64,
    held: AtomicUsize,
    /// Turns of held requests when a backend becomes ready: many servers accept only a few connections at once.
    turns: Arc<Semaphore>,
    refused: AtomicU64,
    /// The report has changed.
    pub(crate) news: Notify,
    /// The report has changed, and must be sent at once.
    pub(crate) urgent: Notify,
    /// No new work: held requests are refused.
    pub(crate) stopping: CancellationToken,
    /// The time for requests in flight is over.
    pub(crate) killed: CancellationToken,
    /// Connections of clients, and tunnels.
    pub(crate) tasks: TaskTracker,
}

/// What the last configuration said about TLS.
#[derive(Default)]
struct Last {
    tls: Option<crate::config::CertificatePair>,
    tls_error: Option<String>,
}

/// Why a request got no backend.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoBackend {
    /// All ready backends were tried.
    Tried,
    /// So many requests are held already.
    Full(usize),
    /// None became ready in this time.
    Late(Duration),
    Stopping,
}

impl Balancer {
    pub(crate) fn new() -> Arc<Self> {
        let config = BalancerConfig::default();
        let settings = Settings { stream_timeout: config.stream_timeout, hold: config.hold, tls: Tls::Off };
        Arc::new(Self {
            settings: RwLock::new(Arc::new(settings)),
            last: Mutex::default(),
            upstreams: Mutex::default(),
            order: Mutex::default(),
            picker: Mutex::new(Picker::new(config.policy)),
            changes: watch::Sender::new(0),
            arrivals: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            turns: Arc::new(Semaphore::new(TURNS)),
            refused: AtomicU64::new(0),
            news: Notify::new(),
            urgent: Notify::new(),
            stopping: CancellationToken::new(),
            killed: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the configuration.
    pub(crate) fn apply(self: &Arc<Self>, config: BalancerConfig) {
        let old = self.settings();
        let tls = self.tls(config.tls, &old.tls);
        let settings = Settings { stream_timeout: config.stream_timeout, hold: config.hold, tls };
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        locked(&self.picker).set_policy(config.policy);
        let mut upstreams = BTreeMap::new();
        let order = config.backends.iter().map(|backend| backend.id.clone()).collect();
        for backend in config.backends {
            upstreams.insert(backend.id.clone(), self.upstream(backend, &config.probe));
        }
        *locked(&self.order) = order;
        let old = std::mem::replace(&mut *locked(&self.upstreams), upstreams.clone());
        for (id, upstream) in old {
            if upstreams.get(&id).is_none_or(|new| *new != upstream) {
                upstream.retire();
            }
        }
        self.refresh();
    }

    /// The object of a configured backend, with its prober running or not as its state requires.
    fn upstream(self: &Arc<Self>, backend: Backend, probe: &Probe) -> Arc<Upstream> {
        let known = locked(&self.upstreams).get(&backend.id).filter(|known| known.address == backend.address).cloned();
        let upstream = known.unwrap_or_else(|| Arc::new(Upstream::new(backend.id, backend.address)));
        let mut role = locked(&upstream.role);
        role.state = backend.state;
        role.capacity = backend.capacity;
        let probe = backend.probe.as_ref().unwrap_or(probe);
        if *role.probe != *probe {
            role.probe = Arc::new(probe.clone());
            upstream.probe_now.notify_one();
        }
        match (backend.state, &role.prober) {
            (BackendState::Draining, _) => {
                if let Some(prober) = role.prober.take() {
                    prober.cancel();
                }
            }
            (BackendState::Serving | BackendState::Probed, Some(_)) => {}
            (BackendState::Serving | BackendState::Probed, None) => {
                let end = CancellationToken::new();
                tokio::spawn(probe::follow(Arc::clone(self), Arc::clone(&upstream), end.clone()));
                role.prober = Some(end);
            }
        }
        drop(role);
        upstream
    }

    /// TLS by a new configuration. A certificate that cannot be used does not replace a usable one.
    fn tls(&self, pair: Option<crate::config::CertificatePair>, old: &Tls) -> Tls {
        let mut last = locked(&self.last);
        if last.tls == pair {
            return old.clone();
        }
        last.tls_error = None;
        last.tls.clone_from(&pair);
        match pair.as_ref().map(tls::acceptor) {
            None => Tls::Off,
            Some(Ok(acceptor)) => Tls::On(acceptor),
            Some(Err(error)) => {
                last.tls_error = Some(error.to_string());
                if matches!(old, Tls::On(_)) { old.clone() } else { Tls::Unusable }
            }
        }
    }

    /// Records a probe's outcome.
    pub(crate) fn probed(&self, upstream: &Arc<Upstream>, outcome: Result<(), String>) {
        if upstream.probed(outcome) {
            self.refresh();
        }
        self.news.notify_one();
    }

    /// Gives the picker the backends that may get requests, and wakes held requests.
    fn refresh(&self) {
        let mut picker = locked(&self.picker);
        let upstreams = locked(&self.upstreams);
        let order = locked(&self.order);
        let mut ready: Vec<(Arc<Upstream>, Option<f64>)> = Vec::new();
        for upstream in order.iter().filter_map(|id| upstreams.get(id)) {
            let role = locked(&upstream.role);
            let is_new = ready.iter().all(|(other, _)| other != upstream);
            if is_new && role.state == BackendState::Serving && locked(&upstream.health).ready {
                ready.push((Arc::clone(upstream), role.capacity));
            }
        }
        picker.set_ready(ready);
        drop((order, upstreams, picker));
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
        self.news.notify_one();
    }

    /// Counts a request that has arrived.
    pub(crate) fn arrived(&self) {
        self.arrivals.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests that have arrived since the start.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals.load(Ordering::Relaxed)
    }

    /// A backend for a request. A request that has tried none yet is held while none is ready.
    ///
    /// # Errors
    /// There is none; the value says why.
    pub(crate) async fn choose(self: &Arc<Self>, tried: &[Arc<Upstream>]) -> Result<Flight, NoBackend> {
        if let Some(flight) = self.pick(tried) {
            return Ok(flight);
        }
        if !tried.is_empty() {
            return Err(NoBackend::Tried);
        }
        let outcome = self.wait().await;
        if outcome.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            self.news.notify_one();
        }
        outcome
    }

    fn pick(self: &Arc<Self>, tried: &[Arc<Upstream>]) -> Option<Flight> {
        let upstream = locked(&self.picker).pick(|one| tried.contains(one))?;
        upstream.in_flight.fetch_add(1, Ordering::Relaxed);
        Some(Flight { balancer: Arc::clone(self), upstream })
    }

    /// Waits until a backend is ready.
    async fn wait(self: &Arc<Self>) -> Result<Flight, NoBackend> {
        let hold = self.settings().hold;
        let Some(_held) = Held::new(self, hold.most) else { return Err(NoBackend::Full(hold.most)) };
        let mut changes = self.changes.subscribe();
        let mut late = std::pin::pin!(sleep(hold.time));
        loop {
            // a newer configuration may say that none will be ready
            if self.settings().hold.most == 0 {
                return Err(NoBackend::Full(0));
            }
            let next = async {
                let turn = Arc::clone(&self.turns).acquire_owned().await.ok();
                match self.pick(&[]) {
                    Some(flight) => Some((flight, turn)),
                    None => {
                        drop(turn);
                        let _changed = changes.changed().await;
                        None
                    }
                }
            };
            tokio::select! {
                next = next => if let Some((flight, turn)) = next {
                    tokio::spawn(async move {
                        sleep(TURN).await;
                        drop(turn);
                    });
                    return Ok(flight);
                },
                () = &mut late => return Err(NoBackend::Late(hold.time)),
                () = self.stopping.cancelled() => return Err(NoBackend::Stopping),
            }
        }
    }

    /// The report, with the requests of the last minute.
    pub(crate) fn report(&self, requests_last_minute: u64) -> BalancerReport {
        let upstreams = locked(&self.upstreams);
        BalancerReport {
            backends: upstreams.iter().map(|(id, upstream)| (id.clone(), upstream.report())).collect(),
            requests_last_minute,
            held: self.held.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            tls_error: locked(&self.last).tls_error.clone(),
        }
    }

    /// Drops old idle connections of all backends.
    pub(crate) fn drop_old(&self) {
        locked(&self.upstreams).values().for_each(|upstream| upstream.drop_old());
    }

    /// Ends all probers, and closes all idle connections.
    pub(crate) fn retire(&self) {
        locked(&self.upstreams).values().for_each(|upstream| upstream.retire());
    }
}

/// A request in flight to a backend. It ends with the value.
pub(crate) struct Flight {
    pub(crate) balancer: Arc<Balancer>,
    pub(crate) upstream: Arc<Upstream>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        locked(&self.balancer.picker).done(&self.upstream);
        let before = self.upstream.in_flight.fetch_sub(1, Ordering::Relaxed);
        if before == 1 && locked(&self.upstream.role).state == BackendState::Draining {
            self.balancer.news.notify_one();
        }
    }
}

/// A request that waits for a backend.
struct Held<'a>(&'a Balancer);

impl<'a> Held<'a> {
    /// None if so many wait already.
    fn new(balancer: &'a Balancer, most: usize) -> Option<Self> {
        let add = |held: usize| (held < most).then(|| held.saturating_add(1));
        let before = balancer.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        if before == 0 {
            balancer.urgent.notify_one()
        } else {
            balancer.news.notify_one()
        }
        Some(Self(balancer))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
        self.0.news.notify_one();
    }
}
