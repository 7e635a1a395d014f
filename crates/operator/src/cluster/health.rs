//! The health of the operator's parts, for probes and for people.

use crate::serve::{Answer, Service, text};
use api::config;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How well a part does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Works,
    /// It works, but something that users will want is missing.
    Lacks,
    /// It cannot serve: not ready.
    Fails,
}

/// How each part does, with what to do about it.
pub type Parts = BTreeMap<&'static str, (Level, String)>;

/// The state of each part.
#[derive(Debug, Default)]
pub struct Health(Mutex<Parts>);

impl Health {
    /// Nothing works that is named here, until somebody says otherwise.
    pub fn awaiting(parts: &[&'static str]) -> Self {
        let waits = |part: &&'static str| (*part, (Level::Fails, "not there yet".to_owned()));
        Self(Mutex::new(parts.iter().map(waits).collect()))
    }

    /// Says how a part does. News are logged.
    pub fn set(&self, part: &'static str, level: Level, message: impl Into<String>) {
        let message = message.into();
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = (level, message.clone());
        if parts.get(part) != Some(&state) {
            match level {
                Level::Works => tracing::info!(part, detail = message, "works"),
                Level::Lacks => tracing::warn!(part, detail = message, "something is missing"),
                Level::Fails => tracing::warn!(part, detail = message, "not ready"),
            }
        }
        parts.insert(part, state);
    }

    /// All parts as they are now.
    pub fn parts(&self) -> Parts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether requests can be served, and a line for each part.
    pub fn report(&self) -> (bool, String) {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = parts.values().all(|(level, _)| *level != Level::Fails);
        let mut lines = String::new();
        for (part, (level, message)) in parts.iter() {
            let mark = match level {
                Level::Works => "[+]",
                Level::Lacks => "[!]",
                Level::Fails => "[-]",
            };
            lines += &format!("{mark}{part}: {message}\n");
        }
        lines += if ready { "ready\n" } else { "not ready\n" };
        (ready, lines)
    }
}

/// Answers probes: `/livez` and `/readyz`, and by the names that the configuration gives.
pub struct Probes {
    pub health: Arc<Health>,
    pub names: config::Health,
}

impl Service for Probes {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path().trim_matches('/');
        let named = |name: &str| path == name.trim_matches('/');
        // upstream's endpoints take sub-paths for single checks (/healthz/ping)
        if path == "livez" || named(&self.names.liveness_endpoint_name) || path == "healthz/ping" {
            return text(StatusCode::OK, "ok");
        }
        if path == "readyz" || named(&self.names.readiness_endpoint_name) {
            let (ready, report) = self.health.report();
            return text(if ready { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }, report);
        }
        text(StatusCode::NOT_FOUND, "not found")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_and_only_failures_count() {
        let health = Health::awaiting(&["certificate"]);
        assert_eq!(health.report(), (false, "[-]certificate: not there yet\nnot ready\n".to_owned()));
        health.set("certificate", Level::Works, "shown");
        health.set("jobset", Level::Lacks, "JobSet is not installed");
        let (ready, report) = health.report();
        assert!(ready);
        assert_eq!(report, "[+]certificate: shown\n[!]jobset: JobSet is not installed\nready\n");
    }
}
