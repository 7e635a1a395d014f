//! Requests that carry trees in place of text are answered alike.

use super::*;
use http::Request;
use http_body_util::{BodyExt, Full};
use objects::packed::{Handed, Packed};
use tower::Service;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STEPS: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// What differs between two servers that were asked the same.
fn without_chance(mut object: Value) -> Value {
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["uid", "creationTimestamp", "deletionTimestamp"] {
            meta.remove(field);
        }
        for entry in meta.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
            entry["time"].take();
        }
    }
    if let Some(details) = object.get_mut("details").and_then(Value::as_object_mut) {
        details.remove("uid");
    }
    object
}

/// Code, warnings and object of an answer, and whether the object came as it is held.
async fn ask(server: &Arc<Server>, ask: (&str, &str, &str, Value), hands: bool) -> (u16, Vec<String>, Value, bool) {
    let (method, path, media, body) = ask;
    let text = if hands || body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    let mut request = request.body(Full::new(bytes::Bytes::from(text))).unwrap();
    if hands {
        request.extensions_mut().insert(Handed(Arc::new(body)));
    }
    let response = server.service(User::admin()).call(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let warnings = parts.headers.get_all("warning").iter().map(|text| text.to_str().unwrap().to_owned()).collect();
    let held = parts.extensions.get::<Arc<Packed>>();
    let text = body.collect().await.unwrap().to_bytes();
    assert!(held.is_none() || text.is_empty(), "it came twice");
    let object = held.map_or_else(|| serde_json::from_slice(&text).unwrap(), |held| (*held.open()).clone());
    (parts.status.as_u16(), warnings, without_chance(object), held.is_some())
}

#[tokio::test]
async fn a_tree_is_answered_as_its_text_is() {
    let maps = "/api/v1/namespaces/default/configmaps";
    let pods = "/api/v1/namespaces/default/pods";
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let things = "/apis/example.dev/v1/namespaces/default/things";
    let one = |name: &str| format!("{maps}/{name}");
    let map = |name: &str, more: Value| {
        let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        map.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        map
    };
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "\u{e9}\n\""}]}]}});
    let mut bad_pod = pod.clone();
    bad_pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": "x"}]);
    bad_pod["spec"]["priority"] = json!("y");
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "n": {"type": "integer", "default": 3}, "f": {"type": "number"}},
        "x-kubernetes-validations": [{"rule": "self.n < 10"}]}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.dev"}, "spec": {"group": "example.dev", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let thing =
        |spec: Value| json!({"apiVersion": "example.dev/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec});
    let steps =
        json!([{"op": "test", "path": "/data/k", "value": "2"}, {"op": "add", "path": "/data/l", "value": "x"}]);
    let (a, p, t) = (one("a"), format!("{pods}/p"), format!("{things}/t"));
    let (binding, forced) = (format!("{p}/binding"), format!("{a}?fieldManager=m&force=true"));
    let (applied, status) = (format!("{t}?fieldManager=m&force=true"), format!("{p}/status"));
    let strict = format!("{maps}?fieldValidation=Strict");
    let script: Vec<(&str, &str, &str, Value)> = vec![
        ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", JSON, definition),
        ("POST", maps, JSON, map("a", json!({"data": {"k": "1"}}))),
        ("POST", maps, JSON, map("a", json!({}))),
        ("POST", maps, JSON, map("b", json!({"datum": {}, "data": {}}))),
        ("POST", &strict, JSON, map("c", json!({"datum": {}}))),
        ("POST", maps, JSON, map("d", json!({"data": {"k": 1}}))),
        ("POST", maps, JSON, json!({"kind": "Secret", "apiVersion": "v1"})),
        ("POST", maps, JSON, json!([1])),
        ("POST", maps, JSON, Value::Null),
        ("PUT", &a, JSON, map("a", json!({"data": {"k": "2"}}))),
        ("PUT", &a, JSON, map("b", json!({}))),
        ("PATCH", &a, STEPS, steps.clone()),
        ("PATCH", &a, STEPS, json!({"no": "list"})),
        ("PATCH", &a, MERGE, json!({"data": {"l": null, "m": "y"}})),
        ("PATCH", &a, STRATEGIC, json!({"metadata": {"labels": {"a": "b"}}})),
        ("PATCH", &forced, APPLY, map("a", json!({"data": {"m": "z"}}))),
        ("PATCH", &forced, APPLY, map("a", json!({"data": {"m": 1.5}}))),
        ("PATCH", &forced, APPLY, map("a", json!({"data": {"m": "z"}}))),
        (
            "POST",
            accounts,
            JSON,
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}),
        ),
        ("POST", pods, JSON, bad_pod),
        ("POST", pods, JSON, pod),
        ("POST", &binding, JSON, json!({"target": {"kind": "Node", "name": "n"}})),
        ("PATCH", &status, MERGE, json!({"status": {"phase": "Running"}})),
        ("GET", &p, JSON, Value::Null),
        ("DELETE", &p, JSON, json!({"gracePeriodSeconds": 0, "preconditions": {"resourceVersion": "1"}})),
        ("DELETE", &p, JSON, json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})),
        ("DELETE", &a, JSON, Value::Null),
        ("GET", &a, JSON, Value::Null),
        ("POST", things, JSON, thing(json!({"n": 20}))),
        ("PATCH", &applied, APPLY, thing(json!({"f": 1.0}))),
        ("PATCH", &applied, APPLY, thing(json!({"f": 1.0, "u": 1}))),
        ("PATCH", &t, MERGE, json!({"spec": {"n": 4.0}})),
        ("PATCH", &t, STRATEGIC, json!({})),
    ];
    let servers = [(); 2].map(|()| Server::new(Options::new(kinds::built_in())).unwrap());
    let (mut good, mut bad, mut held) = (0, 0, 0);
    for request in script {
        let text = ask(&servers[0], request.clone(), false).await;
        let tree = ask(&servers[1], request.clone(), true).await;
        assert_eq!((text.0, &text.1, &text.2), (tree.0, &tree.1, &tree.2), "{request:?}");
        assert!(!text.3, "{request:?}");
        *(if text.0 < 300 { &mut good } else { &mut bad }) += 1;
        held += usize::from(tree.3);
        servers.iter().for_each(|server| server.sync_definitions());
    }
    assert!(good >= 16 && bad >= 14 && held >= 14, "{good} {bad} {held}");
}
