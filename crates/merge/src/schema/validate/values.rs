//! Faults of one value: its type, format, bounds, pattern and enumeration.

use super::{Outcome, Trail};
use crate::pattern::Pattern;
use crate::schema::{Constraints, Schema, Type, formats, prune};
use api::field::{Error, Path};
use serde_json::Value;

/// JSON type and format of a value, as upstream names them in messages.
pub(super) fn type_and_format(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

pub(super) fn types(kind: Type) -> &'static [&'static str] {
    match kind {
        Type::Any => &[],
        Type::Object => &["object"],
        Type::Array => &["array"],
        Type::String => &["string"],
        Type::Integer => &["integer"],
        Type::Number => &["number"],
        Type::Boolean => &["boolean"],
        Type::IntOrString => &["integer", "string"],
    }
}

/// A float as Go's `%v` prints it.
fn go_float(number: f64) -> String {
    if number != 0.0 && (number.abs() < 1e-4 || number.abs() >= 1e21) {
        let text = format!("{number:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        format!("{mantissa}e{sign}{digits:0>2}")
    } else {
        format!("{number}")
    }
}

/// A fault that upstream does not tie to a field.
pub(super) fn unplaced(why: String) -> Error {
    Error::invalid(&Path::root(), "", why)
}

pub(super) fn wrong_type(at: &Trail<'_>, wanted: &str, got: &str) -> Error {
    let path = at.path();
    Error::type_invalid(&path, got, format!("{} in body must be of type {wanted}: {got:?}", path.as_str()))
}

pub(super) fn is_whole(float: f64) -> bool {
    float.is_finite() && float.abs() <= 9_007_199_254_740_991.0 && float.fract() == 0.0
}

pub(super) fn type_fault(schema: &Schema, value: &Value, at: &Trail<'_>) -> Option<Error> {
    let wanted = types(schema.kind);
    let joined = || wanted.join(",");
    if value.is_null() {
        return (!wanted.is_empty() && !schema.nullable).then(|| wrong_type(at, &joined(), "null"));
    }
    let (got, got_format) = type_and_format(value);
    let whole = wanted.contains(&"integer") && got == "number" && value.as_f64().is_some_and(is_whole);
    let integral = wanted.contains(&"number") && got == "integer";
    let fits = wanted.contains(&got) || whole || integral;
    let listed = matches!(value, Value::String(_) | Value::Array(_));
    let numeric = wanted.contains(&"number") || wanted.contains(&"integer");
    if let Some(format) = schema.format.as_deref().filter(|f| formats::is_supported(f) || is_number_format(f)) {
        if !listed && !fits && got_format != format {
            return Some(wrong_type(at, format, got_format));
        }
        // A format speaks for strings and lists; what it does not know passes.
        if listed && !numeric {
            return None;
        }
    }
    (!fits && !wanted.is_empty()).then(|| wrong_type(at, &joined(), got))
}

pub(super) fn is_number_format(format: &str) -> bool {
    matches!(format, "int32" | "int64" | "float" | "double")
}

/// `spend`: pays for so many steps; false where there is nothing left to pay with, and nothing is looked at.
pub(super) fn string_fault(
    c: &Constraints,
    text: &str,
    at: &Trail<'_>,
    spend: impl FnOnce(u64) -> bool,
) -> Option<Error> {
    if c.max_length.is_some() || c.min_length.is_some() {
        let length = text.chars().count() as u64;
        if let Some(max) = c.max_length.filter(|max| length > *max) {
            return Some(Error::too_long(&at.path(), usize::try_from(max).unwrap_or(usize::MAX)));
        }
        if let Some(min) = c.min_length.filter(|min| length < *min) {
            let path = &at.path();
            let why = format!("{} in body should be at least {min} chars long", path.as_str());
            return Some(Error::invalid(path, text, why));
        }
    }
    let source = c.pattern.as_deref()?;
    let pattern = Pattern::compile(source);
    if let Ok(pattern) = &pattern
        && (!spend(pattern.steps(text.len())) || pattern.is_match(text))
    {
        return None;
    }
    let path = &at.path();
    let name = path.as_str();
    Some(match pattern {
        Ok(_) => Error::invalid(path, text, format!("{name} in body should match '{source}'")),
        Err(_) => {
            let why = format!("{name} in body should match '{source}, but pattern is invalid: error parsing regexp'");
            Error::invalid(path, text, why)
        }
    })
}

pub(super) fn number_faults(
    schema: &Schema,
    constraints: Option<&Constraints>,
    value: &Value,
    at: &Trail<'_>,
    out: &mut Outcome,
) {
    let number = value.as_f64().unwrap_or(f64::NAN);
    let integer = value.as_i64();
    let format = schema.format.as_deref().unwrap_or_default();
    match schema.kind {
        Type::Integer => {
            let whole = integer.is_some() || is_whole(number);
            let format = if matches!(format, "int32" | "int64") { format } else { "" };
            let fits = whole && (format != "int32" || (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number));
            if !fits {
                let wanted =
                    if format.is_empty() { "(default format)".to_owned() } else { format!("with format {format}") };
                out.add(unplaced(format!("Checked value must be of type integer {wanted} in {}", at.path().as_str())));
            }
        }
        Type::Number if format == "float" && number.abs() > f64::from(f32::MAX) => {
            let name = at.path();
            out.add(unplaced(format!("Checked value must be of type number with format float in {}", name.as_str())));
        }
        Type::Any | Type::Object | Type::Array | Type::String | Type::Number | Type::Boolean | Type::IntOrString => {}
    }
    let Some(c) = constraints.filter(|c| c.minimum.is_some() || c.maximum.is_some() || c.multiple_of.is_some()) else {
        return;
    };
    let path = &at.path();
    let name = path.as_str();
    let shown = |bound: f64| {
        // Against an integer, bounds are compared and shown as integers.
        if integer.is_some() { go_float(bound.trunc()) } else { go_float(bound) }
    };
    let bound = |limit: f64| if integer.is_some() { limit.trunc() } else { limit };
    // As Go prints it: whole floats without a fraction.
    let mut value = value.clone();
    if let Value::Number(number) = &mut value {
        prune::normalize_number(number);
    }
    if let Some(factor) = c.multiple_of {
        let fits = match integer {
            #[expect(clippy::cast_possible_truncation, reason = "factors of integers are integers")]
            Some(integer) => integer.checked_rem(factor as i64).is_some_and(|rest| rest == 0),
            None => is_whole(if factor < 1.0 { 1.0 / factor * number } else { number / factor }),
        };
        if bound(factor) <= 0.0 {
            let why = format!("factor MultipleOf declared for {name} must be positive: {}", shown(factor));
            #[expect(clippy::cast_possible_truncation, reason = "a factor is shown as the integer it is compared as")]
            let factor = if integer.is_some() { Value::from(factor as i64) } else { Value::from(factor) };
            out.add(Error::invalid(path, factor, why));
        } else if !fits {
            let why = format!("{name} in body should be a multiple of {}", shown(factor));
            out.add(Error::invalid(path, value.clone(), why));
        }
    }
    if let Some(min) = c.minimum {
        let below = if c.exclusive_minimum { number <= bound(min) } else { number < bound(min) };
        if below {
            let words = if c.exclusive_minimum { "greater than" } else { "greater than or equal to" };
            let why = format!("{name} in body should be {words} {}", shown(min));
            out.add(Error::invalid(path, value.clone(), why));
        }
    }
    if let Some(max) = c.maximum {
        let above = if c.exclusive_maximum { number >= bound(max) } else { number > bound(max) };
        if above {
            let words = if c.exclusive_maximum { "less than" } else { "less than or equal to" };
            let why = format!("{name} in body should be {words} {}", shown(max));
            out.add(Error::invalid(path, value.clone(), why));
        }
    }
}

pub(super) fn enumeration(constraints: Option<&Constraints>, value: &Value, at: &Trail<'_>, out: &mut Outcome) {
    let Some(c) = constraints.filter(|c| !c.enumeration.is_empty()) else { return };
    let equal = |allowed: &Value| match (allowed, value) {
        // Upstream converts the value to the type of what is allowed, which cuts off fractions.
        (Value::Number(a), Value::Number(b)) if !a.is_f64() => a.as_f64() == b.as_f64().map(f64::trunc),
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Null, _) => false,
        (a, b) => a == b,
    };
    if c.enumeration.iter().any(equal) {
        return;
    }
    let texts: Vec<String> = c
        .enumeration
        .iter()
        .map(|allowed| allowed.as_str().map_or_else(|| allowed.to_string(), str::to_owned))
        .collect();
    let supported: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut value = value.clone();
    if let Value::Number(number) = &mut value {
        prune::normalize_number(number);
    }
    out.add(Error::not_supported(&at.path(), value, &supported));
}
