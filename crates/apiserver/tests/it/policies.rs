//! Policies that change objects: what they make of requests, in what order, and what they may cost.

use crate::hostile::Hostile;
use serde_json::{Value, json};

const JSON: &str = "application/json";
const BASE: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A policy for `plural`, bound to all of them. `mutations`: types of patches and expressions.
async fn policy(hostile: &Hostile, name: &str, plural: &str, mutations: &[(&str, &str)], more: Value) {
    let mutations: Vec<Value> = mutations
        .iter()
        .map(|(kind, expression)| {
            let field = if *kind == "JSONPatch" { "jsonPatch" } else { "applyConfiguration" };
            json!({"patchType": kind, field: {"expression": expression}})
        })
        .collect();
    let mut spec = json!({"reinvocationPolicy": "Never", "mutations": mutations,
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
            "resources": [plural]}]}});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    make(hostile, "mutatingadmissionpolicies", json!({"metadata": {"name": name}, "spec": spec})).await;
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
    make(hostile, "mutatingadmissionpolicybindings", binding).await;
}

async fn make(hostile: &Hostile, plural: &str, object: Value) {
    let (code, answer) = hostile.ask("POST", &format!("{BASE}/{plural}"), JSON, object.to_string()).await;
    assert_eq!(code, 201, "{answer}");
}

async fn unbind(hostile: &Hostile, name: &str) {
    let path = format!("{BASE}/mutatingadmissionpolicybindings/{name}");
    let (code, answer) = hostile.ask("DELETE", &path, JSON, String::new()).await;
    assert_eq!(code, 200, "{answer}");
}

fn map(name: &str, data: &Value) -> String {
    json!({"metadata": {"name": name}, "data": data}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_changed_by_policies_before_they_are_judged() {
    let hostile = Hostile::start(None).await;
    let mutations = [
        ("ApplyConfiguration", "Object{metadata: Object.metadata{labels: {'by': variables.who}}}"),
        ("JSONPatch", "[JSONPatch{op: 'add', path: '/data/seen', value: object.metadata.labels.by}]"),
    ];
    let more = json!({"variables": [{"name": "who", "expression": "request.operation + '-policy'"}],
        "matchConditions": [{"name": "c", "expression": "object.metadata.name != 'free'"}]});
    policy(&hostile, "labels", "configmaps", &mutations, more).await;
    // what refuses looks at what the others made
    let agrees = "object.metadata.name == 'free' || object.data.seen == object.metadata.labels.by";
    let refusing = json!({"metadata": {"name": "v"}, "spec": {"validations": [{"expression": agrees}],
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
            "resources": ["configmaps"]}]}}});
    make(&hostile, "validatingadmissionpolicies", refusing).await;
    let binding = json!({"metadata": {"name": "v"}, "spec": {"policyName": "v", "validationActions": ["Deny"]}});
    make(&hostile, "validatingadmissionpolicybindings", binding).await;

    let (code, answer) = hostile.ask("POST", MAPS, JSON, map("a", &json!({"k": "v"}))).await;
    assert_eq!((code, &answer["metadata"]["labels"]), (201, &json!({"by": "CREATE-policy"})), "{answer}");
    assert_eq!(answer["data"], json!({"k": "v", "seen": "CREATE-policy"}));
    // nobody has come to manage what a policy set
    assert!(!answer["metadata"]["managedFields"].to_string().contains("f:by"), "{answer}");
    let (code, answer) = hostile.ask("PUT", &format!("{MAPS}/a"), JSON, map("a", &json!({"l": "w"}))).await;
    assert_eq!((code, &answer["data"]), (200, &json!({"l": "w", "seen": "UPDATE-policy"})), "{answer}");
    let (code, answer) = hostile.ask("POST", MAPS, JSON, map("free", &json!({}))).await;
    assert_eq!((code, &answer["metadata"]["labels"]), (201, &Value::Null), "{answer}");
    unbind(&hostile, "labels").await;
    let (code, answer) = hostile.ask("POST", MAPS, JSON, map("b", &json!({}))).await;
    assert_eq!(code, 422, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_that_say_so_run_again_where_one_has_run() {
    let hostile = Hostile::start(None).await;
    let count =
        |field: &str| format!("Object{{data: {{'{field}': string(int(object.?data['{field}'].orValue('0')) + 1)}}}}");
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    policy(&hostile, "a", "configmaps", &[("ApplyConfiguration", &count("a"))], again).await;
    policy(&hostile, "b", "configmaps", &[("ApplyConfiguration", &count("b"))], json!({})).await;
    let (code, answer) = hostile.ask("POST", MAPS, JSON, map("m", &json!({"k": "v"}))).await;
    assert_eq!((code, &answer["data"]), (201, &json!({"a": "2", "b": "1", "k": "v"})), "{answer}");
}

const APPLY: &str = "ApplyConfiguration";
const OWNERS: &str = "Object{metadata: Object.metadata{ownerReferences: [Object.metadata.ownerReferences{uid: 'u'}]}}";
const DEAR: &str = "[1, 2, 3, 4, 5, 6, 7, 8, 9].all(a, object.data.k.split('').all(x, x != 'y')) ? Object{} : Object{}";

/// Types of patches, expressions, codes and parts of messages.
const FAILING: [(&str, &str, u16, &str); 10] = [
    (APPLY, "Object{data: {'x': object.data.none}}", 403, "resulted in error: no such key: none"),
    (APPLY, "Object{spec: Object.other{}}", 403, "type mismatch: unexpected type name \"Object.other\""),
    (APPLY, "Object{nope: 1}", 403, "patch: failed to convert patch object to typed object: .nope: field not declared"),
    (APPLY, OWNERS, 403, "may not mutate atomic arrays, maps or structs: .metadata.ownerReferences[0]"),
    (
        "JSONPatch",
        "[JSONPatch{op: 'remove', path: '/data/none'}]",
        403,
        "JSON Patch: error in remove for path: '/data/none'",
    ),
    (
        "JSONPatch",
        "[JSONPatch{op: 'test', path: '/data/k', value: 'other'}, JSONPatch{op: 'remove', path: '/data'}]",
        201,
        "",
    ),
    (
        "JSONPatch",
        "[JSONPatch{op: 'add', path: '/nope', value: 1}]",
        500,
        "strict decoding error: unknown field \"nope\"",
    ),
    // a patch makes no more than objects may be
    (
        "JSONPatch",
        "['a', 'b', 'c', 'd'].map(x, JSONPatch{op: 'copy', from: '/data/k', path: '/data/' + x})",
        403,
        "JSON Patch: Unable to complete the copy",
    ),
    (
        "JSONPatch",
        "lists.range(20).map(i, JSONPatch{op: 'copy', from: '/data', path: '/data/' + string(i)})",
        403,
        "JSON Patch: Unable to complete the copy",
    ),
    (APPLY, DEAR, 403, "cost limit exceeded"),
];

#[tokio::test(flavor = "multi_thread")]
async fn failures_refuse_unless_they_are_to_be_ignored() {
    let hostile = Hostile::start(None).await;
    let data = json!({"k": "x".repeat(900_000)});
    for (i, (kind, source, wanted, message)) in FAILING.into_iter().enumerate() {
        let name = format!("p{i}");
        policy(&hostile, &name, "configmaps", &[(kind, source)], json!({})).await;
        let (code, answer) = hostile.ask("POST", MAPS, JSON, map(&name, &data)).await;
        let shown = answer["message"].as_str().unwrap_or_default();
        assert_eq!((code, shown.contains(message)), (wanted, true), "{source}: {shown}");
        unbind(&hostile, &name).await;
        if wanted == 403 {
            let name = format!("{name}-ignored");
            policy(&hostile, &name, "configmaps", &[(kind, source)], json!({"failurePolicy": "Ignore"})).await;
            let (code, answer) = hostile.ask("POST", MAPS, JSON, map(&name, &data)).await;
            assert_eq!((code, answer["data"] == data), (201, true), "{source}: {}", answer["message"]);
            unbind(&hostile, &name).await;
        }
    }
}

/// A policy adds a container to a pod: what admission gives to containers, it gives to this one, too.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_policy_adds_is_completed() {
    let hostile = Hostile::start(None).await;
    let side = "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'side', image: 's'}]}}";
    policy(&hostile, "side", "pods", &[(APPLY, side)], json!({})).await;
    let account = json!({"metadata": {"name": "default"}}).to_string();
    hostile.ask("POST", "/api/v1/namespaces/default/serviceaccounts", JSON, account).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "i"}]}}).to_string();
    let (code, answer) = hostile.ask("POST", "/api/v1/namespaces/default/pods", JSON, pod).await;
    assert_eq!(code, 201, "{answer}");
    let containers = &answer["spec"]["containers"];
    assert_eq!(containers[1]["name"], "side", "{answer}");
    assert_eq!(containers[1]["terminationMessagePath"], "/dev/termination-log");
    assert_eq!(containers[1]["volumeMounts"], containers[0]["volumeMounts"]);
    let volume = containers[1]["volumeMounts"][0]["name"].as_str().unwrap_or_default();
    assert!(volume.starts_with("kube-api-access-"), "{answer}");
    assert_eq!(answer["spec"]["tolerations"].as_array().map(Vec::len), Some(2), "{answer}");
}

/// Policies judge what connects to pods, and the bodies of subresources that store no object of their own.
#[tokio::test(flavor = "multi_thread")]
async fn connections_evictions_tokens_and_scales_are_judged() {
    let hostile = Hostile::start(None).await;
    for (name, group, resource, operation, expression) in [
        (
            "exec",
            "",
            "pods/exec",
            "CONNECT",
            "object.kind != 'PodExecOptions' || object.command[0] != 'sh' || request.kind.kind != 'PodExecOptions'",
        ),
        ("forward", "", "pods/portforward", "CONNECT", "!object.ports.exists(port, port < 1024)"),
        ("proxy", "", "pods/proxy", "CONNECT", "object.path != '/admin/x'"),
        ("evict", "", "pods/eviction", "CREATE", "request.kind.group != 'policy' || object.metadata.name != 'p'"),
        ("token", "", "serviceaccounts/token", "CREATE", "object.spec.expirationSeconds <= 3600"),
        (
            "scale",
            "apps",
            "deployments/scale",
            "UPDATE",
            "request.kind.kind == 'Scale' && object.spec.replicas < 5 && !has(object.spec.template)",
        ),
    ] {
        let rule =
            json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]});
        let spec = json!({"validations": [{"expression": expression}], "matchConstraints": {"resourceRules": [rule]}});
        make(&hostile, "validatingadmissionpolicies", json!({"metadata": {"name": name}, "spec": spec})).await;
        let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
        make(&hostile, "validatingadmissionpolicybindings", binding).await;
    }
    let base = "/api/v1/namespaces/default";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "sa", "containers": [{"name": "c", "image": "x"}]}});
    let account = json!({"metadata": {"name": "sa"}});
    let labels = json!({"a": "b"});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod["spec"]}}});
    for (path, object) in [
        (format!("{base}/serviceaccounts"), &account),
        (format!("{base}/pods"), &pod),
        ("/apis/apps/v1/namespaces/default/deployments".to_owned(), &deployment),
    ] {
        let (code, answer) = hostile.ask("POST", &path, JSON, object.to_string()).await;
        assert_eq!(code, 201, "{answer}");
    }
    let token = |seconds: u32| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}});
    let eviction = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let scale = |replicas: u32| json!({"spec": {"replicas": replicas}});
    let denied = "denied request: failed expression";
    for (method, path, body, refused) in [
        ("GET", format!("{base}/pods/p/exec?command=sh&stdout=1"), Value::Null, true),
        ("GET", format!("{base}/pods/p/exec?command=ls&stdout=1"), Value::Null, false),
        // policies are asked before anybody looks whether there is such a pod
        ("GET", format!("{base}/pods/absent/exec?command=sh&stdout=1"), Value::Null, true),
        ("GET", format!("{base}/pods/p/attach?stdout=1"), Value::Null, false),
        ("GET", format!("{base}/pods/p/portforward?ports=80"), Value::Null, true),
        ("GET", format!("{base}/pods/p/portforward?ports=8080"), Value::Null, false),
        ("GET", format!("{base}/pods/p/proxy/admin/x"), Value::Null, true),
        ("GET", format!("{base}/pods/p:8080/proxy/admin"), Value::Null, false),
        ("POST", format!("{base}/pods/p/eviction?dryRun=All"), eviction("p"), true),
        ("POST", format!("{base}/serviceaccounts/sa/token"), token(7200), true),
        ("POST", format!("{base}/serviceaccounts/sa/token"), token(3600), false),
        ("PATCH", "/apis/apps/v1/namespaces/default/deployments/d/scale".to_owned(), scale(5), true),
        ("PATCH", "/apis/apps/v1/namespaces/default/deployments/d/scale".to_owned(), scale(4), false),
    ] {
        let content = if method == "PATCH" { "application/merge-patch+json" } else { JSON };
        let sent = if body.is_null() { String::new() } else { body.to_string() };
        let (code, answer) = hostile.ask(method, &path, content, sent).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert_eq!(
            (code == 422 && message.contains(denied), message.contains("denied")),
            (refused, refused),
            "{path} {body}: {answer}"
        );
    }
}
