//! Small functions that the rules of all kinds use: reading and defaulting untyped objects, ages as tables show them.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// The warning to a client that makes an object of a kind that is stored, checked and not acted on. `what`: what it does not do,
/// and what follows from that.
pub fn stored_only(kinds: &str, what: &str) -> String {
    format!("this control plane keeps {kinds} but {what}")
}

/// The value at a path of member names (`spec.template.metadata`); null where absent.
pub fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').try_fold(object, |value, name| value.get(name)).unwrap_or(&Value::Null)
}

/// The text at a path; empty where absent.
pub fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).as_str().unwrap_or_default()
}

/// The whole number at a path.
pub fn int(object: &Value, path: &str) -> Option<i64> {
    at(object, path).as_i64()
}

/// Whether the member at a path is `true`.
pub fn is_true(object: &Value, path: &str) -> bool {
    at(object, path) == &Value::Bool(true)
}

/// The elements of the list at a path; none where absent.
pub fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).as_array().map_or(&[], Vec::as_slice)
}

/// The elements of the list at a path, to change them.
pub fn items_mut<'a>(object: &'a mut Value, member: &str) -> std::slice::IterMut<'a, Value> {
    match object.get_mut(member).and_then(Value::as_array_mut) {
        Some(items) => items.iter_mut(),
        None => Default::default(),
    }
}

/// The members of the object at a path; none where absent.
pub fn members<'a>(object: &'a Value, path: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    at(object, path).as_object().into_iter().flatten()
}

/// Whether a value is absent, null, or what Go takes for unset: an empty text, list or map.
pub fn unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The object's own map, made if it is none.
pub fn map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("invariant: just made an object")
}

/// The member, made an object if absent.
pub fn child<'a>(object: &'a mut Value, member: &str) -> &'a mut Value {
    let value = map(object).entry(member).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value
}

/// The member, where it is an object.
pub fn child_if<'a>(object: &'a mut Value, member: &str) -> Option<&'a mut Value> {
    object.get_mut(member).filter(|value| value.is_object())
}

/// Sets a member that is absent, null or an empty text.
pub fn default(object: &mut Value, member: &str, value: impl Into<Value>) {
    let there = object.get(member).unwrap_or(&Value::Null);
    if there.is_null() || there.as_str() == Some("") {
        map(object).insert(member.to_owned(), value.into());
    }
}

/// Sets a number that is absent, null or zero.
pub fn default_number(object: &mut Value, member: &str, value: i64) {
    let there = object.get(member).unwrap_or(&Value::Null);
    if there.is_null() || there.as_i64() == Some(0) {
        map(object).insert(member.to_owned(), value.into());
    }
}

/// Takes a member over from another object: also its absence.
pub fn keep(new: &mut Value, old: &Value, member: &str) {
    match old.get(member) {
        Some(value) => {
            map(new).insert(member.to_owned(), value.clone());
        }
        None => {
            map(new).remove(member);
        }
    }
}

/// As [`keep`], for a member of `metadata`.
pub fn keep_meta(new: &mut Value, old: &Value, member: &str) {
    let old = old.get("metadata").cloned().unwrap_or_default();
    keep(child(new, "metadata"), &old, member);
}

/// The Go zero of a time is `null`; both are absence.
pub fn time(object: &Value, path: &str) -> Option<Timestamp> {
    at(object, path).as_str()?.parse().ok()
}

/// A time as it is written: to the second.
pub fn written(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// How long ago, as tables show it: `<unknown>` for no time at all.
pub fn since(then: Option<Timestamp>, now: Timestamp) -> String {
    then.map_or_else(|| "<unknown>".to_owned(), |then| human(now.as_second() - then.as_second()))
}

/// The object's age, as tables show it.
pub fn age(object: &Value, now: Timestamp) -> Value {
    since(time(object, "metadata.creationTimestamp"), now).into()
}

/// A duration in seconds as `k8s.io/apimachinery/pkg/util/duration` shows it to people: two units at most.
pub fn human(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    if seconds < 0 {
        return "0s".to_owned();
    }
    if seconds < 60 * 2 {
        return format!("{seconds}s");
    }
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{big}{big_unit}") } else { format!("{big}{big_unit}{small}{small_unit}") }
    };
    let minutes = seconds / 60;
    if minutes < 10 {
        return two(minutes, "m", seconds % 60, "s");
    }
    if minutes < 60 * 3 {
        return format!("{minutes}m");
    }
    let hours = seconds / 3600;
    if hours < 8 {
        return two(hours, "h", minutes % 60, "m");
    }
    if hours < 48 {
        return format!("{hours}h");
    }
    if hours < 24 * 8 {
        return two(hours / 24, "d", hours % 24, "h");
    }
    if hours < 24 * 365 * 2 {
        return format!("{}d", hours / 24);
    }
    if hours < 24 * 365 * 8 {
        return two(hours / 24 / 365, "y", (hours / 24) % 365, "d");
    }
    format!("{}y", hours / 24 / 365)
}

/// Labels as tables show selectors: `a=b,c=d`, or `<none>`.
pub fn labels(value: &Value) -> String {
    let pairs: Vec<String> = value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// A label selector as upstream prints it: `a=b,c in (d,e),f,!g`; `<none>` where it says nothing.
pub fn label_selector(selector: &Value) -> String {
    if selector.is_null() {
        return "<none>".to_owned();
    }
    let mut parts: Vec<(String, String)> = members(selector, "matchLabels")
        .map(|(key, value)| (key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())))
        .collect();
    for expression in items(selector, "matchExpressions") {
        let key = text(expression, "key");
        let mut values: Vec<&str> = items(expression, "values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let part = match text(expression, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        parts.push((key.to_owned(), part));
    }
    if parts.is_empty() {
        return "<none>".to_owned();
    }
    parts.sort_by(|a, b| a.0.cmp(&b.0));
    parts.into_iter().map(|(_, part)| part).collect::<Vec<_>>().join(",")
}

/// The condition of a type in `status.conditions`.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(object, "status.conditions").iter().find(|c| text(c, "type") == kind)
}

/// Whether the condition of a type has the status `True`.
pub fn has_condition(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|c| text(c, "status") == "True")
}

/// Equality in which absence, null and an empty list are one, as for Go's semantic equality. An empty object and an empty text are
/// something: after normalisation only structs that somebody wrote are empty objects, and only values of maps and what stands
/// behind a pointer are empty texts.
pub fn same(a: &Value, b: &Value) -> bool {
    let nothing = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let null = Value::Null;
            x.keys().chain(y.keys()).all(|key| same(x.get(key).unwrap_or(&null), y.get(key).unwrap_or(&null)))
        }
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        _ => a == b || (nothing(a) && nothing(b)),
    }
}

/// Takes members out of a part of an object.
pub fn without(object: &mut Value, part: &str, members: &[&str]) {
    if let Some(part) = object.get_mut(part).and_then(Value::as_object_mut) {
        for member in members {
            part.remove(*member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_for_people() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (-5, "<invalid>"),
        ] {
            assert_eq!(human(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn selectors_print() {
        let selector = json!({"matchLabels": {"b": "1"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "c", "operator": "DoesNotExist"}]});
        assert_eq!(label_selector(&selector), "a in (x,y),b=1,!c");
        assert_eq!(label_selector(&Value::Null), "<none>");
        assert!(same(&json!({"a": []}), &json!({})));
        assert!(!same(&json!({"a": {}}), &json!({})));
    }
}
