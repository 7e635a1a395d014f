//! What the Job controller sees in a pod.

use super::{INDEX, INDEX_FAILURES, INDEX_IGNORED_FAILURES, TRACKING_FINALIZER};
use api::object;
use jiff::{SignedDuration, Timestamp};
use objects::take::{self, Take};
use serde_json::Value;
use std::sync::Arc;

/// A pod's phase; an unknown or absent one reads as `Pending`, `Unknown` as itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Pending,
    Unknown,
    Running,
    Succeeded,
    Failed,
}

/// The facts about a pod that decisions are made of.
#[derive(Clone, Debug)]
pub struct Pod {
    pub object: Arc<Value>,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub phase: Phase,
    /// Deletion has been asked for.
    pub terminating: bool,
    /// It carries the finalizer that keeps it until it has been counted.
    pub tracked: bool,
    /// The completion index that it was made for.
    pub index: Option<u32>,
    pub ready: bool,
    /// Failures of its index before it.
    pub index_failures: u32,
    /// Of those before it, how many the pod failure policy ignored.
    pub index_ignored: u32,
}

/// The members of a pod that are read here.
pub(super) fn taking(member: &str) -> Take {
    match member {
        "spec" => Take::Some(|member| match member {
            "nodeName" => Take::All,
            "initContainers" => Take::Some(|member| match member {
                "name" | "restartPolicy" => Take::All,
                _ => Take::Nothing,
            }),
            _ => Take::Nothing,
        }),
        _ => take::lean(member),
    }
}

/// Whether a pod carries the finalizer that keeps it until its Job has counted it.
pub(super) fn is_tracked(pod: &Value) -> bool {
    let finalizers = pod["metadata"]["finalizers"].as_array();
    finalizers.into_iter().flatten().any(|finalizer| finalizer == TRACKING_FINALIZER)
}

impl Pod {
    pub fn read(object: &Arc<Value>) -> Self {
        let status = &object["status"];
        let count = |name| object::annotation(object, name).and_then(|text| text.parse::<i32>().ok());
        let positive = |name| count(name).and_then(|n| u32::try_from(n).ok());
        Self {
            namespace: object::meta(object, "namespace").to_owned(),
            name: object::meta(object, "name").to_owned(),
            uid: object::uid(object).to_owned(),
            phase: match status["phase"].as_str() {
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                Some("Unknown") => Phase::Unknown,
                _ => Phase::Pending,
            },
            terminating: object::is_terminating(object),
            tracked: is_tracked(object),
            index: positive(INDEX),
            ready: ready_condition(status).is_some_and(|condition| condition["status"] == "True"),
            index_failures: positive(INDEX_FAILURES).unwrap_or(0),
            index_ignored: positive(INDEX_IGNORED_FAILURES).unwrap_or(0),
            object: object.clone(),
        }
    }

    pub fn status(&self) -> &Value {
        &self.object["status"]
    }

    /// Ended, whichever way.
    pub fn ended(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Neither ended nor about to.
    pub fn active(&self) -> bool {
        !self.ended() && !self.terminating
    }

    /// About to end, but not there yet.
    pub fn ending(&self) -> bool {
        !self.ended() && self.terminating
    }

    /// Whether the Job takes it for failed. One that is being deleted counts at once, for it may never come to report its
    /// end; not so where only failed pods are replaced.
    pub fn failed(&self, only_replace_failed: bool) -> bool {
        self.phase == Phase::Failed || (self.ending() && !only_replace_failed)
    }

    /// All failures of its index up to it, its own excluded.
    pub fn index_attempts(&self) -> u32 {
        self.index_failures.saturating_add(self.index_ignored)
    }

    /// The restarts of all its containers while it is not over.
    pub fn restarts(&self) -> u64 {
        if self.ended() {
            return 0;
        }
        self.all_restarts()
    }

    fn all_restarts(&self) -> u64 {
        let lists = ["initContainerStatuses", "containerStatuses"].map(|list| self.status()[list].as_array());
        lists.into_iter().flatten().flatten().filter_map(|container| container["restartCount"].as_u64()).sum()
    }

    /// When it ended: the last end of its containers (sidecars included), else when it ceased to be ready, else when its
    /// deletion was asked for, else its creation.
    pub fn finished_at(&self) -> Timestamp {
        let status = self.status();
        let ready = ready_condition(status).filter(|condition| condition["status"] == "False");
        let deletion = || {
            let grace = self.object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
            let at = time(&self.object["metadata"]["deletionTimestamp"])?;
            at.checked_sub(SignedDuration::from_secs(grace)).ok()
        };
        self.containers_finished_at()
            .or_else(|| ready.and_then(|condition| time(&condition["lastTransitionTime"])))
            .or_else(deletion)
            .or_else(|| time(&self.object["metadata"]["creationTimestamp"]))
            .unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// `None` while one of them has not ended, or none is reported.
    fn containers_finished_at(&self) -> Option<Timestamp> {
        let list = |of: &Value, list: &str| of[list].as_array().cloned().unwrap_or_default();
        let inits = list(&self.object["spec"], "initContainers");
        let is_sidecar = |status: &Value| {
            inits.iter().any(|container| container["name"] == status["name"] && container["restartPolicy"] == "Always")
        };
        let mut reports = list(self.status(), "containerStatuses");
        reports.extend(list(self.status(), "initContainerStatuses").into_iter().filter(is_sidecar));
        let mut latest = None;
        for report in reports {
            latest = latest.max(Some(time(&report["state"]["terminated"]["finishedAt"])?));
        }
        latest
    }

    /// Sorts by how little would be lost by deleting it: unbound before bound, pending before running, not ready before
    /// ready, ready for a short time before long, more restarts before fewer, young before old; then the higher index.
    pub fn loss(&self) -> impl Ord + use<> {
        let ready_since = ready_condition(self.status()).filter(|_| self.ready);
        let ready_since = ready_since.and_then(|condition| time(&condition["lastTransitionTime"]));
        let bound = self.object["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
        let created = time(&self.object["metadata"]["creationTimestamp"]);
        // "the later, the less is lost", where absent comes first of all
        let lateness = |at: Option<Timestamp>| at.map(std::cmp::Reverse);
        let restarts = std::cmp::Reverse(self.all_restarts());
        let index = std::cmp::Reverse(self.index);
        (bound, self.phase, self.ready, lateness(ready_since), restarts, lateness(created), index, self.name.clone())
    }
}

fn ready_condition(status: &Value) -> Option<&Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Ready")
}

/// A time in an object.
pub fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(object: Value) -> Pod {
        Pod::read(&Arc::new(object))
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn what_is_taken_says_the_same() {
        let containers = json!([{"name": "side", "image": "i", "restartPolicy": "Always"}, {"name": "once"}]);
        let terminated = json!({"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:00:06Z"}});
        let reports = json!([{"name": "side", "restartCount": 2, "state": terminated}]);
        let whole = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "managedFields": [{}],
                "annotations": {INDEX: "3", INDEX_FAILURES: "1", INDEX_IGNORED_FAILURES: "2"}, "finalizers": [TRACKING_FINALIZER],
                "ownerReferences": [{"uid": "o"}], "creationTimestamp": "2026-01-01T00:00:01Z"},
            "spec": {"nodeName": "node", "containers": containers, "initContainers": containers, "volumes": [{}]},
            "status": {"phase": "Failed", "containerStatuses": reports, "initContainerStatuses": reports,
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:05Z"}]}});
        let part = pod(take::copied(&whole, taking));
        let init = json!([{"name": "side", "restartPolicy": "Always"}, {"name": "once"}]);
        assert_eq!(part.object["spec"], json!({"nodeName": "node", "initContainers": init}));
        assert_eq!(part.object["status"], whole["status"]);
        let without = |pod: Pod| Pod { object: Arc::default(), ..pod };
        let whole = pod(whole);
        assert_eq!((part.finished_at(), part.restarts()), (whole.finished_at(), whole.restarts()));
        assert!(part.loss() == whole.loss());
        assert_eq!(format!("{:?}", without(part)), format!("{:?}", without(whole)));
    }

    #[test]
    fn when_it_ended() {
        let ended = |at: &str| json!({"name": "c", "state": {"terminated": {"exitCode": 1, "finishedAt": at}}});
        let not_ready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:07Z"}]);
        let deleted = json!({"creationTimestamp": "2026-01-01T00:00:01Z", "deletionTimestamp": "2026-01-01T00:00:39Z",
            "deletionGracePeriodSeconds": 30});
        let side = json!({"initContainers": [{"name": "c", "restartPolicy": "Always"}]});
        let cases = [
            (
                json!({"status": {"containerStatuses": [ended("2026-01-01T00:00:03Z"), ended("2026-01-01T00:00:05Z")]}}),
                5,
            ),
            (
                json!({"spec": side, "status": {"containerStatuses": [ended("2026-01-01T00:00:03Z")],
                    "initContainerStatuses": [ended("2026-01-01T00:00:06Z")]}}),
                6,
            ),
            (json!({"status": {"containerStatuses": [{"name": "c", "state": {}}], "conditions": not_ready}}), 7),
            (json!({"metadata": deleted}), 9),
            (json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:01Z"}}), 1),
        ];
        for (object, second) in cases {
            assert_eq!(pod(object.clone()).finished_at(), at(&format!("2026-01-01T00:00:0{second}Z")), "{object}");
        }
    }

    #[test]
    fn the_cheapest_goes_first() {
        let make = |name: &str, node: &str, phase: &str, ready_since: Option<&str>, restarts: u32, created: &str| {
            pod(json!({
                "metadata": {"name": name, "creationTimestamp": created}, "spec": {"nodeName": node},
                "status": {"phase": phase, "containerStatuses": [{"restartCount": restarts}],
                    "conditions": ready_since.map(|at| json!([{"type": "Ready", "status": "True", "lastTransitionTime": at}]))}
            }))
        };
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z");
        let sorted = [
            make("unbound", "", "Pending", None, 0, early),
            make("pending", "n", "Pending", None, 0, early),
            make("not-ready", "n", "Running", None, 0, early),
            make("ready-late", "n", "Running", Some(late), 0, early),
            make("restarted", "n", "Running", Some(early), 3, early),
            make("young", "n", "Running", Some(early), 0, late),
            make("old", "n", "Running", Some(early), 0, early),
        ];
        let mut shuffled: Vec<&Pod> = sorted.iter().rev().collect();
        shuffled.sort_by_key(|pod| pod.loss());
        let names = |pods: &[&Pod]| pods.iter().map(|pod| pod.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&shuffled), names(&sorted.iter().collect::<Vec<_>>()));
    }
}
