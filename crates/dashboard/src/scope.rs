//! Objects of a page, read with the user's own token: of the whole cluster where the user may list them there, else of the namespaces of the
//! view, or of the user's own.

use crate::problem::Problem;
use crate::rights::NAMESPACES_MAX;
use client::{ClientError, Cluster, Kind, value};
use kube::api::ListParams;
use serde_json::Value;

/// Objects that a page reads of a kind. A page shows fewer.
const OBJECTS_MAX: u32 = 5000;

/// Objects of a kind, and what is missing among them, in words.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub objects: Vec<Value>,
    pub hidden: Vec<String>,
}

/// The objects of a kind with these labels. Without namespaces: those of all, or of the user's own where all are not allowed.
///
/// Errors: the API server does not answer, or does not accept the token.
pub async fn objects(cluster: &Cluster, kind: Kind, namespaces: &[String], labels: &str) -> Result<Seen, Problem> {
    let mut seen = Seen::default();
    let own = [cluster.namespace.clone()];
    let mut within = namespaces;
    if namespaces.is_empty() || kind.is_shared() {
        match listed(cluster, kind, None, labels).await {
            Ok(portion) => {
                seen.take(kind, portion);
                return Ok(seen);
            }
            Err(ClientError::Forbidden { message, .. }) if kind.is_shared() => {
                seen.hidden.push(message);
                return Ok(seen);
            }
            Err(ClientError::Forbidden { .. }) => within = &own,
            Err(error) => return seen.or_not_served(kind, error),
        }
    }
    for namespace in within.iter().take(NAMESPACES_MAX) {
        match listed(cluster, kind, Some(namespace), labels).await {
            Ok(portion) => seen.take(kind, portion),
            Err(ClientError::Forbidden { .. }) => {
                let plural = kind.resource().plural;
                seen.hidden.push(format!("you have no right to list {plural} in {namespace}"));
            }
            Err(error) => return seen.or_not_served(kind, error),
        }
    }
    Ok(seen)
}

/// Objects, and whether there are more.
struct Portion {
    objects: Vec<Value>,
    has_more: bool,
}

impl Seen {
    fn take(&mut self, kind: Kind, portion: Portion) {
        self.objects.extend(portion.objects);
        if portion.has_more {
            let plural = kind.resource().plural;
            self.hidden
                .push(format!(
                "only the first {OBJECTS_MAX} {plural} were read; add ?namespace=NAME to the address to read one namespace"
            ));
        }
    }

    /// A kind that the server lacks is a sentence on the page; any other error is the page's.
    fn or_not_served(mut self, kind: Kind, error: ClientError) -> Result<Self, Problem> {
        match error {
            ClientError::NotServed | ClientError::NoMpiJobs => {
                let resource = kind.resource();
                self.hidden.push(format!("this API server does not serve {}.{}", resource.plural, resource.group));
                Ok(self)
            }
            error => Err(error.into()),
        }
    }
}

async fn listed(cluster: &Cluster, kind: Kind, namespace: Option<&str>, labels: &str) -> Result<Portion, ClientError> {
    let api = match namespace {
        None => cluster.api_all(kind),
        Some(namespace) => Cluster { namespace: namespace.to_owned(), ..cluster.clone() }.api(kind),
    };
    let list = api.list(&ListParams::default().labels(labels).limit(OBJECTS_MAX)).await?;
    let has_more = list.metadata.continue_.as_ref().is_some_and(|rest| !rest.is_empty());
    Ok(Portion { objects: list.items.iter().map(value).collect(), has_more })
}
