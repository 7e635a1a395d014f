//! Whether a write changes anything but times of managed fields.

use crate::order::Ordered;
use serde_json::{Map, Value};

/// Whether two objects are the same but for times in their managed fields: such a write is none.
pub fn same_but_times(a: &Value, b: &Value) -> bool {
    let (Value::Object(a), Value::Object(b)) = (a, b) else { return a == b };
    let (Some(Value::Object(meta_a)), Some(Value::Object(meta_b))) = (a.get("metadata"), b.get("metadata")) else {
        return a == b;
    };
    let rest_is_same = same_but(a, b, "metadata") && same_but(meta_a, meta_b, "managedFields");
    rest_is_same && same_managers(meta_a.get("managedFields"), meta_b.get("managedFields"))
}

/// Whether two objects are the same but for their managed fields.
pub(super) fn same_but_managers(a: &Value, b: &Value) -> bool {
    let (Value::Object(a), Value::Object(b)) = (a, b) else { return a == b };
    match (a.get("metadata"), b.get("metadata")) {
        (Some(Value::Object(meta_a)), Some(Value::Object(meta_b))) => {
            same_but(a, b, "metadata") && same_but(meta_a, meta_b, "managedFields")
        }
        _ => a == b,
    }
}

/// Whether two maps hold the same under all names but one.
fn same_but(a: &Map<String, Value>, b: &Map<String, Value>, name: &str) -> bool {
    a.iter().filter(|(key, _)| *key != name).eq(b.iter().filter(|(key, _)| *key != name))
}

/// Whether two lists of managed fields have the same entries but for their times, and so for their order, which depends on
/// the times.
fn same_managers(a: Option<&Value>, b: Option<&Value>) -> bool {
    let (Some(Value::Array(a)), Some(Value::Array(b))) = (a, b) else { return a == b };
    fn sorted(entries: &[Value]) -> Vec<Vec<(&str, Ordered<'_>)>> {
        fn members(entry: &Value) -> Vec<(&str, Ordered<'_>)> {
            match entry {
                Value::Object(members) => members
                    .iter()
                    .filter(|(name, _)| *name != "time")
                    .map(|(name, value)| (name.as_str(), Ordered(value)))
                    .collect(),
                other => vec![("", Ordered(other))],
            }
        }
        let mut out: Vec<_> = entries.iter().map(members).collect();
        out.sort();
        out
    }
    a.len() == b.len() && sorted(a) == sorted(b)
}
