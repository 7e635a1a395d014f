//! What a load balancer reports.

use jiff::Timestamp;
use std::collections::BTreeMap;

/// The state of a load balancer. It is sent about 200 ms after a change, and at once when the first request is held.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BalancerReport {
    /// By the id of the backend; the backends of the last configuration.
    pub backends: BTreeMap<String, BackendReport>,
    /// Requests that arrived in the last 60 s, also those that were held or refused.
    pub requests_last_minute: u64,
    /// Requests that wait for a ready backend now.
    pub held: usize,
    /// Requests that were refused since the start because no backend was ready.
    pub refused: u64,
    /// Why the certificate of the configuration is not in use. The previous one stays in use; without one, connections are closed.
    pub tls_error: Option<String>,
}

/// The state of a backend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendReport {
    /// The last probe succeeded.
    pub ready: bool,
    /// The time of the first successful probe.
    pub first_ready_at: Option<Timestamp>,
    /// The time of the first failure in the current row of failures.
    pub failing_since: Option<Timestamp>,
    /// Consecutive failures of probes.
    pub failures: u32,
    /// The last failure, which stays after a success: `GET /health answered 503`.
    pub last_failure: Option<String>,
    /// Requests and tunnels that have not ended.
    pub in_flight: usize,
}
