//! Structural schemas: one model for built-in types and for CRDs.
//!
//! A [`Schema`] is a tree of nodes shared by `Arc`. What it can do: fill in defaults, prune unknown fields, validate with
//! the API server's messages ([`Schema::check`]), be read from and written as OpenAPI v3. What is costly (regular
//! expressions, CEL programs, what a subtree contains) is worked out on first use and kept with the node.

mod embedded;
mod fill;
mod formats;
mod meta;
mod openapi;
mod prune;
mod rules;
mod validate;

pub(crate) use formats::is_go_duration;
pub use formats::is_supported as is_supported_format;
pub use meta::object_meta;
pub use openapi::SchemaError;
pub use prune::written;
pub(crate) use rules::field_path;
pub use rules::{Rule, Rules};
pub use validate::Findings;
pub(crate) use validate::Steps;

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The JSON type a node admits. `Any` admits all (`x-kubernetes-preserve-unknown-fields` without a type).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Type {
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// `x-kubernetes-int-or-string`; also built-in quantities, which take numbers and strings.
    IntOrString,
}

impl Type {
    /// As `type` in OpenAPI; empty where that is absent.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Any | Self::IntOrString => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// How server-side apply treats a list (`x-kubernetes-list-type`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    #[default]
    Atomic,
    Set,
    /// Associative, by these keys.
    Map(Vec<String>),
}

/// How strategic merge patch treats a list or object of a built-in type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// `merge`: list elements merge by `merge_key` (or as a set of scalars where there is none).
    pub merge: bool,
    pub merge_key: Option<String>,
    pub retain_keys: bool,
    /// `replace`: an object is replaced as a whole.
    pub replace: bool,
}

impl PatchStrategy {
    /// As `x-kubernetes-patch-strategy` has it; empty where there is none.
    pub fn words(&self) -> String {
        let words = [(self.merge, "merge"), (self.retain_keys, "retainKeys"), (self.replace, "replace")];
        words.into_iter().filter_map(|(on, word)| on.then_some(word)).collect::<Vec<_>>().join(",")
    }
}

/// One node of a structural schema.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    pub kind: Type,
    pub format: Option<String>,
    pub description: Option<String>,
    pub nullable: bool,
    pub properties: BTreeMap<String, Arc<Schema>>,
    /// Schema of values under keys that `properties` does not name (maps).
    pub additional: Option<Arc<Schema>>,
    pub items: Option<Arc<Schema>>,
    pub required: Vec<String>,
    pub default: Option<Value>,
    pub preserve_unknown: bool,
    /// The node is itself an object with `apiVersion`, `kind` and `metadata`.
    pub embedded: bool,
    pub list_type: ListType,
    /// `x-kubernetes-map-type: atomic`.
    pub atomic_map: bool,
    pub patch: PatchStrategy,
    /// The name of the Go struct that a built-in object is.
    pub go: Option<&'static str>,
    /// CEL rules, and what is derived from the node on first use. A changed clone of a node derives anew.
    pub rules: Rules,
    /// Fields only some nodes use: bounds, patterns, enums, allOf/anyOf/oneOf/not.
    pub constraints: Option<Box<Constraints>>,
}

/// Value constraints of a node.
#[derive(Clone, Debug, Default)]
pub struct Constraints {
    pub enumeration: Vec<Value>,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    pub exclusive_minimum: bool,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub pattern: Option<String>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub all_of: Vec<Schema>,
    pub any_of: Vec<Schema>,
    pub one_of: Vec<Schema>,
    pub not: Option<Box<Schema>>,
}

/// What the subtree under a node contains: lets walks skip what cannot matter. Worked out once per node.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    defaults: bool,
    embedded: bool,
    /// Lists that must hold no element twice.
    unique: bool,
    rules: bool,
}

impl Schema {
    /// The schema of the member `name` of an object of this node.
    pub fn member(&self, name: &str) -> Option<&Arc<Schema>> {
        self.properties.get(name).or(self.additional.as_ref())
    }

    fn facts(&self) -> Facts {
        *self.rules.facts(|| {
            let mut facts = Facts {
                defaults: self.default.is_some(),
                embedded: self.embedded,
                unique: self.list_type != ListType::Atomic,
                rules: !self.rules.is_empty(),
            };
            let branches = self.constraints.iter().flat_map(|c| &c.all_of);
            let children = self.properties.values().chain(&self.additional).chain(&self.items).map(Arc::as_ref);
            for child in children {
                let below = child.facts();
                facts.defaults |= below.defaults;
                facts.embedded |= below.embedded;
                facts.unique |= below.unique;
                facts.rules |= below.rules;
            }
            // Of branches, only rules count: they are evaluated through allOf.
            for branch in branches {
                facts.rules |= branch.facts().rules;
            }
            facts
        })
    }

    /// Whether any CEL rule stands in this schema.
    pub fn has_rules(&self) -> bool {
        self.facts().rules
    }
}
