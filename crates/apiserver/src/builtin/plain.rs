//! Kinds without rules of their own, and the table row that serves them.

use crate::resource::Strategy;
use jiff::Timestamp;
use serde_json::{Value, json};

/// A kind that is only kept: name and time of creation are its table row.
pub struct Plain;

impl Strategy for Plain {
    fn row(&self, object: &Value, _now: Timestamp) -> Vec<Value> {
        name_and_time(object)
    }

    fn generation_changed(&self, _new: &Value, _old: &Value) -> Option<bool> {
        None
    }
}

/// Cells of a kind without columns of its own.
pub fn name_and_time(object: &Value) -> Vec<Value> {
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    vec![json!(metadata["name"]), json!(metadata["creationTimestamp"])]
}
