//! Whether many pods start at once.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// So many starts within [`AT_ONCE`] are a crowd from the next one on.
const MANY: usize = 8;
const AT_ONCE: Duration = Duration::from_secs(1);

/// The last starts of a node's pods.
#[derive(Debug, Default)]
pub struct Starts(Mutex<VecDeque<Instant>>);

impl Starts {
    /// A pod starts; whether it is one of a crowd.
    pub fn note(&self, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.push_back(now);
        let before = if last.len() > MANY { last.pop_front() } else { None };
        before.is_some_and(|before| now.duration_since(before) < AT_ONCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_ninth_start_of_a_second_is_one_of_a_crowd() {
        let starts = Starts::default();
        let begin = Instant::now();
        let crowded = |ms| starts.note(begin + Duration::from_millis(ms));
        assert!((0..8).all(|i| !crowded(i * 100)));
        assert!(crowded(900));
        assert!(!crowded(1500));
        assert!(!crowded(9000));
    }
}
