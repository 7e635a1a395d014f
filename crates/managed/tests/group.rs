//! Job groups: the tasks start together, know where the others are, and end together.

use api::object::{self, Key, Target};
use api::sky::{
    API_VERSION, Ground, ManagedJob, ManagedState as State, ManagedTask, keys, launch_gvk, managed_job_gvk,
};
use managed::job::ManagedJobController;
use managed::job_turns::JobTurns;
use managed::jobs::{Room, jobs, turns};
use reconcile::testing::Model;
use serde_json::{Value, json};
use std::sync::Arc;

/// Tasks of job 7: a trainer, and a helper that goes on for ten seconds after it.
const TRAINER: usize = 0;
const HELPER: usize = 1;

struct Scene(Model);

fn key(name: &str) -> Key {
    Key::new("default", name)
}

impl Scene {
    fn new() -> Self {
        let tasks = json!([
            {"name": "trainer", "task": {"run": "x"}},
            {"name": "helper", "task": {"run": "y"}, "auxiliary": 10},
        ]);
        let mut model = Model::default();
        let file = json!({"submitted": "2026-01-01-00-00-00-000000", "tasks": tasks});
        model.put(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tasks", "namespace": "default"},
            "data": {"job": file.to_string()},
        }));
        model.put(json!({
            "apiVersion": API_VERSION, "kind": "ManagedJob",
            "metadata": {"name": "job-7", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"id": 7, "name": "pair", "submission": "tasks", "group": true},
        }));
        let mut scene = Self(model);
        scene.run();
        scene
    }

    fn run(&mut self) {
        let job = Target { gvk: managed_job_gvk(), key: key("job-7") };
        for _ in 0..8 {
            let controller = JobTurns::default();
            let all = Target { gvk: managed_job_gvk(), key: Key::default() };
            if let Some(decision) = self.0.decide(&controller, &all) {
                self.0.execute(&all, &decision);
            }
            self.0.run(&ManagedJobController, &job);
        }
    }

    fn job(&self) -> ManagedJob {
        serde_json::from_value((*self.0.one("ManagedJob", "job-7").unwrap()).clone()).unwrap()
    }

    fn task(&self, index: usize) -> ManagedTask {
        self.job().status.tasks[index].clone()
    }

    fn change_job(&mut self, change: impl Fn(&mut Value)) {
        self.0.change(&managed_job_gvk(), &key("job-7"), change);
        self.run();
    }

    fn set_name(&self, index: usize) -> String {
        format!("{}-1", self.task(index).cluster)
    }

    fn set(&self, index: usize) -> Arc<Value> {
        self.0.one("JobSet", &self.set_name(index)).unwrap()
    }

    fn is_held(&self, index: usize) -> bool {
        object::annotation(&self.set(index), keys::HELD).is_some()
    }

    /// The machines of a task's latest attempt are there, at these addresses, and its job is submitted.
    fn launched(&mut self, index: usize, addresses: &[&str]) {
        let task = self.task(index);
        let launch = self.0.one("Launch", &format!("job-7-{index}-{}", task.attempt)).expect("a launch");
        assert_eq!(launch["spec"]["managed"]["held"], true);
        assert_eq!(launch["spec"]["managed"]["env"]["SKYPILOT_JOBGROUP_NAME"], "pair");
        let cluster = task.cluster.clone();
        let labels = json!({
            keys::CLUSTER: cluster, keys::JOB: "1", keys::STAGE: "run", keys::MANAGED_JOB: "job-7",
            keys::TASK: index.to_string(), keys::ATTEMPT: task.attempt.to_string(),
        });
        let nodes: Vec<Value> = addresses
            .iter()
            .map(|address| json!({"machine": address, "node": address, "address": address, "home": ""}))
            .collect();
        self.0.put(json!({
            "apiVersion": API_VERSION, "kind": "Cluster",
            "metadata": {
                "name": cluster, "namespace": "default", "finalizers": [keys::LEDGER], "labels": labels,
                "ownerReferences": launch["metadata"]["ownerReferences"],
                "annotations": {"sky.trainyard.dev/name": cluster},
            },
            "spec": {"nodes": addresses.len(), "candidates": [{"provider": "ssh", "region": "pool"}]},
            "status": {"phase": "UP", "nodes": nodes},
        }));
        let uid = object::uid(&self.0.one("Cluster", &cluster).unwrap()).to_owned();
        let rank = json!({"name": "head", "template": {"spec": {"template": {"metadata": {"annotations": {}}}}}});
        self.0.put(json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {
                "name": format!("{cluster}-1"), "namespace": "default", "labels": labels, "annotations": {keys::HELD: "true"},
                "ownerReferences": [{"apiVersion": API_VERSION, "kind": "Cluster", "name": cluster, "uid": uid}],
            },
            "spec": {"suspend": true, "replicatedJobs": vec![rank; addresses.len()]},
        }));
        let name = object::meta(&launch, "name").to_owned();
        self.0.change(&launch_gvk(), &key(&name), |object| {
            object["status"] = json!({"phase": "Succeeded", "clusterUid": uid, "job": 1});
        });
        self.run();
    }

    /// The cluster gives the job its machines.
    fn turned(&mut self, index: usize) {
        let name = self.set_name(index);
        self.0.change(&api::jobset::gvk(), &key(&name), |set| {
            assert!(object::annotation(set, keys::HELD).is_none(), "{name} is held");
            set["metadata"]["annotations"][keys::TURN] = "2026-01-01T00:00:00Z".into();
            set["spec"]["suspend"] = false.into();
        });
        self.run();
    }

    fn ends(&mut self, index: usize, condition: &str) {
        let name = self.set_name(index);
        self.0.change(&api::jobset::gvk(), &key(&name), |set| {
            set["status"]["conditions"] = json!([
                {"type": condition, "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"},
            ]);
        });
        self.run();
    }

    fn started() -> Self {
        let mut scene = Self::new();
        scene.launched(TRAINER, &["10.0.0.1", "10.0.0.2"]);
        scene.launched(HELPER, &["10.0.0.3"]);
        scene.turned(TRAINER);
        scene.turned(HELPER);
        scene
    }

    /// The providers and the clusters' controller remove what is deleted.
    fn removed(&mut self, index: usize) {
        let cluster = self.task(index).cluster;
        let target = Target { gvk: api::sky::cluster_gvk(), key: key(&cluster) };
        self.0.change(&target.gvk.clone(), &target.key, |object| object["metadata"]["finalizers"] = json!([]));
        let launch = format!("job-7-{index}-{}", self.task(index).attempt);
        if self.0.one("Launch", &launch).is_some() {
            self.0.change(&launch_gvk(), &key(&launch), |object| object["metadata"]["finalizers"] = json!([]));
        }
        self.run();
    }
}

#[test]
fn all_tasks_are_launched_at_once() {
    let scene = Scene::new();
    assert_eq!(scene.job().status.turn, 2);
    for index in [TRAINER, HELPER] {
        assert_eq!((scene.task(index).state, scene.task(index).attempt), (State::Starting, 1));
        assert!(scene.0.one("Launch", &format!("job-7-{index}-1")).is_some());
    }
}

#[test]
fn tasks_start_together_and_know_the_addresses_of_all() {
    let mut scene = Scene::new();
    scene.launched(TRAINER, &["10.0.0.1", "10.0.0.2"]);
    assert!(scene.is_held(TRAINER), "the helper has no machine yet");
    assert_eq!(scene.task(TRAINER).message, "it is set up; its run starts when task helper is set up, too");
    scene.launched(HELPER, &["10.0.0.3"]);
    for index in [TRAINER, HELPER] {
        assert!(!scene.is_held(index));
        let ranks = scene.set(index)["spec"]["replicatedJobs"].as_array().unwrap().clone();
        for rank in ranks {
            assert_eq!(
                rank["template"]["spec"]["template"]["metadata"]["annotations"][keys::HOSTS],
                "10.0.0.1 trainer-0.pair\n10.0.0.2 trainer-1.pair\n10.0.0.3 helper-0.pair"
            );
        }
        scene.turned(index);
        assert_eq!(scene.task(index).state, State::Running);
    }
    assert_eq!(scene.job().status.state, State::Running);
}

#[test]
fn a_job_that_is_held_gets_no_machines() {
    let mut scene = Scene::new();
    scene.launched(TRAINER, &["10.0.0.1", "10.0.0.2"]);
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let room = |node: &str| Room { node: node.to_owned(), address: String::new(), cpus: 4.0, gpus: 0.0 };
    let rooms = [room("a"), room("b")];
    assert_eq!(turns(&jobs([&*scene.set(TRAINER)]), &rooms, now), Vec::<Value>::new());
    scene.launched(HELPER, &["10.0.0.3"]);
    assert_eq!(turns(&jobs([&*scene.set(TRAINER)]), &rooms, now).len(), 1);
}

#[test]
fn auxiliary_tasks_end_after_the_primary_ones() {
    let mut scene = Scene::started();
    scene.ends(TRAINER, "Completed");
    assert_eq!(scene.task(TRAINER).state, State::Succeeded);
    assert_eq!((scene.task(HELPER).state, scene.job().status.state), (State::Running, State::WindingDown));
    scene.0.pass(11);
    scene.run();
    let helper = scene.task(HELPER);
    assert_eq!((helper.state, helper.attempts[0].ground), (State::Cancelling, Ground::Group));
    assert_eq!(helper.attempts[0].evidence, "all primary tasks of its group have ended");
    scene.removed(HELPER);
    assert_eq!(scene.task(HELPER).state, State::Cancelled);
    assert_eq!(scene.job().status.state, State::Succeeded, "the primary tasks count");
}

#[test]
fn an_auxiliary_task_may_end_first() {
    let mut scene = Scene::started();
    scene.ends(HELPER, "Completed");
    assert_eq!((scene.task(HELPER).state, scene.task(TRAINER).state), (State::Succeeded, State::Running));
    scene.ends(TRAINER, "Completed");
    assert_eq!(scene.job().status.state, State::Succeeded);
}

#[test]
fn a_group_without_a_task_does_not_start() {
    let mut scene = Scene::new();
    scene.launched(TRAINER, &["10.0.0.1"]);
    scene.0.change(&launch_gvk(), &key("job-7-1-1"), |object| {
        object["status"] = json!({"phase": "Failed", "message": "ValueError: no such image"});
    });
    scene.run();
    assert_eq!(scene.task(HELPER).state, State::FailedPrechecks);
    scene.removed(TRAINER);
    let trainer = scene.task(TRAINER);
    assert_eq!((trainer.state, trainer.attempts[0].ground), (State::Cancelled, Ground::Group));
    assert_eq!(trainer.message, "task helper of its group failed before the group started, so this task was cancelled");
    assert!(scene.job().status.state.has_ended());
}

#[test]
fn a_setup_that_fails_is_no_start() {
    // the trainer is ready
    let mut scene = Scene::new();
    scene.launched(TRAINER, &["10.0.0.1"]);
    let launch = scene.0.one("Launch", "job-7-1-1").unwrap();
    let cluster = scene.task(HELPER).cluster;
    scene.0.put(json!({
        "apiVersion": API_VERSION, "kind": "Cluster",
        "metadata": {
            "name": cluster, "namespace": "default", "finalizers": [keys::LEDGER],
            "labels": {keys::MANAGED_JOB: "job-7", keys::TASK: "1"},
            "ownerReferences": launch["metadata"]["ownerReferences"],
            "annotations": {"sky.trainyard.dev/name": cluster},
        },
        "spec": {"nodes": 1, "candidates": [{"provider": "ssh", "region": "pool"}]},
        "status": {"phase": "UP", "nodes": [{"machine": "m", "node": "n", "address": "10.0.0.3", "home": ""}]},
    }));
    let uid = object::uid(&scene.0.one("Cluster", &cluster).unwrap()).to_owned();
    for (stage, end) in [("run", ""), ("setup", "Failed")] {
        scene.0.put(json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {
                "name": format!("{cluster}-1-{stage}"), "namespace": "default",
                "labels": {
                    keys::CLUSTER: cluster, keys::JOB: "1", keys::STAGE: stage, keys::MANAGED_JOB: "job-7",
                    keys::TASK: "1", keys::ATTEMPT: "1",
                },
                "annotations": {keys::HELD: "true", "sky.trainyard.dev/has-setup": "true"},
                "ownerReferences": [{"apiVersion": API_VERSION, "kind": "Cluster", "name": cluster, "uid": uid}],
            },
            "spec": {"suspend": true, "replicatedJobs": [{"name": "head"}]},
            "status": {"conditions": [{"type": end, "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}]},
        }));
    }
    scene.0.change(&launch_gvk(), &key("job-7-1-1"), |object| {
        object["status"] = json!({"phase": "Succeeded", "clusterUid": uid, "job": 1});
    });
    scene.run();
    scene.0.pass(60);
    scene.run();
    assert_eq!((scene.task(HELPER).state, scene.task(HELPER).started_at.as_str()), (State::FailedSetup, ""));
    assert!(scene.is_held(TRAINER));
    assert_eq!(scene.task(TRAINER).attempts[0].ground, Ground::Group);
}

#[test]
fn a_task_that_is_started_again_is_found_by_the_others() {
    let mut scene = Scene::started();
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "trainer-pod", "namespace": "default", "annotations": {keys::HOSTS: "10.0.0.3 helper-0.pair"},
            "labels": {keys::CLUSTER: scene.task(TRAINER).cluster}},
        "status": {"phase": "Running"},
    });
    let set = scene.set(TRAINER);
    scene.0.put(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "trainer-job", "namespace": "default", "ownerReferences": [
            {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": object::meta(&set, "name"), "uid": object::uid(&set)},
        ]},
    }));
    let uid = object::uid(&scene.0.one("Job", "trainer-job").unwrap()).to_owned();
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "trainer-job", "uid": uid}]);
    scene.0.put(pod);
    // a user removes the cluster of the helper
    let cluster = scene.task(HELPER).cluster;
    scene.0.delete(
        &Target { gvk: api::sky::cluster_gvk(), key: key(&cluster) },
        reconcile::Propagation::Background,
        None,
    );
    scene.run();
    scene.removed(HELPER);
    assert_eq!((scene.task(HELPER).state, scene.task(HELPER).attempt), (State::Recovering, 2));
    scene.launched(HELPER, &["10.0.0.9"]);
    assert!(!scene.is_held(HELPER), "it does not wait: the group has started");
    let pod = scene.0.one("Pod", "trainer-pod").unwrap();
    assert!(object::annotation(&pod, keys::HOSTS).unwrap().contains("10.0.0.9 helper-0.pair"));
    assert_eq!(scene.task(TRAINER).attempt, 1);
}

#[test]
fn a_group_is_cancelled_as_a_whole() {
    let mut scene = Scene::started();
    scene.change_job(|job| job["spec"]["cancel"] = true.into());
    for index in [TRAINER, HELPER] {
        scene.removed(index);
    }
    assert_eq!(scene.job().status.state, State::Cancelled);
    assert!([TRAINER, HELPER].iter().all(|index| scene.task(*index).state == State::Cancelled));
}
