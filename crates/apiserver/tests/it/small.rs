//! Small answers, each as upstream's API server was seen to give it.

use crate::hostile::Hostile;
use serde_json::{Value, json};

const JSON: &str = "application/json";

#[tokio::test]
async fn a_body_of_another_kind_is_told_what_it_is() {
    let hostile = Hostile::start(None).await;
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses";
    for (body, why) in [
        (json!({"kind": "Status"}), "converting (v1.Status) to (scheduling.PriorityClass): unknown conversion"),
        (
            json!({"kind": "Pod"}),
            "no kind \"Pod\" is registered for version \"scheduling.k8s.io/v1\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
    ] {
        let (code, answer) = hostile.ask("POST", path, JSON, body.to_string()).await;
        let kind = body["kind"].as_str().unwrap_or_default();
        let expected = format!("{kind} in version \"v1\" cannot be handled as a PriorityClass: {why}");
        assert_eq!((code, &answer["message"]), (400, &json!(expected)));
    }
}

#[tokio::test]
async fn what_is_behind_gates_that_are_off_is_not_kept() {
    let hostile = Hostile::start(None).await;
    let lease = json!({"metadata": {"name": "a"}, "spec": {"preferredHolder": "x", "strategy": "OldestEmulationVersion", "holderIdentity": "me"}});
    let node = json!({"metadata": {"name": "a"}, "spec": {"configSource": {"configMap": {"name": "x"}}, "unschedulable": true}});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "m", "image": "i"}]}});
    let rolling = |more: Value| json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": more}});
    let mut set = rolling(json!({"maxUnavailable": 0, "partition": 1}));
    set["selector"] = json!({"matchLabels": {"a": "b"}});
    set["template"] = template;
    let set = json!({"metadata": {"name": "a"}, "spec": set}).to_string();
    let (code, answer) = hostile.ask("POST", "/apis/apps/v1/namespaces/default/statefulsets", JSON, set).await;
    let kept = rolling(json!({"partition": 1}));
    assert_eq!((code, &answer["spec"]["updateStrategy"]), (201, &kept["updateStrategy"]), "{answer}");
    for (path, body, kept) in [
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases", lease, json!({"holderIdentity": "me"})),
        ("/api/v1/nodes", node, json!({"unschedulable": true})),
    ] {
        let (code, answer) = hostile.ask("POST", path, JSON, body.to_string()).await;
        assert_eq!((code, &answer["spec"]), (201, &kept), "{answer}");
    }
}

#[tokio::test]
async fn an_event_waits_for_no_dependents() {
    let hostile = Hostile::start(None).await;
    let path = "/api/v1/namespaces/default/events";
    let event =
        json!({"metadata": {"name": "a"}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"}});
    for policy in ["Orphan", "Foreground"] {
        assert_eq!(hostile.ask("POST", path, JSON, event.to_string()).await.0, 201);
        let options = json!({"propagationPolicy": policy}).to_string();
        let (code, answer) = hostile.ask("DELETE", &format!("{path}/a"), JSON, options).await;
        assert_eq!((code, &answer["kind"]), (200, &json!("Status")), "{policy}: {answer}");
    }
}

#[tokio::test]
async fn rules_of_a_policy_name_what_there_can_be() {
    let hostile = Hostile::start(None).await;
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies?dryRun=All";
    let whole = "spec.matchConstraints.resourceRules[0].resources";
    for (resources, versions, faults) in [
        (json!(["pods", "pods/log", "*/scale"]), json!(["v1"]), vec![]),
        (
            json!([""]),
            json!([""]),
            vec![format!("{}.apiVersions[0]", whole.trim_end_matches(".resources")), format!("{whole}[0]")],
        ),
        (json!(["pods/*", "pods/log"]), json!(["v1"]), vec![format!("{whole}[1]")]),
        (json!(["*/log", "pods/log"]), json!(["v1"]), vec![format!("{whole}[1]")]),
        (json!(["*", "pods"]), json!(["v1"]), vec![whole.to_owned()]),
        // upstream's word on it: what comes last counts
        (json!(["pods", "*"]), json!(["v1"]), vec![]),
    ] {
        let rule =
            json!({"apiGroups": [""], "apiVersions": versions, "operations": ["CREATE"], "resources": resources});
        let policy = json!({"metadata": {"name": "a"}, "spec": {"validations": [{"expression": "true"}],
            "matchConstraints": {"resourceRules": [rule]}}});
        let (_, answer) = hostile.ask("POST", path, JSON, policy.to_string()).await;
        let causes = answer["details"]["causes"].as_array().into_iter().flatten();
        let found: Vec<&str> = causes.filter_map(|cause| cause["field"].as_str()).collect();
        assert_eq!(found, faults, "{resources}: {}", answer["message"]);
    }
}

#[tokio::test]
async fn a_custom_resource_says_which_version_it_is_of() {
    let hostile = Hostile::start(None).await;
    let definition = json!({"metadata": {"name": "things.small.test.io"}, "spec": {"group": "small.test.io", "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(hostile.ask("POST", path, JSON, definition.to_string()).await.0, 201);
    let server = hostile.server.clone();
    tokio::task::spawn_blocking(move || server.sync_definitions()).await.expect("syncs");
    let thing: Value = json!({"apiVersion": "", "kind": "Thing", "metadata": {"name": "a"}});
    let (code, answer) = hostile.ask("POST", "/apis/small.test.io/v1/things", JSON, thing.to_string()).await;
    let expected = "the API version in the data () does not match the expected API version (small.test.io/v1)";
    assert_eq!((code, &answer["message"]), (400, &json!(expected)));
}

#[tokio::test]
async fn a_port_on_the_nodes_is_one_services() {
    let hostile = Hostile::start(None).await;
    let path = "/api/v1/namespaces/default/services";
    let service = |name: &str, ports: &[(i64, &str, i64)]| {
        let ports: Vec<Value> = ports
            .iter()
            .map(|(port, protocol, on_node)| {
                json!({"name": format!("p{port}{protocol}").to_lowercase(), "port": port, "protocol": protocol, "nodePort": on_node})
            })
            .collect();
        json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": ports}}).to_string()
    };
    let taken = |i: usize, port: i64| {
        format!("spec.ports[{i}].nodePort: Invalid value: {port}: provided port is already allocated")
    };
    let posted = async |query: &str, body: String| {
        let (_, answer) = hostile.ask("POST", &format!("{path}{query}"), JSON, body).await;
        let ports = answer["spec"]["ports"].as_array().into_iter().flatten();
        let ports: Vec<i64> = ports.filter_map(|port| port["nodePort"].as_i64()).collect();
        let why = answer["message"].as_str().and_then(|text| text.split_once("is invalid: ")).map(|(_, why)| why);
        (ports, why.unwrap_or_default().to_owned())
    };
    let none = String::new();
    assert_eq!(posted("", service("a", &[(80, "TCP", 30511)])).await, (vec![30511], none.clone()));
    for (query, ports, refusal) in [
        ("", vec![(80, "UDP", 30511)], taken(0, 30511)),
        ("?dryRun=All", vec![(80, "UDP", 30511)], taken(0, 30511)),
        ("", vec![(80, "TCP", 30512), (81, "UDP", 30512)], taken(1, 30512)),
    ] {
        assert_eq!(posted(query, service("b", &ports)).await, (Vec::new(), refusal), "{ports:?}");
    }
    // one port with several protocols has one number, a given one if there is one
    let dns = posted("", service("dns", &[(53, "TCP", 0), (53, "UDP", 0), (54, "TCP", 0)])).await.0;
    assert!(dns[0] == dns[1] && dns[0] != dns[2], "{dns:?}");
    let given = service("given", &[(53, "TCP", 0), (53, "UDP", 30513), (53, "SCTP", 30514)]);
    assert_eq!(posted("", given).await, (vec![30513, 30513, 30514], none));
    let (code, answer) = hostile
        .ask("PUT", &format!("{path}/given"), JSON, service("given", &[(53, "TCP", 30513), (53, "UDP", 30511)]))
        .await;
    let why = answer["message"].as_str().unwrap_or_default();
    assert!(code == 422 && why.ends_with(&taken(1, 30511)), "{answer}");
    let again = service("given", &[(53, "TCP", 30514), (54, "UDP", 30514), (55, "TCP", 30515)]);
    assert_eq!(hostile.ask("PUT", &format!("{path}/given"), JSON, again).await.0, 200);
}

#[tokio::test]
async fn a_pod_grows_as_far_as_its_node_can() {
    let hostile = Hostile::start(None).await;
    let base = "/api/v1/namespaces/default";
    let account = json!({"metadata": {"name": "default"}}).to_string();
    hostile.ask("POST", &format!("{base}/serviceaccounts"), JSON, account).await;
    let sizes = |cpu: &str| json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu, "memory": "1Gi"}});
    let pod = |name: &str, node: &str| {
        json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "m", "image": "i", "resources": sizes("1")}]}}).to_string()
    };
    for (name, system) in [("n", "linux"), ("w", "windows")] {
        let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/os": system}},
            "status": {"allocatable": {"cpu": "2", "memory": "8Gi"}}});
        assert_eq!(hostile.ask("POST", "/api/v1/nodes", JSON, node.to_string()).await.0, 201);
    }
    for (name, node, cpu, expected) in [
        ("a", "n", "2", None),
        ("b", "n", "3", Some("node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000")),
        ("c", "w", "2", Some("pod resize is only supported on linux nodes, node \"w\" is \"windows\"")),
        ("d", "none", "2", Some("node \"none\" not found")),
        ("e", "none", "1", None),
    ] {
        assert_eq!(hostile.ask("POST", &format!("{base}/pods"), JSON, pod(name, node)).await.0, 201);
        let patch = json!({"spec": {"containers": [{"name": "m", "resources": sizes(cpu)}]}}).to_string();
        let media = "application/strategic-merge-patch+json";
        let (code, answer) = hostile.ask("PATCH", &format!("{base}/pods/{name}/resize"), media, patch).await;
        let why = expected.map(|why| format!("pods \"{name}\" is forbidden: {why}"));
        assert_eq!(
            (code, answer["message"].as_str()),
            (if why.is_some() { 403 } else { 200 }, why.as_deref()),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn what_is_gone_is_shown_as_it_was_stored() {
    let hostile = Hostile::start(None).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let map = json!({"metadata": {"name": "a", "finalizers": ["example.com/x"]}, "data": {"k": "v"}}).to_string();
    assert_eq!(hostile.ask("POST", path, JSON, map).await.0, 201);
    let (_, marked) = hostile.ask("DELETE", &format!("{path}/a"), JSON, "").await;
    let version = marked["metadata"]["resourceVersion"].as_str().expect("a version");
    let patch = json!({"metadata": {"finalizers": null}, "data": {"k": "w"}}).to_string();
    let (code, answer) = hostile.ask("PATCH", &format!("{path}/a"), "application/merge-patch+json", patch).await;
    // whoever asked is told of what it asked for
    assert_eq!((code, &answer["data"]["k"], answer["metadata"].get("finalizers")), (200, &json!("w"), None));
    assert_eq!(answer["metadata"]["resourceVersion"], version);
    let (_, event) =
        hostile.ask("GET", &format!("{path}?watch=1&timeoutSeconds=1&resourceVersion={version}"), JSON, "").await;
    let object = &event["object"];
    assert_eq!((&event["type"], &object["data"]["k"]), (&json!("DELETED"), &json!("v")), "{event}");
    assert_eq!(object["metadata"]["finalizers"], json!(["example.com/x"]));
}

#[tokio::test]
async fn a_custom_resource_is_made_by_its_body_alone() {
    let hostile = Hostile::start(None).await;
    let embedded =
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"o": embedded}}}});
    let definition = json!({"metadata": {"name": "things.made.test.io"}, "spec": {"group": "made.test.io", "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(hostile.ask("POST", path, JSON, definition.to_string()).await.0, 201);
    // it is served before whoever made it is answered
    let thing = |o: Value| {
        json!({"apiVersion": "made.test.io/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"o": o}})
            .to_string()
    };
    let things = "/apis/made.test.io/v1/things";
    for (o, why) in [
        (json!({"apiVersion": "v1", "kind": null}), "spec.o.kind: Invalid value: null: must be a string"),
        (json!({"apiVersion": 1, "kind": "Pod"}), "spec.o.apiVersion: Invalid value: 1: must be a string"),
    ] {
        let (code, answer) = hostile.ask("POST", things, JSON, thing(o)).await;
        let expected = format!("Thing in version \"v1\" cannot be handled as a Thing: {why}");
        assert_eq!((code, &answer["message"]), (400, &json!(expected)));
    }
    let (code, answer) =
        hostile.ask("POST", &format!("{things}/other"), JSON, thing(json!({"apiVersion": "v1", "kind": "Pod"}))).await;
    assert_eq!((code, &answer["metadata"]["name"]), (201, &json!("a")), "{answer}");
}

#[tokio::test]
async fn what_goes_with_its_collection_goes_nameless() {
    let hostile = Hostile::start(None).await;
    let base = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]});
    let policy = json!({"metadata": {"name": "p"}, "spec": {"validations": [{"expression": "has(request.name)", "message": "no"}],
        "matchConstraints": {"resourceRules": [rule]}}});
    let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    assert_eq!(hostile.ask("POST", base, JSON, policy.to_string()).await.0, 201);
    let bindings = base.replace("policies", "policybindings");
    assert_eq!(hostile.ask("POST", &bindings, JSON, binding.to_string()).await.0, 201);
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(hostile.ask("POST", maps, JSON, json!({"metadata": {"name": "a"}}).to_string()).await.0, 201);
    let (code, answer) = hostile.ask("DELETE", maps, JSON, "").await;
    let why = "configmaps \"Unknown\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no";
    assert_eq!((code, &answer["message"]), (422, &json!(why)));
    assert_eq!(hostile.ask("DELETE", &format!("{maps}/a"), JSON, "").await.0, 200);
}

#[tokio::test]
async fn conditions_of_a_budget_are_whole() {
    let hostile = Hostile::start(None).await;
    let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "a"}, "spec": {"minAvailable": 1}}).to_string();
    assert_eq!(hostile.ask("POST", path, JSON, budget).await.0, 201);
    let whole = json!({"type": "a/B", "status": "True", "reason": "A:b_", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let with = |field: &str, value: Value| {
        let mut condition = whole.clone();
        condition[field] = value;
        vec![condition]
    };
    for (list, fault) in [
        (vec![whole.clone()], None),
        (vec![whole.clone(), whole.clone()], Some("status.conditions[1].type: Duplicate value: \"a/B\"")),
        (with("type", json!("a b")), Some("status.conditions[0].type: Invalid value: \"a b\": name part must consist")),
        (with("status", json!("x")), Some("status.conditions[0].status: Unsupported value: \"x\"")),
        (
            with("observedGeneration", json!(-1)),
            Some("status.conditions[0].observedGeneration: Invalid value: -1: must be"),
        ),
        (with("lastTransitionTime", Value::Null), Some("status.conditions[0].lastTransitionTime: Required value")),
        (with("reason", json!("")), Some("status.conditions[0].reason: Required value")),
        (
            with("reason", json!("1a")),
            Some("status.conditions[0].reason: Invalid value: \"1a\": a condition reason must start"),
        ),
        (with("reason", json!("a,")), Some("status.conditions[0].reason: Invalid value: \"a,\": a condition reason")),
        (
            with("message", json!("m".repeat((32 << 10) + 1))),
            Some("status.conditions[0].message: Too long: may not be"),
        ),
    ] {
        let patch = json!({"status": {"conditions": list}}).to_string();
        let target = format!("{path}/a/status?dryRun=All");
        let (_, answer) = hostile.ask("PATCH", &target, "application/merge-patch+json", patch).await;
        let why = answer["message"].as_str().and_then(|text| text.split_once("is invalid: ")).map(|(_, why)| why);
        assert!(why.is_none() == fault.is_none(), "{answer}");
        assert!(why.unwrap_or_default().starts_with(fault.unwrap_or_default()), "{answer}");
    }
}

#[tokio::test]
async fn templates_are_looked_at_like_pods() {
    let hostile = Hostile::start(None).await;
    let path = "/api/v1/namespaces/default/podtemplates?dryRun=All";
    let template = |meta: Value, spec: Value| {
        let mut spec = spec;
        spec["containers"] = json!([{"name": "m", "image": "i"}]);
        json!({"metadata": {"name": "a"}, "template": {"metadata": meta, "spec": spec}}).to_string()
    };
    let late = json!([{"name": "e", "image": "i", "lifecycle": {}}, {"name": "f", "image": "i", "resources": {}}]);
    let cannot = |field: &str| format!("template.spec.ephemeralContainers[0].{field}");
    for (spec, fields) in [
        (
            json!({"resources": {"claims": [{"name": "c"}]}}),
            vec!["template.spec.resources.claims".to_owned(), "template.spec.resources.claims[0]".to_owned()],
        ),
        (
            json!({"ephemeralContainers": late}),
            vec!["template.spec.ephemeralContainers".to_owned(), cannot("lifecycle")],
        ),
        (
            json!({"securityContext": {"supplementalGroupsPolicy": ""}}),
            vec!["template.spec.securityContext.supplementalGroupsPolicy".to_owned()],
        ),
        (json!({"securityContext": {"supplementalGroupsPolicy": "Strict"}}), vec![]),
    ] {
        let (_, answer) = hostile.ask("POST", path, JSON, template(json!({}), spec)).await;
        let causes = answer["details"]["causes"].as_array().into_iter().flatten();
        let mut found: Vec<&str> = causes.filter_map(|cause| cause["field"].as_str()).collect();
        found.sort_unstable();
        assert_eq!(found, fields, "{answer}");
    }
    // what Go always writes is there
    let owner = json!({"ownerReferences": [{"name": "n", "uid": "u"}]});
    let (_, answer) = hostile.ask("POST", path, JSON, template(owner, json!({}))).await;
    let owners = &answer["template"]["metadata"]["ownerReferences"];
    assert_eq!(*owners, json!([{"apiVersion": "", "kind": "", "name": "n", "uid": "u"}]));
    // unknown fields are told in one order
    let (_, answer) =
        hostile.ask("POST", path.trim_end_matches("?dryRun=All"), JSON, template(json!({}), json!({}))).await;
    assert_eq!(answer["kind"], "PodTemplate");
    let patch = json!({"zz": 1, "aa": 1, "metadata": {"b": 1}, "template": {"aa": 1}}).to_string();
    let target = "/api/v1/namespaces/default/podtemplates/a?fieldValidation=Strict";
    let (_, answer) = hostile.ask("PATCH", target, "application/merge-patch+json", patch).await;
    let told = "strict decoding error: unknown field \"aa\", unknown field \"metadata.b\", unknown field \"template.aa\", unknown field \"zz\"";
    assert!(answer["message"].as_str().unwrap_or_default().ends_with(told), "{answer}");
}

#[tokio::test]
async fn a_deletion_that_waits_in_the_old_way_is_accepted() {
    let hostile = Hostile::start(None).await;
    let path = "/api/v1/namespaces/default/configmaps";
    for (finalizers, options, expected) in [
        (json!(["example.com/x"]), json!({"orphanDependents": false}), 202),
        (json!(["example.com/x"]), json!({"propagationPolicy": "Background"}), 200),
        (json!([]), json!({"orphanDependents": false}), 200),
    ] {
        let map = json!({"metadata": {"name": "a", "finalizers": finalizers}}).to_string();
        assert_eq!(hostile.ask("POST", path, JSON, map).await.0, 201);
        let (code, answer) = hostile.ask("DELETE", &format!("{path}/a"), JSON, options.to_string()).await;
        assert_eq!(code, expected, "{options}: {answer}");
        let patch = json!({"metadata": {"finalizers": null}}).to_string();
        hostile.ask("PATCH", &format!("{path}/a"), "application/merge-patch+json", patch).await;
    }
}

#[tokio::test]
async fn a_scale_is_what_is_applied_to_it() {
    let hostile = Hostile::start(None).await;
    let path = "/apis/apps/v1/namespaces/default/replicasets";
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "m", "image": "i"}]}});
    let set = json!({"metadata": {"name": "a"}, "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    assert_eq!(hostile.ask("POST", path, JSON, set.to_string()).await.0, 201);
    let scale = format!("{path}/a/scale");
    let applied = async |spec: Value| {
        let body = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": spec});
        let target = format!("{scale}?fieldManager=m&force=true");
        hostile.ask("PATCH", &target, "application/apply-patch+yaml", body.to_string()).await
    };
    for (spec, why) in [
        (json!({"replicas": "1"}), ".spec.replicas: expected numeric (int or float), got string"),
        (json!({"odd": 1}), ".spec.odd: field not declared in schema"),
    ] {
        let (code, answer) = applied(spec).await;
        let expected = format!("failed to create typed patch object (/a; autoscaling/v1, Kind=Scale): {why}");
        assert_eq!((code, &answer["message"]), (500, &json!(expected)));
    }
    let managers = async || {
        let (_, set) = hostile.ask("GET", &format!("{path}/a"), JSON, "").await;
        let entries = set["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let of_scale = entries.iter().filter(|entry| entry["subresource"] == "scale");
        of_scale.map(|entry| entry["manager"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    // one that does not say how many leaves them to whom they are
    assert_eq!((applied(json!({})).await.0, managers().await), (200, Vec::new()));
    assert_eq!((applied(json!({"replicas": 3})).await.0, managers().await), (200, vec!["m".to_owned()]));
    // unknown fields are told of patches, too
    let patch = json!({"spec": {"odd": 1}}).to_string();
    let (code, answer) =
        hostile.ask("PATCH", &format!("{scale}?fieldValidation=Strict"), "application/merge-patch+json", patch).await;
    let why = answer["message"].as_str().unwrap_or_default();
    assert!(code == 422 && why.ends_with("strict decoding error: unknown field \"spec.odd\""), "{answer}");
    // as many bits of a number as there is room for
    let patch = json!({"spec": {"replicas": 4_294_967_297_i64}}).to_string();
    let (_, answer) = hostile.ask("PATCH", &scale, "application/strategic-merge-patch+json", patch).await;
    assert_eq!(answer["spec"]["replicas"], 1, "{answer}");
}

#[tokio::test]
async fn an_eviction_that_changes_nothing_writes_nothing() {
    let hostile = Hostile::start(None).await;
    let base = "/api/v1/namespaces/default";
    let account = json!({"metadata": {"name": "sa"}}).to_string();
    assert_eq!(hostile.ask("POST", &format!("{base}/serviceaccounts"), JSON, account).await.0, 201);
    let pod = json!({"metadata": {"name": "p", "finalizers": ["example.com/stays"]},
        "spec": {"serviceAccountName": "sa", "containers": [{"name": "c", "image": "x"}]}});
    assert_eq!(hostile.ask("POST", &format!("{base}/pods"), JSON, pod.to_string()).await.0, 201);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}).to_string();
    let mut versions = Vec::new();
    for _ in 0..2 {
        let (code, answer) = hostile.ask("POST", &format!("{base}/pods/p/eviction"), JSON, eviction.clone()).await;
        assert_eq!(code, 201, "{answer}");
        let (_, pod) = hostile.ask("GET", &format!("{base}/pods/p"), JSON, String::new()).await;
        assert_eq!(pod["status"]["conditions"][0]["type"], "DisruptionTarget", "{pod}");
        versions.push(pod["metadata"]["resourceVersion"].clone());
    }
    assert_eq!(versions[0], versions[1]);
}

/// Each request, its code, and what its answer says somewhere.
#[tokio::test]
async fn writes_are_judged_by_what_upstream_looks_at() {
    let hostile = Hostile::start(None).await;
    let (merge, apply) = ("application/merge-patch+json", "application/apply-patch+yaml");
    let core = "/api/v1/namespaces/default";
    let network = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let revisions = "/apis/apps/v1/namespaces/default/controllerrevisions";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let named = |more: Value| {
        let mut object = json!({"metadata": {"name": "a"}});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object
    };
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let labels = json!({"a": "b"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let spread = json!({"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "ScheduleAnyway"});
    let spread = json!({"containers": template["spec"]["containers"], "topologySpreadConstraints": [spread, spread]});
    let set = json!({"spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}});
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 1.5}});
    let rule = json!({"apiGroups": ["x"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["y"]});
    let policy =
        json!({"spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]}});
    let slice = json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}]});
    let scopes = |scopes: Value| named(json!({"spec": {"hard": {"pods": "1"}, "scopes": scopes}}));
    let revision = |data: Value| {
        named(json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1, "data": data}))
    };
    let cases = [
        (
            "POST",
            network.to_owned(),
            JSON,
            named(json!({"spec": {"policyTypes": ["x"]}})),
            422,
            "supported values: \"Ingress\", \"Egress\"",
        ),
        // one whose endpoints stay is taken with them, whatever its type
        ("POST", slices.to_owned(), JSON, named(slice), 201, "10.1.2.3"),
        (
            "PATCH",
            format!("{slices}/a"),
            merge,
            json!({"addressType": "IPv6"}),
            422,
            "EndpointSlice.discovery.k8s.io \"a\" is invalid: addressType: Invalid value: \"IPv6\": field is immutable",
        ),
        (
            "PATCH",
            format!("{slices}/a"),
            merge,
            json!({"addressType": "Never", "endpoints": [{"addresses": ["x"]}]}),
            422,
            "\"IPv6\", addressType: Invalid value: \"Never\": field is immutable]",
        ),
        // scopes are a set
        ("POST", format!("{core}/resourcequotas"), JSON, scopes(json!(["NotTerminating", "NotTerminating"])), 201, "a"),
        ("PATCH", format!("{core}/resourcequotas/a"), merge, scopes(json!(["NotTerminating"])), 200, "a"),
        ("PATCH", format!("{core}/resourcequotas/a"), merge, scopes(json!(["Terminating"])), 422, "field is immutable"),
        ("POST", policies.to_owned(), JSON, named(policy), 201, "a"),
        (
            "PATCH",
            format!("{policies}/a/status"),
            merge,
            json!({"status": {"conditions": [{"type": "a b", "status": "x"}]}}),
            422,
            "status.conditions[0].status: Unsupported value: \"x\": supported values: \"False\", \"True\", \"Unknown\"",
        ),
        (
            "PATCH",
            format!("{policies}/a/status"),
            merge,
            json!({"status": {"typeChecking": {"expressionWarnings": [{"fieldRef": "", "warning": ""}]}}}),
            422,
            "status.typeChecking.expressionWarnings[0].warning: Required value",
        ),
        ("POST", revisions.to_owned(), JSON, revision(json!({"a": 1})), 201, "a"),
        // what is raw may be anything, and is one value
        ("PATCH", format!("{revisions}/a?fieldManager=m"), apply, revision(json!([1])), 409, ".data"),
        ("PATCH", format!("{revisions}/a?fieldManager=m"), apply, revision(json!("text")), 409, ".data"),
        ("POST", format!("{core}/limitranges"), JSON, json!({"metadata": {}, "spec": {"limits": []}}), 201, "-"),
        (
            "PUT",
            format!("{leases}/a?dryRun=All"),
            JSON,
            json!({"metadata": {"name": "a", "resourceVersion": "77"}, "spec": {}}),
            201,
            "77",
        ),
        (
            "PATCH",
            format!("{policies}/a"),
            merge,
            json!({"spec": {"failurePolicy": "", "matchConstraints": {"matchPolicy": ""}}}),
            422,
            "[spec.failurePolicy: Unsupported value: \"\"",
        ),
        (
            "POST",
            format!("{core}/podtemplates"),
            JSON,
            named(json!({"template": {"spec": spread}})),
            422,
            "template.spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value",
        ),
        (
            "POST",
            format!("{core}/podtemplates"),
            JSON,
            named(json!({"template": {"spec": {"os": {"name": ""}, "containers": template["spec"]["containers"]}}})),
            422,
            "template.spec.os.name: Required value",
        ),
        ("POST", sets.to_owned(), JSON, named(set), 201, "a"),
        // a conflict comes before what cannot be read
        ("PATCH", format!("{sets}/a/scale?fieldManager=m"), apply, named(scale), 409, ".spec.replicas"),
        (
            "PUT",
            "/apis/apps/v1/namespaces/default/deployments/a/scale".to_owned(),
            JSON,
            json!({"apiVersion": "extensions/v1beta1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {}}),
            400,
            "the API version in the data (extensions/v1beta1) does not match the expected API version (autoscaling/v1)",
        ),
    ];
    let mut wrong = Vec::new();
    for (method, path, content, body, code, part) in cases {
        let (told, answer) = hostile.ask(method, &path, content, body.to_string()).await;
        let holds = [
            &answer["message"],
            &answer["metadata"]["name"],
            &answer["metadata"]["resourceVersion"],
            &answer["endpoints"][0]["addresses"][0],
        ];
        let holds = holds.iter().any(|text| text.as_str().is_some_and(|text| text.contains(part)));
        if told != code || !holds {
            wrong.push(format!("{method} {path} {body}: {told} {answer}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
