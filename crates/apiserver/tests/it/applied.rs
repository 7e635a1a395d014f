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
    let other = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "none"}}).to_string();
    let path = format!("{things}/none/status?fieldManager=m");
    assert_eq!(hostile.ask("PATCH", &path, APPLY, other).await.0, 404, "whether it is there is asked first");
}
