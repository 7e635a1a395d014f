//! Profile `openshift-ai` from a job's first pass to its end; what it puts on pods is in `testdata-mpijob`.

use super::*;
use crate::mpijob::MpiProfile;

fn case(over: Value) -> Case {
    let image = Some("trainyard:1".to_owned());
    Case::with(over, Settings { profile: MpiProfile::OpenshiftAi, image, ..Settings::default() })
}

#[test]
fn a_policy_guards_the_job_s_pods_and_is_kept_so() {
    let mut case = case(json!({}));
    case.run();
    let made = case.model.one("NetworkPolicy", "train-peers").unwrap();
    assert_eq!(api::object::controller_of(&made).unwrap()["uid"], "u-1");
    let pods = json!({"matchLabels": {"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-name": "train"}});
    assert_eq!(made["spec"]["podSelector"], pods);
    let labels = case.model.one("Pod", "train-worker-0").unwrap()["metadata"]["labels"].clone();
    for (name, value) in pods["matchLabels"].as_object().unwrap() {
        assert_eq!(&labels[name], value, "the workers are those that it selects");
    }
    let gvk = Gvk::new("networking.k8s.io", "v1", "NetworkPolicy");
    case.model.change(&gvk, &key("train-peers"), |held| held["spec"]["ingress"] = json!([{}]));
    case.run();
    assert_eq!(case.model.one("NetworkPolicy", "train-peers").unwrap()["spec"], made["spec"]);
}

#[test]
fn a_policy_of_somebody_else_is_not_touched() {
    let mut case = case(json!({}));
    let theirs = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "train-peers", "namespace": "ns"}, "spec": {"podSelector": {}}});
    case.model.put(theirs);
    assert_eq!(case.run(), Next::Backoff);
    assert_eq!(case.model.one("NetworkPolicy", "train-peers").unwrap()["spec"], json!({"podSelector": {}}));
    assert!(case.names("Pod").is_empty(), "pods are not made before they are guarded");
}

#[test]
fn the_job_itself_stays_as_it_was_written() {
    let mut case = case(json!({}));
    let before = case.model.one("MPIJob", "train").unwrap();
    case.run();
    case.phase(0, "Running", json!({}));
    case.phase(1, "Running", json!({}));
    case.change("MPIJob", "train", json!({"spec": {"runPolicy": {"suspend": true}}}));
    case.change("MPIJob", "train", json!({"spec": {"runPolicy": null}}));
    let after = case.model.one("MPIJob", "train").unwrap();
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(after["metadata"].get("annotations"), None);
}

#[test]
fn without_the_profile_there_is_nothing_of_it() {
    let mut case = Case::of(json!({}));
    case.run();
    assert!(case.names("NetworkPolicy").is_empty());
    let worker = case.model.one("Pod", "train-worker-0").unwrap();
    assert_eq!(worker["spec"].get("securityContext"), None);
    assert_eq!(worker["spec"].get("automountServiceAccountToken"), None);
    assert_eq!(worker["metadata"].get("annotations"), None);
}
