//! Answers that clients see and that no rule of the API's documents names: as kube-apiserver 1.36 gives them, which was asked.

use crate::hostile::Hostile;
use http_body_util::{BodyExt, Full};
use resource::User;
use serde_json::{Value, json};
use tower::Service;

const BASE: &str = "/api/v1/namespaces/default";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Code, warnings and body.
pub async fn ask(hostile: &Hostile, method: &str, path: &str, media: &str, body: Value) -> (u16, Vec<String>, Value) {
    let request = http::Request::builder().method(method).uri(path).header("content-type", media);
    let request = request.body(Full::new(bytes::Bytes::from(body.to_string()))).unwrap();
    let response = hostile.server.service(User::admin()).call(request).await.unwrap();
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, warnings, serde_json::from_slice(&bytes).unwrap_or_default())
}

/// Makes an object, which is answered.
async fn made(hostile: &Hostile, path: &str, object: Value) -> Value {
    let (code, _, answer) = ask(hostile, "POST", path, JSON, object).await;
    assert_eq!(code, 201, "{answer}");
    answer
}

#[tokio::test]
async fn a_pod_that_goes_at_once_is_changed_then_deleted() {
    let hostile = Hostile::start(None).await;
    made(&hostile, &format!("{BASE}/serviceaccounts"), json!({"metadata": {"name": "default"}})).await;
    let pods = format!("{BASE}/pods");
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (name, all) in [("one", false), ("many", true)] {
        let pod = made(&hostile, &pods, pod(name)).await;
        let version = api::object::resource_version(&pod);
        let path = if all { pods.clone() } else { format!("{pods}/{name}") };
        let (code, _, last) = ask(&hostile, "DELETE", &path, JSON, json!({"gracePeriodSeconds": 0})).await;
        assert_eq!(code, 200, "{last}");
        let watch = format!("{pods}?watch=true&timeoutSeconds=1&resourceVersion={version}");
        let (_, bytes) = hostile.bytes_as(User::admin(), "GET", &watch, "", "").await;
        let events: Vec<Value> = serde_json::Deserializer::from_slice(&bytes).into_iter().map(Result::unwrap).collect();
        let seen: Vec<_> = events.iter().map(|event| (&event["type"], &event["object"]["metadata"])).collect();
        let [(first, changed), (second, gone)] = seen.as_slice() else { panic!("{events:?}") };
        assert_eq!([*first, *second], ["MODIFIED", "DELETED"]);
        for meta in [changed, gone] {
            assert_eq!((&meta["deletionGracePeriodSeconds"], &meta["generation"]), (&json!(0), &json!(2)), "{meta}");
        }
        assert_ne!(changed["resourceVersion"], gone["resourceVersion"]);
        if !all {
            assert_eq!(last["metadata"]["resourceVersion"], gone["resourceVersion"], "the answer is the last version");
        }
    }
}

#[tokio::test]
async fn a_pod_that_goes_goes_sooner_only_where_somebody_asks_for_less() {
    let hostile = Hostile::start(None).await;
    made(&hostile, &format!("{BASE}/serviceaccounts"), json!({"metadata": {"name": "default"}})).await;
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}]});
    made(&hostile, &format!("{BASE}/pods"), json!({"metadata": {"name": "a"}, "spec": spec})).await;
    let path = format!("{BASE}/pods/a");
    ask(&hostile, "DELETE", &path, JSON, json!({})).await;
    ask(&hostile, "PATCH", &format!("{path}/status"), MERGE, json!({"status": {"phase": "Succeeded"}})).await;
    for (options, left) in [
        (json!({}), Some(30)),
        (json!({"gracePeriodSeconds": 40}), Some(30)),
        (json!({"gracePeriodSeconds": 20}), Some(20)),
        (json!({}), Some(20)),
        (json!({"gracePeriodSeconds": -1}), Some(1)),
        (json!({"gracePeriodSeconds": 0}), None),
    ] {
        let (code, _, told) = ask(&hostile, "DELETE", &path, JSON, options.clone()).await;
        let (there, _, pod) = ask(&hostile, "GET", &path, JSON, Value::Null).await;
        let seconds = left.map(|_| &pod["metadata"]["deletionGracePeriodSeconds"]);
        assert_eq!((code, there), (200, if left.is_some() { 200 } else { 404 }), "{options}: {told}");
        assert_eq!(seconds, left.map(|left| json!(left)).as_ref(), "{options}");
    }
}

#[tokio::test]
async fn an_empty_list_of_managers_forgets_all_but_of_custom_resources() {
    let hostile = Hostile::start(None).await;
    hostile.define().await;
    let custom = "/apis/test.io/v1/namespaces/default/things";
    let thing = json!({"apiVersion": "test.io/v1", "kind": "Thing", "metadata": {"name": "a"}, "k": "v"});
    for (path, object, forgets) in [
        (&*format!("{BASE}/configmaps"), json!({"metadata": {"name": "a"}, "data": {"k": "v"}}), true),
        (custom, thing, false),
    ] {
        let there = made(&hostile, path, object).await;
        assert!(there["metadata"]["managedFields"].is_array(), "{there}");
        let empty = json!({"metadata": {"managedFields": []}});
        let (code, _, answer) = ask(&hostile, "PATCH", &format!("{path}/a"), MERGE, empty).await;
        assert_eq!(code, 200, "{answer}");
        assert_eq!(answer["metadata"].get("managedFields").is_none(), forgets, "{answer}");
    }
}

#[tokio::test]
async fn a_page_of_a_selection_goes_on_where_there_is_anything_after_it() {
    let hostile = Hostile::start(None).await;
    let maps = format!("{BASE}/configmaps");
    for (name, labels) in [("a", json!({"app": "x"})), ("b", json!({}))] {
        made(&hostile, &maps, json!({"metadata": {"name": name, "labels": labels}})).await;
    }
    let first = format!("{maps}?labelSelector=app&limit=1");
    let (_, _, page) = ask(&hostile, "GET", &first, "", json!(null)).await;
    let token = page["metadata"]["continue"].as_str().unwrap_or_else(|| panic!("{page}"));
    assert_eq!(page["metadata"].get("remainingItemCount"), None, "nobody has counted");
    let (code, _, page) = ask(&hostile, "GET", &format!("{first}&continue={token}"), "", json!(null)).await;
    assert_eq!((code, page["items"].as_array().map(Vec::len)), (200, Some(0)), "{page}");
    assert_eq!(page["metadata"].get("continue"), None, "{page}");
}

#[tokio::test]
async fn a_scale_takes_null_for_a_value_and_warns_of_unknown_fields() {
    let hostile = Hostile::start(None).await;
    let path = "/apis/apps/v1/namespaces/default/replicasets";
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    made(&hostile, path, json!({"metadata": {"name": "a"}, "spec": spec})).await;
    // null is a value that nobody else has set
    let applied =
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "a"}, "spec": {"replicas": null}});
    let by_other = format!("{path}/a/scale?fieldManager=other");
    let (code, _, answer) = ask(&hostile, "PATCH", &by_other, APPLY, applied).await;
    assert_eq!(code, 409, "{answer}");
    let scale = json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "a"}, "spec": {"odd": 1}});
    let at = format!("{path}/a/scale");
    let (code, warnings, answer) = ask(&hostile, "PUT", &at, JSON, scale.clone()).await;
    assert_eq!((code, warnings.len()), (200, 1), "{answer}");
    assert!(warnings[0].contains("unknown field \\\"spec.odd\\\""), "{warnings:?}");
    let (code, _, answer) = ask(&hostile, "PUT", &format!("{at}?fieldValidation=Strict"), JSON, scale).await;
    assert_eq!(code, 400, "{answer}");
    assert!(
        api::object::text(&answer, "message").ends_with("strict decoding error: unknown field \"spec.odd\""),
        "{answer}"
    );
}

#[tokio::test]
async fn a_review_is_answered_as_it_was_read() {
    let hostile = Hostile::start(None).await;
    let review = json!({"metadata": {"namespace": "x"}, "spec": {"user": "u", "resourceAttributes": {"namespace": "", "verb": "get", "resource": "pods"}}});
    let answer = made(&hostile, "/apis/authorization.k8s.io/v1/subjectaccessreviews", review).await;
    assert_eq!(answer["spec"]["resourceAttributes"], json!({"verb": "get", "resource": "pods"}));
    assert_eq!(answer["metadata"].get("namespace"), None, "{answer}");
    let review = json!({"metadata": {"namespace": "x"}, "spec": {"token": "t"}});
    let answer = made(&hostile, "/apis/authentication.k8s.io/v1/tokenreviews", review).await;
    assert_eq!(answer["metadata"].get("namespace"), None, "{answer}");
}

#[tokio::test]
async fn what_is_odd_is_warned_of() {
    let hostile = Hostile::start(None).await;
    hostile.define().await;
    let custom = "/apis/test.io/v1/namespaces/default/things";
    let thing = |finalizer: &str| json!({"apiVersion": "test.io/v1", "kind": "Thing", "metadata": {"name": "a", "finalizers": [finalizer]}});
    for (finalizer, count) in [("x", 1), ("x.y", 1), ("example.com/x", 0), ("foregroundDeletion", 0)] {
        let (code, warnings, answer) =
            ask(&hostile, "POST", &format!("{custom}?dryRun=All"), JSON, thing(finalizer)).await;
        assert_eq!((code, warnings.len()), (201, count), "{finalizer}: {warnings:?} {answer}");
    }
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"memory": "512Mi", "limits.memory": "200Mi", "requests.cpu": "1", "limits.cpu": "1"}}});
    let (_, warnings, _) = ask(&hostile, "POST", &format!("{BASE}/resourcequotas"), JSON, quota).await;
    assert_eq!(warnings, ["299 - \"ResourceQuota memory (512Mi) should be less than limits.memory (200Mi)\""]);
}

#[tokio::test]
async fn a_service_that_gets_a_selector_has_one_fault() {
    let hostile = Hostile::start(None).await;
    let ports = json!([{"port": 80}]);
    let services = format!("{BASE}/services");
    made(&hostile, &services, json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "None", "ports": ports}})).await;
    let selecting =
        json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "None", "ports": ports, "selector": {"a": "b"}}});
    let (code, _, answer) = ask(&hostile, "PUT", &format!("{services}/a"), JSON, selecting).await;
    assert_eq!((code, answer["details"]["causes"].as_array().map(Vec::len)), (422, Some(1)), "{answer}");
}

#[tokio::test]
async fn a_service_keeps_the_ports_of_its_nodes_by_name() {
    let hostile = Hostile::start(None).await;
    let services = format!("{BASE}/services");
    let ports = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]);
    let service = |spec: Value| json!({"metadata": {"name": "a"}, "spec": spec});
    let there = made(&hostile, &services, service(json!({"type": "NodePort", "ports": ports}))).await;
    let on_node = |service: &Value, i: usize| service["spec"]["ports"][i]["nodePort"].clone();
    let trial = format!("{services}/a?dryRun=All");
    let swapped = json!([{"name": "b", "port": 80}, {"name": "a", "port": 82}]);
    let (_, _, answer) =
        ask(&hostile, "PUT", &trial, JSON, service(json!({"type": "NodePort", "ports": swapped}))).await;
    assert_eq!([on_node(&answer, 0), on_node(&answer, 1)], [on_node(&there, 1), on_node(&there, 0)], "{answer}");
    // a load balancer has ports on the nodes whether or not it is given new ones
    let balanced = json!({"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false}});
    let (_, _, answer) = ask(&hostile, "PATCH", &trial, MERGE, balanced).await;
    assert_eq!(on_node(&answer, 0), on_node(&there, 0), "{answer}");
    let inside = json!({"type": "ExternalName", "externalName": "e.x", "internalTrafficPolicy": "Local"});
    let (_, _, answer) = ask(&hostile, "POST", &format!("{services}?dryRun=All"), JSON, service(inside)).await;
    assert_eq!(answer["spec"].get("internalTrafficPolicy"), None, "{answer}");
}

#[tokio::test]
async fn of_several_faults_the_first_is_told_that_upstream_meets() {
    let hostile = Hostile::start(None).await;
    hostile.define().await;
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    made(&hostile, sets, json!({"metadata": {"name": "a"}, "spec": spec})).await;
    let custom = "/apis/test.io/v1/namespaces/default/things";
    made(&hostile, custom, json!({"apiVersion": "test.io/v1", "kind": "Thing", "metadata": {"name": "a"}})).await;
    let scale = |meta: Value, replicas: i64| json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": {"replicas": replicas}});
    let applied =
        |meta: Value| json!({"kind": "ReplicaSet", "apiVersion": "apps/v1", "metadata": meta, "spec": {"replicas": 1}});
    let budget = json!({"metadata": {}, "spec": {"minAvailable": 1, "maxUnavailable": 1}});
    let controller =
        json!({"metadata": {"generateName": "Bad_"}, "spec": {"selector": {"a": "b"}, "template": template}});
    let (by_scale, by_apply) = (format!("{sets}/a/scale"), format!("{sets}/a?fieldManager=other"));
    let (budgets, controllers) =
        ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", format!("{BASE}/replicationcontrollers"));
    let cases = [
        (
            "PUT",
            &*by_scale,
            JSON,
            scale(json!({"name": "a", "uid": "x", "resourceVersion": "1"}), -1),
            "Precondition failed",
        ),
        (
            "PUT",
            &*by_scale,
            JSON,
            scale(json!({"name": "a", "resourceVersion": "1"}), -1),
            "greater than or equal to 0",
        ),
        ("PUT", &*by_scale, JSON, scale(json!({"name": "a", "resourceVersion": "1"}), 1), "has been modified"),
        (
            "PATCH",
            &*by_apply,
            APPLY,
            applied(json!({"name": "a", "resourceVersion": "1"})),
            "Apply failed with 1 conflict",
        ),
        ("POST", budgets, JSON, budget, "\"\" is invalid: spec: Invalid value"),
        ("POST", &*controllers, JSON, controller, "is invalid: metadata.name: Invalid value"),
        (
            "PATCH",
            "/apis/test.io/v1/namespaces/default/things/a",
            "application/json-patch+json",
            json!([{"op": "replace", "path": "", "value": {}}]),
            "Object 'Kind' is missing in '{}'",
        ),
    ];
    for (method, path, media, body, part) in cases {
        let (_, _, answer) = ask(&hostile, method, path, media, body).await;
        assert!(api::object::text(&answer, "message").contains(part), "{path}: {answer} instead of {part}");
    }
}

#[tokio::test]
async fn a_patch_sees_a_number_of_replicas_that_is_not_there() {
    let hostile = Hostile::start(None).await;
    let schema =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}});
    let scale = json!({"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"});
    let definition = json!({"metadata": {"name": "things.scaled.test.io"}, "spec": {"group": "scaled.test.io", "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}, "scale": scale}}]}});
    made(&hostile, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    let things = "/apis/scaled.test.io/v1/things";
    made(&hostile, things, json!({"apiVersion": "scaled.test.io/v1", "kind": "Thing", "metadata": {"name": "a"}}))
        .await;
    let at = format!("{things}/a/scale");
    let (code, _, answer) = ask(&hostile, "PATCH", &at, MERGE, json!({"metadata": {}})).await;
    let why = "the spec replicas field \".spec.n\" cannot be empty";
    assert_eq!((code, api::object::text(&answer, "message")), (400, why), "{answer}");
    let remove = json!([{"op": "remove", "path": "/spec/replicas"}]);
    let (code, _, answer) = ask(&hostile, "PATCH", &at, "application/json-patch+json", remove).await;
    assert_eq!((code, &answer["spec"]), (200, &json!({})), "{answer}");
}

#[tokio::test]
async fn an_eviction_with_options_that_are_refused_spends_no_budget() {
    let hostile = Hostile::start(None).await;
    made(&hostile, &format!("{BASE}/serviceaccounts"), json!({"metadata": {"name": "default"}})).await;
    let pod =
        json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    made(&hostile, &format!("{BASE}/pods"), pod).await;
    let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    ask(&hostile, "PATCH", &format!("{BASE}/pods/p/status"), MERGE, running).await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget =
        json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 0, "selector": {"matchLabels": {"a": "b"}}}});
    made(&hostile, budgets, budget).await;
    let counts = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1}});
    ask(&hostile, "PATCH", &format!("{budgets}/b/status"), MERGE, counts).await;
    let odd = json!({"metadata": {"name": "p"}, "deleteOptions": {"dryRun": ["Some"]}});
    let (code, _, answer) = ask(&hostile, "POST", &format!("{BASE}/pods/p/eviction"), JSON, odd).await;
    assert!(code >= 400, "{answer}");
    let (_, _, budget) = ask(&hostile, "GET", &format!("{budgets}/b"), JSON, json!(null)).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 1, "{budget}");
}
