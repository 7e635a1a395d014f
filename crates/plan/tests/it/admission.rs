//! `testdata/admission.yaml`: what is let in, with which warnings, and what is not, in which words.

use api::object::Target;
use jiff::Timestamp;
use plan::admission::{Denial, default_trainjob, validate_runtime, validate_trainjob};
use plan::plugins::View;
use plan::runtime::RuntimeKind;
use reconcile::World;
use reconcile::testing::Model;
use serde_json::{Value, json};

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

/// Texts without the dumps of objects, whose form is not compared.
fn short(text: &str) -> String {
    const MARK: &str = "Invalid value: ";
    let Some((head, tail)) = text.split_once(MARK) else { return text.to_owned() };
    let mut values = serde_json::Deserializer::from_str(tail).into_iter::<Value>();
    match (tail.starts_with('{') || tail.starts_with("[{")).then(|| values.next()) {
        Some(Some(Ok(_))) => format!("{head}{MARK}<value>{}", short(&tail[values.byte_offset()..])),
        _ => format!("{head}{MARK}{}", short(tail)),
    }
}

fn admit(new: &Value, old: Option<&Value>, model: &Model) -> Result<Vec<String>, Denial> {
    let kind = match new["kind"].as_str() {
        Some("TrainJob") => {
            let mut object = new.clone();
            default_trainjob(&mut object, old, now())?;
            let view = |target: &Target| model.get(&target.gvk, &target.key);
            return validate_trainjob(&object, old, View(&view));
        }
        Some("TrainingRuntime") => RuntimeKind::TrainingRuntime,
        Some("ClusterTrainingRuntime") => RuntimeKind::ClusterTrainingRuntime,
        other => panic!("no case for {other:?}"),
    };
    validate_runtime(kind, new, old)
}

#[test]
fn verdicts_are_as_recorded() {
    let text = include_str!("../../testdata/admission.yaml");
    let cases: Vec<Value> = serde_saphyr::from_str(text).expect("the cases are YAML");
    let mut wrong = Vec::new();
    for case in &cases {
        let model = Model::of(case["others"].as_array().cloned().unwrap_or_default());
        let verdict = admit(&case["new"], case.get("old"), &model);
        let actual = match &verdict {
            Ok(warnings) if warnings.is_empty() => json!({}),
            Ok(warnings) => json!({"warnings": warnings}),
            Err(denial) if denial.warnings().is_empty() => {
                json!({"code": denial.code(), "denied": short(denial.message())})
            }
            Err(denial) => {
                json!({"code": denial.code(), "denied": short(denial.message()), "warnings": denial.warnings()})
            }
        };
        let mut expected = case.clone();
        expected
            .as_object_mut()
            .expect("a mapping")
            .retain(|key, _| ["code", "denied", "warnings"].contains(&key.as_str()));
        if actual != expected {
            wrong.push(format!("{}\n  expected {expected}\n  actual   {actual}", case["about"]));
        }
    }
    assert!(cases.len() > 40 && wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn patches_are_stamped_with_their_last_change() {
    let patch = |manager: &str, label: &str, time: Value| json!({"manager": manager, "time": time, "trainingRuntimeSpec": {"template": {"metadata": {"labels": {"l": label}}}}});
    let (given, stamped, client) = ("2020-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2021-01-01T00:00:00Z");
    let cases = [
        ("created without", None, patch("a.io/x", "1", Value::Null), stamped),
        ("created with", None, patch("a.io/x", "1", json!(client)), client),
        ("unchanged", Some("1"), patch("a.io/x", "1", json!(client)), given),
        ("unchanged, none sent", Some("1"), patch("a.io/x", "1", Value::Null), given),
        ("changed", Some("2"), patch("a.io/x", "1", json!(client)), stamped),
        ("of a new manager", Some("1"), patch("a.io/new", "1", Value::Null), stamped),
        ("of a new manager, with", Some("1"), patch("a.io/new", "1", json!(client)), client),
    ];
    for (about, old, patch_now, expected) in cases {
        let job = |patch: Value| json!({"spec": {"runtimeRef": {"name": "rt"}, "runtimePatches": [patch]}});
        let old = old.map(|label| job(patch("a.io/x", label, json!(given))));
        let mut new = job(patch_now);
        default_trainjob(&mut new, old.as_ref(), now()).expect("it can be decoded");
        assert_eq!(new["spec"]["runtimePatches"][0]["time"], expected, "{about}");
    }
    let mut untouched = json!({"spec": {"runtimeRef": {"name": "rt"}}});
    default_trainjob(&mut untouched, None, now()).expect("it can be decoded");
    assert_eq!(untouched, json!({"spec": {"runtimeRef": {"name": "rt"}}}));
}

/// Upstream writes a TrainJob's quantities anew as soon as it has patches, which then counts as a change of `trainer`.
#[test]
fn quantities_stay_as_they_were_written() {
    let written = json!({"limits": {"cpu": 2, "memory": "1024Mi", "nvidia.com/gpu": "1"}, "requests": {"cpu": "1.5"}});
    let patch = json!({"manager": "kueue.x-k8s.io/manager"});
    let mut job = json!({"spec": {
        "runtimeRef": {"name": "rt"}, "trainer": {"resourcesPerNode": written}, "runtimePatches": [patch],
    }});
    default_trainjob(&mut job, None, now()).expect("it can be decoded");
    assert!(job["spec"]["runtimePatches"][0]["time"].is_string(), "it was looked at");
    assert_eq!(job["spec"]["trainer"]["resourcesPerNode"], written);
}
