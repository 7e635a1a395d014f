//! When a cluster stops by itself: from the end of the last job, and of the last session over SSH.

use api::node::SSH_SESSIONS;
use api::object::{self, Key, Target};
use api::sky::{API_VERSION, cluster_gvk, keys, machine_gvk};
use managed::cluster::ClusterController;
use reconcile::Next;
use reconcile::testing::Model;
use serde_json::{Value, json};

const MINUTE: i64 = 60;

struct Scene {
    model: Model,
    target: Target,
}

impl Scene {
    /// A cluster of one machine that runs, and stops by itself like this.
    fn new(autostop: Value) -> Self {
        let mut model = Model::default();
        let cluster = model.put(json!({
            "apiVersion": API_VERSION, "kind": "Cluster",
            "metadata": {"name": "dev", "namespace": "default", "finalizers": [keys::LEDGER]},
            "spec": {"nodes": 1, "candidates": [{"provider": "ssh", "region": "lab"}], "autostop": autostop},
        }));
        let target = Target { gvk: cluster_gvk(), key: Key::new("default", "dev") };
        let mut scene = Self { model, target };
        scene.run();
        let machine = scene.model.one("Machine", "dev-0-0").unwrap();
        scene.model.change(&machine_gvk(), &Key::new("default", "dev-0-0"), |machine| {
            machine["status"] = json!({"phase": "Running", "id": "lab/h", "node": "dev-0-0", "address": "10.0.0.1"});
        });
        scene.model.put(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "dev-0-0", "labels": {
                keys::CLUSTER: "dev", keys::CLUSTER_NAMESPACE: "default", keys::TOKEN: object::uid(&machine),
            }},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }));
        assert_eq!(object::meta(&cluster, "name"), "dev");
        scene
    }

    fn run(&mut self) -> Next {
        self.model.run(&ClusterController, &self.target.clone())
    }

    /// Somebody comes, or the last one goes.
    fn sessions(&mut self, are_there: bool) {
        let (at, status) = (self.model.now.to_string(), if are_there { "True" } else { "False" });
        self.model.change(&object::Gvk::new("", "v1", "Node"), &Key::new("", "dev-0-0"), |node| {
            node["status"]["conditions"] = json!([
                {"type": "Ready", "status": "True"},
                {"type": SSH_SESSIONS, "status": status, "lastTransitionTime": at},
            ]);
        });
    }

    fn power(&self) -> String {
        let cluster = self.model.one("Cluster", "dev").unwrap();
        object::text(&cluster["spec"], "power").to_owned()
    }

    /// After how many minutes it is looked at again; `None`: when something changes.
    fn again(&mut self) -> Option<i64> {
        match self.run() {
            Next::After(pause) => Some(pause.as_secs() / MINUTE),
            Next::AwaitChange => None,
            Next::Backoff => panic!("nothing was refused"),
        }
    }
}

#[test]
fn a_session_keeps_a_cluster_and_its_end_begins_the_minutes() {
    let mut scene = Scene::new(json!({"idleMinutes": 5}));
    assert_eq!(scene.again(), Some(5));
    scene.model.pass(4 * MINUTE);
    scene.sessions(true);
    assert_eq!(scene.again(), None);
    scene.model.pass(600 * MINUTE);
    assert_eq!((scene.again(), scene.power()), (None, String::new()));
    scene.sessions(false);
    assert_eq!(scene.again(), Some(5));
    scene.model.pass(4 * MINUTE);
    assert_eq!((scene.again(), scene.power()), (Some(1), String::new()));
    scene.model.pass(MINUTE);
    scene.run();
    assert_eq!(scene.power(), "Stopped");
}

#[test]
fn sessions_do_not_count_where_jobs_alone_do() {
    for wait_for in ["Jobs", "None"] {
        let mut scene = Scene::new(json!({"idleMinutes": 5, "waitFor": wait_for}));
        scene.sessions(true);
        assert_eq!(scene.again(), Some(5), "{wait_for}");
        scene.model.pass(5 * MINUTE);
        scene.run();
        assert_eq!(scene.power(), "Stopped", "{wait_for}");
    }
}

#[test]
fn minutes_count_from_a_time_to_come_where_a_launch_goes_on() {
    let mut scene = Scene::new(json!({"idleMinutes": 0, "since": "2026-01-01T00:30:00Z"}));
    assert_eq!(scene.again(), Some(30));
    scene.model.pass(29 * MINUTE);
    assert_eq!((scene.again(), scene.power()), (Some(1), String::new()));
    scene.model.pass(MINUTE);
    scene.run();
    assert_eq!(scene.power(), "Stopped");
}
