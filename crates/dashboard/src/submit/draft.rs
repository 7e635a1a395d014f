//! What a form begins with.

use crate::row::Kind;
use serde_json::Value;

const TRAINJOB: &str = "\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: my-job
  namespace: NAMESPACE
spec:
  runtimeRef:
    name: torch-distributed
  trainer:
    numNodes: 1
    # what runs on each node. The form sends no files: train.py must be in the image or on a volume
    command: [torchrun, train.py]
";

const MPIJOB: &str = "\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: my-job
  namespace: NAMESPACE
spec:
  slotsPerWorker: 1
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
            - name: launcher
              image: mpi-image # your image
              command: [mpirun, python3, train.py]
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - name: worker
              image: mpi-image # your image
";

const OPTIMIZATIONJOB: &str = "\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: OptimizationJob
metadata:
  name: my-search
  namespace: NAMESPACE
spec:
  objectives:
    - metric: loss # a metric that the script reports
      direction: Minimize
  parameters:
    - name: lr
      searchSpace:
        logUniform: {min: \"1e-4\", max: \"1e-1\"}
  numTrials: 10
  parallelTrials: 2
  trainJobTemplate:
    spec:
      runtimeRef:
        name: torch-distributed
      trainer:
        numNodes: 1
        command: [torchrun, train.py, --lr=$(KUBEFLOW_TRAINER_OPT_LR)]
";

/// An example of a kind.
pub(super) fn example(kind: Kind, namespace: &str) -> String {
    let text = match kind {
        Kind::MpiJob => MPIJOB,
        Kind::OptimizationJob => OPTIMIZATIONJOB,
        Kind::TrainJob | Kind::JobSet | Kind::ManagedJob => TRAINJOB,
    };
    text.replace("NAMESPACE", namespace)
}

/// The job without the fields that the server set, named `NAME-copy`.
pub(super) fn copy(mut job: Value) -> String {
    let mut kept = serde_json::Map::new();
    if let Some(meta) = job["metadata"].as_object_mut() {
        let name = meta.get("name").and_then(Value::as_str).unwrap_or_default();
        kept.insert("name".to_owned(), format!("{name}-copy").into());
        for member in ["namespace", "labels", "annotations"] {
            if let Some(value) = meta.remove(member) {
                kept.insert(member.to_owned(), value);
            }
        }
    }
    // what others wrote onto the job is not the user's: its trial, its last applied form
    if let Some(annotations) = kept.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|name, _| !name.starts_with("kubectl.kubernetes.io/") && !is_a_record(name));
    }
    if let Some(labels) = kept.get_mut("labels").and_then(Value::as_object_mut) {
        labels.retain(|name, _| name != view::trials::PARENT);
    }
    kept.retain(|_, value| value.as_object().is_none_or(|members| !members.is_empty()));
    if let Some(spec) = job["spec"].as_object_mut() {
        // a copy starts at once
        spec.remove("suspend");
    }
    let copy = serde_json::json!({
        "apiVersion": job["apiVersion"], "kind": job["kind"], "metadata": kept, "spec": job["spec"],
    });
    serde_saphyr::to_string(&copy).unwrap_or_default()
}

/// Whether an annotation says what became of a job, rather than what is asked for.
fn is_a_record(name: &str) -> bool {
    use api::trainer::annotations::{ATTEMPT, RETRY_AT};
    [ATTEMPT, RETRY_AT].contains(&name) || name == "trainyard.dev/optimization-parameters"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_copy_has_what_was_asked_for() {
        let job = json!({
            "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 2,
                "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [], "ownerReferences": [{"uid": "s"}],
                "labels": {"team": "x", "trainyard.dev/optimizationjob": "s"},
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "trainyard.dev/attempt": "2"}},
            "spec": {"runtimeRef": {"name": "r"}, "suspend": true}, "status": {"conditions": []},
        });
        let copy: Value = serde_saphyr::from_str(&copy(job)).unwrap();
        assert_eq!(
            copy,
            json!({
                "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
                "metadata": {"name": "a-copy", "namespace": "n", "labels": {"team": "x"}}, "spec": {"runtimeRef": {"name": "r"}},
            })
        );
    }

    #[test]
    fn examples_are_of_their_kind() {
        for kind in [Kind::TrainJob, Kind::MpiJob, Kind::OptimizationJob] {
            let read: Value = serde_saphyr::from_str(&example(kind, "team-a")).unwrap();
            let resource = client::Kind::from(kind).resource();
            assert_eq!(
                (read["kind"].as_str(), read["apiVersion"].as_str()),
                (Some(&*resource.kind), Some(&*resource.api_version))
            );
            assert_eq!(read["metadata"]["namespace"], "team-a");
        }
    }
}
