//! Processes and their resource use, from `/proc`.

use super::own_cpus;
use crate::host;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

/// A process. Its number alone may come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    pub pid: i32,
    /// Ticks of the clock from the machine's start to its own.
    pub started: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub id: Id,
    pub parent: i32,
    /// Its processor time, and that of its children that have ended.
    pub cpu: Duration,
}

/// All processes of the machine at one moment.
#[derive(Debug, Default)]
pub struct Table {
    processes: BTreeMap<i32, Process>,
    children: BTreeMap<i32, BTreeSet<i32>>,
}

impl Table {
    pub fn read() -> Self {
        // a process may end while it is looked at
        Self::of(host::pids().filter_map(|pid| parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)))
    }

    fn of(processes: impl Iterator<Item = Process>) -> Self {
        let mut table = Self::default();
        for process in processes {
            table.children.entry(process.parent).or_default().insert(process.id.pid);
            table.processes.insert(process.id.pid, process);
        }
        table
    }

    pub fn get(&self, pid: i32) -> Option<&Process> {
        self.processes.get(&pid)
    }

    pub fn children(&self, pid: i32) -> impl Iterator<Item = i32> + '_ {
        self.children.get(&pid).into_iter().flatten().copied()
    }

    /// The ancestor of a process (or itself) that is a child of `root`.
    pub fn head(&self, pid: i32, root: i32) -> Option<i32> {
        let mut at = self.get(pid)?;
        // no process is its own ancestor; the bound is for a table that changed while it was read
        for _ in 0..self.processes.len() {
            if at.parent == root {
                return Some(at.id.pid);
            }
            at = self.get(at.parent)?;
        }
        None
    }

    /// A process and all below it.
    pub fn tree(&self, head: i32) -> Vec<&Process> {
        let mut seen = BTreeSet::new();
        let (mut out, mut next) = (Vec::new(), vec![head]);
        while let Some(pid) = next.pop() {
            if seen.insert(pid) {
                out.extend(self.get(pid));
                next.extend(self.children(pid));
            }
        }
        out
    }
}

/// A line of `/proc/PID/stat`. The second field is a name that may hold anything, parentheses and spaces too.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    let (name, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // a warm rank's guardian is a child of the process that it was forked from; by its name it belongs to a launcher
    let launcher = name.split_once("(warm ").and_then(|(_, launcher)| launcher.parse().ok());
    let parent = launcher.or_else(|| fields.get(1)?.parse().ok())?;
    // user and system time, own and of children
    let ticks: u64 = (11..15).map(number).sum::<Option<u64>>()?;
    Some(Process { id: Id { pid, started: number(19)? }, parent, cpu: duration(ticks) })
}

fn duration(ticks: u64) -> Duration {
    Duration::try_from_secs_f64(ticks as f64 / host::ticks_per_second() as f64).unwrap_or_default()
}

/// Memory of a process, shared pages in parts; where the kernel does not say so much, all that is resident.
pub fn memory_bytes(pid: i32) -> Option<u64> {
    let kilobytes = |file: &str, field: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(field))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    kilobytes("smaps_rollup", "Pss:").or_else(|| kilobytes("status", "VmRSS:")).map(|kilobytes| kilobytes * 1024)
}

/// All memory of a process that is resident, shared pages as a whole: never less than [`memory_bytes`], and cheap to ask for.
pub fn resident_bytes(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages.saturating_mul(host::page_bytes()))
}

/// Bytes that a process has read from disks and written to them; `None` where that may not be seen.
pub fn disk_bytes(pid: i32) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok();
    Some((field("read_bytes:")?, field("write_bytes:")?))
}

/// How long the processors that are ours have worked since the machine started.
pub fn machine_busy() -> Duration {
    busy(&fs::read_to_string("/proc/stat").unwrap_or_default(), &own_cpus())
}

fn busy(stat: &str, ours: &BTreeSet<usize>) -> Duration {
    let ticks = stat.lines().filter_map(|line| {
        let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
        let cpu: usize = words.next()?.parse().ok()?;
        let times: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; a guest's time is in user's
        let worked =
            times.iter().take(8).enumerate().filter(|(at, _)| !matches!(at, 3 | 4)).map(|(_, t)| t).sum::<u64>();
        ours.contains(&cpu).then_some(worked)
    });
    duration(ticks.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_stat() {
        let line = "41 (a) (b c) S 40 41 41 0 -1 4194560 1 2 3 4 150 50 200 100 20 0 3 0 777 1 1";
        let process = parse(41, line).unwrap();
        assert_eq!((process.id, process.parent), (Id { pid: 41, started: 777 }, 40));
        assert_eq!(process.cpu, duration(500));
        assert_eq!(parse(41, "41 (short) S 40"), None);
        let guardian = line.replace("(a) (b c)", "(warm 39)");
        assert_eq!(parse(41, &guardian).unwrap().parent, 39);
    }

    #[test]
    fn trees_of_processes() {
        let process = |(pid, parent): (i32, i32)| Process { id: Id { pid, started: 0 }, parent, cpu: Duration::ZERO };
        let table = Table::of([(10, 1), (20, 10), (30, 20), (31, 20), (21, 10), (99, 1)].into_iter().map(process));
        let tree: BTreeSet<i32> = table.tree(20).iter().map(|p| p.id.pid).collect();
        assert_eq!(tree, [20, 30, 31].into());
        assert_eq!((table.head(31, 10), table.head(21, 10), table.head(99, 10)), (Some(20), Some(21), None));
        assert_eq!(table.children(10).collect::<Vec<_>>(), [20, 21]);
    }

    #[test]
    fn processors_that_are_ours() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 10 0 20 1000 500 1 2 3 4 0\ncpu1 7 0 0 0 0 0 0 0 0 0\nintr 5\n";
        assert_eq!(busy(stat, &[0].into()), duration(36));
        assert_eq!(busy(stat, &[0, 1].into()), duration(43));
    }

    #[test]
    fn this_process_has_memory() {
        let own = std::process::id().cast_signed();
        assert!(memory_bytes(own).unwrap() > 100_000);
        assert!(resident_bytes(own).unwrap() > 100_000);
    }
}
