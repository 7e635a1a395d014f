//! The rights that the operator needs on a cluster, worked out from what its controllers watch and write: least privilege.
//!
//! The roles in `manifests` are written from here (`UPDATE=1 cargo test -p operator --test it`). That each verb of them is used
//! is seen in a real API server's audit log (`e2e/operator/test_operator_more.py`).

use crate::cluster::registration::{DEFAULTER, VALIDATOR};
use crate::cluster::webhooks::looked_at;
use api::mpi::names::LEASE;
use api::object::Gvk;
use plan::controller::{RuntimeController, TrainJobController};
use plan::evidence::PodFailureController;
use plan::mpijob::controller::MpiJobController;
use plan::mpijob::{self, GangScheduler, MpiProfile};
use plan::optimization::controller::optimizationjob_gvk;
use plan::plugins::Settings;
use plan::runtime::RuntimeKind;
use reconcile::{Primary, Reconciler};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Name of the roles, their bindings and the service account, as upstream's.
pub const NAME: &str = "kubeflow-trainer-controller-manager";
/// Where upstream's operator and ours are installed.
pub const NAMESPACE: &str = "kubeflow-system";

/// Name of the role for OptimizationJobs; upstream has no controller for them.
pub const OPTIMIZATION: &str = "kubeflow-trainer-optimization";

/// Name of the roles for MPIJobs; upstream has an operator of its own for them.
pub const MPI: &str = "kubeflow-trainer-mpi";

/// Name of the role for what MPIJobs have under profile `openshift-ai` beside.
pub const MPI_OPENSHIFT: &str = "kubeflow-trainer-mpi-openshift";

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

/// What the servers read: reviews of clients that read metrics or report progress, and pods, whose end comes before their job's.
const SERVERS: &[Grant] = &[
    ("authentication.k8s.io", "tokenreviews", &["create"]),
    ("authorization.k8s.io", "subjectaccessreviews", &["create"]),
    ("", "pods", &["list", "watch"]),
    // metrics that a job prints
    ("", "pods/log", &["get"]),
    // what jobs reported
    ("", "configmaps", &["create", "get", "patch"]),
];

/// What a controller watches.
fn watched(reconciler: &impl Reconciler) -> Vec<Gvk> {
    let primary = match reconciler.primary() {
        Primary::Kind(gvk) => Some(gvk),
        Primary::Every => None,
    };
    primary.into_iter().chain(reconciler.watches().into_iter().map(|watch| watch.gvk)).collect()
}

/// Of these there is one for all namespaces: only a ClusterRole can grant them.
const CLUSTER_SCOPED: [&str; 4] =
    ["clustertrainingruntimes", "priorityclasses", "subjectaccessreviews", "tokenreviews"];

/// Verbs by group and resource.
type Table = BTreeMap<(String, String), BTreeSet<&'static str>>;

/// All rules of a table: resources with equal verbs together.
fn rules(table: Table) -> Vec<Value> {
    let mut together: BTreeMap<(String, BTreeSet<&str>), Vec<String>> = BTreeMap::new();
    for ((group, resource), verbs) in table {
        together.entry((group, verbs)).or_default().push(resource);
    }
    let rule = |((group, verbs), resources): ((String, BTreeSet<&str>), Vec<String>)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    together.into_iter().map(rule).collect()
}

/// What the controllers watch, what admission looks at, what is written and asked.
fn table() -> Table {
    let mut table = Table::new();
    let runtimes = [RuntimeKind::TrainingRuntime, RuntimeKind::ClusterTrainingRuntime];
    let mut kinds = watched(&TrainJobController::new(Settings::default()));
    kinds.extend(watched(&PodFailureController));
    kinds.extend(runtimes.into_iter().flat_map(|kind| watched(&RuntimeController::new(kind))));
    add_watched(&mut table, kinds);
    for (group, resource) in looked_at() {
        table.entry((group.to_owned(), resource.to_owned())).or_default().insert("get");
    }
    add(&mut table, WRITES);
    add(&mut table, SERVERS);
    table
}

fn add(table: &mut Table, grants: &[Grant]) {
    for (group, resource, verbs) in grants {
        table.entry(((*group).to_owned(), (*resource).to_owned())).or_default().extend(*verbs);
    }
}

fn add_watched(table: &mut Table, kinds: Vec<Gvk>) {
    for gvk in kinds {
        let plural = format!("{}s", gvk.kind.to_lowercase());
        table.entry((gvk.group, plural)).or_default().extend(["list", "watch"]);
    }
}

/// The rights on the webhook configurations.
fn registration_rules() -> [Value; 2] {
    let names = [("mutatingwebhookconfigurations", DEFAULTER), ("validatingwebhookconfigurations", VALIDATOR)];
    names.map(|(resource, name)| {
        json!({"apiGroups": ["admissionregistration.k8s.io"], "resources": [resource], "resourceNames": [name],
            "verbs": ["get", "patch"]})
    })
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

fn role(kind: &str, name: &str, rules: Vec<Value>) -> Value {
    let mut metadata = json!({"name": name});
    if kind == "Role" {
        metadata["namespace"] = json!(NAMESPACE);
    }
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules})
}

/// The roles of an operator for all namespaces.
pub fn roles() -> Vec<Value> {
    let mut all = rules(table());
    all.extend(registration_rules());
    vec![role("ClusterRole", NAME, all), role("Role", NAME, own_rules())]
}

/// The roles of an operator that keeps to its own namespace (`--watch-namespace`): what is not in a namespace, in a
/// ClusterRole; all else in a Role.
pub fn namespaced_roles() -> Vec<Value> {
    let (cluster, mut namespaced): (Table, Table) =
        table().into_iter().partition(|((_, resource), _)| CLUSTER_SCOPED.contains(&resource.as_str()));
    let mut around = rules(cluster);
    around.extend(registration_rules());
    // TrainJobs' keys and the operator's own Secret are in one namespace: what may be created is said once
    if let Some(verbs) = namespaced.get_mut(&(String::new(), "secrets".to_owned())) {
        verbs.remove("create");
    }
    let mut all = rules(namespaced);
    all.extend(own_rules());
    vec![role("ClusterRole", NAME, around), role("Role", NAME, all)]
}

/// What controller `mpijob` needs in addition: roles for installations that turn it on. The Lease is mpi-operator's own.
pub fn mpi_roles() -> Vec<Value> {
    let mut table = Table::new();
    for scheduler in ["volcano", "scheduler-plugins"] {
        let settings = mpijob::Settings { gang: GangScheduler::of(scheduler), ..mpijob::Settings::default() };
        for gvk in watched(&MpiJobController::new(settings)) {
            let plural = gvk.regular_plural();
            table.entry((gvk.group, plural)).or_default().extend(["list", "watch"]);
        }
    }
    add(
        &mut table,
        &[
            ("", "configmaps", &["create", "update"]),
            ("", "secrets", &["create", "update"]),
            ("", "services", &["create", "update"]),
            ("", "pods", &["create", "delete"]),
            // a launcher that has failed is deleted before its next attempt
            ("batch", "jobs", &["create", "delete", "patch"]),
            // a Job that was started before can be resumed with other scheduling directives only without its start time
            ("batch", "jobs/status", &["patch"]),
            ("scheduling.volcano.sh", "podgroups", &["create", "delete", "update"]),
            ("scheduling.x-k8s.io", "podgroups", &["create", "delete", "update"]),
            ("kubeflow.org", "mpijobs/status", &["update"]),
            // one whose time to live has passed; attempts are counted in annotations
            ("kubeflow.org", "mpijobs", &["delete", "patch"]),
            ("kubeflow.org", "mpijobs/finalizers", &["update"]),
        ],
    );
    let mut lock = role(
        "Role",
        MPI,
        vec![
            json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}),
            json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [LEASE],
                "verbs": ["get", "update"]}),
        ],
    );
    lock["metadata"]["namespace"] = json!(api::config::Mpi::default().lock_namespace);
    vec![role("ClusterRole", MPI, rules(table)), lock]
}

/// What profile `openshift-ai` of controller `mpijob` needs beside [`mpi_roles`].
pub fn mpi_openshift_role() -> Value {
    let kinds = |profile| watched(&MpiJobController::new(mpijob::Settings { profile, ..mpijob::Settings::default() }));
    let plain = kinds(MpiProfile::Upstream);
    let mut table = Table::new();
    for gvk in kinds(MpiProfile::OpenshiftAi).into_iter().filter(|gvk| !plain.contains(gvk)) {
        // policies, not policys
        let plural = match gvk.kind.to_lowercase().strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None => gvk.regular_plural(),
        };
        table.entry((gvk.group, plural)).or_default().extend(["list", "watch"]);
    }
    add(&mut table, &[("networking.k8s.io", "networkpolicies", &["create", "update"])]);
    role("ClusterRole", MPI_OPENSHIFT, rules(table))
}

/// What controller `optimizationjob` needs in addition: a ClusterRole for installations that turn it on.
pub fn optimization_role() -> Value {
    let mut table = Table::new();
    add_watched(&mut table, vec![optimizationjob_gvk()]);
    add(
        &mut table,
        &[
            ("trainer.kubeflow.org", "optimizationjobs/status", &["patch"]),
            ("trainer.kubeflow.org", "optimizationjobs/finalizers", &["update"]),
            ("trainer.kubeflow.org", "trainjobs", &["create"]),
        ],
    );
    role("ClusterRole", OPTIMIZATION, rules(table))
}
