//! What pure functions have worked out, kept for the next time they are asked. Forgetting costs time and changes nothing else: this
//! is the only state that a pure crate may hold between calls, and the only lock.

use std::collections::BTreeMap;
use std::ops::DerefMut;
#[expect(clippy::disallowed_types, reason = "see the module's comment")]
use std::sync::{Mutex, PoisonError};

/// Results by what they were made from; all are forgotten once there are more than `most`.
#[derive(Debug)]
pub struct Memo<V> {
    most: usize,
    #[expect(clippy::disallowed_types, reason = "see the module's comment")]
    held: Mutex<BTreeMap<String, V>>,
}

impl<V: Clone> Memo<V> {
    pub const fn new(most: usize) -> Self {
        #[expect(clippy::disallowed_types, reason = "see the module's comment")]
        let held = Mutex::new(BTreeMap::new());
        Self { most, held }
    }

    fn held(&self) -> impl DerefMut<Target = BTreeMap<String, V>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn recall(&self, from: &str) -> Option<V> {
        self.held().get(from).cloned()
    }

    /// How many results it holds.
    pub fn count(&self) -> usize {
        self.held().len()
    }

    pub fn keep(&self, from: &str, result: V) {
        let mut held = self.held();
        if held.len() >= self.most {
            held.clear();
        }
        held.insert(from.to_owned(), result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_no_more_than_it_may() {
        let memo = Memo::new(2);
        assert_eq!(memo.recall("a"), None);
        ["a", "b", "c"].into_iter().for_each(|from| memo.keep(from, from.len()));
        assert_eq!((memo.recall("a"), memo.recall("c"), memo.count()), (None, Some(1), 1));
    }
}
