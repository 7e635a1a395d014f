//! A cluster by its context of the kubeconfig, and the meaning of its API server's refusals.

use crate::fault::Fault;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ApiResource, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig, NamedContext};
use kube::{Api, Client, Config};
use std::path::Path;
use std::time::Duration;

/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// A cluster that can be reached.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    pub context: String,
    /// The context's namespace.
    pub namespace: String,
}

impl Cluster {
    /// Events, likewise.
    pub fn events(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &ApiResource::erase::<Event>(&()))
    }

    /// Pods as the API sends them: a parser for complete typed pods would add a megabyte to the binary.
    pub fn pods(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &ApiResource::erase::<Pod>(&()))
    }
}

/// The kubeconfig from this file; without one, from `KUBECONFIG`, else from the home directory.
pub fn kubeconfig(path: Option<&Path>) -> Result<Kubeconfig, Fault> {
    let read = path.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
    read.map_err(|error| Fault::Refused(format!("the kubeconfig cannot be read: {}", api::error_chain(&error))))
}

/// The cluster of a context; of the current one if none is named.
pub async fn connect(kubeconfig: Kubeconfig, context: &str) -> Result<Cluster, Fault> {
    let name = match context {
        "" => kubeconfig.current_context.clone().unwrap_or_default(),
        named => named.to_owned(),
    };
    let known: Vec<&str> = kubeconfig.contexts.iter().map(|one: &NamedContext| one.name.as_str()).collect();
    if !known.contains(&name.as_str()) {
        let what = format!("the kubeconfig has no context {name:?}; there are: [{}]", known.join(", "));
        return Err(Fault::Refused(what));
    }
    let options = KubeConfigOptions { context: Some(name.clone()), ..KubeConfigOptions::default() };
    let unusable = |error: &dyn std::error::Error| {
        Fault::Refused(format!("context {name} of the kubeconfig cannot be used: {}", api::error_chain(error)))
    };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| unusable(&error))?;
    config.connect_timeout = Some(CONNECT_MAX);
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).map_err(|error| unusable(&error))?;
    Ok(Cluster { client, context: name, namespace })
}

/// The failure of a call that the API server refused; `what` names the action.
pub fn fault(what: &str, error: &kube::Error) -> Fault {
    let kube::Error::Api(status) = error else {
        return Fault::Unreachable(format!("its API server does not answer: {}", api::error_chain(error)));
    };
    let said = format!("cannot {what}: {}", status.message);
    match status.code {
        401 => Fault::Refused(format!("{said}; its API server does not take the credentials of the context")),
        403 if status.message.contains("exceeded quota") => Fault::NoRoom(said),
        403 => Fault::Refused(format!(
            "{said}; the user of the context needs the verbs get, list, create and delete of pods, and get and create of pods/exec"
        )),
        400 | 404 | 422 => Fault::Refused(said),
        _ => Fault::Stuck(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn refusals_have_fates() {
        let of = |code: u16, message: &str| {
            let status = Status { code, message: message.into(), ..Status::default() };
            fault("create the pod", &kube::Error::Api(Box::new(status)))
        };
        assert!(
            matches!(of(403, "pods \"x\" is forbidden: exceeded quota: q"), Fault::NoRoom(what) if what.contains("quota: q"))
        );
        assert!(matches!(of(403, "no"), Fault::Refused(what) if what.contains("pods/exec")));
        assert!(matches!(of(401, "no"), Fault::Refused(_)) && matches!(of(422, "no"), Fault::Refused(_)));
        assert!(matches!(of(500, "no"), Fault::Stuck(_)));
    }

    #[tokio::test]
    async fn a_context_that_is_not_there_is_named() {
        let Err(Fault::Refused(what)) = connect(Kubeconfig::default(), "nope").await else { panic!() };
        assert_eq!(what, "the kubeconfig has no context \"nope\"; there are: []");
    }
}
