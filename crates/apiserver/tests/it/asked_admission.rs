//! Rows as those of `asked.rs` about admission: its kinds, and policies about parts of objects.

use crate::alike::ask;
use crate::asked::{BASE, JSON, MERGE, Row, all_are_answered, message};
use crate::hostile::Hostile;
use serde_json::{Value, json};

#[tokio::test]
async fn of_kinds_of_admission() {
    let hostile = Hostile::start(None).await;
    let base = "/apis/admissionregistration.k8s.io/v1";
    let hooks = format!("{base}/mutatingwebhookconfigurations?dryRun=All");
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]);
    let hook = |more: Value| {
        let mut hook = json!({"name": "a.b.c", "rules": rules.clone(), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://a/x"}});
        hook.as_object_mut().expect("a hook").extend(more.as_object().cloned().unwrap_or_default());
        json!({"metadata": {"name": "h"}, "webhooks": [hook]})
    };
    let service = |service: Value| hook(json!({"clientConfig": {"service": service}}));
    let at = |url: &str| hook(json!({"clientConfig": {"url": url}}));
    let conditions = json!([{"name": "a", "expression": "true"}, {"name": "a", "expression": " true"}]);
    let policies = format!("{base}/validatingadmissionpolicies?dryRun=All");
    let policy = |more: Value| {
        let mut spec =
            json!({"matchConstraints": {"resourceRules": rules.clone()}, "validations": [{"expression": "true"}]});
        spec.as_object_mut().expect("a policy").extend(more.as_object().cloned().unwrap_or_default());
        json!({"metadata": {"name": "p"}, "spec": spec})
    };
    let validates = |expression: &str| policy(json!({"validations": [{"expression": expression}]}));
    let unnamed = json!([{"name": " ", "expression": "1"}]);
    let unsaid = json!([{"name": "v", "expression": ""}]);
    let refused = |body: Value, part: &str| -> Row {
        let path = if body["webhooks"].is_null() { policies.clone() } else { hooks.clone() };
        ("POST", path, JSON, body, 422, message(part))
    };
    let rows: Vec<Row> = vec![
        // upstream takes the name of a service for its namespace
        refused(service(json!({"name": "s"})), "clientConfig.service.name: Required value"),
        refused(service(json!({"namespace": "s"})), "clientConfig.service.namespace: Required value"),
        refused(
            service(json!({"name": "s", "namespace": "s", "path": "x"})),
            "path: Invalid value: \"x\": must start with a '/'",
        ),
        refused(service(json!({"name": "s", "namespace": "s", "path": "/a//b"})), "segment[1] may not be empty"),
        refused(
            service(json!({"name": "s", "namespace": "s", "path": "/A"})),
            "segment[0]: a lowercase RFC 1123 subdomain",
        ),
        refused(at("https://a/%zz"), "invalid URL escape \"%zz\""),
        refused(at("https://@a/"), "user information is not permitted in the URL"),
        refused(
            hook(json!({"admissionReviewVersions": ["v1", "v1"]})),
            "admissionReviewVersions[1]: Invalid value: \"v1\": duplicate version",
        ),
        refused(hook(json!({"matchConditions": conditions})), "matchConditions[1].name: Duplicate value: \"a\""),
        refused(policy(json!({"matchConditions": conditions})), "spec.matchConditions[1].name: Duplicate value: \"a\""),
        refused(policy(json!({"variables": unnamed})), "spec.variables[0].name: Required value: name is not specified"),
        refused(
            policy(json!({"variables": unsaid, "validations": [{"expression": "variables.v"}]})),
            "undefined field 'v'",
        ),
        // a policy without variables does not know the word
        refused(validates("variables.v"), "undeclared reference to 'variables' (in container '')"),
        refused(validates("ü"), "token recognition error at: 'ü'\n | ü\n | ＾"),
        // what is known of a request has types
        refused(validates("request.nope == ''"), "undefined field 'nope'"),
        refused(
            validates("request.kind == request.resource"),
            "no matching overload for '_==_' applied to '(kubernetes.GroupVersionKind, kubernetes.GroupVersionResource)'",
        ),
        refused(validates("namespaceObject.spec.x"), "undefined field 'x'"),
        ("POST", policies.clone(), JSON, validates("request.kind == request.requestKind"), 201, vec![]),
    ];
    all_are_answered(&hostile, rows).await;
}

/// A policy that changes, with its binding.
async fn mutates(hostile: &Hostile, name: &str, resource: (&str, &str), patch: Value) {
    let base = "/apis/admissionregistration.k8s.io/v1";
    let rules =
        json!([{"apiGroups": [resource.0], "apiVersions": ["v1"], "operations": ["*"], "resources": [resource.1]}]);
    let policy = json!({"metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": rules}, "reinvocationPolicy": "Never",
        "mutations": [patch]}});
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
    for (plural, object) in [("mutatingadmissionpolicies", policy), ("mutatingadmissionpolicybindings", binding)] {
        let (code, _, answer) = ask(hostile, "POST", &format!("{base}/{plural}"), JSON, object).await;
        assert_eq!(code, 201, "{answer}");
    }
}

#[tokio::test]
async fn of_policies_about_parts() {
    let hostile = Hostile::start(None).await;
    let sets = "/apis/apps/v1/namespaces/default/deployments";
    let apply =
        |expression: &str| json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}});
    let patch = |expression: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    let nine = patch("[JSONPatch{op: 'replace', path: '/spec/replicas', value: 9}]");
    mutates(&hostile, "scales", ("apps", "deployments/scale"), nine).await;
    mutates(&hostile, "applies", ("apps", "statefulsets/scale"), apply("Object{spec: Object.spec{replicas: 9}}")).await;
    mutates(
        &hostile,
        "binds",
        ("", "pods/binding"),
        patch("[JSONPatch{op: 'replace', path: '/target/name', value: 'elsewhere'}]"),
    )
    .await;
    let by = patch("[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'by': 'policy'}}]");
    mutates(&hostile, "tokens", ("", "serviceaccounts/token"), by).await;
    let labels = apply(
        "Object{metadata: Object.metadata{annotations: {'in': request.namespace, 'none': string(namespaceObject == null)}}}",
    );
    mutates(&hostile, "labels", ("", "namespaces"), labels).await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let set = json!({"metadata": {"name": "d"}, "spec": {"serviceName": "d", "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let mut deployment = set.clone();
    deployment["spec"].as_object_mut().expect("a spec").remove("serviceName");
    let scale = json!({"spec": {"replicas": 3}});
    let states = "/apis/apps/v1/namespaces/default/statefulsets";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]}});
    let rows: Vec<Row> = vec![
        ("POST", sets.into(), JSON, deployment, 201, vec![]),
        ("POST", states.into(), JSON, set, 201, vec![]),
        ("PATCH", format!("{sets}/d/scale"), MERGE, scale.clone(), 200, vec![("/body/spec/replicas", json!(9))]),
        (
            "PATCH",
            format!("{states}/d/scale"),
            MERGE,
            scale,
            403,
            message(
                "failed to convert patch object to typed object: no corresponding type for autoscaling/v1, Kind=Scale",
            ),
        ),
        ("POST", format!("{BASE}/serviceaccounts"), JSON, json!({"metadata": {"name": "default"}}), 201, vec![]),
        // what a policy sets on what is answered and not stored is nobody's, either
        (
            "POST",
            format!("{BASE}/serviceaccounts/default/token"),
            JSON,
            json!({"spec": {"audiences": ["x"]}}),
            201,
            vec![
                ("/body/metadata/annotations/by", "policy".into()),
                (
                    "/body/metadata/managedFields/0/fieldsV1",
                    json!({"f:spec": {"f:audiences": {}, "f:expirationSeconds": {}}}),
                ),
            ],
        ),
        ("POST", format!("{BASE}/pods"), JSON, pod, 201, vec![]),
        (
            "POST",
            format!("{BASE}/pods/p/binding"),
            JSON,
            json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "here"}}),
            201,
            vec![],
        ),
        ("GET", format!("{BASE}/pods/p"), JSON, Value::Null, 200, vec![("/body/spec/nodeName", "elsewhere".into())]),
        // a namespace is in itself, and is not there yet
        (
            "POST",
            "/api/v1/namespaces".into(),
            JSON,
            json!({"metadata": {"name": "n"}}),
            201,
            vec![("/body/metadata/annotations/in", "n".into()), ("/body/metadata/annotations/none", "true".into())],
        ),
    ];
    all_are_answered(&hostile, rows).await;
}

#[tokio::test]
async fn of_policies() {
    let hostile = Hostile::start(None).await;
    let base = "/apis/admissionregistration.k8s.io/v1";
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]);
    let expression = "request.options.kind == 'DeleteOptions' ? request.options.gracePeriodSeconds == 0 : request.options.fieldManager == 'm'";
    let validations = json!([{"expression": expression, "reason": "RequestEntityTooLarge"}]);
    let policy = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": rules}, "validations": validations}});
    let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    let maps = format!("{BASE}/configmaps");
    let map = json!({"metadata": {"name": "a"}});
    let rows: Vec<Row> = vec![
        ("POST", format!("{base}/validatingadmissionpolicies"), JSON, policy, 201, vec![]),
        ("POST", format!("{base}/validatingadmissionpolicybindings"), JSON, binding, 201, vec![]),
        (
            "POST",
            format!("{maps}?fieldManager=n"),
            JSON,
            map.clone(),
            413,
            vec![("/body/reason", "RequestEntityTooLarge".into())],
        ),
        // the reason is not that of an expression which cannot be asked
        ("POST", maps.clone(), JSON, map.clone(), 422, message("no such key: fieldManager")),
        ("POST", format!("{maps}?fieldManager=m"), JSON, map, 201, vec![]),
        ("PATCH", format!("{maps}/a?fieldManager=m"), MERGE, json!({"data": {"k": "v"}}), 200, vec![]),
        ("DELETE", format!("{maps}/a"), JSON, json!({"gracePeriodSeconds": 1}), 413, vec![]),
        ("DELETE", format!("{maps}/a"), JSON, json!({"gracePeriodSeconds": 0}), 200, vec![]),
    ];
    all_are_answered(&hostile, rows).await;
}
