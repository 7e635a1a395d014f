//! The Scale of an object: a view of three of its fields.

use super::{Served, internal};
use resource::jsonpath;
use resource::status::Status;
use serde_json::{Value, json};

/// A field of a Scale, or of the paths of one.
pub(crate) fn text<'a>(scale: &'a Value, field: &str) -> &'a str {
    scale.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The Scale of an object. `writing`: one that names no replicas has none yet, which the write may set.
///
/// # Errors
/// An object without replicas, when it is read.
pub(crate) fn view(served: &Served, object: &Value, paths: &Value, writing: bool) -> Result<Value, Status> {
    let number = |field: &str| jsonpath::simple(object, text(paths, field)).and_then(Value::as_i64);
    // A write may be what sets them.
    let Some(replicas) = number("specReplicasPath").or(writing.then_some(0)) else {
        let path = text(paths, "specReplicasPath");
        return Err(internal(format!("the spec replicas field \"{path}\" does not exist")));
    };
    let mut meta = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            meta[field] = value.clone();
        }
    }
    let mut status = json!({"replicas": number("statusReplicasPath").unwrap_or(0)});
    if let Some(selector) = paths.get("labelSelectorPath").and_then(Value::as_str)
        && let Some(Value::String(found)) = jsonpath::simple(object, selector)
        && !found.is_empty()
    {
        status["selector"] = found.clone().into();
    }
    let scaled = served.resource.facts.scale.map(|pods| pods(object)).unwrap_or_default();
    if !scaled.is_empty() {
        status["selector"] = scaled.into();
    }
    // none is what an absent number means
    let spec = if replicas == 0 { json!({}) } else { json!({"replicas": replicas}) };
    Ok(json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": spec, "status": status}))
}
