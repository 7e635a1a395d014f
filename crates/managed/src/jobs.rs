//! Jobs of a cluster: JobSets that wait for their turn.
//!
//! A job is up to two JobSets of one number: `setup`, and `run`, which waits for it. Each has a replicated job for every rank, so that
//! a rank can be given its machine when the turn comes: until then the JobSet is suspended, and its node selectors may change.

use api::jobset;
use api::object;
use api::sky::{LaunchManaged, keys};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

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

/// What a job does, and with what.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Submission {
    /// The Cluster's name, uid and namespace.
    pub cluster: String,
    pub cluster_uid: String,
    pub namespace: String,
    /// What the user calls the cluster.
    pub cluster_shown: String,
    /// Number of the job on its cluster, from 1.
    pub id: u32,
    /// Name of the task; empty where it has none.
    pub name: String,
    pub user: String,
    /// How many machines it is for.
    pub nodes: u32,
    /// GPUs for each machine, as asked for.
    pub gpus: f64,
    /// What it asked for, as tables show it.
    pub resources: String,
    /// `sky-2026-01-01-00-00-00-000000`.
    pub run_timestamp: String,
    /// The user's script.
    pub script: String,
    pub is_setup: bool,
    pub has_setup: bool,
    /// What tells what is set up from another configuration.
    pub configuration: String,
    /// The Secret with the task's variables; empty for none.
    pub secret: String,
    /// `cluster_name`, `cloud`, `region`, `zone`.
    pub cluster_info: Value,
    /// The uid of the Launch that submits it; empty for none.
    pub launch: String,
    /// The managed job whose attempt it is.
    pub managed: Option<LaunchManaged>,
}

/// What runs around a user's script: makes the folders, keeps the output in a file and puts a prefix before its lines, hands on
/// SIGTERM, and ends as the script does. Its own stderr goes nowhere: bash would say there that a signal ended the script. Arguments:
/// the script, the file of the log, the prefix and its end. A script that is longer than one argument may be comes in several
/// arguments, whose rest follows these; it is put together in a file beside the log.
const AROUND: &str = r#"log=$HOME/$2
mkdir -p ~/sky_workdir "${log%/*}" && cd ~/sky_workdir || exit 1
exec > >(trap '' TERM INT; tee -a -- "$log" | sed -u "s/^/($3pid=$$$4) /") 2>/dev/null
out=$!
run=(-c "$1")
if (($# > 4)); then
  run=("${log%.log}.sh")
  (umask 077; printf %s "$1" "${@:5}" >"$run") || exit 1
fi
bash "${run[@]}" 2>&1 &
task=$!
trap 'kill -TERM "$task" 2>/dev/null' TERM INT
wait "$task"; code=$?
while kill -0 "$task" 2>/dev/null; do wait "$task"; code=$?; done
exec >&- 2>&-
for ((i = 0; i < 100; i++)); do kill -0 "$out" 2>/dev/null || break; sleep 0.02; done
exit "$code""#;

/// Bytes of a script in one argument. Linux takes 128 KiB (`MAX_ARG_STRLEN`), with its end.
const PIECE_MAX: usize = 96 * 1024;

/// A script in pieces that are short enough for arguments; at least one.
fn pieces(script: &str) -> Vec<&str> {
    let (mut rest, mut found) = (script, Vec::new());
    while rest.len() > PIECE_MAX {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE_MAX));
        found.push(piece);
        rest = after;
    }
    if found.is_empty() || !rest.is_empty() {
        found.push(rest);
    }
    found
}

impl Submission {
    /// A job of a Cluster, under its number, for so many machines.
    pub fn on(cluster: &Value, id: u32, nodes: u32) -> Self {
        Self {
            cluster: object::meta(cluster, "name").to_owned(),
            cluster_uid: object::uid(cluster).to_owned(),
            namespace: object::meta(cluster, "namespace").to_owned(),
            id,
            nodes,
            ..Self::default()
        }
    }

    fn stage(&self) -> &'static str {
        if self.is_setup { "setup" } else { "run" }
    }

    /// `dev-3`, `dev-3-setup`.
    pub fn object_name(&self) -> String {
        let end = if self.is_setup { "-setup" } else { "" };
        format!("{}-{}{end}", self.cluster, self.id)
    }

    /// `sky-TIMESTAMP_CLUSTER_JOBID`; of a managed job, the same in all attempts.
    pub fn task_id(&self) -> String {
        if let Some(managed) = &self.managed {
            return managed.task_id.clone();
        }
        format!("{}_{}_{}", self.run_timestamp, self.cluster_shown, self.id)
    }

    /// The file of a rank's output, in the home directory of its machine.
    pub fn log_file(&self, rank: u32) -> String {
        log_file(&self.run_timestamp, self.is_setup, self.nodes, rank)
    }

    /// The JobSet, suspended.
    pub fn jobset(&self) -> Value {
        let mut annotations = json!({
            NAME: self.name, USER: self.user, RESOURCES: self.resources, LOGS: self.run_timestamp,
            keys::GPUS: self.gpus.to_string(),
        });
        if self.has_setup && !self.is_setup {
            annotations[HAS_SETUP] = "true".into();
        }
        if self.is_setup {
            annotations[CONFIGURATION] = self.configuration.as_str().into();
        }
        if self.is_held() && !self.is_setup {
            annotations[keys::HELD] = "true".into();
        }
        let ranks: Vec<Value> = (0..self.nodes).map(|rank| self.rank(rank)).collect();
        let mut labels = self.labels();
        if !self.launch.is_empty() {
            labels[keys::LAUNCH] = self.launch.as_str().into();
        }
        json!({
            "apiVersion": jobset::API_VERSION, "kind": jobset::KIND,
            "metadata": {
                "name": self.object_name(), "namespace": self.namespace,
                "labels": labels, "annotations": annotations,
                "ownerReferences": [{
                    "apiVersion": api::sky::API_VERSION, "kind": "Cluster", "name": self.cluster, "uid": self.cluster_uid,
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {"suspend": true, "failurePolicy": {"maxRestarts": 0}, "replicatedJobs": ranks},
        })
    }

    /// Whether its `run` waits for its managed job to release it.
    fn is_held(&self) -> bool {
        self.managed.as_ref().is_some_and(|managed| managed.held)
    }

    /// Labels of its JobSet and its pods.
    fn labels(&self) -> Value {
        let mut labels =
            json!({keys::CLUSTER: self.cluster, keys::JOB: self.id.to_string(), keys::STAGE: self.stage()});
        if let Some(managed) = &self.managed {
            labels[keys::MANAGED_JOB] = managed.job.as_str().into();
            labels[keys::TASK] = managed.task.to_string().into();
            labels[keys::ATTEMPT] = managed.attempt.to_string().into();
        }
        labels
    }

    fn rank(&self, rank: u32) -> Value {
        let name = name_of_rank(rank);
        let shown = if self.name.is_empty() { "task" } else { &self.name };
        let (before, after) = match (self.is_setup, self.nodes) {
            (true, 0..=1) => ("setup ".to_owned(), String::new()),
            (true, _) => ("setup ".to_owned(), ", ip=$(TRAINYARD_NODE_IP)".to_owned()),
            (false, 0..=1) => (format!("{}, ", plain(shown)), String::new()),
            (false, _) if rank == 0 => (format!("{name}, rank=0, "), String::new()),
            (false, _) => (format!("{name}, rank={rank}, "), ", ip=$(TRAINYARD_NODE_IP)".to_owned()),
        };
        let log = self.log_file(rank);
        let literal = |text: &str| text.replace('$', "$$");
        let mut script = pieces(&self.script).into_iter();
        let first = script.next().unwrap_or_default();
        let args: Vec<String> = [log, before, after].into_iter().chain(script.map(literal)).collect();
        let mut container = json!({
            "name": "task", "image": "sky",
            "command": ["/bin/bash", "-c", literal(AROUND), "sky", literal(first)],
            "args": args,
            "env": self.environment(rank),
        });
        if !self.secret.is_empty() {
            container["envFrom"] = json!([{"secretRef": {"name": self.secret}}]);
        }
        let mut annotations = json!({keys::NODE_IPS: "", NODE_IP: ""});
        if self.is_held() {
            annotations[keys::HOSTS] = "".into();
        }
        let gpus = whole(self.gpus);
        if gpus > 0 && !self.is_setup {
            container["resources"] = json!({"limits": {"nvidia.com/gpu": gpus.to_string()}});
        }
        json!({"name": name, "replicas": 1, "template": {"spec": {
            "backoffLimit": 0, "completions": 1, "parallelism": 1,
            "template": {
                "metadata": {"labels": self.labels(), "annotations": annotations},
                "spec": {
                    "restartPolicy": "Never",
                    "nodeSelector": {keys::CLUSTER: self.cluster},
                    "tolerations": [{"key": keys::CLUSTER, "operator": "Equal", "value": self.cluster, "effect": "NoSchedule"}],
                    "containers": [container],
                },
            },
        }}})
    }

    fn environment(&self, rank: u32) -> Vec<Value> {
        let stage = if self.is_setup { "SKYPILOT_SETUP_" } else { "SKYPILOT_" };
        let text = |name: &str, value: String| json!({"name": name, "value": value.replace('$', "$$")});
        let field = |name: String, key: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": format!("metadata.annotations['{key}']")}}});
        let gpus = whole(self.gpus).to_string();
        let mut env = vec![
            text("PYTHONUNBUFFERED", "1".into()),
            text("SKYPILOT_TASK_ID", self.task_id()),
            text("SKYPILOT_CLUSTER_INFO", self.cluster_info.to_string()),
            text("SKYPILOT_USER", self.user.clone()),
            text("SKYPILOT_USER_ID", self.user.clone()),
            text(&format!("{stage}NODE_RANK"), rank.to_string()),
            field(format!("{stage}NODE_IPS"), keys::NODE_IPS),
            field("TRAINYARD_NODE_IP".into(), NODE_IP),
            text(&format!("{stage}NUM_GPUS_PER_NODE"), gpus),
        ];
        if !self.is_setup {
            env.push(text("SKYPILOT_NUM_NODES", self.nodes.to_string()));
            env.push(text("SKYPILOT_INTERNAL_JOB_ID", self.id.to_string()));
        }
        let further = self.managed.iter().flat_map(|managed| &managed.env);
        env.extend(further.map(|(name, value)| text(name, value.clone())));
        env
    }
}

/// Annotation of a pod: the address of its machine.
const NODE_IP: &str = "sky.trainyard.dev/node-ip";

/// Without what `sed` and `$(…)` would read.
fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_alphanumeric() || "._- ".contains(*c)).collect()
}

/// `head`, `worker1`, …
pub fn name_of_rank(rank: u32) -> String {
    if rank == 0 { "head".to_owned() } else { format!("worker{rank}") }
}

/// `sky_logs/TIMESTAMP/run.log`, in the home directory of the machine.
pub fn log_file(run_timestamp: &str, is_setup: bool, nodes: u32, rank: u32) -> String {
    let file = match (is_setup, nodes) {
        (true, _) => format!("setup-{}.log", name_of_rank(rank)),
        (false, 0..=1) => "run.log".to_owned(),
        (false, _) => format!("{rank}-{}.log", name_of_rank(rank)),
    };
    format!("sky_logs/{run_timestamp}/{file}")
}

/// GPUs that a process sees: those asked for, rounded up.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
pub fn whole(gpus: f64) -> u32 {
    gpus.ceil().clamp(0.0, 1e6) as u32
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_scripts_go_in_pieces() {
        for script in [String::new(), "x".repeat(PIECE_MAX), "é".repeat(PIECE_MAX), "x€".repeat(PIECE_MAX)] {
            let pieces = pieces(&script);
            assert_eq!(pieces.concat(), script);
            assert!(!pieces.is_empty() && pieces.iter().all(|piece| piece.len() <= PIECE_MAX));
        }
    }
}
