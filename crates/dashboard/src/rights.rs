//! What a user may see: asked of the API server with the user's own token, and kept for half a minute.
//!
//! The table of jobs comes from an index that sees all. A user is shown the rows of a kind if they may list that kind: in the whole
//! cluster, or else in the namespaces that they chose.

use crate::row::Kind;
use client::{ClientError, Cluster};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an answer counts.
const KEPT: Duration = Duration::from_secs(30);
/// The most namespaces of a view that are asked about, for each kind.
pub const NAMESPACES_MAX: usize = 50;

/// A kind, and a namespace; `None`: the whole cluster.
type Scope = (Kind, Option<String>);

/// Whether the user may list the kind there.
struct Known {
    may: bool,
    asked: Instant,
}

/// Answers of the API server.
#[derive(Default)]
pub(crate) struct Rights(Mutex<BTreeMap<Scope, Known>>);

/// Which rows somebody may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Visible {
    /// Kinds that may be listed everywhere.
    pub everywhere: BTreeSet<Kind>,
    /// Kinds that may be listed in a namespace.
    pub within: BTreeSet<(Kind, String)>,
    /// Kinds that may be listed nowhere that was asked about.
    pub hidden: BTreeSet<Kind>,
}

impl Visible {
    pub fn shows(&self, kind: Kind, namespace: &str) -> bool {
        self.everywhere.contains(&kind) || self.within.iter().any(|(of, within)| *of == kind && within == namespace)
    }
}

impl Rights {
    fn known(&self, key: &Scope, now: Instant) -> Option<bool> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|known| now.saturating_duration_since(known.asked) < KEPT).map(|known| known.may)
    }

    /// Whether the user may list a kind, in a namespace or everywhere.
    async fn may_list(&self, cluster: &Cluster, kind: Kind, namespace: Option<&str>) -> Result<bool, ClientError> {
        let key = (kind, namespace.map(str::to_owned));
        if let Some(may) = self.known(&key, Instant::now()) {
            return Ok(may);
        }
        let may = may_list(cluster, kind, namespace).await?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, known| known.asked.elapsed() < KEPT);
        known.insert(key, Known { may, asked: Instant::now() });
        Ok(may)
    }

    /// Where the user may list these kinds. `chosen`: the namespaces of the view; only the first [`NAMESPACES_MAX`] are checked.
    ///
    /// Errors: the API server does not answer, or does not accept the token any more.
    pub async fn visible(&self, cluster: &Cluster, kinds: &[Kind], chosen: &[String]) -> Result<Visible, ClientError> {
        let mut visible = Visible::default();
        for kind in kinds.iter().copied() {
            if self.may_list(cluster, kind, None).await? {
                visible.everywhere.insert(kind);
                continue;
            }
            let mut is_hidden = true;
            for namespace in chosen.iter().take(NAMESPACES_MAX) {
                if self.may_list(cluster, kind, Some(namespace)).await? {
                    visible.within.insert((kind, namespace.clone()));
                    is_hidden = false;
                }
            }
            if is_hidden {
                visible.hidden.insert(kind);
            }
        }
        Ok(visible)
    }
}

/// Asks whether the user of this connection may list a kind.
///
/// Errors: the API server does not answer, or does not accept the token.
async fn may_list(cluster: &Cluster, kind: Kind, namespace: Option<&str>) -> Result<bool, ClientError> {
    let resource = client::Kind::from(kind).resource();
    let attributes = json!({
        "verb": "list", "group": resource.group, "resource": resource.plural, "namespace": namespace.unwrap_or_default(),
    });
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    });
    let answer = post(cluster, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await?;
    Ok(answer["status"]["allowed"] == true)
}

/// The name of the user of this connection.
///
/// Errors: the API server does not answer, or does not accept the token.
pub async fn who(cluster: &Cluster) -> Result<String, ClientError> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = post(cluster, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await?;
    Ok(answer["status"]["userInfo"]["username"].as_str().unwrap_or_default().to_owned())
}

async fn post(cluster: &Cluster, path: &str, body: &Value) -> Result<Value, ClientError> {
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
        .expect("a constant path is one");
    Ok(cluster.client.request(request).await?)
}
