//! `~/.sky/config.yaml`, and `--config` over it.

use ::sky::value::{Map, Value};
use ::sky::yaml::documents;
use api::near::did_you_mean;
use placement::Cloud;
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

/// The settings of a home, with those of `--config` over them. Each is a file, or a setting as `kubernetes.provision_timeout=30`.
///
/// # Errors
/// For what of `--config` is no setting, or has no effect here.
pub fn settings(home: &Path, given: &[String]) -> Result<Settings, String> {
    let mut all: Option<Map> = None;
    for one in given {
        let more = match one.split_once('=') {
            Some((path, value)) if !Path::new(one).is_file() => setting(path, value)?,
            None if !Path::new(one).exists() => {
                return Err(format!("--config {one}: there is no such file, and a setting is KEY.KEY=VALUE"));
            }
            _ => read(Path::new(one)).map_err(|why| format!("--config {one}: {why}"))?.unwrap_or_default(),
        };
        if let Some((key, _)) = more.iter().find(|(key, _)| !READ.contains(&&*key.text())) {
            let known = READ.join("`, `");
            return Err(format!("--config {one}: `{}` has no effect here; `{known}` have.", key.text()));
        }
        check(&more).map_err(|why| format!("--config {one}: {why}"))?;
        over(all.get_or_insert_default(), more);
    }
    settings_with(home, all)
}

/// The settings of a home, with given ones over them.
///
/// # Errors
/// For what of `~/.sky/config.yaml` is no setting.
pub fn settings_with(home: &Path, given: Option<Map>) -> Result<Settings, String> {
    let path = home.join(".sky/config.yaml");
    let mut map = match path.exists() {
        true => read(&path).map_err(|why| format!("~/.sky/config.yaml: {why}"))?,
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
            return Err(format!("~/.sky/config.yaml: `{key}` is no setting{near}"));
        }
        without_effect.push(key);
    }
    if let Some(map) = &map {
        check(map).map_err(|why| format!("~/.sky/config.yaml: {why}"))?;
    }
    if let Some(given) = &given {
        over(map.get_or_insert_default(), given.clone());
    }
    Ok(Settings { map, given, without_effect })
}

/// The types of the settings that are read.
fn check(map: &Map) -> Result<(), String> {
    if let Some(value) = map.get("allowed_clouds") {
        let Some(list) = value.as_list() else {
            return Err(format!("`allowed_clouds` must be a list, such as [{}]", value.text()));
        };
        for name in list {
            let text = name.text();
            if Cloud::from_name(&text).is_none() {
                let near = did_you_mean(&text, Cloud::ALL.iter().map(|cloud| cloud.name()));
                return Err(format!("`allowed_clouds` names {text:?}, which is no place for machines{near}"));
            }
        }
    }
    match map.get("kubernetes") {
        Some(value) if value.as_map().is_none() && !value.is_null() => {
            Err(format!("`kubernetes` must be a mapping, and is {}", value.quoted()))
        }
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<Option<Map>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let all = documents(&text)
        .map_err(|error| format!("{} (line {}, column {})", error.message, error.place.line, error.place.column))?;
    match all.into_iter().next().and_then(|document| document.value) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Map(map)) => Ok(Some(map)),
        Some(_) => Err("it must be a mapping of settings".to_owned()),
    }
}

/// `a.b=1` as a mapping.
fn setting(path: &str, value: &str) -> Result<Map, String> {
    let wrong = || format!("--config {path}={value}: a setting is KEY.KEY=VALUE");
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
            settings(home.path(), &given.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>()).map(|read| read.map)
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
            settings(home.path(), &[])
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
