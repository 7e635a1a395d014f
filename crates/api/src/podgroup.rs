//! PodGroups, which gang schedulers read. Each scheduler has its own kind of that name.
//!
//! Trainyard serves both kinds, so that runtimes written for either scheduler work on a machine without one; its own
//! scheduler honours them.

/// PodGroups of the coscheduling plugin of scheduler-plugins.
pub mod coscheduling {
    use crate::object::Gvk;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
    use serde::{Deserialize, Serialize};
    use serde_json::Value;
    use std::collections::BTreeMap;

    /// The API group.
    pub const GROUP: &str = "scheduling.x-k8s.io";
    /// The version.
    pub const VERSION: &str = "v1alpha1";
    /// The kind.
    pub const KIND: &str = "PodGroup";

    /// Group, version and kind.
    pub fn gvk() -> Gvk {
        Gvk::new(GROUP, VERSION, KIND)
    }

    /// Pods that are scheduled together or not at all. They name their group in the label
    /// scheduling.x-k8s.io/pod-group.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub struct PodGroup {
        /// `scheduling.x-k8s.io/v1alpha1`.
        #[serde(default)]
        pub api_version: String,
        /// `PodGroup`.
        #[serde(default)]
        pub kind: String,
        /// Name, namespace, labels and what else every object has.
        #[serde(default)]
        #[cfg_attr(feature = "schema", schemars(with = "crate::schema::ObjectMeta"))]
        pub metadata: ObjectMeta,
        /// What the group needs before any of it runs.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub spec: Option<Spec>,
        /// Where the group stands, as its scheduler last saw it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<Status>,
    }

    /// What a group needs before any of it runs.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub struct Spec {
        /// How many pods must fit before one is scheduled. At least 1.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
        pub min_member: Option<i32>,
        /// What those pods request together, by resource.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        #[cfg_attr(feature = "schema", schemars(with = "std::collections::BTreeMap<String, crate::schema::Quantity>"))]
        pub min_resources: BTreeMap<String, Value>,
        /// Seconds to wait for the whole group once its first pod has a place.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub schedule_timeout_seconds: Option<i32>,
    }

    /// Where a group stands.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub struct Status {
        /// Pending, PreScheduling, Scheduling, Scheduled, Running, Unknown, Finished or Failed.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub phase: String,
        /// The workload that the group belongs to.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub occupied_by: String,
        /// How many of its pods run.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub running: Option<i32>,
        /// How many of its pods succeeded.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub succeeded: Option<i32>,
        /// How many of its pods failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub failed: Option<i32>,
        /// When its scheduling began.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::Time>"))]
        pub schedule_start_time: Option<Time>,
    }
}

/// PodGroups of Volcano.
pub mod volcano {
    use crate::object::Gvk;
    use crate::trainer::NetworkTopology;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
    use serde::{Deserialize, Serialize};
    use serde_json::Value;
    use std::collections::BTreeMap;

    /// The API group.
    pub const GROUP: &str = "scheduling.volcano.sh";
    /// The version.
    pub const VERSION: &str = "v1beta1";
    /// The kind.
    pub const KIND: &str = "PodGroup";

    /// Group, version and kind.
    pub fn gvk() -> Gvk {
        Gvk::new(GROUP, VERSION, KIND)
    }

    /// Pods that are scheduled together or not at all. They name their group in the annotation
    /// scheduling.k8s.io/group-name.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub struct PodGroup {
        /// `scheduling.volcano.sh/v1beta1`.
        #[serde(default)]
        pub api_version: String,
        /// `PodGroup`.
        #[serde(default)]
        pub kind: String,
        /// Name, namespace, labels and what else every object has.
        #[serde(default)]
        #[cfg_attr(feature = "schema", schemars(with = "crate::schema::ObjectMeta"))]
        pub metadata: ObjectMeta,
        /// What the group needs before any of it runs.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub spec: Option<Spec>,
        /// Where the group stands, as its scheduler last saw it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<Status>,
    }

    /// What a group needs before any of it runs.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub struct Spec {
        /// How many pods must fit before one is scheduled.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub min_member: Option<i32>,
        /// How many pods of each task must fit before one is scheduled, by task.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub min_task_member: BTreeMap<String, i32>,
        /// The queue whose share the group is charged to. Default: default.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schemars(extend("default" = "default")))]
        pub queue: Option<String>,
        /// The PriorityClass of the group as a whole.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub priority_class_name: String,
        /// What minMember pods request together, by resource.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        #[cfg_attr(feature = "schema", schemars(with = "std::collections::BTreeMap<String, crate::schema::Quantity>"))]
        pub min_resources: BTreeMap<String, Value>,
        /// How close together, in terms of the network, the group must be placed.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub network_topology: Option<NetworkTopology>,
    }

    /// Where a group stands.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub struct Status {
        /// Pending, Inqueue, Running, Unknown or Completed.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub phase: String,
        /// Why it stands there.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub conditions: Vec<Condition>,
        /// How many of its pods run.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub running: Option<i32>,
        /// How many of its pods succeeded.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub succeeded: Option<i32>,
        /// How many of its pods failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub failed: Option<i32>,
    }

    /// One aspect of a group's state.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub struct Condition {
        /// The aspect: Unschedulable or Scheduled.
        #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
        pub condition_type: String,
        /// Whether it holds: True, False or Unknown.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub status: String,
        /// The scheduling cycle that set it.
        #[serde(rename = "transitionID", default, skip_serializing_if = "String::is_empty")]
        pub transition_id: String,
        /// When the status last changed.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::Time>"))]
        pub last_transition_time: Option<Time>,
        /// Why it last changed, for programs: one word in CamelCase.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub reason: String,
        /// Why it last changed, for people.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub message: String,
    }
}
