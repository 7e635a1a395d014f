//! What the shim waits for: readable descriptors, and the next time at which something is due.

use super::stopping::Stop;
use super::{PostStart, State, Stream, Supervisor};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// What became readable.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Signals,
    Listener,
    Client(u64),
    Status(usize),
    Output(usize, Stream),
    Execution(i32),
}

impl Supervisor<'_> {
    /// Waits until something can be read or something is due.
    pub(super) fn wait(&mut self) -> io::Result<Vec<Source>> {
        let timeout = match self.next_due() {
            None => PollTimeout::NONE,
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now()).saturating_add(Duration::from_millis(1));
                PollTimeout::try_from(left.min(Duration::from_secs(3600))).unwrap_or(PollTimeout::MAX)
            }
        };
        let mut sources = vec![Source::Signals, Source::Listener];
        let mut fds = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
        ];
        let mut add = |source, fd| {
            sources.push(source);
            fds.push(PollFd::new(fd, PollFlags::POLLIN));
        };
        for (id, client) in &self.clients {
            add(Source::Client(*id), client.stream.as_fd());
        }
        for (index, container) in self.containers.iter().enumerate() {
            let State::Running(run) = &container.state else { continue };
            if let Some(pipe) = &run.stdout {
                add(Source::Output(index, Stream::Stdout), pipe.as_fd());
            }
            if let Some(pipe) = &run.stderr {
                add(Source::Output(index, Stream::Stderr), pipe.as_fd());
            }
            if let Some(pipe) = &run.status {
                add(Source::Status(index), pipe.as_fd());
            }
        }
        for execution in &self.executions {
            if let Some(pipe) = &execution.status {
                add(Source::Execution(execution.keeper.as_raw()), pipe.as_fd());
            }
        }
        match poll(&mut fds, timeout) {
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => return Ok(Vec::new()),
            Err(e) => return Err(e.into()),
        }
        let is_ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        Ok(sources.into_iter().zip(&fds).filter(|(_, fd)| is_ready(fd)).map(|(source, _)| source).collect())
    }

    fn next_due(&self) -> Option<Instant> {
        let mut due: Vec<Instant> = self.write_at.into_iter().collect();
        if self.stopping.is_none() {
            due.extend(self.deadline);
        }
        for container in &self.containers {
            match &container.state {
                State::Waiting(at) => {
                    // Without a time it waits for others, not for the clock.
                    if self.stopping.is_none() {
                        due.extend(*at);
                    }
                }
                State::Running(run) => {
                    due.extend(run.log.next_flush());
                    due.extend(run.drained_by);
                    if let PostStart::Sleeps(until) = run.post_start {
                        due.push(until);
                    }
                    match run.stop {
                        Stop::No => due.extend(self.stopping),
                        Stop::Hook { until, kill_at, .. } => due.extend(until.into_iter().chain([kill_at])),
                        Stop::Asked { kill_at, .. } => due.push(kill_at),
                        Stop::Killed => {}
                    }
                }
                State::Done => {}
            }
        }
        due.into_iter().min()
    }
}
