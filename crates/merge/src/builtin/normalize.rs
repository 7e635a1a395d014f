//! Brings objects into the form in which Go writes Kubernetes' types.

use super::{Field, JSON_SCHEMA, Other, Shape, fields, zero};
use api::quantity::Quantity;
use serde_json::{Map, Value};

fn is_empty(shape: &Shape, value: &Value) -> bool {
    match (shape, value) {
        (_, Value::Null) => true,
        (Shape::String | Shape::Byte, Value::String(text)) => text.is_empty(),
        (Shape::Boolean, Value::Bool(set)) => !set,
        (Shape::Int32 | Shape::Int64 | Shape::Number, Value::Number(number)) => number.as_f64() == Some(0.0),
        (Shape::List(_), Value::Array(items)) => items.is_empty(),
        (Shape::Map(_), Value::Object(members)) => members.is_empty(),
        _ => false,
    }
}

/// Brings an object into the form in which Go writes it: empty members are gone where they may be left out, and those
/// that are always written are there (`status: {}`, `lastProbeTime: null`, `name: ""`).
pub fn normalize(name: &str, value: &mut Value) {
    let Value::Object(members) = value else { return };
    for field in fields(name) {
        normalize_field(field, members);
    }
}

fn normalize_field(field: &Field, members: &mut Map<String, Value>) {
    let shape = &field.shape;
    // Structs are never empty to Go's encoder.
    let structure = matches!(
        shape,
        Shape::Message(_) | Shape::Quantity | Shape::IntOrString | Shape::Time | Shape::MicroTime | Shape::Raw
    );
    let always = field.always || (structure && !field.pointer);
    let present = members.get(&field.name);
    let empty = present.is_none_or(|value| value.is_null() || (!field.pointer && is_empty(shape, value)));
    if empty {
        if field.name.is_empty() || field.omit_zero || !always {
            members.remove(&field.name);
            return;
        }
        let mut value = if field.pointer { Value::Null } else { zero(shape) };
        if let (Shape::Message(name), Value::Object(_)) = (shape, &value) {
            normalize(name, &mut value);
        }
        members.insert(field.name.clone(), value);
        return;
    }
    if let Some(value) = members.get_mut(&field.name) {
        normalize_shape(shape, value);
        if field.omit_zero && value.as_object().is_some_and(Map::is_empty) {
            members.remove(&field.name);
        }
    }
}

fn normalize_shape(shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Message(name), value) => normalize(name, value),
        (Shape::SchemaOr(_), value) if value.is_object() => normalize(JSON_SCHEMA, value),
        (Shape::SchemaOr(Other::Array), Value::Array(elements)) => {
            elements.iter_mut().for_each(|element| normalize(JSON_SCHEMA, element));
        }
        (Shape::List(items), Value::Array(elements)) => {
            for element in elements {
                normalize_shape(items, element);
            }
        }
        (Shape::Map(values), Value::Object(members)) => {
            for member in members.values_mut() {
                normalize_shape(values, member);
            }
        }
        _ => {}
    }
}

/// Adds what Go would write of members that an object does not have, and writes quantities as Go does. What was given stays.
pub fn write_out(name: &str, value: &mut Value) {
    let Value::Object(members) = value else { return };
    for field in fields(name) {
        match members.get_mut(&field.name) {
            Some(given) => write_out_shape(&field.shape, given),
            None => {
                // an empty object gets what is always written of its type, and nothing else
                normalize_field(field, members);
            }
        }
    }
}

fn write_out_shape(shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Message(name), value) => write_out(name, value),
        (Shape::Quantity, value) => {
            if let Ok(quantity) = Quantity::from_json(value) {
                *value = quantity.to_string().into();
            }
        }
        (Shape::List(items), Value::Array(elements)) => {
            elements.iter_mut().for_each(|element| write_out_shape(items, element));
        }
        (Shape::Map(values), Value::Object(members)) => {
            members.values_mut().for_each(|member| write_out_shape(values, member));
        }
        _ => {}
    }
}

/// Beginnings of names in JSON, and how many of their characters are an abbreviation.
const ABBREVIATIONS: [(&str, usize); 2] = [("gmsa", 4), ("seLinux", 2)];

/// An object as Go shows the type by which Kubernetes works with it itself, which has no names for JSON: all fields, in their order, under
/// the names that they have in Go (`{"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}`).
pub fn as_internal(name: &str, value: &Value) -> String {
    let members: Vec<String> = fields(name)
        .iter()
        .map(|field| {
            let mut go = field.name.clone();
            // Go writes abbreviations in capitals
            let capitals =
                ABBREVIATIONS.iter().find(|(start, _)| go.starts_with(start)).map_or(1, |(_, length)| *length);
            if let Some(first) = go.get_mut(..capitals) {
                first.make_ascii_uppercase();
            }
            let absent = match field.shape {
                Shape::IntOrString => zero(&field.shape),
                _ if field.pointer => Value::Null,
                _ => zero(&field.shape),
            };
            let member = value.get(&field.name).filter(|member| !member.is_null()).unwrap_or(&absent);
            format!("\"{go}\":{}", shape_as_internal(&field.shape, member))
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

fn shape_as_internal(shape: &Shape, value: &Value) -> String {
    match (shape, value) {
        (Shape::Message(name), Value::Object(_)) => as_internal(name, value),
        (Shape::List(items), Value::Array(elements)) => {
            let elements: Vec<String> = elements.iter().map(|element| shape_as_internal(items, element)).collect();
            format!("[{}]", elements.join(","))
        }
        _ => value.to_string(),
    }
}
