//! The protocol between the agent and a pod's shim: the launch description (written once, before the shim
//! starts), the journal (appended by the shim, read by the agent), and the requests on the shim's socket.
//!
//! These files outlive the program that wrote them (a pod may run across an upgrade), so members are only ever added, with
//! a serde default, and a shim and an agent of different versions talk to each other. [`PROTOCOL`] numbers the versions: an agent
//! adopts pods of its own version and of all before it, and leaves those of later ones alone.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The version of everything in this file. It grows with each change that a program of the version before could misread.
///
/// 1. Before versions were written down.
/// 2. Hooks over HTTP and what became of hooks, groups and limits, a grace of its own for a container that is killed.
pub const PROTOCOL: u32 = 2;

fn first_protocol() -> u32 {
    1
}

/// What an agent has to know of any pod on its machine, of whatever version: these members mean the same in all of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    #[serde(default = "first_protocol")]
    pub protocol: u32,
    pub uid: String,
    pub namespace: String,
    pub hostname: String,
    pub address: String,
    #[serde(default)]
    pub subdomain: String,
    #[serde(default)]
    pub gpus: BTreeMap<String, Vec<u32>>,
    #[serde(default)]
    pub ports: BTreeMap<u16, u16>,
    #[serde(default)]
    pub cgroup: Option<PathBuf>,
}

/// How much of a machine of its own a pod gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "mode")]
pub enum Isolation {
    /// Own mount, UTS and IPC namespaces: own host name, `/etc/hosts`, `/dev/shm`, volumes at their paths.
    #[serde(rename_all = "camelCase")]
    Hosts {
        /// Inside a user namespace of its own, because the agent is not root (or a root that may not mount).
        user_namespace: bool,
    },
    /// A plain process of the host: no namespaces; names and paths are rewritten in arguments and environment.
    Plain {
        /// Why the kernel refused more; empty if plain was asked for.
        why: String,
    },
}

impl Isolation {
    /// Whether pods have names, addresses and paths of their own.
    pub fn is_hosts(&self) -> bool {
        matches!(self, Isolation::Hosts { .. })
    }
}

/// A pod's restart policy, or that of one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    /// `Always` where the text is none of the three (the API server admits no other).
    pub fn parse(text: &str) -> Self {
        match text {
            "OnFailure" => RestartPolicy::OnFailure,
            "Never" => RestartPolicy::Never,
            _ => RestartPolicy::Always,
        }
    }

    /// Whether a container that ended with this exit code is started again.
    pub fn restarts(self, exit_code: i32) -> bool {
        match self {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => exit_code != 0,
            RestartPolicy::Never => false,
        }
    }
}

/// Everything that the shim needs to run a pod; nothing is looked up later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Launch {
    /// The version of the description; the shim that runs it speaks the same.
    #[serde(default = "first_protocol")]
    pub protocol: u32,
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub isolation: Isolation,
    pub hostname: String,
    /// The pod's address (`127.x.y.z`).
    pub address: String,
    /// Bound over `/etc/hosts`; rewritten in place as peers come and go.
    pub hosts_file: PathBuf,
    pub restart_policy: RestartPolicy,
    /// Seconds between SIGTERM and SIGKILL unless a stop request says otherwise.
    pub grace_secs: u64,
    /// Seconds from the pod's start after which it is stopped and failed.
    pub active_deadline_secs: Option<u64>,
    /// Where a time without an own start is counted from (RFC 3339).
    pub start_time: Timestamp,
    /// Directories of memory-backed volumes and their size limit in bytes: a tmpfs is mounted over each.
    #[serde(default)]
    pub tmpfs: Vec<Tmpfs>,
    pub init_containers: Vec<ContainerLaunch>,
    pub containers: Vec<ContainerLaunch>,
    /// Indices of the GPUs that each container was given, so that a restarted agent hands none out twice.
    #[serde(default)]
    pub gpus: BTreeMap<String, Vec<u32>>,
    /// Ports that stand for the ports the containers asked for (`29500` → `20017`), shared by the pods of one subdomain.
    #[serde(default)]
    pub ports: BTreeMap<u16, u16>,
    #[serde(default)]
    pub subdomain: String,
    /// The pod's group (cgroup v2), which the shim makes; absent where the machine lends none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// Of the pod as a whole.
    #[serde(default)]
    pub limits: Limits,
    /// Bytes after which a log file is rotated, and how many files are kept in all.
    pub log_bytes_max: u64,
    pub log_files_max: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tmpfs {
    pub path: PathBuf,
    pub size_bytes: Option<u64>,
}

/// What a container, or a pod, may use and is to have a share of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Bytes of memory; no limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Bytes of memory that it counts on; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_request_bytes: Option<u64>,
    /// Thousandths of a processor; no limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_milli: Option<u64>,
    /// Thousandths of a processor that it gets where others want more than there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_request_milli: Option<u64>,
}

/// One container, resolved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerLaunch {
    pub name: String,
    /// Program and arguments; the program is looked up on the container's own PATH.
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub working_dir: PathBuf,
    pub mounts: Vec<Mount>,
    /// Where the termination message is written (host path), read when the container ends.
    pub termination_message: PathBuf,
    /// If no termination message was written by a failed container, the end of its log stands in.
    pub fallback_to_logs: bool,
    /// The pod's policy, or the container's own. An init container with `Always` is a sidecar.
    pub restart_policy: RestartPolicy,
    /// Exit codes for which the container's own rules restart it, whatever the policy.
    #[serde(default)]
    pub restart_rules: Vec<RestartRule>,
    #[serde(default)]
    pub sidecar: bool,
    /// Wait for the agent's word (a startup probe) before what comes after a sidecar is started.
    #[serde(default)]
    pub startup_probe: bool,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub post_start: Option<Hook>,
    #[serde(default)]
    pub pre_stop: Option<Hook>,
    /// Number of the signal that asks the container to end; SIGTERM if absent.
    #[serde(default)]
    pub stop_signal: Option<i32>,
    /// The container cannot be started at all, and why (`RunContainerError`): it ends with exit code 128.
    #[serde(default)]
    pub refused: Option<String>,
}

/// `restartPolicyRules` of a container: restart on these exit codes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartRule {
    /// `In` if false.
    pub not_in: bool,
    pub codes: Vec<i32>,
}

/// A lifecycle hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Hook {
    Exec(Vec<String>),
    SleepSecs(u64),
    /// Any answer will do.
    HttpGet(HttpGet),
    /// One that cannot be run, and why: it fails.
    Invalid(String),
}

/// A GET request, resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpGet {
    pub https: bool,
    /// A name or an address, which is without brackets.
    pub host: String,
    pub port: u16,
    /// Begins with `/`; with the query.
    pub path: String,
    pub headers: Vec<(String, String)>,
}

/// Which of a container's two lifecycle hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookKind {
    PostStart,
    PreStop,
}

/// A bind mount of a file or a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    pub source: PathBuf,
    pub target: PathBuf,
    pub read_only: bool,
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub at: Timestamp,
    /// How long the machine had been up, in milliseconds. Unlike clocks, nobody sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime: Option<u64>,
    #[serde(flatten)] // one flat JSON object a line, for the people who read journals with jq
    pub event: Event,
}

impl Record {
    /// That this happens now.
    pub fn now(event: Event) -> Self {
        Self { at: clock::now(), uptime: u64::try_from(clock::uptime().as_millis()).ok(), event }
    }
}

/// What happened to a pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "event")]
pub enum Event {
    /// The shim took the pod; a pod directory has at most one of these.
    Taken { pid: i32, boot_id: String },
    /// A container's process was executed.
    Running { container: String, attempt: u32, pid: i32 },
    /// A container's process and all that it had started are gone; its log is complete.
    Exited { container: String, attempt: u32, exit: Exit },
    /// A container waits to be started again.
    Waiting { container: String, attempt: u32, back_off_secs: u64 },
    /// A sidecar or container with a startup probe was said to have started by the agent.
    Started { container: String, attempt: u32 },
    /// A lifecycle hook did not do what it should: after a post-start hook the container is ended, too.
    HookFailed { container: String, attempt: u32, hook: HookKind, message: String },
    /// The pod is being stopped.
    Stopping { why: StopReason, grace_secs: u64 },
    /// Nothing of the pod runs any more, and nothing will.
    Finished,
    /// Written by an agent that found the shim dead without `Finished`: what ran is unknown and gone.
    Lost { message: String },
}

/// During which boot of the machine the shim took the pod; `None` where it has not.
pub fn boot_of(records: &[Record]) -> Option<&str> {
    records.iter().find_map(|record| match &record.event {
        Event::Taken { boot_id, .. } => Some(boot_id.as_str()),
        Event::Running { .. }
        | Event::Exited { .. }
        | Event::Waiting { .. }
        | Event::Started { .. }
        | Event::HookFailed { .. }
        | Event::Stopping { .. }
        | Event::Finished
        | Event::Lost { .. } => None,
    })
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    /// As a shell counts: 128 + number for a signal.
    pub code: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`, `RunContainerError`.
    pub reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    /// The most memory that one of its processes had resident, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
}

/// Why a pod was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// The pod object is being deleted, or is gone.
    Deleted,
    /// `activeDeadlineSeconds` passed.
    DeadlineExceeded,
    /// Somebody sent SIGTERM to the shim: the machine is going down.
    Shutdown,
}

/// A request on the shim's socket: one JSON line; an exec's file descriptors travel with its first byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "op")]
pub enum Request {
    /// From now on, one newline is sent after every journal record.
    Subscribe,
    /// Stop the pod; a later stop can only shorten the grace.
    #[serde(rename_all = "camelCase")]
    Stop { grace_secs: u64 },
    /// End a container (a failed liveness probe); the restart policy decides what follows.
    #[serde(rename_all = "camelCase")]
    Kill {
        container: String,
        message: String,
        /// The pod's grace period if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grace_secs: Option<u64>,
        /// Set if the container is ended because of the memory that it uses: it is killed at once, and its status gives the
        /// message as the reason. A shim of an older version ignores this field and uses `grace_secs`, which is then 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        over_memory: Option<OverMemory>,
    },
    /// A startup probe succeeded.
    Started { container: String },
    /// Run a command in a container. Three descriptors (stdin, stdout, stderr) or, with a terminal, one.
    #[serde(rename_all = "camelCase")]
    Exec {
        container: String,
        argv: Vec<String>,
        tty: bool,
        /// Kill the command when the connection closes (probes).
        kill_on_close: bool,
    },
}

/// An attempt of a container that uses more memory than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OverMemory {
    pub attempt: u32,
    pub used_bytes: u64,
}

/// The answer to `Exec`, one JSON line each: `Started` or `Refused`, then `Exited`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "reply")]
pub enum Reply {
    Started { pid: i32 },
    Refused { message: String },
    Exited { code: i32 },
}
