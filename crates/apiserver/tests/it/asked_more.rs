//! More rows as those of `asked.rs`: admission, namespaces that go, and what is kept.

use crate::alike::ask;
use crate::asked::{APPLY, BASE, JSON, MERGE, Row, all_are_answered, message};
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
    ];
    all_are_answered(&hostile, rows).await;
}

#[tokio::test]
async fn of_numbers_ports_and_hints() {
    let hostile = Hostile::start(None).await;
    let sets = "/apis/apps/v1/namespaces/default/deployments";
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let set =
        json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let scale = |replicas: Value| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": replicas}});
    let applied = format!("{sets}/d/scale?fieldManager=m&force=true");
    let ports = json!({"spec": {"ports": [{"port": 80}, {"port": 81}]}});
    let slice = |hints: Value| json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"], "hints": hints}]});
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?dryRun=All";
    let policy = json!({"metadata": {"name": "p"}, "spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "x", "except": ["y"]}}]}]}});
    let spread = |more: Value| {
        let mut constraint =
            json!({"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway", "matchLabelKeys": ["v"]});
        constraint.as_object_mut().expect("a constraint").extend(more.as_object().cloned().unwrap_or_default());
        json!({"metadata": {"name": "p", "labels": {"v": "1"}}, "spec": {"containers": [{"name": "c", "image": "i"}],
            "topologySpreadConstraints": [constraint]}})
    };
    let chosen = json!({"matchExpressions": [{"key": "v", "operator": "Exists"}]});
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "z", "labelSelector": {}, "matchLabelKeys": ["v"], "mismatchLabelKeys": ["v", "!"]}]}});
    let mut near = spread(json!({"labelSelector": {}}));
    near["spec"]["affinity"] = affinity;
    let pods = format!("{BASE}/pods?dryRun=All");
    let many: Vec<Value> = (0..9).map(|n| json!({"name": n.to_string()})).collect();
    let rows: Vec<Row> = vec![
        ("POST", sets.into(), JSON, set, 201, vec![]),
        (
            "PATCH",
            applied.clone(),
            APPLY,
            scale(json!(9_223_372_036_854_775_808_u64)),
            200,
            vec![("/body/spec/replicas", Value::Null)],
        ),
        ("PATCH", applied.clone(), APPLY, scale(json!(5.0)), 200, vec![("/body/spec/replicas", json!(5))]),
        ("PATCH", applied, APPLY, scale(json!(1.5)), 500, message("cannot convert float64 to int32")),
        (
            "POST",
            format!("{BASE}/services"),
            JSON,
            json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}),
            201,
            vec![],
        ),
        ("PATCH", format!("{BASE}/services/s"), MERGE, ports, 500, message("duplicate nodePort: {TCP 3")),
        (
            "POST",
            slices.into(),
            JSON,
            slice(json!({"forZones": [{"name": "a"}, {"name": "a"}]})),
            422,
            message("hints.forZones[1].name: Duplicate value: \"a\""),
        ),
        (
            "POST",
            slices.into(),
            JSON,
            slice(json!({"forNodes": [{"name": ""}]})),
            422,
            message("hints.forNodes[0].name: Invalid value: \"\""),
        ),
        (
            "POST",
            "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies".into(),
            JSON,
            policy,
            422,
            vec![("/body/details/causes/0/field", "ipBlock.cidr".into()), ("/body/details/causes/1", Value::Null)],
        ),
        ("POST", format!("{BASE}/serviceaccounts"), JSON, json!({"metadata": {"name": "default"}}), 201, vec![]),
        // keys of labels become expressions
        (
            "POST",
            pods.clone(),
            JSON,
            spread(json!({"labelSelector": {}})),
            201,
            vec![("/body/spec/topologySpreadConstraints/0/labelSelector/matchExpressions/0/values/0", "1".into())],
        ),
        (
            "POST",
            pods.clone(),
            JSON,
            spread(json!({})),
            422,
            message("[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"),
        ),
        (
            "POST",
            pods.clone(),
            JSON,
            spread(json!({"labelSelector": chosen})),
            422,
            message("[0][0]: Invalid value: \"v\": exists in both matchLabelKeys and labelSelector"),
        ),
        ("POST", pods.clone(), JSON, near.clone(), 422, message("mismatchLabelKeys[1]: Invalid value: \"!\"")),
        (
            "POST",
            pods,
            JSON,
            near,
            422,
            message("[0].matchLabelKeys[0]: Invalid value: \"v\": exists in both matchLabelKeys and mismatchLabelKeys"),
        ),
        (
            "POST",
            slices.into(),
            JSON,
            slice(json!({"forNodes": many})),
            422,
            message("hints.forNodes: Too many: 9: must have at most 8 items"),
        ),
    ];
    all_are_answered(&hostile, rows).await;
}

#[tokio::test]
async fn of_what_is_kept_and_warned_of() {
    let hostile = Hostile::start(None).await;
    let open = json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let closed =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}});
    let version = |name: &str, storage: bool, schema: Value| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({"metadata": {"name": "things.kept.io"}, "spec": {"group": "kept.io", "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"}, "versions": [version("v1", true, open), version("v2", false, closed)]}});
    let thing =
        json!({"apiVersion": "kept.io/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"a": "x", "b": 1}});
    let things = |version: &str| format!("/apis/kept.io/{version}/namespaces/default/things");
    let base = "/apis/admissionregistration.k8s.io/v1";
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]}]);
    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": "default"}});
    let constraints = json!({"resourceRules": rules, "namespaceSelector": here});
    let policy = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": constraints, "validations": [{"expression": "false"}]}});
    let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Warn"]}});
    let map = json!({"metadata": {"name": "a", "labels": {"a": "b"}}});
    let bad = json!({"metadata": {"labels": {"!": "x"}}});
    let classes = "/apis/node.k8s.io/v1/runtimeclasses";
    let rows: Vec<Row> = vec![
        ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".into(), JSON, definition, 201, vec![]),
        ("POST", things("v1"), JSON, thing, 201, vec![]),
        // a version that knows less of an object keeps less of it, even by a write that changes nothing there
        (
            "PATCH",
            format!("{}/a", things("v2")),
            MERGE,
            json!({"spec": {"e": 1}}),
            200,
            vec![("/body/spec", json!({"a": "x"}))],
        ),
        (
            "PATCH",
            format!("{}/a", things("v1")),
            MERGE,
            json!({"spec": {"q": 1}}),
            200,
            vec![("/body/spec", json!({"a": "x", "q": 1}))],
        ),
        ("POST", classes.into(), JSON, json!({"metadata": {"name": "r"}, "handler": "h"}), 201, vec![]),
        (
            "PATCH",
            format!("{classes}/r"),
            MERGE,
            bad,
            422,
            vec![("/body/details/causes/3/field", "metadata.labels".into())],
        ),
        ("POST", format!("{base}/validatingadmissionpolicies"), JSON, policy, 201, vec![]),
        ("POST", format!("{base}/validatingadmissionpolicybindings"), JSON, binding, 201, vec![]),
        ("POST", format!("{BASE}/configmaps"), JSON, map.clone(), 201, vec![]),
        (
            "DELETE",
            format!("{BASE}/configmaps?labelSelector=a%3Db"),
            JSON,
            json!({}),
            200,
            vec![("/warnings/0", "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p'".into())],
        ),
        ("POST", "/api/v1/namespaces".into(), JSON, json!({"metadata": {"name": "gone"}}), 201, vec![]),
        ("POST", "/api/v1/namespaces/gone/configmaps".into(), JSON, map, 201, vec![]),
        ("DELETE", "/api/v1/namespaces/gone".into(), JSON, json!({}), 200, vec![]),
        (
            "PUT",
            "/api/v1/namespaces/gone/finalize".into(),
            JSON,
            json!({"metadata": {"name": "gone"}, "spec": {}}),
            200,
            vec![],
        ),
        // nobody can say whether it is selected
        (
            "DELETE",
            "/api/v1/namespaces/gone/configmaps/a".into(),
            JSON,
            json!({}),
            422,
            message(
                "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: namespaces \"gone\" not found",
            ),
        ),
    ];
    all_are_answered(&hostile, rows).await;
}
