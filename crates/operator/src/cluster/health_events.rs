//! Reports faults of an installation as events about the Lease, which all replicas share, and which is where the operator's
//! own objects are (`kubectl -n kubeflow-system describe lease trainer.kubeflow.org`). The leader tells.

use crate::cluster::health::{Health, Level, Parts};
use crate::cluster::leader::form;
use api::config::LeaderElection;
use api::object::meta;
use driver::Events;
use http::Method;
use kube::Client;
use reconcile::{Event, EventType};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks. What does not last from one to the next is not told.
const PERIOD: Duration = Duration::from_secs(5);
const REPORTER: &str = "trainer-operator";

/// The Lease that events are about, by its name; without an election there is none, and events are about it all the same.
pub(crate) fn lease(election: Option<&LeaderElection>, namespace: &str) -> Value {
    let default = LeaderElection::default();
    let election = election.unwrap_or(&default);
    let namespace =
        if election.resource_namespace.is_empty() { namespace } else { election.resource_namespace.as_str() };
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": election.resource_name, "namespace": namespace}})
}

/// Tells until it is dropped.
pub(crate) async fn tell(client: Client, events: Events, mut lease: Value, health: Arc<Health>) {
    let (namespace, name) = (meta(&lease, "namespace"), meta(&lease, "name"));
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
    // `kubectl describe` finds events by uid
    if let Ok(held) = client.request::<Value>(form(Method::GET, &path, None)).await {
        lease["metadata"]["uid"] = held["metadata"]["uid"].clone();
    }
    let mut told = BTreeMap::new();
    let mut before = Parts::new();
    loop {
        let now = health.parts();
        for event in news(&before, &now, &mut told) {
            events.record(&lease, &event).await;
        }
        before = now;
        tokio::time::sleep(PERIOD).await;
    }
}

/// Events about states that have lasted since the look before and were not reported yet. That something works is reported only
/// after a report that it did not.
fn news(before: &Parts, now: &Parts, told: &mut BTreeMap<&'static str, (Level, String)>) -> Vec<Event> {
    let mut events = Vec::new();
    for (part, state) in now.iter().filter(|(part, state)| before.get(*part) == Some(state)) {
        let (level, message) = state;
        let (kind, ending) = match level {
            Level::Works if told.remove(part).is_some() => (EventType::Normal, "Works"),
            Level::Works => continue,
            _ if told.get(part) == Some(state) => continue,
            Level::Lacks => (EventType::Warning, "Lacking"),
            Level::Fails => (EventType::Warning, "Failing"),
        };
        if *level != Level::Works {
            told.insert(part, state.clone());
        }
        events.push(Event {
            regarding: None,
            kind,
            reason: reason(part, ending),
            message: message.clone(),
            reporter: REPORTER,
            action: "Looking",
        });
    }
    events
}

/// `webhook-certificate`, `Failing` → `WebhookCertificateFailing`.
fn reason(part: &str, ending: &str) -> String {
    let mut reason = String::new();
    for word in part.split('-') {
        let mut letters = word.chars();
        reason.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        reason.push_str(letters.as_str());
    }
    reason + ending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_told_once_and_so_is_its_end() {
        let mut told = BTreeMap::new();
        let state = |level, message: &str| Parts::from([("trainer-crds", (level, message.to_owned()))]);
        let (good, bad, worse) =
            (state(Level::Works, "served"), state(Level::Lacks, "x lacks"), state(Level::Lacks, "x, y lack"));
        let mut told_of = |before: &Parts, now: &Parts| -> Vec<String> {
            let events = news(before, now, &mut told);
            events.iter().map(|e| format!("{} {} {}", e.kind.as_str(), e.reason, e.message)).collect()
        };
        let silence = Vec::<String>::new();
        assert_eq!(told_of(&good, &good), silence, "it never failed");
        assert_eq!(told_of(&good, &bad), silence, "it may be gone in a moment");
        assert_eq!(told_of(&bad, &bad), ["Warning TrainerCrdsLacking x lacks"]);
        assert_eq!(told_of(&bad, &bad), silence);
        assert_eq!(told_of(&worse, &worse), ["Warning TrainerCrdsLacking x, y lack"]);
        assert_eq!(told_of(&good, &good), ["Normal TrainerCrdsWorks served"]);
        assert_eq!(told_of(&good, &good), silence);
    }

    #[test]
    fn the_lease_is_the_elections() {
        let about = lease(None, "own");
        assert_eq!((meta(&about, "name"), meta(&about, "namespace")), ("trainer.kubeflow.org", "own"));
        let other = LeaderElection { resource_namespace: "other".to_owned(), ..LeaderElection::default() };
        assert_eq!(meta(&lease(Some(&other), "own"), "namespace"), "other");
    }
}
