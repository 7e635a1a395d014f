//! Quantities of resources (`500m`, `1Gi`, `2e3`): parsing, arithmetic and Kubernetes' canonical rendering.
//!
//! Source: the grammar and canonical form in `k8s.io/apimachinery/pkg/api/resource`. Amounts are whole billionths: finer ones
//! are rounded up (a request for a little is not one for nothing). What is computed with has 128 bits, and larger amounts
//! saturate; [`Exact`] holds any.

use crate::decimal::Decimal;
use serde_json::Value;
use std::cmp::Ordering;
use std::fmt;

const NANOS: i128 = 1_000_000_000;
/// The power of ten of the smallest part.
const NANO: i64 = -9;
/// That of the largest suffix (`E`).
const EXA: i64 = 18;

/// How a quantity was written, and is written again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `n u m k M G T P E`
    #[default]
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`
    BinarySi,
    /// `e3`
    DecimalExponent,
}

/// An amount of a resource.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// Why a text is no quantity; the texts are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

enum Scale {
    Ten(i32),
    Two(u32),
}

fn scale(suffix: &str) -> Option<(Scale, Format)> {
    let decimal = |exponent| Some((Scale::Ten(exponent), Format::DecimalSi));
    let binary = |exponent| Some((Scale::Two(exponent), Format::BinarySi));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            Some((Scale::Ten(exponent.parse().ok()?), Format::DecimalExponent))
        }
    }
}

/// The parts of a quantity's text.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Format);
    }
    let negative = text.starts_with('-');
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = |s: &str| s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
    let (whole, rest) = rest.split_at(digits(rest));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let letters = suffix.find(|c: char| !"eEinumkKMGTP".contains(c)).unwrap_or(suffix.len());
    let exponent = suffix[letters..].strip_prefix(['-', '+']).unwrap_or(&suffix[letters..]);
    if !exponent.chars().all(|c| c.is_ascii_digit()) {
        return Err(QuantityError::Format);
    }
    Ok(Parts { negative, whole, fraction, suffix })
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// So many units.
    pub fn units(value: i64) -> Self {
        Self { nanos: i128::from(value) * NANOS, format: Format::DecimalSi }
    }

    /// So many thousandths.
    pub fn millis(value: i64) -> Self {
        Self { nanos: i128::from(value) * (NANOS / 1000), format: Format::DecimalSi }
    }

    /// So many units, rendered with binary suffixes (memory).
    pub fn bytes(value: i64) -> Self {
        Self { nanos: i128::from(value) * NANOS, format: Format::BinarySi }
    }

    /// Parses a quantity's text.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let Exact { amount, format } = Exact::parse(text)?;
        let largest = if amount.is_negative() { -i128::MAX } else { i128::MAX };
        Ok(Self { nanos: amount.counted(NANO).unwrap_or(largest), format })
    }

    /// From JSON: a text or a number.
    pub fn from_json(value: &Value) -> Result<Self, QuantityError> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => Err(QuantityError::Format),
        }
    }

    /// Units, rounded up (away from zero).
    pub fn value(self) -> i64 {
        Self::rounded(self.nanos, NANOS)
    }

    /// Thousandths of a unit, rounded up (away from zero).
    pub fn milli_value(self) -> i64 {
        Self::rounded(self.nanos, NANOS / 1000)
    }

    fn rounded(nanos: i128, unit: i128) -> i64 {
        let away = if nanos % unit == 0 { 0 } else { nanos.signum() };
        i64::try_from(nanos / unit + away).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
    }

    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Units, if they are a whole number that 64 bits hold.
    pub fn integer(self) -> Option<i64> {
        self.is_whole().then(|| i64::try_from(self.nanos / NANOS).ok()).flatten()
    }

    /// Units, about.
    #[expect(clippy::cast_precision_loss, reason = "that is what it is for")]
    pub fn approximate(self) -> f64 {
        self.nanos as f64 / NANOS as f64
    }

    /// Whether it is a whole number of units.
    pub fn is_whole(self) -> bool {
        self.nanos % NANOS == 0
    }

    /// How it is rendered.
    pub fn format(self) -> Format {
        self.format
    }

    /// The same amount, rendered otherwise.
    #[must_use]
    pub fn with_format(self, format: Format) -> Self {
        Self { format, ..self }
    }

    /// The sum; as upstream, a zero takes over the other's format.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let format = if self.nanos == 0 { other.format } else { self.format };
        Self { nanos: self.nanos.saturating_add(other.nanos), format }
    }

    /// The difference; as upstream, a zero takes over the other's format.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.plus(Self { nanos: other.nanos.saturating_neg(), format: other.format })
    }

    /// How many times a part goes into it: nothing goes in without end, and into less than nothing goes nothing.
    pub fn holds(self, part: Self) -> u64 {
        if part.nanos <= 0 {
            return u64::MAX;
        }
        u64::try_from(self.nanos.max(0) / part.nanos).unwrap_or(u64::MAX)
    }

    /// So many times the amount.
    #[must_use]
    pub fn times(self, factor: i64) -> Self {
        Self { nanos: self.nanos.saturating_mul(i128::from(factor)), format: self.format }
    }
}

/// A quantity of any size, as it is written.
#[derive(Clone, Debug)]
pub struct Exact {
    pub amount: Decimal,
    format: Format,
}

impl Exact {
    /// Parses a quantity's text.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let parts = split(text)?;
        let (scale, mut format) = scale(parts.suffix).ok_or(QuantityError::Suffix)?;
        if parts.whole.is_empty() && parts.fraction.is_empty() {
            return Err(QuantityError::Numeric);
        }
        let digits = || parts.whole.bytes().chain(parts.fraction.bytes());
        let places = i64::try_from(parts.fraction.len()).unwrap_or(i64::MAX);
        let mut amount = match scale {
            Scale::Ten(exponent) => Decimal::written(false, digits(), i64::from(exponent).saturating_sub(places)),
            Scale::Two(exponent) => Decimal::written(false, digits(), places.saturating_neg()).times(1 << exponent),
        };
        amount = amount.rounded(NANO);
        if format == Format::BinarySi {
            amount = amount.min(i64::MAX.into());
            if !amount.is_zero() && amount < Decimal::from(1) {
                format = Format::DecimalSi;
            }
        }
        Ok(Self { amount: if parts.negative { amount.negated() } else { amount }, format })
    }
}

impl From<Quantity> for Exact {
    fn from(quantity: Quantity) -> Self {
        let digits = quantity.nanos.unsigned_abs().to_string();
        Self { amount: Decimal::written(quantity.is_negative(), digits.bytes(), NANO), format: quantity.format }
    }
}

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.amount.is_zero() {
            return f.write_str("0");
        }
        if self.format == Format::BinarySi
            && let Some(mut value @ (..=-1024 | 1024..)) = self.amount.counted(0)
        {
            let mut power = 0;
            while power < 6 && value % 1024 == 0 {
                value /= 1024;
                power += 1;
            }
            return write!(f, "{value}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        }
        let exponents = self.format == Format::DecimalExponent;
        match self.amount.in_thousands(if exponents { i64::MAX } else { EXA }) {
            (digits, 0) => f.write_str(&digits),
            (digits, power) if exponents => write!(f, "{digits}e{power}"),
            (digits, power) => {
                let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
                let index = usize::try_from(power / 3 + 3).expect("invariant: amounts are whole billionths");
                write!(f, "{digits}{}", suffix[index])
            }
        }
    }
}

/// The text that the API server gives back for one that came in: upstream keeps some texts that are not canonical.
///
/// `None` where the text is no quantity.
pub fn canonical(text: &str) -> Option<String> {
    let quantity = Exact::parse(text).ok()?;
    let parts = split(text).ok()?;
    let whole = parts.whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let shifted = format!("{whole}{}", parts.fraction);
    let small = shifted.len() < 18;
    let keep = match (scale(parts.suffix)?, quantity.format) {
        ((Scale::Two(exponent), _), Format::BinarySi) => {
            small
                && parts.fraction.is_empty()
                && 15 - i64::try_from(whole.len()).unwrap_or(i64::MAX) - i64::from(exponent * 3 / 10) > 0
                && shifted.parse::<u64>().is_ok_and(|value| value & 7 != 0)
        }
        ((Scale::Ten(exponent), _), _) => {
            let scale = i64::from(exponent) - i64::try_from(parts.fraction.len()).unwrap_or(i64::MAX);
            small && scale >= -9 && scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0')
        }
        ((Scale::Two(_), _), _) => false,
    };
    Some(if keep { text.to_owned() } else { quantity.to_string() })
}

/// The power of ten of which upstream counts this text's amount in a 64-bit integer; `None`: it keeps the amount as a decimal
/// of any length, or the text is no quantity. Only what is counted in whole units, or more, is an integer to CEL.
pub fn counted_in(text: &str) -> Option<i32> {
    let parts = split(text).ok()?;
    Quantity::parse(text).ok()?;
    let fraction = i32::try_from(parts.fraction.len()).ok()?;
    let whole = i32::try_from(parts.whole.trim_start_matches('0').len().max(1)).ok()?;
    let (power, spare) = match scale(parts.suffix)?.0 {
        Scale::Ten(exponent) => (exponent.checked_sub(fraction)?, 18 - whole.saturating_add(fraction)),
        Scale::Two(exponent) if fraction == 0 => (0, 14 - whole - i32::try_from(exponent).ok()? * 3 / 10),
        Scale::Two(_) => return None,
    };
    (spare >= 0 && power >= -9).then_some(power)
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Exact::from(*self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_texts() {
        for (text, expected) in [
            ("0", "0"),
            ("00", "0"),
            ("1", "1"),
            ("1.5", "1500m"),
            ("0.5", "500m"),
            ("2.0", "2"),
            ("1000m", "1"),
            ("100m", "100m"),
            ("0.1m", "100u"),
            ("1Gi", "1Gi"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("1000Ki", "1000Ki"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("1000", "1k"),
            ("128974848", "128974848"),
            ("129e6", "129e6"),
            ("129M", "129M"),
            ("100000000", "100M"),
            ("-1", "-1"),
            ("1E", "1E"),
            ("5e-3", "5e-3"),
            ("0.0000000001", "1n"),
            ("1e100", "10e99"),
            ("-12e2147483647", "-120e2147483646"),
            ("1e-2147483648", "1e-9"),
            ("9999999999999999999999999999999999999999G", "9999999999999999999999999999999999999999G"),
            ("100000Ei", "9223372036854775807"),
            ("-9Ei", "-9223372036854775807"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_none() {
        for text in ["", "abc", "1x", "1 ", "1.2.3", "1Ki5", ".", "--1"] {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
        assert_eq!(Quantity::parse("1ee"), Err(QuantityError::Suffix));
        assert_eq!(Quantity::parse("x"), Err(QuantityError::Format));
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_reads_as_the_same(digits in "[0-9]{1,50}", fraction in "(\\.[0-9]{0,12})?", suffix in "[numkMGTPE]?|[KMGTPE]i|e-?[0-9]{1,3}") {
            let text = format!("{digits}{fraction}{suffix}");
            let written = canonical(&text).unwrap();
            proptest::prop_assert_eq!(Exact::parse(&text).unwrap().amount, Exact::parse(&written).unwrap().amount);
            proptest::prop_assert_eq!(canonical(&written), Some(written));
        }
    }

    #[test]
    fn arithmetic() {
        let q = |text| Quantity::parse(text).unwrap();
        assert_eq!(q("100m").plus(q("900m")), q("1"));
        assert_eq!(Quantity::ZERO.plus(q("1Gi")).to_string(), "1Gi");
        assert_eq!(q("1").minus(q("1500m")).to_string(), "-500m");
        assert_eq!(q("1500m").value(), 2);
        assert_eq!(q("1Gi").value(), 1 << 30);
        assert_eq!(q("250m").times(4).to_string(), "1");
        assert!(q("1Ki") > q("1k"));
        assert_eq!(q("1500m").milli_value(), 1500);
    }
}
