//! What is left of a pod whose shim and keepers were killed: found and ended by the pod's group where there is one, and by the mark
//! in the processes' environment or their session otherwise.

use crate::host;
use crate::wire::{Event, Held, Record, boot_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// The variable that every process of a pod begins with; its value is the pod's uid.
pub const MARK: &str = "TRAINYARD_POD_UID";
/// How often what was killed is looked for again, and how long apart.
const LOOKS: usize = 200;
const PAUSE: Duration = Duration::from_millis(10);

/// Processes of a pod that live on, by number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("processes of the pod cannot be ended: {}", .pids.iter().map(i32::to_string).collect::<Vec<_>>().join(", "))]
pub struct StillAlive {
    pids: Vec<i32>,
}

/// Ends every process of a pod that no shim runs any more. Blocks until they are gone, two seconds at most.
///
/// # Errors
/// Processes that live on.
pub fn end(pod: &Held, records: &[Record]) -> Result<(), StillAlive> {
    if let Some(group) = &pod.cgroup
        && let Err(error) = crate::cgroup::remove(group)
    {
        tracing::warn!(group = %group.display(), %error, "cannot remove the pod's group");
    }
    let pids = kill_all(&pod.uid, &sessions(records));
    if pids.is_empty() { Ok(()) } else { Err(StillAlive { pids }) }
}

/// Ends what is left of a pod by one of its keepers, whose shim was killed: what executed commands left behind was the shim's child and
/// is nobody's now, and there may be no agent to look for it.
pub fn end_from_within(uid: Option<&str>) {
    crate::cgroup::end_own_pod();
    if let Some(uid) = uid {
        kill_all(uid, &[]);
    }
}

/// Kills the pod's processes until there are none; those that live on.
fn kill_all(uid: &str, sessions: &[(i32, u64)]) -> Vec<i32> {
    let mut left = Vec::new();
    for look in 0..LOOKS {
        if look > 0 {
            std::thread::sleep(PAUSE);
        }
        left = find(uid, sessions);
        for pid in &left {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        if left.is_empty() {
            break;
        }
    }
    left
}

/// The sessions that the pod's processes began: the shim's, and that of each container's main process; with the time from which
/// the number was theirs, by the machine's uptime in milliseconds.
fn sessions(records: &[Record]) -> Vec<(i32, u64)> {
    if boot_of(records) != Some(host::boot_id().as_str()) {
        return Vec::new(); // other processes have these numbers now
    }
    let sessions = records.iter().filter_map(|record| match record.event {
        Event::Taken { pid, .. } | Event::Running { pid, .. } => Some((pid, record.uptime?)),
        Event::Exited { .. }
        | Event::Waiting { .. }
        | Event::Started { .. }
        | Event::HookFailed { .. }
        | Event::Stopping { .. }
        | Event::Finished
        | Event::Lost { .. } => None,
    });
    sessions.collect()
}

/// A process as `/proc` shows it.
struct Process {
    pid: i32,
    session: i32,
    is_zombie: bool,
    is_marked: bool,
    /// By the machine's uptime, in milliseconds.
    started: u64,
}

/// The living processes of the pod: those with its mark, and those of its sessions whose leaders are gone. While a session has
/// members its number is nobody else's; where the leader lives but has no mark, the number may have come again.
fn find(uid: &str, sessions: &[(i32, u64)]) -> Vec<i32> {
    let mark = format!("{MARK}={uid}");
    let me = std::process::id() as i32;
    let all: Vec<Process> = processes(&mark).filter(|process| process.pid != me).collect();
    let leaders: BTreeSet<i32> = all.iter().filter(|p| p.pid == p.session && !p.is_zombie).map(|p| p.pid).collect();
    let is_of_session = |process: &Process| {
        // starts are told to a hundredth of a second
        let is_after = |at: u64| process.started.saturating_add(1000) >= at;
        sessions.iter().any(|(leader, at)| process.session == *leader && !leaders.contains(leader) && is_after(*at))
    };
    let ours = all.iter().filter(|process| !process.is_zombie && (process.is_marked || is_of_session(process)));
    ours.map(|process| process.pid).collect()
}

fn processes(mark: &str) -> impl Iterator<Item = Process> {
    let ticks = host::ticks_per_second();
    host::pids().filter_map(move |pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold anything; the fields follow the last one.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let started: u64 = fields.get(19)?.parse().ok()?;
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        Some(Process {
            pid,
            session: fields.get(3)?.parse().ok()?,
            is_zombie: matches!(*fields.first()?, "Z" | "X"),
            is_marked: environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()),
            started: started.saturating_mul(1000).checked_div(u64::try_from(ticks).ok()?)?,
        })
    })
}
