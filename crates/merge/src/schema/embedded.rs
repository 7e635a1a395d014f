//! What holds for a whole object beside its value constraints: embedded objects are objects, sets and maps are such.

use super::{ListType, Schema};
use crate::builtin;
use crate::gotext;
use crate::order::{self, Keyed, Ordered};
use api::field::{Error, ErrorList, Path};
use api::names;
use serde_json::{Map, Value};

impl Schema {
    /// Faults of embedded objects (`x-kubernetes-embedded-resource`): type, kind and metadata.
    pub(super) fn embedded_faults(&self, value: &Value, path: &Path, out: &mut ErrorList) {
        if !self.facts().embedded {
            return;
        }
        match value {
            Value::Object(members) => {
                if self.embedded {
                    type_faults(members, path, out);
                }
                for (name, member) in members {
                    if let Some(schema) = self.properties.get(name) {
                        schema.embedded_faults(member, &path.child(name), out);
                    } else if let Some(schema) = &self.additional {
                        schema.embedded_faults(member, &path.key(name), out);
                    }
                }
            }
            Value::Array(items) => {
                let Some(schema) = &self.items else { return };
                for (i, item) in items.iter().enumerate() {
                    schema.embedded_faults(item, &path.index(i), out);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Elements that a set or map holds twice.
    pub(super) fn uniqueness_faults(&self, value: &Value, path: &Path, out: &mut ErrorList) {
        if !self.facts().unique {
            return;
        }
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    if name == "metadata" && (path.is_root() || self.embedded) {
                        // its lists are not the schema's
                        continue;
                    }
                    if let Some(schema) = self.properties.get(name) {
                        schema.uniqueness_faults(member, &path.child(name), out);
                    } else if let Some(schema) = &self.additional {
                        schema.uniqueness_faults(member, &path.key(name), out);
                    }
                }
            }
            Value::Array(items) => {
                match &self.list_type {
                    ListType::Atomic => {}
                    ListType::Set => duplicates(items, path, out),
                    ListType::Map(keys) => self.map_faults(items, keys, path, out),
                }
                let Some(schema) = &self.items else { return };
                for (i, item) in items.iter().enumerate() {
                    schema.uniqueness_faults(item, &path.index(i), out);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn map_faults(&self, items: &[Value], keys: &[String], path: &Path, out: &mut ErrorList) {
        if let Some((i, item)) = items.iter().enumerate().find(|(_, item)| !item.is_object() && !item.is_null()) {
            let why = "must be an object for an array of list-type map";
            out.push(Error::invalid(&path.index(i), item.clone(), why));
            return;
        }
        let twice = order::repeated(items.iter().map(|item| Keyed { keys, item }));
        out.extend(twice.into_iter().map(|i| Error::duplicate(&path.index(i), identity(keys, &items[i]))));
    }
}

/// What makes an element of an associative list the same.
fn identity(keys: &[String], item: &Value) -> Value {
    match item {
        Value::Object(members) => {
            keys.iter().filter_map(|key| Some((key.clone(), members.get(key)?.clone()))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

/// Reports the second occurrence of each value, once.
fn duplicates(values: &[Value], path: &Path, out: &mut ErrorList) {
    let twice = order::repeated(values.iter().map(Ordered));
    out.extend(twice.into_iter().map(|i| Error::duplicate(&path.index(i), values[i].clone())));
}

/// `apiVersion` and `kind` must be there and well formed, `metadata` must be valid where it is.
fn type_faults(members: &Map<String, Value>, path: &Path, out: &mut ErrorList) {
    for name in ["apiVersion", "kind"] {
        let at = path.child(name);
        match members.get(name) {
            None => out.push(Error::required(&at, "")),
            Some(Value::String(text)) if text.is_empty() => {
                out.push(Error::invalid(&at, text.as_str(), "must not be empty"));
            }
            Some(Value::String(text)) if name == "apiVersion" => {
                if text.matches('/').count() > 1 {
                    out.push(Error::invalid(&at, text.as_str(), format!("unexpected GroupVersion string: {text}")));
                }
            }
            Some(Value::String(text)) => {
                let faults = names::dns1035_faults(&text.to_lowercase(), false);
                if !faults.is_empty() {
                    let why = format!("may have mixed case, but should otherwise match: {}", faults.join(","));
                    out.push(Error::invalid(&at, text.as_str(), why));
                }
            }
            Some(other) => out.push(Error::invalid(&at, other.clone(), "must be a string")),
        }
    }
    let Some(meta) = members.get("metadata").filter(|meta| !meta.is_null()) else { return };
    let at = path.child("metadata");
    // that of an object which says that it is of another kind has not been read yet
    if let Err(why) = builtin::decode(builtin::OBJECT_META, &mut meta.clone()) {
        out.push(Error::invalid(&at, meta.clone(), why.to_string()));
    } else if let Value::Object(meta) = meta {
        metadata_faults(meta, &at, out);
    }
}

/// Most bytes of all annotations' names and values together.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

fn metadata_faults(meta: &Map<String, Value>, path: &Path, out: &mut ErrorList) {
    for (name, prefix) in [("generateName", true), ("name", false)] {
        if let Some(Value::String(text)) = meta.get(name)
            && !text.is_empty()
        {
            for fault in names::path_segment_faults(text, prefix) {
                out.push(Error::invalid(&path.child(name), text.as_str(), fault));
            }
        }
    }
    if let Some(Value::String(namespace)) = meta.get("namespace")
        && !namespace.is_empty()
    {
        for fault in names::label_faults(namespace, false) {
            out.push(Error::invalid(&path.child("namespace"), namespace.as_str(), fault));
        }
    }
    if let Some(generation) = meta.get("generation").and_then(Value::as_i64)
        && generation < 0
    {
        let why = "must be greater than or equal to 0";
        out.push(Error::invalid(&path.child("generation"), generation, why));
    }
    if let Some(Value::Object(labels)) = meta.get("labels") {
        let at = path.child("labels");
        for (name, value) in labels {
            for fault in names::qualified_name_faults(name) {
                out.push(Error::invalid(&at, name.as_str(), fault));
            }
            if let Some(text) = value.as_str() {
                for fault in names::label_value_faults(text) {
                    out.push(Error::invalid(&at.key(name), text, fault));
                }
            }
        }
    }
    if let Some(Value::Object(annotations)) = meta.get("annotations") {
        let at = path.child("annotations");
        let mut bytes = 0;
        for (name, value) in annotations {
            for fault in names::qualified_name_faults(&name.to_lowercase()) {
                out.push(Error::invalid(&at, name.as_str(), fault));
            }
            bytes += name.len() + value.as_str().map_or(0, str::len);
        }
        if bytes > ANNOTATIONS_BYTES_MAX {
            out.push(Error::too_long(&at, ANNOTATIONS_BYTES_MAX));
        }
    }
    if let Some(Value::Array(finalizers)) = meta.get("finalizers") {
        for finalizer in finalizers.iter().filter_map(Value::as_str) {
            for fault in names::qualified_name_faults(finalizer) {
                out.push(Error::invalid(&path.child("finalizers"), finalizer, fault));
            }
        }
    }
}

impl Schema {
    /// The first embedded metadata that is no object, as the API server words it while decoding (400).
    pub fn metadata_type_fault(&self, value: &Value, path: &Path) -> Option<Error> {
        if !self.facts().embedded {
            return None;
        }
        match value {
            Value::Object(members) => {
                if self.embedded
                    && let Some(meta) = members.get("metadata")
                    && !meta.is_object()
                    && !meta.is_null()
                {
                    let kind = match gotext::type_name(meta) {
                        "int64" | "float64" => "number",
                        "[]interface {}" => "array",
                        other => other,
                    };
                    let why = format!("json: cannot unmarshal {kind} into Go value of type v1.ObjectMeta");
                    return Some(Error::invalid(&path.child("metadata"), meta.clone(), why));
                }
                members.iter().find_map(|(name, member)| match self.properties.get(name) {
                    Some(schema) => schema.metadata_type_fault(member, &path.child(name)),
                    None => self.additional.as_ref()?.metadata_type_fault(member, &path.key(name)),
                })
            }
            Value::Array(items) => {
                let schema = self.items.as_ref()?;
                items.iter().enumerate().find_map(|(i, item)| schema.metadata_type_fault(item, &path.index(i)))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }
}
