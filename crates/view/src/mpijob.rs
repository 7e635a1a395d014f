//! Where an MPIJob stands, by its conditions.

use serde_json::Value;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Created,
    Running,
    Suspended,
    Succeeded,
    Failed,
}

impl State {
    pub fn of(job: &Value) -> Self {
        let holds = |kind: &str| condition(job, kind).is_some_and(|condition| condition["status"] == "True");
        // a condition may lag behind the spec: what is suspended is so for its owner at once
        let suspended = job["spec"]["runPolicy"]["suspend"] == true;
        match () {
            () if holds("Succeeded") => Self::Succeeded,
            () if holds("Failed") => Self::Failed,
            () if suspended => Self::Suspended,
            () if holds("Running") => Self::Running,
            () => Self::Created,
        }
    }

    pub fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

fn condition<'a>(job: &'a Value, kind: &str) -> Option<&'a Value> {
    job["status"]["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == kind)
}

/// The condition that gives the state; none while no controller has seen the job.
pub fn deciding(job: &Value) -> Option<&Value> {
    condition(job, &State::of(job).to_string())
}

/// What that condition says. Upstream's ends in a colon where it had no more to add.
pub fn message(job: &Value) -> &str {
    let message = deciding(job).and_then(|condition| condition["message"].as_str()).unwrap_or_default();
    message.trim_end_matches([':', ' '])
}

/// Workers that run, and that are asked for.
pub fn workers(job: &Value) -> (i64, i64) {
    let active = job["status"]["replicaStatuses"]["Worker"]["active"].as_i64().unwrap_or(0);
    (active, job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"].as_i64().unwrap_or(0))
}

/// What the launcher's main container runs.
pub fn command(job: &Value) -> Vec<&str> {
    let container = &job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0];
    let words = [&container["command"], &container["args"]];
    words.into_iter().filter_map(Value::as_array).flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_message_does_not_end_in_a_colon() {
        let failed = json!({"type": "Failed", "status": "True", "message": "no more tries: "});
        assert_eq!(message(&json!({"status": {"conditions": [failed]}})), "no more tries");
    }

    #[test]
    fn the_state_is_that_of_the_conditions() {
        let job = |suspend: bool, holds: &[(&str, &str)]| {
            let conditions: Vec<Value> =
                holds.iter().map(|(kind, status)| json!({"type": kind, "status": status, "reason": kind})).collect();
            json!({"spec": {"runPolicy": {"suspend": suspend}}, "status": {"conditions": conditions}})
        };
        for (job, state, reason) in [
            (json!({}), State::Created, None),
            (job(false, &[("Created", "True")]), State::Created, Some("Created")),
            (job(false, &[("Created", "True"), ("Running", "True")]), State::Running, Some("Running")),
            (job(true, &[("Created", "True"), ("Running", "True")]), State::Suspended, None),
            (job(true, &[("Suspended", "True"), ("Running", "False")]), State::Suspended, Some("Suspended")),
            (job(false, &[("Suspended", "False"), ("Running", "True")]), State::Running, Some("Running")),
            (job(true, &[("Running", "False"), ("Succeeded", "True")]), State::Succeeded, Some("Succeeded")),
            (job(false, &[("Failed", "True"), ("Running", "False")]), State::Failed, Some("Failed")),
            (job(false, &[("Failed", "False"), ("Succeeded", "True")]), State::Succeeded, Some("Succeeded")),
        ] {
            assert_eq!(message(&job), "", "{job}");
            assert_eq!(State::of(&job), state, "{job}");
            assert_eq!(deciding(&job).and_then(|condition| condition["reason"].as_str()), reason, "{job}");
        }
    }
}
