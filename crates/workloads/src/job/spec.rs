//! The parts of a Job's spec that decisions read, with the API's defaults where an object lacks them.

use super::CONTROLLER_NAME;
use serde_json::Value;

/// A parsed spec.
#[derive(Clone, Debug)]
pub struct Spec<'a> {
    pub json: &'a Value,
    pub indexed: bool,
    /// `None`: a work queue, done when a pod has succeeded and none is left.
    pub completions: Option<u32>,
    pub parallelism: u32,
    pub backoff_limit: u32,
    pub backoff_limit_per_index: Option<u32>,
    pub max_failed_indexes: Option<u32>,
    pub suspend: bool,
    /// Seconds.
    pub active_deadline: Option<i64>,
    /// Seconds.
    pub ttl: Option<i64>,
    /// A pod being deleted is replaced only when it has failed.
    pub only_replace_failed: bool,
    /// Containers are restarted in place (`restartPolicy: OnFailure`).
    pub restarts_in_place: bool,
    /// Another controller runs it.
    pub external: bool,
}

impl<'a> Spec<'a> {
    /// `None` for a completion mode that this controller does not know: such a Job is left alone.
    pub fn read(job: &'a Value) -> Option<Self> {
        let json = &job["spec"];
        let number = |name: &str| json[name].as_u64().map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let indexed = match json["completionMode"].as_str() {
            Some("Indexed") => true,
            None | Some("NonIndexed") => false,
            Some(_) => return None,
        };
        let has = |name: &str| json.get(name).is_some_and(|value| !value.is_null());
        let one_pod = !has("completions") && !has("parallelism");
        Some(Self {
            json,
            indexed,
            completions: number("completions").or((indexed || one_pod).then_some(1)),
            parallelism: number("parallelism").unwrap_or(1),
            backoff_limit: number("backoffLimit").unwrap_or(6),
            backoff_limit_per_index: number("backoffLimitPerIndex").filter(|_| indexed),
            max_failed_indexes: number("maxFailedIndexes"),
            suspend: json["suspend"] == true,
            active_deadline: json["activeDeadlineSeconds"].as_i64(),
            ttl: json["ttlSecondsAfterFinished"].as_i64(),
            only_replace_failed: json["podReplacementPolicy"] == "Failed" || has("podFailurePolicy"),
            restarts_in_place: json["template"]["spec"]["restartPolicy"] == "OnFailure",
            external: json["managedBy"].as_str().is_some_and(|manager| manager != CONTROLLER_NAME),
        })
    }

    /// The number of completions; for a work queue, which has none, 0.
    pub fn size(&self) -> u32 {
        self.completions.unwrap_or(0)
    }

    /// Null where there is none.
    pub fn pod_failure_policy(&self) -> &'a Value {
        &self.json["podFailurePolicy"]
    }

    /// Null where there is none.
    pub fn success_policy(&self) -> &'a Value {
        &self.json["successPolicy"]
    }
}
