//! Values of flags, read from text.

use api::config::MpiProfile;
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Which attempts to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    All,
    Nth(i64),
}

/// `all`, or a number from 1.
pub(crate) fn attempt(text: &str) -> Result<Attempt, String> {
    match text.parse::<i64>() {
        Ok(n @ 1..) => Ok(Attempt::Nth(n)),
        _ if text == "all" => Ok(Attempt::All),
        _ => Err("attempts are counted from 1; or `all`".to_owned()),
    }
}

/// `90`, `90s`, `10m`, `2h`, `1d`.
pub(crate) fn duration(text: &str) -> Result<std::time::Duration, String> {
    let (number, scale) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1.0),
        Some((at, 'm')) => (&text[..at], 60.0),
        Some((at, 'h')) => (&text[..at], 3600.0),
        Some((at, 'd')) => (&text[..at], 86400.0),
        _ => (text, 1.0),
    };
    let secs = number.parse::<f64>().ok().and_then(|secs| std::time::Duration::try_from_secs_f64(secs * scale).ok());
    secs.ok_or_else(|| format!("{text:?} is not a duration: try 90s, 10m or 2h"))
}

/// A duration of at least a second, the shortest interval of a measurement.
pub(crate) fn interval(text: &str) -> Result<std::time::Duration, String> {
    let least = std::time::Duration::from_secs(1);
    duration(text).and_then(|asked| if asked < least { Err("at least 1s".to_owned()) } else { Ok(asked) })
}

/// A time, or how long ago.
pub(crate) fn since(text: &str) -> Result<jiff::Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let ago = duration(text)
        .map_err(|_| format!("{text:?} is neither a time (2026-01-02T03:04:05Z) nor a duration (10m)"))?;
    jiff::Timestamp::now().checked_sub(ago).map_err(|error| error.to_string())
}

/// `NAME=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Reads a profile of MPIJobs by its name.
pub(crate) fn mpi_profile() -> impl TypedValueParser<Value = MpiProfile> {
    let of = |name: String| MpiProfile::ALL.into_iter().find(|profile| profile.as_str() == name).unwrap_or_default();
    PossibleValuesParser::new(MpiProfile::ALL.map(MpiProfile::as_str)).map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("90"), Ok(std::time::Duration::from_secs(90)));
        assert_eq!(duration("2h"), Ok(std::time::Duration::from_secs(7200)));
        for text in ["soon", "-1s", "1e300h", "nan"] {
            assert_eq!(duration(text), Err(format!("{text:?} is not a duration: try 90s, 10m or 2h")));
        }
    }
}
