//! The configuration of a load balancer.

use crate::policy::Policy;
use std::fmt;
use std::time::Duration;

/// All settings of a load balancer. A new value replaces the old one while requests are in flight.
#[derive(Clone, Debug, PartialEq)]
pub struct BalancerConfig {
    /// In the order in which `round_robin` uses them. Of two with the same id, the last counts.
    pub backends: Vec<Backend>,
    pub policy: Policy,
    /// A request or a tunnel ends after this time without a byte in either direction. Default: 120 s.
    pub stream_timeout: Duration,
    /// With a certificate the listener accepts only TLS, otherwise only plain text.
    pub tls: Option<CertificatePair>,
    /// The probe of backends that name none.
    pub probe: Probe,
    pub hold: Hold,
}

impl Default for BalancerConfig {
    fn default() -> Self {
        Self {
            backends: Vec::new(),
            policy: Policy::default(),
            stream_timeout: Duration::from_secs(120),
            tls: None,
            probe: Probe::default(),
            hold: Hold::default(),
        }
    }
}

/// A server that answers requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// The backend's name in reports and messages. With another address the same id is a new backend.
    pub id: String,
    /// `host:port`; IPv6 addresses are in brackets.
    pub address: String,
    pub state: BackendState,
    /// The requests per second that its kind of GPU can answer, for `instance_aware_least_load`. `None`, zero and less count as 1.
    pub capacity: Option<f64>,
    /// Versions of a service may be probed differently. Default: as the configuration says.
    pub probe: Option<Probe>,
}

/// What a backend gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendState {
    /// Probes, and requests while it is ready.
    #[default]
    Serving,
    /// Probes but no requests: a new version before the switch of a blue-green update.
    Probed,
    /// Neither; its requests in flight continue.
    Draining,
}

/// How to find out whether a backend is ready. It is ready after it answers 200; any other status is a failure.
#[derive(Clone, PartialEq, Eq)]
pub struct Probe {
    /// Path, with a query if needed. Default: `/`.
    pub path: String,
    /// Limit for connection, answer and body together. Default: 15 s.
    pub timeout: Duration,
    /// Time between two probes. A backend that has never been ready is probed each second if this is longer. Default: 10 s.
    pub interval: Duration,
    /// JSON to send; the probe is then a POST. Default: none, a GET.
    pub post_data: Option<String>,
    /// Names and values of additional headers.
    pub headers: Vec<(String, String)>,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            path: "/".to_owned(),
            timeout: Duration::from_secs(15),
            interval: Duration::from_secs(10),
            post_data: None,
            headers: Vec::new(),
        }
    }
}

impl fmt::Debug for Probe {
    /// Leaves out values of headers, the query and the body, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.split('?').next().unwrap_or_default();
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Probe")
            .field("path", &path)
            .field("timeout", &self.timeout)
            .field("interval", &self.interval)
            .field("is_post", &self.post_data.is_some())
            .field("headers", &headers)
            .finish()
    }
}

/// How many requests wait for a ready backend, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// A request that has waited so long is refused. Default: 10 minutes.
    pub time: Duration,
    /// More requests than this are refused at once. Default: 1000.
    pub most: usize,
}

impl Default for Hold {
    fn default() -> Self {
        Self { time: Duration::from_secs(600), most: 1000 }
    }
}

/// A certificate with its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificatePair {
    /// The chain, the server's own certificate first.
    pub certificate: String,
    pub key: String,
}

impl fmt::Debug for CertificatePair {
    /// Leaves out the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificatePair").finish_non_exhaustive()
    }
}
