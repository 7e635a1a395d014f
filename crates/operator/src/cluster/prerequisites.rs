//! Checks regularly whether the cluster has what TrainJobs need, and says how to install what is missing. None of it makes the
//! operator unready: the webhooks must serve for a runtime to be installed, and nothing is to be started again.

use crate::cluster::health::{Health, Level};
use crate::cluster::leader::form;
use http::Method;
use kube::Client;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(15);
/// Trainer's kinds as resources.
const RESOURCES: [&str; 3] = ["trainjobs", "trainingruntimes", "clustertrainingruntimes"];
/// Fields that are read or written here and that CRDs of older releases of Trainer lack: what is written to them would be
/// dropped without a word.
const FIELDS: [(&str, &[&str]); 3] = [
    (
        "TrainJob",
        &[
            "spec.activeDeadlineSeconds",
            "spec.managedBy",
            "spec.runtimePatches",
            "spec.suspend",
            "spec.trainer.numProcPerNode",
            "status.jobsStatus",
            "status.trainerStatus",
        ],
    ),
    ("TrainingRuntime", RUNTIME_FIELDS),
    ("ClusterTrainingRuntime", RUNTIME_FIELDS),
];
const RUNTIME_FIELDS: &[&str] = &[
    "spec.mlPolicy.flux",
    "spec.mlPolicy.jax",
    "spec.mlPolicy.mpi",
    "spec.mlPolicy.torch",
    "spec.mlPolicy.xgboost",
    "spec.podGroupPolicy.coscheduling",
    "spec.podGroupPolicy.volcano",
];

/// Looks until `stop`.
pub(crate) async fn probe(client: Client, health: Arc<Health>, stop: CancellationToken) {
    let mut schemas = Schemas::default();
    loop {
        let look = async {
            if kinds(&client, &health, &mut schemas).await {
                runtimes(&client, &health).await;
            }
            jobset(&client, &health).await;
            tokio::time::sleep(PERIOD).await;
        };
        tokio::select! {
            () = look => {}
            () = stop.cancelled() => return,
        }
    }
}

async fn get(client: &Client, path: &str) -> Result<Value, kube::Error> {
    client.request(form(Method::GET, path, None)).await
}

/// Whether Trainer's kinds are served; tells of it, and of what their schemas lack.
async fn kinds(client: &Client, health: &Health, schemas: &mut Schemas) -> bool {
    let trainer = get(client, "/apis/trainer.kubeflow.org/v1alpha1").await;
    let has = |resource: &str| {
        let resources = trainer.as_ref().ok().and_then(|list| list["resources"].as_array());
        resources.is_some_and(|list| list.iter().any(|entry| entry["name"] == resource))
    };
    let lacking: Vec<&str> = RESOURCES.into_iter().filter(|resource| !has(resource)).collect();
    if !lacking.is_empty() {
        let message = format!(
            "{} not served: kubectl apply --server-side -k manifests/crds; no restart is needed",
            lacking.join(", ")
        );
        health.set("trainer-crds", Level::Lacks, message);
        return false;
    }
    match schemas.lacking(client).await {
        Ok([]) => health.set("trainer-crds", Level::Works, "served"),
        Ok(fields) => {
            let message = format!(
                "the CRDs are of an older release and drop what is written to {}: kubectl apply --server-side \
                 --force-conflicts -k manifests/crds; no restart is needed",
                fields.join(", ")
            );
            health.set("trainer-crds", Level::Lacks, message);
        }
        // an odd aggregator: what is served works, as far as anybody can tell
        Err(error) => health.set("trainer-crds", Level::Works, format!("served; schemas cannot be read: {error}")),
    }
    true
}

/// What the schemas lack that are served now: they are large, and read again only when they have changed.
#[derive(Default)]
struct Schemas {
    /// Where they were read: the address has a digest of what is there.
    address: String,
    lacking: Vec<String>,
}

impl Schemas {
    async fn lacking(&mut self, client: &Client) -> Result<&[String], kube::Error> {
        let index = get(client, "/openapi/v3").await?;
        let address = index["paths"]["apis/trainer.kubeflow.org/v1alpha1"]["serverRelativeURL"].as_str();
        if let Some(address) = address.filter(|address| **address != *self.address) {
            let document = get(client, address).await?;
            (self.lacking, self.address) = (lacking(&document), address.to_owned());
        }
        Ok(&self.lacking)
    }
}

/// Which of [`FIELDS`] an OpenAPI document does not have, as `Kind.path`.
fn lacking(document: &Value) -> Vec<String> {
    let mut lacking = Vec::new();
    for (kind, fields) in FIELDS {
        let is_kind = |schema: &&Value| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten();
            kinds.into_iter().any(|gvk| gvk["kind"] == kind)
        };
        let schemas = document["components"]["schemas"].as_object().into_iter().flat_map(|map| map.values());
        let Some(schema) = schemas.into_iter().find(is_kind) else { continue };
        for field in fields {
            let found = field.split('.').try_fold(schema, |schema, name| schema["properties"].get(name));
            if found.is_none() {
                lacking.push(format!("{kind}.{field}"));
            }
        }
    }
    lacking
}

async fn runtimes(client: &Client, health: &Health) {
    match get(client, "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes?limit=1").await {
        Ok(list) if list["items"].as_array().is_some_and(|items| !items.is_empty()) => {
            health.set("runtimes", Level::Works, "there are some");
        }
        Ok(_) => health.set(
            "runtimes",
            Level::Lacks,
            "there is no ClusterTrainingRuntime; for the usual ones: kubectl apply --server-side -k \
             manifests/overlays/runtimes",
        ),
        Err(error) => health.set("runtimes", Level::Lacks, format!("cannot look: {error}")),
    }
}

async fn jobset(client: &Client, health: &Health) {
    match get(client, "/apis/jobset.x-k8s.io/v1alpha2").await {
        Ok(_) => health.set("jobset", Level::Works, "served"),
        Err(_) => health.set(
            "jobset",
            Level::Lacks,
            "JobSet (jobset.x-k8s.io/v1alpha2) is not served, so TrainJobs are taken and wait: install JobSet 0.12 or \
             newer; no restart is needed",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The shipped CRDs as an API server publishes them.
    fn published() -> Value {
        let mut schemas = json!({});
        for plural in RESOURCES {
            let path =
                format!("{}/../../manifests/crds/trainer.kubeflow.org_{plural}.yaml", env!("CARGO_MANIFEST_DIR"));
            let crd: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
            let mut schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
            schema["x-kubernetes-group-version-kind"] = json!([{"kind": crd["spec"]["names"]["kind"]}]);
            schemas[plural] = schema;
        }
        json!({"components": {"schemas": schemas}})
    }

    #[test]
    fn fields_that_older_releases_lack_are_named() {
        let mut document = published();
        assert_eq!(lacking(&document), Vec::<String>::new(), "what we ship lacks nothing");
        let schemas = &mut document["components"]["schemas"];
        let status = schemas["trainjobs"]["properties"]["status"]["properties"].as_object_mut().unwrap();
        status.remove("trainerStatus").unwrap();
        let policy = schemas["trainingruntimes"]["properties"]["spec"]["properties"].as_object_mut().unwrap();
        policy.remove("podGroupPolicy").unwrap();
        let expected = [
            "TrainJob.status.trainerStatus",
            "TrainingRuntime.spec.podGroupPolicy.coscheduling",
            "TrainingRuntime.spec.podGroupPolicy.volcano",
        ];
        assert_eq!(lacking(&document), expected);
    }
}
