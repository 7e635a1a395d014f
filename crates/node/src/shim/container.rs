//! One container: a small process of its own (forked from the shim, never executed) that owns the container's mounts,
//! starts the main process, adopts what that leaves behind, and kills all of it when the main process ends.
//!
//! It talks to the shim through a pipe, in lines: `started <pid>`, then `exited <code> <signal or 0> <peak bytes>`; or
//! `failed <message>` if the main process could not be executed.

use super::mounts::{self, MountError};
use super::process::{self, Command, SpawnError};
use crate::host;
use crate::http_get;
use crate::orphans;
use crate::wire::{ContainerLaunch, HttpGet};
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getppid, pipe2};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

/// Asks the container's process to kill everything at once.
pub const KILL_ALL: Signal = Signal::SIGUSR1;

/// The shim's ends of a started container.
#[derive(Debug)]
pub struct Started {
    pub keeper: Pid,
    pub status: File,
    pub stdout: File,
    pub stderr: File,
}

/// Whose view of the file system a process gets.
#[derive(Clone, Copy, Debug)]
pub enum View {
    /// The pod's, as it is (plain mode: the host's).
    Pod,
    /// The container's own: its volumes are mounted first.
    Own,
    /// That of the process with this pid: a command executed in a running container.
    Of(Pid),
}

/// Starts a container. An error here is one of the machine (no processes, no descriptors).
pub fn start(container: &ContainerLaunch, view: View, group: Option<&File>) -> nix::Result<Started> {
    let flags = nix::fcntl::OFlag::O_CLOEXEC;
    let (stdout, stdout_in) = pipe2(flags)?;
    let (stderr, stderr_in) = pipe2(flags)?;
    let keeper = Keeper { container, view, group, adopts: true };
    let (keeper, status) = keeper.fork(None, stdout_in, stderr_in)?;
    Ok(Started { keeper, status, stdout: stdout.into(), stderr: stderr.into() })
}

/// Starts a further command in a container (`container` with another `argv`); what it leaves behind lives on in the pod.
pub fn execute(
    container: &ContainerLaunch,
    view: View,
    group: Option<&File>,
    streams: [OwnedFd; 3],
) -> nix::Result<(Pid, File)> {
    let [stdin, stdout, stderr] = streams;
    Keeper { container, view, group, adopts: false }.fork(Some(stdin), stdout, stderr)
}

/// Sends the request of a hook from a process of its own, which says `exited 0` once it is answered, or `failed`.
pub fn fetch(get: &HttpGet) -> nix::Result<(Pid, File)> {
    let (status, status_in) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    #[expect(unsafe_code, reason = "fork without exec: the shim has one thread, so the child is whole")]
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok((child, status.into())),
        ForkResult::Child => {
            let mut status = File::from(status_in);
            process::close_all_but(&[&status]);
            process::forget_standard_streams();
            let _ = prctl::set_name(c"hook");
            let _ = prctl::set_pdeathsig(Signal::SIGKILL);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let result = runtime
                .map_err(|e| e.to_string())
                .and_then(|runtime| runtime.block_on(http_get::get(get)).map_err(|e| e.to_string()));
            match result {
                Ok(_) => say(&mut status, "exited 0 0 0"),
                Err(why) => say(&mut status, &format!("failed {why}")),
            }
            process::exit_now(0)
        }
    }
}

/// Why a container's main process cannot be started.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("{}", .0.desc())]
    Machine(#[from] nix::errno::Errno),
    #[error("the shim died")]
    ShimDied,
    #[error(transparent)]
    Mounts(#[from] MountError),
    #[error("{path}: {error}")]
    NamespaceFile { path: String, error: std::io::Error },
    #[error("{path}: {}", error.desc())]
    Namespace { path: String, error: nix::errno::Errno },
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

/// The container's own process.
struct Keeper<'a> {
    container: &'a ContainerLaunch,
    view: View,
    /// Where the container's processes enter its group.
    group: Option<&'a File>,
    /// Whether orphans of the main process are adopted, and killed when it ends.
    adopts: bool,
}

impl Keeper<'_> {
    /// Forks the process; its pid and the status pipe.
    fn fork(self, stdin: Option<OwnedFd>, stdout: OwnedFd, stderr: OwnedFd) -> nix::Result<(Pid, File)> {
        let (status, status_in) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let shim = nix::unistd::getpid();
        #[expect(unsafe_code, reason = "fork without exec: the shim has one thread, so the child is whole")]
        match unsafe { fork() }? {
            ForkResult::Parent { child } => Ok((child, status.into())),
            ForkResult::Child => {
                drop(status);
                let mut status = File::from(status_in);
                self.run(shim, &mut status, stdin, stdout, stderr);
                process::exit_now(0)
            }
        }
    }

    fn run(&self, shim: Pid, status: &mut File, stdin: Option<OwnedFd>, stdout: OwnedFd, stderr: OwnedFd) {
        let mut keep: Vec<&dyn AsRawFd> = vec![status, &stdout, &stderr];
        keep.extend(stdin.as_ref().map(|fd| fd as &dyn AsRawFd));
        keep.extend(self.group.map(|file| file as &dyn AsRawFd));
        process::close_all_but(&keep);
        let mut signals = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, KILL_ALL] {
            signals.add(signal);
        }
        let main = match self.start_main(shim, &signals, stdin, stdout, stderr) {
            Ok(main) => main,
            Err(why) => return say(status, &format!("failed container {:?}: {why}", self.container.name)),
        };
        process::forget_standard_streams();
        say(status, &format!("started {main}"));
        let (code, signal) = self.wait_for(main, &signals);
        if self.adopts {
            process::kill_descendants();
        }
        if getppid() != shim {
            let uid = self.container.env.iter().rfind(|(name, _)| name == orphans::MARK);
            return orphans::end_from_within(uid.map(|(_, uid)| uid.as_str()));
        }
        say(status, &format!("exited {code} {signal} {}", peak_memory_bytes()));
    }

    fn start_main(
        &self,
        shim: Pid,
        signals: &SigSet,
        stdin: Option<OwnedFd>,
        stdout: OwnedFd,
        stderr: OwnedFd,
    ) -> Result<Pid, StartError> {
        let _ = prctl::set_name(c"container");
        // The shim blocks every signal that it handles; so does this process, which waits for its own three.
        signals.thread_block()?;
        prctl::set_child_subreaper(self.adopts)?;
        prctl::set_pdeathsig(KILL_ALL)?;
        nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
        if getppid() != shim {
            return Err(StartError::ShimDied); // before we could ask to be told
        }
        match self.view {
            View::Pod => {}
            View::Own => mounts::own_mounts().and_then(|()| mounts::mount_container(&self.container.mounts))?,
            View::Of(pid) => {
                let path = format!("/proc/{pid}/ns/mnt");
                match File::open(&path) {
                    Ok(namespace) => setns(namespace, CloneFlags::CLONE_NEWNS)
                        .map_err(|error| StartError::Namespace { path, error })?,
                    Err(error) => return Err(StartError::NamespaceFile { path, error }),
                }
            }
        }
        let ContainerLaunch { argv, env, working_dir, limits, .. } = self.container;
        let oom_score = oom_score(limits.memory_request_bytes.unwrap_or(0), host::memory_bytes());
        let command = Command { argv, env, working_dir, cgroup: self.group, oom_score };
        Ok(process::spawn(&command, stdin, stdout, stderr)?)
    }

    /// Waits for the main process, reaping whatever else ends meanwhile. Exit code as a shell's, and the signal or 0.
    fn wait_for(&self, main: Pid, signals: &SigSet) -> (i32, i32) {
        let stop = self.container.stop_signal.and_then(|s| Signal::try_from(s).ok()).unwrap_or(Signal::SIGTERM);
        loop {
            loop {
                match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                    Ok(WaitStatus::Exited(pid, code)) if pid == main => return (code, 0),
                    Ok(WaitStatus::Signaled(pid, signal, _)) if pid == main => {
                        return (128 + signal as i32, signal as i32);
                    }
                    Ok(WaitStatus::StillAlive) | Err(_) => break,
                    Ok(_) => {}
                }
            }
            match signals.wait() {
                Ok(Signal::SIGTERM) => {
                    let _ = kill(main, stop);
                }
                Ok(signal) if signal == KILL_ALL => process::kill_all_once(),
                Ok(_) | Err(_) => {}
            }
        }
    }
}

/// What makes the kernel end the process first that is furthest over its request (the kubelet's numbers for pods that may use more
/// than they request). All pods come before processes that are none.
fn oom_score(request_bytes: u64, machine_bytes: u64) -> u16 {
    let share = request_bytes.saturating_mul(1000).checked_div(machine_bytes).unwrap_or(0);
    u16::try_from(1000_u64.saturating_sub(share).clamp(3, 999)).unwrap_or(999)
}

/// The most memory that one process among those that this one has reaped, or that they have, had resident.
fn peak_memory_bytes() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN);
    usage.map_or(0, |usage| u64::try_from(usage.max_rss()).unwrap_or(0) * 1024)
}

fn say(status: &mut File, line: &str) {
    // Without a shim there is nobody to tell; the kill-all signal is on its way.
    let _ = status.write_all(format!("{}\n", line.replace('\n', " ")).as_bytes());
}

/// What a container's process said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Started(i32),
    Exited { code: i32, signal: Option<i32>, peak_memory_bytes: Option<u64> },
    Failed { message: String },
}

/// Reads what can be read from the status pipe into `buffer`; the complete lines, and whether the pipe has ended.
pub fn read_status(pipe: &mut File, buffer: &mut Vec<u8>) -> (Vec<Said>, bool) {
    let mut chunk = [0; 4096];
    let ended = match pipe.read(&mut chunk) {
        Ok(0) => true,
        Ok(n) => {
            buffer.extend_from_slice(&chunk[..n]);
            false
        }
        Err(e) => e.kind() != std::io::ErrorKind::WouldBlock && e.kind() != std::io::ErrorKind::Interrupted,
    };
    let mut said = Vec::new();
    while let Some(end) = buffer.iter().position(|&b| b == b'\n') {
        let line: Vec<u8> = buffer.drain(..=end).collect();
        said.extend(parse_said(String::from_utf8_lossy(&line).trim_end()));
    }
    (said, ended)
}

fn parse_said(line: &str) -> Option<Said> {
    let (word, rest) = line.split_once(' ')?;
    match word {
        "started" => Some(Said::Started(rest.parse().ok()?)),
        "exited" => {
            let mut words = rest.split(' ');
            let (code, signal) = (words.next()?.parse().ok()?, words.next()?.parse::<i32>().ok()?);
            let peak = words.next().and_then(|word| word.parse::<u64>().ok()).filter(|bytes| *bytes > 0);
            Some(Said::Exited { code, signal: (signal != 0).then_some(signal), peak_memory_bytes: peak })
        }
        "failed" => Some(Said::Failed { message: rest.to_owned() }),
        _ => None,
    }
}
