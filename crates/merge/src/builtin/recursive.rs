//! What the schemas of definitions hold that no schema may: their type contains itself, so no `Schema` of it can be whole.

use super::{JSON_SCHEMA, Other, Shape, fields};
use serde_json::Value;

/// Drops what the type does not know from the schemas in an object of the type `name`, and returns the paths dropped.
pub fn prune_schemas(name: &str, value: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    // no other types have schemas in them
    if name.starts_with("io.k8s.apiextensions-apiserver.") {
        message(name, value, "", &mut dropped);
    }
    dropped
}

fn message(name: &str, value: &mut Value, path: &str, dropped: &mut Vec<String>) {
    let Some(members) = value.as_object_mut() else { return };
    let known = fields(name);
    let join = |member: &str| if path.is_empty() { member.to_owned() } else { format!("{path}.{member}") };
    if name == JSON_SCHEMA {
        members.retain(|member, _| {
            let is_known = known.iter().any(|field| field.name == *member);
            if !is_known {
                dropped.push(join(member));
            }
            is_known
        });
    }
    for field in known {
        if let Some(member) = members.get_mut(&field.name) {
            shape(&field.shape, member, &join(&field.name), dropped);
        }
    }
}

fn shape(kind: &Shape, value: &mut Value, path: &str, dropped: &mut Vec<String>) {
    match (kind, value) {
        (Shape::Message(name), value) => message(name, value, path, dropped),
        (Shape::SchemaOr(_), value) if value.is_object() => message(JSON_SCHEMA, value, path, dropped),
        (Shape::SchemaOr(Other::Array), Value::Array(elements)) => {
            for (i, element) in elements.iter_mut().enumerate() {
                message(JSON_SCHEMA, element, &format!("{path}[{i}]"), dropped);
            }
        }
        (Shape::List(items), Value::Array(elements)) => {
            for (i, element) in elements.iter_mut().enumerate() {
                shape(items, element, &format!("{path}[{i}]"), dropped);
            }
        }
        (Shape::Map(values), Value::Object(members)) => {
            for (name, member) in members {
                shape(values, member, &format!("{path}.{name}"), dropped);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn schemas_lose_what_no_schema_has_at_any_depth() {
        let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";
        let of = |schema: Value| json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
        let mut given = of(
            json!({"x": 1, "type": "object", "default": {"x": 1}, "properties": {"a": {"items": {"x": 1, "type": "string"}}},
            "additionalProperties": {"allOf": [{"x": 1}], "enum": [{"x": 1}]}}),
        );
        let at = "spec.versions[0].schema.openAPIV3Schema";
        let mut dropped = prune_schemas(name, &mut given);
        dropped.sort();
        let expected =
            ["additionalProperties.allOf[0].x", "properties.a.items.x", "x"].map(|path| format!("{at}.{path}"));
        assert_eq!(dropped, expected);
        let left =
            of(json!({"type": "object", "default": {"x": 1}, "properties": {"a": {"items": {"type": "string"}}},
            "additionalProperties": {"allOf": [{}], "enum": [{"x": 1}]}}));
        assert_eq!(given, left);
        assert!(prune_schemas("io.k8s.api.core.v1.Pod", &mut json!({"spec": {"x": 1}})).is_empty());
    }
}
