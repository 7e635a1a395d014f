//! What is kept of a pod that failed: an event about its TrainJob, with the exit code and the last lines. The pod's log and
//! status go with the pod, which its Job or JobSet may delete at any moment.
//!
//! Only of TrainJobs that ask for something beyond upstream's API: the events of all others stay upstream's.

use crate::annotations::Options;
use crate::controller::trainjob_gvk;
use crate::names::{EVENT_REPORTER, LABEL_JOBSET_NAME};
use api::jobset::keys::{COMPLETION_INDEX, REPLICATED_JOB_NAME, RESTART_ATTEMPT};
use api::object::{self, Gvk, Key, Target, label, meta, text};
use api::trainer::annotations::{ASKED, ATTEMPT, EVENT_POD};
use jiff::{SignedDuration, Timestamp};
use reconcile::{Decision, Op, Primary, Reconciler, Wakes, Watch, World};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reason of the event.
pub const POD_FAILED: &str = "PodFailed";
/// What of all pods is looked at, as a query of a list: those of JobSets that have failed.
pub const SELECTED: &str = "labelSelector=jobset.sigs.k8s.io/jobset-name&fieldSelector=status.phase%3DFailed";
/// Longest message that API servers take.
const MESSAGE_MAX: usize = 1024;
/// API servers keep events for an hour: a failure that is older was told before.
const OLD: SignedDuration = SignedDuration::from_hours(1);

/// Writes one event for each failed pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodFailureController;

/// A failed pod and the TrainJob that it is of.
#[derive(Clone, Debug)]
pub struct Observed {
    pod: Arc<Value>,
    job: Arc<Value>,
}

fn pod_gvk() -> Gvk {
    Gvk::new("", "v1", "Pod")
}

impl Reconciler for PodFailureController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "podfailure"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(pod_gvk())
    }

    fn watches(&self) -> Vec<Watch> {
        vec![Watch { gvk: trainjob_gvk(), wakes: Wakes::Nothing }]
    }

    fn concerns(&self, pod: &Value) -> bool {
        text(&pod["status"], "phase") == "Failed"
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let pod = world.get(&target.gvk, &target.key).filter(|pod| self.concerns(pod))?;
        let name = label(&pod, LABEL_JOBSET_NAME)?;
        let job = world.get(&trainjob_gvk(), &Key::new(meta(&pod, "namespace"), name))?;
        let asks = ASKED.iter().any(|key| object::annotation(&job, key).is_some());
        // a pod that is older is of a TrainJob that had the name before
        let is_its = meta(&pod, "creationTimestamp") >= meta(&job, "creationTimestamp");
        (asks && is_its).then_some(Observed { pod, job })
    }

    fn decide(&self, Observed { pod, job }: &Observed, now: Timestamp) -> Decision {
        let mut decision = Decision::nothing();
        let failure = Failure::of(pod);
        let at = failure.at.unwrap_or(now);
        if now.duration_since(at) > OLD {
            decision.report.note("failed so long ago that it was told before");
        } else if was_stopped(pod, failure.at) {
            decision.report.note("failed because it was deleted");
        } else {
            decision.writes.push(Op::Create { object: event(pod, job, &failure, at) }.into());
        }
        decision
    }
}

/// Why a pod failed.
struct Failure<'a> {
    why: String,
    /// The last lines, or what the kubelet said; empty where there are none.
    details: &'a str,
    at: Option<Timestamp>,
}

impl<'a> Failure<'a> {
    /// The container that failed first counts: the others may have ended because it did.
    fn of(pod: &'a Value) -> Self {
        let lists = ["initContainerStatuses", "containerStatuses"];
        let statuses = lists.into_iter().flat_map(|list| pod["status"][list].as_array().into_iter().flatten());
        let failed = statuses.filter_map(|status| {
            let ended = &status["state"]["terminated"];
            let code = ended["exitCode"].as_i64().filter(|code| *code != 0)?;
            Some((text(ended, "finishedAt").parse::<Timestamp>().ok(), text(status, "name"), code, ended))
        });
        let first = failed.min_by_key(|(at, ..)| at.unwrap_or(Timestamp::MAX));
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let disrupted = conditions.find(|c| c["type"] == "DisruptionTarget" && c["status"] == "True");
        let reason = text(&pod["status"], "reason");
        match (disrupted, first) {
            (Some(condition), first) => Self {
                why: format!("taken away by the cluster ({})", text(condition, "reason")),
                details: text(condition, "message").trim(),
                at: first.and_then(|(at, ..)| at),
            },
            (None, Some((at, container, code, ended))) => {
                let reason = Some(text(ended, "reason")).filter(|reason| !matches!(*reason, "" | "Error"));
                let reason = reason.map_or(String::new(), |reason| format!(" ({reason})"));
                let why = format!("container {container:?} ended with exit code {code}{reason}");
                Self { why, details: text(ended, "message").trim(), at }
            }
            (None, None) => {
                let why = if reason.is_empty() { "no container says why" } else { reason }.to_owned();
                Self { why, details: text(&pod["status"], "message").trim(), at: None }
            }
        }
    }
}

/// Whether a pod failed only after somebody had deleted it.
fn was_stopped(pod: &Value, at: Option<Timestamp>) -> bool {
    let Ok(deadline) = meta(pod, "deletionTimestamp").parse::<Timestamp>() else { return false };
    let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let asked = deadline.saturating_sub(SignedDuration::from_secs(grace)).unwrap_or(deadline);
    at.is_none_or(|at| at >= asked)
}

fn event(pod: &Value, job: &Value, failure: &Failure<'_>, at: Timestamp) -> Value {
    let time = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let about = json!({
        "apiVersion": trainjob_gvk().api_version(), "kind": "TrainJob", "uid": object::uid(job),
        "namespace": meta(job, "namespace"), "name": meta(job, "name"),
    });
    json!({
        "apiVersion": "v1", "kind": "Event",
        // the pod's uid: told once, however often it is looked at
        "metadata": {"namespace": meta(job, "namespace"), "name": format!("{}.{}", meta(job, "name"), object::uid(pod)),
            "annotations": {EVENT_POD: rest(pod).to_string(), ATTEMPT: Options::of(job).attempt.to_string()}},
        "involvedObject": about, "type": "Warning", "reason": POD_FAILED, "message": message(pod, failure),
        "source": {"component": EVENT_REPORTER}, "reportingComponent": EVENT_REPORTER, "action": "Observing",
        "firstTimestamp": time, "lastTimestamp": time, "count": 1,
    })
}

/// The parts of a pod that say how it failed, in the shape of a pod, so that readers of pods can read them.
fn rest(pod: &Value) -> Value {
    let (metadata, status) = (&pod["metadata"], &pod["status"]);
    let labels = [LABEL_JOBSET_NAME, REPLICATED_JOB_NAME, RESTART_ATTEMPT, COMPLETION_INDEX];
    let labels: BTreeMap<&str, &str> = labels.into_iter().filter_map(|key| Some((key, label(pod, key)?))).collect();
    let failed = |list: &str| -> Vec<Value> {
        let statuses = status[list].as_array().into_iter().flatten();
        let failed =
            statuses.filter(|status| status["state"]["terminated"]["exitCode"].as_i64().is_some_and(|code| code != 0));
        failed
            .map(|status| json!({"name": status["name"], "restartCount": status["restartCount"], "state": status["state"]}))
            .collect()
    };
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let disrupted: Vec<&Value> = conditions.filter(|condition| condition["type"] == "DisruptionTarget").collect();
    json!({
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "creationTimestamp": metadata["creationTimestamp"], "labels": labels},
        "spec": {"nodeName": pod["spec"]["nodeName"]},
        "status": {"phase": status["phase"], "reason": status["reason"], "message": status["message"], "conditions": disrupted,
            "initContainerStatuses": failed("initContainerStatuses"), "containerStatuses": failed("containerStatuses")},
    })
}

/// `pod train-node-0-1-x2c4f (node, rank 1): container "node" ended with exit code 3`, and the last lines below it.
fn message(pod: &Value, failure: &Failure<'_>) -> String {
    let step = label(pod, REPLICATED_JOB_NAME).unwrap_or("pod");
    let place = match label(pod, COMPLETION_INDEX).or_else(|| object::annotation(pod, COMPLETION_INDEX)) {
        Some(index) => format!("{step} {index}"),
        None => step.to_owned(),
    };
    let mut message = format!("pod {} ({place}): {}", meta(pod, "name"), failure.why);
    message.truncate(message.floor_char_boundary(MESSAGE_MAX));
    let details = tail(failure.details, MESSAGE_MAX.saturating_sub(message.len() + 1));
    if !details.is_empty() {
        message.push('\n');
        message.push_str(details);
    }
    message
}

/// The last whole lines that fit; where not even one does, the end of the last.
fn tail(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let cut = &text[text.ceil_char_boundary(text.len() - max)..];
    cut.split_once('\n').map_or(cut, |(_, whole)| whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::trainjob_gvk;
    use api::trainer::annotations::FAILURE_POLICY;
    use reconcile::testing::Model;

    const NOW: &str = "2026-01-02T03:10:00Z";

    fn pod(status: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "status": status, "metadata": {
            "name": "train-node-0-1-abcde", "namespace": "ns", "uid": "pod-uid", "creationTimestamp": "2026-01-02T03:05:00Z",
            "labels": {LABEL_JOBSET_NAME: "train", REPLICATED_JOB_NAME: "node", COMPLETION_INDEX: "1"}}})
    }

    fn failed(message: &str) -> Value {
        let ended = |code: i64, at: &str, message: &str| json!({"terminated": {"exitCode": code, "reason": "Error", "finishedAt": at, "message": message}});
        json!({"phase": "Failed", "containerStatuses": [
            {"name": "sidecar", "state": ended(143, "2026-01-02T03:09:59Z", "")},
            {"name": "node", "state": ended(3, "2026-01-02T03:09:58Z", message)}]})
    }

    fn told(pod: Value, annotations: Value) -> Option<Value> {
        let job = json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "train",
            "namespace": "ns", "uid": "job-uid", "creationTimestamp": "2026-01-02T03:04:00Z", "annotations": annotations}});
        let target = Target::of(&pod);
        let world = Model::of([pod, job]);
        assert!(world.get(&trainjob_gvk(), &Key::new("ns", "train")).is_some());
        let observed = PodFailureController.observe(&world, &target)?;
        let decision = PodFailureController.decide(&observed, NOW.parse().expect("a time"));
        let write = decision.writes.into_iter().next()?;
        match write.op {
            Op::Create { object } => Some(object),
            other => panic!("{other:?}"),
        }
    }

    fn asks() -> Value {
        json!({FAILURE_POLICY: "fail-fast"})
    }

    #[test]
    fn a_failed_pod_is_told_once_about_its_trainjob() {
        let event = told(pod(failed("Traceback\nValueError: no\n")), asks()).expect("an event");
        assert_eq!(event["metadata"]["name"], "train.pod-uid");
        assert_eq!(
            (&event["involvedObject"]["kind"], &event["involvedObject"]["uid"]),
            (&json!("TrainJob"), &json!("job-uid"))
        );
        assert_eq!((&event["reason"], &event["firstTimestamp"]), (&json!("PodFailed"), &json!("2026-01-02T03:09:58Z")));
        let message =
            "pod train-node-0-1-abcde (node 1): container \"node\" ended with exit code 3\nTraceback\nValueError: no";
        assert_eq!(event["message"], message, "of the container that failed first");
        let annotations = &event["metadata"]["annotations"];
        assert_eq!(annotations["trainyard.dev/attempt"], "1");
        let rest: Value = serde_json::from_str(annotations[EVENT_POD].as_str().expect("text")).expect("a pod");
        let state = &failed("Traceback\nValueError: no\n")["containerStatuses"][1]["state"];
        assert_eq!(&rest["status"]["containerStatuses"][1]["state"], state);
        assert_eq!(rest["metadata"]["labels"][COMPLETION_INDEX], "1");
    }

    #[test]
    fn upstreams_trainjobs_and_other_pods_are_not_told_of() {
        assert_eq!(told(pod(failed("")), json!({})), None, "it asks for nothing");
        assert_eq!(
            told(pod(failed("")), json!({"trainyard.dev/directory": "/w"})),
            None,
            "this asks for nothing either"
        );
        assert_eq!(told(pod(json!({"phase": "Running"})), asks()), None);
        let mut before = pod(failed(""));
        before["metadata"]["creationTimestamp"] = json!("2026-01-02T03:03:00Z");
        assert_eq!(told(before, asks()), None, "of an earlier TrainJob of that name");
        let mut stopped = pod(failed(""));
        stopped["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:10:20Z");
        stopped["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        assert_eq!(told(stopped.clone(), asks()), None, "it was deleted, and therefore ended");
        stopped["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:10:29Z");
        assert!(told(stopped, asks()).is_some(), "it had failed before it was deleted");
        let mut old = pod(failed(""));
        for status in old["status"]["containerStatuses"].as_array_mut().expect("a list") {
            status["state"]["terminated"]["finishedAt"] = json!("2026-01-02T02:00:00Z");
        }
        assert_eq!(told(old, asks()), None);
    }

    #[test]
    fn what_the_cluster_did_is_told_as_such() {
        let message =
            |status: Value| told(pod(status), asks()).expect("an event")["message"].as_str().map(str::to_owned);
        let evicted =
            json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."});
        let said = "pod train-node-0-1-abcde (node 1): Evicted\nThe node was low on resource: memory.";
        assert_eq!(message(evicted).as_deref(), Some(said));
        let mut drained = failed("");
        drained["conditions"] = json!([{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting"}]);
        let said = "pod train-node-0-1-abcde (node 1): taken away by the cluster (EvictionByEvictionAPI)\nEviction API: evicting";
        assert_eq!(message(drained).as_deref(), Some(said));
    }

    #[test]
    fn messages_are_bounded_at_a_line() {
        let long = "é".repeat(300) + "\n" + &"x".repeat(600) + "\nlast";
        let event = told(pod(failed(&long)), asks()).expect("an event");
        let message = event["message"].as_str().expect("text");
        assert!(message.len() <= MESSAGE_MAX && message.ends_with("x\nlast"), "{message}");
        assert!(message.lines().nth(1).expect("lines").starts_with('x'), "whole lines: {message}");
        let endless = told(pod(failed(&"é".repeat(4096))), asks()).expect("an event");
        assert!(
            endless["message"].as_str().is_some_and(|message| message.len() <= MESSAGE_MAX && message.contains('é'))
        );
    }
}
