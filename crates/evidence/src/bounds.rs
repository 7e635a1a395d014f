//! How much of a job's history is kept: a pure function that chooses what is removed first.

use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// How much may be kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of logs of one job.
    pub job_bytes: u64,
    /// Pods of one job.
    pub job_pods: usize,
    /// Bytes of all jobs.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { job_bytes: 64 << 20, job_pods: 200, bytes: 2 << 30 }
    }
}

/// A run whose log is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub pod: String,
    pub container: String,
    pub attempt: u32,
    /// What it was a run of: the step, with the rank of its node.
    pub of: String,
    pub started: Timestamp,
    pub failed: bool,
    pub bytes: u64,
}

/// What is to be removed of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surplus {
    /// Pods, with all that is known of them.
    pub pods: BTreeSet<String>,
    /// Logs of runs (indices).
    pub logs: Vec<usize>,
    /// Logs of which only the newest part stays (indices).
    pub old_parts: Vec<usize>,
}

/// The oldest runs go first, but for those that say most: the one that failed first, and the last of each rank. Of these
/// the older parts go if nothing else is left.
pub fn surplus(runs: &[Kept], limits: &Limits) -> Surplus {
    let mut by_age: Vec<usize> = (0..runs.len()).collect();
    by_age.sort_by_key(|&at| (runs[at].started, at));
    let first_failure = by_age.iter().copied().find(|&at| runs[at].failed);
    let mut last: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for &at in &by_age {
        last.insert((&runs[at].of, &runs[at].container), at);
    }
    let stays: BTreeSet<usize> = first_failure.into_iter().chain(last.into_values()).collect();
    let staying_pods: BTreeSet<&str> = stays.iter().map(|&at| runs[at].pod.as_str()).collect();

    let mut found = Surplus::default();
    let pods: BTreeSet<&str> = runs.iter().map(|run| run.pod.as_str()).collect();
    let mut count = pods.len();
    for &at in &by_age {
        let pod = &runs[at].pod;
        if count <= limits.job_pods {
            break;
        }
        if !staying_pods.contains(pod.as_str()) && found.pods.insert(pod.clone()) {
            count -= 1;
        }
    }
    let there = |at: &&usize| !found.pods.contains(&runs[**at].pod);
    let mut bytes: u64 = by_age.iter().filter(there).map(|&at| runs[at].bytes).sum();
    for &at in by_age.iter().filter(there) {
        if bytes <= limits.job_bytes {
            return found;
        }
        if !stays.contains(&at) && runs[at].bytes > 0 {
            bytes -= runs[at].bytes;
            found.logs.push(at);
        }
    }
    if bytes > limits.job_bytes {
        found.old_parts = by_age.iter().copied().filter(|at| stays.contains(at)).collect();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(pod: &str, started: i64, failed: bool, bytes: u64) -> Kept {
        let started = Timestamp::from_second(started).unwrap();
        let (of, container) = ("node-0".to_owned(), "node".to_owned());
        Kept { pod: pod.to_owned(), container, attempt: 0, of, started, failed, bytes }
    }

    #[test]
    fn the_first_failure_and_the_last_run_stay_whatever_else_goes() {
        let runs = [kept("a", 1, false, 10), kept("b", 2, true, 10), kept("c", 3, true, 10), kept("d", 4, true, 10)];
        let bounds = |job_bytes, job_pods| Limits { job_bytes, job_pods, bytes: 0 };
        let pods = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(surplus(&runs, &bounds(40, 4)), Surplus::default());
        assert_eq!(surplus(&runs, &bounds(39, 4)).logs, [0]);
        assert_eq!(surplus(&runs, &bounds(20, 4)), Surplus { logs: vec![0, 2], ..Surplus::default() });
        let least = surplus(&runs, &bounds(5, 4));
        assert_eq!((least.logs, least.old_parts), (vec![0, 2], vec![1, 3]));
        assert_eq!(surplus(&runs, &bounds(40, 3)).pods, pods(&["a"]));
        assert_eq!(surplus(&runs, &bounds(40, 1)).pods, pods(&["a", "c"]));
        assert!(surplus(&runs, &bounds(20, 2)).logs.is_empty(), "what goes with its pod is not counted");
    }

    #[test]
    fn each_rank_has_a_last_run() {
        let mut runs = vec![kept("a", 1, true, 10), kept("b", 2, false, 10), kept("c", 3, false, 10)];
        runs[1].of = "node-1".to_owned();
        let limits = Limits { job_bytes: 0, job_pods: 1, bytes: 0 };
        let found = surplus(&runs, &limits);
        assert_eq!((found.pods, found.logs, found.old_parts), (BTreeSet::new(), vec![], vec![0, 1, 2]));
    }
}
