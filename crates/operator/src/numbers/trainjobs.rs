//! Metrics of TrainJobs: how many are in each state and why, and how long they take to start and to end.

use api::metrics::{TRAINJOB_END_SECONDS, TRAINJOB_START_SECONDS, TRAINJOBS};
use api::object::{self, Gvk, text};
use driver::Witness;
use driver::cache::Cache;
use driver::metrics::Registry;
use jiff::Timestamp;
use plan::controller::trainjob_gvk;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A TrainJob's state and the reason for it.
pub(super) fn state(job: &Value) -> (&'static str, String) {
    for (kind, state) in [("Failed", "Failed"), ("Complete", "Complete"), ("Suspended", "Suspended")] {
        let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
        let mut held = conditions.filter(|c| c["type"] == kind && c["status"] == "True");
        if let Some(condition) = held.next() {
            return (state, text(condition, "reason").to_owned());
        }
    }
    if has_run(job) { ("Running", String::new()) } else { ("Pending", String::new()) }
}

/// Whether pods of its trainer run or have ended.
fn has_run(job: &Value) -> bool {
    let jobs = job["status"]["jobsStatus"].as_array().into_iter().flatten();
    jobs.into_iter()
        .any(|job| ["ready", "succeeded", "failed"].iter().any(|count| job[count].as_i64().unwrap_or(0) > 0))
}

/// Counts the TrainJobs of a cache whenever somebody reads the numbers.
pub fn count(registry: &Registry, cache: &Arc<Cache>) {
    let cache = Arc::downgrade(cache);
    registry.on_read("trainjobs", move |registry| {
        registry.clear(&TRAINJOBS);
        let Some(cache) = cache.upgrade() else { return };
        let mut counts: BTreeMap<(&'static str, String), f64> = BTreeMap::new();
        cache.visit(&trainjob_gvk(), |job| *counts.entry(state(job)).or_default() += 1.0);
        for ((state, reason), count) in counts {
            registry.set(&TRAINJOBS, &[("reason", &reason), ("state", state)], count);
        }
    });
}

/// Takes the times of TrainJobs that start and end while we watch.
pub fn witness(registry: Arc<Registry>) -> Witness {
    Arc::new(move |gvk: &Gvk, old: &dyn Fn() -> Option<Arc<Value>>, new: &Value| {
        if *gvk != trainjob_gvk() {
            return;
        }
        // without a state before, nobody knows when it changed
        let Some(old) = old().filter(|old| object::uid(old) == object::uid(new)) else { return };
        let Ok(created) = object::meta(new, "creationTimestamp").parse::<Timestamp>() else { return };
        let seconds = Timestamp::now().duration_since(created).as_secs_f64().max(0.0);
        if has_run(new) && !has_run(&old) {
            registry.observe(&TRAINJOB_START_SECONDS, &[], seconds);
        }
        let ended = |job: &Value| matches!(state(job).0, "Failed" | "Complete");
        if ended(new) && !ended(&old) {
            registry.observe(&TRAINJOB_END_SECONDS, &[("state", state(new).0)], seconds);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(status: Value) -> Value {
        json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "status": status,
            "metadata": {"name": "a", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z"}})
    }

    #[test]
    fn starts_and_ends_are_seen_once() {
        let registry = Arc::new(Registry::default());
        let witness = witness(registry.clone());
        let new = job(json!({}));
        let running = job(json!({"jobsStatus": [{"name": "node", "ready": 1}]}));
        let done = job(json!({"jobsStatus": [{"name": "node", "succeeded": 1}],
            "conditions": [{"type": "Complete", "status": "True", "reason": "AllJobsCompleted"}]}));
        assert_eq!((state(&new).0, state(&running).0), ("Pending", "Running"));
        assert_eq!(state(&done), ("Complete", "AllJobsCompleted".to_owned()));
        witness(&trainjob_gvk(), &|| None, &running);
        for (old, new) in [(&new, &running), (&running, &running), (&running, &done), (&done, &done)] {
            witness(&trainjob_gvk(), &|| Some(Arc::new(old.clone())), new);
        }
        let text = registry.render();
        assert!(text.contains("trainyard_trainjob_start_seconds_count 1"), "{text}");
        assert!(text.contains("trainyard_trainjob_end_seconds_count{state=\"Complete\"} 1"), "{text}");
    }
}
