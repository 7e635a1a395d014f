//! Pruning (`k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning`): what the schema does not know is dropped.

use super::{Schema, Type};
use serde_json::{Map, Number, Value};

/// The paths dropped, by where upstream drops them.
#[derive(Default)]
struct Dropped {
    /// In the object's own metadata, while it is decoded.
    own_metadata: Vec<String>,
    body: Vec<String>,
    /// In the metadata of embedded objects, which are coerced last.
    embedded_metadata: Vec<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Body,
    OwnMetadata,
    EmbeddedMetadata,
}

struct Walk {
    path: String,
    place: Place,
    dropped: Dropped,
    /// Whole numbers with a fraction stay the floats as which they were sent.
    as_sent: bool,
}

impl Schema {
    /// Drops what the schema does not know and returns the paths dropped (`spec.foo`, `spec.list[0].bar`) in the order in
    /// which the API server warns of them.
    ///
    /// Whole numbers written with a fraction (`2.0`) become integers where integers are wanted or nothing is said, as they
    /// do on their way through Go's JSON encoder.
    pub fn prune(&self, value: &mut Value) -> Vec<String> {
        self.pruned(value, false)
    }

    /// As [`Self::prune`], of a custom object that somebody has sent: its numbers are those of the text until it is [`written`], and
    /// differ from the integers that are stored.
    pub fn prune_sent(&self, value: &mut Value) -> Vec<String> {
        self.pruned(value, true)
    }

    fn pruned(&self, value: &mut Value, as_sent: bool) -> Vec<String> {
        let mut walk = Walk { path: String::new(), place: Place::Body, dropped: Dropped::default(), as_sent };
        walk.prune(value, self);
        let Dropped { own_metadata, body, embedded_metadata } = walk.dropped;
        let mut all = Vec::new();
        for mut part in [own_metadata, body, embedded_metadata] {
            part.sort();
            all.append(&mut part);
        }
        all
    }
}

/// An integer beyond 64 bits with a sign is a float to Go's JSON decoder.
fn narrow(number: &mut Number) {
    if !number.is_i64()
        && let Some(float) = number.as_f64().and_then(Number::from_f64)
    {
        *number = float;
    }
}

/// `2.0` becomes `2`: Go prints floats below 1e21 without exponent, whole ones without a fraction.
pub(super) fn normalize_number(number: &mut Number) {
    const SAFE: f64 = 9_007_199_254_740_992.0;
    if let Some(float) = number.as_f64()
        && number.is_f64()
        && float.fract() == 0.0
        && float.abs() <= SAFE
    {
        #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53")]
        let whole = float as i64;
        *number = whole.into();
    }
}

impl Walk {
    fn prune(&mut self, value: &mut Value, schema: &Schema) {
        match value {
            Value::Object(members) => self.prune_object(members, schema),
            Value::Array(items) => {
                let unknown = <Schema as Default>::default();
                let skip = schema.preserve_unknown;
                let element = match &schema.items {
                    Some(element) => element,
                    None => &unknown,
                };
                for (i, item) in items.iter_mut().enumerate() {
                    let length = self.path.len();
                    self.path += &format!("[{i}]");
                    if skip {
                        self.keep(item, schema.items.as_deref());
                    } else {
                        self.prune(item, element);
                    }
                    self.path.truncate(length);
                }
            }
            Value::Number(number) => {
                narrow(number);
                // Elsewhere a float is compared, or refused, as the float that it is.
                if !self.as_sent && matches!(schema.kind, Type::Integer | Type::IntOrString | Type::Any) {
                    normalize_number(number);
                }
            }
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }

    /// Members that the schema knows are pruned; of the others, none is kept unless the node preserves them.
    fn prune_object(&mut self, members: &mut Map<String, Value>, schema: &Schema) {
        let mut unknown = Vec::new();
        for (name, member) in members.iter_mut() {
            let Some(known) = schema.member(name) else {
                if schema.preserve_unknown {
                    self.unknown(member);
                } else {
                    unknown.push(name.clone());
                }
                continue;
            };
            let place = self.place;
            if place == Place::Body && name == "metadata" {
                if self.path.is_empty() {
                    self.place = Place::OwnMetadata;
                } else if schema.embedded {
                    self.place = Place::EmbeddedMetadata;
                }
            }
            let length = self.descend(name);
            self.prune(member, known);
            self.path.truncate(length);
            self.place = place;
        }
        for name in unknown {
            members.remove(&name);
            let length = self.descend(&name);
            let path = self.path.clone();
            self.path.truncate(length);
            match self.place {
                Place::Body => self.dropped.body.push(path),
                Place::OwnMetadata => self.dropped.own_metadata.push(path),
                Place::EmbeddedMetadata => self.dropped.embedded_metadata.push(path),
            }
        }
    }

    /// Below a node that preserves unknown fields, elements of lists keep everything that no property names either.
    fn keep(&mut self, value: &mut Value, schema: Option<&Schema>) {
        match (value, schema) {
            (Value::Object(members), Some(schema)) => {
                for (name, member) in members.iter_mut() {
                    match schema.member(name) {
                        Some(known) => {
                            let length = self.descend(name);
                            self.prune(member, known);
                            self.path.truncate(length);
                        }
                        None => self.unknown(member),
                    }
                }
            }
            (Value::Array(items), Some(schema)) => {
                for (i, item) in items.iter_mut().enumerate() {
                    let length = self.path.len();
                    self.path += &format!("[{i}]");
                    self.keep(item, schema.items.as_deref());
                    self.path.truncate(length);
                }
            }
            (value, _) => self.unknown(value),
        }
    }

    /// What the schema says nothing of.
    fn unknown(&self, value: &mut Value) {
        if !self.as_sent {
            normalize(value);
        }
    }

    /// Appends a member to the path; returns the length to go back to.
    fn descend(&mut self, name: &str) -> usize {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path += name;
        length
    }
}

/// Brings the numbers of an object into the form in which Go writes them: whole ones have no fraction (`2.0`). What is sent is
/// judged as it was sent, and read as integers once it is stored.
pub fn written(object: &mut Value) {
    normalize(object);
}

fn normalize(value: &mut Value) {
    match value {
        Value::Number(number) => {
            narrow(number);
            normalize_number(number);
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        Value::Object(members) => members.values_mut().for_each(normalize),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::Schema;
    use serde_json::json;

    #[test]
    fn drops_what_is_unknown() {
        let schema = Schema::from_openapi(&json!({"type":"object","properties":{"spec":{"type":"object","properties":{
            "x":{"type":"integer"},
            "open":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{
                "closed":{"type":"object","properties":{"a":{"type":"integer"}}}}},
            "map":{"type":"object","additionalProperties":{"type":"object","properties":{"a":{"type":"integer"}}}},
            "list":{"type":"array","items":{"type":"object","properties":{"a":{"type":"integer"}}}},
            "any":{"x-kubernetes-preserve-unknown-fields":true},
            "emb":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{
                "spec":{"type":"object","properties":{"a":{"type":"integer"}}}}}
        }}}}))
        .expect("a schema");
        let mut value = json!({
            "apiVersion":"g/v1","kind":"W","metadata":{"name":"w","colour":"red"},"other":1,
            "spec":{"x":2.0,"y":2,"open":{"z":{"deep":[1]},"closed":{"a":1,"b":2}},"map":{"k":{"a":1,"b":2}},
                "list":[{"a":1,"b":2}],"any":[9_223_372_036_854_775_808_u64,"a",{"b":null}],
                "emb":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"q","bogus":1},"spec":{"a":1,"b":2},"x":1}}
        });
        let dropped = schema.prune(&mut value);
        let expected = [
            "metadata.colour",
            "other",
            "spec.emb.spec.b",
            "spec.emb.x",
            "spec.list[0].b",
            "spec.map.k.b",
            "spec.open.closed.b",
            "spec.y",
            "spec.emb.metadata.bogus",
        ];
        assert_eq!(dropped, expected);
        assert_eq!(
            value,
            json!({
                "apiVersion":"g/v1","kind":"W","metadata":{"name":"w"},
                "spec":{"x":2,"open":{"z":{"deep":[1]},"closed":{"a":1}},"map":{"k":{"a":1}},
                    "list":[{"a":1}],"any":[9_223_372_036_854_775_808_f64,"a",{"b":null}],
                    "emb":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"q"},"spec":{"a":1}}}
            })
        );
    }
}
