//! Pools: which worker a job gets, what the end of a worker means for it, and how many workers there are.

use api::object::{self, Gvk, Key, Target};
use api::sky::{
    API_VERSION, FleetStatus, Ground, ManagedJob, ManagedState as State, ReplicaState, keys, launch_gvk, machine_gvk,
    managed_job_gvk, pool_gvk,
};
use managed::fleet::{FleetController, FleetKind};
use managed::job::ManagedJobController;
use managed::pool_turns::PoolTurns;
use reconcile::Propagation;
use reconcile::testing::Model;
use serde_json::{Value, json};

struct Scene(Model);

fn key(name: &str) -> Key {
    Key::new("default", name)
}

fn pool() -> Target {
    Target { gvk: pool_gvk(), key: key("warm") }
}

fn jobset() -> Gvk {
    Gvk::new("jobset.x-k8s.io", "v1alpha2", "JobSet")
}

impl Scene {
    /// Pool `warm` with this section; its workers are not ready yet.
    fn new(section: Value) -> Self {
        let mut scene = Self(Model::default());
        scene.file("v1", json!({"task": {"setup": "x"}, "service": {"pool": section}}));
        scene.file("jobs", json!({"name": "train", "task": {"run": "x"}}));
        scene.0.put(json!({
            "apiVersion": API_VERSION, "kind": "Pool",
            "metadata": {
                "name": "warm", "namespace": "default", "finalizers": [keys::LEDGER],
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"name": "warm", "version": 1, "submission": "v1"},
        }));
        scene.run();
        scene
    }

    /// The same with so many workers that are ready.
    fn warm(workers: u32) -> Self {
        let mut scene = Self::new(json!({"workers": workers}));
        (1..=workers).for_each(|number| scene.ready(number));
        scene
    }

    fn file(&mut self, name: &str, task: Value) {
        let file = json!({"submitted": "2026-01-01-00-00-00-000000", "count": 3, "tasks": [task]});
        self.0.put(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
            "data": {"job": file.to_string()},
        }));
    }

    /// All controllers, until nothing changes.
    fn run(&mut self) {
        for _ in 0..6 {
            self.0.run(&FleetController(FleetKind::Pool), &pool());
            let turns = Target { gvk: managed_job_gvk(), key: Key::default() };
            // a new copy looks at everything
            if let Some(decision) = self.0.decide(&PoolTurns::default(), &turns) {
                self.0.execute(&turns, &decision);
            }
            for job in self.0.all("ManagedJob").iter().filter(|job| !job["spec"]["pool"].is_null()) {
                self.0.run(&ManagedJobController, &Target::of(job));
            }
        }
    }

    fn status(&self) -> FleetStatus {
        serde_json::from_value(self.0.one("Pool", "warm").unwrap()["status"].clone()).unwrap()
    }

    fn workers(&self) -> Vec<(u32, u32, ReplicaState)> {
        self.status().replicas.iter().map(|one| (one.number, one.version, one.state)).collect()
    }

    /// The machines of a worker run, and it is set up.
    fn ready(&mut self, number: u32) {
        let (name, cluster) = (format!("pool-warm-{number}"), format!("warm-{number}"));
        let job = self.0.one("ManagedJob", &name).expect("a job");
        assert_eq!(job["spec"]["replica"]["holds"], true);
        let owner = json!([{"apiVersion": API_VERSION, "kind": "ManagedJob", "name": name, "uid": object::uid(&job)}]);
        let made = self.0.put(json!({
            "apiVersion": API_VERSION, "kind": "Cluster",
            "metadata": {
                "name": cluster, "namespace": "default", "ownerReferences": owner,
                "labels": {keys::MANAGED_JOB: name, keys::TASK: "0"}, "annotations": {"sky.trainyard.dev/name": cluster},
            },
            "spec": {"nodes": 1, "candidates": [{"provider": "ssh", "region": "lab", "cpus": 8, "accelerators": {"name": "A100", "count": 4}}]},
            "status": {"phase": "UP", "nodes": [{"machine": cluster, "node": cluster, "address": "10.0.0.1"}]},
        }));
        self.0.put(json!({
            "apiVersion": API_VERSION, "kind": "Machine",
            "metadata": {
                "name": cluster, "namespace": "default", "labels": {keys::CLUSTER: cluster},
                "ownerReferences": [{"kind": "Cluster", "name": cluster, "uid": object::uid(&made)}],
            },
            "spec": {"cluster": cluster, "rank": 0, "candidate": {"provider": "ssh", "region": "lab"}},
            "status": {"phase": "Running", "id": cluster, "node": cluster},
        }));
        self.worker(number, json!({"state": "RUNNING", "tasks": [{"state": "RUNNING", "cluster": cluster}]}));
    }

    /// The job of a worker comes to this status.
    fn worker(&mut self, number: u32, status: Value) {
        let name = format!("pool-warm-{number}");
        self.0.change(&managed_job_gvk(), &key(&name), |object| object["status"] = status);
        self.run();
    }

    /// The cluster of a worker that was cancelled goes, and its job has ended.
    fn worker_goes(&mut self, number: u32, status: Value) {
        let cluster = format!("warm-{number}");
        self.0.delete(&Target { gvk: api::sky::cluster_gvk(), key: key(&cluster) }, Propagation::Background, None);
        for kind in ["JobSet", "Machine"] {
            for object in self.0.all(kind) {
                if object::label(&object, keys::CLUSTER) == Some(&cluster) {
                    self.0.delete(&Target::of(&object), Propagation::Background, None);
                }
            }
        }
        self.worker(number, status);
    }

    fn submit(&mut self, id: u32, submission: &str, priority: i32) {
        self.0.put(json!({
            "apiVersion": API_VERSION, "kind": "ManagedJob",
            "metadata": {"name": format!("job-{id}"), "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"id": id, "name": "train", "submission": submission, "priority": priority, "pool": "warm", "rank": id},
        }));
        self.run();
    }

    fn job(&self, id: u32) -> ManagedJob {
        serde_json::from_value((*self.0.one("ManagedJob", &format!("job-{id}")).unwrap()).clone()).unwrap()
    }

    fn state(&self, id: u32) -> State {
        self.job(id).status.state
    }

    /// The worker of each job, 0 for those that wait.
    fn given(&self, ids: impl IntoIterator<Item = u32>) -> Vec<u32> {
        ids.into_iter().map(|id| self.job(id).status.worker).collect()
    }

    fn attempt(&self, id: u32) -> (u32, String) {
        let task = &self.job(id).status.tasks[0];
        (task.attempt, task.cluster.clone())
    }

    /// The launcher has submitted the job of the latest attempt, and it runs.
    fn runs(&mut self, id: u32) {
        let (attempt, cluster) = self.attempt(id);
        let name = format!("job-{id}-0-{attempt}");
        let launch = self.0.one("Launch", &name).expect("a launch");
        assert_eq!((&launch["spec"]["onExisting"], &launch["spec"]["cluster"]), (&json!(true), &json!(cluster)));
        let uid = object::uid(&self.0.one("Cluster", &cluster).unwrap()).to_owned();
        self.0.change(&launch_gvk(), &key(&name), |object| {
            object["status"] = json!({"phase": "Succeeded", "clusterUid": uid, "job": id});
        });
        let set = format!("{cluster}-{id}-{attempt}");
        self.0.put(json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {
                "name": set, "namespace": "default", "ownerReferences": [{"kind": "Cluster", "name": cluster, "uid": uid}],
                "labels": {
                    keys::CLUSTER: cluster, keys::JOB: id.to_string(), keys::STAGE: "run",
                    keys::MANAGED_JOB: format!("job-{id}"), keys::TASK: "0", keys::ATTEMPT: attempt.to_string(),
                },
                "annotations": {keys::TURN: "2026-01-01T00:00:00Z"},
            },
            "spec": {"replicatedJobs": [{"name": "head"}]},
        }));
        self.0.put(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": set, "namespace": "default", "labels": {
                keys::CLUSTER: cluster, keys::MANAGED_JOB: format!("job-{id}"), keys::TASK: "0",
            }},
            "spec": {"nodeName": cluster}, "status": {"phase": "Running"},
        }));
        self.run();
        assert_eq!(self.state(id), State::Running, "{:?} {:?}", self.job(id).status, self.status());
    }

    fn set(&self, id: u32) -> String {
        let (attempt, cluster) = self.attempt(id);
        format!("{cluster}-{id}-{attempt}")
    }

    fn pod_ends(&mut self, name: &str, phase: &str) {
        self.0.change(&Gvk::new("", "v1", "Pod"), &key(name), |object| object["status"]["phase"] = phase.into());
    }

    fn succeeds(&mut self, id: u32) {
        let set = self.set(id);
        self.pod_ends(&set, "Succeeded");
        self.0.change(&jobset(), &key(&set), |object| {
            object["status"]["conditions"] = json!([{"type": "Completed", "status": "True",
                "lastTransitionTime": "2026-01-01T00:00:10Z"}]);
            object["metadata"]["annotations"][keys::OUTPUT_KEPT] = "true".into();
        });
        self.run();
        assert_eq!(self.state(id), State::Succeeded);
    }

    fn launches_go(&mut self) {
        for launch in self.0.all("Launch").iter().filter(|launch| object::is_terminating(launch)) {
            self.0.change(&launch_gvk(), &Key::of(launch), |object| object["metadata"]["finalizers"] = json!([]));
        }
        self.run();
    }

    fn lose(&mut self, worker: u32) {
        self.0.change(&machine_gvk(), &key(&format!("warm-{worker}")), |object| {
            object["status"]["phase"] = "Lost".into();
            object["status"]["message"] = "its claim is gone".into();
        });
        self.run();
    }
}

#[test]
fn jobs_wait_for_workers_by_priority_and_leave_nothing() {
    let mut scene = Scene::warm(2);
    (1..=4).for_each(|id| scene.submit(id, "jobs", if id == 4 { 5 } else { 0 }));
    assert_eq!(scene.given(1..=4), [1, 2, 0, 0]);
    assert_eq!(scene.state(3), State::Pending);
    let load = scene.status().load;
    assert_eq!((load.held, load.backends.iter().map(|one| one.in_flight).collect::<Vec<_>>()), (2, vec![1, 1]));
    scene.runs(1);
    let launch = scene.0.one("Launch", "job-1-0-1").unwrap();
    let env = &launch["spec"]["managed"]["env"];
    assert_eq!((&env["SKYPILOT_JOB_RANK"], &env["SKYPILOT_NUM_JOBS"]), (&json!("1"), &json!("3")));
    scene.succeeds(1);
    assert!(scene.0.one("JobSet", "warm-1-1-1").is_none(), "its output is kept");
    assert_eq!(scene.given(1..=4), [1, 2, 0, 1], "the highest priority is next");
    scene.launches_go();
    assert!(scene.0.one("Launch", "job-1-0-1").is_none());
    assert!(scene.0.one("Cluster", "warm-1").is_some());
}

#[test]
fn a_worker_that_dies_delays_only_its_own_job() {
    let mut scene = Scene::warm(2);
    (1..=3).for_each(|id| scene.submit(id, "jobs", 0));
    scene.runs(1);
    scene.runs(2);
    scene.lose(1);
    let job = scene.job(1);
    let attempt = &job.status.tasks[0].attempts[0];
    assert_eq!((job.status.state, attempt.ground), (State::Recovering, Ground::MachinesLost));
    assert_eq!(attempt.evidence, "ssh reports the end of machine warm-1: its claim is gone");
    assert_eq!((scene.state(2), scene.state(3)), (State::Running, State::Pending));
    scene.worker(1, json!({"state": "FAILED", "tasks": [{"state": "FAILED", "cluster": "warm-1", "attempts": [
        {"number": 1, "ground": "MachinesLost", "endedAt": "2026-01-01T00:00:00Z", "evidence": "its claim is gone"}]}]}));
    assert_eq!(scene.workers()[1..], [(2, 1, ReplicaState::Ready), (3, 1, ReplicaState::Pending)]);
    scene.launches_go();
    // the first in line again
    scene.succeeds(2);
    assert_eq!(scene.given([1, 3]), [2, 0]);
    assert_eq!(scene.attempt(1), (2, "warm-2".to_owned()));
    assert_eq!(scene.job(1).status.recoveries, 1);
}

#[test]
fn a_job_whose_worker_went_before_it_ran_waits_again() {
    let mut scene = Scene::warm(1);
    scene.submit(1, "jobs", 0);
    let ended = json!({"state": "CANCELLED", "tasks": [{"state": "CANCELLED", "cluster": "warm-1", "attempts": [
        {"number": 1, "ground": "Asked", "endedAt": "2026-01-01T00:00:00Z", "evidence": "the job was cancelled"}]}]});
    scene.0.change(&launch_gvk(), &key("job-1-0-1"), |object| {
        object["status"] = json!({"phase": "Failed", "message": "sky.exceptions.ClusterDoesNotExist: Cluster 'warm-1' does not exist."});
    });
    scene.worker_goes(1, ended);
    let job = scene.job(1);
    assert_eq!((job.status.state, job.status.recoveries), (State::Pending, 0));
    let attempt = &job.status.tasks[0].attempts[0];
    assert_eq!(attempt.evidence, "worker 1 of pool warm was terminated");
    scene.launches_go();
    scene.ready(2);
    scene.0.pass(2);
    scene.run();
    assert_eq!(scene.attempt(1), (2, "warm-2".to_owned()));
}

#[test]
fn the_next_attempt_waits_until_the_processes_of_the_last_one_have_ended() {
    let mut scene = Scene::warm(2);
    scene.file("again", json!({"name": "t", "task": {"run": "x"}, "recovery": {"maxRestartsOnErrors": 1}}));
    scene.submit(1, "again", 0);
    scene.runs(1);
    let set = scene.set(1);
    scene.0.change(&jobset(), &key(&set), |object| {
        object["status"]["conditions"] = json!([{"type": "Failed", "status": "True",
            "lastTransitionTime": "2026-01-01T00:00:10Z"}]);
    });
    scene.run();
    // the providers are asked, and answer
    scene.0.change(&machine_gvk(), &key("warm-1"), |object| object["metadata"]["annotations"] = json!({}));
    scene.0.pass(700);
    scene.run();
    scene.launches_go();
    assert_eq!((scene.state(1), scene.attempt(1).0), (State::Recovering, 1), "a rank still runs");
    scene.pod_ends(&set, "Failed");
    scene.run();
    assert_eq!(scene.attempt(1).0, 2);
    assert_eq!(scene.job(1).status.tasks[0].restarts, 1);
}

#[test]
fn a_job_that_is_cancelled_has_ended_when_its_processes_have() {
    let mut scene = Scene::warm(1);
    (1..=2).for_each(|id| scene.submit(id, "jobs", 0));
    scene.runs(1);
    scene.0.change(&managed_job_gvk(), &key("job-1"), |object| object["spec"]["cancel"] = true.into());
    scene.run();
    scene.launches_go();
    assert_eq!(scene.state(1), State::Cancelling);
    assert_eq!(scene.given([2]), [0], "the worker is not free");
    let set = scene.0.one("JobSet", "warm-1-1-1").unwrap();
    assert!(object::annotation(&set, keys::ENDED).unwrap().starts_with("CANCELLED"));
    scene.pod_ends("warm-1-1-1", "Failed");
    scene.run();
    assert_eq!((scene.state(1), scene.given([2])), (State::Cancelled, vec![1]));
    assert!(scene.0.one("Cluster", "warm-1").is_some());
}

#[test]
fn small_jobs_share_a_worker_and_none_passes_a_large_one() {
    let mut scene = Scene::warm(1);
    let share = |cpus: f64, gpus: f64| json!([{"cpus": cpus, "gpus": {"name": "a100", "count": gpus}}]);
    scene.file("small", json!({"task": {"run": "x"}, "shares": share(2.0, 1.0)}));
    scene.file("large", json!({"task": {"run": "x"}, "shares": share(0.0, 3.0)}));
    scene.submit(1, "small", 0);
    scene.submit(2, "small", 0);
    scene.submit(3, "large", 0);
    scene.submit(4, "small", 0);
    assert_eq!(scene.given(1..=4), [1, 1, 0, 0]);
    scene.runs(1);
    scene.succeeds(1);
    assert_eq!(scene.given(3..=4), [1, 0], "3 of 4 GPUs are left, and then none");
    // what fits nowhere is given to a worker, which refuses it
    let mut scene = Scene::warm(1);
    scene.file("huge", json!({"task": {"run": "x"}, "shares": share(0.0, 8.0)}));
    scene.submit(1, "huge", 0);
    assert_eq!(scene.given([1]), [1]);
}

#[test]
fn jobs_of_a_pool_that_is_deleted_fail_with_it() {
    let mut scene = Scene::warm(1);
    (1..=2).for_each(|id| scene.submit(id, "jobs", 0));
    scene.runs(1);
    scene.0.delete(&pool(), Propagation::Background, None);
    scene.run();
    scene.launches_go();
    assert_eq!(scene.state(2), State::FailedNoResource);
    assert_eq!(
        scene.job(2).status.tasks[0].message,
        "pool warm was deleted; `sky jobs pool status` lists the pools that there are"
    );
    assert_eq!(scene.state(1), State::Running, "its processes have not ended");
    assert_eq!(scene.0.one("ManagedJob", "pool-warm-1").unwrap()["spec"]["cancel"], true);
    scene.worker_goes(1, json!({"state": "CANCELLED"}));
    scene.0.delete(&Target { gvk: Gvk::new("", "v1", "Pod"), key: key("warm-1-1-1") }, Propagation::Background, None);
    scene.run();
    assert_eq!(scene.state(1), State::FailedNoResource);
    assert!(scene.0.one("Pool", "warm").is_none());
}

#[test]
fn a_pool_scales_by_the_jobs_that_wait_and_ends_idle_workers_only() {
    let section = json!({"min_workers": 0, "max_workers": 2, "queue_length_threshold": 1,
        "upscale_delay_seconds": 0, "downscale_delay_seconds": 20});
    let mut scene = Scene::new(section);
    assert_eq!(scene.workers(), []);
    scene.submit(1, "jobs", 0);
    assert_eq!(scene.workers(), [(1, 1, ReplicaState::Pending)], "one job is enough for the first worker");
    scene.ready(1);
    assert_eq!(scene.given([1]), [1]);
    (2..=4).for_each(|id| scene.submit(id, "jobs", 0));
    scene.0.pass(21);
    scene.run();
    assert_eq!(scene.workers().len(), 2);
    scene.ready(2);
    assert_eq!(scene.given(1..=4), [1, 2, 0, 0]);
    (1..=4).for_each(|id| {
        scene.runs(id);
        scene.succeeds(id);
        scene.0.pass(2);
        scene.run();
    });
    for _ in 0..4 {
        scene.0.pass(21);
        scene.run();
    }
    assert!(scene.status().replicas.iter().all(|one| one.is_ending), "{:?}", scene.workers());
}

#[test]
fn a_worker_of_an_old_version_ends_after_its_jobs() {
    let mut scene = Scene::warm(1);
    scene.submit(1, "jobs", 0);
    scene.runs(1);
    let update = |scene: &mut Scene, version: u32, task: Value| {
        let name = format!("v{version}");
        scene.file(&name, task);
        scene.0.change(&pool_gvk(), &pool().key, |object| {
            object["spec"]["version"] = version.into();
            object["spec"]["submission"] = name.as_str().into();
        });
        scene.run();
    };
    // nothing but the number of workers has changed
    update(&mut scene, 2, json!({"task": {"setup": "x"}, "service": {"pool": {"workers": 1, "x": 1}}}));
    assert_eq!(scene.workers(), [(1, 2, ReplicaState::Ready)]);
    update(&mut scene, 3, json!({"task": {"setup": "y"}, "service": {"pool": {"workers": 1}}}));
    assert_eq!(scene.workers(), [(1, 2, ReplicaState::Ready), (2, 3, ReplicaState::Pending)]);
    scene.ready(2);
    scene.0.pass(2);
    scene.run();
    assert_eq!(scene.status().replicas[0].message, "1 job on it goes on to its end");
    scene.submit(2, "jobs", 0);
    scene.submit(3, "jobs", 0);
    assert_eq!(scene.given(2..=3), [2, 0], "the old worker gets no more jobs");
    scene.succeeds(1);
    scene.0.pass(2);
    scene.run();
    assert_eq!(scene.0.one("ManagedJob", "pool-warm-1").unwrap()["spec"]["cancel"], true);
}
