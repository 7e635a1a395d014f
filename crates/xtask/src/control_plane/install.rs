//! Installs upstream's controllers beside the API server: their kinds, their webhooks, their programs.
//!
//! They run as processes, not in pods, so their webhooks are registered by URL. This module changes the
//! manifests as their kustomizations would, as far as a control plane on loopback can tell: names, selectors, conversion.

use super::build::Programs;
use super::keys::Keys;
use super::process::Processes;
use super::{PATIENCE, make_private};
use anyhow::{Context, Result, bail};
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Where controllers look for certificates, below the folder of temporary files.
const CERTIFICATES: &str = "k8s-webhook-server/serving-certs";

/// One of upstream's controllers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Controller {
    JobSet,
    Trainer,
    Kueue,
    /// mpi-operator, which has no webhooks.
    Mpi,
}

/// Where in its module a controller keeps what belongs to it.
struct Sources {
    module: &'static str,
    crds: &'static str,
    webhooks: Option<&'static str>,
}

/// Where mpi-operator keeps its Lease.
const MPI_NAMESPACE: &str = "mpi-operator";

impl Controller {
    /// Its name among the programs.
    pub fn program(self) -> &'static str {
        match self {
            Self::JobSet => "jobset",
            Self::Trainer => "trainer",
            Self::Kueue => "kueue",
            Self::Mpi => "mpi-operator",
        }
    }

    fn sources(self) -> Sources {
        let (module, crds, webhooks) = match self {
            Self::JobSet => {
                ("sigs.k8s.io/jobset", "config/components/crd/bases", Some("config/components/webhook/manifests.yaml"))
            }
            Self::Trainer => {
                ("github.com/kubeflow/trainer/v2", "manifests/base/crds", Some("manifests/base/webhook/manifests.yaml"))
            }
            Self::Kueue => {
                ("sigs.k8s.io/kueue", "config/components/crd/bases", Some("config/components/webhook/manifests.yaml"))
            }
            Self::Mpi => ("github.com/kubeflow/mpi-operator", "manifests/base/kubeflow.org_mpijobs.yaml", None),
        };
        Sources { module, crds, webhooks }
    }

    /// The port of its webhooks, counted from the API server's.
    fn webhook_port(self) -> Option<u16> {
        match self {
            Self::JobSet => Some(4),
            Self::Trainer => Some(5),
            Self::Kueue => Some(7),
            Self::Mpi => None,
        }
    }

    /// A file of its configuration, in JSON: no throttling, one process, certificates from outside. `webhooks` is the port that
    /// they listen on, `port` the API server's.
    fn configuration(self, port: u16, webhooks: u16) -> Value {
        let mut configuration = json!({
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": "127.0.0.1:0"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"port": webhooks, "host": "127.0.0.1"},
            "leaderElection": {"leaderElect": false},
            "clientConnection": {"qps": 500, "burst": 1000},
        });
        let own = match self {
            Self::JobSet => json!({
                "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
                "internalCertManagement": {"enable": false},
            }),
            Self::Trainer => json!({
                "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
                "certManagement": {"enable": false},
                "statusServer": {"port": port + 6},
                // as upstream ships it
                "controller": {"groupKindConcurrency": {"TrainJob.trainer.kubeflow.org": 5}},
            }),
            Self::Kueue => json!({
                "apiVersion": "config.kueue.x-k8s.io/v1beta2",
                // what is not said is below /tmp, for all control planes
                "webhook": {
                    "port": webhooks,
                    "host": "127.0.0.1",
                    "certDir": format!("{}/{CERTIFICATES}", self.program()),
                },
                "internalCertManagement": {"enable": false},
                "integrations": {"frameworks": [
                    "batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob", "kubeflow.org/mpijob",
                ]},
                // an aggregated API, which would have to be registered
                "featureGates": {"VisibilityOnDemand": false},
            }),
            // it has flags alone
            Self::Mpi => json!({}),
        };
        configuration
            .as_object_mut()
            .expect("it is a mapping")
            .extend(own.as_object().expect("it is a mapping").clone());
        configuration
    }

    /// Whether a webhook of its manifest is about kinds that are there: Kueue brings some for every kind that it knows.
    fn wants(self, path: &str) -> bool {
        self != Self::Kueue
            || ["-kueue-x-k8s-io-", "-batch-v1-job", "-jobset-", "-trainjob", "-mpijob"]
                .iter()
                .any(|kind| path.contains(kind))
    }
}

/// Installs controllers, one after the other.
#[expect(clippy::too_many_arguments, reason = "all of it is one control plane, which is not worth a type of its own")]
pub async fn all(
    controllers: &[Controller],
    root: &Path,
    dir: &Path,
    port: u16,
    programs: &Programs,
    processes: &Processes,
    client: &Client,
    keys: &Keys,
) -> Result<()> {
    for controller in controllers {
        run(root, dir, port, controller, programs, processes, client, keys)
            .await
            .with_context(|| format!("installing {}", controller.program()))?;
    }
    Ok(())
}

/// Installs a controller and waits until its webhooks answer.
#[expect(clippy::too_many_arguments, reason = "all of it is one control plane, which is not worth a type of its own")]
async fn run(
    root: &Path,
    dir: &Path,
    port: u16,
    controller: &Controller,
    programs: &Programs,
    processes: &Processes,
    client: &Client,
    keys: &Keys,
) -> Result<()> {
    let name = controller.program();
    let sources = controller.sources();
    let folder = programs.sources(name, sources.module)?;
    let webhooks = controller.webhook_port().map(|offset| port + offset);
    let address = format!("https://127.0.0.1:{}", webhooks.unwrap_or_default());
    let mut kinds = documents(&folder.join(sources.crds))?;
    if matches!(controller, Controller::Trainer | Controller::Mpi) {
        for file in ["scheduling.x-k8s.io_podgroups.yaml", "scheduling.volcano.sh_podgroups.yaml"] {
            kinds.extend(documents(&root.join("manifests/crds").join(file))?);
        }
    }
    for kind in &mut kinds {
        if *controller == Controller::Kueue && list(&kind["spec"]["versions"]).len() > 1 {
            kind["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"url": format!("{address}/convert"), "caBundle": keys.bundle()},
            }});
        }
        apply(client, kind).await?;
    }
    for kind in &kinds {
        processes.until("kube-apiserver", PATIENCE, async || served(client, kind).await).await?;
    }

    let (Some(webhooks), Some(manifest)) = (webhooks, sources.webhooks) else {
        return start_mpi_operator(dir, programs, processes, client).await;
    };
    // controller-runtime looks for its certificate below the folder of temporary files
    let home = dir.join(name);
    let certificates = home.join(CERTIFICATES);
    make_private(&certificates)?;
    for (from, to) in [("server.crt", "tls.crt"), ("server.key", "tls.key")] {
        std::fs::copy(dir.join(from), certificates.join(to)).with_context(|| format!("copying {from}"))?;
    }
    let file = home.join("configuration.json");
    super::write_private(&file, &controller.configuration(port, webhooks).to_string())?;
    let environment = [("KUBECONFIG", dir.join("kubeconfig")), ("TMPDIR", home.clone())];
    let environment: Vec<(&str, &Path)> = environment.iter().map(|(name, value)| (*name, value.as_path())).collect();
    processes.start(name, &programs.path(name)?, &environment, |command| _ = command.arg("--config").arg(&file))?;
    let listens = async || Ok(tokio::net::TcpStream::connect(("127.0.0.1", webhooks)).await.map(|_| ())?);
    processes.until(name, PATIENCE, listens).await?;

    for configuration in documents(&folder.join(manifest))? {
        apply(client, &webhook_configuration(*controller, configuration, &address, keys)?).await?;
    }
    if *controller == Controller::Trainer {
        for file in runtimes(&folder.join("manifests/base/runtimes"))? {
            for runtime in documents(&file)? {
                // a listening webhook is not yet one that answers
                processes.until(name, PATIENCE, async || apply(client, &runtime).await).await?;
            }
        }
    }
    Ok(())
}

/// Starts mpi-operator without throttling, and waits until it holds its Lease.
async fn start_mpi_operator(dir: &Path, programs: &Programs, processes: &Processes, client: &Client) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MPI_NAMESPACE}});
    apply(client, &namespace).await?;
    let name = Controller::Mpi.program();
    let kubeconfig = dir.join("kubeconfig");
    processes.start(name, &programs.path(name)?, &[("KUBECONFIG", kubeconfig.as_path())], |command| {
        command.args([
            &format!("--lock-namespace={MPI_NAMESPACE}"),
            "--gang-scheduling=",
            "--threadiness=8",
            "--kube-api-qps=1000",
            "--kube-api-burst=1000",
            "--controller-queue-rate-limit=1000",
            "--controller-queue-burst=10000",
        ]);
    })?;
    processes.until(name, PATIENCE, async || leads(client).await).await
}

/// Fails unless somebody holds mpi-operator's Lease.
async fn leads(client: &Client) -> Result<()> {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{MPI_NAMESPACE}/leases/mpi-operator");
    let lease: Value = client.request(Request::get(path).body(Vec::new())?).await.context("reading its Lease")?;
    if lease["spec"]["holderIdentity"].as_str().is_none_or(str::is_empty) {
        bail!("nobody holds its Lease");
    }
    Ok(())
}

/// A webhook configuration as the kustomizations make it, for webhooks at `address`.
fn webhook_configuration(controller: Controller, mut object: Value, address: &str, keys: &Keys) -> Result<Value> {
    let mutating = object["kind"] == "MutatingWebhookConfiguration";
    let name = match (controller, mutating) {
        (Controller::Trainer, true) => "defaulter.trainer.kubeflow.org",
        (Controller::Trainer, false) => "validator.trainer.kubeflow.org",
        (Controller::JobSet, true) => "jobset-mutating-webhook-configuration",
        (Controller::JobSet, false) => "jobset-validating-webhook-configuration",
        (Controller::Kueue, true) => "kueue-mutating-webhook-configuration",
        (Controller::Kueue, false) => "kueue-validating-webhook-configuration",
        (Controller::Mpi, _) => bail!("mpi-operator has no webhooks"),
    };
    object["metadata"]["name"] = json!(name);
    let webhooks = object["webhooks"].as_array_mut().context("a webhook configuration without webhooks")?;
    let path = |webhook: &Value| webhook["clientConfig"]["service"]["path"].as_str().unwrap_or_default().to_owned();
    webhooks.retain(|webhook| controller.wants(&path(webhook)));
    for webhook in webhooks {
        let url = format!("{address}{}", path(webhook));
        webhook["clientConfig"] = json!({"url": url, "caBundle": keys.bundle()});
        let selector = match webhook["name"].as_str() {
            Some("mpod.kb.io" | "vpod.kb.io") => json!({"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}),
            Some(
                "validator.clustertrainingruntime.trainer.kubeflow.org"
                | "validator.trainingruntime.trainer.kubeflow.org",
            ) => {
                json!({"key": "trainer.kubeflow.org/webhook-validation", "operator": "NotIn", "values": ["disabled"]})
            }
            _ => continue,
        };
        webhook["objectSelector"] = json!({"matchExpressions": [selector]});
    }
    Ok(object)
}

/// The files of Trainer's runtimes; those of the data cache need more than a runtime.
fn runtimes(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name != "data-cache" {
            found.extend(runtimes(&path)?);
        } else if name.ends_with(".yaml") && name != "kustomization.yaml" {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The objects in a YAML file, or in all files of a folder that are not kustomizations.
fn documents(path: &Path) -> Result<Vec<Value>> {
    if path.is_dir() {
        let mut files = runtimes(path)?;
        files.sort();
        return Ok(files.iter().map(|file| documents(file)).collect::<Result<Vec<_>>>()?.concat());
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let objects = split(&text).map(|text| serde_saphyr::from_str(text).map_err(anyhow::Error::from));
    let objects: Vec<Value> = objects.collect::<Result<_>>().with_context(|| format!("parsing {}", path.display()))?;
    Ok(objects.into_iter().filter(Value::is_object).collect())
}

/// The documents of a YAML stream.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let text = text.strip_prefix("---\n").unwrap_or(text);
    text.split("\n---\n").filter(|text| text.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#')))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Server-side apply of an object without a namespace.
async fn apply(client: &Client, object: &Value) -> Result<()> {
    let api_version = object["apiVersion"].as_str().context("an object without apiVersion")?;
    let (kind, name) =
        (object["kind"].as_str().unwrap_or_default(), object["metadata"]["name"].as_str().unwrap_or_default());
    let plural = match kind {
        "CustomResourceDefinition" => "customresourcedefinitions",
        "MutatingWebhookConfiguration" => "mutatingwebhookconfigurations",
        "ValidatingWebhookConfiguration" => "validatingwebhookconfigurations",
        "ClusterTrainingRuntime" => "clustertrainingruntimes",
        "Namespace" => "namespaces",
        other => bail!("do not know how to install {other} {name}"),
    };
    let root = if api_version.contains('/') { "apis" } else { "api" };
    let request = Request::patch(format!("/{root}/{api_version}/{plural}/{name}?fieldManager=harness&force=true"))
        .header("content-type", "application/apply-patch+yaml")
        .body(object.to_string().into_bytes())?;
    client.request::<Value>(request).await.with_context(|| format!("applying {kind} {name}"))?;
    Ok(())
}

/// Fails unless every version of a kind is served.
async fn served(client: &Client, crd: &Value) -> Result<()> {
    let spec = &crd["spec"];
    let (group, plural) =
        (spec["group"].as_str().unwrap_or_default(), spec["names"]["plural"].as_str().unwrap_or_default());
    for version in list(&spec["versions"]).iter().filter(|version| version["served"] == true) {
        let version = version["name"].as_str().unwrap_or_default();
        let request = Request::get(format!("/apis/{group}/{version}")).body(Vec::new())?;
        let resources: Value = client.request(request).await?;
        if !list(&resources["resources"]).iter().any(|resource| resource["name"] == plural) {
            bail!("{plural}.{group}/{version} is not served yet");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_are_called_where_they_listen() {
        let dir = tempfile::tempdir().expect("a folder");
        let keys = Keys::make(dir.path()).expect("keys");
        let given = json!({"kind": "MutatingWebhookConfiguration", "metadata": {"name": "x"}, "webhooks": [
            {"name": "mpod.kb.io", "clientConfig": {"service": {"name": "s", "path": "/mutate--v1-pod"}}},
            {"name": "mjobset.kb.io", "clientConfig": {"service": {"name": "s", "path": "/mutate-jobset-x-k8s-io-v1alpha2-jobset"}}},
        ]});
        let made = webhook_configuration(Controller::JobSet, given.clone(), "https://127.0.0.1:1", &keys)
            .expect("it is sound");
        let client = &made["webhooks"][0]["clientConfig"];
        assert_eq!(client, &json!({"url": "https://127.0.0.1:1/mutate--v1-pod", "caBundle": keys.bundle()}));
        assert_eq!(made["webhooks"][0]["objectSelector"]["matchExpressions"][0]["operator"], "Exists");
        assert_eq!(made["webhooks"][1].get("objectSelector"), None);
        let made = webhook_configuration(Controller::Kueue, given, "https://127.0.0.1:1", &keys).expect("it is sound");
        assert_eq!(list(&made["webhooks"]).len(), 1, "pods are not Kueue's business here");
    }

    #[test]
    fn documents_of_a_stream_are_told_apart() {
        let text = "---\na: 1\n---\n# nothing\n---\nb: |\n  ---x\n";
        assert_eq!(split(text).collect::<Vec<_>>(), ["a: 1", "b: |\n  ---x\n"]);
    }
}
