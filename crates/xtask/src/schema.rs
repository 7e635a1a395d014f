//! Turns the schema that `schemars` derives from a type into a structural schema of a CRD.
//!
//! Everything is inlined, `Option` becomes no alternative, and references to Kubernetes' types are filled in.

use crate::kubernetes::Types;
use anyhow::{Context, Result, bail};
use api::schema::{KUBERNETES_REF, OWN_REF};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The structural schema of a type.
pub fn of<T: JsonSchema>(types: &Types) -> Result<Value> {
    let settings = SchemaSettings::default().with(|s| {
        s.inline_subschemas = true;
        s.meta_schema = None;
    });
    let raw = settings.into_generator().into_root_schema_for::<T>().to_value();
    structural(raw, types).with_context(|| format!("schema of {}", T::schema_name()))
}

/// The schema of a whole object: what every object has is the API server's to describe.
pub fn of_object<T: JsonSchema>(types: &Types) -> Result<Value> {
    let mut schema = of::<T>(types)?;
    let members = schema.as_object_mut().context("an object's schema is an object")?;
    let required = members.remove("required").map(|names| required_without_type_meta(&names));
    if let Some(required) = required.filter(|names| !names.is_empty()) {
        members.insert("required".to_owned(), Value::from(required));
    }
    let properties = members.get_mut("properties").and_then(Value::as_object_mut).context("an object has members")?;
    for section in ["spec", "status"] {
        // serde's default for Rust, which is not one of the schema.
        if let Some(Value::Object(section)) = properties.get_mut(section) {
            section.remove("default");
        }
    }
    properties.insert(
        "apiVersion".to_owned(),
        json!({"type": "string", "description":
        "Group and version of the API that this object is written in."}),
    );
    properties.insert("kind".to_owned(), json!({"type": "string", "description": "The object's kind."}));
    properties.insert("metadata".to_owned(), json!({"type": "object"}));
    Ok(schema)
}

fn required_without_type_meta(required: &Value) -> Vec<Value> {
    let always = ["apiVersion", "kind", "metadata"];
    required
        .as_array()
        .into_iter()
        .flatten()
        .filter(|name| name.as_str().is_some_and(|name| !always.contains(&name)))
        .cloned()
        .collect()
}

fn structural(raw: Value, types: &Types) -> Result<Value> {
    let Value::Object(mut node) = raw else { bail!("a schema is not an object: {raw}") };
    node.remove("title");
    if node.get("default").is_some_and(Value::is_null) {
        node.remove("default");
    }

    // Option<T>: T or null.
    if let Some(Value::Array(alternatives)) = node.remove("anyOf") {
        let mut others = alternatives.into_iter().filter(|a| a.get("type") != Some(&json!("null")));
        let only = others.next().context("anyOf without alternatives")?;
        if others.next().is_some() {
            bail!("anyOf of more than one type: {node:?}");
        }
        node = beneath(only, node)?;
    }
    // An enum whose variants are documented: one constant each.
    if let Some(Value::Array(variants)) = node.remove("oneOf") {
        let constants: Option<Vec<Value>> = variants.iter().map(|v| v.get("const").cloned()).collect();
        node.insert("enum".to_owned(), Value::from(constants.context("oneOf of more than constants")?));
        node.insert("type".to_owned(), json!("string"));
    }
    if let Some(Value::Array(names)) = node.get("type").cloned() {
        let mut others = names.into_iter().filter(|t| t != "null");
        let only = others.next().context("a type is only null")?;
        node.insert("type".to_owned(), only);
    }
    if let Some(Value::Array(values)) = node.get_mut("enum") {
        values.retain(|v| !v.is_null());
    }

    if let Some(Value::String(reference)) = node.remove("$ref") {
        let target = if let Some(name) = reference.strip_prefix(KUBERNETES_REF) {
            types.schema(name)?
        } else if let Some(name) = reference.strip_prefix(OWN_REF) {
            own(name, types)?
        } else {
            bail!("unknown reference {reference}")
        };
        return Ok(Value::Object(beneath(target, describe(node))?));
    }

    if let Some(Value::Object(properties)) = node.remove("properties") {
        let mut done = Map::new();
        for (name, property) in properties {
            let property = structural(property, types).with_context(|| format!("in {name}"))?;
            done.insert(name, property);
        }
        node.insert("properties".to_owned(), Value::Object(done));
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(schema) = node.remove(inner) {
            node.insert(inner.to_owned(), structural(schema, types).with_context(|| format!("in {inner}"))?);
        }
    }
    if let Some(Value::Array(names)) = node.get_mut("required") {
        names.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
    }
    if node.get("properties").is_some_and(|p| p.as_object().is_some_and(Map::is_empty)) {
        node.remove("properties");
    }
    Ok(Value::Object(describe(node)))
}

/// `below` with the members of `above` written over it.
fn beneath(below: Value, above: Map<String, Value>) -> Result<Map<String, Value>> {
    let Value::Object(mut node) = below else { bail!("a schema is not an object: {below}") };
    for (name, value) in above {
        if name == "x-kubernetes-validations"
            && let (Some(Value::Array(rules)), Value::Array(more)) = (node.get_mut(&name), &value)
        {
            rules.extend(more.iter().cloned());
            continue;
        }
        node.insert(name, value);
    }
    Ok(node)
}

/// Turns a doc comment into running text: lines of a paragraph joined, code marks taken out.
fn describe(mut node: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::String(text)) = node.get_mut("description") {
        let paragraphs: Vec<String> = text
            .split("\n\n")
            .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" ").replace(['`', '[', ']'], ""))
            .collect();
        *text = paragraphs.join("\n\n");
    }
    node
}

/// Schemas that types refer to by name because Rust's type says less than they do.
fn own(name: &str, types: &Types) -> Result<Value> {
    Ok(match name {
        "Condition" => condition(),
        "EmbeddedMetadata" => of::<api::trainer::EmbeddedMetadata>(types)?,
        "Integer" => json!({"type": "integer"}),
        "JobSetSpec" => of::<api::jobset::JobSetSpec>(types)?,
        "ObjectMeta" => json!({"type": "object"}),
        "Time" => json!({"type": "string", "format": "date-time"}),
        other => bail!("no schema is called {other}"),
    })
}

/// Go's `metav1.Condition`, whose bounds are markers that Kubernetes' OpenAPI document does not hold.
fn condition() -> Value {
    json!({
        "type": "object",
        "description": "One aspect of the object's state.",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": {"type": "string", "format": "date-time",
                "description": "When the status last changed."},
            "message": {"type": "string", "maxLength": 32768,
                "description": "Why the status last changed, for people. May be empty."},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0,
                "description": "The metadata.generation that the condition was set for; out of date where it is lower."},
            "reason": {"type": "string", "minLength": 1, "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                "description": "Why the status last changed, for programs: one word in CamelCase."},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"],
                "description": "Whether the aspect holds: True, False or Unknown."},
            "type": {"type": "string", "maxLength": 316,
                "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?\
                            (([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                "description": "The aspect, in CamelCase."},
        },
    })
}
