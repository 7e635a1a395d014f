//! Gangs: which pods start together, and which gang's seats are kept.

use super::tests::{bound, node, pod, run, schedule, told};
use super::*;
use crate::jobset::JobSetController;
use api::jobset::keys;
use reconcile::testing::{Model, merge};

/// A JobSet with its Jobs, and a pod for each, as its controller and the Job controller make them. Replicated jobs: name,
/// replicas, cpus a pod, other members.
fn jobset(name: &str, replicated: &[(&str, i32, &str, Value)]) -> Model {
    let replicated: Vec<Value> = replicated
        .iter()
        .map(|(name, replicas, cpu, more)| {
            let container = json!({"name": "main", "resources": {"requests": {"cpu": cpu}}});
            let mut job = json!({"name": name, "replicas": replicas, "groupName": "default", "template": {"spec": {
                "parallelism": 1, "completions": 1, "completionMode": "Indexed",
                "template": {"spec": {"containers": [container]}}}}});
            merge(&mut job, more);
            job
        })
        .collect();
    let object = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": name, "namespace": "ns"}, "spec": {"replicatedJobs": replicated}});
    let mut model = Model::of([object.clone()]);
    model.run(&JobSetController, &Target::of(&object));
    model
}

/// Makes the pod of each Job that has none; `only`: of those whose name contains this.
fn make_pods(model: &mut Model, only: &str) {
    for job in model.all("Job") {
        let name = format!("{}-0-x", object::meta(&job, "name"));
        if !object::meta(&job, "name").contains(only) || model.one("Pod", &name).is_some() {
            continue;
        }
        let template = &job["spec"]["template"];
        let mut made = pod(
            &name,
            "",
            json!({"metadata": {"labels": template["metadata"]["labels"],
            "annotations": template["metadata"]["annotations"]}}),
        );
        merge(&mut made["spec"], &template["spec"]);
        model.put(made);
    }
}

#[test]
fn a_gang_starts_together_or_not_at_all() {
    let mut model = jobset("train", &[("w", 4, "2", json!({}))]);
    model.put(node("n", "6", json!({})));
    make_pods(&mut model, "-w-0");
    make_pods(&mut model, "-w-1");
    // half of it is there: there is no message yet, it may be a matter of moments
    assert_eq!(run(&mut model), Next::After(SignedDuration::from_secs(INCOMPLETE_SECS)));
    assert_eq!((bound(&model).len(), told(&model, "train-w-0-0-x")), (0, String::new()));
    model.pass(INCOMPLETE_SECS);
    run(&mut model);
    assert_eq!(told(&model, "train-w-0-0-x"), "gang train has 2 of 4 pods; it starts when all are there");
    // all are there: three of four would fit
    make_pods(&mut model, "");
    run(&mut model);
    assert_eq!(bound(&model).len(), 0);
    let why = "0/1 nodes are available: 1 Insufficient cpu (needs 2, 0 free of 6). \
               Gang train needs nodes for 4 pods at once; 3 fit.";
    for index in 0..4 {
        assert_eq!(told(&model, &format!("train-w-{index}-0-x")), why);
    }
    // a single pod behind it is not held up
    model.put(pod("single", "6", json!({})));
    run(&mut model);
    assert_eq!(bound(&model), ["single:n"]);
    model.put(node("m", "8", json!({})));
    run(&mut model);
    assert_eq!(bound(&model).len(), 5);
    model.writes.clear();
    run(&mut model);
    assert_eq!(model.writes, Vec::<String>::new());
}

#[test]
fn what_waits_for_others_is_a_gang_of_its_own() {
    let after = json!({"dependsOn": [{"name": "init", "status": "Complete"}]});
    let mut model = jobset("train", &[("init", 1, "1", json!({})), ("w", 2, "2", after)]);
    model.put(node("n", "4", json!({})));
    make_pods(&mut model, "");
    run(&mut model);
    assert_eq!(bound(&model), ["train-init-0-0-x:n"]);
    let (jobs, jobset) =
        (Gvk::new("batch", "v1", "Job"), Target { gvk: api::jobset::gvk(), key: Key::new("ns", "train") });
    model.change(&jobs, &Key::new("ns", "train-init-0"), |job| {
        job["status"] = json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]});
    });
    model.run(&JobSetController, &jobset);
    make_pods(&mut model, "");
    // its pod still holds one of four cpus
    run(&mut model);
    assert_eq!(bound(&model).len(), 1);
    model.change(&core("Pod"), &Key::new("ns", "train-init-0-0-x"), |pod| pod["status"]["phase"] = "Succeeded".into());
    run(&mut model);
    assert_eq!(bound(&model).len(), 3);
}

#[test]
fn members_made_anew_follow_one_by_one() {
    let mut model = jobset("train", &[("w", 2, "2", json!({}))]);
    model.put(node("n", "4", json!({})));
    make_pods(&mut model, "");
    run(&mut model);
    assert_eq!(bound(&model).len(), 2);
    // one fails and is replaced while the other is gone as well, its replacement still in backoff
    for index in 0..2 {
        let key = Key::new("ns", &format!("train-w-{index}-0-x"));
        model.change(&core("Pod"), &key, |pod| pod["status"]["phase"] = "Failed".into());
    }
    let template = model.one("Pod", "train-w-0-0-x").expect("a pod");
    let mut again = pod("train-w-0-0-y", "2", json!({}));
    again["metadata"]["labels"] = template["metadata"]["labels"].clone();
    model.put(again);
    run(&mut model);
    assert!(bound(&model).contains(&"train-w-0-0-y:n".to_owned()));
}

/// A gang of two on a node that is full with it, of which one member has failed.
fn gang_that_lost_a_member() -> Model {
    let mut model = jobset("train", &[("w", 2, "2", json!({}))]);
    model.put(node("n", "4", json!({})));
    make_pods(&mut model, "");
    run(&mut model);
    assert_eq!(bound(&model).len(), 2);
    let failed = Key::new("ns", "train-w-0-0-x");
    model.change(&core("Pod"), &failed, |pod| pod["status"]["phase"] = "Failed".into());
    model.put(pod("stranger", "2", json!({"spec": {"priority": 1000, "preemptionPolicy": "Never"}})));
    model
}

/// The pod that the Job controller makes in place of another.
fn replacement(model: &Model, of: &str, name: &str) -> Value {
    let mut again = pod(name, "2", json!({}));
    again["metadata"]["labels"] = model.one("Pod", of).expect("a pod")["metadata"]["labels"].clone();
    again
}

#[test]
fn a_running_gang_keeps_the_seats_of_members_that_failed() {
    let mut model = gang_that_lost_a_member();
    // the replacement is not there yet: it waits out its backoff
    run(&mut model);
    assert_eq!(bound(&model), ["train-w-0-0-x:n", "train-w-1-0-x:n"]);
    let waits = "0/1 nodes are available: 1 Insufficient cpu (needs 2, 0 free of 4). preemption: not eligible due to preemptionPolicy=Never.";
    assert_eq!(told(&model, "stranger"), waits);
    model.put(replacement(&model, "train-w-0-0-x", "train-w-0-0-y"));
    run(&mut model);
    assert!(bound(&model).contains(&"train-w-0-0-y:n".to_owned()), "{:?}", bound(&model));
    // nothing is kept for it a second time: another node's worth of room is for all
    model.put(node("m", "2", json!({})));
    run(&mut model);
    assert!(bound(&model).contains(&"stranger:m".to_owned()), "{:?}", bound(&model));
}

#[test]
fn a_replacement_goes_before_strangers_that_came_first() {
    let mut model = gang_that_lost_a_member();
    model.put(replacement(&model, "train-w-0-0-x", "train-w-0-0-y"));
    run(&mut model);
    assert_eq!(bound(&model), ["train-w-0-0-x:n", "train-w-0-0-y:n", "train-w-1-0-x:n"]);
}

#[test]
fn a_replacement_takes_no_seat_of_another_gang() {
    let mut model = gang_that_lost_a_member();
    // the other member's seat is free, too, and its own is on a node that is gone
    let mut other = replacement(&model, "train-w-1-0-x", "other");
    for (label, value) in [(keys::JOBSET_NAME, "other"), (keys::JOB_KEY, "another"), (keys::JOBSET_UID, "x")] {
        other["metadata"]["labels"][label] = value.into();
    }
    let mut running = other.clone();
    running["metadata"]["name"] = "other-that-runs".into();
    running["spec"]["nodeName"] = "gone".into();
    running["status"]["phase"] = "Running".into();
    model.put(other);
    model.put(running);
    run(&mut model);
    assert!(!bound(&model).iter().any(|line| line == "other:n"), "{:?}", bound(&model));
}

#[test]
fn seats_are_kept_for_nobody_who_does_not_come() {
    let jobs = Gvk::new("batch", "v1", "Job");
    let failed_job = json!({"conditions": [{"type": "Failed", "status": "True"}]});
    type End<'a> = &'a dyn Fn(&mut Model);
    let ends: [(&str, End<'_>); 4] = [
        ("its Job failed", &|model| {
            model.change(&jobs, &Key::new("ns", "train-w-0"), |job| job["status"] = failed_job.clone());
        }),
        ("its Job is suspended", &|model| {
            model.change(&jobs, &Key::new("ns", "train-w-0"), |job| job["spec"]["suspend"] = true.into());
        }),
        ("the JobSet starts over", &|model| {
            let key = Key::new("ns", "train");
            model.change(&api::jobset::gvk(), &key, |jobset| jobset["status"]["restarts"] = 1.into());
        }),
        ("nobody of the gang runs", &|model| {
            let key = Key::new("ns", "train-w-1-0-x");
            model.change(&core("Pod"), &key, |pod| pod["status"]["phase"] = "Failed".into());
        }),
    ];
    for (about, end) in ends {
        let mut model = gang_that_lost_a_member();
        end(&mut model);
        run(&mut model);
        assert!(bound(&model).contains(&"stranger:n".to_owned()), "{about}: {:?}", bound(&model));
    }
}

#[test]
fn pods_of_an_attempt_that_is_over_are_left_alone() {
    let mut model = jobset("train", &[("w", 1, "2", json!({}))]);
    model.put(node("n", "4", json!({})));
    make_pods(&mut model, "");
    model.change(&api::jobset::gvk(), &Key::new("ns", "train"), |jobset| jobset["status"]["restarts"] = 1.into());
    run(&mut model);
    assert_eq!(bound(&model), Vec::<String>::new());
}

#[test]
fn leaders_under_exclusive_placement_do_not_wait_for_followers() {
    let exclusive = json!({"template": {"metadata": {"annotations": {keys::EXCLUSIVE_TOPOLOGY: "rack"}}}});
    let mut model = jobset("train", &[("w", 2, "2", exclusive)]);
    model.put(node("n", "4", json!({})));
    make_pods(&mut model, "-w-0");
    run(&mut model);
    assert_eq!(bound(&model), ["train-w-0-0-x:n"]);
}

#[test]
fn pod_groups_say_how_many() {
    for (api_version, member) in [
        ("scheduling.x-k8s.io/v1alpha1", json!({"labels": {"scheduling.x-k8s.io/pod-group": "g"}})),
        ("scheduling.volcano.sh/v1beta1", json!({"annotations": {"scheduling.k8s.io/group-name": "g"}})),
    ] {
        let group = json!({"apiVersion": api_version, "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "ns"}, "spec": {"minMember": 2}});
        let member = |name: &str| pod(name, "2", json!({"metadata": member}));
        let mut model = schedule(&[node("n", "4", json!({})), group, member("a")]);
        assert_eq!(bound(&model).len(), 0);
        model.put(member("b"));
        model.put(member("c"));
        run(&mut model);
        assert_eq!(bound(&model), ["a:n", "b:n"], "{api_version}");
        assert_eq!(told(&model, "c"), "0/1 nodes are available: 1 Insufficient cpu (needs 2, 0 free of 4).");
    }
}

/// A pod of the JobSet `train`, of its first attempt.
fn train_pod(name: &str, more: Value) -> Value {
    let mut made =
        pod(name, "1", json!({"metadata": {"labels": {keys::JOBSET_NAME: "train", keys::RESTART_ATTEMPT: "0"}}}));
    merge(&mut made, &more);
    made
}

#[test]
fn a_run_starts_after_the_pods_of_the_run_before_it() {
    let leaving = |phase: &str, node: &str| json!({"metadata": {"deletionTimestamp": "2026-01-01T00:01:00Z"}, "spec": {"nodeName": node}, "status": {"phase": phase}});
    let later_attempt = json!({"metadata": {"labels": {keys::RESTART_ATTEMPT: "1"}}});
    for more in [json!({}), later_attempt] {
        let mut model = Model::of([
            node("n", "8", json!({})),
            node("away", "8", json!({})),
            train_pod("old-0", leaving("Running", "n")),
            train_pod("old-1", leaving("Running", "away")),
            train_pod("new", more),
        ]);
        run(&mut model);
        assert_eq!(bound(&model), ["old-0:n", "old-1:away"]);
        let why = told(&model, "new");
        assert!(why.starts_with("2 pods of the run before it are still ending"), "{why}");
        // of one the node is away, and of the other the processes have ended
        let mut away = node("away", "8", json!({}));
        merge(&mut away, &json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}));
        model.put(away);
        run(&mut model);
        assert!(!bound(&model).iter().any(|pod| pod.starts_with("new")), "{:?}", bound(&model));
        model.put(train_pod("old-0", leaving("Succeeded", "n")));
        run(&mut model);
        assert!(bound(&model).contains(&"new:n".to_owned()), "{:?}", bound(&model));
    }
}
