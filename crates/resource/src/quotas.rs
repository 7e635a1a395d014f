//! What a server that counts asks of the kinds that limit and are limited.

use crate::admission::Objects;
use crate::status::Status;
use api::quota::Amounts;
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;

/// An object that is to use more than it does.
#[derive(Clone, Copy)]
pub struct Growth<'a> {
    pub group: &'a str,
    pub plural: &'a str,
    pub object: &'a Value,
    pub more: &'a Amounts,
    /// Whether the object is not there yet.
    pub new: bool,
}

/// How much of what a namespace may have: the rules; sums are kept by the server.
pub trait Quotas: Send + Sync {
    /// The quotas of a namespace.
    fn of(&self, objects: &dyn Objects, namespace: &str) -> Vec<Arc<Value>>;

    /// What an object uses.
    fn usage(&self, group: &str, plural: &str, object: &Value, now: Timestamp) -> Amounts;

    /// Objects of one kind and class are counted by the same quotas.
    fn class(&self, group: &str, plural: &str, object: &Value) -> String;

    /// Whether a quota counts objects like this one.
    fn counts(&self, quota: &Value, plural: &str, object: &Value) -> bool;

    /// From when on, in seconds of Unix time, an object uses less although nobody writes it.
    fn ends(&self, group: &str, plural: &str, object: &Value) -> Option<i64>;

    /// Whether any of the quotas limits objects of this kind.
    fn limit(&self, quotas: &[Arc<Value>], group: &str, plural: &str) -> bool;

    /// Refuses an object that uses more than a quota has room for; says whether any limits it. `used`: what is in use of what a
    /// quota limits.
    ///
    /// # Errors
    /// 403 in upstream's words.
    fn check(
        &self,
        growth: &Growth<'_>,
        quotas: &[Arc<Value>],
        used: &dyn Fn(&Value) -> Amounts,
    ) -> Result<bool, Status>;
}
