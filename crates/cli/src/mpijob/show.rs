//! `mpijob get` and `mpijob describe`.

use super::{find, full_name};
use crate::plugin::as_called;
use crate::{exit, explain, output};
use api::mpi::names::LABEL_JOB_ROLE;
use api::object;
use api::shell::quoted;
use client::{ClientError, Cluster, Kind, value};
use diagnose::{Facts, Reason, diagnose};
use grammar::Format;
use grammar::mpi::{GetArgs, NameArgs};
use jiff::Timestamp;
use kube::api::ListParams;
use serde_json::{Value, json};
use view::mpijob::{State, command, message, workers};
use view::state::{age, container_restarts, last_seen, short_duration, why_pending};

/// Lists MPIJobs, or shows one.
pub(crate) async fn get(cluster: &Cluster, args: &GetArgs) -> Result<u8, ClientError> {
    let jobs = match &args.mpijob {
        Some(name) => vec![find(cluster, name).await?],
        None if args.all_namespaces => {
            let list = cluster.api_all(Kind::MpiJob).list(&ListParams::default()).await?;
            list.items.iter().map(value).collect()
        }
        None => cluster.list(Kind::MpiJob, "").await?,
    };
    match args.output.output {
        format @ (Format::Json | Format::Yaml) if args.mpijob.is_some() => output::print(&jobs[0], format),
        format @ (Format::Json | Format::Yaml) => {
            output::print(&json!({"apiVersion": "v1", "kind": "List", "items": jobs}), format);
        }
        Format::Name => jobs.iter().for_each(|job| println!("{}", full_name(object::meta(job, "name")))),
        Format::Table | Format::Wide if jobs.is_empty() && args.all_namespaces => eprintln!("no MPIJobs"),
        Format::Table | Format::Wide if jobs.is_empty() => {
            eprintln!("no MPIJobs in namespace {}", cluster.namespace);
        }
        format @ (Format::Table | Format::Wide) => table(&jobs, args.all_namespaces, format == Format::Wide),
    }
    Ok(exit::OK)
}

fn table(jobs: &[Value], namespaces: bool, wide: bool) {
    let mut header = vec!["NAME", "STATE", "WORKERS", "AGE"];
    if namespaces {
        header.insert(0, "NAMESPACE");
    }
    if wide {
        header.extend(["IMPLEMENTATION", "SLOTS", "QUEUE", "MESSAGE"]);
    }
    let now = Timestamp::now();
    let row = |job: &Value| {
        let (active, wanted) = workers(job);
        let name = object::meta(job, "name").to_owned();
        let mut row = vec![name, State::of(job).to_string(), format!("{active}/{wanted}"), age(job, now)];
        if namespaces {
            row.insert(0, object::meta(job, "namespace").to_owned());
        }
        if wide {
            row.push(job["spec"]["mpiImplementation"].as_str().unwrap_or("OpenMPI").to_owned());
            row.push(job["spec"]["slotsPerWorker"].as_i64().unwrap_or(1).to_string());
            row.push(object::label(job, "kueue.x-k8s.io/queue-name").unwrap_or("-").to_owned());
            row.push(message(job).to_owned());
        }
        row
    };
    output::table(&header, jobs.iter().map(row).collect());
}

/// Says why an MPIJob waits, fails or stands still.
pub(crate) async fn explain(cluster: &Cluster, args: &NameArgs) -> Result<u8, ClientError> {
    let job = find(cluster, &args.mpijob).await?;
    let facts = facts::of_mpijob(cluster, job).await?;
    let mut diagnosis = diagnose(&facts);
    for command in diagnosis.remedies.iter_mut().filter_map(|remedy| remedy.command.as_mut()) {
        *command = as_called(command);
    }
    explain::print(object::meta(&facts.job, "name"), &diagnosis, args.output);
    Ok(exit::OK)
}

/// Shows all about one MPIJob.
pub(crate) async fn describe(cluster: &Cluster, args: &NameArgs) -> Result<u8, ClientError> {
    let facts = facts::of_mpijob(cluster, find(cluster, &args.mpijob).await?).await?;
    let diagnosis = diagnose(&facts);
    let Facts { job, pods, events, .. } = facts;
    let name = object::meta(&job, "name");
    let mut pods: Vec<Value> = pods.into_iter().map(|pod| pod.pod).collect();
    let rank = |pod: &Value| {
        let name = object::meta(pod, "name").to_owned();
        let number = name.rsplit('-').next().and_then(|number| number.parse::<u32>().ok());
        (object::label(pod, LABEL_JOB_ROLE).unwrap_or_default().to_owned(), number, name)
    };
    pods.sort_by_key(rank);
    let is_its = |event: &&Value| {
        let about = &event["involvedObject"];
        let of_job = about["kind"] == "MPIJob" && about["uid"] == job["metadata"]["uid"];
        let launcher = api::mpi::names::launcher(name);
        let of_launcher = about["kind"] == "Job" && about["name"] == launcher.as_str();
        of_job || of_launcher || pods.iter().any(|pod| about["uid"] == pod["metadata"]["uid"])
    };
    let mut events: Vec<Value> = events.iter().filter(is_its).cloned().collect();
    events.sort_by(|a, b| last_seen(a).cmp(last_seen(b)));
    if matches!(args.output.output, Format::Json | Format::Yaml) {
        let diagnosis = view::explained::json(&diagnosis);
        let all = json!({"job": job, "pods": pods, "events": events, "diagnosis": diagnosis});
        output::print(&all, args.output.output);
        return Ok(exit::OK);
    }
    let now = Timestamp::now();
    let spec = &job["spec"];
    let (active, wanted) = workers(&job);
    let slots = spec["slotsPerWorker"].as_i64().unwrap_or(1);
    println!("Name:            {name}");
    println!("Namespace:       {}", object::meta(&job, "namespace"));
    println!("{}", format!("State:           {}  {}", State::of(&job), message(&job)).trim_end());
    println!("Implementation:  {}", spec["mpiImplementation"].as_str().unwrap_or("OpenMPI"));
    println!("Workers:         {active} of {wanted} run, {slots} {} each", if slots == 1 { "slot" } else { "slots" });
    println!("Command:         {}", command(&job).iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "));
    let image = &spec["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["image"];
    println!("Image:           {}", image.as_str().unwrap_or("-"));
    println!("After the end:   cleanPodPolicy {}", spec["runPolicy"]["cleanPodPolicy"].as_str().unwrap_or("None"));
    if let Some(queue) = object::label(&job, "kueue.x-k8s.io/queue-name") {
        println!("Queue:           {queue}");
    }
    println!("Age:             {}", age(&job, now));
    if !matches!(diagnosis.reason, Reason::Complete | Reason::Running) {
        println!("\nWhy:");
        print!("{}", view::explained::why(&diagnosis));
    }

    println!("\nConditions:");
    let rows = job["status"]["conditions"].as_array().into_iter().flatten().map(|condition| {
        let text = |member: &str| object::text(condition, member).to_owned();
        let since = condition["lastTransitionTime"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
        vec![format!("  {}", text("type")), text("status"), text("reason"), ago(since, now), text("message")]
    });
    section(&["  TYPE", "STATUS", "REASON", "AGE", "MESSAGE"], rows.collect());
    println!("\nReplicas:");
    let rows = job["status"]["replicaStatuses"].as_object().into_iter().flatten().map(|(role, status)| {
        let count = |member: &str| status[member].as_i64().unwrap_or(0).to_string();
        vec![format!("  {role}"), count("active"), count("succeeded"), count("failed")]
    });
    section(&["  ROLE", "ACTIVE", "SUCCEEDED", "FAILED"], rows.collect());
    println!("\nPods:");
    let rows = pods.iter().map(|pod| {
        vec![
            format!("  {}", object::meta(pod, "name")),
            object::text(&pod["status"], "phase").to_owned(),
            container_restarts(pod).to_string(),
            age(pod, now),
            why_pending(pod).unwrap_or_default(),
        ]
    });
    section(&["  POD", "PHASE", "RESTARTS", "AGE", ""], rows.collect());
    println!("\nEvents:");
    let rows = events.iter().map(|event| {
        let about = &event["involvedObject"];
        vec![
            format!("  {}", ago(last_seen(event).parse().ok(), now)),
            object::text(event, "type").to_owned(),
            object::text(event, "reason").to_owned(),
            format!("{}/{}", object::text(about, "kind"), object::text(about, "name")),
            object::text(event, "message").trim().to_owned(),
        ]
    });
    section(&["  AGE", "TYPE", "REASON", "OBJECT", "MESSAGE"], rows.collect());
    Ok(exit::OK)
}

fn ago(time: Option<Timestamp>, now: Timestamp) -> String {
    time.map_or("-".to_owned(), |at| short_duration(now.as_second().saturating_sub(at.as_second())))
}

fn section(header: &[&str], rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        println!("  none");
    } else {
        output::table(header, rows);
    }
}
