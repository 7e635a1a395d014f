//! Sums of times that cannot fail: seconds come from outside, and may be any number.
//!
//! The operators `+` and `-` of times panic beyond the calendar's end, so clippy refuses them (`arithmetic_side_effects`).

use jiff::{SignedDuration, Timestamp};
use std::ops::Add;
use std::time::Duration;

/// As good as never: what no clock of a process reaches, and every clock can count to.
const NEVER: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// `at` and so much more or less; at most the calendar's ends.
pub fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    let end = if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
    at.checked_add(by).unwrap_or(end)
}

/// `at` and so many seconds; at most the calendar's end.
pub fn later_secs(at: Timestamp, secs: i64) -> Timestamp {
    later(at, SignedDuration::from_secs(secs))
}

/// `at` less so many seconds; at least the calendar's beginning.
pub fn earlier_secs(at: Timestamp, secs: i64) -> Timestamp {
    later_secs(at, secs.saturating_neg())
}

/// What is left of `wait` that began at `since`; negative once it is over.
pub fn left(wait: SignedDuration, since: Timestamp, now: Timestamp) -> SignedDuration {
    wait.saturating_sub(now.duration_since(since))
}

/// The instant (tokio's or std's) that comes `by` after `at`; at most a hundred years.
#[expect(clippy::arithmetic_side_effects, reason = "instants hold a hundred years more than any uptime")]
pub fn after<I: Add<Duration, Output = I>>(at: I, by: Duration) -> I {
    at + by.min(NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn no_number_is_too_large() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        assert_eq!(later_secs(now, 60).as_second(), 1_800_000_060);
        assert_eq!(earlier_secs(now, 60).as_second(), 1_799_999_940);
        for at in [now, Timestamp::MIN, Timestamp::MAX] {
            for secs in [i64::MIN, -1_000_000_000_000, 1_000_000_000_000, i64::MAX] {
                let end = if secs < 0 { Timestamp::MIN } else { Timestamp::MAX };
                assert_eq!(later_secs(at, secs), end);
                assert_eq!(earlier_secs(at, secs) == Timestamp::MIN, secs > 0);
                let left = left(SignedDuration::from_secs(secs), at, now);
                assert_eq!(left.is_negative(), secs < 0, "{secs} {at}");
            }
        }
        let start = SystemTime::UNIX_EPOCH;
        assert_eq!(after(start, Duration::from_secs(5)), start + Duration::from_secs(5));
        assert!(after(start, Duration::MAX) > after(start, NEVER - Duration::from_secs(1)));
    }
}
