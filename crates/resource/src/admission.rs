//! Admission plugins: what webhooks are on a cluster, in process.
//!
//! Order of a write, as upstream: decode, default, mutate (pruned and defaulted again after), validate against the
//! schema and the kind's rules, validate by plugins, store.

use crate::User;
use crate::status::Status;
use serde_json::Value;
use std::sync::Arc;

/// What is being done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    /// `exec`, `attach`, `portforward`, `proxy`.
    Connect,
}

impl Operation {
    /// As webhooks and admission policies name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// One request as a plugin sees it.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub operation: Operation,
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    /// Plural name of the resource.
    pub resource: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// Empty while `generateName` has not been carried out.
    pub name: &'a str,
    /// The object as it would be stored; `None` for deletes, and for `mutate`, which is given the object itself.
    pub object: Option<&'a Value>,
    /// The object as it is; `None` for creates.
    pub old_object: Option<&'a Value>,
    pub dry_run: bool,
    pub user: &'a User,
    pub objects: &'a dyn Objects,
}

/// Read access to the other objects of the server.
pub trait Objects {
    /// One object by group, plural, namespace (empty: cluster-scoped) and name.
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;
    /// All objects of a group and plural in a namespace (empty: in all), ordered by namespace and name.
    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Value>>;
}

/// A plugin: the in-process equal of a pair of webhooks (mutating and validating).
///
/// A refusal's message reaches the client as `admission webhook "NAME" denied the request: MESSAGE`, with the code,
/// reason and details of the returned [`Status`] (403 `Forbidden` where the rule has none of its own).
pub trait Admission: Send + Sync {
    /// Name of the mutating half, as denials show it.
    fn mutator(&self) -> &str {
        ""
    }

    /// Name of the validating half, as denials show it.
    fn validator(&self) -> &str {
        ""
    }

    /// Whether the plugin wants to see this; asked before either half. `subresource` is empty for the object itself.
    fn handles(&self, operation: Operation, group: &str, resource: &str, subresource: &str) -> bool;

    /// Whether it has a mutating half.
    fn mutates(&self) -> bool {
        true
    }

    /// Refuses a write as it was asked for, before the kind's rules drop what this request may not change. Not called for deletions.
    ///
    /// # Errors
    /// Why it is refused.
    fn admit(&self, _request: &Request<'_>) -> Result<(), Status> {
        Ok(())
    }

    /// Changes the object on its way in.
    fn mutate(&self, _request: &Request<'_>, _object: &mut Value) -> Result<(), Status> {
        Ok(())
    }

    /// Refuses, or answers with warnings for the client.
    fn validate(&self, _request: &Request<'_>) -> Result<Vec<String>, Status> {
        Ok(Vec::new())
    }
}

/// A webhook's refusal as clients see it.
pub fn denied(webhook: &str, mut status: Status) -> Status {
    if !webhook.is_empty() {
        status.message = format!("admission webhook \"{webhook}\" denied the request: {}", status.message);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_name_the_webhook_and_keep_the_rest() {
        let status = denied("v.example", Status::new(422, "Invalid", "x is invalid"));
        assert_eq!(status.message, "admission webhook \"v.example\" denied the request: x is invalid");
        assert_eq!(status.code, 422);
    }
}
