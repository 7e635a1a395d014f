//! A Job's status as a value: read, changed, compared, written back.

use super::indexes::Indexes;
use super::pods::time;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The members of `status` that the controller knows; others in the object are kept as they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    pub active: u32,
    pub ready: Option<u32>,
    pub terminating: Option<u32>,
    pub succeeded: u32,
    pub failed: u32,
    pub completed_indexes: String,
    pub failed_indexes: Option<String>,
    pub start_time: Option<Timestamp>,
    pub completion_time: Option<Timestamp>,
    pub conditions: Vec<Condition>,
    pub uncounted: Option<Uncounted>,
}

/// Pods that have ended and are in no counter yet, by uid: what makes counting survive a crash between two writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Uncounted {
    pub succeeded: Vec<String>,
    pub failed: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub kind: String,
    pub status: bool,
    pub reason: String,
    pub message: String,
    /// The object's own JSON, so that what is not changed is written back unchanged.
    raw: Value,
}

/// Condition types of a Job.
pub const SUSPENDED: &str = "Suspended";
pub const COMPLETE: &str = "Complete";
pub const FAILED: &str = "Failed";
pub const FAILURE_TARGET: &str = "FailureTarget";
pub const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";

/// As Kubernetes writes times: whole seconds, UTC.
pub fn render_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl Condition {
    pub fn new(kind: &str, status: bool, reason: &str, message: &str, now: Timestamp) -> Self {
        let word = if status { "True" } else { "False" };
        let now = render_time(now);
        Self {
            kind: kind.to_owned(),
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
            raw: json!({"type": kind, "status": word, "reason": reason, "message": message, "lastProbeTime": now,
                "lastTransitionTime": now}),
        }
    }

    fn read(raw: &Value) -> Self {
        let text = |name: &str| raw[name].as_str().unwrap_or_default().to_owned();
        let status = raw["status"] == "True";
        Self { kind: text("type"), status, reason: text("reason"), message: text("message"), raw: raw.clone() }
    }

    /// When it came to be what it is.
    pub fn since(&self) -> Option<Timestamp> {
        time(&self.raw["lastTransitionTime"])
    }
}

impl Status {
    pub fn read(job: &Value) -> Self {
        let status = &job["status"];
        let number = |name: &str| status[name].as_u64().map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let uids = |name: &str| {
            let list = status["uncountedTerminatedPods"][name].as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            active: number("active").unwrap_or(0),
            ready: number("ready"),
            terminating: number("terminating"),
            succeeded: number("succeeded").unwrap_or(0),
            failed: number("failed").unwrap_or(0),
            completed_indexes: status["completedIndexes"].as_str().unwrap_or_default().to_owned(),
            failed_indexes: status["failedIndexes"].as_str().map(str::to_owned),
            start_time: time(&status["startTime"]),
            completion_time: time(&status["completionTime"]),
            conditions: status["conditions"].as_array().into_iter().flatten().map(Condition::read).collect(),
            uncounted: status["uncountedTerminatedPods"]
                .is_object()
                .then(|| Uncounted { succeeded: uids("succeeded"), failed: uids("failed") }),
        }
    }

    /// The object's status with these members in place of its own. Counters of zero are left out, but for `ready` and
    /// `terminating`, which are pointers upstream and always written.
    pub fn write_over(&self, old: &Value) -> Value {
        let mut out: Map<String, Value> = old.as_object().cloned().unwrap_or_default();
        let Self {
            active,
            ready,
            terminating,
            succeeded,
            failed,
            completed_indexes,
            failed_indexes,
            start_time,
            completion_time,
            conditions,
            uncounted,
        } = self;
        let mut set = |name: &str, value: Option<Value>| match value {
            Some(value) => _ = out.insert(name.to_owned(), value),
            None => _ = out.remove(name),
        };
        let counter = |n: u32| (n > 0).then(|| n.into());
        let list = |uids: &[String]| (!uids.is_empty()).then(|| json!(uids));
        set("active", counter(*active));
        set("ready", ready.map(Value::from));
        set("terminating", terminating.map(Value::from));
        set("succeeded", counter(*succeeded));
        set("failed", counter(*failed));
        set("completedIndexes", (!completed_indexes.is_empty()).then(|| completed_indexes.as_str().into()));
        set("failedIndexes", failed_indexes.as_deref().map(Value::from));
        set("startTime", start_time.map(|at| render_time(at).into()));
        set("completionTime", completion_time.map(|at| render_time(at).into()));
        let raws: Vec<Value> = conditions.iter().map(|condition| condition.raw.clone()).collect();
        set("conditions", (!raws.is_empty()).then_some(Value::Array(raws)));
        set(
            "uncountedTerminatedPods",
            uncounted.as_ref().map(|uncounted| {
                let members = [("succeeded", &uncounted.succeeded), ("failed", &uncounted.failed)];
                let members = members.into_iter().filter_map(|(name, uids)| Some((name.to_owned(), list(uids)?)));
                Value::Object(members.collect())
            }),
        );
        Value::Object(out)
    }

    /// The condition of a type, where it is true.
    pub fn is(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind && condition.status)
    }

    /// The condition by which the Job is over.
    pub fn finished(&self) -> Option<&Condition> {
        self.is(COMPLETE).or_else(|| self.is(FAILED))
    }

    /// Sets a condition; whether that changed anything. A false one is not added where there was none.
    pub fn set_condition(&mut self, new: Condition) -> bool {
        match self.conditions.iter_mut().find(|condition| condition.kind == new.kind) {
            Some(held) if (held.status, &held.reason, &held.message) == (new.status, &new.reason, &new.message) => {
                false
            }
            Some(held) => {
                *held = new;
                true
            }
            None if new.status => {
                self.conditions.push(new);
                true
            }
            None => false,
        }
    }

    pub fn completed(&self, completions: u32) -> Indexes {
        Indexes::parse(&self.completed_indexes, completions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_back_as_read() {
        let cases = [
            json!({}),
            json!({"ready": 0, "terminating": 0, "uncountedTerminatedPods": {}}),
            json!({"active": 1, "startTime": "2026-01-01T00:00:00Z", "somethingNew": {"kept": true}}),
            json!({"completedIndexes": "0-2", "failedIndexes": "", "succeeded": 3, "failed": 1,
                "uncountedTerminatedPods": {"failed": ["a", "b"]},
                "conditions": [{"type": "FailureTarget", "status": "True", "lastProbeTime": null, "lastTransitionTime": null}]}),
        ];
        for status in cases {
            let read = Status::read(&json!({"status": status}));
            assert_eq!(read.write_over(&status), status);
        }
    }

    #[test]
    fn conditions_change_only_when_they_say_something_new() {
        let (then, now) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(100).expect("a time"));
        let mut status = Status::default();
        assert!(!status.set_condition(Condition::new(SUSPENDED, false, "JobResumed", "Job resumed", then)));
        assert!(status.set_condition(Condition::new(SUSPENDED, true, "JobSuspended", "Job suspended", then)));
        assert!(!status.set_condition(Condition::new(SUSPENDED, true, "JobSuspended", "Job suspended", now)));
        assert_eq!(status.is(SUSPENDED).and_then(Condition::since), Some(then));
        assert!(status.set_condition(Condition::new(SUSPENDED, false, "JobResumed", "Job resumed", now)));
        assert_eq!((status.conditions.len(), status.is(SUSPENDED)), (1, None));
    }
}
