//! A cluster of which a machine is gone: what waits runs on the others where it fits, and the cluster goes with its last machine.

use api::object::{self, Gvk, Key, Target};
use api::sky::{API_VERSION, cluster_gvk, keys, machine_gvk};
use managed::cluster::ClusterController;
use reconcile::testing::Model;
use serde_json::{Value, json};

struct Scene {
    model: Model,
    target: Target,
}

impl Scene {
    /// A cluster of two machines that run.
    fn new() -> Self {
        let mut model = Model::default();
        model.put(json!({
            "apiVersion": API_VERSION, "kind": "Cluster",
            "metadata": {"name": "dev", "namespace": "default", "finalizers": [keys::LEDGER]},
            "spec": {"nodes": 2, "candidates": [{"provider": "kubernetes"}]},
        }));
        let target = Target { gvk: cluster_gvk(), key: Key::new("default", "dev") };
        let mut scene = Self { model, target };
        scene.run();
        for name in ["dev-0-0", "dev-0-1"] {
            let uid = object::uid(&scene.model.one("Machine", name).unwrap()).to_owned();
            scene.set(name, "Running");
            scene.model.put(json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
                    keys::CLUSTER: "dev", keys::CLUSTER_NAMESPACE: "default", keys::TOKEN: uid,
                }},
                "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "4"}},
            }));
        }
        scene.run();
        scene
    }

    fn run(&mut self) {
        self.model.run(&ClusterController, &self.target.clone());
    }

    fn set(&mut self, machine: &str, phase: &str) {
        self.model.change(&machine_gvk(), &Key::new("default", machine), |object| {
            object["status"] = json!({"phase": phase, "id": machine, "node": machine, "address": "10.0.0.1"});
        });
    }

    /// A job that waits, on so many machines.
    fn submit(&mut self, id: u32, nodes: usize) {
        let cluster = self.model.one("Cluster", "dev").unwrap();
        let ranks: Vec<Value> = (0..nodes).map(|rank| json!({"name": format!("r{rank}")})).collect();
        self.model.put(json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {
                "name": format!("job-{id}"), "namespace": "default",
                "labels": {keys::CLUSTER: "dev", keys::JOB: id.to_string(), keys::STAGE: "run"}, "annotations": {},
                "ownerReferences": [{"apiVersion": API_VERSION, "kind": "Cluster", "name": "dev",
                    "uid": object::uid(&cluster), "controller": true}],
            },
            "spec": {"suspend": true, "replicatedJobs": ranks},
        }));
    }

    /// The Node of a job's first rank, once it has its turn.
    fn placed(&self, id: u32) -> Option<String> {
        let jobset = self.model.one("JobSet", &format!("job-{id}")).unwrap();
        let pod = &jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"];
        pod["nodeSelector"]["kubernetes.io/hostname"].as_str().map(str::to_owned)
    }
}

#[test]
fn a_job_that_fits_on_what_is_left_does_not_wait_for_what_is_gone() {
    let mut scene = Scene::new();
    scene.set("dev-0-0", "Lost");
    scene.submit(1, 1);
    scene.run();
    assert_eq!(scene.placed(1).as_deref(), Some("dev-0-1"));
    scene.submit(2, 2);
    scene.run();
    assert_eq!(scene.placed(2), None, "one machine is not two");
}

#[test]
fn nothing_begins_while_the_other_machines_are_not_ready() {
    let mut scene = Scene::new();
    scene.set("dev-0-0", "Lost");
    scene.model.change(&Gvk::new("", "v1", "Node"), &Key::new("", "dev-0-1"), |node| {
        node["status"]["conditions"][0]["status"] = "Unknown".into();
    });
    scene.submit(1, 1);
    scene.run();
    assert_eq!(scene.placed(1), None);
}

#[test]
fn a_cluster_goes_with_its_last_machine() {
    let mut scene = Scene::new();
    scene.set("dev-0-0", "Lost");
    scene.run();
    assert!(!object::is_terminating(&scene.model.one("Cluster", "dev").unwrap()));
    scene.set("dev-0-1", "Lost");
    scene.run();
    assert!(scene.model.one("Cluster", "dev").is_none_or(|cluster| object::is_terminating(&cluster)));
}
