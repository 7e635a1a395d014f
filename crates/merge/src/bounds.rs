//! How large an object may be, and how deeply nested.
//!
//! Every object that is stored must be read again: by the next start, by clients, and by this program's own recursion. So the
//! bounds hold for the object as a whole, managed fields included.

use serde_json::Value;

/// Most lists and objects inside each other. `serde_json` reads 127, and a watch or a table wraps an object in four more.
pub const DEPTH_MAX: usize = 100;

/// Most bytes of an object: etcd's limit on a request.
pub const BYTES_MAX: usize = 3 << 19;

/// What an object exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    #[error("lists and objects are nested more than {DEPTH_MAX} deep, counting metadata.managedFields")]
    Depth,
    /// etcd's words.
    #[error("etcdserver: request is too large")]
    Bytes,
}

/// Refuses an object that is too large or too deep. Takes no stack, however deep the object is.
///
/// Characters that JSON escapes count once: a text of newlines must not be refused here that upstream, which keeps
/// protobuf, would keep.
///
/// # Errors
/// Which bound does not hold.
pub fn check(value: &Value) -> Result<(), Exceeded> {
    let mut bytes = 0usize;
    walk(value, |value, depth| {
        bytes = bytes.saturating_add(own_bytes(value));
        match value {
            Value::Array(_) | Value::Object(_) if depth >= DEPTH_MAX => Err(Exceeded::Depth),
            _ if bytes > BYTES_MAX => Err(Exceeded::Bytes),
            _ => Ok(()),
        }
    })
}

/// Bytes of a value in JSON, escapes not counted.
pub fn bytes(value: &Value) -> usize {
    let mut bytes = 0usize;
    let visited: Result<(), ()> = walk(value, |value, _| {
        bytes = bytes.saturating_add(own_bytes(value));
        Ok(())
    });
    debug_assert!(visited.is_ok());
    bytes
}

/// How many lists and objects are inside each other (0: the value is neither), and how many values there are in all.
pub(crate) fn extent(value: &Value) -> (usize, usize) {
    let (mut deepest, mut values) = (0, 0usize);
    let visited: Result<(), ()> = walk(value, |value, depth| {
        values += 1;
        if value.is_array() || value.is_object() {
            deepest = deepest.max(depth + 1);
        }
        Ok(())
    });
    debug_assert!(visited.is_ok());
    (deepest, values)
}

/// Bytes of a value without what it contains.
fn own_bytes(value: &Value) -> usize {
    match value {
        Value::Null => 4,
        Value::Bool(flag) => 5 - usize::from(*flag),
        Value::Number(number) => digits(number),
        Value::String(text) => text.len() + 2,
        // brackets, and the commas between the elements
        Value::Array(items) => items.len().max(1) + 1,
        // `"":` and a comma for each member
        Value::Object(members) => members.keys().map(|key| key.len() + 4).sum::<usize>().max(1) + 1,
    }
}

fn digits(number: &serde_json::Number) -> usize {
    match (number.as_u64(), number.as_i64()) {
        (Some(number), _) => number.checked_ilog10().unwrap_or(0) as usize + 1,
        (None, Some(number)) => number.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 2,
        (None, None) => number.to_string().len(),
    }
}

/// Calls `visit` with each value and how many lists and objects it is in, until one is refused.
fn walk<E>(value: &Value, mut visit: impl FnMut(&Value, usize) -> Result<(), E>) -> Result<(), E> {
    let mut waiting = vec![(value, 0)];
    while let Some((value, depth)) = waiting.pop() {
        visit(value, depth)?;
        match value {
            Value::Array(items) => waiting.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(members) => waiting.extend(members.values().map(|member| (member, depth + 1))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(Value::Null, |inner, i| if i % 2 == 0 { json!([inner]) } else { json!({"a": inner}) })
    }

    #[test]
    fn what_passes_is_read_again() {
        assert_eq!(check(&nested(DEPTH_MAX)), Ok(()));
        assert_eq!(check(&nested(DEPTH_MAX + 1)), Err(Exceeded::Depth));
        assert_eq!(extent(&nested(7)).0, 7);
        // as a row of a table or an event of a watch
        let shown = json!({"object": {"rows": [{"object": nested(DEPTH_MAX)}]}}).to_string();
        assert!(serde_json::from_str::<Value>(&shown).is_ok());
    }

    #[test]
    fn bytes_are_those_of_json_without_escapes() {
        for value in
            [json!(null), json!([]), json!({}), json!(-10), json!(0), json!(1.5), json!(u64::MAX), json!(false)]
        {
            let exact = value.to_string().len();
            assert!(bytes(&value) == exact, "{value}");
        }
        let value = json!({"a": [1, true, "x", null], "b": {"c": "d"}});
        assert_eq!(bytes(&value), value.to_string().len());
        assert_eq!(bytes(&json!("\n\n")), 4);
        assert_eq!(check(&json!({"a": "x".repeat(BYTES_MAX)})), Err(Exceeded::Bytes));
        assert_eq!(check(&json!({"a": "x".repeat(BYTES_MAX - 64)})), Ok(()));
    }
}
