//! What runs in containers beside their main process: hooks, and commands that the agent asked for.

use super::{Execution, ForWhom, State, Stop, Supervisor};
use crate::shim::container::{self, KILL_ALL, Said, View};
use crate::wire::{ContainerLaunch, Event, Reply, Request, StopReason};
use api::time::after;
use jiff::Timestamp;
use nix::sys::signal::kill;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

impl Supervisor<'_> {
    /// `None` if the hook runs, the time to go on if it could not be started.
    pub(super) fn run_hook(&mut self, index: usize, argv: Vec<String>, for_whom: ForWhom) -> Option<Instant> {
        let streams = || -> io::Result<[OwnedFd; 3]> {
            let open = || fs::OpenOptions::new().read(true).write(true).open("/dev/null").map(OwnedFd::from);
            Ok([open()?, open()?, open()?])
        };
        let started = streams().map_err(|e| e.to_string()).and_then(|s| self.execute(index, argv, s, false, for_whom));
        match started {
            Ok(()) => None,
            Err(why) => {
                crate::say!("{} hook of {}: {why}", Timestamp::now(), self.containers[index].spec.name);
                Some(Instant::now())
            }
        }
    }

    fn execute(
        &mut self,
        index: usize,
        argv: Vec<String>,
        streams: [OwnedFd; 3],
        tty: bool,
        for_whom: ForWhom,
    ) -> Result<(), String> {
        let container = &self.containers[index];
        let State::Running(run) = &container.state else {
            return Err(format!("container {:?} is not running", container.spec.name));
        };
        let view = if self.launch.isolation.is_hosts() { View::Of(run.keeper) } else { View::Pod };
        let mut spec = ContainerLaunch { argv, ..container.spec.clone() };
        if tty && !spec.env.iter().any(|(name, _)| name == "TERM") {
            spec.env.push(("TERM".to_owned(), "xterm".to_owned()));
        }
        let (keeper, status) = container::execute(&spec, view, streams).map_err(|e| e.desc().to_owned())?;
        self.executions.push(Execution { keeper, status: Some(status), buffer: Vec::new(), for_whom });
        Ok(())
    }

    pub(super) fn on_execution(&mut self, pid: i32) {
        let Some(at) = self.executions.iter().position(|e| e.keeper.as_raw() == pid) else { return };
        let execution = &mut self.executions[at];
        let Some(pipe) = &mut execution.status else { return };
        let (lines, ended) = container::read_status(pipe, &mut execution.buffer);
        let mut over = ended;
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
                ForWhom::PreStop { container } => {
                    if !matches!(said, Said::Started(_))
                        && let State::Running(run) = &mut self.containers[*container].state
                        && let Stop::Hook { until, .. } = &mut run.stop
                    {
                        *until = Some(Instant::now());
                    }
                }
                ForWhom::PostStart { container } => {
                    let failed = match &said {
                        Said::Started(_) => None,
                        Said::Exited { code, .. } => (*code != 0).then(|| format!("exit code {code}")),
                        Said::Failed { message } => Some(message.clone()),
                    };
                    if let Some(why) = failed {
                        let container = *container;
                        crate::say!("{} post-start hook: {why}", Timestamp::now());
                        self.ask_to_stop(container, after(Instant::now(), Duration::from_secs(self.launch.grace_secs)));
                    }
                }
            }
        }
        if over {
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
            Request::Kill { container, message } => {
                crate::say!("{} kill {container}: {message}", Timestamp::now());
                if let Some(index) = self.find(&container) {
                    self.ask_to_stop(index, after(Instant::now(), Duration::from_secs(self.launch.grace_secs)));
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
                    (None, _) => Err(format!("container {container:?} not found")),
                    (_, None) => Err("the streams did not arrive".to_owned()),
                };
                if let Err(message) = result
                    && let Some((_, client)) = self.clients.iter_mut().find(|(known, _)| *known == id)
                {
                    client.reply(&Reply::Refused { message });
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
