//! Groups of the API that somebody else answers for: what an aggregated API is on a cluster, within the process.
//!
//! This server says who asks and whether they may; the delegate has the objects. Its group is not in discovery: it can be
//! read, not listed, watched or written.

use crate::status::Status;
use futures::future::BoxFuture;
use serde_json::Value;

/// One object of a delegated group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub version: String,
    /// Empty for what is in no namespace.
    pub namespace: String,
    pub plural: String,
    pub name: String,
}

/// Answers for a group. No kind that is served here may be in it.
pub trait Delegate: Send + Sync {
    fn group(&self) -> &'static str;

    /// An object, for somebody who may `get` it.
    ///
    /// # Errors
    /// What the client is told; 404 where there is no such object or kind.
    fn get(&self, wanted: Wanted) -> BoxFuture<'static, Result<Value, Status>>;
}
