//! JSON to protobuf.

use super::*;

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
