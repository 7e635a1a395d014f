//! Why a job is pending, suspended or failed, in sentences: out of its status, JobSet, pods and events.

use crate::view::{
    Attempts, Ending, Phase, condition, failures, ranks, restarts, short_duration, signal, step, why_pending,
};
use api::object;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeSet;

/// Events that are told; the newest say it best.
const EVENTS_MAX: usize = 3;
/// Label by which Kueue takes a job in.
const KUEUE_QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// What there is to explain a job from.
pub(crate) struct Facts<'a> {
    pub job: &'a Value,
    /// Null where there is none, or nobody may read it.
    pub jobset: &'a Value,
    pub pods: &'a [Value],
    /// About the job, what it made, and its pods; oldest first.
    pub events: &'a [Value],
    pub now: Timestamp,
}

impl Facts<'_> {
    /// The likely reasons, most telling first; none where all is well.
    pub(crate) fn explain(&self) -> Vec<String> {
        match Phase::of(self.job) {
            Phase::Complete => Vec::new(),
            Phase::Running => waits_for_steps(self.jobset).into_iter().chain(self.tried_again()).collect(),
            Phase::Suspended => vec![self.suspended()],
            Phase::Pending => self.pending(),
            Phase::Failed => self.failed(),
        }
    }

    fn pending(&self) -> Vec<String> {
        let manager = object::text(&self.job["spec"], "managedBy");
        if !matches!(manager, "" | "trainer.kubeflow.org/trainjob-controller") {
            return vec![format!("it is run elsewhere, by {manager}: nothing is made here")];
        }
        let mut told: Vec<String> = Attempts::of(self.job).waits(self.now).into_iter().collect();
        if !told.is_empty() {
            told.extend(self.endings());
            return told;
        }
        let reasons: BTreeSet<String> = self.pods.iter().filter_map(why_pending).collect();
        told.extend(reasons);
        told.extend(waits_for_steps(self.jobset));
        told.extend(self.tried_again());
        // what keeps pods from being made is only said by events: a runtime that is not there, a quota
        let missing = self.pods.is_empty() || told.is_empty();
        if missing {
            told.extend(self.warnings());
        }
        if told.is_empty() {
            told.push(match (self.jobset.is_null(), self.pods.is_empty()) {
                (true, _) => "no JobSet was made of it yet; if that stays so, no controller is at work".to_owned(),
                (false, true) => "no pods were made yet".to_owned(),
                (false, false) => "its pods are starting".to_owned(),
            });
        }
        told
    }

    /// The newest warnings about the job and what it made, pods excepted: they speak for themselves.
    fn warnings(&self) -> Vec<String> {
        let newest = self.events.iter().rev().filter(|event| {
            object::text(event, "type") == "Warning" && object::text(&event["involvedObject"], "kind") != "Pod"
        });
        let mut told: Vec<String> = Vec::new();
        for event in newest {
            let text = format!("{}: {}", object::text(event, "reason"), object::text(event, "message").trim());
            if !told.contains(&text) && told.len() < EVENTS_MAX {
                told.push(text);
            }
        }
        told
    }

    /// What failed and is tried again.
    fn tried_again(&self) -> Vec<String> {
        let told = self
            .pods
            .iter()
            .flat_map(|pod| restarts(pod).into_iter().map(move |text| format!("{}: {text}", step(pod))));
        told.collect()
    }

    fn suspended(&self) -> String {
        let name = object::meta(self.job, "name");
        if let Some(queue) = object::label(self.job, KUEUE_QUEUE) {
            return format!("it is suspended and waits until Kueue admits it from queue {queue}");
        }
        let by = suspended_by(self.job).map(|(manager, at)| {
            let ago = at
                .map_or(String::new(), |at| format!(" {} ago", short_duration(self.now.as_second() - at.as_second())));
            format!(" by {manager}{ago}")
        });
        format!("it was suspended{}; start it with: trainyard resume {name}", by.unwrap_or_default())
    }

    fn failed(&self) -> Vec<String> {
        let told = self.endings();
        if !told.is_empty() {
            return told;
        }
        let failed = condition(self.job, "Failed");
        if failed.is_some_and(|failed| failed["reason"] == "DeadlineExceeded") {
            let limit = self.job["spec"]["activeDeadlineSeconds"].as_i64().unwrap_or(0);
            return vec![format!("it was active for longer than activeDeadlineSeconds allows ({limit})")];
        }
        self.warnings()
    }

    /// How the containers that failed ended, the first to fail first.
    fn endings(&self) -> Vec<String> {
        let mut endings: Vec<(&Value, Ending)> =
            self.pods.iter().flat_map(|pod| failures(pod).into_iter().map(move |ending| (pod, ending))).collect();
        endings.sort_by(|(_, a), (_, b)| a.finished.cmp(&b.finished));
        let told = endings.iter().map(|(pod, ending)| {
            let ranks = ranks(pod).map_or(String::new(), |ranks| format!(" ({ranks})"));
            let mut text = format!(
                "{}{ranks}: container {} ended with exit code {}",
                step(pod),
                ending.container,
                ending.exit_code
            );
            let reason = Some(ending.reason.as_str()).filter(|reason| !matches!(*reason, "" | "Error"));
            if let Some(why) = reason.or_else(|| signal(ending.exit_code)) {
                text += &format!(" ({why})");
            }
            if let Some(last) = ending.message.lines().rev().find(|line| !line.trim().is_empty()) {
                text += &format!(": {}", last.trim());
            }
            text
        });
        let mut told: Vec<String> = told.collect();
        if told.len() > 1 {
            told[0] += "  (the first to fail)";
        }
        told
    }
}

/// Who set `spec.suspend` last, and when, as far as field management tells.
fn suspended_by(job: &Value) -> Option<(String, Option<Timestamp>)> {
    let entries = job["metadata"]["managedFields"].as_array()?;
    let owns = |entry: &&Value| entry.pointer("/fieldsV1/f:spec/f:suspend").is_some();
    let newest = entries.iter().filter(owns).max_by_key(|entry| object::text(entry, "time"))?;
    Some((object::text(newest, "manager").to_owned(), object::text(newest, "time").parse().ok()))
}

/// Steps that start only when others are done: `node waits until dataset-initializer is complete`.
fn waits_for_steps(jobset: &Value) -> Vec<String> {
    let list = |value: &'_ Value, member: &str| value[member].as_array().cloned().unwrap_or_default();
    let counters = list(&jobset["status"], "replicatedJobsStatus");
    let replicated = list(&jobset["spec"], "replicatedJobs");
    let reached = |name: &str, state: &str| {
        let wanted = replicated.iter().find(|job| job["name"] == name).and_then(|job| job["replicas"].as_i64());
        let held = counters.iter().find(|step| step["name"] == name);
        let count = |counter: &str| held.and_then(|step| step[counter].as_i64()).unwrap_or(0);
        let done = if state == "Ready" { count("ready") + count("succeeded") } else { count("succeeded") };
        done >= wanted.unwrap_or(1)
    };
    let mut told = Vec::new();
    for job in &replicated {
        for on in list(job, "dependsOn") {
            let (name, state) = (object::text(&on, "name"), object::text(&on, "status"));
            if !reached(name, state) {
                let state = state.to_lowercase();
                told.push(format!("{} waits until {name} is {state}", object::text(job, "name")));
            }
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn now() -> Timestamp {
        "2026-01-01T00:10:00Z".parse().expect("a time")
    }

    fn explain(job: &Value, jobset: &Value, pods: &[Value], events: &[Value]) -> Vec<String> {
        Facts { job, jobset, pods, events, now: now() }.explain()
    }

    fn pod(name: &str, index: &str, status: Value) -> Value {
        json!({"metadata": {"name": name, "labels": {"jobset.sigs.k8s.io/replicatedjob-name": "node",
            "batch.kubernetes.io/job-completion-index": index}}, "status": status})
    }

    fn ended(name: &str, index: &str, code: i64, at: &str, message: &str) -> Value {
        let terminated = json!({"exitCode": code, "finishedAt": at, "reason": "Error", "message": message});
        pod(name, index, json!({"containerStatuses": [{"name": "node", "state": {"terminated": terminated}}]}))
    }

    fn warning(kind: &str, reason: &str, message: &str) -> Value {
        json!({"type": "Warning", "reason": reason, "message": message, "involvedObject": {"kind": kind, "name": "j"}})
    }

    #[test]
    fn a_failed_job_names_the_first_failure_first() {
        let job = json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}});
        let pods = [
            ended("a", "0", 143, "2026-01-01T00:00:05Z", ""),
            ended("b", "1", 7, "2026-01-01T00:00:02Z", "x\nValueError: y\n"),
        ];
        assert_eq!(
            explain(&job, &Value::Null, &pods, &[]),
            [
                "node-1 (rank 1): container node ended with exit code 7: ValueError: y  (the first to fail)",
                "node-0 (rank 0): container node ended with exit code 143 (SIGTERM)",
            ]
        );
    }

    #[test]
    fn ranks_of_a_node_are_named_together() {
        let mut pod = ended("b", "1", 137, "2026-01-01T00:00:02Z", "");
        pod["spec"] = json!({"containers": [{"env": [{"name": "PET_NPROC_PER_NODE", "value": "4"}]}]});
        let job = json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}});
        let told = explain(&job, &Value::Null, &[pod], &[]);
        assert_eq!(told, ["node-1 (ranks 4 to 7): container node ended with exit code 137 (SIGKILL)"]);
    }

    #[test]
    fn a_passed_deadline_says_which() {
        let job = json!({"spec": {"activeDeadlineSeconds": 5}, "status": {"conditions": [
            {"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}});
        let told = explain(&job, &Value::Null, &[], &[]);
        assert_eq!(told, ["it was active for longer than activeDeadlineSeconds allows (5)"]);
    }

    #[test]
    fn who_suspended_it_is_told() {
        let job = json!({"metadata": {"name": "j", "managedFields": [
            {"manager": "kubectl-create", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:suspend": {}}}},
            {"manager": "kubectl-patch", "time": "2026-01-01T00:08:00Z", "fieldsV1": {"f:spec": {"f:suspend": {}}}},
            {"manager": "trainer", "time": "2026-01-01T00:09:00Z", "fieldsV1": {"f:status": {}}}]},
            "spec": {"suspend": true}});
        let told = ["it was suspended by kubectl-patch 2m0s ago; start it with: trainyard resume j"];
        assert_eq!(explain(&job, &Value::Null, &[], &[]), told);
        let queued = json!({"metadata": {"name": "j", "labels": {KUEUE_QUEUE: "team"}}, "spec": {"suspend": true}});
        let told = ["it is suspended and waits until Kueue admits it from queue team"];
        assert_eq!(explain(&queued, &Value::Null, &[], &[]), told);
    }

    #[test]
    fn what_pods_wait_for_is_told_once() {
        let unscheduled = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
            "message": "0/1 nodes are available: 1 Insufficient cpu."}]});
        let pods = [pod("a", "0", unscheduled.clone()), pod("b", "1", unscheduled)];
        let told = ["0/1 nodes are available: 1 Insufficient cpu."];
        assert_eq!(explain(&json!({}), &json!({"spec": {}}), &pods, &[]), told);
        let starting = [pod("a", "0", json!({"phase": "Pending"}))];
        assert_eq!(explain(&json!({}), &json!({"spec": {}}), &starting, &[]), ["its pods are starting"]);
    }

    #[test]
    fn steps_wait_for_others() {
        let jobset = json!({
            "spec": {"replicatedJobs": [
                {"name": "dataset-initializer", "replicas": 1}, {"name": "model-initializer", "replicas": 1},
                {"name": "node", "replicas": 1, "dependsOn": [
                    {"name": "dataset-initializer", "status": "Complete"}, {"name": "model-initializer", "status": "Complete"}]},
                {"name": "launcher", "replicas": 1, "dependsOn": [{"name": "node", "status": "Ready"}]}]},
            "status": {"replicatedJobsStatus": [{"name": "dataset-initializer", "succeeded": 1}, {"name": "node", "ready": 0}]},
        });
        let told = ["node waits until model-initializer is complete", "launcher waits until node is ready"];
        let pods = [pod("a", "0", json!({"phase": "Succeeded"}))];
        assert_eq!(explain(&json!({}), &jobset, &pods, &[]), told);
        let initializing = json!({"status": {"jobsStatus": [{"name": "dataset-initializer", "ready": 1}]}});
        assert_eq!(explain(&initializing, &jobset, &pods, &[]), told);
    }

    #[test]
    fn what_keeps_pods_from_being_made_comes_from_events() {
        let events = [
            warning("Job", "FailedCreate", "Error creating: exceeded quota: q"),
            warning("TrainJob", "TrainJobResourcesCreationFailed", "runtime \"x\" not found"),
            warning("TrainJob", "TrainJobResourcesCreationFailed", "runtime \"x\" not found"),
            warning("Pod", "BackOff", "about a pod of before"),
        ];
        let told = [
            "TrainJobResourcesCreationFailed: runtime \"x\" not found",
            "FailedCreate: Error creating: exceeded quota: q",
        ];
        assert_eq!(explain(&json!({}), &Value::Null, &[], &events), told);
        let none = ["no JobSet was made of it yet; if that stays so, no controller is at work"];
        assert_eq!(explain(&json!({}), &Value::Null, &[], &[]), none);
        let elsewhere = json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}});
        let told = ["it is run elsewhere, by kueue.x-k8s.io/multikueue: nothing is made here"];
        assert_eq!(explain(&elsewhere, &Value::Null, &[], &events), told);
    }

    #[test]
    fn between_attempts_the_last_failure_is_told() {
        let job = json!({"metadata": {"annotations": {"trainyard.dev/retries": "2", "trainyard.dev/attempt": "2",
            "trainyard.dev/retry-at": "2026-01-01T00:10:20Z"}}});
        let pods = [ended("a", "0", 9, "2026-01-01T00:00:05Z", "")];
        let told = [
            "attempt 1 of 3 has failed; attempt 2 starts in 20s",
            "node-0 (rank 0): container node ended with exit code 9",
        ];
        assert_eq!(explain(&job, &json!({"spec": {}}), &pods, &[]), told);
    }
}
