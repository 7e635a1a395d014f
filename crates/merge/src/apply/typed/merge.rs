//! How an applied value merges into a live one.

use super::*;

/// `applied` merged into `live`: leaves are `applied`'s, elements of associative lists take `applied`'s order where the
/// two share elements.
pub(in crate::apply) fn merge(schema: &Schema, live: &Value, applied: &Value) -> Value {
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
