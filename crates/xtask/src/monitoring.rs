//! `cargo xtask monitoring`: rules, alerts and boards for Prometheus and Grafana, and the objects that install them on a cluster.
//!
//! `rules` and `boards` have the contents. Everything is written once here and comes out in the form that each reader takes: a rule file,
//! boards as JSON, and a kustomize component (PrometheusRule, ServiceMonitor, ConfigMaps).

mod boards;
mod rules;

use crate::{emit, yaml};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::path::Path;

/// Rules and boards as Prometheus and Grafana read them.
const FOLDER: &str = "monitoring";
/// The component for kustomize.
const COMPONENT: &str = "manifests/components/monitoring";
/// Where the operator runs.
const NAMESPACE: &str = "kubeflow-system";
const SERVICE: &str = "kubeflow-trainer-controller-manager";
const LABEL: &str = "app.kubernetes.io/name";
/// The console of OpenShift reads boards of this namespace.
const CONSOLE: &str = "openshift-config-managed";

/// Writes or checks all files.
pub fn run(root: &Path, check: bool) -> Result<()> {
    let groups = rules::groups();
    for alert in rules::ALERTS {
        let page = root.join(rules::page(alert.name));
        ensure!(page.is_file(), "{} is missing: the runbook of {}", page.display(), alert.name);
    }
    let header = "# Written by `cargo xtask monitoring`.\n";
    let emit_yaml =
        |path: &str, value: &Value| emit(&root.join(path), &format!("{header}{}", yaml::render(value)), check);
    emit_yaml(&format!("{FOLDER}/rules.yaml"), &json!({"groups": groups}))?;
    let rule = json!({"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "spec": {"groups": groups},
        "metadata": {"name": "trainyard", "namespace": NAMESPACE}});
    emit_yaml(&format!("{COMPONENT}/rules.yaml"), &rule)?;
    emit_yaml(&format!("{COMPONENT}/service-monitor.yaml"), &service_monitor())?;
    let mut resources = vec!["rules.yaml".to_owned(), "service-monitor.yaml".to_owned()];
    for (name, board) in boards::all() {
        let text = sorted(&board)?;
        emit(&root.join(format!("{FOLDER}/boards/{name}.json")), &text, check)?;
        for (file, namespace, label, value) in [
            ("grafana", NAMESPACE, "grafana_dashboard", "1"),
            ("console", CONSOLE, "console.openshift.io/dashboard", "true"),
        ] {
            let metadata =
                json!({"name": format!("trainyard-{name}"), "namespace": namespace, "labels": {label: value}});
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
                "data": {format!("trainyard-{name}.json"): text}});
            let path = format!("{file}-{name}.yaml");
            // the console's namespace exists on OpenShift only
            let folder = if file == "console" { format!("{COMPONENT}/openshift") } else { COMPONENT.to_owned() };
            emit_yaml(&format!("{folder}/{path}"), &map)?;
            if file == "grafana" {
                resources.push(path);
            }
        }
    }
    let component = |resources: &[String]| json!({"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", "resources": resources});
    let mut own = component(&resources);
    // the ServiceMonitor finds the Service by this label
    let labelled =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "labels": {LABEL: "trainer"}}});
    own["patches"] = json!([{"patch": yaml::render(&labelled)}]);
    emit_yaml(&format!("{COMPONENT}/kustomization.yaml"), &own)?;
    let console: Vec<String> = boards::all().iter().map(|(name, _)| format!("console-{name}.yaml")).collect();
    emit_yaml(&format!("{COMPONENT}/openshift/kustomization.yaml"), &component(&console))
}

/// Has Prometheus' operator scrape ours.
fn service_monitor() -> Value {
    let server = format!("{SERVICE}.{NAMESPACE}.svc");
    let authority = json!({"secret": {"name": "kubeflow-trainer-webhook-cert", "key": "ca.crt"}});
    // the labels of a job's series name the job's namespace
    let endpoint = json!({"port": "monitoring-port", "interval": "30s", "scheme": "https", "honorLabels": true,
        "tlsConfig": {"serverName": server, "ca": authority}});
    json!({"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor",
        "metadata": {"name": "trainyard", "namespace": NAMESPACE},
        "spec": {"endpoints": [endpoint], "selector": {"matchLabels": {LABEL: "trainer"}}}})
}

/// As Grafana's own library writes a board: members by name, two blanks of indent.
fn sorted(value: &Value) -> Result<String> {
    fn sort(value: &Value) -> Value {
        match value {
            Value::Object(members) => {
                let mut names: Vec<&String> = members.keys().collect();
                names.sort();
                names.into_iter().map(|name| (name.clone(), sort(&members[name]))).collect()
            }
            Value::Array(items) => items.iter().map(sort).collect(),
            other => other.clone(),
        }
    }
    Ok(serde_json::to_string_pretty(&sort(value))? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_up_to_date() {
        run(&crate::root(), true).expect("run cargo xtask monitoring");
    }

    #[test]
    fn queries_name_metrics_that_there_are() {
        let known: Vec<String> = api::metrics::OPERATOR
            .iter()
            .chain(api::metrics::SERVER)
            .map(|metric| metric.name.to_owned())
            .chain(rules::RECORDED.iter().map(|(name, _)| (*name).to_owned()))
            .collect();
        let boards: Vec<String> = boards::all().into_iter().map(|(_, board)| board.to_string()).collect();
        let text = format!("{} {}", rules::groups(), boards.join(" "));
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
        let ours = [
            "trainyard_",
            "trainyard:",
            "mpi_operator_",
            "workqueue_",
            "controller_runtime_",
            "apiserver_",
            "process_",
        ];
        let mut found = 0;
        for word in words.filter(|word| ours.iter().any(|start| word.starts_with(start))) {
            let bare = ["_bucket", "_count", "_sum"].iter().find_map(|end| word.strip_suffix(end));
            assert!(
                known.iter().any(|name| name == word || Some(name.as_str()) == bare),
                "{word} is no metric of ours"
            );
            found += 1;
        }
        assert!(found > 50, "only {found} names were found");
    }
}
