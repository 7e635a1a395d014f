//! cgroup v2: a group for each pod and, in it, one for each attempt of a container, with the limits that the pod asked for.
//!
//! ```text
//! <mount>/[own group/]trainyard-<hash of the data directory>/   one for each agent
//!   <pod's uid>/                      limits of the pod as a whole
//!     supervisor/                     the shim, and the processes that keep its containers
//!     <container>.<attempt>/          what the container runs
//! ```
//!
//! Groups are made by the shim and removed by the first process that finds the pod over; none outlives its pod's end and the next look at it. A
//! machine lends its controllers one by one: without the memory controller a group still says which processes are the pod's.

use crate::wire::{Launch, Limits};
use api::node::Limited;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Controllers that limits need.
const CONTROLLERS: [&str; 2] = ["memory", "cpu"];
/// How the names of agents' groups begin.
const PREFIX: &str = "trainyard-";
/// Where the shim itself is, in a pod's group.
const SUPERVISOR: &str = "supervisor";
/// The length of a period of processor time, in microseconds (the kernel's default, and the kubelet's).
const CPU_PERIOD_MICROS: u64 = 100_000;
/// The least that may be asked for in a period, in microseconds (the kernel's bound).
const CPU_QUOTA_MICROS_MIN: u64 = 1_000;
/// How often, and how long apart, what could not be removed yet is tried again: what was killed takes its moment to go.
const REMOVALS: usize = 200;
const REMOVAL_PAUSE: Duration = Duration::from_millis(10);

/// What this machine lends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Support {
    /// The agent's group, in which pods get theirs; `None`: none may be made.
    pub group: Option<PathBuf>,
    /// How limits of memory and processors are enforced.
    pub limits: Limited,
}

impl Support {
    fn none(why: impl Into<String>) -> Self {
        Self { group: None, limits: Limited::without(&CONTROLLERS, why) }
    }
}

/// Finds out, by trying, what may be used by an agent with this data directory. What was tried is undone.
pub fn detect(data: &Path) -> Support {
    let (mounts, own) = (read("/proc/self/mountinfo"), read("/proc/self/cgroup"));
    let Some(mount) = mount_point(&mounts) else { return Support::none("cgroup v2 is not mounted") };
    let own = own_group(&own).unwrap_or_default();
    let name = format!("{PREFIX}{:016x}", crate::identity::hash(&[&data.to_string_lossy()]));
    let mut refusals = Vec::new();
    let mut parents = vec![mount.clone(), mount.join(own)];
    parents.dedup();
    for parent in parents {
        match try_in(&parent, &name) {
            Ok(missing) => {
                let why =
                    format!("the cgroup v2 at {} has no controller for {}", parent.display(), missing.join(" and "));
                return Support { group: Some(parent.join(name)), limits: Limited::without(&missing, why) };
            }
            Err(why) => refusals.push(format!("{}: {why}", parent.display())),
        }
    }
    Support::none(format!("no cgroup of its own: {}", refusals.join("; ")))
}

/// Where cgroup v2 is mounted, by `/proc/self/mountinfo`.
fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let is_ours = after.split(' ').next() == Some("cgroup2");
        is_ours.then(|| before.split(' ').nth(4).map(PathBuf::from))?
    })
}

/// Why an agent cannot have a group in another.
#[derive(Debug, thiserror::Error)]
enum GroupError {
    #[error(transparent)]
    Make(#[from] io::Error),
    #[error("processes may not be moved there")]
    Unmovable,
    #[error("/bin/sh: {0}")]
    Shell(io::Error),
}

/// Makes a group in `parent`, moves a process into it, and removes it; the controllers that are missing.
fn try_in(parent: &Path, name: &str) -> Result<Vec<&'static str>, GroupError> {
    let group = parent.join(name);
    let (held, missing) = hold_group(&group)?;
    let probe = group.join("probe");
    make(&probe)?;
    let moved = Command::new("/bin/sh")
        .args(["-c", r#"echo $$ > "$0""#])
        .arg(probe.join("cgroup.procs"))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let _ = fs::remove_dir(&probe);
    drop(held);
    remove_unused(&group);
    match moved {
        Ok(status) if status.success() => Ok(missing),
        Ok(_) => Err(GroupError::Unmovable),
        Err(e) => Err(GroupError::Shell(e)),
    }
}

fn make(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Makes the agent's group, with the controllers that the one above it lends; those that are missing.
fn make_group(group: &Path) -> io::Result<Vec<&'static str>> {
    if let Some(parent) = group.parent() {
        hand_down(parent);
    }
    make(group)?;
    let has = read(group.join("cgroup.controllers"));
    Ok(CONTROLLERS.into_iter().filter(|name| !has.split_whitespace().any(|word| word == *name)).collect())
}

/// Makes the agent's group where it is not there, and keeps everybody from removing it while the file is open; see [`make_group`].
fn hold_group(group: &Path) -> io::Result<(File, Vec<&'static str>)> {
    loop {
        let missing = make_group(group)?;
        let held = match File::open(group) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        held.lock_shared()?;
        // The holder of the lock before us may have removed the group, and another may have the name.
        let is_there = fs::metadata(group).is_ok_and(|found| held.metadata().is_ok_and(|own| own.ino() == found.ino()));
        if is_there {
            return Ok((held, missing));
        }
    }
}

/// Removes an agent's group and the pods' in it if no process is in them and nobody is making one: an empty group is what every
/// group is before its first process.
fn remove_unused(group: &Path) {
    let Ok(held) = File::open(group) else { return };
    if held.try_lock().is_ok() && !is_populated(group) {
        let _ = remove_empty(group);
    }
}

/// Lends a group's controllers to those in it. One that the kernel keeps back is missing there, and found so.
fn hand_down(group: &Path) {
    let (has, lent) = (read(group.join("cgroup.controllers")), read(group.join("cgroup.subtree_control")));
    let has_word = |text: &str, name: &str| text.split_whitespace().any(|word| word == name);
    for name in CONTROLLERS.into_iter().filter(|name| has_word(&has, name) && !has_word(&lent, name)) {
        let _ = put(group, "cgroup.subtree_control", &format!("+{name}"));
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Writes a file of a group, which must be there.
fn put(group: &Path, file: &str, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(group.join(file))?.write_all(text.as_bytes())
}

/// Puts limits on a group. A file that is not there has no controller behind it: `detect` has said so.
fn limit(group: &Path, limits: &Limits) -> io::Result<()> {
    let mut files = Vec::new();
    if let Some(bytes) = limits.memory_bytes {
        files.push(("memory.max", bytes.to_string()));
        // A kubelet lets nobody swap by default: what is over the limit is over.
        files.push(("memory.swap.max", "0".to_owned()));
    }
    if let Some(milli) = limits.cpu_milli {
        let quota = milli.saturating_mul(CPU_PERIOD_MICROS / 1000).max(CPU_QUOTA_MICROS_MIN);
        files.push(("cpu.max", format!("{quota} {CPU_PERIOD_MICROS}")));
    }
    if let Some(milli) = limits.cpu_request_milli {
        files.push(("cpu.weight", weight(milli).to_string()));
    }
    for (file, text) in files {
        match put(group, file, &text) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// A share of the processors as cgroup v2 counts it, from 1 to 10,000 (the kubelet's conversion from shares of v1).
fn weight(milli: u64) -> u64 {
    let shares = (milli.saturating_mul(1024) / 1000).clamp(2, 262_144);
    let above = shares.saturating_sub(2).saturating_mul(9999) / 262_142;
    above.saturating_add(1)
}

/// Whether the kernel holds the pod with this group to its limit of memory.
pub fn limits_memory(group: &Path) -> bool {
    group.join("memory.max").exists()
}

/// A pod's group, from the shim's side.
#[derive(Debug)]
pub struct PodGroup {
    dir: PathBuf,
}

impl PodGroup {
    /// Makes the pod's group and moves this process into it; `None` where the pod is to have none.
    ///
    /// # Errors
    /// The kernel refuses what it granted when the agent tried.
    pub fn enter(launch: &Launch) -> io::Result<Option<Self>> {
        let Some(dir) = &launch.cgroup else { return Ok(None) };
        // The agent's group goes with its last pod, and with the next look of another agent, until this process is in it.
        let _held = match dir.parent() {
            Some(group) => {
                let (held, _missing) = hold_group(group)?;
                hand_down(group);
                Some(held)
            }
            None => None,
        };
        make(dir)?;
        limit(dir, &launch.limits)?;
        hand_down(dir);
        let supervisor = dir.join(SUPERVISOR);
        make(&supervisor)?;
        put(&supervisor, "cgroup.procs", "0")?;
        Ok(Some(Self { dir: dir.clone() }))
    }

    /// Makes the group of an attempt of a container.
    ///
    /// # Errors
    /// See [`PodGroup::enter`].
    pub fn container(&self, name: &str, attempt: u32, limits: &Limits) -> io::Result<ContainerGroup> {
        let dir = self.dir.join(format!("{name}.{attempt}"));
        make(&dir)?;
        limit(&dir, limits)?;
        // What is left of a container that lost a process to its limit is of no use to anybody (the kubelet's choice, too).
        let _ = put(&dir, "memory.oom.group", "1");
        let flags = nix::libc::O_CLOEXEC;
        let procs = OpenOptions::new().write(true).custom_flags(flags).open(dir.join("cgroup.procs"))?;
        Ok(ContainerGroup { dir, procs })
    }
}

/// The group of an attempt of a container.
#[derive(Debug)]
pub struct ContainerGroup {
    dir: PathBuf,
    /// A process that writes `0` here is in the group.
    pub procs: File,
}

impl ContainerGroup {
    /// How many processes of the group were killed for lack of memory; `None` where nobody counts.
    pub fn oom_kills(&self) -> Option<u64> {
        let events = fs::read_to_string(self.dir.join("memory.events")).ok()?;
        events.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
    }

    /// The most memory that the group ever held, in bytes; `None` where nobody counts.
    pub fn peak_memory_bytes(&self) -> Option<u64> {
        read(self.dir.join("memory.peak")).trim().parse().ok()
    }

    /// Ends what is left in the group, and removes it if that is done by now; the removal of the pod's group tries again.
    pub fn end(&self) {
        let _ = put(&self.dir, "cgroup.kill", "1");
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Brings a process that was started elsewhere into the group that this one is in, where that is a pod's.
///
/// # Errors
/// The kernel does not let us: the pod's limits would not hold for it.
pub fn bring(pid: i32) -> io::Result<()> {
    let own = own_group(&read("/proc/self/cgroup"));
    let Some(own) = own.filter(|path| path.split('/').any(|part| part.starts_with(PREFIX))) else { return Ok(()) };
    let mount =
        mount_point(&read("/proc/self/mountinfo")).ok_or_else(|| io::Error::other("cgroup v2 is not mounted"))?;
    put(&mount.join(own), "cgroup.procs", &pid.to_string())
}

/// Kills every process of the pod that this one supervises, itself included. Returns where it is in no pod's group.
pub fn end_own_pod() {
    let own = own_group(&read("/proc/self/cgroup"));
    let Some(pod) = own.as_deref().and_then(|path| path.strip_suffix(SUPERVISOR)) else { return };
    let is_ours = pod.split('/').any(|part| part.starts_with(PREFIX));
    if let Some(mount) = mount_point(&read("/proc/self/mountinfo")).filter(|_| is_ours) {
        let _ = put(&mount.join(pod), "cgroup.kill", "1");
    }
}

/// The group that `/proc/PID/cgroup` names, without the slash that it begins with.
fn own_group(text: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix("0::/")).map(str::to_owned)
}

/// Whether any process is in the pod's group, or in one below it.
fn is_populated(dir: &Path) -> bool {
    read(dir.join("cgroup.events")).lines().any(|line| line == "populated 1")
}

/// Kills every process in a pod's group and removes the group, and the agent's with the last pod. Absent is fine.
///
/// # Errors
/// Something lives on after two seconds, or the kernel does not let us.
pub fn remove(dir: &Path) -> io::Result<()> {
    let mut result = Ok(());
    for attempt in 0..REMOVALS {
        if attempt > 0 {
            std::thread::sleep(REMOVAL_PAUSE);
        }
        if is_populated(dir) {
            let _ = put(dir, "cgroup.kill", "1");
        }
        result = remove_empty(dir);
        if result.is_ok() {
            break;
        }
    }
    if let Some(group) = dir.parent() {
        remove_unused(group);
    }
    result
}

fn remove_empty(dir: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_empty(&entry.path())?;
    }
    fs::remove_dir(dir)
}

/// Removes the groups of pods that nobody knows any more, in an agent's group; and those of other agents in which nothing runs:
/// their homes may be gone, and an agent that still runs makes its group anew with its next pod.
pub fn clear(group: &Path, is_known: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_dir
            && !is_known(&entry.file_name().to_string_lossy())
            && let Err(error) = remove(&entry.path())
        {
            tracing::warn!(group = %entry.path().display(), %error, "cannot remove the group of a pod that is gone");
        }
    }
    remove_unused(group);
    for entry in group.parent().and_then(|parent| fs::read_dir(parent).ok()).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        if name.to_string_lossy().starts_with(PREFIX) && path != group {
            remove_unused(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts() {
        let hybrid = "24 1 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      30 24 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(hybrid), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mount_point("24 1 0:22 / /sys/fs/cgroup rw - cgroup cgroup rw\n"), None);
    }

    #[test]
    fn limits_are_written_as_the_kernel_has_them() {
        // A folder with the files that the kernel would show; it has no memory.swap.max.
        let tmp = tempfile::tempdir().unwrap();
        let files = ["memory.max", "cpu.max", "cpu.weight"].map(|name| tmp.path().join(name));
        files.iter().for_each(|file| fs::write(file, "").unwrap());
        let limits = Limits {
            memory_bytes: Some(1 << 30),
            memory_request_bytes: Some(1 << 29),
            cpu_milli: Some(1500),
            cpu_request_milli: Some(1000),
        };
        limit(tmp.path(), &limits).unwrap();
        assert_eq!(files.map(|file| fs::read_to_string(file).unwrap()), ["1073741824", "150000 100000", "39"]);
    }

    #[test]
    fn shares_become_weights() {
        assert_eq!([0, 2, 100, 1000, 256_000, u64::MAX].map(weight), [1, 1, 4, 39, 10_000, 10_000]);
    }

    #[test]
    fn the_kernel_tells_whom_memory_cost() {
        let tmp = tempfile::tempdir().unwrap();
        let procs = File::create(tmp.path().join("cgroup.procs")).unwrap();
        let group = ContainerGroup { dir: tmp.path().to_owned(), procs };
        assert_eq!((group.oom_kills(), group.peak_memory_bytes()), (None, None));
        fs::write(tmp.path().join("memory.events"), "low 0\noom 1\noom_kill 2\noom_group_kill 1\n").unwrap();
        fs::write(tmp.path().join("memory.peak"), "4096\n").unwrap();
        assert_eq!((group.oom_kills(), group.peak_memory_bytes()), (Some(2), Some(4096)));
    }
}
