//! MPIJobs in numbers, under mpi-operator's names.

use api::metrics::{MPIJOB_INFO, MPIJOBS_CREATED, MPIJOBS_FAILED, MPIJOBS_SUCCEEDED};
use api::mpi::{self, ConditionType, ReplicaType, names::launcher};
use api::object::{self, Gvk};
use driver::Witness;
use driver::cache::Cache;
use driver::metrics::Registry;
use serde_json::Value;
use std::sync::Arc;

pub(super) fn holds(job: &Value, condition: &str) -> bool {
    let mut conditions = job["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|held| held["type"] == condition && held["status"] == "True")
}

/// A worker that was evicted fails a job that may still go on; its end has a time.
pub(super) fn has_failed(job: &Value) -> bool {
    holds(job, ConditionType::Failed.as_str()) && job["status"]["completionTime"].is_string()
}

/// Names the launchers of a cache whenever somebody reads the numbers.
pub fn count(registry: &Registry, cache: &Arc<Cache>) {
    let cache = Arc::downgrade(cache);
    registry.on_read("mpijobs", move |registry| {
        registry.clear(&MPIJOB_INFO);
        let Some(cache) = cache.upgrade() else { return };
        cache.visit(&mpi::gvk(), |job| {
            if job["status"]["replicaStatuses"].get(ReplicaType::Launcher.as_str()).is_some() {
                let launcher = launcher(object::meta(job, "name"));
                let namespace = object::meta(job, "namespace");
                registry.set(&MPIJOB_INFO, &[("launcher", &launcher), ("namespace", namespace)], 1.0);
            }
        });
    });
}

/// Counts what becomes of MPIJobs while we watch.
pub fn witness(registry: Arc<Registry>) -> Witness {
    Arc::new(move |gvk: &Gvk, old: &dyn Fn() -> Option<Arc<Value>>, new: &Value| {
        if *gvk != mpi::gvk() {
            return;
        }
        // without a state before, nobody knows when it changed
        let Some(old) = old().filter(|old| object::uid(old) == object::uid(new)) else { return };
        let begins = |holds: &dyn Fn(&Value) -> bool| holds(new) && !holds(&old);
        for (metric, holds) in [
            (
                &MPIJOBS_CREATED,
                &(|job: &Value| self::holds(job, ConditionType::Created.as_str())) as &dyn Fn(&Value) -> bool,
            ),
            (&MPIJOBS_SUCCEEDED, &|job: &Value| self::holds(job, ConditionType::Succeeded.as_str())),
            (&MPIJOBS_FAILED, &has_failed),
        ] {
            if begins(holds) {
                registry.add(metric, &[], 1.0);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn beginnings_and_ends_are_counted_once() {
        let registry = Arc::new(Registry::default());
        let witness = witness(registry.clone());
        let job = |conditions: &[&str], ended: bool| {
            let conditions: Vec<Value> =
                conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
            let mut job = json!({"metadata": {"name": "a", "uid": "u"}, "status": {"conditions": conditions}});
            if ended {
                job["status"]["completionTime"] = json!("2026-01-02T03:04:05Z");
            }
            job
        };
        let states = [
            job(&[], false),
            job(&["Created"], false),
            job(&["Created", "Failed"], false),
            job(&["Created", "Failed"], true),
            job(&["Created", "Failed"], true),
        ];
        for pair in states.windows(2) {
            witness(&mpi::gvk(), &|| Some(Arc::new(pair[0].clone())), &pair[1]);
        }
        let text = registry.render();
        assert!(text.contains("mpi_operator_jobs_created_total 1"), "{text}");
        assert!(text.contains("mpi_operator_jobs_failed_total 1"), "{text}");
        assert!(!text.contains("mpi_operator_jobs_successful_total 1"), "{text}");
    }
}
