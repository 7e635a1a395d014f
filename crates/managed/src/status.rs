//! Statuses as merge patches.

use serde_json::Value;

/// The merge patch that makes `after` of `before`: all of `after`, and null for members that only `before` has.
pub fn replacing(before: &Value, mut after: Value) -> Value {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object_mut()) else { return after };
    for (name, was) in old {
        match new.get_mut(name) {
            Some(is) => *is = replacing(was, is.take()),
            None => drop(new.insert(name.clone(), Value::Null)),
        }
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_that_are_gone_are_removed_at_every_depth() {
        let before = json!({"a": 1, "b": {"c": 1, "d": 2}, "list": [{"x": 1}]});
        let after = json!({"b": {"c": 3}, "list": [{}]});
        assert_eq!(replacing(&before, after), json!({"a": null, "b": {"c": 3, "d": null}, "list": [{}]}));
        assert_eq!(replacing(&Value::Null, json!({"a": 1})), json!({"a": 1}));
    }
}
