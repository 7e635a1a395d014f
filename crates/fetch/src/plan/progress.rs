//! Amounts as people read them, and when a line about progress is due.

use std::time::Duration;

/// `812 B`, `3.1 KB`, `40 GB`: decimal units, two digits that count.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KB", "MB", "GB", "TB", "PB", "EB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1000.0;
    let mut unit = 0;
    // 999.5 would be shown as 1000
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if value < 9.95 { format!("{value:.1} {}", UNITS[unit]) } else { format!("{value:.0} {}", UNITS[unit]) }
}

/// `64 KiB`, `8 MiB`: limits, which are whole numbers of binary units.
pub fn binary(count: usize) -> String {
    match (count >> 20, count >> 10) {
        (0, 0) => format!("{count} bytes"),
        (0, kib) => format!("{kib} KiB"),
        (mib, _) => format!("{mib} MiB"),
    }
}

/// `3.1 of 40 GB`, `812 MB of 40 GB`.
pub fn part(done: u64, total: u64) -> String {
    let (done, total) = (bytes(done), bytes(total));
    match (done.split_once(' '), total.split_once(' ')) {
        (Some((count, unit)), Some((_, same))) if unit == same => format!("{count} of {total}"),
        _ => format!("{done} of {total}"),
    }
}

/// How long the rest takes, as fast as it went so far.
pub fn left(done: u64, total: u64, fetched: u64, at: Duration) -> Option<Duration> {
    let rate = fetched as f64 / at.as_secs_f64().max(0.001);
    let left = total.saturating_sub(done);
    Duration::try_from_secs_f64(left as f64 / rate).ok().filter(|_| left > 0 && rate > 0.0)
}

/// `40 seconds`, `4 minutes`, `2 hours`.
pub fn time(left: Duration) -> String {
    let seconds = left.as_secs();
    let (count, unit) = match seconds {
        0..90 => (seconds.max(1), "second"),
        90..5400 => (seconds.saturating_add(30) / 60, "minute"),
        _ => (seconds.saturating_add(1800) / 3600, "hour"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// Which tenths and half minutes have been told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    tenths: u64,
    at: Duration,
}

impl Told {
    /// The line that is due `at` (since the start), if one is: every tenth, or after 30 seconds.
    pub fn line(&mut self, done: u64, total: u64, fetched: u64, at: Duration) -> Option<String> {
        let tenths = u64::try_from(u128::from(done).saturating_mul(10).checked_div(u128::from(total))?).unwrap_or(10);
        let due = tenths > self.tenths || at.saturating_sub(self.at) >= Duration::from_secs(30);
        if !due {
            return None;
        }
        *self = Self { tenths, at };
        let percent = u128::from(done).saturating_mul(100).checked_div(u128::from(total))?;
        let rate = fetched as f64 / at.as_secs_f64().max(0.001);
        let tail = left(done, total, fetched, at).map(|left| format!(", {} left", time(left))).unwrap_or_default();
        Some(format!("{} ({percent} %), {}/s{tail}", part(done, total), bytes(rate as u64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        for (count, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 KB"),
            (3_140_000_000, "3.1 GB"),
            (40_000_000_000, "40 GB"),
            (999_999, "1.0 MB"),
        ] {
            assert_eq!(bytes(count), text);
        }
        assert_eq!([9, 64 << 10, 8 << 20].map(binary), ["9 bytes", "64 KiB", "8 MiB"]);
        assert_eq!(part(3_140_000_000, 40_000_000_000), "3.1 of 40 GB");
        assert_eq!(part(812_000_000, 40_000_000_000), "812 MB of 40 GB");
        for (seconds, text) in [(0, "1 second"), (89, "89 seconds"), (240, "4 minutes"), (7200, "2 hours")] {
            assert_eq!(time(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_line_is_due_every_tenth_and_every_half_minute() {
        let mut told = Told::default();
        let at = Duration::from_secs;
        assert_eq!(told.line(5, 100, 5, at(1)), None);
        assert_eq!(told.line(10, 100, 10, at(2)).unwrap(), "10 of 100 B (10 %), 5 B/s, 18 seconds left");
        assert_eq!(told.line(19, 100, 19, at(31)), None);
        assert!(told.line(19, 100, 19, at(32)).is_some());
        assert_eq!(told.line(100, 100, 100, at(33)).unwrap(), "100 of 100 B (100 %), 3 B/s");
        assert_eq!(told.line(0, 0, 0, at(99)), None);
    }
}
