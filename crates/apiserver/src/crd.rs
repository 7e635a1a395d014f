//! Custom resources: turns CustomResourceDefinitions into served kinds.

mod controller;
mod strategy;

pub use controller::Definitions;

use crate::registry::compare_versions;
use crate::registry::{Custom, Served};
use bytes::Bytes;
use merge::schema::Schema;
use objects::part;
use resource::jsonpath::JsonPath;
use resource::{Column, Resource, Strategy, Subresource};
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};
use store::Revision;
use strategy::CustomStrategy;
use tokio_util::sync::CancellationToken;

/// The engine's form of an `openAPIV3Schema`. One that cannot be read admits everything; definitions are checked before
/// they are stored, so that does not happen to those.
pub(crate) fn schema(openapi: &Value) -> Arc<Schema> {
    match Schema::from_openapi(openapi) {
        Ok(schema) => Arc::new(schema),
        Err(error) => {
            tracing::error!(%error, "a stored schema cannot be read");
            Arc::new(Schema { preserve_unknown: true, ..<Schema as Default>::default() })
        }
    }
}

/// The engine's form of the text of an `openAPIV3Schema`.
pub(crate) fn schema_of(openapi: &[u8]) -> Arc<Schema> {
    schema(&serde_json::from_slice(openapi).unwrap_or_default())
}

/// What a version without a schema takes.
const OPEN: &[u8] = br#"{"type":"object","x-kubernetes-preserve-unknown-fields":true}"#;

/// `openAPIV3Schema` of each version in a definition's text.
fn schemas(text: &Bytes) -> Vec<Bytes> {
    let versions = part::member(text, "spec").and_then(|spec| part::member(spec, "versions")).unwrap_or_default();
    let openapi = |version| part::member(part::member(version, "schema")?, "openAPIV3Schema");
    let schemas = part::elements(versions).map(openapi);
    schemas.map(|openapi| openapi.map_or(Bytes::from_static(OPEN), |openapi| text.slice_ref(openapi))).collect()
}

/// The text of a selectable field.
pub(crate) fn selected(object: &Value, path: &str) -> String {
    match resource::jsonpath::simple(object, path) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The kind as its objects are stored, whether or not that version is served; `fresh_from`: see [`Custom`].
pub(crate) fn stored(definition: &Value, fresh_from: Revision) -> Option<Served> {
    let mut definition = definition.clone();
    let versions = definition["spec"]["versions"].as_array_mut()?;
    versions.retain(|version| version["storage"] == true);
    versions.iter_mut().for_each(|version| version["served"] = true.into());
    let text = serde_json::to_vec(&definition).unwrap_or_default();
    served(&definition, &text.into(), fresh_from).pop()
}

/// The kinds that a definition serves, one for each version; `text`: the definition's; `fresh_from`: see [`Custom`].
pub(crate) fn served(definition: &Value, text: &Bytes, fresh_from: Revision) -> Vec<Served> {
    let schemas = schemas(text);
    let spec = &definition["spec"];
    // What was accepted is served, not what is asked for.
    let accepted = &definition["status"]["acceptedNames"];
    let names = if accepted["plural"].as_str().is_some_and(|p| !p.is_empty()) { accepted } else { &spec["names"] };
    let text = |value: &Value, field: &str| api::object::text(value, field).to_owned();
    let group = text(spec, "group");
    let kind = text(names, "kind");
    let versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    let stored = versions.iter().find(|v| v["storage"] == true);
    let storage_version = stored.map(|v| text(v, "name")).unwrap_or_default();
    let serves_storage_version = stored.is_some_and(|v| v["served"] == true);
    let ended = CancellationToken::new();
    versions
        .iter()
        .copied()
        .zip(&schemas)
        .filter(|(version, _)| version["served"] == true)
        .map(|(version, openapi)| {
            let name = text(version, "name");
            let subresources = &version["subresources"];
            let has_status = subresources.get("status").is_some_and(Value::is_object);
            let scale = subresources.get("scale").filter(|s| s.is_object()).cloned();
            let mut served_subresources = Vec::new();
            let sub = |what: &'static str, group: &str, version: &str, kind: &str| Subresource {
                name: what,
                group: group.to_owned(),
                version: version.to_owned(),
                kind: kind.to_owned(),
                verbs: vec!["get", "patch", "update"],
            };
            if has_status {
                served_subresources.push(sub("status", &group, &name, &kind));
            }
            if scale.is_some() {
                served_subresources.push(sub("scale", "autoscaling", "v1", "Scale"));
            }
            let list_kind = match api::object::text(names, "listKind") {
                "" => format!("{kind}List"),
                list_kind => list_kind.to_owned(),
            };
            let strategy = CustomStrategy { has_status, scale: scale.clone() };
            let resource = Resource {
                group: group.clone(),
                version: name,
                list_kind,
                plural: text(names, "plural"),
                singular: match api::object::text(names, "singular") {
                    "" => kind.to_lowercase(),
                    singular => singular.to_owned(),
                },
                kind: kind.clone(),
                namespaced: spec["scope"] == "Namespaced",
                short_names: strings(&names["shortNames"]),
                categories: strings(&names["categories"]),
                verbs: vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
                subresources: served_subresources,
                schema: Arc::default(),
                columns: columns(version),
                facts: strategy.facts(),
                strategy: Arc::new(strategy),
                type_name: None,
                custom: true,
            };
            let selectable = version["selectableFields"].as_array().into_iter().flatten();
            let deprecation = (version["deprecated"] == true).then(|| match version["deprecationWarning"].as_str() {
                Some(warning) => warning.to_owned(),
                None => {
                    let name = text(version, "name");
                    let newer = versions
                        .iter()
                        .filter(|v| v["served"] == true && v["deprecated"] != true)
                        .map(|v| text(v, "name"))
                        .filter(|other| compare_versions(other, &name).is_gt())
                        .max_by(|a, b| compare_versions(a, b));
                    let instead = newer.map_or_else(String::new, |newer| format!("; use {group}/{newer} {kind}"));
                    format!("{group}/{name} {kind} is deprecated{instead}")
                }
            });
            let custom = Custom {
                schemas: versions
                    .iter()
                    .zip(&schemas)
                    .map(|(v, openapi)| (text(v, "name"), (openapi.clone(), OnceLock::new())))
                    .collect(),
                deprecation,
                terminating: api::object::is_terminating(definition),
                ended: ended.clone(),
                uid: api::object::uid(definition).to_owned(),
                generation: definition["metadata"]["generation"].as_i64().unwrap_or(0),
                accepted: definition["status"]["acceptedNames"].clone(),
                openapi: openapi.clone(),
                storage_version: storage_version.clone(),
                serves_storage_version,
                selectable: selectable
                    .map(|f| api::object::text(f, "jsonPath").trim_start_matches('.').to_owned())
                    .collect(),
                scale,
                has_status,
                fresh_from,
            };
            Served::custom(resource, custom)
        })
        .collect()
}

/// Name first, then what the definition names, up to the first whose path is none; without columns of its own, the age.
fn columns(version: &Value) -> Vec<Column> {
    let own = version["additionalPrinterColumns"].as_array().cloned().unwrap_or_default();
    let own = if own.is_empty() {
        vec![json!({
            "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
            "description": "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
        })]
    } else {
        own
    };
    let has_path = |column: &&Value| JsonPath::parse(api::object::text(column, "jsonPath")).is_some();
    own.iter()
        .take_while(has_path)
        .map(|column| {
            let text = |field: &str| api::object::text(column, field).to_owned();
            Column {
                name: text("name"),
                kind: text("type"),
                format: text("format"),
                description: text("description"),
                priority: column["priority"].as_i64().and_then(|p| i32::try_from(p).ok()).unwrap_or(0),
                json_path: Some(text("jsonPath")),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_end_at_the_first_whose_path_is_none() {
        let shown = |paths: &[&str]| -> Vec<String> {
            let own: Vec<Value> = paths.iter().map(|path| json!({"name": path, "jsonPath": path})).collect();
            columns(&json!({"additionalPrinterColumns": own})).into_iter().map(|column| column.name).collect()
        };
        assert_eq!(shown(&[".a", ".b[?(@.c>1)]"]), [".a", ".b[?(@.c>1)]"]);
        assert_eq!(shown(&[".a", ".b[", ".c"]), [".a"]);
        assert_eq!(shown(&[]), ["Age"]);
    }

    #[test]
    fn schemas_are_parts_of_the_definitions_text() {
        let definition = json!({"metadata": {"name": "things.example.dev", "uid": "u", "generation": 3}, "spec": {
        "group": "example.dev", "names": {"plural": "things", "kind": "Thing"}, "scope": "Namespaced", "versions": [
            {"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "title": "]}\"[{"}}},
            {"name": "v1beta1", "served": false, "storage": true},
            {"name": "v1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
        ]}});
        let text = Bytes::from(serde_json::to_vec(&definition).unwrap());
        let served = served(&definition, &text, 7);
        let customs: Vec<&Custom> = served.iter().filter_map(|served| served.custom.as_ref()).collect();
        let shown: Vec<&[u8]> = customs.iter().map(|custom| &*custom.openapi).collect();
        assert_eq!(shown, [&br#"{"title":"]}\"[{","type":"object"}"#[..], br#"{"type":"object"}"#]);
        for custom in customs {
            // `slice_ref` panics where the one is no part of the other
            assert_eq!(text.slice_ref(&custom.openapi), custom.openapi);
            assert_eq!((custom.uid.as_str(), custom.generation, custom.serves_storage_version), ("u", 3, false));
            assert_eq!(&*custom.schemas["v1beta1"].0, OPEN);
        }
    }
}
