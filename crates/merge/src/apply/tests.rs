//! Applies and updates as data, and properties that hold for all of them.

use super::configuration::LAST_APPLIED;
use super::*;
use crate::schema::Schema;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;

const NOW: &str = "2026-01-02T03:04:05Z";

fn now() -> Timestamp {
    NOW.parse().expect("a time")
}

fn config_map() -> Schema {
    (*builtin::schema("io.k8s.api.core.v1.ConfigMap")).clone()
}

fn writer<'a>(manager: &'a str, ignored: &'a Ignored) -> Writer<'a> {
    Writer { manager, api_version: "v1", kind: "ConfigMap", subresource: "", ignored }
}

fn data(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

fn apply_as(live: Option<&Value>, manager: &str, body: &Value, force: bool) -> Result<Value, ApplyError> {
    let mut out = apply(live, body, &writer(manager, &Ignored::Nothing), force, &config_map(), now())?;
    // As the server would.
    out["metadata"]["uid"] = "u".into();
    Ok(out)
}

/// `(manager, operation, fields, timed)` of each entry.
fn entries(object: &Value) -> Vec<(String, String, Value, bool)> {
    let list = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    list.iter()
        .map(|e| {
            let text = |name: &str| e[name].as_str().unwrap_or_default().to_owned();
            (text("manager"), text("operation"), e["fieldsV1"].clone(), e["time"] == json!(NOW))
        })
        .collect()
}

fn entry(manager: &str, operation: &str, fields: Value, timed: bool) -> (String, String, Value, bool) {
    (manager.to_owned(), operation.to_owned(), fields, timed)
}

#[test]
fn values_are_shared_and_fought_over() {
    let one = apply_as(None, "one", &data(json!({"k": "1", "l": "1"})), false).expect("creates");
    let two = apply_as(Some(&one), "two", &data(json!({"k": "1"})), false).expect("shares");
    assert_eq!(
        entries(&two),
        [
            // Nothing changed when the second manager came: it has no time.
            entry("two", "Apply", json!({"f:data": {"f:k": {}}}), false),
            entry("one", "Apply", json!({"f:data": {"f:k": {}, "f:l": {}}}), true),
        ]
    );
    let refused = apply_as(Some(&two), "three", &data(json!({"k": "2", "l": "2"})), false).expect_err("conflicts");
    assert_eq!(
        refused.to_string(),
        "Apply failed with 3 conflicts: conflicts with \"one\":\n- .data.k\n- .data.l\nconflicts with \"two\":\n- .data.k"
    );
    let forced = apply_as(Some(&two), "three", &data(json!({"l": "2"})), true).expect("forces");
    assert_eq!(forced["data"], json!({"k": "1", "l": "2"}));
    assert_eq!(
        entries(&forced),
        [
            entry("two", "Apply", json!({"f:data": {"f:k": {}}}), false),
            entry("one", "Apply", json!({"f:data": {"f:k": {}}}), true),
            entry("three", "Apply", json!({"f:data": {"f:l": {}}}), true),
        ]
    );
    let mut patched = forced.clone();
    patched["data"]["l"] = "3".into();
    track_update(Some(&forced), &mut patched, &writer("four", &Ignored::Nothing), &config_map(), now());
    let refused = apply_as(Some(&patched), "three", &data(json!({"l": "2"})), false).expect_err("conflicts");
    assert_eq!(refused.to_string(), "Apply failed with 1 conflict: conflict with \"four\" using v1: .data.l");
}

#[test]
fn what_is_no_longer_applied_goes() {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"a": "1"}},
        "data": {"k": "1", "l": "1", "m": "1"}});
    let one = apply_as(None, "one", &body, false).expect("creates");
    let two = apply_as(Some(&one), "two", &data(json!({"l": "1"})), false).expect("shares");
    let mut three = two.clone();
    three["data"]["n"] = "1".into();
    track_update(Some(&two), &mut three, &writer("three", &Ignored::Nothing), &config_map(), now());
    // `l` stays with two, `m` and the label go, `n` was never applied.
    let less = apply_as(Some(&three), "one", &data(json!({"k": "1"})), false).expect("applies");
    assert_eq!(less["data"], json!({"k": "1", "l": "1", "n": "1"}));
    assert!(less["metadata"]["labels"].is_null());
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let none = apply_as(Some(&less), "two", &body, false).expect("applies");
    assert_eq!(none["data"], json!({"k": "1", "n": "1"}));
    let last = apply_as(Some(&none), "one", &data(json!({})), false).expect("applies");
    assert_eq!(last["data"], json!({"n": "1"}));
    assert_eq!(
        entries(&last),
        [
            entry("one", "Apply", json!({"f:data": {}}), true),
            entry("three", "Update", json!({"f:data": {"f:n": {}}}), true),
        ]
    );
}

#[test]
fn updates_are_recorded() {
    let (schema, nothing) = (config_map(), Ignored::Nothing);
    let track = |live: Option<&Value>, manager: &str, mut new: Value| {
        track_update(live, &mut new, &writer(manager, &nothing), &schema, now());
        new["metadata"]["uid"] = "u".into();
        new
    };
    let created = track(None, "creator", data(json!({"k": "v"})));
    assert_eq!(entries(&created), [entry("creator", "Update", json!({"f:data": {".": {}, "f:k": {}}}), true)]);
    let mut next = created.clone();
    next["data"] = json!({"k": "x", "l": "w"});
    let put = track(Some(&created), "putter", next);
    assert_eq!(
        entries(&put),
        [
            entry("creator", "Update", json!({"f:data": {}}), true),
            entry("putter", "Update", json!({"f:data": {"f:k": {}, "f:l": {}}}), true),
        ]
    );
    // A removed field leaves every set.
    let mut next = put.clone();
    next["data"] = json!({"k": "x"});
    let removed = track(Some(&put), "remover", next);
    assert_eq!(
        entries(&removed),
        [
            entry("creator", "Update", json!({"f:data": {}}), true),
            entry("putter", "Update", json!({"f:data": {"f:k": {}}}), true),
        ]
    );
    // Set by hand, reset, and not tracked after that.
    let mut next = removed.clone();
    next["metadata"]["managedFields"] = json!([{"manager": "x", "operation": "Update", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}}]);
    let by_hand = track(Some(&removed), "hand", next);
    assert_eq!(entries(&by_hand), [entry("x", "Update", json!({"f:data": {"f:k": {}}}), false)]);
    for reset in [json!([{}]), json!([])] {
        let mut next = by_hand.clone();
        next["metadata"]["managedFields"] = reset;
        let reset = track(Some(&by_hand), "hand", next);
        assert_eq!(reset["metadata"].get("managedFields"), None);
        let mut next = reset.clone();
        next["data"]["o"] = "1".into();
        let late = track(Some(&reset), "late", next);
        assert_eq!(late["metadata"].get("managedFields"), None);
        let refused = apply_as(Some(&late), "one", &data(json!({"o": "2"})), false).expect_err("conflicts");
        assert_eq!(
            refused.to_string(),
            "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.o"
        );
    }
    // What cannot be read does not replace what is there.
    let mut next = by_hand.clone();
    next["metadata"]["managedFields"] = json!([{"manager": "x", "operation": "Guess", "apiVersion": "v1"}]);
    assert_eq!(entries(&track(Some(&by_hand), "hand", next)), entries(&by_hand));
}

#[test]
fn many_updaters_are_merged() {
    let (schema, nothing) = (config_map(), Ignored::Nothing);
    let mut live = data(json!({}));
    track_update(None, &mut live, &writer("m00", &nothing), &schema, now());
    live["metadata"]["uid"] = "u".into();
    for i in 1..15 {
        let mut next = live.clone();
        next["data"][format!("k{i:02}")] = "v".into();
        track_update(Some(&live), &mut next, &writer(&format!("m{i:02}"), &nothing), &schema, now());
        live = next;
    }
    let entries = entries(&live);
    assert_eq!(entries.len(), 10);
    let ancient = entries.iter().find(|e| e.0 == "ancient-changes").expect("a bucket");
    assert!(ancient.2["f:data"].get("f:k01").is_some(), "{ancient:?}");
}

#[test]
fn endpoints_do_not_own_what_they_reset() {
    let schema = Schema::from_openapi(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"a": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"s": {"type": "string"}}}}}))
    .expect("a schema");
    let body = json!({"apiVersion": "g.example/v1", "kind": "W", "metadata": {"name": "w", "labels": {"l": "1"}},
        "spec": {"a": 1}, "status": {"s": "x"}});
    let cases = [
        (Ignored::paths(&["status"]), "", json!({"f:metadata": {"f:labels": {"f:l": {}}}, "f:spec": {"f:a": {}}})),
        (Ignored::paths(&["spec", "metadata"]), "status", json!({"f:status": {"f:s": {}}})),
        (Ignored::all_but(&["status"]), "status", json!({"f:status": {"f:s": {}}})),
    ];
    for (ignored, subresource, expected) in cases {
        let writer = Writer { manager: "m", api_version: "g.example/v1", kind: "W", subresource, ignored: &ignored };
        let object = apply(None, &body, &writer, false, &schema, now()).expect("applies");
        let entry = &object["metadata"]["managedFields"][0];
        assert_eq!(entry["fieldsV1"], expected);
        assert_eq!(entry.get("subresource").and_then(Value::as_str).unwrap_or_default(), subresource);
    }
}

fn widget() -> Schema {
    Schema::from_openapi(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "conds": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
            "items": {"type": "object", "required": ["type"], "properties": {
                "type": {"type": "string"}, "status": {"type": "string"}, "n": {"type": "integer"}}}},
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "proto"],
            "items": {"type": "object", "required": ["port"], "properties": {
                "port": {"type": "integer"}, "proto": {"type": "string", "default": "TCP"}, "name": {"type": "string"}}}},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "args": {"type": "array", "items": {"type": "string"}},
        "sel": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
        "gran": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "ios": {"x-kubernetes-int-or-string": true}
    }}}}))
    .expect("a schema")
}

fn spec(spec: Value) -> Value {
    json!({"apiVersion": "g.example/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

fn apply_widget(live: Option<&Value>, manager: &str, body: &Value, force: bool) -> Result<Value, ApplyError> {
    let ignored = Ignored::Nothing;
    let writer = Writer { manager, api_version: "g.example/v1", kind: "Widget", subresource: "", ignored: &ignored };
    let schema = widget();
    let mut out = apply(live, body, &writer, force, &schema, now())?;
    schema.default(&mut out);
    out["metadata"]["uid"] = "u".into();
    Ok(out)
}

#[test]
fn managers_that_conflict_are_listed_by_their_identities() {
    let entry = |operation: &str, subresource: &str, key: &str| {
        let mut entry = json!({"manager": "one", "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {key: {}}}});
        if !subresource.is_empty() {
            entry["subresource"] = subresource.into();
        }
        entry
    };
    let mut live = data(json!({"a": "1", "b": "1", "c": "1", "d": "1"}));
    live["metadata"]["managedFields"] = json!([
        entry("Update", "", "f:a"),
        entry("Update", "status", "f:b"),
        entry("Apply", "", "f:c"),
        entry("Apply", "status", "f:d")
    ]);
    let refused = apply_as(Some(&live), "two", &data(json!({"a": "2", "b": "2", "c": "2", "d": "2"})), false);
    assert_eq!(
        refused.expect_err("conflicts").to_string(),
        "Apply failed with 4 conflicts: conflicts with \"one\" with subresource \"status\":\n- .data.d\n\
         conflicts with \"one\":\n- .data.c\nconflicts with \"one\" with subresource \"status\" using v1:\n- .data.b\n\
         conflicts with \"one\" using v1:\n- .data.a"
    );
}

#[test]
fn lists_merge_by_identity() {
    let one =
        spec(json!({"conds": [{"type": "A", "status": "1"}], "ports": [{"port": 1}], "tags": ["x"], "args": ["a"]}));
    let one = apply_widget(None, "one", &one, false).expect("creates");
    assert_eq!(
        entries(&one)[0].2,
        json!({"f:spec": {
            "f:args": {}, "f:conds": {"k:{\"type\":\"A\"}": {".": {}, "f:status": {}, "f:type": {}}},
            "f:ports": {"k:{\"port\":1,\"proto\":\"TCP\"}": {".": {}, "f:port": {}}}, "f:tags": {"v:\"x\"": {}}}})
    );
    let two = spec(json!({"conds": [{"type": "B", "status": "1"}, {"type": "A", "n": 2}],
        "ports": [{"port": 1, "proto": "UDP"}, {"port": 1, "name": "tcp"}], "tags": ["y", "x"]}));
    let two = apply_widget(Some(&one), "two", &two, false).expect("applies");
    assert_eq!(
        two["spec"],
        json!({"args": ["a"], "conds": [{"type": "B", "status": "1"}, {"type": "A", "status": "1", "n": 2}],
            "ports": [{"port": 1, "proto": "UDP"}, {"port": 1, "proto": "TCP", "name": "tcp"}], "tags": ["y", "x"]})
    );
    let fight = spec(json!({"conds": [{"type": "A", "status": "2"}], "args": ["b"]}));
    let refused = apply_widget(Some(&two), "two", &fight, false).expect_err("conflicts");
    assert_eq!(
        refused.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .spec.args\n- .spec.conds[type=\"A\"].status"
    );
    let less = apply_widget(Some(&two), "two", &spec(json!({"tags": ["y"]})), false).expect("applies");
    assert_eq!(
        less["spec"],
        json!({"args": ["a"], "conds": [{"type": "A", "status": "1"}], "ports": [{"port": 1, "proto": "TCP"}],
            "tags": ["y", "x"]})
    );
    let last = apply_widget(Some(&less), "one", &spec(json!({"tags": []})), false).expect("applies");
    assert_eq!(last["spec"], json!({"tags": ["y"]}));
    assert_eq!(entries(&last), [entry("two", "Apply", json!({"f:spec": {"f:tags": {"v:\"y\"": {}}}}), true)]);
}

/// A kind with a schema for its alpha version.
struct Alpha(Arc<Schema>);

impl Versions for Alpha {
    fn schema_in(&self, api_version: &str) -> Option<Arc<Schema>> {
        (api_version == "g.example/v1alpha1").then(|| self.0.clone())
    }
}

/// What another manager wrote in a version in which a list is one value stays one value in a version that tells its items apart.
#[test]
fn fields_are_judged_by_the_schema_of_the_version_that_they_were_written_in() {
    let whole = Arc::new(
        Schema::from_openapi(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "tags": {"type": "array", "items": {"type": "string"}}}}}}))
        .expect("a schema"),
    );
    let versions = Alpha(whole.clone());
    let schema = widget();
    let ignored = Ignored::Nothing;
    let apply_in = |live: Option<&Value>, manager: &str, version: &str, spec: Value| {
        let writer = Writer { manager, api_version: version, kind: "Widget", subresource: "", ignored: &ignored };
        let body = json!({"apiVersion": version, "kind": "Widget", "metadata": {"name": "w"}, "spec": spec});
        let schemas = match version {
            "g.example/v1" => Schemas::by_version(&schema, &versions),
            _ => Schemas::from(&whole),
        };
        apply(live, &body, &writer, false, schemas, now())
    };
    let mut old = apply_in(None, "old", "g.example/v1alpha1", json!({"tags": ["x"]})).expect("creates");
    old["metadata"]["uid"] = "u".into();
    assert_eq!(entries(&old)[0].2, json!({"f:spec": {"f:tags": {}}}));
    let refused = apply_in(Some(&old), "new", "g.example/v1", json!({"tags": ["y"]})).expect_err("conflicts");
    assert_eq!(refused.to_string(), "Apply failed with 1 conflict: conflict with \"old\": .spec.tags");
    // in one version the same write takes nothing from anybody
    let one = apply_in(None, "old", "g.example/v1", json!({"tags": ["x"]})).expect("creates");
    apply_in(Some(&one), "new", "g.example/v1", json!({"tags": ["y"]})).expect("adds to the set");

    // what a request does not write is taken from those who wrote it in another version, where the request leaves it out
    for (version, taken) in [("g.example/v1alpha1", true), ("g.example/v1", false)] {
        let mut live = old.clone();
        live["metadata"]["managedFields"][0]["apiVersion"] = version.into();
        let mut new = json!({"apiVersion": "g.example/v1", "kind": "Widget", "metadata": {"name": "w", "labels": {"a": "b"}}, "spec": {}});
        let ignored = Ignored::paths(&["spec"]);
        let writer =
            Writer { manager: "new", api_version: "g.example/v1", kind: "Widget", subresource: "", ignored: &ignored };
        track_update(Some(&live), &mut new, &writer, Schemas::by_version(&schema, &versions), now());
        assert_eq!(entries(&new).iter().all(|entry| entry.0 != "old"), taken, "{version}: {new}");
    }

    old["metadata"]["managedFields"][0]["apiVersion"] = "g.example/v9".into();
    let refused = apply_in(Some(&old), "new", "g.example/v1", json!({"tags": ["x"]})).expect_err("no such version");
    assert!(refused.to_string().contains("invalid group/version: g.example/v9"), "{refused}");
}

#[test]
fn maps_are_granular_or_not() {
    let one = spec(
        json!({"sel": {"a": "1"}, "env": {"A": "1"}, "gran": {"a": 1}, "free": {"x": {"y": 1}, "l": [1]}, "ios": 5}),
    );
    let one = apply_widget(None, "one", &one, false).expect("creates");
    assert_eq!(
        entries(&one)[0].2,
        json!({"f:spec": {"f:env": {"f:A": {}}, "f:free": {"f:l": {}, "f:x": {".": {}, "f:y": {}}}, "f:gran": {"f:a": {}},
            "f:ios": {}, "f:sel": {}}})
    );
    let two = spec(json!({"env": {"B": "2"}, "gran": {"b": 2}, "free": {"x": {"w": 2}}}));
    let two = apply_widget(Some(&one), "two", &two, false).expect("applies");
    assert_eq!(two["spec"]["free"], json!({"x": {"y": 1, "w": 2}, "l": [1]}));
    let refused = apply_widget(Some(&two), "two", &spec(json!({"sel": {"b": "2"}})), false).expect_err("conflicts");
    assert!(refused.to_string().ends_with(": .spec.sel"), "{refused}");
    let forced = apply_widget(Some(&two), "two", &spec(json!({"ios": "50%"})), true).expect("forces");
    let spec_now = json!({"sel": {"a": "1"}, "env": {"A": "1"}, "gran": {"a": 1}, "free": {"x": {"y": 1}, "l": [1]},
        "ios": "50%"});
    assert_eq!(forced["spec"], spec_now);
    let three = apply_widget(Some(&forced), "three", &spec(json!({"gran": null})), false).expect("applies");
    assert_eq!(three["spec"], spec_now, "a null changes nothing");
    assert!(entries(&three).contains(&entry("three", "Apply", json!({"f:spec": {"f:gran": {}}}), false)));
}

#[test]
fn refuses_what_does_not_fit() {
    let cases = [
        (spec(json!({"unknown": 1})), ".spec.unknown: field not declared in schema"),
        (spec(json!({"tags": ["x", "x"]})), ".spec.tags: duplicate entries for key [=\"x\"]"),
        (spec(json!({"conds": [{"type": "A"}, {"type": "A"}]})), ".spec.conds: duplicate entries for key [type=\"A\"]"),
        (
            spec(json!({"ports": [{"port": 1}, {"port": 1, "proto": "TCP"}]})),
            ".spec.ports: duplicate entries for key [port=1,proto=\"TCP\"]",
        ),
        (
            spec(json!({"conds": [{"status": "x"}]})),
            ".spec.conds: element 0: associative list with keys has an element that omits all key fields [\"type\"] (and \
             doesn't have default values for any key fields)",
        ),
        (spec(json!({"env": {"k": 5}})), ".spec.env.k: expected string, got &value.valueUnstructured{Value:5}"),
    ];
    // a schema of numbers and texts names no type: to server-side apply anything fits, and validation says what does not
    let anything = spec(json!({"ios": {"a": ["b"]}}));
    let there = apply_widget(None, "m", &spec(json!({"ios": 1})), false).expect("fits");
    let made = apply_widget(Some(&there), "m", &anything, false).expect("fits");
    assert_eq!(made["spec"]["ios"], json!({"a": ["b"]}));
    let refused = apply_widget(Some(&there), "other", &anything, false).expect_err("conflicts");
    assert!(
        refused.to_string().contains("conflict with \"m\"") && refused.to_string().ends_with(": .spec.ios"),
        "{refused}"
    );
    let pod = json!({"apiVersion": "v1", "kind": "ConfigMap", "spec": {"overhead": {"cpu": {"a": "b"}}}});
    let schema = builtin::schema("io.k8s.api.core.v1.Pod");
    let refused =
        apply(None, &pod, &writer("m", &Ignored::Nothing), false, &*schema, now()).expect_err("a quantity is a scalar");
    assert!(refused.to_string().ends_with(".spec.overhead.cpu: expected any scalar, got &{map[a:b]}"), "{refused}");
    for (body, why) in cases {
        let refused = apply_widget(None, "m", &body, false).expect_err("does not fit");
        let expected = format!("failed to create typed patch object (/w; g.example/v1, Kind=Widget): {why}");
        assert_eq!(refused, ApplyError::Untypable(expected));
    }
    let refused = apply_as(None, "m", &spec(json!({})), false).expect_err("another kind");
    assert_eq!(refused, ApplyError::BadRequest("invalid object type: g.example/v1, Kind=Widget".to_owned()));
    let mut body = data(json!({}));
    body["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    let refused = apply_as(None, "m", &body, false).expect_err("managed fields");
    assert_eq!(refused, ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
}

#[test]
fn kubectl_takes_over_what_its_client_side_apply_set() {
    let last = "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"},\"data\":{\"k\":\"1\",\"gone\":\"1\"}}";
    let mut live = data(json!({"k": "1", "gone": "1"}));
    live["metadata"]["annotations"] = json!({LAST_APPLIED: last});
    let nothing = Ignored::Nothing;
    track_update(None, &mut live, &writer("kubectl-client-side-apply", &nothing), &config_map(), now());
    live["metadata"]["uid"] = "u".into();
    assert!(apply_as(Some(&live), "someone", &data(json!({"k": "3"})), false).is_err());
    let taken = apply_as(Some(&live), "kubectl", &data(json!({"k": "2"})), false).expect("takes over");
    assert_eq!(taken["data"], json!({"k": "2", "gone": "1"}));
    let renewed: Value =
        serde_json::from_str(taken["metadata"]["annotations"][LAST_APPLIED].as_str().expect("text")).expect("JSON");
    assert_eq!(renewed, data(json!({"k": "2"})));
    assert_eq!(entries(&taken)[0], entry("kubectl", "Apply", json!({"f:data": {"f:k": {}}}), true));
}

fn some_spec() -> impl Strategy<Value = Value> {
    let cond = ("[A-C]", prop::option::of("[xy]"), prop::option::of(0..3i64)).prop_map(|(t, status, n)| {
        let mut out = json!({"type": t});
        if let Some(status) = status {
            out["status"] = status.into();
        }
        if let Some(n) = n {
            out["n"] = n.into();
        }
        out
    });
    // An empty associative list is owned by nobody, so it may outlive its applier: lists have elements here.
    let conds = prop::collection::vec(cond, 1..4).prop_map(|list| {
        let mut seen = Vec::new();
        let unique: Vec<Value> = list
            .into_iter()
            .filter(|c| {
                let new = !seen.contains(&c["type"]);
                seen.push(c["type"].clone());
                new
            })
            .collect();
        Value::from(unique)
    });
    let texts = || prop::collection::btree_map("[a-c]", "[xy]", 0..3).prop_map(|m| json!(m));
    let tags = prop::collection::btree_set("[a-d]", 1..4).prop_map(|s| json!(s));
    let free = prop::collection::btree_map("[a-b]", prop::collection::btree_map("[a-b]", 0..2i64, 0..3), 0..3)
        .prop_map(|m| json!(m));
    let maybe = |s: BoxedStrategy<Value>| prop::option::of(s);
    (maybe(conds.boxed()), maybe(texts().boxed()), maybe(texts().boxed()), maybe(tags.boxed()), maybe(free.boxed()))
        .prop_map(|(conds, env, sel, tags, free)| {
            let mut out = Map::new();
            for (name, value) in [("conds", conds), ("env", env), ("sel", sel), ("tags", tags), ("free", free)] {
                if let Some(value) = value {
                    out.insert(name.to_owned(), value);
                }
            }
            spec(Value::Object(out))
        })
}

fn set_of(object: &Value, manager: &str) -> FieldSet {
    let found = entries(object).into_iter().find(|e| e.0 == manager);
    found.and_then(|e| FieldSet::from_json(&e.2)).unwrap_or_default()
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(first in some_spec(), second in some_spec()) {
        let live = apply_widget(None, "one", &first, false).expect("creates");
        let once = apply_widget(Some(&live), "two", &second, true).expect("forces");
        let twice = apply_widget(Some(&once), "two", &second, false).expect("owns all it applies");
        prop_assert_eq!(&once, &twice);
    }

    #[test]
    fn a_set_that_is_not_read_is_none_of_which_a_field_is_touched(first in some_spec(), second in some_spec()) {
        let schema = widget();
        let (a, b) = (typed::field_set(&schema, &first), typed::field_set(&schema, &second));
        let json = b.to_json();
        if !a.may_meet(json.as_object().expect("an object")) {
            prop_assert!(a.intersection(&b).is_empty());
        }
        prop_assert!(b.is_empty() || b.may_meet(json.as_object().expect("an object")));
        prop_assert_eq!(typed::is_outdated_json(&schema, &json), typed::is_outdated(&schema, &b));
    }

    #[test]
    fn force_takes_exactly_what_conflicts(first in some_spec(), second in some_spec()) {
        let live = apply_widget(None, "one", &first, false).expect("creates");
        let before = set_of(&live, "one");
        let forced = apply_widget(Some(&live), "two", &second, true).expect("forces");
        let lost = before.difference(&set_of(&forced, "one"));
        let mut conflicting = FieldSet::default();
        match apply_widget(Some(&live), "two", &second, false) {
            Ok(object) => prop_assert_eq!(&object, &forced),
            Err(ApplyError::Conflicts(list)) => list.iter().for_each(|c| conflicting.insert(&c.path)),
            Err(other) => prop_assert!(false, "{}", other),
        }
        prop_assert_eq!(lost, conflicting);
    }

    #[test]
    fn giving_everything_up_takes_it_away(first in some_spec(), second in some_spec()) {
        let live = apply_widget(None, "one", &first, false).expect("creates");
        let both = apply_widget(Some(&live), "two", &second, true).expect("forces");
        let mut none = spec(json!({}));
        none.as_object_mut().expect("an object").remove("spec");
        let without_two = apply_widget(Some(&both), "two", &none, false).expect("gives up");
        let without_any = apply_widget(Some(&without_two), "one", &none, false).expect("gives up");
        prop_assert!(without_any["spec"].is_null(), "{}", without_any);
        prop_assert!(without_any["metadata"].get("managedFields").is_none());
    }
}
