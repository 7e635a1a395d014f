//! Limits of memory where no cgroup enforces them, and the end of a pod where the machine as a whole runs short: the node looks at
//! what its pods use, and asks the shim of the one that uses too much to kill it.
//!
//! A look costs little while nothing is near a limit: what processes have resident is read first, and only where that is more than
//! the limit, the kernel is asked for their shares of shared pages, for which it walks through their page tables.

mod verdict;

use crate::cgroup;
use crate::host;
use crate::link::Link;
use crate::poddir::PodDir;
use crate::usage::process::{self, Table};
use crate::usage::{Running, running};
use crate::wire::{Launch, OverMemory, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use verdict::{Container, End, Machine, Pod};

/// How long apart the looks are, and how long where somebody is near a limit.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_NEAR: Duration = Duration::from_millis(500);
/// How long a shim may take to hear that a container is to end.
const SEND_MAX: Duration = Duration::from_secs(1);
/// How long a machine that is short of memory waits for that of a pod that was ended for it, before it ends another.
const RELEASE_MAX: Duration = Duration::from_secs(5);

/// Looks at the pods below a data directory, forever.
pub(crate) async fn watch(data: &Path) {
    let mut watcher = Watcher::new(data.to_owned());
    loop {
        let looked = tokio::task::spawn_blocking(move || {
            let look = watcher.look(machine());
            (watcher, look)
        });
        let look;
        (watcher, look) = looked.await.expect("invariant: looking does not panic");
        futures::future::join_all(look.ends.iter().map(|end| tell(data, end))).await;
        tokio::time::sleep(if look.is_near { PAUSE_NEAR } else { PAUSE }).await;
    }
}

fn machine() -> Machine {
    Machine { total: host::memory_bytes(), available: host::memory_available_bytes() }
}

/// Asks a pod's shim to end a container. One that does not hear it is asked again after the next look.
async fn tell(data: &Path, end: &End) {
    let End { uid, container, attempt, used, message } = end;
    let request = Request::Kill {
        container: container.clone(),
        message: message.clone(),
        grace_secs: Some(0),
        over_memory: Some(OverMemory { attempt: *attempt, used_bytes: *used }),
    };
    let dir = PodDir::of(data, uid);
    let sent = timeout(SEND_MAX, async { Link::connect(&dir).await?.send(&request).await }).await;
    match sent.map_err(std::io::Error::from) {
        Ok(Ok(())) => tracing::warn!(pod = %uid, container, message, "ended for the memory that it used"),
        Ok(Err(error)) | Err(error) => {
            tracing::warn!(pod = %uid, container, %error, "cannot end a container that uses too much memory")
        }
    }
}

/// Whether a pod has limits of memory that the kernel does not enforce.
fn needs_watching(launch: &Launch) -> bool {
    let Launch { limits, containers, init_containers, cgroup, .. } = launch;
    let has_limit = limits.memory_bytes.is_some()
        || containers.iter().chain(init_containers).any(|container| container.limits.memory_bytes.is_some());
    has_limit && !cgroup.as_deref().is_some_and(cgroup::limits_memory)
}

struct Watcher {
    data: PathBuf,
    /// The pods that have been launched, by uid: read once.
    known: BTreeMap<String, Launch>,
    /// The pod that was ended last because the machine was short of memory, and when.
    released: Option<(String, Instant)>,
}

/// What a look has found.
#[derive(Debug, Default)]
struct Look {
    ends: Vec<End>,
    /// Something is near a limit.
    is_near: bool,
}

impl Watcher {
    fn new(data: PathBuf) -> Self {
        Self { data, known: BTreeMap::new(), released: None }
    }

    fn look(&mut self, machine: Machine) -> Look {
        self.learn();
        let is_short = machine.is_short();
        let watched: Vec<(&String, &Launch)> =
            self.known.iter().filter(|(_, launch)| is_short || needs_watching(launch)).collect();
        if watched.is_empty() {
            return Look { ends: Vec::new(), is_near: machine.is_near() && !self.known.is_empty() };
        }
        let table = Table::read();
        let pods: Vec<Pod> = watched
            .into_iter()
            .filter_map(|(uid, launch)| measure(&PodDir::of(&self.data, uid), launch, &table, is_short))
            .collect();
        let held = |pod: &&Pod| self.known.get(&pod.uid).is_some_and(needs_watching);
        let limited: Vec<Pod> = pods.iter().filter(held).cloned().collect();
        let is_near = machine.is_near() || limited.iter().any(Pod::is_near);
        let mut ends = verdict::over_limits(&limited);
        // What ends for its own limit helps the machine as well.
        if is_short && ends.is_empty() && !self.waits_for_release(&pods) {
            ends = verdict::furthest_over(&pods, machine);
            match ends.first() {
                Some(end) => self.released = Some((end.uid.clone(), Instant::now())),
                None => tracing::warn!("the machine is short of memory, and no pod uses more than it requests"),
            }
        }
        Look { ends, is_near }
    }

    /// Whether a pod that was ended for the machine's sake still holds memory.
    fn waits_for_release(&self, pods: &[Pod]) -> bool {
        self.released.as_ref().is_some_and(|(uid, at)| {
            at.elapsed() < RELEASE_MAX && pods.iter().any(|pod| pod.uid == *uid && !pod.containers.is_empty())
        })
    }

    /// Reads the launch descriptions of pods that are new, and forgets those that are gone.
    fn learn(&mut self) {
        let entries = std::fs::read_dir(self.data.join("pods")).into_iter().flatten().flatten();
        let there: BTreeSet<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        self.known.retain(|uid, _| there.contains(uid));
        for uid in there {
            if !self.known.contains_key(&uid)
                // one that is not launched yet is looked at again, one of a newer program is not ours
                && let Ok(Some(launch)) = PodDir::of(&self.data, &uid).read_launch()
            {
                self.known.insert(uid, launch);
            }
        }
    }
}

/// What the containers of a pod use; `None` where its shim does not run. `exactly`: also where that is less than a limit.
fn measure(dir: &PodDir, launch: &Launch, table: &Table, exactly: bool) -> Option<Pod> {
    let shim = dir.shim().ok()??;
    let mut trees: BTreeMap<String, (u32, Vec<i32>)> = BTreeMap::new();
    for Running { container, attempt, head } in running(dir, shim, table) {
        let (_, processes) = trees.entry(container).or_insert((attempt, Vec::new()));
        processes.extend(table.tree(head).into_iter().map(|process| process.id.pid));
    }
    let limit_of = |name: &str| {
        let all = launch.init_containers.iter().chain(&launch.containers);
        all.into_iter().find(|container| container.name == name).and_then(|container| container.limits.memory_bytes)
    };
    let sum = |of: fn(i32) -> Option<u64>| -> BTreeMap<&String, u64> {
        let used = |processes: &[i32]| processes.iter().filter_map(|pid| of(*pid)).sum();
        trees.iter().map(|(name, (_, processes))| (name, used(processes))).collect()
    };
    let mut used = sum(process::resident_bytes);
    let is_over = used.iter().any(|(name, used)| limit_of(name).is_some_and(|limit| *used > limit))
        || launch.limits.memory_bytes.is_some_and(|limit| used.values().sum::<u64>() > limit);
    if is_over || exactly {
        used = sum(process::memory_bytes);
    }
    let container = |(name, (attempt, _)): (&String, &(u32, Vec<i32>))| Container {
        name: name.clone(),
        attempt: *attempt,
        limit: limit_of(name),
        used: used.get(name).copied().unwrap_or(0),
    };
    Some(Pod {
        uid: dir.uid(),
        limit: launch.limits.memory_bytes,
        request: launch.limits.memory_request_bytes.unwrap_or(0),
        containers: trees.iter().map(container).collect(),
    })
}
