//! Sets of fields against values and schemas: what is taken away, and sets that a changed schema has made out of date.

use super::*;

/// `value` without the fields in `gone`. What loses all that it had becomes null.
pub(in crate::apply) fn remove(schema: &Schema, value: &Value, gone: &FieldSet) -> Value {
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
pub(in crate::apply) fn with_named_parents(schema: &Schema, set: &FieldSet) -> FieldSet {
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
pub(in crate::apply) fn is_outdated(schema: &Schema, set: &FieldSet) -> bool {
    set.nodes().any(|(step, node)| {
        let schema = match step {
            Element::Field(name) => member(schema, name),
            Element::Key(_) | Element::Value(_) | Element::Index(_) => schema.items.as_deref(),
        };
        schema.is_some_and(|s| !node.below.is_empty() && (becomes_atomic(s) || is_outdated(s, &node.below)))
    })
}

/// As [`is_outdated`], of a set as [`FieldSet::to_json`] has written it.
pub(in crate::apply) fn is_outdated_json(schema: &Schema, set: &Value) -> bool {
    set.as_object().into_iter().flatten().any(|(step, below)| {
        let schema = match step.strip_prefix("f:") {
            Some(name) => member(schema, name),
            None => schema.items.as_deref(),
        };
        let is_above = below.as_object().is_some_and(|below| below.keys().any(|step| step != "."));
        is_above && schema.is_some_and(|s| becomes_atomic(s) || is_outdated_json(s, below))
    })
}

/// A set written under an older schema, brought to what the schema says now: where a node has become atomic, its fields are
/// no longer owned, but the node is.
pub(in crate::apply) fn reconcile(schema: &Schema, set: &FieldSet) -> FieldSet {
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
