//! From facts to findings: pure, and in the same order each time.

mod admission;
mod controllers;
mod installed;
mod jobs;
mod rights;
#[cfg(test)]
mod tests;

use super::facts::{Facts, Finding};
use serde_json::Value;

pub(super) use controllers::deployed;

/// Where the kinds and all else come from.
const INSTALL: &str = "kubectl apply --server-side -k manifests/overlays/manager";
/// Label of a Kueue queue: what it takes in stays suspended until it is admitted.
const KUEUE_QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// All findings.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let checks = [installed::versions, installed::kinds, rights::judge, admission::judge, controllers::judge];
    let more = [jobs::runtimes, jobs::jobs];
    checks.into_iter().chain(more).flat_map(|check| check(facts).all).collect()
}

/// The Services (namespace, name) behind a configuration's webhooks.
pub(super) fn services(configuration: &Value) -> Vec<(String, String)> {
    let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ours = webhooks.filter(|webhook| admission::concerns_us(webhook));
    ours.map(|webhook| &webhook["clientConfig"]["service"])
        .filter(|service| service.is_object())
        .map(|service| (text(&service["namespace"]), text(&service["name"])))
        .collect()
}

/// `a, b and 3 more`: the first `most` of them.
fn some(items: &[String], most: usize) -> String {
    let shown = items.iter().take(most).map(String::as_str).collect::<Vec<_>>().join(", ");
    match items.len().saturating_sub(most) {
        0 => shown,
        left => format!("{shown} and {left} more"),
    }
}
