//! Empty maps and lists that Go does not write, where they still tell two values apart.

use crate::schema::{ListType, Schema};
use serde_json::Value;

/// `new`, an object in the form in which Go writes it, with the empty maps and lists that it was `given` inside the elements of lists
/// that are owned as a whole. Upstream compares such elements as Go has them (`structured-merge-diff`), where an empty map is not
/// the same as none, so that who sends one changes the list. `None` where there are none.
pub fn with_empty(schema: &Schema, given: &Value, new: &Value) -> Option<Value> {
    let mut seen = new.clone();
    restore(Some(schema), given, &mut seen, false).then_some(seen)
}

/// Whether a part of an object was given with empty maps, lists or bytes that Go does not write, anywhere: a comparison by
/// `reflect.DeepEqual` sees them.
pub fn is_given_empty(schema: &Schema, given: &Value, new: &Value, part: &str) -> bool {
    let (Some(given), Some(new)) = (given.get(part), new.get(part)) else { return false };
    restore(schema.member(part).map(|schema| &**schema), given, &mut new.clone(), true)
}

/// Whether anything was put back. `inside`: below a value that is compared as Go has it.
fn restore(schema: Option<&Schema>, given: &Value, new: &mut Value, inside: bool) -> bool {
    let is_empty = |value: &Value, schema: Option<&Schema>| match value {
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty() && schema.is_some_and(|schema| schema.format.as_deref() == Some("byte")),
        _ => false,
    };
    let mut any = false;
    match (given, new) {
        (Value::Object(given), Value::Object(new)) => {
            for (name, value) in given {
                let known = schema.and_then(|schema| schema.member(name)).map(|schema| &**schema);
                match new.get_mut(name) {
                    Some(there) => any |= restore(known, value, there, inside),
                    None if inside && is_empty(value, known) => {
                        new.insert(name.clone(), value.clone());
                        any = true;
                    }
                    None => {}
                }
            }
        }
        (Value::Array(given), Value::Array(new)) if given.len() == new.len() => {
            let inside = inside || schema.is_some_and(|schema| schema.list_type == ListType::Atomic);
            let items = schema.and_then(|schema| schema.items.as_deref());
            for (value, there) in given.iter().zip(new) {
                any |= restore(items, value, there, inside);
            }
        }
        _ => {}
    }
    any
}
