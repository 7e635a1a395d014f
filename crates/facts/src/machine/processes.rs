//! The processes of a job's ranks on this machine, by what their environment says: for a command that looks at one of them.

use api::object;
use diagnose::{Facts, RankProcess};
use std::collections::BTreeMap;
use std::path::PathBuf;
use view::state::node_rank;

/// Processes that are looked at.
const PROCESSES_MAX: usize = 20_000;
/// Bytes of an environment that are read.
const ENVIRONMENT_MAX: usize = 256 * 1024;

/// The newest process of each rank, as far as this user may read them.
pub fn of(facts: &Facts) -> Vec<RankProcess> {
    let hosts: BTreeMap<&str, i64> = facts
        .pods
        .iter()
        .filter(|pod| pod.live)
        .filter_map(|pod| Some((object::text(&pod.pod["spec"], "hostname"), node_rank(&pod.pod)?)))
        .filter(|(host, _)| !host.is_empty())
        .collect();
    let mut found: BTreeMap<i64, RankProcess> = BTreeMap::new();
    for process in all() {
        let Some(node) = hosts.get(process.host()) else { continue };
        if process.is_launcher() {
            continue;
        }
        let (pid, rank) = (process.pid, process.rank().unwrap_or(*node));
        let waits_in = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        let waits_in = if waits_in == "0" { String::new() } else { waits_in };
        // a rank's own process is older than those that it starts
        found
            .entry(rank)
            .and_modify(|known| {
                if pid < known.pid {
                    known.pid = pid
                }
            })
            .or_insert(RankProcess { rank, pid, waits_in });
    }
    found.into_values().collect()
}

/// Where a rank works, and what its launcher told it.
pub struct Workplace {
    pub folder: PathBuf,
    /// The variables by which ranks find each other, as `NAME=VALUE`; nothing else of its environment.
    pub variables: Vec<String>,
}

/// That of a rank of a pod with this host name on this machine; `None`: that of the pod's first rank.
pub fn workplace(host: &str, rank: Option<i64>) -> Option<Workplace> {
    let own = all().filter(|process| !host.is_empty() && process.host() == host && !process.is_launcher());
    let ranks = own.map(|process| (process.rank(), process.pid, process));
    // a launcher's shell or a pod's own process has no rank; it counts where nothing of the pod has one
    let mut ranks: Vec<_> = ranks.filter(|(of, ..)| rank.is_none() || of.is_none() || *of == rank).collect();
    ranks.sort_by_key(|(of, pid, _)| (of.is_none(), *of, *pid));
    let (_, pid, process) = ranks.into_iter().next()?;
    let folder = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    let is_told = |name: &str| TOLD.contains(&name) || TOLD_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let variables = process.environment.iter().filter(|(name, _)| is_told(name));
    let variables = variables.map(|(name, value)| format!("{name}={value}")).collect();
    Some(Workplace { folder, variables })
}

/// What launchers tell ranks: torchrun (<https://docs.pytorch.org/docs/stable/elastic/run.html>), Open MPI and PMI.
const TOLD: [&str; 12] = [
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "ROLE_NAME",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "OMP_NUM_THREADS",
];
const TOLD_PREFIXES: [&str; 3] = ["OMPI_COMM_WORLD_", "TORCHELASTIC_", "PMI_"];

/// A process whose environment this user may read.
struct Process {
    pid: u32,
    environment: BTreeMap<String, String>,
}

impl Process {
    fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str)
    }

    fn host(&self) -> &str {
        self.variable("HOSTNAME").unwrap_or_default()
    }

    fn rank(&self) -> Option<i64> {
        self.variable("RANK").or_else(|| self.variable("OMPI_COMM_WORLD_RANK"))?.parse().ok()
    }

    /// torchrun's own process has no rank: what it starts has.
    fn is_launcher(&self) -> bool {
        self.variable("PET_NNODES").is_some() && self.variable("LOCAL_RANK").is_none()
    }
}

fn all() -> impl Iterator<Item = Process> {
    std::fs::read_dir("/proc").into_iter().flatten().flatten().take(PROCESSES_MAX).filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some(Process { pid, environment: environment(pid)? })
    })
}

fn environment(pid: u32) -> Option<BTreeMap<String, String>> {
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).ok().filter(|bytes| bytes.len() <= ENVIRONMENT_MAX)?;
    let pairs = bytes.split(|byte| *byte == 0).filter_map(|pair| {
        let (name, value) = std::str::from_utf8(pair).ok()?.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    });
    Some(pairs.collect())
}
