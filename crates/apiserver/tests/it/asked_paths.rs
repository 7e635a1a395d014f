//! Rows as those of `asked.rs` about paths, reviews, pods of nodes and tokens, and the bytes of answers.

use crate::asked::{BASE, JSON, MERGE, Row, all_are_answered, message};
use crate::hostile::Hostile;
use http_body_util::{BodyExt, Full};
use resource::User;
use serde_json::{Value, json};
use tower::Service;

/// Code and text of the answer to a client that accepts this.
async fn accepting(hostile: &Hostile, method: &str, path: &str, accept: &str, body: Value) -> (u16, String) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = http::Request::builder().method(method).uri(path).header("content-type", JSON);
    let request = request.header("accept", accept).body(Full::new(bytes::Bytes::from(body))).unwrap();
    let response = hostile.server.service(User::admin()).call(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn of_names_that_mean_something_in_a_path() {
    let hostile = Hostile::start(None).await;
    let name = |name: &str, why: &str| message(&format!("Name parameter invalid: {name:?}: {why}"));
    let key = |key: &str| message(&format!("invalid key: {key:?}"));
    let nowhere = || message("the server could not find the requested resource");
    let lifecycle = || message("Internal error occurred: invalid resource name \"..\": [may not be '..']");
    let map = |name: &str| json!({"metadata": {"name": name}});
    let one = |rest: &str| format!("{BASE}/configmaps/{rest}");
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": ".."}});
    let apply = "application/apply-patch+yaml";
    let rows: Vec<Row> = vec![
        ("GET", one(".."), JSON, Value::Null, 400, name("..", "may not be '..'")),
        ("GET", one("."), JSON, Value::Null, 400, name(".", "may not be '.'")),
        ("GET", one("%2e%2e"), JSON, Value::Null, 400, name("..", "may not be '..'")),
        ("GET", one("a%25b"), JSON, Value::Null, 400, name("a%b", "may not contain '%'")),
        ("GET", "/api/v1/namespaces/..".into(), JSON, Value::Null, 400, name("..", "may not be '..'")),
        ("PUT", one(".."), JSON, map(".."), 400, name("..", "may not be '..'")),
        ("PATCH", one(".."), MERGE, json!({}), 400, name("..", "may not be '..'")),
        ("PATCH", one("..?fieldManager=a"), apply, applied, 400, name("..", "may not be '..'")),
        ("DELETE", one(".."), JSON, json!({}), 400, name("..", "may not be '..'")),
        (
            "GET",
            "/apis/apps/v1/namespaces/default/deployments/../scale".into(),
            JSON,
            Value::Null,
            400,
            name("..", "may not be '..'"),
        ),
        ("GET", "/api/v1/namespaces/../configmaps".into(), JSON, Value::Null, 500, key("/configmaps/..")),
        ("GET", "/api/v1/namespaces/../configmaps/x".into(), JSON, Value::Null, 500, key("/configmaps/../x")),
        ("GET", "/api/v1/namespaces/../services/x".into(), JSON, Value::Null, 500, key("/services/specs/../x")),
        ("POST", "/api/v1/namespaces/../configmaps".into(), JSON, map("x"), 500, lifecycle()),
        (
            "PATCH",
            "/api/v1/namespaces/../configmaps/x?fieldManager=a".into(),
            apply,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}),
            500,
            key("/configmaps/../x"),
        ),
        (
            "PUT",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/..".into(),
            JSON,
            map(".."),
            400,
            name("..", "may not be '..'"),
        ),
        ("GET", "/api/v1/namespaces/a%25b/configmaps".into(), JSON, Value::Null, 200, vec![]),
        ("GET", "/api/v1/../v1/namespaces".into(), JSON, Value::Null, 404, nowhere()),
        ("GET", "/version/..".into(), JSON, Value::Null, 404, nowhere()),
    ];
    all_are_answered(&hostile, rows).await;
}

#[tokio::test]
async fn of_reviews_of_another_namespace() {
    let hostile = Hostile::start(None).await;
    let path = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let review = |place: Value, namespace: &str| json!({"metadata": place, "spec": {"user": "a", "resourceAttributes": {"namespace": namespace, "verb": "get", "resource": "pods"}}});
    let elsewhere = || message("the namespace of the provided object does not match the namespace sent on the request");
    let nowhere = || message("the server could not find the requested resource");
    let whole = "/apis/authorization.k8s.io/v1/localsubjectaccessreviews";
    let rows: Vec<Row> = vec![
        ("POST", whole.into(), JSON, review(json!({}), "other"), 404, nowhere()),
        ("POST", "/api/v1/bindings".into(), JSON, json!({"target": {"name": "n"}}), 404, nowhere()),
        ("POST", path.into(), JSON, review(json!({"namespace": "other"}), "other"), 400, elsewhere()),
        ("POST", path.into(), JSON, review(json!({"namespace": "other"}), "default"), 400, elsewhere()),
        ("POST", path.into(), JSON, review(json!({}), "other"), 422, message("must match metadata.namespace")),
        (
            "POST",
            path.into(),
            JSON,
            review(json!({}), "default"),
            201,
            vec![("/body/metadata/namespace", "default".into())],
        ),
        (
            "POST",
            "/apis/authorization.k8s.io/v1/subjectaccessreviews".into(),
            JSON,
            review(json!({"namespace": "other"}), "default"),
            201,
            vec![("/body/metadata/namespace", Value::Null)],
        ),
    ];
    all_are_answered(&hostile, rows).await;
}

#[tokio::test]
async fn reviews_have_no_table() {
    let hostile = Hostile::start(None).await;
    let account = json!({"metadata": {"name": "a"}}).to_string();
    assert_eq!(hostile.ask("POST", &format!("{BASE}/serviceaccounts"), JSON, account).await.0, 201);
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned();
    let review = json!({"spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}}});
    let tokens = format!("{BASE}/serviceaccounts/a/token");
    let form = |form: &str| format!("application/json;as={form};v=v1;g=meta.k8s.io");
    for (path, body, go) in [
        (&reviews, review, "authorization.SelfSubjectAccessReview"),
        (&tokens, json!({}), "authentication.TokenRequest"),
    ] {
        let (code, text) = accepting(&hostile, "POST", path, &form("Table"), body.clone()).await;
        assert!(code == 406 && text.contains("only the following media types are accepted"), "{code} {text}");
        let either = form("Table") + ",application/json";
        let (code, text) = accepting(&hostile, "POST", path, &either, body.clone()).await;
        assert!(code == 201 && text.contains("\"status\":{"), "{code} {text}");
        let (code, text) = accepting(&hostile, "POST", path, &form("PartialObjectMetadata"), body.clone()).await;
        assert!(code == 201 && text.starts_with(r#"{"kind":"PartialObjectMetadata","#), "{code} {text}");
        assert!(!text.contains("\"status\""), "{text}");
        let (code, text) = accepting(&hostile, "POST", path, &form("PartialObjectMetadataList"), body).await;
        assert!(code == 406 && text.contains(&format!("is not a list (*{go})")), "{code} {text}");
    }
}

#[tokio::test]
async fn members_come_in_the_order_of_go() {
    let hostile = Hostile::start(None).await;
    let map = json!({"metadata": {"name": "c"}}).to_string();
    assert_eq!(hostile.ask("POST", &format!("{BASE}/configmaps"), JSON, map).await.0, 201);
    let deleted = accepting(&hostile, "DELETE", &format!("{BASE}/configmaps/c"), JSON, Value::Null).await.1;
    let start = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"c","kind":"configmaps","uid":""#;
    assert!(deleted.starts_with(start), "{deleted}");
    let read = async |path: &str, accept: &str| accepting(&hostile, "GET", path, accept, Value::Null).await.1;
    let version = r#"{"groupVersion":"batch/v1","version":"v1"}"#;
    let group = format!(r#""name":"batch","versions":[{version}],"preferredVersion":{version}"#);
    assert_eq!(read("/apis/batch", JSON).await, format!("{{\"kind\":\"APIGroup\",\"apiVersion\":\"v1\",{group}}}\n"));
    let groups = read("/apis", JSON).await;
    assert!(groups.starts_with(r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"#), "{groups}");
    assert!(groups.contains(&format!("{{{group}}}")), "{groups}");
    let resources = read("/apis/batch/v1", JSON).await;
    let start = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"batch/v1","resources":[{"name":"cronjobs","singularName":"cronjob","namespaced":true,"kind":"CronJob","verbs":["create""#;
    assert!(resources.starts_with(start), "{resources}");
    assert!(resources.contains(r#""shortNames":["cj"],"categories":["all"],"storageVersionHash":""#), "{resources}");
    let scale = r#"{"name":"deployments/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale","verbs":["#;
    assert!(read("/apis/apps/v1", JSON).await.contains(scale));
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let core = read("/api", aggregated).await;
    let start = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{},"versions":[{"version":"v1","resources":[{"resource":"bindings","responseKind":{"group":"","version":"","kind":"Binding"},"scope":"Namespaced","singularResource":"binding","verbs":["create"]}"#;
    assert!(core.starts_with(start), "{core}");
    assert!(core.trim_end().ends_with(r#"],"freshness":"Current"}]}]}"#), "{core}");
    let legacy = read("/api", JSON).await;
    assert!(
        legacy.starts_with(r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"#),
        "{legacy}"
    );
}

#[tokio::test]
async fn of_pods_that_mirror_others() {
    let hostile = Hostile::start(None).await;
    let mirror = "kubernetes.io/config.mirror";
    let pods = format!("{BASE}/pods");
    let at = |rest: &str| format!("{pods}/{rest}");
    let pod = |name: &str, annotations: Value, more: Value| {
        let mut spec = json!({"containers": [{"name": "a", "image": "x"}]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec})
    };
    let one = |more: Value| pod("m", json!({mirror: "x"}), more);
    let field = format!("metadata.annotations[{mirror}]");
    let cause = |i: usize, part: &str| match i {
        0 => vec![("/body/details/causes/0/message", part.into()), ("/body/details/causes/0/field", json!(field))],
        _ => vec![("/body/details/causes/1/message", part.into()), ("/body/details/causes/1/field", json!(field))],
    };
    let trial = || format!("{pods}?dryRun=All");
    let unplaced = "must set spec.nodeName if mirror pod annotation is set";
    let token = json!({"name": "s", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}});
    let ephemeral = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "x"}]}});
    let resources =
        json!({"spec": {"containers": [{"name": "a", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    let change = json!({"metadata": {"annotations": {mirror: "y"}}});
    let cost = json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "x"}}});
    let account = json!({"metadata": {"name": "default"}});
    let set = |annotations: Value| {
        let template = json!({"metadata": {"labels": {"a": "b"}, "annotations": annotations}, "spec": {"containers": [{"name": "a", "image": "x"}]}});
        json!({"metadata": {"name": "s"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}})
    };
    let sets = || "/apis/apps/v1/namespaces/default/statefulsets?dryRun=All".to_owned();
    let of_template = format!("spec.template.annotations[{mirror}]");
    let rows: Vec<Row> = vec![
        // the metadata of this template is looked at twice
        (
            "POST",
            sets(),
            JSON,
            set(json!({mirror: "x"})),
            422,
            vec![
                ("/body/details/causes/0/field", json!(of_template)),
                ("/body/details/causes/1/field", json!(of_template)),
                ("/body/details/causes/2", Value::Null),
            ],
        ),
        (
            "POST",
            sets(),
            JSON,
            set(json!({"container.apparmor.security.beta.kubernetes.io/a": "localhost/x"})),
            201,
            vec![],
        ),
        ("POST", format!("{BASE}/serviceaccounts"), JSON, account, 201, vec![]),
        ("POST", trial(), JSON, one(json!({})), 422, cause(0, unplaced)),
        (
            "POST",
            trial(),
            JSON,
            one(json!({"nodeName": "n", "serviceAccountName": "default"})),
            403,
            message("a mirror pod may not reference service accounts"),
        ),
        (
            "POST",
            trial(),
            JSON,
            one(json!({"nodeName": "n", "imagePullSecrets": [{"name": "q"}]})),
            403,
            message("a mirror pod may not reference secrets"),
        ),
        (
            "POST",
            trial(),
            JSON,
            one(json!({"nodeName": "n", "volumes": [token]})),
            403,
            message("a mirror pod may not use ServiceAccountToken volume projections"),
        ),
        ("POST", pods.clone(), JSON, one(json!({"nodeName": "n"})), 201, vec![]),
        ("POST", pods.clone(), JSON, pod("p", json!({}), json!({})), 201, vec![]),
        // the annotation itself is looked at twice in an update, its change in between
        ("PATCH", at("p"), MERGE, change.clone(), 422, cause(1, "may not add mirror pod annotation")),
        ("PATCH", at("p"), MERGE, change.clone(), 422, cause(0, unplaced)),
        ("PATCH", at("p/status"), MERGE, change.clone(), 422, cause(0, "may not add mirror pod annotation")),
        ("PATCH", at("m"), MERGE, change, 422, cause(0, "may not remove or update mirror pod annotation")),
        (
            "PATCH",
            at("p"),
            MERGE,
            cost,
            422,
            vec![
                ("/body/details/causes/1/message", "must be a 32bit integer".into()),
                ("/body/details/causes/2", Value::Null),
            ],
        ),
        (
            "PATCH",
            at("m/ephemeralcontainers"),
            MERGE,
            ephemeral,
            422,
            message("[]: Forbidden: static pods do not support ephemeral containers"),
        ),
        ("PATCH", at("m/resize"), MERGE, resources, 422, message("[]: Forbidden: static pods cannot be resized")),
    ];
    all_are_answered(&hostile, rows).await;
}

#[tokio::test]
async fn of_pods_that_are_gated() {
    let hostile = Hostile::start(None).await;
    let pods = format!("{BASE}/pods");
    let one = format!("{pods}/g");
    let gated = |name: &str| json!({"metadata": {"name": name}, "spec": {"schedulingGates": [{"name": "a.b/c"}], "containers": [{"name": "a", "image": "x"}]}});
    let exists = |key: &str| json!({"key": key, "operator": "Exists"});
    let terms = |terms: Value| json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}});
    let selector = |value: &str| json!({"spec": {"nodeSelector": {"a": value}}});
    let spec = |spec: Value| json!({"spec": spec});
    let others = || message("pod updates may not change fields other than");
    let place = "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let internal = r#"{"MatchExpressions":[{"Key":"a","Operator":"Exists","Values":null}],"MatchFields":null}"#;
    let only =
        |at: &str, shown: &str| message(&format!("spec.affinity.nodeAffinity.{place}{at}: Invalid value: {shown}: "));
    let account = json!({"metadata": {"name": "default"}});
    let peer = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a", "labelSelector": {}}]}});
    let rows: Vec<Row> = vec![
        ("POST", format!("{BASE}/serviceaccounts"), JSON, account, 201, vec![]),
        ("POST", pods.clone(), JSON, gated("g"), 201, vec![]),
        ("POST", pods.clone(), JSON, gated("h"), 201, vec![]),
        ("PATCH", one.clone(), MERGE, selector("b"), 200, vec![("/body/spec/nodeSelector/a", "b".into())]),
        (
            "PATCH",
            one.clone(),
            MERGE,
            selector("c"),
            422,
            message(
                r#"spec.nodeSelector: Invalid value: {"a":"c"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)"#,
            ),
        ),
        ("PATCH", one.clone(), MERGE, terms(json!([{"matchExpressions": [exists("a")]}, {}])), 200, vec![]),
        // a term that matches no node stays so
        (
            "PATCH",
            one.clone(),
            MERGE,
            terms(json!([{"matchExpressions": [exists("a"), exists("b")]}, {"matchExpressions": [exists("a")]}])),
            422,
            only("[1]", internal),
        ),
        (
            "PATCH",
            one.clone(),
            MERGE,
            terms(json!([{"matchExpressions": [exists("a")]}])),
            422,
            only("", &format!("[{internal}]")),
        ),
        ("PATCH", one.clone(), MERGE, spec(json!({"affinity": null})), 422, only("", "null")),
        (
            "PATCH",
            one.clone(),
            MERGE,
            terms(json!([{"matchExpressions": [exists("a"), exists("b")]}, {}])),
            200,
            vec![],
        ),
        ("PATCH", one, MERGE, spec(json!({"affinity": peer})), 422, others()),
        ("PATCH", format!("{pods}/h"), MERGE, spec(json!({"affinity": {}})), 422, others()),
        ("PATCH", format!("{pods}/h"), MERGE, spec(json!({"affinity": {"nodeAffinity": {}}})), 200, vec![]),
        ("PATCH", format!("{pods}/h"), MERGE, spec(json!({"affinity": null})), 200, vec![]),
        ("PATCH", format!("{pods}/h"), MERGE, spec(json!({"nodeName": "z"})), 422, others()),
    ];
    all_are_answered(&hostile, rows).await;
}

#[tokio::test]
async fn of_tokens_and_balancers() {
    let hostile = Hostile::start(None).await;
    let tokens = format!("{BASE}/serviceaccounts/default/token");
    let account = json!({"metadata": {"name": "default"}});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "x"}]}});
    let bound = json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}});
    let given = json!({"metadata": {"generateName": "q", "finalizers": ["a/b"], "labels": {"a": "b"}, "generation": 4, "creationTimestamp": "2020-01-01T00:00:00Z"}});
    let other = json!({"metadata": {"uid": "x"}, "spec": {"expirationSeconds": 1}});
    let balanced = json!({"metadata": {"name": "lb"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 1}]}});
    let ingress = json!({"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}, {"hostname": "x.y"}, {"ip": "1.2.3.5", "ipMode": "Proxy"}]}}});
    let rows: Vec<Row> = vec![
        ("POST", format!("{BASE}/serviceaccounts"), JSON, account, 201, vec![]),
        ("POST", format!("{BASE}/pods"), JSON, pod, 201, vec![]),
        (
            "POST",
            tokens.clone(),
            JSON,
            bound,
            201,
            vec![("/body/spec/boundObjectRef", json!({"kind": "Pod", "apiVersion": "v1", "name": "p"}))],
        ),
        (
            "POST",
            tokens.clone(),
            JSON,
            given,
            201,
            vec![
                ("/body/metadata/generateName", "q".into()),
                ("/body/metadata/finalizers", json!(["a/b"])),
                ("/body/metadata/generation", json!(4)),
                ("/body/metadata/name", "default".into()),
            ],
        ),
        (
            "POST",
            tokens,
            JSON,
            other,
            409,
            message("the UID in the token request (x) does not match the UID of the service account"),
        ),
        // a name that does not fit comes before an account that is not there
        (
            "POST",
            format!("{BASE}/serviceaccounts/none/token"),
            JSON,
            json!({"metadata": {"name": "default"}}),
            422,
            message("must match the service account name if specified"),
        ),
        ("POST", format!("{BASE}/services"), JSON, balanced, 201, vec![]),
        (
            "PATCH",
            format!("{BASE}/services/lb/status"),
            MERGE,
            ingress,
            200,
            vec![(
                "/body/status/loadBalancer/ingress",
                json!([{"ip": "1.2.3.4", "ipMode": "VIP"}, {"hostname": "x.y"}, {"ip": "1.2.3.5", "ipMode": "Proxy"}]),
            )],
        ),
    ];
    all_are_answered(&hostile, rows).await;
}

#[tokio::test]
async fn a_watch_ends_with_the_definition_of_its_kind() {
    let hostile = Hostile::start(None).await;
    hostile.define().await;
    let things = "/apis/test.io/v1/namespaces/default/things";
    let thing = json!({"apiVersion": "test.io/v1", "kind": "Thing", "metadata": {"name": "a"}});
    assert_eq!(hostile.ask("POST", things, JSON, thing.to_string()).await.0, 201);
    let request = http::Request::builder().uri(format!("{things}?watch=true&resourceVersion=0"));
    let request = request.body(Full::new(bytes::Bytes::new())).unwrap();
    let response = hostile.server.service(User::admin()).call(request).await.unwrap();
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.test.io";
    assert_eq!(hostile.ask("DELETE", definition, JSON, "").await.0, 200);
    let server = hostile.server.clone();
    tokio::task::spawn_blocking(move || server.sync_definitions()).await.unwrap();
    let body = tokio::time::timeout(std::time::Duration::from_secs(20), response.into_body().collect()).await;
    let text = body.expect("the watch ends").unwrap().to_bytes();
    let kinds: Vec<Value> = text
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
        .map(|event| event["type"].clone())
        .collect();
    assert_eq!(kinds, ["ADDED", "DELETED"]);
}

#[tokio::test]
async fn of_privileges_that_contradict_each_other() {
    let hostile = Hostile::start(None).await;
    let context = json!({"privileged": true, "allowPrivilegeEscalation": false, "capabilities": {"add": ["CAP_SYS_ADMIN", "X", "CAP_SYS_ADMIN"]}});
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "x", "securityContext": context}]}});
    let account = json!({"metadata": {"name": "default"}});
    let shown = r#"Invalid value: {"Capabilities":{"Add":["CAP_SYS_ADMIN","X","CAP_SYS_ADMIN"],"Drop":null},"Privileged":true,"SELinuxOptions":null,"WindowsOptions":null,"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,"ReadOnlyRootFilesystem":null,"AllowPrivilegeEscalation":false,"ProcMount":null,"SeccompProfile":null,"AppArmorProfile":null}: cannot set `allowPrivilegeEscalation` to false and "#;
    let told = |what: &str| Value::from(format!("{shown}{what}"));
    let rows: Vec<Row> = vec![
        ("POST", format!("{BASE}/serviceaccounts"), JSON, account, 201, vec![]),
        (
            "POST",
            format!("{BASE}/pods"),
            JSON,
            pod,
            422,
            vec![
                ("/body/details/causes/0/message", told("`privileged` to true")),
                ("/body/details/causes/1/message", told("`capabilities.Add` CAP_SYS_ADMIN")),
                ("/body/details/causes/2/message", told("`capabilities.Add` CAP_SYS_ADMIN")),
                ("/body/details/causes/3", Value::Null),
            ],
        ),
    ];
    all_are_answered(&hostile, rows).await;
}
