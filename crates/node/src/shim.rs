//! The shim: one small process per pod that starts its containers, keeps their logs, restarts them, and remembers how they
//! ended. It has one thread and no runtime, and survives the agent and the control plane.
//!
//! The binary runs it as a hidden subcommand: `trainyard shim <pod directory>`.

mod container;
mod control;
pub mod log_writer;
mod mounts;
mod oom;
mod process;
mod reach;
mod ssh;
mod supervisor;
mod warm;

use crate::cgroup::PodGroup;
use crate::poddir::{JournalWriter, PodDir};
use crate::wire::{Event, Isolation, Launch, Record};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork, pipe2};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use supervisor::Supervisor;

/// What the shim says on its standard output once it has the pod (or knows that it is not to have it).
pub const READY: &str = "ready\n";

/// Runs the shim: `<pod directory>`; or `--probe <directory>` to find out what isolation this machine allows; or
/// `--ssh <pods' directory> <ssh's arguments>`, the `ssh` of pods; or `--reach <pods' directory> <mpi-wait's arguments>`, which waits
/// for the hosts of a hostfile; or `--warm <directory of warm starts> <command>`.
///
/// Must be called before any thread is started.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    match args.as_slice() {
        [flag, dir] if flag == "--probe" => {
            let isolation = probe(Path::new(dir));
            let text = serde_json::to_string(&isolation).expect("invariant: isolation is plain data");
            if writeln!(std::io::stdout(), "{text}").is_err() {
                return ExitCode::FAILURE;
            }
            ExitCode::SUCCESS
        }
        [flag, pods, words @ ..] if flag == "--ssh" => ssh::main(Path::new(pods), words),
        [flag, pods, words @ ..] if flag == "--reach" => reach::main(Path::new(pods), words),
        [flag, dir, words @ ..] if flag == "--warm" => warm::main(Path::new(dir), words),
        [dir] => match run(PodDir::new(PathBuf::from(dir))) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                crate::say!("{} shim: {e}", clock::now());
                ExitCode::FAILURE
            }
        },
        _ => {
            crate::say!("usage: shim <pod directory> | shim --probe <directory>");
            ExitCode::from(2)
        }
    }
}

fn run(dir: PodDir) -> std::io::Result<()> {
    let _ = nix::unistd::setsid(); // fails only for one started by hand, as the leader of a group
    let Some(_lock) = dir.take_lock()? else {
        return say_ready();
    };
    let mut launch = dir.read_launch()?.ok_or_else(|| std::io::Error::other("no launch.json"))?;
    if !dir.read_journal()?.is_empty() {
        return say_ready(); // a pod is run once; the agent knows what to make of a journal without an end
    }
    if let Some(data) = dir.data() {
        clock::follow(&data.join(clock::FILE));
    }
    let mut journal = JournalWriter::open(&dir)?;
    let boot_id = crate::host::boot_id();
    journal.append(&Record::now(Event::Taken { pid: std::process::id() as i32, boot_id }))?;
    // By a relative name: the path of a socket is limited to 107 bytes.
    std::env::set_current_dir(dir.path())?;
    let listener = UnixListener::bind("sock")?;
    listener.set_nonblocking(true)?;
    std::env::set_current_dir("/")?;
    say_ready()?;
    // what the agent gave us to hold (the pod's ports), until the pod is over
    let _held = std::io::stdin().as_fd().try_clone_to_owned()?;
    redirect_streams(&dir)?;
    let group = match PodGroup::enter(&launch) {
        Ok(group) => group,
        Err(error) => {
            crate::say!("{} limits are not enforced: cgroup: {error}", clock::now());
            None
        }
    };
    nix::sys::prctl::set_child_subreaper(true)?;
    let signals = supervisor::take_signals()?;
    let view = mounts::enter_namespaces(&launch.isolation, &launch.hostname)
        .and_then(|()| if launch.isolation.is_hosts() { mounts::prepare_pod(&dir, &launch) } else { Ok(()) });
    if let Err(why) = view {
        refuse(&mut launch, &format!("the pod's view of the file system: {why}"));
    }
    Supervisor::new(dir, &launch, group, journal, listener, signals).run()
}

fn say_ready() -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    stdout.write_all(READY.as_bytes())?;
    stdout.flush()
}

/// Lets every container fail with this message.
fn refuse(launch: &mut Launch, why: &str) {
    for container in launch.init_containers.iter_mut().chain(&mut launch.containers) {
        container.refused = Some(why.to_owned());
        container.restart_policy = crate::wire::RestartPolicy::Never;
    }
}

/// Standard input and output go nowhere (the agent's pipe must not break under us), errors to the shim's log.
fn redirect_streams(dir: &PodDir) -> std::io::Result<()> {
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(dir.shim_log())?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&log)?;
    Ok(())
}

/// What this machine allows, by trying it in processes of its own. `dir` must exist and be writable.
fn probe(dir: &Path) -> Isolation {
    let mut refusals = Vec::new();
    for user_namespace in [false, true] {
        let isolation = Isolation::Hosts { user_namespace };
        match try_isolation(&isolation, dir) {
            Ok(()) => return isolation,
            Err(why) => refusals.push(match user_namespace {
                false => format!("without user namespace: {why}"),
                true => format!("with user namespace: {why}"),
            }),
        }
    }
    Isolation::Plain { why: refusals.join("; ") }
}

/// Why pods cannot have namespaces of their own.
#[derive(Debug, thiserror::Error)]
enum IsolationError {
    #[error(transparent)]
    Process(#[from] nix::errno::Errno),
    #[error(transparent)]
    Answer(#[from] io::Error),
    /// What the process said that tried.
    #[error("{0}")]
    Refused(String),
}

fn try_isolation(isolation: &Isolation, dir: &Path) -> Result<(), IsolationError> {
    let (verdict, verdict_in) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    #[expect(unsafe_code, reason = "fork without exec: the shim has one thread, so the child is whole")]
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            drop(verdict_in);
            let mut why = String::new();
            File::from(verdict).read_to_string(&mut why)?;
            match waitpid(child, None) {
                Ok(WaitStatus::Exited(_, 0)) => Ok(()),
                Ok(_) | Err(_) => Err(IsolationError::Refused(why)),
            }
        }
        ForkResult::Child => {
            let result = mounts::enter_namespaces(isolation, "probe").and_then(|()| mounts::try_all(dir));
            let code = i32::from(result.is_err());
            let _ = File::from(verdict_in)
                .write_all(result.err().map(|error| error.to_string()).unwrap_or_default().as_bytes());
            process::exit_now(code)
        }
    }
}

/// The log of the shim itself, for error messages of the agent.
pub fn complaint(dir: &PodDir) -> String {
    let text = fs::read_to_string(dir.shim_log()).unwrap_or_default();
    text.lines().last().unwrap_or("no message").to_owned()
}
