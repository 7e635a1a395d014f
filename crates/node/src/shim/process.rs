//! Starting and ending processes, below the standard library's `Command`: it can neither enter namespaces between fork
//! and exec nor say why the exec failed.

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::prctl;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{self, ForkResult, Pid, fork, pipe2};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What to execute.
pub struct Command<'a> {
    pub argv: &'a [String],
    pub env: &'a [(String, String)],
    pub working_dir: &'a Path,
    /// Where a process writes to enter its group.
    pub cgroup: Option<&'a File>,
    /// From 0 to 1000: how far before others the kernel ends it where the machine has no memory left.
    pub oom_score: u16,
}

/// Why a program cannot be executed, as a container runtime says it.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("exec: no command")]
    NoCommand,
    #[error("exec: {program:?}: stat {program}: no such file or directory")]
    NoFile { program: String },
    #[error("exec: {program:?}: is a directory")]
    Directory { program: String },
    #[error("exec: {program:?}: permission denied")]
    Permission { program: String },
    #[error("exec: {program:?}: executable file not found in $PATH")]
    NotOnPath { program: String },
    #[error("{text:?} holds a NUL byte")]
    Nul { text: String },
    #[error("working directory {}: {error}", path.display())]
    WorkingDirectory { path: PathBuf, error: io::Error },
    #[error("/dev/null: {0}")]
    DevNull(io::Error),
    #[error("{what}: {error}")]
    Machine { what: &'static str, error: Errno },
    /// What the new process said before it became the program.
    #[error("{0}")]
    Refused(String),
}

/// Ends this process without running anything that belongs to the process it was forked from.
pub fn exit_now(code: i32) -> ! {
    #[expect(unsafe_code, reason = "_exit: a forked child must not run its parent's exit handlers")]
    unsafe {
        nix::libc::_exit(code)
    }
}

/// Finds a program as `execvp` would, on the PATH of the environment it will have.
fn find_program(command: &Command<'_>) -> Result<PathBuf, SpawnError> {
    let program = command.argv.first().map(String::as_str).unwrap_or_default();
    if program.is_empty() {
        return Err(SpawnError::NoCommand);
    }
    let named = || program.to_owned();
    let is_executable =
        |path: &Path| fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        let path = command.working_dir.join(program);
        return match fs::metadata(&path) {
            Err(_) => Err(SpawnError::NoFile { program: named() }),
            Ok(m) if m.is_dir() => Err(SpawnError::Directory { program: named() }),
            Ok(_) if !is_executable(&path) => Err(SpawnError::Permission { program: named() }),
            Ok(_) => Ok(path),
        };
    }
    let path = command.env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_str());
    path.unwrap_or("/usr/local/bin:/usr/bin:/bin")
        .split(':')
        .map(|dir| command.working_dir.join(dir).join(program))
        .find(|path| is_executable(path))
        .ok_or_else(|| SpawnError::NotOnPath { program: named() })
}

fn c_string(text: &str) -> Result<CString, SpawnError> {
    CString::new(text).map_err(|_| SpawnError::Nul { text: text.to_owned() })
}

/// Forks and executes; returns once the program runs. The streams are closed in the caller. The new process leads a
/// session of its own, has no blocked signals, and is killed when its parent dies.
///
/// Errors name the program and say why it could not be executed.
pub fn spawn(
    command: &Command<'_>,
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
) -> Result<Pid, SpawnError> {
    let stdin = match stdin {
        Some(fd) => fd,
        None => File::open("/dev/null").map_err(SpawnError::DevNull)?.into(),
    };
    if let Err(error) = fs::metadata(command.working_dir) {
        return Err(SpawnError::WorkingDirectory { path: command.working_dir.to_owned(), error });
    }
    let program = find_program(command)?;
    let path = c_string(&program.to_string_lossy())?;
    let argv = command.argv.iter().map(|a| c_string(a)).collect::<Result<Vec<_>, _>>()?;
    let env = command.env.iter().map(|(k, v)| c_string(&format!("{k}={v}"))).collect::<Result<Vec<_>, _>>()?;
    let on_machine = |what| move |error| SpawnError::Machine { what, error };
    let (verdict, verdict_in) = pipe2(OFlag::O_CLOEXEC).map_err(on_machine("pipe"))?;
    #[expect(unsafe_code, reason = "the callers have one thread, so the child may allocate and open files")]
    match unsafe { fork() }.map_err(on_machine("fork"))? {
        ForkResult::Parent { child } => {
            drop((verdict_in, stdin, stdout, stderr));
            let mut why = String::new();
            let _ = File::from(verdict).read_to_string(&mut why);
            if why.is_empty() {
                return Ok(child);
            }
            let _ = waitpid(child, None);
            Err(SpawnError::Refused(why))
        }
        ForkResult::Child => {
            let why = match become_program(command, &path, &argv, &env, &stdin, &stdout, &stderr) {
                Ok(never) => match never {},
                Err((doing, e)) => format!("{doing} {}: {}", command.argv[0], e.desc()),
            };
            let _ = File::from(verdict_in).write_all(why.as_bytes());
            exit_now(127)
        }
    }
}

fn become_program(
    command: &Command<'_>,
    path: &CString,
    argv: &[CString],
    env: &[CString],
    stdin: &OwnedFd,
    stdout: &OwnedFd,
    stderr: &OwnedFd,
) -> Result<std::convert::Infallible, (&'static str, Errno)> {
    let on = |doing| move |e| (doing, e);
    unistd::setsid().map_err(on("new session for"))?;
    if let Some(procs) = command.cgroup {
        unistd::write(procs, b"0").map_err(on("cgroup of"))?;
    }
    // A machine without memory must not lose its control plane to a pod. Where this may not be set, it is as before.
    let _ = fs::write("/proc/self/oom_score_adj", command.oom_score.to_string());
    if unistd::isatty(stdin).unwrap_or(false) {
        control_terminal(stdin).map_err(on("terminal of"))?;
    }
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(on("death signal of"))?;
    unistd::dup2_stdin(stdin).map_err(on("stdin of"))?;
    unistd::dup2_stdout(stdout).map_err(on("stdout of"))?;
    unistd::dup2_stderr(stderr).map_err(on("stderr of"))?;
    reset_signals().map_err(on("signals of"))?;
    unistd::chdir(command.working_dir).map_err(on("working directory of"))?;
    unistd::execve(path, argv, env).map_err(on("exec"))
}

fn control_terminal(terminal: &OwnedFd) -> nix::Result<()> {
    #[expect(unsafe_code, reason = "nix has no wrapper for TIOCSCTTY")]
    let result = unsafe { nix::libc::ioctl(terminal.as_raw_fd(), nix::libc::TIOCSCTTY, 0) };
    Errno::result(result).map(drop)
}

/// No signal blocked, and each as a program expects it: Rust's runtime ignores SIGPIPE, and `nohup trainyard up` ignores SIGHUP,
/// which all below it would inherit.
fn reset_signals() -> nix::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in Signal::iterator().filter(|signal| !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP)) {
        #[expect(unsafe_code, reason = "sets a default action, installs no handler")]
        unsafe {
            sigaction(signal, &default)?;
        }
    }
    SigSet::empty().thread_set_mask()
}

/// Points standard input, output and error to nowhere.
pub fn forget_standard_streams() {
    if let Ok(null) = fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = unistd::dup2_stdin(&null);
        let _ = unistd::dup2_stdout(&null);
        let _ = unistd::dup2_stderr(&null);
    }
}

/// Closes every descriptor above standard error but these.
pub fn close_all_but(keep: &[&dyn AsRawFd]) {
    let keep: Vec<RawFd> = keep.iter().map(|fd| fd.as_raw_fd()).collect();
    let open: Vec<RawFd> = match fs::read_dir("/proc/self/fd") {
        Ok(entries) => entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect(),
        Err(_) => (3..256).collect(),
    };
    for fd in open {
        if fd > 2 && !keep.contains(&fd) {
            let _ = unistd::close(fd);
        }
    }
}

/// Every process and its parent.
fn parents() -> BTreeMap<i32, i32> {
    crate::host::pids()
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // The name, in parentheses, may hold anything; state and parent follow the last one.
            let parent = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect()
}

/// All processes below this one, as of now.
fn descendants() -> Vec<Pid> {
    let parents = parents();
    let me = std::process::id() as i32;
    let is_below = |pid: i32| {
        let mut at = pid;
        for _ in 0..parents.len() {
            match parents.get(&at) {
                Some(&parent) if parent == me => return true,
                Some(&parent) => at = parent,
                None => return false,
            }
        }
        false
    };
    parents.keys().copied().filter(|&pid| is_below(pid)).map(Pid::from_raw).collect()
}

/// Sends SIGKILL to every process below this one.
pub fn kill_all_once() {
    for pid in descendants() {
        let _ = kill(pid, Signal::SIGKILL);
    }
}

/// Kills this process's children, and all below them, except these (and what is below these).
pub fn kill_children_but(known: &[Pid]) {
    let parents = parents();
    let me = std::process::id() as i32;
    for pid in descendants() {
        let mut at = pid.as_raw();
        while let Some(&parent) = parents.get(&at)
            && parent != me
        {
            at = parent;
        }
        if !known.contains(&Pid::from_raw(at)) {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

/// Kills and reaps every process below this one, and what they start meanwhile. This process must be a subreaper.
pub fn kill_descendants() {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(Errno::ECHILD) => return,
            Ok(WaitStatus::StillAlive) | Err(_) => {
                kill_all_once();
                // One of them at least has been sent a signal that it cannot refuse.
                let _ = waitpid(None, None);
            }
            Ok(_) => {}
        }
    }
}
