//! What is applied says of what kind it is, and is refused in upstream's words where that is not the kind of the path.

use crate::hostile::Hostile;
use serde_json::json;

const APPLY: &str = "application/apply-patch+yaml";

#[tokio::test]
async fn what_is_applied_is_of_the_paths_kind() {
    let hostile = Hostile::start(None).await;
    hostile.define().await;
    let definition = json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true,
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
            "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}}}}]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.test.io";
    let merge = "application/merge-patch+json";
    assert_eq!(hostile.ask("PATCH", path, merge, definition.to_string()).await.0, 200);
    let server = hostile.server.clone();
    tokio::task::spawn_blocking(move || server.sync_definitions()).await.unwrap();
    let (things, maps) = ("/apis/test.io/v1/namespaces/default/things", "/api/v1/namespaces/default/configmaps");
    let thing =
        json!({"apiVersion": "test.io/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"replicas": 1}});
    assert_eq!(hostile.ask("POST", things, "application/json", thing.to_string()).await.0, 201);
    for (at, own) in [
        (format!("{things}/a"), ("test.io/v1", "Thing")),
        (format!("{things}/a/status"), ("test.io/v1", "Thing")),
        (format!("{things}/a/scale"), ("autoscaling/v1", "Scale")),
        (format!("{things}/new"), ("test.io/v1", "Thing")),
        (format!("{maps}/new"), ("v1", "ConfigMap")),
    ] {
        for (version, kind) in [
            ("test.io/v1", "Thing"),
            ("test.io/v2", "Thing"),
            ("test.io/v1", "Scale"),
            ("autoscaling/v1", "Scale"),
            ("autoscaling/v2", "Scale"),
            ("v1", "ConfigMap"),
            ("v1", "Secret"),
            ("", ""),
        ] {
            let name = at.strip_suffix("/new").map_or("a", |_| "new");
            let body = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
            let path = format!("{at}?fieldManager=m&force=true&dryRun=All");
            let (code, answer) = hostile.ask("PATCH", &path, APPLY, body.to_string()).await;
            if (version, kind) == own {
                let message = answer["message"].as_str().unwrap_or_default();
                assert!(!message.contains("invalid object type"), "{path}: {code} {message}");
                continue;
            }
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let expected = format!("invalid object type: {group}/{version}, Kind={kind}");
            assert_eq!((code, &answer["message"]), (400, &json!(expected)), "{path}");
        }
    }
    let scale =
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"more": 1}});
    for (validation, code) in [("Strict", 400), ("Warn", 200), ("Ignore", 200)] {
        let path = format!("{things}/a/scale?dryRun=All&fieldValidation={validation}");
        let (told, answer) = hostile.ask("PUT", &path, "application/json", scale.to_string()).await;
        assert_eq!(told, code, "{validation}: {answer}");
    }
    let other = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "none"}}).to_string();
    let path = format!("{things}/none/status?fieldManager=m");
    assert_eq!(hostile.ask("PATCH", &path, APPLY, other).await.0, 404, "whether it is there is asked first");
}

/// Recorded from Kubernetes 1.36.3, where built-in kinds and others answer the same.
#[tokio::test]
async fn patches_that_are_no_objects_are_refused_in_upstreams_words() {
    let hostile = Hostile::start(None).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let (code, answer) =
        hostile.ask("POST", path, "application/json", json!({"metadata": {"name": "m"}}).to_string()).await;
    assert_eq!(code, 201, "{answer}");
    let no_object =
        "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct";
    let map = "into Go value of type map[string]interface {}";
    for (media, validation, body, code, words) in [
        ("merge-patch+json", "Ignore", "[]", 422, format!("patch: Invalid value: \"[]\": {no_object}")),
        (
            "merge-patch+json",
            "Ignore",
            r#"[{"a":null}, null]"#,
            422,
            format!("patch: Invalid value: \"[{{}},null]\": {no_object}"),
        ),
        ("merge-patch+json", "Ignore", "1", 400, "Invalid JSON Patch".to_owned()),
        ("merge-patch+json", "Ignore", "null", 400, "Invalid JSON Patch".to_owned()),
        ("merge-patch+json", "Strict", "null", 400, "Invalid JSON Patch".to_owned()),
        ("merge-patch+json", "Strict", "[]", 400, format!("error decoding patch: json: cannot unmarshal array {map}")),
        ("merge-patch+json", "Strict", "true", 400, format!("error decoding patch: json: cannot unmarshal bool {map}")),
        ("apply-patch+yaml", "Strict", "null", 400, "invalid object type: /, Kind=".to_owned()),
        (
            "apply-patch+yaml",
            "Strict",
            "- a",
            400,
            format!(
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array {map}"
            ),
        ),
        ("apply-patch+yaml", "Strict", "x", 400, format!("while decoding JSON: json: cannot unmarshal string {map}")),
    ] {
        let query = format!("{path}/m?fieldManager=f&fieldValidation={validation}");
        let (answered, answer) = hostile.ask("PATCH", &query, &format!("application/{media}"), body).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert_eq!((answered, message.contains(&words)), (code, true), "{media} {validation} {body}: {answer}");
    }
}
