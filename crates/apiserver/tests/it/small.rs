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
