//! The processes of a job's ranks on this machine, by what their environment says: for a command that looks at one of them.

use crate::view::node_rank;
use api::object;
use diagnose::{Facts, RankProcess};
use std::collections::BTreeMap;

/// Processes that are looked at.
const PROCESSES_MAX: usize = 20_000;
/// Bytes of an environment that are read.
const ENVIRONMENT_MAX: usize = 256 * 1024;

/// The newest process of each rank, as far as this user may read them.
pub(crate) fn of(facts: &Facts) -> Vec<RankProcess> {
    let hosts: BTreeMap<&str, i64> = facts
        .pods
        .iter()
        .filter(|pod| pod.live)
        .filter_map(|pod| Some((object::text(&pod.pod["spec"], "hostname"), node_rank(&pod.pod)?)))
        .filter(|(host, _)| !host.is_empty())
        .collect();
    let mut found: BTreeMap<i64, RankProcess> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten().take(PROCESSES_MAX) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Some(environment) = environment(pid) else { continue };
        let variable = |name: &str| environment.get(name).map(String::as_str);
        let Some(node) = variable("HOSTNAME").and_then(|host| hosts.get(host)) else { continue };
        // torchrun's own process has no RANK: what it starts has
        let is_launcher = variable("PET_NNODES").is_some() && variable("LOCAL_RANK").is_none();
        let rank = variable("RANK").and_then(|rank| rank.parse().ok()).unwrap_or(*node);
        if is_launcher {
            continue;
        }
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

fn environment(pid: u32) -> Option<BTreeMap<String, String>> {
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).ok().filter(|bytes| bytes.len() <= ENVIRONMENT_MAX)?;
    let pairs = bytes.split(|byte| *byte == 0).filter_map(|pair| {
        let (name, value) = std::str::from_utf8(pair).ok()?.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    });
    Some(pairs.collect())
}
