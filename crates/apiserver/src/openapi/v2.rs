//! The document of OpenAPI 2 that kubectl up to 1.28 asks for, made from those of version 3, and its protobuf form
//! (`openapi.v2.Document` of gnostic), which is the only one that those read.

use crate::protobuf::{bytes, integer};
use serde_json::{Map, Value, json};

/// The media type that clients ask for, and the one that upstream answers with.
pub(crate) const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
pub(crate) const PROTOBUF_ANSWER: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// One document out of those of all groups and versions.
pub(super) fn document(parts: impl Iterator<Item = Value>) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for part in parts {
        for (path, item) in part["paths"].as_object().into_iter().flatten() {
            let operations = item.as_object().into_iter().flatten();
            let operations = operations.map(|(verb, operation)| (verb.clone(), self::operation(operation)));
            paths.insert(path.clone(), Value::Object(operations.collect()));
        }
        for (name, part) in part["components"]["schemas"].as_object().into_iter().flatten() {
            let is_custom = !name.starts_with("io.k8s.");
            definitions
                .entry(name.clone())
                .or_insert_with(|| if is_custom { schema(&published(part)) } else { schema(part) });
        }
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": paths,
        "definitions": definitions,
    })
}

fn operation(new: &Value) -> Value {
    let mut old = Map::new();
    for (name, value) in new.as_object().into_iter().flatten() {
        let value = match name.as_str() {
            "requestBody" => continue,
            // clients of this version look for these alone
            "parameters" => {
                value.as_array().into_iter().flatten().filter(|one| one["in"] == "query").map(parameter).collect()
            }
            "responses" => {
                let response = |(code, response): (&String, &Value)| {
                    // one body, whatever its media type
                    let content = response["content"].as_object().and_then(|content| content.values().next());
                    let shape = content.map_or_else(|| json!({}), |content| schema(&content["schema"]));
                    (code.clone(), json!({"description": response["description"], "schema": shape}))
                };
                Value::Object(value.as_object().into_iter().flatten().map(response).collect())
            }
            _ => value.clone(),
        };
        old.insert(name.clone(), value);
    }
    Value::Object(old)
}

fn parameter(new: &Value) -> Value {
    let (name, description) = (&new["name"], &new["description"]);
    json!({"name": name, "in": new["in"], "description": description, "type": new["schema"]["type"], "uniqueItems": true})
}

/// A schema in the words of version 2, which knows neither alternatives nor anything beside a reference.
fn schema(new: &Value) -> Value {
    let Value::Object(members) = new else { return json!({}) };
    let referred = |value: &Value| {
        let name = value["$ref"].as_str()?.strip_prefix("#/components/schemas/")?;
        Some(format!("#/definitions/{name}"))
    };
    let alone = members.get("allOf").and_then(Value::as_array).and_then(|all| match all.as_slice() {
        [only] => referred(only),
        _ => None,
    });
    if let Some(reference) = referred(new).or(alone) {
        let mut old = json!({"$ref": reference});
        if let Some(description) = members.get("description") {
            old["description"] = description.clone();
        }
        return old;
    }
    let any_type = members.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
    let mut old = Map::new();
    for (name, value) in members {
        let value = match name.as_str() {
            "allOf" | "anyOf" | "oneOf" | "not" | "nullable" => continue,
            "type" if any_type => continue,
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                Value::Object(properties.map(|(name, value)| (name.clone(), schema(value))).collect())
            }
            "items" | "additionalProperties" if value.is_object() => schema(value),
            _ => value.clone(),
        };
        old.insert(name.clone(), value);
    }
    Value::Object(old)
}

/// What is told of a custom kind (`apiextensions-apiserver/pkg/controller/openapi/v2`): nothing of what may be null or may hold what nobody
/// knows, as kubectl would refuse that.
fn published(new: &Value) -> Value {
    let Value::Object(members) = new else { return new.clone() };
    let is = |schema: &Value, member: &str| schema.get(member) == Some(&Value::Bool(true));
    let (nullable, open) = (is(new, "nullable"), is(new, "x-kubernetes-preserve-unknown-fields"));
    let mut old = Map::new();
    if open && is_root(new) {
        old.insert("type".to_owned(), "object".into());
        for name in [GVK, super::SELECTABLE] {
            old.extend(members.get(name).map(|value| (name.to_owned(), value.clone())));
        }
        return Value::Object(old);
    }
    for (name, value) in members {
        let value = match name.as_str() {
            "default" | "nullable" => continue,
            "type" if nullable || (open && value == "object") => continue,
            "items" | "properties" if nullable || open => continue,
            "type" if value == "array" && !new["items"].is_object() => continue,
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                Value::Object(properties.map(|(name, value)| (name.clone(), published(value))).collect())
            }
            "items" | "additionalProperties" => published(value),
            "required" => {
                let of_value = is(&new["additionalProperties"], "nullable");
                let of_embedded = |field: &str| open && matches!(field, "apiVersion" | "kind");
                let stays = |field: &&Value| {
                    let field = field.as_str().unwrap_or_default();
                    !of_value && !of_embedded(field) && !is(&new["properties"][field], "nullable")
                };
                let required: Vec<Value> = value.as_array().into_iter().flatten().filter(stays).cloned().collect();
                if required.is_empty() {
                    continue;
                }
                required.into()
            }
            _ => value.clone(),
        };
        old.insert(name.clone(), value);
    }
    Value::Object(old)
}

/// Which kinds an object may be of: only the root of a schema says so.
const GVK: &str = "x-kubernetes-group-version-kind";

fn is_root(schema: &Value) -> bool {
    schema.get(GVK).is_some()
}

/// The document as a protobuf message. Numbers are those of gnostic's `OpenAPIv2.proto`; what kubectl does not read (bounds of
/// numbers and lengths, examples) is left out.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    text(&mut out, 1, &document["swagger"]);
    nested(&mut out, 2, |info| {
        text(info, 1, &document["info"]["title"]);
        text(info, 2, &document["info"]["version"]);
    });
    nested(&mut out, 8, |paths| {
        each(&document["paths"], |path, item| {
            nested(paths, 2, |entry| {
                bytes(entry, 1, path.as_bytes());
                nested(entry, 2, |out| encode_path(out, item));
            });
        });
    });
    nested(&mut out, 9, |out| encode_named(out, &document["definitions"]));
    out
}

fn encode_path(out: &mut Vec<u8>, item: &Value) {
    each(item, |verb, operation| {
        let number = match verb {
            "get" => 2,
            "put" => 3,
            "post" => 4,
            "delete" => 5,
            "options" => 6,
            "head" => 7,
            "patch" => 8,
            _ => return,
        };
        nested(out, number, |out| {
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                // ParametersItem, Parameter, NonBodyParameter, QueryParameterSubSchema
                nested(out, 8, |item| {
                    nested(item, 1, |of_any_kind| {
                        nested(of_any_kind, 2, |without_body| {
                            nested(without_body, 3, |query| {
                                text(query, 2, &parameter["in"]);
                                text(query, 4, &parameter["name"]);
                                text(query, 6, &parameter["type"]);
                            });
                        });
                    });
                });
            }
            nested(out, 9, |responses| {
                each(&operation["responses"], |code, response| {
                    nested(responses, 1, |entry| {
                        bytes(entry, 1, code.as_bytes());
                        // ResponseValue, Response
                        nested(entry, 2, |value| {
                            nested(value, 1, |out| {
                                text(out, 1, &response["description"]);
                                nested(out, 2, |item| nested(item, 1, |out| encode_schema(out, &response["schema"])));
                            });
                        });
                    });
                });
            });
            extensions(out, 13, operation);
        });
    });
}

/// Schemas by name: definitions and properties are messages of the same form.
fn encode_named(out: &mut Vec<u8>, schemas: &Value) {
    each(schemas, |name, schema| {
        nested(out, 1, |entry| {
            bytes(entry, 1, name.as_bytes());
            nested(entry, 2, |out| encode_schema(out, schema));
        });
    });
}

fn encode_schema(out: &mut Vec<u8>, schema: &Value) {
    for (number, name) in [(1, "$ref"), (2, "format"), (3, "title"), (4, "description")] {
        text(out, number, &schema[name]);
    }
    if let Some(default) = schema.get("default") {
        nested(out, 5, |out| any(out, default));
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        text(out, 19, required);
    }
    for value in schema["enum"].as_array().into_iter().flatten() {
        nested(out, 20, |out| any(out, value));
    }
    match schema.get("additionalProperties") {
        Some(Value::Bool(allowed)) => nested(out, 21, |item| integer(item, 2, i64::from(*allowed))),
        Some(values) => nested(out, 21, |item| nested(item, 1, |out| encode_schema(out, values))),
        None => {}
    }
    if schema["type"].is_string() {
        nested(out, 22, |item| text(item, 1, &schema["type"]));
    }
    if let Some(items) = schema.get("items") {
        nested(out, 23, |item| nested(item, 1, |out| encode_schema(out, items)));
    }
    if let Some(properties) = schema.get("properties") {
        nested(out, 25, |out| encode_named(out, properties));
    }
    extensions(out, 31, schema);
}

/// The members that begin with `x-`, each with its name.
fn extensions(out: &mut Vec<u8>, number: u32, members: &Value) {
    each(members, |name, value| {
        if name.starts_with("x-") {
            nested(out, number, |entry| {
                bytes(entry, 1, name.as_bytes());
                nested(entry, 2, |out| any(out, value));
            });
        }
    });
}

/// Any value: as YAML, of which JSON is a part.
fn any(out: &mut Vec<u8>, value: &Value) {
    bytes(out, 2, value.to_string().as_bytes());
}

fn text(out: &mut Vec<u8>, number: u32, value: &Value) {
    if let Some(text) = value.as_str() {
        bytes(out, number, text.as_bytes());
    }
}

fn nested(out: &mut Vec<u8>, number: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut content = Vec::new();
    fill(&mut content);
    bytes(out, number, &content);
}

fn each(members: &Value, mut visit: impl FnMut(&str, &Value)) {
    for (name, value) in members.as_object().into_iter().flatten() {
        visit(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_stand_alone_and_alternatives_go() {
        let new = json!({"type": "object", "properties": {
            "spec": {"description": "what", "allOf": [{"$ref": "#/components/schemas/a.Spec"}]},
            "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "tags": {"type": "array", "items": {"$ref": "#/components/schemas/a.Tag"}},
        }});
        let old = json!({"type": "object", "properties": {
            "spec": {"description": "what", "$ref": "#/definitions/a.Spec"},
            "port": {"x-kubernetes-int-or-string": true},
            "tags": {"type": "array", "items": {"$ref": "#/definitions/a.Tag"}},
        }});
        assert_eq!(schema(&new), old);
    }

    #[test]
    fn what_may_be_null_or_unknown_is_not_told_of_custom_kinds() {
        let new = json!({"type": "object", "required": ["a", "b"], "properties": {
            "a": {"type": "array", "nullable": true, "items": {"type": "string"}},
            "b": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"c": {"type": "string"}}},
            "d": {"type": "integer", "default": 3, "minimum": 1},
        }});
        let old = json!({"type": "object", "required": ["b"], "properties": {
            "a": {},
            "b": {"x-kubernetes-preserve-unknown-fields": true},
            "d": {"type": "integer", "minimum": 1},
        }});
        assert_eq!(published(&new), old);
        // an object that keeps unknown fields is published without any description of them
        let mut root = new;
        root["x-kubernetes-preserve-unknown-fields"] = true.into();
        root["description"] = "what".into();
        root[GVK] = json!([{"kind": "K"}]);
        root[super::super::SELECTABLE] = json!([{"fieldPath": "a"}]);
        let told = json!({"type": "object", GVK: [{"kind": "K"}], super::super::SELECTABLE: [{"fieldPath": "a"}]});
        assert_eq!(published(&root), told);
    }

    #[test]
    fn messages_are_numbered_as_gnostic_has_them() {
        let document = json!({"swagger": "2.0", "info": {"title": "t", "version": "v"}, "paths": {},
            "definitions": {"a": {"type": "object", "x-y": [1]}}});
        // written out by hand: definitions (9) { a (1, 2) { type (22) {1}, extension (31) {1, 2 {2}} } }
        let encoded = encode(&document);
        assert!(encoded.starts_with(b"\x0a\x032.0\x12\x06\x0a\x01t\x12\x01v"), "{encoded:?}");
        assert!(
            encoded.ends_with(b"\xb2\x01\x08\x0a\x06object\xfa\x01\x0c\x0a\x03x-y\x12\x05\x12\x03[1]"),
            "{encoded:?}"
        );
    }
}
