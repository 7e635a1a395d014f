//! The table of the kinds of Kubernetes itself that are served, with their descriptions for discovery and tables.

use resource::{Column, Facts, Rechecks, Resource, Strategy, Subresource};
use std::sync::Arc;

/// A kind on its way into the catalogue.
pub struct Kind {
    resource: Resource,
}

/// Verbs of a kind that is stored.
const STORED: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

impl Kind {
    /// A stored, namespaced kind in `v1` of its group.
    pub fn new(group: &str, kind: &str, plural: &str, strategy: impl Strategy + 'static) -> Self {
        let name = merge::builtin::type_name(group, kind);
        let facts = Facts { rechecks: rechecks(group, kind), ..strategy.facts() };
        let columns = vec![column("Name", "string", "name", 0), column("Created At", "date", "", 0)];
        Self {
            resource: Resource {
                group: group.to_owned(),
                version: "v1".to_owned(),
                kind: kind.to_owned(),
                list_kind: format!("{kind}List"),
                plural: plural.to_owned(),
                singular: kind.to_lowercase(),
                namespaced: true,
                short_names: Vec::new(),
                categories: Vec::new(),
                verbs: STORED.to_vec(),
                subresources: Vec::new(),
                schema: name.map(merge::builtin::schema).unwrap_or_default(),
                type_name: name,
                columns,
                facts,
                strategy: Arc::new(strategy),
                custom: false,
            },
        }
    }

    /// Not in a namespace.
    pub fn cluster(mut self) -> Self {
        self.resource.namespaced = false;
        self
    }

    /// Asked, never stored.
    pub fn asked(mut self) -> Self {
        self.resource.verbs = vec!["create"];
        self
    }

    /// Without `deletecollection`.
    pub fn not_as_collection(mut self) -> Self {
        self.resource.verbs.retain(|verb| *verb != "deletecollection");
        self
    }

    /// What kubectl accepts for the plural.
    pub fn short(mut self, names: &[&str]) -> Self {
        self.resource.short_names = names.iter().map(|n| (*n).to_owned()).collect();
        self
    }

    /// A name for several kinds (`all`).
    pub fn category(mut self, name: &str) -> Self {
        self.resource.categories.push(name.to_owned());
        self
    }

    /// Columns `Name[:type]`, those after `|` only in wide tables. The first is the name.
    pub fn columns(mut self, columns: &str) -> Self {
        let mut priority = 0;
        self.resource.columns.clear();
        for word in columns.split(',') {
            let word = match word.strip_prefix('|') {
                Some(word) => {
                    priority = 1;
                    word
                }
                None => word,
            };
            let (name, kind) = word.split_once(':').unwrap_or((word, "string"));
            let (name, own) = name.split_once('/').map_or((name, priority), |(name, _)| (name, 1));
            let format = if name == "Name" { "name" } else { "" };
            self.resource.columns.push(column(name, kind, format, own));
        }
        self
    }

    /// `status`: read and written apart.
    pub fn status(self) -> Self {
        let kind = self.resource.kind.clone();
        self.sub("status", "", &kind, &["get", "patch", "update"])
    }

    /// `scale`: how many replicas there are to be.
    pub fn scale(self) -> Self {
        self.sub("scale", "autoscaling", "Scale", &["get", "patch", "update"])
    }

    /// A subresource whose bodies are of `kind` in `group` (empty: the kind's own group).
    pub fn sub(mut self, name: &'static str, group: &str, kind: &str, verbs: &[&'static str]) -> Self {
        let group = if group.is_empty() { self.resource.group.clone() } else { group.to_owned() };
        let version = self.resource.version.clone();
        self.resource.subresources.push(Subresource {
            name,
            group,
            version,
            kind: kind.to_owned(),
            verbs: verbs.to_vec(),
        });
        self.resource.subresources.sort_by_key(|s| s.name);
        self
    }

    /// The finished entry.
    pub fn done(self) -> Resource {
        self.resource
    }
}

/// What upstream's validation of an update checks again (`ValidateObjectMetaUpdate` and `ValidateObjectMeta`).
fn rechecks(group: &str, kind: &str) -> Rechecks {
    let (update, whole) = match kind {
        "PodDisruptionBudget" => (false, false),
        "Event" if group.is_empty() => (false, false),
        "EndpointSlice" | "LimitRange" | "PersistentVolume" => (false, true),
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => (false, true),
        "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding" => (false, true),
        "MutatingAdmissionPolicy" | "MutatingAdmissionPolicyBinding" => (false, true),
        "CronJob" | "DaemonSet" | "Deployment" | "Event" | "Job" | "Lease" | "NetworkPolicy" => (true, false),
        "PodTemplate" | "PriorityClass" | "ReplicaSet" | "ReplicationController" | "ResourceQuota" => (true, false),
        "Service" | "CustomResourceDefinition" => (true, false),
        _ => (true, true),
    };
    Rechecks { update, whole, of_parts: kind != "Namespace" }
}

fn column(name: &str, kind: &str, format: &str, priority: i32) -> Column {
    Column {
        name: name.to_owned(),
        kind: kind.to_owned(),
        format: format.to_owned(),
        description: String::new(),
        priority,
        json_path: None,
    }
}
