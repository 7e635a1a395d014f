//! What the server says of itself, where upstream's documents were looked at.

use crate::hostile::Hostile;
use serde_json::{Value, json};

const JSON: &str = "application/json";

#[tokio::test]
async fn the_hash_of_a_version_that_is_not_served_is_not_told() {
    let hostile = Hostile::start(None).await;
    let version = |name: &str, served: bool, storage: bool| json!({"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}}});
    for (group, is_served) in [("kept.test.io", true), ("gone.test.io", false)] {
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("things.{group}")}, "spec": {"group": group, "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing"}, "versions": [version("v1", is_served, true), version("v2", true, false)]}});
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        assert_eq!(hostile.ask("POST", path, JSON, definition.to_string()).await.0, 201);
        let server = hostile.server.clone();
        tokio::task::spawn_blocking(move || server.sync_definitions()).await.unwrap();
        let (code, answer) = hostile.ask("GET", &format!("/apis/{group}/v2"), JSON, "").await;
        assert_eq!(code, 200, "{answer}");
        assert_eq!(answer["resources"][0]["storageVersionHash"].is_string(), is_served, "{answer}");
    }
}

#[tokio::test]
async fn hashes_are_those_that_upstream_tells() {
    let hostile = Hostile::start(None).await;
    let (_, answer) = hostile.ask("GET", "/apis/admissionregistration.k8s.io/v1", JSON, "").await;
    let hash = |name: &str| {
        let mut resources = answer["resources"].as_array().into_iter().flatten();
        resources.find(|one| one["name"] == name).map(|one| one["storageVersionHash"].clone())
    };
    // the first eight bytes of the SHA-256 of group, version and kind
    assert_eq!(hash("mutatingadmissionpolicies"), Some(json!("LYmCf+UMVdg=")));
    assert_eq!(hash("validatingadmissionpolicies"), Some(json!("6OxvlMmQ6is=")));
}

#[tokio::test]
async fn what_a_pod_has_beside_itself_is_described() {
    let hostile = Hostile::start(None).await;
    let (_, document) = hostile.ask("GET", "/openapi/v3/api/v1", JSON, "").await;
    let methods = |path: &str| -> Vec<String> {
        document["paths"][path].as_object().into_iter().flatten().map(|(method, _)| method.clone()).collect()
    };
    let inside = "/api/v1/namespaces/{namespace}";
    let any = ["delete", "get", "head", "options", "patch", "post", "put"];
    for (path, expected) in [
        ("pods/{name}/attach", &["get", "post"][..]),
        ("pods/{name}/binding", &["post"]),
        ("pods/{name}/ephemeralcontainers", &["get", "patch", "put"]),
        ("pods/{name}/eviction", &["post"]),
        ("pods/{name}/exec", &["get", "post"]),
        ("pods/{name}/log", &["get"]),
        ("pods/{name}/portforward", &["get", "post"]),
        ("pods/{name}/proxy", &any),
        ("pods/{name}/proxy/{path}", &any),
        ("pods/{name}/resize", &["get", "patch", "put"]),
        ("pods/{name}/status", &["get", "patch", "put"]),
        ("serviceaccounts/{name}/token", &["post"]),
        ("replicationcontrollers/{name}/scale", &["get", "patch", "put"]),
    ] {
        assert_eq!(methods(&format!("{inside}/{path}")), expected, "{path}");
    }
    assert_eq!(methods("/api/v1/namespaces/{name}/finalize"), ["put"]);
    let of = |path: &str, method: &str| document["paths"][format!("{inside}/pods/{{name}}/{path}")][method].clone();
    let names = |operation: &Value| -> Vec<Value> {
        operation["parameters"].as_array().into_iter().flatten().map(|one| one["name"].clone()).collect()
    };
    let exec = of("exec", "post");
    assert_eq!(exec["x-kubernetes-action"], "connect");
    assert_eq!(names(&exec), ["command", "container", "stderr", "stdin", "stdout", "tty", "namespace", "name"]);
    let eviction = &of("eviction", "post")["requestBody"]["content"]["application/json"]["schema"]["$ref"];
    assert_eq!(eviction, "#/components/schemas/io.k8s.api.policy.v1.Eviction");
    assert!(
        document["components"]["schemas"]["io.k8s.api.policy.v1.Eviction"]["properties"]["deleteOptions"].is_object()
    );
    let (code, old) = hostile.ask("GET", "/openapi/v2", JSON, "").await;
    assert_eq!(code, 200);
    let log = &old["paths"][format!("{inside}/pods/{{name}}/log")]["get"]["responses"]["200"]["schema"];
    assert_eq!(log, &json!({"type": "string"}));
}

#[tokio::test]
async fn a_patch_that_changes_the_kind_is_told_the_go_types() {
    let hostile = Hostile::start(None).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    for (path, patch, why) in [
        (maps, json!({"kind": "Pod"}), "converting (v1.Pod) to (core.ConfigMap): unknown conversion"),
        (roles, json!({"kind": "RoleBinding"}), "converting (v1.RoleBinding) to (rbac.Role): unknown conversion"),
    ] {
        assert_eq!(hostile.ask("POST", path, JSON, json!({"metadata": {"name": "a"}}).to_string()).await.0, 201);
        let media = "application/merge-patch+json";
        let (code, answer) = hostile.ask("PATCH", &format!("{path}/a"), media, patch.to_string()).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(code == 422 && message.ends_with(why), "{answer}");
    }
}

#[tokio::test]
async fn metadata_and_parameters_are_described_and_scales_are_of_their_kind() {
    let hostile = Hostile::start(None).await;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}});
    let scale = json!({"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.scaled.io"}, "spec": {"group": "scaled.io", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}, "subresources": {"scale": scale}}]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(hostile.ask("POST", path, JSON, definition.to_string()).await.0, 201);
    let server = hostile.server.clone();
    tokio::task::spawn_blocking(move || server.sync_definitions()).await.unwrap();
    let (_, core) = hostile.ask("GET", "/openapi/v3/api/v1", JSON, "").await;
    let (_, apps) = hostile.ask("GET", "/openapi/v3/apis/apps/v1", JSON, "").await;
    let (_, custom) = hostile.ask("GET", "/openapi/v3/apis/scaled.io/v1", JSON, "").await;
    let (_, old) = hostile.ask("GET", "/openapi/v2", JSON, "").await;
    let schemas = &core["components"]["schemas"];
    let has_words = |value: &Value| value["description"].as_str().is_some_and(|text| !text.is_empty());
    let meta = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"];
    assert!(meta.as_object().unwrap().values().all(has_words), "{meta}");
    for field in ["apiVersion", "kind", "metadata", "spec", "status"] {
        assert!(has_words(&schemas["io.k8s.api.core.v1.Pod"]["properties"][field]), "{field}");
    }
    // each operation says what its parameters are, in both versions
    for document in [&core, &apps, &custom, &old] {
        for (path, item) in document["paths"].as_object().unwrap() {
            for operation in item.as_object().unwrap().values() {
                let parameters = operation["parameters"].as_array().unwrap();
                let silent = parameters.iter().find(|parameter| !has_words(parameter));
                assert!(silent.is_none(), "{path}: {silent:?}");
            }
        }
    }
    let gvk = |document: &Value, path: &str| document["paths"][path]["get"]["x-kubernetes-group-version-kind"].clone();
    let named = "namespaces/{namespace}";
    let own = json!({"group": "scaled.io", "version": "v1", "kind": "Thing"});
    assert_eq!(gvk(&custom, &format!("/apis/scaled.io/v1/{named}/things/{{name}}/scale")), own);
    let scale = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
    assert_eq!(gvk(&apps, &format!("/apis/apps/v1/{named}/deployments/{{name}}/scale")), scale);
    // version 2 says nothing of an object that may hold anything
    let told = json!({"type": "object", "x-kubernetes-group-version-kind": [own]});
    assert_eq!(old["definitions"]["io.scaled.v1.Thing"], told);
    assert!(custom["components"]["schemas"]["io.scaled.v1.Thing"]["properties"]["spec"].is_object());
}
