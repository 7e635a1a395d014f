//! What runs in containers beside their main process: hooks, and commands that the agent asked for.

use super::{Execution, ForWhom, PostStart, State, Stop, Supervisor};
use crate::shim::container::{self, KILL_ALL, Said, View};
use crate::wire::{ContainerLaunch, Event, Hook, HookKind, Reply, Request, StopReason};
use api::time::after;
use nix::errno::Errno;
use nix::sys::signal::kill;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Why nothing is executed in a container.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unexecuted {
    #[error("container {container:?} is not running")]
    NotRunning { container: String },
    #[error("container {container:?} not found")]
    NotFound { container: String },
    #[error("the streams did not arrive")]
    NoStreams,
    #[error("{}", .0.desc())]
    Process(#[from] Errno),
    #[error(transparent)]
    Streams(#[from] io::Error),
    /// The hook as the pod describes it cannot be run.
    #[error("{0}")]
    Invalid(String),
}

impl Supervisor<'_> {
    /// A container was started: its post-start hook is due.
    pub(super) fn after_start(&mut self, index: usize) {
        let state = match &self.containers[index].spec.post_start {
            None => return,
            Some(Hook::SleepSecs(secs)) => PostStart::Sleeps(after(Instant::now(), Duration::from_secs(*secs))),
            Some(hook) => match self.run_hook(index, hook, HookKind::PostStart) {
                Ok(()) => PostStart::Runs,
                Err(why) => {
                    self.hook_failed(index, HookKind::PostStart, why.to_string());
                    PostStart::Over
                }
            },
        };
        if let State::Running(run) = &mut self.containers[index].state {
            run.post_start = state;
        }
    }

    /// Starts a hook that takes a process; pauses are not its business.
    pub(super) fn run_hook(&mut self, index: usize, hook: &Hook, kind: HookKind) -> Result<(), Unexecuted> {
        let for_whom = ForWhom::Hook { container: index, attempt: self.containers[index].attempt, kind };
        match hook {
            Hook::Exec(argv) => {
                let open = || fs::OpenOptions::new().read(true).write(true).open("/dev/null").map(OwnedFd::from);
                let streams = || -> io::Result<[OwnedFd; 3]> { Ok([open()?, open()?, open()?]) };
                let streams = streams()?;
                self.execute(index, argv.clone(), streams, false, for_whom)
            }
            Hook::HttpGet(get) => {
                let (keeper, status) = container::fetch(get)?;
                self.executions.push(Execution::new(keeper, index, status, for_whom));
                Ok(())
            }
            Hook::Invalid(why) => Err(Unexecuted::Invalid(why.clone())),
            Hook::SleepSecs(_) => Ok(()),
        }
    }

    /// Writes down that a hook failed; without its post-start hook a container does not go on.
    pub(super) fn hook_failed(&mut self, index: usize, hook: HookKind, why: String) {
        let (name, attempt) = (self.containers[index].spec.name.clone(), self.containers[index].attempt);
        crate::say!("{} {hook:?} hook of {name}: {why}", clock::now());
        self.record(Event::HookFailed { container: name, attempt, hook, message: why });
        match hook {
            HookKind::PostStart => {
                self.ask_to_stop(index, after(Instant::now(), Duration::from_secs(self.launch.grace_secs)));
            }
            HookKind::PreStop => {}
        }
    }

    /// A hook said something.
    fn on_hook(&mut self, index: usize, attempt: u32, kind: HookKind, said: &Said) {
        let failed = match said {
            Said::Started(_) => return,
            Said::Exited { code: 0, .. } => None,
            Said::Exited { code, .. } => Some(format!("exit code {code}")),
            Said::Failed { message } => Some(message.clone()),
        };
        if self.containers[index].attempt != attempt {
            return;
        }
        let State::Running(run) = &mut self.containers[index].state else { return };
        match kind {
            HookKind::PostStart => run.post_start = PostStart::Over,
            HookKind::PreStop => {
                if let Stop::Hook { until, .. } = &mut run.stop {
                    *until = Some(Instant::now());
                }
            }
        }
        if let Some(why) = failed {
            self.hook_failed(index, kind, why);
        }
    }

    fn execute(
        &mut self,
        index: usize,
        argv: Vec<String>,
        streams: [OwnedFd; 3],
        tty: bool,
        for_whom: ForWhom,
    ) -> Result<(), Unexecuted> {
        let container = &self.containers[index];
        let State::Running(run) = &container.state else {
            return Err(Unexecuted::NotRunning { container: container.spec.name.clone() });
        };
        let view = if self.launch.isolation.is_hosts() { View::Of(run.keeper) } else { View::Pod };
        let group = run.group.as_ref().map(|group| &group.procs);
        let mut spec = ContainerLaunch { argv, ..container.spec.clone() };
        if tty && !spec.env.iter().any(|(name, _)| name == "TERM") {
            spec.env.push(("TERM".to_owned(), "xterm".to_owned()));
        }
        let (keeper, status) = container::execute(&spec, view, group, streams)?;
        self.executions.push(Execution::new(keeper, index, status, for_whom));
        Ok(())
    }

    pub(super) fn on_execution(&mut self, pid: i32) {
        let Some(at) = self.executions.iter().position(|e| e.keeper.as_raw() == pid) else { return };
        let execution = &mut self.executions[at];
        let Some(pipe) = &mut execution.status else { return };
        let (lines, ended) = container::read_status(pipe, &mut execution.buffer);
        let mut over = ended;
        let has_said = lines.iter().any(|said| !matches!(said, Said::Started(_)));
        for said in lines {
            let execution = &self.executions[at];
            over |= !matches!(said, Said::Started(_));
            match &execution.for_whom {
                ForWhom::Client { id, .. } => {
                    let id = *id;
                    let reply = match said {
                        Said::Started(pid) => Reply::Started { pid },
                        Said::Exited { code, .. } => Reply::Exited { code },
                        Said::Failed { message } => Reply::Refused { message },
                    };
                    if let Some((_, client)) = self.clients.iter_mut().find(|(known, _)| *known == id) {
                        client.reply(&reply);
                    }
                }
                ForWhom::Hook { container, attempt, kind } => {
                    let (container, attempt, kind) = (*container, *attempt, *kind);
                    self.on_hook(container, attempt, kind, &said);
                }
            }
        }
        if over {
            // One that was killed has said nothing.
            if let ForWhom::Hook { container, attempt, kind } = self.executions[at].for_whom
                && !has_said
            {
                let said = Said::Exited { code: 137, signal: Some(9), peak_memory_bytes: None };
                self.on_hook(container, attempt, kind, &said);
            }
            self.executions.remove(at);
        }
    }

    pub(super) fn on_client(&mut self, id: u64) {
        let Some((_, client)) = self.clients.iter_mut().find(|(known, _)| *known == id) else { return };
        match client.read() {
            None => {
                self.clients.retain(|(known, _)| *known != id);
                for execution in &self.executions {
                    if let ForWhom::Client { id: whose, kill_on_close: true } = execution.for_whom
                        && whose == id
                    {
                        let _ = kill(execution.keeper, KILL_ALL);
                    }
                }
            }
            Some(requests) => requests.into_iter().for_each(|(request, fds)| self.on_request(id, request, fds)),
        }
    }

    fn on_request(&mut self, id: u64, request: Request, fds: Vec<OwnedFd>) {
        match request {
            Request::Subscribe => {
                if let Some((_, client)) = self.clients.iter_mut().find(|(known, _)| *known == id) {
                    client.subscribed = true;
                    client.notify(); // for what happened before
                }
            }
            Request::Stop { grace_secs } => self.stop(StopReason::Deleted, grace_secs),
            Request::Kill { container, message, grace_secs, over_memory } => {
                crate::say!("{} kill {container}: {message}", clock::now());
                let grace = Duration::from_secs(grace_secs.unwrap_or(self.launch.grace_secs));
                match (self.find(&container), over_memory) {
                    (Some(index), Some(over)) => self.end_for_memory(index, over, message),
                    (Some(index), None) => self.ask_to_stop(index, after(Instant::now(), grace)),
                    (None, _) => {}
                }
            }
            Request::Started { container } => {
                if let Some(index) = self.find(&container)
                    && matches!(self.containers[index].state, State::Running(_))
                    && !self.containers[index].started
                {
                    self.containers[index].started = true;
                    let attempt = self.containers[index].attempt;
                    self.record(Event::Started { container, attempt });
                }
            }
            Request::Exec { container, argv, tty, kill_on_close } => {
                let result = match (self.find(&container), streams(fds, tty)) {
                    (Some(index), Some(streams)) => {
                        self.execute(index, argv, streams, tty, ForWhom::Client { id, kill_on_close })
                    }
                    (None, _) => Err(Unexecuted::NotFound { container }),
                    (_, None) => Err(Unexecuted::NoStreams),
                };
                if let Err(error) = result
                    && let Some((_, client)) = self.clients.iter_mut().find(|(known, _)| *known == id)
                {
                    client.reply(&Reply::Refused { message: error.to_string() });
                }
            }
        }
    }

    fn find(&self, container: &str) -> Option<usize> {
        self.containers.iter().position(|c| c.spec.name == container)
    }
}

/// Standard input, output and error out of the descriptors of a request.
fn streams(fds: Vec<OwnedFd>, tty: bool) -> Option<[OwnedFd; 3]> {
    let mut fds = fds.into_iter();
    let first = fds.next()?;
    if tty {
        let (second, third) = (first.try_clone().ok()?, first.try_clone().ok()?);
        return Some([first, second, third]);
    }
    Some([first, fds.next()?, fds.next()?])
}
