//! How containers are ended: pre-stop hook, signal, kill; of one, and of the pod.

use super::super::container::KILL_ALL;
use super::{Managed, Role, State, Supervisor};
use crate::wire::{Event, Hook, HookKind, OverMemory, StopReason};
use api::time::after;
use nix::sys::signal::{Signal, kill};
use std::time::{Duration, Instant};

/// What a container has to end by itself however long its pre-stop hook took (the kubelet's number).
const AFTER_HOOK_MIN: Duration = Duration::from_secs(2);

/// How far the stopping of an attempt has gone.
pub(super) enum Stop {
    No,
    /// The pre-stop hook runs (or sleeps until then).
    Hook {
        until: Option<Instant>,
        kill_at: Instant,
        /// There was one, and time for it.
        ran: bool,
    },
    Asked {
        kill_at: Instant,
        /// However short the grace becomes, not before.
        not_before: Instant,
    },
    Killed,
}

impl Supervisor<'_> {
    /// Stops what is to be stopped, and kills what would not.
    pub(super) fn wind_down(&mut self, now: Instant) {
        let is_over = |c: &Managed<'_>| c.role == Role::Sidecar || matches!(c.state, State::Done);
        let only_sidecars = self.containers.iter().all(is_over);
        let pod_kill_at = self.stopping;
        let grace = Duration::from_secs(self.launch.grace_secs);
        for index in 0..self.containers.len() {
            let container = &mut self.containers[index];
            let end_it = match container.role {
                Role::Sidecar => only_sidecars,
                Role::Init | Role::Main => pod_kill_at.is_some(),
            };
            match &mut container.state {
                State::Done => {}
                State::Waiting(_) => {
                    if end_it || pod_kill_at.is_some() {
                        container.state = State::Done;
                    }
                }
                State::Running(run) => {
                    if let Some(at) = pod_kill_at {
                        match &mut run.stop {
                            Stop::Hook { kill_at, .. } => *kill_at = (*kill_at).min(at),
                            Stop::Asked { kill_at, not_before } => *kill_at = (*kill_at).min(at).max(*not_before),
                            Stop::No | Stop::Killed => {}
                        }
                        if at <= now && matches!(run.stop, Stop::No) {
                            run.stop = Stop::Asked { kill_at: at, not_before: at };
                        }
                    }
                    if end_it && matches!(run.stop, Stop::No) {
                        self.ask_to_stop(index, pod_kill_at.unwrap_or(after(now, grace)));
                    }
                    self.push_stop(index, now);
                }
            }
        }
    }

    /// First step of ending a running container: its pre-stop hook, or the signal.
    pub(super) fn ask_to_stop(&mut self, index: usize, kill_at: Instant) {
        if !matches!(&self.containers[index].state, State::Running(run) if matches!(run.stop, Stop::No)) {
            return;
        }
        // A container that is to be killed at once has no time for a hook.
        let hook = self.containers[index].spec.pre_stop.as_ref().filter(|_| kill_at > Instant::now());
        let ran = hook.is_some();
        let until = match hook {
            None => Some(Instant::now()),
            Some(Hook::SleepSecs(secs)) => Some(after(Instant::now(), Duration::from_secs(*secs))),
            Some(hook) => self.run_hook(index, hook, HookKind::PreStop).err().map(|why| {
                self.hook_failed(index, HookKind::PreStop, why.to_string());
                Instant::now()
            }),
        };
        if let State::Running(run) = &mut self.containers[index].state {
            run.stop = Stop::Hook { until, kill_at, ran };
        }
    }

    /// Kills a container and what is executed in it, for the memory that they use: no hook, and no time to use more.
    pub(super) fn end_for_memory(&mut self, index: usize, over: OverMemory, message: String) {
        let container = &mut self.containers[index];
        // The agent may have looked at an attempt that has ended since.
        let State::Running(run) = &mut container.state else { return };
        if container.attempt != over.attempt || run.over_memory.is_some() {
            return;
        }
        run.over_memory = Some((over.used_bytes, message));
        run.stop = Stop::Killed;
        let _ = kill(run.keeper, KILL_ALL);
        for execution in self.executions.iter().filter(|execution| execution.container == index) {
            let _ = kill(execution.keeper, KILL_ALL);
        }
    }

    /// Next steps: signal once the hook is over, kill once the grace is.
    fn push_stop(&mut self, index: usize, now: Instant) {
        let State::Running(run) = &mut self.containers[index].state else { return };
        if let Stop::Hook { until, kill_at, ran } = run.stop
            && (until.is_some_and(|until| until <= now) || kill_at <= now)
        {
            let _ = kill(run.keeper, Signal::SIGTERM);
            let not_before = if ran { after(now, AFTER_HOOK_MIN) } else { now };
            run.stop = Stop::Asked { kill_at: kill_at.max(not_before), not_before };
        }
        if let Stop::Asked { kill_at, .. } = run.stop
            && kill_at <= now
        {
            let _ = kill(run.keeper, KILL_ALL);
            run.stop = Stop::Killed;
        }
    }

    /// Asks the pod to stop; a second time, only ever sooner.
    pub(super) fn stop(&mut self, why: StopReason, grace_secs: u64) {
        let kill_at = after(Instant::now(), Duration::from_secs(grace_secs));
        match self.stopping {
            Some(at) => self.stopping = Some(at.min(kill_at)),
            None => {
                self.stopping = Some(kill_at);
                self.record(Event::Stopping { why, grace_secs });
            }
        }
    }
}
