//! The work queue of `reconcile::queue` with a lock, a clock, and workers that wait for it.

use api::object::Target;
use reconcile::Next;
use reconcile::execution::Outcome;
use reconcile::queue::{self, Settled};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) struct Queue {
    state: Mutex<queue::Queue>,
    changed: Notify,
    made: Instant,
}

impl Default for Queue {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), made: Instant::now() }
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, queue::Queue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.made.elapsed()
    }

    /// How many keys wait for a worker, and how many ever did.
    pub(crate) fn counts(&self) -> (usize, u64) {
        let state = self.state();
        (state.depth(), state.adds())
    }

    /// Makes the key ready: something has changed.
    pub(crate) fn add(&self, target: Target) {
        self.state().add(target, self.now());
        self.changed.notify_one();
    }

    /// See [`queue::Queue::add_listed`].
    pub(crate) fn add_listed(&self, target: Target) {
        self.state().add_listed(target, self.now());
        self.changed.notify_one();
    }

    /// See [`queue::Queue::bar`].
    pub(crate) fn bar(&self, target: Target) -> Duration {
        let delay = self.state().bar(target, self.now());
        self.changed.notify_one();
        delay
    }

    /// See [`queue::Queue::settle`].
    pub(crate) fn settle(&self, target: &Target, outcome: &Outcome, next: Next) -> Settled {
        let settled = self.state().settle(target, outcome, next, self.now());
        self.changed.notify_one();
        settled
    }

    /// The next ready key, and how long it was ready; waits for one. The caller must give it back with [`Queue::done`].
    pub(crate) async fn next(&self) -> (Target, Duration) {
        loop {
            let wait = {
                let mut state = self.state();
                if let Some(next) = state.pop(self.now()) {
                    if state.depth() > 0 {
                        self.changed.notify_one();
                    }
                    return next;
                }
                state.next_at()
            };
            match wait {
                Some(at) => {
                    let at = api::time::after(self.made, at);
                    let _ = tokio::time::timeout_at(at, self.changed.notified()).await;
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// The worker is through with the key, which rests so long.
    pub(crate) fn done(&self, target: &Target, rest: Duration) {
        if self.state().done(target, self.now(), rest) {
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::object::{Gvk, Key};
    use jiff::SignedDuration;

    fn target(name: &str) -> Target {
        Target { gvk: Gvk::new("", "v1", "Pod"), key: Key::new("ns", name) }
    }

    #[tokio::test(start_paused = true)]
    async fn workers_wait_for_keys_and_for_timers() {
        let queue = Queue::default();
        let silence = tokio::time::timeout(Duration::from_secs(1), queue.next()).await;
        assert!(silence.is_err(), "nothing is ready");
        let ((held, _), ()) = tokio::join!(queue.next(), async { queue.add(target("a")) });
        queue.add(target("a"));
        queue.add(target("b"));
        assert_eq!(queue.next().await.0, target("b"), "a is being worked on");
        let ((again, _), ()) = tokio::join!(queue.next(), async { queue.done(&held, Duration::ZERO) });
        assert_eq!(again, target("a"), "it was woken meanwhile");
        queue.done(&again, Duration::ZERO);
        let start = Instant::now();
        for (name, seconds) in [("late", 10), ("soon", 1)] {
            queue.settle(&target(name), &Outcome::Done, Next::After(SignedDuration::from_secs(seconds)));
        }
        assert_eq!(queue.next().await.0, target("soon"));
        assert_eq!(queue.next().await.0, target("late"));
        assert_eq!(start.elapsed().as_secs(), 10);
        assert_eq!(queue.counts(), (0, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_barred_waits_whoever_wakes_it() {
        let queue = Queue::default();
        let start = Instant::now();
        let due = queue.bar(target("x")) + queue.bar(target("x"));
        queue.add(target("x"));
        queue.next().await;
        assert!(start.elapsed() >= due / 3, "{:?}", start.elapsed());
    }
}
