//! `cargo xtask crds`: generates the CRD manifests from the types of crate `api`.
//!
//! The types describe what an object may hold. This module adds what they cannot describe: how a kind is served and printed.

use crate::kubernetes::Types;
use crate::{emit, schema, yaml};
use anyhow::{Result, ensure};
use api::podgroup::{coscheduling, volcano};
use api::trainer::{self, Kind};
use api::{jobset, mpi, sky};
use schemars::JsonSchema;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// Where the manifests lie, below the repository's root.
const FOLDER: &str = "manifests/crds";

/// How a kind is served.
struct Crd {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short_names: &'static [&'static str],
    namespaced: bool,
    status: bool,
    /// Name, type, path, and priority of each column that `kubectl get` prints.
    columns: &'static [Column],
    /// JSON paths by which field selectors can select.
    selectable: &'static [&'static str],
    /// Annotation that Kubernetes demands of groups under k8s.io.
    approved: Option<&'static str>,
}

struct Column {
    name: &'static str,
    kind: &'static str,
    path: &'static str,
    /// Above zero: only with `-o wide`.
    priority: i32,
    about: &'static str,
}

const fn column(name: &'static str, kind: &'static str, path: &'static str) -> Column {
    Column { name, kind, path, priority: 0, about: "" }
}

const AGE: Column = column("Age", "date", ".metadata.creationTimestamp");
const TRAINJOB_COLUMNS: &[Column] = &[column("State", "string", ".status.conditions[-1:].type"), AGE];

const JOBSET_COLUMNS: &[Column] = &[
    column("TerminalState", "string", ".status.terminalState"),
    column("Restarts", "string", ".status.restarts"),
    column("Completed", "string", r#".status.conditions[?(@.type=="Completed")].status"#),
    column("Suspended", "string", ".spec.suspend"),
    AGE,
];
const COSCHEDULING_COLUMNS: &[Column] = &[
    Column { about: "Where the group stands.", ..column("Phase", "string", ".status.phase") },
    Column { about: "How many pods must fit.", ..column("MinMember", "integer", ".spec.minMember") },
    Column { about: "How many pods run.", ..column("Running", "integer", ".status.running") },
    Column { about: "How many pods succeeded.", ..column("Succeeded", "integer", ".status.succeeded") },
    Column { about: "How many pods failed.", ..column("Failed", "integer", ".status.failed") },
    Column { about: "How long the group exists.", ..AGE },
];
const VOLCANO_COLUMNS: &[Column] = &[
    column("STATUS", "string", ".status.phase"),
    column("minMember", "integer", ".spec.minMember"),
    column("RUNNINGS", "integer", ".status.running"),
    column("AGE", "date", ".metadata.creationTimestamp"),
    Column { priority: 1, ..column("QUEUE", "string", ".spec.queue") },
];

const CLUSTER_COLUMNS: &[Column] = &[
    Column { about: "How many machines.", ..column("Nodes", "integer", ".spec.nodes") },
    Column { about: "Where the cluster stands.", ..column("Phase", "string", ".status.phase") },
    Column { about: "Dollars an hour.", ..column("Price", "number", ".status.hourlyPrice") },
    Column { about: "Why it is not what is asked for.", priority: 1, ..column("Message", "string", ".status.message") },
    Column { about: "How long it exists.", ..AGE },
];
const MACHINE_COLUMNS: &[Column] = &[
    Column { about: "The cluster that it is of.", ..column("Cluster", "string", ".spec.cluster") },
    Column { about: "Its place in the cluster.", ..column("Rank", "integer", ".spec.rank") },
    Column { about: "Who makes it.", ..column("Provider", "string", ".spec.candidate.provider") },
    Column { about: "What the provider calls it.", ..column("Id", "string", ".status.id") },
    Column { about: "Where the machine stands.", ..column("Phase", "string", ".status.phase") },
    Column { about: "How long it exists.", ..AGE },
];
const LAUNCH_COLUMNS: &[Column] = &[
    Column { about: "What the user calls the cluster.", ..column("Cluster", "string", ".spec.cluster") },
    Column { about: "What is done about it.", ..column("Phase", "string", ".status.phase") },
    Column { about: "The number of its job.", ..column("Job", "integer", ".status.job") },
    Column {
        about: "What it waits for, or why it failed.",
        priority: 1,
        ..column("Message", "string", ".status.message")
    },
    Column { about: "How long it exists.", ..AGE },
];

const MANAGED_JOB_COLUMNS: &[Column] = &[
    Column { about: "Number of the job.", ..column("ID", "integer", ".spec.id") },
    Column { about: "What the user calls it.", ..column("Job", "string", ".spec.name") },
    Column { about: "Where it stands.", ..column("State", "string", ".status.state") },
    Column {
        about: "How often its tasks were started again.",
        ..column("Recoveries", "integer", ".status.recoveries")
    },
    Column { about: "How long it exists.", ..AGE },
];

const FLEET_COLUMNS: &[Column] = &[
    Column { about: "What the user calls it.", ..column("Called", "string", ".spec.name") },
    Column { about: "The newest version.", ..column("Version", "integer", ".spec.version") },
    Column { about: "Its state as a whole.", ..column("State", "string", ".status.state") },
    Column { about: "Replicas that are wanted.", ..column("Wanted", "integer", ".status.scaler.target") },
    Column { about: "Where it answers.", ..column("Endpoint", "string", ".status.load.endpoint") },
    Column { about: "What it waits for.", priority: 1, ..column("Message", "string", ".status.message") },
    Column { about: "How long it exists.", ..AGE },
];

const BUDGET_COLUMNS: &[Column] = &[
    Column { about: "When it begins anew.", ..column("Period", "string", ".spec.period") },
    Column {
        about: "Whether its limit is reached.",
        ..column("Exceeded", "string", r#".status.conditions[?(@.type=="Exceeded")].status"#)
    },
    Column { about: "Dollars that were spent.", ..column("Dollars", "number", ".status.spent.dollars") },
    Column {
        about: "Hours of accelerators that were spent.",
        ..column("GPU-hours", "number", ".status.spent.gpuHours")
    },
    Column {
        about: "Hours of machines that were spent.",
        ..column("Machine-hours", "number", ".status.spent.machineHours")
    },
    Column { about: "What it does.", priority: 1, ..column("Message", "string", ".status.message") },
    Column { about: "How long it exists.", ..AGE },
];

/// Writes or checks all manifests; with `check`, a manifest that nobody would write is a fault, too.
pub fn run(root: &Path, check: bool) -> Result<()> {
    let types = Types::load(root)?;
    let folder = root.join(FOLDER);
    let mut written = BTreeSet::new();
    for (crd, schema) in all(&types)? {
        // what components name has to be a folder
        let part = if crd.group == mpi::GROUP { "mpi/" } else { "" };
        let name = format!("{part}{}_{}.yaml", crd.group, crd.plural);
        let text = format!("# Generated by `cargo xtask crds`; edit the types of crates/api.\n{}", crd.render(schema));
        emit(&folder.join(&name), &text, check)?;
        written.insert(name);
    }
    for part in ["", "mpi/"] {
        for entry in std::fs::read_dir(folder.join(part))? {
            let entry = entry?;
            let name = format!("{part}{}", entry.file_name().to_string_lossy());
            // it lists the manifests for `kubectl apply -k`
            if entry.file_name() == "Kustomization" || entry.file_type()?.is_dir() {
                continue;
            }
            ensure!(written.contains(&name), "{FOLDER}/{name} is not generated by anything: remove it");
        }
    }
    Ok(())
}

fn trainer_crd(kind: Kind, status: bool, columns: &'static [Column]) -> Crd {
    Crd {
        group: trainer::GROUP,
        version: trainer::VERSION,
        kind: kind.as_str(),
        plural: kind.plural(),
        short_names: &[],
        namespaced: kind.is_namespaced(),
        status,
        columns,
        selectable: &[],
        approved: None,
    }
}

fn sky_crd(kind: &'static str, plural: &'static str, columns: &'static [Column]) -> Crd {
    Crd {
        group: sky::GROUP,
        version: sky::VERSION,
        kind,
        plural,
        short_names: &[],
        namespaced: true,
        status: true,
        columns,
        selectable: &[],
        approved: None,
    }
}

fn all(types: &Types) -> Result<Vec<(Crd, Value)>> {
    fn object<T: JsonSchema>(types: &Types) -> Result<Value> {
        schema::of_object::<T>(types)
    }
    Ok(vec![
        (trainer_crd(Kind::TrainJob, true, TRAINJOB_COLUMNS), object::<trainer::TrainJob>(types)?),
        (trainer_crd(Kind::TrainingRuntime, false, &[]), object::<trainer::TrainingRuntime>(types)?),
        (trainer_crd(Kind::ClusterTrainingRuntime, false, &[]), object::<trainer::ClusterTrainingRuntime>(types)?),
        (trainer_crd(Kind::OptimizationJob, true, &[]), object::<trainer::OptimizationJob>(types)?),
        (
            Crd {
                group: jobset::GROUP,
                version: jobset::VERSION,
                kind: jobset::KIND,
                plural: "jobsets",
                short_names: &[],
                namespaced: true,
                status: true,
                columns: JOBSET_COLUMNS,
                selectable: &[],
                approved: None,
            },
            object::<jobset::JobSet>(types)?,
        ),
        (
            Crd {
                group: mpi::GROUP,
                version: mpi::VERSION,
                kind: mpi::KIND,
                plural: mpi::PLURAL,
                short_names: &[],
                namespaced: true,
                status: true,
                columns: &[],
                selectable: &[],
                approved: None,
            },
            object::<mpi::MpiJob>(types)?,
        ),
        (sky_crd("Cluster", "clusters", CLUSTER_COLUMNS), object::<sky::Cluster>(types)?),
        (
            Crd { selectable: &[".spec.candidate.provider"], ..sky_crd("Machine", "machines", MACHINE_COLUMNS) },
            object::<sky::Machine>(types)?,
        ),
        (sky_crd("Launch", "launches", LAUNCH_COLUMNS), object::<sky::Launch>(types)?),
        (sky_crd("ManagedJob", "managedjobs", MANAGED_JOB_COLUMNS), object::<sky::ManagedJob>(types)?),
        (sky_crd("Serving", "servings", FLEET_COLUMNS), object::<sky::Serving>(types)?),
        (sky_crd("Pool", "pools", FLEET_COLUMNS), object::<sky::Pool>(types)?),
        (sky_crd("Budget", "budgets", BUDGET_COLUMNS), object::<sky::Budget>(types)?),
        (
            Crd {
                group: coscheduling::GROUP,
                version: coscheduling::VERSION,
                kind: coscheduling::KIND,
                plural: "podgroups",
                short_names: &["pg", "pgs"],
                namespaced: true,
                status: true,
                columns: COSCHEDULING_COLUMNS,
                selectable: &[],
                approved: Some("https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"),
            },
            object::<coscheduling::PodGroup>(types)?,
        ),
        (
            Crd {
                group: volcano::GROUP,
                version: volcano::VERSION,
                kind: volcano::KIND,
                plural: "podgroups",
                short_names: &["pg", "podgroup-v1beta1"],
                namespaced: true,
                status: false,
                columns: VOLCANO_COLUMNS,
                selectable: &[],
                approved: None,
            },
            object::<volcano::PodGroup>(types)?,
        ),
    ])
}

impl Crd {
    /// The manifest.
    fn render(&self, schema: Value) -> String {
        let mut metadata = json!({"name": format!("{}.{}", self.plural, self.group)});
        if let Some(approval) = self.approved {
            metadata["annotations"] = json!({"api-approved.kubernetes.io": approval});
        }
        let mut names = json!({
            "kind": self.kind,
            "listKind": format!("{}List", self.kind),
            "plural": self.plural,
            "singular": self.kind.to_lowercase(),
        });
        if !self.short_names.is_empty() {
            names["shortNames"] = json!(self.short_names);
        }
        let mut version = json!({
            "name": self.version,
            "served": true,
            "storage": true,
            "schema": {"openAPIV3Schema": schema},
        });
        if self.status {
            version["subresources"] = json!({"status": {}});
        }
        if !self.selectable.is_empty() {
            version["selectableFields"] = self.selectable.iter().map(|path| json!({"jsonPath": path})).collect();
        }
        if !self.columns.is_empty() {
            version["additionalPrinterColumns"] = self.columns.iter().map(Column::render).collect();
        }
        yaml::render(&json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": metadata,
            "spec": {
                "group": self.group,
                "names": names,
                "scope": if self.namespaced { "Namespaced" } else { "Cluster" },
                "versions": [version],
            },
        }))
    }
}

impl Column {
    fn render(&self) -> Value {
        let mut column = json!({"name": self.name, "type": self.kind, "jsonPath": self.path});
        if self.priority > 0 {
            column["priority"] = json!(self.priority);
        }
        if !self.about.is_empty() {
            column["description"] = json!(self.about);
        }
        column
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::trainer::ClusterTrainingRuntime;

    #[test]
    fn committed_manifests_are_what_the_types_say() {
        run(&crate::root(), true).unwrap();
    }

    #[test]
    fn built_in_runtimes_are_valid_and_named_as_their_files() {
        let mut count = 0;
        for entry in std::fs::read_dir(crate::root().join("manifests/runtimes")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "yaml") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let runtime: ClusterTrainingRuntime = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(runtime.metadata.name.as_deref(), path.file_stem().and_then(|stem| stem.to_str()));
            assert_eq!(
                (runtime.api_version.as_str(), runtime.kind.as_str()),
                (trainer::API_VERSION, "ClusterTrainingRuntime")
            );
            let policy = runtime.spec.ml_policy.unwrap();
            let frameworks = [
                policy.torch.is_some(),
                policy.mpi.is_some(),
                policy.flux.is_some(),
                policy.jax.is_some(),
                policy.xgboost.is_some(),
            ];
            assert_eq!(frameworks.into_iter().filter(|set| *set).count(), 1, "{}", path.display());
            count += 1;
        }
        assert_eq!(count, 10);
    }
}
