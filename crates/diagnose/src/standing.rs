//! The state of a job in one word: its phase, or that it is being restarted.

use crate::pods::{Phase, condition, container_restarts, statuses};
use api::object;
use api::trainer::annotations::{ATTEMPT, RETRY_AT};
use jiff::Timestamp;
use serde_json::Value;
use std::fmt;

/// How long a container must have run after a failure until it counts as running again.
const STEADY_SECS: i64 = 60;

/// A job's state, as tables show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Phase(Phase),
    /// Something failed and is tried again; how often so far.
    Restarting(i64),
    /// Something fails again and again, and waits ever longer in between.
    CrashLoop(i64),
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Phase(phase) => f.write_str(phase.as_str()),
            Self::Restarting(0) => f.write_str("Restarting"),
            Self::Restarting(times) => write!(f, "Restarting ({times})"),
            Self::CrashLoop(0) => f.write_str("CrashLoop"),
            Self::CrashLoop(times) => write!(f, "CrashLoop ({times})"),
        }
    }
}

/// What the pods of a job say of failures and restarts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signs {
    restarts: i64,
    failed: i64,
    is_failing: bool,
    loops: bool,
    runs: bool,
}

impl Signs {
    /// Whether something failed and is being tried again.
    pub fn is_troubled(&self) -> bool {
        self.failed > 0 || self.is_failing || self.loops
    }

    /// Takes in one more pod.
    pub fn see(&mut self, pod: &Value, now: Timestamp) {
        self.add(&PodSigns::of(pod), now);
    }

    /// Takes in what is kept of one more pod.
    pub fn add(&mut self, pod: &PodSigns, now: Timestamp) {
        self.restarts = self.restarts.saturating_add(pod.restarts);
        self.failed = self.failed.saturating_add(i64::from(pod.failed));
        self.loops |= pod.loops;
        self.runs |= pod.runs;
        self.is_failing |= match pod.failing {
            Failing::No => false,
            Failing::Now => true,
            Failing::RunsSince(since) => now.as_second().saturating_sub(since) < STEADY_SECS,
        };
    }
}

/// What one pod says of failures and restarts: all that is kept of it where there are many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodSigns {
    pub restarts: i64,
    failed: bool,
    failing: Failing,
    loops: bool,
    runs: bool,
}

/// Whether a container has failed, and has not run long enough since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Failing {
    #[default]
    No,
    /// It failed, and has run again since this second.
    RunsSince(i64),
    Now,
}

impl Failing {
    fn of(status: &Value) -> Self {
        let failed = |state: &Value| state["terminated"]["exitCode"].as_i64().is_some_and(|code| code != 0);
        if failed(&status["state"]) {
            return Self::Now;
        }
        if !failed(&status["lastState"]) {
            return Self::No;
        }
        let since = object::text(&status["state"]["running"], "startedAt").parse::<Timestamp>();
        since.map_or(Self::Now, |since| Self::RunsSince(since.as_second()))
    }
}

impl PodSigns {
    pub fn of(pod: &Value) -> Self {
        let mut signs = Self { restarts: container_restarts(pod), ..Self::default() };
        if object::text(&pod["status"], "phase") == "Failed" && !object::is_terminating(pod) {
            signs.failed = true;
            return signs;
        }
        for status in statuses(pod) {
            signs.loops |= status["state"]["waiting"]["reason"] == "CrashLoopBackOff";
            signs.failing = signs.failing.max(Failing::of(status));
            signs.runs |= status["state"].get("running").is_some();
        }
        signs
    }
}

/// What of a job's own object determines its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stance {
    phase: Phase,
    attempt: i64,
    /// When the next attempt begins.
    again: Option<Timestamp>,
}

impl Default for Stance {
    /// Pending, in its first attempt.
    fn default() -> Self {
        Self { phase: Phase::Pending, attempt: 1, again: None }
    }
}

impl Stance {
    /// Of a TrainJob or an MPIJob.
    pub fn of(job: &Value) -> Self {
        let attempt = object::annotation(job, ATTEMPT).and_then(|text| text.parse::<i64>().ok()).unwrap_or(1);
        let again = object::annotation(job, RETRY_AT).and_then(|text| text.parse::<Timestamp>().ok());
        Self { phase: Phase::of(job), attempt, again }
    }

    /// Of a JobSet on its own.
    pub fn of_jobset(jobset: &Value) -> Self {
        let at_work =
            |job: &Value| ["ready", "succeeded"].iter().any(|counter| job[*counter].as_i64().unwrap_or(0) > 0);
        let phase = match () {
            () if condition(jobset, "Failed").is_some() => Phase::Failed,
            () if condition(jobset, "Completed").is_some() => Phase::Complete,
            () if jobset["spec"]["suspend"] == true => Phase::Suspended,
            () if jobset["status"]["replicatedJobsStatus"].as_array().into_iter().flatten().any(at_work) => {
                Phase::Running
            }
            () => Phase::Pending,
        };
        Self { phase, ..Self::default() }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// How often the job has begun anew.
    pub fn retries(&self) -> i64 {
        self.attempt.saturating_sub(1).max(0)
    }

    /// The state of a job whose JobSet was restarted so often, and whose pods say this.
    pub fn standing(&self, restarts: i64, signs: &Signs, now: Timestamp) -> Standing {
        let phase = self.phase;
        if phase.is_finished() || phase == Phase::Suspended {
            return Standing::Phase(phase);
        }
        // an attempt that has failed is counted on the job before its pods go
        let is_counted = self.again.is_some_and(|again| again > now);
        let failed = if is_counted { 0 } else { signs.failed };
        let counts = [restarts, self.retries(), signs.restarts, failed];
        let times = counts.into_iter().fold(0, i64::saturating_add);
        match (is_counted || signs.is_troubled(), signs.loops) {
            (true, true) => Standing::CrashLoop(times),
            (true, false) => Standing::Restarting(times),
            (false, _) if restarts > 0 && !signs.runs => Standing::Restarting(times),
            (false, _) => Standing::Phase(phase),
        }
    }
}

/// Of a job, its JobSet (null where it is not known) and its pods.
pub fn standing<'a>(
    job: &Value,
    jobset: &Value,
    pods: impl IntoIterator<Item = &'a Value>,
    now: Timestamp,
) -> Standing {
    let mut signs = Signs::default();
    pods.into_iter().for_each(|pod| signs.see(pod, now));
    Stance::of(job).standing(jobset["status"]["restarts"].as_i64().unwrap_or(0), &signs, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(status: Value) -> String {
        let pod = json!({"status": {"phase": "Running", "containerStatuses": [status]}});
        let now = "2026-01-01T00:10:00Z".parse().expect("a time");
        standing(&json!({}), &Value::Null, [&pod], now).to_string()
    }

    #[test]
    fn what_crashes_is_never_pending() {
        let failed = json!({"terminated": {"exitCode": 3}});
        let fresh = json!({"running": {"startedAt": "2026-01-01T00:09:50Z"}});
        let steady = json!({"running": {"startedAt": "2026-01-01T00:01:00Z"}});
        let waits = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert_eq!(shown(json!({"restartCount": 0, "state": failed})), "Restarting");
        assert_eq!(shown(json!({"restartCount": 3, "state": fresh, "lastState": failed})), "Restarting (3)");
        assert_eq!(shown(json!({"restartCount": 3, "state": steady, "lastState": failed})), "Pending");
        assert_eq!(shown(json!({"restartCount": 2, "state": waits, "lastState": failed})), "CrashLoop (2)");
    }

    #[test]
    fn the_end_has_the_last_word() {
        let now = "2026-01-01T00:10:00Z".parse().expect("a time");
        let pod = json!({"status": {"phase": "Failed"}});
        let job = json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}});
        assert_eq!(standing(&job, &Value::Null, [&pod], now), Standing::Phase(Phase::Failed));
        assert_eq!(standing(&json!({}), &Value::Null, [&pod], now), Standing::Restarting(1));
        let waits = json!({"metadata": {"annotations": {ATTEMPT: "2", RETRY_AT: "2026-01-01T01:00:00Z"}}});
        assert_eq!(standing(&waits, &Value::Null, [&pod], now), Standing::Restarting(1), "counted once");
        assert_eq!(standing(&json!({}), &json!({"status": {"restarts": 2}}), [], now), Standing::Restarting(2));
    }
}
