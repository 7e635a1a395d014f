//! Whether applying an object would change the live one: server-side apply, foreseen.
//!
//! The managed fields of the live object say what we applied last and which lists are keyed, so neither a schema nor a
//! memory of our own is needed. In doubt the answer is "yes, apply": an apply that changes nothing costs one request and
//! leaves the object's resource version alone.

use serde_json::{Map, Value};

/// True when the live object already holds all of `desired`, and nothing that `manager` applied before and no longer wants.
pub fn is_settled(live: &Value, desired: &Value, manager: &str) -> bool {
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    let ours = entries.into_iter().flatten().find(|entry| {
        entry["manager"] == manager && entry["operation"] == "Apply" && entry.get("subresource").is_none()
    });
    // Another version of the API may name fields differently.
    let Some(ours) = ours.filter(|entry| entry.get("apiVersion") == desired.get("apiVersion")) else { return false };
    let (Some(fields), Value::Object(desired)) = (ours.get("fieldsV1").and_then(Value::as_object), desired) else {
        return false;
    };
    let mut desired = desired.clone();
    for identity in ["apiVersion", "kind"] {
        desired.remove(identity);
    }
    if let Some(Value::Object(metadata)) = desired.get_mut("metadata") {
        for identity in ["name", "namespace"] {
            metadata.remove(identity);
        }
    }
    covers(fields, &Value::Object(desired), live)
}

/// Whether `live` agrees with `desired` on everything below a field that we own as `fields`.
fn covers(fields: &Map<String, Value>, desired: &Value, live: &Value) -> bool {
    if fields.keys().all(|key| key == ".") {
        // A leaf, an atomic list or map, or an empty object.
        return desired == live || (is_empty(desired) && live.is_object());
    }
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => {
            let wanted = |key: &str| key.strip_prefix("f:").is_some_and(|name| desired.contains_key(name));
            // What upstream's controller applied empty says nothing, so a job that it leaves to us is let be.
            let says_nothing = |key: &str| {
                let name = key.strip_prefix("f:").unwrap_or_default();
                let is_leaf = fields.get(key).and_then(Value::as_object).is_some_and(Map::is_empty);
                is_leaf && live.get(name).and_then(Value::as_object).is_some_and(Map::is_empty)
            };
            fields.keys().all(|key| key == "." || wanted(key) || says_nothing(key))
                && desired.iter().all(|(name, value)| match (fields.get(&format!("f:{name}")), live.get(name)) {
                    (Some(Value::Object(owned)), Some(live)) => covers(owned, value, live),
                    _ => false,
                })
        }
        (Value::Array(desired), Value::Array(live)) => covers_list(fields, desired, live),
        _ => false,
    }
}

/// Keyed lists and sets; the order of our items is part of what we apply.
fn covers_list(fields: &Map<String, Value>, desired: &[Value], live: &[Value]) -> bool {
    if fields.keys().filter(|key| *key != ".").count() != desired.len() {
        return false;
    }
    let mut last = None;
    desired.iter().all(|item| {
        let found = fields.iter().filter(|(key, _)| *key != ".").find_map(|(key, owned)| {
            let (kind, text) = key.split_once(':')?;
            let key: Value = serde_json::from_str(text).ok()?;
            let at = match (kind, &key) {
                ("v", value) if value == item => live.iter().position(|l| l == value),
                ("k", Value::Object(key)) if agrees(key, item) => {
                    live.iter().position(|l| key.iter().all(|(name, value)| l.get(name) == Some(value)))
                }
                _ => None,
            }?;
            Some((at, owned))
        });
        let Some((at, owned)) = found else { return false };
        let in_order = last.is_none_or(|last| last < at);
        last = Some(at);
        in_order && owned.as_object().is_some_and(|owned| kind_covers(owned, item, &live[at]))
    })
}

fn kind_covers(owned: &Map<String, Value>, item: &Value, live: &Value) -> bool {
    // An item of a set is owned as `{}`.
    if owned.is_empty() { item == live } else { covers(owned, item, live) }
}

/// Whether an item may be the one with this key: members that the item leaves to a default do not speak against it.
fn agrees(key: &Map<String, Value>, item: &Value) -> bool {
    key.iter().all(|(name, value)| item.get(name).is_none_or(|own| own == value))
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn live() -> Value {
        json!({
            "apiVersion": "v1", "kind": "X",
            "metadata": {
                "name": "a", "labels": {"l": "1", "theirs": "2"},
                "managedFields": [{
                    "manager": "trainer", "operation": "Apply", "apiVersion": "v1",
                    "fieldsV1": {
                        "f:metadata": {"f:labels": {"f:l": {}}},
                        "f:spec": {
                            "f:atomic": {},
                            "f:ports": {
                                "k:{\"containerPort\":1,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}},
                                "k:{\"containerPort\":2,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}},
                            },
                        },
                    },
                }],
            },
            "spec": {
                "atomic": [1, 2], "defaulted": true,
                "ports": [{"containerPort": 1, "protocol": "TCP"}, {"containerPort": 2, "protocol": "TCP"}],
            },
        })
    }

    fn desired() -> Value {
        json!({
            "apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "labels": {"l": "1"}},
            "spec": {"atomic": [1, 2], "ports": [{"containerPort": 1}, {"containerPort": 2}]},
        })
    }

    #[test]
    fn the_same_again_is_settled() {
        assert!(is_settled(&live(), &desired(), "trainer"));
        assert!(!is_settled(&live(), &desired(), "other"));
    }

    #[test]
    fn what_was_applied_empty_says_nothing() {
        let mut live = live();
        live["spec"]["resources"] = json!({});
        live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:resources"] = json!({});
        assert!(is_settled(&live, &desired(), "trainer"));
        // somebody has put something there since
        live["spec"]["resources"] = json!({"limits": {}});
        assert!(!is_settled(&live, &desired(), "trainer"));
    }

    #[test]
    fn any_difference_is_not() {
        let cases: [(&str, Value); 6] = [
            ("/metadata/labels", json!({"l": "2"})),
            ("/metadata/labels", json!({"l": "1", "more": "1"})),
            ("/metadata/labels", json!({})),
            ("/spec/atomic", json!([2, 1])),
            ("/spec/ports", json!([{"containerPort": 2}, {"containerPort": 1}])),
            ("/spec/ports", json!([{"containerPort": 1}])),
        ];
        for (pointer, value) in cases {
            let mut desired = desired();
            *desired.pointer_mut(pointer).expect("the case names a member") = value.clone();
            assert!(!is_settled(&live(), &desired, "trainer"), "{pointer} = {value}");
        }
    }
}
