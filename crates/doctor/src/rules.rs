//! Turns facts into findings. The code is pure, and the order of the findings never changes.

mod admission;
mod controllers;
mod health;
mod installed;
mod jobs;
mod nodes;
mod rights;
#[cfg(test)]
mod tests;

use crate::facts::Facts;
use crate::finding::{Finding, Remedy};
use api::object::{self, meta};
use serde_json::Value;

pub(super) use controllers::deployed;

/// Where to get JobSet.
const JOBSET: &str = "install JobSet 0.12 or newer: https://jobset.sigs.k8s.io/docs/installation";
/// Label of a Kueue queue: a job in the queue stays suspended until Kueue admits it.
const KUEUE_QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// The command that restores all objects of the operator, even those that another client has changed: through the Helm release that owns
/// them, or from the manifests.
fn install(facts: &Facts) -> Remedy {
    let operator = facts.deployments.items().iter().find(|one| controllers::whose(one) == Some("trainyard"));
    let namespace = operator.map_or("", |operator| meta(operator, "namespace"));
    match operator {
        Some(operator) if let Some(release) = object::annotation(operator, "meta.helm.sh/release-name") => {
            Remedy::run(format!("helm upgrade {release} charts/trainyard --namespace {namespace} --reuse-values"))
        }
        Some(operator) if controllers::keeps_to_one(operator) => {
            let command = "kubectl apply --server-side --force-conflicts -k manifests/overlays/namespaced";
            Remedy::why(format!("with `namespace: {namespace}` in it"), command)
        }
        Some(_) | None => Remedy::run("kubectl apply --server-side --force-conflicts -k manifests/overlays/manager"),
    }
}

/// All findings.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let checks =
        [installed::versions, health::judge, installed::kinds, rights::judge, admission::judge, controllers::judge];
    let more = [nodes::limits, jobs::runtimes, jobs::jobs];
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
