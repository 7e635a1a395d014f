//! Which objects a loop follows, and which of them are due.

use api::object::Key;
use reconcile::Next;
use reconcile::execution::Outcome;
use reconcile::queue::{Lane, Queue};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// One object. A later object of the same name is another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id {
    pub(crate) key: Key,
    pub(crate) uid: String,
}

struct State<M> {
    /// By name: uid and mark.
    followed: BTreeMap<Key, (String, M)>,
    queue: Queue<Id>,
}

struct Inner<M> {
    state: Mutex<State<M>>,
    changed: Notify,
    made: Instant,
}

/// Makes a loop look at objects. Clones wake the same loop.
pub struct Wakes<M>(Arc<Inner<M>>);

impl<M> Clone for Wakes<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M> Default for Wakes<M> {
    fn default() -> Self {
        let state = State { followed: BTreeMap::new(), queue: Queue::default() };
        Self(Arc::new(Inner { state: Mutex::new(state), changed: Notify::new(), made: Instant::now() }))
    }
}

impl<M> Wakes<M> {
    fn state(&self) -> MutexGuard<'_, State<M>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.0.made.elapsed()
    }

    /// Looks at the object of this name after a pause. An object that is not followed is ignored.
    pub fn wake(&self, key: &Key, pause: Duration) {
        let mut state = self.state();
        let Some((uid, _)) = state.followed.get(key) else { return };
        let id = Id { key: key.clone(), uid: uid.clone() };
        state.queue.add_at(id, self.now().saturating_add(pause));
        drop(state);
        self.0.changed.notify_one();
    }

    /// Looks at all objects for which `holds` is true.
    pub fn wake_where(&self, holds: impl Fn(&Key, &M) -> bool) {
        let mut state = self.state();
        let meant = state.followed.iter().filter(|(key, (_, mark))| holds(key, mark));
        let meant: Vec<Id> = meant.map(|(key, (uid, _))| Id { key: key.clone(), uid: uid.clone() }).collect();
        meant.into_iter().for_each(|id| state.queue.add(id, self.now()));
        drop(state);
        self.0.changed.notify_one();
    }

    /// Records an object that the watch reported.
    pub(crate) fn follow(&self, key: Key, uid: String, mark: M, lane: Lane)
    where
        M: PartialEq,
    {
        let mut state = self.state();
        if state.followed.get(&key).is_some_and(|(held, before)| *held == uid && *before == mark) {
            return;
        }
        state.followed.insert(key.clone(), (uid.clone(), mark));
        state.queue.add_to(lane, Id { key, uid }, self.now());
        drop(state);
        self.0.changed.notify_one();
    }

    /// Stops following an object that is gone. A later object of the same name stays.
    pub(crate) fn forget(&self, key: &Key, uid: &str) {
        let mut state = self.state();
        if state.followed.get(key).is_some_and(|(held, _)| held == uid) {
            state.followed.remove(key);
        }
    }

    /// The next object to look at. It must be given back with [`Wakes::settle`].
    pub(crate) fn pop(&self) -> Option<Id> {
        let mut state = self.state();
        loop {
            let (id, _) = state.queue.pop(self.now())?;
            if state.followed.get(&id.key).is_some_and(|(uid, _)| *uid == id.uid) {
                return Some(id);
            }
            state.queue.succeeded(&id);
            state.queue.done(&id, self.now(), Duration::ZERO);
        }
    }

    /// Records how a look ended; `None`: the object is gone.
    pub(crate) fn settle(&self, id: &Id, next: Option<Next>) {
        match next {
            Some(next) => {
                self.state().queue.settle(id, &Outcome::Done, next, self.now());
            }
            None => {
                self.forget(&id.key, &id.uid);
                self.state().queue.succeeded(id);
            }
        }
        self.state().queue.done(id, self.now(), Duration::ZERO);
    }

    /// Waits until there may be an object to look at.
    pub(crate) async fn wait(&self) {
        let until = self.state().queue.next_at();
        let until = until.map(|at| api::time::after(self.0.made, at));
        tokio::select! {
            () = self.0.changed.notified() => {}
            () = tokio::time::sleep_until(until.unwrap_or(self.0.made)), if until.is_some() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    fn key() -> Key {
        Key::new("ns", "a")
    }

    fn popped(wakes: &Wakes<u32>) -> Option<String> {
        wakes.pop().map(|id| id.uid)
    }

    fn id(uid: &str) -> Id {
        Id { key: key(), uid: uid.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_loop_writes_itself_wakes_nothing() {
        let wakes = Wakes::default();
        wakes.follow(key(), "1".into(), 1, Lane::Listed);
        assert_eq!(popped(&wakes).as_deref(), Some("1"));
        wakes.settle(&id("1"), Some(Next::AwaitChange));
        wakes.follow(key(), "1".into(), 1, Lane::Changed);
        assert_eq!(popped(&wakes), None, "its mark is the same");
        wakes.follow(key(), "1".into(), 2, Lane::Changed);
        assert_eq!(popped(&wakes).as_deref(), Some("1"));
        wakes.follow(key(), "1".into(), 3, Lane::Changed);
        assert_eq!(popped(&wakes), None, "it is being looked at");
        wakes.settle(&id("1"), Some(Next::AwaitChange));
        assert_eq!(popped(&wakes).as_deref(), Some("1"), "it has changed meanwhile");
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_of_the_same_name_waits_for_nothing() {
        let wakes = Wakes::default();
        wakes.follow(key(), "1".into(), 1, Lane::Changed);
        assert_eq!(popped(&wakes).as_deref(), Some("1"));
        wakes.follow(key(), "2".into(), 1, Lane::Changed);
        assert_eq!(popped(&wakes).as_deref(), Some("2"));
        wakes.settle(&id("1"), None);
        wakes.forget(&key(), "1");
        wakes.wake(&key(), Duration::ZERO);
        wakes.settle(&id("2"), Some(Next::AwaitChange));
        assert_eq!(popped(&wakes).as_deref(), Some("2"), "the older one took nothing with it");
    }

    #[tokio::test(start_paused = true)]
    async fn times_come_and_what_is_gone_is_not_looked_at() {
        let wakes = Wakes::default();
        wakes.follow(key(), "1".into(), 1, Lane::Changed);
        assert_eq!(popped(&wakes).as_deref(), Some("1"));
        wakes.settle(&id("1"), Some(Next::After(SignedDuration::from_secs(60))));
        let begun = Instant::now();
        wakes.wait().await;
        // the first wait ends by the wake of `follow`
        wakes.wait().await;
        assert_eq!((begun.elapsed().as_secs(), popped(&wakes).as_deref()), (60, Some("1")));
        wakes.settle(&id("1"), Some(Next::After(SignedDuration::from_secs(60))));
        wakes.wake(&key(), Duration::from_secs(1));
        wakes.wait().await;
        wakes.wait().await;
        assert_eq!((begun.elapsed().as_secs(), popped(&wakes).as_deref()), (61, Some("1")));
        wakes.settle(&id("1"), Some(Next::After(SignedDuration::from_secs(60))));
        wakes.forget(&key(), "1");
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(popped(&wakes), None);
    }
}
