//! A patch as messages show it. Upstream takes out of a patch what it has dealt with while it merges, so that is what is left of it.

use super::{DELETE_FROM_LIST, DIRECTIVE, RETAIN_KEYS, SET_ELEMENT_ORDER, UNKNOWN, child};
use crate::gotext;
use crate::schema::Schema;
use serde_json::{Map, Value};

/// What is left of a patch once it has been merged into `doc`, as Go prints it.
pub fn shown(doc: &Value, patch: &Value, schema: &Schema) -> String {
    gotext::plain(&match (doc, patch) {
        (Value::Object(there), Value::Object(patch)) => left_of_object(there, patch, schema),
        (_, other) => other.clone(),
    })
}

/// Of an object that was merged with one that is there: its directives, and the lists that `$setElementOrder` orders, are gone.
fn left_of_object(there: &Map<String, Value>, patch: &Map<String, Value>, schema: &Schema) -> Value {
    if let Some(directive) = patch.get(DIRECTIVE) {
        let mut left = patch.clone();
        if directive == "replace" {
            left.remove(DIRECTIVE);
        }
        return left.into();
    }
    let ordered: Vec<&str> =
        patch.keys().filter_map(|name| name.strip_prefix(SET_ELEMENT_ORDER)?.strip_prefix('/')).collect();
    let is_left = |name: &str| name != RETAIN_KEYS && !name.starts_with(SET_ELEMENT_ORDER) && !ordered.contains(&name);
    let left = patch.iter().filter(|(name, _)| is_left(name)).map(|(name, value)| {
        let left = match value {
            Value::Null => Value::Null,
            list if name.starts_with(DELETE_FROM_LIST) => list.clone(),
            value => left_of_field(there.get(name), value, child(schema, name)),
        };
        (name.clone(), left)
    });
    Value::Object(left.collect())
}

fn left_of_field(there: Option<&Value>, value: &Value, schema: &Schema) -> Value {
    match (there, value) {
        (Some(Value::Object(_)), Value::Object(_)) if schema.patch.replace => value.clone(),
        (Some(Value::Object(there)), Value::Object(value)) => left_of_object(there, value, schema),
        (Some(Value::Array(there)), Value::Array(items)) => {
            let key = schema.patch.merge_key.as_deref().filter(|_| schema.patch.merge);
            let element = schema.items.as_ref().map_or(&*UNKNOWN, |items| items);
            let same = |item: &Map<String, Value>| {
                let id = item.get(key?).filter(|_| !item.contains_key(DIRECTIVE))?;
                there.iter().filter_map(Value::as_object).find(|other| other.get(key.unwrap_or_default()) == Some(id))
            };
            let left = |item: &Value| match item.as_object().and_then(|item| Some((same(item)?, item))) {
                Some((there, item)) => left_of_object(there, item, element),
                None => item.clone(),
            };
            Value::Array(items.iter().map(left).collect())
        }
        (_, Value::Array(items)) => Value::Array(items.iter().map(taken_over).collect()),
        (_, value) => taken_over(value),
    }
}

/// Of a value that there was nothing to merge with: nulls are gone, and below it directives, with what they are in.
fn taken_over(value: &Value) -> Value {
    fn without_nulls(value: &Value) -> Value {
        match value {
            Value::Object(members) => members
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name.clone(), without_nulls(value)))
                .collect::<Map<_, _>>()
                .into(),
            Value::Array(items) => items.iter().map(without_nulls).collect(),
            scalar => scalar.clone(),
        }
    }
    fn without_directives(value: Value) -> Value {
        match value {
            Value::Object(members) if !members.contains_key(DIRECTIVE) => members
                .into_iter()
                .filter(|(_, value)| value.get(DIRECTIVE).is_none())
                .map(|(name, value)| (name, without_directives(value)))
                .collect::<Map<_, _>>()
                .into(),
            Value::Array(items) => {
                items.into_iter().filter(|item| item.get(DIRECTIVE).is_none()).map(without_directives).collect()
            }
            other => other,
        }
    }
    without_directives(without_nulls(value))
}
