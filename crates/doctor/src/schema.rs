//! Compares two structural schemas: the fields of one that the other lacks.

use serde_json::Value;
use std::collections::BTreeSet;

/// The fields of `ours` that `theirs` lacks, by path (`spec.trainer.numNodes`, `spec.jobs[].name`); only the outermost ones.
pub(crate) fn lacking(ours: &Value, theirs: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    compare(ours, theirs, "", &mut found);
    found
}

fn compare(ours: &Value, theirs: &Value, path: &str, found: &mut BTreeSet<String>) {
    if theirs["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    for (name, field) in ours["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        // a free-form map accepts every name
        match theirs["properties"]
            .get(name)
            .or_else(|| Some(&theirs["additionalProperties"]).filter(|any| any.is_object()))
        {
            Some(theirs) => compare(field, theirs, &path, found),
            None => {
                found.insert(path);
            }
        }
    }
    for (inner, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if ours[inner].is_object() && theirs[inner].is_object() {
            compare(&ours[inner], &theirs[inner], &format!("{path}{mark}"), found);
        }
    }
}

/// The schema of a version of a CustomResourceDefinition; null if it has none.
pub(crate) fn of<'a>(definition: &'a Value, version: &str) -> &'a Value {
    let versions = definition["spec"]["versions"].as_array().map_or(&[][..], Vec::as_slice);
    let found = versions.iter().find(|held| held["name"] == version);
    found.map_or(&Value::Null, |held| &held["schema"]["openAPIV3Schema"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(properties: Value) -> Value {
        json!({"type": "object", "properties": properties})
    }

    #[test]
    fn missing_fields_are_named_by_path() {
        let text = || json!({"type": "string"});
        let ours = object(json!({
            "spec": object(json!({"a": text(), "new": object(json!({"inner": text()})),
                "list": {"type": "array", "items": object(json!({"x": text(), "y": text()}))},
                "map": {"type": "object", "additionalProperties": object(json!({"z": text()}))}})),
            "free": object(json!({"w": text()})),
        }));
        let theirs = object(json!({
            "spec": object(json!({"a": text(), "old": text(),
                "list": {"type": "array", "items": object(json!({"x": text()}))},
                "map": {"type": "object", "additionalProperties": object(json!({}))}})),
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }));
        let told: Vec<String> = lacking(&ours, &theirs).into_iter().collect();
        assert_eq!(told, ["spec.list[].y", "spec.map{}.z", "spec.new"]);
        let told: Vec<String> = lacking(&theirs, &ours).into_iter().collect();
        assert_eq!(told, ["spec.old"]);
        assert!(lacking(&ours, &ours).is_empty());
    }

    #[test]
    fn a_version_that_is_not_there_has_no_schema() {
        let definition =
            json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
        assert_eq!(of(&definition, "v1"), &json!({"type": "object"}));
        assert!(of(&definition, "v2").is_null());
    }
}
