//! Curves of the metrics that a job reported, and of other jobs beside it.

use crate::job::{Address, Named};
use crate::problem::Problem;
use crate::row::Kind;
use crate::server::{App, Parameters, SignedIn};
use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use serde::Serialize;
use std::sync::Arc;
use view::series::{Curve, curves};

/// Jobs that are shown beside one.
const BESIDE_MAX: usize = 9;
/// Jobs that the page offers to show beside.
const OFFERED_MAX: usize = 100;

/// A point of a curve: seconds since the job was created, and the value; null where it is no number.
type Point = (f64, Option<f64>);

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sent {
    name: String,
    points: Vec<Point>,
    /// How many reports there were; `points` may be fewer.
    reported: usize,
    not_finite: usize,
    last: Option<f64>,
    least: Option<f64>,
    greatest: Option<f64>,
}

impl From<Curve> for Sent {
    fn from(curve: Curve) -> Self {
        let Curve { name, points, reported, not_finite, last, least, greatest } = curve;
        let points = points.into_iter().map(|point| (point.at, point.value)).collect();
        Self { name, points, reported, not_finite, last, least, greatest }
    }
}

/// The curves of a job.
#[derive(Debug, Serialize)]
struct OfJob {
    name: String,
    curves: Vec<Sent>,
    /// What is missing, and why; empty: nothing is.
    note: String,
}

/// What a job and those beside it reported.
#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    jobs: Vec<OfJob>,
    /// Jobs of the namespace that can be shown beside it, the latest first.
    others: Vec<String>,
}

async fn of_job(named: &Named) -> Result<OfJob, Problem> {
    let job = named.object().await?;
    let mut note = String::new();
    let reports = facts::reports::all(&named.cluster, &job, &named.name, |said| said.clone_into(&mut note)).await?;
    let curves = tokio::task::spawn_blocking(move || curves(&job, &reports)).await.unwrap_or_default();
    Ok(OfJob { name: named.name.clone(), curves: curves.into_iter().map(Sent::from).collect(), note })
}

/// The curves of a TrainJob, and of those that `with` names. One that does not exist is left out, with a note in its place.
pub async fn series(
    State(app): State<Arc<App>>,
    SignedIn(session): SignedIn,
    address: Address,
    Parameters(parameters): Parameters,
) -> Result<Json<Answer>, Problem> {
    let named = Named::of(&session, address)?;
    if named.kind != Kind::TrainJob {
        return Err(Problem::bad_request("only TrainJobs report metrics"));
    }
    let mut beside: Vec<String> = Vec::new();
    for (name, value) in parameters {
        match name.as_str() {
            "with" if beside.len() == BESIDE_MAX => {
                return Err(Problem::bad_request(format!("at most {BESIDE_MAX} jobs can be shown beside a job")));
            }
            "with" if !api::names::subdomain_faults(&value, false).is_empty() => {
                return Err(Problem::bad_request(format!("{value:?} is not the name of a job")));
            }
            "with" if value == named.name || beside.contains(&value) => {}
            "with" => beside.push(value),
            _ => return Err(Problem::bad_request(format!("there is no parameter {name:?}"))),
        }
    }
    let mut jobs = vec![of_job(&named).await?];
    for name in beside {
        let other = Named { kind: Kind::TrainJob, name, cluster: named.cluster.clone() };
        let found = of_job(&other).await;
        jobs.push(found.unwrap_or_else(|problem| OfJob {
            name: other.name.clone(),
            curves: Vec::new(),
            note: problem.message,
        }));
    }
    let namespace = named.cluster.namespace.clone();
    let visible = session.rights.visible(&session.cluster, &[Kind::TrainJob], std::slice::from_ref(&namespace)).await?;
    app.index.ready(&[Kind::TrainJob]).await;
    let mut rows = app
        .index
        .rows(Timestamp::now(), |kind, of| kind == Kind::TrainJob && of == namespace && visible.shows(kind, of));
    rows.sort_by(|a, b| b.created.cmp(&a.created).then_with(|| a.name.cmp(&b.name)));
    let others = rows.into_iter().map(|row| row.name).filter(|name| *name != named.name).take(OFFERED_MAX).collect();
    Ok(Json(Answer { jobs, others }))
}
