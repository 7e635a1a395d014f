//! Queues of writers: writers that lost a race for an object write it one after the other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::Key;
use tokio::sync::OwnedMutexGuard;

/// A bucket and the name of an object in it.
pub(super) type Place = (Arc<str>, Key);

/// The rows at present: one for each object whose writers have met. A row is gone with its last writer.
#[derive(Default)]
pub(super) struct Turns {
    rows: Mutex<HashMap<Place, Arc<tokio::sync::Mutex<()>>>>,
}

impl Turns {
    fn rows(&self) -> MutexGuard<'_, HashMap<Place, Arc<tokio::sync::Mutex<()>>>> {
        // nothing that holds the lock panics
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether writers of this object wait for each other.
    pub(super) fn has_row(&self, place: &Place) -> bool {
        self.rows().contains_key(place)
    }

    /// Waits, in the order of arrival, until all earlier writers are done. The turn lasts until it is dropped.
    pub(super) async fn join(&self, place: Place) -> Turn<'_> {
        let row = self.rows().entry(place.clone()).or_default().clone();
        // made before it waits, so that a request that is given up while waiting leaves no row behind
        let mut turn = Turn { turns: self, place, row: Some(row.clone()), guard: None };
        turn.guard = Some(row.lock_owned().await);
        turn
    }
}

/// A place in a row.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    place: Place,
    row: Option<Arc<tokio::sync::Mutex<()>>>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut rows = self.turns.rows();
        self.guard = None;
        self.row = None;
        if rows.get(&self.place).is_some_and(|row| Arc::strong_count(row) == 1) {
            rows.remove(&self.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready<T>(poll: std::task::Poll<T>) -> Option<T> {
        match poll {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn turns_are_taken_in_order_and_rows_end_with_the_last() {
        let turns = Turns::default();
        let place: Place = ("b".into(), Key::new("ns", "a"));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let join = || Box::pin(turns.join(place.clone()));
        let (mut first, mut second, mut given_up, mut last) = (join(), join(), join(), join());
        let holder = ready(first.as_mut().poll(&mut cx)).expect("nobody is before it");
        assert!(ready(second.as_mut().poll(&mut cx)).is_none());
        assert!(ready(given_up.as_mut().poll(&mut cx)).is_none());
        assert!(ready(last.as_mut().poll(&mut cx)).is_none());
        drop(given_up);
        drop(holder);
        assert!(ready(last.as_mut().poll(&mut cx)).is_none(), "the second is before it");
        drop(ready(second.as_mut().poll(&mut cx)).expect("the first is done"));
        assert!(turns.has_row(&place));
        drop(ready(last.as_mut().poll(&mut cx)).expect("all others are done"));
        assert!(!turns.has_row(&place));
    }
}
