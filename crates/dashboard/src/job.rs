//! A job's page: why it is as it is, what happened to it, its members, its text. The values are those that `trainyard explain`, `describe` and
//! `trials` print.

use crate::problem::Problem;
use crate::row::Kind;
use crate::server::SignedIn;
use crate::sessions::Session;
use crate::sheet::{Command, Part};
use crate::sheets::managed_job;
use api::job_kind::JobKind;
use api::object;
use axum::Json;
use axum::extract::Path;
use client::{ClientError, Cluster};
use diagnose::{Facts, diagnose};
use facts::{ThisMachine, history};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use view::members::{self, JobMember, TimelineEntry};
use view::state::{Attempts, Phase, RestartCounts};
use view::trials::{self, Trial};

/// A job as an address names it.
pub(crate) struct Named {
    pub kind: Kind,
    pub name: String,
    /// The API server, asked as the user, in the job's namespace.
    pub cluster: Cluster,
}

/// The kind, namespace and name of an address.
pub(crate) type Address = Path<(String, String, String)>;

impl Named {
    pub fn of(session: &Session, Path((kind, namespace, name)): Address) -> Result<Self, Problem> {
        let kind =
            Kind::parse(&kind).ok_or_else(|| Problem::not_found(format!("there is no kind of jobs {kind:?}")))?;
        for (what, text) in [("namespace", &namespace), ("name", &name)] {
            let faults = api::names::subdomain_faults(text, false);
            if let Some(fault) = faults.first() {
                return Err(Problem::not_found(format!("{text:?} is not the {what} of a job: {fault}")));
            }
        }
        let cluster = Cluster { namespace, ..session.cluster.clone() };
        Ok(Self { kind, name, cluster })
    }

    pub async fn object(&self) -> Result<Value, Problem> {
        let found = self.cluster.find(self.kind.into(), &self.name).await?;
        found.ok_or_else(|| {
            let Self { kind, name, cluster } = self;
            Problem::not_found(format!(
                "{} \"{name}\" does not exist in namespace {}",
                kind.as_str(),
                cluster.namespace
            ))
        })
    }

    /// A command of ours about this job; `None` for kinds that ours do not know.
    pub fn trainyard(&self, verb: &str) -> Option<String> {
        let Self { kind, name, cluster } = self;
        let name = kind.of_command()?.short_name(name);
        let namespace = match cluster.namespace.as_str() {
            "default" => String::new(),
            other => format!(" -n {other}"),
        };
        Some(format!("trainyard {verb} {name}{namespace}{}", cluster.flags))
    }

    /// What leads kubectl to the job's namespace.
    pub fn kubectl(&self) -> String {
        format!("kubectl{} -n {}", self.cluster.kubectl_flags, self.cluster.namespace)
    }
}

/// What a job's page shows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobPage {
    kind: Kind,
    namespace: String,
    name: String,
    uid: String,
    state: String,
    is_finished: bool,
    is_suspended: bool,
    /// As `trainyard explain -o json` prints it; null for kinds that it does not judge.
    diagnosis: Value,
    message: String,
    members: Vec<JobMember>,
    moments: Vec<TimelineEntry>,
    attempt: i64,
    attempts: i64,
    restarts: i64,
    progress: Option<i64>,
    progress_line: String,
    /// Its place among those that wait, in words; empty where it does not wait.
    queue: String,
    /// As `trainyard trials -o json` has them.
    trials: Vec<Value>,
    /// What its trials are judged by; null for jobs that are no search.
    search: Option<Search>,
    /// What only jobs of this kind have.
    parts: Vec<Part>,
    commands: Vec<Command>,
    /// The object as YAML.
    yaml: String,
    /// The server's time, seconds since 1970.
    now: i64,
}

/// What the trials of a search are judged by.
#[derive(Debug, Serialize)]
struct Search {
    metric: String,
    /// `Minimize`, `Maximize`.
    direction: String,
    /// Trials that were better than all before them.
    best: Vec<Best>,
}

#[derive(Debug, Serialize)]
struct Best {
    at: String,
    value: f64,
    trial: String,
}

impl From<trials::BestSoFar> for Best {
    fn from(trials::BestSoFar { at, value, trial }: trials::BestSoFar) -> Self {
        Self { at, value, trial }
    }
}

/// A job's page.
pub async fn page(SignedIn(session): SignedIn, address: Address) -> Result<Json<JobPage>, Problem> {
    let named = Named::of(&session, address)?;
    let job = named.object().await?;
    let facts = facts_of(&named, job.clone()).await?;
    let past = match named.kind {
        Kind::TrainJob => history::of(&named.cluster, history::Job::Train(&named.name)).await.unwrap_or_default(),
        Kind::MpiJob => history::of(&named.cluster, history::Job::Mpi(&named.name)).await.unwrap_or_default(),
        Kind::OptimizationJob | Kind::JobSet | Kind::ManagedJob => None,
    };
    let members = members::of(&facts.pods, past.as_ref());
    let events = diagnose::events_of_job(&facts);
    let owners: Vec<&Value> = [&facts.job, &facts.jobset].into_iter().filter(|owner| !owner.is_null()).collect();
    let moments = members::moments(&owners, &events, &members);
    let is_judged = matches!(named.kind, Kind::TrainJob | Kind::MpiJob);
    let diagnosis = if is_judged { view::explained::json(&diagnose(&facts)) } else { Value::Null };
    let live: Vec<Value> = facts.pods.iter().filter(|pod| pod.live).map(|pod| pod.pod.clone()).collect();
    let kept = crate::row::Kept::of(named.kind, &job);
    let mut signs = diagnose::Signs::default();
    live.iter().for_each(|pod| signs.see(pod, facts.now));
    let restarts = view::row::restarts_of_jobset(&facts.jobset);
    let state = kept.stands.word(restarts, &signs, facts.now);
    let counts = RestartCounts::of(&facts.jobset, &live);
    let attempts = Attempts::of(&job);
    let is_running = |pod: &&Value| pod["status"]["phase"] == "Running";
    let running = live.iter().filter(is_running).count();
    let waits = named.kind == Kind::TrainJob && Phase::of(&job) == Phase::Pending;
    let queue = match waits {
        true => facts::queue::place(&named.cluster, &named.name)
            .await
            .ok()
            .flatten()
            .map(|place| view::queue::told_place(&place)),
        false => None,
    };
    let suspended = match named.kind {
        Kind::MpiJob => &job["spec"]["runPolicy"]["suspend"],
        _ => &job["spec"]["suspend"],
    };
    let (trials, search) = match named.kind {
        Kind::OptimizationJob => search_of(&named, &job).await.map(|(trials, search)| (trials, Some(search)))?,
        _ => (Vec::new(), None),
    };
    Ok(Json(JobPage {
        kind: named.kind,
        namespace: named.cluster.namespace.clone(),
        name: named.name.clone(),
        uid: object::uid(&job).to_owned(),
        is_finished: crate::row::is_finished(&state),
        is_suspended: suspended == true,
        state,
        diagnosis,
        message: kept.message.to_string(),
        attempt: attempts.now,
        attempts: attempts.most,
        restarts: counts.jobset.saturating_add(counts.containers).saturating_add(kept.stands.retries()),
        progress: kept.progress,
        progress_line: match named.kind {
            Kind::TrainJob => view::progress::line(&job, running, live.len()),
            _ => String::new(),
        },
        queue: queue.unwrap_or_default(),
        trials,
        search,
        parts: match named.kind {
            Kind::ManagedJob => managed_job::parts(&named.cluster, &job, facts.now),
            _ => Vec::new(),
        },
        commands: commands(&named),
        yaml: yaml(job),
        members,
        moments,
        now: facts.now.as_second(),
    }))
}

async fn facts_of(named: &Named, job: Value) -> Result<Facts, ClientError> {
    let cluster = &named.cluster;
    match named.kind {
        Kind::TrainJob => facts::of(cluster, job, &ThisMachine).await,
        Kind::MpiJob => facts::of_mpijob(cluster, job).await,
        Kind::JobSet => facts::of_jobset(cluster, job).await,
        // they have no pods of their own
        Kind::OptimizationJob | Kind::ManagedJob => {
            let events = facts::events(cluster, &named.name).await.unwrap_or_default();
            Ok(Facts { job, events, now: Timestamp::now(), ..Facts::default() })
        }
    }
}

async fn search_of(named: &Named, search: &Value) -> Result<(Vec<Value>, Search), ClientError> {
    let labels = format!("{}={}", trials::PARENT, named.name);
    let jobs = named.cluster.list(client::Kind::TrainJob, &labels).await?;
    let trials: Vec<Trial<'_>> = jobs.iter().filter_map(|job| Trial::of(job, search)).collect();
    let summary = trials::summary(search, &trials);
    let of_search = Search {
        metric: trials::metric(search).to_owned(),
        direction: object::text(&search["spec"]["objectives"][0], "direction").to_owned(),
        best: trials::best_over_time(search, &trials).into_iter().map(Best::from).collect(),
    };
    Ok((summary["trials"].as_array().cloned().unwrap_or_default(), of_search))
}

/// The object as people read it: without the record of who wrote which field.
pub(crate) fn yaml(mut job: Value) -> String {
    if let Some(meta) = job["metadata"].as_object_mut() {
        meta.remove("managedFields");
    }
    serde_saphyr::to_string(&job).unwrap_or_default()
}

/// What shows or does the same on a command line.
fn commands(named: &Named) -> Vec<Command> {
    let resource = client::Kind::from(named.kind).resource();
    let get = format!("{} get {}.{} {} -o yaml", named.kubectl(), resource.plural, resource.group, named.name);
    let mut commands = Vec::new();
    if let Some(job) = named.kind.of_command() {
        let ours = |verb: &str| named.trainyard(verb).unwrap_or_default();
        commands.push(Command { title: "Explain", command: ours("explain") });
        match job {
            JobKind::Search => commands.push(Command { title: "Trials", command: ours("trials") }),
            JobKind::Train | JobKind::Mpi => {
                commands.push(Command { title: "Logs", command: ours("logs") });
                commands.push(Command { title: "Suspend", command: ours("suspend") });
                commands.push(Command { title: "Resume", command: ours("resume") });
            }
        }
        commands.push(Command { title: "Delete", command: ours("delete") });
    }
    commands.push(Command { title: "Read", command: get });
    commands
}
