//! Protobuf to JSON.

use super::*;

/// What is wrong with the bytes of an object, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    #[error("no kind \"{kind}\" is registered for version \"{api_version}\"")]
    Unregistered { api_version: String, kind: String },
    #[error("a string is not UTF-8")]
    NoText,
    #[error("unexpected EOF")]
    End,
    #[error("proto: integer overflow")]
    Overflow,
    #[error("proto: illegal tag")]
    Tag,
    #[error("proto: illegal wireType {0}")]
    WireType(u64),
    #[error("proto: wrong wireType for a field")]
    Field,
    #[error("the message is nested too deeply")]
    Depth,
    /// A time, or JSON within.
    #[error("{why}")]
    Value { why: String },
}

fn decode_schema_or(other: Other, content: &[u8], depth: usize) -> Result<Value, ProtobufError> {
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
pub fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(ProtobufError::NoPrefix)?;
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
    let unknown = || ProtobufError::Unregistered { api_version: api_version.clone(), kind: kind.clone() };
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

fn utf8(content: &[u8]) -> Result<String, ProtobufError> {
    String::from_utf8(content.to_vec()).map_err(|_| ProtobufError::NoText)
}

fn read_varint(input: &mut &[u8]) -> Result<u64, ProtobufError> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = input.split_first().ok_or(ProtobufError::End)?;
        *input = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(ProtobufError::Overflow)
}

fn take<'a>(input: &mut &'a [u8], count: u64) -> Result<&'a [u8], ProtobufError> {
    let count = usize::try_from(count).map_err(|_| ProtobufError::End)?;
    if count > input.len() {
        return Err(ProtobufError::End);
    }
    let (taken, rest) = input.split_at(count);
    *input = rest;
    Ok(taken)
}

/// Calls `visit` with each field of a message.
fn each<'a>(
    mut input: &'a [u8],
    mut visit: impl FnMut(u32, Wire<'a>) -> Result<(), ProtobufError>,
) -> Result<(), ProtobufError> {
    while !input.is_empty() {
        let tag = read_varint(&mut input)?;
        let number = u32::try_from(tag >> 3).map_err(|_| ProtobufError::Tag)?;
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
            other => return Err(ProtobufError::WireType(other)),
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
fn decode_message(name: &str, content: &[u8], depth: usize) -> Result<Map<String, Value>, ProtobufError> {
    if depth == 0 {
        return Err(ProtobufError::Depth);
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

fn map_value(shape: &Shape, wire: Wire<'_>, depth: usize) -> Result<Value, ProtobufError> {
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

fn value(shape: &Shape, wire: Wire<'_>, depth: usize) -> Result<Value, ProtobufError> {
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
            let at = Timestamp::new(seconds, nanos).map_err(|error| ProtobufError::Value { why: error.to_string() })?;
            let format = if *shape == Shape::Time { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S.%6fZ" };
            at.strftime(format).to_string().into()
        }
        (Shape::Raw | Shape::Fields | Shape::Any, Wire::Bytes(content)) => {
            let text = text_field(content, 1)?;
            if text.is_empty() {
                Value::Null
            } else {
                serde_json::from_str(&text).map_err(|error| ProtobufError::Value { why: error.to_string() })?
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
        ) => return Err(ProtobufError::Field),
    })
}

fn text_field(content: &[u8], wanted: u32) -> Result<String, ProtobufError> {
    let mut text = String::new();
    each(content, |number, wire| {
        if let (true, Wire::Bytes(value)) = (number == wanted, wire) {
            text = utf8(value)?;
        }
        Ok(())
    })?;
    Ok(text)
}
