//! Reaching an API server: the local control plane's, or a cluster's.

use crate::args::Global;
use crate::daemon;
use crate::error::CliError;
use crate::home::Home;
use api::object::Gvk;
use kube::api::DynamicObject;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::ApiResource;
use kube::{Api, Client, Config};
use serde_json::Value;

/// A client and the namespace to work in.
pub struct Cluster {
    pub client: Client,
    pub namespace: String,
    /// The local control plane: pods are processes of this machine and see its files.
    pub local: bool,
}

impl Cluster {
    /// The cluster that the flags name, else the local control plane, which must be running.
    pub async fn existing(global: &Global) -> Result<Self, CliError> {
        if global.kubeconfig.is_some() || global.context.is_some() {
            return Self::remote(global).await;
        }
        let home = Home::find(global)?;
        if home.running().is_none() {
            return Err(CliError::NotRunning { home: home.root().to_owned() });
        }
        Self::local(global, &home).await
    }

    /// As `existing`, but starts the local control plane where none runs.
    pub async fn started(global: &Global) -> Result<Self, CliError> {
        if global.kubeconfig.is_some() || global.context.is_some() {
            return Self::remote(global).await;
        }
        let home = Home::find(global)?;
        if home.running().is_none() {
            let running = daemon::start(&home, &[])?;
            eprintln!("started the control plane ({}); stop it with: trainyard down", running.server);
        }
        Self::local(global, &home).await
    }

    async fn local(global: &Global, home: &Home) -> Result<Self, CliError> {
        let path = home.kubeconfig();
        let kubeconfig = Kubeconfig::read_from(&path)
            .map_err(|source| CliError::Kubeconfig { path: path.clone(), source: Box::new(source) })?;
        Self::from_kubeconfig(global, kubeconfig, path, true).await
    }

    async fn remote(global: &Global) -> Result<Self, CliError> {
        let path = global.kubeconfig.clone().unwrap_or_else(|| "$KUBECONFIG".into());
        let kubeconfig = match &global.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        }
        .map_err(|source| CliError::Kubeconfig { path: path.clone(), source: Box::new(source) })?;
        Self::from_kubeconfig(global, kubeconfig, path, false).await
    }

    async fn from_kubeconfig(
        global: &Global,
        kubeconfig: Kubeconfig,
        path: std::path::PathBuf,
        local: bool,
    ) -> Result<Self, CliError> {
        let options = KubeConfigOptions { context: global.context.clone(), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|source| CliError::Kubeconfig { path, source: Box::new(source) })?;
        let namespace = global.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        Ok(Self { client: Client::try_from(config)?, namespace, local })
    }

    /// The objects of a kind in our namespace.
    pub fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource())
    }

    /// The objects of a kind everywhere (and of cluster-scoped kinds).
    pub fn api_all(&self, kind: Kind) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &kind.resource())
    }

    /// One object; `None` where it does not exist.
    pub async fn find(&self, kind: Kind, name: &str) -> Result<Option<Value>, CliError> {
        Ok(self.api(kind).get_opt(name).await?.map(|object| value(&object)))
    }

    /// One TrainJob, or the error that says it is not there.
    pub async fn job(&self, name: &str) -> Result<Value, CliError> {
        let found = self.find(Kind::TrainJob, name).await?;
        found.ok_or_else(|| CliError::NotFound {
            kind: "TrainJob",
            name: name.to_owned(),
            namespace: self.namespace.clone(),
        })
    }

    /// All objects of a kind in our namespace with these labels (empty: all).
    pub async fn list(&self, kind: Kind, labels: &str) -> Result<Vec<Value>, CliError> {
        let parameters = kube::api::ListParams::default().labels(labels);
        Ok(self.api(kind).list(&parameters).await?.items.iter().map(value).collect())
    }

    /// The pods of a job.
    pub async fn pods(&self, job: &str) -> Result<Vec<Value>, CliError> {
        self.list(Kind::Pod, &pods_of(job)).await
    }
}

/// The label selector of a job's pods.
pub fn pods_of(job: &str) -> String {
    format!("jobset.sigs.k8s.io/jobset-name={job}")
}

/// An object as JSON.
pub fn value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).expect("objects from the API are JSON")
}

/// The kinds that the command line looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    TrainJob,
    TrainingRuntime,
    ClusterTrainingRuntime,
    OptimizationJob,
    JobSet,
    Pod,
    Event,
}

impl Kind {
    fn resource(self) -> ApiResource {
        let (gvk, plural) = match self {
            Self::TrainJob => (Gvk::new("trainer.kubeflow.org", "v1alpha1", "TrainJob"), "trainjobs"),
            Self::TrainingRuntime => {
                (Gvk::new("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime"), "trainingruntimes")
            }
            Self::ClusterTrainingRuntime => {
                (Gvk::new("trainer.kubeflow.org", "v1alpha1", "ClusterTrainingRuntime"), "clustertrainingruntimes")
            }
            Self::OptimizationJob => {
                (Gvk::new("trainer.kubeflow.org", "v1alpha1", "OptimizationJob"), "optimizationjobs")
            }
            Self::JobSet => (api::jobset::gvk(), "jobsets"),
            Self::Pod => (Gvk::new("", "v1", "Pod"), "pods"),
            Self::Event => (Gvk::new("", "v1", "Event"), "events"),
        };
        ApiResource {
            api_version: gvk.api_version(),
            group: gvk.group,
            version: gvk.version,
            kind: gvk.kind,
            plural: plural.to_owned(),
        }
    }
}
