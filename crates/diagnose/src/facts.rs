//! The input of a diagnosis: a job, the objects that belong to it, and the ends of its logs.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// All that is known of one job. A part that could not be read is null or empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Facts {
    /// The TrainJob or MPIJob.
    pub job: Value,
    pub jobset: Value,
    /// The batch Jobs of the JobSet; an MPIJob's launcher.
    pub jobs: Vec<Value>,
    pub pods: Vec<PodFacts>,
    /// Events of the namespace, oldest first. Those of other objects, also of earlier ones of the same name, are passed over.
    pub events: Vec<Value>,
    pub nodes: Vec<Value>,
    /// The runtime that the job names; null where it does not exist or was not read.
    pub runtime: Value,
    pub logs: Vec<LogTail>,
    /// What the job reported of its progress, as `trainerStatus` has it, oldest first; empty where no history is kept.
    pub reports: Vec<Value>,
    /// Thousandths of a processor that each pod uses now, by name; pods of which nobody knows are not in it.
    pub processors: BTreeMap<String, i64>,
    /// Processes of ranks on this machine, while the job runs.
    pub processes: Vec<RankProcess>,
    /// Modules of the user's own, in the script's folder and where the job runs; read where a module is missing.
    pub modules: Vec<LocalModule>,
    pub now: Timestamp,
    pub home: Home,
}

/// A pod, as it is or as it was when it was deleted.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodFacts {
    pub pod: Value,
    /// Whether it still exists.
    #[serde(default = "yes")]
    pub live: bool,
    /// The attempt of the job that it belongs to; 0 where nobody knows.
    #[serde(default)]
    pub attempt: i64,
}

fn yes() -> bool {
    true
}

/// The last lines of one run of one container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogTail {
    /// The pod's name.
    pub pod: String,
    pub uid: String,
    pub container: String,
    /// How often the container had been restarted before.
    pub attempt: i64,
    pub lines: Vec<Line>,
}

/// One line of a log.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Line {
    pub time: Option<Timestamp>,
    /// The rank that wrote it, where the line says so.
    pub rank: Option<i64>,
    /// Without a mark of the rank.
    pub text: String,
}

/// A process of a rank.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RankProcess {
    pub rank: i64,
    pub pid: u32,
    /// What it waits in: the kernel's name for it (`futex_wait_queue`); empty where that cannot be read.
    pub waits_in: String,
}

/// A Python module or package in a folder of the user's.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LocalModule {
    pub name: String,
    /// The folder that holds it.
    pub folder: String,
    /// Python looks there by itself: it is the script's folder.
    pub is_on_path: bool,
    /// Modules of a package.
    pub members: Vec<String>,
}

/// Where the job is, for commands that are proposed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Home {
    /// Flags that lead `trainyard` to the server, with a blank before them; may be empty.
    pub flags: String,
    /// `kubectl` with the flags that lead it to the server and namespace.
    pub kubectl: String,
    /// The pods are processes of this machine.
    pub local: bool,
}
