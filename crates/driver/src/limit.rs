//! A limit on the rate of requests: a token bucket.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Lets `burst` requests through at once and `per_second` in the long run; what comes too early waits its turn.
pub struct Limiter {
    per_second: f64,
    burst: f64,
    /// When the bucket was or will be empty: tokens grow from there.
    empty_at: Mutex<Option<Instant>>,
}

impl Limiter {
    /// A limit that `burst` requests can pass at once; at least one can.
    pub fn new(per_second: f64, burst: f64) -> Self {
        Self { per_second, burst: burst.max(1.0), empty_at: Mutex::new(None) }
    }

    /// Takes a token; waits until there is one.
    pub async fn pass(&self) {
        let wait = self.reserve(Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// Reserves a token; returns how long until it is there.
    fn reserve(&self, now: Instant) -> Duration {
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let one = seconds(1.0 / self.per_second);
        let full = seconds(self.burst / self.per_second);
        let mut empty_at = self.empty_at.lock().unwrap_or_else(PoisonError::into_inner);
        // a bucket holds no more than `burst`
        let earliest = now.checked_sub(full).unwrap_or(now);
        let next = api::time::after(empty_at.map_or(earliest, |at| at.max(earliest)), one);
        *empty_at = Some(next);
        next.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_the_rest_wait_their_turn() {
        tokio::time::advance(Duration::from_secs(3600)).await;
        let limiter = Limiter::new(10.0, 5.0);
        let now = Instant::now();
        let waits: Vec<u128> = (0..8).map(|_| limiter.reserve(now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 100, 200, 300]);
        assert_eq!(limiter.reserve(now + Duration::from_secs(100)).as_millis(), 0);
        let start = Instant::now();
        for _ in 0..15 {
            limiter.pass().await;
        }
        assert!(start.elapsed() >= Duration::from_secs(1));
    }
}
