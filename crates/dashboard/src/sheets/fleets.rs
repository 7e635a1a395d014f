//! Services and pools: their replicas or workers, with probes and requests.

use super::{Reader, address, object, sky_state, timeline, yaml};
use crate::problem::Problem;
use crate::sheet::{Cell, Command, Part, Sheet, facts, main_table, table};
use api::object as read;
use api::sky::{FleetSpec, FleetStatus, JobFile, Replica, ReplicaReport, ReplicaState};
use client::{Cluster, Kind};
use managed::fleet::FleetKind;
use managed::shown::policy;
use serde_json::Value;

fn kind_of(kind: FleetKind) -> Kind {
    match kind {
        FleetKind::Service => Kind::Serving,
        FleetKind::Pool => Kind::Pool,
    }
}

/// A service or a pool, read.
struct Read {
    spec: FleetSpec,
    status: FleetStatus,
}

impl Read {
    fn of(object: &Value) -> Self {
        let part = |member: &str| object.get(member).cloned().unwrap_or_default();
        Self {
            spec: serde_json::from_value(part("spec")).unwrap_or_default(),
            status: serde_json::from_value(part("status")).unwrap_or_default(),
        }
    }

    fn state(&self, object: &Value) -> Cell {
        sky_state(if read::is_terminating(object) { "SHUTTING_DOWN" } else { self.status.state.as_str() })
    }

    fn ready(&self) -> usize {
        self.status.replicas.iter().filter(|one| one.state == ReplicaState::Ready).count()
    }

    fn there(&self) -> usize {
        self.status.replicas.iter().filter(|one| !one.state.has_ended()).count()
    }

    /// How many replicas it has, in words; the file with its task may be gone.
    async fn policy(&self, within: &Cluster, kind: FleetKind) -> String {
        let map = within.api(Kind::ConfigMap).get_opt(&self.spec.submission).await.ok().flatten();
        let text = map.as_ref().and_then(|map| map.data["data"]["job"].as_str());
        let file: Option<JobFile> = text.and_then(|text| serde_json::from_str(text).ok());
        let task = file.as_ref().and_then(|file| file.tasks.first());
        task.map(|task| policy(&task.service, kind)).unwrap_or_default()
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of requests")]
fn number(value: u64) -> Cell {
    Cell::number(value as f64, value.to_string())
}

pub(super) async fn list(reader: &Reader<'_>, kind: FleetKind) -> Result<Sheet, Problem> {
    let (title, path) = match kind {
        FleetKind::Service => ("Services", "services"),
        FleetKind::Pool => ("Pools", "pools"),
    };
    let mut sheet = Sheet { title: title.to_owned(), ..Sheet::default() };
    let all = reader.objects(kind_of(kind), "", &mut sheet).await?;
    let mut rows = Vec::new();
    for object in &all {
        let fleet = Read::of(object);
        let (namespace, name) = (read::meta(object, "namespace"), read::meta(object, "name"));
        let policy = fleet.policy(&reader.within(namespace), kind).await;
        let status = &fleet.status;
        let mut row = vec![
            Cell::link(address(&[path, namespace, name]), &fleet.spec.name),
            Cell::text(namespace),
            fleet.state(object),
            #[expect(clippy::cast_precision_loss, reason = "counts of replicas")]
            Cell::number(fleet.ready() as f64, format!("{} of {}", fleet.ready(), fleet.there())),
            Cell::text(policy),
            number(status.load.held),
        ];
        if kind == FleetKind::Service {
            row.extend([number(status.load.requests_last_minute), Cell::text(&status.load.endpoint)]);
        }
        row.extend([Cell::text(&fleet.spec.user), Cell::text(&status.message), Cell::time(&status.ready_since)]);
        rows.push(row);
    }
    let mut headings = vec!["Name", "Namespace", "State", "Ready", "Policy"];
    let (empty, command) = match kind {
        FleetKind::Service => {
            headings.extend(["Waiting requests", "Requests per minute", "Address"]);
            (
                "There are no services. A task file with a service section makes one:",
                "trainyard sky serve up -n NAME service.yaml",
            )
        }
        FleetKind::Pool => {
            headings.push("Waiting jobs");
            (
                "There are no pools. A task file with a pool section makes one:",
                "trainyard sky jobs pool apply -p NAME pool.yaml",
            )
        }
    };
    headings.extend(["User", "Why", "Became ready"]);
    sheet.parts.push(main_table(&headings, rows, empty, command));
    Ok(sheet)
}

/// What probes say of a replica: `succeeds`, `failed 3 times: connection refused`.
fn probe(report: Option<&ReplicaReport>) -> String {
    match report {
        None => String::new(),
        Some(report) if report.is_ready => "succeeds".to_owned(),
        Some(report) if report.failures == 0 => "none yet".to_owned(),
        Some(report) => {
            let times =
                if report.failures == 1 { "once".to_owned() } else { format!("{} times in a row", report.failures) };
            format!("failed {times}: {}", report.last_failure)
        }
    }
}

fn replicas(namespace: &str, fleet: &Read, kind: FleetKind) -> Part {
    let row = |replica: &Replica| {
        let report = fleet.status.load.backends.iter().find(|report| report.replica == replica.number);
        let cluster = match replica.cluster.as_str() {
            "" => Cell::text(""),
            shown if replica.state.has_ended() => Cell::text(shown),
            shown => Cell::link(address(&["clusters", namespace, &managed::names::object_name(shown)]), shown),
        };
        vec![
            Cell::number(f64::from(replica.number), replica.number.to_string()),
            Cell::number(f64::from(replica.version), replica.version.to_string()),
            sky_state(replica.state.as_str()),
            Cell::text(&replica.message),
            Cell::text(probe(report)),
            number(report.map_or(0, |report| report.in_flight)),
            cluster,
            Cell::text(&replica.place),
            Cell::text(&replica.resources),
            Cell::text(&replica.address),
            Cell::time(&replica.launched_at),
        ]
    };
    // those that have failed come last
    let all = &fleet.status.replicas;
    let order =
        [false, true].into_iter().flat_map(|failed| all.iter().filter(move |one| one.state.is_failed() == failed));
    let (title, work) = match kind {
        FleetKind::Service => ("Replicas", "Requests in progress"),
        FleetKind::Pool => ("Workers", "Jobs in progress"),
    };
    let headings =
        ["Number", "Version", "State", "Why", "Probe", work, "Cluster", "Place", "Resources", "Address", "Launched"];
    table(title, &headings, order.map(row).collect(), "There is none.")
}

pub(super) async fn one(reader: &Reader<'_>, kind: FleetKind, namespace: &str, name: &str) -> Result<Sheet, Problem> {
    let within = reader.within(namespace);
    let found = object(&within, kind_of(kind), name).await?;
    let fleet = Read::of(&found);
    let (spec, status) = (&fleet.spec, &fleet.status);
    let (noun, verbs, end, waiting) = match kind {
        FleetKind::Service => ("Service", "sky serve", "Delete the service and its replicas", "Waiting requests"),
        FleetKind::Pool => ("Pool", "sky jobs pool", "Delete the pool and its workers", "Waiting jobs"),
    };
    let versions = status.versions.iter().rev().map(|version| {
        vec![
            Cell::number(f64::from(version.number), version.number.to_string()),
            Cell::text(if status.active_versions.contains(&version.number) { "active" } else { "" }),
            Cell::text(format!("{:?}", version.mode)),
            Cell::text(&version.stopped),
        ]
    });
    let versions = table(
        "Versions",
        &["Version", "In use", "Update", "Why launches stopped"],
        versions.collect(),
        "There is none.",
    );
    let command = |title, verb: &str| Command { title, command: format!("trainyard {verbs} {verb} {}", spec.name) };
    Ok(Sheet {
        title: spec.name.clone(),
        subtitle: format!("{noun} in namespace {namespace}"),
        state: Some(fleet.state(&found)),
        parts: vec![
            facts(
                "Overview",
                vec![
                    ("Why", Cell::text(&status.message)),
                    ("Policy", Cell::text(fleet.policy(&within, kind).await)),
                    ("Address", Cell::text(&status.load.endpoint)),
                    ("Load balancer", Cell::text(&status.load.message)),
                    (
                        "Requests per minute",
                        if kind == FleetKind::Service {
                            number(status.load.requests_last_minute)
                        } else {
                            Cell::text("")
                        },
                    ),
                    (waiting, number(status.load.held)),
                    ("Version", Cell::text(spec.version.to_string())),
                    ("Became ready", Cell::time(&status.ready_since)),
                    ("User", Cell::text(&spec.user)),
                    ("Command", Cell::text(&spec.command)),
                ],
            ),
            replicas(namespace, &fleet, kind),
            versions,
            timeline(&within, &found).await,
            Part::Commands {
                title: "Commands".to_owned(),
                commands: vec![
                    command("Show", "status"),
                    Command {
                        title: "Log of what makes and ends its members",
                        command: format!("trainyard {verbs} logs {} --controller", spec.name),
                    },
                    command(end, "down"),
                ],
            },
            yaml(found.clone()),
        ],
        ..Sheet::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_says_how_often_it_failed() {
        let report = |failures, is_ready| ReplicaReport {
            failures,
            is_ready,
            last_failure: "connection refused".to_owned(),
            ..ReplicaReport::default()
        };
        assert_eq!(probe(None), "");
        assert_eq!(probe(Some(&report(0, true))), "succeeds");
        assert_eq!(probe(Some(&report(0, false))), "none yet");
        assert_eq!(probe(Some(&report(1, false))), "failed once: connection refused");
        assert_eq!(probe(Some(&report(3, false))), "failed 3 times in a row: connection refused");
    }
}
