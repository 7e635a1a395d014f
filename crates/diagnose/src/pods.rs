//! Pods and jobs as people see them: phase, steps, ranks, and how containers ended.

use crate::mpijob;
use api::object;
use serde_json::Value;

/// Where a job stands, derived from its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Running,
    Suspended,
    Complete,
    Failed,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Suspended => "Suspended",
            Self::Complete => "Complete",
            Self::Failed => "Failed",
        }
    }

    pub fn is_finished(self) -> bool {
        matches!(self, Self::Complete | Self::Failed)
    }

    /// Of a TrainJob or an MPIJob. Finished wins over all; then suspension; then whether any pod is at work.
    pub fn of(job: &Value) -> Self {
        if mpijob::is(job) {
            return mpijob::phase(job);
        }
        if condition(job, "Failed").is_some() {
            return Self::Failed;
        }
        if condition(job, "Complete").is_some() {
            return Self::Complete;
        }
        if job["spec"]["suspend"] == true {
            return Self::Suspended;
        }
        let at_work = job["status"]["jobsStatus"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|step| ["ready", "succeeded"].iter().any(|counter| step[*counter].as_i64().unwrap_or(0) > 0));
        if at_work { Self::Running } else { Self::Pending }
    }
}

/// A condition that is True.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|c| c["type"] == kind && c["status"] == "True")
}

/// The condition `Ready` of a node, whatever its status. It is Unknown while the node does not answer.
pub fn readiness(node: &Value) -> Option<&Value> {
    node["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Ready")
}

/// The step that a pod belongs to, as the Kubeflow SDK names it: `node-2`, `dataset-initializer`; of an MPIJob `launcher`, `worker-2`.
pub fn step(pod: &Value) -> String {
    if let Some(step) = mpijob::step(pod) {
        return step;
    }
    let role = object::label(pod, "jobset.sigs.k8s.io/replicatedjob-name").unwrap_or("pod");
    match (role, node_rank(pod)) {
        ("dataset-initializer" | "model-initializer", _) | (_, None) => role.to_owned(),
        (role, Some(rank)) => format!("{role}-{rank}"),
    }
}

/// A pod's completion index: the rank of its node.
pub fn node_rank(pod: &Value) -> Option<i64> {
    object::label(pod, api::jobset::keys::COMPLETION_INDEX)?.parse().ok()
}

/// Processes of each node as torchrun's arguments or variables set it; 1 by default.
pub fn processes_per_node(pod: &Value) -> i64 {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut variables = containers.flat_map(|c| c["env"].as_array().into_iter().flatten());
    let told = variables.find(|v| v["name"] == "PET_NPROC_PER_NODE");
    told.and_then(|v| v["value"].as_str()).and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// The ranks on a pod's node: `rank 1`, `ranks 4 to 7`; `None` for what is no node.
pub fn ranks(pod: &Value) -> Option<String> {
    let node = node_rank(pod).filter(|_| is_node(pod))?;
    Some(match processes_per_node(pod).max(1) {
        1 => format!("rank {node}"),
        processes => {
            let first = node.saturating_mul(processes);
            format!("ranks {first} to {}", first.saturating_add(processes - 1))
        }
    })
}

/// Whether a pod trains: it is neither an initializer nor MPI's launcher.
pub fn is_node(pod: &Value) -> bool {
    let step = step(pod);
    !step.ends_with("-initializer") && !step.starts_with("launcher")
}

/// The name of a signal.
pub fn signal_name(number: i64) -> Option<&'static str> {
    Some(match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

/// The signal that an exit code stands for, as shells and container runtimes count: 128 and its number.
pub fn signal(exit_code: i64) -> Option<&'static str> {
    signal_name(exit_code.checked_sub(128)?)
}

/// All statuses of containers, those that run first before the others.
pub fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainerStatuses", "containerStatuses"]
        .into_iter()
        .flat_map(|list| pod["status"][list].as_array().into_iter().flatten())
}

/// How often a pod's containers have restarted.
pub fn container_restarts(pod: &Value) -> i64 {
    statuses(pod).filter_map(|status| status["restartCount"].as_i64()).fold(0, i64::saturating_add)
}

/// When an event was last seen, as text that sorts. Recorders of events.k8s.io/v1 leave out what core/v1 asks for.
pub fn last_seen(event: &Value) -> &str {
    let series = object::text(&event["series"], "lastObservedTime");
    let times = [object::text(event, "lastTimestamp"), series, object::text(event, "eventTime")];
    times.into_iter().find(|time| !time.is_empty()).unwrap_or_else(|| object::meta(event, "creationTimestamp"))
}

/// Seconds as `45s`, `12m`, `3h5m`, `2d`.
pub fn short_duration(secs: i64) -> String {
    match secs.max(0) {
        secs @ 0..120 => format!("{secs}s"),
        secs @ 120..600 => format!("{}m{}s", secs / 60, secs % 60),
        secs @ 600..10800 => format!("{}m", secs / 60),
        secs @ 10800..172_800 => format!("{}h{}m", secs / 3600, secs % 3600 / 60),
        secs => format!("{}d", secs / 86400),
    }
}
