//! A controller's work queue as a value: it holds each key once, never hands a key out twice at a time, and delays retries.
//!
//! Time is an argument: how long ago the queue was made. The driver puts a lock, a clock and a way to wait around it; the
//! simulator has a clock of its own.

use crate::execution::Outcome;
use crate::{Fate, Next};
use api::object::Target;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The first backoff; each further failure in a row doubles it.
pub const BACKOFF_MIN: Duration = Duration::from_millis(5);
/// The longest backoff; and after how long a failure that only a change can mend is looked at again, in case that change was
/// one that nobody watches (a webhook of somebody else's, say).
pub const BACKOFF_MAX: Duration = Duration::from_secs(120);
/// The longest that an object rests, however long the look at it took.
pub const REST_MAX: Duration = Duration::from_millis(500);

/// While both lanes have keys, one of so many that are handed out is a listed one.
const LISTED_TURN: u64 = 4;

/// What made a key ready. After a start everything is listed: thousands of objects of which few have anything to do. What changes
/// meanwhile goes before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    Changed,
    Listed,
}

/// Bounded by the number of objects: a key is ready at most once and has at most one timer.
#[derive(Debug)]
pub struct Queue<K = Target> {
    /// With the time since when.
    changed: VecDeque<(K, Duration)>,
    /// The same. Keys that have changed since they were listed stay here and are passed over.
    listed: VecDeque<(K, Duration)>,
    /// How many were ever made ready, and how many were handed out.
    adds: u64,
    pops: u64,
    queued: BTreeMap<K, Lane>,
    working: BTreeSet<K>,
    /// Woken while a worker had it: ready again once that worker is done.
    again: BTreeSet<K>,
    timers: BTreeMap<K, Duration>,
    by_time: BTreeSet<(Duration, K)>,
    failures: BTreeMap<K, u32>,
    /// Not to be looked at before this time, even if a change wakes it: after a bug of ours, where a server asked us to wait, or
    /// while it rests.
    barred: BTreeMap<K, Duration>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            changed: VecDeque::new(),
            listed: VecDeque::new(),
            adds: 0,
            pops: 0,
            queued: BTreeMap::new(),
            working: BTreeSet::new(),
            again: BTreeSet::new(),
            timers: BTreeMap::new(),
            by_time: BTreeSet::new(),
            failures: BTreeMap::new(),
            barred: BTreeMap::new(),
        }
    }
}

/// How a look at an object ended, and in how long it is looked at again at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Success,
    /// To be looked at again at a known time.
    After(Duration),
    /// To be looked at again after a backoff: the view was stale, or something is missing.
    Backoff(Duration),
    Failed(Duration),
}

impl<K: Ord + Clone> Queue<K> {
    /// Makes the key ready: something has changed.
    pub fn add(&mut self, target: K, now: Duration) {
        self.add_to(Lane::Changed, target, now);
    }

    /// Makes the key ready, in a lane.
    pub fn add_to(&mut self, lane: Lane, target: K, now: Duration) {
        if let Some(at) = self.barred.get(&target).copied() {
            if at > now {
                return self.add_at(target, at);
            }
            self.barred.remove(&target);
        }
        if self.working.contains(&target) {
            self.again.insert(target);
            return;
        }
        match self.queued.get(&target) {
            None => self.adds = self.adds.saturating_add(1),
            Some(Lane::Listed) if lane == Lane::Changed => {}
            Some(_) => return,
        }
        self.queued.insert(target.clone(), lane);
        match lane {
            Lane::Changed => self.changed.push_back((target, now)),
            Lane::Listed => self.listed.push_back((target, now)),
        }
    }

    /// Makes the key ready at a time; of several times the first counts.
    pub fn add_at(&mut self, target: K, at: Duration) {
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

    /// Makes the key ready after the backoff that its failures in a row have earned; returns that backoff.
    pub fn add_backoff(&mut self, target: K, now: Duration) -> Duration {
        let failures = self.failures.entry(target.clone()).or_default();
        let delay = BACKOFF_MIN.saturating_mul(1 << (*failures).min(20)).min(BACKOFF_MAX);
        *failures = failures.saturating_add(1);
        self.add_at(target, now.saturating_add(delay));
        delay
    }

    /// As [`Queue::add_backoff`]; and no change of anything wakes the key before. For what fails by a bug of ours, which each
    /// look would meet again.
    pub fn bar(&mut self, target: K, now: Duration) -> Duration {
        let delay = self.add_backoff(target.clone(), now);
        self.barred.insert(target, now.saturating_add(delay));
        delay
    }

    /// Ends the series of failures.
    pub fn succeeded(&mut self, target: &K) {
        self.failures.remove(target);
        self.barred.remove(target);
    }

    /// Takes in how a decision was carried out and when it wants to be looked at again.
    pub fn settle(&mut self, target: &K, outcome: &Outcome, next: Next, now: Duration) -> Settled {
        let asked = match next {
            Next::After(delay) => Some(Duration::try_from(delay).unwrap_or(Duration::ZERO)),
            Next::AwaitChange | Next::Backoff => None,
        };
        match outcome {
            Outcome::Done => {
                if next == Next::Backoff {
                    return Settled::Backoff(self.add_backoff(target.clone(), now));
                }
                self.succeeded(target);
                let Some(delay) = asked else { return Settled::Success };
                self.add_at(target.clone(), now.saturating_add(delay));
                Settled::After(delay)
            }
            Outcome::Again => Settled::Backoff(self.add_backoff(target.clone(), now)),
            Outcome::Failed(_, fate) => {
                let delay = match fate {
                    Fate::AwaitChange => {
                        self.add_at(target.clone(), now.saturating_add(BACKOFF_MAX));
                        BACKOFF_MAX
                    }
                    Fate::Retry | Fate::Again => self.add_backoff(target.clone(), now),
                    Fate::Later(wait) => {
                        let wait = (*wait).min(BACKOFF_MAX);
                        self.barred.insert(target.clone(), now.saturating_add(wait));
                        self.add_backoff(target.clone(), now).max(wait)
                    }
                };
                if let Some(asked) = asked {
                    self.add_at(target.clone(), now.saturating_add(asked));
                }
                Settled::Failed(delay)
            }
        }
    }

    /// The next ready key, and how long it was ready. It must be given back with [`Queue::done`].
    pub fn pop(&mut self, now: Duration) -> Option<(K, Duration)> {
        self.pop_from(true, now).map(|(target, waited, _)| (target, waited))
    }

    /// The same, with its lane; without `listed` only of what has changed.
    pub fn pop_from(&mut self, listed: bool, now: Duration) -> Option<(K, Duration, Lane)> {
        while self.by_time.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, target)) = self.by_time.pop_first() else { break };
            self.timers.remove(&target);
            self.add(target, now);
        }
        let has_turn = listed && self.pops % LISTED_TURN == LISTED_TURN - 1;
        let (target, since) = match has_turn {
            true => self.pop_listed().or_else(|| self.changed.pop_front()),
            false => self.changed.pop_front().or_else(|| if listed { self.pop_listed() } else { None }),
        }?;
        let lane = self.queued.remove(&target).unwrap_or(Lane::Changed);
        self.working.insert(target.clone());
        self.pops = self.pops.saturating_add(1);
        Some((target, now.saturating_sub(since), lane))
    }

    fn pop_listed(&mut self) -> Option<(K, Duration)> {
        while let Some((target, since)) = self.listed.pop_front() {
            if self.queued.get(&target) == Some(&Lane::Listed) {
                return Some((target, since));
            }
        }
        None
    }

    /// A worker is through with the key, and no change of anything wakes it before it has rested so long: what comes in a burst is
    /// looked at together. True where it was woken meanwhile: it is ready again, or will be once it has rested.
    pub fn done(&mut self, target: &K, now: Duration, rest: Duration) -> bool {
        self.working.remove(target);
        if !rest.is_zero() {
            // those whose time has come bar nothing: objects that are gone leave none behind
            self.barred.retain(|_, at| *at > now);
            let until = now.saturating_add(rest);
            self.barred.entry(target.clone()).and_modify(|at| *at = until.max(*at)).or_insert(until);
        }
        let woken = self.again.remove(target);
        if woken {
            self.add(target.clone(), now);
        }
        woken
    }

    /// When the first timer ends.
    pub fn next_at(&self) -> Option<Duration> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// How many keys wait for a worker.
    pub fn depth(&self) -> usize {
        self.queued.len()
    }

    /// How many keys were ever made ready.
    pub fn adds(&self) -> u64 {
        self.adds
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

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn pop(queue: &mut Queue, now: Duration) -> Option<Target> {
        queue.pop(now).map(|(target, _)| target)
    }

    #[test]
    fn a_key_is_held_once_and_by_one_worker() {
        let mut queue = Queue::default();
        queue.add(target("a"), secs(0));
        queue.add(target("a"), secs(0));
        assert_eq!(queue.pop(secs(3)), Some((target("a"), secs(3))));
        queue.add(target("a"), secs(3));
        queue.add(target("b"), secs(3));
        assert_eq!(pop(&mut queue, secs(3)), Some(target("b")), "a is being worked on");
        assert!(queue.done(&target("a"), secs(3), Duration::ZERO), "it was woken meanwhile");
        assert_eq!(pop(&mut queue, secs(3)), Some(target("a")));
        assert!(!queue.done(&target("a"), secs(3), Duration::ZERO));
        assert_eq!((queue.depth(), queue.adds(), pop(&mut queue, secs(9))), (0, 3, None));
    }

    #[test]
    fn changes_go_before_what_was_listed() {
        let mut queue = Queue::default();
        for name in ["l1", "l2", "l3", "l4"] {
            queue.add_to(Lane::Listed, target(name), secs(0));
        }
        for name in ["c1", "l3", "c2", "c3"] {
            queue.add(target(name), secs(1));
        }
        queue.add_to(Lane::Listed, target("c3"), secs(1));
        queue.add(target("c0"), secs(1));
        assert_eq!(queue.pop_from(false, secs(1)), Some((target("c1"), secs(0), Lane::Changed)));
        queue.done(&target("c1"), secs(1), Duration::ZERO);
        assert_eq!((queue.depth(), queue.adds()), (7, 8));
        let order: Vec<String> =
            std::iter::from_fn(|| pop(&mut queue, secs(2))).map(|target| target.key.name).collect();
        assert_eq!(order, ["l3", "c2", "l1", "c3", "c0", "l2", "l4"], "each fourth was listed, and none comes twice");
        queue.add_to(Lane::Listed, target("l5"), secs(3));
        assert_eq!((queue.pop_from(false, secs(3)), queue.depth()), (None, 1));
        assert_eq!(queue.pop_from(true, secs(4)), Some((target("l5"), secs(1), Lane::Listed)));
        assert_eq!(queue.depth(), 0);
    }

    #[test]
    fn timers_end_in_order_and_backoff_grows() {
        let mut queue = Queue::default();
        queue.add_at(target("late"), secs(10));
        queue.add_at(target("soon"), secs(5));
        queue.add_at(target("soon"), secs(1));
        queue.add_at(target("soon"), secs(7));
        assert_eq!((queue.next_at(), pop(&mut queue, secs(0))), (Some(secs(1)), None));
        assert_eq!(pop(&mut queue, secs(1)), Some(target("soon")));
        assert_eq!(pop(&mut queue, secs(10)), Some(target("late")));
        assert_eq!(queue.add_backoff(target("x"), secs(0)), BACKOFF_MIN);
        assert_eq!(queue.add_backoff(target("x"), secs(0)), BACKOFF_MIN * 2);
        queue.succeeded(&target("x"));
        assert_eq!(queue.add_backoff(target("x"), secs(0)), BACKOFF_MIN);
        let longest = (0..40).map(|_| queue.add_backoff(target("x"), secs(0))).max();
        assert_eq!(longest, Some(BACKOFF_MAX));
    }

    #[test]
    fn what_is_barred_waits_whoever_wakes_it() {
        let mut queue = Queue::default();
        let mut now = Duration::ZERO;
        for _ in 0..8 {
            let delay = queue.bar(target("x"), now);
            queue.add(target("x"), now);
            assert_eq!(pop(&mut queue, now + delay / 2), None);
            now += delay;
            assert_eq!(pop(&mut queue, now), Some(target("x")));
            queue.done(&target("x"), now, Duration::ZERO);
        }
        queue.succeeded(&target("x"));
        queue.add(target("x"), now);
        assert_eq!(pop(&mut queue, now), Some(target("x")));
    }

    #[test]
    fn changes_of_a_resting_key_are_looked_at_together() {
        let mut queue = Queue::default();
        queue.add(target("x"), secs(0));
        assert_eq!(pop(&mut queue, secs(0)), Some(target("x")));
        queue.add(target("x"), secs(1));
        assert!(queue.done(&target("x"), secs(2), secs(2)), "it was woken meanwhile");
        queue.add(target("x"), secs(3));
        assert_eq!((queue.next_at(), pop(&mut queue, secs(3))), (Some(secs(4)), None));
        assert_eq!((pop(&mut queue, secs(4)), queue.depth()), (Some(target("x")), 0));
        // nothing has come while it rested: the next change is looked at when it comes
        assert!(!queue.done(&target("x"), secs(5), secs(2)));
        assert_eq!((queue.next_at(), pop(&mut queue, secs(7))), (None, None));
        queue.add(target("x"), secs(8));
        assert_eq!(pop(&mut queue, secs(8)), Some(target("x")));
        // rest is no more than what a bug or a server has put off
        queue.bar(target("x"), secs(8));
        queue.done(&target("x"), secs(8), Duration::from_millis(1));
        queue.add(target("x"), secs(8));
        assert_eq!(pop(&mut queue, secs(8) + BACKOFF_MIN / 2), None);
        assert_eq!(pop(&mut queue, secs(20)), Some(target("x")));
        queue.done(&target("x"), secs(20), secs(1));
        queue.add(target("y"), secs(22));
        assert_eq!(pop(&mut queue, secs(22)), Some(target("y")));
        queue.done(&target("y"), secs(22), secs(1));
        assert_eq!(queue.barred.len(), 1, "what has rested is forgotten");
    }

    #[test]
    fn what_the_server_puts_off_waits_whoever_wakes_it() {
        let mut queue = Queue::default();
        let later = |wait| Outcome::Failed(vec!["busy".to_owned()], Fate::Later(wait));
        queue.settle(&target("x"), &later(secs(3)), Next::AwaitChange, secs(0));
        queue.add(target("x"), secs(1));
        assert_eq!((pop(&mut queue, secs(2)), pop(&mut queue, secs(3))), (None, Some(target("x"))));
        queue.done(&target("x"), secs(3), Duration::ZERO);
        // a server cannot put it off for ever
        queue.settle(&target("x"), &later(Duration::MAX), Next::AwaitChange, secs(3));
        queue.add(target("x"), secs(4));
        assert_eq!(pop(&mut queue, secs(3) + BACKOFF_MAX), Some(target("x")));
    }

    #[test]
    fn an_outcome_says_when_to_look_again() {
        let soon = Next::After(SignedDuration::from_secs(7));
        let failed = |fate| Outcome::Failed(vec!["no".to_owned()], fate);
        let cases = [
            (Outcome::Done, Next::AwaitChange, Settled::Success, None),
            (Outcome::Done, soon, Settled::After(secs(7)), Some(secs(7))),
            (Outcome::Done, Next::Backoff, Settled::Backoff(BACKOFF_MIN), Some(BACKOFF_MIN)),
            (Outcome::Again, soon, Settled::Backoff(BACKOFF_MIN), Some(BACKOFF_MIN)),
            (failed(Fate::Retry), Next::AwaitChange, Settled::Failed(BACKOFF_MIN), Some(BACKOFF_MIN)),
            // what only a change can mend waits for one, and for a long time
            (failed(Fate::AwaitChange), Next::AwaitChange, Settled::Failed(BACKOFF_MAX), Some(BACKOFF_MAX)),
            (failed(Fate::AwaitChange), soon, Settled::Failed(BACKOFF_MAX), Some(secs(7))),
            (failed(Fate::Later(secs(3))), Next::AwaitChange, Settled::Failed(secs(3)), Some(BACKOFF_MIN)),
        ];
        for (outcome, next, settled, at) in cases {
            let mut queue = Queue::default();
            assert_eq!(queue.settle(&target("x"), &outcome, next, secs(0)), settled, "{outcome:?} {next:?}");
            assert_eq!(queue.next_at(), at, "{outcome:?} {next:?}");
        }
    }
}
