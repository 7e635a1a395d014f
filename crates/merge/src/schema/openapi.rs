//! Reading schemas from OpenAPI v3 as CRDs write it, and writing them as the API server publishes them.

use super::{Constraints, ListType, PatchStrategy, Rule, Rules, Schema, Type, object_meta};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// What is wrong with a schema that cannot be read at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(pub String);

fn flag(node: &Map<String, Value>, name: &str) -> bool {
    node.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn text(node: &Map<String, Value>, name: &str) -> Option<String> {
    node.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn texts(node: &Map<String, Value>, name: &str) -> Vec<String> {
    let items = node.get(name).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Schema {
    /// Reads a CRD's `openAPIV3Schema` (JSON). The root gets `apiVersion`, `kind` and a full `metadata`.
    ///
    /// # Errors
    /// Where a node is no object or names a type that does not exist. Whether the schema is *structural* is
    /// [`crate::structural::check`]'s question.
    pub fn from_openapi(schema: &Value) -> Result<Self, SchemaError> {
        let mut root = Self::node_from_openapi(schema)?;
        if root.kind == Type::Any {
            root.kind = Type::Object;
        }
        root.add_type_and_metadata();
        Ok(root)
    }

    /// Reads one node as it stands, without the members that every object has.
    ///
    /// # Errors
    /// As [`Schema::from_openapi`].
    pub fn node_from_openapi(schema: &Value) -> Result<Self, SchemaError> {
        let Value::Object(node) = schema else { return Err(SchemaError(format!("schema is no object: {schema}"))) };
        let int_or_string =
            flag(node, "x-kubernetes-int-or-string") || text(node, "format").as_deref() == Some("int-or-string");
        let kind = match node.get("type").and_then(Value::as_str) {
            _ if int_or_string => Type::IntOrString,
            None | Some("") => Type::Any,
            Some("object") => Type::Object,
            Some("array") => Type::Array,
            Some("string") => Type::String,
            Some("integer") => Type::Integer,
            Some("number") => Type::Number,
            Some("boolean") => Type::Boolean,
            Some(other) => return Err(SchemaError(format!("unknown type {other:?}"))),
        };
        let child = |value: &Value| Self::node_from_openapi(value).map(Arc::new);
        let mut out = Schema {
            kind,
            format: text(node, "format").filter(|f| !f.is_empty()),
            description: text(node, "description").filter(|d| !d.is_empty()),
            nullable: flag(node, "nullable"),
            required: texts(node, "required"),
            default: node.get("default").filter(|d| !d.is_null()).cloned(),
            preserve_unknown: flag(node, "x-kubernetes-preserve-unknown-fields"),
            embedded: flag(node, "x-kubernetes-embedded-resource"),
            atomic_map: node.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
            list_type: match node.get("x-kubernetes-list-type").and_then(Value::as_str) {
                Some("set") => ListType::Set,
                Some("map") => ListType::Map(texts(node, "x-kubernetes-list-map-keys")),
                Some(_) | None => ListType::Atomic,
            },
            patch: patch_strategy(node),
            rules: Rules::new(rules(node)),
            ..<Schema as Default>::default()
        };
        if let Some(Value::Object(properties)) = node.get("properties") {
            for (name, property) in properties {
                out.properties.insert(name.clone(), child(property)?);
            }
        }
        out.additional = match node.get("additionalProperties") {
            Some(schema @ Value::Object(_)) => Some(child(schema)?),
            Some(Value::Bool(true)) => Some(Arc::default()),
            Some(_) | None => None,
        };
        out.items = match node.get("items") {
            Some(schema @ Value::Object(_)) => Some(child(schema)?),
            Some(_) | None => None,
        };
        out.constraints = constraints(node)?;
        if out.embedded {
            out.add_type_and_metadata();
        }
        Ok(out)
    }

    /// Adds `apiVersion`, `kind` and `metadata`; what the schema says of the latter's members stays in force.
    fn add_type_and_metadata(&mut self) {
        for name in ["apiVersion", "kind"] {
            let stated = self.properties.remove(name);
            let schema = stated.map_or_else(<Schema as Default>::default, |s| (*s).clone());
            self.properties.insert(name.to_owned(), Arc::new(Schema { kind: Type::String, ..schema }));
        }
        let metadata = match self.properties.remove("metadata") {
            None => object_meta(),
            Some(stated) => {
                let mut meta = (*object_meta()).clone();
                meta.description.clone_from(&stated.description);
                meta.default.clone_from(&stated.default);
                meta.required.clone_from(&stated.required);
                for (name, property) in &stated.properties {
                    meta.properties.insert(name.clone(), property.clone());
                }
                Arc::new(meta)
            }
        };
        self.properties.insert("metadata".to_owned(), metadata);
    }

    /// As OpenAPI v3, with the `x-kubernetes-*` extensions.
    pub fn to_openapi(&self) -> Value {
        let mut out = Map::new();
        let mut put = |name: &str, value: Value| {
            out.insert(name.to_owned(), value);
        };
        if let Some(description) = &self.description {
            put("description", description.as_str().into());
        }
        match self.kind {
            Type::Any => {}
            Type::IntOrString => put("x-kubernetes-int-or-string", true.into()),
            kind => put("type", kind.as_str().into()),
        }
        if let Some(format) = &self.format {
            put("format", format.as_str().into());
        }
        if self.nullable {
            put("nullable", true.into());
        }
        if !self.properties.is_empty() {
            let properties = self.properties.iter().map(|(name, s)| (name.clone(), s.to_openapi())).collect();
            put("properties", Value::Object(properties));
        }
        if let Some(additional) = &self.additional {
            put("additionalProperties", additional.to_openapi());
        }
        if let Some(items) = &self.items {
            put("items", items.to_openapi());
        }
        if !self.required.is_empty() {
            put("required", self.required.clone().into());
        }
        if let Some(default) = &self.default {
            put("default", default.clone());
        }
        if self.preserve_unknown {
            put("x-kubernetes-preserve-unknown-fields", true.into());
        }
        if self.embedded {
            put("x-kubernetes-embedded-resource", true.into());
        }
        if self.atomic_map {
            put("x-kubernetes-map-type", "atomic".into());
        }
        match &self.list_type {
            ListType::Atomic => {}
            ListType::Set => put("x-kubernetes-list-type", "set".into()),
            ListType::Map(keys) => {
                put("x-kubernetes-list-type", "map".into());
                put("x-kubernetes-list-map-keys", keys.clone().into());
            }
        }
        let strategies = self.patch.words();
        if !strategies.is_empty() {
            put("x-kubernetes-patch-strategy", strategies.into());
        }
        if let Some(key) = &self.patch.merge_key {
            put("x-kubernetes-patch-merge-key", key.as_str().into());
        }
        if !self.rules.is_empty() {
            put("x-kubernetes-validations", self.rules.iter().map(Rule::to_openapi).collect());
        }
        if let Some(constraints) = &self.constraints {
            constraints.write(&mut out);
        }
        Value::Object(out)
    }
}

fn patch_strategy(node: &Map<String, Value>) -> PatchStrategy {
    let strategies = text(node, "x-kubernetes-patch-strategy").unwrap_or_default();
    let has = |name| strategies.split(',').any(|s| s == name);
    PatchStrategy {
        merge: has("merge"),
        retain_keys: has("retainKeys"),
        replace: has("replace"),
        merge_key: text(node, "x-kubernetes-patch-merge-key"),
    }
}

fn rules(node: &Map<String, Value>) -> Vec<Rule> {
    let list = node.get("x-kubernetes-validations").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .map(|rule| Rule {
            rule: text(rule, "rule").unwrap_or_default(),
            message: text(rule, "message").unwrap_or_default(),
            message_expression: text(rule, "messageExpression").unwrap_or_default(),
            reason: text(rule, "reason").unwrap_or_default(),
            field_path: text(rule, "fieldPath").unwrap_or_default(),
            optional_old_self: flag(rule, "optionalOldSelf"),
        })
        .collect()
}

fn constraints(node: &Map<String, Value>) -> Result<Option<Box<Constraints>>, SchemaError> {
    const NAMES: [&str; 17] = [
        "enum",
        "minimum",
        "maximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minProperties",
        "maxProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "exclusiveMinimum",
    ];
    if !NAMES.iter().any(|name| node.contains_key(*name)) {
        return Ok(None);
    }
    let number = |name: &str| node.get(name).and_then(Value::as_f64);
    let count = |name: &str| node.get(name).and_then(Value::as_u64);
    let branches = |name: &str| -> Result<Vec<Schema>, SchemaError> {
        let list = node.get(name).and_then(Value::as_array);
        list.into_iter().flatten().map(Schema::node_from_openapi).collect()
    };
    Ok(Some(Box::new(Constraints {
        enumeration: node.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
        minimum: number("minimum"),
        maximum: number("maximum"),
        exclusive_minimum: flag(node, "exclusiveMinimum"),
        exclusive_maximum: flag(node, "exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        pattern: text(node, "pattern").filter(|p| !p.is_empty()),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        unique_items: flag(node, "uniqueItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        all_of: branches("allOf")?,
        any_of: branches("anyOf")?,
        one_of: branches("oneOf")?,
        not: match node.get("not") {
            Some(schema @ Value::Object(_)) => Some(Box::new(Schema::node_from_openapi(schema)?)),
            Some(_) | None => None,
        },
    })))
}

/// A bound as JSON: whole numbers without a fraction.
fn bound(number: f64) -> Value {
    const SAFE: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= SAFE {
        #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53")]
        let whole = number as i64;
        whole.into()
    } else {
        json!(number)
    }
}

impl Constraints {
    fn write(&self, out: &mut Map<String, Value>) {
        let Self {
            enumeration,
            minimum,
            maximum,
            exclusive_minimum,
            exclusive_maximum,
            multiple_of,
            min_length,
            max_length,
            pattern,
            min_items,
            max_items,
            unique_items,
            min_properties,
            max_properties,
            all_of,
            any_of,
            one_of,
            not,
        } = self;
        if !enumeration.is_empty() {
            out.insert("enum".to_owned(), enumeration.clone().into());
        }
        for (name, number) in [("minimum", minimum), ("maximum", maximum), ("multipleOf", multiple_of)] {
            if let Some(number) = number {
                out.insert(name.to_owned(), bound(*number));
            }
        }
        let flags = [
            ("exclusiveMinimum", exclusive_minimum),
            ("exclusiveMaximum", exclusive_maximum),
            ("uniqueItems", unique_items),
        ];
        for (name, flag) in flags {
            if *flag {
                out.insert(name.to_owned(), true.into());
            }
        }
        let counts = [
            ("minLength", min_length),
            ("maxLength", max_length),
            ("minItems", min_items),
            ("maxItems", max_items),
            ("minProperties", min_properties),
            ("maxProperties", max_properties),
        ];
        for (name, count) in counts {
            if let Some(count) = count {
                out.insert(name.to_owned(), (*count).into());
            }
        }
        if let Some(pattern) = pattern {
            out.insert("pattern".to_owned(), pattern.as_str().into());
        }
        for (name, branches) in [("allOf", all_of), ("anyOf", any_of), ("oneOf", one_of)] {
            if !branches.is_empty() {
                out.insert(name.to_owned(), branches.iter().map(Schema::to_openapi).collect());
            }
        }
        if let Some(not) = not {
            out.insert("not".to_owned(), not.to_openapi());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written() {
        let schema = json!({
            "type": "object", "description": "A thing.", "required": ["a"],
            "properties": {
                "a": {"type": "string", "enum": ["x", "y"], "default": "x", "maxLength": 5, "pattern": "^[xy]$"},
                "n": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 9, "exclusiveMaximum": true},
                "f": {"type": "number", "maximum": 2.5},
                "q": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "properties": {"k": {"type": "string"}}}},
                "m": {"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"},
                "p": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "nullable": true}
            },
            "x-kubernetes-validations": [{"rule": "self.a != 'z'", "message": "no", "reason": "FieldValueForbidden"}]
        });
        assert_eq!(Schema::node_from_openapi(&schema).expect("a schema").to_openapi(), schema);
    }

    #[test]
    fn a_root_has_metadata() {
        let schema = json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {
            "name": {"type": "string", "maxLength": 10}}}}});
        let root = Schema::from_openapi(&schema).expect("a schema");
        let meta = &root.properties["metadata"];
        assert_eq!(meta.properties["name"].constraints.as_ref().and_then(|c| c.max_length), Some(10));
        assert_eq!(meta.properties["finalizers"].list_type, ListType::Set);
        assert!(root.properties.contains_key("kind"));
    }
}
