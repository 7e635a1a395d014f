//! Reads the configuration file strictly, and reports every fault with its field and its line.

use crate::cluster::leader::Election;
use api::config::{Configuration, GATE_TRAINJOB_STATUS};
use api::field::ErrorList;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Turns all alpha features on, where they are not named themselves (Kubernetes' generic gate).
const ALL_ALPHA: &str = "AllAlpha";
/// The same for beta features; there are none.
const ALL_BETA: &str = "AllBeta";

/// The controllers of the operator by the kinds that `groupKindConcurrency` names.
pub const KINDS: [(&str, &str); 3] = [
    ("TrainJob.trainer.kubeflow.org", "trainjob"),
    ("TrainingRuntime.trainer.kubeflow.org", "trainingruntime"),
    ("ClusterTrainingRuntime.trainer.kubeflow.org", "clustertrainingruntime"),
];

/// Why a configuration cannot be used, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("failed to read config file: {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("failed to decode config file: {path}: {why}")]
    Decode { path: PathBuf, why: String },
    /// Each fault with file and line, where there are such.
    #[error("invalid configuration: {}", .0.join("; "))]
    Invalid(Vec<String>),
}

/// Reads the file (none: the defaults), lays the feature gates of the flags over it, and checks everything.
pub fn load(path: Option<&Path>, gates: &[(String, bool)]) -> Result<Configuration, SettingsError> {
    let (text, mut configuration) = match path {
        None => (String::new(), Configuration::default()),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|source| SettingsError::Read { path: path.to_owned(), source })?;
            let configuration = serde_saphyr::from_str(&text)
                .map_err(|error| SettingsError::Decode { path: path.to_owned(), why: error.to_string() })?;
            (text, configuration)
        }
    };
    configuration.feature_gates.extend(gates.iter().cloned());
    expand(&mut configuration.feature_gates);
    let faults = faults(&configuration);
    if faults.is_empty() {
        return Ok(configuration);
    }
    let place = |field: &str| match (path, line_of(&text, field)) {
        (Some(path), Some(line)) => format!("{}:{line}: ", path.display()),
        _ => String::new(),
    };
    Err(SettingsError::Invalid(faults.iter().map(|(field, why)| format!("{}{field}: {why}", place(field))).collect()))
}

fn expand(gates: &mut BTreeMap<String, bool>) {
    if let Some(all) = gates.remove(ALL_ALPHA) {
        gates.entry(GATE_TRAINJOB_STATUS.to_owned()).or_insert(all);
    }
    gates.remove(ALL_BETA);
}

/// Every fault, with its field.
fn faults(configuration: &Configuration) -> Vec<(String, String)> {
    let errors: ErrorList = configuration.validate();
    let split = |error: String| {
        let (field, why) = error.split_once(": ").map_or((error.as_str(), ""), |(field, why)| (field, why));
        (field.to_owned(), why.to_owned())
    };
    let mut faults: Vec<(String, String)> = errors.iter().map(|error| split(error.to_string())).collect();
    for kind in configuration.controller.group_kind_concurrency.keys() {
        if !KINDS.iter().any(|(known, _)| known == kind) {
            let known: Vec<String> = KINDS.iter().map(|(known, _)| format!("{known:?}")).collect();
            let why = format!("Unsupported value: {kind:?}: supported values: {}", known.join(", "));
            faults.push((format!("controller.groupKindConcurrency[{kind}]"), why));
        }
    }
    if let Some(election) = configuration.leader_election.as_ref().filter(|election| election.leader_elect)
        && let Err(fault) = Election::new(election, "any", String::new())
    {
        faults.push(fault);
    }
    let addresses = [
        ("metrics.bindAddress", &configuration.metrics.bind_address),
        ("health.healthProbeBindAddress", &configuration.health.health_probe_bind_address),
    ];
    for (field, address) in addresses {
        if let Err(why) = listen_address(address) {
            faults.push((field.to_owned(), format!("Invalid value: {address:?}: {why}")));
        }
    }
    faults
}

/// An address as Go writes it: `host:port`, `:port` for all interfaces, `0` for nowhere (then `None`).
pub fn listen_address(text: &str) -> Result<Option<String>, &'static str> {
    if text == "0" {
        return Ok(None);
    }
    let (host, port) = text.rsplit_once(':').ok_or("must be host:port, :port, or 0 for nowhere")?;
    port.parse::<u16>().map_err(|_| "the port must be between 0 and 65535")?;
    let host = host.trim_matches(['[', ']']);
    let host = if host.is_empty() { "::" } else { host };
    Ok(Some(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }))
}

/// The line (from 1) of a field in a YAML text of nested mappings; the nearest field above it that is there.
fn line_of(text: &str, field: &str) -> Option<usize> {
    let (field, key) = field.split_once('[').map_or((field, None), |(field, key)| (field, key.strip_suffix(']')));
    let mut found = None;
    let (mut start, mut indent) = (0, None);
    for name in field.split('.').chain(key) {
        let lines = text.lines().enumerate().skip(start);
        let mut hit = None;
        for (at, line) in lines {
            let depth = line.len() - line.trim_start().len();
            let content = line.trim_start();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            if indent.is_some_and(|indent| depth <= indent) {
                break;
            }
            let word = content.split_once(':').map_or("", |(word, _)| word.trim().trim_matches(['"', '\'']));
            if word == name {
                hit = Some((at, depth));
                break;
            }
        }
        let Some((at, depth)) = hit else { break };
        found = Some(at + 1);
        (start, indent) = (at + 1, Some(depth));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n";

    fn file(name: &str, body: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("trainyard-config-{name}-{}.yaml", std::process::id()));
        std::fs::write(&path, format!("{HEAD}{body}")).unwrap();
        path
    }

    fn error(name: &str, body: &str) -> String {
        let path = file(name, body);
        let error = load(Some(&path), &[]).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        error.replace(&path.display().to_string(), "FILE")
    }

    #[test]
    fn faults_name_field_and_line() {
        let two = "webhook:\n  port: 0\nleaderElection:\n  # soon\n  leaseDuration: 5s\n";
        assert_eq!(
            error("two", two),
            "invalid configuration: FILE:4: webhook.port: Invalid value: 0: must be between 1 and 65535; FILE:7: \
             leaderElection.leaseDuration: must be greater than renewDeadline"
        );
        let kinds = "controller:\n  groupKindConcurrency:\n    TrainJob.trainer.kubeflow.org: 5\n    Job.batch: 1\n";
        assert!(
            error("kinds", kinds).contains("FILE:6: controller.groupKindConcurrency[Job.batch]: Unsupported value")
        );
        let address = "metrics: {bindAddress: nowhere}\n";
        assert!(error("address", address).contains("FILE:3: metrics.bindAddress: Invalid value: \"nowhere\""));
        let unknown = error("unknown", "webhook:\n  prot: 1\n");
        assert!(unknown.starts_with("failed to decode config file: FILE") && unknown.contains("prot"), "{unknown}");
        assert!(unknown.contains('4'), "the message names the line: {unknown}");
        let twice = error("twice", "health: {}\nhealth: {}\n");
        assert!(twice.starts_with("failed to decode config file"), "{twice}");
        assert!(
            load(Some(Path::new("/nowhere/x.yaml")), &[]).unwrap_err().to_string().contains("failed to read config")
        );
    }

    #[test]
    fn gates_of_flags_lie_over_the_file() {
        let path = file("gates", "featureGates: {AllAlpha: true, AllBeta: false}\n");
        assert!(load(Some(&path), &[]).unwrap().is_enabled(GATE_TRAINJOB_STATUS));
        let off = [(GATE_TRAINJOB_STATUS.to_owned(), false)];
        assert!(!load(Some(&path), &off).unwrap().is_enabled(GATE_TRAINJOB_STATUS));
        std::fs::remove_file(&path).unwrap();
        let error = load(None, &[("Nope".to_owned(), true)]).unwrap_err().to_string();
        assert!(error.contains("featureGates[Nope]: Unsupported value"), "{error}");
    }

    #[test]
    fn addresses_are_gos() {
        assert_eq!(listen_address(":8443"), Ok(Some("[::]:8443".to_owned())));
        assert_eq!(listen_address("[::1]:80"), Ok(Some("[::1]:80".to_owned())));
        assert_eq!(listen_address("0"), Ok(None));
        assert!(listen_address("x").is_err() && listen_address("x:y").is_err());
    }
}
