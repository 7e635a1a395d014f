//! Cases as data: a folder of `testdata` each, `input.yaml` (facts) and `diagnosis.yaml` (what is to be said). `UPDATE=1`
//! writes the latter; read it then as if you had written it.

use diagnose::{Facts, diagnose};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Whether the files are written rather than compared.
#[expect(clippy::disallowed_methods, reason = "a test's switch")]
fn is_update() -> bool {
    std::env::var_os("UPDATE").is_some()
}

fn folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let entries = std::fs::read_dir(root).expect("testdata");
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    folders.sort();
    folders
}

/// Facts as a case has them: `log` of a log stands for its lines.
fn facts(input: &Path) -> Facts {
    let text = std::fs::read_to_string(input).unwrap_or_else(|error| panic!("{}: {error}", input.display()));
    let mut value: Value = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", input.display()));
    for tail in value.get_mut("logs").and_then(Value::as_array_mut).into_iter().flatten() {
        let tail = tail.as_object_mut().expect("a log is a map");
        let rank = tail.remove("rank").unwrap_or(Value::Null);
        if let Some(Value::String(log)) = tail.remove("log") {
            let lines: Vec<Value> = log.lines().map(|text| json!({"rank": rank, "text": text})).collect();
            tail.insert("lines".to_owned(), lines.into());
        }
    }
    serde_json::from_value(value).unwrap_or_else(|error| panic!("{}: {error}", input.display()))
}

#[test]
fn faults_are_named() {
    let update = is_update();
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for folder in folders() {
        let diagnosis = diagnose(&facts(&folder.join("input.yaml")));
        seen.insert(diagnosis.reason);
        let told = serde_saphyr::to_string(&diagnosis).expect("a diagnosis is YAML");
        let file = folder.join("diagnosis.yaml");
        if update {
            std::fs::write(&file, &told).expect("diagnosis.yaml is written");
        } else if std::fs::read_to_string(&file).unwrap_or_default() != told {
            wrong.push(format!("{}:\n{told}", folder.display()));
        }
    }
    assert!(wrong.is_empty(), "differ from diagnosis.yaml (UPDATE=1 rewrites them):\n{}", wrong.join("\n"));
    assert!(seen.len() >= 60, "only {} reasons have a case", seen.len());
}

#[test]
fn what_is_said_can_be_typed() {
    for folder in folders() {
        let diagnosis = diagnose(&facts(&folder.join("input.yaml")));
        let gaps = ["{who}", "{message}", "{job}", "{place}", "\n"];
        assert!(!gaps.iter().any(|gap| diagnosis.why.contains(gap)), "{}: {}", folder.display(), diagnosis.why);
        for remedy in &diagnosis.remedies {
            let Some(command) = &remedy.command else { continue };
            let has_gap = ["<", "…", " NAME", " N ", "{job}", "{"].iter().any(|gap| command.contains(gap));
            assert!(!has_gap, "{}: {command}", folder.display());
            let back = command.contains("trainyard describe") || command.contains("trainyard explain");
            assert!(!back, "{}: {command}", folder.display());
        }
    }
}

/// Any JSON, with the names that the rules look for among the members, and texts that look like what they read.
fn anything() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        Just("metadata"),
        Just("status"),
        Just("spec"),
        Just("name"),
        Just("uid"),
        Just("labels"),
        Just("containerStatuses"),
        Just("state"),
        Just("terminated"),
        Just("exitCode"),
        Just("restartCount"),
        Just("conditions"),
        Just("type"),
        Just("lastState"),
        Just("waiting"),
        Just("reason"),
        Just("message"),
        Just("phase"),
        Just("running"),
        Just("startedAt"),
        Just("jobset.sigs.k8s.io/replicatedjob-name"),
        Just("batch.kubernetes.io/job-completion-index"),
        Just("containers"),
        Just("env"),
        Just("value"),
        Just("resources"),
        Just("requests"),
        Just("allocatable"),
        Just("cpu"),
        Just("finishedAt"),
    ];
    let text = prop_oneof![
        any::<String>(),
        Just("Failed".to_owned()),
        Just("True".to_owned()),
        Just("node".to_owned()),
        Just("9223372036854775807".to_owned()),
        Just("PET_NPROC_PER_NODE".to_owned()),
        Just("2026-01-01T00:00:00Z".to_owned()),
        Just("-9999-01-01T00:00:00Z".to_owned()),
        Just("0/1 nodes are available: 1 Insufficient cpu (needs 8, 4 free of 4).".to_owned()),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.prop_map(Value::from)
    ];
    leaf.prop_recursive(6, 96, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..6).prop_map(|members| Value::Object(
                members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            )),
        ]
    })
}

fn lines() -> impl Strategy<Value = Vec<Value>> {
    let text = prop_oneof![
        any::<String>(),
        Just("Traceback (most recent call last):".to_owned()),
        Just("  File \"é.py\", line 9999999999999999999999, in f".to_owned()),
        Just("[rank9223372036854775807]: ValueError: é".to_owned()),
        Just("[rank".to_owned()),
        Just("loss: nan".to_owned()),
        Just("İ loss".to_owned()),
        Just("\u{1b}[31mİloss=é".to_owned()),
        Just("  exitcode  : -9223372036854775808 (pid: 1)".to_owned()),
        Just("Root Cause (first observed failure):".to_owned()),
        Just("=====".to_owned()),
        Just("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:".to_owned()),
        Just("During handling of the above exception, another exception occurred:".to_owned()),
    ];
    prop::collection::vec(
        (text, any::<Option<i64>>()).prop_map(|(text, rank)| json!({"text": text, "rank": rank})),
        0..12,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_makes_it_panic(job in anything(), jobset in anything(), pod in anything(), other in anything(),
                              event in anything(), node in anything(), lines in lines(), local in any::<bool>()) {
        let value = json!({
            "job": job, "jobset": jobset, "pods": [{"pod": pod}, {"pod": other, "live": false}], "events": [event],
            "nodes": [node], "logs": [{"pod": "", "uid": "", "container": "", "lines": lines}], "home": {"local": local},
        });
        let facts: Facts = serde_json::from_value(value).expect("facts");
        let diagnosis = diagnose(&facts);
        prop_assert!(!diagnosis.why.is_empty());
    }

    /// A failed container with any log: the most used path.
    #[test]
    fn no_log_makes_it_panic(lines in lines(), code in any::<i64>(), restarts in any::<i64>(), index in any::<i64>(), each in any::<i64>()) {
        let pod = json!({
            "metadata": {"name": "p", "labels": {"jobset.sigs.k8s.io/replicatedjob-name": "node",
                "batch.kubernetes.io/job-completion-index": index.to_string()}},
            "spec": {"containers": [{"name": "node", "env": [{"name": "PET_NPROC_PER_NODE", "value": each.to_string()}]}]},
            "status": {"phase": "Failed", "containerStatuses": [{"name": "node", "restartCount": restarts,
                "state": {"terminated": {"exitCode": code}}}]},
        });
        let value = json!({
            "job": {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, "pods": [{"pod": pod}],
            "logs": [{"pod": "p", "container": "node", "attempt": restarts, "lines": lines}],
        });
        let facts: Facts = serde_json::from_value(value).expect("facts");
        prop_assert!(!diagnose(&facts).why.is_empty());
    }
}
