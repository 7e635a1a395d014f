//! What makes the first failing process end its job, where a TrainJob or its runtime asks for that
//! (`trainyard.dev/failure-policy: fail-fast`; `trainyard run` does).
//!
//! A TrainJob has no field for a restart policy or a backoff limit, and Kubernetes' defaults restart a failed container six
//! times with growing waits. A limit that the runtime sets itself is kept.

use crate::build::{entry, fill, list_mut};
use serde_json::{Value, json};

/// Fills in all Jobs of a JobSet's spec.
pub(crate) fn apply(jobset: &mut Value) {
    for replicated in list_mut(jobset, "replicatedJobs") {
        let Some(job) = replicated.pointer_mut("/template/spec").filter(|spec| spec.is_object()) else { continue };
        fail_fast(job);
    }
}

fn fail_fast(job: &mut Value) {
    let pod = entry(job, "template").entry("spec").or_insert_with(|| json!({}));
    fill(pod.as_object_mut(), "restartPolicy", json!("Never"));
    for member in ["initContainers", "containers"] {
        for container in list_mut(pod, member) {
            // The last lines are then in the pod's status, and outlive the log.
            fill(container.as_object_mut(), "terminationMessagePolicy", json!("FallbackToLogsOnError"));
        }
    }
    let never_restarts = pod["restartPolicy"] == "Never";
    let limits_indexes = job.get("backoffLimitPerIndex").is_some();
    let says_backoff = job.get("backoffLimit").is_some();
    if says_backoff || limits_indexes {
        return;
    }
    fill(job.as_object_mut(), "backoffLimit", json!(0));
    // A Job may have a pod failure policy only where its containers are never restarted (batch/v1, JobSpec).
    if never_restarts {
        fill(job.as_object_mut(), "podFailurePolicy", pod_failure_policy());
    }
}

/// A pod that the cluster took away (drain, preemption) is made anew and not counted; one whose process failed ends its
/// Job at once, and the Job says which pod it was and with which exit code.
fn pod_failure_policy() -> Value {
    json!({"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0]}},
    ]})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(job: Value) -> Value {
        let mut jobset = json!({"replicatedJobs": [{"template": {"spec": job}}]});
        apply(&mut jobset);
        jobset["replicatedJobs"][0]["template"]["spec"].take()
    }

    #[test]
    fn a_job_that_says_nothing_ends_with_its_first_failure() {
        let job = filled(json!({"template": {"spec": {"containers": [{"name": "node"}]}}}));
        assert_eq!(job["backoffLimit"], 0);
        assert_eq!(job["podFailurePolicy"], pod_failure_policy());
        let pod = &job["template"]["spec"];
        assert_eq!(pod["restartPolicy"], "Never");
        assert_eq!(pod["containers"][0]["terminationMessagePolicy"], "FallbackToLogsOnError");
        assert_eq!(filled(job.clone()), job, "applied twice it is the same");
    }

    #[test]
    fn what_a_runtime_says_stays() {
        let restarts = json!({"backoffLimit": 3, "template": {"spec": {"restartPolicy": "OnFailure",
            "containers": [{"name": "node", "terminationMessagePolicy": "File"}]}}});
        assert_eq!(filled(restarts.clone()), restarts);
        let per_index = filled(json!({"backoffLimitPerIndex": 1, "template": {"spec": {"containers": []}}}));
        assert_eq!(per_index.get("backoffLimit"), None);
        assert_eq!(per_index.get("podFailurePolicy"), None);
        let on_failure = filled(json!({"template": {"spec": {"restartPolicy": "OnFailure", "containers": []}}}));
        assert_eq!(on_failure["backoffLimit"], 0);
        assert_eq!(on_failure.get("podFailurePolicy"), None, "the API would refuse it");
    }
}
