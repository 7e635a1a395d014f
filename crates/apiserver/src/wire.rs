//! Encodes objects as bytes, with the order of members that Go's encoders produce.
//!
//! Built-in kinds begin with `kind`, `apiVersion`, `metadata`, and their metadata has the order of `ObjectMeta`; custom
//! resources have their keys sorted throughout.

use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::{Codec, Revision};

const TOP: [&str; 3] = ["kind", "apiVersion", "metadata"];
const META: [&str; 14] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
];
const MANAGED: [&str; 7] = ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"];

/// Appends `value` in compact JSON.
pub fn write(out: &mut Vec<u8>, value: &Value, custom: bool) {
    match value.as_object() {
        Some(map) if !custom => {
            ordered(out, map, &TOP, |out, key, value| match (key, value) {
                ("metadata", Value::Object(meta)) => ordered(out, meta, &META, |out, key, value| match (key, value) {
                    ("managedFields", Value::Array(entries)) => {
                        out.push(b'[');
                        for (i, entry) in entries.iter().enumerate() {
                            if i > 0 {
                                out.push(b',');
                            }
                            match entry.as_object() {
                                Some(entry) => ordered(out, entry, &MANAGED, |out, _, value| plain(out, value)),
                                None => plain(out, entry),
                            }
                        }
                        out.push(b']');
                    }
                    (_, value) => plain(out, value),
                }),
                (_, value) => plain(out, value),
            });
        }
        _ => plain(out, value),
    }
}

/// The members of a `Status` of a success, in Go's order.
pub const STATUS: [&str; 12] = [
    "name",
    "group",
    "kind",
    "uid",
    "apiVersion",
    "metadata",
    "status",
    "message",
    "reason",
    "details",
    "retryAfterSeconds",
    "code",
];

/// A document that the server makes itself, in compact JSON: members of all its objects have this order, others come after them.
pub fn in_order(value: &Value, order: &[&str]) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    write_in_order(&mut out, value, order);
    out
}

fn write_in_order(out: &mut Vec<u8>, value: &Value, order: &[&str]) {
    match value {
        Value::Object(map) => ordered(out, map, order, |out, _, value| write_in_order(out, value, order)),
        Value::Array(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_in_order(out, item, order);
            }
            out.push(b']');
        }
        _ => plain(out, value),
    }
}

/// `{...}` with the keys of `first` in front and the others after them.
fn ordered(
    out: &mut Vec<u8>,
    map: &Map<String, Value>,
    first: &[&str],
    mut member: impl FnMut(&mut Vec<u8>, &str, &Value),
) {
    out.push(b'{');
    let mut comma = false;
    let front = first.iter().filter_map(|key| map.get_key_value(*key));
    let rest = map.iter().filter(|(key, _)| !first.contains(&key.as_str()));
    for (key, value) in front.chain(rest) {
        if comma {
            out.push(b',');
        }
        comma = true;
        string(out, key);
        out.push(b':');
        member(out, key, value);
    }
    out.push(b'}');
}

fn plain(out: &mut Vec<u8>, value: &Value) {
    // Writing JSON values to memory cannot fail: keys are strings and the writer takes everything.
    serde_json::to_writer(out, value).expect("invariant: a JSON value serialises");
}

fn string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("invariant: a string serialises");
}

/// The object in compact JSON, with no newline at the end.
pub fn to_vec(value: &Value, custom: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    write(&mut out, value, custom);
    out
}

/// Compact JSON as `?pretty=1` shows it: indented by two spaces, no newline at the end.
pub fn pretty(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compact.len() * 2);
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    let newline = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', depth * 2));
    };
    for (i, &byte) in compact.iter().enumerate() {
        if quoted {
            out.push(byte);
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => {
                quoted = true;
                out.push(byte);
            }
            b'{' | b'[' => {
                out.push(byte);
                if !matches!(compact.get(i + 1), Some(b'}' | b']')) {
                    depth += 1;
                    newline(&mut out, depth);
                }
            }
            b'}' | b']' => {
                if !matches!(i.checked_sub(1).and_then(|j| compact.get(j)), Some(b'{' | b'[')) {
                    depth = depth.saturating_sub(1);
                    newline(&mut out, depth);
                }
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                newline(&mut out, depth);
            }
            b':' => out.extend(b": "),
            b'\n' | b' ' => {}
            _ => out.push(byte),
        }
    }
    out
}

/// How the server keeps objects in the store.
pub struct ObjectCodec {
    /// Buckets of built-in kinds.
    builtin: BTreeSet<Arc<str>>,
}

impl ObjectCodec {
    pub fn new(builtin: impl IntoIterator<Item = Arc<str>>) -> Self {
        Self { builtin: builtin.into_iter().collect() }
    }
}

impl Codec for ObjectCodec {
    fn stamp(&self, value: &mut Value, revision: Revision) {
        if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.insert("resourceVersion".to_owned(), revision.to_string().into());
        }
    }

    fn encode(&self, bucket: &str, value: &Value) -> Vec<u8> {
        to_vec(value, !self.builtin.contains(bucket))
    }

    fn stays(&self, bucket: &str) -> bool {
        const GROUPS: [&str; 2] = ["admissionregistration.k8s.io", "rbac.authorization.k8s.io"];
        const CORE: [&str; 3] = ["limitranges", "namespaces", "resourcequotas"];
        bucket
            .split_once('/')
            .is_some_and(|(group, plural)| GROUPS.contains(&group) || (group.is_empty() && CORE.contains(&plural)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn trees_of_few_and_small_objects_stay() {
        let codec = ObjectCodec::new([]);
        for bucket in ["/namespaces", "rbac.authorization.k8s.io/clusterroles"] {
            assert!(codec.stays(bucket), "{bucket}");
        }
        // definitions are large, and what they serve is not read from them
        for bucket in ["/pods", "apps/namespaces", "apiextensions.k8s.io/customresourcedefinitions"] {
            assert!(!codec.stays(bucket), "{bucket}");
        }
    }

    #[test]
    fn documents_have_their_own_order() {
        let status = json!({"apiVersion": "v1", "details": {"group": "g", "kind": "k", "name": "n", "uid": "u"},
            "kind": "Status", "metadata": {}, "more": [{"b": 1, "uid": 2, "name": 3}], "status": "Success"});
        let expected = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":"#.to_owned()
            + r#"{"name":"n","group":"g","kind":"k","uid":"u"},"more":[{"name":3,"uid":2,"b":1}]}"#;
        assert_eq!(String::from_utf8(in_order(&status, &STATUS)).unwrap(), expected);
    }

    #[test]
    fn built_ins_lead_with_their_kind() {
        let object = json!({"apiVersion": "v1", "data": {"b": "1", "a": "{,}"}, "kind": "ConfigMap",
            "metadata": {"labels": {}, "name": "a", "uid": "u"}});
        let text = |v: Vec<u8>| String::from_utf8(v).unwrap();
        assert!(text(to_vec(&object, false)).starts_with(
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","uid":"u","labels":{}},"data":{"#
        ));
        assert!(text(to_vec(&object, true)).starts_with(r#"{"apiVersion":"v1","data":"#));
        assert_eq!(
            text(pretty(br#"{"a":{},"b":[1,"x:,\""]}"#)),
            "{\n  \"a\": {},\n  \"b\": [\n    1,\n    \"x:,\\\"\"\n  ]\n}"
        );
    }
}
