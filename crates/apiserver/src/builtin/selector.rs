//! Whether labels match a label selector.

use super::kit::{items, members, text};
use serde_json::Value;

/// Whether `labels` (an object of texts, or null) match. An empty selector matches all.
pub fn matches(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    members(selector, "matchLabels").all(|(key, value)| label(key) == value.as_str())
        && items(selector, "matchExpressions").iter().all(|expression| {
            let value = label(text(expression, "key"));
            let listed = value.is_some_and(|v| items(expression, "values").iter().any(|w| w == v));
            match text(expression, "operator") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn expressions() {
        let labels = json!({"a": "1"});
        for (selector, expected) in [
            (json!({}), true),
            (json!({"matchLabels": {"a": "1"}}), true),
            (json!({"matchLabels": {"a": "2"}}), false),
            (json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}), true),
            (json!({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}), true),
            (json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}), false),
        ] {
            assert_eq!(matches(&selector, &labels), expected, "{selector}");
        }
    }
}
