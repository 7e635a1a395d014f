//! Results of pure functions, kept for later calls. Forgetting one costs time and changes nothing else: this is the only state that a pure
//! crate may hold between calls, and the only lock.

use std::collections::BTreeMap;
use std::ops::DerefMut;
#[expect(clippy::disallowed_types, reason = "see the module's comment")]
use std::sync::{Mutex, PoisonError};

/// Results by their inputs; all are forgotten once they weigh more than `most`. A result weighs 1 unless `keep_of` gives its weight.
#[derive(Debug)]
pub struct Memo<V> {
    most: usize,
    #[expect(clippy::disallowed_types, reason = "see the module's comment")]
    held: Mutex<Held<V>>,
}

#[derive(Debug)]
struct Held<V> {
    results: BTreeMap<String, V>,
    weight: usize,
}

impl<V: Clone> Memo<V> {
    pub const fn new(most: usize) -> Self {
        #[expect(clippy::disallowed_types, reason = "see the module's comment")]
        let held = Mutex::new(Held { results: BTreeMap::new(), weight: 0 });
        Self { most, held }
    }

    fn held(&self) -> impl DerefMut<Target = Held<V>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn recall(&self, from: &str) -> Option<V> {
        self.held().results.get(from).cloned()
    }

    /// How many results it holds.
    pub fn count(&self) -> usize {
        self.held().results.len()
    }

    pub fn keep(&self, from: &str, result: V) {
        self.keep_of(from, result, 1);
    }

    /// Keeps a result of this weight.
    pub fn keep_of(&self, from: &str, result: V, weight: usize) {
        let mut held = self.held();
        if held.weight.saturating_add(weight) > self.most {
            held.results.clear();
            held.weight = 0;
        }
        // a result that is kept again counts twice, which forgets a little early
        held.weight = held.weight.saturating_add(weight);
        held.results.insert(from.to_owned(), result);
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
        memo.keep_of("d", 4, 2);
        assert_eq!((memo.recall("c"), memo.recall("d"), memo.count()), (None, Some(4), 1));
    }
}
