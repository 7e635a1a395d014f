//! Services: as many replicas as are asked for, updates that lose no request, and updates that cannot succeed.

use api::object::{self, Key, Target};
use api::sky::{
    API_VERSION, FleetState, FleetStatus, ReplicaState as State, Traffic, keys, managed_job_gvk, serving_gvk,
};
use managed::fleet::{FleetController, FleetKind};
use reconcile::testing::Model;
use reconcile::{Next, Propagation};
use serde_json::{Value, json};

struct Scene(Model);

fn target() -> Target {
    Target { gvk: serving_gvk(), key: Key::new("default", "web") }
}

fn service(policy: Value) -> Value {
    json!({"readiness_probe": {"path": "/", "initial_delay_seconds": 60}, "ports": 8080, "replica_policy": policy})
}

impl Scene {
    fn new(policy: Value) -> Self {
        let mut scene = Self(Model::default());
        scene.file("v1", service(policy));
        scene.0.put(json!({
            "apiVersion": API_VERSION, "kind": "Serving",
            "metadata": {
                "name": "web", "namespace": "default", "finalizers": [keys::LEDGER],
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"name": "web", "version": 1, "submission": "v1"},
        }));
        scene.run();
        scene
    }

    fn file(&mut self, name: &str, service: Value) {
        let file = json!({"submitted": "x", "tasks": [{"task": {"run": format!("serve {name}")}, "service": service}]});
        self.0.put(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
            "data": {"job": file.to_string()},
        }));
    }

    fn update(&mut self, version: u32, mode: &str, policy: Value) {
        let name = format!("v{version}");
        self.file(&name, service(policy));
        self.0.change(&serving_gvk(), &target().key, |object| {
            object["spec"]["version"] = version.into();
            object["spec"]["submission"] = name.as_str().into();
            object["spec"]["mode"] = mode.into();
        });
        self.run();
    }

    fn run(&mut self) {
        for _ in 0..6 {
            self.0.run(&FleetController(FleetKind::Service), &target());
        }
    }

    fn status(&self) -> FleetStatus {
        let object = self.0.one("Serving", "web").unwrap();
        serde_json::from_value(object["status"].clone()).unwrap()
    }

    fn states(&self) -> Vec<(u32, u32, State)> {
        self.status().replicas.iter().map(|one| (one.number, one.version, one.state)).collect()
    }

    /// Its job comes to a state.
    fn job(&mut self, number: u32, status: Value) {
        let key = Key::new("default", format!("serve-web-{number}").as_str());
        self.0.change(&managed_job_gvk(), &key, |object| object["status"] = status);
        self.run();
    }

    /// Its code runs, and the load balancer finds it ready.
    fn ready(&mut self, number: u32) {
        let cluster = format!("web-{number}");
        let job = self.0.one("ManagedJob", &format!("serve-web-{number}")).expect("a job");
        self.0.put(json!({
            "apiVersion": API_VERSION, "kind": "Cluster",
            "metadata": {
                "name": cluster, "namespace": "default", "labels": {keys::MANAGED_JOB: format!("serve-web-{number}")},
                "ownerReferences": [{"apiVersion": API_VERSION, "kind": "ManagedJob", "name": format!("serve-web-{number}"), "uid": object::uid(&job)}],
            },
            "spec": {"nodes": 1, "candidates": [{"provider": "local"}]},
            "status": {"phase": "UP", "nodes": [{"machine": "m", "node": "n", "address": format!("127.0.0.{number}")}]},
        }));
        self.job(number, json!({"state": "RUNNING", "tasks": [{"state": "RUNNING", "cluster": cluster}]}));
        self.report(number, json!({"isReady": true}));
    }

    /// The load balancer reports this of a replica.
    fn report(&mut self, number: u32, report: Value) {
        self.0.change(&serving_gvk(), &target().key, |object| {
            let mut backends = object["status"]["load"]["backends"].as_array().cloned().unwrap_or_default();
            backends.retain(|one| one["replica"] != number);
            let mut report = report;
            report["replica"] = number.into();
            backends.push(report);
            object["status"]["load"] = json!({"backends": backends});
        });
        self.run();
    }

    fn held(&mut self, requests: u64) {
        self.0.change(&serving_gvk(), &target().key, |object| object["status"]["load"] = json!({"held": requests}));
        self.run();
    }

    /// The job of a replica is cancelled, and nothing is left of it.
    fn gone(&mut self, number: u32) {
        let name = format!("serve-web-{number}");
        assert_eq!(self.0.one("ManagedJob", &name).unwrap()["spec"]["cancel"], true, "{name}");
        let cluster =
            Target { gvk: api::sky::cluster_gvk(), key: Key::new("default", format!("web-{number}").as_str()) };
        self.0.delete(&cluster, Propagation::Background, None);
        self.job(number, json!({"state": "CANCELLED"}));
    }

    fn traffic(&self) -> Vec<(u32, Traffic)> {
        self.status().balancing.backends.iter().map(|one| (one.replica, one.traffic)).collect()
    }
}

#[test]
fn a_replica_is_ready_when_the_load_balancer_says_so() {
    let mut scene = Scene::new(json!({"min_replicas": 1}));
    assert_eq!(scene.states(), [(1, 1, State::Pending)]);
    assert_eq!(scene.status().state, FleetState::ReplicaInit);
    let job = scene.0.one("ManagedJob", "serve-web-1").unwrap();
    assert_eq!(job["spec"]["replica"], json!({"name": "web", "version": 1}));
    assert!(scene.0.one("Pod", "serve-web-balancer").is_some());
    scene.ready(1);
    assert_eq!(scene.states(), [(1, 1, State::Ready)]);
    assert_eq!((scene.status().state, scene.status().active_versions), (FleetState::Ready, vec![1]));
    assert_eq!(scene.status().balancing.backends[0].address, "127.0.0.1:8080");
}

#[test]
fn a_rolling_update_ends_an_old_replica_for_each_new_one_that_is_ready() {
    let mut scene = Scene::new(json!({"min_replicas": 2}));
    scene.ready(1);
    scene.ready(2);
    scene.update(2, "Rolling", json!({"min_replicas": 2}));
    assert_eq!(
        scene.states()[..2],
        [(1, 1, State::Ready), (2, 1, State::Ready)],
        "none ends before a new one is ready"
    );
    scene.ready(3);
    assert_eq!(scene.traffic()[..2], [(1, Traffic::Serving), (2, Traffic::Draining)]);
    let job = |scene: &Scene| scene.0.one("ManagedJob", "serve-web-2").unwrap()["spec"]["cancel"].clone();
    assert_eq!(job(&scene), Value::Null, "its requests go on");
    scene.report(2, json!({"isReady": true, "isDraining": true, "inFlight": 1}));
    assert_eq!(job(&scene), Value::Null);
    scene.report(2, json!({"isReady": true, "isDraining": true}));
    assert_eq!(job(&scene), true);
    scene.gone(2);
    scene.ready(4);
    scene.report(1, json!({"isReady": true, "isDraining": true}));
    scene.gone(1);
    assert_eq!(scene.states(), [(3, 2, State::Ready), (4, 2, State::Ready)]);
    assert_eq!(scene.status().active_versions, [2]);
}

#[test]
fn a_blue_green_update_switches_once_enough_are_ready() {
    let mut scene = Scene::new(json!({"min_replicas": 2}));
    scene.ready(1);
    scene.ready(2);
    scene.update(2, "BlueGreen", json!({"min_replicas": 2}));
    scene.ready(3);
    assert_eq!(scene.status().active_versions, [1]);
    assert_eq!(scene.traffic(), [(1, Traffic::Serving), (2, Traffic::Serving), (3, Traffic::Probed)]);
    scene.ready(4);
    assert_eq!(scene.status().active_versions, [2]);
    let draining = scene.traffic().into_iter().filter(|(_, traffic)| *traffic == Traffic::Draining);
    assert_eq!(draining.map(|(number, _)| number).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn an_update_that_cannot_start_stops_and_the_old_version_goes_on() {
    let mut scene = Scene::new(json!({"min_replicas": 2}));
    scene.ready(1);
    scene.ready(2);
    scene.update(2, "Rolling", json!({"min_replicas": 2}));
    let failed = json!({"state": "FAILED", "tasks": [{
        "state": "FAILED", "cluster": "web-3",
        "attempts": [{"number": 1, "ground": "Exited", "evidence": "run failed; exit codes by rank: 3"}],
    }]});
    scene.job(3, failed);
    let status = scene.status();
    assert_eq!(status.state, FleetState::Ready);
    assert_eq!(
        status.message,
        "the update to version 2 has stopped: replica 3 is FAILED: run failed; exit codes by rank: 3"
    );
    assert_eq!(scene.states()[..3], [(1, 1, State::Ready), (2, 1, State::Ready), (3, 2, State::Failed)]);
    // the old version is kept up
    scene.job(
        1,
        json!({"state": "FAILED", "tasks": [{"state": "FAILED", "attempts": [
        {"number": 1, "ground": "MachinesLost", "evidence": "machine m is gone"}]}]}),
    );
    let added = scene.states().into_iter().filter(|(number, version, _)| *number > 4 && *version == 1);
    assert_eq!(added.count(), 1, "{:?}", scene.states());
    // and a better one is taken
    scene.update(3, "Rolling", json!({"min_replicas": 2}));
    assert!(scene.states().iter().any(|(_, version, _)| *version == 3));
}

#[test]
fn the_first_version_that_cannot_start_makes_no_more_replicas() {
    let mut scene = Scene::new(json!({"min_replicas": 1}));
    scene.job(1, json!({"state": "SUCCEEDED", "tasks": [{"state": "SUCCEEDED"}]}));
    let status = scene.status();
    assert_eq!((status.state, status.made), (FleetState::Failed, 1));
    assert!(status.message.contains("its `run` exited with 0"), "{}", status.message);
}

#[test]
fn a_replica_that_is_not_ready_in_time_has_failed() {
    let mut scene = Scene::new(json!({"min_replicas": 1}));
    scene.ready(1);
    scene.update(2, "Rolling", json!({"min_replicas": 1}));
    scene.job(2, json!({"state": "RUNNING", "tasks": [{"state": "RUNNING", "cluster": "web-2"}]}));
    scene.report(2, json!({"lastFailure": "GET / answered 500"}));
    assert_eq!(scene.states()[1].2, State::Starting);
    scene.0.pass(61);
    scene.run();
    assert_eq!(scene.states()[1].2, State::FailedInitialDelay);
    assert_eq!(scene.status().replicas[1].message, "not ready within 60 s of its start: GET / answered 500");
    assert_eq!(scene.states()[0], (1, 1, State::Ready));
}

#[test]
fn replicas_that_fail_in_a_row_come_at_longer_and_longer_intervals() {
    let mut scene = Scene::new(json!({"min_replicas": 1}));
    scene.ready(1);
    let failed = || {
        json!({"state": "FAILED", "tasks": [{"state": "FAILED", "attempts": [
        {"number": 1, "ground": "Exited", "evidence": "run failed"}]}]})
    };
    scene.job(1, failed());
    assert_eq!(scene.status().made, 2, "it was ready before: another one comes at once");
    for (number, pause) in [(2, 5), (3, 10), (4, 20)] {
        scene.job(number, failed());
        scene.0.pass(pause - 1);
        scene.run();
        assert_eq!(scene.status().made, number);
        assert!(scene.status().message.contains("makes the next one at"), "{}", scene.status().message);
        scene.0.pass(1);
        scene.run();
        assert_eq!(scene.status().made, number + 1);
    }
}

#[test]
fn a_service_that_has_failed_rests() {
    let mut scene = Scene::new(json!({"min_replicas": 1}));
    scene.job(1, json!({"state": "SUCCEEDED", "tasks": [{"state": "SUCCEEDED"}]}));
    let next = scene.0.run(&FleetController(FleetKind::Service), &target());
    assert_eq!(next, Next::AwaitChange);
    assert!(scene.status().balancing.refuses);
}

#[test]
fn a_request_that_waits_makes_the_first_replica() {
    let mut scene = Scene::new(json!({"min_replicas": 0, "max_replicas": 2, "target_qps_per_replica": 1}));
    assert_eq!((scene.states().len(), scene.status().state), (0, FleetState::NoReplica));
    scene.held(1);
    assert_eq!(scene.states(), [(1, 1, State::Pending)]);
}

#[test]
fn a_service_that_is_deleted_goes_after_its_replicas() {
    let mut scene = Scene::new(json!({"min_replicas": 2}));
    scene.ready(1);
    scene.0.delete(&target(), Propagation::Background, None);
    scene.run();
    assert_eq!(scene.status().state, FleetState::ShuttingDown);
    scene.gone(1);
    assert!(scene.0.one("Serving", "web").is_some(), "a replica is left");
    scene.gone(2);
    assert!(scene.0.one("Serving", "web").is_none());
}
