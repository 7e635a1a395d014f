//! `--since`, `--after` and `--before` of `sky jobs queue`.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::commands::Call;

/// Why the options cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    #[error(
        "--since and --after are mutually exclusive: --since is a relative window from now, --after is an absolute lower bound."
    )]
    Both,
    #[error("Invalid value for --since: Invalid time format: {0}")]
    Since(String),
    #[error(
        "Invalid value for {option}: Invalid date/time '{text}'. Use e.g. \"2026-01-13\", \"2026-01-13 15:30:00\", or \
         \"2026-01-13T15:30:00\"."
    )]
    Time { option: &'static str, text: String },
}

/// Between which times shown jobs were submitted, both included: seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Submitted {
    pub after: Option<i64>,
    pub before: Option<i64>,
}

impl Submitted {
    /// Reads the options; times without a zone are in `zone`.
    ///
    /// # Errors
    /// The message about an option.
    pub fn read(call: &Call, now: i64, zone: &TimeZone) -> Result<Self, WindowError> {
        let (since, after) = (call.value("since"), call.value("after"));
        if since.is_some() && after.is_some() {
            return Err(WindowError::Both);
        }
        let since = since.map(|text| {
            let secs = seconds(text).ok_or_else(|| WindowError::Since(text.to_owned()))?;
            Ok::<i64, WindowError>(now.saturating_sub(secs))
        });
        let of = |option: &'static str, text: Option<&str>| {
            let wrong = |text: &str| WindowError::Time { option, text: text.to_owned() };
            text.map(|text| time(text, zone).ok_or_else(|| wrong(text))).transpose()
        };
        let after = of("--after", after)?.or(since.transpose()?);
        Ok(Self { after, before: of("--before", call.value("before"))? })
    }

    /// Whether a job that was submitted then is shown.
    pub fn contains(&self, time: i64) -> bool {
        self.after.is_none_or(|after| time >= after) && self.before.is_none_or(|before| time <= before)
    }
}

/// `90` (minutes), `1.5h`, `2d`, `1w`.
fn seconds(text: &str) -> Option<i64> {
    let text = text.trim_start().to_lowercase();
    let Some(unit) = text.chars().next_back().filter(|last| !last.is_ascii_digit()) else {
        return text.parse::<u32>().ok().map(|minutes| i64::from(minutes).saturating_mul(60));
    };
    let size = match unit {
        's' => 1.0,
        'm' => 60.0,
        'h' => 3600.0,
        'd' => 86_400.0,
        'w' => 604_800.0,
        _ => return None,
    };
    let number = text.strip_suffix(unit)?.trim_end();
    let is_number = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || c == '.');
    let number: f64 = number.parse().ok().filter(|_| is_number)?;
    Some((number * size).round() as i64)
}

/// `2026-01-13`, `2026-01-13 15:30`, `2026-01-13T15:30:00`.
fn time(text: &str, zone: &TimeZone) -> Option<i64> {
    let text = if text.contains(['T', 't', ' ']) { text.replace(['T', 't'], " ") } else { format!("{text} 00:00") };
    let formats = ["%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M"];
    let time = formats.iter().find_map(|format| DateTime::strptime(format, &text).ok())?;
    Some(zone.to_ambiguous_zoned(time).compatible().ok()?.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{Parsed, commands, parse};

    fn read(words: &[&str]) -> Result<Submitted, WindowError> {
        let words: Vec<String> = ["jobs", "queue"].iter().chain(words).map(|word| (*word).to_owned()).collect();
        match parse(&commands(), &words) {
            Ok(Parsed::Call(call)) => Submitted::read(&call, 1_800_000_000, &TimeZone::UTC),
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn windows_are_read() {
        for (text, secs) in [("3", 180), ("30s", 30), ("1.5h", 5400), (".5H", 1800), ("1 d", 86_400), ("1w", 604_800)] {
            let after = Some(1_800_000_000 - secs);
            assert_eq!(read(&["--since", text]), Ok(Submitted { after, before: None }), "{text}");
        }
        for text in ["1h30m", "", "m", "1min", "0.5", "-1h", "1e3s", "5."] {
            assert!(
                read(&["--since", text]).unwrap_err().to_string().ends_with(&format!("Invalid time format: {text}")),
                "{text}"
            );
        }
        for (text, time) in
            [("2026-01-13", 1_768_262_400), ("2026-1-13 15:30", 1_768_318_200), ("2026-01-13T15:30:05", 1_768_318_205)]
        {
            assert_eq!(read(&["--before", text]), Ok(Submitted { after: None, before: Some(time) }), "{text}");
        }
        for text in ["yesterday", "20260113", "2026-13-01", "2026-01-13 24:00:00", "2026-01-13T15:30:00Z"] {
            assert!(
                read(&["--after", text]).unwrap_err().to_string().contains(&format!("date/time '{text}'")),
                "{text}"
            );
        }
        assert_eq!(read(&["--after", "2026-01-13", "--since", "1h"]), Err(WindowError::Both));
    }

    #[test]
    fn both_ends_of_a_window_are_in_it() {
        let window = Submitted { after: Some(5), before: Some(7) };
        assert_eq!([4, 5, 7, 8].map(|time| window.contains(time)), [false, true, true, false]);
        assert!(Submitted::default().contains(0));
    }
}
