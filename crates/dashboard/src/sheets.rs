//! Pages other than those of jobs: clusters, the queue, nodes, runtimes, downloads, services, pools, budgets. Each is a table of many objects, and
//! most have a page for each object.

mod budgets;
mod clusters;
mod downloads;
mod fleets;
pub(crate) mod managed_job;
mod nodes;
mod queue;
mod runtimes;

use crate::problem::Problem;
use crate::row::Kind;
use crate::scope;
use crate::server::{App, Parameters, SignedIn};
use crate::sessions::Session;
use crate::sheet::{Cell, Part, Sheet, View, table};
use api::object;
use axum::Json;
use axum::extract::{Path, State};
use client::Cluster;
use jiff::Timestamp;
use managed::fleet::FleetKind;
use serde_json::Value;
use std::sync::Arc;
use view::members::{self, TimelineEntry};

/// In addresses, the namespace of objects that have none.
const NO_NAMESPACE: &str = "-";

/// What pages are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topic {
    Clusters,
    Queue,
    Nodes,
    Runtimes,
    Downloads,
    Fleets(FleetKind),
    Budgets,
}

impl Topic {
    fn parse(word: &str) -> Result<Self, Problem> {
        Ok(match word {
            "clusters" => Self::Clusters,
            "queue" => Self::Queue,
            "nodes" => Self::Nodes,
            "runtimes" => Self::Runtimes,
            "downloads" => Self::Downloads,
            "services" => Self::Fleets(FleetKind::Service),
            "pools" => Self::Fleets(FleetKind::Pool),
            "budgets" => Self::Budgets,
            _ => return Err(Problem::not_found(format!("there is no page {word:?}"))),
        })
    }
}

/// A request for a page: user, view and time.
struct Reader<'a> {
    app: &'a App,
    session: &'a Session,
    view: &'a View,
    now: Timestamp,
}

impl Reader<'_> {
    /// The API server, asked as the user.
    fn cluster(&self) -> &Cluster {
        &self.session.cluster
    }

    /// The same, in a namespace.
    fn within(&self, namespace: &str) -> Cluster {
        Cluster { namespace: namespace.to_owned(), ..self.session.cluster.clone() }
    }

    /// The objects of a kind in the namespaces of the view.
    async fn objects(&self, kind: client::Kind, labels: &str, sheet: &mut Sheet) -> Result<Vec<Value>, Problem> {
        let seen = scope::objects(self.cluster(), kind, &self.view.namespaces, labels).await?;
        for line in seen.hidden.into_iter().filter(|line| !sheet.hidden.contains(line)).collect::<Vec<_>>() {
            sheet.hidden.push(line);
        }
        Ok(seen.objects)
    }

    /// The address of the page of a job, by the name that commands accept.
    fn job(&self, namespace: &str, name: &str) -> String {
        let (kind, name) = match name.split_once('/') {
            Some((kind, name)) => (Kind::parse(kind).unwrap_or(Kind::TrainJob), name),
            None => (self.app.index.kind_of(namespace, name), name),
        };
        address(&["jobs", kind.as_str(), namespace, name])
    }
}

/// An address of a page. Names of objects need no quoting.
fn address(parts: &[&str]) -> String {
    format!("/{}", parts.join("/"))
}

/// A page about many objects.
pub async fn list(
    State(app): State<Arc<App>>,
    SignedIn(session): SignedIn,
    Path(topic): Path<String>,
    Parameters(parameters): Parameters,
) -> Result<Json<Sheet>, Problem> {
    let (topic, view) = (Topic::parse(&topic)?, View::parse(&parameters)?);
    let reader = Reader { app: &app, session: &session, view: &view, now: Timestamp::now() };
    let sheet = match topic {
        Topic::Clusters => clusters::list(&reader).await,
        Topic::Queue => queue::list(&reader).await,
        Topic::Nodes => nodes::list(&reader).await,
        Topic::Runtimes => runtimes::list(&reader).await,
        Topic::Downloads => downloads::list(&reader).await,
        Topic::Fleets(kind) => fleets::list(&reader, kind).await,
        Topic::Budgets => budgets::list(&reader).await,
    };
    Ok(Json(view.of(Sheet { now: reader.now.as_second(), ..sheet? })?))
}

/// A page about one object.
pub async fn one(
    State(app): State<Arc<App>>,
    SignedIn(session): SignedIn,
    Path((topic, namespace, name)): Path<(String, String, String)>,
) -> Result<Json<Sheet>, Problem> {
    let (topic, view) = (Topic::parse(&topic)?, View::default());
    for text in [&namespace, &name] {
        let is_name = text == NO_NAMESPACE || api::names::subdomain_faults(text, false).is_empty();
        if !is_name {
            return Err(Problem::not_found(format!("there is no object {text:?}")));
        }
    }
    let reader = Reader { app: &app, session: &session, view: &view, now: Timestamp::now() };
    let sheet = match topic {
        Topic::Clusters => clusters::one(&reader, &namespace, &name).await,
        Topic::Nodes => nodes::one(&reader, &name).await,
        Topic::Runtimes => runtimes::one(&reader, &namespace, &name).await,
        Topic::Fleets(kind) => fleets::one(&reader, kind, &namespace, &name).await,
        Topic::Budgets => budgets::one(&reader, &namespace, &name).await,
        Topic::Queue | Topic::Downloads => Err(Problem::not_found("this page has no pages of its own")),
    };
    Ok(Json(view.of(Sheet { now: reader.now.as_second(), ..sheet? })?))
}

/// An object that a page is about.
async fn object(cluster: &Cluster, kind: client::Kind, name: &str) -> Result<Value, Problem> {
    let found = match kind.is_shared() {
        true => cluster.api_all(kind).get_opt(name).await.map_err(client::ClientError::from)?,
        false => cluster.api(kind).get_opt(name).await.map_err(client::ClientError::from)?,
    };
    found.as_ref().map(client::value).ok_or_else(|| {
        let resource = kind.resource();
        let place = if kind.is_shared() { String::new() } else { format!(" in namespace {}", cluster.namespace) };
        Problem::not_found(format!("{} {name:?} does not exist{place}", resource.kind))
    })
}

/// What happened to an object: changes of its conditions, and events about it.
async fn timeline(cluster: &Cluster, object: &Value) -> Part {
    let uid = object::uid(object);
    let events = facts::events(cluster, object::meta(object, "name")).await.unwrap_or_default();
    let about = |event: &&Value| event["involvedObject"]["uid"] == uid || event["regarding"]["uid"] == uid;
    let its: Vec<&Value> = events.iter().filter(about).collect();
    moments(&members::moments(&[object], &its, &[]))
}

fn moments(entries: &[TimelineEntry]) -> Part {
    let row = |entry: &TimelineEntry| {
        let times = if entry.count > 1 { format!(" ×{}", entry.count) } else { String::new() };
        let what = format!("{}{times}", entry.reason);
        vec![
            Cell::time(&entry.time),
            if entry.is_warning { Cell::state(format!("Warning: {what}"), "restarting") } else { Cell::text(what) },
            Cell::text(&entry.text),
        ]
    };
    let rows = entries.iter().rev().map(row).collect();
    table("Timeline", &["When", "What", "Message"], rows, "Nothing has happened yet.")
}

/// An object as YAML.
fn yaml(object: Value) -> Part {
    Part::Text { title: "YAML".to_owned(), text: crate::job::yaml(object) }
}

/// Dollars: `$1.20`; `-` where there is no price.
fn dollars(amount: f64) -> Cell {
    if amount > 0.0 { Cell::number(amount, format!("${amount:.2}")) } else { Cell::number(0.0, "-") }
}

/// The colour of a state in SkyPilot's words.
fn group(state: &str) -> String {
    let group = match state {
        "UP" | "READY" | "RUNNING" => "running",
        "SUCCEEDED" => "complete",
        "STOPPED" | "CANCELLED" | "NO_REPLICA" => "suspended",
        "NOT_READY" | "RECOVERING" | "PREEMPTED" | "AUTOSTOPPING" | "SHUTTING_DOWN" | "CANCELLING" => "restarting",
        state if state.contains("FAILED") => "failed",
        _ => "pending",
    };
    group.to_owned()
}

/// A state in SkyPilot's words.
fn sky_state(state: &str) -> Cell {
    Cell::state(state, &group(state))
}

/// A memory in people's units: `7.7 GiB`.
fn gib(bytes: i64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "of a size for people")]
    let gib = bytes as f64 / f64::from(1 << 30);
    format!("{gib:.1} GiB")
}
