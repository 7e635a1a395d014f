//! Clusters of machines, read and changed through the API: [`Sky`] finds them ([`Found`]) and their jobs.
//!
//! [`output`] follows the output of jobs, [`print_hooks`] shows that of hooks, [`managed_output`] that of managed jobs, [`hosts`] reports free GPUs, and [`ssh`] adds machines to OpenSSH's configuration. Nothing is
//! printed: a [`Show`] receives lines and notes.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod fleets;
mod hook_output;
mod hosts;
mod managed_jobs;
pub mod managed_output;
pub mod output;
pub mod ssh;

pub use fleets::{Fleet, FleetError, FleetSecrets};
pub use hook_output::print_hooks;
pub use hosts::hosts;
pub use managed_jobs::SubmitError;
pub use ssh::Entries;

use api::object;
use api::sky::{Cluster, cluster_gvk, keys, launch_gvk, machine_gvk, managed_job_gvk};
use client::{ClientError, Cluster as Connection};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use managed::fleet::FleetKind;
use managed::jobs::{Job, jobs};
use managed::names::object_name;
use serde_json::{Value, json};
use std::time::Duration;

/// How long to wait for providers that were asked about their machines.
const REFRESH_MAX: Duration = Duration::from_secs(60);

/// Receives the output and the notes, line by line.
#[derive(Clone, Copy)]
pub struct Show<'a> {
    /// A line that a job wrote.
    pub line: &'a (dyn Fn(&str) + Sync),
    /// A note beside the output.
    pub note: &'a (dyn Fn(&str) + Sync),
}

/// The user who launches clusters here; the name is found as in SkyPilot.
pub fn user() -> String {
    std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| {
        nix::unistd::User::from_uid(nix::unistd::geteuid())
            .ok()
            .flatten()
            .map_or_else(|| "user".to_owned(), |user| user.name)
    })
}

/// The control plane that holds clusters.
pub struct Sky {
    pub client: Client,
    pub namespace: String,
}

/// A cluster as it was read.
#[derive(Clone, Debug)]
pub struct Found {
    pub object: Value,
    pub cluster: Cluster,
}

impl Found {
    pub fn of(object: &DynamicObject) -> Option<Self> {
        let object = serde_json::to_value(object).ok()?;
        let cluster = serde_json::from_value(object.clone()).ok()?;
        Some(Self { object, cluster })
    }

    /// The name that the user sees.
    pub fn shown(&self) -> &str {
        managed::cluster::shown(&self.object)
    }

    /// The name of its object.
    pub fn name(&self) -> &str {
        object::meta(&self.object, "name")
    }

    /// Whether this user launched it. A cluster that was created as an object was launched by no user.
    pub fn is_mine(&self) -> bool {
        let of = &self.cluster.spec.user;
        of.is_empty() || *of == user()
    }

    /// Whether a managed job made it, which also ends it.
    pub fn is_managed(&self) -> bool {
        object::label(&self.object, keys::MANAGED_JOB).is_some()
    }

    pub fn is_ending(&self) -> bool {
        object::is_terminating(&self.object)
    }
}

fn resource(gvk: &object::Gvk) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(&gvk.group, &gvk.version, &gvk.kind))
}

impl From<Connection> for Sky {
    fn from(Connection { client, namespace, .. }: Connection) -> Self {
        Self { client, namespace }
    }
}

impl Sky {
    fn api(&self, gvk: &object::Gvk) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(gvk))
    }

    pub fn clusters(&self) -> Api<DynamicObject> {
        self.api(&cluster_gvk())
    }

    pub fn launches(&self) -> Api<DynamicObject> {
        self.api(&launch_gvk())
    }

    pub fn managed_jobs(&self) -> Api<DynamicObject> {
        self.api(&managed_job_gvk())
    }

    /// Services, or pools.
    pub fn fleets(&self, kind: FleetKind) -> Api<DynamicObject> {
        self.api(&kind.gvk())
    }

    pub fn machines(&self) -> Api<DynamicObject> {
        self.api(&machine_gvk())
    }

    pub fn jobsets(&self) -> Api<DynamicObject> {
        self.api(&api::jobset::gvk())
    }

    pub fn secrets(&self) -> Api<DynamicObject> {
        self.api(&object::Gvk::new("", "v1", "Secret"))
    }

    pub fn config_maps(&self) -> Api<DynamicObject> {
        self.api(&object::Gvk::new("", "v1", "ConfigMap"))
    }

    pub fn nodes(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource(&object::Gvk::new("", "v1", "Node")))
    }

    /// Pods, as they come.
    pub fn untyped_pods(&self) -> Api<DynamicObject> {
        self.api(&object::Gvk::new("", "v1", "Pod"))
    }

    /// The same, for logs and commands only: a reader of complete typed pods would add half a megabyte to the binary.
    pub fn pods(&self) -> Api<k8s_openapi::api::core::v1::Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The cluster that a user calls by this name.
    pub async fn find(&self, shown: &str) -> Result<Option<Found>, ClientError> {
        let found = self.clusters().get_opt(&object_name(shown)).await?;
        Ok(found.as_ref().and_then(Found::of))
    }

    /// All clusters, by name.
    pub async fn all(&self) -> Result<Vec<Found>, ClientError> {
        let list = self.clusters().list(&ListParams::default()).await?;
        let mut all: Vec<Found> = list.iter().filter_map(Found::of).collect();
        all.sort_by(|a, b| a.shown().cmp(b.shown()));
        Ok(all)
    }

    /// The jobs of a cluster, by number.
    pub async fn jobs(&self, cluster: &str) -> Result<Vec<Job>, ClientError> {
        let wanted = ListParams::default().labels(&format!("{}={cluster}", keys::CLUSTER));
        let list = self.jobsets().list(&wanted).await?;
        let values: Vec<Value> = list.iter().filter_map(|object| serde_json::to_value(object).ok()).collect();
        Ok(jobs(&values))
    }

    /// Makes the providers ask for the state of these clusters' machines, and waits for the answers; `false` if one is not there in time.
    pub async fn refresh(&self, clusters: &[Found]) -> Result<bool, ClientError> {
        let asked = json!({"metadata": {"annotations": {keys::REFRESH: std::process::id().to_string()}}});
        let mut names: Vec<(String, String)> = Vec::new();
        for found in clusters {
            let wanted = ListParams::default().labels(&format!("{}={}", keys::CLUSTER, found.name()));
            for machine in self.machines().list(&wanted).await? {
                let name = machine.metadata.name.unwrap_or_default();
                match self.machines().patch(&name, &PatchParams::default(), &Patch::Merge(&asked)).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => continue,
                    other => drop(other?),
                }
                names.push((found.name().to_owned(), name));
            }
        }
        let answers = async {
            for (cluster, name) in &names {
                let is_well = |machine: &DynamicObject| machine.data["status"]["phase"] == "Running";
                let said = client::until(self.machines(), name, |machine| match machine {
                    None => Some(false),
                    Some(one) => {
                        let is_asked =
                            one.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(keys::REFRESH));
                        (!is_asked).then(|| is_well(one))
                    }
                });
                if !said.await? {
                    // what became of the machine becomes of its cluster
                    let is_up = |object: &DynamicObject| object.data["status"]["phase"] == "UP";
                    client::until(self.clusters(), cluster, |object| (!object.is_some_and(is_up)).then_some(()))
                        .await?;
                }
            }
            Ok(true)
        };
        tokio::time::timeout(REFRESH_MAX, answers).await.unwrap_or(Ok(false))
    }

    /// A merge patch of a cluster.
    pub async fn patch(&self, name: &str, body: Value) -> Result<(), ClientError> {
        self.clusters().patch(name, &PatchParams::default(), &Patch::Merge(body)).await?;
        Ok(())
    }
}
