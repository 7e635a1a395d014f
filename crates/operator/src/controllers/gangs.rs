//! Which pods of kinds beyond JobSet start together, for the scheduler of this machine.

use api::mpi::names::{LABEL_JOB_NAME, LABEL_JOB_ROLE, ROLE_LAUNCHER};
use api::mpi::{self, LauncherCreationPolicy, MpiJob, ReplicaType};
use serde_json::Value;
use workloads::scheduler::{Kept, Needs, Rule};

/// All rules.
pub fn rules() -> Vec<Rule> {
    vec![Rule { owner: mpi::gvk, owner_label: LABEL_JOB_NAME, role_label: LABEL_JOB_ROLE, read: of_mpijob }]
}

/// Launcher and workers of a MPIJob; of one that has ended nobody waits for anybody. Pods of a suspended one
/// still wait for each other: it may be resumed before they are gone.
fn of_mpijob(object: &Value) -> Option<Needs> {
    let job: MpiJob = serde_json::from_value(object.clone()).ok()?;
    let is_over = job.status.is_finished() && job.status.completion_time.is_some();
    if is_over || api::object::is_terminating(object) {
        return None;
    }
    let workers = usize::try_from(job.spec.workers()).unwrap_or_default();
    let launcher = job.spec.role(ReplicaType::Launcher)?;
    let count = workers.saturating_add(1);
    let policy = job.spec.run_policy.as_ref().and_then(|policy| policy.scheduling_policy.as_ref());
    let least = policy.and_then(|policy| usize::try_from(policy.min_available?).ok());
    let is_late = workers > 0 && job.spec.launcher_creation() == LauncherCreationPolicy::WaitForWorkersReady;
    let kept = Kept { role: ROLE_LAUNCHER, template: launcher.template.clone(), is_late };
    Some(Needs { count, least: least.map_or(count, |least| least.clamp(1, count)), kept: Some(kept) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn launcher_and_workers_are_one_gang() {
        let needs = |spec: Value, status: Value| {
            let role = |count: i32| json!({"replicas": count, "template": {"spec": {"containers": [{"name": "m"}]}}});
            let mut job = json!({"apiVersion": mpi::API_VERSION, "kind": mpi::KIND, "metadata": {"name": "a", "namespace": "b"},
                "spec": {"mpiReplicaSpecs": {"Launcher": role(1), "Worker": role(4)}}, "status": status});
            reconcile::testing::merge(&mut job, &json!({"spec": spec}));
            of_mpijob(&job)
        };
        let numbers =
            |spec: Value| needs(spec, json!({})).map(|needs| (needs.count, needs.least, needs.kept.unwrap().is_late));
        assert_eq!(numbers(json!({})), Some((5, 5, false)));
        assert_eq!(numbers(json!({"launcherCreationPolicy": "WaitForWorkersReady"})), Some((5, 5, true)));
        assert_eq!(numbers(json!({"runPolicy": {"schedulingPolicy": {"minAvailable": 3}}})), Some((5, 3, false)));
        assert_eq!(numbers(json!({"runPolicy": {"schedulingPolicy": {"minAvailable": 9}}})), Some((5, 5, false)));
        let alone = json!({"mpiReplicaSpecs": {"Worker": null}, "launcherCreationPolicy": "WaitForWorkersReady"});
        assert_eq!(numbers(alone), Some((1, 1, false)));
        assert_eq!(
            numbers(json!({"runPolicy": {"suspend": true}})),
            Some((5, 5, false)),
            "it may be resumed any moment"
        );
        let ended =
            json!({"conditions": [{"type": "Succeeded", "status": "True"}], "completionTime": "2026-01-01T00:00:00Z"});
        assert_eq!(needs(json!({}), ended), None);
        let evicted = json!({"conditions": [{"type": "Failed", "status": "True", "reason": "MPIJobEvicted"}]});
        assert!(needs(json!({}), evicted).is_some(), "it may still succeed");
    }
}
