//! Single requests and what kube-apiserver 1.36 was seen to answer: a new rule is a row.

use crate::alike::ask;
use crate::hostile::Hostile;
use serde_json::{Value, json};

pub const BASE: &str = "/api/v1/namespaces/default";
pub const JSON: &str = "application/json";
pub const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub const PATCH: &str = "application/json-patch+json";
pub const APPLY: &str = "application/apply-patch+yaml";

/// What is asked, as what, with what body; the code, and what the answer must be at these places (a text: it has that part; null: it
/// has no such place).
pub type Row = (&'static str, String, &'static str, Value, u16, Vec<(&'static str, Value)>);

pub async fn all_are_answered(hostile: &Hostile, rows: Vec<Row>) {
    for (method, path, media, body, expected, places) in rows {
        let (code, warnings, answer) = ask(hostile, method, &path, media, body.clone()).await;
        let about = format!("{method} {path} {body}: {code} {warnings:?} {answer}");
        assert_eq!(code, expected, "{about}");
        let answer = json!({"warnings": warnings, "body": answer});
        for (place, wanted) in places {
            let there = answer.pointer(place);
            match (wanted.clone(), there) {
                (Value::Null, None | Some(Value::Null)) => {}
                (Value::String(part), Some(Value::String(text))) if text.contains(part.as_str()) => {}
                (wanted, Some(there)) if wanted == *there => {}
                _ => panic!("{about}: {place} is {there:?}, not {wanted}"),
            }
        }
    }
}

pub fn message(part: &str) -> Vec<(&'static str, Value)> {
    vec![("/body/message", part.into())]
}

/// A kind with what the rows need: `/apis/asked.io/v1/namespaces/default/things`.
async fn define(hostile: &Hostile) {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let rules = json!([{"rule": "!has(self.n) || self.n != 7 || has(self.text)"}]);
    let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-validations": rules, "properties": {
        "text": {"type": "string", "default": "x"}, "plain": {"type": "object", "properties": {"x": {"type": "string"}}}, "ratio": {"type": "number", "multipleOf": 0.5}, "n": {"type": "integer"},
        "one": {"type": "number", "enum": [1, 2.5]},
        "parts": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        "inner": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": open}});
    let scale = json!({"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"});
    let definition = json!({"metadata": {"name": "things.asked.io"}, "spec": {"group": "asked.io", "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": schema}, "subresources": {"scale": scale}}]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, _, answer) = ask(hostile, "POST", path, JSON, definition).await;
    assert_eq!(code, 201, "{answer}");
}

#[tokio::test]
async fn of_custom_resources() {
    let hostile = Hostile::start(None).await;
    define(&hostile).await;
    let things = "/apis/asked.io/v1/namespaces/default/things";
    let trial = || format!("{things}?dryRun=All");
    let at = |rest: &str| format!("{things}/{rest}");
    let thing = |name: &str, spec: Value| json!({"apiVersion": "asked.io/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec});
    let other =
        |spec: Value| json!({"apiVersion": "asked.io/v1", "kind": "Other", "metadata": {"name": "a"}, "spec": spec});
    let bare = json!({"apiVersion": "asked.io/v1", "kind": "Thing", "metadata": {"name": "s"}});
    let scale =
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "s"}, "spec": {"replicas": 2}});
    let rows: Vec<Row> = vec![
        // a number is judged as it was sent, and stored as Go writes it
        (
            "POST",
            things.into(),
            JSON,
            thing("a", json!({"ratio": 1000.0})),
            201,
            vec![("/body/spec/ratio", json!(1000))],
        ),
        ("PATCH", at("a"), MERGE, json!({"spec": {"ratio": 5.0}}), 200, vec![("/body/spec/ratio", json!(5))]),
        ("PATCH", at("a"), PATCH, json!([{"op": "add", "path": "/spec/ratio", "value": 3.0}]), 200, vec![]),
        ("POST", trial(), JSON, thing("b", json!({"one": 1000.0})), 422, message("Unsupported value: 1000: ")),
        (
            "PATCH",
            at("a?fieldManager=m&force=true"),
            APPLY,
            thing("a", json!({"ratio": 4.0})),
            422,
            message("must be positive: 0"),
        ),
        // what an apply sends and nothing keeps is a change all the same
        (
            "POST",
            things.into(),
            JSON,
            thing("p", json!({"plain": {"x": "1"}})),
            201,
            vec![("/body/metadata/generation", json!(1))],
        ),
        (
            "PATCH",
            at("p?fieldManager=m&force=true"),
            APPLY,
            thing("p", json!({"plain": {"a": "b"}})),
            200,
            vec![("/body/metadata/generation", json!(2)), ("/body/spec/plain", json!({"x": "1"}))],
        ),
        // one that says that it is of another kind is not read by the schema
        (
            "POST",
            things.into(),
            JSON,
            other(json!({"ratio": "x", "inner": {"apiVersion": "v1", "kind": []}})),
            422,
            message(
                "[kind: Invalid value: \"Other\": must be Thing, spec.inner.kind: Invalid value: []: must be a string]",
            ),
        ),
        (
            "POST",
            things.into(),
            JSON,
            other(json!({"inner": {"apiVersion": "v1", "kind": "K", "metadata": 5}})),
            422,
            message("spec.inner.metadata: Invalid value: 5: json: cannot unmarshal number"),
        ),
        // ... nor filled in by it, but its rules hold
        ("POST", trial(), JSON, thing("b", json!({"n": 7})), 201, vec![("/body/spec/text", "x".into())]),
        (
            "POST",
            things.into(),
            JSON,
            other(json!({"n": 7})),
            422,
            message("[kind: Invalid value: \"Other\": must be Thing, spec: Invalid value: "),
        ),
        (
            "POST",
            format!("{things}?fieldValidation=Strict"),
            JSON,
            other(json!({"odd": 1})),
            422,
            message("must be Thing"),
        ),
        (
            "POST",
            format!("{things}?fieldValidation=Strict"),
            JSON,
            json!({"apiVersion": "asked.io/v1", "kind": "Other", "metadata": {"name": "a", "odd": 1}}),
            400,
            message(
                "Other in version \"v1\" cannot be handled as a Other: strict decoding error: unknown field \"metadata.odd\"",
            ),
        ),
        ("PUT", at("a"), JSON, other(json!({})), 422, message("metadata.resourceVersion: Invalid value: 0")),
        // null is something, for metadata that no property is said of
        (
            "POST",
            trial(),
            JSON,
            thing("b", json!({"inner": {"apiVersion": "v1", "kind": "K", "metadata": null}})),
            201,
            vec![("/body/spec/inner/metadata", json!({}))],
        ),
        (
            "PATCH",
            at("c?fieldManager=m&dryRun=All"),
            APPLY,
            thing("c", json!({"open": 1, "parts": [{"name": "p", "odd": null}]})),
            201,
            vec![("/body/spec/parts", json!([{"name": "p"}]))],
        ),
        // defaults are there as soon as it is read again
        ("POST", things.into(), JSON, bare, 201, vec![]),
        ("PUT", at("s/scale"), JSON, scale, 200, vec![]),
        (
            "GET",
            at("s"),
            JSON,
            json!(null),
            200,
            vec![("/body/spec", json!({"n": 2, "text": "x"})), ("/body/metadata/generation", json!(2))],
        ),
    ];
    all_are_answered(&hostile, rows).await;
}

#[tokio::test]
async fn of_built_in_kinds() {
    let hostile = Hostile::start(None).await;
    let account = json!({"metadata": {"name": "default"}});
    let container = |name: &str, image: &str| json!({"name": name, "image": image});
    let pod = |spec: Value| json!({"metadata": {"name": "p"}, "spec": spec});
    let first = json!({"containers": [container("a", "i")], "initContainers": [container("b", "i")]});
    let unlike = json!([{"op": "add", "path": "/spec", "value": {"containers": [{"name": "a"}]}}]);
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = |meta: Value| json!({"metadata": meta, "spec": {"minAvailable": 1}});
    let (events, core) = ("/apis/events.k8s.io/v1/namespaces/default/events", format!("{BASE}/events"));
    let event = json!({"metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "e.x/c",
        "reportingInstance": "i", "action": "a", "reason": "r", "type": "Normal", "regarding": {"kind": "Pod", "namespace": "default", "name": "p"}});
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "500m"}}});
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}});
    let cron = |terms: Value| {
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
        let spec = json!({"restartPolicy": "Never", "affinity": affinity, "containers": [container("a", "i")]});
        json!({"metadata": {"name": "c"}, "spec": {"schedule": "@daily", "suspend": true, "jobTemplate": {"spec": {"template": {"spec": spec}}}}})
    };
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let policy = |selector: Value| json!({"metadata": {"name": "n"}, "spec": {"podSelector": selector}});
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let rows: Vec<Row> = vec![
        ("POST", format!("{BASE}/serviceaccounts"), JSON, account, 201, vec![]),
        ("POST", format!("{BASE}/pods"), JSON, pod(first), 201, vec![]),
        // images are asked for again list by list, until one has another length
        (
            "PATCH",
            format!("{BASE}/pods/p"),
            PATCH,
            unlike,
            422,
            vec![
                ("/body/details/causes/0/field", "spec.containers[0].image".into()),
                ("/body/details/causes/1/field", "spec.containers[0].image".into()),
                ("/body/details/causes/2/field", "spec.initContainers".into()),
            ],
        ),
        (
            "POST",
            format!("{BASE}/pods?dryRun=All"),
            JSON,
            json!({"metadata": {"name": "spread"}, "spec": {"containers": [container("a", "i")], "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "$(A)", "whenUnsatisfiable": "DoNotSchedule"}]}}),
            201,
            vec![],
        ),
        // nobody looks at the names of budgets, but that they fit in a path
        (
            "POST",
            budgets.into(),
            JSON,
            budget(json!({"generateName": "Bad_"})),
            201,
            vec![("/body/metadata/name", "Bad_".into())],
        ),
        ("POST", budgets.into(), JSON, budget(json!({"name": "a/b"})), 422, message("may not contain '/'")),
        // events have no cache
        ("POST", events.into(), JSON, event, 201, vec![]),
        ("GET", format!("{core}/e?resourceVersion=abc"), JSON, json!(null), 400, message("invalid resource version: ")),
        (
            "GET",
            format!("{BASE}/pods/p?resourceVersion=abc"),
            JSON,
            json!(null),
            500,
            message("resourceVersion: Invalid value"),
        ),
        (
            "GET",
            format!("{core}?resourceVersion=999999"),
            JSON,
            json!(null),
            504,
            vec![("/body/details/retryAfterSeconds", json!(null))],
        ),
        (
            "GET",
            format!("{BASE}/pods?resourceVersion=999999"),
            JSON,
            json!(null),
            504,
            vec![("/body/details/retryAfterSeconds", json!(1))],
        ),
        // what types read by themselves comes in the order of the fields
        (
            "PATCH",
            format!("{events}/e"),
            STRATEGIC,
            json!({"eventTime": "bad", "reportingController": 1.5}),
            422,
            message("cannot parse \"bad\""),
        ),
        // JSON patches
        ("PATCH", format!("{BASE}/pods/p"), PATCH, json!(null), 200, vec![]),
        (
            "PATCH",
            format!("{BASE}/pods/p"),
            PATCH,
            json!([{"op": "replace", "path": "/kind", "value": "Service"}, {"op": "replace", "path": "/spec", "value": {"ports": 1}}]),
            422,
            message("cannot unmarshal number into Go struct field ServiceSpec.spec.ports of type []v1.ServicePort"),
        ),
        (
            "POST",
            format!("{BASE}/configmaps"),
            JSON,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": []}}),
            400,
            message(
                "Pod in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels",
            ),
        ),
        (
            "POST",
            events.into(),
            JSON,
            json!({"kind": "Status"}),
            400,
            message("converting (v1.Status) to (core.Event): unknown conversion"),
        ),
        ("PATCH", format!("{BASE}/endpoints/a"), "text/plain", json!({}), 415, vec![("/warnings/0", json!(null))]),
        (
            "POST",
            format!("{BASE}/pods?dryRun=All"),
            JSON,
            json!({"metadata": {"name": "new"}, "spec": {"restartPolicy": "Never", "containers": [
                {"name": "a", "image": "i", "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "Odd"}]}]}}),
            422,
            vec![("/body/details/causes/1/message", "must be 'NotRequired' when pod".into())],
        ),
        // what belongs to features that are not turned on
        (
            "POST",
            format!("{BASE}/pods?dryRun=All"),
            JSON,
            json!({"metadata": {"name": "new"}, "spec": {"schedulingGroup": {"podGroupName": "x"},
                "containers": [{"name": "a", "image": "i", "lifecycle": {"stopSignal": "SIGTERM"}}]}}),
            201,
            vec![("/body/spec/schedulingGroup", json!(null)), ("/body/spec/containers/0/lifecycle", json!(null))],
        ),
        (
            "PATCH",
            format!("{BASE}/pods/p/status"),
            MERGE,
            json!({"status": {"containerStatuses": [{"name": "a", "allocatedResourcesStatus": [{"name": "gpu", "resources": [{"resourceID": "0"}]}]}]}}),
            422,
            vec![
                ("/body/details/causes/0/message", "must match one of the container's resource requests".into()),
                ("/body/details/causes/1/message", "Unsupported value: \"\"".into()),
            ],
        ),
        // paths with empty parts
        ("GET", format!("{BASE}/pods//log"), JSON, json!(null), 400, message("name must be provided")),
        ("GET", "/api/v1/namespaces//pods/p".into(), JSON, json!(null), 400, message("Namespace parameter required.")),
        ("GET", "/api/v1/namespaces//pods".into(), JSON, json!(null), 200, vec![]),
        ("GET", "/apis//apps/v1".into(), JSON, json!(null), 404, vec![]),
        (
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/view".into(),
            JSON,
            json!(null),
            200,
            vec![("/body/metadata/annotations", json!({"rbac.authorization.kubernetes.io/autoupdate": "true"}))],
        ),
        // an empty map changes what is owned as a whole, although nobody writes it
        (
            "POST",
            "/apis/batch/v1/namespaces/default/cronjobs?fieldManager=maker".into(),
            JSON,
            cron(json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]})),
            201,
            vec![],
        ),
        (
            "PUT",
            "/apis/batch/v1/namespaces/default/cronjobs/c?fieldManager=other".into(),
            JSON,
            cron(
                json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}], "matchFields": []}]}),
            ),
            200,
            vec![("/body/metadata/managedFields/1/manager", "other".into())],
        ),
        // but not where only one part of it is empty
        ("POST", format!("{policies}?fieldManager=maker"), JSON, policy(json!({})), 201, vec![]),
        (
            "PUT",
            format!("{policies}/n?fieldManager=other"),
            JSON,
            policy(json!({"matchLabels": {}})),
            200,
            vec![("/body/metadata/managedFields/1", json!(null)), ("/body/metadata/generation", json!(2))],
        ),
        (
            "PUT",
            format!("{policies}/n?fieldManager=other"),
            JSON,
            policy(json!({})),
            200,
            vec![("/body/metadata/generation", json!(2))],
        ),
        (
            "POST",
            format!("{BASE}/replicationcontrollers"),
            JSON,
            json!({"metadata": {"name": "r"}, "spec": {"selector": {"a": "b"}}}),
            422,
            vec![("/body/message", "\"r\" is invalid: spec.template: Required value".into())],
        ),
        // an empty text is a label
        (
            "POST",
            "/apis/batch/v1/namespaces/default/jobs".into(),
            JSON,
            json!({"metadata": {"name": "j"}, "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never", "containers": [container("a", "i")]}}}}),
            201,
            vec![],
        ),
        (
            "PATCH",
            "/apis/batch/v1/namespaces/default/jobs/j".into(),
            MERGE,
            json!({"spec": {"template": {"metadata": {"labels": {"c": ""}}}}}),
            422,
            message("field is immutable"),
        ),
        // claims
        (
            "POST",
            format!("{BASE}/persistentvolumeclaims?dryRun=All"),
            JSON,
            json!({"metadata": {"name": "c"}, "spec": claim}),
            201,
            vec![(
                "/warnings/0",
                "spec.resources.requests[storage]: fractional byte value \\\"500m\\\" is invalid".into(),
            )],
        ),
        ("POST", format!("{BASE}/resourcequotas"), JSON, quota, 201, vec![]),
        (
            "PATCH",
            format!("{BASE}/resourcequotas/q/status"),
            MERGE,
            json!({"status": {"used": {"main": "1"}}}),
            422,
            message("status.used[main]: Invalid value: \"main\": must be a standard resource for quota"),
        ),
        (
            "POST",
            ingresses.into(),
            JSON,
            json!({"metadata": {"name": "i"}, "spec": {"rules": []}}),
            422,
            message("spec: Invalid value: []: either"),
        ),
        (
            "POST",
            ingresses.into(),
            JSON,
            json!({"metadata": {"name": "i"}, "spec": {}}),
            422,
            message("spec: Invalid value: null: either"),
        ),
    ];
    all_are_answered(&hostile, rows).await;
    let (_, _, answer) = {
        let (code, body) = hostile.ask("PATCH", &format!("{BASE}/pods/p?fieldValidation=Ignore"), PATCH, "x").await;
        (code, (), body)
    };
    assert_eq!(answer["message"], "invalid character 'x' looking for beginning of value", "{answer}");
}

#[tokio::test]
async fn of_definitions() {
    let hostile = Hostile::start(None).await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
    let definition = |spec: Value| {
        json!({"metadata": {"name": "things.x.io"}, "spec": {"group": "x.io", "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
    };
    let once = json!({"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]});
    let open = json!({"properties": {"once": once}, "x-kubernetes-preserve-unknown-fields": true});
    let mut untyped = open.clone();
    untyped["x-kubernetes-validations"] = json!([{"rule": "true"}]);
    let odd = json!({"type": "object", "properties": {"odd": {"type": "what"}}, "x-kubernetes-validations": [{"rule": "true", "fieldPath": ".none"}]});
    let mut bare = definition(json!({}));
    let second = json!({"name": "v2", "served": true, "storage": false, "selectableFields": [{"jsonPath": ".spec.a"}]});
    bare["spec"]["versions"].as_array_mut().expect("versions").push(second);
    let mut converted = definition(json!({"type": "object"}));
    converted["spec"]["preserveUnknownFields"] = true.into();
    converted["spec"]["conversion"] = json!({"strategy": "Webhook"});
    let rows: Vec<Row> = vec![
        (
            "POST",
            path.into(),
            JSON,
            bare,
            422,
            message("spec.versions[1].selectableFields: Invalid value: \"\": may only be set when `version.schema"),
        ),
        (
            "POST",
            path.into(),
            JSON,
            converted,
            422,
            message(
                "spec.conversion.strategy: Invalid value: \"Webhook\": must be None if spec.preserveUnknownFields is true",
            ),
        ),
        ("POST", path.into(), JSON, definition(open), 201, vec![]),
        (
            "POST",
            path.into(),
            JSON,
            definition(untyped),
            422,
            message("properties[spec].properties[once].x-kubernetes-validations: Internal error"),
        ),
        (
            "POST",
            path.into(),
            JSON,
            definition(odd),
            422,
            message("fieldPath: Invalid value: \".none\": must be a valid path"),
        ),
    ];
    all_are_answered(&hostile, rows).await;
}
