//! OpenAPI documents, made from the schemas on request.

mod descriptions;
mod operations;
pub(crate) mod v2;

use crate::registry::{Catalog, Served};
use merge::builtin::{self, Shape};
use merge::schema::ListType;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Documents by group and version (and the two of version 2), and the catalog that they were made from.
#[derive(Default)]
struct Documents {
    catalog: Option<Arc<Catalog>>,
    made: BTreeMap<String, Arc<Vec<u8>>>,
}

impl Documents {
    /// Forgets what was made from another catalog.
    fn renew(&mut self, catalog: &Arc<Catalog>) {
        if !self.catalog.as_ref().is_some_and(|held| Arc::ptr_eq(held, catalog)) {
            *self = Self { catalog: Some(catalog.clone()), made: BTreeMap::new() };
        }
    }
}

/// Finished documents, by group and version; with the catalog that they were made from.
#[derive(Default)]
pub(crate) struct Cache {
    documents: Mutex<Documents>,
}

impl Cache {
    /// The document of `apis/G/V` or `api/V`, `None` where there is no such version.
    pub(crate) fn document(&self, catalog: &Arc<Catalog>, path: &str) -> Option<Arc<Vec<u8>>> {
        let (group, version) = match path.split('/').collect::<Vec<_>>().as_slice() {
            ["api", version] => (String::new(), (*version).to_owned()),
            ["apis", group, version] => ((*group).to_owned(), (*version).to_owned()),
            _ => return None,
        };
        let kinds: Vec<&Arc<Served>> = catalog.of(&group, &version).collect();
        if kinds.is_empty() {
            return None;
        }
        let mut cache = self.documents.lock().unwrap_or_else(PoisonError::into_inner);
        cache.renew(catalog);
        let document = cache.made.entry(path.to_owned()).or_insert_with(|| Arc::new(to_json(&document(&kinds))));
        Some(document.clone())
    }

    /// The document of version 2, of all groups, as JSON or in protobuf.
    pub(crate) fn v2(&self, catalog: &Arc<Catalog>, protobuf: bool) -> Arc<Vec<u8>> {
        let mut cache = self.documents.lock().unwrap_or_else(PoisonError::into_inner);
        cache.renew(catalog);
        let name = if protobuf { "v2.protobuf" } else { "v2.json" };
        let made = cache.made.entry(name.to_owned()).or_insert_with(|| {
            let versions = catalog.groups.iter().flat_map(|group| {
                let versions = catalog.versions(group).into_iter();
                versions.map(move |version| document(&catalog.of(group, &version).collect::<Vec<_>>()))
            });
            let whole = v2::document(versions);
            Arc::new(if protobuf { v2::encode(&whole) } else { to_json(&whole) })
        });
        made.clone()
    }
}

/// Says which fields a field selector may name.
const SELECTABLE: &str = "x-kubernetes-selectable-fields";

fn to_json(document: &Value) -> Vec<u8> {
    serde_json::to_vec(document).expect("invariant: a JSON value serialises")
}

/// `/openapi/v3`: where the documents are. The hash changes with what the document is made from.
pub(crate) fn index(catalog: &Catalog) -> Value {
    let mut paths = Map::new();
    for group in &catalog.groups {
        for version in catalog.versions(group) {
            let path = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
            let mut hash = Sha256::new();
            for served in catalog.of(group, &version) {
                hash.update(served.resource.kind.as_bytes());
                if let Some(custom) = &served.custom {
                    hash.update(custom.uid.as_bytes());
                    hash.update(custom.generation.to_string().as_bytes());
                }
            }
            let hash: String = hash.finalize().iter().take(16).map(|b| format!("{b:02X}")).collect();
            let url = format!("/openapi/v3/{path}?hash={hash}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// Name of a kind's schema: the group's parts reversed, version and kind (`dev.example.v1.Widget`, `io.k8s.api.core.v1.Pod`).
fn component(served: &Served) -> String {
    let r = &served.resource;
    if served.custom.is_some() {
        let reversed: Vec<&str> = r.group.split('.').rev().collect();
        return format!("{}.{}.{}", reversed.join("."), r.version, r.kind);
    }
    let group = match r.group.as_str() {
        "" => "core",
        group => group.split('.').next().unwrap_or_default(),
    };
    format!("io.k8s.api.{group}.{}.{}", r.version, r.kind)
}

fn gvk(served: &Served) -> Value {
    let r = &served.resource;
    json!({"group": r.group, "version": r.version, "kind": r.kind})
}

fn document(kinds: &[&Arc<Served>]) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for served in kinds {
        let r = &served.resource;
        let name = component(served);
        let mut schema = match (&served.custom, r.type_name) {
            (Some(custom), _) => serde_json::from_slice(&custom.openapi).unwrap_or_default(),
            (None, Some(type_name)) => {
                types(type_name, &mut schemas);
                schemas.get(type_name).cloned().unwrap_or_default()
            }
            (None, None) => served.schema().to_openapi(),
        };
        if !schema.is_object() {
            schema = json!({"type": "object"});
        }
        let mut selectable = None;
        if let Some(custom) = &served.custom {
            publish_int_or_string(&mut schema);
            publish_embedded(&mut schema);
            publish_metadata(&mut schema);
            let fields = || custom.selectable.iter().map(|path| json!({"fieldPath": path})).collect::<Value>();
            selectable = (!custom.selectable.is_empty()).then(fields);
        }
        for sub in &r.subresources {
            if let Some(foreign) = operations::foreign(served, sub) {
                types(&foreign, &mut schemas);
            }
        }
        schema["x-kubernetes-group-version-kind"] = json!([gvk(served)]);
        let mut list = json!({
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "items": {"type": "array", "items": {"$ref": format!("#/components/schemas/{name}")}},
                "metadata": {"allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"}]},
            },
            "x-kubernetes-group-version-kind": [{"group": r.group, "version": r.version, "kind": r.list_kind}],
        });
        if let Some(fields) = selectable {
            schema[SELECTABLE] = fields.clone();
            list[SELECTABLE] = fields;
        }
        schemas.insert(name.clone(), schema);
        schemas.insert(format!("{name}List"), list);
        operations::add(served, &name, &mut paths);
    }
    schemas.insert(
        "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta".to_owned(),
        json!({"type": "object", "properties": {
            "continue": {"type": "string"}, "remainingItemCount": {"type": "integer", "format": "int64"},
            "resourceVersion": {"type": "string"}, "selfLink": {"type": "string"},
        }}),
    );
    operations::schemas(&mut schemas);
    schemas.entry("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").or_insert_with(object_meta);
    descriptions::add(&mut schemas);
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// Adds a built-in type and all that it refers to.
fn types(name: &str, schemas: &mut Map<String, Value>) {
    if schemas.contains_key(name) {
        return;
    }
    // Types refer to each other in circles.
    schemas.insert(name.to_owned(), Value::Null);
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in builtin::fields(name) {
        let mut schema = shape(&field.shape, schemas);
        if let Some(default) = &field.default {
            schema["default"] = default.clone();
        }
        let strategies = field.patch.words();
        if !strategies.is_empty() {
            schema["x-kubernetes-patch-strategy"] = strategies.into();
        }
        if let Some(key) = &field.patch.merge_key {
            schema["x-kubernetes-patch-merge-key"] = key.clone().into();
        }
        match &field.list {
            ListType::Set => schema["x-kubernetes-list-type"] = "set".into(),
            ListType::Map(keys) => {
                schema["x-kubernetes-list-type"] = "map".into();
                schema["x-kubernetes-list-map-keys"] = json!(keys);
            }
            ListType::Atomic if matches!(field.shape, Shape::List(_)) => {
                schema["x-kubernetes-list-type"] = "atomic".into();
            }
            ListType::Atomic => {}
        }
        if field.required {
            required.push(field.name.clone());
        }
        properties.insert(field.name.clone(), schema);
    }
    let mut schema = json!({"type": "object"});
    if !properties.is_empty() {
        schema["properties"] = properties.into();
    }
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schemas.insert(name.to_owned(), schema);
}

fn shape(shape: &Shape, schemas: &mut Map<String, Value>) -> Value {
    let of = |kind: &str, format: &str| json!({"type": kind, "format": format});
    match shape {
        Shape::String | Shape::Quantity => json!({"type": "string"}),
        Shape::Boolean => json!({"type": "boolean"}),
        Shape::Int32 => of("integer", "int32"),
        Shape::Int64 => of("integer", "int64"),
        Shape::Number => of("number", "double"),
        Shape::Byte => of("string", "byte"),
        Shape::IntOrString => of("string", "int-or-string"),
        Shape::Time | Shape::MicroTime => of("string", "date-time"),
        Shape::Raw | Shape::Fields => json!({"type": "object"}),
        Shape::Any | Shape::SchemaOr(_) => json!({"x-kubernetes-preserve-unknown-fields": true}),
        Shape::List(items) => json!({"type": "array", "items": self::shape(items, schemas)}),
        Shape::Map(values) => json!({"type": "object", "additionalProperties": self::shape(values, schemas)}),
        Shape::Message(name) => {
            types(name, schemas);
            json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}]})
        }
    }
}

fn object_meta() -> Value {
    let text = || json!({"type": "string"});
    let time = || json!({"type": "string", "format": "date-time"});
    let map = || json!({"type": "object", "additionalProperties": {"type": "string", "default": ""}});
    json!({"type": "object", "properties": {
        "name": text(), "generateName": text(), "namespace": text(), "selfLink": text(), "uid": text(),
        "resourceVersion": text(), "generation": {"type": "integer", "format": "int64"},
        "creationTimestamp": time(), "deletionTimestamp": time(),
        "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
        "labels": map(), "annotations": map(),
        "finalizers": {"type": "array", "items": {"type": "string", "default": ""}, "x-kubernetes-list-type": "set",
            "x-kubernetes-patch-strategy": "merge"},
        "ownerReferences": {"type": "array", "items": {"type": "object",
            "required": ["apiVersion", "kind", "name", "uid"],
            "properties": {"apiVersion": text(), "kind": text(), "name": text(), "uid": text(),
                "controller": {"type": "boolean"}, "blockOwnerDeletion": {"type": "boolean"}},
            "x-kubernetes-map-type": "atomic"},
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
            "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "uid"},
        "managedFields": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "atomic"},
    }})
}

/// Clients that know no extensions are told what an int-or-string is.
fn publish_int_or_string(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true))
                && !members.contains_key("anyOf")
                && !members.contains_key("allOf")
            {
                members.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
            }
            members.values_mut().for_each(publish_int_or_string);
        }
        Value::Array(items) => items.iter_mut().for_each(publish_int_or_string),
        _ => {}
    }
}

/// An object in an object has the fields that all objects have, whatever its schema says of them.
fn publish_embedded(schema: &mut Value) {
    let Value::Object(members) = schema else { return };
    if let Some(Value::Object(properties)) = members.get_mut("properties") {
        properties.values_mut().for_each(publish_embedded);
    }
    for holder in ["items", "additionalProperties"] {
        if let Some(inner) = members.get_mut(holder) {
            publish_embedded(inner);
        }
    }
    if members.get("x-kubernetes-embedded-resource") != Some(&Value::Bool(true)) {
        return;
    }
    let text = |description: &str| json!({"type": "string", "description": description});
    let properties = members.entry("properties").or_insert_with(|| json!({}));
    properties["apiVersion"] = text(
        "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources",
    );
    properties["kind"] = text(
        "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
    );
    properties["metadata"] = metadata();
    let required = members.entry("required").or_insert_with(|| json!([]));
    for name in ["kind", "apiVersion"] {
        if let Some(names) = required.as_array_mut().filter(|names| !names.iter().any(|there| there == name)) {
            names.push(name.into());
        }
    }
}

fn metadata() -> Value {
    json!({
        "description": "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
        "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]})
}

/// A custom resource's schema says nothing about the fields that all objects have; its document does.
fn publish_metadata(schema: &mut Value) {
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    schema["properties"]["apiVersion"] = json!({"type": "string",
        "description": "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"});
    schema["properties"]["kind"] = json!({"type": "string",
        "description": "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"});
    schema["properties"]["metadata"] = metadata();
}
