//! MPIJobs from their first pass to their end, in a model of an API server; the rest is in the recordings.

mod profile;

use super::controller::MpiJobController;
use super::{GangScheduler, Settings, hosts};
use api::mpi::{self, MpiJob};
use api::object::{Gvk, Key, Target};
use reconcile::testing::{Model, merge};
use reconcile::{Next, Propagation, Reconciler, Wakes};
use serde_json::{Value, json};

fn job(over: Value) -> Value {
    let role =
        |count: i32| json!({"replicas": count, "template": {"spec": {"containers": [{"name": "m", "image": "i"}]}}});
    let mut job = json!({
        "apiVersion": mpi::API_VERSION, "kind": mpi::KIND,
        "metadata": {"name": "train", "namespace": "ns", "uid": "u-1"},
        "spec": {"mpiReplicaSpecs": {"Launcher": role(1), "Worker": role(2)}},
    });
    merge(&mut job, &over);
    job
}

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

/// A model, the controller, and the job in it.
struct Case {
    model: Model,
    controller: MpiJobController,
}

impl Case {
    fn of(over: Value) -> Self {
        Self::with(over, Settings::default())
    }

    fn with(over: Value, settings: Settings) -> Self {
        Self { model: Model::of([job(over)]), controller: MpiJobController::new(settings) }
    }

    fn run(&mut self) -> Next {
        self.model.run(&self.controller, &Target { gvk: mpi::gvk(), key: key("train") })
    }

    fn change(&mut self, kind: &str, name: &str, over: Value) {
        let gvk = match kind {
            "MPIJob" => mpi::gvk(),
            "Job" => Gvk::new("batch", "v1", "Job"),
            other => Gvk::new("", "v1", other),
        };
        self.model.change(&gvk, &key(name), |object| merge(object, &over));
        self.run();
    }

    fn phase(&mut self, worker: i32, phase: &str, over: Value) {
        let mut status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]});
        merge(&mut status, &over);
        self.change("Pod", &format!("train-worker-{worker}"), json!({"status": status}));
    }

    fn names(&self, kind: &str) -> Vec<String> {
        self.model.all(kind).iter().map(|object| api::object::meta(object, "name").to_owned()).collect()
    }

    /// `Type=Status/Reason` of each condition, in order.
    fn conditions(&self) -> Vec<String> {
        let job = self.model.one("MPIJob", "train").unwrap();
        let text = |c: &Value, member: &str| api::object::text(c, member).to_owned();
        let list = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
        list.iter().map(|c| format!("{}={}/{}", text(c, "type"), text(c, "status"), text(c, "reason"))).collect()
    }

    fn worker_counts(&self) -> Value {
        self.model.one("MPIJob", "train").unwrap()["status"]["replicaStatuses"]["Worker"].clone()
    }
}

/// A launcher's pod that runs, of the Job in the model.
fn launcher_pod(case: &Case, phase: &str, over: Value) -> Value {
    let launcher = case.model.one("Job", "train-launcher").unwrap();
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "train-launcher-x", "namespace": "ns", "ownerReferences": [{"apiVersion": "batch/v1",
            "kind": "Job", "name": "train-launcher", "uid": api::object::uid(&launcher), "controller": true}]},
        "status": {"phase": phase},
    });
    merge(&mut pod, &over);
    pod
}

fn complete() -> Value {
    json!({"status": {"completionTime": "2026-01-01T00:01:00Z", "conditions": [{"type": "Complete", "status": "True"}]}})
}

fn hostfile(over: Value, settings: &Settings) -> String {
    let job: MpiJob = serde_json::from_value(job(over)).unwrap();
    hosts::data(&job, &key("train"), &[], settings)["hostfile"].as_str().unwrap().to_owned()
}

#[test]
fn hostfiles_are_written_for_their_mpi() {
    let plain = Settings::default();
    let lines = "train-worker-0.train.ns.svc slots=1\ntrain-worker-1.train.ns.svc slots=1\n";
    assert_eq!(hostfile(json!({}), &plain), lines);
    let one = json!({"Worker": {"replicas": 1}});
    for implementation in ["Intel", "MPICH"] {
        let spec = json!({"spec": {"mpiImplementation": implementation, "slotsPerWorker": 10, "mpiReplicaSpecs": one}});
        assert_eq!(hostfile(spec, &plain), "train-worker-0.train.ns.svc:10\n");
    }
    let leads = json!({"spec": {"runLauncherAsWorker": true, "mpiReplicaSpecs": {"Worker": null}}});
    let domain = Settings { cluster_domain: Some("example.org".to_owned()), ..Settings::default() };
    assert_eq!(hostfile(leads, &domain), "train-launcher.train.ns.svc.example.org slots=1\n");
}

#[test]
fn discovery_lists_running_workers_as_text() {
    let job: MpiJob = serde_json::from_value(job(json!({"spec": {"runLauncherAsWorker": true}}))).unwrap();
    let running = ["train-worker-2", "train-worker-10"];
    let data = hosts::data(&job, &key("train"), &running, &Settings::default());
    let script = "#!/bin/sh\necho train-launcher.train.ns.svc\necho train-worker-10.train.ns.svc\n\
                  echo train-worker-2.train.ns.svc\n";
    assert_eq!(data["discover_hosts.sh"], script);
}

#[test]
fn a_job_runs_to_its_end() {
    let mut case = Case::of(json!({"spec": {"runPolicy": {"cleanPodPolicy": "Running"}}}));
    case.run();
    assert_eq!(case.names("Pod"), ["train-worker-0", "train-worker-1"]);
    let secret = case.model.one("Secret", "train-ssh").unwrap();
    assert!(secret["stringData"]["ssh-privatekey"].as_str().unwrap().starts_with("-----BEGIN EC PRIVATE KEY-----"));
    case.phase(0, "Running", json!({}));
    case.phase(1, "Running", json!({}));
    assert_eq!(case.worker_counts(), json!({"active": 2}));
    assert_eq!(case.conditions(), ["Created=True/MPIJobCreated"]);
    let pod = launcher_pod(&case, "Running", json!({}));
    case.model.put(pod);
    case.run();
    assert_eq!(case.conditions(), ["Created=True/MPIJobCreated", "Running=True/MPIJobRunning"]);
    case.change("Job", "train-launcher", complete());
    assert_eq!(
        case.conditions(),
        ["Created=True/MPIJobCreated", "Running=False/MPIJobRunning", "Succeeded=True/MPIJobSucceeded"]
    );
    assert_eq!(case.names("Pod"), ["train-launcher-x"]);
    assert_eq!(case.worker_counts(), json!({}));
    assert_eq!(
        case.model.events,
        [
            "Normal MPIJobCreated: MPIJob ns/train is created.",
            "Normal MPIJobRunning: MPIJob ns/train is running",
            "Normal MPIJobSucceeded: MPIJob ns/train successfully completed.",
        ]
    );
    let writes = case.model.writes.len();
    case.run();
    assert_eq!(case.model.writes.len(), writes, "nothing is left to do");
}

/// Each write makes a child that clients know, or tells them of something: 16 until the launcher's Job is there, with 12 children.
#[test]
fn a_life_takes_no_more_writes_than_it_has_to_tell() {
    let mut case = Case::of(json!({"spec": {"launcherCreationPolicy": "WaitForWorkersReady",
        "runPolicy": {"cleanPodPolicy": "Running"}, "mpiReplicaSpecs": {"Worker": {"replicas": 8}}}}));
    let mut done = 0;
    let mut since = |case: &Case| {
        let new = &case.model.writes[done..];
        done = case.model.writes.len();
        let kind = |write: &String| write.split(' ').take(2).collect::<Vec<_>>().join(" ");
        // a server keeps a Secret's `stringData` as `data`; the model does not, and the keys seem to be missing
        let mut kinds: Vec<String> = new.iter().map(kind).filter(|kind| kind != "update Secret").collect();
        kinds.sort();
        let counted = kinds.chunk_by(|a, b| a == b).map(|same| format!("{} {}", same.len(), same[0]));
        counted.collect::<Vec<_>>()
    };
    case.run();
    let made = ["1 create ConfigMap", "8 create Pod", "1 create Secret", "1 create Service", "1 status MPIJob"];
    assert_eq!(since(&case), made);
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    for index in 0..8 {
        let pod = key(&format!("train-worker-{index}"));
        case.model.change(&Gvk::new("", "v1", "Pod"), &pod, |object| merge(object, &ready));
    }
    case.run();
    assert_eq!(since(&case), ["1 create Job", "1 status MPIJob", "1 update ConfigMap"], "who runs is told in one");
    let pod = launcher_pod(&case, "Running", json!({}));
    case.model.put(pod);
    case.run();
    assert_eq!(since(&case), ["1 status MPIJob"]);
    case.change("Job", "train-launcher", complete());
    assert_eq!(since(&case), ["8 delete Pod", "1 status MPIJob"], "its end and its workers' are one");
    assert_eq!(case.model.events.len(), 3, "created, running, succeeded: {:?}", case.model.events);
}

#[test]
fn the_launcher_may_wait_for_its_workers() {
    // any word that is not AtStartup means it
    for policy in ["WaitForWorkersReady", "Whenever"] {
        let mut case = Case::of(json!({"spec": {"launcherCreationPolicy": policy}}));
        case.run();
        assert!(case.names("Job").is_empty());
        let status = &case.model.one("MPIJob", "train").unwrap()["status"]["replicaStatuses"];
        assert_eq!(*status, json!({"Worker": {}}));
        case.phase(0, "Running", json!({}));
        case.phase(1, "Running", json!({"conditions": []}));
        assert!(case.names("Job").is_empty());
        case.phase(1, "Running", json!({}));
        assert_eq!(case.names("Job"), ["train-launcher"]);
    }
}

#[test]
fn workers_of_a_role_that_was_taken_out_stay() {
    let mut case = Case::of(json!({}));
    case.run();
    case.phase(0, "Running", json!({}));
    case.change("MPIJob", "train", json!({"spec": {"mpiReplicaSpecs": {"Worker": null}}}));
    assert_eq!(case.names("Pod"), ["train-worker-0", "train-worker-1"]);
    let config = case.model.one("ConfigMap", "train-config").unwrap();
    assert_eq!(
        config["data"],
        json!({"hostfile": "", "discover_hosts.sh": "#!/bin/sh\necho train-worker-0.train.ns.svc\n"})
    );
}

#[test]
fn workers_are_discovered_by_all_their_labels() {
    let lines = |case: &Case| {
        let config = case.model.one("ConfigMap", "train-config").unwrap();
        config["data"]["discover_hosts.sh"].as_str().unwrap().lines().count() - 1
    };
    for label in ["operator-name", "job-name", "job-role"] {
        let mut case = Case::of(json!({}));
        case.run();
        case.phase(0, "Running", json!({}));
        assert_eq!(lines(&case), 1);
        let other = json!({"metadata": {"labels": {format!("training.kubeflow.org/{label}"): "other"}}});
        case.change("Pod", "train-worker-0", other);
        assert_eq!((label, lines(&case)), (label, 0));
    }
}

#[test]
fn pods_that_only_carry_the_labels_are_workers_too() {
    let labelled = |name: &str, index: Option<&str>, owners: Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns", "ownerReferences": owners, "labels": {
            "training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-name": "train",
            "training.kubeflow.org/job-role": "worker", "training.kubeflow.org/replica-index": index}},
            "status": {"phase": "Running"}})
    };
    let somebody =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "a", "controller": true}]);
    for (leads, workers) in [(false, ["0", "1"]), (true, ["1", "2"])] {
        let mut case = Case::of(json!({"spec": {"runLauncherAsWorker": leads}}));
        case.model.put(labelled("low", Some("1"), json!([])));
        case.model.put(labelled("other", Some("7"), somebody.clone()));
        case.model.put(labelled("without", None, json!([])));
        case.run();
        let made =
            |case: &Case| case.names("Pod").into_iter().filter(|name| name.starts_with("train-")).collect::<Vec<_>>();
        assert_eq!(made(&case), ["train-worker-0", "train-worker-1"]);
        let first =
            ["train-worker-0", "train-worker-1"].map(|name| case.model.one("Pod", name).unwrap()["metadata"].clone());
        assert_eq!(first.clone().map(|meta| meta["labels"]["training.kubeflow.org/replica-index"].clone()), workers);
        // too many, and of an index that no worker has
        case.model.put(labelled("high", Some("9"), json!([])));
        let before = case.model.writes.len();
        case.phase(1, "Running", json!({}));
        let configs = case.model.writes[before..].iter().filter(|write| write.contains("ConfigMap")).count();
        assert_eq!(configs, 1, "what goes is no host, and nobody waits for its end");
        assert_eq!(case.names("Pod"), ["low", "other", "train-worker-0", "train-worker-1", "without"]);
        let script = case.model.one("ConfigMap", "train-config").unwrap()["data"]["discover_hosts.sh"].clone();
        let hosts: Vec<&str> = script.as_str().unwrap().lines().skip(1 + usize::from(leads)).collect();
        let host = |pod: &str| format!("echo {pod}.train.ns.svc");
        assert_eq!(hosts, [host("low"), host("train-worker-1"), host("without")]);
        let uids = ["train-worker-0", "train-worker-1"]
            .map(|name| case.model.one("Pod", name).unwrap()["metadata"]["uid"].clone());
        assert_eq!(uids, first.map(|meta| meta["uid"].clone()), "its own stay");
    }
}

#[test]
fn pods_wake_the_job_that_owns_them_or_their_job() {
    let mut case = Case::of(json!({}));
    case.run();
    let watches = case.controller.watches();
    let wakes = |case: &Case, pod: &Value| {
        let watch = watches.iter().find(|watch| watch.gvk.kind == "Pod").unwrap();
        let Wakes::Keys(wakes) = watch.wakes else { panic!("pods wake by their keys") };
        wakes(&case.model, pod).len()
    };
    let mut worker = (*case.model.one("Pod", "train-worker-0").unwrap()).clone();
    let mut launcher = launcher_pod(&case, "Running", json!({}));
    let mut stray = worker.clone();
    stray["metadata"]["ownerReferences"] = json!([]);
    assert_eq!(wakes(&case, &stray), 0, "its labels alone wake nothing");
    assert_eq!((wakes(&case, &worker), wakes(&case, &launcher)), (1, 1), "the launcher's has no label at all");
    worker["metadata"]["labels"] = json!({});
    assert_eq!(wakes(&case, &worker), 1);
    launcher["metadata"]["ownerReferences"][0]["name"] = json!("another");
    worker["metadata"]["ownerReferences"] = json!([]);
    assert_eq!((wakes(&case, &worker), wakes(&case, &launcher)), (0, 0));
}

#[test]
fn a_condition_that_names_no_time_still_names_none_in_other_words() {
    let mut case = Case::of(json!({}));
    case.run();
    let by_hand = json!([{"type": "Succeeded", "status": "True", "reason": "ByHand", "message": "so be it"}]);
    case.change("MPIJob", "train", json!({"status": {"conditions": by_hand}}));
    case.change("Job", "train-launcher", complete());
    case.run();
    let status = case.model.one("MPIJob", "train").unwrap()["status"].clone();
    let held = status["conditions"].as_array().unwrap().iter().find(|held| held["type"] == "Succeeded").unwrap();
    assert_eq!((held["reason"].as_str(), &held["lastTransitionTime"]), (Some("MPIJobSucceeded"), &Value::Null));
}

#[test]
fn what_was_erased_from_a_status_comes_back_with_a_change() {
    let mut case = Case::of(json!({}));
    case.run();
    let start = |case: &Case| case.model.one("MPIJob", "train").unwrap()["status"]["startTime"].clone();
    assert!(start(&case).is_string());
    case.change("MPIJob", "train", json!({"status": {"startTime": null}}));
    assert!(start(&case).is_null());
    case.phase(0, "Running", json!({}));
    assert!(start(&case).is_string());
}

#[test]
fn what_a_write_warns_of_is_told_with_it() {
    let launcher =
        json!({"spec": {"mpiReplicaSpecs": {"Launcher": {"template": {"spec": {"restartPolicy": "Never"}}}}}});
    let mut case = Case::of(launcher);
    // the status comes after the launcher's Job, and the pass after that finds the Job
    case.model.refuse = Some(|write| write.starts_with("status").then(|| "not now".to_owned()));
    case.run();
    assert_eq!(case.names("Job"), ["train-launcher"]);
    let warnings = |case: &Case| case.model.events.iter().filter(|event| event.starts_with("Warning SetPod")).count();
    assert_eq!(warnings(&case), 1);
    case.model.refuse = None;
    case.run();
    assert_eq!(warnings(&case), 1);
}

#[test]
fn suspended_jobs_have_no_pods() {
    let suspend = |on: bool| json!({"spec": {"runPolicy": {"suspend": on}}});
    let mut case = Case::of(suspend(true));
    case.run();
    assert!(case.names("Pod").is_empty());
    assert_eq!(case.model.one("Job", "train-launcher").unwrap()["spec"]["suspend"], true);
    assert_eq!(
        case.conditions(),
        ["Created=True/MPIJobCreated", "Suspended=True/MPIJobSuspended", "Running=False/MPIJobSuspended"]
    );
    let selector = |value: Value| json!({"spec": {"template": {"spec": {"nodeSelector": value}}}});
    case.model.change(&Gvk::new("batch", "v1", "Job"), &key("train-launcher"), |job| {
        merge(job, &selector(json!({"old": "1"})));
        merge(job, &json!({"status": {"startTime": "2026-01-01T00:00:00Z"}}));
    });
    let spec = json!({"mpiReplicaSpecs": {"Launcher": selector(json!({"new": "2"}))["spec"]}});
    case.model.change(&mpi::gvk(), &key("train"), |job| merge(job, &json!({"spec": spec})));
    case.change("MPIJob", "train", suspend(false));
    let launcher = case.model.one("Job", "train-launcher").unwrap();
    assert_eq!(launcher["spec"]["suspend"], false);
    assert_eq!(launcher["spec"]["template"]["spec"]["nodeSelector"], json!({"new": "2"}));
    assert!(launcher["status"].get("startTime").is_none());
    assert_eq!(case.names("Pod").len(), 2);
    case.change("MPIJob", "train", suspend(true));
    assert!(case.names("Pod").is_empty(), "whatever the clean-up policy");
}

#[test]
fn a_launcher_that_ended_while_it_was_suspended_is_left_alone() {
    let suspend = |on: bool| json!({"spec": {"runPolicy": {"suspend": on}}});
    let mut case = Case::of(suspend(true));
    case.run();
    let ended = json!({"startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Failed", "status": "True", "reason": "Error"}]});
    case.model
        .change(&Gvk::new("batch", "v1", "Job"), &key("train-launcher"), |job| merge(job, &json!({"status": ended})));
    case.change("MPIJob", "train", suspend(false));
    let launcher = case.model.one("Job", "train-launcher").unwrap();
    assert_eq!(launcher["status"]["startTime"], ended["startTime"], "its API lets nobody take that away");
    assert!(case.conditions().iter().any(|condition| condition.starts_with("Failed=True")), "{:?}", case.conditions());
}

#[test]
fn an_evicted_worker_fails_a_job_that_may_still_succeed() {
    let mut case = Case::of(json!({}));
    case.run();
    case.phase(0, "Failed", json!({"reason": "Evicted"}));
    assert_eq!(
        case.conditions(),
        ["Created=True/MPIJobCreated", "Failed=True/MPIJobEvicted", "Running=False/MPIJobRunning"]
    );
    assert_eq!(case.model.events.last().unwrap(), "Warning MPIJobEvicted: 1/2 workers are evicted");
    assert!(case.model.one("MPIJob", "train").unwrap()["status"].get("completionTime").is_none());
    case.change("Job", "train-launcher", complete());
    assert_eq!(
        case.conditions(),
        [
            "Created=True/MPIJobCreated",
            "Failed=False/MPIJobEvicted",
            "Running=False/MPIJobRunning",
            "Succeeded=True/MPIJobSucceeded",
        ]
    );
}

#[test]
fn a_worker_that_goes_is_evicted_no_more() {
    // its label says 1, so one that leads no more than one is too many, and is made anew
    let mut case = Case::of(json!({"spec": {"runLauncherAsWorker": true}}));
    case.run();
    case.phase(0, "Failed", json!({"reason": "Evicted"}));
    let told = |case: &Case| {
        case.model.events.iter().filter(|event| event.contains("MPIJobEvicted")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(told(&case), ["Warning MPIJobEvicted: 1/2 workers are evicted"]);
    case.change("MPIJob", "train", json!({"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 1}}}}));
    assert_eq!(case.names("Pod"), ["train-worker-0"]);
    let phase = case.model.one("Pod", "train-worker-0").unwrap()["status"]["phase"].clone();
    assert_ne!(phase, "Failed", "it is another pod");
    assert_eq!(told(&case).len(), 1, "{:?}", told(&case));
}

#[test]
fn a_failed_launcher_says_what_its_newest_pod_said() {
    let mut case = Case::of(json!({}));
    case.run();
    let pod = launcher_pod(&case, "Failed", json!({"status": {"reason": "Error", "message": "gave up"}}));
    case.model.put(pod);
    let failed = json!({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"});
    case.change("Job", "train-launcher", json!({"status": {"failed": 1, "conditions": [failed]}}));
    assert_eq!(
        case.conditions(),
        ["Created=True/MPIJobCreated", "Failed=True/BackoffLimitExceeded/Error", "Running=False/MPIJobRunning"]
    );
    assert_eq!(case.model.events.last().unwrap(), "Warning BackoffLimitExceeded/Error: too often: gave up");
}

#[test]
fn other_peoples_objects_are_in_the_way() {
    let mut case = Case::of(json!({}));
    case.model
        .put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "train-config", "namespace": "ns"}}));
    assert_eq!(case.run(), Next::Backoff);
    assert_eq!(
        case.model.events[..2],
        [
            "Normal MPIJobCreated: MPIJob ns/train is created.",
            "Warning ErrResourceExists: Resource \"train-config\" of Kind \"\" already exists and is not managed by MPIJob",
        ]
    );
    assert!(case.conditions().is_empty());
    let target = Target { gvk: Gvk::new("", "v1", "ConfigMap"), key: key("train-config") };
    case.model.delete(&target, Propagation::Background, None);
    case.run();
    assert_eq!(case.conditions(), ["Created=True/MPIJobCreated"]);
}

#[test]
fn refused_workers_are_told_of() {
    let mut case = Case::of(json!({}));
    case.model.refuse = Some(|write| write.contains("Pod").then(|| "exceeded quota".to_owned()));
    case.run();
    let events = &case.model.events;
    assert_eq!(events[0], "Normal MPIJobCreated: MPIJob ns/train is created.");
    assert!(events[1].starts_with("Warning MPIJobFailed: worker pod created failed: "), "{events:?}");
    assert!(case.names("Job").is_empty() && case.conditions().is_empty());
}

#[test]
fn faults_are_told_at_once_and_nothing_is_made() {
    let spec = json!({
        "slotsPerWorker": -1, "runPolicy": {"cleanPodPolicy": "Never", "backoffLimit": -2},
        "mpiReplicaSpecs": {"Launcher": {"replicas": 2, "restartPolicy": "Always"}, "Worker": {"replicas": null}},
    });
    let mut case = Case::of(json!({"spec": spec}));
    case.run();
    assert_eq!(
        case.model.events,
        [
            "Warning ValidationError: Found validation errors: [spec.mpiReplicaSpecs[Launcher].restartPolicy: Unsupported \
          value: \"Always\": supported values: \"Never\", \"OnFailure\", spec.mpiReplicaSpecs[Launcher].replicas: Invalid \
          value: 2: must be 1, spec.mpiReplicaSpecs[Worker].replicas: Invalid value: 0: must be greater than or equal to \
          1, spec.slotsPerWorker: Invalid value: -1: must be greater than or equal to 0, spec.runPolicy.cleanPodPolicy: \
          Unsupported value: \"Never\": supported values: \"All\", \"None\", \"Running\", spec.runPolicy.backoffLimit: \
          Invalid value: -2: must be greater than or equal to 0]"
        ]
    );
    assert!(case.model.writes.is_empty());
}

#[test]
fn more_workers_than_a_hostfile_holds_are_a_fault() {
    let mut case = Case::of(json!({"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 2_000_000_000}}}}));
    case.run();
    assert!(case.model.events[0].contains("a ConfigMap holds 1048576"), "{:?}", case.model.events);
    assert!(case.model.writes.is_empty());
}

#[test]
fn emptied_secrets_get_new_keys_in_place() {
    let mut case = Case::of(json!({}));
    case.run();
    let before = case.model.one("Secret", "train-ssh").unwrap();
    // what an API server makes of stringData
    case.change("Secret", "train-ssh", json!({"stringData": null, "data": {"ssh-privatekey": "a"}}));
    let after = case.model.one("Secret", "train-ssh").unwrap();
    assert_eq!(api::object::uid(&before), api::object::uid(&after));
    assert!(after["stringData"]["ssh-publickey"].as_str().unwrap().starts_with("ecdsa-sha2-nistp521 "));
}

#[test]
fn pod_groups_ask_for_those_that_start_together() {
    let group = |over: Value, scheduler: &str| {
        let settings = Settings { gang: GangScheduler::of(scheduler), ..Settings::default() };
        let resources = |cpu: &str| json!({"template": {"spec": {"containers": [{"name": "m", "resources": {"requests": {"cpu": cpu}}}]}}});
        let mut spec = json!({"mpiReplicaSpecs": {"Launcher": resources("1"), "Worker": resources("500m")}});
        merge(&mut spec, &over);
        let mut case = Case::with(json!({"spec": spec}), settings);
        case.run();
        (case.model.one("PodGroup", "train").unwrap()["spec"].clone(), case.model.one("Pod", "train-worker-0").unwrap())
    };
    let (spec, pod) = group(json!({}), "volcano");
    assert_eq!(spec, json!({"minMember": 3, "minResources": {"cpu": "2"}}));
    assert_eq!(pod["spec"]["schedulerName"], "volcano");
    assert_eq!(pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"], "train");
    let (spec, pod) = group(json!({"launcherCreationPolicy": "WaitForWorkersReady"}), "gangs");
    assert_eq!(spec, json!({"minMember": 2, "minResources": {"cpu": "1"}, "scheduleTimeoutSeconds": 0}));
    assert_eq!(pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"], "train");
    // without an image that waits in the launcher's pod, the launcher comes when the workers can be reached
    let settings = Settings { gang: GangScheduler::of("volcano"), ..Settings::default() };
    let mut case = Case::with(waits(json!({})), settings);
    case.run();
    assert_eq!(case.model.one("PodGroup", "train").unwrap()["spec"]["minMember"], 2);
    let (spec, _) = group(json!({"runPolicy": {"schedulingPolicy": {"minAvailable": 0}}}), "gangs");
    assert_eq!(spec["minMember"], Value::Null, "a gang of none is not written");
    let (spec, _) = group(json!({"runPolicy": {"schedulingPolicy": {"minAvailable": 2}}}), "gangs");
    assert_eq!(spec, json!({"minMember": 2, "minResources": {"cpu": "1500m"}, "scheduleTimeoutSeconds": 0}));
}

#[test]
fn somebody_elses_jobs_are_left_alone() {
    let mut case = Case::of(json!({"spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}}));
    case.run();
    assert!(case.model.writes.is_empty() && case.model.events.is_empty());
}

fn annotated(annotations: Value) -> Value {
    json!({"metadata": {"annotations": annotations}})
}

#[test]
fn a_users_own_keys_are_mounted_and_none_are_made() {
    let mut case = Case::of(annotated(json!({"trainyard.dev/ssh-secret": "mine"})));
    case.run();
    assert!(case.names("Secret").is_empty());
    for (kind, name, spec) in [("Pod", "train-worker-0", "/spec"), ("Job", "train-launcher", "/spec/template/spec")] {
        let object = case.model.one(kind, name).unwrap();
        assert_eq!(object.pointer(&format!("{spec}/volumes/0/secret/secretName")).unwrap(), "mine");
    }
}

#[test]
fn ended_workers_are_replaced_where_asked() {
    let mut case = Case::of(annotated(json!({"trainyard.dev/replace-workers": "true"})));
    case.run();
    case.phase(0, "Failed", json!({"reason": "Evicted"}));
    let pod = case.model.one("Pod", "train-worker-0").unwrap();
    assert!(pod.get("status").is_none(), "it is a new one: {pod}");
    assert_eq!(case.conditions(), ["Created=True/MPIJobCreated"]);
}

#[test]
fn a_job_goes_when_its_time_has_passed() {
    let mut case = Case::of(annotated(json!({"trainyard.dev/ttl-seconds-after-finished": "3600"})));
    case.run();
    case.change("Job", "train-launcher", complete());
    assert!(matches!(case.run(), Next::After(_)));
    case.model.pass(3660);
    case.run();
    let job = case.model.one("MPIJob", "train");
    assert!(job.is_none_or(|job| api::object::is_terminating(&job)));
}

fn with_image() -> Settings {
    Settings { image: Some("trainyard:1".to_owned()), ..Settings::default() }
}

fn waits(mut over: Value) -> Value {
    over["metadata"] = json!({"annotations": {"trainyard.dev/wait-for-workers": "reachable"}});
    over
}

#[test]
fn a_launcher_waits_for_workers_that_can_be_reached() {
    let launcher = |over: Value, settings: Settings| {
        let mut case = Case::with(over, settings);
        case.run();
        case.model.one("Job", "train-launcher").map(|job| job["spec"]["template"]["spec"].clone())
    };
    let plain = launcher(json!({}), with_image()).unwrap();
    assert!(plain.get("initContainers").is_none(), "nobody asked: {plain}");
    let other = json!({"metadata": {"annotations": {"trainyard.dev/wait-for-workers": "no"}}});
    assert_eq!(launcher(other, with_image()).unwrap(), plain);
    let alone = waits(json!({"spec": {"runLauncherAsWorker": true, "mpiReplicaSpecs": {"Worker": null}}}));
    assert!(launcher(alone, with_image()).unwrap().get("initContainers").is_none(), "there is nobody to wait for");
    let own = |name: &str, over: Value| {
        let mut container = json!({"name": name, "image": "i"});
        merge(&mut container, &over);
        json!({"template": {"spec": {"containers": [container]}}})
    };
    let ports = json!({"ports": [{"containerPort": 2022}, {"containerPort": 53, "protocol": "UDP"}]});
    let asks = json!({"resources": {"limits": {"cpu": "1"}}});
    let mut roles = json!({"Launcher": own("l", asks), "Worker": own("w", ports)});
    roles["Launcher"]["template"]["spec"]["initContainers"] = json!([{"name": "own", "image": "i"}]);
    let pod = launcher(waits(json!({"spec": {"mpiReplicaSpecs": roles}})), with_image()).unwrap();
    let init = pod["initContainers"].as_array().unwrap();
    assert_eq!(init.len(), 2);
    assert_eq!(init[0]["name"], "own", "it comes first, as it may take long");
    assert_eq!(init[1]["image"], "trainyard:1");
    assert_eq!(init[1]["command"], json!(["/trainyard", "mpi-wait", "--port=22", "--port=2022", "--port=2222"]));
    assert_eq!(init[1]["resources"], json!({"limits": {"cpu": "1"}}));
    assert_eq!(init[1]["volumeMounts"], json!([{"name": "mpi-job-config", "mountPath": "/etc/mpi"}]));
    // where nothing could wait in the pod, the launcher comes when its workers are ready
    let mut case = Case::of(waits(json!({})));
    case.run();
    assert!(case.names("Job").is_empty());
    case.phase(0, "Running", json!({}));
    assert!(case.names("Job").is_empty());
    case.phase(1, "Running", json!({}));
    assert_eq!(case.names("Job"), ["train-launcher"]);
}

#[test]
fn a_launcher_that_is_held_back_waits_again_after_each_suspension() {
    let suspend = |suspend: bool| json!({"spec": {"runPolicy": {"suspend": suspend}}});
    // as Kueue has it: made suspended, resumed when there is room
    let mut over = waits(json!({}));
    merge(&mut over, &suspend(true));
    let mut case = Case::of(over);
    case.run();
    assert!(case.names("Job").is_empty());
    case.change("MPIJob", "train", suspend(false));
    assert!(case.names("Job").is_empty(), "its workers are not ready");
    case.phase(0, "Running", json!({}));
    case.phase(1, "Running", json!({}));
    let is_suspended = |case: &Case| case.model.one("Job", "train-launcher").unwrap()["spec"]["suspend"] == json!(true);
    assert!(!is_suspended(&case));
    case.change("MPIJob", "train", suspend(true));
    assert!(is_suspended(&case));
    case.change("MPIJob", "train", suspend(false));
    assert!(is_suspended(&case), "the new workers are not ready");
    case.phase(0, "Running", json!({}));
    assert!(is_suspended(&case));
    case.phase(1, "Running", json!({}));
    assert!(!is_suspended(&case));
}

#[test]
fn who_cannot_be_reached_is_told_once() {
    let mut case = Case::with(waits(json!({})), with_image());
    case.run();
    let ended = |message: &str| json!({"terminated": {"exitCode": 1, "message": message, "finishedAt": "2026-01-01T00:00:00Z"}});
    let waiter = |member: &str, message: &str| {
        json!({"metadata": {"uid": "p-1"}, "status": {"initContainerStatuses": [
            {"name": "own", "state": {"terminated": {"exitCode": 1, "message": "not ours"}}},
            {"name": "trainyard-wait-for-workers", member: ended(message)},
        ]}})
    };
    let events = |case: &Case| -> Vec<(String, String)> {
        let told = case.model.all("Event");
        told.iter().map(|event| (event["reason"].to_string(), event["message"].to_string())).collect()
    };
    let pod = launcher_pod(&case, "Pending", waiter("lastState", "waiting\n1 of 2 workers could not be reached"));
    case.model.put(pod);
    case.run();
    case.run();
    let told = ("\"WorkersNotReachable\"".to_owned(), "\"1 of 2 workers could not be reached\"".to_owned());
    assert_eq!(events(&case), std::slice::from_ref(&told));
    case.change("Pod", "train-launcher-x", json!({"metadata": {"uid": "p-2"}}));
    assert_eq!(events(&case), [told.clone(), told], "another pod has waited in vain");
}

#[test]
fn a_success_without_its_workers_is_told_once() {
    let entered = |status: &str, phase: &str| {
        json!({"metadata": {"uid": "p-1"}, "status": {"phase": phase, "conditions": [
        {"type": "trainyard.dev/EnteredPods", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
    };
    let told = |over: Value, pod: Value| {
        let mut case = Case::of(over);
        case.run();
        let phase = pod["status"]["phase"].as_str().unwrap_or_default().to_owned();
        case.model.put(launcher_pod(&case, &phase, pod));
        case.change("Job", "train-launcher", complete());
        case.run();
        case.run();
        let told = case.model.all("Event");
        told.iter().map(|event| event["reason"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(told(json!({}), entered("False", "Succeeded")), ["WorkersNotUsed"]);
    assert!(told(json!({}), entered("True", "Succeeded")).is_empty(), "it entered one");
    assert!(told(json!({}), entered("False", "Failed")).is_empty(), "it did not succeed");
    assert!(
        told(json!({}), json!({"metadata": {"uid": "p-1"}, "status": {"phase": "Succeeded"}})).is_empty(),
        "nobody knows"
    );
    let alone = json!({"spec": {"runLauncherAsWorker": true, "mpiReplicaSpecs": {"Worker": null}}});
    assert!(told(alone, entered("False", "Succeeded")).is_empty(), "there is nobody to enter");
}

/// A job that may be tried again, whose launcher has failed.
fn failed_once(retries: &str, reason: &str) -> Case {
    let annotations = json!({"trainyard.dev/retries": retries, "trainyard.dev/retry-backoff": "30s"});
    let mut case = Case::of(json!({"metadata": {"annotations": annotations}}));
    case.run();
    let failed = json!({"status": {"failed": 1, "conditions": [{"type": "Failed", "status": "True", "reason": reason, "message": "m"}]}});
    case.change("Job", "train-launcher", failed);
    case
}

#[test]
fn a_launcher_that_failed_is_tried_again() {
    let mut case = failed_once("1", "BackoffLimitExceeded");
    case.phase(1, "Failed", json!({"status": {"reason": "Evicted"}}));
    case.run();
    let job = case.model.one("MPIJob", "train").unwrap();
    assert_eq!(job["metadata"]["annotations"]["trainyard.dev/attempt"], "2");
    assert!(case.conditions().iter().any(|held| held.starts_with("Restarting=True")), "{:?}", case.conditions());
    assert!(!case.conditions().iter().any(|held| held.starts_with("Failed=True")), "{:?}", case.conditions());
    assert_eq!(case.names("Job"), ["train-launcher"], "its log can be read until then");
    let worker = case.model.one("Pod", "train-worker-1").unwrap();
    assert_ne!(worker["status"]["phase"], "Failed", "it was made anew");
    case.change("MPIJob", "train", json!({"metadata": {"annotations": {"trainyard.dev/retry-at": null}}}));
    case.run();
    case.run();
    let launcher = case.model.one("Job", "train-launcher").unwrap();
    assert_eq!(launcher["metadata"]["annotations"]["trainyard.dev/attempt"], "2");
    case.change(
        "Job",
        "train-launcher",
        json!({"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}}),
    );
    case.run();
    assert!(
        case.conditions().iter().any(|held| held.starts_with("Failed=True")),
        "no attempt is left: {:?}",
        case.conditions()
    );
}

#[test]
fn what_is_final_is_not_tried_again() {
    for (retries, reason) in [("0", "BackoffLimitExceeded"), ("3", "DeadlineExceeded"), ("3", "PodFailurePolicy")] {
        let mut case = failed_once(retries, reason);
        case.run();
        assert!(
            case.conditions().iter().any(|held| held.starts_with("Failed=True")),
            "{reason}: {:?}",
            case.conditions()
        );
    }
}
