//! The table row of kinds without columns of their own.

use serde_json::{Value, json};

/// Cells of a kind without columns of its own.
pub fn name_and_time(object: &Value) -> Vec<Value> {
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    vec![json!(metadata["name"]), json!(metadata["creationTimestamp"])]
}
