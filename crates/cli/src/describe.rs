//! `describe`: everything about one job, and why it is pending or failed.

use crate::args::{Format, JobArgs};
use crate::connect::{Cluster, Kind};
use crate::error::CliError;
use crate::exit;
use crate::explain::Facts;
use crate::output;
use crate::progress;
use crate::view::{
    self, Attempts, Phase, RestartCounts, age, container_restarts, failures, final_message, node_rank, step,
};
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
    // without the right to read it, or without its kind, there is less to tell
    let jobset = cluster.find(Kind::JobSet, &args.job).await.ok().flatten().unwrap_or_default();
    let now = Timestamp::now();
    let explanation = Facts { job: &job, jobset: &jobset, pods: &pods, events: &events, now }.explain();
    let attempts = Attempts::of(&job);
    let counts = RestartCounts::of(&jobset, &pods);
    if matches!(args.output.output, Format::Json | Format::Yaml) {
        let all = json!({
            "job": job, "jobset": jobset, "pods": pods, "events": events, "explanation": explanation,
            "attempt": attempts.now, "attempts": attempts.most,
            "restarts": {"jobset": counts.jobset, "containers": counts.containers},
        });
        output::print(&all, args.output.output);
        return Ok(exit::OK);
    }
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
    if attempts.most > 1 {
        println!("Attempt:    {} of {}", attempts.now, attempts.most);
    }
    if counts != RestartCounts::default() {
        println!("Restarts:   {} of all pods, {} of containers", counts.jobset, counts.containers);
    }
    println!("Age:        {}", age(&job, now));
    if !explanation.is_empty() {
        println!("\nWhy:");
        explanation.iter().for_each(|line| println!("  {line}"));
    }
    println!("\nPods:");
    if pods.is_empty() {
        println!("  none");
    } else {
        let rows = pods.iter().map(|pod| {
            vec![
                format!("  {}", step(pod)),
                object::meta(pod, "name").to_owned(),
                object::text(&pod["status"], "phase").to_owned(),
                container_restarts(pod).to_string(),
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
        let seen = view::last_seen(event).parse::<Timestamp>();
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
    if phase == Phase::Failed || attempts.waits(now).is_some() {
        failed_logs(cluster, &pods).await;
    }
    Ok(exit::OK)
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
    events.sort_by(|a, b| view::last_seen(a).cmp(view::last_seen(b)));
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
