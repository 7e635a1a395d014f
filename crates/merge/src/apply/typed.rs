//! Values seen through their schema, as server-side apply sees them (`structured-merge-diff/typed`): what is one value and
//! what is made of parts, how two values merge, and how they differ.

use crate::fields::{Element, FieldSet};
use crate::gotext;
use crate::schema::{ListType, Schema, Type};
use serde_json::{Map, Value};
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
    schema.kind == Type::Any && schema.properties.is_empty() && schema.additional.is_none() && schema.items.is_none()
}

/// What `schema` makes of `value`. A null takes the schema's own form; where the schema is open, it is an object.
fn shape(schema: &Schema, value: &Value) -> Shape {
    match schema.kind {
        Type::Object => Shape::Map { atomic: schema.atomic_map },
        Type::Array => Shape::List { atomic: schema.list_type == ListType::Atomic },
        Type::String | Type::Integer | Type::Number | Type::Boolean | Type::IntOrString => Shape::Scalar,
        Type::Any => match value {
            Value::Array(_) => Shape::List { atomic: schema.list_type == ListType::Atomic },
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

/// What identifies an element of a list that is not atomic.
fn identity(list: &Schema, item: &Value) -> Result<Element, String> {
    let ListType::Map(keys) = &list.list_type else {
        return match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            scalar => Ok(Element::Value(scalar.clone())),
        };
    };
    let members = match item {
        Value::Object(members) => members,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
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
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values \
             for any key fields)",
            names.join(" ")
        ));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Element::Key(found))
}

/// Whether `value` fits `schema`; elements with the same identity are faults unless `duplicates` are allowed.
pub(super) fn faults(schema: &Schema, value: &Value, duplicates: bool) -> Vec<Fault> {
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
                let Some(schema) = member(schema, name) else {
                    let fault = Fault::new("field not declared in schema".to_owned());
                    out.push(fault.under(&Element::Field(name.clone())));
                    break;
                };
                let below = faults(schema, value, duplicates);
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
                out.extend(faults(element(schema), item, duplicates).into_iter().map(|fault| fault.under(&step)));
            }
            out
        }
    }
}

fn scalar_fault(schema: &Schema, value: &Value) -> Option<String> {
    let got = |value: &Value| format!("&{{{}}}", gotext::plain(value));
    match (schema.kind, value) {
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

fn is_empty_collection(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// `applied` merged into `live`: leaves are `applied`'s, elements of associative lists take `applied`'s order where the
/// two share elements.
pub(super) fn merge(schema: &Schema, live: &Value, applied: &Value) -> Value {
    // A null has no form of its own: the other side's decides.
    let form = if applied.is_null() { live } else { applied };
    match (shape(schema, form), live, applied) {
        (Shape::Map { atomic: false }, Value::Object(_) | Value::Null, Value::Object(_) | Value::Null) => {
            if is_empty_collection(live) && is_empty_collection(applied) {
                return applied.clone();
            }
            let empty = Map::new();
            let ours = live.as_object().unwrap_or(&empty);
            let theirs = applied.as_object().unwrap_or(&empty);
            let mut out = Map::new();
            for (name, before) in ours {
                let value = match theirs.get(name) {
                    Some(change) => merge(member_or_open(schema, name), before, change),
                    None => before.clone(),
                };
                out.insert(name.clone(), value);
            }
            for (name, change) in theirs {
                if !ours.contains_key(name) {
                    out.insert(name.clone(), change.clone());
                }
            }
            Value::Object(out)
        }
        (Shape::List { atomic: false }, Value::Array(_) | Value::Null, Value::Array(_) | Value::Null) => {
            if is_empty_collection(live) && is_empty_collection(applied) {
                return applied.clone();
            }
            let none = Vec::new();
            let ours = live.as_array().unwrap_or(&none);
            let theirs = applied.as_array().unwrap_or(&none);
            Value::Array(merge_lists(schema, ours, theirs))
        }
        _ => applied.clone(),
    }
}

/// Merges two associative lists: the shared elements stand in `theirs`' order, the others keep their place among their
/// neighbours.
fn merge_lists(schema: &Schema, ours: &[Value], theirs: &[Value]) -> Vec<Value> {
    let index = |items: &[Value]| -> Vec<Option<Element>> { items.iter().map(|i| identity(schema, i).ok()).collect() };
    let (our_steps, their_steps) = (index(ours), index(theirs));
    // An element that `ours` holds twice cannot be merged with: it is replaced.
    let mut known: BTreeMap<&Element, Option<&Value>> = BTreeMap::new();
    for (item, step) in ours.iter().zip(&our_steps) {
        if let Some(step) = step {
            known.entry(step).and_modify(|slot| *slot = None).or_insert(Some(item));
        }
    }
    let wanted: BTreeMap<&Element, ()> = their_steps.iter().flatten().map(|step| (step, ())).collect();
    let mut shared = their_steps.iter().flatten().filter(|step| known.contains_key(step));
    let mut next_shared = shared.next();
    let mut done: BTreeMap<&Element, ()> = BTreeMap::new();
    let merged = |step: &Element, item: &Value| match known.get(step) {
        Some(Some(before)) => merge(element(schema), before, item),
        Some(None) | None => item.clone(),
    };
    let mut out = Vec::with_capacity(ours.len().max(theirs.len()));
    let (mut l, mut r) = (0, 0);
    while l < ours.len() || r < theirs.len() {
        let left = our_steps.get(l).and_then(Option::as_ref);
        let right = their_steps.get(r).and_then(Option::as_ref);
        if let (Some(left), Some(right)) = (left, right) {
            if left == right {
                done.insert(right, ());
                out.push(merged(right, &theirs[r]));
                l += 1;
                r += 1;
                next_shared = shared.next();
                continue;
            }
            if wanted.contains_key(left) && next_shared.is_some_and(|next| next != left) {
                // Shared, but another one comes first in `theirs`.
                l += 1;
                continue;
            }
        }
        if l < ours.len() {
            match left {
                Some(step) if !wanted.contains_key(step) => {
                    out.push(ours[l].clone());
                    l += 1;
                    continue;
                }
                None => {
                    out.push(ours[l].clone());
                    l += 1;
                    continue;
                }
                Some(step) if done.contains_key(step) => l += 1,
                Some(_) => {}
            }
        }
        if r < theirs.len() {
            match right {
                Some(step) => {
                    done.insert(step, ());
                    out.push(merged(step, &theirs[r]));
                    if next_shared == Some(step) {
                        next_shared = shared.next();
                    }
                }
                None => out.push(theirs[r].clone()),
            }
            r += 1;
        }
    }
    out
}

/// How two values differ, as sets of fields.
#[derive(Default)]
pub(super) struct Comparison {
    pub removed: FieldSet,
    pub modified: FieldSet,
    pub added: FieldSet,
}

/// What changed from `before` to `after`.
pub(super) fn compare(schema: &Schema, before: &Value, after: &Value) -> Comparison {
    let mut out = Comparison::default();
    compare_at(schema, Some(before), Some(after), &mut Vec::new(), &mut out);
    out
}

/// Compares one node; at least one side is there. Records the node itself where it came or went.
fn compare_at(
    schema: &Schema,
    before: Option<&Value>,
    after: Option<&Value>,
    path: &mut Vec<Element>,
    out: &mut Comparison,
) {
    let null = Value::Null;
    let (old, new) = (before.unwrap_or(&null), after.unwrap_or(&null));
    let leaf = |path: &[Element], out: &mut Comparison| match (before, after) {
        (None, Some(_)) => out.added.insert(path),
        (Some(_), None) => out.removed.insert(path),
        (Some(old), Some(new)) => {
            if !equal(old, new) {
                out.modified.insert(path);
            }
        }
        (None, None) => {}
    };
    let form = if new.is_null() { old } else { new };
    // Where the schema is open and the value changed its form, the node changed, and the parts of an object came or went.
    let same_form =
        old.is_null() || new.is_null() || (old.is_array() == new.is_array() && old.is_object() == new.is_object());
    if !same_form {
        leaf(path, out);
        for (side, is_old) in [(old, true), (new, false)] {
            for (name, value) in side.as_object().into_iter().flatten() {
                path.push(Element::Field(name.clone()));
                let (old, new) = if is_old { (Some(value), None) } else { (None, Some(value)) };
                compare_at(member_or_open(schema, name), old, new, path, out);
                path.pop();
            }
        }
        return;
    }
    match shape(schema, form) {
        Shape::Map { atomic: false } if !(is_empty_collection(old) && is_empty_collection(new)) => {
            let none = Map::new();
            let (old, new) = (old.as_object().unwrap_or(&none), new.as_object().unwrap_or(&none));
            let mut step = |name: &str, old: Option<&Value>, new: Option<&Value>, out: &mut Comparison| {
                path.push(Element::Field(name.to_owned()));
                compare_at(member_or_open(schema, name), old, new, path, out);
                path.pop();
            };
            for (name, value) in old {
                let other = new.get(name);
                if other != Some(value) {
                    step(name, Some(value), other, out);
                }
            }
            for (name, value) in new {
                if !old.contains_key(name) {
                    step(name, None, Some(value), out);
                }
            }
        }
        Shape::List { atomic: false } if !(is_empty_collection(old) && is_empty_collection(new)) => {
            compare_lists(schema, old, new, path, out);
        }
        Shape::Map { .. } | Shape::List { .. } | Shape::Scalar => {
            leaf(path, out);
            return;
        }
    }
    match (before, after) {
        (None, _) => out.added.insert(path),
        (_, None) => out.removed.insert(path),
        (Some(_), Some(_)) => {}
    }
}

fn compare_lists(schema: &Schema, old: &Value, new: &Value, path: &mut Vec<Element>, out: &mut Comparison) {
    let mut both: BTreeMap<Element, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in old.as_array().into_iter().flatten() {
        if let Ok(step) = identity(schema, item) {
            both.entry(step).or_default().0.push(item);
        }
    }
    for item in new.as_array().into_iter().flatten() {
        if let Ok(step) = identity(schema, item) {
            both.entry(step).or_default().1.push(item);
        }
    }
    for (step, (old, new)) in both {
        path.push(step);
        match (old.as_slice(), new.as_slice()) {
            ([] | [_], [] | [_]) => {
                let (old, new) = (old.first().copied(), new.first().copied());
                if old != new {
                    compare_at(element(schema), old, new, path, out);
                }
            }
            ([_, _, ..], [_, _, ..]) => {
                if old.len() != new.len() || !old.iter().zip(&new).all(|(a, b)| equal(a, b)) {
                    out.modified.insert(path);
                }
            }
            ([_, _, ..], _) => {
                if let Some(new) = new.first() {
                    compare_at(element(schema), None, Some(new), path, out);
                }
                out.removed.insert(path);
            }
            (_, [_, _, ..]) => {
                if let Some(old) = old.first() {
                    compare_at(element(schema), Some(old), None, path, out);
                }
                out.added.insert(path);
            }
        }
        path.pop();
    }
}

/// `value` without the fields in `gone`. What loses all that it had becomes null.
pub(super) fn remove(schema: &Schema, value: &Value, gone: &FieldSet) -> Value {
    if gone.is_empty() {
        return value.clone();
    }
    match (shape(schema, value), value) {
        (Shape::Scalar, _) => value.clone(),
        (Shape::Map { atomic: false }, Value::Object(members)) => {
            let mut left = Map::new();
            for (name, value) in members {
                match gone.node(&Element::Field(name.clone())) {
                    None => {
                        left.insert(name.clone(), value.clone());
                    }
                    Some(node) if node.member => {}
                    Some(node) => {
                        left.insert(name.clone(), remove(member_or_open(schema, name), value, &node.below));
                    }
                }
            }
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        (Shape::List { atomic: false }, Value::Array(items)) => {
            let mut left = Vec::with_capacity(items.len());
            for item in items {
                match identity(schema, item).ok().and_then(|step| gone.node(&step)) {
                    None => left.push(item.clone()),
                    Some(node) if node.member => {}
                    Some(node) => left.push(remove(element(schema), item, &node.below)),
                }
            }
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
        (Shape::Map { .. } | Shape::List { .. }, _) => Value::Null,
    }
}

/// `set` with every named field that it has something below as a member too: `a.b.c` makes `a` a member where `a` is a
/// property, but not where it is a key of a map.
pub(super) fn with_named_parents(schema: &Schema, set: &FieldSet) -> FieldSet {
    let mut out = FieldSet::default();
    for (step, node) in set.nodes() {
        let (named, below) = match step {
            Element::Field(name) => {
                let named = schema.properties.contains_key(name) && !node.below.is_empty();
                (named, member(schema, name))
            }
            Element::Key(_) => (false, schema.items.as_deref()),
            Element::Value(_) | Element::Index(_) => (false, None),
        };
        let below = with_named_parents(below.unwrap_or(&OPEN), &node.below);
        out.put(step.clone(), node.member || named, below);
    }
    out
}

/// Whether a set was written under an older schema, in which something now atomic was not.
pub(super) fn is_outdated(schema: &Schema, set: &FieldSet) -> bool {
    set.nodes().any(|(step, node)| {
        let schema = match step {
            Element::Field(name) => member(schema, name),
            Element::Key(_) | Element::Value(_) | Element::Index(_) => schema.items.as_deref(),
        };
        schema.is_some_and(|s| !node.below.is_empty() && (becomes_atomic(s) || is_outdated(s, &node.below)))
    })
}

/// A set written under an older schema, brought to what the schema says now: where a node has become atomic, its fields are
/// no longer owned, but the node is.
pub(super) fn reconcile(schema: &Schema, set: &FieldSet) -> FieldSet {
    let mut out = FieldSet::default();
    for (step, node) in set.nodes() {
        let schema = match step {
            Element::Field(name) => member(schema, name),
            Element::Key(_) | Element::Value(_) | Element::Index(_) => schema.items.as_deref(),
        };
        match schema {
            Some(schema) if !node.below.is_empty() && becomes_atomic(schema) => {
                out.put(step.clone(), true, FieldSet::default());
            }
            Some(schema) => out.put(step.clone(), node.member, reconcile(schema, &node.below)),
            None => out.put(step.clone(), node.member, node.below.clone()),
        }
    }
    out
}

fn becomes_atomic(schema: &Schema) -> bool {
    match schema.kind {
        Type::Object => schema.atomic_map,
        Type::Array => schema.list_type == ListType::Atomic,
        Type::Any | Type::String | Type::Integer | Type::Number | Type::Boolean | Type::IntOrString => false,
    }
}

/// Order of times as managed fields sort by them; absent ones come first.
pub(super) fn by_time(a: Option<i64>, b: Option<i64>) -> Ordering {
    a.unwrap_or(0).cmp(&b.unwrap_or(0))
}
