//! TrainJobs and pods as people see them: phase, steps, ranks, reasons, ages.

use api::object;
use api::trainer::annotations::{ATTEMPT, RETRIES, RETRY_AT};
pub use diagnose::pods::{
    Phase, condition, container_restarts, last_seen, node_rank, processes_per_node, ranks, short_duration, statuses,
    step,
};
use diagnose::{Facts, PodFacts};
use jiff::Timestamp;
use serde_json::Value;

/// The message of the condition that ended the job; empty while it runs.
pub fn final_message(job: &Value) -> &str {
    let ended = condition(job, "Failed").or_else(|| condition(job, "Complete"));
    ended.and_then(|c| c["message"].as_str()).unwrap_or_default()
}

/// Age of an object, as kubectl shortens it.
pub fn age(object: &Value, now: Timestamp) -> String {
    match object::meta(object, "creationTimestamp").parse::<Timestamp>() {
        Ok(created) => short_duration(now.as_second() - created.as_second()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// Why a pod does not run; `None` where it does or nobody says.
pub fn why_pending(pod: &Value) -> Option<String> {
    if pod["status"]["phase"].as_str().unwrap_or("Pending") != "Pending" {
        return None;
    }
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let unscheduled = conditions
        .filter(|c| c["type"] == "PodScheduled" && c["status"] == "False")
        .find_map(|c| c["message"].as_str().map(str::to_owned));
    unscheduled.or_else(|| {
        statuses(pod).find_map(|status| {
            let waiting = &status["state"]["waiting"];
            let reason =
                waiting["reason"].as_str().filter(|r| !matches!(*r, "ContainerCreating" | "PodInitializing"))?;
            Some(format!("container {}: {reason}: {}", object::text(status, "name"), object::text(waiting, "message")))
        })
    })
}

/// Which attempt of how many a job is at (annotations of its own; 1 of 1 without).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    pub now: i64,
    pub most: i64,
    /// Before which this attempt does not start.
    start: Option<Timestamp>,
}

impl Attempts {
    pub fn of(job: &Value) -> Self {
        let number = |key| object::annotation(job, key).and_then(|text| text.parse::<i64>().ok());
        let now = number(ATTEMPT).unwrap_or(1);
        let start = object::annotation(job, RETRY_AT).and_then(|text| text.parse().ok());
        Self { now, most: number(RETRIES).map_or(1, |retries| retries.saturating_add(1)).max(now), start }
    }

    /// What is said while the next attempt waits.
    pub fn waits(&self, now: Timestamp) -> Option<String> {
        let left = self.start?.as_second() - now.as_second();
        (left > 0 && self.now > 1).then(|| {
            let Self { now, most, .. } = self;
            format!("attempt {} of {most} has failed; attempt {now} starts in {}", now - 1, short_duration(left))
        })
    }
}

/// How often a job's containers have restarted and, by its failure policy, all of its pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestartCounts {
    pub jobset: i64,
    pub containers: i64,
}

impl RestartCounts {
    pub fn of<'a>(jobset: &Value, pods: impl IntoIterator<Item = &'a Value>) -> Self {
        let jobset = jobset["status"]["restarts"].as_i64().unwrap_or(0);
        Self { jobset, containers: pods.into_iter().map(container_restarts).sum() }
    }
}

/// The containers of an unfinished pod that failed and are tried again, in sentences: `container node ended with exit code
/// 1; it is tried again (restart 2)`.
pub fn restarts(pod: &Value) -> Vec<String> {
    let is_over = object::has_ended(pod);
    if is_over || pod["spec"]["restartPolicy"] == "Never" {
        return Vec::new();
    }
    statuses(pod)
        .filter_map(|status| {
            // between two tries the end is the state, later the last state; the count grows with the next try
            let waits = status["state"]["terminated"]["exitCode"].as_i64().filter(|code| *code != 0);
            let code = waits.or_else(|| status["lastState"]["terminated"]["exitCode"].as_i64())?;
            let restart = status["restartCount"].as_i64().unwrap_or(0) + i64::from(waits.is_some());
            let again = match restart {
                0 => "it is tried again".to_owned(),
                restart => format!("it is tried again (restart {restart})"),
            };
            Some(format!("container {} ended with exit code {code}; {again}", object::text(status, "name")))
        })
        .collect()
}

/// A container of a pod that failed, and when.
pub struct Ending {
    pub container: String,
    pub exit_code: i64,
    pub finished: String,
}

/// The containers of a pod that failed.
pub fn failures(pod: &Value) -> Vec<Ending> {
    let of_status = |status: &Value| {
        let ends = [&status["state"]["terminated"], &status["lastState"]["terminated"]];
        let end = ends.into_iter().find(|end| end["exitCode"].as_i64().is_some_and(|code| code != 0))?;
        Some(Ending {
            container: object::text(status, "name").to_owned(),
            exit_code: end["exitCode"].as_i64()?,
            finished: object::text(end, "finishedAt").to_owned(),
        })
    };
    statuses(pod).filter_map(of_status).collect()
}

/// The exit code of the process that failed first by itself; 1 where none has one. Codes beyond a byte become 1.
pub fn exit_code(pods: &[Value]) -> u8 {
    let pods = pods.iter().map(|pod| PodFacts { pod: pod.clone(), live: true, attempt: 0 }).collect();
    byte(diagnose::exit_code(&Facts { pods, ..Facts::default() }))
}

/// An exit code as a process can have it.
pub fn byte(code: Option<i64>) -> u8 {
    code.and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn phases_come_from_the_status() {
        let job = |spec: Value, status: Value| json!({"spec": spec, "status": status});
        let cases = [
            (job(json!({}), json!({})), Phase::Pending),
            (job(json!({"suspend": true}), json!({})), Phase::Suspended),
            (job(json!({}), json!({"jobsStatus": [{"ready": 1, "active": 1}]})), Phase::Running),
            (job(json!({}), json!({"conditions": [{"type": "Suspended", "status": "False"}]})), Phase::Pending),
            (
                job(json!({"suspend": true}), json!({"conditions": [{"type": "Complete", "status": "True"}]})),
                Phase::Complete,
            ),
            (job(json!({}), json!({"conditions": [{"type": "Failed", "status": "True"}]})), Phase::Failed),
        ];
        for (job, phase) in cases {
            assert_eq!(Phase::of(&job), phase, "{job}");
        }
    }

    #[test]
    fn the_first_failure_gives_the_exit_code() {
        let pod = |code: i64, at: &str| {
            json!({"status": {"containerStatuses": [
            {"name": "node", "state": {"terminated": {"exitCode": code, "finishedAt": at}}}]}})
        };
        let pods = [pod(143, "2026-01-01T00:00:09Z"), pod(7, "2026-01-01T00:00:01Z"), pod(0, "2026-01-01T00:00:00Z")];
        assert_eq!(exit_code(&pods), 7);
        let restarted = [pod(143, "2026-01-01T00:00:01Z"), pod(3, "2026-01-01T00:00:09Z")];
        assert_eq!(exit_code(&restarted), 3, "the first was ended with the job");
        assert_eq!(exit_code(&[]), 1);
    }

    #[test]
    fn restarts_are_told_while_a_pod_goes_on() {
        let pod = |phase: &str, status: Value| json!({"status": {"phase": phase, "containerStatuses": [status]}});
        let once = json!({"name": "node", "restartCount": 1, "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 3}}});
        let told = vec!["container node ended with exit code 3; it is tried again (restart 1)".to_owned()];
        assert_eq!(restarts(&pod("Running", once.clone())), told);
        assert!(restarts(&pod("Failed", once)).is_empty());
        let fresh = json!({"name": "node", "restartCount": 0, "state": {"running": {}}});
        assert!(restarts(&pod("Running", fresh)).is_empty());
    }

    #[test]
    fn restarts_are_counted_apart() {
        let pod = |count: i64| json!({"status": {"containerStatuses": [{"name": "node", "restartCount": count}]}});
        let jobset = json!({"status": {"restarts": 2}});
        assert_eq!(RestartCounts::of(&jobset, &[pod(1), pod(3)]), RestartCounts { jobset: 2, containers: 4 });
        assert_eq!(RestartCounts::of(&Value::Null, &[]), RestartCounts::default());
        let job = json!({"metadata": {"annotations": {RETRIES: "2", ATTEMPT: "2"}}});
        let attempts = Attempts::of(&job);
        assert_eq!((attempts.now, attempts.most), (2, 3));
        assert_eq!((Attempts::of(&json!({})).now, Attempts::of(&json!({})).most), (1, 1));
    }

    #[test]
    fn an_event_has_a_time_whoever_wrote_it() {
        let cases = [
            (json!({"lastTimestamp": "3", "eventTime": "1", "series": {"lastObservedTime": "2"}}), "3"),
            (json!({"lastTimestamp": null, "eventTime": "1", "series": {"lastObservedTime": "2"}}), "2"),
            (json!({"eventTime": "1", "metadata": {"creationTimestamp": "0"}}), "1"),
            (json!({"eventTime": null, "metadata": {"creationTimestamp": "0"}}), "0"),
        ];
        for (event, time) in cases {
            assert_eq!(last_seen(&event), time, "{event}");
        }
    }

    #[test]
    fn ages_are_short() {
        let cases = [(5, "5s"), (125, "2m5s"), (3600, "60m"), (11_000, "3h3m"), (200_000, "2d"), (-3, "0s")];
        for (secs, text) in cases {
            assert_eq!(short_duration(secs), text);
        }
    }
}
