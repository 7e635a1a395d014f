//! Jobs as the API server makes them: which labels they get, by comparison with Kubernetes 1.36.

use super::hostile::Hostile;
use serde_json::{Value, json};

/// The keys of a map that are not the Job's tie to its pods, and whether those four are there.
fn labels(of: &Value) -> (Vec<&str>, bool) {
    let keys = || of["labels"].as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    let ties = ["batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"];
    (keys().filter(|key| !ties.contains(key)).collect(), ties.iter().all(|tie| keys().any(|key| key == *tie)))
}

#[tokio::test]
async fn a_job_without_labels_shows_all_those_of_its_template() {
    let server = Hostile::start(None).await;
    let (own, none) = (json!({"a": "b"}), json!({}));
    let of_template = json!({"c": "d"});
    // labels in metadata and template; what the stored object has in metadata
    let cases = [
        ("neither", &none, &none, (vec![], true)),
        ("of-metadata", &own, &none, (vec!["a"], false)),
        ("of-template", &none, &of_template, (vec!["c"], true)),
        ("both", &own, &of_template, (vec!["a"], false)),
        ("the-same", &of_template, &of_template, (vec!["c"], false)),
    ];
    for (name, metadata, template, expected) in cases {
        let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": metadata},
            "spec": {"suspend": true, "template": {"metadata": {"labels": template}, "spec": spec}}});
        let path = "/apis/batch/v1/namespaces/default/jobs";
        let (code, made) = server.ask("POST", path, "application/json", job.to_string()).await;
        assert_eq!(code, 201, "{made}");
        assert_eq!(labels(&made["metadata"]), expected, "{name}");
        assert!(labels(&made["spec"]["template"]["metadata"]).1, "{name}: its pods are tied to it");
        let (_, read) = server.ask("GET", &format!("{path}/{name}"), "application/json", "").await;
        assert_eq!(read["metadata"]["labels"], made["metadata"]["labels"], "{name}");
    }
}
