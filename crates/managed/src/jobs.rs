//! Jobs of a cluster: JobSets that wait for their turn.
//!
//! A job is up to two JobSets of one number: `setup`, and `run`, which waits for it. Each has a replicated job for every rank, so that
//! a rank can be given its machine when the turn comes: until then the JobSet is suspended, and its node selectors may change.

mod submission;

pub use submission::{Submission, log_file, name_of_rank, whole};

use api::object;
use api::sky::keys;
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use submission::NODE_IP;

/// Annotations of a `run` JobSet, for people: what the job is called, who submitted it, what it asked for, where its logs are.
pub const NAME: &str = "sky.trainyard.dev/name";
pub const USER: &str = "sky.trainyard.dev/user";
pub const RESOURCES: &str = "sky.trainyard.dev/resources";
pub const LOGS: &str = "sky.trainyard.dev/logs";
/// Annotation of a `run` JobSet that a `setup` one comes before.
pub const HAS_SETUP: &str = "sky.trainyard.dev/has-setup";
/// Annotation of a `setup` JobSet: what it set up, as its client tells one configuration from another.
pub const CONFIGURATION: &str = "sky.trainyard.dev/configuration";
/// How long a `run` waits for a `setup` that its client has not made: seconds.
const SETUP_MAX: i64 = 60;

/// Where a job stands, in SkyPilot's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    Pending,
    SettingUp,
    Running,
    Succeeded,
    Failed,
    FailedSetup,
    FailedDriver,
    Cancelled,
}

impl Status {
    /// `SETTING_UP`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::SettingUp => "SETTING_UP",
            Self::Running => "RUNNING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::FailedSetup => "FAILED_SETUP",
            Self::FailedDriver => "FAILED_DRIVER",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// Whether nothing more comes.
    pub fn has_ended(self) -> bool {
        !matches!(self, Self::Pending | Self::SettingUp | Self::Running)
    }

    /// The exit code of a command that waits for the job: 0, 100 failed, 101 not over, 103 cancelled.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Succeeded => 0,
            Self::Failed | Self::FailedSetup | Self::FailedDriver => 100,
            Self::Pending | Self::SettingUp | Self::Running => 101,
            Self::Cancelled => 103,
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Cancelled, Self::Failed, Self::FailedSetup, Self::FailedDriver]
            .into_iter()
            .find(|one| one.as_str() == name)
    }
}

/// A job, as its JobSets tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub id: u32,
    pub status: Status,
    pub name: String,
    pub user: String,
    pub resources: String,
    pub run_timestamp: String,
    pub nodes: u32,
    pub gpus: f64,
    /// Whether it may pass jobs that wait.
    pub backfill: bool,
    /// Whether its `run` waits for its managed job to release it.
    pub is_held: bool,
    pub submitted: Option<Timestamp>,
    pub started: Option<Timestamp>,
    pub ended: Option<Timestamp>,
    /// The machines that it was given, by Node, in the order of ranks; none before its turn.
    pub machines: Vec<String>,
    pub setup: Option<Value>,
    pub run: Value,
}

fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

fn condition<'a>(jobset: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut all = jobset["status"]["conditions"].as_array()?.iter();
    all.find(|one| one["type"] == kind && one["status"] == "True")
}

/// How a JobSet ended, and when.
fn end(jobset: &Value) -> Option<(Status, Option<Timestamp>)> {
    if let Some(ended) = object::annotation(jobset, keys::ENDED) {
        let (status, at) = ended.split_once(' ').unwrap_or((ended, ""));
        return Some((Status::from_name(status).unwrap_or(Status::Failed), time(at)));
    }
    [("Completed", Status::Succeeded), ("Failed", Status::Failed)].into_iter().find_map(|(kind, status)| {
        let found = condition(jobset, kind)?;
        Some((status, time(object::text(found, "lastTransitionTime"))))
    })
}

/// What [`keys::ENDED`] says of a job that is ended from outside.
pub fn ended(status: Status, now: Timestamp) -> String {
    format!("{} {now}", status.as_str())
}

fn turn(jobset: &Value) -> Option<Timestamp> {
    object::annotation(jobset, keys::TURN).and_then(time)
}

/// The jobs of a cluster's JobSets, by number.
pub fn jobs<'a>(jobsets: impl IntoIterator<Item = &'a Value>) -> Vec<Job> {
    let mut stages: BTreeMap<u32, (Option<Value>, Option<Value>)> = BTreeMap::new();
    for jobset in jobsets {
        let Some(id) = object::label(jobset, keys::JOB).and_then(|id| id.parse().ok()) else { continue };
        let entry = stages.entry(id).or_default();
        match object::label(jobset, keys::STAGE) {
            Some("setup") => entry.0 = Some(jobset.clone()),
            _ => entry.1 = Some(jobset.clone()),
        }
    }
    stages.into_iter().filter_map(|(id, (setup, run))| Some(job(id, setup, run?))).collect()
}

fn job(id: u32, setup: Option<Value>, run: Value) -> Job {
    let text = |name: &str| object::annotation(&run, name).unwrap_or_default().to_owned();
    let ranks = run["spec"]["replicatedJobs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let setup_end = setup.as_ref().and_then(end);
    let (status, ended) = match (end(&run), &setup_end, &setup) {
        (Some((status, at)), _, _) => (status, at),
        (None, Some((Status::Succeeded, _)) | None, None) | (None, Some((Status::Succeeded, _)), Some(_)) => {
            (if turn(&run).is_some() { Status::Running } else { Status::Pending }, None)
        }
        (None, Some((Status::Failed, at)), _) => (Status::FailedSetup, *at),
        (None, Some((status, at)), _) => (*status, *at),
        (None, None, Some(setup)) if turn(setup).is_some() => (Status::SettingUp, None),
        (None, None, Some(_)) => (Status::Pending, None),
    };
    let started_by = turn(&run).or_else(|| setup.as_ref().and_then(turn));
    let placed = if turn(&run).is_some() { Some(&run) } else { setup.as_ref().filter(|setup| turn(setup).is_some()) };
    let machines = placed.map(machines_of).unwrap_or_default();
    Job {
        id,
        status,
        name: text(NAME),
        user: text(USER),
        resources: text(RESOURCES),
        run_timestamp: text(LOGS),
        nodes: u32::try_from(ranks.len()).unwrap_or(u32::MAX),
        gpus: text(keys::GPUS).parse().unwrap_or(0.0),
        backfill: object::annotation(&run, keys::BACKFILL) == Some("true"),
        is_held: object::annotation(&run, keys::HELD) == Some("true"),
        submitted: time(object::meta(&run, "creationTimestamp")),
        started: started_by,
        ended,
        machines,
        setup,
        run,
    }
}

fn machines_of(jobset: &Value) -> Vec<String> {
    let ranks = jobset["spec"]["replicatedJobs"].as_array().into_iter().flatten();
    let of = |rank: &Value| {
        let selector = &rank["template"]["spec"]["template"]["spec"]["nodeSelector"];
        selector[HOSTNAME].as_str().map(str::to_owned)
    };
    ranks.filter_map(of).collect()
}

const HOSTNAME: &str = "kubernetes.io/hostname";

/// What a machine of the cluster has for jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Room {
    pub node: String,
    pub address: String,
    pub cpus: f64,
    pub gpus: f64,
}

/// Processors that a job holds on each of its machines, whatever it asked for.
const CPUS_OF_JOB: f64 = 0.5;

/// The JobSets whose turn it is, as they are to be written; and those that are to be marked as ended. First in, first out: a job that does not
/// fit holds up those behind it, unless they say that they may pass.
pub fn turns(jobs: &[Job], rooms: &[Room], now: Timestamp) -> Vec<Value> {
    let mut free: Vec<Room> = rooms.to_vec();
    let mut writes = Vec::new();
    let mut held_up = false;
    for job in jobs.iter().filter(|job| !job.machines.is_empty() && !job.status.has_ended()) {
        for room in free.iter_mut().filter(|room| job.machines.contains(&room.node)) {
            room.cpus -= CPUS_OF_JOB;
            room.gpus -= job.gpus;
        }
    }
    for job in jobs {
        if job.status == Status::FailedSetup && end(&job.run).is_none() {
            writes.push(marked(&job.run, Status::FailedSetup, job.ended.unwrap_or(now)));
            continue;
        }
        if job.status != Status::Pending {
            continue;
        }
        if object::annotation(&job.run, HAS_SETUP).is_some() && job.setup.is_none() {
            let late = job.submitted.is_none_or(|at| api::time::later_secs(at, SETUP_MAX) <= now);
            match late {
                true => writes.push(marked(&job.run, Status::FailedSetup, now)),
                false => held_up = true,
            }
            continue;
        }
        // its setup is over, and it has its machines
        if let (Some(setup), false) = (&job.setup, job.machines.is_empty()) {
            if turn(setup).is_some() && !job.is_held {
                writes.push(placed(&job.run, rooms, &job.machines, now));
            }
            continue;
        }
        // without a setup there is nothing to do while it is held
        if job.is_held && job.setup.is_none() {
            held_up = true;
            continue;
        }
        if held_up && !job.backfill {
            continue;
        }
        let fits = |room: &&Room| room.cpus >= CPUS_OF_JOB && room.gpus >= job.gpus;
        let chosen: Vec<String> =
            free.iter().filter(fits).take(job.nodes as usize).map(|room| room.node.clone()).collect();
        if chosen.len() < job.nodes as usize {
            held_up = true;
            continue;
        }
        for room in free.iter_mut().filter(|room| chosen.contains(&room.node)) {
            room.cpus -= CPUS_OF_JOB;
            room.gpus -= job.gpus;
        }
        writes.push(placed(job.setup.as_ref().unwrap_or(&job.run), rooms, &chosen, now));
    }
    writes
}

/// A JobSet whose turn it is: each rank on its machine, told of all addresses.
fn placed(jobset: &Value, rooms: &[Room], nodes: &[String], now: Timestamp) -> Value {
    let mut jobset = jobset.clone();
    let address = |node: &String| {
        let room = rooms.iter().find(|room| room.node == *node);
        room.map(|room| room.address.clone()).unwrap_or_default()
    };
    let addresses: Vec<String> = nodes.iter().map(address).collect();
    let ranks = jobset["spec"]["replicatedJobs"].as_array_mut().into_iter().flatten();
    for ((rank, node), own) in ranks.zip(nodes).zip(&addresses) {
        let pod = &mut rank["template"]["spec"]["template"];
        pod["spec"]["nodeSelector"][HOSTNAME] = node.as_str().into();
        pod["metadata"]["annotations"][keys::NODE_IPS] = addresses.join("\n").into();
        pod["metadata"]["annotations"][NODE_IP] = own.as_str().into();
    }
    jobset["spec"]["suspend"] = false.into();
    jobset["metadata"]["annotations"][keys::TURN] = now.to_string().into();
    jobset
}

/// A `run` JobSet that is held no longer. `hosts`: addresses and names of the machines of its group ([`keys::HOSTS`]).
pub fn released(jobset: &Value, hosts: &str) -> Value {
    let mut jobset = jobset.clone();
    for rank in jobset["spec"]["replicatedJobs"].as_array_mut().into_iter().flatten() {
        rank["template"]["spec"]["template"]["metadata"]["annotations"][keys::HOSTS] = hosts.into();
    }
    if let Some(annotations) = jobset["metadata"]["annotations"].as_object_mut() {
        annotations.remove(keys::HELD);
    }
    jobset
}

/// A JobSet that is ended from outside: suspended, so that its pods go, and marked.
pub fn marked(jobset: &Value, status: Status, at: Timestamp) -> Value {
    let mut jobset = jobset.clone();
    jobset["spec"]["suspend"] = true.into();
    if !jobset["metadata"]["annotations"].is_object() {
        jobset["metadata"]["annotations"] = Value::Object(Map::new());
    }
    jobset["metadata"]["annotations"][keys::ENDED] = ended(status, at).into();
    jobset
}

/// Whether pods of the JobSet may still run.
pub fn is_active(jobset: &Value) -> bool {
    let counts = jobset["status"]["replicatedJobsStatus"].as_array().into_iter().flatten();
    let suspended = jobset["spec"]["suspend"].as_bool().unwrap_or(false);
    let over = condition(jobset, "Completed").is_some() || condition(jobset, "Failed").is_some();
    counts.into_iter().any(|one| one["active"].as_i64().unwrap_or(0) > 0) || (!suspended && !over)
}

/// Whether a job that is held has nothing left to do before its `run`.
pub fn is_ready(job: &Job) -> bool {
    let needs_setup = object::annotation(&job.run, HAS_SETUP).is_some();
    let is_set_up = |setup: &Value| end(setup).is_some_and(|(status, _)| status == Status::Succeeded);
    !job.status.has_ended() && job.setup.as_ref().map_or(!needs_setup, is_set_up)
}

/// Whether one of the jobs has set up this configuration, and was submitted since then.
pub fn is_set_up(jobs: &[Job], configuration: &str, since: Timestamp) -> bool {
    jobs.iter()
        .filter(|job| job.submitted.is_some_and(|at| at.as_second() >= since.as_second()))
        .filter_map(|job| job.setup.as_ref())
        .any(|setup| {
            object::annotation(setup, CONFIGURATION) == Some(configuration)
                && end(setup).is_some_and(|(status, _)| status == Status::Succeeded)
        })
}

/// The JobSets of a job.
pub fn stages(job: &Job) -> impl Iterator<Item = &Value> {
    job.setup.iter().chain([&job.run])
}
