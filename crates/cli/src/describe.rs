//! `describe`: everything about one job, and why it is pending or failed.

use crate::exit;
use crate::output;
use api::object;
use client::{ClientError, Cluster};
use diagnose::{Diagnosis, Facts, Reason};
use facts::ThisMachine;
use grammar::{Format, JobArgs};
use jiff::Timestamp;
use serde_json::{Value, json};
use submission::results;
use view::downloads;
use view::progress;
use view::state::{Attempts, Phase, RestartCounts, age, container_restarts, final_message, node_rank, step};

/// Lines of a failed pod's log that are shown.
const LOG_TAIL: usize = 15;

pub(crate) async fn describe(cluster: &Cluster, args: &JobArgs) -> Result<u8, ClientError> {
    let job = cluster.job(&args.job).await?;
    let facts = facts::of(cluster, job.clone(), &ThisMachine).await?;
    let mut pods: Vec<Value> = facts.pods.iter().filter(|pod| pod.live).map(|pod| pod.pod.clone()).collect();
    pods.sort_by_key(|pod| (node_rank(pod).is_some(), node_rank(pod), step(pod)));
    let events = diagnose::events_of_job(&facts);
    let jobset = &facts.jobset;
    let now = facts.now;
    let diagnosis = diagnose::diagnose(&facts);
    let attempts = Attempts::of(&job);
    let counts = RestartCounts::of(jobset, &pods);
    let phase = Phase::of(&job);
    let has_no_node = |pod: &Value| object::text(&pod["spec"], "nodeName").is_empty();
    let place = match phase == Phase::Pending && pods.iter().any(has_no_node) {
        true => facts::queue::place(cluster, &args.job).await?,
        false => None,
    };
    if matches!(args.output.output, Format::Json | Format::Yaml) {
        let all = json!({
            "job": job, "jobset": jobset, "pods": pods, "events": events,
            "explanation": [diagnosis.why], "diagnosis": view::explained::json(&diagnosis),
            "queue": place.map(|place| json!({"position": place.position, "overall": place.overall, "ahead": place.ahead})),
            "attempt": attempts.now, "attempts": attempts.most,
            "restarts": {"jobset": counts.jobset, "containers": counts.containers},
        });
        output::print(&all, args.output.output);
        return Ok(exit::OK);
    }
    let trainer = &job["spec"]["trainer"];
    println!("Name:       {}", args.job);
    println!("Namespace:  {}", object::meta(&job, "namespace"));
    let state = diagnose::standing(&job, jobset, &pods, now);
    println!("{}", format!("State:      {state}  {}", final_message(&job)).trim_end());
    if let Some(place) = place {
        println!("Queue:      {}", view::queue::told_place(&place));
    }
    println!("Runtime:    {}", object::text(&job["spec"]["runtimeRef"], "name"));
    println!("Nodes:      {}", trainer["numNodes"].as_i64().map_or("the runtime's".to_owned(), |n| n.to_string()));
    if let Some(processes) = trainer["numProcPerNode"].as_i64() {
        println!("Processes:  {processes} per node");
    }
    if progress::percentage(&job).is_some() {
        println!("Progress:   {}", progress::line(&job, 0, 0));
    }
    for tail in &facts.logs {
        let pod = pods
            .iter()
            .find(|pod| object::meta(pod, "name") == tail.pod && object::text(&pod["status"], "phase") == "Running");
        let Some(step) = pod.map(step) else { continue };
        if let Some(far) = downloads::newest(&step, tail.lines.iter().map(|line| line.text.as_str())) {
            println!("Download:   {step}: {far}");
        }
    }
    if attempts.most > 1 {
        println!("Attempt:    {} of {}", attempts.now, attempts.most);
    }
    if counts != RestartCounts::default() {
        println!("Restarts:   {} of all pods, {} of containers", counts.jobset, counts.containers);
    }
    println!("Age:        {}", age(&job, now));
    if let Some(written) = results::written(&job) {
        println!("Results:    {written}");
    }
    if !matches!(diagnosis.reason, Reason::Complete | Reason::Running) {
        println!("\nWhy:");
        print!("{}", view::explained::why(&diagnosis));
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
    for event in events {
        let seen = view::state::last_seen(event).parse::<Timestamp>();
        let ago = seen.map_or("-".to_owned(), |at| view::state::short_duration(now.as_second() - at.as_second()));
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
        print_last_lines(&facts, &diagnosis);
    }
    Ok(exit::OK)
}

/// The last lines of the process that failed first.
fn print_last_lines(facts: &Facts, diagnosis: &Diagnosis) {
    let Some((step, lines)) = view::explained::last_lines(facts, diagnosis, LOG_TAIL) else { return };
    println!("\nLast lines of {step}:");
    lines.iter().for_each(|line| println!("  {line}"));
}
