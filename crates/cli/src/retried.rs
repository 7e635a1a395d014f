//! `run` on a cluster whose controller ignores `trainyard.dev/failure-policy`: Kubernetes then retries a failed container for minutes. This
//! module reports each failure at once, with what is retried and how to end it.

use crate::output::is_fancy;
use crate::screen::erase;
use api::object;
use api::trainer::annotations::FAILURE_POLICY;
use client::{Cluster, Kind, pods_of, value};
use futures::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::Value;
use std::collections::BTreeSet;
use view::state::{Ending, Phase};

/// Kubernetes' own backoff limit, of Jobs that name none (batch/v1).
const BACKOFF_LIMIT: i64 = 6;

/// Tells of the failures of a job that `run` has made, as long as it is polled; never ends.
///
/// Expected flow: watches the job's pods; at the first that fails, reads the JobSet once. Where that is made as was asked for,
/// there is nothing to tell: the job ends with its first failure.
pub(crate) async fn tell(cluster: &Cluster, job: &Value) -> ! {
    let name = object::meta(job, "name");
    if !cluster.local && object::annotation(job, FAILURE_POLICY) == Some("fail-fast") {
        follow(cluster, name).await;
    }
    loop {
        std::future::pending::<()>().await;
    }
}

async fn follow(cluster: &Cluster, name: &str) {
    let by_label = watcher::Config::default().labels(&pods_of(name));
    let mut changes = watcher(cluster.api(Kind::Pod), by_label).default_backoff().touched_objects().boxed();
    let mut told = BTreeSet::new();
    let mut jobset = None;
    while let Some(change) = changes.next().await {
        // the command that shows the logs reports what cannot be watched
        let Ok(pod) = change else { continue };
        let pod = value(&pod);
        let news: Vec<Ending> =
            view::state::failures(&pod).into_iter().filter(|ending| told.insert(key(&pod, ending))).collect();
        if news.is_empty() || object::is_terminating(&pod) {
            continue;
        }
        if jobset.is_none() {
            jobset = cluster.find(Kind::JobSet, name).await.ok().flatten();
        }
        let Some(jobset) = &jobset else { continue };
        let Some(again) = again(jobset, &pod) else { return };
        // the job may have ended with this failure
        let job = cluster.find(Kind::TrainJob, name).await.ok().flatten();
        if job.is_none_or(|job| Phase::of(&job).is_finished()) {
            return;
        }
        if is_fancy(&std::io::stderr()) {
            erase();
        }
        for ending in news {
            eprintln!("{}", sentence(&pod, &ending, &again));
            eprintln!("  stop it: trainyard delete {name}{}", cluster.flags);
        }
    }
}

/// A failure (of this container, at this time) is reported once.
fn key(pod: &Value, ending: &Ending) -> String {
    format!("{}/{}/{}", object::uid(pod), ending.container, ending.finished)
}

fn sentence(pod: &Value, ending: &Ending, again: &str) -> String {
    let who = view::state::ranks(pod).unwrap_or_else(|| view::state::step(pod));
    let Ending { container, exit_code, .. } = ending;
    let pod = object::meta(pod, "name");
    format!(
        "{who} failed: container {container} of pod {pod} ended with exit code {exit_code}. {again}: this cluster's controller does \
         not know {FAILURE_POLICY}"
    )
}

/// What Kubernetes tries again after a failure of a pod; `None` where it ends the job, as `run` asks.
fn again(jobset: &Value, pod: &Value) -> Option<String> {
    let step = object::label(pod, "jobset.sigs.k8s.io/replicatedjob-name").unwrap_or_default();
    let mut steps = jobset["spec"]["replicatedJobs"].as_array().into_iter().flatten();
    let job = &steps.find(|job| object::text(job, "name") == step)?["template"]["spec"];
    let limit = job["backoffLimit"].as_i64().unwrap_or(BACKOFF_LIMIT);
    if limit == 0 {
        return None;
    }
    let whom = match pod["spec"]["restartPolicy"].as_str() {
        Some("Never") => "makes another pod",
        _ => "starts the container again",
    };
    let times = if limit == 1 { "once".to_owned() } else { format!("up to {limit} times") };
    Some(format!("Kubernetes {whom}, {times} in all, with growing waits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(policy: &str) -> Value {
        json!({"metadata": {"name": "train-node-0-1-x", "uid": "u", "labels": {"batch.kubernetes.io/job-completion-index": "1",
            "jobset.sigs.k8s.io/replicatedjob-name": "node"}}, "spec": {"restartPolicy": policy},
            "status": {"containerStatuses": [{"name": "node", "restartCount": 0, "state": {"terminated": {"exitCode": 3,
                "finishedAt": "2026-01-01T00:00:00Z"}}}]}})
    }

    fn jobset(spec: Value) -> Value {
        json!({"spec": {"replicatedJobs": [{"name": "other", "template": {"spec": {"backoffLimit": 0}}},
            {"name": "node", "template": {"spec": spec}}]}})
    }

    #[test]
    fn what_is_tried_again_is_told_with_its_limit() {
        let told = again(&jobset(json!({})), &pod("OnFailure")).expect("it is tried again");
        assert_eq!(told, "Kubernetes starts the container again, up to 6 times in all, with growing waits");
        let told = again(&jobset(json!({"backoffLimit": 1})), &pod("Never")).expect("it is tried again");
        assert_eq!(told, "Kubernetes makes another pod, once in all, with growing waits");
        assert_eq!(again(&jobset(json!({"backoffLimit": 0})), &pod("Never")), None, "made as was asked for");
    }

    #[test]
    fn a_failure_names_rank_pod_and_exit_code() {
        let pod = pod("OnFailure");
        let endings = view::state::failures(&pod);
        let sentence = sentence(&pod, &endings[0], "Kubernetes does so");
        let start =
            "rank 1 failed: container node of pod train-node-0-1-x ended with exit code 3. Kubernetes does so: this ";
        assert!(sentence.starts_with(start), "{sentence}");
        // the state between two tries becomes the last state: the same failure
        let mut later = pod.clone();
        let status = &mut later["status"]["containerStatuses"][0];
        status["lastState"] = status["state"].take();
        status["state"] = json!({"running": {}});
        assert_eq!(key(&pod, &endings[0]), key(&later, &view::state::failures(&later)[0]));
    }
}
