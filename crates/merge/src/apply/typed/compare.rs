//! How two values differ.

use super::*;

/// How two values differ, as sets of fields.
#[derive(Default)]
pub(in crate::apply) struct Comparison {
    pub removed: FieldSet,
    pub modified: FieldSet,
    pub added: FieldSet,
}

/// What changed from `before` to `after`, managed fields left out: they are what this is for.
pub(in crate::apply) fn compare(schema: &Schema, before: &Value, after: &Value) -> Comparison {
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
            let is_meta = matches!(path.as_slice(), [Element::Field(parent)] if parent == "metadata");
            let mut step = |name: &str, old: Option<&Value>, new: Option<&Value>, out: &mut Comparison| {
                if is_meta && name == "managedFields" {
                    return;
                }
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
