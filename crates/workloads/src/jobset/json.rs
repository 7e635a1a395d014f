//! Editing objects inside untyped ones.

use serde_json::{Map, Value};

/// The member as an object; made where it is absent or something else.
pub(crate) fn entry_object<'a>(map: &'a mut Map<String, Value>, member: &str) -> &'a mut Map<String, Value> {
    let value = map.entry(member.to_owned()).or_insert_with(|| Value::Object(Map::new()));
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("invariant: made an object above")
}

/// Appends to a list, which is made where it is absent.
pub(crate) fn push(map: &mut Map<String, Value>, member: &str, item: Value) {
    let value = map.entry(member.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
    match value {
        Value::Array(list) => list.push(item),
        other => *other = Value::Array(vec![item]),
    }
}

/// A number member as `i64`; 0 where absent.
pub(crate) fn number(value: &Value, path: &[&str]) -> i64 {
    let found = path.iter().try_fold(value, |value, member| value.get(member));
    found.and_then(Value::as_i64).unwrap_or_default()
}
