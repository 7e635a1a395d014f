//! Clusters of machines that task files run on.

use super::{Reader, address, dollars, object, sky_state, timeline, yaml};
use crate::problem::Problem;
use crate::sheet::{Cell, Command, Part, Sheet, facts, main_table, table};
use api::object as read;
use api::sky::{Cluster, Machine, keys};
use client::Kind;
use managed::jobs::{Job, jobs};
use managed::resources::{of, of_cluster};
use managed::shown::{autostop, infra, seconds_used};
use serde_json::Value;
use std::collections::BTreeMap;

/// Candidates that a page lists.
const CANDIDATES_MAX: usize = 50;

fn parse(object: &Value) -> Cluster {
    serde_json::from_value(object.clone()).unwrap_or_default()
}

/// Jobs of clusters that go on or wait, by namespace and cluster.
fn open_jobs(jobsets: &[Value]) -> BTreeMap<(String, String), usize> {
    let mut by_cluster: BTreeMap<(String, String), Vec<&Value>> = BTreeMap::new();
    for jobset in jobsets {
        let cluster = read::label(jobset, keys::CLUSTER).unwrap_or_default().to_owned();
        by_cluster.entry((read::meta(jobset, "namespace").to_owned(), cluster)).or_default().push(jobset);
    }
    let open = |jobsets: Vec<&Value>| jobs(jobsets).iter().filter(|job| !job.status.has_ended()).count();
    by_cluster.into_iter().map(|(of, jobsets)| (of, open(jobsets))).collect()
}

/// What a cluster was made for: a managed job, or a replica; else it is a user's own.
fn made_for(object: &Value) -> Cell {
    match read::label(object, keys::MANAGED_JOB) {
        Some(job) => Cell::link(address(&["jobs", "managedjob", read::meta(object, "namespace"), job]), job),
        None => Cell::text(""),
    }
}

pub(super) async fn list(reader: &Reader<'_>) -> Result<Sheet, Problem> {
    let mut sheet = Sheet { title: "Clusters".to_owned(), ..Sheet::default() };
    let clusters = reader.objects(Kind::SkyCluster, "", &mut sheet).await?;
    let jobs = match clusters.is_empty() {
        true => BTreeMap::new(),
        false => open_jobs(&reader.objects(Kind::JobSet, keys::CLUSTER, &mut sheet).await?),
    };
    let row = |object: &Value| {
        let cluster = parse(object);
        let (namespace, name) = (read::meta(object, "namespace"), read::meta(object, "name"));
        let open = jobs.get(&(namespace.to_owned(), name.to_owned())).copied().unwrap_or(0);
        let launched = match cluster.status.launched_at.as_str() {
            "" => read::meta(object, "creationTimestamp"),
            at => at,
        };
        vec![
            Cell::link(address(&["clusters", namespace, name]), managed::cluster::shown(object)),
            Cell::text(namespace),
            sky_state(cluster.status.phase.as_str()),
            Cell::text(infra(&cluster)),
            Cell::text(of_cluster(&cluster)),
            dollars(cluster.status.hourly_price),
            Cell::count(open),
            Cell::text(autostop(&cluster)),
            Cell::text(&cluster.spec.user),
            made_for(object),
            Cell::time(launched),
        ]
    };
    let mut rows: Vec<Vec<Cell>> = clusters.iter().map(row).collect();
    rows.reverse();
    let headings = [
        "Name",
        "Namespace",
        "State",
        "Infra",
        "Resources",
        "Price per hour",
        "Open jobs",
        "Autostop",
        "User",
        "Managed job",
        "Launched",
    ];
    let empty = "There are no clusters. A task file makes one:";
    sheet.parts.push(main_table(&headings, rows, empty, "trainyard sky launch -c NAME task.yaml"));
    Ok(sheet)
}

fn machines(machines: &[Value]) -> Part {
    let mut all: Vec<Machine> =
        machines.iter().filter_map(|object| serde_json::from_value(object.clone()).ok()).collect();
    all.sort_by_key(|machine| machine.spec.rank);
    let row = |machine: &Machine| {
        let status = &machine.status;
        let phase = format!("{:?}", status.phase);
        let group = match phase.as_str() {
            "Running" => "running",
            "Lost" | "Refused" | "NoCapacity" => "failed",
            "Stopped" | "Stopping" => "suspended",
            _ => "pending",
        };
        let candidate = &machine.spec.candidate;
        let place = [&candidate.provider, &candidate.region, &candidate.zone];
        let place: Vec<&str> = place.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        vec![
            Cell::number(f64::from(machine.spec.rank), machine.spec.rank.to_string()),
            Cell::state(&phase, group),
            Cell::text(place.join("/")),
            match status.node.as_str() {
                "" => Cell::text(""),
                node => Cell::link(address(&["nodes", super::NO_NAMESPACE, node]), node),
            },
            Cell::text(&status.address),
            dollars(candidate.hourly_price),
            Cell::text(&status.message),
        ]
    };
    let rows = all.iter().map(row).collect();
    let headings = ["Rank", "State", "Place", "Node", "Address", "Price per hour", "Message"];
    table("Machines", &headings, rows, "It has no machines.")
}

/// Why it is where it is: all places in the order in which they are tried, and what became of each.
fn places(cluster: &Cluster) -> Part {
    let at = usize::try_from(cluster.status.candidate).unwrap_or(usize::MAX);
    let is_up = !cluster.status.nodes.is_empty();
    let row = |(number, candidate): (usize, &api::sky::Candidate)| {
        let place = [&candidate.provider, &candidate.region, &candidate.zone];
        let place: Vec<&str> = place.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        let price = candidate.hourly_price * f64::from(cluster.spec.nodes);
        let became = match (number.cmp(&at), is_up) {
            (std::cmp::Ordering::Less, _) => Cell::state("failed", "failed"),
            (std::cmp::Ordering::Equal, true) => Cell::state("in use", "running"),
            (std::cmp::Ordering::Equal, false) => Cell::state("trying", "pending"),
            (std::cmp::Ordering::Greater, _) => Cell::text("not tried in this round"),
        };
        vec![
            Cell::count(number.saturating_add(1)),
            Cell::text(place.join("/")),
            Cell::text(of(cluster.spec.nodes, candidate)),
            dollars(price),
            became,
        ]
    };
    let rows = cluster.spec.candidates.iter().take(CANDIDATES_MAX).enumerate().map(row).collect();
    let headings = ["Order", "Place", "Resources", "Price per hour", "Result"];
    table("Why this place", &headings, rows, "No place offers these resources.")
}

fn jobs_table(namespace: &str, jobs: &[Job], now: jiff::Timestamp) -> Part {
    let row = |job: &Job| {
        let ran = job.started.map(|started| job.ended.unwrap_or(now).duration_since(started).as_secs().max(0));
        #[expect(clippy::cast_precision_loss, reason = "seconds")]
        let ran = ran.map_or(Cell::text(""), |ran| Cell::number(ran as f64, view::state::short_duration(ran)));
        let name = if job.name.is_empty() { "-" } else { &job.name };
        vec![
            Cell::link(address(&["jobs", "jobset", namespace, read::meta(&job.run, "name")]), job.id.to_string()),
            Cell::text(name),
            sky_state(job.status.as_str()),
            Cell::text(&job.user),
            Cell::text(&job.resources),
            ran,
            Cell::Age { at: job.submitted.map(jiff::Timestamp::as_second) },
        ]
    };
    let rows = jobs.iter().rev().map(row).collect();
    let headings = ["Number", "Name", "State", "User", "Resources", "Ran for", "Submitted"];
    table("Jobs", &headings, rows, "No job was submitted to it.")
}

pub(super) async fn one(reader: &Reader<'_>, namespace: &str, name: &str) -> Result<Sheet, Problem> {
    let connection = reader.within(namespace);
    let found = object(&connection, Kind::SkyCluster, name).await?;
    let cluster = parse(&found);
    let shown = managed::cluster::shown(&found).to_owned();
    let of_it = format!("{}={name}", keys::CLUSTER);
    let its_machines = connection.list(Kind::Machine, &of_it).await.unwrap_or_default();
    let jobsets = connection.list(Kind::JobSet, &of_it).await.unwrap_or_default();
    let (status, spec) = (&cluster.status, &cluster.spec);
    let used = seconds_used(&status.usage, reader.now);
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let cost = status.hourly_price * used as f64 / 3600.0;
    let command = |title, verb: &str| Command { title, command: format!("trainyard sky {verb} {shown}") };
    let mut parts = vec![
        facts(
            "Overview",
            vec![
                ("Why", Cell::text(&status.message)),
                ("Infra", Cell::text(infra(&cluster))),
                ("Resources", Cell::text(of_cluster(&cluster))),
                ("Price per hour", dollars(status.hourly_price)),
                ("Cost so far", dollars(cost)),
                ("Autostop", Cell::text(autostop(&cluster))),
                ("Launched", Cell::time(&status.launched_at)),
                ("Last activity", Cell::time(&status.last_activity)),
                ("User", Cell::text(&spec.user)),
                ("Managed job", made_for(&found)),
                ("Command", Cell::text(&spec.command)),
            ],
        ),
        machines(&its_machines),
        jobs_table(namespace, &jobs(&jobsets), reader.now),
        places(&cluster),
    ];
    if !status.rejected.is_empty() {
        parts.push(Part::Lines { title: "Why places failed".to_owned(), lines: status.rejected.clone() });
    }
    if !status.hooks.failures.is_empty() {
        parts.push(Part::Lines { title: "Hooks that failed".to_owned(), lines: status.hooks.failures.clone() });
    }
    parts.push(timeline(&connection, &found).await);
    parts.push(Part::Commands {
        title: "Commands".to_owned(),
        commands: vec![
            command("Show", "status"),
            command("Jobs", "queue"),
            command("Log of its latest job", "logs"),
            Command { title: "Shell on its first machine", command: format!("ssh {shown}") },
            command("Stop its machines and keep their disks", "stop"),
            command("Delete the cluster and its machines", "down"),
        ],
    });
    parts.push(yaml(found.clone()));
    Ok(Sheet {
        title: shown.clone(),
        subtitle: format!("Cluster in namespace {namespace}"),
        state: Some(sky_state(status.phase.as_str())),
        parts,
        ..Sheet::default()
    })
}
