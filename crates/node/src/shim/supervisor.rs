//! The shim's main loop: reacts to containers, the agent and the clock, and starts, stops and records.

mod requests;
mod stopping;
mod streams;
mod waiting;

use super::container::{self, Said, Started, View};
use super::control::Client;
use super::log_writer::{LogWriter, Stream};
use super::oom::KernelLog;
use super::process;
use crate::cgroup::{ContainerGroup, PodGroup};
use crate::files;
use crate::poddir::{JournalWriter, PodDir};
use crate::wire::{ContainerLaunch, Event, Exit, HookKind, Launch, Record, StopReason};
use api::time::after;
use jiff::Timestamp;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};
use stopping::Stop;
use streams::complain;
use waiting::Source;

/// Delay of the second restart; it doubles from there (kubelet's crash loop back-off).
const BACK_OFF_MIN: Duration = Duration::from_secs(10);
const BACK_OFF_MAX: Duration = Duration::from_secs(300);
/// A container that ran this long starts over with the delays.
const BACK_OFF_RESET: Duration = Duration::from_secs(600);
/// Wait before a record that could not be written is tried again.
const JOURNAL_RETRY: Duration = Duration::from_secs(1);
/// Wait before a container is started again that the machine had no room for.
const START_RETRY: Duration = Duration::from_secs(1);
/// How long the streams of a container that is gone are waited for, where somebody else holds them open.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// Exit code of a container that could not be started, as containerd has it.
const START_ERROR_CODE: i32 = 128;

/// Whether it is the machine that could not: its disk is full or read-only, or it has no memory, processes or descriptors left.
/// The container is not to blame, and may be started later.
fn may_pass(error: &io::Error) -> bool {
    use nix::errno::Errno::{EAGAIN, EDQUOT, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC, EROFS};
    let passing = [EAGAIN, EDQUOT, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC, EROFS];
    error.raw_os_error().is_some_and(|code| passing.contains(&nix::errno::Errno::from_raw(code)))
}

/// Blocks the signals the loop listens to, and returns where they arrive.
pub fn take_signals() -> nix::Result<SignalFd> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block()?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Init,
    Sidecar,
    Main,
}

struct Managed<'a> {
    spec: &'a ContainerLaunch,
    role: Role,
    /// The attempt that runs, or the next one.
    attempt: u32,
    state: State,
    back_off: Duration,
    /// The last exit code, once there is one.
    code: Option<i32>,
    /// Started for good: no startup probe, or it succeeded.
    started: bool,
}

enum State {
    /// Not started yet, or due to be started again at this time.
    Waiting(Option<Instant>),
    Running(Box<Run>),
    /// Will not be started again.
    Done,
}

/// A running attempt.
struct Run {
    keeper: Pid,
    status: Option<File>,
    status_buffer: Vec<u8>,
    stdout: Option<File>,
    stderr: Option<File>,
    log: LogWriter,
    said: Option<Said>,
    started_at: Timestamp,
    since: Instant,
    /// Its group (cgroup v2), where the pod has one.
    group: Option<ContainerGroup>,
    /// Processes of the group that lack of memory cost; known once it has ended, where somebody counts.
    oom_kills: Option<u64>,
    kernel_log: KernelLog,
    /// The main process, once it was executed.
    main: Option<i32>,
    /// Known once it has ended.
    peak_memory_bytes: Option<u64>,
    post_start: PostStart,
    stop: Stop,
    /// The agent ended it for the memory that it used: how much that was, and its words.
    over_memory: Option<(u64, String)>,
    /// The container is gone, but somebody else holds its streams: they are waited for until then.
    drained_by: Option<Instant>,
}

/// How far the post-start hook is; containers that come later wait for it.
enum PostStart {
    /// It is to run, or runs.
    Runs,
    Sleeps(Instant),
    Over,
}

/// A command executed in a container by request, or as a hook.
struct Execution {
    keeper: Pid,
    /// The container whose processes it joined.
    container: usize,
    status: Option<File>,
    buffer: Vec<u8>,
    for_whom: ForWhom,
}

impl Execution {
    fn new(keeper: Pid, container: usize, status: File, for_whom: ForWhom) -> Self {
        Self { keeper, container, status: Some(status), buffer: Vec::new(), for_whom }
    }
}

enum ForWhom {
    Client { id: u64, kill_on_close: bool },
    Hook { container: usize, attempt: u32, kind: HookKind },
}

/// Runs one pod until nothing of it is left.
pub struct Supervisor<'a> {
    dir: PodDir,
    launch: &'a Launch,
    /// `None`: the machine lends no cgroup.
    group: Option<PodGroup>,
    journal: JournalWriter,
    listener: UnixListener,
    signals: SignalFd,
    containers: Vec<Managed<'a>>,
    executions: Vec<Execution>,
    clients: Vec<(u64, Client)>,
    clients_seen: u64,
    /// The pod is being stopped; when to kill what is left.
    stopping: Option<Instant>,
    deadline: Option<Instant>,
    /// Records that could not be written, and when to try again.
    unwritten: VecDeque<Record>,
    write_at: Option<Instant>,
}

impl<'a> Supervisor<'a> {
    pub fn new(
        dir: PodDir,
        launch: &'a Launch,
        group: Option<PodGroup>,
        journal: JournalWriter,
        listener: UnixListener,
        signals: SignalFd,
    ) -> Self {
        let managed = |spec: &'a ContainerLaunch, role| Managed {
            spec,
            role,
            attempt: 0,
            state: State::Waiting(None),
            back_off: Duration::ZERO,
            code: None,
            started: !spec.startup_probe,
        };
        let init = |spec: &'a ContainerLaunch| managed(spec, if spec.sidecar { Role::Sidecar } else { Role::Init });
        let containers = launch.init_containers.iter().map(init);
        let containers = containers.chain(launch.containers.iter().map(|spec| managed(spec, Role::Main))).collect();
        let deadline = launch.active_deadline_secs.map(|secs| {
            let gone = clock::now().duration_since(launch.start_time).as_secs().max(0).unsigned_abs();
            after(Instant::now(), Duration::from_secs(secs.saturating_sub(gone)))
        });
        Self {
            dir,
            launch,
            group,
            journal,
            listener,
            signals,
            containers,
            executions: Vec::new(),
            clients: Vec::new(),
            clients_seen: 0,
            stopping: None,
            deadline,
            unwritten: VecDeque::new(),
            write_at: None,
        }
    }

    /// Runs the pod; returns when it is finished and that is on disk.
    pub fn run(mut self) -> io::Result<()> {
        while !self.step() {
            for source in self.wait()? {
                self.handle(source);
            }
        }
        // What executed commands left behind must not outlive the pod.
        process::kill_descendants();
        self.record(Event::Finished);
        while !self.unwritten.is_empty() {
            std::thread::sleep(JOURNAL_RETRY);
            self.write_journal();
        }
        Ok(())
    }

    fn record(&mut self, event: Event) {
        self.unwritten.push_back(Record::now(event));
        self.write_journal();
    }

    /// Writes what is not in the journal yet. A full disk must not end the pod: it is tried again.
    fn write_journal(&mut self) {
        while let Some(record) = self.unwritten.front() {
            if let Err(e) = self.journal.append(record) {
                crate::say!("{} journal: {e}", clock::now());
                self.write_at = Some(after(Instant::now(), JOURNAL_RETRY));
                return;
            }
            self.unwritten.pop_front();
        }
        self.write_at = None;
        self.clients.iter_mut().for_each(|(_, client)| client.notify());
    }

    /// Does what is due. Whether the pod is finished.
    fn step(&mut self) -> bool {
        let now = Instant::now();
        if self.stopping.is_none() && self.deadline.is_some_and(|deadline| deadline <= now) {
            self.stop(StopReason::DeadlineExceeded, self.launch.grace_secs);
        }
        if self.write_at.is_some_and(|at| at <= now) {
            self.write_journal();
        }
        self.flush_logs();
        self.give_up_draining(now);
        if self.stopping.is_none() && self.advance(now) {
            return self.step(); // something was started, or failed to: look again
        }
        self.wind_down(now);
        self.containers.iter().all(|c| matches!(c.state, State::Done))
    }

    /// Starts what is due, in order. Whether anything changed.
    fn advance(&mut self, now: Instant) -> bool {
        for index in 0..self.containers.len() {
            let container = &self.containers[index];
            let due = matches!(container.state, State::Waiting(at) if at.is_none_or(|at| at <= now));
            if due {
                self.start(index);
                return true;
            }
            match container.role {
                Role::Init => match (&container.state, container.code) {
                    (State::Done, Some(0)) => {}
                    (State::Done, _) => return self.give_up_waiting(),
                    (State::Waiting(_) | State::Running(_), _) => return false,
                },
                Role::Sidecar => {
                    let is_up = matches!(&container.state, State::Running(run) if run.said.is_some());
                    let was_up = container.code.is_some();
                    if !(container.started && (is_up || was_up)) {
                        return false;
                    }
                }
                Role::Main => {}
            }
            if let State::Running(run) = &mut self.containers[index].state {
                match run.post_start {
                    PostStart::Sleeps(until) if until <= now => run.post_start = PostStart::Over,
                    PostStart::Runs | PostStart::Sleeps(_) => return false,
                    PostStart::Over => {}
                }
            }
        }
        false
    }

    /// An init container failed for good: what waits will never run.
    fn give_up_waiting(&mut self) -> bool {
        for container in &mut self.containers {
            if matches!(container.state, State::Waiting(_)) {
                container.state = State::Done;
            }
        }
        false
    }

    fn start(&mut self, index: usize) {
        let container = &mut self.containers[index];
        let spec = container.spec;
        let started_at = clock::now();
        if let Some(why) = spec.refused.clone() {
            return self.ended(index, START_ERROR_CODE, None, "RunContainerError", why, started_at);
        }
        let log_path = self.dir.log(&spec.name, container.attempt);
        let view = if self.launch.isolation.is_hosts() { View::Own } else { View::Pod };
        let log = LogWriter::open(&log_path, self.launch.log_bytes_max, self.launch.log_files_max);
        let group = self.group.as_ref().map(|group| group.container(&spec.name, container.attempt, &spec.limits));
        let started = log.and_then(|log| {
            match files::make_empty(&spec.termination_message) {
                Err(e) if !may_pass(&e) => crate::say!("{} {}: {e}", clock::now(), spec.termination_message.display()),
                other => other?,
            }
            let group = group.transpose()?;
            let started = container::start(spec, view, group.as_ref().map(|group| &group.procs))?;
            Ok((log, group, started))
        });
        match started {
            Ok((log, group, Started { keeper, status, stdout, stderr })) => {
                container.started = !spec.startup_probe;
                container.state = State::Running(Box::new(Run {
                    keeper,
                    status: Some(status),
                    status_buffer: Vec::new(),
                    stdout: Some(stdout),
                    stderr: Some(stderr),
                    log,
                    said: None,
                    started_at,
                    since: Instant::now(),
                    group,
                    oom_kills: None,
                    kernel_log: KernelLog::from_now_on(),
                    main: None,
                    peak_memory_bytes: None,
                    post_start: if spec.post_start.is_some() { PostStart::Runs } else { PostStart::Over },
                    stop: Stop::No,
                    over_memory: None,
                    drained_by: None,
                }));
            }
            Err(e) if self.stopping.is_none() && may_pass(&e) => {
                crate::say!("{} container {:?} waits: {e}", clock::now(), spec.name);
                container.state = State::Waiting(Some(after(Instant::now(), START_RETRY)));
            }
            Err(e) => {
                let message = format!("container {:?}: {e}", spec.name);
                self.ended(index, START_ERROR_CODE, None, "StartError", message, started_at)
            }
        }
    }

    /// A container is gone, its log complete: writes that down and decides what comes next.
    fn ended(
        &mut self,
        index: usize,
        code: i32,
        signal: Option<i32>,
        reason: &str,
        message: String,
        started_at: Timestamp,
    ) {
        let attempt = self.containers[index].attempt;
        let name = self.containers[index].spec.name.clone();
        let peak_memory_bytes = match &self.containers[index].state {
            State::Running(run) => run.peak_memory_bytes,
            State::Waiting(_) | State::Done => None,
        };
        let (reason, finished_at) = (reason.to_owned(), clock::now());
        let exit = Exit { code, signal, reason, message, started_at, finished_at, peak_memory_bytes };
        self.record(Event::Exited { container: name.clone(), attempt, exit });
        let others_are_over = |c: &Managed<'_>| c.role == Role::Sidecar || matches!(c.state, State::Done);
        let container = &mut self.containers[index];
        let ran = match &container.state {
            State::Running(run) => run.since.elapsed(),
            State::Waiting(_) | State::Done => Duration::ZERO,
        };
        container.code = Some(code);
        container.state = State::Done;
        let again = self.stopping.is_none()
            && match self.containers[index].role {
                Role::Init => code != 0 && self.containers[index].spec.restart_policy.restarts(code),
                Role::Sidecar => {
                    self.containers[index].spec.refused.is_none() && !self.containers.iter().all(others_are_over)
                }
                Role::Main => restarts(self.containers[index].spec, code),
            };
        if again {
            let container = &mut self.containers[index];
            if ran >= BACK_OFF_RESET {
                container.back_off = Duration::ZERO;
            }
            let delay = container.back_off;
            container.back_off = delay.saturating_mul(2).clamp(BACK_OFF_MIN, BACK_OFF_MAX);
            container.attempt += 1;
            container.state = State::Waiting(Some(after(Instant::now(), delay)));
            let attempt = container.attempt;
            if !delay.is_zero() {
                self.record(Event::Waiting { container: name, attempt, back_off_secs: delay.as_secs() });
            }
        }
    }

    fn flush_logs(&mut self) {
        for container in &mut self.containers {
            if let State::Running(run) = &mut container.state
                && run.log.next_flush().is_some_and(|at| at <= Instant::now())
            {
                complain(run.log.flush_old(clock::now()));
            }
        }
    }

    fn handle(&mut self, source: Source) {
        match source {
            Source::Signals => self.on_signal(),
            Source::Listener => {
                while let Ok((stream, _)) = self.listener.accept() {
                    if let Ok(client) = Client::new(stream) {
                        self.clients_seen += 1;
                        self.clients.push((self.clients_seen, client));
                    }
                }
            }
            Source::Client(id) => self.on_client(id),
            Source::Output(index, stream) => {
                self.on_output(index, stream);
                self.conclude(index)
            }
            Source::Status(index) => {
                self.on_status(index);
                self.conclude(index)
            }
            Source::Execution(pid) => self.on_execution(pid),
        }
    }

    fn on_signal(&mut self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            let signal = Signal::try_from(info.ssi_signo as i32).ok();
            if signal == Some(Signal::SIGTERM) || signal == Some(Signal::SIGINT) {
                self.stop(StopReason::Shutdown, self.launch.grace_secs);
            }
        }
        // What ended is known from the pipes; here it is only buried.
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    fn on_status(&mut self, index: usize) {
        let State::Running(run) = &mut self.containers[index].state else { return };
        let Some(pipe) = &mut run.status else { return };
        let (lines, ended) = container::read_status(pipe, &mut run.status_buffer);
        if ended {
            run.status = None;
            run.drained_by = Some(after(Instant::now(), DRAIN_MAX));
            if let Some(group) = run.group.take() {
                run.oom_kills = group.oom_kills();
                run.peak_memory_bytes = group.peak_memory_bytes();
                group.end();
            }
            if !matches!(run.said, Some(Said::Exited { .. } | Said::Failed { .. })) {
                // Its process was killed from outside, and with it the main process; orphans of theirs came to us.
                run.said = Some(Said::Exited { code: 137, signal: Some(9), peak_memory_bytes: None });
                let known: Vec<Pid> = self.keepers();
                process::kill_children_but(&known);
            }
            return;
        }
        for said in lines {
            let State::Running(run) = &mut self.containers[index].state else { return };
            run.said = Some(said.clone());
            if let Said::Started(pid) = said {
                run.main = Some(pid);
                let (name, attempt) = (self.containers[index].spec.name.clone(), self.containers[index].attempt);
                self.record(Event::Running { container: name, attempt, pid });
                self.after_start(index);
            }
        }
    }

    fn keepers(&self) -> Vec<Pid> {
        let running = self.containers.iter().filter_map(|c| match &c.state {
            State::Running(run) => Some(run.keeper),
            State::Waiting(_) | State::Done => None,
        });
        running.chain(self.executions.iter().map(|e| e.keeper)).collect()
    }
}

/// Whether a main container is started again after this exit code.
fn restarts(spec: &ContainerLaunch, code: i32) -> bool {
    let matches = |rule: &crate::wire::RestartRule| rule.codes.contains(&code) != rule.not_in;
    spec.restart_rules.iter().any(matches) || spec.restart_policy.restarts(code)
}
