//! Admission against what upstream was seen to do: `recorded.json` holds every creation in `e2e/golden/jobset` whose answer
//! the webhooks decide, with the spec that came of it or the causes of its refusal (sorted).

use super::{default, validate_create, validate_update};
use serde_json::{Value, json};
use std::sync::Arc;

/// What the CRD's schema fills in, before and after the webhook.
fn schema_defaults(jobset: &mut Value) {
    let fill = |map: &mut Value, member: &str, value: Value| {
        if map.get(member).is_none() {
            map[member] = value;
        }
    };
    let spec = &mut jobset["spec"];
    for replicated in spec["replicatedJobs"].as_array_mut().into_iter().flatten() {
        fill(replicated, "groupName", json!("default"));
        fill(replicated, "replicas", json!(1));
        let containers = replicated.pointer_mut("/template/spec/template/spec/containers");
        for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
            let ports = container.get_mut("ports").and_then(Value::as_array_mut);
            ports.into_iter().flatten().for_each(|port| fill(port, "protocol", json!("TCP")));
        }
    }
    if spec["failurePolicy"].is_object() {
        fill(&mut spec["failurePolicy"], "restartStrategy", json!("Recreate"));
    }
    let spec = spec.as_object_mut().unwrap();
    spec.retain(|_, value| !value.is_null());
}

#[test]
fn creations_are_answered_as_recorded() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("recorded.json")).unwrap();
    assert!(cases.len() > 100);
    for case in cases {
        let about = format!("{} step {}", case["scenario"], case["step"]);
        let mut object = case["object"].clone();
        schema_defaults(&mut object);
        default(&mut object);
        schema_defaults(&mut object);
        if let Some(spec) = case.get("spec") {
            assert_eq!(object["spec"], *spec, "{about}");
        }
        let mut refused: Vec<String> = validate_create(&object, &|_| None)
            .iter()
            .map(|error| {
                let text = error.to_string();
                // the recordings do not show whole objects
                match text.find("Invalid value: [") {
                    Some(at) => format!("{}Invalid value: <value>: {}", &text[..at], error.detail),
                    None => text,
                }
            })
            .collect();
        refused.sort();
        let mut recorded: Vec<&str> = case["refused"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        recorded.sort_unstable();
        assert_eq!(refused, recorded, "{about}");
    }
}

/// As `js-invalid-volume-claims-existing`: the spec must be the same to the last default, and the policy Retain.
#[test]
fn claims_that_exist_are_taken_over_only_as_they_are() {
    let existing = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        "volumeMode": "Filesystem"}});
    for (mode, retention, faults) in [
        (json!(null), "Delete", ["template[0].spec", "retentionPolicy.whenDeleted"].as_slice()),
        (json!(null), "Retain", ["template[0].spec"].as_slice()),
        (json!("Filesystem"), "Delete", ["retentionPolicy.whenDeleted"].as_slice()),
        (json!("Filesystem"), "Retain", [].as_slice()),
    ] {
        let mut template = json!({"metadata": {"name": "a"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1024Mi"}}}});
        if !mode.is_null() {
            template["spec"]["volumeMode"] = mode;
        }
        let mut jobset = json!({"metadata": {"name": "x", "namespace": "n"}, "spec": {
            "volumeClaimPolicies": [{"templates": [template], "retentionPolicy": {"whenDeleted": retention}}],
            "replicatedJobs": [{"name": "w", "template": {"spec": {"template": {"spec": {"containers":
                [{"name": "main", "volumeMounts": [{"name": "a", "mountPath": "/a"}]}]}}}}}]}});
        default(&mut jobset);
        let found = validate_create(&jobset, &|name| (name == "a-x").then(|| Arc::new(existing.clone())));
        let found: Vec<&str> =
            found.iter().map(|e| e.field.as_str().strip_prefix("spec.volumeClaimPolicies[0].").unwrap()).collect();
        assert_eq!(found, faults);
    }
}

#[test]
fn replicated_jobs_change_only_where_a_suspended_jobset_may() {
    let old = json!({"spec": {"suspend": true, "replicatedJobs": [{"name": "w", "template": {"metadata": {}, "spec": {
        "template": {"metadata": {}, "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}}}}]}});
    let pod = "/spec/replicatedJobs/0/template/spec/template";
    let cases: [(&str, Value, bool); 9] = [
        ("/metadata/labels", json!({"a": "b"}), true),
        ("/spec/tolerations", json!([{"key": "gpu"}]), true),
        ("/spec/schedulingGates", json!([{"name": "x/y"}]), true),
        ("/spec/nodeSelector", json!({"a": "b"}), true),
        ("/spec/affinity", json!({"nodeAffinity": {}}), false),
        ("/spec/priorityClassName", json!("high"), false),
        // what means the same
        ("/spec/volumes", json!([]), true),
        ("/spec/hostNetwork", json!(false), true),
        ("/spec/containers", json!([{"name": "main", "resources": {"requests": {"cpu": "1000m"}}}]), true),
    ];
    for (path, value, fine) in cases {
        let (parent, member) = path.rsplit_once('/').unwrap();
        let mut new = old.clone();
        new.pointer_mut(&format!("{pod}{parent}")).unwrap()[member] = value;
        assert_eq!(validate_update(&new, &old).is_empty(), fine, "{path}");
        // running, only what means the same
        let running = |jobset: &Value| {
            let mut jobset = jobset.clone();
            jobset["spec"]["suspend"] = false.into();
            jobset
        };
        let same = matches!(member, "volumes" | "hostNetwork" | "containers");
        assert_eq!(validate_update(&running(&new), &running(&old)).is_empty(), same, "{path}");
    }
    let mut managed = old.clone();
    managed["spec"]["managedBy"] = "jobset.sigs.k8s.io/jobset-controller".into();
    let texts = |new, old| validate_update(new, old).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(&old, &managed), ["spec.managedBy: Invalid value: null: field is immutable"]);
    assert_eq!(
        texts(&managed, &old),
        ["spec.managedBy: Invalid value: \"jobset.sigs.k8s.io/jobset-controller\": field is immutable"]
    );
}
