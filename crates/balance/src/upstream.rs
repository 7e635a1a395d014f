//! One backend: its health, and the connections to it.

use crate::config::{BackendState, Probe};
use crate::link::Link;
use crate::report::BackendReport;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// A backend that does not accept a connection in this time counts as unreachable.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Idle connections to one backend; more are closed.
const IDLE_MOST: usize = 512;
/// An idle connection is closed after this time.
const IDLE_LIMIT: Duration = Duration::from_secs(60);

/// Locks, also after a panic of another holder: every holder leaves a valid value.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One backend at one address. Two are equal only if they are the same object.
pub(crate) struct Upstream {
    pub(crate) id: String,
    pub(crate) address: String,
    /// Wakes the prober before its time.
    pub(crate) probe_now: Notify,
    pub(crate) health: Mutex<BackendReport>,
    pub(crate) role: Mutex<Role>,
    pub(crate) in_flight: AtomicUsize,
    idle: Mutex<Idle>,
}

/// What the configuration says about a backend.
#[derive(Debug, Default)]
pub(crate) struct Role {
    pub(crate) state: BackendState,
    pub(crate) capacity: Option<f64>,
    pub(crate) probe: Arc<Probe>,
    /// Ends the prober, if one runs.
    pub(crate) prober: Option<CancellationToken>,
}

#[derive(Default)]
struct Idle {
    connections: Vec<(Link, Instant)>,
    is_closed: bool,
}

impl PartialEq for Upstream {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Upstream {}

impl Upstream {
    pub(crate) fn new(id: String, address: String) -> Self {
        Self {
            id,
            address,
            probe_now: Notify::new(),
            health: Mutex::default(),
            role: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            idle: Mutex::default(),
        }
    }

    /// The backend's part of the report.
    pub(crate) fn report(&self) -> BackendReport {
        BackendReport { in_flight: self.in_flight.load(Ordering::Relaxed), ..locked(&self.health).clone() }
    }

    /// Records the outcome of a probe. Returns whether readiness changed.
    pub(crate) fn probed(&self, outcome: Result<(), String>) -> bool {
        let mut health = locked(&self.health);
        let was_ready = health.ready;
        health.ready = outcome.is_ok();
        match outcome {
            Ok(()) => {
                health.first_ready_at.get_or_insert_with(clock::now);
                health.failing_since = None;
                health.failures = 0;
            }
            Err(failure) => {
                health.failing_since.get_or_insert_with(clock::now);
                health.failures = health.failures.saturating_add(1);
                health.last_failure = Some(failure);
            }
        }
        was_ready != health.ready
    }

    /// An idle connection that has been idle for at most `age`; the one that was used last.
    pub(crate) fn idle(&self, age: Duration) -> Option<Link> {
        let now = Instant::now();
        let mut idle = locked(&self.idle);
        while let Some((mut link, since)) = idle.connections.pop() {
            if now.duration_since(since) > age {
                idle.connections.push((link, since));
                return None;
            }
            if link.is_usable() {
                return Some(link);
            }
        }
        None
    }

    /// Keeps a connection for the next request.
    pub(crate) fn keep(&self, link: Link) {
        let mut idle = locked(&self.idle);
        if !idle.is_closed && idle.connections.len() < IDLE_MOST {
            idle.connections.push((link, Instant::now()));
        }
    }

    /// Drops connections that the backend has closed, or that have been idle for long.
    pub(crate) fn drop_old(&self) {
        let now = Instant::now();
        let mut idle = locked(&self.idle);
        idle.connections.retain_mut(|(link, since)| now.duration_since(*since) < IDLE_LIMIT && link.is_usable());
    }

    /// Closes idle connections and ends probes: the configuration does not name this backend any more. Requests in flight continue.
    pub(crate) fn retire(&self) {
        if let Some(prober) = locked(&self.role).prober.take() {
            prober.cancel();
        }
        let mut idle = locked(&self.idle);
        idle.is_closed = true;
        idle.connections.clear();
    }

    /// A new connection.
    ///
    /// # Errors
    /// The name has no address, the backend refuses, or it does not answer within 5 s.
    pub(crate) async fn connect(&self) -> io::Result<Link> {
        let connected = timeout(CONNECT_LIMIT, TcpStream::connect(self.address.as_str())).await;
        let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        stream.set_nodelay(true)?;
        Link::new(stream).await.map_err(io::Error::other)
    }
}

/// Why a connection could not be made, in a few words that name no address.
pub(crate) fn connect_failure(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::TimedOut => format!("no connection within {} s", CONNECT_LIMIT.as_secs()),
        _ => error.to_string(),
    }
}
