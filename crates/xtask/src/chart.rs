//! `cargo xtask chart`: copies the objects of the chart from manifests/.
//!
//! The chart applies its values to the same objects that `kubectl apply -k manifests/overlays/manager` installs, so nothing is
//! written twice. Each object is a file, by kind and name. Kinds are compact, because Helm stores the whole chart in
//! one Secret with every revision of a release.

use crate::{emit, yaml};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What is installed, below the repository's root.
const OVERLAY: &str = "manifests/overlays/manager";
/// What OptimizationJobs need beside.
const OPTIMIZATION: &str = "manifests/components/optimization";
/// What MPIJobs need beside, and what their profile for OpenShift AI adds.
const MPI: &str = "manifests/components/mpi";
const OPENSHIFT: [&str; 3] = [
    "manifests/overlays/openshift/role.yaml",
    "manifests/overlays/openshift/binding.yaml",
    "manifests/overlays/openshift/warnings.yaml",
];
/// The roles of an operator that keeps to its own namespace.
const NAMESPACED: &str = "manifests/overlays/namespaced/role.yaml";
/// Where the copies go.
const FILES: &str = "charts/trainyard/files";
/// The names that kustomize knows its file by.
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// Writes or checks all copies; with `check`, a file that nobody would write is a fault, too.
pub fn run(root: &Path, check: bool) -> Result<()> {
    let wanted = files(root)?;
    let folder = root.join(FILES);
    for (name, text) in &wanted {
        emit(&folder.join(name), text, check)?;
    }
    for held in [folder.clone(), folder.join("crds"), folder.join("namespaced")] {
        for entry in std::fs::read_dir(&held).with_context(|| format!("reading {}", held.display()))? {
            let path = entry?.path();
            let name = path.strip_prefix(&folder)?.to_string_lossy().into_owned();
            if path.is_dir() || wanted.contains_key(&name) {
                continue;
            }
            ensure!(!check, "{} is not written by `cargo xtask chart`: delete it", path.display());
            std::fs::remove_file(&path).with_context(|| format!("deleting {}", path.display()))?;
        }
    }
    Ok(())
}

/// What each file holds, by its name below [`FILES`].
fn files(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let mut objects = Vec::new();
    collect(&root.join(OVERLAY), &mut objects)?;
    collect(&root.join(OPTIMIZATION), &mut objects)?;
    collect(&root.join(MPI), &mut objects)?;
    for file in OPENSHIFT {
        objects.extend(documents(&root.join(file))?);
    }
    add(&mut files, "", objects)?;
    add(&mut files, "namespaced/", documents(&root.join(NAMESPACED))?)?;
    Ok(files)
}

/// Adds objects in a folder (`""`, or with a slash at the end).
fn add(files: &mut BTreeMap<String, String>, folder: &str, objects: Vec<Value>) -> Result<()> {
    for object in objects {
        let (Some(kind), Some(name)) = (object["kind"].as_str(), object["metadata"]["name"].as_str()) else {
            bail!("an object of {OVERLAY} has no kind or no name");
        };
        let (name, text) = match kind {
            // Helm makes the namespace itself, where asked to
            "Namespace" => continue,
            "CustomResourceDefinition" => (format!("crds/{name}.json"), format!("{object}\n")),
            _ => (format!("{folder}{kind}.{name}.yaml"), yaml::render(&object)),
        };
        ensure!(files.insert(name.clone(), text).is_none(), "{OVERLAY} holds {name} twice");
    }
    Ok(())
}

/// A kustomization, as far as ours go; what else it says is about images and namespaces, for which the chart has values.
#[derive(Deserialize)]
struct Kustomization {
    #[serde(default)]
    resources: Vec<PathBuf>,
}

/// All objects of a kustomization, in order.
fn collect(folder: &Path, objects: &mut Vec<Value>) -> Result<()> {
    let file = KUSTOMIZATIONS.iter().map(|name| folder.join(name)).find(|file| file.exists());
    let file = file.with_context(|| format!("{} holds no kustomization", folder.display()))?;
    let kustomization: Kustomization = parse(&file, &read(&file)?)?;
    for resource in kustomization.resources {
        let path = folder.join(resource);
        if path.is_dir() {
            collect(&path, objects)?;
            continue;
        }
        objects.extend(documents(&path)?);
    }
    Ok(())
}

/// All objects of a file.
fn documents(path: &Path) -> Result<Vec<Value>> {
    let text = read(path)?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| format!("parsing {}", path.display()))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

fn parse<T: for<'de> Deserialize<'de>>(path: &Path, text: &str) -> Result<T> {
    serde_saphyr::from_str(text).with_context(|| format!("parsing {}", path.display()))
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeSet;

    #[test]
    fn the_chart_holds_what_kubectl_applies() {
        run(&crate::root(), true).expect("run `cargo xtask chart`");
        let folder = crate::root().join(FILES);
        for file in ["crds/trainjobs.trainer.kubeflow.org.json", "Deployment.kubeflow-trainer-controller-manager.yaml"]
        {
            assert!(folder.join(file).exists(), "{file}");
        }
    }

    /// The fields of an object of the schema, and of a configuration that says everything, are the same ones.
    fn agrees(schema: &Value, value: &Value, path: &str) {
        let Some(fields) = value.as_object() else { return };
        let known = schema["properties"].as_object().unwrap_or_else(|| panic!("{path} has no properties"));
        assert_eq!(schema["additionalProperties"], json!(false), "{path}");
        assert_eq!(known.keys().collect::<BTreeSet<_>>(), fields.keys().collect::<BTreeSet<_>>(), "{path}");
        for (name, value) in fields {
            // maps whose keys are the user's
            if !["groupKindConcurrency", "featureGates"].contains(&name.as_str()) {
                agrees(&known[name], value, &format!("{path}.{name}"));
            }
        }
    }

    #[test]
    fn the_schema_knows_all_of_the_configuration() {
        let path = crate::root().join("charts/trainyard/values.schema.json");
        let schema: Value = serde_json::from_str(&read(&path).expect("it is there")).expect("it is JSON");
        let mut full = serde_json::to_value(api::config::Configuration {
            leader_election: Some(api::config::LeaderElection::default()),
            ..api::config::Configuration::default()
        })
        .expect("it can be written");
        // what is left out where it says nothing
        full["featureGates"] = json!({});
        full["controller"]["groupKindConcurrency"] = json!({});
        full["webhook"]["host"] = json!("");
        full["mpi"] = json!(api::config::Mpi::default());
        for (section, absent) in
            [("tls", "minVersion"), ("tls", "cipherSuites"), ("statusServer", "qps"), ("statusServer", "burst")]
        {
            full[section][absent] = json!("");
        }
        let fields = full.as_object_mut().expect("it is an object");
        fields.retain(|name, _| name != "apiVersion" && name != "kind");
        agrees(&schema["properties"]["manager"]["properties"]["config"], &full, "manager.config");
    }
}
