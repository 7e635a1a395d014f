//! The streams of containers, and their ends: what is printed goes into logs, what is held open by others is let go, and how a
//! container ended is written down.

use super::{ForWhom, START_ERROR_CODE, State, Stop, Supervisor};
use crate::files;
use crate::poddir::PodDir;
use crate::shim::container::{KILL_ALL, Said};
use crate::shim::log_writer::Stream;
use crate::wire::ContainerLaunch;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::kill;
use std::fs::File;
use std::io::{self, Read};
use std::time::Instant;

/// Longest termination message, and longest stand-in from the log (Kubernetes' limits).
const TERMINATION_MESSAGE_BYTES_MAX: u64 = 4096;
const TERMINATION_LOG_BYTES_MAX: usize = 2048;
const TERMINATION_LOG_LINES_MAX: usize = 80;
/// Reads of a stream that somebody goes on writing to: a pipe holds a megabyte at most.
const DRAIN_READS_MAX: usize = 16;
/// What is read at once of a stream.
const CHUNK_BYTES: usize = 64 * 1024;

impl Supervisor<'_> {
    pub(super) fn on_output(&mut self, index: usize, stream: Stream) {
        let State::Running(run) = &mut self.containers[index].state else { return };
        let pipe = match stream {
            Stream::Stdout => &mut run.stdout,
            Stream::Stderr => &mut run.stderr,
        };
        let Some(file) = pipe else { return };
        let mut chunk = vec![0; CHUNK_BYTES];
        match file.read(&mut chunk) {
            Ok(0) => *pipe = None,
            Ok(n) => complain(run.log.write(stream, &chunk[..n], clock::now())),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => *pipe = None,
        }
    }

    /// Lets go of streams that others hold open, once what was in them has been read.
    pub(super) fn give_up_draining(&mut self, now: Instant) {
        for index in 0..self.containers.len() {
            let State::Running(run) = &mut self.containers[index].state else { continue };
            if run.drained_by.is_none_or(|at| at > now) {
                continue;
            }
            let is_open = |pipe: &Option<File>| pipe.is_some();
            for (stream, open) in [(Stream::Stdout, is_open(&run.stdout)), (Stream::Stderr, is_open(&run.stderr))] {
                if open {
                    self.drain(index, stream);
                }
            }
            self.conclude(index);
        }
    }

    /// Reads what is in a stream by now, as far as a pipe goes, and closes it.
    fn drain(&mut self, index: usize, stream: Stream) {
        let State::Running(run) = &mut self.containers[index].state else { return };
        let pipe = match stream {
            Stream::Stdout => run.stdout.take(),
            Stream::Stderr => run.stderr.take(),
        };
        let Some(mut pipe) = pipe else { return };
        if fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).is_err() {
            return;
        }
        let mut chunk = vec![0; CHUNK_BYTES];
        for _ in 0..DRAIN_READS_MAX {
            match pipe.read(&mut chunk) {
                Ok(n) if n > 0 => complain(run.log.write(stream, &chunk[..n], clock::now())),
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Once a container has ended and its streams are drained, writes down how.
    pub(super) fn conclude(&mut self, index: usize) {
        let spec = self.containers[index].spec;
        let State::Running(run) = &mut self.containers[index].state else { return };
        if run.status.is_some() || run.stdout.is_some() || run.stderr.is_some() {
            return;
        }
        // Hooks end with their container.
        for execution in &self.executions {
            if matches!(execution.for_whom, ForWhom::Hook { container, .. } if container == index) {
                let _ = kill(execution.keeper, KILL_ALL);
            }
        }
        complain(run.log.finish(clock::now()));
        let started_at = run.started_at;
        let was_killed_by_us = matches!(run.stop, Stop::Killed);
        if let Some(Said::Exited { peak_memory_bytes, .. }) = &run.said {
            run.peak_memory_bytes = run.peak_memory_bytes.or(*peak_memory_bytes);
        }
        let over_memory = run.over_memory.take();
        if let Some((used, _)) = &over_memory {
            // Of several processes the kernel reports the largest one only.
            run.peak_memory_bytes = run.peak_memory_bytes.max(Some(*used));
        }
        let (code, signal, reason, message) = match run.said.take() {
            Some(Said::Failed { message }) => (START_ERROR_CODE, None, "StartError", message),
            Some(Said::Exited { code: 0, .. }) => (0, None, "Completed", String::new()),
            Some(Said::Exited { .. } | Said::Started(_)) | None if over_memory.is_some() => {
                (137, Some(9), "OOMKilled", over_memory.map(|(_, words)| words).unwrap_or_default())
            }
            Some(Said::Exited { code, signal, .. }) => {
                let oom = !was_killed_by_us
                    && match run.oom_kills {
                        Some(kills) => kills > 0,
                        // Nobody counted: then the kernel's log has to name this very process.
                        None => signal == Some(9) && run.main.is_some_and(|main| run.kernel_log.names(main)),
                    };
                (code, signal, if oom { "OOMKilled" } else { "Error" }, String::new())
            }
            Some(Said::Started(_)) | None => (137, Some(9), "Error", String::new()),
        };
        let message = if message.is_empty() {
            termination_message(&self.dir, spec, self.containers[index].attempt, code)
        } else {
            message
        };
        self.ended(index, code, signal, reason, message, started_at)
    }
}

/// A full disk must not end the pod: the log has a hole then, and the shim's own log says why.
pub(super) fn complain(result: io::Result<()>) {
    if let Err(e) = result {
        crate::say!("{} log: {e}", clock::now());
    }
}

/// What the container wrote as its last words, or the end of its log if it failed without any and asked for that.
fn termination_message(dir: &PodDir, spec: &ContainerLaunch, attempt: u32, code: i32) -> String {
    let bytes = files::read(&spec.termination_message, TERMINATION_MESSAGE_BYTES_MAX).unwrap_or_default();
    let written = String::from_utf8_lossy(&bytes).into_owned();
    if !written.is_empty() || code == 0 || !spec.fallback_to_logs {
        return written;
    }
    crate::logs::last_lines(&dir.log(&spec.name, attempt), TERMINATION_LOG_LINES_MAX, TERMINATION_LOG_BYTES_MAX)
}
