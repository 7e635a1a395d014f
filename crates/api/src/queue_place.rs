//! `queue.trainyard.dev/v1alpha1`: where the gang of a JobSet stands among those that wait for the scheduler. Read-only.
//!
//! `trainyard up` answers from what its scheduler knows; a cluster does not have this group. The resource is called `jobsets`, and a
//! place has the name of its JobSet.

use serde::{Deserialize, Serialize};

/// The API group.
pub const GROUP: &str = "queue.trainyard.dev";
/// The only version.
pub const VERSION: &str = "v1alpha1";
/// The resource.
pub const PLURAL: &str = "jobsets";

/// The path of a JobSet's place.
pub fn path(namespace: &str, name: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}/{name}")
}

/// A place in the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueuePlace {
    pub api_version: String,
    pub kind: String,
    pub metadata: Metadata,
    /// From 1, among those of its namespace.
    pub position: usize,
    /// From 1, among those of all namespaces, where that is known.
    pub overall: Option<usize>,
    /// Those of its namespace that are tried before it, the first one first: gangs by name (that of the JobSet, PodGroup or owner), single
    /// pods by theirs. At most [`AHEAD_MAX`].
    pub ahead: Vec<String>,
}

/// How many of those ahead are named: of thousands that wait each has thousands ahead of it.
pub const AHEAD_MAX: usize = 100;

/// The JobSet that a place is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metadata {
    pub name: String,
    pub namespace: String,
}
