//! Times and durations in tables. All times are seconds since 1970.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Unit};

/// A time without a day and a clock.
const UNKNOWN: &str = "-";

/// What a calendar counts between two times.
struct Between {
    years: i64,
    months: i64,
    days: i64,
    hours: i64,
    minutes: i64,
    seconds: i64,
}

impl Between {
    fn of(one: i64, other: i64) -> Option<Self> {
        let day =
            |time: i64| -> Option<DateTime> { Some(TimeZone::UTC.to_datetime(Timestamp::from_second(time).ok()?)) };
        let span = day(one.min(other))?.until((Unit::Year, day(one.max(other))?)).ok()?;
        Some(Self {
            years: span.get_years().into(),
            months: span.get_months().into(),
            days: span.get_days().into(),
            hours: span.get_hours().into(),
            minutes: span.get_minutes(),
            seconds: span.get_seconds(),
        })
    }

    /// The largest unit, rounded where the next one is nearly full.
    fn rounded(&self) -> (i64, &'static str) {
        let up = |count: i64, is_nearly_more: bool| count.saturating_add(is_nearly_more.into());
        let (weeks, rest) = (self.days / 7, self.days % 7);
        match self {
            Self { years: 1.., .. } => (up(self.years, self.months > 6), "year"),
            Self { months: 11, days: 16.., .. } => (1, "year"),
            Self { months: 1.., .. } => (up(self.months, self.days >= 27), "month"),
            Self { days: 7.., .. } => (up(weeks, rest > 3), "week"),
            Self { days: 1.., .. } => (up(self.days, self.hours >= 22), "day"),
            Self { hours: 1.., .. } => (self.hours, "hr"),
            Self { minutes: 1.., .. } => (self.minutes, "min"),
            Self { .. } => (self.seconds, "sec"),
        }
    }
}

/// `3 mins ago`, or `3 mins after` for a time in the future.
pub(super) fn ago(time: Option<i64>, now: i64) -> String {
    let Some(time) = time else { return UNKNOWN.to_owned() };
    let Some(between) = Between::of(time, now) else { return UNKNOWN.to_owned() };
    let amount = match between.rounded() {
        (0, "sec") => return "< 1 sec".to_owned(),
        (1..=10, "sec") => "a few secs".to_owned(),
        (1, unit) => format!("1 {unit}"),
        (count, unit) => format!("{count} {unit}s"),
    };
    format!("{amount} {}", if time > now { "after" } else { "ago" })
}

/// `1d 2h 3s`: the time between two times, whichever is first.
pub(super) fn lasting(from: Option<i64>, to: i64) -> String {
    let Some(between) = from.and_then(|from| Between::of(from, to)) else { return UNKNOWN.to_owned() };
    let mut parts = Vec::new();
    match between.years {
        0 => {}
        1 => parts.push("1 year".to_owned()),
        years => parts.push(format!("{years} years")),
    }
    let units = [
        (between.months, "mo"),
        (between.days / 7, "w"),
        (between.days % 7, "d"),
        (between.hours, "h"),
        (between.minutes, "m"),
        (between.seconds, "s"),
    ];
    parts.extend(units.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")));
    if parts.is_empty() { "< 1s".to_owned() } else { parts.join(" ") }
}

/// The same for a number of seconds; `-` for none.
pub(super) fn lasting_secs(seconds: i64) -> String {
    if seconds > 0 { lasting(Some(0), seconds) } else { UNKNOWN.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;
    const DAY: i64 = 86_400;

    #[test]
    fn units_are_rounded_up_shortly_before_the_next() {
        for (seconds, shown) in [
            (0, "< 1 sec"),
            (10, "a few secs ago"),
            (11, "11 secs ago"),
            (3599, "59 mins ago"),
            (3600, "1 hr ago"),
            (DAY - 1, "23 hrs ago"),
            (2 * DAY - 7201, "1 day ago"),
            (2 * DAY - 7200, "2 days ago"),
            (7 * DAY - 7200, "7 days ago"),
            (10 * DAY, "1 week ago"),
            (11 * DAY, "2 weeks ago"),
            (30 * DAY, "4 weeks ago"),
            (31 * DAY, "1 month ago"),
            (57 * DAY, "2 months ago"),
            (349 * DAY, "11 months ago"),
            (350 * DAY, "1 year ago"),
            (579 * DAY, "2 years ago"),
        ] {
            assert_eq!(ago(Some(NOW - seconds), NOW), shown, "{seconds}");
        }
        assert_eq!(ago(Some(NOW + 300), NOW), "5 mins after");
        assert_eq!(ago(None, NOW), "-");
        assert_eq!(ago(Some(i64::MAX), NOW), "-");
    }

    #[test]
    fn durations_have_all_their_units() {
        for (seconds, shown) in [
            (0, "< 1s"),
            (3_725, "1h 2m 5s"),
            (25 * DAY, "3w 4d"),
            (40 * DAY - 1, "1mo 1w 1d 23h 59m 59s"),
            (365 * DAY, "1 year"),
            (900 * DAY, "2 years 5mo 2w 3d"),
        ] {
            assert_eq!(lasting(Some(NOW - seconds), NOW), shown, "{seconds}");
        }
        assert_eq!(lasting(Some(NOW), NOW - 70), "1m 10s");
        assert_eq!((lasting_secs(0).as_str(), lasting_secs(200_000).as_str()), ("-", "2d 7h 33m 20s"));
    }
}
