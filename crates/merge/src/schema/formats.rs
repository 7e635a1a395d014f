//! String formats (`k8s.io/kube-openapi/pkg/validation/strfmt`); those that CRDs may name and that are checked.

use base64::Engine;
use regex::Regex;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::LazyLock;

/// Whether a CRD's `format` is one that the API server checks or knows; it warns of others.
pub fn is_supported(format: &str) -> bool {
    matches!(
        format,
        "bsonobjectid"
            | "uri"
            | "email"
            | "hostname"
            | "ipv4"
            | "ipv6"
            | "cidr"
            | "mac"
            | "uuid"
            | "uuid3"
            | "uuid4"
            | "uuid5"
            | "isbn"
            | "isbn10"
            | "isbn13"
            | "creditcard"
            | "ssn"
            | "hexcolor"
            | "rgbcolor"
            | "byte"
            | "password"
            | "date"
            | "duration"
            | "datetime"
            | "date-time"
            | "k8s-short-name"
            | "k8s-long-name"
    )
}

macro_rules! pattern {
    ($name:ident, $source:expr) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($source).expect("invariant: a valid pattern"));
    };
}

pattern!(
    HOSTNAME,
    r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$"
);
pattern!(UUID, r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?([0-9a-f])[0-9a-f]{3}-?([0-9a-f])[0-9a-f]{3}-?[0-9a-f]{12}$");
pattern!(TIME_OF_DAY, r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$");
pattern!(MAC, r"(?i)^([0-9a-f]{2}([:-])){5,}[0-9a-f]{2}$|^([0-9a-f]{4}\.){2,}[0-9a-f]{4}$");
pattern!(HEX_COLOR, r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$");
pattern!(RGB_COLOR, r"^rgb\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)$");
pattern!(SSN, r"^\d{3}[- ]?\d{2}[- ]?\d{4}$");
pattern!(BSON_ID, r"^[0-9a-fA-F]{24}$");
pattern!(
    CREDIT_CARD,
    r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$"
);
pattern!(WORDY_DURATION, r"((\d+)\s*([A-Za-zµ]+))");

/// Whether `text` is of `format`; `None`: the format is not checked.
pub(super) fn matches(format: &str, text: &str) -> Option<bool> {
    let uuid = |version: Option<&str>, variant: &str| {
        UUID.captures(text).is_some_and(|parts| {
            version.is_none_or(|v| parts.get(1).is_some_and(|m| m.as_str() == v))
                && (variant.is_empty() || parts.get(2).is_some_and(|m| variant.contains(&m.as_str().to_lowercase())))
        })
    };
    Some(match format {
        "date-time" | "datetime" => is_date_time(text),
        "date" => is_date(text),
        "duration" => is_duration(text),
        "uuid" => uuid(None, ""),
        "uuid3" => uuid(Some("3"), ""),
        "uuid4" => uuid(Some("4"), "89ab"),
        "uuid5" => uuid(Some("5"), "89ab"),
        "ipv4" => is_ipv4(text),
        "ipv6" => text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "byte" => is_base64(text),
        "uri" => is_request_uri(text),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "mac" => MAC.is_match(text),
        "hexcolor" => HEX_COLOR.is_match(text),
        "rgbcolor" => RGB_COLOR
            .captures(text)
            .is_some_and(|c| (1..=3).all(|i| c.get(i).is_some_and(|m| m.as_str().parse::<u8>().is_ok()))),
        "ssn" => SSN.is_match(text),
        "bsonobjectid" => BSON_ID.is_match(text),
        "creditcard" => is_credit_card(text),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "k8s-short-name" => api::names::label_faults(text, false).is_empty(),
        "k8s-long-name" => api::names::subdomain_faults(text, false).is_empty(),
        "password" => true,
        _ => return None,
    })
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date)
        && TIME_OF_DAY.captures(time).is_some_and(|c| {
            let within = |i, most: &str| c.get(i).is_some_and(|m| m.as_str() <= most);
            within(1, "23") && within(2, "59") && within(3, "59")
        })
}

/// Go's `time.ParseDuration`, or numbers with words for units (`2 weeks`).
/// Upstream reads numbers with zeros before them, as Go did before 1.17.
fn is_ipv4(text: &str) -> bool {
    let number = |part: &str| {
        let digits = part.trim_start_matches('0');
        part.bytes().all(|b| b.is_ascii_digit())
            && !part.is_empty()
            && (digits.is_empty() || digits.parse::<u8>().is_ok())
    };
    text.split('.').count() == 4 && text.split('.').all(number)
}

fn is_duration(text: &str) -> bool {
    /// Units as they are written in full, and what longer words begin with.
    const EXACT: [&str; 11] = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
    const PREFIX: [&str; 8] = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    is_go_duration(text)
        || WORDY_DURATION.captures_iter(text).any(|c| {
            let unit = c.get(3).map(|m| m.as_str().to_lowercase()).unwrap_or_default();
            EXACT.contains(&unit.as_str()) || PREFIX.iter().any(|word| unit.starts_with(word))
        })
}

/// Go's `time.ParseDuration`: signed decimal numbers, each with a unit; `0` needs none.
pub(crate) fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number = &rest[..end];
        if !number.bytes().any(|b| b.is_ascii_digit()) || number.matches('.').count() > 1 {
            return false;
        }
        rest = &rest[end..];
        let Some(unit) = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"].into_iter().find(|u| {
            rest.strip_prefix(u)
                .is_some_and(|r| r.is_empty() || r.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
        }) else {
            return false;
        };
        rest = &rest[unit.len()..];
    }
    true
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    let digits = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
    digits && (length.len() == 1 || !length.starts_with('0')) && length.parse::<u32>().is_ok_and(|n| n <= most)
}

/// One line of padded base64, at least one group of it.
fn is_base64(text: &str) -> bool {
    !text.is_empty() && base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

/// Go's `url.ParseRequestURI`: an absolute URI or an absolute path.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|c| c.is_control() || c == ' ') {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let valid = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    valid && !rest.is_empty()
}

fn is_email(text: &str) -> bool {
    let address = match (text.rfind('<'), text.strip_suffix('>')) {
        (Some(at), Some(without)) => &without[at + 1..],
        _ => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let atom = |part: &str, extra: &str| {
        !part.is_empty()
            && part.split('.').all(|p| !p.is_empty())
            && part.chars().all(|c| c == '.' || c.is_alphanumeric() || !c.is_ascii() || extra.contains(c))
    };
    atom(local, "!#$%&'*+-/=?^_`{|}~") && atom(domain, "!#$%&'*+-/=?^_`{|}~")
}

fn is_hostname(text: &str) -> bool {
    if !HOSTNAME.is_match(text) || text.len() > 255 {
        return false;
    }
    let labels: Vec<&str> = text.split('.').collect();
    labels.iter().all(|label| {
        (!label.is_empty() || labels.len() == 1)
            && label.chars().count() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}

fn digits_of(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '-' | ' ')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = digits_of(text);
    if digits.len() != 10 || !digits.bytes().take(9).all(|b| b.is_ascii_digit()) {
        return false;
    }
    let mut sum = 0;
    for (weight, c) in (1..=10).zip(digits.chars()) {
        let Some(value) = (if weight == 10 && c == 'X' { Some(10) } else { c.to_digit(10) }) else { return false };
        sum += weight * value;
    }
    sum % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let digits = digits_of(text);
    if digits.len() != 13 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    let sum: u32 = digits.chars().zip([1, 3].into_iter().cycle()).filter_map(|(c, w)| Some(c.to_digit(10)? * w)).sum();
    sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !CREDIT_CARD.is_match(&digits) {
        return false;
    }
    let sum: u32 = digits
        .chars()
        .rev()
        .filter_map(|c| c.to_digit(10))
        .enumerate()
        .map(|(i, d)| {
            if i % 2 == 0 {
                d
            } else if d * 2 > 9 {
                d * 2 - 9
            } else {
                d * 2
            }
        })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_formats() {
        let good = [
            ("date-time", "2026-01-01T00:00:00Z"),
            ("date", "2026-01-01"),
            ("duration", "1h30m"),
            ("duration", "2 weeks"),
            ("duration", "-1.5s"),
            ("uuid", "11111111-2222-3333-4444-555555555555"),
            ("ipv4", "1.2.3.4"),
            ("ipv6", "::1"),
            ("cidr", "10.0.0.0/8"),
            ("byte", "AAEC"),
            ("uri", "http://x/y"),
            ("uri", "/x"),
            ("email", "a@b.c"),
            ("hostname", "a.example"),
            ("mac", "00:00:5e:00:53:01"),
            ("isbn10", "0321751043"),
            ("isbn13", "978-0321751041"),
            ("hexcolor", "#FFFFFF"),
            ("rgbcolor", "rgb(255,255,255)"),
            ("k8s-short-name", "a-b"),
        ];
        for (format, text) in good {
            assert_eq!(matches(format, text), Some(true), "{format} {text}");
        }
        let bad = [
            ("date-time", "yesterday"),
            ("date-time", "2026-01-01 00:00:00"),
            ("date", "2026-13-01"),
            ("duration", "5 parsecs"),
            ("uuid", "x"),
            ("uuid4", "11111111-2222-3333-4444-555555555555"),
            ("ipv4", "1.2.3"),
            ("ipv6", "1.2.3.4"),
            ("cidr", "1.2.3.4"),
            ("byte", "!"),
            ("byte", ""),
            ("uri", "x"),
            ("email", "nobody"),
            ("hostname", "-x"),
            ("isbn10", "0321751044"),
            ("k8s-short-name", "-b"),
        ];
        for (format, text) in bad {
            assert_eq!(matches(format, text), Some(false), "{format} {text}");
        }
        assert_eq!(matches("nonsense", "x"), None);
    }
}
