//! Users: who asks, by which token, and what for.

use crate::{List, Lookup};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// An authenticated (or impersonated, or anonymous) user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

const AUTHENTICATED: &str = "system:authenticated";
/// What the agents of nodes are called, and their group.
const NODE_PREFIX: &str = "system:node:";
const NODES: &str = "system:nodes";

impl User {
    /// The administrator: member of `system:masters`, whom no rule restrains.
    pub fn admin() -> Self {
        Self {
            name: "kubernetes-admin".to_owned(),
            groups: vec!["system:masters".to_owned(), AUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// Nobody: a request without credentials.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::default()
        }
    }

    /// A service account.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                AUTHENTICATED.to_owned(),
            ],
            ..Self::default()
        }
    }

    /// The agent of a node.
    pub fn of_node(node: &str) -> Self {
        Self {
            name: format!("{NODE_PREFIX}{node}"),
            groups: vec![NODES.to_owned(), AUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// The name of the node whose agent this is; `None` for all other users. Source: Kubernetes' `NodeIdentifier`: the user's
    /// name and its group have to say so.
    pub fn node(&self) -> Option<&str> {
        let node = self.name.strip_prefix(NODE_PREFIX).filter(|node| !node.is_empty())?;
        self.groups.iter().any(|group| group == NODES).then_some(node)
    }

    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|g| g == "system:masters")
    }
}

/// The server's own tokens, as far as kinds need them (TokenRequest, TokenReview).
pub trait Tokens: Send + Sync {
    /// A signed token with these claims (`iss`, `aud`, `exp`, `sub`, `kubernetes.io` …); JWT, compact form.
    fn sign(&self, claims: &Value) -> String;
    /// Who a bearer token stands for; `None`: nobody, or it has expired.
    fn user(&self, token: &str, now: Timestamp) -> Option<User>;
    /// The claims of a token that was signed here and has not expired; `None` for fixed tokens, too.
    fn claims(&self, token: &str, now: Timestamp) -> Option<Value>;
    /// Whom a token is meant for; the API server's own audience where it does not say.
    fn audiences(&self, token: &str, now: Timestamp) -> Vec<String>;
    /// `iss` of the tokens signed here, also their default audience.
    fn issuer(&self) -> &str;
}

/// How long a token outlives the deletion of what it is bound to, for what still ends with it (upstream's leeway).
const DELETED_SECS: i64 = 60;

/// The user of a bearer token. A node's token dies with its Node object. A service account's token dies with the account, and with the pod, secret or node that it was
/// made for, and comes back with no other of the same name. Requests and TokenReviews are answered by this alone.
pub fn bearer(tokens: &dyn Tokens, token: &str, now: Timestamp, lookup: &Lookup<'_>) -> Option<User> {
    let user = tokens.user(token, now)?;
    if let Some(node) = user.node() {
        return match tokens.claims(token, now) {
            None => Some(user), // a fixed token
            Some(claims) => {
                let there = lookup("", "nodes", "", node);
                let uid = claims["kubernetes.io"]["node"]["uid"].as_str();
                // A finalizer, which an agent may add to its own Node, keeps the object and not the agent's rights.
                let lives = |there: &Value| uid == Some(api::object::uid(there)) && !api::object::is_terminating(there);
                there.is_some_and(|there| lives(&there)).then_some(user)
            }
        };
    }
    let Some((namespace, name)) = user.name.strip_prefix("system:serviceaccount:").and_then(|s| s.split_once(':'))
    else {
        return Some(user);
    };
    let claims = tokens.claims(token, now)?;
    let own = &claims["kubernetes.io"];
    let alive = |plural: &str, namespace: &str, name: &str, uid: &Value| {
        lookup("", plural, namespace, name).is_some_and(|object| {
            let deleted: Option<Timestamp> = api::object::meta(&object, "deletionTimestamp").parse().ok();
            let gone = deleted.is_some_and(|at| api::time::later_secs(at, DELETED_SECS) < now);
            uid.as_str() == Some(api::object::uid(&object)) && !gone
        })
    };
    let bound = |claim: &str, plural: &str, namespace: &str| match own.get(claim) {
        None => true,
        Some(to) => alive(plural, namespace, api::object::text(to, "name"), &to["uid"]),
    };
    // A pod's token names the pod's node as well, which may go before the pod does.
    let lives = alive("serviceaccounts", namespace, name, &own["serviceaccount"]["uid"])
        && bound("pod", "pods", namespace)
        && bound("secret", "secrets", namespace)
        && (own.get("pod").is_some() || bound("node", "nodes", ""));
    lives.then_some(user)
}

/// What is to be done, and to what.
#[derive(Clone, Copy, Debug)]
pub enum Ask<'a> {
    Resource {
        verb: &'a str,
        group: &'a str,
        /// With its subresource: `pods/log`.
        resource: &'a str,
        /// Empty for requests over all namespaces and on cluster-scoped kinds.
        namespace: &'a str,
        /// Empty for collections.
        name: &'a str,
        /// The field selector of a list or watch; empty for none.
        fields: &'a str,
    },
    Path {
        verb: &'a str,
        path: &'a str,
    },
}

/// Who may do what.
pub trait Access: Send + Sync {
    /// What allows the user this; `None`: nothing does. `list`: the stored objects that say so.
    fn allows(&self, user: &User, ask: &Ask<'_>, list: &List<'_>) -> Option<String>;
}
