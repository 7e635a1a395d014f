//! Checks whether jobs can run on a cluster, and reports what prevents it.
//!
//! `fetch` reads facts through an API server, and `rules` (a pure function) judges them. Nothing is written or printed: [`examine`] returns
//! [`Finding`]s.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod facts;
mod fetch;
mod finding;
mod rules;
mod schema;

pub use finding::{Finding, Remedy, Severity};

use client::{ClientError, Cluster};
use serde_json::Value;
use std::time::Duration;

/// The objects that this binary would install; a cluster is compared with them.
#[derive(Clone, Debug)]
pub struct BuiltIn {
    /// CustomResourceDefinitions.
    pub kinds: Vec<Value>,
    /// The operator's ClusterRoles and Roles, as YAML documents.
    pub roles: &'static str,
    /// The roles of an operator that watches one namespace.
    pub roles_of_one_namespace: &'static str,
    /// The additional roles for `--install-runtimes`.
    pub roles_to_install_runtimes: &'static str,
}

/// What to examine.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The only namespace whose jobs are read; `None`: all namespaces.
    pub namespace: Option<String>,
    /// How long a job may make no progress before it is reported.
    pub stuck_after: Duration,
}

/// Examines a cluster. The order of the findings never changes.
///
/// Errors: the server cannot be reached, or does not know this user. A fact that the user may not see is a finding and no error.
pub async fn examine(cluster: &Cluster, scope: Scope, built_in: BuiltIn) -> Result<Vec<Finding>, ClientError> {
    Ok(rules::judge(&fetch::facts(cluster, scope, built_in).await?))
}
