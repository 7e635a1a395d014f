//! Hooks of clusters: they run on each machine before it stops or ends, once, and delay that no longer than they may.

use api::object::{self, Gvk, Key, Target};
use api::sky::{API_VERSION, Cluster, HookRun, cluster_gvk, keys, machine_gvk};
use managed::cluster::ClusterController;
use reconcile::testing::Model;
use reconcile::{Next, Propagation};
use serde_json::{Value, json};

fn key(name: &str) -> Key {
    Key::new("default", name)
}

fn target() -> Target {
    Target { gvk: cluster_gvk(), key: key("dev") }
}

fn pod_gvk() -> Gvk {
    Gvk::new("", "v1", "Pod")
}

struct Scene {
    model: Model,
}

impl Scene {
    /// A cluster of two machines that run, with these hooks.
    fn new(hooks: &Value) -> Self {
        let mut model = Model::default();
        model.put(json!({
            "apiVersion": API_VERSION, "kind": "Cluster",
            "metadata": {"name": "dev", "namespace": "default", "finalizers": [keys::LEDGER]},
            "spec": {"nodes": 2, "candidates": [{"provider": "ssh", "region": "lab"}], "hooks": hooks},
        }));
        let mut scene = Self { model };
        scene.run();
        for rank in 0..2 {
            let name = format!("dev-0-{rank}");
            let uid = object::uid(&scene.model.one("Machine", &name).unwrap()).to_owned();
            scene.model.change(&machine_gvk(), &key(&name), |machine| {
                machine["status"] = json!({"phase": "Running", "id": name, "node": name, "address": "10.0.0.1"});
            });
            scene.model.put(json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {
                    keys::CLUSTER: "dev", keys::CLUSTER_NAMESPACE: "default", keys::TOKEN: uid,
                }},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }));
        }
        scene.run();
        scene
    }

    fn run(&mut self) -> Next {
        self.model.run(&ClusterController, &target())
    }

    fn power(&mut self, power: &str) {
        self.model.change(&cluster_gvk(), &key("dev"), |cluster| cluster["spec"]["power"] = power.into());
        self.run();
    }

    fn down(&mut self) {
        self.model.delete(&target(), Propagation::Background, None);
        self.run();
    }

    fn hooks(&self) -> HookRun {
        let cluster: Cluster = serde_json::from_value((*self.model.one("Cluster", "dev").unwrap()).clone()).unwrap();
        cluster.status.hooks
    }

    fn pods(&self) -> Vec<String> {
        self.model.all("Pod").iter().map(|pod| object::meta(pod, "name").to_owned()).collect()
    }

    /// What nodes say of a pod.
    fn says(&mut self, pod: &str, status: Value) {
        self.model.change(&pod_gvk(), &key(pod), |pod| pod["status"] = status);
        self.run();
    }

    fn exits(&mut self, pod: &str, code: i64) {
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let terminated = json!([{"state": {"terminated": {"exitCode": code}}}]);
        self.says(pod, json!({"phase": phase, "containerStatuses": terminated}));
    }

    /// Whether no machine is asked to stop or to end.
    fn all_stay(&self) -> bool {
        let stays = |machine: &Value| !object::is_terminating(machine) && machine["spec"]["power"] != "Stopped";
        self.model.all("Machine").iter().filter(|machine| stays(machine)).count() == 2
    }

    /// Both machines are stopped, or run.
    fn are(&mut self, phase: &str) {
        for rank in 0..2 {
            self.model.change(&machine_gvk(), &key(&format!("dev-0-{rank}")), |machine| {
                machine["status"]["phase"] = phase.into();
            });
        }
        self.run();
    }
}

fn hooks() -> Value {
    json!([
        {"run": "sync $HOME", "events": ["stop", "down"], "timeoutSeconds": 30},
        {"run": "bye", "events": ["down"], "timeoutSeconds": 5},
        {"run": "never", "events": ["preemption"], "timeoutSeconds": 3600},
    ])
}

#[test]
fn machines_stop_after_their_hooks_each_time() {
    let mut scene = Scene::new(&hooks());
    assert_eq!((scene.pods().len(), scene.hooks()), (0, HookRun::default()));
    scene.power("Stopped");
    assert_eq!(scene.pods(), ["dev-hooks-1-0", "dev-hooks-1-1"]);
    let pod = scene.model.one("Pod", "dev-hooks-1-1").unwrap();
    assert_eq!(pod["spec"]["containers"][0]["args"], json!(["30", "sync $$HOME"]));
    assert_eq!(pod["spec"]["nodeSelector"], json!({"kubernetes.io/hostname": "dev-0-1"}));
    assert_eq!(
        (pod["spec"]["activeDeadlineSeconds"].as_i64(), object::label(&pod, keys::HOOK)),
        (Some(40), Some("stop"))
    );
    scene.exits("dev-hooks-1-0", 0);
    assert!(scene.all_stay(), "one of them still runs its hooks");
    scene.exits("dev-hooks-1-1", 4);
    assert!(!scene.all_stay());
    assert_eq!(scene.hooks().failures, ["machine dev-0-1: a hook exited with 4"]);
    assert!(scene.model.events.contains(&"Warning HookFailed: machine dev-0-1: a hook exited with 4".to_owned()));
    scene.are("Stopped");
    let after = scene.model.writes.len();
    scene.run();
    assert_eq!(scene.model.writes.len(), after, "nothing else is written");
    // what is stopped can run no hooks when it ends; once it runs again, all begins anew
    scene.power("Running");
    scene.are("Running");
    assert!(scene.hooks().is_past);
    scene.power("Stopped");
    assert_eq!(scene.pods(), ["dev-hooks-2-0", "dev-hooks-2-1"]);
}

#[test]
fn a_cluster_that_ends_while_it_stops_runs_its_hooks_once() {
    let mut scene = Scene::new(&hooks());
    scene.power("Stopped");
    scene.down();
    assert_eq!((scene.pods().len(), scene.hooks().event.as_str(), scene.hooks().number), (2, "stop", 1));
    scene.exits("dev-hooks-1-0", 0);
    scene.exits("dev-hooks-1-1", 0);
    assert!(!scene.all_stay() && scene.hooks().number == 1);
    // and one without a claim runs those of its end, in their order
    let mut scene = Scene::new(&hooks());
    scene.down();
    let pod = scene.model.one("Pod", "dev-hooks-1-0").unwrap();
    assert_eq!(pod["spec"]["containers"][0]["args"], json!(["30", "sync $$HOME", "5", "bye"]));
    assert!(scene.all_stay());
}

#[test]
fn a_crash_between_status_and_pods_runs_nothing_twice() {
    let mut scene = Scene::new(&hooks());
    scene.down();
    let uids: Vec<String> = scene.model.all("Pod").iter().map(|pod| object::uid(pod).to_owned()).collect();
    scene.exits("dev-hooks-1-0", 0);
    for _ in 0..3 {
        scene.run();
    }
    let now: Vec<String> = scene.model.all("Pod").iter().map(|pod| object::uid(pod).to_owned()).collect();
    assert_eq!((uids, scene.hooks().number), (now, 1));
}

#[test]
fn purge_skips_hooks_and_so_does_a_cluster_without_any() {
    let mut scene = Scene::new(&hooks());
    scene.model.change(&cluster_gvk(), &key("dev"), |cluster| {
        cluster["metadata"]["annotations"] = json!({keys::PURGE: "true"});
    });
    scene.down();
    assert!(scene.pods().is_empty() && !scene.all_stay());
    // also those that run
    let mut scene = Scene::new(&hooks());
    scene.down();
    assert!(scene.pods().len() == 2 && scene.all_stay());
    scene.model.change(&cluster_gvk(), &key("dev"), |cluster| {
        cluster["metadata"]["annotations"] = json!({keys::PURGE: "true"});
    });
    scene.run();
    assert!(scene.pods().is_empty() && !scene.all_stay());
    let mut scene = Scene::new(&json!([]));
    scene.down();
    assert!(scene.pods().is_empty() && !scene.all_stay());
}

#[test]
fn machines_that_do_not_answer_delay_the_end_by_a_minute() {
    let mut scene = Scene::new(&hooks());
    let silent = |node: &mut Value| {
        node["status"]["conditions"] =
            json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    };
    scene.model.change(&Gvk::new("", "v1", "Node"), &Key::new("", "dev-0-0"), silent);
    scene.down();
    assert_eq!(scene.pods(), ["dev-hooks-1-1"]);
    scene.exits("dev-hooks-1-1", 0);
    assert!(matches!(scene.run(), Next::After(pause) if pause.as_secs() == 60) && scene.all_stay());
    scene.model.pass(60);
    scene.run();
    assert!(!scene.all_stay());
    assert_eq!(scene.hooks().failures, ["machine dev-0-0: it does not report, so its hooks did not run"]);
}

#[test]
fn hooks_that_never_end_are_given_up() {
    let mut scene = Scene::new(&hooks());
    scene.down();
    scene.exits("dev-hooks-1-0", 124);
    scene.says("dev-hooks-1-1", json!({"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}));
    // 30 s and 5 s, ten more for the end of each, and a minute for the node
    scene.model.pass(114);
    assert!(matches!(scene.run(), Next::After(pause) if pause.as_secs() == 1) && scene.all_stay());
    scene.model.pass(1);
    scene.run();
    assert!(!scene.all_stay());
    let expected = [
        "machine dev-0-0: a hook ran longer than its timeout and was ended",
        "machine dev-0-1: its hooks ran longer than their timeouts",
    ];
    assert_eq!(scene.hooks().failures, expected);
}
