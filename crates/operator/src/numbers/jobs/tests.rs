//! Jobs as values, and the text that a scrape gets.

use super::*;
use api::metrics::OPERATOR;
use serde_json::json;

fn train(status: Value) -> Value {
    json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "status": status,
        "metadata": {"name": "a", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {KUEUE_QUEUE: "team"}}})
}

fn row<'a>(kind: &'a str, key: &'a Key, facts: &'a Facts) -> Row<'a> {
    Row { kind, key, facts, gpus: facts.gpus, restarts: facts.restarts }
}

#[test]
fn all_kinds_share_the_words_of_states() {
    let holds = |kind: &str| json!([{"type": kind, "status": "True", "reason": "Because"}]);
    let cases = [
        (trainjob_gvk(), json!({}), "Pending", ""),
        (trainjob_gvk(), json!({"jobsStatus": [{"active": 2}]}), "Pending", PODS_WAIT),
        (trainjob_gvk(), json!({"jobsStatus": [{"active": 2, "ready": 1}]}), "Running", ""),
        (trainjob_gvk(), json!({"conditions": holds("Failed")}), "Failed", "Because"),
        (api::mpi::gvk(), json!({"conditions": holds("Created")}), "Pending", PODS_WAIT),
        (api::mpi::gvk(), json!({"conditions": holds("Running")}), "Running", "Because"),
        (api::mpi::gvk(), json!({"conditions": holds("Succeeded")}), "Complete", "Because"),
        // an evicted worker: the job may go on
        (api::mpi::gvk(), json!({"conditions": holds("Failed")}), "Pending", ""),
        (jobset::gvk(), json!({"conditions": holds("Completed")}), "Complete", "Because"),
        (jobset::gvk(), json!({"conditions": holds("Suspended")}), "Suspended", "Because"),
        (jobset::gvk(), json!({"replicatedJobsStatus": [{"ready": 1}]}), "Running", ""),
        (optimizationjob_gvk(), json!({"conditions": holds("Created")}), "Running", ""),
        (optimizationjob_gvk(), json!({"conditions": holds("Failed")}), "Failed", "Because"),
        (sky::managed_job_gvk(), json!({"state": "RECOVERING"}), "RECOVERING", ""),
        (sky::managed_job_gvk(), json!({"state": "made up"}), "PENDING", ""),
    ];
    for (gvk, status, state, reason) in cases {
        let standing = Standing::of(&gvk, &json!({"status": status}));
        assert_eq!((standing.state, standing.reason.as_str()), (state, reason), "{} {status}", gvk.kind);
    }
    let long = json!({"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "x".repeat(5000)}]}});
    assert_eq!(Standing::of(&trainjob_gvk(), &long).reason.len(), REASON_MAX);
}

#[test]
fn gpus_are_those_that_are_asked_for_and_those_that_run() {
    let pod = json!({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}});
    let job = |suspended: bool| {
        let condition = if suspended { "Suspended" } else { "Running" };
        json!({"spec": {"mpiReplicaSpecs": {"Launcher": {"replicas": 1, "template": {}}, "Worker": {"replicas": 3, "template": pod}}},
            "status": {"conditions": [{"type": condition, "status": "True"}]}})
    };
    let (running, suspended) = (Facts::of(&api::mpi::gvk(), &job(false)), Facts::of(&api::mpi::gvk(), &job(true)));
    let trainer = json!({"numNodes": 4, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}});
    let pending = Facts::of(&trainjob_gvk(), &json!({"spec": {"trainer": trainer}}));
    let key = Key::new("ns", "a");
    let rows = [row("MPIJob", &key, &running), row("MPIJob", &key, &suspended), row("TrainJob", &key, &pending)];
    let registry = Registry::default();
    write(&rows, &registry, Timestamp::UNIX_EPOCH);
    let text = registry.render();
    for line in [
        "trainyard_gpus_requested{kind=\"MPIJob\"} 6",
        "trainyard_gpus_held{kind=\"MPIJob\"} 6",
        "trainyard_gpus_requested{kind=\"TrainJob\"} 32",
        "trainyard_gpus_held{kind=\"TrainJob\"} 0",
        "trainyard_job_gpus{kind=\"TrainJob\",name=\"a\",namespace=\"ns\"} 32",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_job_has_series_until_an_hour_after_its_end_and_ten_thousand_have() {
    let end: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
    let done = json!({"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": end.to_string()}]});
    let done = Facts::of(&trainjob_gvk(), &train(done));
    let progress = json!({"jobsStatus": [{"ready": 1}], "trainerStatus": {"progressPercentage": 25}});
    let running = Facts { restarts: 2, ..Facts::of(&trainjob_gvk(), &train(progress)) };
    let keys: Vec<Key> = (0..INFO_MAX).map(|number| Key::new("ns", &format!("job-{number:05}"))).collect();
    let ended = Key::new("ns", "ended");
    let text = |rows: &[Row<'_>], now: Timestamp| {
        let registry = Registry::default();
        write(rows, &registry, now);
        registry.render()
    };
    let few = [row("TrainJob", &keys[0], &running), row("TrainJob", &ended, &done)];
    let soon = text(&few, end);
    let info = "trainyard_job_info{kind=\"TrainJob\",name=\"ended\",namespace=\"ns\",queue=\"team\",reason=\"\",state=\"Complete\"} 1";
    assert!(soon.contains(info), "{soon}");
    assert!(
        soon.contains("trainyard_job_progress_ratio{kind=\"TrainJob\",name=\"job-00000\",namespace=\"ns\"} 0.25"),
        "{soon}"
    );
    assert!(soon.contains("trainyard_job_restarts{kind=\"TrainJob\",name=\"job-00000\",namespace=\"ns\"} 2"), "{soon}");
    assert!(!text(&few, end + INFO_KEPT).contains(info));
    let mut many: Vec<Row<'_>> = vec![row("TrainJob", &ended, &done)];
    many.extend(keys.iter().map(|key| row("TrainJob", key, &running)));
    let many = text(&many, end);
    // unfinished jobs go first
    assert!(!many.contains(info) && many.contains("job-09999"));
    assert_eq!(many.lines().filter(|line| line.starts_with("trainyard_job_info{")).count(), INFO_MAX);
    assert!(many.contains("trainyard_job_info_left_out 1"), "one is left out");
}

#[test]
fn waits_starts_restarts_and_ends_are_seen_once() {
    let registry = Arc::new(Registry::default());
    let witness = witness(registry.clone(), Arc::default());
    let tell = |gvk: &Gvk, states: &[Value]| {
        witness(gvk, &|| None, &states[0]);
        for pair in states.windows(2) {
            witness(gvk, &|| Some(Arc::new(pair[0].clone())), &pair[1]);
        }
    };
    let suspended = train(json!({"conditions": [{"type": "Suspended", "status": "True"}]}));
    let running = train(json!({"jobsStatus": [{"ready": 1}]}));
    let done = train(json!({"conditions": [{"type": "Complete", "status": "True"}]}));
    tell(&trainjob_gvk(), &[suspended, train(json!({})), running.clone(), running, done.clone(), done]);
    let owner = json!([{"kind": "TrainJob", "controller": true}]);
    let jobset = |restarts: i64| {
        json!({"metadata": {"uid": "s", "ownerReferences": owner, "creationTimestamp": "2026-01-02T03:04:05Z"},
            "status": {"restarts": restarts, "replicatedJobsStatus": [{"ready": 1}]}})
    };
    tell(&jobset::gvk(), &[jobset(0), jobset(0), jobset(2), jobset(2)]);
    let pod = |node: Value, index: &str| {
        let labels = json!({LABEL_JOB_ROLE: ROLE_WORKER, LABEL_REPLICA_INDEX: index});
        json!({"metadata": {"uid": index, "labels": labels, "creationTimestamp": "2026-01-02T03:04:05Z"}, "spec": {"nodeName": node}})
    };
    for index in ["0", "1"] {
        tell(&pod_gvk(), &[pod(Value::Null, index), pod(json!("n"), index), pod(json!("n"), index)]);
    }
    let text = registry.render();
    for line in [
        "trainyard_job_queue_seconds_count{kind=\"TrainJob\"} 1",
        "trainyard_job_queue_seconds_count{kind=\"MPIJob\"} 1",
        "trainyard_job_start_seconds_count{kind=\"TrainJob\"} 1",
        "trainyard_job_end_seconds_count{kind=\"TrainJob\",state=\"Complete\"} 1",
        "trainyard_restarts_total{kind=\"TrainJob\"} 2",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    let known = |line: &str| OPERATOR.iter().any(|metric| line.starts_with(metric.name));
    assert!(text.lines().filter(|line| !line.starts_with('#')).all(known), "{text}");
}
