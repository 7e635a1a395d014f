//! A job's row in the table: what of its object is kept, and how the row is shown.

use api::job_kind::JobKind;
use api::object;
use api::sky::{ManagedState, keys};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use view::queue::KUEUE_QUEUE;
use view::row::{self, RowState};

/// The kinds of jobs in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    TrainJob,
    MpiJob,
    OptimizationJob,
    JobSet,
    ManagedJob,
}

impl Kind {
    pub const ALL: [Self; 5] = [Self::TrainJob, Self::MpiJob, Self::OptimizationJob, Self::JobSet, Self::ManagedJob];

    /// As it stands in addresses of pages and requests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TrainJob => "trainjob",
            Self::MpiJob => "mpijob",
            Self::OptimizationJob => "optimizationjob",
            Self::JobSet => "jobset",
            Self::ManagedJob => "managedjob",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// The kind as the command line knows it, where it does.
    pub fn of_command(self) -> Option<JobKind> {
        match self {
            Self::TrainJob => Some(JobKind::Train),
            Self::MpiJob => Some(JobKind::Mpi),
            Self::OptimizationJob => Some(JobKind::Search),
            Self::JobSet | Self::ManagedJob => None,
        }
    }
}

impl From<Kind> for client::Kind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::TrainJob => Self::TrainJob,
            Kind::MpiJob => Self::MpiJob,
            Kind::OptimizationJob => Self::OptimizationJob,
            Kind::JobSet => Self::JobSet,
            Kind::ManagedJob => Self::ManagedJob,
        }
    }
}

/// What is kept of a job's object.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub uid: Box<str>,
    /// As people call it, where that is not the object's name.
    pub title: Box<str>,
    /// Seconds since 1970.
    pub created: i64,
    pub stands: RowState,
    /// Nodes that the object itself asks for.
    pub nodes: Option<i64>,
    /// GPUs of all its pods, as far as the object says.
    pub gpus: i64,
    /// Percent.
    pub progress: Option<i64>,
    /// The queue that it waits in, by Kueue's label.
    pub queue: Box<str>,
    pub runtime: Box<str>,
    /// The search that it is a trial of.
    pub search: Box<str>,
    /// Who handed it over, where the object says so.
    pub owner: Box<str>,
    /// What ended it, in its controller's words.
    pub message: Box<str>,
}

/// Characters of a message that are kept.
const MESSAGE_MAX: usize = 300;

impl Kept {
    pub fn of(kind: Kind, job: &Value) -> Self {
        let spec = &job["spec"];
        let stands = match kind {
            Kind::TrainJob => RowState::of(JobKind::Train, job),
            Kind::MpiJob => RowState::of(JobKind::Mpi, job),
            Kind::OptimizationJob => RowState::of(JobKind::Search, job),
            Kind::JobSet => RowState::of_jobset(job),
            Kind::ManagedJob => RowState::Word(managed(job)),
        };
        let (nodes, gpus) = match kind {
            // of its JobSet, once that is there
            Kind::TrainJob => (spec["trainer"]["numNodes"].as_i64(), 0),
            Kind::MpiJob => {
                let workers = view::mpijob::workers(job).1;
                let each = row::gpus_of_pod(&spec["mpiReplicaSpecs"]["Worker"]["template"]);
                (Some(workers), each.saturating_mul(workers))
            }
            Kind::OptimizationJob => (None, 0),
            Kind::JobSet => (row::pods_of_jobset(job), row::gpus_of_jobset(job)),
            // its tasks are in a ConfigMap
            Kind::ManagedJob => (None, 0),
        };
        let message = match kind {
            Kind::MpiJob => view::mpijob::message(job),
            Kind::ManagedJob => managed_message(job),
            _ => view::state::final_message(job),
        };
        Self {
            uid: object::uid(job).into(),
            title: match kind {
                Kind::ManagedJob => format!("{} {}", spec["id"], object::text(spec, "name")).into(),
                Kind::JobSet => of_cluster(job).into(),
                _ => Box::default(),
            },
            created: object::meta(job, "creationTimestamp").parse().map_or(0, Timestamp::as_second),
            stands,
            nodes,
            gpus,
            progress: (kind == Kind::TrainJob).then(|| view::progress::percentage(job)).flatten(),
            queue: object::label(job, KUEUE_QUEUE).unwrap_or_default().into(),
            runtime: match kind {
                Kind::MpiJob => spec["mpiImplementation"].as_str().unwrap_or("OpenMPI").into(),
                _ => object::text(&spec["runtimeRef"], "name").into(),
            },
            search: parent(job).into(),
            owner: match kind {
                Kind::JobSet => object::annotation(job, managed::jobs::USER).unwrap_or_default().into(),
                _ => object::text(spec, "user").into(),
            },
            message: message.chars().take(MESSAGE_MAX).collect::<String>().into(),
        }
    }
}

/// The search that made a job; empty for others.
fn parent(job: &Value) -> &str {
    let owner = object::controller_of(job).filter(|owner| owner["kind"] == "OptimizationJob");
    owner.map_or("", |owner| object::text(owner, "name"))
}

/// What a job of a cluster is called: `lab job 3 (train)`; empty for other JobSets.
fn of_cluster(jobset: &Value) -> String {
    let label = |name| object::label(jobset, name);
    let Some((cluster, number)) = label(keys::CLUSTER).zip(label(keys::JOB)) else { return String::new() };
    match object::annotation(jobset, managed::jobs::NAME) {
        Some(name) if !name.is_empty() && name != cluster => format!("{cluster} job {number} ({name})"),
        _ => format!("{cluster} job {number}"),
    }
}

/// What a managed job waits for, or why it ended: of the first task that has not succeeded, else of the last.
fn managed_message(job: &Value) -> &str {
    let tasks = job["status"]["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let current = tasks.iter().find(|task| task["state"] != "SUCCEEDED").or(tasks.last());
    current.map(|task| object::text(task, "message").trim_end()).unwrap_or_default()
}

fn managed(job: &Value) -> &'static str {
    job["status"]["state"].as_str().and_then(ManagedState::parse).unwrap_or_default().as_str()
}

/// A row as it is sent to a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
    /// As people call it: a managed job by its number and its name.
    pub title: String,
    pub uid: String,
    /// As `trainyard get` calls it: `Running`, `Restarting (3)`.
    pub state: String,
    /// The state without a number, in lower case, for filters and colours: `running`, `restarting`.
    pub group: String,
    /// Why it is so, in a sentence; empty where there is nothing to say.
    pub reason: String,
    pub progress: Option<i64>,
    pub nodes: Option<i64>,
    pub gpus: i64,
    pub restarts: i64,
    pub queue: String,
    pub runtime: String,
    pub owner: String,
    /// The search that it is a trial of.
    pub search: String,
    /// Seconds since 1970.
    pub created: i64,
    /// Trials of a search.
    pub trials: usize,
}

/// The kinds' own words for the same state in one, in lower case, without a number.
pub fn group(state: &str) -> String {
    let word = state.split(' ').next().unwrap_or_default().to_lowercase();
    match word.as_str() {
        "succeeded" => "complete".to_owned(),
        word if word.starts_with("failed") => "failed".to_owned(),
        _ => word,
    }
}

/// Whether a job in this state has ended.
pub fn is_finished(state: &str) -> bool {
    matches!(group(state).as_str(), "complete" | "failed" | "cancelled")
}
