//! Time as a function of the machine's uptime: pure.

use serde::{Deserialize, Serialize};

/// A clock that differs from the machine's goes a twentieth faster or slower until they agree: an hour is made up for in twenty, and
/// meanwhile nothing takes more than a twentieth longer or shorter than it says.
const SLEW: i64 = 20;

/// From which uptime on time goes how. All times are in nanoseconds; clocks are in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// The uptime at which this line begins.
    pub since: i64,
    /// The clock less the uptime, at `since`.
    pub offset: i64,
    /// The machine's clock less the uptime: what the offset becomes, little by little.
    pub target: i64,
}

impl Line {
    /// A clock that agrees with the machine's.
    pub fn new(uptime: i64, wall: i64) -> Self {
        let offset = wall.saturating_sub(uptime);
        Self { since: uptime, offset, target: offset }
    }

    fn offset_at(&self, uptime: i64) -> i64 {
        let most = uptime.saturating_sub(self.since).max(0) / SLEW;
        let wanted = self.target.saturating_sub(self.offset);
        self.offset.saturating_add(wanted.clamp(most.saturating_neg(), most))
    }

    /// The clock at this uptime.
    pub fn at(&self, uptime: i64) -> i64 {
        uptime.saturating_add(self.offset_at(uptime))
    }

    /// The line that goes on from this one when the machine's clock has been set.
    #[must_use]
    pub fn set(&self, uptime: i64, wall: i64) -> Self {
        Self { since: uptime, offset: self.offset_at(uptime), target: wall.saturating_sub(uptime) }
    }

    /// How far the machine's clock was set since this line was drawn: negative where it was set back.
    pub fn shift(&self, uptime: i64, wall: i64) -> i64 {
        wall.saturating_sub(uptime).saturating_sub(self.target)
    }

    /// How far this clock is behind the machine's; negative where it is ahead.
    pub fn behind(&self, uptime: i64) -> i64 {
        self.target.saturating_sub(self.offset_at(uptime))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn a_clock_that_is_set_is_made_up_for_in_twenty_times_as_long() {
        for hour in [3600 * SECOND, -3600 * SECOND] {
            let line = Line::new(5 * SECOND, 1_000_000 * SECOND).set(65 * SECOND, 1_000_060 * SECOND + hour);
            assert_eq!(line.at(65 * SECOND), 1_000_060 * SECOND, "it goes on");
            assert_eq!(line.at(85 * SECOND), 1_000_080 * SECOND + hour.signum() * SECOND);
            let end = (65 + 20 * 3600) * SECOND;
            assert_eq!(line.behind(end - SECOND).signum(), hour.signum());
            assert_eq!(line.behind(end), 0);
            assert_eq!(line.at(end + SECOND), (1_000_061 + 20 * 3600) * SECOND + hour);
        }
    }

    proptest! {
        #[test]
        fn durations_are_those_of_the_uptime(
            sets in prop::collection::vec((0..100_000 * SECOND, -500_000 * SECOND..500_000 * SECOND), 0..12),
            waits in prop::collection::vec(0..50_000 * SECOND, 1..12),
        ) {
            let (mut uptime, mut wall) = (0, 2_000_000 * SECOND);
            let mut line = Line::new(uptime, wall);
            let (mut sets, mut now) = (sets.into_iter(), line.at(uptime));
            for wait in waits {
                // a twentieth, and a nanosecond for each division that rounds
                let mut rounding = 1;
                if let Some((after, by)) = sets.next() {
                    (uptime, wall) = (uptime + after, wall + after);
                    now = line.at(uptime);
                    wall += by;
                    prop_assert_eq!(line.shift(uptime, wall), by);
                    line = line.set(uptime, wall);
                    prop_assert_eq!(line.at(uptime), now, "no jump");
                    prop_assert_eq!(line.shift(uptime, wall), 0);
                    rounding += 1;
                }
                (uptime, wall) = (uptime + wait, wall + wait);
                let passed = line.at(uptime) - now;
                prop_assert!((passed - wait).abs() <= wait / SLEW + rounding, "{} of {}", passed, wait);
                now = line.at(uptime);
            }
            uptime += 20 * 10_000_000 * SECOND;
            prop_assert_eq!(line.behind(uptime), 0);
        }

        #[test]
        fn no_number_is_too_large(since: i64, offset: i64, target: i64, uptime: i64, wall: i64) {
            let line = Line { since, offset, target };
            let _ = (line.at(uptime), line.behind(uptime), line.shift(uptime, wall), line.set(uptime, wall).at(uptime));
        }
    }
}
