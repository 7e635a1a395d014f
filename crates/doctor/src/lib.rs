//! Checks whether jobs can run on a cluster, and says what prevents it.
//!
//! `fetch` reads facts through an API server, `rules` (a pure function) judges them. Nothing is written, and nothing is printed:
//! [`examine`] returns [`Finding`]s.

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

/// What this binary would install, to compare a cluster with.
#[derive(Clone, Debug)]
pub struct BuiltIn {
    /// CustomResourceDefinitions.
    pub kinds: Vec<Value>,
    /// The operator's ClusterRoles and Roles, as YAML documents.
    pub roles: &'static str,
    /// Those of an operator that keeps to one namespace.
    pub roles_of_one_namespace: &'static str,
    /// What `--install-runtimes` needs beside them.
    pub roles_to_install_runtimes: &'static str,
}

/// What is examined.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The only namespace whose jobs are read; `None`: those of all.
    pub namespace: Option<String>,
    /// How long a job may stand still before it is reported.
    pub stuck_after: Duration,
}

/// Examines a cluster. The findings have the same order each time.
///
/// Errors: the server cannot be reached, or does not know us. What the user may not see is no error but a finding.
pub async fn examine(cluster: &Cluster, scope: Scope, built_in: BuiltIn) -> Result<Vec<Finding>, ClientError> {
    Ok(rules::judge(&fetch::facts(cluster, scope, built_in).await?))
}
