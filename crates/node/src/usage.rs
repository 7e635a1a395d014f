//! The present use of CPUs, memory, disk, network and GPUs by pods and the machine, measured on request and at most once a second.

mod gpu;
pub(crate) mod network;
pub(crate) mod process;

use crate::gpus::Gpu;
use crate::host;
use crate::poddir::PodDir;
use crate::wire::Event;
use jiff::Timestamp;
use network::Socket;
use process::{Id, Process, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Who asks again within this time gets the same answer.
const FRESH: Duration = Duration::from_secs(1);
/// An earlier measurement of at most this age is what rates are reckoned from.
const BASE_MAX: Duration = Duration::from_secs(20);
/// Without such a one, two measurements are taken, this far apart.
const WINDOW: Duration = Duration::from_millis(400);

/// What something uses. `None`: not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Amounts {
    /// Billionths of a processor, on average over the window.
    pub cpu_nanos: u64,
    /// Of memory that processes share, each has its part.
    pub memory_bytes: u64,
    /// From and to disks, per second.
    pub disk_read_bytes: Option<u64>,
    pub disk_written_bytes: Option<u64>,
    /// By its sockets of TCP, to and from its own machine too, per second.
    pub network_sent_bytes: Option<u64>,
    pub network_received_bytes: Option<u64>,
    /// Of the GPUs that were given to it: how busy they are on average, and the memory in use on all of them.
    pub gpu_percent: Option<u64>,
    pub gpu_memory_bytes: Option<u64>,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Usage {
    pub at: Timestamp,
    /// The time over which rates are averages.
    pub window: Duration,
    pub machine: Amounts,
    /// By pod uid and container; pods whose shim does not live are not in it.
    pub pods: BTreeMap<String, BTreeMap<String, Amounts>>,
}

/// Measures the pods below a data directory.
pub struct Sampler {
    data: PathBuf,
    gpus: Vec<Gpu>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: Option<(Instant, Arc<Measured>)>,
    answer: Option<(Instant, Arc<Usage>)>,
}

impl Sampler {
    /// `gpus`: those of the machine.
    pub fn new(data: PathBuf, gpus: Vec<Gpu>) -> Self {
        Self { data, gpus, state: Mutex::default() }
    }

    /// What is used now. All who ask at the same time share one measurement.
    pub async fn usage(&self) -> Arc<Usage> {
        let mut state = self.state.lock().await;
        if let Some((at, answer)) = &state.answer
            && at.elapsed() < FRESH
        {
            return answer.clone();
        }
        let (base, gpus) = tokio::join!(self.base(&state.last), gpu::measure(&self.gpus));
        let next = (Instant::now(), self.measure().await);
        let usage = Arc::new(between(&base, &next, &gpus));
        *state = State { last: Some(next), answer: Some((Instant::now(), usage.clone())) };
        usage
    }

    async fn base(&self, last: &Option<(Instant, Arc<Measured>)>) -> (Instant, Arc<Measured>) {
        match last {
            Some((at, measured)) if at.elapsed() <= BASE_MAX => (*at, measured.clone()),
            Some(_) | None => {
                let first = (Instant::now(), self.measure().await);
                tokio::time::sleep(WINDOW).await;
                first
            }
        }
    }

    async fn measure(&self) -> Arc<Measured> {
        let (data, has_gpus) = (self.data.clone(), !self.gpus.is_empty());
        // reads hundreds of small files
        let measured = tokio::task::spawn_blocking(move || Measured::now(&data, has_gpus)).await;
        Arc::new(measured.expect("measuring does not panic"))
    }
}

/// One look at the machine.
#[derive(Debug, Default)]
struct Measured {
    /// Of the processors that pods may use: time since the start of the machine in which they worked.
    busy: Duration,
    memory_bytes: u64,
    pods: BTreeMap<String, BTreeMap<String, Container>>,
}

/// What a container has used since it started, and has now.
#[derive(Debug, Default)]
struct Container {
    /// Processor time, by the process that owns a tree of processes.
    cpu: BTreeMap<Id, Duration>,
    memory_bytes: u64,
    /// Bytes read and written, by process.
    disk: BTreeMap<Id, (u64, u64)>,
    /// Bytes sent and received, by socket; `None`: not known.
    network: Option<BTreeMap<u64, (u64, u64)>>,
    gpus: Vec<u32>,
}

impl Measured {
    fn now(data: &Path, has_gpus: bool) -> Self {
        let table = Table::read();
        let sockets = network::sockets();
        let dirs = std::fs::read_dir(data.join("pods")).into_iter().flatten().flatten();
        let pods = dirs.filter_map(|entry| {
            let dir = PodDir::new(entry.path());
            let shim = dir.shim().ok()??;
            Some((dir.uid(), containers(&dir, shim, &table, sockets.as_ref(), has_gpus)))
        });
        Self { busy: process::machine_busy(), memory_bytes: host::memory_used_bytes(), pods: pods.collect() }
    }
}

/// A tree of processes that the shim started: a container, or a command that was executed in one.
pub(crate) struct Running {
    pub container: String,
    pub attempt: u32,
    /// The process above all others of the tree.
    pub head: i32,
}

/// The trees of processes of a pod's containers that run.
pub(crate) fn running(dir: &PodDir, shim: i32, table: &Table) -> Vec<Running> {
    let mut known: BTreeMap<String, (u32, i32)> = BTreeMap::new();
    for record in dir.read_journal().unwrap_or_default() {
        match record.event {
            Event::Running { container, attempt, pid } => drop(known.insert(container, (attempt, pid))),
            Event::Exited { container, .. } => drop(known.remove(&container)),
            _ => {}
        }
    }
    let heads: BTreeMap<i32, &String> =
        known.iter().filter_map(|(name, (_, pid))| Some((table.head(*pid, shim)?, name))).collect();
    let of_head = |head: i32| {
        // what was executed says not in which container: it counts to the first
        let name = heads.get(&head).copied().or_else(|| known.keys().next())?;
        Some(Running { container: name.clone(), attempt: known.get(name)?.0, head })
    };
    table.children(shim).filter_map(of_head).collect()
}

/// The containers of a pod that run, and what they use.
fn containers(
    dir: &PodDir,
    shim: i32,
    table: &Table,
    sockets: Option<&BTreeMap<u64, Socket>>,
    has_gpus: bool,
) -> BTreeMap<String, Container> {
    let mut out: BTreeMap<String, Container> = BTreeMap::new();
    for Running { container, head, .. } in running(dir, shim, table) {
        let container = out.entry(container).or_default();
        let Some(owner) = table.get(head) else { continue };
        let mut cpu = Duration::ZERO;
        for process in table.tree(head) {
            let Process { id, .. } = process;
            cpu = cpu.saturating_add(process.cpu);
            container.memory_bytes += process::memory_bytes(id.pid).unwrap_or(0);
            container.disk.extend(process::disk_bytes(id.pid).map(|bytes| (*id, bytes)));
            if let (Some(sockets), Some(inodes)) = (sockets, network::inodes(id.pid)) {
                let owned = inodes.iter().filter_map(|inode| sockets.get(inode));
                let carried = owned.map(|socket| (socket.cookie, (socket.sent, socket.received)));
                container.network.get_or_insert_default().extend(carried);
            }
        }
        container.cpu.insert(owner.id, cpu);
    }
    if has_gpus && let Ok(Some(launch)) = dir.read_launch() {
        for (name, gpus) in launch.gpus {
            out.entry(name).or_default().gpus = gpus;
        }
    }
    out
}

/// What was used from one look to the next.
fn between(
    (begin, first): &(Instant, Arc<Measured>),
    (end, second): &(Instant, Arc<Measured>),
    gpus: &BTreeMap<u32, gpu::Load>,
) -> Usage {
    let window = end.duration_since(*begin).max(Duration::from_millis(1));
    let cpu_nanos = |used: Duration| (used.as_secs_f64() / window.as_secs_f64() * 1e9) as u64;
    let rate = |bytes: u64| (bytes as f64 / window.as_secs_f64()) as u64;
    let amounts = |old: Option<&Container>, new: &Container| {
        let before = |id: &Id| old.and_then(|old| old.cpu.get(id)).copied();
        // what was not there before began in between
        let used = new.cpu.iter().map(|(id, cpu)| cpu.saturating_sub(before(id).unwrap_or_default()));
        let disk = added(old.map(|old| &old.disk), &new.disk);
        let network = new.network.as_ref().map(|new| added(old.and_then(|old| old.network.as_ref()), new));
        let loads: Vec<&gpu::Load> = new.gpus.iter().filter_map(|index| gpus.get(index)).collect();
        let knows_disk = !new.disk.is_empty();
        Amounts {
            cpu_nanos: cpu_nanos(used.sum()),
            memory_bytes: new.memory_bytes,
            disk_read_bytes: knows_disk.then(|| rate(disk.0)),
            disk_written_bytes: knows_disk.then(|| rate(disk.1)),
            network_sent_bytes: network.map(|(sent, _)| rate(sent)),
            network_received_bytes: network.map(|(_, received)| rate(received)),
            ..gpu::of(&loads)
        }
    };
    let pods = second.pods.iter().map(|(uid, containers)| {
        let old = first.pods.get(uid);
        let of = |(name, new): (&String, &Container)| {
            (name.clone(), amounts(old.and_then(|containers| containers.get(name)), new))
        };
        (uid.clone(), containers.iter().map(of).collect())
    });
    let machine = Amounts {
        cpu_nanos: cpu_nanos(second.busy.saturating_sub(first.busy)),
        memory_bytes: second.memory_bytes,
        ..gpu::of(&gpus.values().collect::<Vec<_>>())
    };
    Usage { at: clock::now(), window, machine, pods: pods.collect() }
}

/// What two counters have added, over all that are there now: those that were not there before began at 0 in between, and what
/// those that are gone counted last is not known.
fn added<K: Ord>(old: Option<&BTreeMap<K, (u64, u64)>>, new: &BTreeMap<K, (u64, u64)>) -> (u64, u64) {
    let mut sum = (0_u64, 0_u64);
    for (key, (one, other)) in new {
        let (had_one, had_other) = old.and_then(|old| old.get(key)).copied().unwrap_or_default();
        sum.0 = sum.0.saturating_add(one.saturating_sub(had_one));
        sum.1 = sum.1.saturating_add(other.saturating_sub(had_other));
    }
    sum
}

/// Processors that pods may use, by the numbers that the kernel gives them.
fn own_cpus() -> BTreeSet<usize> {
    let Ok(set) = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)) else { return BTreeSet::new() };
    (0..nix::sched::CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(cpu: &[(i32, u64)], disk: &[(i32, u64, u64)], memory_bytes: u64) -> Container {
        let id = |pid| Id { pid, started: 1 };
        Container {
            cpu: cpu.iter().map(|(pid, ms)| (id(*pid), Duration::from_millis(*ms))).collect(),
            memory_bytes,
            disk: disk.iter().map(|(pid, read, written)| (id(*pid), (*read, *written))).collect(),
            network: Some(BTreeMap::new()),
            gpus: vec![1],
        }
    }

    fn measured(container: Container) -> Arc<Measured> {
        let pods = [("uid".to_owned(), [("node".to_owned(), container)].into())].into();
        Arc::new(Measured { pods, ..Measured::default() })
    }

    #[test]
    fn rates_are_of_what_was_used_in_between() {
        let begin = Instant::now();
        let mut first = container(&[(10, 500)], &[(10, 100, 0)], 7);
        first.network = Some([(1, (100, 10)), (2, (9000, 9000))].into());
        let first = (begin, measured(first));
        // a command was executed and has used 250 ms; another process of the container wrote 4000 bytes
        let mut second = container(&[(10, 1500), (20, 250)], &[(10, 300, 0), (11, 0, 4000)], 9);
        // a connection was closed, and one is new
        second.network = Some([(1, (300, 10)), (3, (50, 600))].into());
        let second = (begin + Duration::from_secs(2), measured(second));
        let load = gpu::Load { percent: Some(40), memory_bytes: Some(1 << 30) };
        let usage = between(&first, &second, &[(0, gpu::Load::default()), (1, load)].into());
        assert_eq!(
            usage.pods["uid"]["node"],
            Amounts {
                cpu_nanos: 625_000_000,
                memory_bytes: 9,
                disk_read_bytes: Some(100),
                disk_written_bytes: Some(2000),
                network_sent_bytes: Some(125),
                network_received_bytes: Some(300),
                gpu_percent: Some(40),
                gpu_memory_bytes: Some(1 << 30),
            }
        );
    }

    /// This very process, as a pod's: it works, and shows.
    #[tokio::test]
    async fn a_machine_that_works_shows_it() {
        let tmp = tempfile::tempdir().unwrap();
        let sampler = Sampler::new(tmp.path().to_owned(), Vec::new());
        let work = std::thread::spawn(|| {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(700) {
                std::hint::spin_loop();
            }
        });
        let usage = sampler.usage().await;
        work.join().unwrap();
        assert!(usage.machine.cpu_nanos > 0 && usage.machine.memory_bytes > 0, "{usage:?}");
        assert!(usage.pods.is_empty());
        assert!(Arc::ptr_eq(&usage, &sampler.usage().await), "asked again at once, it does not measure again");
    }
}
