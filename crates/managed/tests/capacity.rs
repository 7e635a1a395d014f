//! Jobs that wait for capacity: which of them is tried when a machine becomes free.

use api::object::{self, Key, Target};
use api::sky::{API_VERSION, keys, machine_gvk, managed_job_gvk};
use managed::job_turns::{JobTurns, LAUNCHES_MAX};
use reconcile::testing::Model;
use reconcile::{Propagation, Reconciler, World};
use serde_json::{Value, json};

/// The jobs of a scene wait since then.
const FAILED: &str = "2025-12-31T23:59:00Z";

struct Scene {
    model: Model,
    turns: JobTurns,
}

fn key(name: &str) -> Key {
    Key::new("default", name)
}

fn attempt(number: u32, ended: &str) -> Value {
    json!({
        "number": number, "cluster": format!("c-{number}"), "beganAt": FAILED, "endedAt": ended,
        "ground": if ended.is_empty() { "None" } else { "NoCapacity" },
    })
}

/// A task that waits for so many machines at these places.
fn waits(places: &[&str], nodes: u32) -> Value {
    json!({
        "state": "PENDING", "attempt": 1, "failures": 1, "notBefore": "2026-01-01T00:05:00Z",
        "capacity": {"places": places, "nodes": nodes, "machine": "m"}, "attempts": [attempt(1, FAILED)],
    })
}

impl Scene {
    /// A control plane that has looked at all: so what waits was tried once.
    fn new() -> Self {
        let mut scene = Self { model: Model::default(), turns: JobTurns::default() };
        scene.granted();
        scene
    }

    fn add(&mut self, id: u32, priority: i32, task: Value) {
        self.model.put(json!({
            "apiVersion": API_VERSION, "kind": "ManagedJob", "metadata": {"name": format!("job-{id}"), "namespace": "default"},
            "spec": {"id": id, "name": "train", "submission": "tasks", "priority": priority},
            "status": {"turn": 1, "tasks": [task]},
        }));
    }

    fn task(&mut self, id: u32, change: impl Fn(&mut Value)) {
        let name = format!("job-{id}");
        self.model.change(&managed_job_gvk(), &key(&name), |job| change(&mut job["status"]["tasks"][0]));
    }

    /// A machine of a job's cluster; of none for 0.
    fn machine(&mut self, name: &str, region: &str, job: u32) {
        if job > 0 {
            self.model.put(json!({
                "apiVersion": API_VERSION, "kind": "Cluster",
                "metadata": {"name": format!("c-{job}"), "namespace": "default", "labels": {keys::MANAGED_JOB: format!("job-{job}")}},
            }));
        }
        self.model.put(json!({
            "apiVersion": API_VERSION, "kind": "Machine",
            "metadata": {"name": name, "namespace": "default", "labels": {keys::CLUSTER: format!("c-{job}")}},
            "spec": {"cluster": format!("c-{job}"), "candidate": {"provider": "ssh", "region": region}},
            "status": {"id": name, "phase": "Running"},
        }));
    }

    fn goes(&mut self, name: &str) {
        let target = Target { gvk: machine_gvk(), key: key(name) };
        let machine = self.model.get(&target.gvk, &target.key).unwrap();
        self.note(&machine);
        self.model.delete(&target, Propagation::Background, None);
    }

    fn note(&self, object: &Value) {
        for watch in self.turns.watches() {
            watch.woken_by(&self.turns.primary(), &self.model, &object::Gvk::of(object), object);
        }
    }

    /// The jobs that got a turn now.
    fn granted(&mut self) -> Vec<u32> {
        for gvk in [managed_job_gvk(), machine_gvk()] {
            self.model.list(&gvk, None).iter().for_each(|object| self.note(object));
        }
        let target = Target { gvk: managed_job_gvk(), key: Key::default() };
        let decision = self.model.decide(&self.turns, &target).unwrap();
        let before = self.turns_given();
        self.model.execute(&target, &decision);
        let given = self.turns_given();
        given.into_iter().filter(|one| !before.contains(one)).map(|(id, _)| id).collect()
    }

    fn turns_given(&self) -> Vec<(u32, u64)> {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let jobs = self.model.all("ManagedJob");
        jobs.iter()
            .map(|job| (u32::try_from(number(&job["spec"]["id"])).unwrap(), number(&job["status"]["turn"])))
            .collect()
    }

    /// The launch of a job found no capacity.
    fn fails(&mut self, id: u32) {
        let now = self.model.now.to_string();
        self.task(id, |task| {
            task["state"] = "PENDING".into();
            task["attempt"] = 2.into();
            task["failures"] = 2.into();
            task["attempts"] = json!([attempt(2, &now)]);
        });
    }

    fn runs(&mut self, id: u32) {
        self.task(id, |task| {
            task["state"] = "RUNNING".into();
            task["attempt"] = 2.into();
            task["attempts"] = json!([attempt(2, "")]);
            task["capacity"] = Value::Null;
        });
    }
}

#[test]
fn the_first_of_those_that_wait_gets_the_machine() {
    let mut scene = Scene::new();
    scene.machine("m", "lab", 0);
    scene.add(1, 0, waits(&["ssh/lab"], 1));
    scene.add(2, 9, waits(&["ssh/lab"], 1));
    let mut recovers = waits(&["ssh/lab"], 1);
    recovers["startedAt"] = FAILED.into();
    scene.add(3, -5, recovers);
    scene.add(4, 100, waits(&["ssh/other"], 1));
    assert_eq!(scene.granted(), [0; 0]);
    scene.goes("m");
    assert_eq!(scene.granted(), [3], "it recovers");
    assert_eq!(scene.granted(), [0; 0], "one machine, one try");
    scene.fails(3);
    assert_eq!(scene.granted(), [0; 0], "the others look for the same machine");
    scene.machine("n", "lab", 0);
    scene.granted();
    scene.goes("n");
    scene.model.pass(2);
    assert_eq!(scene.granted(), [3]);
    scene.runs(3);
    assert_eq!(scene.granted(), [2], "there may be another machine, and it has the higher priority");
}

#[test]
fn as_many_are_tried_as_machines_became_free() {
    let mut scene = Scene::new();
    for name in ["a", "b", "c"] {
        scene.machine(name, "lab", 0);
    }
    for id in 1..=9 {
        scene.add(id, 0, waits(&["ssh/lab", "ssh/other"], 1));
    }
    assert_eq!(scene.granted(), [0; 0]);
    for name in ["a", "b", "c"] {
        scene.goes(name);
    }
    assert_eq!(scene.granted(), [1, 2, 3]);
    assert_eq!(scene.granted(), [0; 0]);
    scene.model.pass(25);
    assert_eq!(scene.granted(), [4, 5, 6], "a slow launch keeps no other from its place for ever");
}

#[test]
fn a_burst_is_bounded_by_turns() {
    let mut scene = Scene::new();
    let many = u32::try_from(LAUNCHES_MAX).unwrap() + 10;
    for id in 1..=many {
        scene.machine(&format!("m{id}"), "lab", 0);
        scene.add(id, 0, waits(&["ssh/lab"], 1));
    }
    scene.granted();
    for id in 1..=many {
        scene.goes(&format!("m{id}"));
    }
    assert_eq!(scene.granted().len(), LAUNCHES_MAX);
}

#[test]
fn a_smaller_job_is_tried_when_the_first_does_not_fit() {
    let mut scene = Scene::new();
    scene.machine("m", "lab", 0);
    scene.add(1, 5, waits(&["ssh/lab"], 4));
    scene.add(2, 5, waits(&["ssh/lab"], 4));
    scene.add(3, 0, waits(&["ssh/lab"], 1));
    scene.granted();
    scene.goes("m");
    assert_eq!(scene.granted(), [1]);
    scene.fails(1);
    assert_eq!(scene.granted(), [3], "2 needs as many as 1");
}

#[test]
fn what_a_job_takes_in_vain_wakes_others_and_not_itself() {
    let mut scene = Scene::new();
    scene.machine("m", "lab", 0);
    scene.add(2, 5, waits(&["ssh/lab"], 2));
    scene.add(3, 0, waits(&["ssh/lab"], 1));
    scene.granted();
    scene.goes("m");
    assert_eq!(scene.granted(), [2]);
    // it gets one machine of two
    scene.machine("half", "lab", 2);
    scene.fails(2);
    assert_eq!(scene.granted(), [3]);
    scene.model.pass(1);
    scene.fails(3);
    assert_eq!(scene.granted(), [0; 0]);
    scene.goes("half");
    scene.model.pass(30);
    assert_eq!(scene.granted(), [3]);
    scene.fails(3);
    scene.model.pass(30);
    assert_eq!(scene.granted(), [0; 0], "nothing has become free since");
}

#[test]
fn a_job_that_is_about_to_recover_goes_before_those_that_wait() {
    let mut scene = Scene::new();
    scene.machine("own", "lab", 7);
    scene.add(1, 50, waits(&["ssh/lab"], 1));
    let mut lost = waits(&["ssh/lab"], 1);
    lost["state"] = "RECOVERING".into();
    lost["failures"] = 0.into();
    lost["attempts"] =
        json!([{"number": 7, "cluster": "c-7", "ranAt": FAILED, "endedAt": FAILED, "ground": "MachinesLost"}]);
    scene.add(7, 0, lost);
    scene.granted();
    scene.model.pass(100);
    scene.goes("own");
    assert_eq!(scene.granted(), [0; 0], "the machine is for 7, which needs no turn");
    scene.runs(7);
    assert_eq!(scene.granted(), [1], "there may be another");
}

#[test]
fn a_new_control_plane_tries_what_waits() {
    let mut scene = Scene::new();
    for id in 1..=3 {
        scene.add(id, 0, waits(&["ssh/lab"], 1));
    }
    scene.add(4, 0, waits(&[], 1));
    assert_eq!(scene.granted(), [0; 0]);
    scene.turns = JobTurns::default();
    assert_eq!(scene.granted(), [1, 4], "one at each place");
    scene.runs(1);
    assert_eq!(scene.granted(), [2]);
    scene.fails(2);
    assert_eq!(scene.granted(), [0; 0]);
}

#[test]
fn what_becomes_free_during_a_launch_counts_for_it() {
    let mut scene = Scene::new();
    scene.machine("m", "lab", 0);
    scene.machine("n", "lab", 0);
    scene.add(1, 0, waits(&["ssh/lab"], 1));
    scene.granted();
    scene.goes("m");
    assert_eq!(scene.granted(), [1]);
    scene.goes("n");
    assert_eq!(scene.granted(), [0; 0]);
    scene.fails(1);
    scene.model.pass(5);
    assert_eq!(scene.granted(), [1]);
}
