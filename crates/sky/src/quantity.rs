//! Amounts as a task file writes them: memory, disks, time, ports.

use crate::error::TaskError;
use crate::value::{float, parse_float, parse_int, quote};

/// What may follow an amount of memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Suffixes {
    /// `+`: at least.
    pub plus: bool,
    /// `x`: so many times the processors.
    pub times: bool,
}

/// Powers of two of the units, in the order in which they are tried.
const UNITS: [(&str, i32); 10] = [
    ("kb", 10),
    ("ki", 10),
    ("mb", 20),
    ("mi", 20),
    ("gb", 30),
    ("gi", 30),
    ("tb", 40),
    ("ti", 40),
    ("pb", 50),
    ("pi", 50),
];

/// An amount of memory in GiB, as text: `16GB+` is `16.0+`. A number without a unit stays as it is written.
///
/// # Errors
/// Where it is no number with a unit. `field` is named in the message.
pub fn memory(text: &str, field: &str, suffixes: Suffixes) -> Result<String, TaskError> {
    convert(
        text,
        field,
        suffixes,
        |number| parse_float(number).map(|value| (value, float(value))),
        |gib| Some(float(gib)),
    )
}

/// An amount in whole GiB: `1TB` is 1024.
///
/// # Errors
/// Where it is no whole number of GiB.
pub fn whole_gib(text: &str, field: &str, suffixes: Suffixes) -> Result<String, TaskError> {
    let whole = |gib: f64| (gib.fract() == 0.0 && gib.abs() < 9e15).then(|| format!("{gib:.0}"));
    #[expect(clippy::cast_precision_loss, reason = "sizes of disks")]
    convert(text, field, suffixes, |number| parse_int(number).map(|value| (value as f64, value.to_string())), whole)
}

fn convert(
    text: &str,
    field: &str,
    suffixes: Suffixes,
    read: impl Fn(&str) -> Option<(f64, String)>,
    write: impl Fn(f64) -> Option<String>,
) -> Result<String, TaskError> {
    let refuse = || {
        let hint = if suffixes.plus { " or \"<number>+\" for \"at least\"" } else { "" };
        TaskError::value(format!(
            "\"{field}\" field should be a number (e.g. \"16\") or \"<number><unit>\" where unit is one of KB/MB/GB/TB/PB (e.g. \"16GB\"){hint}. Got: {}",
            quote(text)
        ))
    };
    let (amount, plus) = match text.strip_suffix('+') {
        Some(amount) if suffixes.plus => (amount, "+"),
        Some(_) => return Err(refuse()),
        None => (text, ""),
    };
    let (amount, times) = match amount.strip_suffix('x') {
        Some(amount) if suffixes.times => (amount, "x"),
        Some(_) => return Err(refuse()),
        None => (amount, ""),
    };
    if read(amount).is_some() {
        return Ok(format!("{amount}{plus}{times}"));
    }
    let lower = amount.to_lowercase();
    let converted = UNITS.iter().find_map(|(unit, power)| {
        let (number, _) = read(lower.strip_suffix(unit)?)?;
        write(number * 2_f64.powi(*power) / 2_f64.powi(30))
    });
    converted.map(|gib| format!("{gib}{plus}{times}")).ok_or_else(refuse)
}

/// Minutes of a text such as `30`, `2h`, `1d`.
///
/// # Errors
/// Where it is none.
pub fn minutes(text: &str) -> Result<i128, TaskError> {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()) {
        return text.parse().map_err(|_| TaskError::value(format!("Invalid time format: {text}")));
    }
    let lower = text.to_lowercase();
    let found = [("m", 1.0), ("h", 60.0), ("d", 1440.0), ("w", 10080.0)].iter().find_map(|(unit, each)| {
        let minutes = (parse_float(lower.strip_suffix(unit)?)? * each).ceil();
        #[expect(clippy::cast_possible_truncation, reason = "bounded")]
        (0.0..1e15).contains(&minutes).then_some(minutes as i128)
    });
    found.ok_or_else(|| TaskError::value(format!("Invalid time format: {text}")))
}

/// Seconds of a text such as `30`, `30s`, `5M`; `None` for any other text. More than a `u32` holds (136 years) is its maximum.
pub fn seconds(text: &str) -> Option<u32> {
    const UNITS: [(&str, u64); 5] = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400), ("w", 604_800)];
    let lower = text.to_ascii_lowercase();
    let in_unit = UNITS.iter().find_map(|(unit, each)| Some((lower.strip_suffix(unit)?, *each)));
    let (number, each) = in_unit.unwrap_or((&lower, 1));
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // only a number that is too large is not read
    let seconds = number.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(each);
    Some(u32::try_from(seconds).unwrap_or(u32::MAX))
}

/// Ports and ranges of ports, sorted and joined: `80`, `81-90` is `80-90`.
///
/// # Errors
/// For what is no port or range.
pub fn ports(entries: impl IntoIterator<Item = String>) -> Result<Vec<String>, TaskError> {
    let mut ranges = Vec::new();
    for entry in entries {
        for part in entry.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            ranges.push(port_range(part)?);
        }
    }
    ranges.sort_unstable();
    let mut joined: Vec<(u32, u32)> = Vec::new();
    for (from, to) in ranges {
        match joined.last_mut() {
            Some((_, end)) if from <= *end + 1 => *end = to.max(*end),
            _ => joined.push((from, to)),
        }
    }
    Ok(joined
        .into_iter()
        .map(|(from, to)| if from == to { from.to_string() } else { format!("{from}-{to}") })
        .collect())
}

fn port_range(text: &str) -> Result<(u32, u32), TaskError> {
    let Some((from, to)) = text.split_once('-') else {
        let one = if text.chars().all(|c| c.is_ascii_digit()) { port(text)? } else { return Err(bad_range(text)) };
        return Ok((one, one));
    };
    if to.contains('-') {
        return Err(bad_range(text));
    }
    let (from, to) = (port(from)?, port(to)?);
    if from > to { Err(bad_range(text)) } else { Ok((from, to)) }
}

fn port(text: &str) -> Result<u32, TaskError> {
    let digits = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    digits
        .then(|| text.parse().ok())
        .flatten()
        .filter(|port| (1..=65535).contains(port))
        .ok_or_else(|| TaskError::value(format!("Invalid port {text}. Please use a port number between 1 and 65535.")))
}

fn bad_range(text: &str) -> TaskError {
    TaskError::value(format!(
        "Invalid port range {text}. Please use the format \"from-to\", in which from <= to. e.g. \"1-3\"."
    ))
}

/// A wish for a disk in the machine, as `mode:size[+]`: `nvme` is `nvme:100+`, `500` is `nvme:500`.
///
/// # Errors
/// For another mode than `nvme` and `ssd`, or a size that is not positive.
pub fn local_disk(text: &str) -> Result<String, TaskError> {
    let lower = text.to_lowercase();
    let wanted = lower.trim();
    let check = |size: &str| match parse_float(size.trim_end_matches('+')).filter(|size| *size > 0.0) {
        Some(_) => Ok(()),
        None => Err(TaskError::value(format!(
            "Invalid local_disk: {}. Expected \"mode:size[+]\", \"mode\", or \"size[+]\". Mode must be \"nvme\" or \"ssd\", size must be positive (GB), optionally with \"+\".",
            quote(wanted)
        ))),
    };
    let parts: Vec<&str> = wanted.split(':').collect();
    match parts.as_slice() {
        [mode @ ("nvme" | "ssd")] => Ok(format!("{mode}:100+")),
        [size] => check(size).map(|()| format!("nvme:{size}")),
        [mode @ ("nvme" | "ssd"), size] => check(size).map(|()| format!("{mode}:{size}")),
        [mode, _] => {
            Err(TaskError::value(format!("Invalid local_disk mode: {}. Must be \"nvme\" or \"ssd\".", quote(mode))))
        }
        _ => Err(TaskError::value(format!(
            "Invalid local_disk format: {}. Expected \"mode:size[+]\", \"mode\", or \"size[+]\". Examples: \"nvme:1000+\", \"ssd:500\", \"nvme\", \"1000+\".",
            quote(wanted)
        ))),
    }
}

/// Whether a disk of a machine is what [`local_disk`] wishes: NVMe is an SSD, too; sizes in GB.
pub fn disk_satisfies(wish: &str, nvme: bool, gigabytes: f64) -> bool {
    let (mode, size) = wish.split_once(':').unwrap_or(("nvme", wish));
    let wanted = parse_float(size.trim_end_matches('+')).unwrap_or(0.0);
    let enough = if size.ends_with('+') { gigabytes >= wanted } else { (gigabytes - wanted).abs() < 1.0 };
    (mode == "ssd" || nvme) && enough
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_in_gib() {
        let both = Suffixes { plus: true, times: true };
        for (text, gib) in
            [("16", "16"), ("16GB+", "16.0+"), ("512mb", "0.5"), ("3x", "3x"), ("1.5TB", "1536.0"), ("016", "016")]
        {
            assert_eq!(memory(text, "memory", both).as_deref(), Ok(gib), "{text}");
        }
        assert!(memory("16+", "memory", Suffixes::default()).is_err());
        assert_eq!(whole_gib("1TB", "disk_size", Suffixes::default()).as_deref(), Ok("1024"));
        assert!(whole_gib("1MB", "disk_size", Suffixes::default()).is_err());
    }

    #[test]
    fn ports_are_sorted_and_joined() {
        let all = |texts: &[&str]| ports(texts.iter().map(|text| (*text).to_owned()));
        assert_eq!(all(&["8080", "80-81,82", "8080"]), Ok(vec!["80-82".into(), "8080".into()]));
        assert!(all(&["90-80"]).is_err() && all(&["0"]).is_err() && all(&["a"]).is_err() && all(&["1-2-3"]).is_err());
    }

    #[test]
    fn seconds_have_a_unit_or_none() {
        for (text, value) in [
            ("0", Some(0)),
            ("30", Some(30)),
            ("30s", Some(30)),
            ("5M", Some(300)),
            ("1h", Some(3600)),
            ("2d", Some(172_800)),
            ("1W", Some(604_800)),
            ("007", Some(7)),
            ("9999w", Some(u32::MAX)),
            ("99999999999999999999999", Some(u32::MAX)),
        ] {
            assert_eq!(seconds(text), value, "{text}");
        }
        for text in ["", "s", "-1", "+1", "1.5m", "1 m", "m5", "5ms", "True", "٣", "\u{212a}"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn minutes_are_rounded_up() {
        for (text, value) in
            [("30", Some(30)), ("2h", Some(120)), ("0.5m", Some(1)), ("1W", Some(10080)), ("90s", None), ("", None)]
        {
            assert_eq!(minutes(text).ok(), value, "{text}");
        }
    }
}
