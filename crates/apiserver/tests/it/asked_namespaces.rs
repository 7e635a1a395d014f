//! Rows as those of `asked.rs` about namespaces that go.

use crate::asked::{JSON, MERGE, Row, all_are_answered, message};
use crate::hostile::Hostile;
use serde_json::{Value, json};

#[tokio::test]
async fn of_namespaces_that_go() {
    let hostile = Hostile::start(None).await;
    let all = "/api/v1/namespaces";
    let one = format!("{all}/going");
    let inside = |rest: &str| format!("{one}/{rest}");
    let map = |name: &str| json!({"metadata": {"name": name}});
    let bad = json!({"metadata": {"labels": {"!": "x"}}});
    let finalized = json!({"metadata": {"name": "going"}, "spec": {"finalizers": []}});
    let review = json!({"spec": {}});
    let lease = json!({"metadata": {"name": "l"}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/going/leases";
    let rows: Vec<Row> = vec![
        (
            "GET",
            format!("{all}/default"),
            JSON,
            Value::Null,
            200,
            vec![("/body/metadata/managedFields/0/manager", "kube-apiserver".into())],
        ),
        (
            "POST",
            all.into(),
            JSON,
            json!({"metadata": {"name": "going"}, "spec": {"finalizers": ["example.com/x", "orphan"]}}),
            201,
            vec![],
        ),
        ("POST", inside("configmaps"), JSON, map("a"), 201, vec![]),
        ("POST", inside("serviceaccounts"), JSON, map("s"), 201, vec![]),
        // its metadata is looked at four times, and by its parts three times
        (
            "PATCH",
            one.clone(),
            MERGE,
            bad.clone(),
            422,
            vec![("/body/details/causes/3/field", "metadata.labels".into())],
        ),
        (
            "PATCH",
            inside("status"),
            MERGE,
            bad,
            422,
            vec![("/body/details/causes/2/field", "metadata.labels".into()), ("/body/details/causes/3", Value::Null)],
        ),
        (
            "PUT",
            inside("finalize"),
            JSON,
            json!({"metadata": {"name": "going"}, "spec": {"finalizers": ["bad one"]}}),
            422,
            message("[spec.finalizers[0]: Invalid value: \"bad one\": name part must consist"),
        ),
        (
            "DELETE",
            one.clone(),
            JSON,
            json!({"orphanDependents": false}),
            202,
            vec![("/body/metadata/finalizers/0", "foregroundDeletion".into())],
        ),
        // it goes already
        (
            "DELETE",
            one.clone(),
            JSON,
            json!({"propagationPolicy": "Orphan"}),
            200,
            vec![("/body/metadata/finalizers/0", "foregroundDeletion".into())],
        ),
        (
            "POST",
            inside("configmaps"),
            JSON,
            json!({"metadata": {"generateName": "g-"}}),
            403,
            message("configmaps \"g-\" is forbidden: unable to create new content"),
        ),
        (
            "POST",
            inside("serviceaccounts/s/token"),
            JSON,
            review,
            403,
            message("serviceaccounts \"s\" is forbidden: unable to create new content"),
        ),
        ("PUT", format!("{leases}/l"), JSON, lease, 403, message("because it is being terminated")),
        ("PUT", inside("configmaps/none"), JSON, map("none"), 404, message("configmaps \"none\" not found")),
        ("PATCH", one.clone(), MERGE, json!({"metadata": {"finalizers": null}}), 200, vec![]),
        ("PUT", inside("finalize"), JSON, finalized, 200, vec![]),
        ("GET", one.clone(), JSON, Value::Null, 404, vec![]),
        // what is left of it is nothing that anybody changes
        (
            "PATCH",
            inside("configmaps/a"),
            MERGE,
            json!({"data": {"k": "v"}}),
            404,
            message("namespaces \"going\" not found"),
        ),
        (
            "PATCH",
            inside("configmaps/b"),
            MERGE,
            json!({"data": {"k": "v"}}),
            404,
            message("configmaps \"b\" not found"),
        ),
        ("DELETE", inside("configmaps/a"), JSON, json!({}), 200, vec![]),
        // an empty namespace is a place, and none to be in
        (
            "POST",
            "/api/v1/namespaces//configmaps".into(),
            JSON,
            json!({"metadata": {"name": "a", "namespace": "default"}}),
            422,
            message("metadata.namespace: Required value"),
        ),
        (
            "POST",
            "/api/v1/namespaces//nodes".into(),
            JSON,
            map("a"),
            404,
            message("could not find the requested resource"),
        ),
        ("POST", "/api/v1/namespaces//bindings".into(), JSON, map("a"), 400, message("Namespace parameter required.")),
        (
            "DELETE",
            "/api/v1/namespaces//configmaps?labelSelector=none".into(),
            JSON,
            json!({}),
            200,
            vec![("/body/kind", "ConfigMapList".into())],
        ),
        ("POST", "/api/v1/namespaces/default/configmaps".into(), JSON, map("a"), 201, vec![]),
        (
            "DELETE",
            "/api/v1/namespaces//configmaps?fieldSelector=metadata.name%3Da".into(),
            JSON,
            json!({}),
            400,
            message("Namespace parameter required."),
        ),
    ];
    all_are_answered(&hostile, rows).await;
}
