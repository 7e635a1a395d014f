//! `~/.sky/config.yaml`, and `--config` over it.

use ::sky::value::{Map, Value};
use ::sky::yaml::{Place, YamlError, documents};
use api::near::did_you_mean;
use placement::Cloud;
use std::io;
use std::path::Path;

/// What of the configuration is read here.
const READ: [&str; 2] = ["kubernetes", "allowed_clouds"];
/// What else SkyPilot 0.14.1 reads, and has no effect here.
const KNOWN: [&str; 33] = [
    "active_workspace",
    "admin_policy",
    "api_server",
    "aws",
    "azure",
    "cudo",
    "daemons",
    "dashboard",
    "data",
    "db",
    "do",
    "docker",
    "fluidstack",
    "gcp",
    "hyperbolic",
    "jobs",
    "lambda",
    "logs",
    "metrics",
    "nebius",
    "nvidia_gpus",
    "oci",
    "paperspace",
    "plugins",
    "provision",
    "rbac",
    "runpod",
    "serve",
    "slurm",
    "ssh",
    "vast",
    "workspace",
    "workspaces",
];

/// The settings that hold.
#[derive(Debug, Default, PartialEq)]
pub struct Settings {
    pub map: Option<Map>,
    /// Those of `--config` alone.
    pub given: Option<Map>,
    /// Keys of `~/.sky/config.yaml` that SkyPilot knows and that have no effect here.
    pub without_effect: Vec<String>,
}

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("--config {0}: there is no such file, and a setting is KEY.KEY=VALUE")]
    NoFile(String),
    #[error("--config {0}: a setting is KEY.KEY=VALUE")]
    NoSetting(String),
    #[error("--config {given}: `{key}` has no effect here; `{}` have.", READ.join("`, `"))]
    WithoutEffect { given: String, key: String },
    #[error("--config {given}")]
    Given {
        given: String,
        #[source]
        why: Mistake,
    },
    #[error("~/.sky/config.yaml: `{key}` is no setting{near}")]
    Unknown { key: String, near: String },
    #[error("~/.sky/config.yaml")]
    File(#[source] Mistake),
}

/// What is wrong with settings.
#[derive(Debug, thiserror::Error)]
pub enum Mistake {
    #[error(transparent)]
    Unread(#[from] io::Error),
    #[error("{message} (line {}, column {})", .place.line, .place.column)]
    Yaml { message: String, place: Place },
    #[error("it must be a mapping of settings")]
    NoMapping,
    #[error("`allowed_clouds` must be a list, such as [{0}]")]
    NoList(String),
    #[error("`allowed_clouds` names {name:?}, which is no place for machines{near}")]
    NoCloud { name: String, near: String },
    #[error("`kubernetes` must be a mapping, and is {0}")]
    Kubernetes(String),
}

/// The settings of a home, with those of `--config` over them. Each is a file, or a setting as `kubernetes.provision_timeout=30`.
///
/// # Errors
/// For what of `--config` is no setting, or has no effect here.
pub fn settings(home: &Path, given: &[String]) -> Result<Settings, SettingsError> {
    let mut all: Option<Map> = None;
    for one in given {
        let more = match one.split_once('=') {
            Some((path, value)) if !Path::new(one).is_file() => setting(path, value)?,
            None if !Path::new(one).exists() => {
                return Err(SettingsError::NoFile(one.clone()));
            }
            _ => read(Path::new(one))
                .map_err(|why| SettingsError::Given { given: one.clone(), why })?
                .unwrap_or_default(),
        };
        if let Some((key, _)) = more.iter().find(|(key, _)| !READ.contains(&&*key.text())) {
            return Err(SettingsError::WithoutEffect { given: one.clone(), key: key.text() });
        }
        check(&more).map_err(|why| SettingsError::Given { given: one.clone(), why })?;
        over(all.get_or_insert_default(), more);
    }
    settings_with(home, all)
}

/// The settings of a home, with given ones over them.
///
/// # Errors
/// For what of `~/.sky/config.yaml` is no setting.
pub fn settings_with(home: &Path, given: Option<Map>) -> Result<Settings, SettingsError> {
    let path = home.join(".sky/config.yaml");
    let mut map = match path.exists() {
        true => read(&path).map_err(SettingsError::File)?,
        false => None,
    };
    let mut without_effect = Vec::new();
    for (key, _) in map.iter().flat_map(Map::iter) {
        let key = key.text();
        if READ.contains(&&*key) {
            continue;
        }
        if !KNOWN.contains(&&*key) {
            let near = did_you_mean(&key, READ.iter().chain(&KNOWN).copied());
            return Err(SettingsError::Unknown { key, near });
        }
        without_effect.push(key);
    }
    if let Some(map) = &map {
        check(map).map_err(SettingsError::File)?;
    }
    if let Some(given) = &given {
        over(map.get_or_insert_default(), given.clone());
    }
    Ok(Settings { map, given, without_effect })
}

/// The types of the settings that are read.
fn check(map: &Map) -> Result<(), Mistake> {
    if let Some(value) = map.get("allowed_clouds") {
        let Some(list) = value.as_list() else {
            return Err(Mistake::NoList(value.text()));
        };
        for name in list {
            let name = name.text();
            if Cloud::from_name(&name).is_none() {
                let near = did_you_mean(&name, Cloud::ALL.iter().map(|cloud| cloud.name()));
                return Err(Mistake::NoCloud { name, near });
            }
        }
    }
    match map.get("kubernetes") {
        Some(value) if value.as_map().is_none() && !value.is_null() => Err(Mistake::Kubernetes(value.quoted())),
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<Option<Map>, Mistake> {
    let text = std::fs::read_to_string(path)?;
    let all = documents(&text).map_err(|YamlError { message, place }| Mistake::Yaml { message, place })?;
    match all.into_iter().next().and_then(|document| document.value) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Map(map)) => Ok(Some(map)),
        Some(_) => Err(Mistake::NoMapping),
    }
}

/// `a.b=1` as a mapping.
fn setting(path: &str, value: &str) -> Result<Map, SettingsError> {
    let wrong = || SettingsError::NoSetting(format!("{path}={value}"));
    let read = documents(value).map_err(|_| wrong())?.into_iter().next().and_then(|document| document.value);
    let mut value = read.unwrap_or(Value::Null);
    let mut map = Map::new();
    for key in path.rsplit('.') {
        if key.is_empty() {
            return Err(wrong());
        }
        map = Map::from_iter([(key, value)]);
        value = Value::Map(map.clone());
    }
    Ok(map)
}

/// Lays settings over others: mappings go into each other, all else takes the place of what was there.
fn over(under: &mut Map, more: Map) {
    for (key, value) in more.iter() {
        let key = key.text();
        let merged = match (under.get(&key).and_then(Value::as_map), value.as_map()) {
            (Some(below), Some(above)) => {
                let mut below = below.clone();
                over(&mut below, above.clone());
                Value::Map(below)
            }
            _ => value.clone(),
        };
        under.insert(key, merged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_lies_over_the_file() {
        let home = tempfile::tempdir().unwrap();
        let settings = |given: &[&str]| {
            let read = settings(home.path(), &given.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
            read.map(|read| read.map).map_err(|error| api::error_chain(&error))
        };
        assert_eq!(settings(&[]), Ok(None));
        std::fs::create_dir(home.path().join(".sky")).unwrap();
        std::fs::write(
            home.path().join(".sky/config.yaml"),
            "kubernetes: {provision_timeout: 5, pod_config: {a: b}}\n",
        )
        .unwrap();
        let file = home.path().join("more.yaml");
        std::fs::write(&file, "kubernetes: {remote_identity: mine}\n").unwrap();
        let file = file.display().to_string();
        let read =
            settings(&["kubernetes.provision_timeout=30", &file, "kubernetes.pod_config.c=no"]).unwrap().unwrap();
        let kubernetes = read.get("kubernetes").unwrap().as_map().unwrap();
        assert_eq!(kubernetes.get("provision_timeout").unwrap().text(), "30");
        assert_eq!(kubernetes.get("remote_identity").unwrap().text(), "mine");
        let pod = kubernetes.get("pod_config").unwrap().as_map().unwrap();
        assert_eq!((pod.get("a").unwrap().text(), pod.get("c").unwrap().text()), ("b".into(), "False".into()));
        for (given, says) in [
            (
                "aws.vpc_name=x",
                "--config aws.vpc_name=x: `aws` has no effect here; `kubernetes`, `allowed_clouds` have.",
            ),
            ("kubernetes", "--config kubernetes: there is no such file, and a setting is KEY.KEY=VALUE"),
            ("allowed_clouds=ssh", "`allowed_clouds` must be a list, such as [ssh]"),
            ("allowed_clouds=[shh]", "names \"shh\", which is no place for machines"),
            ("=1", "a setting is KEY.KEY=VALUE"),
            ("kubernetes.=1", "a setting is KEY.KEY=VALUE"),
        ] {
            assert!(settings(&[given]).unwrap_err().contains(says), "{:?}", settings(&[given]));
        }
    }

    #[test]
    fn each_mistake_in_the_file_is_told() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".sky")).unwrap();
        let read = |text: &str| {
            std::fs::write(home.path().join(".sky/config.yaml"), text).unwrap();
            settings(home.path(), &[]).map_err(|error| api::error_chain(&error))
        };
        for (text, says) in [
            ("allowed_clouds: [ssh\n", "config.yaml: "),
            ("allowed_clouds:\n\t- ssh\n", "config.yaml: "),
            ("allowed_clouds: ssh\n", "must be a list, such as [ssh]"),
            ("alowed_clouds: [ssh]\n", "did you mean \"allowed_clouds\"?"),
            ("kubernetes: yes\n", "`kubernetes` must be a mapping"),
            ("- a\n", "must be a mapping of settings"),
        ] {
            let told = read(text).unwrap_err();
            assert!(told.contains(says) && told.contains("config.yaml"), "{text}: {told}");
        }
        let fine = read("allowed_clouds: [ssh]\njobs: {bucket: x}\n").unwrap();
        assert_eq!(fine.without_effect, ["jobs"]);
        assert_eq!(read("").unwrap(), Settings::default());
    }
}
