//! Callbacks of managed jobs: one at a time, in the order of the events, and none changes its job.

use api::object::{self, Gvk, Key, Target};
use api::sky::{API_VERSION, ManagedJob, ManagedState as State, TaskCallbacks, keys, managed_job_gvk};
use managed::callbacks::CallbackController;
use managed::job::ManagedJobController;
use managed::job_turns::JobTurns;
use reconcile::testing::Model;
use serde_json::{Value, json};

fn pod_gvk() -> Gvk {
    Gvk::new("", "v1", "Pod")
}

fn target() -> Target {
    Target { gvk: managed_job_gvk(), key: Key::new("default", "job-7") }
}

struct Scene {
    model: Model,
}

impl Scene {
    /// Job 7, whose only task has a callback.
    fn new() -> Self {
        let mut model = Model::default();
        let task = json!({
            "name": "train", "secret": "train-env-1",
            "task": {"run": "x", "event_callback": " notify $JOB_STATUS "}, "recovery": {"maxRestartsOnErrors": 100},
        });
        let file = json!({"submitted": "2026-01-01-00-00-00-000000", "tasks": [task]});
        model.put(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tasks", "namespace": "default"},
            "data": {"job": file.to_string()},
        }));
        model.put(json!({
            "apiVersion": API_VERSION, "kind": "ManagedJob",
            "metadata": {"name": "job-7", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"id": 7, "name": "train", "submission": "tasks"},
        }));
        let mut scene = Self { model };
        scene.run();
        scene
    }

    /// All controllers of the job, until nothing changes.
    fn run(&mut self) {
        for _ in 0..8 {
            let all = Target { gvk: managed_job_gvk(), key: Key::default() };
            if let Some(decision) = self.model.decide(&JobTurns::default(), &all) {
                self.model.execute(&all, &decision);
            }
            self.model.run(&ManagedJobController, &target());
            self.model.run(&CallbackController, &target());
        }
    }

    fn job(&self) -> ManagedJob {
        serde_json::from_value((*self.model.one("ManagedJob", "job-7").unwrap()).clone()).unwrap()
    }

    /// What another decision of the job has written.
    fn becomes(&mut self, state: State, status: &str) {
        self.model.change(&managed_job_gvk(), &target().key, |job| {
            let task = &mut job["status"]["tasks"][0];
            let events = task["events"].as_array_mut().expect("events");
            let number = events.len() + 1;
            events.push(json!({"number": number, "status": status, "cluster": "train-7-0-1"}));
            task["state"] = state.as_str().into();
            job["status"]["state"] = state.as_str().into();
        });
        self.run();
    }

    fn cancel(&mut self) {
        self.model.change(&managed_job_gvk(), &target().key, |job| job["spec"]["cancel"] = true.into());
        self.run();
    }

    /// The events whose pods are there, with `+` where they have ended.
    fn pods(&self) -> Vec<String> {
        let pods = self.model.all("Pod");
        let shown = |pod: &std::sync::Arc<Value>| {
            let number = object::meta(pod, "name").strip_prefix("job-7-0-callback-").unwrap_or("?").to_owned();
            number + if object::has_ended(pod) { "+" } else { "" }
        };
        pods.iter().map(shown).collect()
    }

    fn pod(&self, number: u32) -> Value {
        (*self.model.one("Pod", &format!("job-7-0-callback-{number}")).expect("a pod")).clone()
    }

    /// What the node says of the pod of an event.
    fn says(&mut self, number: u32, status: Value) {
        let key = Key::new("default", &format!("job-7-0-callback-{number}"));
        self.model.change(&pod_gvk(), &key, |pod| pod["status"] = status);
        self.run();
    }

    fn exits(&mut self, number: u32, code: i64) {
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let terminated = json!([{"state": {"terminated": {"exitCode": code}}}]);
        self.says(number, json!({"phase": phase, "containerStatuses": terminated}));
    }

    fn callbacks(&self) -> TaskCallbacks {
        self.job().status.callbacks.first().cloned().unwrap_or_default()
    }
}

fn variable(pod: &Value, name: &str) -> String {
    let all = pod["spec"]["containers"][0]["env"].as_array().unwrap();
    let found = all.iter().find(|one| one["name"] == name);
    found.and_then(|one| one["value"].as_str()).unwrap_or_default().to_owned()
}

#[test]
fn one_runs_at_a_time_in_the_order_of_the_events() {
    let mut scene = Scene::new();
    let statuses: Vec<String> = scene.job().status.tasks[0].events.iter().map(|event| event.status.clone()).collect();
    assert_eq!(statuses, ["SUBMITTED", "STARTING"]);
    assert_eq!(scene.pods(), ["1"]);
    let pod = scene.pod(1);
    assert_eq!(pod["spec"]["containers"][0]["command"], json!(["/bin/bash", "-c", "notify $$JOB_STATUS"]));
    assert_eq!(pod["spec"]["containers"][0]["envFrom"], json!([{"secretRef": {"name": "train-env-1"}}]));
    assert_eq!(object::label(&pod, keys::CALLBACK), Some("job-7"));
    let task_id = "sky-managed-2026-01-01-00-00-00-000000_train_7-0";
    for (name, value) in [
        ("SKYPILOT_TASK_ID", task_id),
        ("SKYPILOT_TASK_IDS", task_id),
        ("TASK_ID", "0"),
        ("JOB_ID", "7"),
        ("JOB_STATUS", "SUBMITTED"),
        ("CLUSTER_NAME", "train-7-0-1"),
        ("TASK_NAME", "train"),
        ("EVENT_TYPE", "Spot"),
    ] {
        assert_eq!(variable(&pod, name), value, "{name}");
    }
    scene.exits(1, 0);
    assert_eq!(scene.pods(), ["1+", "2"]);
    scene.exits(2, 0);
    assert_eq!((scene.pods(), scene.callbacks().last_event), (vec!["1+".to_owned(), "2+".to_owned()], 2));
    let silent = scene.model.decide(&CallbackController, &target()).unwrap();
    assert!(silent.is_silent(), "{silent:?}");
}

#[test]
fn one_that_fails_or_hangs_is_reported_and_the_next_runs() {
    let mut scene = Scene::new();
    scene.exits(1, 3);
    let failed = scene.callbacks();
    assert_eq!((failed.last_event, failed.failed), (1, 1));
    assert_eq!(
        failed.last_failure,
        "the callback for SUBMITTED exited with 3; `kubectl logs job-7-0-callback-1` shows its output"
    );
    // the second hangs; the job goes on
    assert_eq!(scene.pod(2)["spec"]["activeDeadlineSeconds"], 300);
    scene.becomes(State::Running, "STARTED");
    assert_eq!((scene.job().status.state, scene.pods()), (State::Running, vec!["1+".to_owned(), "2".to_owned()]));
    scene.says(2, json!({"phase": "Failed", "reason": "DeadlineExceeded"}));
    let ended = "the callback for STARTING ran longer than 300 s and was ended; `kubectl logs job-7-0-callback-2` shows its output";
    assert_eq!((scene.callbacks().failed, scene.callbacks().last_failure.as_str()), (2, ended));
    assert_eq!(scene.pods(), ["1+", "2+", "3"]);
    let failed = scene
        .model
        .events
        .iter()
        .filter(|event| event.starts_with("Warning CallbackFailed: task 0: the callback for ST"));
    assert_eq!(failed.count(), 1, "{:?}", scene.model.events);
}

#[test]
fn a_crash_between_pod_and_status_runs_nothing_twice() {
    let mut scene = Scene::new();
    scene.exits(1, 0);
    // the status of the end was lost, and the pods are there
    scene.model.change(&managed_job_gvk(), &target().key, |job| {
        job["status"]["callbacks"] = json!([]);
    });
    let uid = object::uid(&scene.pod(2)).to_owned();
    scene.run();
    assert_eq!((scene.callbacks().last_event, object::uid(&scene.pod(2))), (1, uid.as_str()));
    // a pod that its user deletes while it runs counts as ended
    scene.model.change(&pod_gvk(), &Key::new("default", "job-7-0-callback-2"), |pod| {
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        pod["metadata"]["finalizers"] = json!(["x"]);
    });
    scene.run();
    assert_eq!((scene.callbacks().last_event, scene.callbacks().failed), (2, 1));
    assert!(scene.callbacks().last_failure.contains("was deleted before it had ended"));
}

#[test]
fn the_latest_pods_are_kept_and_missed_events_are_counted() {
    let mut scene = Scene::new();
    for number in 1..=6 {
        if number > 2 {
            scene.becomes(State::Running, "RECOVERED");
        }
        scene.exits(number, 0);
    }
    assert_eq!(scene.pods(), ["4+", "5+", "6+"]);
    // events 7 to 9 are not listed any more
    scene.model.change(&managed_job_gvk(), &target().key, |job| {
        job["status"]["tasks"][0]["events"] = json!([{"number": 10, "status": "RECOVERING"}]);
    });
    scene.run();
    scene.exits(10, 0);
    assert_eq!((scene.callbacks().last_event, scene.callbacks().skipped), (10, 3));
}

#[test]
fn a_job_that_ends_at_once_still_has_its_callbacks() {
    let mut scene = Scene::new();
    scene.cancel();
    let launches: Vec<_> = scene.model.all("Launch");
    for launch in launches {
        let key = Key::of(&launch);
        let gvk = api::sky::launch_gvk();
        scene.model.change(&gvk, &key, |launch| launch["metadata"]["finalizers"] = json!([]));
    }
    scene.run();
    assert_eq!(scene.job().status.state, State::Cancelled);
    for (number, status) in (1..).zip(["SUBMITTED", "STARTING", "CANCELLING", "CANCELLED"]) {
        assert_eq!(variable(&scene.pod(number), "JOB_STATUS"), status);
        scene.exits(number, 0);
    }
    assert_eq!(scene.callbacks(), TaskCallbacks { last_event: 4, ..TaskCallbacks::default() });
}
