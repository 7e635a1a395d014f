//! The operations of each path in an OpenAPI document: parameters, bodies and answers.

use super::{descriptions, gvk};
use crate::registry::Served;
use resource::Subresource;
use serde_json::{Map, Value, json};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
/// A builtin kind's, which custom resources do not have.
const STRATEGIC: &str = PATCHES[3];

/// The action of what is no request with an answer, but a connection.
const CONNECT: &str = "connect";
const PROXY: &str = "proxy";

fn query(name: &str, kind: &str) -> Value {
    let schema = json!({"type": kind, "uniqueItems": true});
    json!({"name": name, "in": "query", "description": descriptions::of_parameter(name), "schema": schema})
}

fn in_path(name: &str) -> Value {
    let (description, schema) = (descriptions::of_parameter(name), json!({"type": "string", "uniqueItems": true}));
    json!({"name": name, "in": "path", "description": description, "required": true, "schema": schema})
}

fn queries(texts: &[&str], numbers: &[&str], flags: &[&str]) -> Vec<Value> {
    let of = |names: &[&str], kind: &str| names.iter().map(|name| query(name, kind)).collect::<Vec<_>>();
    [of(texts, "string"), of(numbers, "integer"), of(flags, "boolean")].concat()
}

fn writes() -> Vec<Value> {
    queries(&["dryRun", "fieldManager", "fieldValidation"], &[], &[])
}

fn selects() -> Vec<Value> {
    let texts = ["continue", "fieldSelector", "labelSelector", "resourceVersion", "resourceVersionMatch"];
    queries(&texts, &["limit", "timeoutSeconds"], &["allowWatchBookmarks", "sendInitialEvents", "watch"])
}

fn deletes() -> Vec<Value> {
    queries(&["dryRun", "propagationPolicy"], &["gracePeriodSeconds"], &["orphanDependents"])
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// One kind's operations.
struct Operations<'a> {
    served: &'a Served,
    /// What the operations are about, as `x-kubernetes-group-version-kind` says it.
    gvk: Value,
    one: Value,
    list: Value,
}

impl Operations<'_> {
    /// `codes`: those of success, which have all the same body.
    fn operation(&self, action: &str, parameters: Vec<Value>, codes: &[u16], schema: &Value) -> Value {
        let mut responses = Map::new();
        for code in codes {
            let description = match code {
                201 => "Created",
                202 => "Accepted",
                _ => "OK",
            };
            let content = json!({"application/json": {"schema": schema}});
            responses.insert(code.to_string(), json!({"description": description, "content": content}));
        }
        responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        let failure = json!({"application/json": {"schema": reference(&format!("{META}.Status"))}});
        responses.insert("default".to_owned(), json!({"description": "Status", "content": failure}));
        json!({
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": self.gvk,
            "parameters": parameters,
            "responses": responses,
        })
    }

    fn with_body(mut operation: Value, media: &[&str], schema: &Value, required: bool) -> Value {
        let content: Map<String, Value> =
            media.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect();
        operation["requestBody"] = json!({"content": content, "required": required});
        operation
    }

    fn of(&self, verb: &str) -> Option<(&'static str, Value)> {
        let (one, list) = (&self.one, &self.list);
        let object = ["application/json", "application/yaml"];
        let options = |operation| {
            Self::with_body(operation, &["application/json"], &reference(&format!("{META}.DeleteOptions")), false)
        };
        Some(match verb {
            "list" => ("get", self.operation("list", selects(), &[200], list)),
            "get" => ("get", self.operation("get", queries(&["resourceVersion"], &[], &[]), &[200], one)),
            "create" => {
                ("post", Self::with_body(self.operation("post", writes(), &[200, 201, 202], one), &object, one, true))
            }
            "update" => ("put", Self::with_body(self.operation("put", writes(), &[200, 201], one), &object, one, true)),
            "patch" => {
                let parameters = [writes(), queries(&[], &[], &["force"])].concat();
                let of_custom = self.served.custom.is_some();
                let media: Vec<&str> =
                    PATCHES.into_iter().filter(|media| !(of_custom && *media == STRATEGIC)).collect();
                let patch = self.operation("patch", parameters, &[200, 201], one);
                ("patch", Self::with_body(patch, &media, &reference(&format!("{META}.Patch")), true))
            }
            "deletecollection" => {
                let parameters = [selects(), deletes()].concat();
                // the objects that are deleted; upstream's document says Status, and answers as this does
                ("delete", options(self.operation("deletecollection", parameters, &[200], list)))
            }
            "delete" => {
                // the object where it goes on, else a Status
                let either = json!({"anyOf": [one, reference(&format!("{META}.Status"))]});
                ("delete", options(self.operation("delete", deletes(), &[200, 202], &either)))
            }
            _ => return None,
        })
    }

    /// Operations of what an object has beside itself.
    fn of_subresource(&self, sub: &Subresource) -> Map<String, Value> {
        let own = &self.served.resource;
        // upstream names the object of a custom kind, also where another kind is sent
        let gvk = match self.served.custom {
            Some(_) => self.gvk.clone(),
            None => json!({"group": sub.group, "version": sub.version, "kind": sub.kind}),
        };
        let one = if sub.kind == own.kind { self.one.clone() } else { reference(&component_of(sub)) };
        let kind = Operations { served: self.served, gvk, one, list: self.list.clone() };
        let text = |action: &str, media: &str, parameters: Vec<Value>| {
            let mut operation = kind.operation(action, parameters, &[200], &Value::Null);
            operation["responses"]["200"]["content"] = json!({media: {"schema": {"type": "string"}}});
            operation
        };
        if let Some(parameters) = connects(&sub.kind) {
            let any_method = ["delete", "get", "head", "options", "patch", "post", "put"];
            let methods = if sub.name == PROXY { &any_method[..] } else { &["get", "post"] };
            let operation = text(CONNECT, "*/*", parameters);
            return methods.iter().map(|method| ((*method).to_owned(), operation.clone())).collect();
        }
        if sub.name == "log" {
            let parameters = queries(
                &["container", "stream"],
                &["limitBytes", "sinceSeconds", "tailLines"],
                &["follow", "insecureSkipTLSVerifyBackend", "previous", "timestamps"],
            );
            return [("get".to_owned(), text("get", "text/plain", parameters))].into_iter().collect();
        }
        let operations = sub.verbs.iter().filter_map(|verb| kind.of(verb));
        operations.map(|(method, operation)| (method.to_owned(), operation)).collect()
    }
}

/// The parameters of a kind of connection; `None`: it is none.
fn connects(kind: &str) -> Option<Vec<Value>> {
    let streams = ["stderr", "stdin", "stdout", "tty"];
    Some(match kind {
        "PodAttachOptions" => queries(&["container"], &[], &streams),
        "PodExecOptions" => queries(&["command", "container"], &[], &streams),
        "PodPortForwardOptions" => queries(&[], &["ports"], &[]),
        "PodProxyOptions" => queries(&["path"], &[], &[]),
        _ => return None,
    })
}

/// The name of the schema of what is sent to a subresource, where that is no object of its own kind; `None` where it has none.
pub(super) fn foreign(served: &Served, sub: &Subresource) -> Option<String> {
    let has_schema = sub.kind != served.resource.kind && connects(&sub.kind).is_none();
    has_schema.then(|| component_of(sub))
}

fn component_of(sub: &Subresource) -> String {
    let group = if sub.group.is_empty() { "core" } else { sub.group.split('.').next().unwrap_or_default() };
    format!("io.k8s.api.{group}.{}.{}", sub.version, sub.kind)
}

/// Adds the paths of a kind. `component`: its schema's name.
pub(super) fn add(served: &Served, component: &str, paths: &mut Map<String, Value>) {
    let r = &served.resource;
    let prefix =
        if r.group.is_empty() { format!("/api/{}", r.version) } else { format!("/apis/{}/{}", r.group, r.version) };
    let base = if r.namespaced {
        format!("{prefix}/namespaces/{{namespace}}/{}", r.plural)
    } else {
        format!("{prefix}/{}", r.plural)
    };
    let list = reference(&format!("{component}List"));
    let kind = Operations { served, gvk: gvk(served), one: reference(component), list: list.clone() };
    let with = |mut operations: Map<String, Value>, path: &str| {
        // in each operation, where clients of either version look for them
        let named: Vec<Value> = ["namespace", "name", "path"]
            .into_iter()
            .filter(|n| path.contains(&format!("{{{n}}}")))
            .map(in_path)
            .collect();
        for operation in operations.values_mut() {
            let is_connection = operation["x-kubernetes-action"] == CONNECT;
            if let Some(parameters) = operation["parameters"].as_array_mut() {
                parameters.extend(named.iter().cloned());
                parameters.extend((!is_connection).then(|| query("pretty", "string")));
            }
        }
        Value::Object(operations)
    };
    let mut collection = Map::new();
    let mut single = Map::new();
    for verb in &r.verbs {
        let Some((method, operation)) = kind.of(verb) else { continue };
        let place = if matches!(*verb, "list" | "create" | "deletecollection") { &mut collection } else { &mut single };
        place.insert(method.to_owned(), operation);
    }
    if r.namespaced && r.verbs.contains(&"list") {
        let path = format!("{prefix}/{}", r.plural);
        let list = kind.of("list").map(|(method, operation)| (method.to_owned(), operation));
        paths.insert(path.clone(), with(list.into_iter().collect(), &path));
    }
    if !collection.is_empty() {
        paths.insert(base.clone(), with(collection, &base));
    }
    if !single.is_empty() {
        let path = format!("{base}/{{name}}");
        for sub in &r.subresources {
            let operations = kind.of_subresource(sub);
            let path = format!("{path}/{}", sub.name);
            if sub.name == PROXY {
                let path = format!("{path}/{{path}}");
                paths.insert(path.clone(), with(operations.clone(), &path));
            }
            paths.insert(path.clone(), with(operations, &path));
        }
        paths.insert(path.clone(), with(single, &path));
    }
}

/// Types of bodies that belong to no kind.
pub(super) fn schemas(schemas: &mut Map<String, Value>) {
    let number = || json!({"type": "integer", "format": "int64"});
    let text = || json!({"type": "string"});
    schemas.entry(format!("{META}.Patch")).or_insert_with(|| {
        json!({"description": "Patch is provided to give a concrete name and type to the Kubernetes PATCH request body.", "anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]})
    });
    schemas.entry(format!("{META}.Status")).or_insert_with(|| {
        json!({"type": "object", "properties": {
            "apiVersion": text(), "kind": text(), "metadata": reference(&format!("{META}.ListMeta")),
            "status": text(), "message": text(), "reason": text(), "code": {"type": "integer", "format": "int32"},
            "details": {"type": "object", "properties": {
                "name": text(), "group": text(), "kind": text(), "uid": text(),
                "retryAfterSeconds": {"type": "integer", "format": "int32"},
                "causes": {"type": "array", "items": {"type": "object", "properties": {
                    "reason": text(), "message": text(), "field": text()}}}}},
        }})
    });
    schemas.entry(format!("{META}.DeleteOptions")).or_insert_with(|| {
        json!({"type": "object", "properties": {
            "apiVersion": text(), "kind": text(), "gracePeriodSeconds": number(), "orphanDependents": {"type": "boolean"},
            "propagationPolicy": text(), "dryRun": {"type": "array", "items": text()},
            "ignoreStoreReadErrorWithClusterBreakingPotential": {"type": "boolean"},
            "preconditions": {"type": "object", "properties": {"uid": text(), "resourceVersion": text()}},
        }})
    });
}
