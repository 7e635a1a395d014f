//! Server-side apply: which manager has which field, and what an apply may change
//! (`k8s.io/apimachinery/pkg/util/managedfields`, `sigs.k8s.io/structured-merge-diff`).
//!
//! [`apply`] merges an applied configuration into the live object; [`track_update`] records what any other write changed.
//! Both keep `metadata.managedFields`. A manager's set is kept in the version that it was written in; where versions differ
//! ([`Schemas`]), it is judged by the schema of that version.

mod configuration;
mod empty;
mod managed;
mod recorded;
mod same;
mod scale;
mod typed;
mod update;
mod versions;

use crate::builtin;
use crate::fields::{Element, FieldSet};
pub use configuration::{apply, check_kind, merge_configuration};
pub use empty::{holds_empty, is_given_empty, with_empty};
use managed::Rank;
pub use same::same_but_times;
pub use scale::{scale_managers, track_scale};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::LazyLock;
pub use update::track_update;
pub use versions::{Schemas, Versions};

/// Who writes, and through what.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// `fieldManager`, or the user agent up to the first `/`; empty means `unknown`.
    pub manager: &'a str,
    /// Of the request (`v1`, `batch/v1`).
    pub api_version: &'a str,
    pub kind: &'a str,
    /// `status`, `scale`, …; empty for the main resource.
    pub subresource: &'a str,
    /// Fields that this endpoint resets, which nobody can come to manage through it.
    pub ignored: &'a Ignored,
}

/// Fields that an endpoint does not take over from a request (upstream's `GetResetFields`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ignored {
    #[default]
    Nothing,
    /// These paths and all below them (`["status"]`).
    Paths(Vec<Vec<String>>),
    /// Everything but these paths and what is below them.
    AllBut(Vec<Vec<String>>),
}

impl Ignored {
    /// `Paths`, from dotted paths.
    pub fn paths(dotted: &[&str]) -> Self {
        Self::Paths(dotted.iter().map(|path| path.split('.').map(str::to_owned).collect()).collect())
    }

    /// `AllBut`, from dotted paths.
    pub fn all_but(dotted: &[&str]) -> Self {
        Self::AllBut(dotted.iter().map(|path| path.split('.').map(str::to_owned).collect()).collect())
    }

    fn filter(&self, set: FieldSet) -> FieldSet {
        let as_set = |paths: &[Vec<String>]| {
            let mut out = FieldSet::default();
            for path in paths {
                let steps: Vec<Element> = path.iter().cloned().map(Element::Field).collect();
                out.insert(&steps);
            }
            out
        };
        match self {
            _ if set.is_empty() => set,
            Self::Nothing => set,
            Self::Paths(paths) => set.without_subtrees(&as_set(paths)),
            Self::AllBut(paths) => set.only_subtrees(&as_set(paths)),
        }
    }
}

/// A field that somebody else manages and that an apply would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// As messages name the manager: `"kubectl" using v1`.
    pub manager: String,
    /// `.spec.replicas`
    pub field: String,
    path: Vec<Element>,
    rank: Rank,
}

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// 409 `Conflict`; causes have reason `FieldManagerConflict`, message `conflict with {manager}`, and the field.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// 400 `BadRequest`.
    #[error("{0}")]
    BadRequest(String),
    /// 500, without a reason: the applied object does not fit the schema.
    #[error("{0}")]
    Untypable(String),
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", only.manager, only.field);
    }
    let mut fields: BTreeMap<(&Rank, &str), Vec<&str>> = BTreeMap::new();
    for conflict in conflicts {
        fields.entry((&conflict.rank, &conflict.manager)).or_default().push(&conflict.field);
    }
    let mut lines = Vec::new();
    for ((_, manager), fields) in fields {
        lines.push(format!("conflicts with {manager}:"));
        lines.extend(fields.into_iter().map(|field| format!("- {field}")));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// Fields that nobody is recorded as managing: what identifies an object, and what the server sets.
static NEVER_MANAGED: LazyLock<FieldSet> = LazyLock::new(|| {
    let mut out = FieldSet::default();
    let field = |name: &str| Element::Field(name.to_owned());
    for name in ["apiVersion", "kind", "metadata"] {
        out.insert(&[field(name)]);
    }
    let members = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    for name in members {
        out.insert(&[field("metadata"), field(name)]);
    }
    out
});

/// An object of the kind with nothing in it, as Go has it: what is always written of a built-in type is there.
fn empty_object(writer: &Writer<'_>) -> Value {
    let mut out = Map::new();
    out.insert("apiVersion".to_owned(), writer.api_version.into());
    out.insert("kind".to_owned(), writer.kind.into());
    let mut out = Value::Object(out);
    if let Some(name) = builtin_type(writer) {
        builtin::normalize(&name, &mut out);
    }
    out
}

/// The name of the type of a built-in kind in the table.
fn builtin_type(writer: &Writer<'_>) -> Option<String> {
    let (group, version) = writer.api_version.split_once('/').unwrap_or(("core", writer.api_version));
    let package = match group.split_once('.') {
        None => group,
        Some((first, "k8s.io" | "authorization.k8s.io")) => first,
        Some(_) => return None,
    };
    let name = match package {
        "apiextensions" => format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{}", writer.kind),
        package => format!("io.k8s.api.{package}.{version}.{}", writer.kind),
    };
    builtin::facts(&name).is_some().then_some(name)
}

/// What stands in `metadata.managedFields`; nothing where that is no list.
fn managed_fields(object: &Value) -> &[Value] {
    object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn without_managed_fields(object: &Value) -> Value {
    let Value::Object(fields) = object else { return object.clone() };
    let part = |(name, value): (&String, &Value)| match value {
        Value::Object(meta) if name == "metadata" => {
            let kept = meta.iter().filter(|(field, _)| *field != "managedFields");
            (name.clone(), Value::Object(kept.map(|(field, value)| (field.clone(), value.clone())).collect()))
        }
        _ => (name.clone(), value.clone()),
    };
    Value::Object(fields.iter().map(part).collect())
}

fn is_stored(object: &Value) -> bool {
    !api::object::uid(object).is_empty()
}

/// An object as messages name it.
fn about(object: &Value) -> String {
    let meta = |name: &str| api::object::meta(object, name);
    format!("{}/{}; {}", meta("namespace"), meta("name"), kind_text(object))
}

/// `/v1, Kind=ConfigMap`, as Go prints a group-version-kind.
fn kind_text(object: &Value) -> String {
    let api_version = api::object::text(object, "apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={}", api::object::text(object, "kind"))
}

#[cfg(test)]
mod tests;
