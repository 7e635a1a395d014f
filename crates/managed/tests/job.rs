//! Managed jobs: attempts are made again on evidence, one at a time, and nothing is left at the end.

use api::object::{self, Gvk, Key, Target};
use api::sky::{
    API_VERSION, Ground, ManagedJob, ManagedState as State, ManagedTask, cluster_gvk, keys, launch_gvk, machine_gvk,
    managed_job_gvk,
};
use managed::job::ManagedJobController;
use managed::job_turns::{JobTurns, LAUNCHES_MAX};
use reconcile::testing::Model;
use reconcile::{Propagation, Reconciler, World};
use serde_json::{Value, json};

struct Scene {
    model: Model,
    turns: JobTurns,
}

fn key(name: &str) -> Key {
    Key::new("default", name)
}

fn job_target(name: &str) -> Target {
    Target { gvk: managed_job_gvk(), key: key(name) }
}

impl Scene {
    /// Job 7 with these tasks.
    fn new(tasks: &[Value]) -> Self {
        let mut scene = Self { model: Model::default(), turns: JobTurns::default() };
        scene.submit("tasks", tasks);
        scene.add(7, "tasks", 0);
        scene.run();
        scene
    }

    fn one() -> Self {
        Self::new(&[json!({"name": "train", "task": {"run": "x"}})])
    }

    fn submit(&mut self, name: &str, tasks: &[Value]) {
        let file = json!({"submitted": "2026-01-01-00-00-00-000000", "tasks": tasks});
        self.model.put(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
            "data": {"job": file.to_string()},
        }));
    }

    fn add(&mut self, id: u32, submission: &str, priority: i32) {
        self.model.put(json!({
            "apiVersion": API_VERSION, "kind": "ManagedJob",
            "metadata": {"name": format!("job-{id}"), "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"id": id, "name": "train", "submission": submission, "priority": priority},
        }));
    }

    /// Both controllers, until nothing changes.
    fn run(&mut self) {
        for _ in 0..8 {
            for watch in self.turns.watches() {
                for gvk in [managed_job_gvk(), machine_gvk()] {
                    for object in self.model.list(&gvk, None) {
                        watch.woken_by(&self.turns.primary(), &self.model, &gvk, &object);
                    }
                }
            }
            let turns = Target { gvk: managed_job_gvk(), key: Key::default() };
            if let Some(decision) = self.model.decide(&self.turns, &turns) {
                self.model.execute(&turns, &decision);
            }
            self.model.run(&ManagedJobController, &job_target("job-7"));
        }
    }

    fn job(&self) -> ManagedJob {
        serde_json::from_value((*self.model.one("ManagedJob", "job-7").unwrap()).clone()).unwrap()
    }

    fn task(&self) -> ManagedTask {
        self.job().status.tasks[0].clone()
    }

    fn state(&self) -> State {
        self.job().status.state
    }

    /// What the launcher does: the cluster of the latest attempt with so many machines that run, and its job.
    fn launched(&mut self, machines: usize) {
        let task = self.task();
        let launch = self.model.one("Launch", &format!("job-7-0-{}", task.attempt)).expect("a launch");
        let cluster = task.cluster.clone();
        if self.model.one("Cluster", &cluster).is_none() {
            let owner = launch["metadata"]["ownerReferences"].clone();
            self.model.put(json!({
                "apiVersion": API_VERSION, "kind": "Cluster",
                "metadata": {
                    "name": cluster, "namespace": "default", "finalizers": [keys::LEDGER], "ownerReferences": owner,
                    "labels": {keys::MANAGED_JOB: "job-7", keys::TASK: "0"}, "annotations": {"sky.trainyard.dev/name": cluster},
                },
                "spec": {"nodes": machines, "candidates": [{"provider": "ssh", "region": "pool"}]},
                "status": {"phase": "UP"},
            }));
        }
        let uid = object::uid(&self.model.one("Cluster", &cluster).unwrap()).to_owned();
        for rank in 0..machines {
            let name = format!("{cluster}-0-{rank}");
            if self.model.one("Machine", &name).is_none() {
                self.model.put(json!({
                    "apiVersion": API_VERSION, "kind": "Machine",
                    "metadata": {
                        "name": name, "namespace": "default", "labels": {keys::CLUSTER: cluster}, "finalizers": [keys::LEDGER],
                        "ownerReferences": [{"apiVersion": API_VERSION, "kind": "Cluster", "name": cluster, "uid": uid}],
                    },
                    "spec": {"cluster": cluster, "rank": rank, "candidate": {"provider": "ssh", "region": "pool"}},
                    "status": {"phase": "Running", "id": name, "node": name},
                }));
            }
        }
        let name = launch["metadata"]["name"].as_str().unwrap().to_owned();
        self.model.change(&launch_gvk(), &key(&name), |object| {
            object["status"] = json!({"phase": "Succeeded", "clusterUid": uid, "job": task.attempt});
        });
        self.model.put(json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {
                "name": format!("{cluster}-{}", task.attempt), "namespace": "default",
                "labels": {
                    keys::CLUSTER: cluster, keys::JOB: task.attempt.to_string(), keys::STAGE: "run",
                    keys::MANAGED_JOB: "job-7", keys::TASK: "0", keys::ATTEMPT: task.attempt.to_string(),
                },
                "annotations": {keys::TURN: "2026-01-01T00:00:00Z"},
                "ownerReferences": [{"apiVersion": API_VERSION, "kind": "Cluster", "name": cluster, "uid": uid}],
            },
            "spec": {"replicatedJobs": vec![json!({"name": "head"}); machines]},
        }));
        self.run();
    }

    fn set(&self) -> String {
        let task = self.task();
        format!("{}-{}", task.cluster, task.attempt)
    }

    /// The latest job ends with this condition; its first rank exits with this code.
    fn ends(&mut self, condition: &str, code: i64) {
        let (set, gvk) = (self.set(), Gvk::new("jobset.x-k8s.io", "v1alpha2", "JobSet"));
        let uid = object::uid(&self.model.one("JobSet", &set).unwrap()).to_owned();
        let job = self.model.put(json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": set, "namespace": "default", "ownerReferences": [{"kind": "JobSet", "name": set, "uid": uid}]},
        }));
        self.model.put(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": set, "namespace": "default",
                "labels": {"jobset.sigs.k8s.io/jobset-name": set, "jobset.sigs.k8s.io/replicatedjob-name": "head"},
                "ownerReferences": [{"kind": "Job", "name": set, "uid": object::uid(&job)}],
            },
            "status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": code}}}]},
        }));
        self.model.change(&gvk, &key(&set), |object| {
            object["status"]["conditions"] = json!([{"type": condition, "status": "True",
                "lastTransitionTime": "2026-01-01T00:00:10Z"}]);
        });
        self.run();
    }

    /// The providers have answered.
    fn answered(&mut self) {
        for machine in self.model.all("Machine") {
            let key = Key::of(&machine);
            self.model.change(&machine_gvk(), &key, |object| {
                object["metadata"]["annotations"] = json!({});
            });
        }
        self.run();
    }

    fn lose(&mut self, rank: usize) {
        let name = format!("{}-0-{rank}", self.task().cluster);
        self.model.change(&machine_gvk(), &key(&name), |object| {
            object["status"]["phase"] = "Lost".into();
            object["status"]["message"] = "its claim is gone".into();
        });
        self.run();
    }

    /// The cluster has gone, with what it owned.
    fn cluster_goes(&mut self, name: &str) {
        let target = Target { gvk: cluster_gvk(), key: key(name) };
        self.model.change(&cluster_gvk(), &key(name), |object| object["metadata"]["finalizers"] = json!([]));
        self.model.delete(&target, Propagation::Background, None);
        for machine in self.model.all("Machine") {
            if object::meta(&machine, "name").starts_with(name) {
                self.model
                    .change(&machine_gvk(), &Key::of(&machine), |object| object["metadata"]["finalizers"] = json!([]));
                self.model.delete(&Target::of(&machine), Propagation::Background, None);
            }
        }
        self.launches_go();
        self.run();
    }

    /// The launcher lets go of launches that were deleted.
    fn launches_go(&mut self) {
        for launch in self.model.all("Launch") {
            if object::is_terminating(&launch) {
                self.model
                    .change(&launch_gvk(), &Key::of(&launch), |object| object["metadata"]["finalizers"] = json!([]));
            }
        }
    }

    fn is_ending(&self, kind: &str, name: &str) -> bool {
        self.model.one(kind, name).is_none_or(|object| object::is_terminating(&object))
    }
}

#[test]
fn a_job_runs_and_leaves_nothing() {
    let mut scene = Scene::one();
    assert_eq!((scene.state(), scene.task().attempt), (State::Starting, 1));
    let launch = scene.model.one("Launch", "job-7-0-1").unwrap();
    assert_eq!(launch["spec"]["cluster"], "train-7-0-1");
    assert_eq!(launch["spec"]["managed"]["taskId"], "sky-managed-2026-01-01-00-00-00-000000_train_7-0");
    scene.launched(1);
    assert_eq!(scene.state(), State::Running);
    scene.model.pass(10);
    scene.ends("Completed", 0);
    assert_eq!(scene.state(), State::Succeeded);
    assert_eq!(scene.task().attempts[0].place, "ssh/pool");
    assert!(!scene.is_ending("Cluster", "train-7-0-1"), "its output is not kept yet");
    let (set, gvk) = (scene.set(), Gvk::new("jobset.x-k8s.io", "v1alpha2", "JobSet"));
    scene.model.change(&gvk, &key(&set), |object| {
        object["metadata"]["annotations"][keys::OUTPUT_KEPT] = "true".into();
    });
    scene.run();
    assert!(scene.is_ending("Cluster", "train-7-0-1") && scene.is_ending("Launch", "job-7-0-1"));
}

#[test]
fn output_that_nobody_keeps_is_not_waited_for() {
    let mut scene = Scene::one();
    scene.launched(1);
    scene.ends("Completed", 0);
    scene.model.pass(31);
    scene.run();
    assert!(scene.is_ending("Cluster", "train-7-0-1"));
}

#[test]
fn lost_machines_lead_to_another_attempt_once_they_are_gone() {
    let mut scene = Scene::one();
    scene.launched(1);
    scene.lose(0);
    assert_eq!(scene.state(), State::Recovering);
    assert_eq!(scene.task().attempt, 1, "the last attempt is not fenced");
    assert!(scene.is_ending("Cluster", "train-7-0-1"));
    scene.cluster_goes("train-7-0-1");
    let task = scene.task();
    assert_eq!((task.attempt, task.recoveries, task.restarts), (2, 1, 0));
    assert_eq!(task.attempts[0].ground, Ground::MachinesLost);
    assert_eq!(task.attempts[0].evidence, "ssh reports the end of machine train-7-0-1-0-0: its claim is gone");
    let launch = scene.model.one("Launch", "job-7-0-2").unwrap();
    let managed = &launch["spec"]["managed"];
    assert_eq!(managed["lastPlace"], "ssh/pool", "another region comes first");
    assert_eq!(managed["taskId"], "sky-managed-2026-01-01-00-00-00-000000_train_7-0");
    scene.launched(1);
    assert_eq!(scene.state(), State::Running);
    assert!(!scene.task().recovered_at.is_empty());
}

#[test]
fn one_machine_of_two_is_replaced_and_the_other_stays() {
    let mut scene = Scene::one();
    scene.launched(2);
    scene.lose(1);
    assert_eq!((scene.state(), scene.task().attempt), (State::Recovering, 1));
    assert!(!scene.is_ending("Cluster", "train-7-0-1"));
    assert!(scene.is_ending("Machine", "train-7-0-1-0-1") && !scene.is_ending("Machine", "train-7-0-1-0-0"));
    let set = scene.model.one("JobSet", "train-7-0-1-1").unwrap();
    assert!(set["spec"]["suspend"] == true && object::annotation(&set, keys::ENDED).is_some());
    assert_eq!(scene.task().attempt, 1, "the machine is not gone yet");
    let target = Target { gvk: machine_gvk(), key: key("train-7-0-1-0-1") };
    scene.model.change(&machine_gvk(), &target.key, |object| object["metadata"]["finalizers"] = json!([]));
    scene.launches_go();
    scene.run();
    let task = scene.task();
    assert_eq!((task.attempt, task.cluster.as_str()), (2, "train-7-0-1"));
    scene.launched(2);
    assert_eq!(scene.state(), State::Running);
}

#[test]
fn a_failure_is_believed_once_the_providers_have_answered() {
    let mut scene = Scene::one();
    scene.launched(1);
    scene.ends("Failed", 3);
    let asked = scene.model.one("Machine", "train-7-0-1-0-0").unwrap();
    assert_eq!(object::annotation(&asked, keys::REFRESH), Some("true"));
    assert_eq!(scene.state(), State::Running);
    scene.answered();
    assert_eq!(scene.state(), State::Failed);
    assert_eq!(scene.task().message, "run failed; exit codes by rank: 3");
    // where the answer is that the machine is gone, that explains it
    let mut scene = Scene::one();
    scene.launched(1);
    scene.ends("Failed", 143);
    scene.lose(0);
    assert_eq!(scene.state(), State::Recovering);
}

#[test]
fn processes_that_went_with_their_supervisor_are_not_blamed() {
    let mut scene = Scene::one();
    scene.launched(1);
    let (set, pods) = (scene.set(), Gvk::new("", "v1", "Pod"));
    scene.ends("Failed", 137);
    scene.model.change(&pods, &key(&set), |pod| {
        pod["status"]["reason"] = "SupervisorLost".into();
        pod["status"]["message"] = "the supervisor was killed".into();
    });
    scene.answered();
    scene.launches_go();
    scene.run();
    let task = scene.task();
    assert_eq!((task.attempt, task.restarts, task.attempts[0].ground), (2, 0, Ground::Interrupted));
    assert_eq!(task.cluster, "train-7-0-1");
}

#[test]
fn failures_count_unless_their_exit_code_is_named() {
    let recovery = json!({"maxRestartsOnErrors": 1, "recoverOnExitCodes": [33]});
    let mut scene = Scene::new(&[json!({"task": {"run": "x"}, "recovery": recovery})]);
    for (attempt, code, restarts) in [(1, 33, 0), (2, 1, 1), (3, 33, 1)] {
        scene.launched(1);
        scene.ends("Failed", code);
        scene.answered();
        scene.launches_go();
        scene.run();
        let task = scene.task();
        assert_eq!((task.attempt, task.restarts, task.state), (attempt + 1, restarts, State::Recovering), "{code}");
        assert_eq!(task.cluster, "train-7-0-1", "its machines are well");
    }
    scene.launched(1);
    scene.ends("Failed", 1);
    scene.answered();
    assert_eq!((scene.state(), scene.task().recoveries), (State::Failed, 3));
}

#[test]
fn what_cannot_be_seen_is_no_ground() {
    let mut scene = Scene::one();
    scene.launched(1);
    scene.model.put(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "train-7-0-1-0-0"},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
    }));
    let name = key("train-7-0-1-0-0");
    scene.model.change(&machine_gvk(), &name, |object| object["status"]["failures"] = 9.into());
    scene.model.pass(86_400);
    scene.run();
    assert_eq!((scene.state(), scene.task().attempt), (State::Running, 1));
    assert!(scene.task().message.starts_with("machine train-7-0-1-0-0 does not report"));
}

#[test]
fn no_room_is_tried_again_and_a_refusal_ends_the_job() {
    let mut scene = Scene::one();
    let fails = |scene: &mut Scene, message: &str, uid: &str| {
        let name = format!("job-7-0-{}", scene.task().attempt);
        scene.model.change(&launch_gvk(), &key(&name), |object| {
            object["status"] = json!({"phase": "Failed", "message": message, "clusterUid": uid});
        });
        scene.run();
    };
    fails(&mut scene, "sky.exceptions.ResourcesUnavailableError: full", "gone");
    assert_eq!((scene.state(), scene.task().failures), (State::Pending, 1));
    scene.launches_go();
    scene.run();
    assert_eq!(scene.task().attempt, 1, "not before its time");
    scene.model.pass(61);
    scene.run();
    assert_eq!((scene.state(), scene.task().attempt), (State::Starting, 2));
    fails(&mut scene, "sky.exceptions.NotSupportedError: no", "");
    assert_eq!(scene.state(), State::FailedPrechecks);
    assert!(scene.task().message.ends_with(": no"));
}

#[test]
fn a_cancelled_job_never_starts_again() {
    for stage in 0..4 {
        let mut scene = Scene { model: Model::default(), turns: JobTurns::default() };
        scene.submit("tasks", &[json!({"task": {"run": "x"}}), json!({"task": {"run": "y"}})]);
        scene.add(7, "tasks", 0);
        if stage > 0 {
            scene.run();
        }
        if stage > 1 {
            scene.launched(1);
        }
        if stage > 2 {
            scene.lose(0);
        }
        scene.model.change(&managed_job_gvk(), &key("job-7"), |object| object["spec"]["cancel"] = true.into());
        scene.run();
        scene.launches_go();
        if scene.model.one("Cluster", "train-7-0-1").is_some() {
            assert_eq!(scene.state(), State::Cancelling, "stage {stage}");
            scene.cluster_goes("train-7-0-1");
        }
        scene.run();
        let states: Vec<State> = scene.job().status.tasks.iter().map(|task| task.state).collect();
        assert_eq!(states, [State::Cancelled, State::Cancelled], "stage {stage}");
        scene.model.change(&managed_job_gvk(), &key("job-7"), |object| object["spec"]["cancel"] = false.into());
        scene.model.pass(1000);
        scene.run();
        assert_eq!(scene.state(), State::Cancelled, "stage {stage}");
        assert!(scene.model.all("Launch").is_empty() && scene.model.all("Cluster").is_empty(), "stage {stage}");
    }
}

#[test]
fn no_recovery_means_none() {
    let mut scene = Scene::new(&[json!({"task": {"run": "x"}, "recovery": {"strategy": "None"}})]);
    scene.launched(1);
    scene.lose(0);
    assert_eq!(scene.state(), State::Failed);
    assert!(scene.task().message.ends_with("because job_recovery is none"));
}

#[test]
fn a_removed_cluster_is_the_word_of_a_person() {
    let mut scene = Scene::one();
    scene.launched(1);
    scene.cluster_goes("train-7-0-1");
    scene.launches_go();
    scene.run();
    let task = scene.task();
    assert_eq!((task.attempt, task.state, task.attempts[0].ground), (2, State::Recovering, Ground::Asked));
}

#[test]
fn tasks_run_one_after_another_until_one_fails() {
    let mut scene =
        Scene::new(&[json!({"isEmpty": true}), json!({"task": {"run": "y"}}), json!({"task": {"run": "z"}})]);
    let states = |scene: &Scene| scene.job().status.tasks.iter().map(|task| task.state).collect::<Vec<_>>();
    assert_eq!(states(&scene), [State::Succeeded, State::Starting, State::Pending]);
    scene.model.change(&launch_gvk(), &key("job-7-1-1"), |object| {
        object["status"] = json!({"phase": "Failed", "message": "ValueError: no"});
    });
    scene.run();
    assert_eq!(states(&scene), [State::Succeeded, State::FailedPrechecks, State::Cancelled]);
    assert_eq!(scene.state(), State::FailedPrechecks);
}

#[test]
fn a_job_without_its_tasks_says_so() {
    let mut scene = Scene { model: Model::default(), turns: JobTurns::default() };
    scene.add(7, "tasks", 0);
    scene.run();
    assert_eq!(scene.job().status.tasks.len(), 0, "the view may lag");
    scene.model.pass(61);
    scene.run();
    assert_eq!(scene.state(), State::FailedPrechecks);
    assert_eq!(
        scene.task().message,
        "ConfigMap tasks with the tasks of the job does not exist; submit the job again with sky jobs launch"
    );
}

#[test]
fn turns_go_by_priority_then_by_number() {
    let mut scene = Scene { model: Model::default(), turns: JobTurns::default() };
    scene.submit("tasks", &[json!({"task": {"run": "x"}})]);
    let many = u32::try_from(LAUNCHES_MAX).unwrap();
    for id in 1..=many + 2 {
        scene.add(id, "tasks", if id == many + 2 { 5 } else { 0 });
    }
    let all = Target { gvk: managed_job_gvk(), key: Key::default() };
    let decision = scene.model.decide(&scene.turns, &all).unwrap();
    assert_eq!(decision.writes.len(), LAUNCHES_MAX);
    scene.model.execute(&all, &decision);
    let turn = |scene: &Scene, id: u32| {
        scene.model.one("ManagedJob", &format!("job-{id}")).unwrap()["status"]["turn"].as_u64()
    };
    assert_eq!([turn(&scene, many + 2), turn(&scene, 1)], [Some(1), Some(1)]);
    assert_eq!([turn(&scene, many), turn(&scene, many + 1)], [None, None], "the last ones wait");
    assert!(scene.model.decide(&scene.turns, &all).unwrap().is_silent());
    // one that runs leaves its place
    scene.model.change(&managed_job_gvk(), &key("job-1"), |object| {
        object["status"]["tasks"] = json!([{"state": "RUNNING", "attempt": 1}]);
    });
    for watch in scene.turns.watches() {
        let changed = scene.model.one("ManagedJob", "job-1").unwrap();
        watch.woken_by(&scene.turns.primary(), &scene.model, &managed_job_gvk(), &changed);
    }
    let decision = scene.model.decide(&scene.turns, &all).unwrap();
    scene.model.execute(&all, &decision);
    assert_eq!(turn(&scene, many), Some(1));
}
