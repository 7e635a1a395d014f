//! Kubernetes clusters that are at hand: contexts of the kubeconfig, and what their nodes have free.

use ::sky::value::{Map, Value};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Client, Config};
use managed::inventory::{Free, every};
use managed::launch::Contexts;
use placement::{Cloud, FreeNode};
use serde_json::Value as Json;
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinError;

/// How long a cluster may take to say what it has.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// Clusters that are asked at once.
const AT_ONCE: usize = 8;

/// Why a context is of no use.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The task that makes the client has ended without one.
    #[error(transparent)]
    Task(#[from] JoinError),
    #[error("its API server has not answered within {} s", LOOK_MAX.as_secs())]
    Late,
}

/// Those of the environment's kubeconfig. `config`: the block `kubernetes` of `~/.sky/config.yaml`; `own`: the kubeconfig of the control
/// plane that asks, whose cluster is none to make machines on.
pub(crate) fn read(config: Option<&Map>, own: &Path) -> Contexts {
    Kubeconfig::read().map_or_else(|_| Contexts::default(), |read| of(&read, config, own))
}

fn of(kubeconfig: &Kubeconfig, config: Option<&Map>, own: &Path) -> Contexts {
    let server = |of: &Kubeconfig, name: &str| {
        let cluster = of.clusters.iter().find(|one| one.name == name)?;
        cluster.cluster.as_ref()?.server.clone()
    };
    let own = Kubeconfig::read_from(own).ok();
    let own = own.and_then(|own| server(&own, &own.clusters.first()?.name));
    let contexts = kubeconfig.contexts.iter().filter(|one| {
        let cluster = one.context.as_ref().map_or("", |context| &context.cluster);
        own.is_none() || server(kubeconfig, cluster) != own
    });
    let all: Vec<String> = contexts.map(|one| one.name.clone()).collect();
    let named = config.and_then(|config| config.get("allowed_contexts"));
    let allowed = match named {
        Some(Value::List(names)) => names.iter().map(Value::text).collect(),
        Some(name) if name.as_str() == Some("all") => all.clone(),
        _ => kubeconfig.current_context.iter().cloned().collect(),
    };
    Contexts { allowed: allowed.into_iter().filter(|name: &String| all.contains(name)).collect(), all }
}

/// What the nodes of each allowed context that take pods have free, or why a context is of no use.
pub(crate) async fn look(contexts: &Contexts) -> Vec<(String, Result<Vec<FreeNode>, ContextError>)> {
    let free = |context: &str, one: Free| FreeNode {
        cloud: Cloud::Kubernetes,
        region: context.to_owned(),
        is_known: true,
        cpus: one.cpus,
        memory: one.memory,
        accelerator: one.gpus.filter(|gpus| gpus.free > 0.0).map(|gpus| (gpus.product, gpus.free)),
    };
    let nodes = |context: &str, all: Vec<Free>| {
        all.into_iter().filter(|one| one.unfit.is_empty()).map(|one| free(context, one)).collect()
    };
    let all = inventory_of(contexts).await.into_iter();
    all.map(|(context, found)| (context.clone(), found.map(|all| nodes(&context, all)))).collect()
}

/// The nodes of each allowed context, or why a context is of no use.
pub async fn inventory_of(contexts: &Contexts) -> Vec<(String, Result<Vec<Free>, ContextError>)> {
    let asked = contexts.allowed.clone().into_iter().map(|name| async move {
        let found = tokio::time::timeout(LOOK_MAX, nodes(&name)).await;
        (name, found.unwrap_or(Err(ContextError::Late)))
    });
    futures::stream::iter(asked).buffered(AT_ONCE).collect().await
}

/// A client of a context's API server.
pub async fn client(context: &str) -> Result<Client, ContextError> {
    let kubeconfig = Kubeconfig::read()?;
    let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    // a program may be asked for credentials meanwhile
    Ok(tokio::task::spawn_blocking(move || Client::try_from(config)).await??)
}

async fn nodes(context: &str) -> Result<Vec<Free>, ContextError> {
    Ok(inventory(&client(context).await?).await?)
}

/// All nodes of a cluster.
pub async fn inventory(client: &Client) -> Result<Vec<Free>, kube::Error> {
    let all = |kind: ApiResource| Api::<DynamicObject>::all_with(client.clone(), &kind);
    let (nodes, pods) = (all(ApiResource::erase::<Node>(&())), all(ApiResource::erase::<Pod>(&())));
    let everything = ListParams::default();
    let (nodes, pods) = tokio::try_join!(nodes.list(&everything), pods.list(&everything))?;
    let nodes: Vec<Json> = nodes.iter().filter_map(|one| serde_json::to_value(one).ok()).collect();
    let pods: Vec<Json> = pods.iter().filter_map(|one| serde_json::to_value(one).ok()).collect();
    Ok(every(&nodes, &pods))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kubeconfig(current: &str) -> Kubeconfig {
        let entry = |name: &str| {
            (
                json!({"name": name, "cluster": {"server": format!("https://{name}")}}),
                json!({"name": name, "context": {"cluster": name, "user": "u"}}),
            )
        };
        let (clusters, contexts): (Vec<Json>, Vec<Json>) = ["a", "b", "own"].map(entry).into_iter().unzip();
        serde_json::from_value(
            json!({"clusters": clusters, "contexts": contexts, "users": [], "current-context": current}),
        )
        .unwrap()
    }

    fn map(text: &str) -> Map {
        let mut read = ::sky::yaml::documents(text).unwrap();
        read.remove(0).value.unwrap().as_map().unwrap().clone()
    }

    #[test]
    fn contexts_are_allowed_as_skypilot_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("kubeconfig");
        std::fs::write(&own, "clusters: [{name: x, cluster: {server: \"https://own\"}}]\ncontexts: []\nusers: []\n")
            .unwrap();
        let of = |current: &str, config: Option<&str>| {
            super::of(&kubeconfig(current), config.map(map).as_ref(), &own).allowed
        };
        assert_eq!(of("b", None), ["b"]);
        assert_eq!(of("own", None), [""; 0], "no machines of one's own control plane");
        assert_eq!(of("b", Some("allowed_contexts: all")), ["a", "b"]);
        assert_eq!(of("b", Some("allowed_contexts: [nope, a]")), ["a"]);
    }
}
