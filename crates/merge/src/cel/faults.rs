//! What is wrong with an expression, and what went wrong as it ran, in cel-go's words.

use super::to_json;
use kube_cel::cel::parser::ParseErrors;
use kube_cel::cel::{ExecutionError, Value as Cel};
use serde_json::Value;

/// A syntax error as cel-go shows it: the place (line and column from 1), the line, and a mark under the column.
pub(super) fn syntax_error(source: &str, (line, column): (isize, isize), message: &str) -> String {
    let text = usize::try_from(line - 1).ok().and_then(|line| source.lines().nth(line)).unwrap_or_default();
    // characters beyond ASCII are taken for wide ones
    let wide = |c: char| !c.is_ascii();
    let column_chars = usize::try_from(column - 1).unwrap_or_default();
    let dots: String = text.chars().take(column_chars).map(|c| if wide(c) { '．' } else { '.' }).collect();
    let mark = if text.chars().nth(column_chars).is_some_and(wide) { '＾' } else { '^' };
    format!("ERROR: <input>:{line}:{column}: {message}\n | {text}\n | {dots}{mark}")
}

pub(super) fn syntax_errors(source: &str, errors: &ParseErrors) -> String {
    // what is incomplete follows from what the grammar has refused, and upstream does not tell it
    let is_grammar = |message: &str| !message.starts_with("Incomplete ");
    let told = errors.errors.iter().any(|error| is_grammar(&error.msg));
    let texts = errors.errors.iter().filter(|error| !told || is_grammar(&error.msg));
    let texts: Vec<String> = texts.map(|error| syntax_error(source, error.pos, &error.msg)).collect();
    texts.join("\n")
}

/// cel-go's words for a failure at run time.
pub(super) fn error_text(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(index) => format!("index out of bounds: {}", shown(index)),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::NoSuchOverload
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::NotSupportedAsMethod { .. }
        | ExecutionError::UnsupportedTargetType { .. } => "no such overload".to_owned(),
        ExecutionError::FunctionError { function, .. } if function == "duration" => {
            "type conversion error from 'string' to 'google.protobuf.Duration'".to_owned()
        }
        ExecutionError::FunctionError { function, .. } if function == "timestamp" => {
            "type conversion error from 'string' to 'google.protobuf.Timestamp'".to_owned()
        }
        // upstream forgets why the text is no address
        ExecutionError::FunctionError { function, .. } if function == "containsIP" => "no such overload".to_owned(),
        ExecutionError::FunctionError { function, message } if function == "semver" => {
            let given = message.strip_prefix("invalid semver '").and_then(|rest| rest.rsplit_once("': "));
            given.map_or_else(|| message.clone(), |(text, _)| semver_fault(text))
        }
        ExecutionError::FunctionError { function, message } if ["charAt", "substring"].contains(&&**function) => {
            let index = message.split_once("index ").and_then(|(_, rest)| rest.split_once(" out of range"));
            index.map_or_else(|| message.clone(), |(index, _)| format!("index out of range: {index}"))
        }
        ExecutionError::FunctionError { message, .. } => message.clone(),
        ExecutionError::UndeclaredReference(name) => format!("undeclared reference to '{name}'"),
        other => other.to_string(),
    }
}

/// Why a text is no semantic version, in the words of the library that cel-go asks (`github.com/blang/semver/v4`).
pub(super) fn semver_fault(text: &str) -> String {
    if text.is_empty() {
        return "Version string empty".to_owned();
    }
    let mut parts = text.splitn(3, '.');
    let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return "No Major.Minor.Patch elements found".to_owned();
    };
    let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
    let (patch, prerelease) = rest.split_once('-').map_or((rest, None), |(patch, rest)| (patch, Some(rest)));
    for (name, title, number) in [("major", "Major", major), ("minor", "Minor", minor), ("patch", "Patch", patch)] {
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return if number.is_empty() {
                "strconv.ParseUint: parsing \"\": invalid syntax".to_owned()
            } else {
                format!("Invalid character(s) found in {name} number {number:?}")
            };
        }
        if number.len() > 1 && number.starts_with('0') {
            return format!("{title} number must not contain leading zeroes {number:?}");
        }
        if number.parse::<u64>().is_err() {
            return format!("strconv.ParseUint: parsing {number:?}: value out of range");
        }
    }
    let sound = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    for part in prerelease.into_iter().flat_map(|all| all.split('.')) {
        if part.is_empty() {
            return "Prerelease is empty".to_owned();
        }
        if part.bytes().all(|byte| byte.is_ascii_digit()) && part.len() > 1 && part.starts_with('0') {
            return format!("Numeric PreRelease version must not contain leading zeroes {part:?}");
        }
        if part.bytes().all(|byte| byte.is_ascii_digit()) && part.parse::<u64>().is_err() {
            return format!("strconv.ParseUint: parsing {part:?}: value out of range");
        }
        if !sound(part) {
            return format!("Invalid character(s) found in prerelease {part:?}");
        }
    }
    for part in build.into_iter().flat_map(|all| all.split('.')) {
        if part.is_empty() {
            return "Build meta data is empty".to_owned();
        }
        if !sound(part) {
            return format!("Invalid character(s) found in build meta data {part:?}");
        }
    }
    "No Major.Minor.Patch elements found".to_owned()
}

fn shown(value: &Cel) -> String {
    match to_json(value) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
