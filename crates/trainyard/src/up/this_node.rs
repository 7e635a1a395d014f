//! This machine's node: its agent, its name, and the clock beside its pods.

use super::UpError;
use crate::pki;
use api::object::Gvk;
use driver::{Feed, Source};
use jiff::SignedDuration;
use kube::Client;
use kube::runtime::watcher;
use node::agent::{Agent, Config, looked};
use node::evidence::Keep;
use node::kube_world::{KubeWorld, Pods};
use node::poddir::PodDir;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How the node agent of this machine runs. What it finds out of the machine takes as long as to open a store, and needs none.
pub(super) async fn config(data: PathBuf, name: String) -> Result<Config, UpError> {
    let program = std::env::current_exe().map_err(UpError::Node)?;
    let stand_ins = crate::initialize::stand_ins(&program.to_string_lossy());
    let mut config = Config::new(data, &name, vec![program.into(), "shim".into()]);
    config.stand_ins = stand_ins;
    looked(config).await.map_err(UpError::Node)
}

/// The node agent of this machine, over the in-process client. Of pods it hears from the server itself.
pub(super) async fn agent(
    client: &Client,
    mut config: Config,
    api_server: SocketAddr,
    source: Arc<dyn Source>,
    keep: Option<Arc<dyn Keep>>,
) -> Result<Agent<KubeWorld>, UpError> {
    config.keep = keep;
    config.api_server = Some((api_server.ip().to_string(), api_server.port()));
    let feed = Feed::Source(source);
    let own = watcher::Config::default().fields(&format!("spec.nodeName={}", config.node_name));
    let pods: Pods = Arc::new(move || feed.changes(&Gvk::new("", "v1", "Pod"), "pods", own.clone()));
    let world = KubeWorld::new(client.clone(), &config.node_name).with_pods(pods);
    Agent::new(config, world).await.map_err(UpError::Node)
}

/// The name of this machine's node: its host name at the first start, and the same ever after. Pods are bound to a node by its
/// name, and a laptop's host name changes with the network that it is in.
pub(super) fn node_name(data: &Path) -> Result<String, UpError> {
    let file = data.join("node-name");
    if let Some(name) = std::fs::read_to_string(&file).ok().map(|text| text.trim().to_owned()).filter(|n| !n.is_empty())
    {
        return Ok(name);
    }
    // The file is lost, but pods of this machine tell what it was called when they were bound to it.
    let name = bound_to(data).unwrap_or_else(|| {
        nix::unistd::gethostname().map_or("localhost".to_owned(), |name| name.to_string_lossy().to_lowercase())
    });
    std::fs::create_dir_all(data).map_err(UpError::Node)?;
    pki::write_private(&file, &name)?;
    Ok(name)
}

/// The node that the pods in the agent's directory are bound to, where there are any and they agree.
fn bound_to(data: &Path) -> Option<String> {
    let pods = std::fs::read_dir(data.join("pods")).ok()?.flatten();
    let pods = pods.filter_map(|entry| std::fs::read(PodDir::new(entry.path()).pod()).ok());
    let names = pods.filter_map(|text| {
        let pod: serde_json::Value = serde_json::from_slice(&text).ok()?;
        pod["spec"]["nodeName"].as_str().filter(|name| !name.is_empty()).map(str::to_owned)
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.dedup();
    names.pop().filter(|_| names.is_empty())
}

/// Keeps the home's clock beside the pods, whose shims follow it. `behind`: by how much the machine's clock is behind that of the control plane,
/// where that is elsewhere and has said it.
pub(crate) fn keep_clock(node_data: &Path, behind: Option<SignedDuration>) -> Result<(), UpError> {
    std::fs::create_dir_all(node_data).map_err(UpError::Node)?;
    if let Err(error) = clock::keep(&node_data.join(clock::FILE), behind) {
        tracing::warn!(%error, "the clock cannot be kept for pods: where the machine's clock is set, theirs differs from this one's");
    }
    Ok(())
}
