//! The work queue of `reconcile::queue` with a lock, a clock, and workers that wait for it.

use crate::looks::Looks;
use api::object::Target;
use reconcile::Next;
use reconcile::execution::Outcome;
use reconcile::queue::{self, Lane, Settled};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, SemaphorePermit};
use tokio::time::Instant;

/// A key in the hands of a worker.
pub(crate) struct Ready<'a> {
    pub target: Target,
    /// How long it was ready.
    pub waited: Duration,
    /// Of a key that was only listed: until its look has been taken.
    pub permit: Option<SemaphorePermit<'a>>,
}

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

    /// See [`queue::Queue::add_to`].
    pub(crate) fn add_to(&self, lane: Lane, target: Target) {
        self.state().add_to(lane, target, self.now());
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

    /// The next ready key; waits for one. The caller must give it back with [`Queue::done`]. A key that was only listed comes with a
    /// permit to look at it, of which `looks` has few, and none while a look takes long; a caller that cannot have one gets keys that have changed.
    pub(crate) async fn next<'a>(&self, looks: &'a Looks) -> Ready<'a> {
        let mut permit = None;
        loop {
            permit = permit.or_else(|| looks.try_permit());
            let (until, has_listed) = {
                let mut state = self.state();
                if let Some((target, waited, lane)) = state.pop_from(permit.is_some(), self.now()) {
                    if state.depth() > 0 {
                        self.changed.notify_one();
                    }
                    return Ready { target, waited, permit: permit.filter(|_| lane == Lane::Listed) };
                }
                (state.next_at(), state.depth() > 0)
            };
            permit = None;
            let until = until.map(|at| api::time::after(self.made, at));
            tokio::select! {
                () = self.changed.notified() => {}
                () = tokio::time::sleep_until(until.unwrap_or(self.made)), if until.is_some() => {}
                free = looks.permit(), if has_listed => permit = free,
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
        let (queue, looks) = (Queue::default(), Looks::new(1));
        let silence = tokio::time::timeout(Duration::from_secs(1), queue.next(&looks)).await;
        assert!(silence.is_err(), "nothing is ready");
        let (Ready { target: held, .. }, ()) =
            tokio::join!(queue.next(&looks), async { queue.add_to(Lane::Changed, target("a")) });
        queue.add_to(Lane::Changed, target("a"));
        queue.add_to(Lane::Changed, target("b"));
        assert_eq!(queue.next(&looks).await.target, target("b"), "a is being worked on");
        let (Ready { target: again, .. }, ()) =
            tokio::join!(queue.next(&looks), async { queue.done(&held, Duration::ZERO) });
        assert_eq!(again, target("a"), "it was woken meanwhile");
        queue.done(&again, Duration::ZERO);
        let start = Instant::now();
        for (name, seconds) in [("late", 10), ("soon", 1)] {
            queue.settle(&target(name), &Outcome::Done, Next::After(SignedDuration::from_secs(seconds)));
        }
        assert_eq!(queue.next(&looks).await.target, target("soon"));
        assert_eq!(queue.next(&looks).await.target, target("late"));
        assert_eq!(start.elapsed().as_secs(), 10);
        assert_eq!(queue.counts(), (0, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_listed_waits_for_a_permit() {
        let (queue, looks) = (Queue::default(), Looks::new(1));
        ["l1", "l2"].into_iter().for_each(|name| queue.add_to(Lane::Listed, target(name)));
        let first = queue.next(&looks).await;
        assert_eq!((first.target, first.permit.is_some()), (target("l1"), true));
        let silence = tokio::time::timeout(Duration::from_secs(1), queue.next(&looks)).await;
        assert!(silence.is_err(), "another look is being taken");
        let (changed, ()) = tokio::join!(queue.next(&looks), async { queue.add_to(Lane::Changed, target("c")) });
        assert_eq!((changed.target, changed.permit.is_none()), (target("c"), true));
        let (second, ()) = tokio::join!(queue.next(&looks), async { drop(first.permit) });
        assert_eq!((second.target, second.permit.is_some()), (target("l2"), true));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_barred_waits_whoever_wakes_it() {
        let queue = Queue::default();
        let start = Instant::now();
        let due = queue.bar(target("x")) + queue.bar(target("x"));
        queue.add_to(Lane::Changed, target("x"));
        queue.next(&Looks::new(1)).await;
        assert!(start.elapsed() >= due / 3, "{:?}", start.elapsed());
    }
}
