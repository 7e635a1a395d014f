//! Failed pods of a cluster that no longer exist, read from the events that the operator wrote about them.

use api::object;
use api::trainer::annotations::{ATTEMPT, EVENT_POD};
use diagnose::{Facts, PodFacts};
use serde_json::Value;

/// Adds the pods that nothing else tells of.
pub fn add(facts: &mut Facts) {
    let told: Vec<PodFacts> = facts.events.iter().filter_map(|event| pod(&facts.job, event)).collect();
    for old in told {
        if facts.pods.iter().all(|known| object::uid(&known.pod) != object::uid(&old.pod)) {
            facts.pods.push(old);
        }
    }
}

/// The pod that an event about this job tells of; `None` where it tells of something else, or of a job that had the name before.
fn pod(job: &Value, event: &Value) -> Option<PodFacts> {
    let is_its = event["reason"] == "PodFailed" && object::text(&event["involvedObject"], "uid") == object::uid(job);
    let pod = object::annotation(event, EVENT_POD).filter(|_| is_its)?;
    let pod: Value = serde_json::from_str(pod).ok()?;
    let attempt = object::annotation(event, ATTEMPT).and_then(|text| text.parse().ok()).unwrap_or(0);
    Some(PodFacts { pod, live: false, attempt })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_gone_is_known_from_events_and_counted_once() {
        let event = |job: &str, pod: &str| {
            let told = json!({"metadata": {"name": "train-node-0-0-x", "uid": pod}, "status": {"phase": "Failed",
                "containerStatuses": [{"name": "node", "state": {"terminated": {"exitCode": 3}}}]}});
            json!({"reason": "PodFailed", "involvedObject": {"uid": job},
                "metadata": {"annotations": {EVENT_POD: told.to_string(), ATTEMPT: "2"}}})
        };
        let live = PodFacts { pod: json!({"metadata": {"uid": "there"}}), live: true, attempt: 2 };
        let mut facts = Facts {
            job: json!({"metadata": {"uid": "job"}}),
            pods: vec![live],
            events: vec![
                event("job", "gone"),
                event("job", "there"),
                event("earlier", "other"),
                json!({"reason": "PodFailed"}),
            ],
            ..Facts::default()
        };
        add(&mut facts);
        let uids: Vec<&str> = facts.pods.iter().map(|pod| object::uid(&pod.pod)).collect();
        assert_eq!(uids, ["there", "gone"]);
        assert!(!facts.pods[1].live && facts.pods[1].attempt == 2);
    }
}
