//! The members of a job: its pods with their ranks, where they are, and how their processes ended.

use crate::state::{node_rank, ranks, statuses, step};
use api::job_history::JobHistory;
use api::object;
use diagnose::PodFacts;
use serde::Serialize;
use serde_json::Value;
use std::cmp::Reverse;

/// A pod of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobMember {
    /// `node-2`, `dataset-initializer`, `launcher`.
    pub step: String,
    /// `rank 1`, `ranks 4 to 7`; empty for what is no rank.
    pub ranks: String,
    pub node: Option<i64>,
    pub pod: String,
    /// The machine that it is on; empty before it has one.
    pub host: String,
    /// Its attempt of the job, from 1; 0 where nobody knows.
    pub attempt: i64,
    /// Whether its object is still there.
    pub live: bool,
    /// `Running`, `Succeeded`, `Failed`, `Pending`, or what its container waits for.
    pub state: String,
    pub exit_code: Option<i64>,
    /// Of the container that counts.
    pub restarts: i64,
    /// RFC 3339; empty where nobody knows.
    pub started: String,
    pub finished: String,
    /// Bytes, of its greatest run; known where a history is kept.
    pub peak_memory: Option<u64>,
}

/// The members of a job, the last attempt first, then by node. `past` adds what only a history knows.
pub fn of(pods: &[PodFacts], past: Option<&JobHistory>) -> Vec<JobMember> {
    let mut members: Vec<JobMember> = pods.iter().map(|pod| member(pod, past)).collect();
    members.sort_by(|a, b| {
        let key =
            |member: &JobMember| (Reverse(member.attempt), member.node.is_some(), member.node, member.step.clone());
        key(a).cmp(&key(b)).then_with(|| a.pod.cmp(&b.pod))
    });
    members
}

fn member(facts: &PodFacts, past: Option<&JobHistory>) -> JobMember {
    let pod = &facts.pod;
    let phase = object::text(&pod["status"], "phase");
    let mut member = JobMember {
        step: step(pod),
        ranks: ranks(pod).unwrap_or_default(),
        node: node_rank(pod),
        pod: object::meta(pod, "name").to_owned(),
        host: object::text(&pod["spec"], "nodeName").to_owned(),
        attempt: facts.attempt,
        live: facts.live,
        state: phase.to_owned(),
        exit_code: None,
        restarts: 0,
        started: String::new(),
        finished: String::new(),
        peak_memory: None,
    };
    for status in statuses(pod) {
        let state = &status["state"];
        member.restarts = member.restarts.max(status["restartCount"].as_i64().unwrap_or(0));
        let ended = &state["terminated"];
        for at in [&state["running"], ended] {
            let started = object::text(at, "startedAt");
            if !started.is_empty() {
                started.clone_into(&mut member.started);
            }
        }
        if let Some(code) = ended["exitCode"].as_i64() {
            // of several containers the one that failed counts
            if member.exit_code.is_none_or(|known| known == 0) {
                member.exit_code = Some(code);
                object::text(ended, "finishedAt").clone_into(&mut member.finished);
            }
        }
        let waits = object::text(&state["waiting"], "reason");
        if phase == "Pending" && !waits.is_empty() {
            waits.clone_into(&mut member.state);
        }
    }
    if facts.live && object::is_terminating(pod) {
        member.state = "Ending".to_owned();
    }
    let uid = object::uid(pod);
    let old = past.into_iter().flat_map(|past| &past.pods).find(|old| object::uid(&old.pod) == uid);
    let runs = old.into_iter().flat_map(|old| &old.containers).flat_map(|container| &container.attempts);
    member.peak_memory = runs.filter_map(|run| run.peak_memory_bytes).max();
    member
}

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineEntry {
    /// RFC 3339.
    pub time: String,
    /// `Condition`, `Event`, `Started`, `Ended`.
    pub kind: &'static str,
    /// What it happened to: `TrainJob/a`, `Pod/a-node-0-0`.
    pub object: String,
    /// In a word: `Suspended`, `FailedScheduling`, `exit code 1`.
    pub reason: String,
    pub text: String,
    pub is_warning: bool,
    /// How often, up to this time.
    pub count: i64,
}

/// What happened to a job, in the order of time: changes of its conditions, events, starts and ends of its processes.
///
/// # Parameters
/// - `owners`: objects with conditions, such as the job and its JobSet.
/// - `events`: those that are about it.
pub fn moments(owners: &[&Value], events: &[&Value], members: &[JobMember]) -> Vec<TimelineEntry> {
    let mut moments = Vec::new();
    for owner in owners {
        let name = format!("{}/{}", object::text(owner, "kind"), object::meta(owner, "name"));
        for condition in owner["status"]["conditions"].as_array().into_iter().flatten() {
            let (kind, status) = (object::text(condition, "type"), object::text(condition, "status"));
            moments.push(TimelineEntry {
                time: object::text(condition, "lastTransitionTime").to_owned(),
                kind: "Condition",
                object: name.clone(),
                reason: if status == "True" { kind.to_owned() } else { format!("{kind}={status}") },
                text: object::text(condition, "message").to_owned(),
                is_warning: kind == "Failed" && status == "True",
                count: 1,
            });
        }
    }
    for event in events {
        let about = &event["involvedObject"];
        moments.push(TimelineEntry {
            time: crate::state::last_seen(event).to_owned(),
            kind: "Event",
            object: format!("{}/{}", object::text(about, "kind"), object::text(about, "name")),
            reason: object::text(event, "reason").to_owned(),
            text: object::text(event, "message").trim().to_owned(),
            is_warning: event["type"] == "Warning",
            count: event["count"].as_i64().or_else(|| event["series"]["count"].as_i64()).unwrap_or(1),
        });
    }
    for member in members {
        let moment = |time: &str, kind: &'static str, reason: String, is_warning: bool| TimelineEntry {
            time: time.to_owned(),
            kind,
            object: format!("Pod/{}", member.pod),
            reason,
            text: [member.ranks.as_str(), &member.step].into_iter().find(|word| !word.is_empty()).map_or(
                String::new(),
                |who| {
                    if member.host.is_empty() { who.to_owned() } else { format!("{who} on {}", member.host) }
                },
            ),
            is_warning,
            count: 1,
        };
        if !member.started.is_empty() {
            moments.push(moment(&member.started, "Started", "started".to_owned(), false));
        }
        if let Some(code) = member.exit_code.filter(|_| !member.finished.is_empty()) {
            moments.push(moment(&member.finished, "Ended", format!("exit code {code}"), code != 0));
        }
    }
    moments.retain(|moment| !moment.time.is_empty());
    moments.sort_by(|a, b| a.time.cmp(&b.time));
    moments
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, index: &str, state: Value) -> PodFacts {
        let pod = json!({
            "metadata": {"name": name, "uid": name,
                "annotations": {"batch.kubernetes.io/job-completion-index": index},
                "labels": {"jobset.sigs.k8s.io/replicatedjob-name": "node", "jobset.sigs.k8s.io/jobset-name": "a"}},
            "spec": {"nodeName": "laptop"},
            "status": {"phase": "Running", "containerStatuses": [{"name": "node", "restartCount": 2, "state": state}]},
        });
        PodFacts { pod, live: true, attempt: 1 }
    }

    #[test]
    fn members_say_where_they_are_and_how_they_ended() {
        let failed = json!({"terminated": {"exitCode": 3, "startedAt": "2026-01-01T00:00:01Z", "finishedAt": "2026-01-01T00:00:09Z"}});
        let runs = json!({"running": {"startedAt": "2026-01-01T00:00:02Z"}});
        let members = of(&[pod("b", "1", failed), pod("a", "0", runs)], None);
        let told: Vec<_> = members.iter().map(|m| (m.pod.as_str(), m.host.as_str(), m.exit_code, m.restarts)).collect();
        assert_eq!(told, [("a", "laptop", None, 2), ("b", "laptop", Some(3), 2)]);
        let job = json!({"kind": "TrainJob", "metadata": {"name": "a"}, "status": {"conditions": [
            {"type": "Failed", "status": "True", "message": "m", "lastTransitionTime": "2026-01-01T00:00:10Z"}]}});
        let told: Vec<_> =
            moments(&[&job], &[], &members).into_iter().map(|m| (m.kind, m.reason, m.is_warning)).collect();
        let expected = [
            ("Started", "started", false),
            ("Started", "started", false),
            ("Ended", "exit code 3", true),
            ("Condition", "Failed", true),
        ];
        assert_eq!(told, expected.map(|(kind, reason, is_warning)| (kind, reason.to_owned(), is_warning)));
    }
}
