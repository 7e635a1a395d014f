//! The contract between an API server and the kinds that it serves: what the server needs to know about a kind ([`Resource`] and
//! [`Facts`]), and what a kind decides for itself ([`Strategy`]).
//!
//! The server (`apiserver`) knows no kind; the kinds (`kinds`, or a definition that a user wrote) know no server. Both speak of
//! refusals ([`status`]), users ([`User`]), what users ask for ([`Ask`]) and admission ([`admission`]) in the words of this crate.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

pub mod admission;
pub mod definitions;
mod facts;
pub mod jsonpath;
mod quotas;
pub mod status;
mod strategy;
mod user;

pub use facts::{Deletion, Facts, Rechecks, Storage};
pub use quotas::{Growth, Quotas};
pub use strategy::{Beside, Context, Outcome, Strategy};
pub use user::{Access, Ask, Tokens, User, bearer};

use jiff::Timestamp;
use merge::schema::Schema;
use serde_json::Value;
use std::sync::Arc;

/// One served resource (a kind in one version), built-in or from a CRD.
#[derive(Clone)]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    /// `pods`: also the storage bucket, together with the group.
    pub plural: String,
    pub singular: String,
    pub namespaced: bool,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    /// In discovery's order (`create`, `delete`, `deletecollection`, `get`, `list`, `patch`, `update`, `watch`).
    pub verbs: Vec<&'static str>,
    pub subresources: Vec<Subresource>,
    /// The whole object's schema.
    pub schema: Arc<Schema>,
    /// A built-in kind's name in `merge::builtin`'s table: bodies are read and objects written as Go would.
    pub type_name: Option<&'static str>,
    pub columns: Vec<Column>,
    pub facts: Facts,
    pub strategy: Arc<dyn Strategy>,
    /// From a CRD: keys are sorted on the wire, strategic merge is refused, unknown fields are pruned by its schema.
    pub custom: bool,
}

impl Resource {
    /// Brings a built-in kind's object into the form that Go writes.
    pub fn normalize(&self, object: &mut Value) {
        if let Some(name) = self.type_name {
            merge::builtin::normalize(name, object);
        }
    }
}

/// `status`, `scale`, `binding`, `eviction`, `log`, … with the kind its bodies have.
#[derive(Clone)]
pub struct Subresource {
    pub name: &'static str,
    pub group: String,
    pub version: String,
    pub kind: String,
    pub verbs: Vec<&'static str>,
}

/// A column of kubectl's tables.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean`, `date`.
    pub kind: String,
    pub format: String,
    pub description: String,
    /// 0 is shown always; above, only with `-o wide`.
    pub priority: i32,
    /// JSONPath of a CRD's column; `None`: the strategy's `row` fills it in.
    pub json_path: Option<String>,
}

/// The kinds that a server serves from the start, and what it asks of them beyond their strategies.
#[derive(Clone)]
pub struct Kinds {
    pub resources: Vec<Resource>,
    /// Objects that every cluster has: made at the start where they are missing.
    pub objects: Vec<Value>,
    /// Who may do what.
    pub access: Arc<dyn Access>,
    /// How much of what a namespace may have.
    pub quotas: Arc<dyn Quotas>,
}

/// Clock and chance, so that a simulator can own them.
pub trait ClockAndDice: Send + Sync {
    fn now(&self) -> Timestamp;
    /// A UUID in its usual form.
    fn uid(&self) -> String;
    /// Five characters for generated names.
    fn suffix(&self) -> String;
    /// A number below this one; 0 where that is 0.
    fn below(&self, bound: u32) -> u32;
}

/// One object by (group, plural, namespace, name).
pub type Lookup<'a> = dyn Fn(&str, &str, &str, &str) -> Option<Arc<Value>> + 'a;
/// All objects of (group, plural, namespace).
pub type List<'a> = dyn Fn(&str, &str, &str) -> Vec<Arc<Value>> + 'a;
/// The plural of the kind that a value names.
pub type PluralOf<'a> = dyn Fn(&Value) -> Option<String> + 'a;
