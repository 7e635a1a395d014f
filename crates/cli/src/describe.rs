//! `describe`: everything about one job, and why it is pending or failed.

use crate::args::{Format, JobArgs};
use crate::connect::{Cluster, Kind};
use crate::error::CliError;
use crate::exit;
use crate::output;
use crate::progress;
use crate::view::{self, Phase, age, failures, final_message, node_rank, restarts, step, why_pending};
use api::object;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Lines of a failed pod's log that are shown.
const LOG_TAIL: i64 = 15;

pub(crate) async fn describe(cluster: &Cluster, args: &JobArgs) -> Result<u8, CliError> {
    let job = cluster.job(&args.job).await?;
    let mut pods = cluster.pods(&args.job).await?;
    pods.sort_by_key(|pod| (node_rank(pod).is_some(), node_rank(pod), step(pod)));
    let events = events_about(cluster, &args.job, &pods).await?;
    if matches!(args.output.output, Format::Json | Format::Yaml) {
        let all = json!({"job": job, "pods": pods, "events": events, "explanation": explain(&job, &pods)});
        output::print(&all, args.output.output);
        return Ok(exit::OK);
    }
    let now = Timestamp::now();
    let phase = Phase::of(&job);
    let trainer = &job["spec"]["trainer"];
    println!("Name:       {}", args.job);
    println!("Namespace:  {}", object::meta(&job, "namespace"));
    println!("{}", format!("State:      {}  {}", phase.as_str(), final_message(&job)).trim_end());
    println!("Runtime:    {}", object::text(&job["spec"]["runtimeRef"], "name"));
    println!("Nodes:      {}", trainer["numNodes"].as_i64().map_or("the runtime's".to_owned(), |n| n.to_string()));
    if let Some(processes) = trainer["numProcPerNode"].as_i64() {
        println!("Processes:  {processes} per node");
    }
    if progress::percentage(&job).is_some() {
        println!("Progress:   {}", progress::line(&job, 0, 0));
    }
    println!("Age:        {}", age(&job, now));
    let explanation = explain(&job, &pods);
    if !explanation.is_empty() {
        println!("\nWhy:");
        explanation.iter().for_each(|line| println!("  {line}"));
    }
    println!("\nPods:");
    if pods.is_empty() {
        println!("  none");
    } else {
        let rows = pods.iter().map(|pod| {
            let restarts: i64 = pod["status"]["containerStatuses"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|status| status["restartCount"].as_i64())
                .sum();
            vec![
                format!("  {}", step(pod)),
                object::meta(pod, "name").to_owned(),
                object::text(&pod["status"], "phase").to_owned(),
                restarts.to_string(),
                age(pod, now),
            ]
        });
        output::table(&["  STEP", "POD", "PHASE", "RESTARTS", "AGE"], rows.collect());
    }
    println!("\nEvents:");
    if events.is_empty() {
        println!("  none");
    }
    for event in &events {
        let seen = object::text(event, "lastTimestamp").parse::<Timestamp>();
        let ago = seen.map_or("-".to_owned(), |at| view::short_duration(now.as_second() - at.as_second()));
        println!(
            "  {ago:>6}  {:<7}  {:<24}  {}/{}  {}",
            object::text(event, "type"),
            object::text(event, "reason"),
            object::text(&event["involvedObject"], "kind"),
            object::text(&event["involvedObject"], "name"),
            object::text(event, "message").trim()
        );
    }
    if phase == Phase::Failed {
        failed_logs(cluster, &pods).await;
    }
    Ok(exit::OK)
}

/// The likely reason why the job does not run or has failed, in sentences.
fn explain(job: &Value, pods: &[Value]) -> Vec<String> {
    match Phase::of(job) {
        Phase::Complete => Vec::new(),
        Phase::Running => tried_again(pods),
        Phase::Suspended => {
            vec![format!("it is suspended; start it with: trainyard resume {}", object::meta(job, "name"))]
        }
        Phase::Pending => {
            let reasons: BTreeSet<String> = pods.iter().filter_map(why_pending).collect();
            if reasons.is_empty() && pods.is_empty() {
                return vec!["no pods were made yet: see the events below".to_owned()];
            }
            reasons.into_iter().chain(tried_again(pods)).collect()
        }
        Phase::Failed => {
            let mut endings: Vec<_> =
                pods.iter().flat_map(|pod| failures(pod).into_iter().map(move |ending| (step(pod), ending))).collect();
            endings.sort_by(|(_, a), (_, b)| a.finished.cmp(&b.finished));
            let told = endings.iter().map(|(step, ending)| {
                let mut text =
                    format!("{step}: container {} ended with exit code {}", ending.container, ending.exit_code);
                if !ending.reason.is_empty() && ending.reason != "Error" {
                    text += &format!(" ({})", ending.reason);
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
}

/// What failed and is tried again.
fn tried_again(pods: &[Value]) -> Vec<String> {
    let told = pods.iter().flat_map(|pod| restarts(pod).into_iter().map(move |text| format!("{}: {text}", step(pod))));
    told.collect()
}

/// Events about the job, what it made, and its pods; oldest first.
async fn events_about(cluster: &Cluster, job: &str, pods: &[Value]) -> Result<Vec<Value>, CliError> {
    let pods: BTreeSet<&str> = pods.iter().map(|pod| object::meta(pod, "name")).collect();
    let prefix = format!("{job}-");
    let mut events = cluster.list(Kind::Event, "").await?;
    events.retain(|event| {
        let about = &event["involvedObject"];
        let name = object::text(about, "name");
        match object::text(about, "kind") {
            "TrainJob" | "JobSet" | "PodGroup" => name == job,
            "Job" => name.starts_with(&prefix),
            "Pod" => pods.contains(name) || name.starts_with(&prefix),
            _ => false,
        }
    });
    events.sort_by(|a, b| object::text(a, "lastTimestamp").cmp(object::text(b, "lastTimestamp")));
    Ok(events)
}

/// The last lines of the pod that failed first.
async fn failed_logs(cluster: &Cluster, pods: &[Value]) {
    let first = pods
        .iter()
        .flat_map(|pod| failures(pod).into_iter().map(move |ending| (ending.finished.clone(), pod, ending.container)))
        .min_by(|a, b| a.0.cmp(&b.0));
    let Some((_, pod, container)) = first else { return };
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), object::meta(pod, "namespace"));
    let parameters = LogParams { container: Some(container), tail_lines: Some(LOG_TAIL), ..LogParams::default() };
    if let Ok(text) = api.logs(object::meta(pod, "name"), &parameters).await
        && !text.trim().is_empty()
    {
        println!("\nLast lines of {}:", step(pod));
        text.lines().for_each(|line| println!("  {line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_job_names_the_first_failure_first() {
        let pod = |name: &str, index: &str, code: i64, at: &str| {
            json!({"metadata": {"name": name, "labels": {"jobset.sigs.k8s.io/replicatedjob-name": "node",
                "batch.kubernetes.io/job-completion-index": index}}, "status": {"containerStatuses": [{"name": "node",
                "state": {"terminated": {"exitCode": code, "finishedAt": at, "reason": "Error", "message": "x\nValueError: y\n"}}}]}})
        };
        let job = json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}});
        let pods = [pod("a", "0", 143, "2026-01-01T00:00:05Z"), pod("b", "1", 7, "2026-01-01T00:00:02Z")];
        let told = explain(&job, &pods);
        assert_eq!(told[0], "node-1: container node ended with exit code 7: ValueError: y  (the first to fail)");
        assert_eq!(told.len(), 2);
    }
}
