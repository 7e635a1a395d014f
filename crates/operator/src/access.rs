//! The rights that the operator needs on a cluster, worked out from what its controllers watch and write: least privilege.
//!
//! `manifests/base/rbac/role.yaml` is written from here (`UPDATE=1 cargo test -p operator --test it`).

use crate::registration::{DEFAULTER, VALIDATOR};
use crate::webhooks::looked_at;
use api::object::Gvk;
use plan::controller::{RuntimeController, TrainJobController};
use plan::plugins::Settings;
use plan::runtime::RuntimeKind;
use reconcile::{Primary, Reconciler};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Name of the roles, their bindings and the service account, as upstream's.
pub const NAME: &str = "kubeflow-trainer-controller-manager";
/// Where upstream's operator and ours are installed.
pub const NAMESPACE: &str = "kubeflow-system";

/// Group, resource, verbs.
type Grant = (&'static str, &'static str, &'static [&'static str]);

/// What decisions write. Server-side apply of what is not there yet is a patch and a creation.
const WRITES: &[Grant] = &[
    ("", "configmaps", &["create", "patch"]),
    // keys are made once and never changed
    ("", "secrets", &["create"]),
    // counted up: by patch, and after a restart from what is stored
    ("", "events", &["create", "get", "patch"]),
    ("jobset.x-k8s.io", "jobsets", &["create", "delete", "patch"]),
    ("scheduling.volcano.sh", "podgroups", &["create", "patch"]),
    ("scheduling.x-k8s.io", "podgroups", &["create", "patch"]),
    ("trainer.kubeflow.org", "trainjobs/status", &["patch"]),
    // attempts and restarts are counted in annotations; a TrainJob goes when its time to live has passed
    ("trainer.kubeflow.org", "trainjobs", &["delete", "patch"]),
    // the finalizer that versions before 2.3 left
    ("trainer.kubeflow.org", "clustertrainingruntimes", &["patch"]),
    ("trainer.kubeflow.org", "trainingruntimes", &["patch"]),
    // children block their owner's deletion: clusters that enforce it ask for this
    ("trainer.kubeflow.org", "trainjobs/finalizers", &["update"]),
];

/// What the servers ask: who reads metrics and who reports progress; and when a pod ends, before its job does.
const SERVERS: &[Grant] = &[
    ("authentication.k8s.io", "tokenreviews", &["create"]),
    ("authorization.k8s.io", "subjectaccessreviews", &["create"]),
    ("", "pods", &["list", "watch"]),
];

/// What a controller watches.
fn watched(reconciler: &impl Reconciler) -> Vec<Gvk> {
    let primary = match reconciler.primary() {
        Primary::Kind(gvk) => Some(gvk),
        Primary::Every => None,
    };
    primary.into_iter().chain(reconciler.watches().into_iter().map(|watch| watch.gvk)).collect()
}

/// All rules of a table: verbs by group and resource, resources with equal verbs together.
fn rules(table: BTreeMap<(String, String), BTreeSet<&str>>) -> Vec<Value> {
    let mut together: BTreeMap<(String, BTreeSet<&str>), Vec<String>> = BTreeMap::new();
    for ((group, resource), verbs) in table {
        together.entry((group, verbs)).or_default().push(resource);
    }
    let rule = |((group, verbs), resources): ((String, BTreeSet<&str>), Vec<String>)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    together.into_iter().map(rule).collect()
}

/// The rights on TrainJobs and what belongs to them: of a ClusterRole, for TrainJobs are in all namespaces.
fn cluster_rules() -> Vec<Value> {
    let mut table: BTreeMap<(String, String), BTreeSet<&str>> = BTreeMap::new();
    let runtimes = [RuntimeKind::TrainingRuntime, RuntimeKind::ClusterTrainingRuntime];
    let mut kinds = watched(&TrainJobController::new(Settings::default()));
    kinds.extend(runtimes.into_iter().flat_map(|kind| watched(&RuntimeController::new(kind))));
    for gvk in kinds {
        let plural = format!("{}s", gvk.kind.to_lowercase());
        table.entry((gvk.group, plural)).or_default().extend(["list", "watch"]);
    }
    for (group, resource) in looked_at() {
        table.entry((group.to_owned(), resource.to_owned())).or_default().insert("get");
    }
    for (group, resource, verbs) in WRITES.iter().chain(SERVERS) {
        table.entry(((*group).to_owned(), (*resource).to_owned())).or_default().extend(*verbs);
    }
    let mut rules = rules(table);
    for (resource, name) in
        [("mutatingwebhookconfigurations", DEFAULTER), ("validatingwebhookconfigurations", VALIDATOR)]
    {
        rules.push(json!({"apiGroups": ["admissionregistration.k8s.io"], "resources": [resource],
            "resourceNames": [name], "verbs": ["get", "patch"]}));
    }
    rules
}

/// The rights on the operator's own objects, in its own namespace.
fn own_rules() -> Vec<Value> {
    let lease = "trainer.kubeflow.org";
    let secret = api::config::CertManagement::default().webhook_secret_name;
    vec![
        // creation knows no names
        json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}),
        json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get", "update"]}),
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}),
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [lease],
            "verbs": ["get", "update"]}),
    ]
}

/// The roles as objects.
pub fn roles() -> Vec<Value> {
    let role = |kind: &str, rules: Vec<Value>| {
        let mut metadata = json!({"name": NAME});
        if kind == "Role" {
            metadata["namespace"] = json!(NAMESPACE);
        }
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules})
    };
    vec![role("ClusterRole", cluster_rules()), role("Role", own_rules())]
}
