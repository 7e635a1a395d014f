//! Runtimes of old installations, and errors that are too long for an event.

use api::object::Target;
use plan::controller::{RuntimeController, TrainJobController};
use plan::runtime::RuntimeKind;
use reconcile::OnError;
use reconcile::testing::Model;
use serde_json::{Value, json};

#[test]
fn the_old_finalizer_goes_and_others_stay() {
    let finalizer = "trainer.kubeflow.org/resource-in-use";
    let cases = [
        (json!([finalizer]), Value::Null),
        (json!(["x.io/keep", finalizer]), json!(["x.io/keep"])),
        (json!(["x.io/keep"]), json!(["x.io/keep"])),
    ];
    for kind in [RuntimeKind::TrainingRuntime, RuntimeKind::ClusterTrainingRuntime] {
        for (before, after) in &cases {
            let runtime = json!({
                "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind.as_str(),
                "metadata": {"name": "rt", "finalizers": before},
            });
            let mut model = Model::of([runtime.clone()]);
            model.run(&RuntimeController::new(kind), &Target::of(&runtime));
            let left = model.one(kind.as_str(), "rt").expect("it stays");
            assert_eq!(&left["metadata"]["finalizers"], after);
        }
    }
}

#[test]
fn long_errors_are_cut() {
    let job = json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": "train", "namespace": "ns", "uid": "job-uid"},
        "spec": {"runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "rt"}},
    });
    let runtime = json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime",
        "metadata": {"name": "rt", "namespace": "ns"}, "spec": {"template": {"spec": {}}},
    });
    let decision = Model::of([job.clone(), runtime])
        .decide(&TrainJobController::default(), &Target::of(&job))
        .expect("the TrainJob is there");
    let OnError::EventThenContinue(event) = &decision.writes.last().expect("a JobSet").on_error else {
        panic!("the status is written whether or not the JobSet is")
    };
    let long = event.about_error(&"x".repeat(2000)).message;
    let short = event.about_error("short").message;
    assert!(long.ends_with("xxx ...") && long.matches('x').count() == 950, "{long}");
    assert_eq!(short, "TrainJob resources reconciliation failed: short");
}

/// Whichever child is refused, the TrainJob's conditions follow its spec, as they do upstream.
#[test]
fn the_suspended_condition_is_written_though_a_child_is_refused() {
    let job = json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": "train", "namespace": "ns", "uid": "job-uid"},
        "spec": {
            "suspend": true,
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "rt"},
        },
    });
    let runtime = json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime",
        "metadata": {"name": "rt", "namespace": "ns"},
        "spec": {"podGroupPolicy": {"coscheduling": {}}, "template": {"spec": {"replicatedJobs": [
            {"name": "node", "template": {"spec": {"template": {"spec": {"containers": [{"name": "node"}]}}}}},
        ]}}},
    });
    let refusals: [fn(&str) -> Option<String>; 3] = [
        |write| write.contains("ConfigMap").then(|| "refused".to_owned()),
        |write| write.contains("PodGroup").then(|| "refused".to_owned()),
        |write| write.contains("JobSet").then(|| "refused".to_owned()),
    ];
    for refuse in refusals {
        let mut model = Model::of([job.clone(), runtime.clone()]);
        model.refuse = Some(refuse);
        let (controller, target) = (TrainJobController::default(), Target::of(&job));
        let decision = model.decide(&controller, &target).expect("the TrainJob is there");
        model.execute(&target, &decision);
        let seen = model.one("TrainJob", "train").expect("it stays");
        assert_eq!(seen["status"]["conditions"][0]["type"], "Suspended", "{:?}", model.writes);
        assert!(model.events.iter().any(|event| event.contains("refused")), "{:?}", model.events);
    }
}
