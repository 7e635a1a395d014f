//! What a value was before: elements of lists by their keys, and whether anything changed.

use crate::order::{self, Keyed};
use crate::schema::{ListType, Schema};
use serde_json::Value;
use std::collections::BTreeMap;

/// The elements of the list that was there before, by what makes an element the same: only associative lists correlate.
pub(in crate::schema) struct Correlation<'a> {
    keys: &'a [String],
    old: BTreeMap<Keyed<'a>, &'a Value>,
}

impl<'a> Correlation<'a> {
    pub fn new(list: &'a Schema, old: Option<&'a Value>) -> Self {
        let (ListType::Map(keys), Some(Value::Array(old))) = (&list.list_type, old) else {
            return Self { keys: &[], old: BTreeMap::new() };
        };
        Self { keys, old: order::first_of(old.iter().map(|item| (Keyed { keys, item }, item))) }
    }

    /// The element that corresponds to `item`.
    pub fn of(&self, item: &'a Value) -> Option<&'a Value> {
        if self.old.is_empty() {
            return None;
        }
        self.old.get(&Keyed { keys: self.keys, item }).copied()
    }
}

/// Whether a value is what it was; the order of associative lists does not matter.
pub(in crate::schema) fn unchanged(schema: &Schema, new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            new.len() == old.len()
                && new.iter().all(|(name, value)| {
                    old.get(name).is_some_and(|before| match schema.member(name) {
                        Some(member) => unchanged(member, value, before),
                        None => value == before,
                    })
                })
        }
        (Value::Array(items), Value::Array(before)) => {
            let (ListType::Map(_), Some(element)) = (&schema.list_type, &schema.items) else { return new == old };
            items.len() == before.len() && {
                let before = Correlation::new(schema, Some(old));
                items.iter().all(|item| before.of(item).is_some_and(|before| unchanged(element, item, before)))
            }
        }
        (new, old) => new == old,
    }
}
