//! Parts of an object's text, read without the rest of it.
//!
//! Most clients of a list want a few fields of each object, and managed fields alone are half of a text. For a part that is not read, only
//! the end of its string or bracket is searched.

use crate::take::{self, Take, Taking};
use serde::de::DeserializeSeed;
use serde_json::{Map, Value};

/// The members of a JSON object, in their order: the text between a name's quotes, and the text of the value. Ends early if the text is no
/// JSON object.
pub fn members(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = inside(text);
    std::iter::from_fn(move || {
        let (name, after) = name(rest)?;
        let value = value(after)?;
        rest = behind(after, value).unwrap_or_default();
        Some((name, value))
    })
}

/// An object's text after its opening bracket.
fn inside(text: &[u8]) -> &[u8] {
    trimmed(text).strip_prefix(b"{").unwrap_or_default()
}

/// The name at the start of a member, without quotes, and the rest of the text from its value on.
fn name(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = trimmed(rest);
    let name = quoted(rest)?;
    let after = trimmed(rest.get(name.len()..)?).strip_prefix(b":")?;
    Some((name.get(1..name.len().saturating_sub(1))?, trimmed(after)))
}

/// The text after a value and its comma, where the next member or element begins.
fn behind<'a>(after: &'a [u8], value: &[u8]) -> Option<&'a [u8]> {
    trimmed(after.get(value.len()..)?).strip_prefix(b",")
}

/// An object's text from the value of a member on. Only the text before it is read.
fn from_member<'a>(text: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let mut rest = inside(text);
    loop {
        let (name, after) = name(rest)?;
        if name == wanted {
            return Some(after);
        }
        rest = behind(after, value(after)?)?;
    }
}

/// The elements of a JSON list, in their order. Ends early if the text is no JSON list.
pub fn elements(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = trimmed(text).strip_prefix(b"[").unwrap_or_default();
    std::iter::from_fn(move || {
        let start = trimmed(rest);
        let value = value(start).filter(|value| !value.is_empty())?;
        rest = behind(start, value).unwrap_or_default();
        Some(value)
    })
}

/// The text of a member's value. `name` is compared byte for byte; escapes are not decoded.
pub fn member<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    members(text).find(|(known, _)| *known == name.as_bytes()).map(|(_, value)| value)
}

/// The object without `metadata.managedFields`; null for a text that is no JSON object.
pub fn lean(text: &[u8]) -> Value {
    taken(text, take::lean)
}

/// The object with only the metadata that identifies it, its version and its owners.
pub fn identity(text: &[u8]) -> Value {
    const READ: [&[u8]; 5] = [b"name", b"namespace", b"ownerReferences", b"resourceVersion", b"uid"];
    let metadata = from_member(text, b"metadata").unwrap_or_default();
    let read = members(metadata).filter(|(name, _)| READ.contains(name));
    let metadata: Map<String, Value> = read.map(|(name, value)| (unescaped(name), parsed(value))).collect();
    Value::Object(Map::from_iter([("metadata".to_owned(), metadata.into())]))
}

/// The object with only its kind and its metadata, without managed fields.
pub fn head(text: &[u8]) -> Value {
    let mut head = Map::new();
    let mut rest = inside(text);
    while let Some((name, after)) = name(rest) {
        let read: Option<fn(&[u8]) -> Value> = match name {
            b"metadata" => Some(|value| taken(value, take::metadata)),
            b"apiVersion" | b"kind" => Some(started),
            _ => None,
        };
        if let Some(read) = read {
            head.insert(unescaped(name), read(after));
            // the rest is most of the text
            if head.len() == 3 {
                break;
            }
        }
        rest = value(after).and_then(|value| behind(after, value)).unwrap_or_default();
    }
    if text.starts_with(b"{") { Value::Object(head) } else { parsed(text) }
}

/// The object with only `metadata.labels`.
pub fn labels(text: &[u8]) -> Value {
    let only = |wanted: &'static [u8], read: fn(&[u8]) -> Value| {
        move |name: &[u8], value: &[u8]| (name == wanted).then(|| read(value))
    };
    let metadata = member(text, "metadata").map(|value| without(value, only(b"labels", parsed)));
    Value::Object(metadata.map(|metadata| ("metadata".to_owned(), metadata)).into_iter().collect())
}

/// The object without its lists: enough for field selectors.
pub fn scalars(text: &[u8]) -> Value {
    without(text, |_, value| match value.first() {
        Some(b'{') => Some(scalars(value)),
        Some(b'[') => None,
        _ => Some(parsed(value)),
    })
}

/// The members that the function chooses, read in one pass; null for a text that is no JSON.
pub fn taken(text: &[u8], take: fn(&str) -> Take) -> Value {
    Taking(take).deserialize(&mut serde_json::Deserializer::from_slice(text)).unwrap_or_default()
}

fn without(text: &[u8], mut read: impl FnMut(&[u8], &[u8]) -> Option<Value>) -> Value {
    if !text.starts_with(b"{") {
        return parsed(text);
    }
    let mut object = Map::new();
    for (name, value) in members(text) {
        if let Some(value) = read(name, value) {
            object.insert(unescaped(name), value);
        }
    }
    Value::Object(object)
}

/// The value at the start of a text; the rest of the text is ignored.
fn started(text: &[u8]) -> Value {
    taken(text, |_| Take::All)
}

fn parsed(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_default()
}

/// A name with its escapes decoded.
fn unescaped(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(plain) if !plain.contains('\\') => plain.to_owned(),
        Ok(escaped) => serde_json::from_str(&format!("\"{escaped}\"")).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

fn trimmed(text: &[u8]) -> &[u8] {
    text.trim_ascii_start()
}

/// The string at the start of a text, with its quotes.
fn quoted(text: &[u8]) -> Option<&[u8]> {
    text.strip_prefix(b"\"")?;
    let mut at = 1_usize;
    loop {
        at = at.saturating_add(memchr::memchr2(b'"', b'\\', text.get(at..)?)?);
        if text.get(at) == Some(&b'"') {
            return text.get(..=at);
        }
        // skip the escaped character, whatever it is
        at = at.saturating_add(2);
    }
}

/// The value at the start of a text.
fn value(text: &[u8]) -> Option<&[u8]> {
    match text.first()? {
        b'"' => quoted(text),
        b'{' | b'[' => {
            let (mut at, mut depth) = (0_usize, 0_usize);
            loop {
                match text.get(at)? {
                    b'"' => {
                        at = at.saturating_add(quoted(text.get(at..)?)?.len());
                        continue;
                    }
                    b'{' | b'[' => depth = depth.saturating_add(1),
                    b'}' | b']' => {
                        depth = depth.saturating_sub(1);
                        if depth == 0 {
                            return text.get(..=at);
                        }
                    }
                    _ => {}
                }
                at = at.saturating_add(1);
            }
        }
        _ => {
            let end = text.iter().position(|byte| matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace());
            text.get(..end.unwrap_or(text.len()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn what_is_not_wanted_is_not_there() {
        let object = json!({
            "metadata": {"name": "a", "labels": {"k": "v\"}"}, "managedFields": [{"f:a": {"}": "]"}}]},
            "spec": {"x": [1, -2.5e3, true, null, {"y": "\\"}]},
        });
        let text = object.to_string();
        let mut expected = object.clone();
        expected["metadata"].as_object_mut().unwrap().remove("managedFields");
        assert_eq!(lean(text.as_bytes()), expected);
        assert_eq!(labels(text.as_bytes()), json!({"metadata": {"labels": {"k": "v\"}"}}}));
        let owners = json!([{"uid": "o", "controller": true}]);
        let mut owned = object.clone();
        owned["metadata"]["ownerReferences"] = owners.clone();
        owned["metadata"]["uid"] = "u".into();
        let own = json!({"metadata": {"name": "a", "ownerReferences": owners, "uid": "u"}});
        assert_eq!(identity(owned.to_string().as_bytes()), own);
        assert_eq!(identity(serde_json::to_string_pretty(&owned).unwrap().as_bytes()), own);
        let mut named = object.clone();
        named["kind"] = "K".into();
        let mut expected_head = json!({"kind": "K", "metadata": expected["metadata"]});
        assert_eq!(head(named.to_string().as_bytes()), expected_head);
        expected_head["apiVersion"] = "v1".into();
        let metadata = object["metadata"].to_string();
        for text in [
            format!(r#"{{"apiVersion":"v1","kind":"K","metadata":{metadata},"spec":[1"#),
            format!(r#"{{"spec":[1],"metadata":{metadata},"apiVersion":"v1","kind":"K"}}"#),
            format!(r#"{{"kind":"K","metadata":{metadata},"status":{{}},"apiVersion":"v1","x":1}}"#),
        ] {
            assert_eq!(head(text.as_bytes()), expected_head, "{text}");
        }
        assert_eq!(member(text.as_bytes(), "spec").map(parsed), Some(object["spec"].clone()));
        assert_eq!(member(text.as_bytes(), "status"), None);
        assert_eq!(lean(serde_json::to_string_pretty(&object).unwrap().as_bytes()), expected);
    }

    #[test]
    fn what_is_no_object_has_no_parts() {
        for text in ["", "null", "[1]", "{", "{\"a", "{\"a\":", "{\"a\":[", "{\"a\":\"\\", "{\"a\":{\"b\":1]"] {
            assert_eq!(member(text.as_bytes(), "b"), None, "{text}");
            let _ = lean(text.as_bytes());
            let _ = head(text.as_bytes());
            assert_eq!(identity(text.as_bytes()), json!({"metadata": {}}), "{text}");
            assert_eq!(labels(text.as_bytes()), json!({}), "{text}");
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,6}|[\"\\\\\n{}:,]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("\\PC{0,4}|[\"\\\\\n]{1,3}", inner, 0..5)
                    .prop_map(|all| Value::Object(all.into_iter().collect())),
            ]
        })
    }

    fn without_lists(value: &Value) -> Option<Value> {
        match value {
            Value::Array(_) => None,
            Value::Object(members) => {
                Some(members.iter().filter_map(|(name, value)| Some((name.clone(), without_lists(value)?))).collect())
            }
            scalar => Some(scalar.clone()),
        }
    }

    proptest! {
        #[test]
        fn members_are_those_of_the_tree(object in prop::collection::btree_map("\\PC{0,4}|[\"\\\\\n]{1,3}", json(), 0..6), pretty: bool) {
            let object = Value::Object(object.into_iter().collect());
            let text = if pretty { serde_json::to_string_pretty(&object) } else { serde_json::to_string(&object) }.unwrap();
            let read: Map<String, Value> =
                members(text.as_bytes()).map(|(name, value)| (unescaped(name), parsed(value))).collect();
            prop_assert_eq!(Value::Object(read), object.clone());
            prop_assert_eq!(lean(text.as_bytes()), object.clone());
            prop_assert_eq!(Some(scalars(text.as_bytes())), without_lists(&object));
            let list: Value = object.as_object().into_iter().flatten().map(|(_, value)| value.clone()).collect();
            let text = if pretty { serde_json::to_string_pretty(&list) } else { serde_json::to_string(&list) }.unwrap();
            prop_assert_eq!(elements(text.as_bytes()).map(parsed).collect::<Value>(), list);
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(prop_oneof![Just(b'{'), Just(b'"'), Just(b'\\'), Just(b':'), Just(b']'), any::<u8>()], 0..40)) {
            let _ = (lean(&bytes), head(&bytes), labels(&bytes), scalars(&bytes), elements(&bytes).count());
        }
    }
}
