//! API groups that another part of the process serves, as aggregated APIs do on a cluster.
//!
//! This server identifies the user and checks the right; the delegate has the objects. Its group is not in discovery: objects can be
//! read, not listed, watched or written; some take bytes as a subresource.

use crate::query::Query;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use resource::status::Status;
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

    /// Whether it has the objects of this plural: several delegates can share a group.
    fn has(&self, plural: &str) -> bool {
        let _ = plural;
        true
    }

    /// An object, for a user who may `get` it.
    ///
    /// # Errors
    /// The client's answer; 404 where there is no such object or kind.
    fn get(&self, wanted: Wanted) -> BoxFuture<'static, Result<Value, Status>>;

    /// A subresource of an object that is text (`…/NAME/log?…`), for a user who may `get` it.
    ///
    /// # Errors
    /// The client's answer; 404 where there is no such object, kind or subresource.
    fn text(&self, wanted: Wanted, subresource: &str, query: &Query) -> BoxFuture<'static, Result<Text, Status>> {
        let _ = query;
        let part = format!("{}/{subresource}", wanted.plural);
        let missing = Status::not_found(self.group(), &part, &wanted.name);
        Box::pin(std::future::ready(Err(missing)))
    }

    /// Bytes for a subresource of an object, from a user who may `create` it; answered with text.
    ///
    /// # Errors
    /// The client's answer; 404 where there is no such object, kind or subresource.
    fn post(&self, wanted: Wanted, subresource: &str, body: Bytes) -> BoxFuture<'static, Result<Bytes, Status>> {
        drop(body);
        let part = format!("{}/{subresource}", wanted.plural);
        let missing = Status::not_found(self.group(), &part, &wanted.name);
        Box::pin(std::future::ready(Err(missing)))
    }
}

/// Text, in chunks that end anywhere.
pub type Text = BoxStream<'static, Bytes>;
