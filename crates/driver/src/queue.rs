//! A work queue that holds each key once, never hands a key to two workers at a time, and delays retries.

use api::object::Target;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The first backoff; each further failure in a row doubles it.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
/// The longest backoff.
const BACKOFF_MAX: Duration = Duration::from_secs(120);

/// Bounded by the number of objects: a key is in `ready` at most once and has at most one timer.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// With the time since when.
    ready: VecDeque<(Target, Instant)>,
    /// How many were ever made ready.
    adds: u64,
    queued: BTreeSet<Target>,
    working: BTreeSet<Target>,
    /// Woken while a worker had it: ready again once that worker is done.
    again: BTreeSet<Target>,
    timers: BTreeMap<Target, Instant>,
    by_time: BTreeSet<(Instant, Target)>,
    failures: BTreeMap<Target, u32>,
    /// Not to be looked at before, whoever wakes it.
    barred: BTreeMap<Target, Instant>,
}

impl State {
    fn push(&mut self, target: Target) {
        if let Some(at) = self.barred.get(&target).copied() {
            if at > Instant::now() {
                return self.set_timer(target, at);
            }
            self.barred.remove(&target);
        }
        if self.working.contains(&target) {
            self.again.insert(target);
        } else if self.queued.insert(target.clone()) {
            self.adds += 1;
            self.ready.push_back((target, Instant::now()));
        }
    }
}

impl State {
    /// Of several timers the first counts.
    fn set_timer(&mut self, target: Target, at: Instant) {
        match self.timers.get(&target).copied() {
            Some(earlier) if earlier <= at => return,
            Some(later) => {
                self.by_time.remove(&(later, target.clone()));
            }
            None => {}
        }
        self.timers.insert(target.clone(), at);
        self.by_time.insert((at, target));
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many keys wait for a worker, and how many ever did.
    pub(crate) fn counts(&self) -> (usize, u64) {
        let state = self.state();
        (state.ready.len(), state.adds)
    }

    /// Makes the key ready.
    pub(crate) fn add(&self, target: Target) {
        self.state().push(target);
        self.changed.notify_one();
    }

    /// Makes the key ready after a delay; of several delays the shortest counts.
    pub(crate) fn add_after(&self, target: Target, delay: Duration) {
        let at = api::time::after(Instant::now(), delay);
        self.state().set_timer(target, at);
        self.changed.notify_one();
    }

    /// As [`Queue::add_backoff`]; and no change of anything wakes the key before. For what fails by a bug of ours, which each
    /// look would meet again.
    pub(crate) fn bar(&self, target: Target) -> Duration {
        let delay = self.add_backoff(target.clone());
        self.state().barred.insert(target, api::time::after(Instant::now(), delay));
        delay
    }

    /// Makes the key ready after the backoff that its failures in a row have earned; returns that backoff.
    pub(crate) fn add_backoff(&self, target: Target) -> Duration {
        let mut state = self.state();
        let failures = state.failures.entry(target.clone()).or_default();
        let delay = BACKOFF_MIN.saturating_mul(1 << (*failures).min(20)).min(BACKOFF_MAX);
        *failures = failures.saturating_add(1);
        drop(state);
        self.add_after(target, delay);
        delay
    }

    /// Ends the series of failures.
    pub(crate) fn succeeded(&self, target: &Target) {
        let mut state = self.state();
        state.failures.remove(target);
        state.barred.remove(target);
    }

    /// The next ready key, and how long it was ready; waits for one. The caller must give it back with [`Queue::done`].
    pub(crate) async fn next(&self) -> (Target, Duration) {
        loop {
            let wait = {
                let mut state = self.state();
                let now = Instant::now();
                while state.by_time.first().is_some_and(|(at, _)| *at <= now) {
                    let Some((_, target)) = state.by_time.pop_first() else { break };
                    state.timers.remove(&target);
                    state.push(target);
                }
                if let Some((target, since)) = state.ready.pop_front() {
                    state.queued.remove(&target);
                    state.working.insert(target.clone());
                    if !state.ready.is_empty() {
                        self.changed.notify_one();
                    }
                    return (target, now.saturating_duration_since(since));
                }
                state.by_time.first().map(|(at, _)| *at)
            };
            match wait {
                Some(at) => {
                    let _ = tokio::time::timeout_at(at, self.changed.notified()).await;
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// The worker is through with the key.
    pub(crate) fn done(&self, target: &Target) {
        let mut state = self.state();
        state.working.remove(target);
        if state.again.remove(target) {
            state.push(target.clone());
            drop(state);
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::object::{Gvk, Key};

    fn target(name: &str) -> Target {
        Target { gvk: Gvk::new("", "v1", "Pod"), key: Key::new("ns", name) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_held_once_and_by_one_worker() {
        let queue = Queue::default();
        queue.add(target("a"));
        queue.add(target("a"));
        let (held, _) = queue.next().await;
        queue.add(target("a"));
        queue.add(target("b"));
        assert_eq!(queue.next().await.0, target("b"), "a is being worked on");
        queue.done(&held);
        assert_eq!(queue.next().await.0, target("a"), "it was woken meanwhile");
        queue.done(&target("a"));
        assert_eq!(queue.counts(), (0, 3));
        let silence = tokio::time::timeout(Duration::from_secs(1), queue.next()).await;
        assert!(silence.is_err(), "nothing else is ready");
    }

    #[tokio::test(start_paused = true)]
    async fn delays_fire_in_order_and_backoff_grows() {
        let queue = Queue::default();
        queue.add_after(target("late"), Duration::from_secs(10));
        queue.add_after(target("soon"), Duration::from_secs(1));
        let start = Instant::now();
        assert_eq!(queue.next().await.0, target("soon"));
        assert_eq!(queue.next().await.0, target("late"));
        assert_eq!(start.elapsed().as_secs(), 10);
        assert_eq!(queue.add_backoff(target("x")), BACKOFF_MIN);
        assert_eq!(queue.add_backoff(target("x")), BACKOFF_MIN * 2);
        queue.succeeded(&target("x"));
        assert_eq!(queue.add_backoff(target("x")), BACKOFF_MIN);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_barred_waits_whoever_wakes_it() {
        let queue = Queue::default();
        let start = Instant::now();
        let mut due = Duration::ZERO;
        for _ in 0..8 {
            due += queue.bar(target("x"));
            for _ in 0..3 {
                queue.add(target("x"));
            }
            let (held, _) = queue.next().await;
            // timers are as fine as milliseconds
            assert!(
                start.elapsed() >= due && start.elapsed() < due + Duration::from_millis(20),
                "{:?}",
                start.elapsed()
            );
            queue.done(&held);
        }
        assert!(due > Duration::from_secs(1));
        queue.succeeded(&target("x"));
        queue.add(target("x"));
        assert_eq!(queue.next().await.0, target("x"));
    }
}
