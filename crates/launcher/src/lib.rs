//! The controller of Launches.
//!
//! Carries out the steps that `managed::launch::step` decides for each Launch: finds a place, makes the Cluster, puts files onto its
//! machines and submits the job. Clients need not wait for it.
//!
//! A step that was carried out but not recorded is repeated.

mod effects;
mod look;
mod sweep;
mod work;

pub use look::{Asked, Eyes};

use ::effects::{Loop, Wakes, events, resource};
use api::object;
use api::sky::{cluster_gvk, launch_gvk};
use effects::{Launches, Mark};
use futures::StreamExt;
use futures::future::BoxFuture;
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::Value;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The files and folders that the control plane uses.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The user's home, with `~/.sky`.
    pub home: PathBuf,
    /// The kubeconfig of the control plane itself. No machines are made on its cluster.
    pub kubeconfig: PathBuf,
    /// The folder of files that are kept by content.
    pub files: PathBuf,
}

/// Makes a client that reaches the API server through a socket: commands in pods need one.
pub type BySocket = Arc<dyn Fn() -> BoxFuture<'static, std::io::Result<Client>> + Send + Sync>;

/// Follows all Launches.
#[derive(Clone)]
pub struct Launcher {
    client: Client,
    by_socket: BySocket,
    eyes: Eyes,
}

fn api(client: &Client, namespace: &str, gvk: &object::Gvk) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource(gvk))
}

/// Reads an object as its type, or says why it cannot be read.
fn typed<T: serde::de::DeserializeOwned>(object: &DynamicObject) -> Result<(Value, T), serde_json::Error> {
    let value = serde_json::to_value(object)?;
    let read = serde_json::from_value(value.clone())?;
    Ok((value, read))
}

impl Launcher {
    /// The controller of all Launches.
    pub fn new(client: Client, by_socket: BySocket, eyes: Eyes) -> Self {
        Self { client, by_socket, eyes }
    }

    /// Works until `stop`, and then drops an unfinished step; the next run repeats it.
    pub async fn run(self, stop: CancellationToken) {
        let launches =
            Loop::new(self.client.clone(), &launch_gvk(), watcher::Config::default(), Launches(self.clone()));
        let wakes = launches.wakes();
        tokio::select! {
            () = launches.run(stop) => {}
            () = self.sweep() => {}
            () = self.watch_clusters(&wakes) => {}
        }
    }

    /// Wakes launches whose clusters change.
    async fn watch_clusters(&self, wakes: &Wakes<Mark>) {
        let clusters: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource(&cluster_gvk()));
        let mut events = pin!(events(clusters, watcher::Config::default(), "Cluster"));
        while let Some(event) = events.next().await {
            match event {
                watcher::Event::Apply(object) | watcher::Event::InitApply(object) | watcher::Event::Delete(object) => {
                    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
                    wakes.wake_where(|key, mark| key.namespace == namespace && mark.cluster == name);
                }
                watcher::Event::Init | watcher::Event::InitDone => {}
            }
        }
    }
}
