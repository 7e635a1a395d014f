//! Empty maps and lists that Go does not write, where they still tell two values apart.

use crate::schema::{ListType, Schema};
use serde_json::Value;

/// Whether an object has empty maps or lists inside the elements of lists that are owned as a whole: what [`with_empty`] looks for.
pub fn holds_empty(schema: &Schema, object: &Value) -> bool {
    holds(Some(schema), object, false)
}

/// `new`, an object in the form in which Go writes it, with the empty maps and lists that it was `given` inside the elements of lists
/// that are owned as a whole. Upstream compares such elements as Go has them (`structured-merge-diff`), where an empty map is not
/// the same as none, so that who sends one changes the list. `None` where there are none.
pub fn with_empty(schema: &Schema, given: &Value, new: &Value) -> Option<Value> {
    restored(Some(schema), given, new, false)
}

/// Whether a part of an object was given with empty maps, lists or bytes that Go does not write, anywhere: a comparison by
/// `reflect.DeepEqual` sees them.
pub fn is_given_empty(schema: &Schema, given: &Value, new: &Value, part: &str) -> bool {
    let (Some(given), Some(new)) = (given.get(part), new.get(part)) else { return false };
    restored(schema.member(part).map(|schema| &**schema), given, new, true).is_some()
}

fn is_empty(schema: Option<&Schema>, value: &Value) -> bool {
    match value {
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty() && schema.is_some_and(|schema| schema.format.as_deref() == Some("byte")),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn member<'a>(schema: Option<&'a Schema>, name: &str) -> Option<&'a Schema> {
    schema.and_then(|schema| schema.member(name)).map(|schema| &**schema)
}

/// Whether the elements of a list are compared as Go has them.
fn is_inside(schema: Option<&Schema>, inside: bool) -> bool {
    inside || schema.is_some_and(|schema| schema.list_type == ListType::Atomic)
}

fn holds(schema: Option<&Schema>, value: &Value, inside: bool) -> bool {
    match value {
        Value::Object(members) => members.iter().any(|(name, value)| {
            let known = member(schema, name);
            (inside && is_empty(known, value)) || holds(known, value, inside)
        }),
        Value::Array(items) => {
            let (known, inside) = (schema.and_then(|schema| schema.items.as_deref()), is_inside(schema, inside));
            items.iter().any(|item| holds(known, item, inside))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// `new` with what was put back; `None` where nothing was. `inside`: below a value that is compared as Go has it.
fn restored(schema: Option<&Schema>, given: &Value, new: &Value, inside: bool) -> Option<Value> {
    match (given, new) {
        (Value::Object(given), Value::Object(there)) => {
            let back = given.iter().filter_map(|(name, value)| {
                let known = member(schema, name);
                let back = match there.get(name) {
                    Some(there) => restored(known, value, there, inside)?,
                    None => (inside && is_empty(known, value)).then(|| value.clone())?,
                };
                Some((name.clone(), back))
            });
            let mut back = back.peekable();
            back.peek()?;
            let mut all = there.clone();
            all.extend(back);
            Some(Value::Object(all))
        }
        (Value::Array(given), Value::Array(there)) if given.len() == there.len() => {
            let (known, inside) = (schema.and_then(|schema| schema.items.as_deref()), is_inside(schema, inside));
            let items = given.iter().zip(there).map(|(given, there)| restored(known, given, there, inside));
            let back: Vec<Option<Value>> = items.collect();
            back.iter().any(Option::is_some).then(|| {
                let all = back.into_iter().zip(there).map(|(back, there)| back.unwrap_or_else(|| there.clone()));
                all.collect()
            })
        }
        _ => None,
    }
}
