//! What the server says of itself, where upstream's documents were looked at.

use crate::hostile::Hostile;
use serde_json::{Value, json};

const JSON: &str = "application/json";

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
