//! Values seen through their schema, as server-side apply sees them (`structured-merge-diff/typed`): what is one value and
//! what is made of parts, how two values merge, and how they differ.

mod compare;
mod merge;
mod sets;

use crate::fields::{Element, FieldSet};
use crate::gotext;
use crate::schema::{ListType, Schema, Type};
pub(super) use compare::compare;
pub(super) use merge::merge;
use serde_json::{Map, Value};
pub(super) use sets::{is_outdated, is_outdated_json, reconcile, remove, with_named_parents};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// What stands where the schema leaves everything open: objects are granular, lists atomic.
static OPEN: LazyLock<Arc<Schema>> =
    LazyLock::new(|| Arc::new(Schema { preserve_unknown: true, ..<Schema as Default>::default() }));

/// A type fault at a path (`.spec.args`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    path: String,
    message: String,
}

impl Fault {
    fn new(message: String) -> Self {
        Self { path: String::new(), message }
    }

    fn under(mut self, element: &Element) -> Self {
        self.path.insert_str(0, &element.text());
        self
    }
}

/// Faults as one text.
pub(super) fn fault_text(faults: &[Fault]) -> String {
    let one = |f: &Fault| if f.path.is_empty() { f.message.clone() } else { format!("{}: {}", f.path, f.message) };
    match faults {
        [fault] => one(fault),
        many => {
            let lines: Vec<String> = many.iter().map(|f| format!("  {}", one(f))).collect();
            format!("errors:\n{}", lines.join("\n"))
        }
    }
}

/// What a node is, given a value at it.
enum Shape {
    Map { atomic: bool },
    List { atomic: bool },
    Scalar,
}

fn is_open(schema: &Schema) -> bool {
    matches!(schema.kind, Type::Any | Type::IntOrString)
        && schema.properties.is_empty()
        && schema.additional.is_none()
        && schema.items.is_none()
}

/// What `schema` makes of `value`. A null takes the schema's own form; where the schema is open, it is an object.
fn shape(schema: &Schema, value: &Value) -> Shape {
    match schema.kind {
        Type::Object if schema.go == Some(crate::builtin::RAW) => match value {
            Value::Array(_) => Shape::List { atomic: true },
            Value::Object(_) | Value::Null => Shape::Map { atomic: true },
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Shape::Scalar,
        },
        Type::Object => Shape::Map { atomic: schema.atomic_map },
        Type::Array => Shape::List { atomic: schema.list_type == ListType::Atomic },
        Type::String | Type::Integer | Type::Number | Type::Boolean => Shape::Scalar,
        Type::IntOrString if schema.go == Some(crate::builtin::QUANTITY) => Shape::Scalar,
        // a schema without a type, as that of a number or text is: what the value is, decides
        Type::Any | Type::IntOrString => match value {
            Value::Array(_) => Shape::List { atomic: schema.list_type == ListType::Atomic },
            Value::Null if schema.kind == Type::IntOrString => Shape::Scalar,
            Value::Object(_) | Value::Null => Shape::Map { atomic: schema.atomic_map },
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Shape::Scalar,
        },
    }
}

/// The schema of a member; `None`: the schema does not know it.
fn member<'a>(schema: &'a Schema, name: &str) -> Option<&'a Schema> {
    match schema.member(name) {
        Some(known) => Some(known),
        None if schema.preserve_unknown || is_open(schema) => Some(&OPEN),
        None => None,
    }
}

fn element(schema: &Schema) -> &Schema {
    schema.items.as_ref().unwrap_or(&OPEN)
}

fn member_or_open<'a>(schema: &'a Schema, name: &str) -> &'a Schema {
    member(schema, name).unwrap_or(&OPEN)
}

/// Equal as JSON; numbers by value.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| equal(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(name, x)| y.get(name).is_some_and(|y| equal(x, y)))
        }
        (x, y) => x == y,
    }
}

/// Why an element of a list cannot be told from others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum IdentityError {
    #[error("associative list without keys has an element that's a map type")]
    Map,
    #[error("not supported: associative list with lists as elements")]
    List,
    #[error("associative list without keys has an element that's an explicit null")]
    Null,
    #[error("associative list with keys may not have a null element")]
    KeyedNull,
    #[error("associative list with keys may not have non-map elements")]
    KeyedScalar,
    #[error(
        "associative list with keys has an element that omits all key fields [{keys}] (and doesn't have default values \
         for any key fields)"
    )]
    NoKeys { keys: String },
}

/// What identifies an element of a list that is not atomic.
fn identity(list: &Schema, item: &Value) -> Result<Element, IdentityError> {
    let ListType::Map(keys) = &list.list_type else {
        return match item {
            Value::Object(_) => Err(IdentityError::Map),
            Value::Array(_) => Err(IdentityError::List),
            Value::Null => Err(IdentityError::Null),
            scalar => Ok(Element::Value(scalar.clone())),
        };
    };
    let members = match item {
        Value::Object(members) => members,
        Value::Null => return Err(IdentityError::KeyedNull),
        _ => return Err(IdentityError::KeyedScalar),
    };
    let mut found: Vec<(String, Value)> = Vec::with_capacity(keys.len());
    for key in keys {
        let value = members
            .get(key)
            .or_else(|| element(list).properties.get(key).and_then(|property| property.default.as_ref()));
        if let Some(value) = value {
            found.push((key.clone(), value.clone()));
        }
    }
    if found.is_empty() {
        let names: Vec<String> = keys.iter().map(|key| gotext::quoted(key)).collect();
        return Err(IdentityError::NoKeys { keys: names.join(" ") });
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Element::Key(found))
}

/// Whether `value` fits `schema`; elements with the same identity are faults unless `duplicates` are allowed.
pub(super) fn faults(schema: &Schema, value: &Value, duplicates: bool) -> Vec<Fault> {
    faults_at(schema, value, duplicates, false)
}

/// `open`: a node above keeps unknown fields, which to server-side apply holds for all that is below it but the metadata of
/// embedded objects.
fn faults_at(schema: &Schema, value: &Value, duplicates: bool, open: bool) -> Vec<Fault> {
    let open = open || schema.preserve_unknown;
    let wrong = |wanted: &str| vec![Fault::new(format!("expected {wanted}, got &{{{}}}", gotext::plain(value)))];
    match shape(schema, value) {
        Shape::Scalar => scalar_fault(schema, value).into_iter().map(Fault::new).collect(),
        Shape::Map { .. } => {
            let members = match value {
                Value::Object(members) => members,
                Value::Null => return Vec::new(),
                _ => return wrong("map"),
            };
            let mut out = Vec::new();
            for (name, value) in members {
                let open = open && !(schema.embedded && name == "metadata");
                let Some(schema) = member(schema, name).or(open.then_some(&**OPEN)) else {
                    let fault = Fault::new("field not declared in schema".to_owned());
                    out.push(fault.under(&Element::Field(name.clone())));
                    break;
                };
                let below = faults_at(schema, value, duplicates, open);
                if !below.is_empty() {
                    let step = Element::Field(name.clone());
                    out.extend(below.into_iter().map(|fault| fault.under(&step)));
                }
            }
            out
        }
        Shape::List { atomic } => {
            let items = match value {
                Value::Array(items) => items,
                Value::Null => return Vec::new(),
                _ => return wrong("list"),
            };
            let mut out = Vec::new();
            let mut seen: BTreeMap<Element, ()> = BTreeMap::new();
            for (i, item) in items.iter().enumerate() {
                let step = if atomic {
                    Element::Index(i)
                } else {
                    match identity(schema, item) {
                        Ok(step) => {
                            if seen.insert(step.clone(), ()).is_some() && !duplicates {
                                out.push(Fault::new(format!("duplicate entries for key {}", step.text())));
                            }
                            step
                        }
                        Err(why) => {
                            out.push(Fault::new(format!("element {i}: {why}")));
                            return out;
                        }
                    }
                };
                let below = faults_at(element(schema), item, duplicates, open);
                out.extend(below.into_iter().map(|fault| fault.under(&step)));
            }
            out
        }
    }
}

fn scalar_fault(schema: &Schema, value: &Value) -> Option<String> {
    let got = |value: &Value| format!("&{{{}}}", gotext::plain(value));
    // to server-side apply a text with a format is any scalar, but for bytes, and what is raw any value
    let format = schema.format.as_deref().unwrap_or_default();
    let any = schema.kind == Type::String && !matches!(format, "" | "byte") || schema.go == Some(crate::builtin::RAW);
    let kind = if any { Type::Any } else { schema.kind };
    match (kind, value) {
        (_, Value::Null)
        | (Type::Integer | Type::Number, Value::Number(_))
        | (Type::String, Value::String(_))
        | (Type::Boolean, Value::Bool(_))
        | (Type::IntOrString | Type::Any, Value::Number(_) | Value::String(_) | Value::Bool(_)) => None,
        (Type::Integer | Type::Number, other) => {
            Some(format!("expected numeric (int or float), got {}", gotext::type_name(other)))
        }
        (Type::String, other) => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", gotext::syntax(other)))
        }
        (Type::Boolean, other) => Some(format!("expected boolean, got {}", got(other))),
        (Type::IntOrString | Type::Any | Type::Object | Type::Array, other) => {
            Some(format!("expected any scalar, got {}", got(other)))
        }
    }
}

/// All fields that `value` mentions.
pub(super) fn field_set(schema: &Schema, value: &Value) -> FieldSet {
    set_at(schema, value).1
}

/// Whether the node itself is mentioned, and the fields below it.
fn set_at(schema: &Schema, value: &Value) -> (bool, FieldSet) {
    let mut out = FieldSet::default();
    match (shape(schema, value), value) {
        (Shape::Scalar | Shape::Map { atomic: true } | Shape::List { atomic: true }, _) => return (true, out),
        (Shape::Map { atomic: false }, Value::Object(members)) => {
            for (name, value) in members {
                let (mentioned, below) = set_at(member_or_open(schema, name), value);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                let named = schema.properties.contains_key(name);
                out.put(Element::Field(name.clone()), mentioned || empty || !named, below);
            }
        }
        (Shape::List { atomic: false }, Value::Array(items)) => {
            let mut counted: BTreeMap<Element, usize> = BTreeMap::new();
            let steps: Vec<Option<Element>> = items.iter().map(|item| identity(schema, item).ok()).collect();
            for step in steps.iter().flatten() {
                *counted.entry(step.clone()).or_default() += 1;
            }
            for (item, step) in items.iter().zip(steps) {
                let Some(step) = step else { continue };
                // Elements that share an identity are owned together, not by their fields.
                let below = if counted.get(&step).copied().unwrap_or_default() > 1 {
                    FieldSet::default()
                } else {
                    set_at(element(schema), item).1
                };
                out.put(step, true, below);
            }
        }
        (Shape::Map { .. } | Shape::List { .. }, _) => {}
    }
    (false, out)
}

/// The places of the lists, maps and objects in `value` that only change as a whole.
pub(super) fn atomics(schema: &Schema, value: &Value, place: &str, out: &mut Vec<String>) {
    match (shape(schema, value), value) {
        (Shape::Map { atomic }, Value::Object(members)) => {
            out.extend(atomic.then(|| place.to_owned()));
            for (name, value) in members.iter().filter(|(name, _)| schema.properties.contains_key(*name)) {
                let step = Element::Field(name.clone()).text();
                atomics(member_or_open(schema, name), value, &format!("{place}{step}"), out);
            }
        }
        (Shape::List { atomic }, Value::Array(items)) => {
            out.extend(atomic.then(|| place.to_owned()));
            for (i, item) in items.iter().enumerate() {
                atomics(element(schema), item, &format!("{place}{}", Element::Index(i).text()), out);
            }
        }
        _ => {}
    }
}

fn is_empty_collection(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Order of times as managed fields sort by them; absent ones come first.
pub(super) fn by_time(a: Option<i64>, b: Option<i64>) -> Ordering {
    a.unwrap_or(0).cmp(&b.unwrap_or(0))
}
