//! Installs kinds and runtimes into the API server when `up` starts. Each carries a hash of its manifest, so a start
//! with nothing new parses and writes nothing.

use crate::Controllers;
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinSet;

/// Annotation with the hash of the manifest that an object was made from.
const HASH: &str = "trainyard.dev/manifest-hash";

/// How long the server may take to serve a new kind.
const SERVED_MAX: Duration = Duration::from_secs(10);

/// Manifests in the binary, by the path of the object that they describe.
type Manifest = (&'static str, &'static str);

macro_rules! crd {
    ($name:literal, $file:literal) => {
        (
            concat!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/", $name),
            include_str!(concat!(env!("OUT_DIR"), "/crds/", $file, ".json")),
        )
    };
}

macro_rules! runtime {
    ($name:literal) => {
        (
            concat!("/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/", $name),
            include_str!(concat!(env!("OUT_DIR"), "/runtimes/", $name, ".json")),
        )
    };
}

const JOBSET_CRDS: [Manifest; 1] = [crd!("jobsets.jobset.x-k8s.io", "jobset.x-k8s.io_jobsets")];

const MPI_CRDS: [Manifest; 1] = [crd!("mpijobs.kubeflow.org", "kubeflow.org_mpijobs")];

const SKY_CRDS: [Manifest; 7] = [
    crd!("budgets.sky.trainyard.dev", "sky.trainyard.dev_budgets"),
    crd!("clusters.sky.trainyard.dev", "sky.trainyard.dev_clusters"),
    crd!("launches.sky.trainyard.dev", "sky.trainyard.dev_launches"),
    crd!("managedjobs.sky.trainyard.dev", "sky.trainyard.dev_managedjobs"),
    crd!("machines.sky.trainyard.dev", "sky.trainyard.dev_machines"),
    crd!("pools.sky.trainyard.dev", "sky.trainyard.dev_pools"),
    crd!("servings.sky.trainyard.dev", "sky.trainyard.dev_servings"),
];

const TRAINER_CRDS: [Manifest; 6] = [
    crd!("trainjobs.trainer.kubeflow.org", "trainer.kubeflow.org_trainjobs"),
    crd!("trainingruntimes.trainer.kubeflow.org", "trainer.kubeflow.org_trainingruntimes"),
    crd!("clustertrainingruntimes.trainer.kubeflow.org", "trainer.kubeflow.org_clustertrainingruntimes"),
    crd!("optimizationjobs.trainer.kubeflow.org", "trainer.kubeflow.org_optimizationjobs"),
    crd!("podgroups.scheduling.x-k8s.io", "scheduling.x-k8s.io_podgroups"),
    crd!("podgroups.scheduling.volcano.sh", "scheduling.volcano.sh_podgroups"),
];

const RUNTIMES: [Manifest; 8] = [
    runtime!("torch-distributed"),
    runtime!("jax-distributed"),
    runtime!("xgboost-distributed"),
    runtime!("deepspeed-distributed"),
    runtime!("mlx-distributed"),
    runtime!("torchtune-llama3.2-1b"),
    runtime!("torchtune-llama3.2-3b"),
    runtime!("torchtune-qwen2.5-1.5b"),
];

/// Runtimes of this machine's control plane alone.
const LAPTOP_RUNTIMES: [Manifest; 1] = [(
    "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/plain",
    include_str!(concat!(env!("OUT_DIR"), "/laptop/plain.json")),
)];

macro_rules! user_role {
    ($kind:literal, $name:literal, $file:literal) => {
        (
            concat!("/apis/rbac.authorization.k8s.io/v1/", $kind, "/", $name),
            include_str!(concat!(env!("OUT_DIR"), "/users/", $file, ".json")),
        )
    };
}

/// What users may do with our kinds by Kubernetes' own roles `view`, `edit` and `admin`.
const USER_ROLES: [Manifest; 4] = [
    user_role!("clusterroles", "trainyard-view", "trainyard-view"),
    user_role!("clusterroles", "trainyard-edit", "trainyard-edit"),
    user_role!("clusterroles", "trainyard-runtimes", "trainyard-runtimes"),
    user_role!("clusterrolebindings", "trainyard-runtimes", "trainyard-runtimes-binding"),
];

/// The kinds that a cluster gets, too, as CustomResourceDefinitions.
pub fn cluster_kinds() -> Vec<Value> {
    let kinds = JOBSET_CRDS.iter().chain(&MPI_CRDS).chain(&TRAINER_CRDS);
    kinds.map(|(_, text)| serde_json::from_str(text).expect("invariant: written by build.rs")).collect()
}

/// Why something could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("cannot install {path}")]
    Request {
        path: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("the manifest for {path} in this binary is broken: {why}")]
    Manifest { path: String, why: String },
}

/// The kinds and runtimes themselves, in the order in which they go in.
pub fn manifests() -> impl Iterator<Item = Value> {
    let all = JOBSET_CRDS.iter().chain(&MPI_CRDS).chain(&SKY_CRDS).chain(&TRAINER_CRDS).chain(&RUNTIMES);
    all.map(|(_, text)| serde_json::from_str(text).expect("invariant: written by build.rs"))
}

/// The built-in ClusterTrainingRuntimes of these names; `all` stands for every one.
pub fn runtimes(names: &[String]) -> Result<Vec<Value>, String> {
    let all: Vec<Value> =
        RUNTIMES.iter().map(|(_, text)| serde_json::from_str(text).expect("invariant: written by build.rs")).collect();
    if names.iter().any(|name| name == "all") {
        return Ok(all);
    }
    let known = |name: &str| all.iter().find(|runtime| runtime["metadata"]["name"] == name).cloned();
    let one = |name: &String| {
        known(name).ok_or_else(|| {
            let names: Vec<&str> = all.iter().filter_map(|runtime| runtime["metadata"]["name"].as_str()).collect();
            format!("there is no built-in runtime {name:?}; there are {}, and all", names.join(", "))
        })
    };
    names.iter().map(one).collect()
}

/// Puts `image`, one of `cargo xtask image --initializer`, in the place of upstream's initializers in a runtime: without rights, without a
/// token for the API, and writing to its volume alone. Those that make a data cache need the API, and are left as they are.
pub fn with_initializer_image(runtime: &mut Value, image: &str) {
    let jobs = runtime.pointer_mut("/spec/template/spec/replicatedJobs").and_then(Value::as_array_mut);
    for job in jobs.into_iter().flatten() {
        let Some(pod) = job.pointer_mut("/template/spec/template/spec") else { continue };
        if pod.get("serviceAccountName").is_some() {
            continue;
        }
        let mut is_ours = false;
        for container in pod["containers"].as_array_mut().into_iter().flatten() {
            let name = container["image"].as_str().unwrap_or_default();
            let name = name.rsplit('/').next().unwrap_or_default();
            let name = name.split(['@', ':']).next().unwrap_or_default();
            let Some(kind) = name.strip_suffix("-initializer").filter(|kind| ["dataset", "model"].contains(kind))
            else {
                continue;
            };
            container["command"] = json!(["/trainyard", "initialize", kind]);
            container["image"] = image.into();
            container["securityContext"] = json!({
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": true,
                "runAsGroup": 65532,
                "runAsNonRoot": true,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            });
            is_ours = true;
        }
        if is_ours {
            pod["automountServiceAccountToken"] = false.into();
            // so that the volume's folder, which may be root's, is writable
            pod["securityContext"] = json!({"fsGroup": 65532, "fsGroupChangePolicy": "OnRootMismatch"});
        }
    }
}

/// Installs the kinds that the chosen controllers work on, and Trainer's runtimes.
pub async fn install(client: &Client, controllers: &Controllers) -> Result<(), InstallError> {
    let trainer = controllers.wants_trainer();
    let mut kinds = Vec::new();
    if controllers.wants_jobset() {
        kinds.extend(JOBSET_CRDS);
    }
    if controllers.wants_mpi() {
        kinds.extend(MPI_CRDS);
    }
    if controllers.wants_clusters() {
        kinds.extend(SKY_CRDS);
    }
    if trainer {
        kinds.extend(TRAINER_CRDS);
    }
    all(client, &kinds).await?;
    for kind in &kinds {
        wait_for_kind(client, kind).await?;
    }
    if !kinds.is_empty() {
        all(client, &USER_ROLES).await?;
    }
    if trainer {
        all(client, &RUNTIMES).await?;
        for manifest in &LAPTOP_RUNTIMES {
            unless_taken(client, manifest).await?;
        }
        version_map(client).await?;
    }
    Ok(())
}

/// All at once, on all processors: manifests of kinds are long, and their writes share a commit.
async fn all(client: &Client, manifests: &[Manifest]) -> Result<(), InstallError> {
    let mut tasks = JoinSet::new();
    for manifest in manifests {
        let (client, manifest) = (client.clone(), *manifest);
        tasks.spawn(async move { one(&client, &manifest).await });
    }
    while let Some(result) = tasks.join_next().await {
        result.expect("installing does not panic")?;
    }
    Ok(())
}

/// Leaves alone what somebody else has made under this name.
async fn unless_taken(client: &Client, manifest: &Manifest) -> Result<(), InstallError> {
    match request(client, "GET", manifest.0, None).await {
        Ok(held) if held["metadata"]["annotations"].get(HASH).is_none() => Ok(()),
        Ok(_) | Err(_) => one(client, manifest).await,
    }
}

async fn one(client: &Client, (path, text): &Manifest) -> Result<(), InstallError> {
    let hash = api::stable::digits([*text]);
    if let Ok(held) = request(client, "GET", path, None).await
        && held["metadata"]["annotations"][HASH] == hash.as_str()
    {
        return Ok(());
    }
    let broken = |why: String| InstallError::Manifest { path: (*path).to_owned(), why };
    let mut object: Value = serde_json::from_str(text).map_err(|error| broken(error.to_string()))?;
    if !object["metadata"].is_object() {
        return Err(broken("it has no metadata".to_owned()));
    }
    object["metadata"]["annotations"][HASH] = hash.into();
    request(client, "PATCH", path, Some(&object)).await.map(|_| ())
}

/// GET, or server-side apply as `trainyard`.
async fn request(client: &Client, method: &str, path: &str, body: Option<&Value>) -> Result<Value, InstallError> {
    let uri = if body.is_some() { format!("{path}?fieldManager=trainyard&force=true") } else { path.to_owned() };
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("content-type", "application/apply-patch+yaml")
        .body(body.map(|body| body.to_string().into_bytes()).unwrap_or_default())
        .expect("paths in the binary are well-formed");
    let failed = |source| InstallError::Request { path: path.to_owned(), source: Box::new(source) };
    client.request(request).await.map_err(failed)
}

/// Until the server serves a kind in all its versions: it takes definitions up by itself, in milliseconds. Whoever starts
/// after this finds the kind in discovery.
async fn wait_for_kind(client: &Client, (path, _): &Manifest) -> Result<(), InstallError> {
    let limit = api::time::after(tokio::time::Instant::now(), SERVED_MAX);
    let held = request(client, "GET", path, None).await?;
    let (group, plural) = (&held["spec"]["group"], &held["spec"]["names"]["plural"]);
    let versions = held["spec"]["versions"].as_array().map_or(&[][..], Vec::as_slice);
    for version in versions.iter().filter(|version| version["served"] == true) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let collection = format!("/apis/{}/{}/{}?limit=1", text(group), text(&version["name"]), text(plural));
        while let Err(error) = request(client, "GET", &collection, None).await {
            if tokio::time::Instant::now() > limit {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    Ok(())
}

/// The ConfigMap in which the Kubeflow SDK looks for Trainer's version.
async fn version_map(client: &Client) -> Result<(), InstallError> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow-system"}});
    let path = "/api/v1/namespaces/kubeflow-system";
    if request(client, "GET", path, None).await.is_err() {
        request(client, "PATCH", path, Some(&namespace)).await?;
    }
    let path = "/api/v1/namespaces/kubeflow-system/configmaps/kubeflow-trainer-public";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kubeflow-trainer-public", "namespace": "kubeflow-system"},
        "data": {"kubeflow_trainer_version": "2.3.0"}});
    if request(client, "GET", path, None).await.is_err() {
        request(client, "PATCH", path, Some(&map)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initializers_of_all_runtimes_but_those_of_the_cache_get_the_image() {
        let mut count = 0;
        for before in runtimes(&["all".to_owned()]).unwrap() {
            let mut after = before.clone();
            with_initializer_image(&mut after, "r.example/i:1");
            let jobs =
                |runtime: &Value| runtime["spec"]["template"]["spec"]["replicatedJobs"].as_array().unwrap().clone();
            for (before, after) in jobs(&before).iter().zip(jobs(&after)) {
                let (before, pod) =
                    (&before["template"]["spec"]["template"]["spec"], &after["template"]["spec"]["template"]["spec"]);
                let name = after["name"].as_str().unwrap();
                if !name.ends_with("-initializer") || before["serviceAccountName"].is_string() {
                    assert_eq!(before, pod, "{name}");
                    continue;
                }
                count += 1;
                let container = &pod["containers"][0];
                assert_eq!(
                    container["command"],
                    json!(["/trainyard", "initialize", name.trim_end_matches("-initializer")])
                );
                assert!(container["image"] == "r.example/i:1" && container["securityContext"]["runAsNonRoot"] == true);
                assert!(
                    pod["automountServiceAccountToken"] == false && container["env"] == before["containers"][0]["env"]
                );
            }
        }
        assert_eq!(count, 6);
    }

    #[test]
    fn runtimes_are_chosen_by_name() {
        let chosen = |names: &[&str]| runtimes(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(chosen(&[]).unwrap().len(), 0);
        assert_eq!(chosen(&["all"]).unwrap().len(), RUNTIMES.len());
        let one = chosen(&["jax-distributed"]).unwrap();
        assert!(one.len() == 1 && one[0]["metadata"]["name"] == "jax-distributed");
        let error = chosen(&["jax-distributed", "jax"]).unwrap_err();
        assert!(error.contains("\"jax\"") && error.contains("torch-distributed"), "{error}");
    }
}
