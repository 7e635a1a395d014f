//! Names of objects, and functions that read untyped objects.
//!
//! Objects travel as `serde_json::Value`, so that no field of a newer client is lost on the way; code takes typed views
//! where it needs them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cmp::Ordering;
use std::fmt;

/// A kind in an API group and version; `group` is empty for core.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Gvk {
    pub group: String,
    pub version: String,
    pub kind: String,
}

impl Gvk {
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }

    /// From `apiVersion` (`batch/v1`, `v1`) and `kind`.
    pub fn from_api_version(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self::new(group, version, kind)
    }

    /// Of an object; empty strings where it does not say.
    pub fn of(object: &Value) -> Self {
        Self::from_api_version(text(object, "apiVersion"), text(object, "kind"))
    }

    /// `batch/v1`, or `v1` for core.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `pods`, `priorityclasses`: what the kind's resource is called, where its name is nothing special.
    pub fn regular_plural(&self) -> String {
        let ending = if self.kind.ends_with('s') { "es" } else { "s" };
        self.kind.to_lowercase() + ending
    }
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, Kind={}", self.api_version(), self.kind)
    }
}

/// Namespace and name; `namespace` is empty for cluster-scoped objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub fn of(object: &Value) -> Self {
        Self::new(meta(object, "namespace"), meta(object, "name"))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// One object of one kind. The order is by name first: in most sets of them kinds and namespaces are the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    pub gvk: Gvk,
    pub key: Key,
}

impl Ord for Target {
    fn cmp(&self, other: &Self) -> Ordering {
        let (key, its) = (&self.key, &other.key);
        (key.name.cmp(&its.name)).then_with(|| key.namespace.cmp(&its.namespace)).then_with(|| self.gvk.cmp(&other.gvk))
    }
}

impl PartialOrd for Target {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Target {
    pub fn of(object: &Value) -> Self {
        Self { gvk: Gvk::of(object), key: Key::of(object) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.gvk.kind, self.key)
    }
}

/// A string member of an object; empty where absent.
pub fn text<'a>(object: &'a Value, member: &str) -> &'a str {
    object.get(member).and_then(Value::as_str).unwrap_or_default()
}

/// A string member of an object's metadata; empty where absent.
pub fn meta<'a>(object: &'a Value, member: &str) -> &'a str {
    object.get("metadata").map(|m| text(m, member)).unwrap_or_default()
}

/// The object's uid; empty before it was stored.
pub fn uid(object: &Value) -> &str {
    meta(object, "uid")
}

/// The object's resource version; empty before it was stored.
pub fn resource_version(object: &Value) -> &str {
    meta(object, "resourceVersion")
}

/// A label's value.
pub fn label<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(name)?.as_str()
}

/// An annotation's value.
pub fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(name)?.as_str()
}

/// Whether deletion has been asked for.
pub fn is_terminating(object: &Value) -> bool {
    !meta(object, "deletionTimestamp").is_empty()
}

/// Whether a pod has ended, whichever way.
pub fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// The owner reference with `controller: true`.
pub fn controller_of(object: &Value) -> Option<&Value> {
    object
        .get("metadata")?
        .get("ownerReferences")?
        .as_array()?
        .iter()
        .find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))
}
