//! Kubernetes' own types inside our CRDs: the table of crate `merge`, in the form that `controller-gen` writes.
//!
//! That form differs from Kubernetes' OpenAPI document in a few points that clients can see, all of them here: metadata of
//! templates has five fields, quantities have a pattern, and some empty defaults are written out.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use std::path::Path;

/// The table, below the repository's root; its form is described in `merge::builtin`.
const TABLE: &str = "crates/merge/data/kubernetes-types.json";

const QUANTITY: &str = "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|\
                        ([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$";

/// The table of Kubernetes' types.
pub struct Types(Map<String, Value>);

impl Types {
    /// Reads the table.
    pub fn load(root: &Path) -> Result<Self> {
        let path = root.join(TABLE);
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(Self(serde_json::from_str(&text).with_context(|| format!("parsing {}", path.display()))?))
    }

    /// The structural schema of a type.
    pub fn schema(&self, name: &str) -> Result<Value> {
        self.shape(name).with_context(|| format!("schema of {name}"))
    }

    /// What a type column says: a word, a type's name, or `[]` or `{}` before one of these.
    fn shape(&self, shape: &str) -> Result<Value> {
        if let Some(items) = shape.strip_prefix("[]") {
            return Ok(json!({"type": "array", "items": self.shape(items)?}));
        }
        if let Some(values) = shape.strip_prefix("{}") {
            return Ok(json!({"type": "object", "additionalProperties": self.shape(values)?}));
        }
        Ok(match shape {
            "string" | "boolean" | "number" => json!({"type": shape}),
            "int32" | "int64" => json!({"type": "integer", "format": shape}),
            "byte" => json!({"type": "string", "format": "byte"}),
            "time" | "microtime" => json!({"type": "string", "format": "date-time"}),
            "intorstring" => {
                json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true})
            }
            "quantity" | "io.k8s.apimachinery.pkg.api.resource.Quantity" => json!({
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "pattern": QUANTITY,
                "x-kubernetes-int-or-string": true,
            }),
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" => embedded_metadata(),
            name => self.object(name)?,
        })
    }

    fn object(&self, name: &str) -> Result<Value> {
        let mut schema = Map::from_iter([("type".to_owned(), json!("object"))]);
        let mut properties = Map::new();
        let mut required = Vec::new();
        self.fields(name, &mut properties, &mut required)?;
        required.sort();
        if !required.is_empty() {
            schema.insert("required".to_owned(), json!(required));
        }
        schema.insert("properties".to_owned(), Value::Object(properties));
        if self.is_atomic(name)? {
            schema.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
        }
        Ok(Value::Object(schema))
    }

    /// Whether objects of the type are owned as a whole; a type is also what the types are that it inlines.
    fn is_atomic(&self, name: &str) -> Result<bool> {
        for row in self.rows(name)? {
            let inlined = row.get("t").and_then(Value::as_str).filter(|_| row.get("i").is_some());
            if row.get("A").is_some() || inlined.map_or(Ok(false), |inlined| self.is_atomic(inlined))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn rows(&self, name: &str) -> Result<&Vec<Value>> {
        let Some(Value::Array(rows)) = self.0.get(name) else { bail!("{TABLE} has no type {name}") };
        Ok(rows)
    }

    /// Adds a type's fields, those of inlined types among them.
    fn fields(&self, name: &str, properties: &mut Map<String, Value>, required: &mut Vec<String>) -> Result<()> {
        for row in self.rows(name)? {
            let Some(shape) = row.get("t").and_then(Value::as_str) else { continue };
            let Some(field) = row.get("j").and_then(Value::as_str) else {
                self.fields(shape, properties, required)?;
                continue;
            };
            let mut schema = self.shape(shape).with_context(|| format!("in {field}"))?;
            if let Some(default) = default(name, field, row) {
                schema["default"] = default;
            }
            match row.get("l") {
                Some(Value::Array(keys)) => {
                    schema["x-kubernetes-list-type"] = json!("map");
                    schema["x-kubernetes-list-map-keys"] = json!(keys);
                }
                Some(kind) => schema["x-kubernetes-list-type"] = kind.clone(),
                None if shape.starts_with("[]") => schema["x-kubernetes-list-type"] = json!("atomic"),
                None => {}
            }
            if row.get("a").is_some() {
                schema["x-kubernetes-map-type"] = json!("atomic");
            }
            if row.get("r").is_some() {
                required.push(field.to_owned());
            }
            properties.insert(field.to_owned(), schema);
        }
        Ok(())
    }
}

/// A field's default. The table leaves out those that are empty values; Go's markers name these four.
fn default(name: &str, field: &str, row: &Value) -> Option<Value> {
    let core = name.strip_prefix("io.k8s.api.core.v1.").unwrap_or_default();
    match (core, field) {
        ("AzureDiskVolumeSource", "readOnly") | ("FileKeySelector", "optional") => Some(json!(false)),
        // Go's markers refer to constants here, which controller-gen does not resolve.
        ("AzureDiskVolumeSource", "cachingMode" | "kind") => None,
        ("GRPCAction", "service") | ("LocalObjectReference", "name") => Some(json!("")),
        _ => row.get("d").cloned(),
    }
}

/// Metadata of an object inside another.
fn embedded_metadata() -> Value {
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    json!({"type": "object", "properties": {
        "name": {"type": "string"},
        "namespace": {"type": "string"},
        "labels": texts,
        "annotations": texts,
        "finalizers": {"type": "array", "items": {"type": "string"}},
    }})
}
