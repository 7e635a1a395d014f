//! The rules of custom resources.

use crate::resource::{Context, Strategy};
use merge::apply::Ignored;
use serde_json::{Map, Value};

pub(crate) struct CustomStrategy {
    pub(crate) has_status: bool,
}

fn without<'a>(object: &'a Value, skipped: &'a [&str]) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.as_object().into_iter().flatten().filter(move |(key, _)| !skipped.contains(&key.as_str()))
}

fn set(map: &mut Map<String, Value>, key: &str, value: Option<&Value>) {
    match value {
        Some(value) => map.insert(key.to_owned(), value.clone()),
        None => map.remove(key),
    };
}

impl Strategy for CustomStrategy {
    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        if self.has_status
            && let Some(map) = new.as_object_mut()
        {
            map.remove("status");
        }
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        if self.has_status
            && let Some(map) = new.as_object_mut()
        {
            set(map, "status", old.get("status"));
        }
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, subresource: &str, new: &mut Value, old: &Value) {
        if subresource != "status" {
            return;
        }
        // Only the status is taken, and who manages it.
        let mut result = old.clone();
        if let Some(map) = result.as_object_mut() {
            set(map, "status", new.get("status"));
            if let Some(meta) = map.get_mut("metadata").and_then(Value::as_object_mut) {
                set(meta, "managedFields", new["metadata"].get("managedFields"));
            }
        }
        *new = result;
    }

    fn generation_changed(&self, new: &Value, old: &Value) -> Option<bool> {
        let skipped: &[&str] = if self.has_status { &["metadata", "status"] } else { &["metadata"] };
        Some(!without(new, skipped).eq(without(old, skipped)))
    }

    fn unconditional_update(&self) -> bool {
        false
    }

    fn ignored(&self, subresource: &str) -> Ignored {
        match (self.has_status, subresource) {
            (true, "") => Ignored::paths(&["status"]),
            (true, "status") => Ignored::all_but(&["status"]),
            _ => Ignored::Nothing,
        }
    }
}
