//! Kubernetes' protobuf: an envelope (`k8s\0`, then `runtime.Unknown`) around one message of a built-in kind.
//!
//! Typed Go clients (kubectl from 1.32 on, Helm 4, controller-runtime) send it without a way back to JSON. The messages
//! are described by the table of types (`merge::builtin`): field numbers there are Kubernetes' own. Both directions go
//! through the JSON form, which is what the server works on.

use api::object::Gvk;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use merge::builtin::{Field, JSON_SCHEMA, Other, Shape, facts, type_name};
use serde_json::{Map, Value, json};

const MAGIC: &[u8] = b"k8s\0";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
/// Messages inside messages; the deepest built-in type has some twenty.
const DEPTH_MAX: usize = 100;

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

/// Objects of which only the metadata is shown. The table of facts leaves the type out, for nothing is stored as one.
const PARTIAL: &str = "PartialObjectMetadata";

/// The table's name of what `apiVersion` and `kind` say; for lists, of their items.
enum Named {
    One(String),
    ListOf(String),
}

fn named(api_version: &str, kind: &str) -> Option<Named> {
    let group = Gvk::from_api_version(api_version, kind).group;
    let meta = format!("{META}.{kind}");
    if let Some(name) = type_name(&group, kind) {
        return Some(Named::One(name.to_owned()));
    }
    if matches!(kind, "Status" | "DeleteOptions") && facts(&meta).is_some() {
        return Some(Named::One(meta));
    }
    let item = kind.strip_suffix("List")?;
    Some(Named::ListOf(type_name(&group, item)?.to_owned()))
}

/// An object or list as protobuf, `None` where its kind has no protobuf form (custom resources, tables).
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = (api::object::text(object, "apiVersion"), api::object::text(object, "kind"));
    let members = object.as_object()?;
    let mut raw = Vec::new();
    let names = match (api_version, kind) {
        ("meta.k8s.io/v1" | "meta.k8s.io/v1beta1", "PartialObjectMetadata") => Named::One(PARTIAL.to_owned()),
        ("meta.k8s.io/v1" | "meta.k8s.io/v1beta1", "PartialObjectMetadataList") => Named::ListOf(PARTIAL.to_owned()),
        _ => named(api_version, kind)?,
    };
    match names {
        Named::One(name) => message(&mut raw, &name, members)?,
        Named::ListOf(name) => {
            if let Some(meta) = object.get("metadata").and_then(Value::as_object) {
                let mut inner = Vec::new();
                message(&mut inner, &format!("{META}.ListMeta"), meta)?;
                bytes(&mut raw, 1, &inner);
            }
            for item in object.get("items").and_then(Value::as_array).into_iter().flatten() {
                let mut inner = Vec::new();
                message(&mut inner, &name, item.as_object()?)?;
                bytes(&mut raw, 2, &inner);
            }
        }
    }
    let mut type_meta = Vec::new();
    bytes(&mut type_meta, 1, api_version.as_bytes());
    bytes(&mut type_meta, 2, kind.as_bytes());
    let mut out = MAGIC.to_vec();
    bytes(&mut out, 1, &type_meta);
    bytes(&mut out, 2, &raw);
    bytes(&mut out, 3, b"");
    bytes(&mut out, 4, b"");
    Some(out)
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number as u8 & 0x7f) | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(crate) fn bytes(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    varint(out, u64::from(number) << 3 | BYTES);
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

pub(crate) fn integer(out: &mut Vec<u8>, number: u32, value: i64) {
    varint(out, u64::from(number) << 3 | VARINT);
    // two's complement of 64 bits, also for int32
    varint(out, value.cast_unsigned());
}

/// Appends the fields of a message; `None` where a value does not fit its field.
fn message(out: &mut Vec<u8>, name: &str, members: &Map<String, Value>) -> Option<()> {
    if name == PARTIAL {
        let meta = members.get("metadata").and_then(Value::as_object);
        let mut inner = Vec::new();
        if let Some(meta) = meta {
            message(&mut inner, &format!("{META}.ObjectMeta"), meta)?;
        }
        bytes(out, 1, &inner);
        return Some(());
    }
    for field in &facts(name)?.fields {
        match (&field.shape, field.number) {
            (Shape::Message(inner), Some(number)) if field.inline => {
                let mut content = Vec::new();
                message(&mut content, inner, members)?;
                bytes(out, number, &content);
            }
            (Shape::Message(inner), None) if field.inline => message(out, inner, members)?,
            (shape, Some(number)) => match members.get(&field.name) {
                None | Some(Value::Null) => {}
                Some(value) => one(out, number, shape, value)?,
            },
            (_, None) => {}
        }
    }
    Some(())
}

/// Appends one field, or all elements of a repeated one.
fn one(out: &mut Vec<u8>, number: u32, shape: &Shape, value: &Value) -> Option<()> {
    match shape {
        Shape::String => bytes(out, number, value.as_str()?.as_bytes()),
        Shape::Boolean => integer(out, number, i64::from(value.as_bool()?)),
        Shape::Int32 | Shape::Int64 => integer(out, number, value.as_i64()?),
        Shape::Number => {
            varint(out, u64::from(number) << 3 | FIXED64);
            out.extend_from_slice(&value.as_f64()?.to_le_bytes());
        }
        Shape::Byte => bytes(out, number, &STANDARD.decode(value.as_str()?).ok()?),
        Shape::Quantity => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let mut inner = Vec::new();
            bytes(&mut inner, 1, text.as_bytes());
            bytes(out, number, &inner);
        }
        Shape::IntOrString => {
            let mut inner = Vec::new();
            match value {
                Value::String(text) => {
                    integer(&mut inner, 1, 1);
                    bytes(&mut inner, 3, text.as_bytes());
                }
                other => {
                    integer(&mut inner, 1, 0);
                    integer(&mut inner, 2, other.as_i64()?);
                }
            }
            bytes(out, number, &inner);
        }
        Shape::Time | Shape::MicroTime => {
            let at: Timestamp = value.as_str()?.parse().ok()?;
            let mut inner = Vec::new();
            integer(&mut inner, 1, at.as_second());
            integer(&mut inner, 2, i64::from(at.subsec_nanosecond()));
            bytes(out, number, &inner);
        }
        Shape::Raw | Shape::Fields | Shape::Any => {
            let mut inner = Vec::new();
            bytes(&mut inner, 1, value.to_string().as_bytes());
            bytes(out, number, &inner);
        }
        Shape::SchemaOr(other) => {
            let mut inner = Vec::new();
            schema_or(&mut inner, *other, value)?;
            bytes(out, number, &inner);
        }
        Shape::List(element) => {
            for item in value.as_array()? {
                one(out, number, element, item)?;
            }
        }
        Shape::Map(element) => {
            for (key, item) in value.as_object()? {
                let mut entry = Vec::new();
                bytes(&mut entry, 1, key.as_bytes());
                match &**element {
                    // a list cannot be a map's value in protobuf: it is wrapped (`ExtraValue`)
                    Shape::List(_) => {
                        let mut wrapped = Vec::new();
                        one(&mut wrapped, 1, element, item)?;
                        bytes(&mut entry, 2, &wrapped);
                    }
                    element => one(&mut entry, 2, element, item)?,
                }
                bytes(out, number, &entry);
            }
        }
        Shape::Message(name) => {
            let mut inner = Vec::new();
            message(&mut inner, name, value.as_object()?)?;
            bytes(out, number, &inner);
        }
    }
    Some(())
}

/// A schema of a CRD, or what stands in its place: a message with a field for each.
fn schema_or(out: &mut Vec<u8>, other: Other, value: &Value) -> Option<()> {
    let schema = Shape::Message(JSON_SCHEMA.to_owned());
    match (other, value) {
        (Other::Bool, Value::Bool(allowed)) => integer(out, 1, i64::from(*allowed)),
        (Other::Bool, schema_value) => {
            integer(out, 1, 1);
            one(out, 2, &schema, schema_value)?;
        }
        (Other::Array, list @ Value::Array(_)) => one(out, 2, &Shape::List(Box::new(schema)), list)?,
        (Other::Strings, list @ Value::Array(_)) => one(out, 2, &Shape::List(Box::new(Shape::String)), list)?,
        (_, schema_value) => one(out, 1, &schema, schema_value)?,
    }
    Some(())
}

fn decode_schema_or(other: Other, content: &[u8], depth: usize) -> Result<Value, String> {
    let (mut schema, mut list, mut allowed) = (None, Vec::new(), false);
    each(content, |number, wire| {
        match (other, number, wire) {
            (Other::Bool, 1, Wire::Number(truth)) => allowed = truth != 0,
            (Other::Bool, 2, Wire::Bytes(inner)) | (_, 1, Wire::Bytes(inner)) => {
                schema = Some(Value::Object(decode_message(JSON_SCHEMA, inner, depth - 1)?));
            }
            (Other::Array, 2, Wire::Bytes(inner)) => {
                list.push(Value::Object(decode_message(JSON_SCHEMA, inner, depth - 1)?));
            }
            (Other::Strings, 2, Wire::Bytes(text)) => list.push(utf8(text)?.into()),
            _ => {}
        }
        Ok(())
    })?;
    Ok(match (schema, other) {
        (Some(schema), _) => schema,
        (None, Other::Bool) => allowed.into(),
        (None, Other::Array | Other::Strings) => list.into(),
    })
}

/// An object from protobuf, as the JSON that the same client would have sent.
///
/// # Errors
/// What is wrong with the bytes, for a 400.
pub fn decode(body: &[u8]) -> Result<Value, String> {
    let envelope = body
        .strip_prefix(MAGIC)
        .ok_or("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), Vec::new());
    each(envelope, |number, value| {
        match (number, value) {
            (1, Wire::Bytes(type_meta)) => each(type_meta, |number, value| {
                match (number, value) {
                    (1, Wire::Bytes(text)) => api_version = utf8(text)?,
                    (2, Wire::Bytes(text)) => kind = utf8(text)?,
                    _ => {}
                }
                Ok(())
            })?,
            (2, Wire::Bytes(content)) => raw = content.to_vec(),
            _ => {}
        }
        Ok(())
    })?;
    let unknown = || format!("no kind \"{kind}\" is registered for version \"{api_version}\"");
    let mut object = match named(&api_version, &kind).ok_or_else(unknown)? {
        Named::One(name) => decode_message(&name, &raw, DEPTH_MAX)?,
        Named::ListOf(name) => {
            let mut items = Vec::new();
            let mut members = Map::new();
            each(&raw, |number, value| {
                match (number, value) {
                    (1, Wire::Bytes(meta)) => {
                        let meta = decode_message(&format!("{META}.ListMeta"), meta, DEPTH_MAX)?;
                        members.insert("metadata".to_owned(), Value::Object(meta));
                    }
                    (2, Wire::Bytes(item)) => items.push(Value::Object(decode_message(&name, item, DEPTH_MAX)?)),
                    _ => {}
                }
                Ok(())
            })?;
            members.insert("items".to_owned(), items.into());
            members
        }
    };
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

/// A field as it is on the wire.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn utf8(content: &[u8]) -> Result<String, String> {
    String::from_utf8(content.to_vec()).map_err(|_| "a string is not UTF-8".to_owned())
}

fn read_varint(input: &mut &[u8]) -> Result<u64, String> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = input.split_first().ok_or("unexpected EOF")?;
        *input = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err("proto: integer overflow".to_owned())
}

fn take<'a>(input: &mut &'a [u8], count: u64) -> Result<&'a [u8], String> {
    let count = usize::try_from(count).map_err(|_| "unexpected EOF")?;
    if count > input.len() {
        return Err("unexpected EOF".to_owned());
    }
    let (taken, rest) = input.split_at(count);
    *input = rest;
    Ok(taken)
}

/// Calls `visit` with each field of a message.
fn each<'a>(mut input: &'a [u8], mut visit: impl FnMut(u32, Wire<'a>) -> Result<(), String>) -> Result<(), String> {
    while !input.is_empty() {
        let tag = read_varint(&mut input)?;
        let number = u32::try_from(tag >> 3).map_err(|_| "proto: illegal tag")?;
        let value = match tag & 7 {
            VARINT => Wire::Number(read_varint(&mut input)?),
            FIXED64 => {
                let content = take(&mut input, 8)?;
                Wire::Number(u64::from_le_bytes(content.try_into().expect("invariant: eight bytes were taken")))
            }
            BYTES => {
                let length = read_varint(&mut input)?;
                Wire::Bytes(take(&mut input, length)?)
            }
            FIXED32 => {
                let content = take(&mut input, 4)?;
                let number = u32::from_le_bytes(content.try_into().expect("invariant: four bytes were taken"));
                Wire::Number(u64::from(number))
            }
            other => return Err(format!("proto: illegal wireType {other}")),
        };
        visit(number, value)?;
    }
    Ok(())
}

/// Where a field number leads in a message: a field of its own, or an inlined message.
fn by_number(name: &str, number: u32) -> Option<&'static Field> {
    facts(name)?.fields.iter().find(|field| field.number == Some(number))
}

/// The members of a message. What JSON would leave out (empty values of fields that are no pointers) is left out.
fn decode_message(name: &str, content: &[u8], depth: usize) -> Result<Map<String, Value>, String> {
    if depth == 0 {
        return Err("the message is nested too deeply".to_owned());
    }
    let mut members = Map::new();
    each(content, |number, wire| {
        let Some(field) = by_number(name, number) else { return Ok(()) };
        match (&field.shape, wire) {
            (Shape::Message(inner), Wire::Bytes(content)) if field.inline => {
                members.extend(decode_message(inner, content, depth - 1)?);
            }
            (Shape::List(element), wire) => {
                let list = members.entry(field.name.clone()).or_insert_with(|| json!([]));
                let list = list.as_array_mut().expect("invariant: made as a list");
                match (&**element, wire) {
                    // packed, as proto3 encoders may write numbers
                    (Shape::Int32 | Shape::Int64, Wire::Bytes(mut packed)) => {
                        while !packed.is_empty() {
                            list.push(read_varint(&mut packed)?.cast_signed().into());
                        }
                    }
                    (element, wire) => list.push(value(element, wire, depth)?),
                }
            }
            (Shape::Map(element), Wire::Bytes(entry)) => {
                let (mut key, mut item) = (String::new(), None);
                each(entry, |number, wire| {
                    match (number, wire) {
                        (1, Wire::Bytes(text)) => key = utf8(text)?,
                        (2, wire) => item = Some(map_value(element, wire, depth)?),
                        _ => {}
                    }
                    Ok(())
                })?;
                let item = item.unwrap_or_else(|| empty(element));
                members.entry(field.name.clone()).or_insert_with(|| json!({}))[&key] = item;
            }
            (shape, wire) => {
                let value = value(shape, wire, depth)?;
                let is_empty = match &value {
                    Value::Null => true,
                    Value::Bool(truth) => !truth,
                    Value::Number(number) => number.as_f64() == Some(0.0),
                    Value::String(text) => text.is_empty(),
                    Value::Array(list) => list.is_empty(),
                    Value::Object(members) => members.is_empty(),
                };
                if !is_empty || (field.pointer && !value.is_null()) || (field.always && !value.is_object()) {
                    members.insert(field.name.clone(), value);
                }
            }
        }
        Ok(())
    })?;
    Ok(members)
}

fn map_value(shape: &Shape, wire: Wire<'_>, depth: usize) -> Result<Value, String> {
    match (shape, wire) {
        (Shape::List(element), Wire::Bytes(wrapped)) => {
            let mut list = Vec::new();
            each(wrapped, |number, wire| {
                if number == 1 {
                    list.push(value(element, wire, depth)?);
                }
                Ok(())
            })?;
            Ok(list.into())
        }
        (shape, wire) => value(shape, wire, depth),
    }
}

/// The value of a map's entry that says none.
fn empty(shape: &Shape) -> Value {
    match shape {
        Shape::String | Shape::Byte | Shape::Quantity => "".into(),
        Shape::Boolean => false.into(),
        Shape::Int32 | Shape::Int64 | Shape::Number | Shape::IntOrString => 0.into(),
        Shape::List(_) => json!([]),
        Shape::Map(_) | Shape::Message(_) => json!({}),
        Shape::Time | Shape::MicroTime | Shape::Raw | Shape::Fields | Shape::Any | Shape::SchemaOr(_) => Value::Null,
    }
}

fn value(shape: &Shape, wire: Wire<'_>, depth: usize) -> Result<Value, String> {
    Ok(match (shape, wire) {
        (Shape::String, Wire::Bytes(text)) => utf8(text)?.into(),
        (Shape::Boolean, Wire::Number(number)) => (number != 0).into(),
        (Shape::Int32 | Shape::Int64, Wire::Number(number)) => number.cast_signed().into(),
        (Shape::Number, Wire::Number(bits)) => f64::from_bits(bits).into(),
        (Shape::Byte, Wire::Bytes(content)) => STANDARD.encode(content).into(),
        (Shape::Quantity, Wire::Bytes(content)) => text_field(content, 1)?.into(),
        (Shape::IntOrString, Wire::Bytes(content)) => {
            let (mut is_text, mut number, mut text) = (false, 0, String::new());
            each(content, |field, wire| {
                match (field, wire) {
                    (1, Wire::Number(kind)) => is_text = kind == 1,
                    (2, Wire::Number(value)) => number = value.cast_signed(),
                    (3, Wire::Bytes(value)) => text = utf8(value)?,
                    _ => {}
                }
                Ok(())
            })?;
            if is_text { text.into() } else { number.into() }
        }
        (Shape::Time | Shape::MicroTime, Wire::Bytes(content)) => {
            let (mut seconds, mut nanos) = (None, 0);
            each(content, |field, wire| {
                match (field, wire) {
                    (1, Wire::Number(value)) => seconds = Some(value.cast_signed()),
                    (2, Wire::Number(value)) => nanos = i32::try_from(value).unwrap_or(0),
                    _ => {}
                }
                Ok(())
            })?;
            let Some(seconds) = seconds else { return Ok(Value::Null) };
            let at = Timestamp::new(seconds, nanos).map_err(|error| error.to_string())?;
            let format = if *shape == Shape::Time { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S.%6fZ" };
            at.strftime(format).to_string().into()
        }
        (Shape::Raw | Shape::Fields | Shape::Any, Wire::Bytes(content)) => {
            let text = text_field(content, 1)?;
            if text.is_empty() {
                Value::Null
            } else {
                serde_json::from_str(&text).map_err(|error| error.to_string())?
            }
        }
        (Shape::Message(name), Wire::Bytes(content)) => Value::Object(decode_message(name, content, depth - 1)?),
        (Shape::SchemaOr(other), Wire::Bytes(content)) => decode_schema_or(*other, content, depth)?,
        (
            Shape::List(_)
            | Shape::Map(_)
            | Shape::String
            | Shape::Boolean
            | Shape::Int32
            | Shape::Int64
            | Shape::Number
            | Shape::Byte
            | Shape::Quantity
            | Shape::IntOrString
            | Shape::Time
            | Shape::MicroTime
            | Shape::Raw
            | Shape::SchemaOr(_)
            | Shape::Fields
            | Shape::Any
            | Shape::Message(_),
            _,
        ) => return Err("proto: wrong wireType for a field".to_owned()),
    })
}

fn text_field(content: &[u8], wanted: u32) -> Result<String, String> {
    let mut text = String::new();
    each(content, |number, wire| {
        if let (true, Wire::Bytes(value)) = (number == wanted, wire) {
            text = utf8(value)?;
        }
        Ok(())
    })?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What kubectl 1.33 sends for `create configmap a --from-literal=k=v --from-literal=m=n`.
    #[test]
    fn reads_what_kubectl_sends() {
        let body = "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEjcKJQoBYRIAGhRhcGktcHJvdG9idWYta3ViZWN0bCIAKgAyADgAQgASBgoBaxIBdhIGCgFtEgFuGgAiAA==";
        let object = decode(&STANDARD.decode(body).unwrap()).unwrap();
        let expected = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "api-protobuf-kubectl"}, "data": {"k": "v", "m": "n"}});
        assert_eq!(object, expected);
    }

    #[test]
    fn comes_back_as_it_went() {
        let objects = [
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"},
                "creationTimestamp": "2026-01-02T03:04:05Z"},
                "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}],
                    "resources": {"limits": {"cpu": "500m"}}, "livenessProbe": {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 5}}],
                    "volumes": [{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x", "optional": false}}],
                    "terminationGracePeriodSeconds": 0, "hostNetwork": true}}),
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "c"},
            "spec": {"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "additionalProperties": false, "properties": {
                    "a": {"type": "array", "items": {"type": "integer", "minimum": 1.5, "default": 3}, "maxItems": 4},
                    "b": {"type": "object", "additionalProperties": {"type": "string", "enum": ["x", null, {"y": 1}]}},
                    "c": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"not": {"type": "string"}}]},
                    "d": {"x-kubernetes-validations": [{"rule": "self > 1", "message": "m"}],
                        "x-kubernetes-preserve-unknown-fields": true, "dependencies": {"e": ["f"], "g": {"type": "null"}}}
                }}}}]}}),
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
                "spec": {"holderIdentity": "me", "renewTime": "2026-01-02T03:04:05.000006Z", "leaseTransitions": 0}}),
            json!({"apiVersion": "v1", "kind": "SecretList", "metadata": {"resourceVersion": "7"},
                "items": [{"metadata": {"name": "s"}, "data": {"k": "AP8="}, "type": "Opaque"}]}),
        ];
        for object in objects {
            assert_eq!(decode(&encode(&object).unwrap()).unwrap(), object);
        }
    }

    #[test]
    fn broken_bytes_are_refused() {
        let good = encode(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})).unwrap();
        for body in [&b"{}"[..], b"k8s\0\xff\xff\xff", &good[..good.len() - 9]] {
            assert!(decode(body).is_err(), "{body:?}");
        }
        assert_eq!(encode(&json!({"apiVersion": "example.com/v1", "kind": "Custom", "metadata": {}})), None);
    }
}
