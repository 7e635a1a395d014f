//! Launches under crashes: whatever is lost between a step and its note, a launch comes to one job, or to nothing.

use api::object;
use api::sky::{Cluster, Launch, LaunchPhase, LaunchSpec, LaunchStatus, keys};
use jiff::Timestamp;
use managed::jobs::{Job, jobs};
use managed::launch::step::{Seen, Step, is_left, job_of, sent, step, submitted, taken};
use managed::launch::{self, By, job};
use placement::Catalogue;
use proptest::prelude::*;
use serde_json::{Value, json};
use sky::{File, Given, Reader, Task};
use std::collections::BTreeSet;

fn task(text: &str) -> Task {
    let read = File::read(text, &Given::default(), Reader::Client, &Catalogue::default()).unwrap();
    read.tasks.into_iter().next().unwrap()
}

/// An API server and a provider, as far as launches need them.
struct World {
    launch: Option<Launch>,
    cluster: Option<Value>,
    jobsets: Vec<Value>,
    /// How many Clusters were made.
    made: usize,
    task: Task,
}

impl World {
    fn new(task: Task) -> Self {
        let spec = LaunchSpec { files: vec![api::sky::LaunchFiles::default()], ..LaunchSpec::default() };
        let object = launch::launch("dev", &task, spec, &Catalogue::default());
        let mut launch: Launch = serde_json::from_value(object).unwrap();
        launch.metadata.uid = Some("launch".to_owned());
        Self { launch: Some(launch), cluster: None, jobsets: Vec::new(), made: 0, task }
    }

    fn jobs(&self) -> Vec<Job> {
        jobs(&self.jobsets)
    }

    fn make_cluster(&mut self) {
        self.made += 1;
        let by = By { user: "u", command: "sky launch" };
        let mut cluster = launch::cluster("dev", &self.task, vec![api::sky::Candidate::default()], &by);
        cluster["metadata"]["uid"] = format!("cluster-{}", self.made).into();
        cluster["metadata"]["generation"] = 1.into();
        cluster["metadata"]["annotations"][keys::LAUNCH] = "launch".into();
        self.cluster = Some(cluster);
    }

    /// One look of the control plane, which may crash before it notes what it did.
    fn look(&mut self, crashes: bool) {
        let Some(launch) = self.launch.clone() else { return };
        let read: Option<Cluster> = self.cluster.clone().map(|one| serde_json::from_value(one).unwrap());
        let jobs = self.jobs();
        let cluster = self.cluster.clone();
        let seen = Seen {
            launch: &launch,
            task: &self.task,
            cluster: cluster.as_ref().zip(read.as_ref()),
            size: None,
            jobs: &jobs,
            now: Timestamp::UNIX_EPOCH,
        };
        let note: Option<LaunchStatus> = match step(&seen) {
            Step::Rest | Step::Hold => None,
            Step::Wait(status) | Step::Note(status) => Some(status),
            Step::Place => {
                self.make_cluster();
                None
            }
            Step::Take { patch, is_set_up } => {
                let object = self.cluster.as_mut().unwrap();
                for (name, value) in patch["spec"].as_object().into_iter().flatten() {
                    object["spec"][name] = value.clone();
                }
                if patch != json!({}) {
                    object["metadata"]["generation"] = (object["metadata"]["generation"].as_i64().unwrap() + 1).into();
                }
                Some(taken(&launch, object, is_set_up))
            }
            Step::Send => Some(sent(&launch)),
            Step::Submit if self.task.run.is_none() => Some(submitted(&launch, 0, Timestamp::UNIX_EPOCH)),
            Step::Submit => {
                let (object, read) = (cluster.as_ref().unwrap(), read.as_ref().unwrap());
                let setup = job::Setup::As(String::new());
                let job = job::Job::new(object, read, "dev", &self.task, setup, "u", Timestamp::UNIX_EPOCH);
                let job = job.unwrap().of(&launch);
                let id = match job_of(&launch, &jobs) {
                    Some(job) => job.id,
                    None => {
                        let id = u32::try_from(jobs.len()).unwrap() + 1;
                        self.jobsets.push(job.main(id));
                        id
                    }
                };
                Some(submitted(&launch, id, Timestamp::UNIX_EPOCH))
            }
            Step::Abandon => {
                self.cluster = None;
                None
            }
            Step::Release => {
                self.launch = None;
                None
            }
        };
        if let (Some(status), Some(launch), false) = (note, self.launch.as_mut(), crashes) {
            launch.status = status;
        }
    }

    /// The cluster's own controller goes on.
    fn provider(&mut self, fails: bool) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        let generation = cluster["metadata"]["generation"].clone();
        cluster["status"] = match fails {
            true => json!({"phase": "INIT", "observedGeneration": generation, "rejected": ["full"],
                "conditions": [{"type": "Failed", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
            false => json!({"phase": "UP", "observedGeneration": generation, "launchedAt": "2026-01-01T00:00:00Z"}),
        };
    }

    fn phase(&self) -> Option<LaunchPhase> {
        self.launch.as_ref().map(|launch| launch.status.phase)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_launch_comes_to_one_job(crashes in proptest::collection::vec(any::<bool>(), 0..12), late in 0_usize..6) {
        let mut world = World::new(task("run: date"));
        let looks = crashes.into_iter().chain(std::iter::repeat_n(false, 12));
        for (number, crashes) in looks.enumerate() {
            world.look(crashes);
            if number >= late {
                world.provider(false);
            }
        }
        let launch = world.launch.as_ref().unwrap();
        prop_assert_eq!((launch.status.phase, launch.status.job, launch.status.is_new), (LaunchPhase::Succeeded, 1, true));
        prop_assert_eq!((world.made, world.jobs().len()), (1, 1));
    }

    #[test]
    fn what_was_ended_is_not_made_again(crashes in proptest::collection::vec(any::<bool>(), 0..12), ended in 0_usize..8) {
        let mut world = World::new(task("run: date"));
        for (number, crashes) in crashes.into_iter().enumerate() {
            if number == ended {
                break;
            }
            world.look(crashes);
            world.provider(false);
        }
        // `sky down`: the launch first, then the cluster
        let was_over = world.phase().is_some_and(LaunchPhase::is_over);
        if let Some(launch) = world.launch.as_mut().filter(|_| !was_over) {
            launch.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        }
        (0..3).for_each(|_| world.look(false));
        prop_assert!(was_over || world.launch.is_none());
        let made = world.made;
        world.cluster = None;
        (0..5).for_each(|_| world.look(false));
        prop_assert_eq!((world.made, world.cluster.is_none()), (made, true));
    }

    #[test]
    fn a_cluster_that_never_was_leaves_no_record(crashes in proptest::collection::vec(any::<bool>(), 0..12)) {
        let mut world = World::new(task("run: date"));
        for crashes in crashes.into_iter().chain(std::iter::repeat_n(false, 12)) {
            world.look(crashes);
            world.provider(true);
        }
        let status = &world.launch.as_ref().unwrap().status;
        prop_assert_eq!(status.phase, LaunchPhase::Failed);
        prop_assert!(status.message.contains("Tried:\n  full\n"), "{}", status.message);
        prop_assert!(world.cluster.is_none() && world.jobs().is_empty());
    }
}

#[test]
fn a_task_loses_what_belongs_elsewhere_and_nothing_else() {
    let text = "name: n\nrun: date\nsetup: pip\nnum_nodes: 2\nenvs: {A: b}\nsecrets: {S: secret}\nworkdir: .\nfile_mounts: {~/x: ./y}\nresources: {cpus: 2+, infra: ssh/pool}\n";
    let whole = task(text);
    assert_eq!(launch::variables(&whole), json!({"A": "b", "S": "secret"}).as_object().unwrap().clone());
    let object = launch::launch("My Cluster", &whole, LaunchSpec::default(), &Catalogue::default());
    assert!(!object.to_string().contains("secret\"") && !object.to_string().contains("\"b\""), "{object}");
    let launch: Launch = serde_json::from_value(object.clone()).unwrap();
    let read = launch::task_of(&launch, &Catalogue::default()).unwrap();
    assert_eq!((&read.name, &read.run, &read.setup, read.num_nodes), (&whole.name, &whole.run, &whole.setup, 2));
    assert_eq!(read.resources, whole.resources);
    assert!(read.workdir.is_none() && read.mounts.files.is_empty() && read.envs.is_empty());
    assert_eq!(object::label(&object, keys::CLUSTER), Some(managed::names::object_name("My Cluster").as_str()));
}

#[test]
fn an_exec_needs_a_cluster_that_is_up() {
    let on = |phase: Option<&str>| {
        let mut world = World::new(task("run: date"));
        world.launch.as_mut().unwrap().spec.on_existing = true;
        if let Some(phase) = phase {
            world.make_cluster();
            world.provider(false);
            world.cluster.as_mut().unwrap()["status"]["phase"] = phase.into();
        }
        (0..8).for_each(|_| world.look(false));
        let status = world.launch.unwrap().status;
        (status.phase, status.message)
    };
    assert_eq!(on(Some("UP")).0, LaunchPhase::Succeeded);
    for (phase, says) in
        [(None, "does not exist"), (Some("STOPPED"), "status: STOPPED"), (Some("AUTOSTOPPING"), "autostopping")]
    {
        let (ended, message) = on(phase);
        assert!(ended == LaunchPhase::Failed && message.contains(says), "{phase:?}: {message}");
    }
}

#[test]
fn a_start_makes_no_cluster_and_submits_no_job() {
    for (has_cluster, fails) in [(true, false), (true, true), (false, false)] {
        let mut world = World::new(task("num_nodes: 1"));
        let spec = &mut world.launch.as_mut().unwrap().spec;
        (spec.start, spec.retry_until_up, spec.files) = (true, true, Vec::new());
        if has_cluster {
            world.make_cluster();
            world.cluster.as_mut().unwrap()["spec"]["power"] = "Stopped".into();
        }
        for _ in 0..8 {
            world.look(false);
            world.provider(fails);
        }
        let (status, made) = (world.launch.as_ref().unwrap().status.clone(), world.made);
        let wanted = if has_cluster && !fails { LaunchPhase::Succeeded } else { LaunchPhase::Failed };
        assert_eq!((status.phase, status.job, made), (wanted, 0, usize::from(has_cluster)), "{}", status.message);
        assert!(world.jobs().is_empty());
        let spec = world.cluster.as_ref().map(|cluster| cluster["spec"].clone()).unwrap_or_default();
        assert!(
            wanted == LaunchPhase::Failed || (spec["power"] == "Running" && spec["retryUntilUp"] == true),
            "{spec}"
        );
    }
}

#[test]
fn the_last_launch_of_a_cluster_stays() {
    let launch = |cluster: &str, ended: i64| {
        let mut launch = Launch::default();
        launch.status.cluster_uid = cluster.to_owned();
        launch.status.phase = LaunchPhase::Succeeded;
        launch.status.ended_at = Timestamp::from_second(ended).unwrap().to_string();
        launch
    };
    let mut started = launch("a", 7);
    started.spec.start = true;
    let all = [launch("a", 1), launch("a", 5), launch("gone", 1), launch("gone", 9_900), started];
    let clusters: BTreeSet<String> = ["a".to_owned()].into();
    let left: Vec<bool> =
        all.iter().map(|one| is_left(one, &all, &clusters, Timestamp::from_second(10_000).unwrap())).collect();
    assert_eq!(left, [true, false, true, false, true]);
    let under_way = Launch::default();
    assert!(!is_left(&under_way, &all, &clusters, Timestamp::from_second(10_000).unwrap()));
}

#[test]
fn a_cluster_has_the_hooks_of_its_last_launch() {
    let with = task("run: x\nconfig: {hooks: [{run: a, events: [down], timeout: 7}, {run: b}]}");
    let hooks = json!([
        {"run": "a", "events": ["down"], "timeoutSeconds": 7},
        {"run": "b", "events": ["stop", "preemption", "down"], "timeoutSeconds": 3600},
    ]);
    let launch = |task: &Task, spec: LaunchSpec| -> Launch {
        let mut object = launch::launch("dev", task, spec, &Catalogue::default());
        object["metadata"]["uid"] = "l".into();
        serde_json::from_value(object).unwrap()
    };
    let first = launch(&with, LaunchSpec::default());
    // as the control plane reads it
    let read = launch::task_of(&first, &Catalogue::default()).unwrap();
    let mut made = launch::cluster_of(&first, &read, vec![api::sky::Candidate::default()], Timestamp::UNIX_EPOCH);
    assert_eq!(made["spec"]["hooks"], hooks);
    made["metadata"]["uid"] = "u".into();
    let cluster: Cluster = serde_json::from_value(made.clone()).unwrap();
    let patch = |task: &Task, spec: LaunchSpec| {
        let launch = launch(task, spec);
        let seen = Seen {
            launch: &launch,
            task,
            cluster: Some((&made, &cluster)),
            size: None,
            jobs: &[],
            now: Timestamp::UNIX_EPOCH,
        };
        match step(&seen) {
            Step::Take { patch, .. } => patch["spec"]["hooks"].clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(patch(&with, LaunchSpec::default()), Value::Null, "they are there");
    let without = task("run: x");
    assert_eq!(patch(&without, LaunchSpec::default()), json!([]));
    assert_eq!(patch(&without, LaunchSpec { start: true, ..LaunchSpec::default() }), Value::Null);
}
